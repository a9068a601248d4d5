/* Virtual memory management: reserved addresses, mappings in them, and who may access those.
 *
 * Reservations are ranges of a window. A mapping shows one physical allocation; without access for
 * any device the host cannot touch it either. Unmapping does not wait for the device, as on a GPU:
 * an operation that comes later finds nothing there.
 *
 * The kernel allows a process some 65,000 mappings of its own, so the host is shown those of the
 * device at once only while they are few; later when an operation comes to them. When very many are
 * shown all are hidden again, between two operations. */
#include "memory.h"

#include <stdlib.h>
#include <sys/mman.h>

#define SHOWN_AT_ONCE 8192
#define SHOWN_MAX 16384

struct reservation {
    struct sim_node node;
};

struct mapping {
    struct sim_node node;
    struct sim_physical *physical;
    uint64_t readers, writers; /* bit per device */
    unsigned host_access;
    int protection; /* as the host is to see it */
    bool is_shown;
    bool is_registered; /* for GPUDirect RDMA */
};

static struct sim_tree reservations, mappings; /* sim_memory_lock */
static atomic_uint shown_count;                /* changes with sim_memory_lock */

#define MAPPING(node) SIM_CONTAINER(node, struct mapping, node)

static struct mapping *next_mapping(const struct mapping *mapping)
{
    struct sim_node *node = sim_tree_lower_bound(&mappings, mapping->node.end, 0);

    return node == NULL ? NULL : MAPPING(node);
}

static struct mapping *find_mapping(uint64_t address)
{
    struct sim_node *node = sim_tree_find(&mappings, address);

    return node == NULL ? NULL : MAPPING(node);
}

/* ---- what the host sees ---- */

static CUresult show(struct mapping *mapping)
{
    uint64_t offset;
    CUresult result;
    int fd;

    if (mapping->is_shown || mapping->protection == PROT_NONE)
        return CUDA_SUCCESS;
    sim_physical_backing(mapping->physical, &fd, &offset);
    result = sim_space_map(mapping->node.start, mapping->node.end - mapping->node.start, fd, offset,
                           mapping->protection);
    if (result != CUDA_SUCCESS)
        return result;
    mapping->is_shown = true;
    atomic_fetch_add_explicit(&shown_count, 1, memory_order_relaxed);
    return CUDA_SUCCESS;
}

static void hide(struct mapping *mapping)
{
    if (!mapping->is_shown)
        return;
    sim_space_unmap(mapping->node.start, mapping->node.end - mapping->node.start);
    mapping->is_shown = false;
    atomic_fetch_sub_explicit(&shown_count, 1, memory_order_relaxed);
}

static void hide_all(void)
{
    struct sim_node *node = sim_tree_lower_bound(&mappings, 0, 0);
    struct mapping *mapping;

    for (mapping = node == NULL ? NULL : MAPPING(node); mapping != NULL;
         mapping = next_mapping(mapping))
        hide(mapping);
}

void sim_mapping_hide(const struct sim_physical *physical)
{
    struct sim_node *node = sim_tree_lower_bound(&mappings, 0, 0);
    struct mapping *mapping;

    for (mapping = node == NULL ? NULL : MAPPING(node); mapping != NULL;
         mapping = next_mapping(mapping))
        if (mapping->physical == physical)
            hide(mapping);
}

static bool are_too_many_shown(void)
{
    return atomic_load_explicit(&shown_count, memory_order_relaxed) >= SHOWN_MAX;
}

void sim_mapping_hide_some(void)
{
    if (!are_too_many_shown())
        return;
    pthread_rwlock_wrlock(&sim_use_lock);
    pthread_mutex_lock(&sim_memory_lock);
    if (are_too_many_shown())
        hide_all();
    pthread_mutex_unlock(&sim_memory_lock);
    pthread_rwlock_unlock(&sim_use_lock);
}

