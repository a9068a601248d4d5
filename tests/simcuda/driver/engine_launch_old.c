/* Launches of CUDA 2: block shape, shared memory and parameters are state of the function. */
#define _GNU_SOURCE
#include "tests/simcuda/driver/engine_module.h"

#define PARAMETER_BYTES_MAX 4096u

static CUresult set_state(CUfunction handle, bool is_valid,
                          void (*set)(struct old_launch *, const unsigned *),
                          const unsigned *values)
{
    struct sim_function *function;
    CUresult result = function_check(handle, &function);
    if (result)
        return result;
    if (!is_valid)
        return CUDA_ERROR_INVALID_VALUE;
    engine_lock();
    set(&function->old_launch, values);
    engine_unlock();
    return CUDA_SUCCESS;
}

static void set_block(struct old_launch *launch, const unsigned *values)
{
    for (int i = 0; i < 3; i++)
        launch->block[i] = values[i];
}

static void set_shared(struct old_launch *launch, const unsigned *values)
{
    launch->shared_bytes = *values;
}

SIM_API(cuFuncSetBlockShape, (CUfunction function, int x, int y, int z), (function, x, y, z),
        "%p %d %d %d", (void *)function, x, y, z)
{
    bool is_valid = x > 0 && y > 0 && z > 0 && x <= 1024 && y <= 1024 && z <= 64;
    return set_state(function, is_valid && x * y * z <= 1024, set_block,
                     (const unsigned[]){(unsigned)x, (unsigned)y, (unsigned)z});
}

SIM_API(cuFuncSetSharedSize, (CUfunction function, unsigned int bytes), (function, bytes), "%p %u",
        (void *)function, bytes)
{
    return set_state(function, true, set_shared, &bytes);
}

/* Kernels compute nothing, so values of parameters are checked and not kept. */
static CUresult check_parameter(CUfunction handle, int offset, const void *value, unsigned bytes)
{
    struct sim_function *function;
    CUresult result = function_check(handle, &function);
    if (result)
        return result;
    return !value || offset < 0 || (unsigned)offset > PARAMETER_BYTES_MAX ||
                   bytes > PARAMETER_BYTES_MAX - (unsigned)offset
               ? CUDA_ERROR_INVALID_VALUE
               : CUDA_SUCCESS;
}

SIM_API(cuParamSetSize, (CUfunction function, unsigned int bytes), (function, bytes), "%p %u",
        (void *)function, bytes)
{
    return check_parameter(function, 0, &bytes, bytes);
}

SIM_API(cuParamSeti, (CUfunction function, int offset, unsigned int value),
        (function, offset, value), "%p %d %u", (void *)function, offset, value)
{
    return check_parameter(function, offset, &value, sizeof value);
}

SIM_API(cuParamSetf, (CUfunction function, int offset, float value), (function, offset, value),
        "%p %d %f", (void *)function, offset, (double)value)
{
    return check_parameter(function, offset, &value, sizeof value);
}

SIM_API(cuParamSetv, (CUfunction function, int offset, void *value, unsigned int bytes),
        (function, offset, value, bytes), "%p %d %u", (void *)function, offset, bytes)
{
    return check_parameter(function, offset, value, bytes);
}

/* "texunit must be CU_PARAM_TR_DEFAULT." The driver makes no texture references, so none is valid.
 */
SIM_API(cuParamSetTexRef, (CUfunction function, int unit, CUtexref texture),
        (function, unit, texture), "%p %d %p", (void *)function, unit, (void *)texture)
{
    struct sim_function *function_found;
    CUresult result = function_check(function, &function_found);
    return result ? result : CUDA_ERROR_INVALID_VALUE;
}

/* Without a block shape the launch has none: INVALID_VALUE, as for a block of 0 threads. */
static CUresult launch_old(CUfunction handle, int width, int height, CUstream stream)
{
    struct sim_function *function;
    CUresult result = function_check(handle, &function);
    if (result)
        return result;
    if (width <= 0 || height <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    engine_lock();
    struct old_launch launch = function->old_launch;
    engine_unlock();
    return launch_in_stream(handle, (const unsigned[]){(unsigned)width, (unsigned)height, 1},
                            launch.block, launch.shared_bytes, stream, false);
}

SIM_API(cuLaunch, (CUfunction function), (function), "%p", (void *)function)
{
    return launch_old(function, 1, 1, NULL);
}

SIM_API(cuLaunchGrid, (CUfunction function, int width, int height), (function, width, height),
        "%p %d %d", (void *)function, width, height)
{
    return launch_old(function, width, height, NULL);
}

SIM_API(cuLaunchGridAsync, (CUfunction function, int width, int height, CUstream stream),
        (function, width, height, stream), "%p %d %d %p", (void *)function, width, height,
        (void *)stream)
{
    return launch_old(function, width, height, stream);
}
