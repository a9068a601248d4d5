/* The stand-in runtime: errors, devices and contexts, memory. Each case pins what NVIDIA documents
 * (CUDA Runtime API reference; Programming Guide, error checking and initialisation). */
/* link: -Wl,--no-as-needed -l:libcudart.so.13 -l:libcuda.so.1 -pthread */
#include "tests/unit/cmocka_all.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#define DEVICE_BYTES (UINT64_C(1) << 30)

/* Whatever an earlier case left: no context, device 0, no error. */
static int start(void **state)
{
    (void)state;
    for (int device = 1; device >= 0; device--)
        if (cudaSetDevice(device) != cudaSuccess || cudaDeviceReset() != cudaSuccess)
            return -1;
    (void)cudaGetLastError();
    return 0;
}

static bool primary_is_active(int device)
{
    unsigned flags;
    int active = -1;

    assert_int_equal(cuDevicePrimaryCtxGetState(device, &flags, &active), CUDA_SUCCESS);
    return active != 0;
}

/* ---- errors ---- */

static void last_error_is_kept_until_read(void **state)
{
    void *p;

    (void)state;
    assert_int_equal(cudaGetLastError(), cudaSuccess);
    assert_int_equal(cudaMalloc(NULL, 1), cudaErrorInvalidValue);
    assert_int_equal(cudaMalloc(&p, 64), cudaSuccess);
    assert_int_equal(cudaFree(p), cudaSuccess);
    assert_int_equal(cudaPeekAtLastError(), cudaErrorInvalidValue);
    assert_int_equal(cudaPeekAtLastError(), cudaErrorInvalidValue);
    assert_int_equal(cudaGetLastError(), cudaErrorInvalidValue);
    assert_int_equal(cudaGetLastError(), cudaSuccess);
}

static void last_error_is_the_latest(void **state)
{
    (void)state;
    assert_int_equal(cudaMalloc(NULL, 1), cudaErrorInvalidValue);
    assert_int_equal(cudaSetDevice(99), cudaErrorInvalidDevice);
    assert_int_equal(cudaGetLastError(), cudaErrorInvalidDevice);
}

static void *fail_and_read(void *argument)
{
    cudaError_t *seen = argument;

    seen[0] = cudaPeekAtLastError();
    (void)cudaSetDevice(-1);
    seen[1] = cudaPeekAtLastError();
    return NULL;
}

