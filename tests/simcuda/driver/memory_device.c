/* Plain device memory: cuMemAlloc and its family, laid out as a GPU's driver does.
 *
 * Up to SIM_SMALL an allocation is cut from a chunk of SIM_PAGE that belongs to its context; larger
 * ones stand alone, rounded to SIM_PAGE. Either way capacity is taken in steps of SIM_PAGE, when a
 * chunk or a large allocation begins, and returned when the last of it is free. */
#include "memory.h"

#include <stdlib.h>

/* A context's chunks: free space inside them. Kept until the context's memory is dropped. */
struct heap {
    struct heap *next;
    struct sim_context *context;
    struct sim_ranges free;     /* in chunks anywhere */
    struct sim_ranges free_low; /* in chunks below 4 GiB */
};

static struct heap *heaps; /* sim_memory_lock */

static struct heap *find_heap(struct sim_context *context)
{
    struct heap *heap;

    for (heap = heaps; heap != NULL; heap = heap->next)
        if (heap->context == context)
            return heap;
    heap = calloc(1, sizeof *heap);
    if (heap == NULL)
        return NULL;
    heap->context = context;
    heap->free.boundary = SIM_PAGE;
    heap->free_low.boundary = SIM_PAGE;
    heap->next = heaps;
    heaps = heap;
    return heap;
}

/* Takes capacity, addresses and access for whole pages. */
static CUresult take_pages(struct sim_device *device, uint64_t bytes, bool is_low,
                           uint64_t *address)
{
    CUresult result = sim_capacity_take(device, bytes);

    if (result != CUDA_SUCCESS)
        return result;
    result = sim_space_take(bytes, SIM_PAGE, is_low, address);
    if (result != CUDA_SUCCESS)
        goto fail_capacity;
    result = sim_space_commit(*address, bytes);
    if (result != CUDA_SUCCESS)
        goto fail_space;
    return CUDA_SUCCESS;

fail_space:
    sim_space_give(*address, bytes);
fail_capacity:
    sim_capacity_return(device, bytes);
    return result;
}

static void give_pages(struct sim_device *device, uint64_t address, uint64_t bytes)
{
    sim_space_decommit(address, bytes);
    sim_space_give(address, bytes);
    sim_capacity_return(device, bytes);
}

