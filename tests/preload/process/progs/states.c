/* link: -l:libcuda.so.1 -lpthread */
/* Prints what calls for memory answer in states in which none can be served: no current context, a
 * context that has failed or is gone, a host function, a capture. After a refused call the memory
 * must still be there for the right one. Run without the library and in each of its modes, the
 * output must be the same. */
#include "tests/preload/progs/program.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define SMALL 4096
#define LARGE ((size_t)40 << 20)
#define HITS 100
#define NOWHERE ((CUdeviceptr)1 << 45)

static CUdevice device;
static CUcontext primary;
static CUstream stream;

static CUresult print_result(const char *what, CUresult result)
{
    printf("  %s: %d\n", what, (int)result);
    return result;
}

/* So that the calls that follow would be hits. */
static void warm_up(void)
{
    for (int i = 0; i < HITS; i++)
        CHECK(cuMemFree(program_alloc(SMALL)));
}

/* The arguments of the calls. */
struct things {
    CUdeviceptr small, large, ordered, spare;
    CUstream stream;
};

static struct things take(CUstream of)
{
    struct things things = {.stream = of};

    warm_up();
    things.small = program_alloc(SMALL);
    things.large = program_alloc(LARGE);
    things.spare = program_alloc(SMALL);
    CHECK(cuMemAllocAsync(&things.ordered, SMALL, of));
    CHECK(cuStreamSynchronize(of));
    CHECK(cuMemFree(program_alloc(SMALL))); /* one is available */
    return things;
}

static void give(const struct things *things)
{
    print_result("right free", cuMemFree(things->small));
    print_result("right free of a large block", cuMemFree(things->large));
    print_result("right free in order", cuMemFreeAsync(things->ordered, things->stream));
    print_result("right free in order of plain memory",
                 cuMemFreeAsync(things->spare, things->stream));
    print_result("stream", cuStreamSynchronize(things->stream));
    print_result("free once more", cuMemFree(things->small));
}

static void try_all(const struct things *things)
{
    CUdeviceptr block = 0, base = 0;
    size_t pitch = 0, free_bytes = 0, total_bytes = 0, bytes = 0;

    print_result("alloc", cuMemAlloc(&block, SMALL));
    print_result("alloc of a large block", cuMemAlloc(&block, LARGE));
    print_result("pitched", cuMemAllocPitch(&block, &pitch, 1000, 10, 4));
    if (print_result("alloc in order", cuMemAllocAsync(&block, SMALL, things->stream)) ==
        CUDA_SUCCESS)
        print_result("free of it", cuMemFreeAsync(block, things->stream));
    print_result("alloc in the default order", cuMemAllocAsync(&block, SMALL, NULL));
    print_result("free", cuMemFree(things->small));
    print_result("free of a large block", cuMemFree(things->large));
    print_result("free in order", cuMemFreeAsync(things->ordered, things->stream));
    print_result("free in order of plain memory", cuMemFreeAsync(things->spare, things->stream));
    print_result("free in the default order", cuMemFreeAsync(things->ordered, NULL));
    print_result("free in a thread's order", cuMemFreeAsync(things->spare, CU_STREAM_PER_THREAD));
    print_result("free of nothing", cuMemFree(0));
    print_result("memory info", cuMemGetInfo(&free_bytes, &total_bytes));
    print_result("range", cuMemGetAddressRange(&base, &bytes, things->small));
}

/* ---- no context ---- */

static void *without(void *argument)
{
    const struct things *things = argument;

    try_all(&things[0]);
    CHECK(cuCtxSetCurrent(primary));
    warm_up();
    CHECK(cuCtxSetCurrent(NULL));
    printf(" and after it had one\n");
    try_all(&things[1]);
    return NULL;
}

static void no_context(void)
{
    struct things things = take(stream), of_thread[] = {take(stream), take(stream)};
    CUcontext popped;
    pthread_t thread;

    printf("no context is set\n");
    CHECK(cuCtxSetCurrent(NULL));
    try_all(&things);
    CHECK(cuCtxSetCurrent(primary));
    give(&things);
    things = take(stream);
    printf("the context is popped\n");
    CHECK(cuCtxPopCurrent(&popped));
    try_all(&things);
    CHECK(cuCtxPushCurrent(popped));
    give(&things);
    printf("another thread\n");
    if (pthread_create(&thread, NULL, without, of_thread) != 0)
        exit(EXIT_FAILURE);
    pthread_join(thread, NULL);
    give(&of_thread[0]);
    give(&of_thread[1]);
}

