/* What the programs in this folder share: the driver, opened as programs open it; the kernels of
 * kernels.ptx; clocks; and the lines that blocks.py reads:
 *
 *     row NAME VALUE UNIT     a figure, or a code
 *     skip NAME REASON        these figures do not apply to this device; NAME may end in *
 *     missing NAME REASON     these figures were wanted, and something that is not there prevents
 * them
 *
 * On the simulated device (GPU_REHEARSAL=1) kernels compute nothing. There a host function keeps a
 * stream busy in the place of the kernels `spin` and `hold`, so that orders and waits are real.
 * GPU_SHORT=1 asks for a short run.
 *
 * Builds with the headers of CUDA 11.8 and later: newer entry points are declared here. */
#ifndef GPU_H
#define GPU_H

#include <cuda.h>

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define KIB UINT64_C(1024)
#define MIB (1024 * KIB)
#define GIB (1024 * MIB)
#define MS UINT64_C(1000000) /* nanoseconds */
#define HOLD_NS_MAX (20000 * MS)
#define GPU_UNUSED __attribute__((unused))

#if CUDA_VERSION < 12000
typedef int CUdriverProcAddressQueryResult;
#endif
#if CUDA_VERSION < 12040
#define CU_DEV_RESOURCE_TYPE_SM 1
#define CU_GREEN_CTX_DEFAULT_STREAM 1
typedef struct CUdevResourceDesc_st *CUdevResourceDesc;
typedef struct CUgreenCtx_st *CUgreenCtx;
typedef struct {
    uint64_t words[18];
} CUdevResource;
CUresult cuDeviceGetDevResource(CUdevice, CUdevResource *, int type);
CUresult cuDevSmResourceSplitByCount(CUdevResource *, unsigned *groups, const CUdevResource *,
                                     CUdevResource *rest, unsigned flags, unsigned least);
CUresult cuDevResourceGenerateDesc(CUdevResourceDesc *, CUdevResource *, unsigned count);
CUresult cuGreenCtxCreate(CUgreenCtx *, CUdevResourceDesc, CUdevice, unsigned flags);
CUresult cuGreenCtxDestroy(CUgreenCtx);
#endif
#if CUDA_VERSION < 12050
CUresult cuCtxRecordEvent(CUcontext, CUevent);
CUresult cuGreenCtxStreamCreate(CUstream *, CUgreenCtx, unsigned flags, int priority);
#endif

