/* Physical memory of the mapping interface: cuMemCreate, its handles, and sharing them between
 * processes.
 *
 * Memory is a piece of a window whose addresses stay inaccessible. Memory that is exported moves to
 * a memory file of its own, named "simcuda-<ordinal>", and the exported descriptor is a duplicate
 * of it, so it can travel by any means that carries descriptors. Capacity is held until the last
 * handle and the last mapping are gone. */
#include "memory.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define FIRST_HANDLE UINT64_C(0x1000)
#define HOST_ORDINAL (-1)
/* Attributes that not every header has: HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED and
 * HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED. */
#define HOST_NUMA_MAPPING ((CUdevice_attribute)141)
#define HOST_MAPPING ((CUdevice_attribute)145)

static struct sim_tree handles;             /* sim_memory_lock */
static struct sim_physical *shared_handles; /* those with a file of their own */

struct sim_physical *sim_physical_find(CUmemGenericAllocationHandle handle)
{
    struct sim_node *node = sim_tree_find(&handles, handle);
    struct sim_physical *physical;

    if (node == NULL)
        return NULL;
    physical = SIM_CONTAINER(node, struct sim_physical, node);
    return physical->handle_count == 0 ? NULL : physical;
}

void sim_physical_backing(const struct sim_physical *physical, int *fd, uint64_t *offset)
{
    *fd = physical->fd;
    *offset = 0;
    if (physical->address != 0)
        sim_space_backing(physical->address, fd, offset);
}

static void insert(struct sim_physical *physical)
{
    physical->id = sim_memory_next_id();
    physical->node.start = FIRST_HANDLE + physical->id;
    physical->node.end = physical->node.start + 1;
    physical->handle_count = 1;
    sim_tree_insert(&handles, &physical->node);
}

static void list_shared(struct sim_physical *physical)
{
    physical->next_shared = shared_handles;
    shared_handles = physical;
}

static void forget_shared(struct sim_physical *physical)
{
    struct sim_physical **link = &shared_handles;

    while (*link != NULL && *link != physical)
        link = &(*link)->next_shared;
    if (*link != NULL)
        *link = physical->next_shared;
}

void sim_physical_put(struct sim_physical *physical)
{
    if (physical->handle_count != 0 || physical->map_count != 0)
        return;
    sim_tree_remove(&handles, &physical->node);
    if (physical->fd >= 0) {
        forget_shared(physical);
        close(physical->fd);
    } else {
        sim_space_discard(physical->address, physical->bytes);
        sim_space_give(physical->address, physical->bytes);
    }
    if (physical->is_charged)
        sim_capacity_return(physical->device, physical->bytes);
    free(physical);
}

