/* The simulated driver: order of work within and between streams, events, errors that stick. */
#include "tests/unit/sim_test.h"

#include <pthread.h>
#include <string.h>

CUresult cuStreamQuery_ptsz(CUstream stream);
CUresult cuStreamSynchronize_ptsz(CUstream stream);
CUresult cuLaunchHostFunc_ptsz(CUstream stream, CUhostFn function, void *data);

struct alloc_request {
    pthread_mutex_t lock;
    int count;
    int seen[64];
};

struct order_step {
    struct alloc_request *order;
    int number;
};

static struct alloc_request order = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void note_order(void *argument)
{
    struct order_step *step = argument;
    pthread_mutex_lock(&step->order->lock);
    step->order->seen[step->order->count++] = step->number;
    pthread_mutex_unlock(&step->order->lock);
}

static void stream_runs_in_order(void **state)
{
    struct order_step steps[32];
    CUstream stream;
    (void)state;
    order.count = 0;
    assert_cuda(cuStreamCreate(&stream, 0));
    for (int i = 0; i < 32; i++) {
        steps[i] = (struct order_step){&order, i};
        assert_cuda(cuLaunchHostFunc(stream, note_order, &steps[i]));
    }
    assert_cuda(cuStreamSynchronize(stream));
    assert_int_equal(order.count, 32);
    for (int i = 0; i < 32; i++)
        assert_int_equal(order.seen[i], i);
    assert_cuda(cuStreamDestroy(stream));
}

