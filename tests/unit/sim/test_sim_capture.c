/* The simulated driver: stream capture, its prohibitions, and how captures break. */
#include "tests/unit/sim_test.h"

#include <pthread.h>

static const char ptx[] = ".version 8.0\n.target sm_90\n.address_size 64\n"
                          ".visible .entry kernel()\n{\n ret;\n}\n";
static CUstream stream, other;
static CUevent event;
static atomic_int ran;

static int setup(void **state)
{
    atomic_store(&ran, 0);
    return make_context(state) || cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) ||
           cuStreamCreate(&other, CU_STREAM_NON_BLOCKING) ||
           cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
}

static void begin(CUstreamCaptureMode mode)
{
    assert_cuda(cuStreamBeginCapture(stream, mode));
}

static void assert_ends_with(CUresult expected)
{
    CUgraph graph = (CUgraph)&ran;
    assert_result(cuStreamEndCapture(stream, &graph), expected);
    if (expected)
        assert_null(graph); /* "*phGraph will be NULL" */
    else
        assert_cuda(cuGraphDestroy(graph));
}

static CUstreamCaptureStatus status_of(CUstream of)
{
    CUstreamCaptureStatus status;
    assert_cuda(cuStreamIsCapturing(of, &status));
    return status;
}

/* "When a stream is in capture mode, all operations pushed into the stream will not be executed,
 * but will instead be captured into a graph." */
