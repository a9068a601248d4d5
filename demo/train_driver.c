/* The demo as a driver API program, for machines without nvcc. */
#include "demo/driver.h"
#include "demo/workload.h"

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

static void *workload_alloc(size_t bytes)
{
    CUdeviceptr block = 0;
    driver_check(mem_alloc(&block, bytes), "cuMemAlloc");
    return (void *)(uintptr_t)block;
}

static void workload_fill(void *block, unsigned char value, size_t bytes)
{
    driver_check(memset_d8((CUdeviceptr)(uintptr_t)block, value, bytes), "cuMemsetD8");
}

static void workload_read(unsigned char *to, const void *block, size_t bytes)
{
    driver_check(memcpy_dtoh(to, (CUdeviceptr)(uintptr_t)block, bytes), "cuMemcpyDtoH");
}

static void workload_free(void *block)
{
    driver_check(mem_free((CUdeviceptr)(uintptr_t)block), "cuMemFree");
}

int main(int argc, char **argv)
{
    CUdevice device;
    CUcontext context;
    char name[128];
    void *driver = driver_open();
    driver_find(driver, "cuInit", &init);
    driver_find(driver, "cuDeviceGet", &device_get);
    driver_find(driver, "cuDeviceGetName", &device_get_name);
    driver_find(driver, "cuDevicePrimaryCtxRetain", &primary_retain);
    driver_find(driver, "cuDevicePrimaryCtxRelease_v2", &primary_release);
    driver_find(driver, "cuCtxSetCurrent", &set_current);
    driver_find(driver, "cuMemAlloc_v2", &mem_alloc);
    driver_find(driver, "cuMemFree_v2", &mem_free);
    driver_find(driver, "cuMemsetD8_v2", &memset_d8);
    driver_find(driver, "cuMemcpyDtoH_v2", &memcpy_dtoh);

    driver_check(init(0), "cuInit");
    driver_check(device_get(&device, 0), "cuDeviceGet");
    driver_check(device_get_name(name, (int)sizeof(name), device), "cuDeviceGetName");
    driver_check(primary_retain(&context, device), "cuDevicePrimaryCtxRetain");
    driver_check(set_current(context), "cuCtxSetCurrent");
    int status = workload_run(name, argc, argv);
    if (argc < 3) /* the end of the context would free what is leaked */
        driver_check(primary_release(device), "cuDevicePrimaryCtxRelease");
    return status;
}
