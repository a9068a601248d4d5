/* Values in memory that a stream writes and waits for: one, or a batch, which is one operation.
 *
 * Each access is checked when it happens, as a copy's is. A wait looks again and again, so that a
 * value may come from anywhere: the host, another stream, a device that CUDA knows nothing of. */
#define _GNU_SOURCE
#include "tests/simcuda/driver/engine_graph.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MOST_OPERATIONS 255u /* "Must be less than 256." */

struct batch {
    unsigned count;
    CUstreamBatchMemOpParams operations[];
};

static bool is_wait(const CUstreamBatchMemOpParams *operation)
{
    return operation->operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 ||
           operation->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;
}

/* How many bytes the operation names; 0: none. */
static unsigned bytes_of(const CUstreamBatchMemOpParams *operation)
{
    switch (operation->operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
        return 4;
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
        return 8;
    default:
        return 0;
    }
}

static CUresult check_operation(const CUstreamBatchMemOpParams *operation)
{
    unsigned bytes = bytes_of(operation);

    if (bytes == 0)
        return operation->operation == CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES ||
                       operation->operation == CU_STREAM_MEM_OP_BARRIER
                   ? CUDA_SUCCESS
                   : CUDA_ERROR_INVALID_VALUE;
    /* Waits and writes have address and value at the same places. */
    return operation->waitValue.address == 0 || operation->waitValue.address % bytes != 0
               ? CUDA_ERROR_INVALID_VALUE
               : CUDA_SUCCESS;
}

/* ---- running ---- */

static bool is_met(unsigned bytes, unsigned flags, uint64_t value, uint64_t wanted)
{
    switch (flags & 3) {
    case CU_STREAM_WAIT_VALUE_GEQ: /* cyclic: the difference is not negative */
        return bytes == 4 ? (int32_t)((uint32_t)value - (uint32_t)wanted) >= 0
                          : (int64_t)(value - wanted) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ:
        return value == wanted;
    case CU_STREAM_WAIT_VALUE_AND:
        return (value & wanted) != 0;
    default: /* NOR */
        return ~(value | wanted) << (64 - 8 * bytes) != 0;
    }
}

static CUresult run_operation(struct sim_context *context,
                              const CUstreamBatchMemOpParams *operation)
{
    const struct timespec pause = {0, 20000};
    unsigned bytes = bytes_of(operation);
    uint64_t value = 0;

    if (bytes == 0)
        return CUDA_SUCCESS;
    uint64_t wanted = bytes == 4 ? operation->waitValue.value : operation->waitValue.value64;
    if (!is_wait(operation))
        return sim_memory_write_value(context, operation->waitValue.address, bytes, wanted);
    while (context_is_live(sim_context_root(context)) && !engine_is_down()) {
        CUresult result =
            sim_memory_read_value(context, operation->waitValue.address, bytes, &value);
        if (result || is_met(bytes, operation->waitValue.flags, value, wanted))
            return result;
        nanosleep(&pause, NULL);
    }
    return CUDA_SUCCESS;
}

static CUresult run_batch(struct sim_context *context, void *argument)
{
    const struct batch *batch = argument;
    CUresult result = CUDA_SUCCESS;

    for (unsigned i = 0; i < batch->count && result == CUDA_SUCCESS; i++)
        result = run_operation(context, &batch->operations[i]);
    return result;
}

static void *duplicate_batch(const void *argument)
{
    const struct batch *batch = argument;
    size_t bytes = sizeof *batch + batch->count * sizeof batch->operations[0];
    void *copy = malloc(bytes);

    if (copy)
        memcpy(copy, batch, bytes);
    return copy;
}

/* ---- making ---- */

static CUresult make_batch(unsigned count, const CUstreamBatchMemOpParams *operations,
                           unsigned flags, struct graph_work *work)
{
    CUresult result = CUDA_SUCCESS;

    if (count == 0 || count > MOST_OPERATIONS || !operations || flags)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count && result == CUDA_SUCCESS; i++)
        result = check_operation(&operations[i]);
    if (result)
        return result;
    struct batch *batch = malloc(sizeof *batch + count * sizeof operations[0]);
    if (!batch)
        return CUDA_ERROR_OUT_OF_MEMORY;
    batch->count = count;
    memcpy(batch->operations, operations, count * sizeof operations[0]);
    *work = (struct graph_work){
        .op = {.run = run_batch, .release = free, .argument = batch, .is_instant = true},
        .copy = duplicate_batch,
        .type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP};
    return CUDA_SUCCESS;
}

