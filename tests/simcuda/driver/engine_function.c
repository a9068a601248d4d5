/* Facts about functions: attributes, names, occupancy. */
#define _GNU_SOURCE
#include "tests/simcuda/driver/engine_lazy.h"

#include <string.h>

#define SIM_THREADS_PER_MULTIPROCESSOR 2048
#define SIM_BLOCKS_PER_MULTIPROCESSOR 32
#define SIM_SHARED_PER_MULTIPROCESSOR 233472
#define SIM_SHARED_RESERVED 1024
#define SIM_SHARED_PER_BLOCK 232448
#define SIM_MULTIPROCESSORS 132
#define SIM_BLOCK_THREADS 1024
#define SIM_CLUSTER_BLOCKS 8

/* ---- attributes ---- */

static CUresult get_attribute(int *value, CUfunction_attribute attribute, const void *handle)
{
    struct sim_function *function;
    CUresult result = function_check(handle, &function);
    if (result)
        return result;
    if (!value || (unsigned)attribute >= CU_FUNC_ATTRIBUTE_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    engine_lock();
    *value = function->attributes[attribute];
    engine_unlock();
    return CUDA_SUCCESS;
}

/* Only what a program may choose; the rest belongs to the code. */
static CUresult set_attribute(const void *handle, CUfunction_attribute attribute, int value)
{
    struct sim_function *function;
    CUresult result = function_check(handle, &function);
    if (result)
        return result;
    if (attribute < CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES ||
        attribute >= CU_FUNC_ATTRIBUTE_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES &&
        (value < 0 || value > SIM_SHARED_PER_BLOCK))
        return CUDA_ERROR_INVALID_VALUE;
    if (attribute == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT &&
        (value < -1 || value > 100))
        return CUDA_ERROR_INVALID_VALUE;
    engine_lock();
    function->attributes[attribute] = value;
    engine_unlock();
    return CUDA_SUCCESS;
}

SIM_API(cuFuncGetAttribute, (int *value, CUfunction_attribute attribute, CUfunction function),
        (value, attribute, function), "%d %p", (int)attribute, (void *)function)
{
    return get_attribute(value, attribute, function);
}

SIM_API(cuFuncSetAttribute, (CUfunction function, CUfunction_attribute attribute, int value),
        (function, attribute, value), "%p %d %d", (void *)function, (int)attribute, value)
{
    return set_attribute(function, attribute, value);
}

static CUresult check_config(const void *handle, unsigned config, unsigned largest)
{
    struct sim_function *function;
    CUresult result = function_check(handle, &function);
    if (result)
        return result;
    return config > largest ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

SIM_API(cuFuncSetCacheConfig, (CUfunction function, CUfunc_cache config), (function, config),
        "%p %d", (void *)function, (int)config)
{
    return check_config(function, config, CU_FUNC_CACHE_PREFER_EQUAL);
}

SIM_API(cuFuncSetSharedMemConfig, (CUfunction function, CUsharedconfig config), (function, config),
        "%p %d", (void *)function, (int)config)
{
    return check_config(function, config, CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE);
}

SIM_API(cuFuncGetModule, (CUmodule * module, CUfunction handle), (module, handle), "%p",
        (void *)handle)
{
    struct sim_function *function;
    struct sim_module *found;
    CUresult result = function_check(handle, &function);
    if (result)
        return result;
    if (!module)
        return CUDA_ERROR_INVALID_VALUE;
    found = function->module;
    if (function->library)
        result = library_instance(function->library, &found);
    if (result == CUDA_SUCCESS)
        *module = (CUmodule)found;
    return result;
}

static CUresult get_name(const char **name, const void *handle)
{
    struct sim_function *function;
    CUresult result = function_check(handle, &function);
    /* "If either **name or hfunc is NULL, CUDA_ERROR_INVALID_VALUE is returned." */
    if (result == CUDA_ERROR_INVALID_HANDLE && !handle)
        return CUDA_ERROR_INVALID_VALUE;
    if (result)
        return result;
    if (!name)
        return CUDA_ERROR_INVALID_VALUE;
    *name = function->name;
    return CUDA_SUCCESS;
}

SIM_API(cuFuncGetName, (const char **name, CUfunction function), (name, function), "%p",
        (void *)function)
{
    return get_name(name, function);
}

SIM_API(cuFuncIsLoaded, (CUfunctionLoadingState * state, CUfunction handle), (state, handle), "%p",
        (void *)handle)
{
    struct sim_function *function;
    CUresult result = function_check(handle, &function);
    if (result)
        return result;
    if (!state)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_module *module = function->module;
    if (function->library)
        result = library_instance(function->library, &module);
    if (result)
        return result;
    *state = lazy_is_loaded(module) ? CU_FUNCTION_LOADING_STATE_LOADED
                                    : CU_FUNCTION_LOADING_STATE_UNLOADED;
    return CUDA_SUCCESS;
}

SIM_API(cuFuncLoad, (CUfunction handle), (handle), "%p", (void *)handle)
{
    struct sim_function *function;
    CUresult result = function_check(handle, &function);
    return result ? result : function_load(function);
}

SIM_API(cuKernelGetAttribute,
        (int *value, CUfunction_attribute attribute, CUkernel kernel, CUdevice device),
        (value, attribute, kernel, device), "%d %p %d", (int)attribute, (void *)kernel, device)
{
    return get_attribute(value, attribute, kernel);
}

SIM_API(cuKernelSetAttribute,
        (CUfunction_attribute attribute, int value, CUkernel kernel, CUdevice device),
        (attribute, value, kernel, device), "%p %d %d %d", (void *)kernel, (int)attribute, value,
        device)
{
    return set_attribute(kernel, attribute, value);
}

SIM_API(cuKernelSetCacheConfig, (CUkernel kernel, CUfunc_cache config, CUdevice device),
        (kernel, config, device), "%p %d %d", (void *)kernel, (int)config, device)
{
    return check_config(kernel, config, CU_FUNC_CACHE_PREFER_EQUAL);
}

SIM_API(cuKernelGetName, (const char **name, CUkernel kernel), (name, kernel), "%p", (void *)kernel)
{
    return get_name(name, kernel);
}

/* ---- occupancy: threads, blocks and shared memory of one multiprocessor ---- */

static CUresult active_blocks(int *blocks, CUfunction handle, int block_threads,
                              size_t shared_bytes)
{
    struct sim_function *function;
    CUresult result = function_check(handle, &function);
    if (result)
        return result;
    if (!blocks || block_threads <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    int warps_threads = (block_threads + 31) / 32 * 32;
    size_t by_shared = SIM_SHARED_PER_MULTIPROCESSOR / (shared_bytes + SIM_SHARED_RESERVED);
    int count = SIM_THREADS_PER_MULTIPROCESSOR / warps_threads;
    if (count > SIM_BLOCKS_PER_MULTIPROCESSOR)
        count = SIM_BLOCKS_PER_MULTIPROCESSOR;
    if ((size_t)count > by_shared)
        count = (int)by_shared;
    *blocks = block_threads > SIM_BLOCK_THREADS ? 0 : count;
    return CUDA_SUCCESS;
}

SIM_API(cuOccupancyMaxActiveBlocksPerMultiprocessor,
        (int *blocks, CUfunction function, int block_threads, size_t shared_bytes),
        (blocks, function, block_threads, shared_bytes), "%p %d %zu", (void *)function,
        block_threads, shared_bytes)
{
    return active_blocks(blocks, function, block_threads, shared_bytes);
}

SIM_API(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,
        (int *blocks, CUfunction function, int block_threads, size_t shared_bytes,
         unsigned int flags),
        (blocks, function, block_threads, shared_bytes, flags), "%p %d %zu %u", (void *)function,
        block_threads, shared_bytes, flags)
{
    return active_blocks(blocks, function, block_threads, shared_bytes);
}

static CUresult best_block(int *grid, int *block, CUfunction function, CUoccupancyB2DSize shared_of,
                           size_t shared, int limit)
{
    int best_threads = 0, blocks = 0;
    CUresult result = CUDA_SUCCESS;

    if (!grid || !block)
        return CUDA_ERROR_INVALID_VALUE;
    *block = 0;
    *grid = 0;
    for (int threads = limit > 0 && limit < SIM_BLOCK_THREADS ? limit : SIM_BLOCK_THREADS;
         threads > 0; threads = (threads - 1) / 32 * 32) {
        result = active_blocks(&blocks, function, threads, shared_of ? shared_of(threads) : shared);
        if (result)
            return result;
        if (blocks * threads > best_threads) {
            best_threads = blocks * threads;
            *block = threads;
            *grid = blocks * SIM_MULTIPROCESSORS;
        }
    }
    return result;
}

SIM_API(cuOccupancyMaxPotentialBlockSize,
        (int *grid, int *block, CUfunction function, CUoccupancyB2DSize shared_of, size_t shared,
         int limit),
        (grid, block, function, shared_of, shared, limit), "%p %zu %d", (void *)function, shared,
        limit)
{
    return best_block(grid, block, function, shared_of, shared, limit);
}

SIM_API(cuOccupancyMaxPotentialBlockSizeWithFlags,
        (int *grid, int *block, CUfunction function, CUoccupancyB2DSize shared_of, size_t shared,
         int limit, unsigned int flags),
        (grid, block, function, shared_of, shared, limit, flags), "%p %zu %d %u", (void *)function,
        shared, limit, flags)
{
    return best_block(grid, block, function, shared_of, shared, limit);
}

SIM_API(cuOccupancyAvailableDynamicSMemPerBlock,
        (size_t * shared_bytes, CUfunction handle, int blocks, int block_threads),
        (shared_bytes, handle, blocks, block_threads), "%p %d %d", (void *)handle, blocks,
        block_threads)
{
    struct sim_function *function;
    CUresult result = function_check(handle, &function);
    if (result)
        return result;
    if (!shared_bytes || blocks <= 0 || block_threads <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    size_t each = SIM_SHARED_PER_MULTIPROCESSOR / (size_t)blocks;
    each = each > SIM_SHARED_RESERVED ? each - SIM_SHARED_RESERVED : 0;
    *shared_bytes = each < SIM_SHARED_PER_BLOCK ? each : SIM_SHARED_PER_BLOCK;
    return CUDA_SUCCESS;
}

SIM_API(cuOccupancyMaxPotentialClusterSize,
        (int *blocks, CUfunction handle, const CUlaunchConfig *config), (blocks, handle, config),
        "%p", (void *)handle)
{
    struct sim_function *function;
    CUresult result = function_check(handle, &function);
    if (result)
        return result;
    if (!blocks || !config)
        return CUDA_ERROR_INVALID_VALUE;
    *blocks = SIM_CLUSTER_BLOCKS;
    return CUDA_SUCCESS;
}

SIM_API(cuOccupancyMaxActiveClusters,
        (int *clusters, CUfunction handle, const CUlaunchConfig *config),
        (clusters, handle, config), "%p", (void *)handle)
{
    int blocks;
    if (!clusters || !config)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = active_blocks(
        &blocks, handle, (int)(config->blockDimX * config->blockDimY * config->blockDimZ),
        config->sharedMemBytes);
    if (result == CUDA_SUCCESS)
        *clusters = blocks * SIM_MULTIPROCESSORS / SIM_CLUSTER_BLOCKS;
    return result;
}
