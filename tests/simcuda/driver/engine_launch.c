/* Work that a program submits: kernels, host functions, callbacks, values written and waited for.
 */
#define _GNU_SOURCE
#include "tests/simcuda/driver/engine_module.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

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

/* A kernel takes its time and does nothing. A library's kernel is loaded into the stream's context
 * first. */
static CUresult launch(CUfunction handle, const unsigned grid[3], const unsigned block[3],
                       unsigned shared_bytes, CUstream stream_handle, bool per_thread)
{
    struct sim_stream *stream;
    struct sim_function *function;
    struct sim_module *module;
    CUresult result = sim_stream_resolve(stream_handle, per_thread, &stream);

    if (result == CUDA_SUCCESS)
        result = launch_check(handle, grid, block, shared_bytes);
    if (result == CUDA_SUCCESS)
        result = function_check(handle, &function);
    if (result)
        return result;
    if (function->module && function->module->context != sim_context_root(stream->context))
        return CUDA_ERROR_INVALID_HANDLE;
    if (function->library) {
        result = library_instance(function->library, &module);
        if (result)
            return result;
    }
    return sim_submit(stream, (struct sim_op){0}, NULL, CU_GRAPH_NODE_TYPE_KERNEL);
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
    return launch(function, (const unsigned[]){grid_x, grid_y, grid_z},
                  (const unsigned[]){block_x, block_y, block_z}, shared_bytes, stream, per_thread);
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
    return launch(function, (const unsigned[]){grid_x, grid_y, grid_z},
                  (const unsigned[]){block_x, block_y, block_z}, shared_bytes, stream, per_thread);
}

