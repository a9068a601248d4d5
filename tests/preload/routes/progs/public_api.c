/* link: -l:libcuda.so.1 */
/* Calls core/gpucache.h through a table filled by dlsym, in the ways a program may meet the
 * library. usage: public_api CASE [LIBRARY], LIBRARY being opened if it is given, else looked for
 * in the process. Prints nothing and ends with 0 if all is as it should be. */
#include "tests/preload/progs/public.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((uint64_t)1 << 20)
#define PAGE (2 * MIB)

static bool is_opened; /* by us, not preloaded */

static struct gpucache_statistics figures_of(int device)
{
    struct gpucache_statistics figures = {.struct_bytes = sizeof(figures)};
    EXPECT_STATUS(gc.gpucache_get_statistics(device, &figures), GPUCACHE_OK);
    return figures;
}

/* ---- before CUDA ---- */

static void refuses_everything(gpucache_status wanted)
{
    struct gpucache_statistics figures = {.struct_bytes = sizeof(figures)};
    struct gpucache_elastic_statistics pool = {.struct_bytes = sizeof(pool)};
    struct gpucache_fragmentation free_runs = {.struct_bytes = sizeof(free_runs)};
    uint64_t bytes = 0;
    int answer = 0;
    EXPECT_STATUS(gc.gpucache_get_statistics(0, &figures), wanted);
    EXPECT_STATUS(gc.gpucache_get_fragmentation(0, &free_runs), wanted);
    EXPECT_STATUS(gc.gpucache_reset_peaks(0), wanted);
    EXPECT_STATUS(gc.gpucache_empty_cache(GPUCACHE_ALL_DEVICES, NULL), wanted);
    EXPECT_STATUS(gc.gpucache_trim(0, 0, &bytes), wanted);
    EXPECT_STATUS(gc.gpucache_get_limit(0, &bytes), wanted);
    EXPECT_STATUS(gc.gpucache_set_limit(0, MIB), wanted);
    EXPECT_STATUS(gc.gpucache_would_fit(0, 1, &answer, &bytes), wanted);
    EXPECT_STATUS(gc.gpucache_elastic_allocate(0x10001, 0, PAGE), wanted);
    EXPECT_STATUS(gc.gpucache_elastic_deallocate(0x10001, 0, PAGE, 0, NULL), wanted);
    EXPECT_STATUS(gc.gpucache_elastic_is_mapped(0x10001, 0, PAGE, &answer), wanted);
    EXPECT_STATUS(gc.gpucache_elastic_get_statistics(0x10001, &pool), wanted);
    EXPECT_STATUS(gc.gpucache_elastic_compact(0x10001, NULL), wanted);
    EXPECT_STATUS(gc.gpucache_elastic_destroy(0x10001), wanted);
    EXPECT_STATUS(gc.gpucache_pause(1, 100, &bytes), wanted);
    EXPECT_STATUS(gc.gpucache_resume(NULL), wanted);
    EXPECT_STATUS(gc.gpucache_advise(&bytes, 1, GPUCACHE_ADVICE_CHANGING),
                  wanted == GPUCACHE_DISABLED ? GPUCACHE_OK : wanted);
}

static void early(void)
{
    void *pointer = &pointer;
    EXPECT(gc.gpucache_api_version() == GPUCACHE_API_VERSION);
    EXPECT(strchr(gc.gpucache_version(), '.') != NULL);
    EXPECT(strcmp(gc.gpucache_status_text(GPUCACHE_OK), "success") == 0);
    EXPECT(strcmp(gc.gpucache_status_text((gpucache_status)999), "unknown status") == 0);
    EXPECT_STATUS(gc.gpucache_get_mode(NULL, NULL), GPUCACHE_NOT_READY);
    refuses_everything(GPUCACHE_NOT_READY);
    EXPECT_STATUS(gc.gpucache_free((void *)0x1000, NULL), GPUCACHE_NOT_READY);
    EXPECT_STATUS(gc.gpucache_record_stream((void *)0x1000, NULL), GPUCACHE_NOT_READY);
    EXPECT_STATUS(gc.gpucache_free(NULL, NULL), GPUCACHE_OK);
    EXPECT_STATUS(gc.gpucache_malloc(&pointer, 0, 0, NULL), GPUCACHE_OK);
    EXPECT(pointer == NULL);
    CUcontext context = NULL;
    EXPECT(cuCtxGetCurrent(&context) == CUDA_ERROR_NOT_INITIALIZED); /* nothing was started */
}

/* ---- memory ---- */

/* The memory is there: what is written is read back. */
static void use(void *pointer, size_t bytes, CUdevice device)
{
    unsigned char back[16] = {0};
    CUcontext context = NULL;
    CUdevice found = -1;
    CUdeviceptr address = (uintptr_t)pointer;
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxPushCurrent(context));
    CHECK(cuPointerGetAttribute(&found, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address));
    EXPECT(found == device);
    CHECK(cuMemsetD8(address, 0x5a, bytes));
    CHECK(cuMemcpyDtoH(back, address + bytes - sizeof(back), sizeof(back)));
    for (size_t i = 0; i < sizeof(back); i++)
        EXPECT(back[i] == 0x5a);
    CHECK(cuCtxPopCurrent(&context));
    CHECK(cuDevicePrimaryCtxRelease(device));
}

