/* Work that a program submits: kernels, host functions, callbacks. */
#define _GNU_SOURCE
#include "tests/simcuda/driver/engine_graph.h"
#include "tests/simcuda/driver/engine_module.h"
#include "tests/simcuda/driver/settings.h"

#include <stdlib.h>
#include <string.h>

#define SIM_MAX_BLOCK_THREADS 1024u
#define SIM_MAX_SHARED_BYTES 232448u

/* ---- kernels ---- */

CUresult launch_check(CUfunction handle, const unsigned grid[3], const unsigned block[3],
                      unsigned shared_bytes)
{
    struct sim_function *function;
    CUresult result = function_check(handle, &function);

    if (result)
        return result;
    for (int i = 0; i < 3; i++)
        if (grid[i] == 0 || block[i] == 0)
            return CUDA_ERROR_INVALID_VALUE;
    if (grid[0] > INT32_MAX || grid[1] > UINT16_MAX || grid[2] > UINT16_MAX || block[0] > 1024 ||
        block[1] > 1024 || block[2] > 64 ||
        (uint64_t)block[0] * block[1] * block[2] > SIM_MAX_BLOCK_THREADS ||
        shared_bytes > SIM_MAX_SHARED_BYTES)
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

static CUresult run_kernel(struct sim_context *context, void *argument)
{
    (void)context;
    stream_spend_us(*(const uint64_t *)argument);
    return CUDA_SUCCESS;
}

/* The time belongs to the settings, for good. */
static void *share_time(const void *argument)
{
    return (void *)(uintptr_t)argument;
}

struct graph_work kernel_work(const struct sim_function *function)
{
    const struct sim_private_settings *settings = sim_private_settings();
    struct graph_work work = {.type = CU_GRAPH_NODE_TYPE_KERNEL};

    for (size_t i = 0; function && i < settings->kernel_count; i++)
        if (strcmp(settings->kernels[i].name, function->name) == 0) {
            work.op.run = run_kernel;
            work.op.argument = &settings->kernels[i].work_us;
            work.copy = share_time;
        }
    return work;
}

/* As sim_submit; where it is captured, its node has the parameters. */
static CUresult submit_with(struct sim_stream *stream, struct graph_work work)
{
    bool taken = false;

    engine_lock();
    CUresult result = capture_check_use_locked(stream);
    if (result == CUDA_SUCCESS && stream->capture) {
        taken = true;
        result = capture_add_locked(stream, work);
    } else if (result == CUDA_SUCCESS) {
        result = stream_queue_locked(stream, &(struct stream_work){.op = work.op});
        taken = result == CUDA_SUCCESS;
    }
    engine_unlock();
    if (!taken && work.op.release)
        work.op.release(work.op.argument);
    return result;
}

/* A kernel takes its time and does nothing. A library's kernel is loaded into the stream's context
 * first. */
CUresult launch_in_stream(CUfunction handle, const unsigned grid[3], const unsigned block[3],
                          unsigned shared_bytes, CUstream stream_handle, bool per_thread)
{
    struct sim_stream *stream;
    struct sim_function *function;
    CUresult result = sim_stream_resolve(stream_handle, per_thread, &stream);

    if (result == CUDA_SUCCESS)
        result = launch_check(handle, grid, block, shared_bytes);
    if (result == CUDA_SUCCESS)
        result = function_check(handle, &function);
    if (result)
        return result;
    if (function->module && function->module->context != sim_context_root(stream->context))
        return CUDA_ERROR_INVALID_HANDLE;
    result = function_load(function);
    if (result)
        return result;
    /* The arguments are left out: how many a kernel has is not known. */
    struct node_parameters parameters = {.is_set = true,
                                         .kernel = {.func = handle,
                                                    .gridDimX = grid[0],
                                                    .gridDimY = grid[1],
                                                    .gridDimZ = grid[2],
                                                    .blockDimX = block[0],
                                                    .blockDimY = block[1],
                                                    .blockDimZ = block[2],
                                                    .sharedMemBytes = shared_bytes}};
    struct graph_work work = kernel_work(function);
    work.parameters = &parameters;
    return submit_with(stream, work);
}

SIM_API_THREAD(cuLaunchKernel, _ptsz,
               (CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                unsigned int block_x, unsigned int block_y, unsigned int block_z,
                unsigned int shared_bytes, CUstream stream, void **parameters, void **extra),
               (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream,
                parameters, extra),
               "%p %u %u %u %u %u %u %u %p", (void *)function, grid_x, grid_y, grid_z, block_x,
               block_y, block_z, shared_bytes, (void *)stream)
{
    if (parameters && extra)
        return CUDA_ERROR_INVALID_VALUE;
    return launch_in_stream(function, (const unsigned[]){grid_x, grid_y, grid_z},
                            (const unsigned[]){block_x, block_y, block_z}, shared_bytes, stream,
                            per_thread);
}

SIM_API_THREAD(cuLaunchCooperativeKernel, _ptsz,
               (CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                unsigned int block_x, unsigned int block_y, unsigned int block_z,
                unsigned int shared_bytes, CUstream stream, void **parameters),
               (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream,
                parameters),
               "%p %u %u %u %u %u %u %u %p", (void *)function, grid_x, grid_y, grid_z, block_x,
               block_y, block_z, shared_bytes, (void *)stream)
{
    return launch_in_stream(function, (const unsigned[]){grid_x, grid_y, grid_z},
                            (const unsigned[]){block_x, block_y, block_z}, shared_bytes, stream,
                            per_thread);
}

SIM_API_THREAD(cuLaunchKernelEx, _ptsz,
               (const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra),
               (config, function, parameters, extra), "%p %p", (void *)function,
               config ? (void *)config->hStream : NULL)
{
    if (!config || (parameters && extra))
        return CUDA_ERROR_INVALID_VALUE;
    return launch_in_stream(
        function, (const unsigned[]){config->gridDimX, config->gridDimY, config->gridDimZ},
        (const unsigned[]){config->blockDimX, config->blockDimY, config->blockDimZ},
        config->sharedMemBytes, config->hStream, per_thread);
}

/* ---- host functions and callbacks ---- */

static void *duplicate_host(const void *argument)
{
    CUDA_HOST_NODE_PARAMS *copy = malloc(sizeof *copy);
    if (copy)
        *copy = *(const CUDA_HOST_NODE_PARAMS *)argument;
    return copy;
}

static CUresult run_host(struct sim_context *context, void *argument)
{
    const CUDA_HOST_NODE_PARAMS *host = argument;
    (void)context;
    host->fn(host->userData);
    return CUDA_SUCCESS;
}

SIM_API_THREAD(cuLaunchHostFunc, _ptsz, (CUstream handle, CUhostFn function, void *data),
               (handle, function, data), "%p %p", (void *)handle, data)
{
    struct sim_stream *stream;
    CUresult result = sim_stream_resolve(handle, per_thread, &stream);
    if (result)
        return result;
    if (!function)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_HOST_NODE_PARAMS host = {.fn = function, .userData = data};
    struct sim_op op = {.run = run_host, .release = free, .argument = duplicate_host(&host)};
    if (!op.argument)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct node_parameters parameters = {.is_set = true, .host = host};
    return submit_with(stream, (struct graph_work){.op = op,
                                                   .copy = duplicate_host,
                                                   .type = CU_GRAPH_NODE_TYPE_HOST,
                                                   .parameters = &parameters});
}

struct callback {
    CUstream stream;
    CUstreamCallback function;
    void *data;
};

/* Runs on error too, and gets the error. */
static CUresult run_callback(struct sim_context *context, void *argument)
{
    const struct callback *callback = argument;
    callback->function(callback->stream, sim_sticky(context), callback->data);
    return CUDA_SUCCESS;
}

/* "Callbacks are not supported during capture": the capture is broken. */
SIM_API_THREAD(cuStreamAddCallback, _ptsz,
               (CUstream handle, CUstreamCallback function, void *data, unsigned int flags),
               (handle, function, data, flags), "%p %p", (void *)handle, data)
{
    struct sim_stream *stream;
    CUresult result = sim_stream_resolve(handle, per_thread, &stream);
    if (result)
        return result;
    if (!function || flags)
        return CUDA_ERROR_INVALID_VALUE;
    struct callback *callback = malloc(sizeof *callback);
    if (!callback)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *callback = (struct callback){handle, function, data};
    struct sim_op op = {.run = run_callback, .release = free, .argument = callback};
    engine_lock();
    result = capture_check_sync_locked(stream->context, stream);
    if (result == CUDA_SUCCESS)
        result =
            stream_queue_locked(stream, &(struct stream_work){.op = op, .even_if_poisoned = true});
    engine_unlock();
    if (result)
        free(callback);
    return result;
}
