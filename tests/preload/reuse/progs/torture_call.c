/* The calls that take a stream. Compiled twice: as they are, and by torture_call_thread.c with the
 * per-thread default stream, where each name means the other entry point and NULL another stream.
 */
#include "torture.h"

#ifndef CALLS
#define CALLS legacy_calls
#endif

static CUresult record(CUevent event, CUstream stream)
{
    return cuEventRecord(event, stream);
}

static CUresult wait(CUstream stream, CUevent event)
{
    return cuStreamWaitEvent(stream, event, 0);
}

static CUresult synchronize(CUstream stream)
{
    return cuStreamSynchronize(stream);
}

static CUresult take(CUdeviceptr *address, size_t bytes, CUmemoryPool pool, CUstream stream)
{
    return pool == NULL ? cuMemAllocAsync(address, bytes, stream)
                        : cuMemAllocFromPoolAsync(address, bytes, pool, stream);
}

static CUresult give(CUdeviceptr address, CUstream stream)
{
    return cuMemFreeAsync(address, stream);
}

static CUresult begin(CUstream stream, CUstreamCaptureMode mode)
{
    return cuStreamBeginCapture(stream, mode);
}

static CUresult end(CUstream stream, CUgraph *graph)
{
    return cuStreamEndCapture(stream, graph);
}

static CUresult launch(CUgraphExec exec, CUstream stream)
{
    return cuGraphLaunch(exec, stream);
}

static CUresult call_host(CUstream stream, CUhostFn function, void *argument)
{
    return cuLaunchHostFunc(stream, function, argument);
}

static CUresult hold(CUstream stream, CUdeviceptr flag, uint32_t value)
{
    return cuStreamWaitValue32(stream, flag, value, CU_STREAM_WAIT_VALUE_GEQ);
}

/* ---- effects ---- */

static CUresult fill(const struct effect *effect, unsigned way, CUstream stream)
{
    const struct block *to = effect->to;
    const CUdeviceptr address = address_at(to, effect->to_at);
    const size_t count = (effect->is_whole ? to->width : effect->bytes) / effect->element;
    const size_t height = effect->is_whole ? to->height : 1;
    const unsigned short half = (unsigned short)effect->value;
    const unsigned char byte = (unsigned char)effect->value;

    if (height > 1 || way % 2 == 0)
        return effect->element == 4
                   ? cuMemsetD2D32Async(address, to->pitch, effect->value, count, height, stream)
               : effect->element == 2
                   ? cuMemsetD2D16Async(address, to->pitch, half, count, height, stream)
                   : cuMemsetD2D8Async(address, to->pitch, byte, count, height, stream);
    return effect->element == 4   ? cuMemsetD32Async(address, effect->value, count, stream)
           : effect->element == 2 ? cuMemsetD16Async(address, half, count, stream)
                                  : cuMemsetD8Async(address, byte, count, stream);
}

static CUresult write_value(const struct effect *effect, unsigned way, CUstream stream)
{
    const CUdeviceptr address = address_at(effect->to, effect->to_at);
    const uint64_t wide = (uint64_t)effect->value << 32 | effect->value;

    if (way % 3 == 0) { /* the two halves, of one batch */
        CUstreamBatchMemOpParams values[2] = {0};

        for (unsigned i = 0; i < effect->element / 4; i++) {
            values[i].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
            values[i].writeValue.address = address + (CUdeviceptr)4 * i;
            values[i].writeValue.value = effect->value;
        }
        return cuStreamBatchMemOp(stream, effect->element / 4, values, 0);
    }
    return effect->element == 8 ? cuStreamWriteValue64(stream, address, wide, 0)
                                : cuStreamWriteValue32(stream, address, effect->value, 0);
}

static CUresult copy_batch(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    const size_t half = bytes / 2;
    CUdeviceptr tos[2] = {to, to + half}, froms[2] = {from, from + half};
    size_t sizes[2] = {half, bytes - half}, firsts[1] = {0};
    CUmemcpyAttributes attributes = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};

    return bytes < 2 ? cuMemcpyAsync(to, from, bytes, stream)
                     : cuMemcpyBatchAsync(tos, froms, sizes, 2, &attributes, firsts, 1, stream);
}

static CUresult copy_3d(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    const CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
                                .srcDevice = from,
                                .srcPitch = bytes,
                                .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                                .dstDevice = to,
                                .dstPitch = bytes,
                                .WidthInBytes = bytes,
                                .Height = 1,
                                .Depth = 1};

    return cuMemcpy3DAsync(&copy, stream);
}

