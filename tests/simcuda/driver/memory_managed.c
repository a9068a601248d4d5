/* Managed memory: allocated without taking device capacity, since pages live wherever they were
 * last used; advice and prefetches are checked and remembered, and change nothing else. */
#include "memory.h"

#include <stdlib.h>
#include <string.h>

#define CPU_BIT (UINT64_C(1) << 63)

SIM_API(cuMemAllocManaged, (CUdeviceptr * dptr, size_t bytesize, unsigned flags),
        (dptr, bytesize, flags), "0x%llx %zu %u",
        dptr == NULL || sim_result != CUDA_SUCCESS ? 0 : *dptr, bytesize, flags)
{
    struct sim_context *context;
    struct sim_block *block;
    uint64_t address;
    CUresult result = sim_current(&context);

    if (result != CUDA_SUCCESS)
        return result;
    if (dptr == NULL || bytesize == 0 ||
        (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
        return CUDA_ERROR_INVALID_VALUE;
    result = sim_check_unsafe_call(context);
    if (result != CUDA_SUCCESS)
        return result;
    block = sim_block_new(SIM_MANAGED, context);
    if (block == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    block->flags = flags;
    block->span = sim_round_up(bytesize, SIM_PAGE);
    pthread_mutex_lock(&sim_memory_lock);
    result = block->span == 0 ? CUDA_ERROR_OUT_OF_MEMORY
                              : sim_space_take(block->span, SIM_PAGE, false, &address);
    if (result == CUDA_SUCCESS) {
        result = sim_space_commit(address, block->span);
        if (result == CUDA_SUCCESS) {
            sim_block_insert(block, address, bytesize);
            *dptr = address;
        } else {
            sim_space_give(address, block->span);
        }
    }
    pthread_mutex_unlock(&sim_memory_lock);
    if (result != CUDA_SUCCESS)
        free(block);
    return result;
}

/* ---- ranges of managed memory ---- */

/* The managed block that holds the whole range, or NULL. sim_memory_lock held. */
static struct sim_block *find_range(uint64_t address, uint64_t bytes)
{
    struct sim_block *block = sim_block_find(address);

    bool is_managed = block != NULL && (block->kind == SIM_MANAGED ||
                                        (block->pool != NULL && sim_pool_is_managed(block->pool)));

    if (!is_managed || bytes == 0 || bytes > block->node.end - address)
        return NULL;
    return block;
}

/* A location as the older entry points write it: a device or CU_DEVICE_CPU. */
static CUresult check_ordinal(int ordinal)
{
    return ordinal == CU_DEVICE_CPU || sim_device(ordinal) != NULL ? CUDA_SUCCESS
                                                                   : CUDA_ERROR_INVALID_DEVICE;
}

#if CUDA_VERSION >= 12020
static CUresult ordinal_of(const CUmemLocation *location, int *ordinal)
{
    switch (location->type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
        *ordinal = location->id;
        return sim_device(*ordinal) == NULL ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
        *ordinal = CU_DEVICE_CPU;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}
#endif

static CUresult prefetch(uint64_t address, uint64_t bytes, int ordinal, CUstream handle,
                         bool per_thread)
{
    struct sim_context *context;
    struct sim_stream *stream;
    struct sim_block *block;
    CUresult result = sim_current(&context);

    if (result == CUDA_SUCCESS)
        result = sim_stream_resolve(handle, per_thread, &stream);
    if (result == CUDA_SUCCESS)
        result = check_ordinal(ordinal);
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&sim_memory_lock);
    block = find_range(address, bytes);
    if (block == NULL)
        result = CUDA_ERROR_INVALID_VALUE;
    else
        block->prefetched = ordinal;
    pthread_mutex_unlock(&sim_memory_lock);
    return result;
}

SIM_API_THREAD(cuMemPrefetchAsync, _ptsz,
               (CUdeviceptr devPtr, size_t count, CUdevice dstDevice, CUstream hStream),
               (devPtr, count, dstDevice, hStream), "0x%llx %zu %d", devPtr, count, dstDevice)
{
    return prefetch(devPtr, count, dstDevice, hStream, per_thread);
}

#if CUDA_VERSION >= 12020
SIM_API_THREAD(cuMemPrefetchAsync_v2, _ptsz,
               (CUdeviceptr devPtr, size_t count, CUmemLocation location, unsigned flags,
                CUstream hStream),
               (devPtr, count, location, flags, hStream), "0x%llx %zu %d %d", devPtr, count,
               (int)location.type, location.id)
{
    int ordinal;
    CUresult result = ordinal_of(&location, &ordinal);

    if (result == CUDA_SUCCESS && flags != 0)
        result = CUDA_ERROR_INVALID_VALUE;
    return result != CUDA_SUCCESS ? result : prefetch(devPtr, count, ordinal, hStream, per_thread);
}
#endif

#if CUDA_VERSION >= 13000
static CUresult prefetch_batch(const CUdeviceptr *dptrs, const size_t *sizes, size_t count,
                               const CUmemLocation *locations, const size_t *indices,
                               size_t location_count, CUstream stream, bool per_thread)
{
    size_t at = 0;
    CUresult result = CUDA_SUCCESS;

    if (dptrs == NULL || sizes == NULL || count == 0 || locations == NULL || indices == NULL ||
        location_count == 0 || location_count > count || indices[0] != 0)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; result == CUDA_SUCCESS && i < count; i++) {
        int ordinal;

        while (at + 1 < location_count && indices[at + 1] <= i)
            at++;
        result = ordinal_of(&locations[at], &ordinal);
        if (result == CUDA_SUCCESS)
            result = prefetch(dptrs[i], sizes[i], ordinal, stream, per_thread);
    }
    return result;
}

SIM_API_THREAD(cuMemPrefetchBatchAsync, _ptsz,
               (CUdeviceptr * dptrs, size_t *sizes, size_t count, CUmemLocation *prefetchLocs,
                size_t *prefetchLocIdxs, size_t numPrefetchLocs, unsigned long long flags,
                CUstream hStream),
               (dptrs, sizes, count, prefetchLocs, prefetchLocIdxs, numPrefetchLocs, flags,
                hStream),
               "%zu", count)
{
    if (flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    return prefetch_batch(dptrs, sizes, count, prefetchLocs, prefetchLocIdxs, numPrefetchLocs,
                          hStream, per_thread);
}

/* Discarding lets the content become anything; here it stays. */
static CUresult check_discard(const CUdeviceptr *dptrs, const size_t *sizes, size_t count,
                              unsigned long long flags, CUstream handle, bool per_thread)
{
    struct sim_context *context;
    struct sim_stream *stream;
    CUresult result = sim_current(&context);

    if (result == CUDA_SUCCESS)
        result = sim_stream_resolve(handle, per_thread, &stream);
    if (result == CUDA_SUCCESS && (dptrs == NULL || sizes == NULL || count == 0 || flags != 0))
        result = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&sim_memory_lock);
    for (size_t i = 0; result == CUDA_SUCCESS && i < count; i++)
        if (find_range(dptrs[i], sizes[i]) == NULL)
            result = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_unlock(&sim_memory_lock);
    return result;
}

SIM_API_THREAD(cuMemDiscardBatchAsync, _ptsz,
               (CUdeviceptr * dptrs, size_t *sizes, size_t count, unsigned long long flags,
                CUstream hStream),
               (dptrs, sizes, count, flags, hStream), "%zu", count)
{
    return check_discard(dptrs, sizes, count, flags, hStream, per_thread);
}

SIM_API_THREAD(cuMemDiscardAndPrefetchBatchAsync, _ptsz,
               (CUdeviceptr * dptrs, size_t *sizes, size_t count, CUmemLocation *prefetchLocs,
                size_t *prefetchLocIdxs, size_t numPrefetchLocs, unsigned long long flags,
                CUstream hStream),
               (dptrs, sizes, count, prefetchLocs, prefetchLocIdxs, numPrefetchLocs, flags,
                hStream),
               "%zu", count)
{
    CUresult result = check_discard(dptrs, sizes, count, flags, hStream, per_thread);

    if (result != CUDA_SUCCESS)
        return result;
    return prefetch_batch(dptrs, sizes, count, prefetchLocs, prefetchLocIdxs, numPrefetchLocs,
                          hStream, per_thread);
}
#endif

/* ---- advice ---- */

static CUresult advise_locked(struct sim_block *block, CUmem_advise advice, int ordinal)
{
    uint64_t bit = ordinal == CU_DEVICE_CPU ? CPU_BIT : UINT64_C(1) << (ordinal & 63);

    switch (advice) {
    case CU_MEM_ADVISE_SET_READ_MOSTLY:
    case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
        block->read_mostly = advice == CU_MEM_ADVISE_SET_READ_MOSTLY;
        return CUDA_SUCCESS;
    case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
        block->preferred = CU_DEVICE_INVALID;
        return CUDA_SUCCESS;
    default:
        break;
    }
    if (check_ordinal(ordinal) != CUDA_SUCCESS)
        return CUDA_ERROR_INVALID_DEVICE;
    switch (advice) {
    case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
        block->preferred = ordinal;
        return CUDA_SUCCESS;
    case CU_MEM_ADVISE_SET_ACCESSED_BY:
        block->accessed_by |= bit;
        return CUDA_SUCCESS;
    case CU_MEM_ADVISE_UNSET_ACCESSED_BY:
        block->accessed_by &= ~bit;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

static CUresult advise(uint64_t address, uint64_t bytes, CUmem_advise advice, int ordinal)
{
    struct sim_context *context;
    struct sim_block *block;
    CUresult result = sim_current(&context);

    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&sim_memory_lock);
    block = find_range(address, bytes);
    result = block == NULL ? CUDA_ERROR_INVALID_VALUE : advise_locked(block, advice, ordinal);
    pthread_mutex_unlock(&sim_memory_lock);
    return result;
}

SIM_API(cuMemAdvise, (CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUdevice device),
        (devPtr, count, advice, device), "0x%llx %zu %d %d", devPtr, count, (int)advice, device)
{
    return advise(devPtr, count, advice, device);
}

#if CUDA_VERSION >= 12020
SIM_API(cuMemAdvise_v2,
        (CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUmemLocation location),
        (devPtr, count, advice, location), "0x%llx %zu %d %d %d", devPtr, count, (int)advice,
        (int)location.type, location.id)
{
    int ordinal = CU_DEVICE_INVALID;
    bool is_placeless = advice == CU_MEM_ADVISE_SET_READ_MOSTLY ||
                        advice == CU_MEM_ADVISE_UNSET_READ_MOSTLY ||
                        advice == CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION;
    CUresult result = is_placeless ? CUDA_SUCCESS : ordinal_of(&location, &ordinal);

    return result != CUDA_SUCCESS ? result : advise(devPtr, count, advice, ordinal);
}
#endif

/* ---- what was advised ---- */

/* The devices as a list, filled up with CU_DEVICE_INVALID. */
static void list_devices(uint64_t bits, int *list, size_t length)
{
    size_t next = 0;

    for (int ordinal = 0; ordinal < 63 && next < length; ordinal++)
        if ((bits >> ordinal & 1) != 0)
            list[next++] = ordinal;
    if ((bits & CPU_BIT) != 0 && next < length)
        list[next++] = CU_DEVICE_CPU;
    while (next < length)
        list[next++] = CU_DEVICE_INVALID;
}

#if CUDA_VERSION >= 12020
static int type_of(int ordinal)
{
    if (ordinal == CU_DEVICE_INVALID)
        return CU_MEM_LOCATION_TYPE_INVALID;
    return ordinal == CU_DEVICE_CPU ? CU_MEM_LOCATION_TYPE_HOST : CU_MEM_LOCATION_TYPE_DEVICE;
}
#endif

static CUresult get_one(const struct sim_block *block, CUmem_range_attribute attribute, int *value)
{
    switch ((int)attribute) {
    case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
        *value = block->read_mostly;
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
        *value = block->preferred;
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
        *value = block->prefetched;
        return CUDA_SUCCESS;
#if CUDA_VERSION >= 12020
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
        *value = type_of(block->preferred);
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
        *value = block->preferred;
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
        *value = type_of(block->prefetched);
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
        *value = block->prefetched;
        return CUDA_SUCCESS;
#endif
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

static CUresult get_attribute(void *data, size_t data_bytes, CUmem_range_attribute attribute,
                              uint64_t address, uint64_t bytes)
{
    struct sim_block *block;
    CUresult result = CUDA_SUCCESS;
    int value = 0;

    if (data == NULL || data_bytes == 0 || data_bytes % sizeof value != 0 ||
        (attribute != CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY && data_bytes != sizeof value))
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&sim_memory_lock);
    block = find_range(address, bytes);
    if (block == NULL)
        result = CUDA_ERROR_INVALID_VALUE;
    else if (attribute == CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY)
        list_devices(block->accessed_by, data, data_bytes / sizeof value);
    else if ((result = get_one(block, attribute, &value)) == CUDA_SUCCESS)
        memcpy(data, &value, sizeof value);
    pthread_mutex_unlock(&sim_memory_lock);
    return result;
}

SIM_API(cuMemRangeGetAttribute,
        (void *data, size_t dataSize, CUmem_range_attribute attribute, CUdeviceptr devPtr,
         size_t count),
        (data, dataSize, attribute, devPtr, count), "%d 0x%llx %zu", (int)attribute, devPtr, count)
{
    struct sim_context *context;
    CUresult result = sim_current(&context);

    return result != CUDA_SUCCESS ? result
                                  : get_attribute(data, dataSize, attribute, devPtr, count);
}

SIM_API(cuMemRangeGetAttributes,
        (void **data, size_t *dataSizes, CUmem_range_attribute *attributes, size_t numAttributes,
         CUdeviceptr devPtr, size_t count),
        (data, dataSizes, attributes, numAttributes, devPtr, count), "%zu 0x%llx %zu",
        numAttributes, devPtr, count)
{
    struct sim_context *context;
    CUresult result = sim_current(&context);

    if (result == CUDA_SUCCESS &&
        (data == NULL || dataSizes == NULL || attributes == NULL || numAttributes == 0))
        result = CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; result == CUDA_SUCCESS && i < numAttributes; i++)
        result = get_attribute(data[i], dataSizes[i], attributes[i], devPtr, count);
    return result;
}

/* ---- attachment to a stream ---- */

SIM_API_THREAD(cuStreamAttachMemAsync, _ptsz,
               (CUstream hStream, CUdeviceptr dptr, size_t length, unsigned flags),
               (hStream, dptr, length, flags), "%p 0x%llx %zu %u", (void *)hStream, dptr, length,
               flags)
{
    struct sim_context *context;
    struct sim_stream *stream;
    struct sim_block *block;
    CUresult result = sim_current(&context);

    if (result == CUDA_SUCCESS)
        result = sim_stream_resolve(hStream, per_thread, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST &&
        flags != CU_MEM_ATTACH_SINGLE)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&sim_memory_lock);
    block = sim_block_find(dptr);
    if (block == NULL || block->kind != SIM_MANAGED || block->node.start != dptr ||
        (length != 0 && length != block->node.end - block->node.start))
        result = CUDA_ERROR_INVALID_VALUE;
    else
        block->flags = flags;
    pthread_mutex_unlock(&sim_memory_lock);
    return result;
}
