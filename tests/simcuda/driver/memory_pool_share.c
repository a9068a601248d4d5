/* Sharing pools and their allocations with other processes.
 *
 * A pool that is made for it keeps its memory in a file of its own, at offsets equal to its
 * addresses; the shareable handle is a descriptor of the file, named "simcuda-pool-<ordinal>". The
 * data of an allocation is its address and size there, and the file's number. An imported pool
 * holds no memory itself: what is imported into it is mapped, and freed with cuMemFree or
 * cuMemFreeAsync. It takes no capacity, as its exporter has taken it. */
#include "memory_pool.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define DATA_MAGIC UINT64_C(0x53494d504f4f4c31)
#define NO_DEVICE (-1) /* in the name of a host pool's file */

struct pointer_data {
    uint64_t magic, address, bytes, inode;
};
_Static_assert(sizeof(struct pointer_data) <= sizeof(CUmemPoolPtrExportData),
               "the data of a pointer has 64 bytes");

/* ---- pools ---- */

static CUresult export_pool(const struct sim_pool *pool, CUmemAllocationHandleType type, int *fd)
{
    if (pool->is_imported || pool->fd < 0 || pool->props.handleTypes != type)
        return CUDA_ERROR_INVALID_VALUE;
    *fd = fcntl(pool->fd, F_DUPFD_CLOEXEC, 0);
    return *fd < 0 ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
}

SIM_API(cuMemPoolExportToShareableHandle,
        (void *handle_out, CUmemoryPool pool, CUmemAllocationHandleType handleType,
         unsigned long long flags),
        (handle_out, pool, handleType, flags), "%p", (void *)pool)
{
    if (handle_out == NULL || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    WITH_POOL(pool, export_pool(found, handleType, handle_out));
}

/* The ordinal in the name of a pool's memory file; false for any other file. */
static bool read_ordinal(int fd, int *ordinal)
{
    char path[64], name[128];
    ssize_t length;

    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    length = readlink(path, name, sizeof name - 1);
    if (length <= 0)
        return false;
    name[length] = '\0';
    return sscanf(name, "/memfd:simcuda-pool-%d", ordinal) == 1;
}

static CUresult import_pool(int fd, CUmemoryPool *out)
{
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED};
    struct sim_pool *pool;
    int ordinal, copy;

    if (!read_ordinal(fd, &ordinal))
        return CUDA_ERROR_INVALID_VALUE;
    if (ordinal != NO_DEVICE && sim_device(ordinal) == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (copy < 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    props.location.type =
        (CUmemLocationType)(ordinal == NO_DEVICE ? SIM_LOCATION_NUMA : SIM_LOCATION_DEVICE);
    props.location.id = ordinal == NO_DEVICE ? 0 : ordinal;
    pthread_mutex_lock(&sim_memory_lock);
    pool = sim_pool_new(&props);
    if (pool != NULL) {
        pool->fd = copy;
        pool->is_imported = true;
        *out = sim_pool_handle(pool);
    }
    pthread_mutex_unlock(&sim_memory_lock);
    if (pool == NULL)
        close(copy);
    return pool == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

SIM_API(cuMemPoolImportFromShareableHandle,
        (CUmemoryPool * pool_out, void *handle, CUmemAllocationHandleType handleType,
         unsigned long long flags),
        (pool_out, handle, handleType, flags), "%d", (int)(intptr_t)handle)
{
    CUresult result = sim_check_init();

    if (result != CUDA_SUCCESS)
        return result;
    if (pool_out == NULL || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    return handleType == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
               ? import_pool((int)(intptr_t)handle, pool_out)
               : CUDA_ERROR_NOT_SUPPORTED;
}

/* ---- pointers ---- */

static bool read_inode(int fd, uint64_t *inode)
{
    struct stat status;

    if (fstat(fd, &status) != 0)
        return false;
    *inode = status.st_ino;
    return true;
}

SIM_API(cuMemPoolExportPointer, (CUmemPoolPtrExportData * shareData_out, CUdeviceptr ptr),
        (shareData_out, ptr), "0x%llx", ptr)
{
    struct pointer_data data = {.magic = DATA_MAGIC};
    const struct sim_block *block;
    CUresult result = sim_check_init();

    if (result != CUDA_SUCCESS)
        return result;
    if (shareData_out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&sim_memory_lock);
    block = sim_block_find(ptr);
    if (block == NULL || block->kind != SIM_POOLED || block->node.start != ptr ||
        block->pool->fd < 0 || !read_inode(block->pool->fd, &data.inode)) {
        result = CUDA_ERROR_INVALID_VALUE;
    } else {
        data.address = block->node.start;
        data.bytes = block->node.end - block->node.start;
    }
    pthread_mutex_unlock(&sim_memory_lock);
    if (result == CUDA_SUCCESS) {
        memset(shareData_out, 0, sizeof *shareData_out);
        memcpy(shareData_out, &data, sizeof data);
    }
    return result;
}

/* Maps the pages around the piece. */
static CUresult map_pointer(struct sim_pool *pool, struct sim_block *block,
                            const struct pointer_data *data)
{
    uint64_t low = data->address / SIM_PAGE * SIM_PAGE;
    CUresult result;

    block->span = sim_round_up(data->address + data->bytes, SIM_PAGE) - low;
    result = sim_space_take(block->span, SIM_PAGE, false, &block->mapped_at);
    if (result != CUDA_SUCCESS)
        return result;
    result = sim_space_map(block->mapped_at, block->span, pool->fd, low, PROT_READ | PROT_WRITE);
    if (result != CUDA_SUCCESS) {
        sim_space_give(block->mapped_at, block->span);
        return result;
    }
    block->pool = pool;
    if (pool->device != NULL)
        block->device = pool->device;
    pool->block_count++;
    sim_block_insert(block, block->mapped_at + (data->address - low), data->bytes);
    return CUDA_SUCCESS;
}

static CUresult import_pointer(struct sim_pool *pool, struct sim_block *block,
                               const struct pointer_data *data)
{
    uint64_t inode;

    if (!pool->is_imported || data->magic != DATA_MAGIC || !read_inode(pool->fd, &inode) ||
        inode != data->inode || data->bytes == 0)
        return CUDA_ERROR_INVALID_VALUE;
    return map_pointer(pool, block, data);
}

SIM_API(cuMemPoolImportPointer,
        (CUdeviceptr * ptr_out, CUmemoryPool pool, CUmemPoolPtrExportData *shareData),
        (ptr_out, pool, shareData), "0x%llx %p",
        ptr_out == NULL || sim_result != CUDA_SUCCESS ? 0 : *ptr_out, (void *)pool)
{
    struct pointer_data data;
    struct sim_context *context = NULL;
    struct sim_block *block;
    struct sim_pool *found;
    CUresult result = sim_current(&context);

    if (result == CUDA_ERROR_INVALID_CONTEXT) { /* not among the errors that are documented */
        context = NULL;
        result = CUDA_SUCCESS;
    }
    if (result != CUDA_SUCCESS)
        return result;
    if (ptr_out == NULL || shareData == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(&data, shareData, sizeof data);
    block = sim_block_new(SIM_IMPORTED, context);
    if (block == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&sim_memory_lock);
    found = sim_pool_find(pool);
    result = found == NULL ? CUDA_ERROR_INVALID_VALUE : import_pointer(found, block, &data);
    if (result == CUDA_SUCCESS)
        *ptr_out = block->node.start;
    pthread_mutex_unlock(&sim_memory_lock);
    if (result != CUDA_SUCCESS)
        free(block);
    return result;
}
