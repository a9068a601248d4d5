/* cuCtxRecordEvent, the fence of drivers from 12.5 on: its cost by streams, whether it holds up
 * later work, whether it covers each kind of work, and its code while something is captured.
 *
 * For each kind of work the event must be pending while the work runs and complete after it. */
#include "tests/gpu/gpu.h"

#define STREAMS_MAX 128
#define EVENTS 20

static CUstream streams[STREAMS_MAX], later, blocking;
static CUevent event;
static struct hold hold;

static CUresult record(void)
{
    return cu.cuCtxRecordEvent(gpu.context, event);
}

/* ---- the cost ---- */

static void measure_cost(unsigned count, bool is_busy)
{
    struct series series = {.seen = 0};

    for (unsigned i = 0; i < count; i++)
        CU(cuStreamCreate, &streams[i], i % 2 == 0 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT);
    while (series.seen < rounds(ROUNDS)) {
        for (unsigned i = 0; i < count; i++)
            gpu_spin(streams[i], is_busy ? 10 * MS : 1000);
        if (count == 0 && is_busy)
            gpu_spin(NULL, 10 * MS);
        if (!is_busy)
            CU(cuCtxSynchronize);
        for (unsigned i = 0; i < EVENTS; i++)
            TIMED(&series, gpu_check(record(), "cuCtxRecordEvent", __FILE__, __LINE__));
        CU(cuCtxSynchronize);
    }
    for (unsigned i = 0; i < count; i++)
        CU(cuStreamDestroy, streams[i]);
    char name[64];
    snprintf(name, sizeof(name), "cost.streams%u.%s", count, is_busy ? "busy" : "idle");
    series_report(&series, name, 0);
}

/* ---- what it covers ---- */

/* Is the stream done within a second? */
static bool ends_soon(CUstream stream)
{
    const uint64_t start_ns = now_ns();

    while (cu.cuStreamQuery(stream) == CUDA_ERROR_NOT_READY && now_ns() - start_ns < 1000 * MS)
        pause_ns(MS / 10);
    return cu.cuStreamQuery(stream) == CUDA_SUCCESS;
}

/* Work runs that ends with the hold: an event recorded now must wait for it, later work on
 * another stream must not. */
static void check_cover(const char *kind)
{
    row(record(), "code", "covers.%s.code", kind);
    gpu_spin(later, 1000);
    row(ends_soon(later), "yes", "covers.%s.later_runs", kind);
    row(cu.cuEventQuery(event) == CUDA_ERROR_NOT_READY, "yes", "covers.%s.pending", kind);
    hold_end(&hold);
    row(cu.cuEventSynchronize(event), "code", "covers.%s.completes", kind);
    CU(cuCtxSynchronize);
}

static void cover_streams(CUstream stream)
{
    hold_begin(&hold, stream);
    check_cover("kernel");
    atomic_store(hold.word, 0);
    CU(cuLaunchHostFunc, stream, wait_host, hold.word);
    check_cover("host_function");
    hold_begin(&hold, CU_STREAM_LEGACY);
    check_cover("legacy_stream");
    hold_begin(&hold, CU_STREAM_PER_THREAD);
    check_cover("thread_stream");
    /* A blocking stream's work behind a record that waits: the record is no barrier. */
    hold_begin(&hold, stream);
    row(record(), "code", "order.code");
    gpu_spin(blocking, 1000);
    row(ends_soon(blocking), "yes", "order.blocking_stream_runs");
    hold_end(&hold);
    CU(cuCtxSynchronize);
    /* Work of a stream that is destroyed meanwhile. */
    CUstream gone;
    CU(cuStreamCreate, &gone, CU_STREAM_NON_BLOCKING);
    hold_begin(&hold, gone);
    CU(cuStreamDestroy, gone);
    check_cover("destroyed_stream");
}