static void context_gone(void)
{
    struct things things = take(stream);
    CUcontext context;

    printf("the current context is gone\n");
    CHECK(cuCtxCreate(&context, NULL, 0, device));
    warm_up();
    CHECK(cuCtxPushCurrent(context));
    CHECK(cuCtxDestroy(context)); /* pops the upper one */
    try_all(&things);
    CHECK(cuCtxSetCurrent(primary));
    give(&things);
}

/* ---- host functions ---- */

static void CUDA_CB host_function(void *argument)
{
    try_all(argument);
}

static void CUDA_CB callback(CUstream of, CUresult status, void *argument)
{
    (void)of;
    (void)status;
    try_all(argument);
}

static void in_host_functions(void)
{
    struct things things = take(stream);
    CUDA_HOST_NODE_PARAMS params = {.fn = host_function, .userData = &things};
    CUgraph graph;
    CUgraphNode node;
    CUgraphExec exec;

    printf("host function\n");
    CHECK(cuLaunchHostFunc(stream, host_function, &things));
    CHECK(cuStreamSynchronize(stream));
    printf("callback\n");
    CHECK(cuStreamAddCallback(stream, callback, &things, 0));
    CHECK(cuStreamSynchronize(stream));
    printf("host node\n");
    CHECK(cuGraphCreate(&graph, 0));
    CHECK(cuGraphAddHostNode(&node, graph, NULL, 0, &params));
    CHECK(cuGraphInstantiate(&exec, graph, 0));
    CHECK(cuGraphLaunch(exec, stream));
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuGraphExecDestroy(exec));
    CHECK(cuGraphDestroy(graph));
    give(&things);
}

/* ---- failed contexts ---- */

enum reported_by {
    BY_STREAM,
    BY_CONTEXT,
    BY_QUERY,
    BY_EVENT,
    BY_EVENT_QUERY,
    BY_COPY,
    TOLD_BY_COUNT
};

static void learn(enum reported_by by, CUstream of, CUdeviceptr block)
{
    CUevent event;
    CUresult result = CUDA_SUCCESS;
    int word;

    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CHECK(cuMemsetD8Async(NOWHERE, 1, 16, of));
    (void)cuEventRecord(event, of);
    if (by == BY_STREAM)
        result = cuStreamSynchronize(of);
    else if (by == BY_CONTEXT)
        result = cuCtxSynchronize();
    else if (by == BY_EVENT)
        result = cuEventSynchronize(event);
    else if (by == BY_COPY) /* which waits for another stream */
        while ((result = cuMemcpyDtoH(&word, block, sizeof(word))) == CUDA_SUCCESS)
            ;
    else
        do
            result = by == BY_QUERY ? cuStreamQuery(of) : cuEventQuery(event);
        while (result == CUDA_ERROR_NOT_READY);
    printf("failed, told by way %d: %d\n", (int)by, (int)result);
    if (by == BY_COPY || by == BY_EVENT || by == BY_EVENT_QUERY)
        (void)cuStreamSynchronize(of); /* it has failed, whatever that returned */
}

static void failed(enum reported_by by)
{
    struct things things, others = take(stream);
    CUcontext context;
    CUstream of;

    CHECK(cuCtxCreate(&context, NULL, 0, device));
    CHECK(cuStreamCreate(&of, CU_STREAM_NON_BLOCKING));
    things = take(of);
    learn(by, of, things.small);
    try_all(&things);
    printf(" in another context\n");
    CHECK(cuCtxSetCurrent(primary));
    print_result("alloc in the failed order", cuMemAllocAsync(&things.spare, SMALL, of));
    print_result("free in the failed order", cuMemFreeAsync(others.ordered, of));
    print_result("free in the failed order of plain memory", cuMemFreeAsync(others.spare, of));
    warm_up();
    give(&others);
    CHECK(cuCtxDestroy(context));
    CHECK(cuCtxSetCurrent(primary));
    warm_up();
}