static void memory(void)
{
    void *pointer = NULL, *other = NULL;
    CUcontext context = NULL, after = NULL;
    EXPECT_STATUS(gc.gpucache_malloc(&pointer, 5 * MIB, 0, NULL), GPUCACHE_OK); /* starts CUDA */
    EXPECT(pointer != NULL && (uintptr_t)pointer % 512 == 0);
    CHECK(cuCtxGetCurrent(&after));
    EXPECT(after == NULL);
    use(pointer, 5 * MIB, 0);
    EXPECT(figures_of(0).requested_bytes == 5 * MIB);
    EXPECT_STATUS(gc.gpucache_record_stream(pointer, NULL), GPUCACHE_OK);
    EXPECT_STATUS(gc.gpucache_record_stream((char *)pointer + 512, NULL), GPUCACHE_INVALID_POINTER);
    EXPECT_STATUS(gc.gpucache_free((char *)pointer + 512, NULL), GPUCACHE_INVALID_POINTER);
    EXPECT_STATUS(gc.gpucache_free((void *)0x12340000, NULL), GPUCACHE_INVALID_POINTER);
    EXPECT_STATUS(gc.gpucache_free(pointer, NULL), GPUCACHE_OK);
    EXPECT_STATUS(gc.gpucache_free(pointer, NULL), GPUCACHE_INVALID_POINTER);
    EXPECT_STATUS(gc.gpucache_record_stream(pointer, NULL), GPUCACHE_INVALID_POINTER);
    EXPECT(figures_of(0).requested_bytes == 0);
    EXPECT_STATUS(gc.gpucache_malloc(NULL, 1, 0, NULL), GPUCACHE_INVALID_ARGUMENT);
    EXPECT_STATUS(gc.gpucache_malloc(&pointer, 1, -1, NULL), GPUCACHE_INVALID_DEVICE);
    EXPECT_STATUS(gc.gpucache_malloc(&pointer, 1, 2, NULL), GPUCACHE_INVALID_DEVICE);
    EXPECT_STATUS(gc.gpucache_malloc(&pointer, 1, 1 << 20, NULL), GPUCACHE_INVALID_DEVICE);
    pointer = &context;
    EXPECT_STATUS(gc.gpucache_malloc(&pointer, (size_t)1 << 50, 0, NULL), GPUCACHE_OUT_OF_MEMORY);
    EXPECT(pointer == NULL);
    EXPECT_STATUS(gc.gpucache_malloc(&pointer, SIZE_MAX, 0, NULL), GPUCACHE_OUT_OF_MEMORY);
    /* The other device, while the first one's context is current. */
    context = program_start();
    EXPECT_STATUS(gc.gpucache_malloc(&other, MIB, 1, NULL), GPUCACHE_OK);
    CHECK(cuCtxGetCurrent(&after));
    EXPECT(after == context);
    use(other, MIB, 1);
    EXPECT(figures_of(1).requested_bytes == MIB && figures_of(0).requested_bytes == 0);
    EXPECT_STATUS(gc.gpucache_free(other, NULL), GPUCACHE_OK);
    CHECK(cuCtxGetCurrent(&after));
    EXPECT(after == context);
    EXPECT_STATUS(gc.gpucache_malloc(&pointer, MIB, 0, NULL), GPUCACHE_OK);
    if (!is_opened) {
        CHECK(cuMemFree((uintptr_t)pointer)); /* one pool, whichever way memory came */
        pointer = (void *)program_alloc(MIB);
        EXPECT_STATUS(gc.gpucache_record_stream(pointer, NULL), GPUCACHE_OK);
        EXPECT_STATUS(gc.gpucache_free(pointer, NULL), GPUCACHE_OK);
        EXPECT_STATUS(gc.gpucache_free(pointer, NULL), GPUCACHE_INVALID_POINTER);
    } else {
        EXPECT_STATUS(gc.gpucache_free(pointer, NULL), GPUCACHE_OK);
    }
}

/* Copies between the devices in either context, once peer access was given: to memory from before
 * it, and to later memory. */
static void peers(void)
{
    CUcontext contexts[2];
    void *pointers[2][2];
    int can = 0;
    CHECK(cuInit(0));
    CHECK(cuDeviceCanAccessPeer(&can, 0, 1));
    if (!can)
        return;
    for (int device = 0; device < 2; device++) {
        EXPECT_STATUS(gc.gpucache_malloc(&pointers[0][device], 3 * MIB, device, NULL), GPUCACHE_OK);
        CHECK(cuDevicePrimaryCtxRetain(&contexts[device], device));
    }
    for (int device = 0; device < 2; device++) {
        CHECK(cuCtxSetCurrent(contexts[device]));
        CHECK(cuCtxEnablePeerAccess(contexts[1 - device], 0));
    }
    for (int device = 0; device < 2; device++)
        EXPECT_STATUS(gc.gpucache_malloc(&pointers[1][device], 3 * MIB, device, NULL), GPUCACHE_OK);
    for (int i = 0; i < 8; i++) {
        const CUdeviceptr from = (uintptr_t)pointers[i & 1][i >> 1 & 1];
        const CUdeviceptr to = (uintptr_t)pointers[i & 1][1 - (i >> 1 & 1)];
        unsigned char back[2] = {0};
        CHECK(cuCtxSetCurrent(contexts[i >> 2]));
        CHECK(cuMemsetD8(from, (unsigned char)(i + 1), 3 * MIB));
        CHECK(cuMemcpyDtoD(to, from, 3 * MIB));
        CHECK(cuMemcpyDtoH(&back[0], to, 1));
        CHECK(cuMemcpyDtoH(&back[1], to + 3 * MIB - 1, 1));
        EXPECT(back[0] == i + 1 && back[1] == i + 1);
    }
    for (int i = 0; i < 4; i++)
        EXPECT_STATUS(gc.gpucache_free(pointers[i & 1][i >> 1], NULL), GPUCACHE_OK);
}