enum sim_mapping_answer sim_mapping_check(const struct sim_context *context, uint64_t address,
                                          uint64_t bytes, bool is_write)
{
    uint64_t bit = UINT64_C(1) << (context->device->ordinal & 63);
    struct mapping *mapping = find_mapping(address);

    if (sim_tree_find(&reservations, address) == NULL)
        return SIM_NOT_RESERVED;
    for (;;) {
        if (mapping == NULL || mapping->node.start > address ||
            ((is_write ? mapping->writers : mapping->readers) & bit) == 0 ||
            show(mapping) != CUDA_SUCCESS)
            return SIM_INACCESSIBLE;
        if (bytes <= mapping->node.end - address)
            return SIM_ACCESSIBLE;
        bytes -= mapping->node.end - address;
        address = mapping->node.end;
        mapping = next_mapping(mapping);
    }
}

static unsigned access_of(const struct mapping *mapping, int ordinal)
{
    uint64_t bit = UINT64_C(1) << (ordinal & 63);

    if ((mapping->writers & bit) != 0)
        return CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return (mapping->readers & bit) != 0 ? CU_MEM_ACCESS_FLAGS_PROT_READ
                                         : CU_MEM_ACCESS_FLAGS_PROT_NONE;
}

bool sim_mapping_query(uint64_t address, int device_ordinal, struct sim_mapping_info *info)
{
    struct sim_node *reserved = sim_tree_find(&reservations, address);
    struct mapping *mapping = find_mapping(address);

    if (reserved == NULL)
        return false;
    *info = (struct sim_mapping_info){
        .reserved_start = reserved->start,
        .reserved_bytes = reserved->end - reserved->start,
        .start = reserved->start,
        .bytes = reserved->end - reserved->start,
    };
    if (mapping != NULL) {
        info->is_mapped = true;
        info->physical = mapping->physical;
        info->start = mapping->node.start;
        info->bytes = mapping->node.end - mapping->node.start;
        info->access = access_of(mapping, device_ordinal);
    }
    return true;
}

/* ---- reservations ---- */

SIM_API(cuMemAddressReserve,
        (CUdeviceptr * ptr, size_t size, size_t alignment, CUdeviceptr addr,
         unsigned long long flags),
        (ptr, size, alignment, addr, flags), "0x%llx %zu",
        ptr == NULL || sim_result != CUDA_SUCCESS ? 0 : *ptr, size)
{
    struct reservation *reservation;
    uint64_t address = addr;
    CUresult result = sim_check_mapping();

    if (result != CUDA_SUCCESS)
        return result;
    if (ptr == NULL || flags != 0 || size == 0 || size % SIM_PAGE != 0 ||
        (alignment & (alignment - 1)) != 0 || addr % SIM_PAGE != 0)
        return CUDA_ERROR_INVALID_VALUE;
    reservation = calloc(1, sizeof *reservation);
    if (reservation == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&sim_memory_lock);
    /* The wanted address is a hint: where it is taken, another is given. */
    if (addr == 0 || (alignment != 0 && addr % alignment != 0) || !sim_space_take_at(addr, size))
        result = sim_space_take(size, alignment, false, &address);
    if (result == CUDA_SUCCESS) {
        reservation->node.start = address;
        reservation->node.end = address + size;
        sim_tree_insert(&reservations, &reservation->node);
        *ptr = address;
    }
    pthread_mutex_unlock(&sim_memory_lock);
    if (result != CUDA_SUCCESS)
        free(reservation);
    return result;
}

SIM_API(cuMemAddressFree, (CUdeviceptr ptr, size_t size), (ptr, size), "0x%llx %zu", ptr, size)
{
    struct sim_node *node;
    CUresult result = sim_check_init();

    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&sim_memory_lock);
    node = sim_tree_find(&reservations, ptr);
    if (node == NULL || node->start != ptr || node->end - node->start != size ||
        sim_tree_overlap(&mappings, ptr, ptr + size) != NULL) {
        result = CUDA_ERROR_INVALID_VALUE;
    } else {
        sim_tree_remove(&reservations, node);
        sim_space_give(ptr, size);
        free(SIM_CONTAINER(node, struct reservation, node));
    }
    pthread_mutex_unlock(&sim_memory_lock);
    return result;
}

/* ---- mappings ---- */

