/* The simulated driver: devices, primary and created contexts, each thread's stack. */
#include "tests/unit/sim_test.h"

#include <pthread.h>
#include <string.h>
#include <sys/wait.h>

#undef cuCtxCreate
#undef cuDevicePrimaryCtxSetFlags
CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device);
CUresult cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned int flags);

static CUcontext create(void)
{
    CUcontext context;
    assert_cuda(cuCtxCreate_v2(&context, 0, 0));
    return context;
}

/* "If cuInit() has not been called, any function from the driver API will return
 * CUDA_ERROR_NOT_INITIALIZED." */
static void nothing_works_before_init(void **state)
{
    int count;
    CUcontext context;
    (void)state;
    assert_result(cuDeviceGetCount(&count), CUDA_ERROR_NOT_INITIALIZED);
    assert_result(cuCtxGetCurrent(&context), CUDA_ERROR_NOT_INITIALIZED);
    assert_result(cuCtxSynchronize(), CUDA_ERROR_NOT_INITIALIZED);
    assert_result(cuCtxCreate_v2(&context, 0, 0), CUDA_ERROR_NOT_INITIALIZED);
    assert_result(cuStreamQuery(NULL), CUDA_ERROR_NOT_INITIALIZED);
    assert_cuda(cuDriverGetVersion(&count));
    assert_int_equal(count, 13000);
    assert_result(cuInit(1), CUDA_ERROR_INVALID_VALUE); /* "Flags must be 0" */
    assert_cuda(cuInit(0));
    assert_cuda(cuInit(0));
}

static void devices_describe_themselves(void **state)
{
    CUdevice device;
    char text[64], uuid_text[sizeof(CUuuid)];
    CUuuid uuid;
    size_t bytes;
    int value;
    (void)state;
    assert_cuda(cuDeviceGetCount(&value));
    assert_int_equal(value, 1);
    assert_cuda(cuDeviceGet(&device, 0));
    assert_result(cuDeviceGet(&device, 1), CUDA_ERROR_INVALID_DEVICE);
    assert_result(cuDeviceGet(&device, -1), CUDA_ERROR_INVALID_DEVICE);
    assert_cuda(cuDeviceGetName(text, 4, 0)); /* "null-terminated … at most len bytes" */
    assert_int_equal(strlen(text), 3);
    assert_cuda(cuDeviceTotalMem(&bytes, 0));
    assert_int_equal(bytes, (size_t)16 << 30);
    assert_cuda(cuDeviceGetUuid(&uuid, 0));
    memset(uuid_text, 0, sizeof uuid_text);
    assert_memory_not_equal(&uuid, uuid_text, sizeof uuid);
    assert_cuda(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0));
    assert_int_equal(value, 9);
    assert_cuda(
        cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0));
    assert_int_equal(value, 1);
    assert_result(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MAX, 0),
                  CUDA_ERROR_INVALID_VALUE);
    assert_cuda(cuDeviceGetPCIBusId(text, sizeof text, 0));
    device = -1;
    assert_cuda(cuDeviceGetByPCIBusId(&device, text));
    assert_int_equal(device, 0);
    assert_result(cuDeviceGetByPCIBusId(&device, "0000:77:00.0"), CUDA_ERROR_INVALID_DEVICE);
}

/* cuCtxCreate: "makes it current to the calling thread"; cuCtxPopCurrent: "the context that was
 * current is returned". */