/* Work queued on one stream, the block freed there, its memory wanted on another: what the first
 * wrote must not appear in what the second got. */
static void streams(void)
{
    enum { ROUNDS = 20 };
    CUstream first = NULL, second = NULL;
    unsigned char back[64];
    program_start();
    CHECK(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < ROUNDS; i++) {
        void *a = NULL, *b = NULL;
        EXPECT_STATUS(gc.gpucache_malloc(&a, MIB, 0, first), GPUCACHE_OK);
        for (int j = 0; j < 4; j++)
            CHECK(cuMemsetD8Async((uintptr_t)a, 0xaa, MIB, first));
        EXPECT_STATUS(gc.gpucache_free(a, first), GPUCACHE_OK);
        EXPECT_STATUS(gc.gpucache_malloc(&b, MIB, 0, second), GPUCACHE_OK);
        CHECK(cuMemsetD8Async((uintptr_t)b, (unsigned char)i, MIB, second));
        CHECK(cuStreamSynchronize(second));
        CHECK(cuStreamSynchronize(first));
        CHECK(cuMemcpyDtoH(back, (uintptr_t)b, sizeof(back)));
        for (size_t j = 0; j < sizeof(back); j++)
            EXPECT(back[j] == i);
        EXPECT_STATUS(gc.gpucache_free(b, second), GPUCACHE_OK);
    }
    /* A stream that captures is given memory, and the capture survives. */
    CUgraph graph = NULL;
    void *pointer = NULL;
    CHECK(cuStreamBeginCapture(first, CU_STREAM_CAPTURE_MODE_GLOBAL));
    EXPECT_STATUS(gc.gpucache_malloc(&pointer, 300 * MIB, 0, first), GPUCACHE_OK);
    CHECK(cuMemsetD8Async((uintptr_t)pointer, 1, MIB, first));
    EXPECT_STATUS(gc.gpucache_free(pointer, first), GPUCACHE_OK);
    CHECK(cuStreamEndCapture(first, &graph));
    EXPECT(graph != NULL);
    CHECK(cuGraphDestroy(graph));
}

/* ---- figures and limits ---- */

static void figures(void)
{
    struct gpucache_statistics small;
    void *pointer = NULL;
    program_start();
    EXPECT_STATUS(gc.gpucache_malloc(&pointer, 10 * MIB, 0, NULL), GPUCACHE_OK);
    EXPECT_STATUS(gc.gpucache_free(pointer, NULL), GPUCACHE_OK);
    CHECK(cuCtxSynchronize());
    struct gpucache_statistics now = figures_of(0);
    EXPECT(now.struct_bytes == sizeof(now) && now.limit_bytes == GPUCACHE_NO_LIMIT);
    EXPECT(now.requested_peak_bytes == 10 * MIB && now.requested_bytes == 0);
    EXPECT(now.alloc_count == 1 && now.free_count == 1 && now.miss_count == 1);
    /* A caller with an older, shorter structure gets that and no more. */
    memset(&small, 0x77, sizeof(small));
    small.struct_bytes = offsetof(struct gpucache_statistics, requested_bytes);
    EXPECT_STATUS(gc.gpucache_get_statistics(0, &small), GPUCACHE_OK);
    EXPECT(small.total_bytes == now.total_bytes);
    EXPECT(small.requested_bytes == UINT64_C(0x7777777777777777));
    struct {
        struct gpucache_statistics known;
        uint64_t later;
    } newer = {.later = 42};
    newer.known.struct_bytes = sizeof(newer);
    EXPECT_STATUS(gc.gpucache_get_statistics(0, &newer.known), GPUCACHE_OK);
    EXPECT(newer.known.struct_bytes == sizeof(newer.known) && newer.later == 42);
    struct gpucache_fragmentation free_runs = {.struct_bytes = sizeof(free_runs)};
    EXPECT_STATUS(gc.gpucache_get_fragmentation(0, &free_runs), GPUCACHE_OK);
    EXPECT(free_runs.free_bytes == now.idle_bytes &&
           free_runs.largest_free_bytes <= free_runs.free_bytes);
    EXPECT(free_runs.ratio >= 0.0 && free_runs.ratio <= 1.0);
    EXPECT_STATUS(gc.gpucache_get_fragmentation(0, NULL), GPUCACHE_INVALID_ARGUMENT);
    small.struct_bytes = 0;
    EXPECT_STATUS(gc.gpucache_get_statistics(0, &small), GPUCACHE_INVALID_ARGUMENT);
    EXPECT_STATUS(gc.gpucache_get_statistics(0, NULL), GPUCACHE_INVALID_ARGUMENT);
    small.struct_bytes = sizeof(small);
    EXPECT_STATUS(gc.gpucache_get_statistics(-1, &small), GPUCACHE_INVALID_DEVICE);
    EXPECT_STATUS(gc.gpucache_get_statistics(7, &small), GPUCACHE_NOT_READY);
    EXPECT_STATUS(gc.gpucache_reset_peaks(0), GPUCACHE_OK);
    now = figures_of(0);
    EXPECT(now.requested_peak_bytes == 0 && now.reserved_peak_bytes == now.reserved_bytes);
    uint64_t given = 1;
    EXPECT_STATUS(gc.gpucache_trim(0, UINT64_MAX, &given), GPUCACHE_OK);
    EXPECT(given == 0);
    const uint64_t idle = now.idle_bytes;
    EXPECT_STATUS(gc.gpucache_empty_cache(GPUCACHE_ALL_DEVICES, &given), GPUCACHE_OK);
    EXPECT(given >= idle && figures_of(0).idle_bytes == 0);
    EXPECT_STATUS(gc.gpucache_empty_cache(-5, NULL), GPUCACHE_INVALID_DEVICE);
}

