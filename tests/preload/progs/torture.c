/* link: -l:libcuda.so.1 -l:libcudart.so.13 */
/* Memory is taken, written, read, handed on and freed at random by several threads in two contexts,
 * on streams of all kinds, and freed while its work is still queued. usage: torture EVENTS SECONDS
 * SEED THREADS [peers]
 *
 * Ends after EVENTS allocations and frees, or SECONDS. What every block held is checked
 * (torture.h). `peers`: copies from one context's memory to the other's as well. Prints what it
 * did; fails if anything was corrupt or a call failed, but for allocations that found no memory. */
#include "torture.h"

#include <cuda_runtime_api.h>
#include <time.h>

#define BIG_BYTES ((size_t)64 << 20)

/* ---- blocks ---- */

static size_t some_size(struct worker *worker)
{
    const unsigned percent = (unsigned)pick(worker, 100);
    const unsigned bits = percent < 60 ? 16 : percent < 88 ? 21 : 26;
    const size_t most = (size_t)1 << (1 + pick(worker, bits));

    return 1 + pick(worker, most);
}

static CUresult take_pitched(struct worker *worker, struct block *block)
{
    const size_t width = 1 + pick(worker, 6000), height = 2 + pick(worker, 60);
    size_t pitch;
    CUresult result = cuMemAllocPitch(&block->address, &pitch, width, height, 4);

    block->bytes = pitch * height;
    block->shape = (struct shape){width < 512 ? width : WINDOW_BYTES, pitch, height};
    return result;
}

static CUresult take_memory(struct worker *worker, struct block *block)
{
    block->bytes = some_size(worker);
    block->shape = shape_of(worker, block->bytes);
    if (block->how == BY_PITCH)
        return take_pitched(worker, block);
    if (block->how == BY_RUNTIME)
        return cudaMalloc((void **)&block->address, block->bytes) == cudaSuccess
                   ? CUDA_SUCCESS
                   : CUDA_ERROR_OUT_OF_MEMORY;
    if (block->how == BY_DRIVER)
        return cuMemAlloc(&block->address, block->bytes);
    block->last_stream = some_stream(worker, block->context);
    CUresult result = cuMemAllocAsync(&block->address, block->bytes, block->last_stream);
    if (result == CUDA_SUCCESS)
        mark(block, block->last_stream);
    return result;
}

static struct block *new_block(struct world *world)
{
    struct block *block = calloc(1, sizeof(*block));

    if (block == NULL)
        exit(EXIT_FAILURE);
    for (unsigned i = 0; i < CONTEXTS; i++) {
        CHECK(cuCtxPushCurrent(world->contexts[i]));
        CHECK(cuEventCreate(&block->events[i], CU_EVENT_DISABLE_TIMING));
        CHECK(cuCtxPopCurrent(NULL));
    }
    return block;
}

/* Fills the slot's block with memory; false if there is none. */
static bool take(struct worker *worker, struct block *block)
{
    static const enum how ways[] = {BY_DRIVER,  BY_DRIVER, BY_DRIVER, BY_RUNTIME,
                                    BY_RUNTIME, BY_PITCH,  BY_STREAM, BY_STREAM};
    block->context = (unsigned)pick(worker, CONTEXTS);
    block->how = ways[pick(worker, sizeof(ways) / sizeof(ways[0]))];
    if (block->how == BY_RUNTIME && !worker->world->with_runtime)
        block->how = BY_DRIVER;
    block->number = 0;
    block->last_stream = STREAM_NONE;
    enter(worker, block->context);
    const CUresult result = take_memory(worker, block);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        atomic_fetch_add(&worker->world->refused, 1);
        block->address = 0;
        return false;
    }
    CHECK(result);
    atomic_fetch_add(&worker->world->events, 1);
    return true;
}

static void fill(struct worker *worker, struct block *block, CUstream stream)
{
    block->number = atomic_fetch_add(&worker->world->next_number, 1);
    order(block, stream);
    fill_on(block, stream);
    mark(block, stream);
    atomic_fetch_add(&worker->world->work, 1);
}