static void cover_graph(CUstream stream)
{
    CUgraph graph;
    CUgraphExec exec;

    CU(cuStreamBeginCapture, stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    hold_begin(&hold, stream);
    CU(cuStreamEndCapture, stream, &graph);
    CU(cuGraphInstantiateWithFlags, &exec, graph, 0);
    CU(cuGraphLaunch, exec, stream);
    check_cover("graph");
    CU(cuGraphExecDestroy, exec);
    CU(cuGraphDestroy, graph);
}

static void cover_green(void)
{
    CUdevResource whole, part;
    CUdevResourceDesc description;
    unsigned groups = 1;
    CUgreenCtx green;
    CUstream stream;

    if (cu.cuGreenCtxCreate == NULL || cu.cuGreenCtxStreamCreate == NULL ||
        cu.cuDeviceGetDevResource(gpu.device, &whole, CU_DEV_RESOURCE_TYPE_SM) != CUDA_SUCCESS) {
        skip("covers.green.*", "the driver has no green contexts");
        return;
    }
    CU(cuDevSmResourceSplitByCount, &part, &groups, &whole, NULL, 0, 8);
    CU(cuDevResourceGenerateDesc, &description, &part, 1);
    CU(cuGreenCtxCreate, &green, description, gpu.device, CU_GREEN_CTX_DEFAULT_STREAM);
    CU(cuGreenCtxStreamCreate, &stream, green, CU_STREAM_NON_BLOCKING, 0);
    atomic_store(hold.word, 0);
    CU(cuLaunchHostFunc, stream, wait_host, hold.word);
    check_cover("green");
    CU(cuStreamDestroy, stream);
    CU(cuGreenCtxDestroy, green);
}

/* ---- during a capture ---- */

static void end_capture(CUstream stream, const char *name)
{
    CUgraph graph = NULL;

    row(cu.cuStreamEndCapture(stream, &graph), "code", "capture.%s.end", name);
    if (graph != NULL)
        CU(cuGraphDestroy, graph);
}

static void *record_elsewhere(void *code)
{
    CU(cuCtxSetCurrent, gpu.context);
    *(CUresult *)code = record();
    return NULL;
}

static void record_during(CUstream stream, CUstreamCaptureMode mode, const char *name)
{
    pthread_t thread;
    CUresult code = CUDA_ERROR_UNKNOWN;

    CU(cuStreamBeginCapture, stream, mode);
    gpu_spin(stream, 1000);
    if (pthread_create(&thread, NULL, record_elsewhere, &code) != 0)
        exit(EXIT_FAILURE);
    pthread_join(thread, NULL);
    row(code, "code", "capture.%s.other_thread", name);
    end_capture(stream, name);
}

static void record_in_relaxed(CUstream stream)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

    CU(cuStreamBeginCapture, stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    gpu_spin(stream, 1000);
    CU(cuThreadExchangeStreamCaptureMode, &mode);
    row(record(), "code", "capture.relaxed_thread.code");
    CU(cuThreadExchangeStreamCaptureMode, &mode);
    end_capture(stream, "relaxed_thread");
}

/* A capture that begins in one context and is joined by a stream of another. */
static void record_across(CUstream stream)
{
    CUresult (*create)(CUcontext *, unsigned, CUdevice) = NULL;
    CUcontext other = NULL;
    CUstream joined;
    CUevent fork_event, join_event, other_event;

    *(void **)&create = dlsym(gpu.library, "cuCtxCreate_v2");
    if (create == NULL || create(&other, 0, gpu.device) != CUDA_SUCCESS) {
        skip("capture.across.*", "no second context");
        return;
    }
    CU(cuStreamCreate, &joined, CU_STREAM_NON_BLOCKING);
    CU(cuEventCreate, &join_event, CU_EVENT_DISABLE_TIMING);
    CU(cuEventCreate, &other_event, CU_EVENT_DISABLE_TIMING);
    CU(cuCtxSetCurrent, gpu.context);
    CU(cuEventCreate, &fork_event, CU_EVENT_DISABLE_TIMING);
    CU(cuStreamBeginCapture, stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    CU(cuEventRecord, fork_event, stream);
    CU(cuCtxSetCurrent, other);
    row(cu.cuStreamWaitEvent(joined, fork_event, 0), "code", "capture.across.join");
    row(cu.cuCtxRecordEvent(other, other_event), "code", "capture.across.record");
    (void)cu.cuEventRecord(join_event, joined);
    CU(cuCtxSetCurrent, gpu.context);
    (void)cu.cuStreamWaitEvent(stream, join_event, 0);
    end_capture(stream, "across");
    CU(cuCtxDestroy, other);
}

int main(void)
{
    static const unsigned counts[] = {0, 8, STREAMS_MAX};
    CUstream stream;

    gpu_open();
    if (cu.cuCtxRecordEvent == NULL) {
        skip("*", "the driver has no cuCtxRecordEvent");
        return EXIT_SUCCESS;
    }
    hold = hold_open();
    CU(cuEventCreate, &event, CU_EVENT_DISABLE_TIMING);
    /* Streams are made while nothing runs: making one may wait. */
    CU(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    CU(cuStreamCreate, &later, CU_STREAM_NON_BLOCKING);
    CU(cuStreamCreate, &blocking, CU_STREAM_DEFAULT);
    gpu_spin(later, 1000);
    hold_begin(&hold, later);
    hold_end(&hold);
    CU(cuCtxSynchronize);
    cover_streams(stream);
    cover_graph(stream);
    cover_green();
    record_during(stream, CU_STREAM_CAPTURE_MODE_GLOBAL, "global");
    record_during(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, "thread");
    record_during(stream, CU_STREAM_CAPTURE_MODE_RELAXED, "relaxed");
    record_in_relaxed(stream);
    record_across(stream);
    for (unsigned i = 0; i < 3; i++) {
        measure_cost(counts[i], false);
        if (!gpu.is_short || counts[i] < STREAMS_MAX)
            measure_cost(counts[i], true);
    }
    return EXIT_SUCCESS;
}
