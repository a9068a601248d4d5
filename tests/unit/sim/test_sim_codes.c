/* The simulated driver: the codes of calls that cannot be made now: without a current context,
 * inside a host function, in a context that has failed, during a capture. */
#include "tests/unit/sim_test.h"

#include <pthread.h>
#include <string.h>

#define BYTES ((size_t)1 << 16)

/* The arguments of the calls; made in a context that is sound. */
static struct {
    CUdeviceptr plain, pooled;
    void *host;
    CUstream stream;
    CUevent event, earlier;
    CUmemoryPool pool;
} it;

static CUdeviceptr made;
static size_t amount;
static int number;
static void *pointer;
static CUstream new_stream;
static CUevent new_event;
static CUarray new_array;
static const CUDA_ARRAY_DESCRIPTOR shape = {
    .Width = 16, .Height = 16, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 1};

/* CALL(needs, call): what a call needs: C the current context alone, S a stream as well, so that
 * the stream's context counts, E an event. U: it is potentially unsafe during a capture. */
#define CALLS                                                                                      \
    CALL(CU, cuMemAlloc(&made, BYTES))                                                             \
    CALL(CU, cuMemAllocPitch(&made, &amount, 100, 100, 4))                                         \
    CALL(CU, cuMemAllocManaged(&made, BYTES, CU_MEM_ATTACH_GLOBAL))                                \
    CALL(CU, cuMemHostAlloc(&pointer, BYTES, 0))                                                   \
    CALL(CU, cuArrayCreate(&new_array, &shape))                                                    \
    CALL(CU, cuMemcpyDtoD(it.plain, it.plain + 4096, 16))                                          \
    CALL(CU, cuMemsetD8(it.plain, 0, 16))                                                          \
    CALL(CU, cuMemFree(it.plain))                                                                  \
    CALL(CU, cuMemFreeHost(it.host))                                                               \
    CALL(C, cuMemGetInfo(&amount, &amount))                                                        \
    CALL(C, cuMemGetAddressRange(&made, &amount, it.plain))                                        \
    CALL(C, cuPointerGetAttribute(&number, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, it.plain))            \
    CALL(C, cuStreamCreate(&new_stream, CU_STREAM_NON_BLOCKING))                                   \
    CALL(C, cuEventCreate(&new_event, 0))                                                          \
    CALL(C, cuCtxSynchronize())                                                                    \
    CALL(S, cuMemAllocAsync(&made, BYTES, it.stream))                                              \
    CALL(S, cuMemAllocFromPoolAsync(&made, BYTES, it.pool, it.stream))                             \
    CALL(S, cuMemFreeAsync(it.pooled, it.stream))                                                  \
    CALL(S, cuMemFreeAsync(it.plain, it.stream))                                                   \
    CALL(S, cuStreamSynchronize(it.stream))                                                        \
    CALL(S, cuStreamQuery(it.stream))                                                              \
    CALL(S, cuStreamWriteValue32(it.stream, it.plain, 0, 0))                                       \
    CALL(S, cuLaunchHostFunc(it.stream, count_up, &number))                                        \
    CALL(S, cuStreamWaitEvent(it.stream, it.event, 0))                                             \
    CALL(S, cuEventRecord(it.event, it.stream))                                                    \
    CALL(EU, cuEventQuery(it.event))                                                               \
    CALL(EU, cuEventSynchronize(it.event))

enum need { C, CU, S, EU };

static const struct {
    enum need need;
    const char *text;
} calls[] = {
#define CALL(needs, call) {needs, #call},
    CALLS
#undef CALL
};
#define CALL_COUNT (sizeof calls / sizeof calls[0])

static CUresult call(size_t which)
{
    size_t row = 0;
#define CALL(needs, made_now)                                                                      \
    if (row++ == which)                                                                            \
        return made_now;
    CALLS
#undef CALL
    return CUDA_ERROR_UNKNOWN;
}

static int make_world(void **state)
{
    return make_context(state) || cuMemAlloc(&it.plain, BYTES) ||
           cuStreamCreate(&it.stream, CU_STREAM_NON_BLOCKING) ||
           cuMemAllocAsync(&it.pooled, BYTES, it.stream) || cuMemHostAlloc(&it.host, BYTES, 0) ||
           cuEventCreate(&it.event, 0) || cuEventCreate(&it.earlier, 0) ||
           cuEventRecord(it.earlier, it.stream) || cuEventRecord(it.event, it.stream) ||
           cuStreamSynchronize(it.stream) || cuDeviceGetDefaultMemPool(&it.pool, 0);
}

static int drop_world(void **state)
{
    return drop_context(state);
}

static void assert_call(size_t which, CUresult result, CUresult expected)
{
    if (result != expected)
        print_error("%s: %d, not %d\n", calls[which].text, (int)result, (int)expected);
    assert_int_equal(result, expected);
}

/* "CUDA_ERROR_INVALID_CONTEXT … most frequently indicates that there is no context bound to the
 * current thread." Nothing is freed by the refused calls. */