static void check(struct worker *worker, struct block *block, CUstream stream)
{
    struct check *record;

    if (block->number == 0)
        return;
    record = begin_check(worker);
    order(block, stream);
    fetch_on(block, record, stream);
    await_check(worker, record, block->context, stream);
    mark(block, stream);
    atomic_fetch_add(&worker->world->work, 1);
}

static void give_back(struct worker *worker, struct block *block)
{
    enter(worker, block->context);
    if (chance(worker, 95))
        check(worker, block, some_stream(worker, block->context));
    if (block->how == BY_STREAM && chance(worker, 90)) {
        const CUstream stream = some_stream(worker, block->context);
        order(block, stream);
        CHECK(cuMemFreeAsync(block->address, stream));
    } else {
        /* Nothing waits for the work of stream-ordered memory but the program. */
        if (block->how == BY_STREAM)
            CHECK(cuEventSynchronize(block->last));
        if (block->how == BY_RUNTIME || (worker->world->with_runtime && chance(worker, 20)))
            CHECK((CUresult)cudaFree((void *)(uintptr_t)block->address));
        else
            CHECK(cuMemFree(block->address));
    }
    block->address = 0;
    atomic_fetch_add(&worker->world->events, 1);
}

/* ---- what is done with them ---- */

/* A stream that goes while its work is queued. */
static void work_on_passing_stream(struct worker *worker, struct block *block)
{
    CUstream stream;

    CHECK(cuStreamCreate(&stream, chance(worker, 50) ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT));
    fill(worker, block, stream);
    check(worker, block, stream);
    block->last_stream = CU_STREAM_PER_THREAD; /* its handle may be another's soon */
    CHECK(cuStreamDestroy(stream));
}

static void copy(struct worker *worker, struct block *to, struct block *from)
{
    CUDA_MEMCPY2D rows = rows_of(from);
    const CUstream stream = some_stream(worker, to->context);

    if (from->number == 0 || to == from || to->context != from->context ||
        to->shape.width != from->shape.width || to->shape.height != from->shape.height)
        return;
    order(to, stream);
    order(from, stream);
    rows.srcMemoryType = rows.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    rows.srcDevice = from->address;
    rows.srcPitch = from->shape.pitch;
    rows.dstDevice = to->address;
    rows.dstPitch = to->shape.pitch;
    CHECK(cuMemcpy2DAsync(&rows, stream));
    to->number = from->number;
    mark(to, stream);
    mark(from, stream);
    atomic_fetch_add(&worker->world->work, 1);
}

/* From the memory of one context to that of the other, by a stream of the second. */
static void copy_to_peer(struct worker *worker, struct block *to, struct block *from)
{
    const CUcontext *contexts = worker->world->contexts;
    const CUstream stream = worker->own[to->context];

    if (from->number == 0 || to->context == from->context || from->shape.height != 1 ||
        to->shape.height != 1 || from->bytes != to->bytes || from->how == BY_STREAM ||
        to->how == BY_STREAM)
        return;
    enter(worker, to->context);
    order(to, stream);
    order(from, stream);
    CHECK(cuMemcpyPeerAsync(to->address, contexts[to->context], from->address,
                            contexts[from->context], to->bytes, stream));
    to->number = from->number;
    mark(to, stream);
    from->last = from->events[to->context];
    from->last_stream = stream;
    CHECK(cuEventRecord(from->last, stream));
    atomic_fetch_add(&worker->world->work, 1);
}

/* The other thread that takes it out goes on with it. */
static void hand_on(struct worker *worker, struct block **slot)
{
    struct world *world = worker->world;
    struct block **box = &world->box[pick(worker, sizeof(world->box) / sizeof(world->box[0]))];

    pthread_mutex_lock(&world->lock);
    struct block *other = *box;
    *box = *slot;
    pthread_mutex_unlock(&world->lock);
    *slot = other != NULL ? other : new_block(world);
}

