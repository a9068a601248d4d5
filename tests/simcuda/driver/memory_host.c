/* Page-locked host memory: allocated (cuMemAllocHost, cuMemHostAlloc) or the program's own,
 * registered. */
#include "memory.h"

#include <stdlib.h>
#include <sys/mman.h>

#define HOST_PAGE UINT64_C(4096)
#define LARGE_BYTES (UINT64_C(1) << 20) /* registered memory whose kind is looked up */
#define ALLOC_FLAGS                                                                                \
    (CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED)
#define REGISTER_FLAGS                                                                             \
    (CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_IOMEMORY |    \
     CU_MEMHOSTREGISTER_READ_ONLY)

/* Pinning takes time for each page: the kernel finds or makes it, and the driver maps it for the
 * device. */
static void spend_pinning(uint64_t bytes)
{
    const uint64_t mib = UINT64_C(1) << 20;

    sim_call_spend(sim_settings()->pin_ns * (bytes / mib) +
                   sim_settings()->pin_ns * (bytes % mib) / mib);
}

/* Holes are not to be filled by huge pages. */
static void keep_holes(uint64_t address, uint64_t bytes)
{
    const uint64_t start = sim_round_up(address, HOST_PAGE);
    const uint64_t end = (address + bytes) / HOST_PAGE * HOST_PAGE;

    if (end > start)
        madvise((void *)(uintptr_t)start, end - start, MADV_NOHUGEPAGE); /* NOLINT */
}