static void pauses(void)
{
    void *pointer = NULL;
    uint64_t moved = 0;
    unsigned word = 0;
    program_start();
    EXPECT_STATUS(gc.gpucache_malloc(&pointer, 5 * MIB, 0, NULL), GPUCACHE_OK);
    EXPECT(cuMemsetD32((CUdeviceptr)(uintptr_t)pointer, 0x1234567, 5 * MIB / 4) == CUDA_SUCCESS);
    EXPECT_STATUS(gc.gpucache_resume(&moved), GPUCACHE_PAUSED);
    EXPECT_STATUS(gc.gpucache_pause(1, 5000, &moved), GPUCACHE_OK);
    EXPECT(moved >= 5 * MIB);
    EXPECT_STATUS(gc.gpucache_pause(1, 5000, NULL), GPUCACHE_PAUSED);
    EXPECT_STATUS(gc.gpucache_resume(&moved), GPUCACHE_OK);
    EXPECT(moved >= 5 * MIB);
    EXPECT(cuMemcpyDtoH(&word, (CUdeviceptr)(uintptr_t)pointer + 5 * MIB - 4, 4) == CUDA_SUCCESS);
    EXPECT(word == 0x1234567);
    EXPECT_STATUS(gc.gpucache_free(pointer, NULL), GPUCACHE_OK);
}

static void advice(void)
{
    const int unchanging = GPUCACHE_ADVICE_UNCHANGING, changing = GPUCACHE_ADVICE_CHANGING;
    char *pointer = NULL;
    program_start();
    EXPECT_STATUS(gc.gpucache_malloc((void **)&pointer, 5 * MIB, 0, NULL), GPUCACHE_OK);
    EXPECT_STATUS(gc.gpucache_advise(pointer, 5 * MIB, changing), GPUCACHE_OK);
    EXPECT_STATUS(gc.gpucache_advise(pointer, 5 * MIB, unchanging), GPUCACHE_OK);
    EXPECT_STATUS(gc.gpucache_advise(pointer + MIB + 1, 1, changing), GPUCACHE_OK);
    EXPECT_STATUS(gc.gpucache_advise(NULL, 1, unchanging), GPUCACHE_INVALID_ARGUMENT);
    EXPECT_STATUS(gc.gpucache_advise(pointer, 0, unchanging), GPUCACHE_INVALID_ARGUMENT);
    EXPECT_STATUS(gc.gpucache_advise(pointer, 1, 2), GPUCACHE_INVALID_ARGUMENT);
    EXPECT_STATUS(gc.gpucache_advise(&pointer, 1, unchanging), GPUCACHE_INVALID_POINTER);
    EXPECT_STATUS(gc.gpucache_advise(pointer, SIZE_MAX, unchanging), GPUCACHE_OUT_OF_RANGE);
    EXPECT_STATUS(gc.gpucache_advise(pointer + 1, 5 * MIB, changing), GPUCACHE_OUT_OF_RANGE);
    EXPECT_STATUS(gc.gpucache_free(pointer, NULL), GPUCACHE_OK);
    EXPECT_STATUS(gc.gpucache_advise(pointer, 1, unchanging), GPUCACHE_INVALID_POINTER);
}