static CUresult map_locked(struct mapping *mapping, uint64_t address, uint64_t bytes,
                           CUmemGenericAllocationHandle handle)
{
    struct sim_physical *physical = sim_physical_find(handle);
    struct sim_node *reserved = sim_tree_find(&reservations, address);

    if (physical == NULL || bytes > physical->bytes || reserved == NULL ||
        bytes > reserved->end - address ||
        sim_tree_overlap(&mappings, address, address + bytes) != NULL)
        return CUDA_ERROR_INVALID_VALUE;
    physical->map_count++;
    mapping->physical = physical;
    mapping->protection = PROT_NONE;
    mapping->node.start = address;
    mapping->node.end = address + bytes;
    sim_tree_insert(&mappings, &mapping->node);
    return CUDA_SUCCESS;
}

SIM_API(cuMemMap,
        (CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
         unsigned long long flags),
        (ptr, size, offset, handle, flags), "0x%llx %zu %zu 0x%llx", ptr, size, offset, handle)
{
    struct mapping *mapping;
    CUresult result = sim_check_init();

    if (result != CUDA_SUCCESS)
        return result;
    if (flags != 0 || offset != 0 || size == 0 || size % SIM_PAGE != 0 || ptr % SIM_PAGE != 0)
        return CUDA_ERROR_INVALID_VALUE;
    mapping = calloc(1, sizeof *mapping);
    if (mapping == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&sim_memory_lock);
    result = map_locked(mapping, ptr, size, handle);
    pthread_mutex_unlock(&sim_memory_lock);
    if (result != CUDA_SUCCESS)
        free(mapping);
    return result;
}

/* True when whole mappings, one after the other, make up the range. */
static bool is_covered(uint64_t address, uint64_t bytes)
{
    struct mapping *mapping = find_mapping(address);
    uint64_t end = address + bytes;

    if (bytes == 0 || end < address)
        return false;
    while (mapping != NULL && mapping->node.start == address && mapping->node.end <= end) {
        address = mapping->node.end;
        if (address == end)
            return true;
        mapping = next_mapping(mapping);
    }
    return false;
}

SIM_API(cuMemUnmap, (CUdeviceptr ptr, size_t size), (ptr, size), "0x%llx %zu", ptr, size)
{
    struct mapping *mapping;
    uint64_t count = 0;
    CUresult result = sim_check_init();

    if (result != CUDA_SUCCESS)
        return result;
    pthread_rwlock_wrlock(&sim_use_lock);
    pthread_mutex_lock(&sim_memory_lock);
    if (!is_covered(ptr, size)) {
        result = CUDA_ERROR_INVALID_VALUE;
    } else {
        while ((mapping = find_mapping(ptr)) != NULL && ptr < mapping->node.end && size != 0) {
            size -= mapping->node.end - mapping->node.start;
            ptr = mapping->node.end;
            hide(mapping);
            sim_tree_remove(&mappings, &mapping->node);
            if (mapping->is_registered)
                mapping->physical->is_registered = false;
            mapping->physical->map_count--;
            sim_physical_put(mapping->physical);
            free(mapping);
            count++;
        }
    }
    pthread_mutex_unlock(&sim_memory_lock);
    pthread_rwlock_unlock(&sim_use_lock);
    if (count > 1)
        sim_call_repeats("cuMemUnmap", count - 1);
    return result;
}

/* ---- access ---- */

