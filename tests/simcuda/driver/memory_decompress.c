/* cuMemBatchDecompressAsync, of LZ4 blocks (LZ4_Block_format.md), on devices that can by their
 * attributes: none can unless SIMCUDA_ATTRIBUTES has it. A batch is one operation; its accesses are
 * checked when it runs. */
#include "memory.h"

#include <stdlib.h>
#include <string.h>

#define LEAST_MATCH 4u

/* ---- the format ---- */

struct lz4 {
    const unsigned char *from, *from_end;
    unsigned char *start, *to, *to_end;
};

/* A length of 15 goes on in bytes, up to one that is not 255. False: the input ends. */
static bool read_length(struct lz4 *lz4, unsigned nibble, size_t *length)
{
    unsigned byte = 255;

    *length = nibble;
    while (nibble == 15 && byte == 255) {
        if (lz4->from == lz4->from_end)
            return false;
        byte = *lz4->from++;
        *length += byte;
    }
    return true;
}

/* One sequence: literals, and a match unless it is the last. */
static bool decode_sequence(struct lz4 *lz4)
{
    unsigned token = *lz4->from++;
    size_t length, offset;

    if (!read_length(lz4, token >> 4, &length) || length > (size_t)(lz4->from_end - lz4->from) ||
        length > (size_t)(lz4->to_end - lz4->to))
        return false;
    memcpy(lz4->to, lz4->from, length);
    lz4->to += length;
    lz4->from += length;
    if (lz4->from == lz4->from_end)
        return true;
    if (lz4->from_end - lz4->from < 2)
        return false;
    offset = lz4->from[0] | (size_t)lz4->from[1] << 8;
    lz4->from += 2;
    if (!read_length(lz4, token & 15, &length))
        return false;
    length += LEAST_MATCH;
    if (offset == 0 || offset > (size_t)(lz4->to - lz4->start) ||
        length > (size_t)(lz4->to_end - lz4->to))
        return false;
    for (; length != 0; length--, lz4->to++) /* byte by byte: they may overlap */
        *lz4->to = *(lz4->to - offset);
    return true;
}

static bool decode(const CUmemDecompressParams *one, uint32_t *bytes)
{
    struct lz4 lz4 = {.from = one->src,
                      .from_end = (const unsigned char *)one->src + one->srcNumBytes,
                      .start = one->dst,
                      .to = one->dst,
                      .to_end = (unsigned char *)one->dst + one->dstNumBytes};

    while (lz4.from != lz4.from_end)
        if (!decode_sequence(&lz4))
            return false;
    *bytes = (uint32_t)(lz4.to - lz4.start);
    return true;
}

/* ---- running ---- */

struct batch {
    size_t count;
    CUmemDecompressParams list[];
};

static uint64_t address_of(const void *pointer)
{
    return (uint64_t)(uintptr_t)pointer;
}

static bool is_accessible(struct sim_context *context, const CUmemDecompressParams *one)
{
    bool is_good;

    pthread_mutex_lock(&sim_memory_lock);
    is_good =
        sim_range_is_accessible(context, address_of(one->src), one->srcNumBytes, false) &&
        sim_range_is_accessible(context, address_of(one->dst), one->dstNumBytes, true) &&
        (one->dstActBytes == NULL || sim_range_is_accessible(context, address_of(one->dstActBytes),
                                                             sizeof *one->dstActBytes, true));
    pthread_mutex_unlock(&sim_memory_lock);
    return is_good;
}

static CUresult run_batch(struct sim_context *context, void *argument)
{
    const struct batch *batch = argument;
    CUresult result = CUDA_SUCCESS;

    sim_use_begin();
    for (size_t i = 0; i < batch->count && result == CUDA_SUCCESS; i++) {
        const CUmemDecompressParams *one = &batch->list[i];
        uint32_t bytes = 0;

        if (!is_accessible(context, one))
            result = CUDA_ERROR_ILLEGAL_ADDRESS;
        else if (!decode(one, &bytes))
            result = CUDA_ERROR_LAUNCH_FAILED;
        else if (one->dstActBytes != NULL)
            memcpy(one->dstActBytes, &bytes, sizeof bytes);
    }
    sim_use_end();
    return result;
}

