/* The settings of a context: limits, flags, cache preferences; and calls about a context that need
 * no more. */
#define _GNU_SOURCE
#include "tests/simcuda/driver/engine_lazy.h"

#include <string.h>

SIM_API(cuCtxGetDevice, (CUdevice * device), (device), "%p", (void *)device)
{
    struct sim_context *context;
    CUresult result = sim_current(&context);
    if (result)
        return result;
    if (!device)
        return CUDA_ERROR_INVALID_VALUE;
    *device = context->device->ordinal;
    return CUDA_SUCCESS;
}

/* A NULL context is the current one. */
static CUresult given_or_current(CUcontext handle, struct sim_context **context)
{
    if (!handle)
        return sim_current(context);
    CUresult result = sim_check_init();
    return result ? result : sim_context_check(handle, context);
}

SIM_API(cuCtxGetDevice_v2, (CUdevice * device, CUcontext handle), (device, handle), "%p",
        (void *)handle)
{
    struct sim_context *context;
    CUresult result = given_or_current(handle, &context);
    if (result)
        return result;
    if (!device)
        return CUDA_ERROR_INVALID_VALUE;
    *device = context->device->ordinal;
    return CUDA_SUCCESS;
}

SIM_API(cuCtxGetFlags, (unsigned int *flags), (flags), "%p", (void *)flags)
{
    struct sim_context *context;
    CUresult result = sim_current(&context);
    if (result)
        return result;
    if (!flags)
        return CUDA_ERROR_INVALID_VALUE;
    engine_lock();
    *flags = sim_context_root(context)->flags;
    engine_unlock();
    return CUDA_SUCCESS;
}

SIM_API(cuCtxSetFlags, (unsigned int flags), (flags), "%u", flags)
{
    struct sim_context *context;
    CUresult result = sim_current(&context);
    if (result)
        return result;
    if (flags & ~(unsigned)CU_CTX_FLAGS_MASK)
        return CUDA_ERROR_INVALID_VALUE;
    engine_lock();
    sim_context_root(context)->flags = flags;
    engine_unlock();
    return CUDA_SUCCESS;
}

bool sim_context_is_synchronous(struct sim_context *context)
{
    engine_lock();
    bool is_synchronous = (sim_context_root(context)->flags & CU_CTX_SYNC_MEMOPS) != 0;
    engine_unlock();
    return is_synchronous;
}

SIM_API(cuCtxGetId, (CUcontext handle, unsigned long long *id), (handle, id), "%p", (void *)handle)
{
    struct sim_context *context;
    CUresult result = given_or_current(handle, &context);
    if (result)
        return result;
    if (!id)
        return CUDA_ERROR_INVALID_VALUE;
    *id = atomic_load(&context->id);
    return CUDA_SUCCESS;
}

SIM_API(cuCtxGetApiVersion, (CUcontext handle, unsigned int *version), (handle, version), "%p",
        (void *)handle)
{
    struct sim_context *context;
    CUresult result = given_or_current(handle, &context);
    if (result)
        return result;
    if (!version)
        return CUDA_ERROR_INVALID_VALUE;
    *version = context->engine->api_version;
    return CUDA_SUCCESS;
}

static bool is_limit(CUlimit limit)
{
    return (unsigned)limit <= CU_LIMIT_PERSISTING_L2_CACHE_SIZE;
}

SIM_API(cuCtxGetLimit, (size_t * value, CUlimit limit), (value, limit), "%d", (int)limit)
{
    struct sim_context *context;
    CUresult result = sim_current(&context);
    if (result)
        return result;
    if (!value)
        return CUDA_ERROR_INVALID_VALUE;
    if (!is_limit(limit))
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    engine_lock();
    *value = context->engine->limits[limit];
    engine_unlock();
    return CUDA_SUCCESS;
}

SIM_API(cuCtxSetLimit, (CUlimit limit, size_t value), (limit, value), "%d %zu", (int)limit, value)
{
    struct sim_context *context;
    CUresult result = sim_current(&context);
    if (result)
        return result;
    if (!is_limit(limit))
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    /* "an invalid value is clamped": fetch granularity is at most 128 bytes */
    if (limit == CU_LIMIT_MAX_L2_FETCH_GRANULARITY && value > 128)
        value = 128;
    result = lazy_set_limit(context, limit, value);
    if (result)
        return result;
    engine_lock();
    context->engine->limits[limit] = value;
    engine_unlock();
    return CUDA_SUCCESS;
}

SIM_API(cuCtxGetCacheConfig, (CUfunc_cache * config), (config), "%p", (void *)config)
{
    struct sim_context *context;
    CUresult result = sim_current(&context);
    if (result)
        return result;
    if (!config)
        return CUDA_ERROR_INVALID_VALUE;
    *config = context->engine->cache_config;
    return CUDA_SUCCESS;
}

SIM_API(cuCtxSetCacheConfig, (CUfunc_cache config), (config), "%d", (int)config)
{
    struct sim_context *context;
    CUresult result = sim_current(&context);
    if (result)
        return result;
    if ((unsigned)config > CU_FUNC_CACHE_PREFER_EQUAL)
        return CUDA_ERROR_INVALID_VALUE;
    context->engine->cache_config = config;
    return CUDA_SUCCESS;
}

SIM_API(cuCtxGetSharedMemConfig, (CUsharedconfig * config), (config), "%p", (void *)config)
{
    struct sim_context *context;
    CUresult result = sim_current(&context);
    if (result)
        return result;
    if (!config)
        return CUDA_ERROR_INVALID_VALUE;
    *config = context->engine->shared_config;
    return CUDA_SUCCESS;
}

SIM_API(cuCtxSetSharedMemConfig, (CUsharedconfig config), (config), "%d", (int)config)
{
    struct sim_context *context;
    CUresult result = sim_current(&context);
    if (result)
        return result;
    if ((unsigned)config > CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE)
        return CUDA_ERROR_INVALID_VALUE;
    context->engine->shared_config = config;
    return CUDA_SUCCESS;
}

SIM_API(cuCtxResetPersistingL2Cache, (void), (), " ")
{
    struct sim_context *context;
    return sim_current(&context);
}

SIM_API(cuFlushGPUDirectRDMAWrites,
        (CUflushGPUDirectRDMAWritesTarget target, CUflushGPUDirectRDMAWritesScope scope),
        (target, scope), "%d %d", (int)target, (int)scope)
{
    struct sim_context *context;
    CUresult result = sim_current(&context);
    return result ? result : CUDA_ERROR_NOT_SUPPORTED; /* the device has no GPUDirect RDMA */
}

/* The profiler is not there; its calls do nothing. */
SIM_API(cuProfilerStart, (void), (), " ")
{
    struct sim_context *context;
    return sim_current(&context);
}

SIM_API(cuProfilerStop, (void), (), " ")
{
    struct sim_context *context;
    return sim_current(&context);
}

/* NVIDIA's private tables are not imitated. */
SIM_API(cuGetExportTable, (const void **table, const CUuuid *id), (table, id), "%p",
        (const void *)id)
{
    if (table)
        *table = NULL;
    return CUDA_ERROR_NOT_FOUND;
}
