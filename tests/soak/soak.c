/* link: -l:libcuda.so.1 -l:libcudart.so.13 */
/* Everything at once, for the given time: blocks in every way and order, graphs, elastic pools,
 * tenants, contexts, threads, children and plugins come and go. usage: soak LIBTENANT LIBPLUGIN
 * [WORKER] | soak light
 *
 * Commands on standard input: `check` holds all workers between two steps, empties the cache and
 * prints the figures as a line of JSON; the next line lets them go on. The end of the input ends
 * it: everything is freed. `light` has one worker and no commands: it is there to be killed. */
#define _GNU_SOURCE
#include "blocks.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#define SLOTS 24
#define HANDED 8
#define CONTEXT_BLOCKS 12
#define PAGE ((size_t)2 << 20)
#define ELASTIC_PAGES 16
#define MAPPED_AT_ONCE 6
#define TENANT_STEPS 2000
#define SLEEP_US 100000

struct worker {
    pthread_t thread;
    const char *name;
    void (*step)(struct worker *worker);
    void (*end)(struct worker *worker);
    unsigned pause_us;
    unsigned seed;
    unsigned long step_count;
    CUstream stream;
    struct block slots[SLOTS];
    bool is_wanted;
};

static struct {
    CUcontext context;
    pthread_rwlock_t steps; /* read: in a step; write: all are held */
    atomic_bool is_ending;
    const char *tenant_path, *plugin_path;
    pthread_mutex_t
        capture_lock; /* what a capture anywhere in the context forbids is beside none */
    pthread_mutex_t passed_lock;
    struct block handed[HANDED]; /* from thread to thread */
} world;

static size_t pick(struct worker *worker, size_t below)
{
    return (size_t)rand_r(&worker->seed) % below;
}

static size_t some_bytes(struct worker *worker)
{
    return 4 + pick(worker, (size_t)4 << pick(worker, 21));
}

/* ---- blocks ---- */

static void step_blocks(struct worker *worker)
{
    struct block *slot = &worker->slots[pick(worker, SLOTS)];

    if (slot->address != 0)
        block_give(slot, worker->stream);
    else
        block_take(slot, (enum how)pick(worker, HOW_COUNT), some_bytes(worker), worker->stream);
    if (pick(worker, 8) == 0) {
        struct block *place = &world.handed[pick(worker, HANDED)];
        CHECK(cuStreamSynchronize(worker->stream));
        pthread_mutex_lock(&world.passed_lock);
        const struct block other = *place;
        *place = *slot;
        pthread_mutex_unlock(&world.passed_lock);
        *slot = other;
    }
    if (worker->step_count % 256 == 255) {
        CHECK(cuStreamSynchronize(worker->stream));
        CHECK(cuStreamDestroy(worker->stream));
        CHECK(cuStreamCreate(&worker->stream, CU_STREAM_NON_BLOCKING));
    }
}

static void end_blocks(struct worker *worker)
{
    for (size_t i = 0; i < SLOTS; i++)
        block_give(&worker->slots[i], worker->stream);
}

/* ---- graphs ---- */