/* ---- captures ---- */

static const char *const mode_names[] = {"global", "thread-local", "relaxed"};

struct attempt {
    struct things things;
    int mode; /* of the thread; -1: as it is */
    CUcontext context;
};

static void try_unsafe(const struct attempt *attempt)
{
    CUstreamCaptureMode mode = (CUstreamCaptureMode)attempt->mode;
    CUdeviceptr small = 0, large = 0, pitched = 0;
    size_t pitch;

    if (attempt->mode >= 0)
        CHECK(cuThreadExchangeStreamCaptureMode(&mode));
    print_result("alloc", cuMemAlloc(&small, SMALL));
    print_result("alloc of a large block", cuMemAlloc(&large, LARGE));
    print_result("pitched", cuMemAllocPitch(&pitched, &pitch, 1000, 10, 4));
    print_result("free", cuMemFree(attempt->things.small));
    print_result("free of a large block", cuMemFree(attempt->things.large));
    print_result("free of pool memory", cuMemFree(attempt->things.ordered));
    if (small != 0)
        print_result("free of what is new", cuMemFree(small));
    if (large != 0)
        print_result("free of what is new and large", cuMemFree(large));
    if (pitched != 0)
        print_result("free of what is new and pitched", cuMemFree(pitched));
    if (attempt->mode >= 0)
        CHECK(cuThreadExchangeStreamCaptureMode(&mode));
}

static void *ask(void *argument)
{
    const struct attempt *attempt = argument;

    CHECK(cuCtxSetCurrent(attempt->context));
    try_unsafe(attempt);
    return NULL;
}

/* One capture, in which a thread tries. */
static void capture(CUstreamCaptureMode mode, CUstream of, struct attempt attempt,
                    bool is_other_thread)
{
    CUgraph graph = NULL;
    pthread_t thread;

    CHECK(cuCtxSetCurrent(attempt.context));
    attempt.things = take(stream);
    CHECK(cuCtxSetCurrent(primary));
    CHECK(cuStreamBeginCapture(of, mode));
    if (is_other_thread) {
        if (pthread_create(&thread, NULL, ask, &attempt) != 0)
            exit(EXIT_FAILURE);
        pthread_join(thread, NULL);
    } else {
        CHECK(cuCtxSetCurrent(attempt.context));
        try_unsafe(&attempt);
        CHECK(cuCtxSetCurrent(primary));
    }
    print_result("end", cuStreamEndCapture(of, &graph));
    if (graph != NULL)
        CHECK(cuGraphDestroy(graph));
    CHECK(cuCtxSetCurrent(attempt.context));
    (void)cuMemFree(attempt.things.small);
    (void)cuMemFree(attempt.things.large);
    (void)cuMemFree(attempt.things.ordered);
    CHECK(cuMemFree(attempt.things.spare));
    CHECK(cuCtxSetCurrent(primary));
    warm_up();
}

static void captures(CUcontext asker, CUstream of, const char *where)
{
    for (int mode = 0; mode < 3; mode++)
        for (int other = 0; other < 2; other++)
            for (int own = -1; own < 3; own++) {
                const struct attempt attempt = {.mode = own, .context = asker};

                printf("capture %s, %s; attempt by %s, %s\n", mode_names[mode], where,
                       other ? "another thread" : "the thread",
                       own < 0 ? "as it is" : mode_names[own]);
                capture((CUstreamCaptureMode)mode, of, attempt, other != 0);
            }
}

int main(void)
{
    CUcontext second;

    setvbuf(stdout, NULL, _IOLBF, 0);
    primary = program_start();
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    no_context();
    context_gone();
    in_host_functions();
    captures(primary, stream, "one context");
    captures(primary, CU_STREAM_PER_THREAD, "a thread's own stream");
    for (int by = 0; by < TOLD_BY_COUNT; by++)
        failed((enum reported_by)by);
    CHECK(cuCtxCreate(&second, NULL, 0, device));
    captures(second, stream, "of another context");
    return EXIT_SUCCESS;
}
