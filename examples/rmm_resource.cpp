// RMM's callback_memory_resource over the library. RMM expects rmm::out_of_memory (a std::bad_alloc)
// where there is no memory, and a C function cannot throw, so two lines stand between.
//
// Built here without RMM, the same callbacks are called through std::function types of the same shape.
/* link: -lgpucache -l:libcuda.so.1 */
#include "gpucache.h"

#include <cuda.h>

#include <cstdio>
#include <functional>
#include <new>

#if defined(__has_include)
#if __has_include(<rmm/mr/callback_memory_resource.hpp>)
#include <rmm/mr/callback_memory_resource.hpp>
#define HAVE_RMM
#elif __has_include(<rmm/mr/device/callback_memory_resource.hpp>)
#include <rmm/mr/device/callback_memory_resource.hpp>
#define HAVE_RMM
#endif
#endif

static void *allocate(std::size_t bytes, gpucache_stream stream, void *device)
{
    void *pointer = gpucache_rmm_allocate(bytes, stream, device);
    if (pointer == nullptr && bytes > 0)
        throw std::bad_alloc();
    return pointer;
}

#ifdef HAVE_RMM
// An allocator for the current context's device.
rmm::mr::callback_memory_resource make_resource()
{
    return rmm::mr::callback_memory_resource(
        [](std::size_t bytes, rmm::cuda_stream_view stream, void *device) {
            return allocate(bytes, stream.value(), device);
        },
        [](void *pointer, std::size_t bytes, rmm::cuda_stream_view stream, void *device) {
            gpucache_rmm_deallocate(pointer, bytes, stream.value(), device);
        });
}
#endif

// As rmm::cuda_stream_view: a class that converts to the stream it holds.
class stream_view {
  public:
    explicit stream_view(CUstream stream) : stream_(stream) {}
    operator CUstream() const { return stream_; }

  private:
    CUstream stream_;
};

int main()
{
    std::function<void *(std::size_t, stream_view, void *)> take = allocate;
    std::function<void(void *, std::size_t, stream_view, void *)> give = gpucache_rmm_deallocate;
    CUcontext context;
    CUstream stream;

    if (cuInit(0) != CUDA_SUCCESS || cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
        cuCtxSetCurrent(context) != CUDA_SUCCESS ||
        cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
        return 1;
    void *pointer = take(1 << 20, stream_view(stream), nullptr);
    give(pointer, 1 << 20, stream_view(stream), nullptr);
    try {
        take(std::size_t(1) << 45, stream_view(stream), nullptr);
    } catch (const std::bad_alloc &) {
        std::printf("more than there is: bad_alloc\n");
        return 0;
    }
    return 1;
}