static void contexts_stack_up(void **state)
{
    CUcontext first = create(), second = create(), current;
    (void)state;
    assert_cuda(cuCtxGetCurrent(&current));
    assert_ptr_equal(current, second);
    assert_cuda(cuCtxPopCurrent(&current));
    assert_ptr_equal(current, second);
    assert_cuda(cuCtxGetCurrent(&current));
    assert_ptr_equal(current, first);
    assert_cuda(cuCtxPushCurrent(second));
    assert_cuda(cuCtxSetCurrent(first)); /* "replaces the top of the stack" */
    assert_cuda(cuCtxPopCurrent(&current));
    assert_ptr_equal(current, first);
    assert_cuda(cuCtxSetCurrent(NULL)); /* "if ctx is NULL, pops the top" */
    assert_cuda(cuCtxGetCurrent(&current));
    assert_null(current);
    assert_result(cuCtxPopCurrent(&current), CUDA_ERROR_INVALID_CONTEXT);
    assert_result(cuCtxSynchronize(), CUDA_ERROR_INVALID_CONTEXT);
    assert_cuda(cuCtxDestroy(first));
    assert_cuda(cuCtxDestroy(second));
}

struct handover {
    CUcontext context;
    atomic_bool is_current, is_destroyed;
    CUresult pushed, used;
};

static void *use_destroyed(void *argument)
{
    struct handover *handover = argument;
    CUdevice device;
    handover->pushed = cuCtxPushCurrent(handover->context);
    atomic_store(&handover->is_current, true);
    while (!atomic_load(&handover->is_destroyed))
        usleep(100);
    handover->used = cuCtxGetDevice(&device);
    return NULL;
}

/* "If ctx is current to other threads, then ctx will remain current to those threads, and
 * attempting to access ctx from those threads will result in the error
 * CUDA_ERROR_CONTEXT_IS_DESTROYED." */
