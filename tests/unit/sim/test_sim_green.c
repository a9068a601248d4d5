/* The simulated driver: green contexts, and contexts made for OpenGL and VDPAU. */
#include "tests/unit/sim_test.h"

#include <string.h>
#include <sys/wait.h>

CUresult cuGLCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device);
CUresult cuVDPAUCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device, uint32_t vdpau,
                             void *functions);
CUresult cuStreamQuery_ptsz(CUstream stream);

static CUcontext primary;
static CUgreenCtx one, other;
static CUcontext one_context, other_context;

static CUgreenCtx make_green(unsigned least)
{
    CUdevResource all, group;
    CUdevResourceDesc descriptor;
    CUgreenCtx green;
    unsigned count = 1;
    assert_cuda(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
    assert_cuda(cuDevSmResourceSplitByCount(&group, &count, &all, NULL, 0, least));
    assert_cuda(cuDevResourceGenerateDesc(&descriptor, &group, 1));
    assert_cuda(cuGreenCtxCreate(&green, descriptor, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    return green;
}

/* Two green contexts of one primary context, which is current. */
static int make_both(void **state)
{
    (void)state;
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&primary, 0) || cuCtxSetCurrent(primary))
        return 1;
    one = make_green(16);
    other = make_green(8);
    return cuCtxFromGreenCtx(&one_context, one) || cuCtxFromGreenCtx(&other_context, other);
}

static int drop_both(void **state)
{
    (void)state;
    CUresult result = cuCtxSetCurrent(NULL);
    (void)cuGreenCtxDestroy(one);
    (void)cuGreenCtxDestroy(other);
    return result || cuDevicePrimaryCtxRelease(0);
}

static CUstream green_stream(CUgreenCtx green)
{
    CUstream stream;
    assert_cuda(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
    return stream;
}

/* An older driver has none of it: its child process runs before this one starts. */
static void older_drivers_have_none(void **state)
{
    int status;
    (void)state;
    pid_t child = fork();
    if (child == 0) {
        CUdevResource all;
        void *address = NULL;
        setenv("SIMCUDA_DRIVER_VERSION", "12040", 1);
        bool is_right =
            cuInit(0) == CUDA_SUCCESS &&
            cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM) == CUDA_SUCCESS &&
            cuGreenCtxStreamCreate((CUstream *)&address, NULL, 1, 0) == CUDA_ERROR_NOT_SUPPORTED &&
            cuGetProcAddress("cuGreenCtxStreamCreate", &address, 12040, 0, NULL) == CUDA_SUCCESS &&
            address == NULL &&
            cuGetProcAddress("cuGreenCtxCreate", &address, 12040, 0, NULL) == CUDA_SUCCESS &&
            address != NULL;
        _exit(is_right ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* "guarantee a split that will create a disjoint set of symmetrical partitions"; "On Compute
 * Architecture 9.0+: The minimum count is 8 SMs and must be a multiple of 8." */
static void resources_are_split(void **state)
{
    CUdevResource all, groups[32], rest, again;
    CUdevResourceDesc descriptor;
    unsigned count;
    (void)state;
    assert_cuda(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
    assert_int_equal(all.sm.smCount, 132);
    assert_cuda(cuDevSmResourceSplitByCount(NULL, &count, &all, NULL, 0, 9));
    assert_int_equal(count, 8); /* of 16 */
    count = 3;
    assert_cuda(cuDevSmResourceSplitByCount(groups, &count, &all, &rest, 0, 9));
    assert_int_equal(count, 3);
    assert_int_equal(groups[2].sm.smCount, 16);
    assert_int_equal(rest.sm.smCount, 132 - 48);
    assert_cuda(cuDevResourceGenerateDesc(&descriptor, groups, 3));
    /* "the output results cannot be split again" */
    assert_result(cuDevSmResourceSplitByCount(&again, &count, &groups[0], NULL, 0, 8),
                  CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
    assert_result(cuDevSmResourceSplitByCount(NULL, &count, &all, NULL, 0, 133),
                  CUDA_ERROR_INVALID_VALUE);
    /* "they must be outputs from the same split API instance" */
    count = 1;
    assert_cuda(cuDevSmResourceSplitByCount(&groups[1], &count, &all, NULL, 0, 9));
    assert_result(cuDevResourceGenerateDesc(&descriptor, groups, 2),
                  CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
    all.type = CU_DEV_RESOURCE_TYPE_INVALID;
    assert_result(cuDevResourceGenerateDesc(&descriptor, &all, 1),
                  CUDA_ERROR_INVALID_RESOURCE_TYPE);
    assert_result(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_INVALID),
                  CUDA_ERROR_INVALID_RESOURCE_TYPE);
    assert_result(cuGreenCtxCreate(&one, NULL, 0, CU_GREEN_CTX_DEFAULT_STREAM),
                  CUDA_ERROR_INVALID_VALUE);
}

/* "This API will retain the primary context on device dev, which is released when the green context
 * is destroyed." */
static void a_green_context_retains_its_primary_one(void **state)
{
    CUcontext context;
    CUgreenCtx green = make_green(8);
    unsigned flags;
    int active;
    (void)state;
    assert_cuda(cuDevicePrimaryCtxGetState(0, &flags, &active));
    assert_true(active);
    assert_cuda(cuCtxFromGreenCtx(&context, green));
    assert_cuda(cuCtxSetCurrent(context));
    assert_cuda(cuCtxSynchronize());
    assert_result(cuCtxDestroy(context), CUDA_ERROR_INVALID_CONTEXT);
    assert_cuda(cuGreenCtxDestroy(green));
    assert_cuda(cuDevicePrimaryCtxGetState(0, &flags, &active));
    assert_false(active);
    assert_result(cuGreenCtxDestroy(green), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    assert_result(cuCtxSynchronize(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    assert_cuda(cuCtxSetCurrent(NULL));
    /* A reset ends the green contexts too. */
    green = make_green(8);
    assert_cuda(cuDevicePrimaryCtxReset(0));
    assert_result(cuGreenCtxDestroy(green), CUDA_ERROR_CONTEXT_IS_DESTROYED);
}

/* "Users are expected to call this API before calling any CUDA APIs that accept a CUcontext.
 * Failing to do so will result in the APIs returning CUDA_ERROR_INVALID_CONTEXT." */
static void a_green_handle_is_no_context(void **state)
{
    CUdevResource resource;
    CUcontext again;
    unsigned long long id, other_id;
    (void)state;
    assert_result(cuCtxSetCurrent((CUcontext)(void *)one), CUDA_ERROR_INVALID_CONTEXT);
    assert_result(cuCtxFromGreenCtx(&again, (CUgreenCtx)(void *)one_context),
                  CUDA_ERROR_INVALID_CONTEXT);
    assert_cuda(cuCtxFromGreenCtx(&again, one));
    assert_ptr_equal(again, one_context);
    assert_cuda(cuGreenCtxGetDevResource(one, &resource, CU_DEV_RESOURCE_TYPE_SM));
    assert_int_equal(resource.sm.smCount, 16);
    assert_cuda(cuCtxGetDevResource(other_context, &resource, CU_DEV_RESOURCE_TYPE_SM));
    assert_int_equal(resource.sm.smCount, 8);
    assert_cuda(cuCtxGetDevResource(primary, &resource, CU_DEV_RESOURCE_TYPE_SM));
    assert_int_equal(resource.sm.smCount, 132);
    assert_result(cuGreenCtxGetId(NULL, &id), CUDA_ERROR_INVALID_CONTEXT);
    assert_cuda(cuGreenCtxGetId(one, &id));
    assert_cuda(cuGreenCtxGetId(other, &other_id));
    assert_true(id != other_id);
}

/* cuStreamGetCtx: "the returned context is equivalent to the one returned by cuCtxFromGreenCtx()".
 * cuStreamGetCtx_v2: "the green context in pGreenCtx and the primary context in pCtx". */
static void streams_know_their_contexts(void **state)
{
    CUstream stream = green_stream(one), made;
    CUcontext context;
    CUgreenCtx green;
    (void)state;
    assert_result(cuGreenCtxStreamCreate(&made, one, CU_STREAM_DEFAULT, 0),
                  CUDA_ERROR_INVALID_VALUE);
    assert_cuda(cuStreamGetCtx(stream, &context));
    assert_ptr_equal(context, one_context);
    assert_cuda(cuStreamGetCtx_v2(stream, &context, &green));
    assert_ptr_equal(context, primary);
    assert_ptr_equal(green, one);
    assert_cuda(cuStreamGetGreenCtx(stream, &green));
    assert_ptr_equal(green, one);
    assert_cuda(cuStreamGetGreenCtx(NULL, &green));
    assert_null(green);
    assert_cuda(cuStreamGetCtx_v2(NULL, &context, &green));
    assert_ptr_equal(context, primary);
    assert_null(green);
    /* The stream of the current context, when it is a green one. */
    assert_cuda(cuCtxPushCurrent(other_context));
    assert_cuda(cuStreamCreate(&made, CU_STREAM_DEFAULT));
    for (int i = 0; i < 2; i++) {
        CUstream asked = i ? NULL : made;
        assert_cuda(cuStreamGetCtx(asked, &context));
        assert_ptr_equal(context, other_context);
        assert_cuda(cuStreamGetCtx_v2(asked, &context, &green));
        assert_ptr_equal(context, primary);
        assert_ptr_equal(green, other);
    }
    assert_result(cuStreamGetCtx_v2(CU_STREAM_PER_THREAD, &context, &green),
                  CUDA_ERROR_INVALID_HANDLE);
    assert_result(cuStreamQuery_ptsz(NULL), CUDA_ERROR_INVALID_HANDLE);
    assert_cuda(cuStreamDestroy(made));
    assert_cuda(cuCtxPopCurrent(&context));
    assert_cuda(cuStreamDestroy(stream));
}

/* CU_GREEN_CTX_DEFAULT_STREAM: "Creates a default stream to use inside the green context." */
static void each_has_its_own_default_stream(void **state)
{
    struct gate gate = {false};
    atomic_int count = 0;
    CUcontext popped;
    CUstream blocking;
    (void)state;
    assert_cuda(cuLaunchHostFunc(NULL, wait_at_gate, &gate)); /* the primary's */
    assert_cuda(cuCtxPushCurrent(one_context));
    assert_cuda(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    assert_cuda(cuLaunchHostFunc(NULL, count_up, &count));
    assert_cuda(cuLaunchHostFunc(blocking, count_up, &count));
    assert_cuda(cuStreamSynchronize(NULL));
    assert_cuda(cuStreamSynchronize(blocking));
    assert_int_equal(count, 2);
    assert_cuda(cuCtxSynchronize()); /* the green one's work alone */
    assert_int_equal(gate.passed, 0);
    atomic_store(&gate.is_open, true);
    /* Its own blocking streams wait for it. */
    struct gate second = {false};
    assert_cuda(cuLaunchHostFunc(NULL, wait_at_gate, &second));
    assert_cuda(cuLaunchHostFunc(blocking, count_up, &count));
    usleep(2000);
    assert_int_equal(count, 2);
    atomic_store(&second.is_open, true);
    assert_cuda(cuStreamSynchronize(blocking));
    assert_int_equal(count, 3);
    assert_cuda(cuStreamDestroy(blocking));
    assert_cuda(cuCtxPopCurrent(&popped));
    assert_cuda(cuCtxSynchronize());
}

/* "the converted context is a normal primary context": memory is the primary context's. */
static void memory_is_the_primary_contexts(void **state)
{
    CUstream stream = green_stream(other);
    CUdeviceptr address;
    CUcontext owner, popped;
    unsigned word = 0;
    (void)state;
    assert_cuda(cuCtxPushCurrent(one_context));
    assert_cuda(cuMemAlloc(&address, 4096));
    assert_cuda(cuCtxPopCurrent(&popped));
    assert_cuda(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, address));
    assert_ptr_equal(owner, primary);
    assert_cuda(cuMemsetD32Async(address, 7, 1, stream));
    assert_cuda(cuStreamSynchronize(stream));
    assert_cuda(cuStreamDestroy(stream));
    assert_cuda(cuGreenCtxDestroy(one));
    assert_cuda(cuMemcpyDtoH(&word, address, sizeof word));
    assert_int_equal(word, 7);
    assert_cuda(cuMemFree(address));
}

/* cuCtxRecordEvent: "If the context is the primary context, hEvent will capture all the activities
 * of the primary context and its green contexts"; of a green one, "only the activities of the green
 * context". cuCtxWaitEvent alike. */
static void events_of_contexts(void **state)
{
    CUstream stream = green_stream(one), beside = green_stream(other), late;
    struct gate gate = {false};
    atomic_int count = 0;
    CUevent all, green, none, made_inside;
    CUcontext popped;
    (void)state;
    assert_cuda(cuEventCreate(&all, 0));
    assert_cuda(cuEventCreate(&green, 0));
    assert_cuda(cuEventCreate(&none, 0));
    assert_cuda(cuCtxPushCurrent(other_context));
    assert_cuda(cuEventCreate(&made_inside, 0));
    assert_cuda(cuCtxPopCurrent(&popped));
    assert_cuda(cuLaunchHostFunc(stream, wait_at_gate, &gate));
    assert_cuda(cuCtxRecordEvent(primary, all));
    assert_cuda(cuCtxRecordEvent(one_context, green));
    assert_cuda(cuGreenCtxRecordEvent(other, none));
    assert_result(cuEventQuery(all), CUDA_ERROR_NOT_READY);
    assert_result(cuEventQuery(green), CUDA_ERROR_NOT_READY);
    assert_cuda(cuEventQuery(none));
    /* "must be from the same primary context" */
    assert_cuda(cuGreenCtxRecordEvent(one, made_inside));
    assert_result(cuEventQuery(made_inside), CUDA_ERROR_NOT_READY);
    assert_cuda(cuEventRecord(made_inside, stream));
    /* The primary context's green ones wait with it, a green one alone. */
    assert_cuda(cuGreenCtxWaitEvent(one, all));
    assert_cuda(cuLaunchHostFunc(beside, count_up, &count));
    assert_cuda(cuStreamSynchronize(beside));
    assert_int_equal(count, 1);
    assert_cuda(cuCtxWaitEvent(primary, green));
    assert_cuda(cuLaunchHostFunc(beside, count_up, &count));
    assert_cuda(cuStreamCreate(&late, CU_STREAM_NON_BLOCKING));
    assert_cuda(cuLaunchHostFunc(late, count_up, &count));
    usleep(2000);
    assert_int_equal(count, 1);
    atomic_store(&gate.is_open, true);
    assert_cuda(cuCtxSynchronize());
    assert_int_equal(count, 3);
    assert_cuda(cuEventQuery(all));
    assert_cuda(cuStreamDestroy(late));
    assert_cuda(cuStreamDestroy(beside));
    assert_cuda(cuStreamDestroy(stream));
    assert_cuda(cuEventDestroy(all));
    assert_cuda(cuEventDestroy(green));
    assert_cuda(cuEventDestroy(none));
    assert_cuda(cuEventDestroy(made_inside));
}

/* "will return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED if the specified green context has a stream in
 * the capture mode … will invalidate all the conflicting captures" */
static void captures_refuse_events_of_their_context(void **state)
{
    CUstream stream = green_stream(one);
    CUgraph graph;
    CUevent event;
    (void)state;
    assert_cuda(cuEventCreate(&event, 0));
    assert_cuda(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    assert_cuda(cuGreenCtxRecordEvent(other, event));
    assert_result(cuGreenCtxRecordEvent(one, event), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    assert_result(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    assert_cuda(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    assert_result(cuCtxRecordEvent(primary, event), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    assert_result(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    assert_cuda(cuEventDestroy(event));
    assert_cuda(cuStreamDestroy(stream));
}

/* "The API does not destroy streams … any subsequent API calls involving these streams (including
 * cuStreamDestroy) will return CUDA_ERROR_CONTEXT_IS_DESTROYED." */
static void work_outlives_a_green_context(void **state)
{
    CUstream stream = green_stream(one), idle = green_stream(other);
    struct gate gate = {false};
    atomic_int count = 0;
    CUcontext popped;
    CUevent event;
    (void)state;
    assert_cuda(cuEventCreate(&event, 0));
    assert_cuda(cuLaunchHostFunc(stream, wait_at_gate, &gate));
    assert_cuda(cuCtxPushCurrent(other_context));
    assert_cuda(cuLaunchHostFunc(NULL, wait_at_gate, &gate));
    assert_cuda(cuCtxPopCurrent(&popped));
    assert_cuda(cuGreenCtxDestroy(one));
    assert_cuda(cuGreenCtxDestroy(other));
    assert_result(cuStreamQuery(stream), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    assert_result(cuLaunchHostFunc(stream, count_up, &count), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    assert_result(cuStreamDestroy(stream), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    assert_result(cuStreamDestroy(idle), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    assert_cuda(cuCtxRecordEvent(primary, event));
    assert_result(cuEventQuery(event), CUDA_ERROR_NOT_READY);
    atomic_store(&gate.is_open, true);
    assert_cuda(cuCtxSynchronize());
    assert_int_equal(gate.passed, 2);
    assert_cuda(cuEventDestroy(event));
    for (int i = 0; i < 300; i++) /* as many as there are idle objects before one is used again */
        assert_cuda(cuGreenCtxDestroy(make_green(8)));
}

/* An error of one green context is the primary context's, and so all green contexts'. */
static void errors_stick_to_the_whole(void **state)
{
    CUstream stream = green_stream(one), beside = green_stream(other);
    CUdeviceptr address;
    (void)state;
    assert_cuda(cuMemAlloc(&address, 4096));
    assert_cuda(cuMemFree(address));
    assert_cuda(cuMemsetD8Async(address, 1, 4096, stream));
    assert_result(cuStreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_result(cuStreamSynchronize(beside), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_result(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_result(cuMemAlloc(&address, 4096), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_cuda(cuDevicePrimaryCtxReset(0));
}

/* They are as contexts of cuCtxCreate: current, with a default stream of their own. */
static void graphics_contexts_are_contexts(void **state)
{
    struct gate gate = {false};
    atomic_int count = 0;
    CUcontext gl, vdpau, current;
    (void)state;
    assert_cuda(cuGLCtxCreate_v2(&gl, 0, 0));
    assert_cuda(cuLaunchHostFunc(NULL, wait_at_gate, &gate));
    assert_cuda(cuVDPAUCtxCreate_v2(&vdpau, 0, 0, 1, NULL));
    assert_cuda(cuCtxGetCurrent(&current));
    assert_ptr_equal(current, vdpau);
    assert_cuda(cuLaunchHostFunc(NULL, count_up, &count));
    assert_cuda(cuCtxSynchronize());
    assert_int_equal(count, 1);
    assert_int_equal(gate.passed, 0);
    atomic_store(&gate.is_open, true);
    assert_cuda(cuCtxDestroy(vdpau));
    assert_cuda(cuCtxDestroy(gl));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(older_drivers_have_none),
        cmocka_unit_test_setup_teardown(resources_are_split, make_both, drop_both),
        cmocka_unit_test(a_green_context_retains_its_primary_one),
        cmocka_unit_test_setup_teardown(a_green_handle_is_no_context, make_both, drop_both),
        cmocka_unit_test_setup_teardown(streams_know_their_contexts, make_both, drop_both),
        cmocka_unit_test_setup_teardown(each_has_its_own_default_stream, make_both, drop_both),
        cmocka_unit_test_setup_teardown(memory_is_the_primary_contexts, make_both, drop_both),
        cmocka_unit_test_setup_teardown(events_of_contexts, make_both, drop_both),
        cmocka_unit_test_setup_teardown(captures_refuse_events_of_their_context, make_both,
                                        drop_both),
        cmocka_unit_test_setup_teardown(work_outlives_a_green_context, make_both, drop_both),
        cmocka_unit_test_setup_teardown(errors_stick_to_the_whole, make_both, drop_both),
        cmocka_unit_test(graphics_contexts_are_contexts),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
