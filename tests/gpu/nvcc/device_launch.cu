/* Kernels that kernels launch: does cuCtxRecordEvent cover them? The first kernel launches one that runs until the host ends
 * it, in each of the ways of device code. Needs nvcc; scripts/gpu.sh builds it. */
#include <cuda.h>
#include <cuda_runtime.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <thread>

static __device__ unsigned long long now()
{
    unsigned long long ns;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(ns));
    return ns;
}

static __global__ void hold(volatile unsigned *word)
{
    const unsigned long long start = now();
    while (*word == 0 && now() - start < 10000000000ull)
        ;
}

static __global__ void parent(volatile unsigned *word, int way)
{
    if (way == 0)
        hold<<<1, 1>>>(word);
    else if (way == 1)
        hold<<<1, 1, 0, cudaStreamFireAndForget>>>(word);
    else
        hold<<<1, 1, 0, cudaStreamTailLaunch>>>(word);
}

int main()
{
    static const char *const ways[] = {"device_launch", "device_forget", "device_tail"};
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    auto record = reinterpret_cast<CUresult (*)(CUcontext, CUevent)>(dlsym(driver, "cuCtxRecordEvent"));
    auto current = reinterpret_cast<CUresult (*)(CUcontext *)>(dlsym(driver, "cuCtxGetCurrent"));
    auto query = reinterpret_cast<CUresult (*)(CUevent)>(dlsym(driver, "cuEventQuery"));
    unsigned *word = nullptr;
    cudaEvent_t event;
    CUcontext context;
    if (record == nullptr || cudaHostAlloc(&word, 4, cudaHostAllocMapped) != cudaSuccess)
        return EXIT_FAILURE;
    *word = 1;
    cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    current(&context);
    parent<<<1, 1>>>(word, 0);
    cudaDeviceSynchronize();
    for (int way = 0; way < 3; way++) {
        *const_cast<volatile unsigned *>(word) = 0;
        parent<<<1, 1>>>(word, way);
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        printf("row covers.%s.code %d code\n", ways[way], static_cast<int>(record(context, event)));
        printf("row covers.%s.pending %d yes\n", ways[way], query(event) == CUDA_ERROR_NOT_READY);
        *const_cast<volatile unsigned *>(word) = 1;
        printf("row covers.%s.completes %d code\n", ways[way], static_cast<int>(cudaEventSynchronize(event)));
        cudaDeviceSynchronize();
    }
    return cudaGetLastError() == cudaSuccess ? EXIT_SUCCESS : EXIT_FAILURE;
}
