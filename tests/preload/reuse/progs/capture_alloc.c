/* link: -l:libcuda.so.1 */
/* Graphs captured with allocations, frees and launches inside, by several threads at once. usage:
 * capture_alloc THREADS ROUNDS global|thread|relaxed [plain]
 *
 * In each round a thread captures on a stream of its own: blocks are taken, written, copied and
 * launched on, and blocks from before are freed with their work queued, all inside, with the
 * thread's capture mode exchanged where the capture forbids that. Memory of work before or beside
 * it must not end up in blocks of the graph, nor the other way round: the graph is run several
 * times and its results and those of the other blocks are looked at. In mode `global` no thread may
 * make an unsafe call while any captures, so all begin and end together. `plain`: nothing is taken
 * or freed inside. */
#include "tests/preload/progs/program.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define THREADS_MAX 8
#define BLOCKS 6
#define RUNS 3

static const char kernel_text[] = ".version 6.0\n.target sm_50\n.address_size 64\n"
                                  ".visible .entry touch(.param .u64 block)\n{\n    ret;\n}\n";

static CUcontext context;
static CUfunction kernel;
static unsigned long rounds;
static bool is_plain;
static CUstreamCaptureMode mode;
static pthread_barrier_t barrier;

struct worker {
    unsigned index, seed;
    CUstream capturing, beside;
    unsigned *results;             /* pinned: one word of each block, of the graph and beside it */
    CUdeviceptr before[BLOCKS];    /* taken before the capture, freed inside */
    CUdeviceptr inside[BLOCKS];    /* taken inside, used by the graph */
    CUdeviceptr beside_of[BLOCKS]; /* taken inside, used by another stream */
    size_t bytes[BLOCKS];
};

static void together(void)
{
    if (mode == CU_STREAM_CAPTURE_MODE_GLOBAL)
        pthread_barrier_wait(&barrier);
}

static size_t some_size(struct worker *worker)
{
    return ((size_t)64 << (unsigned)rand_r(&worker->seed) % 17) +
           (size_t)rand_r(&worker->seed) % 64 * 4;
}

static void fill(CUdeviceptr block, unsigned value, size_t bytes, CUstream stream)
{
    CHECK(cuMemsetD32Async(block, value, bytes / 4, stream));
}

static unsigned value_of(const struct worker *worker, unsigned kind, unsigned block)
{
    return 0x01000000u * (worker->index + 1) + 0x10000u * kind + block;
}

static void prepare(struct worker *worker)
{
    for (unsigned i = 0; i < BLOCKS; i++) {
        worker->bytes[i] = some_size(worker) & ~(size_t)3;
        worker->before[i] = program_alloc(worker->bytes[i]);
        if (is_plain) {
            worker->inside[i] = program_alloc(worker->bytes[i]);
            worker->beside_of[i] = program_alloc(worker->bytes[i]);
        }
        fill(worker->before[i], 0xdead0000u + i, worker->bytes[i], worker->beside);
    }
}

/* The capture's own work: block i is written, launched on, and its last word copied out. */
static void capture_block(struct worker *worker, unsigned i)
{
    const size_t bytes = worker->bytes[i];
    void *parameters[] = {&worker->inside[i]};

    fill(worker->inside[i], value_of(worker, 1, i), bytes, worker->capturing);
    CHECK(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, worker->capturing, parameters, NULL));
    CHECK(cuMemcpyDtoHAsync(&worker->results[i], worker->inside[i] + bytes - 4, 4,
                            worker->capturing));
}

/* Beside it, on a stream that does not capture: this work runs now. */
static void work_beside(struct worker *worker, unsigned i)
{
    const size_t bytes = worker->bytes[i];

    fill(worker->beside_of[i], value_of(worker, 2, i), bytes, worker->beside);
    CHECK(cuMemcpyDtoHAsync(&worker->results[BLOCKS + i], worker->beside_of[i] + bytes - 4, 4,
                            worker->beside));
}

/* Calls that the capture would not survive in the thread's own mode. */
static void take_and_free(struct worker *worker, unsigned i)
{
    CUstreamCaptureMode own = CU_STREAM_CAPTURE_MODE_RELAXED;

    CHECK(cuThreadExchangeStreamCaptureMode(&own));
    worker->inside[i] = program_alloc(worker->bytes[i]);
    CHECK(cuMemFree(worker->before[i]));
    worker->beside_of[i] = program_alloc(worker->bytes[i]);
    CHECK(cuThreadExchangeStreamCaptureMode(&own));
}

