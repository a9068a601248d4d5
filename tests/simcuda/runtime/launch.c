/* Launches, what a function is like, and occupancy. */
#include "runtime.h"

#include <string.h>

#include "stubs.h"

/* ---- <<<…>>>: the configuration is pushed, the arguments evaluated, and the stub pops it ---- */

/* An argument may itself launch, so configurations nest. */
#define CONFIGURATIONS_MAX 32

struct configuration {
    dim3 grid;
    dim3 block;
    size_t shared_bytes;
    void *stream;
};

static _Thread_local struct {
    unsigned count;
    struct configuration top[CONFIGURATIONS_MAX];
} configurations;

/* 0 if it was pushed; else the stub is not called. */
RT_EXPORT unsigned __cudaPushCallConfiguration(dim3 gridDim, dim3 blockDim, size_t sharedMem,
                                               void *stream)
{
    if (configurations.count == CONFIGURATIONS_MAX)
        return 1;
    configurations.top[configurations.count++] =
        (struct configuration){gridDim, blockDim, sharedMem, stream};
    return 0;
}

RT_EXPORT cudaError_t __cudaPopCallConfiguration(dim3 *gridDim, dim3 *blockDim, size_t *sharedMem,
                                                 void *stream)
{
    const struct configuration *top;

    if (configurations.count == 0)
        return rt_end(cudaErrorMissingConfiguration);
    top = &configurations.top[--configurations.count];
    *gridDim = top->grid;
    *blockDim = top->block;
    *sharedMem = top->shared_bytes;
    memcpy(stream, &top->stream, sizeof(top->stream));
    return cudaSuccess;
}

/* ---- launches ---- */

static bool is_too_large(dim3 block)
{
    int device, limit = 0;

    if (rt_cu.cuCtxGetDevice(&device) != CUDA_SUCCESS ||
        rt_cu.cuDeviceGetAttribute(&limit, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, device) !=
            CUDA_SUCCESS)
        return false;
    return (uint64_t)block.x * block.y * block.z > (uint64_t)limit;
}

/* The driver calls a bad grid or block an invalid value; the runtime has its own code for it. */
static cudaError_t launch_result(CUresult result, dim3 block)
{
    if (result == CUDA_ERROR_INVALID_VALUE && is_too_large(block))
        return cudaErrorInvalidConfiguration;
    return rt_result(result);
}

static bool is_configured(dim3 grid, dim3 block)
{
    return grid.x && grid.y && grid.z && block.x && block.y && block.z;
}

static cudaError_t launch(bool per_thread, CUkernel kernel, dim3 grid, dim3 block, void **args,
                          size_t shared, cudaStream_t stream)
{
    if (!kernel)
        return cudaErrorInvalidDeviceFunction;
    if (!is_configured(grid, block))
        return cudaErrorInvalidConfiguration;
    return launch_result(RT_PICK(cuLaunchKernel, ptsz)((CUfunction)kernel, grid.x, grid.y, grid.z,
                                                       block.x, block.y, block.z, (unsigned)shared,
                                                       stream, args, NULL),
                         block);
}

RT_API_PT(context, cudaLaunchKernel, ptsz,
          (const void *func, dim3 gridDim, dim3 blockDim, void **args, size_t sharedMem,
           cudaStream_t stream),
          (func, gridDim, blockDim, args, sharedMem, stream))
{
    CUkernel kernel;

    RT_TRY(rt_kernel_find(func, &kernel));
    return launch(per_thread, kernel, gridDim, blockDim, args, sharedMem, stream);
}

RT_API_PT(context, __cudaLaunchKernel, ptsz,
          (cudaKernel_t kernel, dim3 gridDim, dim3 blockDim, void **args, size_t sharedMem,
           cudaStream_t stream),
          (kernel, gridDim, blockDim, args, sharedMem, stream))
{
    return launch(per_thread, kernel, gridDim, blockDim, args, sharedMem, stream);
}

