/* The cost of the driver's memory calls, in microseconds: median and 99th percentile of many calls,
 * each timed alone on the host. Prints `name value unit` lines, or JSON with --json. Needs a GPU;
 * with the simulated driver it measures that one, which shows only that the program works.
 *
 * Takes at most a few GiB at once. Every series frees what it took. Entry points the driver lacks
 * are left out. */
#include <cuda.h>

#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ROUNDS 200
#define WARM_UP_ROUNDS 10
#define KIB UINT64_C(1024)
#define MIB (1024 * KIB)
#define GIB (1024 * MIB)

#define ENTRIES(X)                                                                                 \
    X(cuInit, "cuInit", (unsigned))                                                                \
    X(cuDeviceGet, "cuDeviceGet", (CUdevice *, int))                                               \
    X(cuDeviceGetName, "cuDeviceGetName", (char *, int, CUdevice))                                 \
    X(cuDriverGetVersion, "cuDriverGetVersion", (int *))                                           \
    X(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", (CUcontext *, CUdevice))               \
    X(cuCtxSetCurrent, "cuCtxSetCurrent", (CUcontext))                                             \
    X(cuCtxSynchronize, "cuCtxSynchronize", (void))                                                \
    X(cuMemAlloc, "cuMemAlloc_v2", (CUdeviceptr *, size_t))                                        \
    X(cuMemFree, "cuMemFree_v2", (CUdeviceptr))                                                    \
    X(cuMemGetInfo, "cuMemGetInfo_v2", (size_t *, size_t *))                                       \
    X(cuMemsetD8Async, "cuMemsetD8Async", (CUdeviceptr, unsigned char, size_t, CUstream))          \
    X(cuStreamCreate, "cuStreamCreate", (CUstream *, unsigned))                                    \
    X(cuStreamSynchronize, "cuStreamSynchronize", (CUstream))                                      \
    X(cuEventCreate, "cuEventCreate", (CUevent *, unsigned))                                       \
    X(cuEventRecord, "cuEventRecord", (CUevent, CUstream))                                         \
    X(cuEventQuery, "cuEventQuery", (CUevent))                                                     \
    X(cuEventSynchronize, "cuEventSynchronize", (CUevent))                                         \
    X(cuCtxRecordEvent, "cuCtxRecordEvent", (CUcontext, CUevent))                                  \
    X(cuMemAllocAsync, "cuMemAllocAsync", (CUdeviceptr *, size_t, CUstream))                       \
    X(cuMemFreeAsync, "cuMemFreeAsync", (CUdeviceptr, CUstream))                                   \
    X(cuMemAddressReserve, "cuMemAddressReserve",                                                  \
      (CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long))                            \
    X(cuMemAddressFree, "cuMemAddressFree", (CUdeviceptr, size_t))                                 \
    X(cuMemCreate, "cuMemCreate",                                                                  \
      (CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *, unsigned long long))   \
    X(cuMemMap, "cuMemMap",                                                                        \
      (CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long))             \
    X(cuMemSetAccess, "cuMemSetAccess", (CUdeviceptr, size_t, const CUmemAccessDesc *, size_t))    \
    X(cuMemUnmap, "cuMemUnmap", (CUdeviceptr, size_t))                                             \
    X(cuMemRelease, "cuMemRelease", (CUmemGenericAllocationHandle))

static struct {
#define FIELD(name, symbol, parameters) CUresult(*call_##name) parameters;
    ENTRIES(FIELD)
#undef FIELD
} driver;

static bool is_json;
static bool is_first = true;
static CUdevice device;
static CUcontext context;

static void check(CUresult result, const char *what)
{
    if (result != CUDA_SUCCESS) {
        fprintf(stderr, "costs: %s: CUDA error %d\n", what, (int)result);
        exit(EXIT_FAILURE);
    }
}
#define CALL(name, ...) check(driver.call_##name(__VA_ARGS__), #name)

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* ---- a series of times ---- */

struct series {
    double us[ROUNDS];
    unsigned seen; /* warm-up included */
};

static void series_add(struct series *series, uint64_t start_ns)
{
    double us = (double)(now_ns() - start_ns) / 1000;
    if (series->seen >= WARM_UP_ROUNDS && series->seen < WARM_UP_ROUNDS + ROUNDS)
        series->us[series->seen - WARM_UP_ROUNDS] = us;
    series->seen++;
}

static int compare_us(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static void report_value(const char *name, const char *suffix, double value)
{
    if (is_json) {
        printf("%s\n  {\"name\": \"%s.%s\", \"value\": %.3f, \"unit\": \"us\"}",
               is_first ? "" : ",", name, suffix, value);
        is_first = false;
    } else {
        printf("%s.%s %.3f us\n", name, suffix, value);
    }
}

static void series_report(struct series *series, const char *call, uint64_t bytes)
{
    unsigned count = series->seen > WARM_UP_ROUNDS ? series->seen - WARM_UP_ROUNDS : 0;
    char name[128];
    if (count > ROUNDS)
        count = ROUNDS;
    if (count == 0)
        return;
    if (bytes == 0)
        snprintf(name, sizeof(name), "%s", call);
    else if (bytes < MIB)
        snprintf(name, sizeof(name), "%s.%lluKiB", call, (unsigned long long)(bytes / KIB));
    else
        snprintf(name, sizeof(name), "%s.%lluMiB", call, (unsigned long long)(bytes / MIB));
    qsort(series->us, count, sizeof(series->us[0]), compare_us);
    report_value(name, "median", series->us[count / 2]);
    report_value(name, "p99", series->us[count * 99 / 100]);
}

#define TIMED(series, call)                                                                        \
    do {                                                                                           \
        uint64_t start_ns_ = now_ns();                                                             \
        call;                                                                                      \
        series_add((series), start_ns_);                                                           \
    } while (0)

/* ---- what is measured ---- */

static void measure_plain(uint64_t bytes)
{
    struct series alloc = {.seen = 0}, release = {.seen = 0}, busy = {.seen = 0};
    CUdeviceptr block = 0;
    for (unsigned i = 0; i < WARM_UP_ROUNDS + ROUNDS; i++) {
        TIMED(&alloc, CALL(cuMemAlloc, &block, bytes));
        TIMED(&release, CALL(cuMemFree, block));
    }
    /* A free with work queued: how long it waits. */
    for (unsigned i = 0; i < WARM_UP_ROUNDS + ROUNDS / 4; i++) {
        CALL(cuMemAlloc, &block, bytes);
        CALL(cuMemsetD8Async, block, 1, bytes, NULL);
        TIMED(&busy, CALL(cuMemFree, block));
    }
    series_report(&alloc, "cuMemAlloc", bytes);
    series_report(&release, "cuMemFree", bytes);
    series_report(&busy, "cuMemFree.busy", bytes);
}

static void measure_async(uint64_t bytes, CUstream stream)
{
    struct series alloc = {.seen = 0}, release = {.seen = 0}, cold = {.seen = 0};
    CUdeviceptr block = 0;
    if (driver.call_cuMemAllocAsync == NULL || driver.call_cuMemFreeAsync == NULL)
        return;
    /* Without a synchronisation the pool keeps its memory; after one it has released it. */
    for (unsigned i = 0; i < WARM_UP_ROUNDS + ROUNDS; i++) {
        TIMED(&alloc, CALL(cuMemAllocAsync, &block, bytes, stream));
        TIMED(&release, CALL(cuMemFreeAsync, block, stream));
    }
    CALL(cuStreamSynchronize, stream);
    for (unsigned i = 0; i < WARM_UP_ROUNDS + ROUNDS / 4; i++) {
        TIMED(&cold, CALL(cuMemAllocAsync, &block, bytes, stream));
        CALL(cuMemFreeAsync, block, stream);
        CALL(cuStreamSynchronize, stream);
    }
    series_report(&alloc, "cuMemAllocAsync", bytes);
    series_report(&release, "cuMemFreeAsync", bytes);
    series_report(&cold, "cuMemAllocAsync.after_sync", bytes);
}

static void measure_vmm(uint64_t bytes)
{
    struct series reserve = {.seen = 0}, create = {.seen = 0}, map = {.seen = 0},
                  access = {.seen = 0};
    struct series unmap = {.seen = 0}, release = {.seen = 0}, release_memory = {.seen = 0};
    CUmemAllocationProp properties;
    CUmemAccessDesc rights;
    if (driver.call_cuMemCreate == NULL || driver.call_cuMemMap == NULL)
        return;
    memset(&properties, 0, sizeof(properties));
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = device;
    memset(&rights, 0, sizeof(rights));
    rights.location = properties.location;
    rights.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    for (unsigned i = 0; i < WARM_UP_ROUNDS + ROUNDS / 2; i++) {
        CUmemGenericAllocationHandle handle = 0;
        CUdeviceptr range = 0;
        TIMED(&reserve, CALL(cuMemAddressReserve, &range, bytes, 0, 0, 0));
        TIMED(&create, CALL(cuMemCreate, &handle, bytes, &properties, 0));
        TIMED(&map, CALL(cuMemMap, range, bytes, 0, handle, 0));
        TIMED(&access, CALL(cuMemSetAccess, range, bytes, &rights, 1));
        TIMED(&unmap, CALL(cuMemUnmap, range, bytes));
        TIMED(&release, CALL(cuMemRelease, handle));
        TIMED(&release_memory, CALL(cuMemAddressFree, range, bytes));
    }
    series_report(&reserve, "cuMemAddressReserve", bytes);
    series_report(&create, "cuMemCreate", bytes);
    series_report(&map, "cuMemMap", bytes);
    series_report(&access, "cuMemSetAccess", bytes);
    series_report(&unmap, "cuMemUnmap", bytes);
    series_report(&release, "cuMemRelease", bytes);
    series_report(&release_memory, "cuMemAddressFree", bytes);
}

static void measure_events(CUstream stream)
{
    struct series record = {.seen = 0}, query = {.seen = 0}, busy = {.seen = 0},
                  whole = {.seen = 0};
    struct series sync = {.seen = 0}, info = {.seen = 0};
    size_t free_bytes, total_bytes;
    CUevent event = NULL;
    CUdeviceptr block = 0;
    CALL(cuEventCreate, &event, CU_EVENT_DISABLE_TIMING);
    CALL(cuMemAlloc, &block, 256 * MIB);
    for (unsigned i = 0; i < WARM_UP_ROUNDS + ROUNDS; i++) {
        TIMED(&record, CALL(cuEventRecord, event, stream));
        CALL(cuEventSynchronize, event);
        TIMED(&query, CALL(cuEventQuery, event));
        CALL(cuMemsetD8Async, block, 1, 256 * MIB, stream);
        CALL(cuEventRecord, event, stream);
        TIMED(&busy, (void)driver.call_cuEventQuery(event)); /* CUDA_ERROR_NOT_READY */
        CALL(cuStreamSynchronize, stream);
        TIMED(&sync, CALL(cuCtxSynchronize));
        TIMED(&info, CALL(cuMemGetInfo, &free_bytes, &total_bytes));
        if (driver.call_cuCtxRecordEvent != NULL) {
            uint64_t start_ns = now_ns();
            if (driver.call_cuCtxRecordEvent(context, event) == CUDA_SUCCESS)
                series_add(&whole, start_ns);
            CALL(cuCtxSynchronize);
        }
    }
    series_report(&record, "cuEventRecord", 0);
    series_report(&query, "cuEventQuery.done", 0);
    series_report(&busy, "cuEventQuery.busy", 0);
    series_report(&whole, "cuCtxRecordEvent", 0);
    series_report(&sync, "cuCtxSynchronize.idle", 0);
    series_report(&info, "cuMemGetInfo", 0);
    CALL(cuMemFree, block);
}

static void open_driver(void)
{
    void *handle = dlopen("libcuda.so.1", RTLD_NOW);
    if (handle == NULL) {
        fprintf(stderr, "costs: %s\n", dlerror());
        exit(EXIT_FAILURE);
    }
#define FIND(name, symbol, parameters) *(void **)&driver.call_##name = dlsym(handle, symbol);
    ENTRIES(FIND)
#undef FIND
    if (driver.call_cuInit == NULL || driver.call_cuMemAlloc == NULL) {
        fprintf(stderr, "costs: this libcuda.so.1 is no CUDA driver\n");
        exit(EXIT_FAILURE);
    }
}

int main(int argument_count, char **arguments)
{
    static const uint64_t plain_bytes[] = {512,      64 * KIB,  MIB,       2 * MIB,
                                           20 * MIB, 256 * MIB, 1024 * MIB};
    static const uint64_t handle_bytes[] = {2 * MIB, 20 * MIB, 64 * MIB, 256 * MIB, 1024 * MIB};
    CUstream stream = NULL;
    char name[128] = "";
    int version = 0;

    is_json = argument_count > 1 && strcmp(arguments[1], "--json") == 0;
    open_driver();
    CALL(cuInit, 0);
    CALL(cuDeviceGet, &device, 0);
    CALL(cuDeviceGetName, name, (int)sizeof(name), device);
    CALL(cuDriverGetVersion, &version);
    CALL(cuDevicePrimaryCtxRetain, &context, device);
    CALL(cuCtxSetCurrent, context);
    CALL(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    if (is_json)
        printf(
            "{\"schema\": \"gpucache-costs/1\", \"device\": \"%s\", \"driver_version\": %d, \"results\": [",
            name, version);
    else
        printf("# %s, driver %d\n", name, version);
    measure_events(stream);
    for (size_t i = 0; i < sizeof(plain_bytes) / sizeof(plain_bytes[0]); i++) {
        measure_plain(plain_bytes[i]);
        measure_async(plain_bytes[i], stream);
    }
    for (size_t i = 0; i < sizeof(handle_bytes) / sizeof(handle_bytes[0]); i++)
        measure_vmm(handle_bytes[i]);
    if (is_json)
        printf("\n]}\n");
    return EXIT_SUCCESS;
}