/* ---- the entry point ---- */

bool sim_memory_can_decompress(uint64_t address)
{
    struct sim_mapping_info info;
    struct sim_device *device = NULL;
    struct sim_block *block;

    pthread_mutex_lock(&sim_memory_lock);
    block = sim_block_find(address);
    if (block != NULL && (block->kind == SIM_PLAIN ||
                          (block->kind == SIM_POOLED && sim_pool_can_decompress(block->pool))))
        device = block->device;
    else if (block == NULL && sim_mapping_query(address, 0, &info) && info.is_mapped &&
             (info.physical->prop.allocFlags.usage & CU_MEM_CREATE_USAGE_HW_DECOMPRESS) != 0)
        device = info.physical->device;
    pthread_mutex_unlock(&sim_memory_lock);
    return device != NULL &&
           sim_device_attribute(CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK, device) != 0;
}

static CUresult check_one(const CUmemDecompressParams *one, uint64_t most)
{
    const unsigned char zeros[sizeof one->padding] = {0};

    if (one->algo != CU_MEM_DECOMPRESS_ALGORITHM_LZ4 || one->srcNumBytes == 0 ||
        one->srcNumBytes > most || one->dstNumBytes > most ||
        memcmp(one->padding, zeros, sizeof zeros) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    return sim_memory_can_decompress(address_of(one->src)) &&
                   sim_memory_can_decompress(address_of(one->dst)) &&
                   (one->dstActBytes == NULL ||
                    sim_memory_can_decompress(address_of(one->dstActBytes)))
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}

static CUresult check_list(const struct sim_device *device, const CUmemDecompressParams *list,
                           size_t count, size_t *failed)
{
    int most = sim_device_attribute(CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_MAXIMUM_LENGTH, device);
    CUresult result = CUDA_SUCCESS;

    if ((sim_device_attribute(CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK, device) &
         CU_MEM_DECOMPRESS_ALGORITHM_LZ4) == 0)
        return CUDA_ERROR_NOT_SUPPORTED;
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
        result = check_one(&list[i], (uint64_t)most);
        if (result != CUDA_SUCCESS)
            *failed = i;
    }
    return result;
}

static CUresult submit(struct sim_stream *stream, const CUmemDecompressParams *list, size_t count)
{
    struct sim_op op = {.run = run_batch, .release = free};
    struct batch *batch = malloc(sizeof *batch + count * sizeof *list);

    if (batch == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    batch->count = count;
    memcpy(batch->list, list, count * sizeof *list);
    op.argument = batch;
    return sim_submit(stream, op, NULL, CU_GRAPH_NODE_TYPE_KERNEL);
}

SIM_API_THREAD(cuMemBatchDecompressAsync, _ptsz,
               (CUmemDecompressParams * paramsArray, size_t count, unsigned flags,
                size_t *errorIndex, CUstream stream),
               (paramsArray, count, flags, errorIndex, stream), "%zu %p", count, (void *)stream)
{
    struct sim_stream *resolved;
    size_t failed = SIZE_MAX;
    CUresult result = sim_stream_resolve(stream, per_thread, &resolved);

    if (result == CUDA_SUCCESS && (!sim_is_list(paramsArray, count, sizeof *paramsArray) || flags))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS && sim_stream_is_capturing(resolved))
        result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED; /* there is no such node */
    if (result == CUDA_SUCCESS)
        result = check_list(sim_stream_context(resolved)->device, paramsArray, count, &failed);
    if (result == CUDA_SUCCESS)
        result = submit(resolved, paramsArray, count);
    if (result != CUDA_SUCCESS && errorIndex != NULL)
        *errorIndex = failed;
    return result;
}
