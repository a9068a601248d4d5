/* Memory for devices that CUDA knows nothing of: cuMemGetHandleForAddressRange.
 *
 * In a DMA-BUF's place stands a descriptor whose position, when it is given, is where the range
 * begins: its holder reads and writes the range with pread and pwrite from there, in no stream, as
 * a network card would. It names physical memory: what is mapped at the addresses later does not
 * matter. Memory that lies in one piece of one file is that file; other memory is shown to the host
 * once more, in one piece and permanently, and the descriptor is this process' memory. */
#include "memory.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct piece {
    int fd;
    uint64_t offset, bytes;
    const CUmemAllocationProp *prop; /* of mapped memory */
};

/* The physical memory from an address on, at most `bytes` of it. */
static CUresult find_piece(uint64_t address, uint64_t bytes, int ordinal, struct piece *piece)
{
    struct sim_block *block = sim_block_find(address);
    struct sim_mapping_info info;

    *piece = (struct piece){.bytes = bytes};
    if (block != NULL && (block->kind == SIM_HOST || block->kind == SIM_REGISTERED))
        return CUDA_ERROR_NOT_SUPPORTED; /* HOST_ALLOC_DMA_BUF_SUPPORTED */
    if (block != NULL) {
        if (block->kind != SIM_PLAIN || block->node.end - address < bytes ||
            !sim_space_backing(address, &piece->fd, &piece->offset))
            return CUDA_ERROR_INVALID_VALUE;
        return CUDA_SUCCESS;
    }
    if (!sim_mapping_query(address, ordinal, &info) || !info.is_mapped)
        return CUDA_ERROR_INVALID_VALUE;
    sim_physical_backing(info.physical, &piece->fd, &piece->offset);
    piece->offset += address - info.start;
    piece->prop = &info.physical->prop;
    if (info.start + info.bytes - address < bytes)
        piece->bytes = info.start + info.bytes - address;
    return CUDA_SUCCESS;
}

/* Checks the whole range: "All the physical allocations backing the address range must be resident
 * on the same device and have identical allocation properties." */
static CUresult check_range(uint64_t address, uint64_t bytes, struct piece *first, bool *is_whole)
{
    uint64_t done;
    CUresult result = find_piece(address, bytes, 0, first);

    *is_whole = true;
    for (done = first->bytes; result == CUDA_SUCCESS && done < bytes;) {
        struct piece next;

        result = find_piece(address + done, bytes - done, 0, &next);
        if (result != CUDA_SUCCESS)
            break;
        if (next.prop == NULL || first->prop == NULL ||
            memcmp(next.prop, first->prop, sizeof *next.prop) != 0)
            return CUDA_ERROR_INVALID_VALUE;
        *is_whole = *is_whole && next.fd == first->fd && next.offset == first->offset + done;
        done += next.bytes;
    }
    return result;
}

/* A descriptor with a position of its own. */
static int open_at(const char *path, uint64_t position)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);

    if (fd >= 0 && lseek(fd, (off_t)position, SEEK_SET) < 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}

/* Shows the pieces side by side. */
static int open_pieces(uint64_t address, uint64_t bytes)
{
    char *base = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    struct piece piece;

    if (base == MAP_FAILED)
        return -1;
    for (uint64_t done = 0; done < bytes; done += piece.bytes)
        if (find_piece(address + done, bytes - done, 0, &piece) != CUDA_SUCCESS ||
            mmap(base + done, piece.bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, piece.fd,
                 (off_t)piece.offset) == MAP_FAILED) {
            munmap(base, bytes);
            return -1;
        }
    return open_at("/proc/self/mem", (uint64_t)(uintptr_t)base);
}

static CUresult export_range(uint64_t address, uint64_t bytes, int *fd)
{
    struct piece first;
    char path[32];
    bool is_whole;
    CUresult result;

    pthread_mutex_lock(&sim_memory_lock);
    result = check_range(address, bytes, &first, &is_whole);
    if (result == CUDA_SUCCESS && is_whole) {
        snprintf(path, sizeof path, "/proc/self/fd/%d", first.fd);
        *fd = open_at(path, first.offset);
    } else if (result == CUDA_SUCCESS) {
        *fd = open_pieces(address, bytes);
    }
    pthread_mutex_unlock(&sim_memory_lock);
    return result == CUDA_SUCCESS && *fd < 0 ? CUDA_ERROR_OPERATING_SYSTEM : result;
}

SIM_API(cuMemGetHandleForAddressRange,
        (void *handle, CUdeviceptr dptr, size_t size, CUmemRangeHandleType handleType,
         unsigned long long flags),
        (handle, dptr, size, handleType, flags), "0x%llx %zu", dptr, size)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    int fd = -1;
    CUresult result = sim_check_init();

    if (result != CUDA_SUCCESS)
        return result;
    /* "Users must ensure the dptr and size are aligned to the host page size." */
    if (handle == NULL || dptr == 0 || size == 0 || dptr % page != 0 || size % page != 0 ||
        (flags & ~(unsigned long long)CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE) != 0 ||
        handleType != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD)
        return CUDA_ERROR_INVALID_VALUE;
    if (sim_device_attribute(CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, sim_device(0)) == 0)
        return CUDA_ERROR_NOT_SUPPORTED;
    result = export_range(dptr, size, &fd);
    if (result == CUDA_SUCCESS)
        *(int *)handle = fd;
    return result;
}