static void captured_work_runs_when_the_graph_is_launched(void **state)
{
    CUgraph graph;
    CUgraphExec exec;
    size_t count = 0;
    (void)state;
    assert_int_equal(status_of(stream), CU_STREAM_CAPTURE_STATUS_NONE);
    begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
    assert_int_equal(status_of(stream), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    for (int i = 0; i < 3; i++)
        assert_cuda(cuLaunchHostFunc(stream, count_up, &ran));
    assert_cuda(cuStreamEndCapture(stream, &graph));
    assert_int_equal(status_of(stream), CU_STREAM_CAPTURE_STATUS_NONE);
    assert_int_equal(atomic_load(&ran), 0);
    assert_cuda(cuGraphGetNodes(graph, NULL, &count));
    assert_int_equal(count, 3);
    assert_cuda(cuGraphGetEdges(graph, NULL, NULL, NULL, &count));
    assert_int_equal(count, 2);
    assert_cuda(cuGraphInstantiate(&exec, graph, 0));
    assert_cuda(cuGraphLaunch(exec, stream));
    assert_cuda(cuGraphLaunch(exec, stream));
    assert_cuda(cuGraphDestroy(graph));
    assert_cuda(cuStreamSynchronize(stream));
    assert_int_equal(atomic_load(&ran), 6);
    assert_cuda(cuGraphExecDestroy(exec));
}

static void legacy_stream_cannot_be_captured(void **state)
{
    CUgraph graph;
    (void)state;
    assert_result(cuStreamBeginCapture(NULL, CU_STREAM_CAPTURE_MODE_GLOBAL),
                  CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    assert_result(cuStreamEndCapture(stream, &graph), CUDA_ERROR_ILLEGAL_STATE);
    begin(CU_STREAM_CAPTURE_MODE_RELAXED);
    assert_result(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED),
                  CUDA_ERROR_ILLEGAL_STATE);
    assert_ends_with(CUDA_SUCCESS);
}

/* A stream that waits for an event of a captured stream joins the capture; it must be joined back.
 */
static void fork_and_join_by_events(void **state)
{
    CUevent back;
    CUgraph graph;
    CUgraphNode roots[4];
    size_t count = 4;
    (void)state;
    assert_cuda(cuEventCreate(&back, CU_EVENT_DISABLE_TIMING));
    begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
    assert_cuda(cuLaunchHostFunc(stream, count_up, &ran));
    assert_cuda(cuEventRecord(event, stream));
    assert_cuda(cuStreamWaitEvent(other, event, 0));
    assert_int_equal(status_of(other), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    assert_cuda(cuLaunchHostFunc(other, count_up, &ran));
    assert_cuda(cuLaunchHostFunc(stream, count_up, &ran));
    assert_cuda(cuEventRecord(back, other));
    assert_cuda(cuStreamWaitEvent(stream, back, 0));
    assert_cuda(cuLaunchHostFunc(stream, count_up, &ran));
    assert_cuda(cuStreamEndCapture(stream, &graph));
    assert_int_equal(status_of(other), CU_STREAM_CAPTURE_STATUS_NONE);
    assert_cuda(cuGraphGetRootNodes(graph, roots, &count));
    assert_int_equal(count, 1);
    assert_cuda(cuGraphGetEdges(graph, NULL, NULL, NULL, &count));
    assert_int_equal(count, 4);
    assert_cuda(cuGraphDestroy(graph));
    assert_cuda(cuEventDestroy(back));
}

static void unjoined_work_is_an_error(void **state)
{
    (void)state;
    begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
    assert_cuda(cuEventRecord(event, stream));
    assert_cuda(cuStreamWaitEvent(other, event, 0));
    assert_cuda(cuLaunchHostFunc(other, count_up, &ran));
    assert_ends_with(CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    assert_int_equal(status_of(other), CU_STREAM_CAPTURE_STATUS_NONE);
}

static void only_the_origin_ends_a_capture(void **state)
{
    CUgraph graph;
    (void)state;
    begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
    assert_cuda(cuEventRecord(event, stream));
    assert_cuda(cuStreamWaitEvent(other, event, 0));
    assert_result(cuStreamEndCapture(other, &graph), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    assert_ends_with(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

/* "It is invalid to synchronize or query the execution status of a stream which is being captured."
 */
static void synchronising_breaks_a_capture(void **state)
{
    CUresult (*const calls[])(CUstream) = {cuStreamSynchronize, cuStreamQuery};
    (void)state;
    for (int i = 0; i < 2; i++) {
        begin(CU_STREAM_CAPTURE_MODE_RELAXED);
        assert_result(calls[i](stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        assert_int_equal(status_of(stream), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
        assert_result(cuLaunchHostFunc(stream, count_up, &ran),
                      CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        assert_ends_with(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    }
    begin(CU_STREAM_CAPTURE_MODE_RELAXED);
    assert_result(cuCtxSynchronize(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    assert_ends_with(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

/* cuCtxRecordEvent: "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED if the specified context hCtx has a
 * stream in the capture mode. In such a case, the call will invalidate all the conflicting
 * captures." */
static void context_events_break_a_capture(void **state)
{
    (void)state;
    begin(CU_STREAM_CAPTURE_MODE_RELAXED);
    assert_result(cuCtxRecordEvent(test_context, event), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    assert_ends_with(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    begin(CU_STREAM_CAPTURE_MODE_RELAXED);
    assert_result(cuCtxWaitEvent(test_context, event), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    assert_ends_with(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

/* "CUDA_ERROR_CAPTURED_EVENT: not permitted on an event which was last recorded in a capturing
 * stream." */
static void captured_event_cannot_be_queried(void **state)
{
    (void)state;
    begin(CU_STREAM_CAPTURE_MODE_RELAXED);
    assert_cuda(cuEventRecord(event, stream));
    assert_result(cuEventQuery(event), CUDA_ERROR_CAPTURED_EVENT);
    assert_ends_with(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    assert_result(cuEventSynchronize(event), CUDA_ERROR_CAPTURED_EVENT);
    assert_cuda(cuEventRecord(event, other));
    assert_cuda(cuEventSynchronize(event));
}

/* "CUDA_ERROR_STREAM_CAPTURE_ISOLATION: a dependency would have been created which crosses the
 * capture sequence boundary." */
static void capture_depends_on_nothing_outside(void **state)
{
    (void)state;
    assert_cuda(cuEventRecord(event, other));
    begin(CU_STREAM_CAPTURE_MODE_RELAXED);
    assert_result(cuStreamWaitEvent(stream, event, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    assert_ends_with(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

static void captures_do_not_merge(void **state)
{
    CUgraph graph;
    (void)state;
    begin(CU_STREAM_CAPTURE_MODE_RELAXED);
    assert_cuda(cuStreamBeginCapture(other, CU_STREAM_CAPTURE_MODE_RELAXED));
    assert_cuda(cuEventRecord(event, stream));
    assert_result(cuStreamWaitEvent(other, event, 0), CUDA_ERROR_STREAM_CAPTURE_MERGE);
    assert_ends_with(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    assert_result(cuStreamEndCapture(other, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

/* "If called on CU_STREAM_LEGACY while a blocking stream in the same context is capturing, it will
 * return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT … The blocking stream capture is not invalidated"; any
 * use does invalidate it. */
static void legacy_stream_is_closed_while_a_blocking_stream_captures(void **state)
{
    CUstream blocking;
    CUstreamCaptureStatus status;
    CUgraph graph;
    (void)state;
    assert_cuda(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    assert_cuda(cuStreamBeginCapture(blocking, CU_STREAM_CAPTURE_MODE_RELAXED));
    assert_result(cuStreamIsCapturing(NULL, &status), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    assert_int_equal(status_of(blocking), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    assert_result(cuLaunchHostFunc(NULL, count_up, &ran), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    assert_result(cuStreamEndCapture(blocking, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    assert_cuda(cuStreamDestroy(blocking));
    begin(CU_STREAM_CAPTURE_MODE_RELAXED); /* a non-blocking stream leaves it open */
    assert_cuda(cuLaunchHostFunc(NULL, count_up, &ran));
    assert_ends_with(CUDA_SUCCESS);
}

static void *query_elsewhere(void *argument)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUresult *results = argument;
    CUevent mine;
    cuCtxSetCurrent(test_context);
    cuEventCreate(&mine, CU_EVENT_DISABLE_TIMING);
    results[0] = cuThreadExchangeStreamCaptureMode(&mode);
    results[1] = mode == CU_STREAM_CAPTURE_MODE_GLOBAL ? cuEventQuery(mine) : CUDA_ERROR_UNKNOWN;
    cuThreadExchangeStreamCaptureMode(&mode);
    results[2] = cuEventQuery(mine);
    cuEventDestroy(mine);
    return NULL;
}

static void query_from_another_thread(CUresult *results)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, query_elsewhere, results), 0);
    pthread_join(thread, NULL);
    assert_result(results[0], CUDA_SUCCESS);
    assert_result(results[1],
                  CUDA_SUCCESS); /* relaxed: "not prohibited from potentially unsafe API calls" */
}

/* cuThreadExchangeStreamCaptureMode: in global mode a thread is prohibited from unsafe calls by its
 * own captures that are not relaxed and by other threads' global ones. */
static void unsafe_calls_follow_the_modes(void **state)
{
    CUresult results[3];
    CUevent mine;
    (void)state;
    assert_cuda(cuEventCreate(&mine, CU_EVENT_DISABLE_TIMING));
    begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
    query_from_another_thread(results);
    assert_result(results[2], CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    assert_ends_with(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    begin(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    query_from_another_thread(results);
    assert_result(results[2], CUDA_SUCCESS);
    assert_result(cuEventQuery(mine), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    assert_ends_with(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    begin(CU_STREAM_CAPTURE_MODE_RELAXED);
    query_from_another_thread(results);
    assert_result(results[2], CUDA_SUCCESS);
    assert_cuda(cuEventQuery(mine));
    assert_ends_with(CUDA_SUCCESS);
    assert_cuda(cuEventDestroy(mine));
}

static void *end_elsewhere(void *argument)
{
    CUgraph graph;
    cuCtxSetCurrent(test_context);
    *(CUresult *)argument = cuStreamEndCapture(stream, &graph);
    return NULL;
}

/* "If the mode … is not CU_STREAM_CAPTURE_MODE_RELAXED, cuStreamEndCapture must be called on this
 * stream from the same thread." */
static void capture_ends_in_its_thread(void **state)
{
    CUresult result;
    pthread_t thread;
    (void)state;
    begin(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    assert_int_equal(pthread_create(&thread, NULL, end_elsewhere, &result), 0);
    pthread_join(thread, NULL);
    assert_result(result, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    assert_ends_with(CUDA_SUCCESS);
}

static void info_names_graph_and_frontier(void **state)
{
    CUstreamCaptureStatus status;
    const CUgraphNode *nodes;
    CUgraphNode first, node;
    CUgraph graph;
    cuuint64_t id = 0;
    size_t count;
    (void)state;
    begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
    assert_cuda(cuLaunchHostFunc(stream, count_up, &ran));
    assert_cuda(cuStreamGetCaptureInfo(stream, &status, &id, &graph, &nodes, NULL, &count));
    assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
    assert_true(id != 0);
    assert_int_equal(count, 1);
    first = nodes[0];
    assert_cuda(cuGraphAddEmptyNode(&node, graph, &first, 1));
    assert_cuda(cuStreamUpdateCaptureDependencies(stream, &node, NULL, 1,
                                                  CU_STREAM_SET_CAPTURE_DEPENDENCIES));
    assert_cuda(cuStreamGetCaptureInfo(stream, &status, &id, &graph, &nodes, NULL, &count));
    assert_int_equal(count, 1);
    assert_ptr_equal(nodes[0], node);
    assert_ends_with(CUDA_SUCCESS);
}

/* "This array parallels dependencies_out", and cannot be had without it. */
static void info_has_each_edges_data(void **state)
{
    CUstreamCaptureStatus status;
    const CUgraphNode *nodes;
    const CUgraphEdgeData *edges = NULL;
    size_t count;
    (void)state;
    begin(CU_STREAM_CAPTURE_MODE_RELAXED);
    assert_result(cuStreamGetCaptureInfo(stream, &status, NULL, NULL, NULL, &edges, &count),
                  CUDA_ERROR_INVALID_VALUE);
    assert_cuda(cuLaunchHostFunc(stream, count_up, &ran));
    assert_cuda(cuStreamGetCaptureInfo(stream, &status, NULL, NULL, &nodes, &edges, &count));
    assert_int_equal(count, 1);
    assert_non_null(edges);
    assert_int_equal(edges[0].from_port, 0);
    assert_int_equal(edges[0].type, CU_GRAPH_DEPENDENCY_TYPE_DEFAULT);
    assert_ends_with(CUDA_SUCCESS);
}

static void fork_to(CUstream from, CUstream to)
{
    assert_cuda(cuEventRecord(event, from));
    assert_cuda(cuStreamWaitEvent(to, event, 0));
}

/* What cuda-core's graph builders do: a stream goes when another one of the capture has its work.
 */
static void a_joined_stream_may_be_destroyed(void **state)
{
    CUstream third;
    (void)state;
    assert_cuda(cuStreamCreate(&third, CU_STREAM_NON_BLOCKING));
    begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
    assert_cuda(cuLaunchHostFunc(stream, count_up, &ran));
    fork_to(stream, other);
    fork_to(other, third);
    assert_cuda(cuLaunchHostFunc(third, count_up, &ran));
    fork_to(third, other);
    assert_cuda(cuStreamDestroy(third));
    assert_cuda(cuLaunchHostFunc(other, count_up, &ran));
    fork_to(other, stream);
    assert_cuda(cuStreamDestroy(other));
    assert_ends_with(CUDA_SUCCESS);

    assert_cuda(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
    assert_cuda(cuLaunchHostFunc(stream, count_up, &ran));
    fork_to(stream, other);
    assert_cuda(cuLaunchHostFunc(other, count_up, &ran));
    assert_cuda(cuStreamDestroy(other));
    assert_ends_with(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

static void captured_work_has_its_parameters(void **state)
{
    CUgraphNode node;
    CUgraph graph;
    CUDA_HOST_NODE_PARAMS host;
    CUDA_KERNEL_NODE_PARAMS kernel;
    size_t count = 1;
    CUmodule module;
    CUfunction function;
    (void)state;
    assert_cuda(cuModuleLoadData(&module, ptx));
    assert_cuda(cuModuleGetFunction(&function, module, "kernel"));
    begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
    assert_cuda(cuLaunchHostFunc(stream, count_up, &ran));
    assert_cuda(cuStreamEndCapture(stream, &graph));
    assert_cuda(cuGraphGetNodes(graph, &node, &count));
    assert_cuda(cuGraphHostNodeGetParams(node, &host));
    assert_ptr_equal(host.fn, count_up);
    assert_ptr_equal(host.userData, &ran);
    assert_cuda(cuGraphDestroy(graph));

    begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
    assert_cuda(cuLaunchKernel(function, 2, 3, 4, 5, 6, 7, 8, stream, NULL, NULL));
    assert_cuda(cuStreamEndCapture(stream, &graph));
    assert_cuda(cuGraphGetNodes(graph, &node, &count));
    assert_cuda(cuGraphKernelNodeGetParams(node, &kernel));
    assert_ptr_equal(kernel.func, function);
    assert_int_equal(kernel.gridDimZ, 4);
    assert_int_equal(kernel.blockDimX, 5);
    assert_int_equal(kernel.sharedMemBytes, 8);
    assert_cuda(cuGraphDestroy(graph));
    assert_cuda(cuModuleUnload(module));
}

/* The first launch of a library's kernel loads it, in a capture too; to load a module is unsafe
 * there. */
static void first_launch_of_a_librarys_kernel_can_be_captured(void **state)
{
    CUlibrary library;
    CUkernel kernel;
    CUmodule module;
    (void)state;
    assert_cuda(cuLibraryLoadData(&library, ptx, NULL, NULL, 0, NULL, NULL, 0));
    assert_cuda(cuLibraryGetKernel(&kernel, library, "kernel"));
    begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
    assert_cuda(cuLaunchKernel((CUfunction)kernel, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
    assert_ends_with(CUDA_SUCCESS);
    assert_cuda(cuLibraryUnload(library));
    begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
    assert_result(cuModuleLoadData(&module, ptx), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    assert_ends_with(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(captured_work_runs_when_the_graph_is_launched),
        cmocka_unit_test(legacy_stream_cannot_be_captured),
        cmocka_unit_test(fork_and_join_by_events),
        cmocka_unit_test(unjoined_work_is_an_error),
        cmocka_unit_test(only_the_origin_ends_a_capture),
        cmocka_unit_test(synchronising_breaks_a_capture),
        cmocka_unit_test(context_events_break_a_capture),
        cmocka_unit_test(captured_event_cannot_be_queried),
        cmocka_unit_test(capture_depends_on_nothing_outside),
        cmocka_unit_test(captures_do_not_merge),
        cmocka_unit_test(legacy_stream_is_closed_while_a_blocking_stream_captures),
        cmocka_unit_test(unsafe_calls_follow_the_modes),
        cmocka_unit_test(capture_ends_in_its_thread),
        cmocka_unit_test(info_names_graph_and_frontier),
        cmocka_unit_test(info_has_each_edges_data),
        cmocka_unit_test(a_joined_stream_may_be_destroyed),
        cmocka_unit_test(captured_work_has_its_parameters),
        cmocka_unit_test(first_launch_of_a_librarys_kernel_can_be_captured),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, setup, drop_context);
}
