/* link: -l:libcuda.so.1 -rdynamic -pthread */
/* Allocates along known ways: site_one 10 times, freed but the last; site_two from 4 threads. */
#include <cuda.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(call) check((call), #call)

int site_one(CUdeviceptr *address);
int site_two(CUdeviceptr *address);
int through(int (*site)(CUdeviceptr *), CUdeviceptr *address);

static void check(CUresult result, const char *call)
{
    if (result != CUDA_SUCCESS) {
        fprintf(stderr, "%s: %d\n", call, result);
        exit(1);
    }
}

__attribute__((noinline, visibility("default"))) int site_one(CUdeviceptr *address)
{
    CHECK(cuMemAlloc(address, 1 << 20));
    return *address != 0;
}

__attribute__((noinline, visibility("default"))) int site_two(CUdeviceptr *address)
{
    CHECK(cuMemAlloc(address, 4096));
    return *address != 0;
}

__attribute__((noinline, visibility("default"))) int through(int (*site)(CUdeviceptr *),
                                                             CUdeviceptr *address)
{
    return site(address) + 1;
}

static CUcontext context;

static void *work(void *argument)
{
    (void)argument;
    CHECK(cuCtxSetCurrent(context));
    for (int i = 0; i < 1000; i++) {
        CUdeviceptr address;
        through(site_two, &address);
        CHECK(cuMemFree(address));
    }
    return NULL;
}

int main(void)
{
    CUdevice device;
    CUdeviceptr address = 0;
    pthread_t threads[4];
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    for (int i = 0; i < 10; i++) {
        CHECK(cuMemFree(address)); /* none at first: that is no error */
        through(site_one, &address);
    }
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, work, NULL);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
