/* cuMemFree, cuMemGetInfo and cuMemGetAddressRange. */
#include "memory.h"

#include <stdlib.h>
#include <sys/mman.h>

static bool is_freed_by_mem_free(const struct sim_block *block)
{
    enum sim_kind kind = block->kind;

    return !block->is_freed && (kind == SIM_PLAIN || kind == SIM_MANAGED || kind == SIM_POOLED ||
                                kind == SIM_GRAPH || (kind == SIM_IMPORTED && block->pool != NULL));
}

/* Waits for all devices, as freeing does: whoever can name the memory may use it. Memory of a pool
 * is not waited for: the caller answers for its last use. */
static CUresult wait_for_users(struct sim_context *context, uint64_t address)
{
    bool is_ordered = false;
    struct sim_block *block;
    CUresult result = CUDA_ERROR_INVALID_VALUE;

    pthread_mutex_lock(&sim_memory_lock);
    block = sim_block_find(address);
    if (block != NULL && block->node.start == address && is_freed_by_mem_free(block)) {
        is_ordered = block->kind == SIM_POOLED;
        result = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&sim_memory_lock);
    if (result != CUDA_SUCCESS)
        return result;
    result = sim_check_unsafe_call(context);
    if (result != CUDA_SUCCESS || is_ordered)
        return result;
    sim_wait_for_all(); /* others' errors are their own */
    return sim_context_wait(context);
}

void sim_block_drop_locked(struct sim_block *block)
{
    switch (block->kind) {
    case SIM_PLAIN:
    case SIM_VARIABLE:
        sim_device_free_locked(block);
        return;
    case SIM_GRAPH:
        sim_graph_block_drop_locked(block);
        return;
    case SIM_MANAGED:
        sim_space_decommit(block->node.start, block->span);
        sim_space_give(block->node.start, block->span);
        break;
    case SIM_IMPORTED:
        if (block->pool != NULL)
            sim_pool_import_dropped(block->pool);
        else
            sim_import_forget(block);
        sim_space_unmap(block->mapped_at, block->span);
        sim_space_give(block->mapped_at, block->span);
        break;
    case SIM_HOST:
        munmap((void *)(uintptr_t)block->node.start, block->span); /* NOLINT */
        break;
    case SIM_POOLED:
    case SIM_REGISTERED:
        break;
    }
    sim_block_remove(block);
    free(block);
}

/* Frees what was checked and waited for; another thread may have been faster. */
static CUresult free_now(uint64_t address)
{
    struct sim_block *block;
    CUresult result = CUDA_SUCCESS;

    pthread_rwlock_wrlock(&sim_use_lock);
    pthread_mutex_lock(&sim_memory_lock);
    block = sim_block_find(address);
    if (block == NULL || block->node.start != address || !is_freed_by_mem_free(block))
        result = CUDA_ERROR_INVALID_VALUE;
    else if (block->kind == SIM_POOLED)
        sim_pool_free_locked(block, NULL, 0);
    else if (block->kind == SIM_GRAPH)
        result = sim_graph_block_release_locked(block);
    else
        sim_block_drop_locked(block);
    pthread_mutex_unlock(&sim_memory_lock);
    pthread_rwlock_unlock(&sim_use_lock);
    return result;
}

static CUresult free_memory(uint64_t address)
{
    struct sim_context *context;
    CUresult result = sim_current(&context);

    if (result != CUDA_SUCCESS || address == 0)
        return result;
    result = wait_for_users(context, address);
    return result != CUDA_SUCCESS ? result : free_now(address);
}

SIM_API(cuMemFree_v2, (CUdeviceptr dptr), (dptr), "0x%llx", dptr)
{
    return free_memory(dptr);
}

SIM_API(cuMemFree, (CUdeviceptr_v1 dptr), (dptr), "0x%x", dptr)
{
    return free_memory(dptr);
}

