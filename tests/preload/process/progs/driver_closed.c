/* A program that opens the driver, uses it, closes it as often as it opened it, and ends. usage:
 * driver_closed */
#include <cuda.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

static void *find(void *driver, const char *name)
{
    void *function = dlsym(driver, name);
    if (function == NULL)
        exit(3);
    return function;
}

int main(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    CUcontext context;
    CUdeviceptr block;

    if (driver == NULL)
        return 2;
    CUresult (*init)(unsigned) = NULL;
    CUresult (*retain)(CUcontext *, CUdevice) = NULL;
    CUresult (*set)(CUcontext) = NULL;
    CUresult (*alloc)(CUdeviceptr *, size_t) = NULL;
    *(void **)&init = find(driver, "cuInit");
    *(void **)&retain = find(driver, "cuDevicePrimaryCtxRetain");
    *(void **)&set = find(driver, "cuCtxSetCurrent");
    *(void **)&alloc = find(driver, "cuMemAlloc_v2");
    if (init(0) != CUDA_SUCCESS || retain(&context, 0) != CUDA_SUCCESS ||
        set(context) != CUDA_SUCCESS || alloc(&block, 1 << 20) != CUDA_SUCCESS)
        return 4;
    dlclose(driver);
    printf("closed\n");
    return 0;
}