/* The host's types came with CUDA 12.2. */
CUresult sim_location_check(const CUmemLocation *location)
{
    if (location->type != CU_MEM_LOCATION_TYPE_DEVICE && sim_settings()->driver_version < 12020)
        return CUDA_ERROR_INVALID_VALUE;
    switch ((int)location->type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
        return sim_device(location->id) == NULL ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
#if CUDA_VERSION >= 12020
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
        return CUDA_SUCCESS;
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
        return location->id < 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
#endif
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult sim_check_mapping(void)
{
    CUresult result = sim_check_init();

    return result == CUDA_SUCCESS && !sim_settings()->has_mapping ? CUDA_ERROR_NOT_SUPPORTED
                                                                  : result;
}

/* Whether devices map memory of the host there. "HOST allocations are not IPC capable and
 * requestedHandleTypes must be 0"; drivers before CUDA 13.0 know memory of a node alone.
 * "Specifying CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT … will result in CUDA_ERROR_INVALID_VALUE." */
static CUresult check_host_prop(const CUmemAllocationProp *prop)
{
#if CUDA_VERSION >= 12020
    const bool is_node = prop->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA;

    if (prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE || sim_device(0) == NULL)
        return CUDA_SUCCESS;
    if (prop->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT ||
        (!is_node && (prop->requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE ||
                      sim_settings()->driver_version < 13000)))
        return CUDA_ERROR_INVALID_VALUE;
    return sim_device_attribute(is_node ? HOST_NUMA_MAPPING : HOST_MAPPING, sim_device(0)) != 0
               ? CUDA_SUCCESS
               : CUDA_ERROR_NOT_SUPPORTED;
#else
    return CUDA_SUCCESS;
#endif
}

static CUresult check_prop(const CUmemAllocationProp *prop)
{
    CUresult result;

    if (prop == NULL || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
        prop->win32HandleMetaData != NULL)
        return CUDA_ERROR_INVALID_VALUE;
    switch ((int)prop->requestedHandleTypes) {
    case CU_MEM_HANDLE_TYPE_NONE:
    case CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR:
        result = sim_location_check(&prop->location);
        return result == CUDA_SUCCESS ? check_host_prop(prop) : result;
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

/* A file of its own, so that a descriptor of it shares this memory and nothing else. */
static CUresult back_with_file(struct sim_physical *physical)
{
    struct stat status;
    char name[32];

    snprintf(name, sizeof name, "simcuda-%d",
             physical->device == NULL ? HOST_ORDINAL : physical->device->ordinal);
    physical->fd = sim_space_open_file(name, physical->bytes);
    if (physical->fd < 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (fstat(physical->fd, &status) != 0) {
        close(physical->fd);
        physical->fd = -1;
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    physical->file_device = status.st_dev;
    physical->file_inode = status.st_ino;
    return CUDA_SUCCESS;
}

static bool is_zero(const char *page, size_t bytes)
{
    return page[0] == 0 && memcmp(page, page + 1, bytes - 1) == 0;
}

/* Copies the content from the window, but for pages of zeros. By mappings: the process's limit of
 * file sizes does not count. */
static bool copy_to_file(const struct sim_physical *physical)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uint64_t offset;
    int fd;

    sim_space_backing(physical->address, &fd, &offset);
    char *from = mmap(NULL, physical->bytes, PROT_READ, MAP_SHARED, fd, (off_t)offset);
    char *to = mmap(NULL, physical->bytes, PROT_WRITE, MAP_SHARED, physical->fd, 0);
    const bool is_mapped = from != MAP_FAILED && to != MAP_FAILED;
    for (uint64_t at = 0; is_mapped && at < physical->bytes; at += page)
        if (!is_zero(from + at, page))
            memcpy(to + at, from + at, page);
    if (from != MAP_FAILED)
        munmap(from, physical->bytes);
    if (to != MAP_FAILED)
        munmap(to, physical->bytes);
    return is_mapped;
}

/* Moves the memory to a file of its own; no work uses it meanwhile. */
static CUresult move_to_file(struct sim_physical *physical)
{
    CUresult result = back_with_file(physical);

    if (result != CUDA_SUCCESS)
        return result;
    if (!copy_to_file(physical)) {
        close(physical->fd);
        physical->fd = -1;
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    sim_mapping_hide(physical);
    sim_space_discard(physical->address, physical->bytes);
    sim_space_give(physical->address, physical->bytes);
    physical->address = 0;
    list_shared(physical);
    return CUDA_SUCCESS;
}

SIM_API(cuMemCreate,
        (CUmemGenericAllocationHandle * handle, size_t size, const CUmemAllocationProp *prop,
         unsigned long long flags),
        (handle, size, prop, flags), "0x%llx %zu",
        handle == NULL || sim_result != CUDA_SUCCESS ? 0 : *handle, size)
{
    struct sim_physical *physical;
    CUresult result = sim_check_mapping();

    if (result == CUDA_SUCCESS)
        result = check_prop(prop);
    if (result != CUDA_SUCCESS)
        return result;
    if (handle == NULL || flags != 0 || size == 0 || size % SIM_PAGE != 0)
        return CUDA_ERROR_INVALID_VALUE;
    physical = calloc(1, sizeof *physical);
    if (physical == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    physical->fd = -1;
    physical->prop = *prop;
    physical->bytes = size;
    if (prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
        physical->device = sim_device(prop->location.id);
        result = sim_capacity_take(physical->device, size);
        if (result != CUDA_SUCCESS)
            goto fail;
        physical->is_charged = true;
    }
    pthread_mutex_lock(&sim_memory_lock);
    result = sim_space_take(physical->bytes, SIM_PAGE, false, &physical->address);
    if (result == CUDA_SUCCESS) {
        insert(physical);
        *handle = physical->node.start;
    }
    pthread_mutex_unlock(&sim_memory_lock);
    if (result == CUDA_SUCCESS)
        return result;
    if (physical->is_charged)
        sim_capacity_return(physical->device, size);
fail:
    free(physical);
    return result;
}

SIM_API(cuMemRelease, (CUmemGenericAllocationHandle handle), (handle), "0x%llx", handle)
{
    struct sim_physical *physical;
    CUresult result = sim_check_init();

    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&sim_memory_lock);
    physical = sim_physical_find(handle);
    if (physical == NULL) {
        result = CUDA_ERROR_INVALID_VALUE;
    } else {
        physical->handle_count--;
        sim_physical_put(physical);
    }
    pthread_mutex_unlock(&sim_memory_lock);
    return result;
}

SIM_API(cuMemRetainAllocationHandle, (CUmemGenericAllocationHandle * handle, void *addr),
        (handle, addr), "%p", addr)
{
    struct sim_mapping_info info;
    CUresult result = sim_check_init();

    if (result != CUDA_SUCCESS)
        return result;
    if (handle == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    result = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&sim_memory_lock);
    if (sim_mapping_query((uint64_t)(uintptr_t)addr, 0, &info) && info.is_mapped) {
        info.physical->handle_count++;
        *handle = info.physical->node.start;
        result = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&sim_memory_lock);
    return result;
}

SIM_API(cuMemGetAllocationPropertiesFromHandle,
        (CUmemAllocationProp * prop, CUmemGenericAllocationHandle handle), (prop, handle), "0x%llx",
        handle)
{
    struct sim_physical *physical;
    CUresult result = sim_check_init();

    if (result != CUDA_SUCCESS)
        return result;
    if (prop == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&sim_memory_lock);
    physical = sim_physical_find(handle);
    if (physical == NULL)
        result = CUDA_ERROR_INVALID_VALUE;
    else
        *prop = physical->prop;
    pthread_mutex_unlock(&sim_memory_lock);
    return result;
}

SIM_API(cuMemGetAllocationGranularity,
        (size_t * granularity, const CUmemAllocationProp *prop,
         CUmemAllocationGranularity_flags option),
        (granularity, prop, option), "%d", (int)option)
{
    CUresult result = sim_check_mapping();

    if (result == CUDA_SUCCESS)
        result = check_prop(prop);
    if (result != CUDA_SUCCESS)
        return result;
    if (granularity == NULL || (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM &&
                                option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED))
        return CUDA_ERROR_INVALID_VALUE;
    *granularity = SIM_PAGE;
    return CUDA_SUCCESS;
}

SIM_API(cuMemExportToShareableHandle,
        (void *shareableHandle, CUmemGenericAllocationHandle handle,
         CUmemAllocationHandleType handleType, unsigned long long flags),
        (shareableHandle, handle, handleType, flags), "0x%llx %d", handle, (int)handleType)
{
    struct sim_physical *physical;
    int fd = -1;
    CUresult result = sim_check_init();

    if (result != CUDA_SUCCESS)
        return result;
    if (shareableHandle == NULL || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_NOT_SUPPORTED;
    pthread_rwlock_wrlock(&sim_use_lock);
    pthread_mutex_lock(&sim_memory_lock);
    physical = sim_physical_find(handle);
    if (physical == NULL ||
        physical->prop.requestedHandleTypes != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        result = CUDA_ERROR_INVALID_VALUE;
    else if (physical->fd < 0)
        result = move_to_file(physical);
    if (result == CUDA_SUCCESS && (fd = fcntl(physical->fd, F_DUPFD_CLOEXEC, 0)) < 0)
        result = CUDA_ERROR_OPERATING_SYSTEM;
    pthread_mutex_unlock(&sim_memory_lock);
    pthread_rwlock_unlock(&sim_use_lock);
    if (result == CUDA_SUCCESS)
        memcpy(shareableHandle, &fd, sizeof fd);
    return result;
}

/* The ordinal in the name of a memory file that cuMemCreate made; false for any other file. */
static bool read_ordinal(int fd, int *ordinal)
{
    char path[64], name[128];
    ssize_t length;

    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    length = readlink(path, name, sizeof name - 1);
    if (length <= 0)
        return false;
    name[length] = '\0';
    return sscanf(name, "/memfd:simcuda-%d", ordinal) == 1;
}

/* An import of memory that this process has already is one more handle to it. */
static struct sim_physical *find_shared(const struct stat *status)
{
    struct sim_physical *physical;

    for (physical = shared_handles; physical != NULL; physical = physical->next_shared)
        if (physical->file_device == status->st_dev && physical->file_inode == status->st_ino)
            return physical;
    return NULL;
}

static CUresult import_new(int fd, const struct stat *status, struct sim_physical **out)
{
    struct sim_physical *physical;
    int ordinal;

    if (!read_ordinal(fd, &ordinal) || status->st_size <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (ordinal != HOST_ORDINAL && sim_device(ordinal) == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    physical = calloc(1, sizeof *physical);
    if (physical == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    physical->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (physical->fd < 0) {
        free(physical);
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    physical->device = ordinal == HOST_ORDINAL ? NULL : sim_device(ordinal);
    physical->bytes = (uint64_t)status->st_size;
    physical->file_device = status->st_dev;
    physical->file_inode = status->st_ino;
    physical->prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    physical->prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    physical->prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    physical->prop.location.id = ordinal;
#if CUDA_VERSION >= 12020
    if (ordinal == HOST_ORDINAL) {
        physical->prop.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
        physical->prop.location.id = 0;
    }
#endif
    insert(physical);
    list_shared(physical);
    *out = physical;
    return CUDA_SUCCESS;
}

SIM_API(cuMemImportFromShareableHandle,
        (CUmemGenericAllocationHandle * handle, void *osHandle,
         CUmemAllocationHandleType shHandleType),
        (handle, osHandle, shHandleType), "%d %d", (int)(intptr_t)osHandle, (int)shHandleType)
{
    struct sim_physical *physical;
    struct stat status;
    int fd = (int)(intptr_t)osHandle;
    CUresult result = sim_check_mapping();

    if (result != CUDA_SUCCESS)
        return result;
    if (handle == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (shHandleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (fstat(fd, &status) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&sim_memory_lock);
    physical = find_shared(&status);
    if (physical != NULL)
        physical->handle_count++;
    else
        result = import_new(fd, &status, &physical);
    if (result == CUDA_SUCCESS)
        *handle = physical->node.start;
    pthread_mutex_unlock(&sim_memory_lock);
    return result;
}
