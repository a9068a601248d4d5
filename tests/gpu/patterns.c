/* Blocks that are written, checked, handed from stream to stream and freed with their work still
 * queued: no byte may change under them. usage: patterns MODE SECONDS
 *
 * MODE: one (stream), many, programmatic (launches), graphs, async (allocation), threads (with
 * streams of their own). Half of the blocks hold a kernel's pattern, which a kernel checks: wrong
 * words are counted on the device. The others are filled, and a part of them is copied to the host
 * and checked there, as are all on the simulated device. All of it is right by CUDA's rules; a
 * check with a wrong seed shows at the end that wrong words are counted. */
#include "tests/gpu/gpu.h"

#define BLOCKS 96
#define STREAMS 8
#define SLOTS 16
#define SLOT_BYTES (64 * KIB)
#define LIVE_BYTES_MAX (gpu.is_rehearsal ? 256 * MIB : 6 * GIB)
#define THREADS_MAX 4

struct block {
    CUdeviceptr address;
    uint64_t bytes;
    uint32_t seed;
    bool is_pattern, is_async;
    CUevent event; /* behind its last work */
};

/* A part of a block on its way to the host. */
struct slot {
    uint32_t *words;
    uint64_t count;
    uint32_t seed;
    CUevent event;
};

struct worker {
    unsigned index;
    uint64_t state;
    CUstream streams[STREAMS];
    struct slot slots[SLOTS];
    unsigned next_slot;
    uint64_t rounds, bytes, wrong_copies;
};

static struct {
    enum { ONE, MANY, PROGRAMMATIC, GRAPHS, ASYNC, THREADS } mode;
    uint64_t end_ns;
    pthread_mutex_t lock; /* guards the blocks at rest and live_bytes */
    struct block *rest[BLOCKS];
    unsigned rest_count;
    uint64_t live_bytes;
    CUdeviceptr wrong;
    CUfunction fill, check;
} world = {.lock = PTHREAD_MUTEX_INITIALIZER};

static const char *const modes[] = {"one", "many", "programmatic", "graphs", "async", "threads"};

/* xorshift64 (Marsaglia). */
static uint64_t draw(struct worker *worker, uint64_t below)
{
    worker->state ^= worker->state << 13;
    worker->state ^= worker->state >> 7;
    worker->state ^= worker->state << 17;
    return worker->state % below;
}

static CUstream any_stream(struct worker *worker)
{
    if (world.mode == ONE || world.mode == PROGRAMMATIC)
        return worker->streams[0];
    return worker->streams[draw(worker, STREAMS)];
}

/* ---- work on a block ---- */

static void launch(CUfunction kernel, CUstream stream, uint64_t bytes, void **parameters)
{
    const uint64_t blocks = bytes / 4 / 1024 + 1;
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION};
    CUlaunchConfig config = {.gridDimX = (unsigned)(blocks < 264 ? blocks : 264),
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = 256,
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .hStream = stream};

    if (world.mode != PROGRAMMATIC) {
        gpu_launch(kernel, config.gridDimX, config.blockDimX, stream, parameters);
        return;
    }
    attribute.value.programmaticStreamSerializationAllowed = 1;
    config.attrs = &attribute;
    config.numAttrs = 1;
    CU(cuLaunchKernelEx, &config, kernel, parameters, NULL);
}

static void write_block(const struct block *block, CUstream stream)
{
    CUdeviceptr address = block->address;
    uint64_t words = block->bytes / 4;
    uint32_t seed = block->seed;
    void *parameters[] = {&address, &words, &seed};

    if (block->is_pattern)
        launch(world.fill, stream, block->bytes, parameters);
    else
        CU(cuMemsetD32Async, address, seed, words, stream);
}

static void check_slot(struct worker *worker, struct slot *slot)
{
    if (slot->count == 0)
        return;
    CU(cuEventSynchronize, slot->event);
    for (uint64_t i = 0; i < slot->count; i++)
        worker->wrong_copies += slot->words[i] != slot->seed;
    slot->count = 0;
}