static void limits(void)
{
    void *blocks[3] = {NULL}, *pointer = NULL;
    uint64_t limit = 0, available = 0;
    int fits = -1;
    program_start();
    for (int i = 0; i < 3; i++)
        EXPECT_STATUS(gc.gpucache_malloc(&blocks[i], 64 * MIB, 0, NULL), GPUCACHE_OK);
    EXPECT_STATUS(gc.gpucache_get_limit(0, &limit), GPUCACHE_OK);
    EXPECT(limit == GPUCACHE_NO_LIMIT);
    EXPECT_STATUS(gc.gpucache_would_fit(0, 64 * MIB, &fits, &available), GPUCACHE_OK);
    EXPECT(fits == 1 && available > 64 * MIB);
    EXPECT_STATUS(gc.gpucache_would_fit(0, UINT64_MAX, &fits, NULL), GPUCACHE_OK);
    EXPECT(fits == 0);
    EXPECT_STATUS(gc.gpucache_set_limit(0, 0), GPUCACHE_INVALID_ARGUMENT);
    const uint64_t held = figures_of(0).reserved_bytes;
    /* Below what is held: nothing is taken, nothing new is given. */
    EXPECT_STATUS(gc.gpucache_set_limit(0, held - 96 * MIB), GPUCACHE_OK);
    EXPECT(figures_of(0).reserved_bytes >= 192 * MIB);
    EXPECT_STATUS(gc.gpucache_malloc(&pointer, 70 * MIB, 0, NULL), GPUCACHE_LIMIT_REACHED);
    EXPECT_STATUS(gc.gpucache_would_fit(0, 1, &fits, &available), GPUCACHE_OK);
    EXPECT(fits == 0 && available == 0);
    use(blocks[1], 64 * MIB, 0);
    EXPECT_STATUS(gc.gpucache_free(blocks[0], NULL), GPUCACHE_OK);
    EXPECT_STATUS(gc.gpucache_free(blocks[2], NULL), GPUCACHE_OK);
    /* Now it is below, and the cache's idle memory is no obstacle. */
    EXPECT_STATUS(gc.gpucache_would_fit(0, 4 * MIB, &fits, &available), GPUCACHE_OK);
    EXPECT_STATUS(gc.gpucache_malloc(&pointer, 4 * MIB, 0, NULL), GPUCACHE_OK);
    EXPECT_STATUS(gc.gpucache_get_limit(0, &limit), GPUCACHE_OK);
    EXPECT(limit == held - 96 * MIB && figures_of(0).reserved_bytes <= limit);
    EXPECT_STATUS(gc.gpucache_set_limit(0, GPUCACHE_NO_LIMIT), GPUCACHE_OK);
    EXPECT_STATUS(gc.gpucache_malloc(&blocks[0], 200 * MIB, 0, NULL), GPUCACHE_OK);
    EXPECT_STATUS(gc.gpucache_get_limit(0, NULL), GPUCACHE_INVALID_ARGUMENT);
}

/* ---- elastic pools ---- */