static void synchronize(struct worker *worker, unsigned context)
{
    enter(worker, context);
    if (chance(worker, 70)) {
        CHECK(cuStreamSynchronize(some_stream(worker, context)));
    } else if (pthread_rwlock_trywrlock(&worker->world->captures[context]) == 0) {
        CHECK(cuCtxSynchronize());
        pthread_rwlock_unlock(&worker->world->captures[context]);
    }
}

/* ---- captures ---- */

/* Memory is taken and freed inside; the graph is run a few times and forgotten while it may run. */
static void capture(struct worker *worker, struct block *block, struct block *other)
{
    struct world *world = worker->world;
    const unsigned context = (unsigned)pick(worker, CONTEXTS);
    const CUstream stream = worker->own[context];
    struct check *record;
    CUgraphExec exec;
    CUgraph graph;

    if (block->address != 0)
        give_back(worker, block);
    record = begin_check(worker);
    enter(worker, context);
    pthread_rwlock_rdlock(&world->captures[context]);
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    block->context = context;
    block->how = BY_DRIVER;
    block->bytes = some_size(worker);
    block->shape = shape_of(worker, block->bytes);
    block->last_stream = STREAM_NONE;
    const bool is_taken = cuMemAlloc(&block->address, block->bytes) == CUDA_SUCCESS;
    if (is_taken) {
        block->number = atomic_fetch_add(&world->next_number, 1);
        fill_on(block, stream);
        fetch_on(block, record, stream);
        atomic_fetch_add(&world->events, 1);
    } else {
        block->address = 0;
    }
    if (other->address != 0 && other->how == BY_DRIVER && other->context == context) {
        CHECK(cuMemFree(other->address));
        other->address = 0;
        atomic_fetch_add(&world->events, 1);
    }
    CHECK(cuStreamEndCapture(stream, &graph));
    pthread_rwlock_unlock(&world->captures[context]);
    CHECK(cuGraphInstantiate(&exec, graph, 0));
    for (uint64_t runs = 1 + pick(worker, 3); is_taken && runs > 0; runs--)
        CHECK(cuGraphLaunch(exec, stream));
    if (is_taken) {
        await_check(worker, record, context, stream);
        mark(block, stream);
        atomic_fetch_add(&world->captured, 1);
    }
    CHECK(cuGraphExecDestroy(exec));
    CHECK(cuGraphDestroy(graph));
}

/* ---- threads ---- */

static void step(struct worker *worker)
{
    struct block **slot = &worker->slots[pick(worker, SLOTS)];
    struct block *block = *slot, *other = worker->slots[pick(worker, SLOTS)];
    const unsigned percent = (unsigned)pick(worker, 1000);

    if (percent < 3) {
        if (other != block)
            capture(worker, block, other);
    } else if (percent < 10) {
        synchronize(worker, (unsigned)pick(worker, CONTEXTS));
    } else if (block->address == 0) {
        if (take(worker, block) && chance(worker, 92))
            fill(worker, block, some_stream(worker, block->context));
    } else if (percent < 60) {
        hand_on(worker, slot);
    } else if (percent < 80) {
        enter(worker, block->context);
        work_on_passing_stream(worker, block);
    } else if (percent < 200 && other->address != 0) {
        enter(worker, block->context);
        copy(worker, block, other);
        if (worker->world->with_peers)
            copy_to_peer(worker, block, other);
    } else if (percent < 240) {
        enter(worker, block->context);
        check(worker, block, some_stream(worker, block->context));
    } else {
        give_back(worker, block);
    }
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    struct world *world = worker->world;

    CHECK(cuCtxSetCurrent(world->contexts[0]));
    while (atomic_load(&world->events) < world->event_count && time(NULL) < world->end_time &&
           atomic_load(&world->wrong_count) == 0)
        step(worker);
    for (unsigned i = 0; i < SLOTS; i++)
        if (worker->slots[i]->address != 0)
            give_back(worker, worker->slots[i]);
    while (worker->check_count > 0)
        end_check(worker);
    return NULL;
}

/* ---- beginning and end ---- */

