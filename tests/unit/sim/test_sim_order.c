/* The simulated device: stream-ordered allocations and frees have the order of any operation. */
#include "tests/unit/sim_test.h"

#include <pthread.h>

#define BYTES ((size_t)3 << 20)

static atomic_int work_before_me;

/* The observation of a piece of work: whether all work before it was done. */
static void note_order(void *argument)
{
    atomic_int *seen = argument;
    atomic_store(seen, atomic_load(&work_before_me) ? 1 : 2);
}

static void work_slowly(void *argument)
{
    struct gate *gate = argument;
    wait_at_gate(gate);
    atomic_store(&work_before_me, 1);
}

/* cuMemFreeAsync: "Inserts a free operation into hStream"; cuMemAllocAsync: "Inserts an allocation
 * operation". In the legacy stream it waits for all blocking streams, and they wait for it. */
static void check_legacy_order(bool frees, bool allocates)
{
    struct gate gate = {false};
    atomic_int seen = 0;
    CUdeviceptr x, y = 0;
    CUstream one, other;

    atomic_store(&work_before_me, 0);
    assert_cuda(cuStreamCreate(&one, CU_STREAM_DEFAULT));
    assert_cuda(cuStreamCreate(&other, CU_STREAM_DEFAULT));
    assert_cuda(cuMemAllocAsync(&x, BYTES, NULL));
    assert_cuda(cuLaunchHostFunc(one, work_slowly, &gate)); /* works on x */
    if (frees)
        assert_cuda(cuMemFreeAsync(x, NULL));
    if (allocates)
        assert_cuda(cuMemAllocAsync(&y, BYTES, NULL));
    assert_cuda(cuLaunchHostFunc(other, note_order, &seen)); /* works on y */
    usleep(20000);
    atomic_store(&gate.is_open, true);
    assert_cuda(cuCtxSynchronize());
    assert_int_equal(seen, frees || allocates ? 1 : 2);
    if (frees && allocates)
        assert_int_equal(x, y); /* so the order is needed */
    if (!frees)
        assert_cuda(cuMemFreeAsync(x, NULL));
    if (allocates)
        assert_cuda(cuMemFreeAsync(y, NULL));
    assert_cuda(cuStreamDestroy(one));
    assert_cuda(cuStreamDestroy(other));
}

static void legacy_stream_orders_blocking_ones(void **state)
{
    (void)state;
    check_legacy_order(true, true);
    check_legacy_order(true, false);
    check_legacy_order(false, true);
    check_legacy_order(false, false); /* without either there is no order to see */
}