CUresult graph_make_batch(const struct node_parameters *parameters, struct graph_work *work)
{
    return make_batch(parameters->batch.count, parameters->batch.paramArray,
                      parameters->batch.flags, work);
}

CUstreamBatchMemOpParams *graph_batch_operations(const struct graph_work *work)
{
    return ((struct batch *)work->op.argument)->operations;
}

/* ---- entry points ---- */

static CUresult submit(CUstream handle, bool per_thread, unsigned count,
                       const CUstreamBatchMemOpParams *operations, unsigned flags)
{
    struct sim_stream *stream;
    struct graph_work work;
    CUresult result = sim_stream_resolve(handle, per_thread, &stream);

    if (result == CUDA_SUCCESS)
        result = make_batch(count, operations, flags, &work);
    return result ? result : sim_submit(stream, work.op, work.copy, work.type);
}

static CUresult submit_one(CUstream stream, bool per_thread, CUstreamBatchMemOpType type,
                           CUdeviceptr address, uint64_t value, unsigned flags)
{
    CUstreamBatchMemOpParams operation;

    memset(&operation, 0, sizeof operation);
    operation.waitValue.operation = type;
    operation.waitValue.address = address;
    operation.waitValue.value64 = value;
    operation.waitValue.flags = flags;
    return submit(stream, per_thread, 1, &operation, 0);
}

#define VALUE_ENTRY(name, type, operation)                                                         \
    SIM_API_THREAD(name, _ptsz,                                                                    \
                   (CUstream stream, CUdeviceptr address, type value, unsigned int flags),         \
                   (stream, address, value, flags), "%p %llx %llu %u", (void *)stream, address,    \
                   (unsigned long long)value, flags)                                               \
    {                                                                                              \
        return submit_one(stream, per_thread, operation, address, value, flags);                   \
    }
VALUE_ENTRY(cuStreamWriteValue32, cuuint32_t, CU_STREAM_MEM_OP_WRITE_VALUE_32)
VALUE_ENTRY(cuStreamWriteValue64, cuuint64_t, CU_STREAM_MEM_OP_WRITE_VALUE_64)
VALUE_ENTRY(cuStreamWaitValue32, cuuint32_t, CU_STREAM_MEM_OP_WAIT_VALUE_32)
VALUE_ENTRY(cuStreamWaitValue64, cuuint64_t, CU_STREAM_MEM_OP_WAIT_VALUE_64)
VALUE_ENTRY(cuStreamWriteValue32_v2, cuuint32_t, CU_STREAM_MEM_OP_WRITE_VALUE_32)
VALUE_ENTRY(cuStreamWriteValue64_v2, cuuint64_t, CU_STREAM_MEM_OP_WRITE_VALUE_64)
VALUE_ENTRY(cuStreamWaitValue32_v2, cuuint32_t, CU_STREAM_MEM_OP_WAIT_VALUE_32)
VALUE_ENTRY(cuStreamWaitValue64_v2, cuuint64_t, CU_STREAM_MEM_OP_WAIT_VALUE_64)

SIM_API_THREAD(cuStreamBatchMemOp, _ptsz,
               (CUstream stream, unsigned int count, CUstreamBatchMemOpParams *operations,
                unsigned int flags),
               (stream, count, operations, flags), "%p %u", (void *)stream, count)
{
    return submit(stream, per_thread, count, operations, flags);
}

SIM_API_THREAD(cuStreamBatchMemOp_v2, _ptsz,
               (CUstream stream, unsigned int count, CUstreamBatchMemOpParams *operations,
                unsigned int flags),
               (stream, count, operations, flags), "%p %u", (void *)stream, count)
{
    return submit(stream, per_thread, count, operations, flags);
}