/* The slot that the check uses, to be recorded behind it; NULL: none. */
static struct slot *check_block(struct worker *worker, const struct block *block, CUstream stream)
{
    CUdeviceptr address = block->address;
    uint64_t words = block->bytes / 4;
    uint32_t seed = block->seed;
    void *parameters[] = {&address, &words, &seed, &world.wrong};

    worker->bytes += block->bytes;
    if (block->is_pattern) {
        launch(world.check, stream, block->bytes, parameters);
        return NULL;
    }
    struct slot *slot = &worker->slots[worker->next_slot++ % SLOTS];
    const uint64_t bytes = block->bytes < SLOT_BYTES ? block->bytes : SLOT_BYTES;
    const uint64_t places = (block->bytes - bytes) / 4 + 1;
    slot->seed = seed;
    slot->count = bytes / 4;
    CU(cuMemcpyDtoHAsync, slot->words, address + 4 * draw(worker, places), bytes, stream);
    return slot;
}

/* Some writes and checks, behind one another in a stream, or as one graph. */
static void work_on(struct worker *worker, struct block *block, CUstream stream, bool is_written,
                    bool is_checked)
{
    CUgraph graph;
    CUgraphExec exec;
    struct slot *slot = NULL;

    if (!block->is_pattern && is_checked)
        check_slot(worker, &worker->slots[worker->next_slot % SLOTS]);
    if (world.mode == GRAPHS)
        CU(cuStreamBeginCapture, stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    if (is_written)
        write_block(block, stream);
    if (world.mode != PROGRAMMATIC ||
        gpu.is_rehearsal) /* else the next kernel would not begin early */
        gpu_spin(stream, 1000 * (20 + draw(worker, 180)));
    if (is_checked)
        slot = check_block(worker, block, stream);
    if (world.mode == GRAPHS) {
        CU(cuStreamEndCapture, stream, &graph);
        CU(cuGraphInstantiateWithFlags, &exec, graph, 0);
        CU(cuGraphLaunch, exec, stream);
        CU(cuGraphExecDestroy, exec);
        CU(cuGraphDestroy, graph);
    }
    if (slot != NULL)
        CU(cuEventRecord, slot->event, stream);
}

/* ---- blocks ---- */

static bool charge(uint64_t bytes)
{
    pthread_mutex_lock(&world.lock);
    const bool fits = world.live_bytes + bytes <= LIVE_BYTES_MAX;
    if (fits)
        world.live_bytes += bytes;
    pthread_mutex_unlock(&world.lock);
    return fits;
}

static void uncharge(uint64_t bytes)
{
    pthread_mutex_lock(&world.lock);
    world.live_bytes -= bytes;
    pthread_mutex_unlock(&world.lock);
}

/* Sizes from 4 KiB to 64 MiB (4 MiB on the simulated device), as many of each magnitude. */
static uint64_t draw_bytes(struct worker *worker)
{
    const uint64_t magnitude = UINT64_C(1) << (12 + draw(worker, gpu.is_rehearsal ? 11 : 15));

    return (magnitude + draw(worker, magnitude)) & ~UINT64_C(15);
}

static struct block *take(struct worker *worker, CUstream stream)
{
    struct block *block = calloc(1, sizeof(*block));

    block->bytes = draw_bytes(worker);
    block->seed = (uint32_t)draw(worker, UINT32_MAX);
    block->is_pattern = !gpu.is_rehearsal && draw(worker, 2) == 0;
    block->is_async = world.mode == ASYNC && draw(worker, 2) == 0;
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    if (charge(block->bytes)) {
        result = block->is_async ? cu.cuMemAllocAsync(&block->address, block->bytes, stream)
                                 : cu.cuMemAlloc(&block->address, block->bytes);
        if (result != CUDA_SUCCESS)
            uncharge(block->bytes);
    }
    if (result == CUDA_SUCCESS) {
        CU(cuEventCreate, &block->event, CU_EVENT_DISABLE_TIMING);
        return block;
    }
    free(block);
    if (result != CUDA_ERROR_OUT_OF_MEMORY)
        gpu_check(result, "an allocation", __FILE__, __LINE__);
    return NULL;
}

/* Frees it with its work still queued, which is in `stream` or is waited for there. */
static void give(struct block *block, CUstream stream)
{
    if (block->is_async)
        CU(cuMemFreeAsync, block->address, stream);
    else
        CU(cuMemFree, block->address);
    CU(cuEventDestroy, block->event);
    uncharge(block->bytes);
    free(block);
}

static void lay_down(struct worker *worker, struct block *block, CUstream stream)
{
    CU(cuEventRecord, block->event, stream);
    pthread_mutex_lock(&world.lock);
    const bool fits = world.rest_count < BLOCKS;
    if (fits)
        world.rest[world.rest_count++] = block;
    pthread_mutex_unlock(&world.lock);
    if (!fits) {
        work_on(worker, block, stream, false, true);
        give(block, stream);
    }
}

static struct block *pick_up(struct worker *worker)
{
    struct block *block = NULL;

    pthread_mutex_lock(&world.lock);
    if (world.rest_count > 0) {
        const uint64_t at = draw(worker, world.rest_count);
        block = world.rest[at];
        world.rest[at] = world.rest[--world.rest_count];
    }
    pthread_mutex_unlock(&world.lock);
    return block;
}

static void use_new(struct worker *worker)
{
    CUstream stream = any_stream(worker);
    struct block *block = take(worker, stream);
    const bool is_short_lived = draw(worker, 2) == 0;

    if (block == NULL)
        return;
    work_on(worker, block, stream, true, is_short_lived);
    if (is_short_lived)
        give(block, stream);
    else
        lay_down(worker, block, stream);
}

static bool use_old(struct worker *worker)
{
    CUstream stream = any_stream(worker);
    struct block *block = pick_up(worker);

    if (block == NULL)
        return false;
    CU(cuStreamWaitEvent, stream, block->event, 0);
    work_on(worker, block, stream, false, true);
    if (draw(worker, 4) == 0) {
        block->seed++;
        work_on(worker, block, stream, true, false);
        lay_down(worker, block, stream);
    } else {
        give(block, stream);
    }
    return true;
}

/* ---- the run ---- */

static void open_worker(struct worker *worker, unsigned index)
{
    worker->index = index;
    worker->state = (index + 1) * UINT64_C(0x9E3779B97F4A7C15);
    for (unsigned i = 0; i < STREAMS; i++) {
        if (world.mode == THREADS && i == 0)
            worker->streams[i] = CU_STREAM_PER_THREAD;
        else
            CU(cuStreamCreate, &worker->streams[i],
               i % 2 == 0 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT);
    }
    for (unsigned i = 1; world.mode == THREADS && i < STREAMS; i += 2)
        worker->streams[i] = CU_STREAM_PER_THREAD;
    for (unsigned i = 0; i < SLOTS; i++) {
        void *memory;
        CU(cuMemHostAlloc, &memory, SLOT_BYTES, CU_MEMHOSTALLOC_PORTABLE);
        worker->slots[i].words = memory;
        CU(cuEventCreate, &worker->slots[i].event, CU_EVENT_DISABLE_TIMING);
    }
}

static void *run(void *argument)
{
    struct worker *worker = argument;

    CU(cuCtxSetCurrent, gpu.context);
    while (now_ns() < world.end_ns) {
        if (draw(worker, 2) == 0 || !use_old(worker))
            use_new(worker);
        worker->rounds++;
    }
    for (unsigned i = 0; i < SLOTS; i++)
        check_slot(worker, &worker->slots[i]);
    return NULL;
}

static uint32_t wrong_words(void)
{
    uint32_t value = 0;

    CU(cuCtxSynchronize);
    CU(cuMemcpyDtoH, &value, world.wrong, sizeof(value));
    return value;
}

/* Does a kernel begin while the one before it in the stream still runs? */
static void show_overlap(CUstream stream, CUmodule module)
{
    CUfunction early = gpu_function(module, "early_end"), begin = gpu_function(module, "begin");
    CUdeviceptr times = 0;
    uint64_t ns = 2 * MS, seen[2] = {0, 0};

    CU(cuMemAlloc, &times, 4096);
    void *parameters[] = {&times, &ns};
    for (unsigned i = 0; i < 3; i++) { /* the first ones may wait for their code */
        launch(early, stream, 4, parameters);
        launch(begin, stream, 4, parameters);
        CU(cuStreamSynchronize, stream);
    }
    CU(cuMemcpyDtoH, seen, times, sizeof(seen));
    row(seen[1] < seen[0], "yes", "programmatic.overlaps");
    row(((double)seen[0] - (double)seen[1]) / 1e3, "us", "programmatic.early");
    CU(cuMemFree, times);
}

/* A block that is checked for another pattern than it holds. */
static void show_canary(struct worker *worker)
{
    struct block block = {.bytes = 4096, .seed = 1, .is_pattern = true};
    const uint32_t before = wrong_words();

    CU(cuMemAlloc, &block.address, block.bytes);
    write_block(&block, worker->streams[0]);
    block.seed = 2;
    (void)check_block(worker, &block, worker->streams[0]);
    row(wrong_words() - before, "words", "%s.canary", modes[world.mode]);
    CU(cuMemFree, block.address);
}

int main(int argument_count, char **arguments)
{
    static struct worker workers[THREADS_MAX];
    pthread_t threads[THREADS_MAX];
    uint64_t rounds_done = 0, bytes = 0, wrong = 0;
    unsigned mode = 0, count;

    while (argument_count == 3 && mode < 6 && strcmp(modes[mode], arguments[1]) != 0)
        mode++;
    if (argument_count != 3 || mode == 6)
        return 2;
    world.mode = (__typeof__(world.mode))mode;
    gpu_open();
    if (world.mode == PROGRAMMATIC && (gpu.capability < 90 || cu.cuLaunchKernelEx == NULL)) {
        skip("programmatic.*", "programmatic launches begin with compute capability 9.0");
        return EXIT_SUCCESS;
    }
    CUmodule module =
        gpu_load_module(world.mode == PROGRAMMATIC ? "kernels_90.ptx" : "kernels.ptx");
    world.fill = gpu_function(module, world.mode == PROGRAMMATIC ? "fill_early" : "fill");
    world.check = gpu_function(module, world.mode == PROGRAMMATIC ? "check_dependent" : "check");
    gpu_load_busy_kernels();
    CU(cuMemAlloc, &world.wrong, 4096);
    CU(cuMemsetD8, world.wrong, 0, 4096);
    CU(cuCtxSynchronize);
    count = world.mode == THREADS ? THREADS_MAX : 1;
    for (unsigned i = 0; i < count; i++)
        open_worker(&workers[i], i);
    world.end_ns = now_ns() + (uint64_t)(atof(arguments[2]) * 1e9);
    for (unsigned i = 0; i < count; i++)
        if (pthread_create(&threads[i], NULL, run, &workers[i]) != 0)
            return EXIT_FAILURE;
    for (unsigned i = 0; i < count; i++) {
        pthread_join(threads[i], NULL);
        rounds_done += workers[i].rounds;
        bytes += workers[i].bytes;
        wrong += workers[i].wrong_copies;
    }
    row(wrong_words(), "words", "%s.kernels.wrong", modes[mode]);
    row((double)wrong, "words", "%s.copies.wrong", modes[mode]);
    row((double)rounds_done, "rounds", "%s.rounds", modes[mode]);
    row((double)bytes / (double)GIB, "GiB", "%s.checked", modes[mode]);
    if (gpu.is_rehearsal) {
        skip("*.canary", "the simulated device's kernels compute nothing");
        skip("*.overlaps", "the simulated device's kernels compute nothing");
        return EXIT_SUCCESS;
    }
    show_canary(&workers[0]);
    if (world.mode == PROGRAMMATIC)
        show_overlap(workers[0].streams[0], module);
    return EXIT_SUCCESS;
}