static void without_a_context(void **state)
{
    CUcontext popped;
    (void)state;
    assert_cuda(cuCtxPopCurrent(&popped));
    for (size_t i = 0; i < CALL_COUNT; i++)
        if (calls[i].need == C || calls[i].need == CU)
            assert_call(i, call(i), CUDA_ERROR_INVALID_CONTEXT);
    /* "(default stream specified with no current context)": another is enough. */
    assert_result(cuMemAllocAsync(&made, BYTES, NULL), CUDA_ERROR_INVALID_CONTEXT);
    assert_result(cuMemFreeAsync(it.pooled, NULL), CUDA_ERROR_INVALID_CONTEXT);
    assert_result(cuMemFreeAsync(it.plain, CU_STREAM_PER_THREAD), CUDA_ERROR_INVALID_CONTEXT);
    assert_cuda(cuMemAllocAsync(&made, BYTES, it.stream));
    assert_cuda(cuMemFreeAsync(made, it.stream));
    assert_cuda(cuCtxPushCurrent(popped));
    assert_cuda(cuMemFree(it.plain));
    assert_cuda(cuMemFreeHost(it.host));
    assert_cuda(cuMemFreeAsync(it.pooled, it.stream));
}

static CUresult results[CALL_COUNT];

static void make_all_calls(void *unused)
{
    (void)unused;
    for (size_t i = 0; i < CALL_COUNT; i++)
        results[i] = call(i);
}

static void CUDA_CB make_all_in_callback(CUstream stream, CUresult status, void *unused)
{
    (void)stream;
    (void)status;
    make_all_calls(unused);
}

/* cuLaunchHostFunc: "The host function must not make any CUDA API calls. Attempting to use a CUDA
 * API may result in CUDA_ERROR_NOT_PERMITTED"; cuStreamAddCallback alike. */
static void inside_a_host_function(void **state)
{
    CUDA_HOST_NODE_PARAMS host = {.fn = make_all_calls};
    CUgraphNode node;
    CUgraphExec exec;
    CUgraph graph;
    (void)state;
    assert_cuda(cuGraphCreate(&graph, 0));
    assert_cuda(cuGraphAddHostNode(&node, graph, NULL, 0, &host));
    assert_cuda(cuGraphInstantiate(&exec, graph, 0));
    for (int kind = 0; kind < 3; kind++) {
        memset(results, 0xff, sizeof results);
        if (kind == 0)
            assert_cuda(cuLaunchHostFunc(it.stream, make_all_calls, NULL));
        else if (kind == 1)
            assert_cuda(cuStreamAddCallback(it.stream, make_all_in_callback, NULL, 0));
        else
            assert_cuda(cuGraphLaunch(exec, it.stream));
        assert_cuda(cuStreamSynchronize(it.stream));
        for (size_t i = 0; i < CALL_COUNT; i++)
            assert_call(i, results[i], CUDA_ERROR_NOT_PERMITTED);
    }
    assert_cuda(cuGraphExecDestroy(exec));
    assert_cuda(cuGraphDestroy(graph));
    assert_cuda(cuMemFree(it.plain)); /* still there */
    assert_cuda(cuMemFreeHost(it.host));
    assert_cuda(cuMemFreeAsync(it.pooled, it.stream));
}

/* "CUDA_ERROR_ILLEGAL_ADDRESS … leaves the process in an inconsistent state and any further CUDA
 * work will return the same error." */
