/* link: -l:libcuda.so.1 */
/* Tenants: figures while other threads hold blocks in their own caches, capacity that stays, and a
 * graph that is run after the tenant whose memory it uses is gone. usage: tenant_exact CASE. Prints
 * nothing and ends with 0 if all is as it should be. */
#include "tests/preload/progs/public.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#define MIB ((uint64_t)1 << 20)
#define BLOCK (4 * MIB)
#define THREADS 4
#define HELD 100
#define ROUNDS 50
#define SMALL 1000 /* bytes */

static CUcontext context;

static gpucache_tenant make(const char *name)
{
    gpucache_tenant tenant = 0;
    EXPECT(gc.gpucache_tenant_register(name, 0, 64 * MIB, &tenant) == GPUCACHE_OK);
    EXPECT(tenant != 0);
    return tenant;
}

static void set(gpucache_tenant tenant)
{
    EXPECT(gc.gpucache_tenant_set_current(tenant, NULL) == GPUCACHE_OK);
}

static struct gpucache_tenant_statistics figures_of(gpucache_tenant tenant)
{
    struct gpucache_tenant_statistics figures = {.struct_bytes = sizeof(figures)};
    EXPECT(gc.gpucache_tenant_get_statistics(tenant, 0, &figures) == GPUCACHE_OK);
    return figures;
}

/* ---- figures ---- */

static struct {
    gpucache_tenant tenant;
    pthread_barrier_t step;
} crowd;

static void *hold(void *argument)
{
    CUdeviceptr held[HELD];
    (void)argument;
    CHECK(cuCtxSetCurrent(context));
    set(crowd.tenant);
    for (int round = 0; round <= ROUNDS; round++) {
        for (int i = 0; i < HELD; i++)
            held[i] = program_alloc(SMALL);
        for (int i = 0; i < HELD && round < ROUNDS; i++)
            CHECK(cuMemFree(held[i]));
    }
    pthread_barrier_wait(&crowd.step);
    pthread_barrier_wait(&crowd.step); /* looked at */
    for (int i = 0; i < HELD; i++)
        CHECK(cuMemFree(held[i]));
    pthread_barrier_wait(&crowd.step);
    pthread_barrier_wait(&crowd.step);
    return NULL;
}

static void expect_figures(uint64_t live, uint64_t frees)
{
    struct gpucache_statistics device = {.struct_bytes = sizeof(device)};
    EXPECT(gc.gpucache_get_statistics(0, &device) == GPUCACHE_OK);
    EXPECT(device.requested_bytes == live * SMALL);
    EXPECT(device.alloc_count == (uint64_t)THREADS * HELD * (ROUNDS + 1));
    EXPECT(device.free_count == frees);
    const struct gpucache_tenant_statistics now = figures_of(crowd.tenant);
    EXPECT(now.requested_bytes == live * SMALL);
    EXPECT(now.alloc_count == (uint64_t)THREADS * HELD * (ROUNDS + 1));
    EXPECT(now.hit_count + now.miss_count == now.alloc_count);
    EXPECT(now.free_count == frees);
}

/* The figures include the caches of threads that go on. */
static void figures(void)
{
    pthread_t threads[THREADS];
    crowd.tenant = make("crowd");
    EXPECT(pthread_barrier_init(&crowd.step, NULL, THREADS + 1) == 0);
    for (int i = 0; i < THREADS; i++)
        EXPECT(pthread_create(&threads[i], NULL, hold, NULL) == 0);
    pthread_barrier_wait(&crowd.step);
    expect_figures((uint64_t)THREADS * HELD, (uint64_t)THREADS * HELD * ROUNDS);
    pthread_barrier_wait(&crowd.step);
    pthread_barrier_wait(&crowd.step);
    expect_figures(0, (uint64_t)THREADS * HELD * (ROUNDS + 1));
    pthread_barrier_wait(&crowd.step);
    for (int i = 0; i < THREADS; i++)
        EXPECT(pthread_join(threads[i], NULL) == 0);
}

/* ---- capacity ---- */

/* It follows the limit until the first use, and is fixed from then on. */
static void capacity(void)
{
    const gpucache_tenant tenant = make("one");
    EXPECT(gc.gpucache_tenant_set_limit(tenant, 16 * MIB) == GPUCACHE_OK);
    EXPECT(figures_of(tenant).capacity_bytes == 64 * MIB);
    set(tenant);
    const CUdeviceptr block = program_alloc(BLOCK);
    for (uint64_t limit = MIB; limit <= 1024 * MIB; limit *= 32) {
        EXPECT(gc.gpucache_tenant_set_limit(tenant, limit) == GPUCACHE_OK);
        EXPECT(figures_of(tenant).limit_bytes == limit);
        EXPECT(figures_of(tenant).capacity_bytes == 64 * MIB);
    }
    CHECK(cuMemFree(block));
}

/* ---- graphs ---- */

static unsigned char content_of(CUdeviceptr block)
{
    unsigned char content = 0;
    CHECK(cuMemcpyDtoH(&content, block, 1));
    return content;
}

/* Fills a block of the tenant; the block is freed. */
static CUgraphExec capture(gpucache_tenant tenant, CUstream stream)
{
    CUgraph graph;
    CUgraphExec exec;
    set(tenant);
    const CUdeviceptr idle = program_alloc(2 * BLOCK);
    CUdeviceptr block = program_alloc(BLOCK);
    CHECK(cuMemFree(idle));
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK(cuMemsetD8Async(block, 2, BLOCK, stream));
    CHECK(cuStreamEndCapture(stream, &graph));
    CHECK(cuGraphInstantiate(&exec, graph, 0));
    CHECK(cuGraphLaunch(exec, stream));
    CHECK(cuStreamSynchronize(stream));
    EXPECT(content_of(block) == 2);
    CHECK(cuMemFree(block));
    set(0);
    EXPECT(gc.gpucache_tenant_unregister(tenant) == GPUCACHE_OK);
    return exec;
}

/* It fails, and harms nobody. Where memory is mapped only: the driver's own addresses come again.
 */
static void graph(void)
{
    CUdeviceptr blocks[12];
    unsigned count = 0;
    CUstream stream;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUgraphExec exec = capture(make("one"), stream);
    set(make("one"));
    for (; count < 12; count++) {
        blocks[count] = program_alloc(BLOCK);
        CHECK(cuMemsetD8(blocks[count], 1, BLOCK));
    }
    CHECK(cuCtxSynchronize());
    bool has_failed = cuGraphLaunch(exec, stream) != CUDA_SUCCESS;
    has_failed |= cuStreamSynchronize(stream) != CUDA_SUCCESS;
    for (unsigned i = 0; !has_failed && i < count; i++)
        EXPECT(content_of(blocks[i]) == 1);
    EXPECT(has_failed);
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";
    EXPECT(gpucache_load(NULL, &gc) == GPUCACHE_OK);
    context = program_start();
    if (strcmp(name, "figures") == 0)
        figures();
    else if (strcmp(name, "capacity") == 0)
        capacity();
    else if (strcmp(name, "graph") == 0)
        graph();
    else
        EXPECT(false);
    return EXIT_SUCCESS;
}
