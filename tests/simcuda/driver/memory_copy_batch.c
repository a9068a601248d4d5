/* Batches: lists of copies with no order among them, linear or three-dimensional. */
#include "memory.h"

#define ADDRESS_BITS 48

bool sim_is_list(const void *list, size_t count, size_t element_bytes)
{
    uint64_t bytes;

    return list != NULL && count != 0 && !__builtin_mul_overflow(count, element_bytes, &bytes) &&
           bytes <= (UINT64_C(1) << ADDRESS_BITS) - (uint64_t)(uintptr_t)list;
}

#if CUDA_VERSION >= 12080
/* Attribute i covers the copies from attrsIdxs[i] to the next index; the first must be 0. */
static CUresult check_attributes(const CUmemcpyAttributes *attrs, const size_t *indices,
                                 size_t attr_count, size_t count)
{
    if (attrs == NULL || indices == NULL || attr_count == 0 || attr_count > count ||
        indices[0] != 0)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < attr_count; i++) {
        if (indices[i] >= count || (i > 0 && indices[i] <= indices[i - 1]))
            return CUDA_ERROR_INVALID_VALUE;
        if (attrs[i].srcAccessOrder < CU_MEMCPY_SRC_ACCESS_ORDER_STREAM ||
            attrs[i].srcAccessOrder > CU_MEMCPY_SRC_ACCESS_ORDER_ANY)
            return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

struct batch {
    const CUdeviceptr *to, *from;
    const size_t *sizes;
    size_t count;
    const CUmemcpyAttributes *attrs;
    const size_t *indices;
    size_t attr_count;
};

/* The legacy stream is not allowed for batches. */
static CUresult check_batch_stream(CUstream stream, bool per_thread)
{
    struct sim_context *context;
    CUresult result = sim_current(&context);

    if (result != CUDA_SUCCESS)
        return result;
    return (stream == NULL && !per_thread) || stream == CU_STREAM_LEGACY ? CUDA_ERROR_INVALID_VALUE
                                                                         : CUDA_SUCCESS;
}

static CUresult copy_batch(const struct batch *batch, size_t *failed, bool per_thread,
                           CUstream stream)
{
    CUresult result = check_batch_stream(stream, per_thread);

    if (failed != NULL)
        *failed = SIZE_MAX;
    if (result != CUDA_SUCCESS)
        return result;
    if (!sim_is_list(batch->to, batch->count, sizeof *batch->to) ||
        !sim_is_list(batch->from, batch->count, sizeof *batch->from) ||
        !sim_is_list(batch->sizes, batch->count, sizeof *batch->sizes))
        return CUDA_ERROR_INVALID_VALUE;
    result = check_attributes(batch->attrs, batch->indices, batch->attr_count, batch->count);
    for (size_t i = 0; result == CUDA_SUCCESS && i < batch->count; i++) {
        if (batch->sizes[i] == 0)
            result = CUDA_ERROR_INVALID_VALUE;
        else
            result = sim_copy_linear(SIM_MEMORY(batch->to[i]), SIM_MEMORY(batch->from[i]),
                                     batch->sizes[i], SIM_ASYNC(per_thread, stream));
        if (result != CUDA_SUCCESS && failed != NULL)
            *failed = i;
    }
    return result;
}

SIM_API_THREAD(cuMemcpyBatchAsync, _ptsz,
               (CUdeviceptr * dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
                CUmemcpyAttributes *attrs, size_t *attrsIdxs, size_t numAttrs, size_t *failIdx,
                CUstream hStream),
               (dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, failIdx, hStream), "%zu",
               count)
{
    const struct batch batch = {dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs};

    return copy_batch(&batch, failIdx, per_thread, hStream);
}
#endif

#if CUDA_VERSION >= 13000
SIM_API_THREAD(cuMemcpyBatchAsync_v2, _ptsz,
               (CUdeviceptr * dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
                CUmemcpyAttributes *attrs, size_t *attrsIdxs, size_t numAttrs, CUstream hStream),
               (dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, hStream), "%zu", count)
{
    const struct batch batch = {dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs};

    return copy_batch(&batch, NULL, per_thread, hStream);
}
#endif

/* ---- three-dimensional ---- */

#if CUDA_VERSION >= 12080
/* Extents are in elements: an array's texels, or bytes when both operands are pointers. */
static CUresult element_bytes(const CUDA_MEMCPY3D_BATCH_OP *op, uint64_t *bytes)
{
    const CUmemcpy3DOperand *operands[] = {&op->src, &op->dst};
    struct sim_surface surface;

    *bytes = 1;
    for (int i = 0; i < 2; i++) {
        if (operands[i]->type != CU_MEMCPY_OPERAND_TYPE_ARRAY)
            continue;
        if (!sim_array_surface(operands[i]->op.array.array, &surface))
            return CUDA_ERROR_INVALID_VALUE;
        if (*bytes != 1 && *bytes != surface.texel_bytes)
            return CUDA_ERROR_INVALID_VALUE;
        *bytes = surface.texel_bytes;
    }
    return CUDA_SUCCESS;
}

/* A row length or layer height of 0 means that there is no padding. */
static CUresult parse_operand(const CUmemcpy3DOperand *in, const CUextent3D *extent, uint64_t bytes,
                              struct sim_side *side)
{
    size_t row = in->op.ptr.rowLength, layer = in->op.ptr.layerHeight;

    if (in->type == CU_MEMCPY_OPERAND_TYPE_ARRAY) {
        *side = (struct sim_side){.array = in->op.array.array,
                                  .x = in->op.array.offset.x * bytes,
                                  .y = in->op.array.offset.y,
                                  .z = in->op.array.offset.z};
        return CUDA_SUCCESS;
    }
    if (in->type != CU_MEMCPY_OPERAND_TYPE_POINTER || (row != 0 && row < extent->width) ||
        (layer != 0 && layer < extent->height))
        return CUDA_ERROR_INVALID_VALUE;
    *side = SIM_MEMORY(in->op.ptr.ptr);
    side->pitch = (row == 0 ? extent->width : row) * bytes;
    side->slice = side->pitch * (layer == 0 ? extent->height : layer);
    return CUDA_SUCCESS;
}

static CUresult copy_one_3d(const CUDA_MEMCPY3D_BATCH_OP *op, struct sim_order order)
{
    struct sim_copy copy = {.height = op->extent.height, .depth = op->extent.depth};
    uint64_t bytes;
    CUresult result = element_bytes(op, &bytes);

    if (op->extent.width == 0 || op->extent.height == 0 || op->extent.depth == 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        result = parse_operand(&op->src, &op->extent, bytes, &copy.from);
    if (result == CUDA_SUCCESS)
        result = parse_operand(&op->dst, &op->extent, bytes, &copy.to);
    copy.width = op->extent.width * bytes;
    return result == CUDA_SUCCESS ? sim_copy_submit(&copy, order) : result;
}

static CUresult copy_batch_3d(const CUDA_MEMCPY3D_BATCH_OP *ops, size_t count, size_t *failed,
                              unsigned long long flags, CUstream stream, bool per_thread)
{
    CUresult result = check_batch_stream(stream, per_thread);

    if (failed != NULL)
        *failed = SIZE_MAX;
    if (result == CUDA_SUCCESS && (!sim_is_list(ops, count, sizeof *ops) || flags != 0))
        result = CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; result == CUDA_SUCCESS && i < count; i++) {
        result = copy_one_3d(&ops[i], SIM_ASYNC(per_thread, stream));
        if (result != CUDA_SUCCESS && failed != NULL)
            *failed = i;
    }
    return result;
}

SIM_API_THREAD(cuMemcpy3DBatchAsync, _ptsz,
               (size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList, size_t *failIdx,
                unsigned long long flags, CUstream hStream),
               (numOps, opList, failIdx, flags, hStream), "%zu", numOps)
{
    return copy_batch_3d(opList, numOps, failIdx, flags, hStream, per_thread);
}
#endif

#if CUDA_VERSION >= 13000
SIM_API_THREAD(cuMemcpy3DBatchAsync_v2, _ptsz,
               (size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList, unsigned long long flags,
                CUstream hStream),
               (numOps, opList, flags, hStream), "%zu", numOps)
{
    return copy_batch_3d(opList, numOps, NULL, flags, hStream, per_thread);
}
#endif