static CUresult get_info(uint64_t *free_bytes, uint64_t *total)
{
    struct sim_context *context;
    CUresult result = sim_current(&context);
    uint64_t used;

    if (result != CUDA_SUCCESS)
        return result;
    used = sim_capacity_used(context->device);
    *total = sim_settings()->memory_bytes;
    *free_bytes = used < *total ? *total - used : 0;
    return CUDA_SUCCESS;
}

static unsigned clamp32(uint64_t bytes)
{
    return bytes > UINT32_MAX ? UINT32_MAX : (unsigned)bytes;
}

SIM_API(cuMemGetInfo_v2, (size_t * free, size_t *total), (free, total), "%zu %zu",
        free == NULL || sim_result != CUDA_SUCCESS ? 0 : *free,
        total == NULL || sim_result != CUDA_SUCCESS ? 0 : *total)
{
    uint64_t free_bytes, total_bytes;
    CUresult result = get_info(&free_bytes, &total_bytes);

    if (result != CUDA_SUCCESS)
        return result;
    if (free != NULL)
        *free = free_bytes;
    if (total != NULL)
        *total = total_bytes;
    return CUDA_SUCCESS;
}

SIM_API(cuMemGetInfo, (unsigned *free, unsigned *total), (free, total), "%u %u",
        free == NULL || sim_result != CUDA_SUCCESS ? 0 : *free,
        total == NULL || sim_result != CUDA_SUCCESS ? 0 : *total)
{
    uint64_t free_bytes, total_bytes;
    CUresult result = get_info(&free_bytes, &total_bytes);

    if (result != CUDA_SUCCESS)
        return result;
    if (free != NULL)
        *free = clamp32(free_bytes);
    if (total != NULL)
        *total = clamp32(total_bytes);
    return CUDA_SUCCESS;
}

/* Host memory is not what cuMemGetAddressRange is about, registered memory is. */
static CUresult address_range(uint64_t address, uint64_t *base, uint64_t *bytes)
{
    struct sim_mapping_info mapping;
    struct sim_context *context;
    struct sim_block *block;
    CUresult result = sim_current(&context);

    if (result != CUDA_SUCCESS)
        return result;
    result = CUDA_ERROR_NOT_FOUND;
    pthread_mutex_lock(&sim_memory_lock);
    block = sim_block_find(address);
    if (block != NULL && (block->kind != SIM_GRAPH || block->is_committed)) {
        *base = block->node.start;
        *bytes = block->node.end - block->node.start;
        result = CUDA_SUCCESS;
    } else if (block == NULL && sim_mapping_query(address, context->device->ordinal, &mapping) &&
               mapping.is_mapped) {
        *base = mapping.start;
        *bytes = mapping.bytes;
        result = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&sim_memory_lock);
    return result;
}

SIM_API(cuMemGetAddressRange_v2, (CUdeviceptr * pbase, size_t *psize, CUdeviceptr dptr),
        (pbase, psize, dptr), "0x%llx", dptr)
{
    uint64_t base, bytes;

    if (pbase == NULL && psize == NULL) /* nothing is asked, in any state */
        return CUDA_SUCCESS;
    CUresult result = address_range(dptr, &base, &bytes);
    if (result != CUDA_SUCCESS)
        return result;
    if (pbase != NULL)
        *pbase = base;
    if (psize != NULL)
        *psize = bytes;
    return CUDA_SUCCESS;
}

SIM_API(cuMemGetAddressRange, (CUdeviceptr_v1 * pbase, unsigned *psize, CUdeviceptr_v1 dptr),
        (pbase, psize, dptr), "0x%x", dptr)
{
    uint64_t base, bytes;

    if (pbase == NULL && psize == NULL) /* nothing is asked, in any state */
        return CUDA_SUCCESS;
    CUresult result = address_range(dptr, &base, &bytes);
    if (result != CUDA_SUCCESS)
        return result;
    if (pbase != NULL)
        *pbase = (CUdeviceptr_v1)base;
    if (psize != NULL)
        *psize = clamp32(bytes);
    return CUDA_SUCCESS;
}