static void last_error_belongs_to_a_thread(void **state)
{
    cudaError_t seen[2];
    pthread_t thread;

    (void)state;
    assert_int_equal(cudaMalloc(NULL, 1), cudaErrorInvalidValue);
    assert_int_equal(pthread_create(&thread, NULL, fail_and_read, seen), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(seen[0], cudaSuccess);
    assert_int_equal(seen[1], cudaErrorInvalidDevice);
    assert_int_equal(cudaGetLastError(), cudaErrorInvalidValue);
}

static void errors_have_names_and_texts(void **state)
{
    (void)state;
    assert_string_equal(cudaGetErrorName(cudaSuccess), "cudaSuccess");
    assert_string_equal(cudaGetErrorString(cudaSuccess), "no error");
    assert_string_equal(cudaGetErrorName(cudaErrorMemoryAllocation), "cudaErrorMemoryAllocation");
    assert_string_equal(cudaGetErrorString(cudaErrorMemoryAllocation), "out of memory");
    assert_string_equal(cudaGetErrorString((cudaError_t)4711), "unrecognized error code");
    assert_int_equal(cudaGetLastError(), cudaSuccess);
}

/* ---- devices and contexts ---- */

static void asking_for_devices_makes_no_context(void **state)
{
    struct cudaDeviceProp prop;
    int count, device, value;

    (void)state;
    assert_int_equal(cudaGetDeviceCount(&count), cudaSuccess);
    assert_int_equal(count, 2);
    assert_int_equal(cudaGetDevice(&device), cudaSuccess);
    assert_int_equal(device, 0);
    assert_int_equal(cudaGetDeviceProperties(&prop, 1), cudaSuccess);
    assert_int_equal(prop.totalGlobalMem, DEVICE_BYTES);
    assert_int_equal(prop.warpSize, 32);
    assert_true(prop.name[0] != '\0');
    assert_int_equal(cudaDeviceGetAttribute(&value, cudaDevAttrComputeCapabilityMajor, 0),
                     cudaSuccess);
    assert_int_equal(value, prop.major);
    assert_int_equal(cudaDriverGetVersion(&value), cudaSuccess);
    assert_true(value >= 13000);
    assert_int_equal(cudaRuntimeGetVersion(&value), cudaSuccess);
    assert_int_equal(value, CUDART_VERSION);
    assert_false(primary_is_active(0));
    assert_false(primary_is_active(1));
}

static void set_device_initialises_it(void **state)
{
    CUcontext context = NULL;
    CUdevice device = -1;

    (void)state;
    assert_int_equal(cudaSetDevice(1), cudaSuccess);
    assert_true(primary_is_active(1));
    assert_false(primary_is_active(0));
    assert_int_equal(cuCtxGetCurrent(&context), CUDA_SUCCESS);
    assert_non_null(context);
    assert_int_equal(cuCtxGetDevice(&device), CUDA_SUCCESS);
    assert_int_equal(device, 1);
}

static void init_device_makes_nothing_current(void **state)
{
    CUcontext context = NULL;

    (void)state;
    assert_int_equal(cudaInitDevice(1, 0, 0), cudaSuccess);
    assert_true(primary_is_active(1));
    assert_int_equal(cuCtxGetCurrent(&context), CUDA_SUCCESS);
    assert_null(context);
    assert_int_equal(cudaInitDevice(1, 0, 4), cudaErrorInvalidValue);
    assert_int_equal(cudaInitDevice(2, 0, 0), cudaErrorInvalidDevice);
}

static void first_call_that_needs_one_makes_the_context(void **state)
{
    (void)state;
    assert_false(primary_is_active(0));
    assert_int_equal(cudaFree(NULL), cudaSuccess);
    assert_true(primary_is_active(0));
    assert_false(primary_is_active(1));
}

static void bad_device_leaves_the_device(void **state)
{
    int device = -1;

    (void)state;
    assert_int_equal(cudaSetDevice(1), cudaSuccess);
    assert_int_equal(cudaSetDevice(2), cudaErrorInvalidDevice);
    assert_int_equal(cudaSetDevice(-1), cudaErrorInvalidDevice);
    assert_int_equal(cudaGetDevice(&device), cudaSuccess);
    assert_int_equal(device, 1);
}

static void *read_device(void *argument)
{
    int *seen = argument;

    (void)cudaGetDevice(&seen[0]);
    (void)cudaFree(NULL);
    (void)cudaGetDevice(&seen[1]);
    return NULL;
}

/* A new thread's device is 0 whatever another has chosen, and its first call makes that one
 * current. */
static void each_thread_has_its_device(void **state)
{
    int seen[2] = {-1, -1}, mine = -1;
    pthread_t thread;

    (void)state;
    assert_int_equal(cudaSetDevice(1), cudaSuccess);
    assert_int_equal(pthread_create(&thread, NULL, read_device, seen), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(seen[0], 0);
    assert_int_equal(seen[1], 0);
    assert_int_equal(cudaGetDevice(&mine), cudaSuccess);
    assert_int_equal(mine, 1);
}

static void context_of_the_driver_is_used(void **state)
{
    CUcontext own, found;
    void *p;
    int device = -1;

    (void)state;
    assert_int_equal(cuCtxCreate(&own, NULL, 0, 1), CUDA_SUCCESS);
    assert_int_equal(cudaGetDevice(&device), cudaSuccess);
    assert_int_equal(device, 1);
    assert_int_equal(cudaMalloc(&p, 100), cudaSuccess);
    assert_int_equal(
        cuPointerGetAttribute(&found, CU_POINTER_ATTRIBUTE_CONTEXT, (CUdeviceptr)(uintptr_t)p),
        CUDA_SUCCESS);
    assert_ptr_equal(found, own);
    assert_int_equal(cudaFree(p), cudaSuccess);
    assert_false(primary_is_active(0));
    assert_false(primary_is_active(1));
    assert_int_equal(cuCtxDestroy(own), CUDA_SUCCESS);
}

static void reset_drops_memory_and_the_next_call_starts_again(void **state)
{
    size_t before, with, after, total;
    void *p;

    (void)state;
    assert_int_equal(cudaMemGetInfo(&before, &total), cudaSuccess);
    assert_int_equal(cudaMalloc(&p, 64 << 20), cudaSuccess);
    assert_int_equal(cudaMemGetInfo(&with, &total), cudaSuccess);
    assert_true(before - with >= 64 << 20);
    assert_int_equal(cudaDeviceReset(), cudaSuccess);
    assert_false(primary_is_active(0));
    assert_int_equal(cudaMemGetInfo(&after, &total), cudaSuccess);
    assert_int_equal(after, before);
    assert_int_equal(cudaFree(p), cudaErrorInvalidValue);
    assert_int_equal(cudaGetLastError(), cudaErrorInvalidValue);
    assert_int_equal(cudaMalloc(&p, 4096), cudaSuccess);
    assert_int_equal(cudaFree(p), cudaSuccess);
}

static void *reset_elsewhere(void *argument)
{
    *(cudaError_t *)argument = cudaDeviceReset();
    return NULL;
}

/* The context that is current here is gone, without this thread having done anything. */
static void reset_by_another_thread_starts_again_here(void **state)
{
    cudaError_t result = cudaErrorUnknown;
    pthread_t thread;
    void *p;

    (void)state;
    assert_int_equal(cudaFree(NULL), cudaSuccess);
    assert_int_equal(pthread_create(&thread, NULL, reset_elsewhere, &result), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(result, cudaSuccess);
    assert_false(primary_is_active(0));
    assert_int_equal(cudaMalloc(&p, 4096), cudaSuccess);
    assert_true(primary_is_active(0));
    assert_int_equal(cudaFree(p), cudaSuccess);
}

static void device_flags_are_kept(void **state)
{
    unsigned flags = 0;

    (void)state;
    assert_int_equal(cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync), cudaSuccess);
    assert_int_equal(cudaGetDeviceFlags(&flags), cudaSuccess);
    assert_int_equal(flags & cudaDeviceScheduleMask, cudaDeviceScheduleBlockingSync);
    assert_int_equal(cudaSetDeviceFlags(0x10000), cudaErrorInvalidValue);
    assert_int_equal(cudaSetDeviceFlags(0), cudaSuccess);
}

static void peers_can_be_enabled_once(void **state)
{
    int can = -1;

    (void)state;
    assert_int_equal(cudaDeviceCanAccessPeer(&can, 0, 1), cudaSuccess);
    assert_int_equal(can, 1);
    assert_int_equal(cudaDeviceEnablePeerAccess(1, 0), cudaSuccess);
    assert_int_equal(cudaDeviceEnablePeerAccess(1, 0), cudaErrorPeerAccessAlreadyEnabled);
    assert_int_equal(cudaDeviceEnablePeerAccess(0, 0), cudaErrorInvalidDevice);
    assert_int_equal(cudaDeviceEnablePeerAccess(1, 1), cudaErrorInvalidValue);
    assert_int_equal(cudaDeviceDisablePeerAccess(1), cudaSuccess);
    assert_int_equal(cudaDeviceDisablePeerAccess(1), cudaErrorPeerAccessNotEnabled);
}

/* ---- memory ---- */

static void malloc_of_nothing_gives_null(void **state)
{
    struct cudaPitchedPtr box = {.ptr = &box};
    void *p = &box;
    size_t pitch = 1;

    (void)state;
    assert_int_equal(cudaMalloc(&p, 0), cudaSuccess);
    assert_null(p);
    p = &box;
    assert_int_equal(cudaMallocPitch(&p, &pitch, 0, 8), cudaSuccess);
    assert_null(p);
    assert_int_equal(cudaMalloc3D(&box, (struct cudaExtent){8, 8, 0}), cudaSuccess);
    assert_null(box.ptr);
    p = &box;
    assert_int_equal(cudaMallocHost(&p, 0), cudaSuccess);
    assert_null(p);
    assert_int_equal(cudaMallocManaged(&p, 0, cudaMemAttachGlobal), cudaErrorInvalidValue);
}

static void free_of_null_does_nothing(void **state)
{
    (void)state;
    assert_int_equal(cudaFree(NULL), cudaSuccess);
    assert_int_equal(cudaFreeHost(NULL), cudaSuccess);
    assert_int_equal(cudaFreeArray(NULL), cudaSuccess);
    assert_int_equal(cudaFreeMipmappedArray(NULL), cudaSuccess);
    assert_int_equal(cudaGetLastError(), cudaSuccess);
}

static void memory_runs_out_with_the_right_code(void **state)
{
    struct cudaPitchedPtr box;
    void *p = NULL;

    (void)state;
    assert_int_equal(cudaMalloc(&p, DEVICE_BYTES * 2), cudaErrorMemoryAllocation);
    assert_int_equal(cudaGetLastError(), cudaErrorMemoryAllocation);
    assert_int_equal(cudaMalloc(&p, SIZE_MAX), cudaErrorMemoryAllocation);
    assert_int_equal(cudaMalloc3D(&box, (struct cudaExtent){1, SIZE_MAX, SIZE_MAX}),
                     cudaErrorMemoryAllocation);
}

static void wrong_frees_are_refused(void **state)
{
    char *p;
    int local;

    (void)state;
    assert_int_equal(cudaMalloc((void **)&p, 4096), cudaSuccess);
    assert_int_equal(cudaFree(p + 16), cudaErrorInvalidValue);
    assert_int_equal(cudaFree(&local), cudaErrorInvalidValue);
    assert_int_equal(cudaFree(p), cudaSuccess);
    assert_int_equal(cudaFree(p), cudaErrorInvalidValue);
    assert_int_equal(cudaFreeHost(&local), cudaErrorInvalidValue);
}

static void check_kind(const void *p, enum cudaMemoryType type, int device, bool on_host)
{
    struct cudaPointerAttributes found;

    assert_int_equal(cudaPointerGetAttributes(&found, p), cudaSuccess);
    assert_int_equal(found.type, type);
    assert_int_equal(found.device, device);
    assert_ptr_equal(found.devicePointer, type == cudaMemoryTypeUnregistered ? NULL : p);
    assert_ptr_equal(found.hostPointer, on_host ? p : NULL);
}

static void pointers_report_their_kind(void **state)
{
    void *device, *host, *managed;
    int local = 0;

    (void)state;
    assert_int_equal(cudaSetDevice(1), cudaSuccess);
    assert_int_equal(cudaMalloc(&device, 100), cudaSuccess);
    assert_int_equal(cudaHostAlloc(&host, 100, cudaHostAllocMapped), cudaSuccess);
    assert_int_equal(cudaMallocManaged(&managed, 100, cudaMemAttachGlobal), cudaSuccess);
    check_kind(device, cudaMemoryTypeDevice, 1, false);
    check_kind(host, cudaMemoryTypeHost, 1, true);
    check_kind(managed, cudaMemoryTypeManaged, 1, true);
    check_kind(&local, cudaMemoryTypeUnregistered, cudaInvalidDeviceId, true);
    assert_int_equal(cudaPointerGetAttributes(NULL, &local), cudaErrorInvalidValue);
    assert_int_equal(cudaHostAlloc(&host, 100, 0x80), cudaErrorInvalidValue);
    assert_int_equal(cudaFree(device), cudaSuccess);
    assert_int_equal(cudaFree(managed), cudaSuccess);
}

/* ---- the driver behind it ---- */

static void *entry_point(const char *name, unsigned version, unsigned long long flags,
                         enum cudaDriverEntryPointQueryResult *found)
{
    void *function = (void *)found;

    assert_int_equal(cudaGetDriverEntryPointByVersion(name, &function, version, flags, found),
                     cudaSuccess);
    return function;
}

static void entry_points_come_from_the_driver(void **state)
{
    enum cudaDriverEntryPointQueryResult found;
    void *function;

    (void)state;
    function = entry_point("cuMemAlloc", 13000, cudaEnableDefault, &found);
    assert_int_equal(found, cudaDriverEntryPointSuccess);
    assert_ptr_equal(function, dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"));
    assert_ptr_equal(entry_point("cuMemAlloc", 2000, cudaEnableDefault, &found),
                     dlsym(RTLD_DEFAULT, "cuMemAlloc"));
    assert_ptr_equal(
        entry_point("cuMemAllocAsync", 13000, cudaEnablePerThreadDefaultStream, &found),
        dlsym(RTLD_DEFAULT, "cuMemAllocAsync_ptsz"));
    assert_null(entry_point("cuNoSuchCall", 13000, cudaEnableDefault, &found));
    assert_int_equal(found, cudaDriverEntryPointSymbolNotFound);
    assert_int_equal(cudaGetDriverEntryPointByVersion("cuInit", &function, 13000, 77, &found),
                     cudaErrorInvalidValue);
}

static void calls_that_are_not_offered_are_refused(void **state)
{
    (void)state;
    assert_int_equal(cudaDestroyExternalMemory(NULL), cudaErrorNotSupported);
    assert_int_equal(cudaGetLastError(), cudaErrorNotSupported);
}

#define CASE(name) cmocka_unit_test_setup(name, start)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(last_error_is_kept_until_read),
        CASE(last_error_is_the_latest),
        CASE(last_error_belongs_to_a_thread),
        CASE(errors_have_names_and_texts),
        CASE(asking_for_devices_makes_no_context),
        CASE(set_device_initialises_it),
        CASE(init_device_makes_nothing_current),
        CASE(first_call_that_needs_one_makes_the_context),
        CASE(bad_device_leaves_the_device),
        CASE(each_thread_has_its_device),
        CASE(context_of_the_driver_is_used),
        CASE(reset_drops_memory_and_the_next_call_starts_again),
        CASE(reset_by_another_thread_starts_again_here),
        CASE(device_flags_are_kept),
        CASE(peers_can_be_enabled_once),
        CASE(malloc_of_nothing_gives_null),
        CASE(free_of_null_does_nothing),
        CASE(memory_runs_out_with_the_right_code),
        CASE(wrong_frees_are_refused),
        CASE(pointers_report_their_kind),
        CASE(entry_points_come_from_the_driver),
        CASE(calls_that_are_not_offered_are_refused),
    };

    setenv("SIMCUDA_DEVICES", "2", 1);
    setenv("SIMCUDA_MEMORY", "1GiB", 1);
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