static CUresult check_access(const CUmemAccessDesc *desc, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        CUmemLocation location = desc[i].location;
        CUresult result;

        if (location.type != CU_MEM_LOCATION_TYPE_DEVICE)
            location.id = 0; /* "is ignored" */
        result = sim_location_check(&location);
        if (result != CUDA_SUCCESS)
            return result;
        if (desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE &&
            desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
            desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
            return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

static void apply_access(struct mapping *mapping, const CUmemAccessDesc *desc)
{
    uint64_t bit = UINT64_C(1) << (desc->location.id & 63);

    if (desc->location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
        mapping->host_access = (unsigned)desc->flags;
        return;
    }
    mapping->readers &= ~bit;
    mapping->writers &= ~bit;
    if (desc->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE)
        mapping->readers |= bit;
    if (desc->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
        mapping->writers |= bit;
}

/* Memory that asked for GPUDirect RDMA is registered where it is made accessible: NVIDIA's kernel
 * module knows a memory object by one registration (open-gpu-kernel-modules, third_party_p2p.c:
 * NV_ERR_INSERT_DUPLICATE_NAME); WSL2 refuses it at all (pytorch#192330). */
static CUresult register_rdma(struct mapping *mapping)
{
    struct sim_physical *physical = mapping->physical;

    if (!physical->prop.allocFlags.gpuDirectRDMACapable || mapping->is_registered)
        return CUDA_SUCCESS;
    if (sim_settings()->rdma == SIM_RDMA_REFUSED ||
        (sim_settings()->rdma == SIM_RDMA_ONCE && physical->is_registered))
        return CUDA_ERROR_UNKNOWN;
    physical->is_registered = true;
    mapping->is_registered = true;
    return CUDA_SUCCESS;
}

/* Devices that are no peers of the memory's cannot reach it. "Users cannot specify
 * CU_MEM_LOCATION_TYPE_HOST_NUMA accessibility for allocations created … with other location
 * types." */
static bool may_reach(const struct mapping *mapping, const CUmemAccessDesc *desc)
{
    const struct sim_device *device = mapping->physical->device;

#if CUDA_VERSION >= 12020
    if (desc->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA &&
        mapping->physical->prop.location.type != CU_MEM_LOCATION_TYPE_HOST_NUMA)
        return false;
#endif

    return sim_settings()->has_peers || device == NULL ||
           desc->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
           desc->flags == CU_MEM_ACCESS_FLAGS_PROT_NONE || desc->location.id == device->ordinal;
}

static CUresult set_access_locked(uint64_t address, uint64_t bytes, const CUmemAccessDesc *desc,
                                  size_t count, uint64_t *mapping_count)
{
    uint64_t end = address + bytes;

    if (!is_covered(address, bytes))
        return CUDA_ERROR_INVALID_VALUE;
    for (struct mapping *mapping = find_mapping(address);
         mapping != NULL && mapping->node.start < end; mapping = next_mapping(mapping)) {
        int protection = PROT_NONE;
        CUresult result = register_rdma(mapping);

        for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++)
            if (!may_reach(mapping, &desc[i]))
                result = CUDA_ERROR_INVALID_VALUE;
        if (result != CUDA_SUCCESS)
            return result;
        ++*mapping_count;
        for (size_t i = 0; i < count; i++)
            apply_access(mapping, &desc[i]);
        if (mapping->readers != 0 || mapping->host_access != 0)
            protection = PROT_READ;
        if (mapping->writers != 0 || mapping->host_access == CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
            protection |= PROT_WRITE;
        if (protection != mapping->protection)
            hide(mapping);
        mapping->protection = protection;
        if (atomic_load_explicit(&shown_count, memory_order_relaxed) < SHOWN_AT_ONCE &&
            show(mapping) != CUDA_SUCCESS)
            return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
}

SIM_API(cuMemSetAccess, (CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count),
        (ptr, size, desc, count), "0x%llx %zu", ptr, size)
{
    uint64_t mapping_count = 0;
    CUresult result = sim_check_init();

    if (result != CUDA_SUCCESS)
        return result;
    if (desc == NULL || count == 0)
        return CUDA_ERROR_INVALID_VALUE;
    result = check_access(desc, count);
    if (result != CUDA_SUCCESS)
        return result;
    pthread_rwlock_wrlock(&sim_use_lock);
    pthread_mutex_lock(&sim_memory_lock);
    result = set_access_locked(ptr, size, desc, count, &mapping_count);
    pthread_mutex_unlock(&sim_memory_lock);
    pthread_rwlock_unlock(&sim_use_lock);
    if (mapping_count > 1)
        sim_call_repeats("cuMemSetAccess", mapping_count - 1);
    return result;
}

SIM_API(cuMemGetAccess, (unsigned long long *flags, const CUmemLocation *location, CUdeviceptr ptr),
        (flags, location, ptr), "0x%llx", ptr)
{
    struct mapping *mapping;
    CUresult result = sim_check_init();

    if (result != CUDA_SUCCESS)
        return result;
    if (flags == NULL || location == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    result = sim_location_check(location);
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&sim_memory_lock);
    mapping = find_mapping(ptr);
    if (mapping == NULL)
        result = CUDA_ERROR_INVALID_VALUE;
    else if (location->type == CU_MEM_LOCATION_TYPE_DEVICE)
        *flags = access_of(mapping, location->id);
    else
        *flags = mapping->host_access;
    pthread_mutex_unlock(&sim_memory_lock);
    return result;
}