/* cuda.h renames functions to their newest ABI, here as everywhere. */
#define GPU_ENTRIES(X)                                                                             \
    X(cuInit)                                                                                      \
    X(cuGetErrorName)                                                                              \
    X(cuDriverGetVersion)                                                                          \
    X(cuDeviceGet)                                                                                 \
    X(cuDeviceGetName)                                                                             \
    X(cuDeviceGetAttribute)                                                                        \
    X(cuDeviceGetCount)                                                                            \
    X(cuDeviceCanAccessPeer)                                                                       \
    X(cuDeviceGetUuid)                                                                             \
    X(cuDevicePrimaryCtxRetain)                                                                    \
    X(cuDevicePrimaryCtxRelease)                                                                   \
    X(cuDevicePrimaryCtxReset)                                                                     \
    X(cuCtxSetCurrent)                                                                             \
    X(cuCtxGetCurrent)                                                                             \
    X(cuCtxPushCurrent)                                                                            \
    X(cuCtxPopCurrent)                                                                             \
    X(cuCtxDestroy)                                                                                \
    X(cuCtxSynchronize)                                                                            \
    X(cuCtxSetLimit)                                                                               \
    X(cuCtxRecordEvent)                                                                            \
    X(cuMemAlloc)                                                                                  \
    X(cuMemAllocPitch)                                                                             \
    X(cuMemAllocManaged)                                                                           \
    X(cuMemFree)                                                                                   \
    X(cuMemGetInfo)                                                                                \
    X(cuMemGetAddressRange)                                                                        \
    X(cuMemHostAlloc)                                                                              \
    X(cuMemFreeHost)                                                                               \
    X(cuMemHostGetDevicePointer)                                                                   \
    X(cuMemAllocAsync)                                                                             \
    X(cuMemFreeAsync)                                                                              \
    X(cuMemcpyHtoD)                                                                                \
    X(cuMemcpyDtoH)                                                                                \
    X(cuMemcpyDtoHAsync)                                                                           \
    X(cuMemcpyDtoDAsync)                                                                           \
    X(cuMemsetD8)                                                                                  \
    X(cuMemsetD8Async)                                                                             \
    X(cuMemsetD32Async)                                                                            \
    X(cuMemAddressReserve)                                                                         \
    X(cuMemAddressFree)                                                                            \
    X(cuMemCreate)                                                                                 \
    X(cuMemRelease)                                                                                \
    X(cuMemMap)                                                                                    \
    X(cuMemUnmap)                                                                                  \
    X(cuMemSetAccess)                                                                              \
    X(cuMemGetAllocationGranularity)                                                               \
    X(cuMemExportToShareableHandle)                                                                \
    X(cuMemGetHandleForAddressRange)                                                               \
    X(cuMemRetainAllocationHandle)                                                                 \
    X(cuPointerGetAttribute)                                                                       \
    X(cuPointerGetAttributes)                                                                      \
    X(cuPointerSetAttribute)                                                                       \
    X(cuIpcGetMemHandle)                                                                           \
    X(cuIpcOpenMemHandle)                                                                          \
    X(cuIpcCloseMemHandle)                                                                         \
    X(cuStreamCreate)                                                                              \
    X(cuStreamDestroy)                                                                             \
    X(cuStreamQuery)                                                                               \
    X(cuStreamSynchronize)                                                                         \
    X(cuStreamWaitEvent)                                                                           \
    X(cuStreamBeginCapture)                                                                        \
    X(cuStreamEndCapture)                                                                          \
    X(cuThreadExchangeStreamCaptureMode)                                                           \
    X(cuLaunchHostFunc)                                                                            \
    X(cuLaunchKernel)                                                                              \
    X(cuLaunchKernelEx)                                                                            \
    X(cuModuleLoadData)                                                                            \
    X(cuModuleUnload)                                                                              \
    X(cuModuleGetFunction)                                                                         \
    X(cuEventCreate)                                                                               \
    X(cuEventDestroy)                                                                              \
    X(cuEventRecord)                                                                               \
    X(cuEventQuery)                                                                                \
    X(cuEventSynchronize)                                                                          \
    X(cuEventElapsedTime)                                                                          \
    X(cuGraphInstantiateWithFlags)                                                                 \
    X(cuGraphLaunch)                                                                               \
    X(cuGraphExecDestroy)                                                                          \
    X(cuGraphDestroy)                                                                              \
    X(cuDeviceGetDevResource)                                                                      \
    X(cuDevSmResourceSplitByCount)                                                                 \
    X(cuDevResourceGenerateDesc)                                                                   \
    X(cuGreenCtxCreate)                                                                            \
    X(cuGreenCtxDestroy)                                                                           \
    X(cuGreenCtxStreamCreate)

#define GPU_NAME_(name) #name
#define GPU_NAME(name) GPU_NAME_(name)

static struct {
#define GPU_FIELD(name) __typeof__(name) *name;
    GPU_ENTRIES(GPU_FIELD)
#undef GPU_FIELD
} cu GPU_UNUSED;

static struct {
    void *library;
    CUdevice device;
    CUcontext context; /* the primary one, current in the main thread */
    CUmodule kernels;
    bool is_rehearsal;
    bool is_short;
    int version;
    int capability; /* 90: 9.0 */
} gpu GPU_UNUSED;

/* ---- lines ---- */

static void row(double value, const char *unit, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
GPU_UNUSED static void row(double value, const char *unit, const char *format, ...)
{
    char name[160];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(name, sizeof(name), format, arguments);
    va_end(arguments);
    printf("row %s %.10g %s\n", name, value, unit);
}

GPU_UNUSED static void row_code(CUresult result, const char *name)
{
    row(result, "code", "%s", name);
}

/* What does not apply to this device. */
GPU_UNUSED static void skip(const char *name, const char *reason)
{
    printf("skip %s %s\n", name, reason);
}

static void gpu_check(CUresult result, const char *what, const char *file, int line)
{
    const char *name = NULL;

    if (result == CUDA_SUCCESS)
        return;
    if (cu.cuGetErrorName != NULL)
        cu.cuGetErrorName(result, &name);
    fprintf(stderr, "%s:%d: %s: CUDA error %d %s\n", file, line, what, (int)result,
            name == NULL ? "" : name);
    exit(EXIT_FAILURE);
}
#define CU(name, ...) gpu_check(cu.name(__VA_ARGS__), GPU_NAME(name), __FILE__, __LINE__)

/* ---- the clock ---- */

GPU_UNUSED static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

GPU_UNUSED static void pause_ns(uint64_t ns)
{
    const struct timespec time = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};

    nanosleep(&time, NULL);
}