static void in_a_failed_context(void **state)
{
    CUdeviceptr gone;
    CUcontext sound, popped;
    CUstream elsewhere;
    float milliseconds;
    (void)state;
    assert_cuda(cuCtxCreate(&sound, NULL, 0, 0));
    assert_cuda(cuStreamCreate(&elsewhere, CU_STREAM_NON_BLOCKING));
    assert_cuda(cuCtxPopCurrent(&popped));
    assert_cuda(cuMemAlloc(&gone, 8 << 20));
    assert_cuda(cuMemFree(gone));
    assert_cuda(cuMemsetD8Async(gone, 1, 16, it.stream));
    assert_result(cuStreamSynchronize(it.stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    for (size_t i = 0; i < CALL_COUNT; i++)
        assert_call(i, call(i), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_result(cuEventElapsedTime(&milliseconds, it.earlier, it.event),
                  CUDA_ERROR_ILLEGAL_ADDRESS);
    /* A stream brings its context's error, whatever is current. */
    assert_cuda(cuCtxPushCurrent(sound));
    for (size_t i = 0; i < CALL_COUNT; i++)
        if (calls[i].need == S || calls[i].need == EU)
            assert_call(i, call(i), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_cuda(cuMemAllocAsync(&made, BYTES, elsewhere));
    assert_cuda(cuMemFreeAsync(made, elsewhere));
    assert_cuda(cuCtxSynchronize());
    assert_cuda(cuCtxPopCurrent(&popped));
    assert_result(cuEventDestroy(it.event), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_result(cuStreamDestroy(it.stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_cuda(cuCtxDestroy(sound));
}

/* ---- captures ---- */

static void *make_unsafe_calls(void *unused)
{
    (void)unused;
    cuCtxSetCurrent(test_context);
    for (size_t i = 0; i < CALL_COUNT; i++)
        results[i] = calls[i].need == CU || calls[i].need == EU ? call(i) : CUDA_SUCCESS;
    return NULL;
}

static void *make_unsafe_calls_relaxed(void *unused)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    cuThreadExchangeStreamCaptureMode(&mode);
    make_unsafe_calls(unused);
    cuThreadExchangeStreamCaptureMode(&mode);
    return NULL;
}

/* Whether the calls are refused, made by this thread or another one, during a capture of a mode. */
static void check_capture(CUstreamCaptureMode mode, void *(*calls_made)(void *), bool is_own,
                          bool are_refused)
{
    CUresult expected = are_refused ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
    pthread_t thread;
    CUstream stream;
    CUgraph graph;

    assert_cuda(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    assert_cuda(cuStreamBeginCapture(stream, mode));
    if (is_own) {
        calls_made(NULL);
    } else {
        assert_int_equal(pthread_create(&thread, NULL, calls_made, NULL), 0);
        pthread_join(thread, NULL);
    }
    assert_result(cuStreamEndCapture(stream, &graph),
                  are_refused ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS);
    for (size_t i = 0; i < CALL_COUNT; i++)
        if (calls[i].need == CU || calls[i].need == EU)
            assert_call(i, results[i], expected);
    if (!are_refused) { /* the calls freed them */
        assert_cuda(cuGraphDestroy(graph));
        assert_cuda(cuMemAlloc(&it.plain, BYTES));
        assert_cuda(cuMemHostAlloc(&it.host, BYTES, 0));
    }
    assert_cuda(cuStreamDestroy(stream));
}

/* cuThreadExchangeStreamCaptureMode, word for word. */
static void during_a_capture(void **state)
{
    (void)state;
    check_capture(CU_STREAM_CAPTURE_MODE_GLOBAL, make_unsafe_calls, true, true);
    check_capture(CU_STREAM_CAPTURE_MODE_GLOBAL, make_unsafe_calls, false, true);
    check_capture(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, make_unsafe_calls, true, true);
    check_capture(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, make_unsafe_calls, false, false);
    check_capture(CU_STREAM_CAPTURE_MODE_RELAXED, make_unsafe_calls, true, false);
    check_capture(CU_STREAM_CAPTURE_MODE_RELAXED, make_unsafe_calls, false, false);
    check_capture(CU_STREAM_CAPTURE_MODE_GLOBAL, make_unsafe_calls_relaxed, true, false);
    check_capture(CU_STREAM_CAPTURE_MODE_GLOBAL, make_unsafe_calls_relaxed, false, false);
}

/* Stream-ordered calls in the legacy stream are operations there. */
static void legacy_pool_calls_during_a_capture(void **state)
{
    CUstream blocking;
    CUgraph graph;
    (void)state;
    assert_cuda(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    for (int i = 0; i < 2; i++) {
        assert_cuda(cuStreamBeginCapture(blocking, CU_STREAM_CAPTURE_MODE_RELAXED));
        assert_result(i ? cuMemAllocAsync(&made, BYTES, NULL) : cuMemFreeAsync(it.pooled, NULL),
                      CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
        assert_result(cuStreamEndCapture(blocking, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    }
    assert_cuda(cuMemFreeAsync(it.pooled, NULL)); /* the refused free freed nothing */
    assert_cuda(cuStreamDestroy(blocking));
}

static void *begin_and_leave(void *mode)
{
    cuCtxSetCurrent(test_context);
    results[0] = cuStreamBeginCapture(CU_STREAM_PER_THREAD, *(CUstreamCaptureMode *)mode);
    return NULL;
}

/* A thread's own stream ends with it, and so does what it captures. */
static void a_capture_ends_with_its_thread(void **state)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    pthread_t thread;
    (void)state;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_create(&thread, NULL, begin_and_leave, &mode), 0);
        pthread_join(thread, NULL);
        assert_cuda(results[0]);
        assert_cuda(cuMemAlloc(&made, BYTES));
        assert_cuda(cuMemFree(made));
        assert_cuda(cuCtxSynchronize());
        mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(without_a_context, make_world, drop_world),
        cmocka_unit_test_setup_teardown(inside_a_host_function, make_world, drop_world),
        cmocka_unit_test_setup_teardown(in_a_failed_context, make_world, drop_world),
        cmocka_unit_test_setup_teardown(during_a_capture, make_world, drop_world),
        cmocka_unit_test_setup_teardown(legacy_pool_calls_during_a_capture, make_world, drop_world),
        cmocka_unit_test_setup_teardown(a_capture_ends_with_its_thread, make_world, drop_world),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
