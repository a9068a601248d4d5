/* A program on NVIDIA's runtime, driver and NVML, where there is no device: prints what each call
 * returns. Built with CUPTI (-DCUPTI) it subscribes to the runtime's calls first, and prints those
 * that it is told of. */
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <stdio.h>

#define SHOW(call) printf("%s: %d\n", #call, (int)(call))

int nvmlInit_v2(void);
int nvmlDeviceGetCount_v2(unsigned *count);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device);
int nvmlShutdown(void);

#ifdef CUPTI
#include <cupti.h>

static void told(void *user, CUpti_CallbackDomain domain, CUpti_CallbackId id,
                 const CUpti_CallbackData *call)
{
    (void)user, (void)domain, (void)id;
    if (call->callbackSite == CUPTI_API_ENTER)
        printf("CUPTI: %s\n", call->functionName);
}

static void profile(void)
{
    static CUpti_SubscriberHandle subscriber;

    SHOW(cuptiSubscribe(&subscriber, told, NULL));
    SHOW(cuptiEnableDomain(1, subscriber, CUPTI_CB_DOMAIN_RUNTIME_API));
}
#else
static void profile(void)
{
}
#endif

int main(void)
{
    void *pointer = NULL, *device = NULL;
    CUdeviceptr address = 0;
    CUcontext context = NULL;
    cudaStream_t stream = NULL;
    size_t free_bytes = 0, total_bytes = 0;
    int count = -1;
    unsigned nvml_count = 0;

    profile();
    SHOW(cuMemAlloc(&address, 1 << 20));
    SHOW(cudaGetDeviceCount(&count));
    SHOW(count);
    SHOW(cudaMalloc(&pointer, 1 << 20));
    SHOW(cudaMalloc(&pointer, 0));
    SHOW(cudaMallocAsync(&pointer, 1 << 20, 0));
    SHOW(cudaMallocManaged(&pointer, 1 << 20, cudaMemAttachGlobal));
    SHOW(cudaMallocHost(&pointer, 1 << 20));
    SHOW(cudaFree(NULL));
    SHOW(cudaFree(&count));
    SHOW(cudaFreeAsync(&count, 0));
    SHOW(cudaMemGetInfo(&free_bytes, &total_bytes));
    SHOW(cudaSetDevice(0));
    SHOW(cudaDeviceSynchronize());
    SHOW(cudaStreamCreate(&stream));
    SHOW(cudaMemset(&count, 0, 4));
    SHOW(cudaGetLastError());
    SHOW(cudaDriverGetVersion(&count));
    SHOW(count);
    SHOW(cudaRuntimeGetVersion(&count));
    SHOW(count);
    SHOW(cuInit(0));
    SHOW(cuDeviceGetCount(&count));
    SHOW(cuCtxGetCurrent(&context));
    SHOW(cuDevicePrimaryCtxRetain(&context, 0));
    SHOW(cuMemAlloc(&address, 1 << 20));
    SHOW(cuMemFree(address));
    SHOW(cuMemGetInfo(&free_bytes, &total_bytes));
    SHOW(cudaDeviceReset());
    SHOW(nvmlInit_v2());
    SHOW(nvmlDeviceGetCount_v2(&nvml_count));
    SHOW(nvmlDeviceGetHandleByIndex_v2(0, &device));
    SHOW(nvmlShutdown());
    return 0;
}