/* A free in a blocking stream waits for the legacy stream's earlier work, as any operation. */
static void a_free_waits_for_the_legacy_stream(void **state)
{
    struct gate gate = {false};
    CUdeviceptr x, y;
    CUstream blocking, beside;
    CUevent event;
    (void)state;
    assert_cuda(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    assert_cuda(cuStreamCreate(&beside, CU_STREAM_NON_BLOCKING));
    assert_cuda(cuEventCreate(&event, 0));
    assert_cuda(cuMemAllocAsync(&x, BYTES, blocking));
    assert_cuda(cuLaunchHostFunc(NULL, wait_at_gate, &gate)); /* works on x */
    assert_cuda(cuMemFreeAsync(x, blocking));
    assert_result(cuStreamQuery(blocking), CUDA_ERROR_NOT_READY);
    assert_cuda(cuMemAllocAsync(&y, BYTES, beside)); /* not ordered: other memory */
    assert_true(x != y);
    atomic_store(&gate.is_open, true);
    assert_cuda(cuStreamSynchronize(blocking));
    assert_cuda(cuMemFreeAsync(y, beside));
    assert_cuda(cuEventDestroy(event));
    assert_cuda(cuStreamDestroy(beside));
    assert_cuda(cuStreamDestroy(blocking));
}

/* An allocation in an idle stream is there at once. */
static void an_idle_stream_stays_idle(void **state)
{
    CUdeviceptr x;
    CUstream stream;
    (void)state;
    assert_cuda(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    assert_cuda(cuMemAllocAsync(&x, BYTES, stream));
    assert_cuda(cuStreamQuery(stream));
    assert_cuda(cuMemFreeAsync(x, stream));
    assert_cuda(cuStreamQuery(stream));
    assert_cuda(cuStreamDestroy(stream));
}

/* The allocation is the one that the call named: neither a second free nor another allocation at
 * its address counts. */
static void a_free_names_its_allocation(void **state)
{
    struct gate gate = {false};
    CUdeviceptr plain, other;
    CUstream stream;
    (void)state;
    assert_cuda(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    assert_cuda(cuMemAlloc(&plain, BYTES));
    assert_cuda(cuLaunchHostFunc(stream, wait_at_gate, &gate));
    assert_cuda(cuMemFreeAsync(plain, stream));
    assert_result(cuMemFreeAsync(plain, stream), CUDA_ERROR_INVALID_VALUE);
    assert_result(cuMemFreeAsync(plain, NULL), CUDA_ERROR_INVALID_VALUE);
    assert_cuda(cuMemAlloc(&other, BYTES));
    assert_true(plain != other);
    atomic_store(&gate.is_open, true);
    assert_cuda(cuStreamSynchronize(stream));
    assert_cuda(cuMemsetD8(other, 1, BYTES));
    assert_cuda(cuMemFree(other));
    assert_result(cuMemFree(plain), CUDA_ERROR_INVALID_VALUE);
    assert_cuda(cuStreamDestroy(stream));
}

/* The memory's context ends before the free runs, and its address serves another allocation. */
static void a_late_free_spares_another_allocation(void **state)
{
    struct gate gate = {false};
    CUdeviceptr gone, other;
    CUcontext owner, popped;
    CUstream stream;
    (void)state;
    assert_cuda(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    assert_cuda(cuCtxCreate(&owner, NULL, 0, 0));
    assert_cuda(cuMemAlloc(&gone, BYTES));
    assert_cuda(cuCtxPopCurrent(&popped));
    assert_cuda(cuLaunchHostFunc(stream, wait_at_gate, &gate));
    assert_cuda(cuMemFreeAsync(gone, stream));
    assert_cuda(cuCtxDestroy(owner));
    assert_cuda(cuMemAlloc(&other, BYTES));
    assert_int_equal(gone, other);
    atomic_store(&gate.is_open, true);
    (void)cuStreamSynchronize(stream); /* the program's mistake has its code, and no other victim */
    size_t bytes;
    CUdeviceptr base;
    CUcontext fresh;
    assert_cuda(cuCtxCreate(&fresh, NULL, 0, 0));
    assert_cuda(cuMemGetAddressRange(&base, &bytes, other));
    assert_int_equal(bytes, BYTES);
    assert_cuda(cuCtxDestroy(fresh));
}

#define ROUNDS 400

struct pair {
    CUcontext context;
    int wrong;
};

/* For the sanitizer: threads that free asynchronously what others allocate anew. */
static void *free_and_allocate(void *argument)
{
    struct pair *pair = argument;
    CUstream stream;
    pair->wrong = cuCtxSetCurrent(pair->context) || cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    for (int i = 0; i < ROUNDS && !pair->wrong; i++) {
        CUdeviceptr plain, pooled;
        pair->wrong = cuMemAlloc(&plain, 4096) || cuMemsetD8Async(plain, 1, 4096, stream) ||
                      cuMemFreeAsync(plain, stream) ||
                      cuMemAllocAsync(&pooled, 4096, i % 2 ? NULL : stream) ||
                      cuMemFreeAsync(pooled, i % 3 ? stream : NULL);
    }
    pair->wrong = pair->wrong || cuStreamSynchronize(stream) || cuStreamDestroy(stream);
    return NULL;
}

static void frees_and_allocations_side_by_side(void **state)
{
    struct pair pairs[3];
    pthread_t threads[3];
    (void)state;
    for (int i = 0; i < 3; i++) {
        pairs[i] = (struct pair){.context = test_context};
        assert_int_equal(pthread_create(&threads[i], NULL, free_and_allocate, &pairs[i]), 0);
    }
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(pairs[i].wrong, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(legacy_stream_orders_blocking_ones, make_context,
                                        drop_context),
        cmocka_unit_test_setup_teardown(a_free_waits_for_the_legacy_stream, make_context,
                                        drop_context),
        cmocka_unit_test_setup_teardown(an_idle_stream_stays_idle, make_context, drop_context),
        cmocka_unit_test_setup_teardown(a_free_names_its_allocation, make_context, drop_context),
        cmocka_unit_test_setup_teardown(frees_and_allocations_side_by_side, make_context,
                                        drop_context),
        cmocka_unit_test_setup_teardown(a_late_free_spares_another_allocation, make_context,
                                        drop_context),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