static CUgraphExec capture(struct worker *worker)
{
    CUgraphExec exec;
    CUgraph graph;

    CHECK(cuStreamBeginCapture(worker->capturing, mode));
    together();
    for (unsigned i = 0; i < BLOCKS; i++) {
        if (!is_plain)
            take_and_free(worker, i);
        capture_block(worker, i);
        work_beside(worker, i);
    }
    together();
    CHECK(cuStreamEndCapture(worker->capturing, &graph));
    together();
    CHECK(cuGraphInstantiate(&exec, graph, 0));
    CHECK(cuGraphDestroy(graph));
    return exec;
}

static void expect(const struct worker *worker, unsigned kind, unsigned i, unsigned got)
{
    if (got == value_of(worker, kind, i))
        return;
    fprintf(stderr, "thread %u, kind %u, block %u of %zu bytes: %08x, not %08x\n", worker->index,
            kind, i, worker->bytes[i], got, value_of(worker, kind, i));
    exit(EXIT_FAILURE);
}

/* Other blocks come and go between two runs: the graph's must be nobody else's. */
static void churn(struct worker *worker)
{
    CUdeviceptr blocks[BLOCKS];

    for (unsigned i = 0; i < BLOCKS; i++) {
        const size_t bytes = some_size(worker) & ~(size_t)3;
        blocks[i] = program_alloc(bytes);
        fill(blocks[i], 0xbadbad00u + i, bytes, worker->beside);
    }
    for (unsigned i = 0; i < BLOCKS; i++)
        CHECK(cuMemFree(blocks[i]));
}

static void run(struct worker *worker, CUgraphExec exec)
{
    CHECK(cuStreamSynchronize(worker->beside));
    for (unsigned i = 0; i < BLOCKS; i++)
        expect(worker, 2, i, worker->results[BLOCKS + i]);
    for (unsigned launch = 0; launch < RUNS; launch++) {
        memset(worker->results, 0, 2 * BLOCKS * sizeof(unsigned));
        CHECK(cuGraphLaunch(exec, worker->capturing));
        churn(worker);
        CHECK(cuStreamSynchronize(worker->capturing));
        for (unsigned i = 0; i < BLOCKS; i++)
            expect(worker, 1, i, worker->results[i]);
    }
    for (unsigned i = 0; i < BLOCKS; i++) { /* what ran beside is as it was */
        CHECK(cuMemcpyDtoHAsync(&worker->results[BLOCKS + i],
                                worker->beside_of[i] + worker->bytes[i] - 4, 4, worker->beside));
        CHECK(cuStreamSynchronize(worker->beside));
        expect(worker, 2, i, worker->results[BLOCKS + i]);
    }
}

static void *work(void *argument)
{
    struct worker *worker = argument;

    CHECK(cuCtxSetCurrent(context));
    for (unsigned long round = 0; round < rounds; round++) {
        prepare(worker);
        together();
        CUgraphExec exec = capture(worker);
        run(worker, exec);
        CHECK(cuGraphExecDestroy(exec));
        for (unsigned i = 0; i < BLOCKS; i++) {
            CHECK(cuMemFree(worker->inside[i]));
            CHECK(cuMemFree(worker->beside_of[i]));
            if (is_plain)
                CHECK(cuMemFree(worker->before[i]));
        }
        together();
    }
    return NULL;
}

int main(int argument_count, char **arguments)
{
    struct worker workers[THREADS_MAX];
    pthread_t threads[THREADS_MAX];
    CUmodule module;

    if (argument_count < 4 || atoi(arguments[1]) < 1 || atoi(arguments[1]) > THREADS_MAX)
        return 2;
    const unsigned count = (unsigned)atoi(arguments[1]);
    rounds = strtoul(arguments[2], NULL, 10);
    mode = strcmp(arguments[3], "global") == 0   ? CU_STREAM_CAPTURE_MODE_GLOBAL
           : strcmp(arguments[3], "thread") == 0 ? CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
                                                 : CU_STREAM_CAPTURE_MODE_RELAXED;
    is_plain = argument_count > 4;
    context = program_start();
    CHECK(cuModuleLoadData(&module, kernel_text));
    CHECK(cuModuleGetFunction(&kernel, module, "touch"));
    pthread_barrier_init(&barrier, NULL, count);
    for (unsigned i = 0; i < count; i++) {
        workers[i] = (struct worker){.index = i, .seed = i + 1};
        CHECK(cuStreamCreate(&workers[i].capturing, CU_STREAM_NON_BLOCKING));
        CHECK(cuStreamCreate(&workers[i].beside, CU_STREAM_NON_BLOCKING));
        CHECK(cuMemHostAlloc((void **)&workers[i].results, 2 * BLOCKS * sizeof(unsigned), 0));
        if (pthread_create(&threads[i], NULL, work, &workers[i]) != 0)
            return EXIT_FAILURE;
    }
    for (unsigned i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    CHECK(cuCtxSynchronize());
    printf("rounds %lu\n", rounds * count);
    return EXIT_SUCCESS;
}
