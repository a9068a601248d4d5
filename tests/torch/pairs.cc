// What PyTorch's allocator takes for a request and its free, without Python: speed_cases.py calls these.
#include <c10/cuda/CUDACachingAllocator.h>

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <vector>

// Of this thread alone: other programs on the processor do not count.
static double thread_ns()
{
    timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return double(now.tv_sec) * 1e9 + double(now.tv_nsec);
}

// Nanoseconds of a pair of `bytes`, the mean of `count`.
extern "C" double torch_pair_ns(size_t bytes, size_t count)
{
    c10::Allocator *allocator = c10::cuda::CUDACachingAllocator::get();
    const double start = thread_ns();
    for (size_t i = 0; i < count; i++)
        allocator->allocate(bytes);
    return (thread_ns() - start) / double(count);
}

// Nanoseconds of an event of a trace, the mean of `count`: the i-th allocates sizes[i] bytes for slots[i], or frees what
// the slot holds if the size is 0. Memory that is left is freed after the time is taken.
extern "C" double torch_trace_ns(const uint32_t *slots, const size_t *sizes, size_t count, size_t slot_count)
{
    c10::Allocator *allocator = c10::cuda::CUDACachingAllocator::get();
    std::vector<at::DataPtr> live(slot_count);
    const double start = thread_ns();
    for (size_t i = 0; i < count; i++) {
        if (sizes[i] == 0)
            live[slots[i]].clear();
        else
            live[slots[i]] = allocator->allocate(sizes[i]);
    }
    return (thread_ns() - start) / double(count);
}