static void other_threads_see_a_destroyed_context(void **state)
{
    struct handover handover = {.context = create()};
    CUcontext context = handover.context, current;
    pthread_t thread;
    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, use_destroyed, &handover), 0);
    while (!atomic_load(&handover.is_current))
        usleep(100);
    assert_cuda(cuCtxDestroy(context));
    assert_cuda(
        cuCtxGetCurrent(&current)); /* "will also be popped from the current thread's stack" */
    assert_null(current);
    atomic_store(&handover.is_destroyed, true);
    pthread_join(thread, NULL);
    assert_result(handover.pushed, CUDA_SUCCESS);
    assert_result(handover.used, CUDA_ERROR_CONTEXT_IS_DESTROYED);
    assert_result(cuCtxDestroy(context), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    assert_result(cuCtxPushCurrent(context), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    assert_result(cuCtxDestroy(NULL), CUDA_ERROR_INVALID_CONTEXT);
}

/* cuDevicePrimaryCtxRelease: "automatically reset once the last reference to it is released";
 * "Releasing a primary context that has not been previously retained will fail with
 * CUDA_ERROR_INVALID_CONTEXT"; Reset: "does not release it". */
static void primary_context_is_counted(void **state)
{
    CUcontext first, second;
    unsigned flags;
    int active;
    CUdevice device;
    (void)state;
    assert_result(cuDevicePrimaryCtxRelease(0), CUDA_ERROR_INVALID_CONTEXT);
    assert_cuda(cuDevicePrimaryCtxRetain(&first, 0));
    assert_cuda(cuDevicePrimaryCtxRetain(&second, 0));
    assert_ptr_equal(first, second);
    assert_result(cuCtxDestroy(first), CUDA_ERROR_INVALID_CONTEXT);
    assert_cuda(cuDevicePrimaryCtxRelease(0));
    assert_cuda(cuDevicePrimaryCtxGetState(0, &flags, &active));
    assert_true(active);
    assert_cuda(cuCtxPushCurrent(first));
    assert_cuda(cuDevicePrimaryCtxReset(0));
    assert_cuda(cuDevicePrimaryCtxGetState(0, &flags, &active));
    assert_false(active);
    assert_result(cuCtxGetDevice(&device), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    assert_cuda(cuDevicePrimaryCtxRetain(&second, 0));
    assert_cuda(cuCtxGetDevice(&device));
    assert_cuda(cuDevicePrimaryCtxRelease(0));
    assert_cuda(cuDevicePrimaryCtxRelease(0));
    assert_cuda(cuCtxPopCurrent(&first));
    assert_cuda(cuDevicePrimaryCtxGetState(0, &flags, &active));
    assert_false(active);
}

static void primary_flags_wait_for_no_one_in_the_second_version(void **state)
{
    CUcontext context;
    unsigned flags;
    int active;
    (void)state;
    assert_cuda(cuDevicePrimaryCtxRetain(&context, 0));
    assert_result(cuDevicePrimaryCtxSetFlags(0, CU_CTX_SCHED_SPIN),
                  CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE);
    assert_cuda(cuDevicePrimaryCtxSetFlags_v2(0, CU_CTX_SCHED_YIELD));
    assert_cuda(cuDevicePrimaryCtxGetState(0, &flags, &active));
    assert_int_equal(flags, CU_CTX_SCHED_YIELD);
    assert_cuda(cuDevicePrimaryCtxRelease(0));
}

static void context_has_limits_and_an_identity(void **state)
{
    CUcontext context = create(), other;
    unsigned long long id, other_id;
    size_t bytes;
    (void)state;
    assert_cuda(cuCtxGetLimit(&bytes, CU_LIMIT_MALLOC_HEAP_SIZE));
    assert_int_equal(bytes, 8 << 20);
    assert_cuda(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 1 << 20));
    assert_cuda(cuCtxGetLimit(&bytes, CU_LIMIT_MALLOC_HEAP_SIZE));
    assert_int_equal(bytes, 1 << 20);
    assert_result(cuCtxGetLimit(&bytes, CU_LIMIT_MAX), CUDA_ERROR_UNSUPPORTED_LIMIT);
    assert_cuda(cuCtxGetId(context, &id)); /* "unique … over the life of the program" */
    other = create();
    assert_cuda(cuCtxGetId(NULL, &other_id));
    assert_true(id != other_id);
    assert_cuda(cuCtxDestroy(other));
    assert_cuda(cuCtxDestroy(context));
}

/* A context takes device memory, and the driver returns the error when there is none. */
static void contexts_run_out_of_memory(void **state)
{
    CUcontext contexts[512];
    CUresult result = CUDA_SUCCESS;
    size_t count = 0;
    (void)state;
    while (count < 512 && (result = cuCtxCreate_v2(&contexts[count], 0, 0)) == CUDA_SUCCESS)
        count++;
    assert_result(result, CUDA_ERROR_OUT_OF_MEMORY);
    assert_true(count > 8);
    while (count)
        assert_cuda(cuCtxDestroy(contexts[--count]));
    assert_cuda(cuCtxCreate_v2(&contexts[0], 0, 0));
    assert_cuda(cuCtxDestroy(contexts[0]));
}

/* A child cannot use what its parent initialised. */
static void forked_child_is_not_initialised(void **state)
{
    int status;
    (void)state;
    CUcontext context = create();
    pid_t child = fork();
    if (child == 0) {
        CUdevice device;
        bool refused = cuCtxGetDevice(&device) == CUDA_ERROR_NOT_INITIALIZED &&
                       cuInit(0) == CUDA_ERROR_NOT_INITIALIZED &&
                       cuCtxSynchronize() == CUDA_ERROR_NOT_INITIALIZED;
        _exit(refused ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_cuda(cuCtxSynchronize());
    assert_cuda(cuCtxDestroy(context));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_works_before_init),
        cmocka_unit_test(devices_describe_themselves),
        cmocka_unit_test(contexts_stack_up),
        cmocka_unit_test(other_threads_see_a_destroyed_context),
        cmocka_unit_test(primary_context_is_counted),
        cmocka_unit_test(primary_flags_wait_for_no_one_in_the_second_version),
        cmocka_unit_test(context_has_limits_and_an_identity),
        cmocka_unit_test(contexts_run_out_of_memory),
        cmocka_unit_test(forked_child_is_not_initialised),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