GPU_UNUSED static double us_since(uint64_t start_ns)
{
    return (double)(now_ns() - start_ns) / 1000;
}

/* ---- a series of times ---- */

#define ROUNDS 200
#define WARM_UP_ROUNDS 10

struct series {
    double us[ROUNDS];
    unsigned seen; /* warm-up included */
};

GPU_UNUSED static unsigned rounds(unsigned count)
{
    return WARM_UP_ROUNDS + (gpu.is_short ? (count + 9) / 10 : count);
}

GPU_UNUSED static void series_add(struct series *series, uint64_t start_ns)
{
    const double us = us_since(start_ns);

    if (series->seen >= WARM_UP_ROUNDS && series->seen < WARM_UP_ROUNDS + ROUNDS)
        series->us[series->seen - WARM_UP_ROUNDS] = us;
    series->seen++;
}

static int compare_us(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;

    return (a > b) - (a < b);
}

/* "512", "64KiB", "2MiB". */
GPU_UNUSED static const char *size_name(uint64_t bytes)
{
    static char names[8][24];
    static unsigned next;
    char *name = names[next++ % 8];
    const uint64_t unit = bytes >= GIB ? GIB : bytes >= MIB ? MIB : bytes >= KIB ? KIB : 1;

    snprintf(name, sizeof(names[0]), "%llu%s", (unsigned long long)(bytes / unit),
             unit == GIB   ? "GiB"
             : unit == MIB ? "MiB"
             : unit == KIB ? "KiB"
                           : "B");
    return name;
}

/* `bytes` 0: the call has no size. */
GPU_UNUSED static void series_report(struct series *series, const char *call, uint64_t bytes)
{
    unsigned count = series->seen > WARM_UP_ROUNDS ? series->seen - WARM_UP_ROUNDS : 0;
    const char *dot = bytes == 0 ? "" : ".";

    if (count > ROUNDS)
        count = ROUNDS;
    if (count == 0)
        return;
    qsort(series->us, count, sizeof(series->us[0]), compare_us);
    row(series->us[count / 2], "us", "%s%s%s.median", call, dot, bytes ? size_name(bytes) : "");
    row(series->us[count * 99 / 100], "us", "%s%s%s.p99", call, dot, bytes ? size_name(bytes) : "");
}

#define TIMED(series, call)                                                                        \
    do {                                                                                           \
        const uint64_t start_ns_ = now_ns();                                                       \
        call;                                                                                      \
        series_add((series), start_ns_);                                                           \
    } while (0)

/* ---- the driver ---- */

static bool gpu_is_set(const char *name)
{
    const char *value = getenv(name);

    return value != NULL && value[0] != '\0' && value[0] != '0';
}

GPU_UNUSED static void gpu_load(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    setenv("CUDA_MODULE_LOADING", "EAGER", 1); /* a first launch does not load and wait */
    gpu.is_rehearsal = gpu_is_set("GPU_REHEARSAL");
    gpu.is_short = gpu_is_set("GPU_SHORT");
    gpu.library = dlopen("libcuda.so.1", RTLD_NOW);
    if (gpu.library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(EXIT_FAILURE);
    }
#define GPU_FIND(name) *(void **)&cu.name = dlsym(gpu.library, GPU_NAME(name));
    GPU_ENTRIES(GPU_FIND)
#undef GPU_FIND
    if (cu.cuInit == NULL || cu.cuMemAlloc == NULL) {
        fprintf(stderr, "this libcuda.so.1 is no CUDA driver\n");
        exit(EXIT_FAILURE);
    }
    CU(cuInit, 0);
    CU(cuDriverGetVersion, &gpu.version);
    CU(cuDeviceGet, &gpu.device, 0);
}

GPU_UNUSED static int gpu_attribute(int which)
{
    int value = -1;

    return cu.cuDeviceGetAttribute(&value, (CUdevice_attribute)which, gpu.device) == CUDA_SUCCESS
               ? value
               : -1;
}

GPU_UNUSED static void gpu_open(void)
{
    gpu_load();
    gpu.capability = 10 * gpu_attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) +
                     gpu_attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
    CU(cuDevicePrimaryCtxRetain, &gpu.context, gpu.device);
    CU(cuCtxSetCurrent, gpu.context);
}

