/* link: -l:libcuda.so.1 */
/* Pause and resume of tenants, through core/gpucache.h. usage: pause_tenants CASE. Prints nothing
 * and ends with 0 if all is as it should be. The device has 512 MiB. */
#include "tests/preload/progs/public.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
#define NEED (300 * MIB) /* more than 70 % of what the context leaves */
#define TURNS 6

static CUcontext context;

static gpucache_tenant make(const char *name)
{
    gpucache_tenant tenant = 0;
    EXPECT_STATUS(gc.gpucache_tenant_register(name, 0, GPUCACHE_NO_LIMIT, &tenant), GPUCACHE_OK);
    return tenant;
}

static CUdeviceptr take(gpucache_tenant tenant, size_t bytes)
{
    gpucache_tenant before;
    CUdeviceptr block = 0;
    EXPECT_STATUS(gc.gpucache_tenant_set_current(tenant, &before), GPUCACHE_OK);
    CHECK(cuMemAlloc(&block, bytes));
    EXPECT_STATUS(gc.gpucache_tenant_set_current(before, NULL), GPUCACHE_OK);
    return block;
}

static void pause_tenant(gpucache_tenant tenant)
{
    uint64_t moved = 0;
    EXPECT_STATUS(gc.gpucache_tenant_pause(tenant, 1, 10000, &moved), GPUCACHE_OK);
    EXPECT(moved > 0);
}

static void resume_tenant(gpucache_tenant tenant)
{
    EXPECT_STATUS(gc.gpucache_tenant_resume(tenant, NULL), GPUCACHE_OK);
}

static bool has(CUdeviceptr block, size_t bytes, unsigned char value)
{
    static unsigned char seen[4 * MIB];
    for (size_t at = 0; at < bytes; at += sizeof(seen)) {
        const size_t length = bytes - at < sizeof(seen) ? bytes - at : sizeof(seen);
        CHECK(cuMemcpyDtoH(seen, block + at, length));
        for (size_t i = 0; i < length; i++)
            if (seen[i] != value)
                return false;
    }
    return true;
}

/* ---- a thread that does one thing ---- */

struct worker {
    pthread_t thread;
    gpucache_tenant tenant; /* current there; 0: none */
    void (*work)(struct worker *worker);
    CUdeviceptr block;
    CUdeviceptr other;
    size_t bytes;
    CUresult result;
    CUdeviceptr base;
    atomic_bool is_done;
};

static void *run(void *argument)
{
    struct worker *worker = argument;
    CHECK(cuCtxSetCurrent(context));
    EXPECT_STATUS(gc.gpucache_tenant_set_current(worker->tenant, NULL), GPUCACHE_OK);
    worker->work(worker);
    atomic_store(&worker->is_done, true);
    return NULL;
}

static void start(struct worker *worker, void (*work)(struct worker *))
{
    worker->work = work;
    atomic_store(&worker->is_done, false);
    EXPECT(pthread_create(&worker->thread, NULL, run, worker) == 0);
}

static bool waits(struct worker *worker)
{
    usleep(60000);
    return !atomic_load(&worker->is_done);
}

static void join(struct worker *worker)
{
    EXPECT(pthread_join(worker->thread, NULL) == 0);
}

static void fill(struct worker *worker)
{
    worker->result = cuMemsetD8(worker->block, 9, worker->bytes);
    CHECK(cuCtxSynchronize());
}

static void copy(struct worker *worker)
{
    worker->result = cuMemcpyDtoD(worker->block, worker->other, worker->bytes);
    CHECK(cuCtxSynchronize());
}

static void copy_peer(struct worker *worker)
{
    worker->result = cuMemcpyPeer(worker->block, context, worker->other, context, worker->bytes);
    CHECK(cuCtxSynchronize());
}

static void signal_stream(struct worker *worker)
{
    worker->result = cuStreamWriteValue32(NULL, worker->block, 0x09090909, 0);
}

static void read_back(struct worker *worker)
{
    unsigned char seen[64];
    worker->result = cuMemcpyDtoH(seen, worker->block, sizeof(seen));
    if (worker->result == CUDA_SUCCESS && seen[63] != 9)
        worker->result = CUDA_ERROR_UNKNOWN;
}

