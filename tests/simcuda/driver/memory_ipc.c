/* Sharing cuMemAlloc memory with other processes by handle.
 *
 * A handle names the exporter's memory file through /proc and the piece of it; the importer maps
 * the pages that hold the piece. It covers the whole allocation, whatever address inside it was
 * given. A process cannot open its own. */
#include "memory.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define HANDLE_MAGIC UINT32_C(0x53494d49)

struct ipc_handle {
    uint32_t magic;
    uint32_t pid;
    int32_t fd;
    int32_t ordinal;
    uint64_t offset, bytes, id;
};

_Static_assert(sizeof(struct ipc_handle) <= CU_IPC_HANDLE_SIZE, "an IPC handle has 64 bytes");

SIM_API(cuIpcGetMemHandle, (CUipcMemHandle * pHandle, CUdeviceptr dptr), (pHandle, dptr), "0x%llx",
        dptr)
{
    struct ipc_handle handle = {.magic = HANDLE_MAGIC, .pid = (uint32_t)getpid()};
    struct sim_context *context;
    struct sim_block *block;
    CUresult result = sim_current(&context);

    if (result != CUDA_SUCCESS)
        return result;
    if (pHandle == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&sim_memory_lock);
    block = sim_block_find(dptr);
    if (block == NULL || block->kind != SIM_PLAIN) {
        result = CUDA_ERROR_INVALID_VALUE;
    } else {
        handle.ordinal = block->device->ordinal;
        handle.bytes = block->node.end - block->node.start;
        handle.id = block->id;
        sim_space_backing(block->node.start, &handle.fd, &handle.offset);
    }
    pthread_mutex_unlock(&sim_memory_lock);
    if (result == CUDA_SUCCESS) {
        memset(pHandle, 0, sizeof *pHandle);
        memcpy(pHandle, &handle, sizeof handle);
    }
    return result;
}

/* Imports are few and opened seldom: they are looked for one by one. */
static struct sim_block *imports; /* sim_memory_lock; linked by next_import */

static struct sim_block *find_import(const struct ipc_handle *handle)
{
    struct sim_block *block;

    for (block = imports; block != NULL; block = block->next_import)
        if (block->origin_pid == handle->pid && block->origin_id == handle->id)
            return block;
    return NULL;
}

void sim_import_forget(struct sim_block *block)
{
    struct sim_block **link = &imports;

    while (*link != NULL && *link != block)
        link = &(*link)->next_import;
    if (*link != NULL)
        *link = block->next_import;
}

/* Maps the pages around the piece. sim_memory_lock held. */
static CUresult map_import(struct sim_block *block, const struct ipc_handle *handle, int fd)
{
    uint64_t low = handle->offset / SIM_PAGE * SIM_PAGE;
    CUresult result;

    block->span = sim_round_up(handle->offset + handle->bytes, SIM_PAGE) - low;
    result = sim_space_take(block->span, SIM_PAGE, false, &block->mapped_at);
    if (result != CUDA_SUCCESS)
        return result;
    if (sim_space_map(block->mapped_at, block->span, fd, low, PROT_READ | PROT_WRITE) !=
        CUDA_SUCCESS) {
        sim_space_give(block->mapped_at, block->span);
        return CUDA_ERROR_MAP_FAILED;
    }
    sim_block_insert(block, block->mapped_at + (handle->offset - low), handle->bytes);
    block->next_import = imports;
    imports = block;
    return CUDA_SUCCESS;
}

static CUresult import(struct sim_context *context, const struct ipc_handle *handle,
                       uint64_t *address)
{
    struct sim_block *block = sim_block_new(SIM_IMPORTED, context);
    CUresult result = CUDA_ERROR_MAP_FAILED;
    char path[64];
    int fd;

    if (block == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    block->device = sim_device(handle->ordinal);
    block->origin_pid = handle->pid;
    block->origin_id = handle->id;
    block->open_count = 1;
    snprintf(path, sizeof path, "/proc/%u/fd/%d", handle->pid, handle->fd);
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        goto fail_block;
    pthread_mutex_lock(&sim_memory_lock);
    result = map_import(block, handle, fd);
    pthread_mutex_unlock(&sim_memory_lock);
    close(fd);
    if (result != CUDA_SUCCESS)
        goto fail_block;
    *address = block->node.start;
    return CUDA_SUCCESS;

fail_block:
    free(block);
    return result;
}

static CUresult open_handle(CUdeviceptr *out, const CUipcMemHandle *raw, unsigned flags)
{
    struct sim_context *context;
    struct ipc_handle handle;
    struct sim_block *block;
    uint64_t address = 0;
    CUresult result = sim_current(&context);

    if (result != CUDA_SUCCESS)
        return result;
    memcpy(&handle, raw, sizeof handle);
    if (out == NULL || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
        return CUDA_ERROR_INVALID_VALUE;
    if (handle.magic != HANDLE_MAGIC)
        return CUDA_ERROR_INVALID_HANDLE;
    if (handle.pid == (uint32_t)getpid())
        return CUDA_ERROR_INVALID_CONTEXT;
    if (sim_device(handle.ordinal) == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    pthread_mutex_lock(&sim_memory_lock);
    block = find_import(&handle);
    if (block != NULL) {
        block->open_count++;
        address = block->node.start;
    }
    pthread_mutex_unlock(&sim_memory_lock);
    if (block == NULL)
        result = import(context, &handle, &address);
    if (result == CUDA_SUCCESS)
        *out = address;
    return result;
}

SIM_API(cuIpcOpenMemHandle_v2, (CUdeviceptr * pdptr, CUipcMemHandle handle, unsigned Flags),
        (pdptr, handle, Flags), "0x%llx", pdptr == NULL || sim_result != CUDA_SUCCESS ? 0 : *pdptr)
{
    return open_handle(pdptr, &handle, Flags);
}

SIM_API(cuIpcOpenMemHandle, (CUdeviceptr * pdptr, CUipcMemHandle handle, unsigned Flags),
        (pdptr, handle, Flags), "0x%llx", pdptr == NULL || sim_result != CUDA_SUCCESS ? 0 : *pdptr)
{
    return open_handle(pdptr, &handle, Flags);
}

SIM_API(cuIpcCloseMemHandle, (CUdeviceptr dptr), (dptr), "0x%llx", dptr)
{
    struct sim_context *context;
    struct sim_block *block;
    CUresult result = sim_current(&context);

    if (result == CUDA_SUCCESS)
        result = sim_context_wait(context);
    if (result != CUDA_SUCCESS)
        return result;
    pthread_rwlock_wrlock(&sim_use_lock);
    pthread_mutex_lock(&sim_memory_lock);
    block = sim_block_find(dptr);
    if (block == NULL || block->kind != SIM_IMPORTED || block->pool != NULL ||
        block->node.start != dptr)
        result = CUDA_ERROR_INVALID_VALUE;
    else if (--block->open_count == 0)
        sim_block_drop_locked(block);
    pthread_mutex_unlock(&sim_memory_lock);
    pthread_rwlock_unlock(&sim_use_lock);
    return result;
}