static void open_world(struct world *world)
{
    pthread_mutex_init(&world->lock, NULL);
    atomic_store(&world->next_number, 1);
    CHECK(cuInit(0));
    CHECK(cuDevicePrimaryCtxRetain(&world->contexts[0], 0));
    CHECK(cuCtxCreate(&world->contexts[1], NULL, 0, 0));
    for (unsigned i = 0; i < CONTEXTS; i++) {
        pthread_rwlock_init(&world->captures[i], NULL);
        CHECK(cuCtxSetCurrent(world->contexts[i]));
        for (unsigned j = 0; j < SHARED_STREAMS; j++)
            CHECK(cuStreamCreate(&world->streams[i][j],
                                 j % 2 == 0 ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING));
    }
}

static void open_worker(struct worker *worker, struct world *world, unsigned index, uint64_t seed)
{
    worker->world = world;
    worker->index = index;
    worker->state =
        (seed + 1) * UINT64_C(0x9e3779b97f4a7c15) + index * UINT64_C(0xbf58476d1ce4e5b9);
    for (unsigned i = 0; i < CONTEXTS; i++) {
        CHECK(cuCtxSetCurrent(world->contexts[i]));
        CHECK(cuStreamCreate(&worker->own[i], CU_STREAM_NON_BLOCKING));
        for (unsigned j = 0; j < CHECKS; j++)
            CHECK(cuEventCreate(&worker->checks[j].events[i], CU_EVENT_DISABLE_TIMING));
    }
    for (unsigned j = 0; j < CHECKS; j++)
        CHECK(cuMemHostAlloc((void **)&worker->checks[j].data, CHECK_BYTES,
                             CU_MEMHOSTALLOC_PORTABLE));
    for (unsigned i = 0; i < SLOTS; i++)
        worker->slots[i] = new_block(world);
}

static void close_world(struct world *world, struct worker *worker)
{
    worker->context = CONTEXTS; /* this is another thread than it had */
    for (unsigned i = 0; i < sizeof(world->box) / sizeof(world->box[0]); i++)
        if (world->box[i] != NULL && world->box[i]->address != 0)
            give_back(worker, world->box[i]);
    while (worker->check_count > 0)
        end_check(worker);
    for (unsigned i = 0; i < CONTEXTS; i++) {
        CHECK(cuCtxSetCurrent(world->contexts[i]));
        CHECK(cuCtxSynchronize());
    }
}

int main(int argument_count, char **arguments)
{
    static struct world world;
    pthread_t threads[16];

    if (argument_count < 5 || atoi(arguments[4]) < 1 || atoi(arguments[4]) > 16)
        return 2;
    const unsigned thread_count = (unsigned)atoi(arguments[4]);
    struct worker *workers = calloc(thread_count, sizeof(*workers));
    if (workers == NULL)
        return EXIT_FAILURE;
    world.event_count = strtoull(arguments[1], NULL, 10);
    world.end_time = time(NULL) + atoi(arguments[2]);
    world.with_runtime = getenv("TORTURE_DRIVER_ONLY") == NULL;
    world.with_thread_streams = getenv("TORTURE_NO_THREAD_STREAMS") == NULL;
    world.with_peers = argument_count > 5;
    printf("seed %s\n", arguments[3]);
    fflush(stdout);
    open_world(&world);
    for (unsigned i = 0; i < thread_count; i++)
        open_worker(&workers[i], &world, i, strtoull(arguments[3], NULL, 10));
    for (unsigned i = 0; i < thread_count; i++)
        if (pthread_create(&threads[i], NULL, work, &workers[i]) != 0)
            return EXIT_FAILURE;
    for (unsigned i = 0; i < thread_count; i++)
        pthread_join(threads[i], NULL);
    close_world(&world, &workers[0]);
    printf("events %llu work %llu captures %llu refused %llu corrupt %d\n",
           (unsigned long long)world.events, (unsigned long long)world.work,
           (unsigned long long)world.captured, (unsigned long long)world.refused,
           atomic_load(&world.wrong_count));
    return atomic_load(&world.wrong_count) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