static CUresult take_small(struct heap *heap, uint64_t bytes, bool is_low, uint64_t *address)
{
    struct sim_ranges *ranges = is_low ? &heap->free_low : &heap->free;
    uint64_t chunk, chunk_bytes = SIM_PAGE;
    CUresult result;

    if (sim_ranges_take(ranges, bytes, SIM_UNIT, address))
        return CUDA_SUCCESS;
    result = take_pages(heap->context->device, SIM_PAGE, is_low, &chunk);
    if (result != CUDA_SUCCESS)
        return result;
    if (!sim_ranges_give(ranges, &chunk, &chunk_bytes)) {
        give_pages(heap->context->device, chunk, SIM_PAGE);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return sim_ranges_take(ranges, bytes, SIM_UNIT, address) ? CUDA_SUCCESS
                                                             : CUDA_ERROR_OUT_OF_MEMORY;
}

static void give_small(struct heap *heap, uint64_t address, uint64_t bytes)
{
    bool is_low = address <= UINT32_MAX;
    struct sim_ranges *ranges = is_low ? &heap->free_low : &heap->free;

    if (sim_ranges_give(ranges, &address, &bytes) && bytes == SIM_PAGE &&
        sim_ranges_take_at(ranges, address, bytes))
        give_pages(heap->context->device, address, SIM_PAGE);
}

static CUresult alloc_locked(struct sim_block *block, uint64_t bytes, bool is_low)
{
    struct heap *heap = find_heap(block->context);
    uint64_t address = 0;
    CUresult result;

    if (heap == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (bytes <= SIM_SMALL) {
        result = take_small(heap, sim_round_up(bytes, SIM_UNIT), is_low, &address);
    } else {
        block->span = sim_round_up(bytes, SIM_PAGE);
        if (block->span == 0)
            return CUDA_ERROR_OUT_OF_MEMORY;
        result = take_pages(block->device, block->span, is_low, &address);
    }
    if (result == CUDA_SUCCESS)
        sim_block_insert(block, address, bytes);
    return result;
}

CUresult sim_device_alloc(struct sim_context *context, uint64_t bytes, bool is_low,
                          struct sim_block **out)
{
    struct sim_block *block = sim_block_new(SIM_PLAIN, context);
    CUresult result;

    if (block == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&sim_memory_lock);
    result = alloc_locked(block, bytes, is_low);
    pthread_mutex_unlock(&sim_memory_lock);
    if (result != CUDA_SUCCESS) {
        free(block);
        return result;
    }
    *out = block;
    return CUDA_SUCCESS;
}

void sim_device_free_locked(struct sim_block *block)
{
    struct heap *heap = find_heap(block->context);

    sim_block_remove(block);
    if (block->span != 0)
        give_pages(block->device, block->node.start, block->span);
    else if (heap != NULL)
        give_small(heap, block->node.start,
                   sim_round_up(block->node.end - block->node.start, SIM_UNIT));
    free(block);
}

void sim_device_drop_context_locked(struct sim_context *context)
{
    struct heap **link = &heaps;

    while (*link != NULL) {
        struct heap *heap = *link;

        if (heap->context != context) {
            link = &heap->next;
            continue;
        }
        *link = heap->next;
        sim_ranges_fini(&heap->free);
        sim_ranges_fini(&heap->free_low);
        free(heap);
    }
}

/* ---- variables of modules ---- */

CUresult sim_memory_variable_take(struct sim_context *context, size_t bytes, uint64_t *address)
{
    struct sim_block *block = sim_block_new(SIM_VARIABLE, context);
    CUresult result;

    if (block == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&sim_memory_lock);
    result = alloc_locked(block, bytes, false);
    if (result == CUDA_SUCCESS)
        *address = block->node.start;
    pthread_mutex_unlock(&sim_memory_lock);
    if (result != CUDA_SUCCESS)
        free(block);
    return result;
}

void sim_memory_variable_give(uint64_t address)
{
    struct sim_block *block;

    pthread_rwlock_wrlock(&sim_use_lock);
    pthread_mutex_lock(&sim_memory_lock);
    block = sim_block_find(address);
    if (block != NULL && block->kind == SIM_VARIABLE && block->node.start == address)
        sim_block_drop_locked(block);
    pthread_mutex_unlock(&sim_memory_lock);
    pthread_rwlock_unlock(&sim_use_lock);
}

/* ---- entry points ---- */

static CUresult allocate(uint64_t bytes, bool is_low, uint64_t *address)
{
    struct sim_context *context;
    struct sim_block *block;
    CUresult result = sim_current(&context);

    if (result != CUDA_SUCCESS)
        return result;
    if (bytes == 0)
        return CUDA_ERROR_INVALID_VALUE;
    result = sim_check_unsafe_call(context);
    if (result != CUDA_SUCCESS)
        return result;
    result = sim_device_alloc(context, bytes, is_low, &block);
    if (result == CUDA_SUCCESS)
        *address = block->node.start;
    return result;
}

SIM_API(cuMemAlloc_v2, (CUdeviceptr * dptr, size_t bytesize), (dptr, bytesize), "0x%llx %zu",
        dptr == NULL || sim_result != CUDA_SUCCESS ? 0 : *dptr, bytesize)
{
    uint64_t address;
    CUresult result;

    if (dptr == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    result = allocate(bytesize, false, &address);
    if (result == CUDA_SUCCESS)
        *dptr = address;
    return result;
}

SIM_API(cuMemAlloc, (CUdeviceptr_v1 * dptr, unsigned bytesize), (dptr, bytesize), "0x%x %u",
        dptr == NULL || sim_result != CUDA_SUCCESS ? 0 : *dptr, bytesize)
{
    uint64_t address;
    CUresult result;

    if (dptr == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    result = allocate(bytesize, true, &address);
    if (result == CUDA_SUCCESS)
        *dptr = (CUdeviceptr_v1)address;
    return result;
}

static CUresult allocate_pitched(uint64_t width, uint64_t height, unsigned element_bytes,
                                 bool is_low, uint64_t *address, uint64_t *pitch)
{
    uint64_t bytes;

    if (element_bytes != 4 && element_bytes != 8 && element_bytes != 16)
        return CUDA_ERROR_INVALID_VALUE;
    if (width == 0 || height == 0)
        return CUDA_ERROR_INVALID_VALUE;
    *pitch = sim_round_up(width, SIM_UNIT);
    if (*pitch == 0 || __builtin_mul_overflow(*pitch, height, &bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return allocate(bytes, is_low, address);
}

SIM_API(cuMemAllocPitch_v2,
        (CUdeviceptr * dptr, size_t *pPitch, size_t WidthInBytes, size_t Height,
         unsigned ElementSizeBytes),
        (dptr, pPitch, WidthInBytes, Height, ElementSizeBytes), "0x%llx %zu %zu",
        dptr == NULL || sim_result != CUDA_SUCCESS ? 0 : *dptr, WidthInBytes, Height)
{
    uint64_t address, pitch;
    CUresult result;

    if (dptr == NULL || pPitch == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    result = allocate_pitched(WidthInBytes, Height, ElementSizeBytes, false, &address, &pitch);
    if (result == CUDA_SUCCESS) {
        *dptr = address;
        *pPitch = pitch;
    }
    return result;
}

SIM_API(cuMemAllocPitch,
        (CUdeviceptr_v1 * dptr, unsigned *pPitch, unsigned WidthInBytes, unsigned Height,
         unsigned ElementSizeBytes),
        (dptr, pPitch, WidthInBytes, Height, ElementSizeBytes), "0x%x %u %u",
        dptr == NULL || sim_result != CUDA_SUCCESS ? 0 : *dptr, WidthInBytes, Height)
{
    uint64_t address, pitch;
    CUresult result;

    if (dptr == NULL || pPitch == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    result = allocate_pitched(WidthInBytes, Height, ElementSizeBytes, true, &address, &pitch);
    if (result == CUDA_SUCCESS) {
        *dptr = (CUdeviceptr_v1)address;
        *pPitch = (unsigned)pitch;
    }
    return result;
}
