/* The signatures that frameworks call, as types of C, each called once: a program with an allocator
 * interface of the same shape can take these functions as they are. For PyTorch and CuPy themselves
 * see torch_allocator.py and cupy_allocator.py, for RMM rmm_resource.cpp. */
/* link: -lgpucache -l:libcuda.so.1 */
#include "gpucache.h"

#include <cuda.h>
#include <stdio.h>
#include <sys/types.h>

/* torch.cuda.memory.CUDAPluggableAllocator */
typedef void *torch_malloc(ssize_t bytes, int device, void *stream);
typedef void torch_free(void *pointer, ssize_t bytes, int device, void *stream);
/* cupy.cuda.CFunctionAllocator */
typedef void *cupy_malloc(void *param, size_t bytes, int device);
typedef void cupy_free(void *param, void *pointer, int device);

int main(void)
{
    torch_malloc *take = gpucache_torch_malloc;
    torch_free *give = gpucache_torch_free;
    cupy_malloc *take_cupy = gpucache_cupy_malloc;
    cupy_free *give_cupy = gpucache_cupy_free;
    struct gpucache_cupy_param param;
    CUcontext context;
    CUstream stream;
    void *tensor, *array;
    int is_first = 0;

    if (cuInit(0) != CUDA_SUCCESS || cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
        cuCtxSetCurrent(context) != CUDA_SUCCESS ||
        cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
        return 1;
    tensor = take(1 << 20, 0, stream);
    param.stream = stream;
    array = take_cupy(&param, 1 << 20, 0);
    if (tensor == NULL || array == NULL)
        return 1;
    cuMemcpyDtoDAsync((CUdeviceptr)array, (CUdeviceptr)tensor, 1 << 20, stream);
    give(tensor, 1 << 20, 0, stream);
    give_cupy(&param, array, 0);
    if (gpucache_get_mode(NULL, &is_first) == GPUCACHE_OK)
        printf("CUDA calls of the program %s by\n", is_first ? "come" : "do not come");
    printf("more than there is: %s\n", take((ssize_t)1 << 45, 0, stream) == NULL ? "NULL" : "?");
    return 0;
}