/* "CUDA_SUCCESS if all operations in the stream have completed, or CUDA_ERROR_NOT_READY if not." */
static void query_reports_whether_work_is_done(void **state)
{
    struct gate gate = {false, 0};
    CUstream stream;
    (void)state;
    assert_cuda(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    assert_cuda(cuStreamQuery(stream));
    assert_cuda(cuLaunchHostFunc(stream, wait_at_gate, &gate));
    assert_result(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    assert_int_equal(atomic_load(&gate.passed), 0);
    atomic_store(&gate.is_open, true);
    assert_cuda(cuStreamSynchronize(stream));
    assert_cuda(cuStreamQuery(stream));
    assert_int_equal(atomic_load(&gate.passed), 1);
    assert_cuda(cuStreamDestroy(stream));
}

/* "When an action is taken in the legacy stream, the legacy stream first waits on all blocking
 * streams, the action is queued in the legacy stream, and then all blocking streams wait on the
 * legacy stream." */
static void legacy_and_blocking_streams_wait_for_each_other(void **state)
{
    struct gate gate = {false, 0};
    atomic_int legacy_ran = 0, later_ran = 0, free_ran = 0;
    CUstream blocking, other, free_stream;
    (void)state;
    assert_cuda(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    assert_cuda(cuStreamCreate(&other, CU_STREAM_DEFAULT));
    assert_cuda(cuStreamCreate(&free_stream, CU_STREAM_NON_BLOCKING));
    assert_cuda(cuLaunchHostFunc(blocking, wait_at_gate, &gate));
    assert_cuda(cuLaunchHostFunc(NULL, count_up, &legacy_ran));
    assert_cuda(cuLaunchHostFunc(other, count_up, &later_ran));
    assert_cuda(cuLaunchHostFunc(free_stream, count_up, &free_ran));
    assert_cuda(cuStreamSynchronize(free_stream));
    assert_int_equal(atomic_load(&free_ran), 1);
    usleep(5000);
    assert_int_equal(atomic_load(&legacy_ran), 0);
    assert_int_equal(atomic_load(&later_ran), 0);
    assert_result(cuStreamQuery(CU_STREAM_LEGACY), CUDA_ERROR_NOT_READY);
    atomic_store(&gate.is_open, true);
    assert_cuda(cuStreamSynchronize(other));
    assert_int_equal(atomic_load(&legacy_ran), 1);
    assert_int_equal(atomic_load(&later_ran), 1);
    assert_cuda(cuStreamDestroy(blocking));
    assert_cuda(cuStreamDestroy(other));
    assert_cuda(cuStreamDestroy(free_stream));
}

static void legacy_ignores_non_blocking_streams(void **state)
{
    struct gate gate = {false, 0};
    atomic_int ran = 0;
    CUstream stream;
    (void)state;
    assert_cuda(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    assert_cuda(cuLaunchHostFunc(stream, wait_at_gate, &gate));
    assert_cuda(cuLaunchHostFunc(NULL, count_up, &ran));
    assert_cuda(cuStreamSynchronize(NULL));
    assert_int_equal(atomic_load(&ran), 1);
    assert_int_equal(atomic_load(&gate.passed), 0);
    atomic_store(&gate.is_open, true);
    assert_cuda(cuCtxSynchronize());
    assert_int_equal(atomic_load(&gate.passed), 1);
    assert_cuda(cuStreamDestroy(stream));
}

/* The per-thread stream "does not synchronise with other threads' … but does with the legacy
 * stream". */
static void per_thread_stream_is_blocking_and_the_threads_own(void **state)
{
    struct gate gate = {false, 0};
    atomic_int ran = 0;
    unsigned long long mine, legacy;
    (void)state;
    assert_cuda(cuStreamGetId(CU_STREAM_PER_THREAD, &mine));
    assert_cuda(cuStreamGetId(NULL, &legacy));
    assert_true(mine != legacy);
    assert_cuda(cuLaunchHostFunc_ptsz(NULL, wait_at_gate, &gate));
    assert_result(cuStreamQuery_ptsz(NULL), CUDA_ERROR_NOT_READY);
    assert_cuda(cuLaunchHostFunc(NULL, count_up, &ran));
    usleep(2000);
    assert_int_equal(atomic_load(&ran), 0);
    atomic_store(&gate.is_open, true);
    assert_cuda(cuStreamSynchronize_ptsz(NULL));
    assert_cuda(cuStreamSynchronize(NULL));
    assert_int_equal(atomic_load(&ran), 1);
    assert_result(cuStreamDestroy(NULL), CUDA_ERROR_INVALID_HANDLE);
}

/* "If cuEventRecord() has not been called on hEvent, cuEventQuery returns CUDA_SUCCESS." */
static void event_completes_with_the_work_before_it(void **state)
{
    struct gate gate = {false, 0};
    CUstream stream, waiter;
    CUevent event;
    atomic_int ran = 0;
    (void)state;
    assert_cuda(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    assert_cuda(cuStreamCreate(&waiter, CU_STREAM_NON_BLOCKING));
    assert_cuda(cuEventCreate(&event, CU_EVENT_DEFAULT));
    assert_cuda(cuEventQuery(event));
    assert_cuda(cuEventSynchronize(event));
    assert_cuda(cuLaunchHostFunc(stream, wait_at_gate, &gate));
    assert_cuda(cuEventRecord(event, stream));
    assert_result(cuEventQuery(event), CUDA_ERROR_NOT_READY);
    assert_cuda(cuStreamWaitEvent(waiter, event, 0));
    assert_cuda(cuLaunchHostFunc(waiter, count_up, &ran));
    assert_cuda(cuEventDestroy(event)); /* "may be destroyed before it completes" */
    usleep(2000);
    assert_int_equal(atomic_load(&ran), 0);
    atomic_store(&gate.is_open, true);
    assert_cuda(cuStreamSynchronize(waiter));
    assert_int_equal(atomic_load(&ran), 1);
    assert_int_equal(atomic_load(&gate.passed), 1);
    assert_result(cuEventQuery(event), CUDA_ERROR_INVALID_HANDLE);
    assert_cuda(cuStreamDestroy(stream));
    assert_cuda(cuStreamDestroy(waiter));
}

static void elapsed_time_needs_two_complete_timed_events(void **state)
{
    struct gate gate = {false, 0};
    CUevent start, end, untimed;
    CUstream stream;
    float milliseconds = -1;
    (void)state;
    assert_cuda(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    assert_cuda(cuEventCreate(&start, CU_EVENT_DEFAULT));
    assert_cuda(cuEventCreate(&end, CU_EVENT_DEFAULT));
    assert_cuda(cuEventCreate(&untimed, CU_EVENT_DISABLE_TIMING));
    assert_result(cuEventElapsedTime(&milliseconds, start, end),
                  CUDA_ERROR_INVALID_HANDLE); /* never recorded */
    assert_cuda(cuEventRecord(start, stream));
    assert_cuda(cuEventSynchronize(start));
    assert_cuda(cuLaunchHostFunc(stream, wait_at_gate, &gate));
    assert_cuda(cuEventRecord(end, stream));
    assert_result(cuEventElapsedTime(&milliseconds, start, end), CUDA_ERROR_NOT_READY);
    usleep(3000);
    atomic_store(&gate.is_open, true);
    assert_cuda(cuEventSynchronize(end));
    assert_cuda(cuEventElapsedTime(&milliseconds, start, end));
    assert_true(milliseconds >= 2.9f && milliseconds < 60000);
    assert_cuda(cuEventRecord(untimed, stream));
    assert_cuda(cuEventSynchronize(untimed));
    assert_result(cuEventElapsedTime(&milliseconds, start, untimed), CUDA_ERROR_INVALID_HANDLE);
    assert_result(cuEventCreate(&start, CU_EVENT_INTERPROCESS), CUDA_ERROR_INVALID_VALUE);
    assert_cuda(cuEventDestroy(start));
    assert_cuda(cuEventDestroy(end));
    assert_cuda(cuEventDestroy(untimed));
    assert_cuda(cuStreamDestroy(stream));
}

/* cuCtxRecordEvent "captures in hEvent all the activities of the context"; cuCtxWaitEvent "makes
 * all future work submitted to the context wait". */
static void context_events_cover_every_stream(void **state)
{
    struct gate gate = {false, 0};
    CUstream streams[2], late;
    CUevent event;
    atomic_int ran = 0;
    (void)state;
    assert_cuda(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    for (int i = 0; i < 2; i++) {
        assert_cuda(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
        assert_cuda(cuLaunchHostFunc(streams[i], wait_at_gate, &gate));
    }
    assert_cuda(cuCtxRecordEvent(test_context, event));
    assert_result(cuEventQuery(event), CUDA_ERROR_NOT_READY);
    assert_cuda(cuCtxWaitEvent(test_context, event));
    assert_cuda(cuStreamCreate(&late, CU_STREAM_NON_BLOCKING));
    assert_cuda(cuLaunchHostFunc(late, count_up, &ran));
    usleep(2000);
    assert_int_equal(atomic_load(&ran), 0);
    atomic_store(&gate.is_open, true);
    assert_cuda(cuEventSynchronize(event));
    assert_int_equal(atomic_load(&gate.passed), 2);
    assert_cuda(cuStreamSynchronize(late));
    assert_int_equal(atomic_load(&ran), 1);
    for (int i = 0; i < 2; i++)
        assert_cuda(cuStreamDestroy(streams[i]));
    assert_cuda(cuStreamDestroy(late));
    assert_cuda(cuEventDestroy(event));
}

/* A later event also covers the work that a cuCtxWaitEvent put in front of later work. */
static void context_events_cover_what_the_context_waits_for(void **state)
{
    struct gate gate = {false, 0};
    CUstream stream;
    CUcontext other;
    CUevent there, here;
    (void)state;
    assert_cuda(cuEventCreate(&here, CU_EVENT_DISABLE_TIMING));
    assert_cuda(cuCtxCreate(&other, NULL, 0, 0));
    assert_cuda(cuEventCreate(&there, CU_EVENT_DISABLE_TIMING));
    assert_cuda(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    assert_cuda(cuLaunchHostFunc(stream, wait_at_gate, &gate));
    assert_cuda(cuEventRecord(there, stream));
    assert_cuda(cuCtxWaitEvent(test_context, there));
    assert_cuda(cuCtxRecordEvent(test_context, here));
    assert_result(cuEventQuery(here), CUDA_ERROR_NOT_READY);
    atomic_store(&gate.is_open, true);
    assert_cuda(cuEventSynchronize(here));
    assert_int_equal(atomic_load(&gate.passed), 1);
    assert_cuda(cuEventDestroy(here));
    assert_cuda(cuCtxDestroy(other));
}

/* "All blocking streams wait on the legacy stream": so does an event in one without work. */
static void event_of_an_idle_blocking_stream_waits_for_the_legacy_stream(void **state)
{
    struct gate gate = {false, 0};
    CUstream streams[2];
    CUevent events[2];
    (void)state;
    for (int i = 0; i < 2; i++) {
        assert_cuda(cuStreamCreate(&streams[i], i ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT));
        assert_cuda(cuEventCreate(&events[i], CU_EVENT_DISABLE_TIMING));
    }
    assert_cuda(cuLaunchHostFunc(NULL, wait_at_gate, &gate));
    for (int i = 0; i < 2; i++)
        assert_cuda(cuEventRecord(events[i], streams[i]));
    assert_result(cuEventQuery(events[0]), CUDA_ERROR_NOT_READY);
    assert_cuda(cuEventQuery(events[1]));
    atomic_store(&gate.is_open, true);
    for (int i = 0; i < 2; i++) {
        assert_cuda(cuEventSynchronize(events[i]));
        assert_cuda(cuEventDestroy(events[i]));
        assert_cuda(cuStreamDestroy(streams[i]));
    }
    assert_int_equal(atomic_load(&gate.passed), 1);
}

/* Numbers and other nonsense are no streams: CUDA_ERROR_INVALID_HANDLE. */
static void numbers_are_no_streams(void **state)
{
    (void)state;
    assert_result(cuStreamQuery((CUstream)(uintptr_t)3), CUDA_ERROR_INVALID_HANDLE);
    assert_result(cuStreamSynchronize((CUstream)(uintptr_t)0xfff), CUDA_ERROR_INVALID_HANDLE);
    assert_result(cuLaunchHostFunc((CUstream)(uintptr_t)9, count_up, NULL),
                  CUDA_ERROR_INVALID_HANDLE);
}

/* "In case the device is still doing work in the stream when cuStreamDestroy() is called, the
 * function will return immediately and the resources will be released automatically once the device
 * has completed all work." */
static void destroyed_stream_finishes_its_work(void **state)
{
    struct gate gate = {false, 0};
    CUstream stream;
    (void)state;
    assert_cuda(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    assert_cuda(cuLaunchHostFunc(stream, wait_at_gate, &gate));
    assert_cuda(cuStreamDestroy(stream));
    assert_result(cuStreamQuery(stream), CUDA_ERROR_INVALID_HANDLE);
    atomic_store(&gate.is_open, true);
    while (atomic_load(&gate.passed) == 0)
        usleep(1000);
    assert_int_equal(atomic_load(&gate.passed), 1);
}

static void *open_later(void *argument)
{
    usleep(20000);
    atomic_store(&((struct gate *)argument)->is_open, true);
    return NULL;
}

/* cuCtxSynchronize: "Blocks until the current context has completed all preceding requested tasks."
 * The work of a stream that was destroyed since is among them. */
static void synchronize_waits_for_work_of_destroyed_streams(void **state)
{
    struct gate gate = {false, 0};
    pthread_t thread;
    CUstream stream;
    (void)state;
    assert_cuda(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    assert_cuda(cuLaunchHostFunc(stream, wait_at_gate, &gate));
    assert_cuda(cuStreamDestroy(stream));
    assert_int_equal(pthread_create(&thread, NULL, open_later, &gate), 0);
    assert_cuda(cuCtxSynchronize());
    assert_int_equal(atomic_load(&gate.passed), 1);
    pthread_join(thread, NULL);
}

static CUresult result_in_callback;

static void call_driver(void *argument)
{
    int count;
    (void)argument;
    result_in_callback = cuDeviceGetCount(&count);
}

/* "The host function must not make any CUDA API calls. Attempting to … may result in
 * CUDA_ERROR_NOT_PERMITTED." */
static void host_functions_may_not_call_the_driver(void **state)
{
    (void)state;
    assert_cuda(cuLaunchHostFunc(NULL, call_driver, NULL));
    assert_cuda(cuStreamSynchronize(NULL));
    assert_result(result_in_callback, CUDA_ERROR_NOT_PERMITTED);
}

static void properties_are_kept(void **state)
{
    CUstream stream;
    CUcontext context;
    unsigned flags;
    int least, greatest, priority;
    (void)state;
    assert_cuda(cuCtxGetStreamPriorityRange(&least, &greatest));
    assert_true(greatest < least); /* "lower numbers represent greater priorities" */
    assert_cuda(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, greatest - 10));
    assert_cuda(cuStreamGetPriority(stream, &priority));
    assert_int_equal(priority, greatest); /* "automatically clamped" */
    assert_cuda(cuStreamGetFlags(stream, &flags));
    assert_int_equal(flags, CU_STREAM_NON_BLOCKING);
    assert_cuda(cuStreamGetCtx(stream, &context));
    assert_ptr_equal(context, test_context);
    assert_result(cuStreamCreate(&stream, 77), CUDA_ERROR_INVALID_VALUE);
}

/* Errors of asynchronous work "leave the process in an inconsistent state and any further CUDA work
 * will return the same error". */
static void errors_of_work_stick(void **state)
{
    CUcontext context;
    CUgraph graph;
    CUgraphNode node;
    CUgraphExec exec;
    CUstream stream;
    CUdeviceptr address;
    CUDA_MEMSET_NODE_PARAMS fill = {.dst = 0x10, .elementSize = 1, .width = 4096, .height = 1};
    atomic_int ran = 0;
    (void)state;
    assert_cuda(cuCtxCreate(&context, NULL, 0, 0));
    assert_cuda(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    assert_cuda(cuGraphCreate(&graph, 0));
    assert_cuda(cuGraphAddMemsetNode(&node, graph, NULL, 0, &fill, context));
    assert_cuda(cuGraphInstantiate(&exec, graph, 0));
    assert_cuda(cuGraphLaunch(exec, stream));
    assert_result(cuStreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_result(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_result(cuStreamQuery(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_result(cuMemAlloc(&address, 4096), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_result(cuLaunchHostFunc(stream, count_up, &ran), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(atomic_load(&ran), 0);
    assert_cuda(cuGraphExecDestroy(exec));
    assert_cuda(cuGraphDestroy(graph));
    assert_cuda(cuCtxDestroy(context));
    assert_cuda(cuCtxSynchronize()); /* other contexts live on */
}

static void values_are_written_and_waited_for(void **state)
{
    CUstream writer, waiter;
    CUdeviceptr address;
    atomic_int ran = 0;
    (void)state;
    assert_cuda(cuMemAlloc(&address, 4096));
    assert_cuda(cuMemsetD32(address, 0, 1024));
    assert_cuda(cuCtxSynchronize()); /* non-blocking streams would not wait for the fill */
    assert_cuda(cuStreamCreate(&writer, CU_STREAM_NON_BLOCKING));
    assert_cuda(cuStreamCreate(&waiter, CU_STREAM_NON_BLOCKING));
    assert_cuda(cuStreamWaitValue32(waiter, address, 5, CU_STREAM_WAIT_VALUE_GEQ));
    assert_cuda(cuLaunchHostFunc(waiter, count_up, &ran));
    assert_cuda(cuStreamWriteValue32(writer, address, 4, 0));
    assert_cuda(cuStreamSynchronize(writer));
    usleep(3000);
    assert_int_equal(atomic_load(&ran), 0);
    assert_cuda(cuStreamWriteValue32(writer, address, 6, 0));
    assert_cuda(cuStreamSynchronize(waiter));
    assert_int_equal(atomic_load(&ran), 1);
    assert_cuda(cuStreamDestroy(writer));
    assert_cuda(cuStreamDestroy(waiter));
    assert_cuda(cuMemFree(address));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stream_runs_in_order),
        cmocka_unit_test(query_reports_whether_work_is_done),
        cmocka_unit_test(legacy_and_blocking_streams_wait_for_each_other),
        cmocka_unit_test(legacy_ignores_non_blocking_streams),
        cmocka_unit_test(per_thread_stream_is_blocking_and_the_threads_own),
        cmocka_unit_test(event_completes_with_the_work_before_it),
        cmocka_unit_test(elapsed_time_needs_two_complete_timed_events),
        cmocka_unit_test(context_events_cover_every_stream),
        cmocka_unit_test(context_events_cover_what_the_context_waits_for),
        cmocka_unit_test(numbers_are_no_streams),
        cmocka_unit_test(event_of_an_idle_blocking_stream_waits_for_the_legacy_stream),
        cmocka_unit_test(destroyed_stream_finishes_its_work),
        cmocka_unit_test(synchronize_waits_for_work_of_destroyed_streams),
        cmocka_unit_test(host_functions_may_not_call_the_driver),
        cmocka_unit_test(properties_are_kept),
        cmocka_unit_test(errors_of_work_stick),
        cmocka_unit_test(values_are_written_and_waited_for),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, make_context, drop_context);
}