/* A module of this folder's text, loaded into the current context. */
GPU_UNUSED static CUmodule gpu_load_module(const char *file)
{
    static char text[64 * 1024];
    char path[4096];
    const char *folder = getenv("GPU_KERNELS");
    CUmodule module = NULL;

    snprintf(path, sizeof(path), "%s/%s", folder != NULL ? folder : "tests/gpu", file);
    FILE *stream = fopen(path, "r");
    if (stream == NULL) {
        perror(path);
        exit(EXIT_FAILURE);
    }
    text[fread(text, 1, sizeof(text) - 1, stream)] = '\0';
    fclose(stream);
    CU(cuModuleLoadData, &module, text);
    return module;
}

GPU_UNUSED static CUfunction gpu_function(CUmodule module, const char *name)
{
    CUfunction function = NULL;

    CU(cuModuleGetFunction, &function, module, name);
    return function;
}

/* A kernel of kernels.ptx, of the primary context. */
GPU_UNUSED static CUfunction gpu_kernel(const char *name)
{
    if (gpu.kernels == NULL)
        gpu.kernels = gpu_load_module("kernels.ptx");
    return gpu_function(gpu.kernels, name);
}

GPU_UNUSED static void gpu_launch(CUfunction kernel, unsigned blocks, unsigned threads,
                                  CUstream stream, void **parameters)
{
    CU(cuLaunchKernel, kernel, blocks, 1, 1, threads, 1, 1, 0, stream, parameters, NULL);
}

/* ---- work that takes its time ---- */

static void CUDA_CB sleep_host(void *ns)
{
    pause_ns((uint64_t)(uintptr_t)ns);
}

static struct {
    CUfunction spin, hold;
} busy_kernels GPU_UNUSED;

/* Before a capture, or work that nothing may disturb: a module's first load may wait. */
GPU_UNUSED static void gpu_load_busy_kernels(void)
{
    if (busy_kernels.spin != NULL)
        return;
    busy_kernels.spin = gpu_kernel("spin");
    busy_kernels.hold = gpu_kernel("hold");
}

/* Keeps the stream busy for a time. */
GPU_UNUSED static void gpu_spin(CUstream stream, uint64_t ns)
{
    void *parameters[] = {&ns};

    if (gpu.is_rehearsal) {
        CU(cuLaunchHostFunc, stream, sleep_host, (void *)(uintptr_t)ns);
        return;
    }
    gpu_load_busy_kernels();
    gpu_launch(busy_kernels.spin, 1, 1, stream, parameters);
}

/* Work that runs until the host ends it, or for HOLD_NS_MAX. */
struct hold {
    _Atomic uint32_t *word;
    CUdeviceptr address;
};

static void CUDA_CB wait_host(void *argument)
{
    _Atomic uint32_t *word = argument;
    const uint64_t start_ns = now_ns();

    while (atomic_load(word) == 0 && now_ns() - start_ns < HOLD_NS_MAX)
        pause_ns(MS / 10);
}

GPU_UNUSED static struct hold hold_open(void)
{
    struct hold hold;
    void *memory = NULL;

    CU(cuMemHostAlloc, &memory, 4096, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
    CU(cuMemHostGetDevicePointer, &hold.address, memory, 0);
    hold.word = memory;
    atomic_store(hold.word, 1);
    return hold;
}

GPU_UNUSED static void hold_begin(struct hold *hold, CUstream stream)
{
    uint64_t ns = HOLD_NS_MAX;
    void *parameters[] = {&hold->address, &ns};

    atomic_store(hold->word, 0);
    if (gpu.is_rehearsal) {
        CU(cuLaunchHostFunc, stream, wait_host, hold->word);
        return;
    }
    gpu_load_busy_kernels();
    gpu_launch(busy_kernels.hold, 1, 1, stream, parameters);
}

GPU_UNUSED static void hold_end(struct hold *hold)
{
    atomic_store(hold->word, 1);
}

/* ---- physical memory ---- */

GPU_UNUSED static CUmemAllocationProp memory_of(bool has_rdma)
{
    CUmemAllocationProp properties;

    memset(&properties, 0, sizeof(properties));
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = gpu.device;
    properties.allocFlags.gpuDirectRDMACapable = has_rdma;
    return properties;
}

GPU_UNUSED static CUresult open_access(CUdeviceptr address, uint64_t bytes)
{
    CUmemAccessDesc rights;

    memset(&rights, 0, sizeof(rights));
    rights.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    rights.location.id = gpu.device;
    rights.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return cu.cuMemSetAccess(address, bytes, &rights, 1);
}

#endif
