/* Devices of threads and the primary contexts behind them.
 *
 * Each thread has a device (0 at first) and, once a call needs one, a current context: the one the
 * program made current through the driver API if any, else the primary context of the thread's
 * device. A primary context is retained once per process, at the first need; cudaSetDevice is such
 * a need (since CUDA 12). A reset releases it, and any thread that still has it current retains it
 * again at its next call. */
#include "runtime.h"

#include <pthread.h>
#include <stdatomic.h>

#define DEVICES_MAX 64

static struct {
    pthread_mutex_t lock; /* guards the rest */
    struct {
        CUcontext
            context; /* the handle, kept after a reset so that a stale current context is known */
        bool is_retained;
    } primary[DEVICES_MAX];
} contexts = {.lock = PTHREAD_MUTEX_INITIALIZER};

static _Thread_local int thread_device;
static atomic_bool is_unloading;

__attribute__((destructor)) static void unload(void)
{
    atomic_store_explicit(&is_unloading, true, memory_order_relaxed);
}

cudaError_t rt_enter_nothing(void)
{
    return cudaSuccess;
}

cudaError_t rt_enter_driver(void)
{
    if (atomic_load_explicit(&is_unloading, memory_order_relaxed))
        return cudaErrorCudartUnloading;
    return rt_driver_load();
}

int rt_device(void)
{
    return thread_device;
}

/* How many there are does not change: the driver is asked once. */
static cudaError_t count_devices(int *count)
{
    static atomic_int known; /* 0: not asked yet */

    *count = atomic_load_explicit(&known, memory_order_relaxed);
    if (*count == 0) {
        RT_TRY_CU(rt_cu.cuDeviceGetCount(count));
        atomic_store_explicit(&known, *count, memory_order_relaxed);
    }
    return *count ? cudaSuccess : cudaErrorNoDevice;
}

cudaError_t rt_check_device(int device)
{
    int count = 0;

    RT_TRY(count_devices(&count));
    return device >= 0 && device < count && device < DEVICES_MAX ? cudaSuccess
                                                                 : cudaErrorInvalidDevice;
}

cudaError_t rt_primary(int device, CUcontext *context)
{
    CUresult result = CUDA_SUCCESS;

    RT_TRY(rt_check_device(device));
    pthread_mutex_lock(&contexts.lock);
    if (!contexts.primary[device].is_retained) {
        result = rt_cu.cuDevicePrimaryCtxRetain(&contexts.primary[device].context, device);
        contexts.primary[device].is_retained = result == CUDA_SUCCESS;
    }
    *context = contexts.primary[device].context;
    pthread_mutex_unlock(&contexts.lock);
    return rt_result(result);
}

/* Whether a current context is a primary one that was reset. */
static bool is_stale(CUcontext context)
{
    bool stale = false;

    pthread_mutex_lock(&contexts.lock);
    for (int i = 0; i < DEVICES_MAX; i++)
        if (contexts.primary[i].context == context && !contexts.primary[i].is_retained)
            stale = true;
    pthread_mutex_unlock(&contexts.lock);
    return stale;
}

static cudaError_t make_primary_current(int device)
{
    CUcontext context;

    RT_TRY(rt_primary(device, &context));
    return rt_result(rt_cu.cuCtxSetCurrent(context));
}

cudaError_t rt_enter_context(void)
{
    CUcontext context = NULL;

    RT_TRY(rt_enter_driver());
    RT_TRY_CU(rt_cu.cuCtxGetCurrent(&context));
    if (context && !is_stale(context))
        return cudaSuccess;
    return make_primary_current(thread_device);
}

/* The device that calls of this thread act on: the current context's, else the thread's own. */
static cudaError_t effective_device(int *device)
{
    CUcontext context = NULL;

    RT_TRY_CU(rt_cu.cuCtxGetCurrent(&context));
    if (!context || is_stale(context)) {
        *device = thread_device;
        return cudaSuccess;
    }
    return rt_result(rt_cu.cuCtxGetDevice(device));
}

RT_API(driver, cudaGetDeviceCount, (int *count), (count))
{
    if (!count)
        return cudaErrorInvalidValue;
    return count_devices(count);
}

RT_API(driver, cudaSetDevice, (int device), (device))
{
    RT_TRY(rt_check_device(device));
    RT_TRY(make_primary_current(device));
    thread_device = device;
    return cudaSuccess;
}

RT_API(driver, cudaGetDevice, (int *device), (device))
{
    return device ? effective_device(device) : cudaErrorInvalidValue;
}