SIM_API_THREAD(cuLaunchKernelEx, _ptsz,
               (const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra),
               (config, function, parameters, extra), "%p %p", (void *)function,
               config ? (void *)config->hStream : NULL)
{
    if (!config || (parameters && extra))
        return CUDA_ERROR_INVALID_VALUE;
    return launch(function,
                  (const unsigned[]){config->gridDimX, config->gridDimY, config->gridDimZ},
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
    return sim_submit(stream, op, duplicate_host, CU_GRAPH_NODE_TYPE_HOST);
}

struct callback {
    CUstream stream;
    CUstreamCallback function;
    void *data;
};

/* Runs on error too, and is told. */
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

/* ---- values in memory ---- */

struct value_work {
    uint64_t address, value;
    unsigned bytes, flags;
    bool waits;
};

static void *duplicate_value(const void *argument)
{
    struct value_work *copy = malloc(sizeof *copy);
    if (copy)
        *copy = *(const struct value_work *)argument;
    return copy;
}

static bool is_met(const struct value_work *work, uint64_t value)
{
    switch (work->flags & 3) {
    case CU_STREAM_WAIT_VALUE_GEQ: /* cyclic: the difference is not negative */
        return work->bytes == 4 ? (int32_t)((uint32_t)value - (uint32_t)work->value) >= 0
                                : (int64_t)(value - work->value) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ:
        return value == work->value;
    case CU_STREAM_WAIT_VALUE_AND:
        return (value & work->value) != 0;
    default: /* NOR */
        return ~(value | work->value) << (64 - 8 * work->bytes) != 0;
    }
}

static CUresult run_value(struct sim_context *context, void *argument)
{
    const struct value_work *work = argument;
    const struct timespec pause = {0, 20000};
    uint64_t value = 0;

    if (!work->waits)
        return sim_memory_write_value(context, work->address, work->bytes, work->value);
    while (context_is_live(sim_context_root(context)) && !engine_is_down()) {
        CUresult result = sim_memory_read_value(context, work->address, work->bytes, &value);
        if (result || is_met(work, value))
            return result;
        nanosleep(&pause, NULL);
    }
    return CUDA_SUCCESS;
}

static CUresult submit_value(CUstream handle, bool per_thread, struct value_work work)
{
    struct sim_stream *stream;
    CUresult result = sim_stream_resolve(handle, per_thread, &stream);
    if (result)
        return result;
    if (work.address == 0 || work.address % work.bytes)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_op op = {
        .run = run_value, .release = free, .argument = duplicate_value(&work), .is_instant = true};
    if (!op.argument)
        return CUDA_ERROR_OUT_OF_MEMORY;
    return sim_submit(stream, op, duplicate_value, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP);
}

#define VALUE_ENTRY(name, type, size, is_wait)                                                     \
    SIM_API_THREAD(name, _ptsz,                                                                    \
                   (CUstream stream, CUdeviceptr address, type value, unsigned int flags),         \
                   (stream, address, value, flags), "%p %llx %llu %u", (void *)stream, address,    \
                   (unsigned long long)value, flags)                                               \
    {                                                                                              \
        return submit_value(stream, per_thread,                                                    \
                            (struct value_work){address, value, size, flags, is_wait});            \
    }
VALUE_ENTRY(cuStreamWriteValue32, cuuint32_t, 4, false)
VALUE_ENTRY(cuStreamWriteValue64, cuuint64_t, 8, false)
VALUE_ENTRY(cuStreamWaitValue32, cuuint32_t, 4, true)
VALUE_ENTRY(cuStreamWaitValue64, cuuint64_t, 8, true)
VALUE_ENTRY(cuStreamWriteValue32_v2, cuuint32_t, 4, false)
VALUE_ENTRY(cuStreamWriteValue64_v2, cuuint64_t, 8, false)
VALUE_ENTRY(cuStreamWaitValue32_v2, cuuint32_t, 4, true)
VALUE_ENTRY(cuStreamWaitValue64_v2, cuuint64_t, 8, true)

static CUresult batch(CUstream stream, bool per_thread, unsigned count,
                      const CUstreamBatchMemOpParams *operations, unsigned flags)
{
    CUresult result = CUDA_SUCCESS;
    if (count == 0 || count > 256 || !operations || flags)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count && result == CUDA_SUCCESS; i++) {
        const CUstreamBatchMemOpParams *operation = &operations[i];
        switch (operation->operation) {
        case CU_STREAM_MEM_OP_WAIT_VALUE_32:
        case CU_STREAM_MEM_OP_WAIT_VALUE_64: {
            bool is_long = operation->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;
            result = submit_value(stream, per_thread,
                                  (struct value_work){operation->waitValue.address,
                                                      is_long ? operation->waitValue.value64
                                                              : operation->waitValue.value,
                                                      is_long ? 8 : 4, operation->waitValue.flags,
                                                      true});
            break;
        }
        case CU_STREAM_MEM_OP_WRITE_VALUE_32:
        case CU_STREAM_MEM_OP_WRITE_VALUE_64: {
            bool is_long = operation->operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
            result = submit_value(stream, per_thread,
                                  (struct value_work){operation->writeValue.address,
                                                      is_long ? operation->writeValue.value64
                                                              : operation->writeValue.value,
                                                      is_long ? 8 : 4, operation->writeValue.flags,
                                                      false});
            break;
        }
        case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
            break;
        default:
            result = CUDA_ERROR_INVALID_VALUE;
        }
    }
    return result;
}

SIM_API_THREAD(cuStreamBatchMemOp, _ptsz,
               (CUstream stream, unsigned int count, CUstreamBatchMemOpParams *operations,
                unsigned int flags),
               (stream, count, operations, flags), "%p %u", (void *)stream, count)
{
    return batch(stream, per_thread, count, operations, flags);
}

SIM_API_THREAD(cuStreamBatchMemOp_v2, _ptsz,
               (CUstream stream, unsigned int count, CUstreamBatchMemOpParams *operations,
                unsigned int flags),
               (stream, count, operations, flags), "%p %u", (void *)stream, count)
{
    return batch(stream, per_thread, count, operations, flags);
}