static CUresult allocate(void **out, uint64_t bytes, unsigned flags)
{
    struct sim_context *context;
    struct sim_block *block;
    void *memory;
    CUresult result = sim_current(&context);

    if (result != CUDA_SUCCESS)
        return result;
    if (out == NULL || bytes == 0 || (flags & ~(unsigned)ALLOC_FLAGS) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    result = sim_check_unsafe_call(context);
    if (result != CUDA_SUCCESS)
        return result;
    block = sim_block_new(SIM_HOST, context);
    if (block == NULL || sim_round_up(bytes, HOST_PAGE) == 0)
        goto fail_block;
    block->span = sim_round_up(bytes, HOST_PAGE);
    block->flags = flags;
    memory = mmap(NULL, block->span, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        goto fail_block;
    keep_holes((uint64_t)(uintptr_t)memory, block->span);
    pthread_mutex_lock(&sim_memory_lock);
    sim_block_insert(block, (uint64_t)(uintptr_t)memory, bytes);
    pthread_mutex_unlock(&sim_memory_lock);
    *out = memory;
    spend_pinning(bytes);
    return CUDA_SUCCESS;

fail_block:
    free(block);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

SIM_API(cuMemAllocHost_v2, (void **pp, size_t bytesize), (pp, bytesize), "%p %zu",
        pp == NULL || sim_result != CUDA_SUCCESS ? NULL : *pp, bytesize)
{
    return allocate(pp, bytesize, 0);
}

SIM_API(cuMemAllocHost, (void **pp, unsigned bytesize), (pp, bytesize), "%p %u",
        pp == NULL || sim_result != CUDA_SUCCESS ? NULL : *pp, bytesize)
{
    return allocate(pp, bytesize, 0);
}

SIM_API(cuMemHostAlloc, (void **pp, size_t bytesize, unsigned Flags), (pp, bytesize, Flags),
        "%p %zu %u", pp == NULL || sim_result != CUDA_SUCCESS ? NULL : *pp, bytesize, Flags)
{
    return allocate(pp, bytesize, Flags);
}

/* Finds a block of the kind that begins at p, waits for the device, and drops it. */
static CUresult drop(void *p, enum sim_kind kind, CUresult unknown)
{
    uint64_t address = (uint64_t)(uintptr_t)p;
    struct sim_context *context;
    struct sim_block *block;
    CUresult result = sim_current(&context);

    if (result != CUDA_SUCCESS)
        return result;
    if (p == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&sim_memory_lock);
    block = sim_block_find(address);
    if (block == NULL || block->kind != kind)
        result = unknown;
    else if (block->node.start != address)
        result = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_unlock(&sim_memory_lock);
    if (result == CUDA_SUCCESS)
        result = sim_check_unsafe_call(context);
    if (result == CUDA_SUCCESS)
        result = sim_context_wait(context);
    if (result != CUDA_SUCCESS)
        return result;
    pthread_rwlock_wrlock(&sim_use_lock);
    pthread_mutex_lock(&sim_memory_lock);
    block = sim_block_find(address);
    if (block == NULL || block->kind != kind || block->node.start != address)
        result = unknown;
    else
        sim_block_drop_locked(block);
    pthread_mutex_unlock(&sim_memory_lock);
    pthread_rwlock_unlock(&sim_use_lock);
    return result;
}

SIM_API(cuMemFreeHost, (void *p), (p), "%p", p)
{
    return drop(p, SIM_HOST, CUDA_ERROR_INVALID_VALUE);
}

static CUresult register_host(void *p, uint64_t bytes, unsigned flags)
{
    uint64_t address = (uint64_t)(uintptr_t)p;
    struct sim_context *context;
    struct sim_block *block;
    CUresult result = sim_current(&context);

    if (result != CUDA_SUCCESS)
        return result;
    if (p == NULL || bytes == 0 || address > UINT64_MAX - bytes ||
        (flags & ~(unsigned)REGISTER_FLAGS) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    result = sim_check_unsafe_call(context);
    if (result != CUDA_SUCCESS)
        return result;
    block = sim_block_new(SIM_REGISTERED, context);
    if (block == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    block->flags = flags;
    block->is_anonymous = bytes >= LARGE_BYTES && sim_sparse_is_anonymous(address, bytes);
    if (block->is_anonymous)
        keep_holes(address, bytes);
    pthread_mutex_lock(&sim_memory_lock);
    if (sim_block_overlap(address, address + bytes) != NULL)
        result = sim_space_contains(address) ? CUDA_ERROR_INVALID_VALUE
                                             : CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    else if (!sim_range_is_accessible(context, address, bytes, true))
        result = CUDA_ERROR_INVALID_VALUE;
    else
        sim_block_insert(block, address, bytes);
    pthread_mutex_unlock(&sim_memory_lock);
    if (result != CUDA_SUCCESS)
        free(block);
    else
        spend_pinning(bytes);
    return result;
}

SIM_API(cuMemHostRegister_v2, (void *p, size_t bytesize, unsigned Flags), (p, bytesize, Flags),
        "%p %zu %u", p, bytesize, Flags)
{
    return register_host(p, bytesize, Flags);
}

SIM_API(cuMemHostRegister, (void *p, size_t bytesize, unsigned Flags), (p, bytesize, Flags),
        "%p %zu %u", p, bytesize, Flags)
{
    return register_host(p, bytesize, Flags);
}

SIM_API(cuMemHostUnregister, (void *p), (p), "%p", p)
{
    return drop(p, SIM_REGISTERED, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

/* With unified addressing the device sees host memory at its host address. */
static CUresult device_pointer(uint64_t *out, void *p, unsigned flags)
{
    uint64_t address = (uint64_t)(uintptr_t)p;
    struct sim_context *context;
    struct sim_block *block;
    CUresult result = sim_current(&context);

    if (result != CUDA_SUCCESS)
        return result;
    if (p == NULL || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&sim_memory_lock);
    block = sim_block_find(address);
    if (block == NULL || (block->kind != SIM_HOST && block->kind != SIM_REGISTERED))
        result = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_unlock(&sim_memory_lock);
    *out = address;
    return result;
}

SIM_API(cuMemHostGetDevicePointer_v2, (CUdeviceptr * pdptr, void *p, unsigned Flags),
        (pdptr, p, Flags), "%p", p)
{
    uint64_t address;
    CUresult result = device_pointer(&address, p, Flags);

    if (result == CUDA_SUCCESS && pdptr == NULL)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        *pdptr = address;
    return result;
}

/* Host addresses do not fit the old 32-bit pointers. */
SIM_API(cuMemHostGetDevicePointer, (CUdeviceptr_v1 * pdptr, void *p, unsigned Flags),
        (pdptr, p, Flags), "%p", p)
{
    uint64_t address;
    CUresult result = device_pointer(&address, p, Flags);

    if (result == CUDA_SUCCESS && (pdptr == NULL || address > UINT32_MAX))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        *pdptr = (CUdeviceptr_v1)address;
    return result;
}

/* On a device with unified addressing host memory is always mapped and portable. */
SIM_API(cuMemHostGetFlags, (unsigned *pFlags, void *p), (pFlags, p), "%p", p)
{
    struct sim_context *context;
    struct sim_block *block;
    CUresult result = sim_current(&context);

    if (result != CUDA_SUCCESS)
        return result;
    if (pFlags == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&sim_memory_lock);
    block = sim_block_find((uint64_t)(uintptr_t)p);
    if (block == NULL || block->kind != SIM_HOST)
        result = CUDA_ERROR_INVALID_VALUE;
    else
        *pFlags = block->flags | CU_MEMHOSTALLOC_DEVICEMAP;
    pthread_mutex_unlock(&sim_memory_lock);
    return result;
}