/* Memory taken before, inside in the order of the stream, and as a plain allocation. */
static void step_graph(struct worker *worker)
{
    struct block before, inside = {.bytes = some_bytes(worker) & ~(size_t)3};
    CUgraphExec runnable;
    CUgraph graph;
    uint32_t *seen;

    if (!block_take(&before, BY_DRIVER, some_bytes(worker), worker->stream))
        return;
    CHECK(cuMemAllocHost((void **)&seen, sizeof(*seen)));
    pthread_mutex_lock(&world.capture_lock);
    CHECK(cuStreamBeginCapture(worker->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    inside.number = before.number + 1;
    CHECK(cuMemAllocAsync(&inside.address, inside.bytes, worker->stream));
    block_fill(&inside, worker->stream);
    CHECK(cuMemcpyDtoHAsync(seen, inside.address + inside.bytes - 4, 4, worker->stream));
    CHECK(cuMemFreeAsync(inside.address, worker->stream));
    block_fill(&before, worker->stream);
    CHECK(cuStreamEndCapture(worker->stream, &graph));
    pthread_mutex_unlock(&world.capture_lock);
    CHECK(cuGraphInstantiate(&runnable, graph, 0));
    CHECK(cuGraphDestroy(graph));
    for (int run = 0; run < 2; run++) {
        *seen = 0;
        if (block_refused(cuGraphLaunch(runnable, worker->stream), "launch", __LINE__))
            continue;
        CHECK(cuStreamSynchronize(worker->stream));
        atomic_fetch_add(*seen == inside.number ? &totals.verified_count : &totals.corrupt_count,
                         1);
    }
    CHECK(cuGraphExecDestroy(runnable));
    CHECK(cuDeviceGraphMemTrim(0));
    CHECK(cuMemFreeHost(seen));
    block_give(&before, worker->stream);
}

/* ---- elastic pools ---- */

/* While another thread captures pools are left as they are: again, then. */
#define UNLESS_CAPTURING(call)                                                                     \
    ({                                                                                             \
        gpucache_status status_;                                                                   \
        while ((status_ = (call)) == GPUCACHE_CAPTURING)                                           \
            usleep(500);                                                                           \
        status_;                                                                                   \
    })

static void look_at_page(struct worker *worker, CUdeviceptr address, uint32_t number)
{
    const struct block page = {.address = address, .bytes = PAGE, .number = number};
    block_fill(&page, worker->stream);
    block_look(&page, worker->stream);
}

static void step_elastic(struct worker *worker)
{
    gpucache_elastic pool;
    void *base;

    EXPECT_STATUS(
        UNLESS_CAPTURING(gc.gpucache_elastic_create(0, ELASTIC_PAGES * PAGE, 0, 0, &pool, &base)),
        GPUCACHE_OK);
    for (int turn = 0; turn < 4; turn++) {
        const size_t first = pick(worker, ELASTIC_PAGES - MAPPED_AT_ONCE);
        const size_t bytes = (1 + pick(worker, MAPPED_AT_ONCE)) * PAGE;
        const gpucache_status status =
            UNLESS_CAPTURING(gc.gpucache_elastic_allocate(pool, first * PAGE, bytes));
        if (status == GPUCACHE_LIMIT_REACHED || status == GPUCACHE_OUT_OF_MEMORY) {
            atomic_fetch_add(&totals.refused_count, 1);
            continue;
        }
        EXPECT_STATUS(status, GPUCACHE_OK);
        look_at_page(worker, (CUdeviceptr)base + first * PAGE, (uint32_t)rand_r(&worker->seed));
        EXPECT_STATUS(UNLESS_CAPTURING(gc.gpucache_elastic_deallocate(
                          pool, first * PAGE, bytes, GPUCACHE_WAIT_STREAM, worker->stream)),
                      GPUCACHE_OK);
    }
    EXPECT_STATUS(UNLESS_CAPTURING(gc.gpucache_elastic_destroy(pool)), GPUCACHE_OK);
}

/* ---- tenants ---- */

/* The addresses of a tenant that ends are never reused where anything was captured, so few end.
 */
static void step_tenant(struct worker *worker)
{
    static const char *const names[] = {"red", "green", "blue"};
    const char *name = names[worker->step_count % 3];
    gpucache_tenant tenant, before;
    struct block block;

    if (gc.gpucache_tenant_find(name, &tenant) != GPUCACHE_OK)
        EXPECT_STATUS(gc.gpucache_tenant_register(name, 0, 64 * PAGE, &tenant), GPUCACHE_OK);
    EXPECT_STATUS(gc.gpucache_tenant_set_current(tenant, &before), GPUCACHE_OK);
    if (block_take(&block, BY_DRIVER, some_bytes(worker), worker->stream))
        block_give(&block, worker->stream);
    EXPECT_STATUS(gc.gpucache_tenant_set_current(before, NULL), GPUCACHE_OK);
    if (worker->step_count % TENANT_STEPS == 0)
        EXPECT_STATUS(UNLESS_CAPTURING(gc.gpucache_tenant_unregister(tenant)), GPUCACHE_OK);
}

/* By every way there is, from an object that GPUCACHE_TENANTS names. */
static void step_ways(struct worker *worker)
{
    static const char *const ways[] = {
        "plain",         "dlsym",         "proc", "pitch", "async", "array", "handle", "runtime",
        "runtime_pitch", "runtime_async", "own",  "torch", "cupy",  "rmm",   "elastic"};
    const char *way = ways[worker->step_count % (sizeof(ways) / sizeof(ways[0]))];
    int (*take)(const char *way, size_t bytes, uint64_t *what);
    int (*give)(const char *way, uint64_t what);
    uint64_t what;
    void *object = dlopen(world.tenant_path, RTLD_NOW | RTLD_LOCAL);

    EXPECT(object != NULL);
    *(void **)&take = dlsym(object, "tenant_take");
    *(void **)&give = dlsym(object, "tenant_give");
    pthread_mutex_lock(&world.capture_lock);
    const int result = take(way, 2 * PAGE, &what);
    if (result == 0)
        EXPECT(give(way, what) == 0);
    else
        atomic_fetch_add(&totals.refused_count, 1);
    CHECK(cuCtxSynchronize());
    pthread_mutex_unlock(&world.capture_lock);
    dlclose(object);
}

/* ---- contexts, threads, objects, children ---- */

/* Destroyed with its blocks live. */
static void step_context(struct worker *worker)
{
    CUcontext context;
    struct block block;
    const CUresult result = cuCtxCreate(&context, NULL, 0, 0);

    if (block_refused(result, "cuCtxCreate", __LINE__))
        return;
    for (int i = 0; i < CONTEXT_BLOCKS; i++)
        if (block_take(&block, BY_DRIVER, some_bytes(worker), NULL)) {
            block_look(&block, NULL);
            atomic_fetch_sub(&totals.live_bytes, block.bytes);
        }
    CHECK(cuCtxDestroy(context));
    CHECK(cuCtxSetCurrent(world.context));
}

static void *short_life(void *argument)
{
    struct worker *worker = argument;
    struct block block;

    CHECK(cuCtxSetCurrent(world.context));
    if (block_take(&block, (enum how)pick(worker, HOW_COUNT), some_bytes(worker), worker->stream))
        block_give(&block, worker->stream);
    return NULL;
}

static void step_threads(struct worker *worker)
{
    pthread_t thread;

    EXPECT(pthread_create(&thread, NULL, short_life, worker) == 0);
    EXPECT(pthread_join(thread, NULL) == 0);
}

static void step_plugin(struct worker *worker)
{
    CUdeviceptr (*take)(size_t bytes);
    void *object = dlopen(world.plugin_path, RTLD_NOW | RTLD_LOCAL);

    EXPECT(object != NULL);
    *(void **)&take = dlsym(object, "plugin_alloc");
    const CUdeviceptr address = take(4096);
    dlclose(object);
    CHECK(cuMemsetD8Async(address, 1, 4096, worker->stream));
    CHECK(cuMemFree(address));
}

/* The driver's results in a child are not checked: it must return. */
static void step_child(struct worker *worker)
{
    const pid_t child = fork();
    int status = -1;

    (void)worker;
    if (child == 0) {
        CUdeviceptr address = 0;
        (void)cuMemAlloc(&address, 4096);
        (void)cuCtxSynchronize();
        _exit(address == 0 ? 0 : 1);
    }
    EXPECT(child > 0 && waitpid(child, &status, 0) == child && status == 0);
}

/* ---- the whole ---- */

static struct worker workers[] = {
    {.name = "blocks", .step = step_blocks, .end = end_blocks, .pause_us = 1500, .seed = 1},
    {.name = "blocks", .step = step_blocks, .end = end_blocks, .pause_us = 2500, .seed = 2},
    {.name = "graph", .step = step_graph, .pause_us = 40000, .seed = 3},
    {.name = "elastic", .step = step_elastic, .pause_us = 50000, .seed = 4},
    {.name = "tenant", .step = step_tenant, .pause_us = 60000, .seed = 5},
    {.name = "ways", .step = step_ways, .pause_us = 50000, .seed = 6},
    {.name = "context", .step = step_context, .pause_us = 10000000, .seed = 7},
    {.name = "threads", .step = step_threads, .pause_us = 20000, .seed = 8},
    {.name = "plugin", .step = step_plugin, .pause_us = 70000, .seed = 9},
    {.name = "child", .step = step_child, .pause_us = 2000000, .seed = 10},
};
#define WORKERS (sizeof(workers) / sizeof(workers[0]))

static void *work(void *argument)
{
    struct worker *worker = argument;

    CHECK(cuCtxSetCurrent(world.context));
    CHECK(cuStreamCreate(&worker->stream, CU_STREAM_NON_BLOCKING));
    while (!atomic_load(&world.is_ending)) {
        pthread_rwlock_rdlock(&world.steps);
        worker->step(worker);
        worker->step_count++;
        pthread_rwlock_unlock(&world.steps);
        for (unsigned slept = 0; slept < worker->pause_us && !atomic_load(&world.is_ending);
             slept += SLEEP_US)
            usleep(worker->pause_us < SLEEP_US ? worker->pause_us : SLEEP_US);
    }
    if (worker->end != NULL)
        worker->end(worker);
    CHECK(cuStreamDestroy(worker->stream));
    return NULL;
}

static void print_figures(void)
{
    struct gpucache_statistics figures = {.struct_bytes = sizeof(figures)};

    CHECK(cuCtxSynchronize());
    EXPECT_STATUS(gc.gpucache_empty_cache(GPUCACHE_ALL_DEVICES, NULL), GPUCACHE_OK);
    EXPECT_STATUS(gc.gpucache_get_statistics(0, &figures), GPUCACHE_OK);
    printf("{\"live\": %llu, \"requested\": %llu, \"reserved\": %llu, \"pending\": %llu, "
           "\"metadata\": %llu, \"allocs\": %llu, \"frees\": %llu, \"verified\": %llu, "
           "\"corrupt\": %llu, \"refused\": %llu, \"steps\": {",
           (unsigned long long)totals.live_bytes, (unsigned long long)figures.requested_bytes,
           (unsigned long long)figures.reserved_bytes, (unsigned long long)figures.pending_bytes,
           (unsigned long long)figures.metadata_bytes, (unsigned long long)figures.alloc_count,
           (unsigned long long)figures.free_count, (unsigned long long)totals.verified_count,
           (unsigned long long)totals.corrupt_count, (unsigned long long)totals.refused_count);
    for (size_t i = 1; i < WORKERS; i++)
        printf("\"%s\": %lu%s", workers[i].name, workers[i].step_count,
               i + 1 < WORKERS ? ", " : "}}\n");
    fflush(stdout);
}

static void serve_commands(void)
{
    char line[32];

    while (fgets(line, sizeof(line), stdin) != NULL) {
        pthread_rwlock_wrlock(&world.steps);
        print_figures();
        if (fgets(line, sizeof(line), stdin) == NULL)
            clearerr(stdin);
        pthread_rwlock_unlock(&world.steps);
    }
}

static void start_world(void)
{
    pthread_rwlockattr_t attributes;

    pthread_rwlockattr_init(&attributes);
    pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    pthread_rwlock_init(&world.steps, &attributes);
    pthread_mutex_init(&world.capture_lock, NULL);
    pthread_mutex_init(&world.passed_lock, NULL);
    world.context = program_start();
    EXPECT_STATUS(gpucache_load(NULL, &gc), GPUCACHE_OK);
}

int main(int argument_count, char **arguments)
{
    const bool is_light = argument_count == 2 && strcmp(arguments[1], "light") == 0;

    if (!is_light && argument_count != 3 && argument_count != 4) {
        fprintf(stderr, "usage: soak LIBTENANT LIBPLUGIN [WORKER] | soak light\n");
        return 2;
    }
    start_world();
    world.tenant_path = arguments[1];
    world.plugin_path = arguments[2];
    for (size_t i = 0; i < WORKERS; i++) {
        workers[i].is_wanted =
            is_light ? i == 0 : argument_count == 3 || strcmp(arguments[3], workers[i].name) == 0;
        if (workers[i].is_wanted)
            EXPECT(pthread_create(&workers[i].thread, NULL, work, &workers[i]) == 0);
    }
    if (is_light)
        pause();
    serve_commands();
    atomic_store(&world.is_ending, true);
    for (size_t i = 0; i < WORKERS; i++)
        if (workers[i].is_wanted)
            pthread_join(workers[i].thread, NULL);
    for (size_t i = 0; i < HANDED; i++)
        block_give(&world.handed[i], NULL);
    print_figures();
    return EXIT_SUCCESS;
}
