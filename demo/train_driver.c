/* The demo as a driver API program, for machines without nvcc. It knows nothing of the library.
 * It opens the driver itself, as programs do that must start where there is none. */
#include "demo/workload.h"

#include <cuda.h>
#include <dlfcn.h>

static CUresult (*init)(unsigned flags);
static CUresult (*device_get)(CUdevice *device, int ordinal);
static CUresult (*device_get_name)(char *name, int bytes, CUdevice device);
static CUresult (*primary_retain)(CUcontext *context, CUdevice device);
static CUresult (*primary_release)(CUdevice device);
static CUresult (*set_current)(CUcontext context);
static CUresult (*mem_alloc)(CUdeviceptr *block, size_t bytes);
static CUresult (*mem_free)(CUdeviceptr block);
static CUresult (*memset_d8)(CUdeviceptr block, unsigned char value, size_t count);
static CUresult (*memcpy_dtoh)(void *to, CUdeviceptr from, size_t bytes);

static void check(CUresult result, const char *what)
{
    if (result != CUDA_SUCCESS) {
        fprintf(stderr, "%s: CUDA error %d\n", what, (int)result);
        exit(EXIT_FAILURE);
    }
}

static void *workload_alloc(size_t bytes)
{
    CUdeviceptr block = 0;
    check(mem_alloc(&block, bytes), "cuMemAlloc");
    return (void *)(uintptr_t)block;
}

static void workload_fill(void *block, unsigned char value, size_t bytes)
{
    check(memset_d8((CUdeviceptr)(uintptr_t)block, value, bytes), "cuMemsetD8");
}

static void workload_read(unsigned char *to, const void *block, size_t bytes)
{
    check(memcpy_dtoh(to, (CUdeviceptr)(uintptr_t)block, bytes), "cuMemcpyDtoH");
}

static void workload_free(void *block)
{
    check(mem_free((CUdeviceptr)(uintptr_t)block), "cuMemFree");
}

static void find(void *driver, const char *name, void *function)
{
    void *address = dlsym(driver, name);
    if (address == NULL) {
        fprintf(stderr, "libcuda.so.1 has no %s\n", name);
        exit(EXIT_FAILURE);
    }
    *(void **)function = address;
}

int main(int argc, char **argv)
{
    CUdevice device;
    CUcontext context;
    char name[128];
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (driver == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return EXIT_FAILURE;
    }
    find(driver, "cuInit", &init);
    find(driver, "cuDeviceGet", &device_get);
    find(driver, "cuDeviceGetName", &device_get_name);
    find(driver, "cuDevicePrimaryCtxRetain", &primary_retain);
    find(driver, "cuDevicePrimaryCtxRelease_v2", &primary_release);
    find(driver, "cuCtxSetCurrent", &set_current);
    find(driver, "cuMemAlloc_v2", &mem_alloc);
    find(driver, "cuMemFree_v2", &mem_free);
    find(driver, "cuMemsetD8_v2", &memset_d8);
    find(driver, "cuMemcpyDtoH_v2", &memcpy_dtoh);

    check(init(0), "cuInit");
    check(device_get(&device, 0), "cuDeviceGet");
    check(device_get_name(name, (int)sizeof(name), device), "cuDeviceGetName");
    check(primary_retain(&context, device), "cuDevicePrimaryCtxRetain");
    check(set_current(context), "cuCtxSetCurrent");
    int status = workload_run(name, argc, argv);
    if (argc < 3) /* the end of the context would free what is leaked */
        check(primary_release(device), "cuDevicePrimaryCtxRelease");
    return status;
}
