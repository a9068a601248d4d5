/* link: -l:libcuda.so.1 */
/* Eight threads take and give memory in every direct way against a limit: usage: direct_threads
 * SECONDS
 *
 * Every failure must be CUDA_ERROR_OUT_OF_MEMORY, every release must succeed. All is freed at the
 * end. Prints `successes N failures N`. */
#include "tests/preload/progs/program.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#define THREADS 8
#define HELD_MAX 6
#define MIB ((size_t)1 << 20)
/* All of one size, so that a pool's idle memory is never in pieces too small: a pool that must grow
 * although it holds enough is undone at once, but the account has seen it. */
#define ASYNC_BYTES (8 * MIB)

static CUcontext context;
static CUmemoryPool pool;
static time_t end_time;
static atomic_uint_fast64_t success_count, failure_count;
static atomic_int wrong_count;

static int expect(CUresult result, const char *what)
{
    if (result == CUDA_SUCCESS) {
        atomic_fetch_add(&success_count, 1);
        return 1;
    }
    atomic_fetch_add(&failure_count, 1);
    if (result != CUDA_ERROR_OUT_OF_MEMORY && atomic_fetch_add(&wrong_count, 1) < 10)
        fprintf(stderr, "%s: %d\n", what, (int)result);
    return 0;
}

static void must(CUresult result, const char *what)
{
    if (result != CUDA_SUCCESS && atomic_fetch_add(&wrong_count, 1) < 10)
        fprintf(stderr, "%s: %d\n", what, (int)result);
}

struct held {
    enum { NOTHING, PLAIN, MANAGED, ARRAY, HANDLE, MAPPED, ASYNC } kind;
    CUdeviceptr address;
    CUarray array;
    CUmemGenericAllocationHandle handle;
    size_t bytes;
};

static void take_array(struct held *held)
{
    CUDA_ARRAY_DESCRIPTOR plane = {
        .Width = held->bytes / 4096, .Height = 256, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 4};
    if (expect(cuArrayCreate(&held->array, &plane), "cuArrayCreate"))
        held->kind = ARRAY;
}

static void take_handle(struct held *held, int is_mapped)
{
    const CUmemAllocationProp prop = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
    };
    if (!expect(cuMemCreate(&held->handle, held->bytes, &prop, 0), "cuMemCreate"))
        return;
    held->kind = HANDLE;
    if (!is_mapped)
        return;
    must(cuMemAddressReserve(&held->address, held->bytes, 0, 0, 0), "cuMemAddressReserve");
    must(cuMemMap(held->address, held->bytes, 0, held->handle, 0), "cuMemMap");
    must(cuMemRelease(held->handle), "cuMemRelease");
    held->kind = MAPPED;
}

static void take(struct held *held, unsigned kind, size_t bytes, CUstream stream)
{
    held->bytes = bytes;
    switch (kind % 7) {
    case 0:
        if (expect(cuMemAlloc(&held->address, bytes), "cuMemAlloc"))
            held->kind = PLAIN;
        break;
    case 1:
        if (expect(cuMemAllocManaged(&held->address, bytes, CU_MEM_ATTACH_GLOBAL),
                   "cuMemAllocManaged"))
            held->kind = MANAGED;
        break;
    case 2:
        take_array(held);
        break;
    case 3:
        take_handle(held, 0);
        break;
    case 4:
        take_handle(held, 1);
        break;
    case 5:
        if (expect(cuMemAllocAsync(&held->address, ASYNC_BYTES, stream), "cuMemAllocAsync"))
            held->kind = ASYNC;
        break;
    default:
        if (expect(cuMemAllocFromPoolAsync(&held->address, ASYNC_BYTES, pool, stream),
                   "cuMemAllocFromPoolAsync"))
            held->kind = ASYNC;
        break;
    }
}

static void give(struct held *held, CUstream stream)
{
    switch (held->kind) {
    case NOTHING:
        break;
    case PLAIN:
    case MANAGED:
        must(cuMemFree(held->address), "cuMemFree");
        break;
    case ARRAY:
        must(cuArrayDestroy(held->array), "cuArrayDestroy");
        break;
    case HANDLE:
        must(cuMemRelease(held->handle), "cuMemRelease");
        break;
    case MAPPED:
        must(cuMemUnmap(held->address, held->bytes), "cuMemUnmap");
        must(cuMemAddressFree(held->address, held->bytes), "cuMemAddressFree");
        break;
    case ASYNC:
        must(cuMemFreeAsync(held->address, stream), "cuMemFreeAsync");
        break;
    }
    held->kind = NOTHING;
}

static void *work(void *argument)
{
    unsigned seed = 1u + (unsigned)(uintptr_t)argument;
    struct held held[HELD_MAX];
    CUstream stream;

    memset(held, 0, sizeof(held));
    must(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    must(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    while (time(NULL) < end_time) {
        unsigned choice = (unsigned)rand_r(&seed);
        struct held *slot = &held[choice % HELD_MAX];
        give(slot, stream);
        take(slot, choice / 64, (size_t)(1 + choice % 5) * 4 * MIB, stream);
        if (choice % 31 == 0)
            must(cuStreamSynchronize(stream), "cuStreamSynchronize");
    }
    for (int i = 0; i < HELD_MAX; i++)
        give(&held[i], stream);
    must(cuStreamSynchronize(stream), "cuStreamSynchronize");
    must(cuStreamDestroy(stream), "cuStreamDestroy");
    return NULL;
}

int main(int argument_count, char **arguments)
{
    const CUmemPoolProps props = {
        .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
    };
    cuuint64_t keep = 64 * MIB;
    pthread_t threads[THREADS];

    context = program_start();
    CHECK(cuMemPoolCreate(&pool, &props));
    CHECK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
    end_time = time(NULL) + (argument_count > 1 ? atoi(arguments[1]) : 1);
    for (uintptr_t i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, work, (void *)i);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    CHECK(cuMemPoolDestroy(pool));
    CHECK(cuCtxSynchronize());
    CHECK(cuDevicePrimaryCtxRelease(0));
    printf("successes %llu failures %llu\n", (unsigned long long)success_count,
           (unsigned long long)failure_count);
    return wrong_count == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