static void elastic(void)
{
    gpucache_elastic pool = 0, second = 0;
    struct gpucache_elastic_statistics now = {.struct_bytes = sizeof(now)};
    void *base = NULL;
    uint64_t given = 0;
    int answer = -1;
    EXPECT_STATUS(gc.gpucache_elastic_create(0, 64 * PAGE, 0, 8, &pool, &base),
                  GPUCACHE_INVALID_ARGUMENT);
    EXPECT_STATUS(gc.gpucache_elastic_create(0, 64 * PAGE, 0, 0, NULL, &base),
                  GPUCACHE_INVALID_ARGUMENT);
    EXPECT_STATUS(gc.gpucache_elastic_create(-1, 64 * PAGE, 0, 0, &pool, &base),
                  GPUCACHE_INVALID_DEVICE);
    EXPECT_STATUS(gc.gpucache_elastic_create(0, 64 * PAGE, 0, 0, &pool, &base), GPUCACHE_OK);
    EXPECT_STATUS(gc.gpucache_elastic_create(0, 0, 0, 0, &second, NULL), GPUCACHE_INVALID_ARGUMENT);
    EXPECT_STATUS(gc.gpucache_elastic_create(0, PAGE, 12345, 0, &second, NULL),
                  GPUCACHE_INVALID_ARGUMENT);
    EXPECT_STATUS(gc.gpucache_elastic_allocate(pool, 2 * PAGE, 4 * PAGE), GPUCACHE_OK);
    use((char *)base + 2 * PAGE, 4 * PAGE, 0);
    EXPECT(figures_of(0).elastic_bytes == 4 * PAGE);
    EXPECT_STATUS(gc.gpucache_elastic_allocate(pool, 5 * PAGE, PAGE), GPUCACHE_ALREADY_MAPPED);
    EXPECT_STATUS(gc.gpucache_elastic_allocate(pool, 64 * PAGE, PAGE), GPUCACHE_OUT_OF_RANGE);
    EXPECT_STATUS(gc.gpucache_elastic_allocate(pool, 0, UINT64_MAX - PAGE + 1),
                  GPUCACHE_OUT_OF_RANGE);
    EXPECT_STATUS(gc.gpucache_elastic_allocate(pool, 1, PAGE), GPUCACHE_MISALIGNED);
    EXPECT_STATUS(gc.gpucache_elastic_allocate(pool, 0, 0), GPUCACHE_INVALID_ARGUMENT);
    EXPECT_STATUS(gc.gpucache_elastic_deallocate(pool, 0, PAGE, 0, NULL), GPUCACHE_NOT_MAPPED);
    EXPECT_STATUS(gc.gpucache_elastic_deallocate(pool, 2 * PAGE, PAGE, 3, NULL),
                  GPUCACHE_INVALID_ARGUMENT);
    EXPECT_STATUS(gc.gpucache_elastic_is_mapped(pool, 3 * PAGE + 5, 7, &answer), GPUCACHE_OK);
    EXPECT(answer == 1);
    EXPECT_STATUS(gc.gpucache_elastic_is_mapped(pool, 5 * PAGE, 2 * PAGE, &answer), GPUCACHE_OK);
    EXPECT(answer == 0);
    /* Queued work, then a deallocation that waits for it: nothing illegal happens. */
    CUstream stream = NULL;
    program_start();
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int wait = GPUCACHE_WAIT_DEVICE; wait <= GPUCACHE_WAIT_STREAM; wait++) {
        CHECK(cuMemsetD8Async((uintptr_t)base + 2 * PAGE, 1, 4 * PAGE, stream));
        EXPECT_STATUS(gc.gpucache_elastic_deallocate(pool, 2 * PAGE, 4 * PAGE, wait, stream),
                      GPUCACHE_OK);
        CHECK(cuStreamQuery(stream));
        EXPECT_STATUS(gc.gpucache_elastic_allocate(pool, 2 * PAGE, 4 * PAGE), GPUCACHE_OK);
    }
    EXPECT_STATUS(gc.gpucache_elastic_get_statistics(pool, &now), GPUCACHE_OK);
    EXPECT(now.base == base && now.capacity_bytes == 64 * PAGE && now.page_bytes == PAGE);
    EXPECT(now.mapped_bytes == 4 * PAGE && now.map_count == 4 && now.create_count == 4);
    EXPECT(now.free_bytes == 60 * PAGE && now.largest_free_bytes == 58 * PAGE);
    EXPECT(now.fragmentation > 0.0333 && now.fragmentation < 0.0334);
    /* In a capture nothing happens, and the capture survives. */
    CUgraph graph = NULL;
    if (!is_opened) {
        CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
        EXPECT_STATUS(gc.gpucache_elastic_allocate(pool, 0, PAGE), GPUCACHE_CAPTURING);
        EXPECT_STATUS(gc.gpucache_elastic_deallocate(pool, 2 * PAGE, PAGE, 0, NULL),
                      GPUCACHE_CAPTURING);
        EXPECT_STATUS(gc.gpucache_elastic_deallocate(pool, 2 * PAGE, PAGE, 1, stream),
                      GPUCACHE_CAPTURING);
        EXPECT_STATUS(gc.gpucache_elastic_compact(pool, NULL), GPUCACHE_CAPTURING);
        EXPECT_STATUS(gc.gpucache_elastic_destroy(pool), GPUCACHE_CAPTURING);
        CHECK(cuStreamEndCapture(stream, &graph));
        CHECK(cuGraphDestroy(graph));
    }
    EXPECT_STATUS(gc.gpucache_elastic_deallocate(pool, 3 * PAGE, PAGE, 2, NULL), GPUCACHE_OK);
    EXPECT_STATUS(gc.gpucache_elastic_compact(pool, &given), GPUCACHE_OK);
    EXPECT(given == PAGE && figures_of(0).elastic_bytes == 3 * PAGE);
    EXPECT_STATUS(gc.gpucache_set_limit(0, figures_of(0).reserved_bytes), GPUCACHE_OK);
    EXPECT_STATUS(gc.gpucache_elastic_allocate(pool, 0, PAGE), GPUCACHE_LIMIT_REACHED);
    EXPECT_STATUS(gc.gpucache_set_limit(0, GPUCACHE_NO_LIMIT), GPUCACHE_OK);
    EXPECT_STATUS(gc.gpucache_elastic_destroy(pool), GPUCACHE_OK);
    EXPECT_STATUS(gc.gpucache_elastic_destroy(pool), GPUCACHE_INVALID_HANDLE);
    EXPECT_STATUS(gc.gpucache_elastic_allocate(UINT64_MAX, 0, PAGE), GPUCACHE_INVALID_HANDLE);
    EXPECT_STATUS(gc.gpucache_elastic_is_mapped(0, 0, 1, &answer), GPUCACHE_INVALID_HANDLE);
    EXPECT(figures_of(0).elastic_bytes == 0);
    EXPECT_STATUS(gc.gpucache_elastic_create(0, 4096 * PAGE, 0, 0, &pool, NULL), GPUCACHE_OK);
    EXPECT_STATUS(gc.gpucache_elastic_allocate(pool, 0, 4096 * PAGE), GPUCACHE_OUT_OF_MEMORY);
    EXPECT_STATUS(gc.gpucache_elastic_get_statistics(pool, &now), GPUCACHE_OK);
    EXPECT(now.mapped_bytes == 0 && now.warm_bytes <= 512 * PAGE);
    EXPECT_STATUS(gc.gpucache_elastic_destroy(pool), GPUCACHE_OK);
}

/* ---- allocators of others ---- */