static cudaError_t set_flags(int device, unsigned flags)
{
    if (flags & ~(unsigned)cudaDeviceMask)
        return cudaErrorInvalidValue;
    /* Host memory is always mapped on devices with unified addressing: the driver need not know.
     */
    return rt_result(
        rt_cu.cuDevicePrimaryCtxSetFlags_v2(device, flags & ~(unsigned)cudaDeviceMapHost));
}

RT_API(driver, cudaInitDevice, (int device, unsigned deviceFlags, unsigned flags),
       (device, deviceFlags, flags))
{
    CUcontext context;

    if (flags & ~(unsigned)cudaInitDeviceFlagsAreValid)
        return cudaErrorInvalidValue;
    RT_TRY(rt_check_device(device));
    if (flags & cudaInitDeviceFlagsAreValid)
        RT_TRY(set_flags(device, deviceFlags));
    return rt_primary(device, &context);
}

RT_API(driver, cudaSetDeviceFlags, (unsigned flags), (flags))
{
    int device;

    RT_TRY(effective_device(&device));
    return set_flags(device, flags);
}

RT_API(driver, cudaGetDeviceFlags, (unsigned *flags), (flags))
{
    int device, is_active;

    if (!flags)
        return cudaErrorInvalidValue;
    RT_TRY(effective_device(&device));
    RT_TRY_CU(rt_cu.cuDevicePrimaryCtxGetState(device, flags, &is_active));
    *flags |= cudaDeviceMapHost;
    return cudaSuccess;
}

RT_API_VOID(driver, cudaDeviceReset)
{
    int device;
    CUresult result;

    RT_TRY(effective_device(&device));
    pthread_mutex_lock(&contexts.lock);
    result = rt_cu.cuDevicePrimaryCtxReset(device);
    if (result == CUDA_SUCCESS && device < DEVICES_MAX)
        contexts.primary[device].is_retained = false;
    pthread_mutex_unlock(&contexts.lock);
    RT_TRY_CU(result);
    rt_forget_error();
    return rt_result(rt_cu.cuCtxSetCurrent(NULL));
}

RT_API_VOID(context, cudaDeviceSynchronize)
{
    return rt_result(rt_cu.cuCtxSynchronize());
}

RT_API(context, cudaDeviceGetLimit, (size_t * value, enum cudaLimit limit), (value, limit))
{
    return value ? rt_result(rt_cu.cuCtxGetLimit(value, (CUlimit)limit)) : cudaErrorInvalidValue;
}

RT_API(context, cudaDeviceSetLimit, (enum cudaLimit limit, size_t value), (limit, value))
{
    return rt_result(rt_cu.cuCtxSetLimit((CUlimit)limit, value));
}

RT_API(context, cudaDeviceGetCacheConfig, (enum cudaFuncCache * config), (config))
{
    CUfunc_cache cache;

    if (!config)
        return cudaErrorInvalidValue;
    RT_TRY_CU(rt_cu.cuCtxGetCacheConfig(&cache));
    *config = (enum cudaFuncCache)cache;
    return cudaSuccess;
}

RT_API(context, cudaDeviceSetCacheConfig, (enum cudaFuncCache config), (config))
{
    return rt_result(rt_cu.cuCtxSetCacheConfig((CUfunc_cache)config));
}

RT_API(context, cudaDeviceGetStreamPriorityRange, (int *least, int *greatest), (least, greatest))
{
    return rt_result(rt_cu.cuCtxGetStreamPriorityRange(least, greatest));
}

RT_API_VOID(context, cudaCtxResetPersistingL2Cache)
{
    return rt_result(rt_cu.cuCtxResetPersistingL2Cache());
}

/* ---- peers ---- */

RT_API(driver, cudaDeviceCanAccessPeer, (int *can, int device, int peer), (can, device, peer))
{
    if (!can)
        return cudaErrorInvalidValue;
    RT_TRY(rt_check_device(device));
    RT_TRY(rt_check_device(peer));
    return rt_result(rt_cu.cuDeviceCanAccessPeer(can, device, peer));
}

static cudaError_t peer_context(int peer, CUcontext *context)
{
    int device;

    RT_TRY(rt_check_device(peer));
    RT_TRY(effective_device(&device));
    return peer == device ? cudaErrorInvalidDevice : rt_primary(peer, context);
}

RT_API(context, cudaDeviceEnablePeerAccess, (int peer, unsigned flags), (peer, flags))
{
    CUcontext context;

    if (flags)
        return cudaErrorInvalidValue;
    RT_TRY(peer_context(peer, &context));
    return rt_result(rt_cu.cuCtxEnablePeerAccess(context, 0));
}

RT_API(context, cudaDeviceDisablePeerAccess, (int peer), (peer))
{
    CUcontext context;

    RT_TRY(peer_context(peer, &context));
    return rt_result(rt_cu.cuCtxDisablePeerAccess(context));
}