static CUresult copy_rows(CUdeviceptr to, size_t to_pitch, CUdeviceptr from, size_t from_pitch,
                          size_t width, size_t height, CUstream stream)
{
    const CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
                                .srcDevice = from,
                                .srcPitch = from_pitch,
                                .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                                .dstDevice = to,
                                .dstPitch = to_pitch,
                                .WidthInBytes = width,
                                .Height = height};

    return cuMemcpy2DAsync(&copy, stream);
}

static CUresult copy_peer_3d(const struct effect *effect, CUstream stream)
{
    const CUDA_MEMCPY3D_PEER copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                     .srcDevice = address_at(effect->from, effect->from_at),
                                     .srcContext = effect->from_context,
                                     .srcPitch = effect->bytes,
                                     .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                     .dstDevice = address_at(effect->to, effect->to_at),
                                     .dstContext = effect->to_context,
                                     .dstPitch = effect->bytes,
                                     .WidthInBytes = effect->bytes,
                                     .Height = 1,
                                     .Depth = 1};

    return cuMemcpy3DPeerAsync(&copy, stream);
}

/* `way` 5 is a batch, 6 and 7 name both contexts. */
static CUresult copy(const struct effect *effect, unsigned way, CUstream stream)
{
    const CUdeviceptr to = address_at(effect->to, effect->to_at);
    const CUdeviceptr from = address_at(effect->from, effect->from_at);
    const size_t bytes = effect->bytes;

    switch (way) {
    case 1:
        return copy_rows(to, bytes, from, bytes, bytes, 1, stream);
    case 2:
        return copy_3d(to, from, bytes, stream);
    case 3:
    case 4:
        return cuMemcpyAsync(to, from, bytes, stream);
    case 5:
        return copy_batch(to, from, bytes, stream);
    case 6:
        return cuMemcpyPeerAsync(to, effect->to_context, from, effect->from_context, bytes, stream);
    case 7:
        return copy_peer_3d(effect, stream);
    default:
        return cuMemcpyDtoDAsync(to, from, bytes, stream);
    }
}

static CUresult work(const struct effect *effect, unsigned way, CUstream stream)
{
    const CUdeviceptr host = (CUdeviceptr)(uintptr_t)effect->host;
    const struct block *from = effect->from;

    switch (effect->kind) {
    case FILL:
        return fill(effect, way, stream);
    case VALUE:
        return write_value(effect, way, stream);
    case COPY_IN:
        return way == 5
                   ? copy_batch(address_at(effect->to, effect->to_at), host, effect->bytes, stream)
               : way % 2 == 0 ? cuMemcpyHtoDAsync(address_at(effect->to, effect->to_at),
                                                  effect->host, effect->bytes, stream)
                              : cuMemcpyAsync(address_at(effect->to, effect->to_at), host,
                                              effect->bytes, stream);
    case COPY:
        return copy(effect, way, stream);
    case READ:
        return from->height > 1 || way % 2 == 0
                   ? copy_rows(host, from->width, from->address, from->pitch, from->width,
                               from->height, stream)
                   : cuMemcpyDtoHAsync(effect->host, from->address, from->width, stream);
    default:
        return CUDA_ERROR_UNKNOWN;
    }
}

/* Those without Async in their names run in the default stream. CUDA_ERROR_NOT_SUPPORTED: none of
 * the kind. */
static CUresult work_at_once(const struct effect *effect, unsigned way)
{
    const CUdeviceptr to = effect->to == NULL ? 0 : address_at(effect->to, effect->to_at);
    const struct block *from = effect->from;

    switch (effect->kind) {
    case FILL:
        if (effect->is_whole && effect->to->height > 1)
            return effect->element == 4 ? cuMemsetD2D32(to, effect->to->pitch, effect->value,
                                                        effect->to->width / 4, effect->to->height)
                                        : CUDA_ERROR_NOT_SUPPORTED;
        return effect->element == 4 ? cuMemsetD32(to, effect->value, effect->bytes / 4)
               : effect->element == 2
                   ? cuMemsetD16(to, (unsigned short)effect->value, effect->bytes / 2)
                   : cuMemsetD8(to, (unsigned char)effect->value, effect->bytes);
    case COPY_IN:
        return way % 2 == 0 ? cuMemcpyHtoD(to, effect->host, effect->bytes)
                            : cuMemcpy(to, (CUdeviceptr)(uintptr_t)effect->host, effect->bytes);
    case COPY:
        return way % 2 == 0 ? cuMemcpyDtoD(to, address_at(from, effect->from_at), effect->bytes)
                            : cuMemcpy(to, address_at(from, effect->from_at), effect->bytes);
    case READ:
        return from->height == 1 ? cuMemcpyDtoH(effect->host, from->address, from->width)
                                 : CUDA_ERROR_NOT_SUPPORTED;
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

const struct calls CALLS = {record, wait,   synchronize, take, give, begin,
                            end,    launch, call_host,   hold, work, work_at_once};