static void signatures(void)
{
    struct gpucache_cupy_param param = {NULL};
    CUstream stream = NULL;
    int ordinal = 1;
    program_start();
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    void *a = gc.gpucache_torch_malloc(3 * (ptrdiff_t)MIB, 1, stream);
    use(a, 3 * MIB, 1);
    EXPECT(figures_of(1).requested_bytes == 3 * MIB);
    gc.gpucache_torch_record_stream(a, NULL);
    gc.gpucache_torch_free(a, 3 * (ptrdiff_t)MIB, 1, stream);
    EXPECT(gc.gpucache_torch_malloc(0, 0, stream) == NULL);
    EXPECT(gc.gpucache_torch_malloc(-1, 0, stream) == NULL);
    EXPECT(gc.gpucache_torch_malloc((ptrdiff_t)1 << 50, 0, stream) == NULL);
    gc.gpucache_torch_free(NULL, 0, 0, stream);
    gc.gpucache_torch_reset();
    EXPECT(figures_of(1).idle_bytes == 0);
    gc.gpucache_torch_memory_fraction(0.25, 0);
    EXPECT(figures_of(0).limit_bytes == figures_of(0).total_bytes / 4);
    param.stream = stream;
    for (int i = 0; i < 2; i++) {
        void *owner = i == 0 ? NULL : &param;
        a = gc.gpucache_cupy_malloc(owner, 2 * MIB, 0);
        use(a, 2 * MIB, 0);
        gc.gpucache_cupy_free(owner, a, 0);
        EXPECT(gc.gpucache_cupy_malloc(owner, (size_t)1 << 50, 0) == NULL);
    }
    a = gc.gpucache_rmm_allocate(MIB, stream, NULL);
    void *b = gc.gpucache_rmm_allocate(MIB, stream, &ordinal);
    EXPECT(figures_of(0).requested_bytes == MIB && figures_of(1).requested_bytes == MIB);
    gc.gpucache_rmm_deallocate(a, MIB, stream, NULL);
    gc.gpucache_rmm_deallocate(b, MIB, stream, &ordinal);
    EXPECT(figures_of(0).requested_bytes == 0 && figures_of(1).requested_bytes == 0);
}

/* ---- modes, children, threads ---- */

static void off(void)
{
    void *pointer = NULL;
    int mode = -1;
    EXPECT_STATUS(gc.gpucache_malloc(&pointer, MIB, 1, NULL), GPUCACHE_OK);
    use(pointer, MIB, 1);
    EXPECT_STATUS(gc.gpucache_record_stream(pointer, NULL), GPUCACHE_OK);
    EXPECT_STATUS(gc.gpucache_free(pointer, NULL), GPUCACHE_OK);
    EXPECT_STATUS(gc.gpucache_free((void *)0x12340000, NULL), GPUCACHE_INVALID_POINTER);
    EXPECT_STATUS(gc.gpucache_malloc(&pointer, (size_t)1 << 50, 0, NULL), GPUCACHE_OUT_OF_MEMORY);
    EXPECT_STATUS(gc.gpucache_get_mode(&mode, NULL), GPUCACHE_OK);
    EXPECT(mode == GPUCACHE_MODE_OFF);
    refuses_everything(GPUCACHE_DISABLED);
    gpucache_elastic pool = 0;
    EXPECT_STATUS(gc.gpucache_elastic_create(0, PAGE, 0, 0, &pool, NULL), GPUCACHE_DISABLED);
}

static void forked(void)
{
    void *pointer = NULL;
    int status = 0;
    program_start();
    EXPECT_STATUS(gc.gpucache_malloc(&pointer, MIB, 0, NULL), GPUCACHE_OK);
    const pid_t child = fork();
    if (child == 0) {
        gpucache_elastic pool = 0;
        refuses_everything(GPUCACHE_FORKED);
        EXPECT_STATUS(gc.gpucache_malloc(&pointer, MIB, 0, NULL), GPUCACHE_FORKED);
        EXPECT_STATUS(gc.gpucache_free((void *)0x12340000, NULL), GPUCACHE_FORKED);
        EXPECT_STATUS(gc.gpucache_elastic_create(0, PAGE, 0, 0, &pool, NULL), GPUCACHE_FORKED);
        EXPECT(gc.gpucache_cupy_malloc(NULL, MIB, 0) == NULL);
        _exit(0);
    }
    EXPECT(waitpid(child, &status, 0) == child);
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    EXPECT_STATUS(gc.gpucache_free(pointer, NULL), GPUCACHE_OK);
}

static void *allocate_often(void *argument)
{
    const int device = (int)(intptr_t)argument % 2;
    for (int i = 0; i < 300; i++) {
        void *pointer = NULL;
        EXPECT_STATUS(gc.gpucache_malloc(&pointer, (size_t)(1 + i) * 1000, device, NULL),
                      GPUCACHE_OK);
        EXPECT_STATUS(gc.gpucache_free(pointer, NULL), GPUCACHE_OK);
        if (i % 64 == 0)
            EXPECT_STATUS(gc.gpucache_empty_cache(GPUCACHE_ALL_DEVICES, NULL), GPUCACHE_OK);
    }
    return NULL;
}

static void threads(void)
{
    pthread_t all[4];
    for (intptr_t i = 0; i < 4; i++)
        EXPECT(pthread_create(&all[i], NULL, allocate_often, (void *)i) == 0);
    for (int i = 0; i < 4; i++)
        pthread_join(all[i], NULL);
    EXPECT(figures_of(0).requested_bytes == 0 && figures_of(0).alloc_count == 600);
}