RT_API_PT(context, cudaLaunchCooperativeKernel, ptsz,
          (const void *func, dim3 gridDim, dim3 blockDim, void **args, size_t sharedMem,
           cudaStream_t stream),
          (func, gridDim, blockDim, args, sharedMem, stream))
{
    CUkernel kernel;

    RT_TRY(rt_kernel_find(func, &kernel));
    if (!is_configured(gridDim, blockDim))
        return cudaErrorInvalidConfiguration;
    return launch_result(RT_PICK(cuLaunchCooperativeKernel, ptsz)(
                             (CUfunction)kernel, gridDim.x, gridDim.y, gridDim.z, blockDim.x,
                             blockDim.y, blockDim.z, (unsigned)sharedMem, stream, args),
                         blockDim);
}

_Static_assert(sizeof(cudaLaunchAttribute) == sizeof(CUlaunchAttribute),
               "launch attributes are passed on");

static CUlaunchConfig driver_config(const cudaLaunchConfig_t *config)
{
    return (CUlaunchConfig){
        .gridDimX = config->gridDim.x,
        .gridDimY = config->gridDim.y,
        .gridDimZ = config->gridDim.z,
        .blockDimX = config->blockDim.x,
        .blockDimY = config->blockDim.y,
        .blockDimZ = config->blockDim.z,
        .sharedMemBytes = (unsigned)config->dynamicSmemBytes,
        .hStream = config->stream,
        .attrs = (CUlaunchAttribute *)config->attrs,
        .numAttrs = config->numAttrs,
    };
}

RT_API_PT(context, cudaLaunchKernelExC, ptsz,
          (const cudaLaunchConfig_t *config, const void *func, void **args), (config, func, args))
{
    CUkernel kernel;
    CUlaunchConfig same;

    if (!config)
        return cudaErrorInvalidConfiguration;
    RT_TRY(rt_kernel_find(func, &kernel));
    if (!is_configured(config->gridDim, config->blockDim))
        return cudaErrorInvalidConfiguration;
    same = driver_config(config);
    return launch_result(RT_PICK(cuLaunchKernelEx, ptsz)(&same, (CUfunction)kernel, args, NULL),
                         config->blockDim);
}

/* ---- what a function is like ---- */

static cudaError_t current_device(CUdevice *device)
{
    return rt_result(rt_cu.cuCtxGetDevice(device));
}

RT_API(context, cudaFuncGetAttributes, (struct cudaFuncAttributes * attr, const void *func),
       (attr, func))
{
    CUkernel kernel;
    CUdevice device;
    int shared = 0, constant = 0, local = 0;

    if (!attr)
        return cudaErrorInvalidValue;
    RT_TRY(rt_kernel_find(func, &kernel));
    RT_TRY(current_device(&device));
    memset(attr, 0, sizeof(*attr));

    const struct {
        CUfunction_attribute name;
        int *value;
    } wanted[] = {
        {CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, &shared},
        {CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES, &constant},
        {CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, &local},
        {CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, &attr->maxThreadsPerBlock},
        {CU_FUNC_ATTRIBUTE_NUM_REGS, &attr->numRegs},
        {CU_FUNC_ATTRIBUTE_PTX_VERSION, &attr->ptxVersion},
        {CU_FUNC_ATTRIBUTE_BINARY_VERSION, &attr->binaryVersion},
        {CU_FUNC_ATTRIBUTE_CACHE_MODE_CA, &attr->cacheModeCA},
        {CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, &attr->maxDynamicSharedSizeBytes},
        {CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, &attr->preferredShmemCarveout},
    };
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++)
        RT_TRY_CU(rt_cu.cuKernelGetAttribute(wanted[i].value, wanted[i].name, kernel, device));
    attr->sharedSizeBytes = (size_t)shared;
    attr->constSizeBytes = (size_t)constant;
    attr->localSizeBytes = (size_t)local;
    return cudaSuccess;
}

/* The runtime's settable attributes have the driver's numbers. */
static bool is_settable(enum cudaFuncAttribute attr)
{
    return attr >= cudaFuncAttributeMaxDynamicSharedMemorySize && attr < cudaFuncAttributeMax;
}

RT_API(context, cudaFuncSetAttribute, (const void *func, enum cudaFuncAttribute attr, int value),
       (func, attr, value))
{
    CUkernel kernel;
    CUdevice device;

    RT_TRY(rt_kernel_find(func, &kernel));
    if (!is_settable(attr))
        return cudaErrorInvalidValue;
    RT_TRY(current_device(&device));
    return rt_result(rt_cu.cuKernelSetAttribute((CUfunction_attribute)attr, value, kernel, device));
}