static void ask(struct worker *worker)
{
    size_t bytes;
    worker->result = cuMemGetAddressRange(&worker->base, &bytes, worker->block + 5);
}

static void allocate(struct worker *worker)
{
    worker->result = cuMemAlloc(&worker->base, 32 * MIB);
    if (worker->result == CUDA_SUCCESS)
        worker->result = cuMemFree(worker->base);
}

/* ---- the cases ---- */

/* Each needs 70 % of the device, in one process. */
static void turns(void)
{
    const gpucache_tenant tenants[2] = {make("one"), make("two")};
    CUdeviceptr blocks[2] = {0}, small[2] = {0}, none = 0;
    for (unsigned char turn = 0; turn < TURNS; turn++) {
        const unsigned mine = turn % 2;
        if (turn < 2) {
            blocks[mine] = take(tenants[mine], NEED);
            small[mine] = take(tenants[mine], 3000);
        } else {
            resume_tenant(tenants[mine]);
            EXPECT(has(blocks[mine], NEED, (unsigned char)(turn - 1)));
            EXPECT(has(small[mine], 3000, (unsigned char)(turn + 100)));
        }
        CHECK(cuMemsetD8(blocks[mine], (unsigned char)(turn + 1), NEED));
        CHECK(cuMemsetD8(small[mine], (unsigned char)(turn + 102), 3000));
        EXPECT(cuMemAlloc(&none, NEED) == CUDA_ERROR_OUT_OF_MEMORY);
        if (turn >= 2)
            EXPECT_STATUS(gc.gpucache_tenant_resume(tenants[1 - mine], NULL),
                          GPUCACHE_OUT_OF_MEMORY);
        pause_tenant(tenants[mine]);
    }
    for (unsigned i = 0; i < 2; i++) {
        CHECK(cuMemFree(blocks[i]));
        CHECK(cuMemFree(small[i]));
        EXPECT_STATUS(gc.gpucache_tenant_unregister(tenants[i]), GPUCACHE_BUSY);
        resume_tenant(tenants[i]);
        EXPECT_STATUS(gc.gpucache_tenant_unregister(tenants[i]), GPUCACHE_OK);
    }
}

/* The threads that wait, and those that do not. */
static void threads(void)
{
    static void (*const works[])(struct worker *) = {fill,      copy,          copy_peer, ask,
                                                     read_back, signal_stream, allocate};
    const gpucache_tenant away = make("away"), here = make("here");
    const CUdeviceptr gone = take(away, 20 * MIB), stays = take(here, 20 * MIB);
    CHECK(cuMemsetD8(gone, 9, 20 * MIB));
    CHECK(cuMemsetD8(stays, 9, 20 * MIB));
    CHECK(cuCtxSynchronize());
    for (unsigned i = 0; i < sizeof(works) / sizeof(works[0]); i++) {
        /* The first is of the tenant, the second uses its memory, the third does neither. */
        struct worker own = {.tenant = away, .block = stays, .other = stays + MIB, .bytes = MIB};
        struct worker user = {.tenant = here, .block = gone, .other = stays, .bytes = 7 * MIB};
        struct worker free_one = {
            .tenant = here, .block = stays + 4 * MIB, .other = stays + 9 * MIB, .bytes = MIB};
        pause_tenant(away);
        start(&free_one, works[i]);
        join(&free_one);
        EXPECT(free_one.result == CUDA_SUCCESS);
        EXPECT_STATUS(gc.gpucache_tenant_pause(away, 1, 10000, NULL), GPUCACHE_PAUSED);
        start(&own, works[i]);
        start(&user, works[i]);
        if (works[i] != ask)
            EXPECT(waits(&own));
        if (works[i] != allocate)
            EXPECT(waits(&user));
        resume_tenant(away);
        join(&own);
        join(&user);
        EXPECT(own.result == CUDA_SUCCESS && user.result == CUDA_SUCCESS);
        EXPECT(works[i] != ask || user.base == gone);
        EXPECT(has(gone, 20 * MIB, 9) && has(stays, 20 * MIB, 9));
    }
    EXPECT_STATUS(gc.gpucache_tenant_resume(away, NULL), GPUCACHE_PAUSED);
}