/* Contexts that go take their memory along, and what comes after is served by the new one. */
static void contexts(void)
{
    CUcontext own = NULL, popped = NULL;
    void *pointer = NULL, *kept = NULL;
    gpucache_elastic pool = 0;
    EXPECT_STATUS(gc.gpucache_malloc(&kept, MIB, 0, NULL), GPUCACHE_OK);
    CHECK(cuCtxCreate(&own, NULL, 0, 0)); /* current, and of the device: it is used */
    EXPECT_STATUS(gc.gpucache_malloc(&pointer, MIB, 0, NULL), GPUCACHE_OK);
    EXPECT(figures_of(0).requested_bytes == 2 * MIB);
    CHECK(cuCtxDestroy(own));
    EXPECT(figures_of(0).requested_bytes == MIB);
    EXPECT_STATUS(gc.gpucache_free(pointer, NULL), GPUCACHE_INVALID_POINTER);
    use(kept, MIB, 0);
    const gpucache_status made = gc.gpucache_elastic_create(0, 8 * PAGE, 0, 0, &pool, NULL);
    if (made == GPUCACHE_OK) {
        EXPECT_STATUS(gc.gpucache_elastic_allocate(pool, 0, 2 * PAGE), GPUCACHE_OK);
        EXPECT_STATUS(gc.gpucache_elastic_destroy(pool), GPUCACHE_OK);
    }
    CHECK(cuDevicePrimaryCtxReset(0));
    EXPECT_STATUS(gc.gpucache_free(kept, NULL), GPUCACHE_INVALID_POINTER);
    for (int i = 0; i < 3; i++) {
        EXPECT_STATUS(gc.gpucache_malloc(&pointer, MIB, 0, NULL), GPUCACHE_OK);
        use(pointer, MIB, 0);
        EXPECT_STATUS(gc.gpucache_free(pointer, NULL), GPUCACHE_OK);
    }
    (void)cuCtxPopCurrent(&popped);
    EXPECT(figures_of(0).requested_bytes == 0);
}

/* A pool that outlives the context it was made in answers, one way or the other. */
static void elastic_reset(void)
{
    gpucache_elastic pool = 0;
    void *base = NULL;
    EXPECT_STATUS(gc.gpucache_elastic_create(0, 8 * PAGE, 0, 0, &pool, &base), GPUCACHE_OK);
    EXPECT_STATUS(gc.gpucache_elastic_allocate(pool, 0, 4 * PAGE), GPUCACHE_OK);
    EXPECT_STATUS(gc.gpucache_elastic_deallocate(pool, 0, PAGE, 0, NULL), GPUCACHE_OK);
    CHECK(cuDevicePrimaryCtxReset(0));
    (void)gc.gpucache_empty_cache(0, NULL);
    (void)gc.gpucache_elastic_allocate(pool, 4 * PAGE, PAGE);
    (void)gc.gpucache_elastic_deallocate(pool, PAGE, PAGE, 0, NULL);
    const gpucache_status status = gc.gpucache_elastic_destroy(pool);
    EXPECT(status == GPUCACHE_OK || status == GPUCACHE_DRIVER_ERROR);
}

static void interposing(void)
{
    int mode = -1, first = -1;
    CHECK(cuInit(0));
    if (is_opened)
        (void)gc.gpucache_torch_malloc(1, 0, NULL);
    EXPECT_STATUS(gc.gpucache_get_mode(&mode, &first), GPUCACHE_OK);
    EXPECT(mode == GPUCACHE_MODE_CACHE && first == !is_opened);
}

/* A device that can do without: 1 makes the script skip. */
static void has_mapping(void)
{
    gpucache_elastic pool = 0;
    if (gc.gpucache_elastic_create(0, PAGE, 0, 0, &pool, NULL) == GPUCACHE_NOT_SUPPORTED)
        exit(77);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {
        {"early", early},
        {"memory", memory},
        {"peers", peers},
        {"streams", streams},
        {"figures", figures},
        {"limits", limits},
        {"pauses", pauses},
        {"advice", advice},
        {"elastic", elastic},
        {"signatures", signatures},
        {"off", off},
        {"forked", forked},
        {"threads", threads},
        {"interposing", interposing},
        {"has_mapping", has_mapping},
        {"contexts", contexts},
        {"elastic_reset", elastic_reset},
    };
    void *library = argc > 2 ? dlopen(argv[2], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (argc < 2)
        return 2;
    is_opened = library != NULL;
    /* One that was opened by others, in a scope of its own, is found too. */
    gpucache_status loaded = gpucache_load(NULL, &gc);
    if (library != NULL) {
        EXPECT(loaded == GPUCACHE_OK);
        loaded = gpucache_load(library, &gc);
    }
    if (strcmp(argv[1], "absent") == 0)
        return loaded == GPUCACHE_NO_LIBRARY && gc.gpucache_malloc == NULL ? 0 : 1;
    EXPECT(loaded == GPUCACHE_OK);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (strcmp(cases[i].name, argv[1]) == 0) {
            cases[i].run();
            return 0;
        }
    }
    fprintf(stderr, "no case %s\n", argv[1]);
    return 2;
}