RT_API(context, cudaKernelSetAttributeForDevice,
       (cudaKernel_t kernel, enum cudaFuncAttribute attr, int value, int device),
       (kernel, attr, value, device))
{
    if (!is_settable(attr))
        return cudaErrorInvalidValue;
    RT_TRY(rt_check_device(device));
    return rt_result(rt_cu.cuKernelSetAttribute((CUfunction_attribute)attr, value, kernel, device));
}

RT_API(context, cudaFuncSetCacheConfig, (const void *func, enum cudaFuncCache config),
       (func, config))
{
    CUkernel kernel;
    CUdevice device;

    RT_TRY(rt_kernel_find(func, &kernel));
    RT_TRY(current_device(&device));
    return rt_result(rt_cu.cuKernelSetCacheConfig(kernel, (CUfunc_cache)config, device));
}

RT_API(context, cudaFuncGetName, (const char **name, const void *func), (name, func))
{
    CUkernel kernel;

    if (!name)
        return cudaErrorInvalidValue;
    RT_TRY(rt_kernel_find(func, &kernel));
    return rt_result(rt_cu.cuKernelGetName(name, kernel));
}

RT_API(context, cudaFuncGetParamInfo,
       (const void *func, size_t index, size_t *offset, size_t *size), (func, index, offset, size))
{
    CUkernel kernel;

    RT_TRY(rt_kernel_find(func, &kernel));
    return rt_result(rt_cu.cuKernelGetParamInfo(kernel, index, offset, size));
}

/* ---- occupancy ---- */

static cudaError_t occupancy(int *blocks, const void *func, int block, size_t shared,
                             unsigned flags)
{
    CUkernel kernel;

    if (!blocks)
        return cudaErrorInvalidValue;
    RT_TRY(rt_kernel_find(func, &kernel));
    return rt_result(rt_cu.cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        blocks, (CUfunction)kernel, block, shared, flags));
}

RT_API(context, cudaOccupancyMaxActiveBlocksPerMultiprocessor,
       (int *blocks, const void *func, int blockSize, size_t shared),
       (blocks, func, blockSize, shared))
{
    return occupancy(blocks, func, blockSize, shared, CU_OCCUPANCY_DEFAULT);
}

RT_API(context, cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,
       (int *blocks, const void *func, int blockSize, size_t shared, unsigned flags),
       (blocks, func, blockSize, shared, flags))
{
    return occupancy(blocks, func, blockSize, shared, flags);
}

RT_API(context, cudaOccupancyAvailableDynamicSMemPerBlock,
       (size_t * bytes, const void *func, int numBlocks, int blockSize),
       (bytes, func, numBlocks, blockSize))
{
    CUkernel kernel;

    RT_TRY(rt_kernel_find(func, &kernel));
    return rt_result(rt_cu.cuOccupancyAvailableDynamicSMemPerBlock(bytes, (CUfunction)kernel,
                                                                   numBlocks, blockSize));
}

RT_API(context, cudaOccupancyMaxPotentialClusterSize,
       (int *size, const void *func, const cudaLaunchConfig_t *config), (size, func, config))
{
    CUkernel kernel;
    CUlaunchConfig same;

    if (!config)
        return cudaErrorInvalidValue;
    RT_TRY(rt_kernel_find(func, &kernel));
    same = driver_config(config);
    return rt_result(rt_cu.cuOccupancyMaxPotentialClusterSize(size, (CUfunction)kernel, &same));
}

RT_API(context, cudaOccupancyMaxActiveClusters,
       (int *count, const void *func, const cudaLaunchConfig_t *config), (count, func, config))
{
    CUkernel kernel;
    CUlaunchConfig same;

    if (!config)
        return cudaErrorInvalidValue;
    RT_TRY(rt_kernel_find(func, &kernel));
    same = driver_config(config);
    return rt_result(rt_cu.cuOccupancyMaxActiveClusters(count, (CUfunction)kernel, &same));
}