static void process(void)
{
    const gpucache_tenant tenant = make("inner");
    const CUdeviceptr inner = take(tenant, 20 * MIB), outer = take(0, 20 * MIB);
    struct gpucache_tenant_statistics figures = {.struct_bytes = sizeof(figures)};
    struct worker worker = {.block = outer, .bytes = MIB};
    CHECK(cuMemsetD8(inner, 5, 20 * MIB));
    CHECK(cuMemsetD8(outer, 9, 20 * MIB));
    pause_tenant(tenant);
    EXPECT_STATUS(gc.gpucache_pause(1, 10000, NULL), GPUCACHE_OK);
    EXPECT_STATUS(gc.gpucache_tenant_get_statistics(tenant, 0, &figures), GPUCACHE_OK);
    EXPECT(figures.is_paused == 1 && figures.reserved_bytes == 0);
    start(&worker, fill);
    EXPECT(waits(&worker));
    EXPECT_STATUS(gc.gpucache_resume(NULL), GPUCACHE_OK);
    join(&worker);
    EXPECT(has(outer, 20 * MIB, 9));
    EXPECT_STATUS(gc.gpucache_pause(1, 10000, NULL), GPUCACHE_OK);
    resume_tenant(tenant);
    EXPECT_STATUS(gc.gpucache_resume(NULL), GPUCACHE_OK);
    EXPECT(has(inner, 20 * MIB, 5) && has(outer, 20 * MIB, 9));
    EXPECT_STATUS(gc.gpucache_tenant_set_limit(tenant, 10 * MIB), GPUCACHE_OK);
    pause_tenant(tenant);
    EXPECT_STATUS(gc.gpucache_tenant_resume(tenant, NULL), GPUCACHE_OUT_OF_MEMORY);
    EXPECT_STATUS(gc.gpucache_tenant_set_limit(tenant, GPUCACHE_NO_LIMIT), GPUCACHE_OK);
    resume_tenant(tenant);
    EXPECT(has(inner, 20 * MIB, 5));
    EXPECT_STATUS(gc.gpucache_tenant_pause(tenant + 77, 1, 10, NULL), GPUCACHE_INVALID_HANDLE);
}

/* A capture that begins while memory is away waits; what others may reach does not go. */
static void begin_capture(struct worker *worker)
{
    CUstream stream;
    CUgraph graph;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    worker->result = cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    CHECK(cuMemsetD8Async(worker->block, 9, worker->bytes, stream));
    CHECK(cuStreamEndCapture(stream, &graph));
    CHECK(cuGraphDestroy(graph));
    CHECK(cuStreamDestroy(stream));
}

static void pins(void)
{
    CUdeviceptr block = take(0, 20 * MIB);
    struct worker worker = {.block = block, .bytes = MIB};
    const unsigned on = 1;
    int handle = -1;
    EXPECT_STATUS(gc.gpucache_pause(1, 10000, NULL), GPUCACHE_OK);
    start(&worker, begin_capture);
    EXPECT(waits(&worker));
    EXPECT_STATUS(gc.gpucache_resume(NULL), GPUCACHE_OK);
    join(&worker);
    EXPECT(worker.result == CUDA_SUCCESS);
    CHECK(cuMemGetHandleForAddressRange(&handle, block, 2 * MIB,
                                        CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
    EXPECT(close(handle) == 0);
    EXPECT_STATUS(gc.gpucache_pause(1, 10000, NULL), GPUCACHE_PINNED);
    CHECK(cuMemFree(block));
    block = take(0, 20 * MIB);
    EXPECT_STATUS(gc.gpucache_pause(1, 10000, NULL), GPUCACHE_OK);
    EXPECT_STATUS(gc.gpucache_resume(NULL), GPUCACHE_OK);
    CHECK(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, block));
    EXPECT_STATUS(gc.gpucache_pause(1, 10000, NULL), GPUCACHE_PINNED);
    CHECK(cuMemFree(block));
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {{"turns", turns}, {"threads", threads}, {"process", process}, {"pins", pins}};
    alarm(90);
    program_start();
    CHECK(cuCtxGetCurrent(&context));
    if (gpucache_load(NULL, &gc) != GPUCACHE_OK)
        return EXIT_FAILURE;
    CHECK(cuMemFree(take(0, MIB)));
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        if (argc == 2 && strcmp(argv[1], cases[i].name) == 0) {
            cases[i].run();
            return EXIT_SUCCESS;
        }
    return 2;
}
