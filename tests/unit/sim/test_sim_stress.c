/* The simulated driver from several threads at once: streams made and destroyed, events across
 * them, legacy and per-thread work, captures. Work submitted before a synchronisation has run after
 * it. Mostly for the sanitizers. */
#include "tests/unit/sim_test.h"

#include <pthread.h>

#define THREADS 4
#define ROUNDS 120

CUresult cuLaunchHostFunc_ptsz(CUstream stream, CUhostFn function, void *data);
CUresult cuStreamSynchronize_ptsz(CUstream stream);

struct worker {
    unsigned seed;
    int submitted;
    atomic_int ran;
    CUresult failed;
    int line;
};

#define TRY(call)                                                                                  \
    do {                                                                                           \
        CUresult try_result = (call);                                                              \
        if (try_result && !worker->failed) {                                                       \
            worker->failed = try_result;                                                           \
            worker->line = __LINE__;                                                               \
        }                                                                                          \
    } while (0)

static void submit(struct worker *worker, CUstream stream)
{
    TRY(cuLaunchHostFunc(stream, count_up, &worker->ran));
    worker->submitted++;
}

static void capture_and_launch(struct worker *worker, CUstream stream)
{
    CUgraph graph = NULL;
    CUgraphExec exec = NULL;
    TRY(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    TRY(cuLaunchHostFunc(stream, count_up, &worker->ran));
    TRY(cuStreamEndCapture(stream, &graph));
    TRY(cuGraphInstantiate(&exec, graph, 0));
    TRY(cuGraphLaunch(exec, stream));
    worker->submitted++;
    TRY(cuGraphExecDestroy(exec));
    TRY(cuGraphDestroy(graph));
}

static void one_round(struct worker *worker, CUstream *streams, CUevent event)
{
    CUstream stream = streams[rand_r(&worker->seed) % 2],
             other = streams[rand_r(&worker->seed) % 2];

    submit(worker, stream);
    switch (rand_r(&worker->seed) % 6) {
    case 0:
        TRY(cuEventRecord(event, stream));
        TRY(cuStreamWaitEvent(other, event, 0));
        submit(worker, other);
        break;
    case 1:
        TRY(cuLaunchHostFunc_ptsz(NULL, count_up, &worker->ran));
        worker->submitted++;
        TRY(cuStreamSynchronize_ptsz(NULL));
        break;
    case 2:
        capture_and_launch(worker,
                           streams[0]); /* non-blocking, so that the legacy stream stays open */
        break;
    case 3:
        submit(worker, NULL);
        break;
    case 4:
        TRY(cuStreamDestroy(streams[1]));
        TRY(cuStreamCreate(&streams[1], CU_STREAM_DEFAULT));
        break;
    default:
        TRY(cuEventRecord(event, other));
        TRY(cuEventSynchronize(event));
    }
}

static void *run_worker(void *argument)
{
    struct worker *worker = argument;
    CUstream streams[2];
    CUevent event;

    TRY(cuCtxSetCurrent(test_context));
    TRY(cuStreamCreate(&streams[0], CU_STREAM_NON_BLOCKING));
    TRY(cuStreamCreate(&streams[1], CU_STREAM_DEFAULT));
    TRY(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    for (int i = 0; i < ROUNDS; i++)
        one_round(worker, streams, event);
    TRY(cuStreamSynchronize(streams[0]));
    TRY(cuStreamSynchronize(streams[1]));
    TRY(cuEventDestroy(event));
    TRY(cuStreamDestroy(streams[0]));
    TRY(cuStreamDestroy(streams[1]));
    return NULL;
}

static void many_threads_submit_and_wait(void **state)
{
    struct worker workers[THREADS];
    pthread_t threads[THREADS];
    (void)state;
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.seed = 77 + i};
        assert_int_equal(pthread_create(&threads[i], NULL, run_worker, &workers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_cuda(cuCtxSynchronize());
    for (int i = 0; i < THREADS; i++) {
        if (workers[i].failed)
            fail_msg("seed %d: %d at line %d", 77 + i, (int)workers[i].failed, workers[i].line);
        assert_int_equal(atomic_load(&workers[i].ran), workers[i].submitted);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(many_threads_submit_and_wait)};
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, make_context, drop_context);
}
