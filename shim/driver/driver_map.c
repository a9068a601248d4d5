/* Mapped memory over the real driver, and the calls that the debug aids need. They go to the driver
 * itself: core charges the pages, so the accounts of the program's own handles
 * (shim/account/physical.c) never see them. Captures under way survive, as in driver_cuda.c; during
 * a capture core unmaps and releases idle pages only. */
#include "shim/driver/backend.h"
#include "shim/driver/driver.h"
#include "shim/real/resolve.h"

#include <fcntl.h>

#define PEERS_MAX 64
/* Of CUDA 12.2 (CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, CU_MEM_LOCATION_TYPE_HOST_NUMA), which older
 * headers lack. */
#define HOST_PAGES_DRIVER 12020
#define ATTRIBUTE_HOST_NUMA_ID ((CUdevice_attribute)134)
#define LOCATION_HOST_NUMA ((CUmemLocationType)3)

static CUmemLocation location_of(uint64_t context)
{
    const struct gc_device *device = gc_driver_device(context);

    return (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE,
                           .id = device == NULL ? 0 : gc_device_get_info(device)->ordinal};
}

static int address_reserve(void *self, uint64_t context, uint64_t bytes, uint64_t alignment,
                           uint64_t *address)
{
    CUdeviceptr dptr = 0;

    (void)self;
    int code = GC_CALL_IF_ENTERED(context, GC_CALL(gc_driver_device(context), cuMemAddressReserve,
                                                   &dptr, (size_t)bytes, (size_t)alignment, 0, 0));
    if (code == 0)
        *address = dptr;
    return code;
}

/* The leftovers of a destroyed context are unmapped without a context. */
static int address_free(void *self, uint64_t context, uint64_t address, uint64_t bytes)
{
    (void)self;
    return (int)GC_CALL(gc_driver_device(context), cuMemAddressFree, (CUdeviceptr)address,
                        (size_t)bytes);
}

static int page_create(void *self, uint64_t context, uint64_t bytes, uint64_t *handle)
{
    CUmemGenericAllocationHandle created = 0;

    (void)self;
    int code = GC_CALL_IF_ENTERED(context,
                                  gc_backend_create_page(gc_driver_device(context),
                                                         location_of(context).id, bytes, &created));
    if (code == 0)
        *handle = created;
    return code;
}

/* "Users must specify CU_MEM_LOCATION_TYPE_HOST_NUMA to allocate host memory": the node beside the
 * device; on a machine of one node the driver names none. */
static int host_node(CUdevice ordinal)
{
    int node = 0;

    return GC_USE(cuDeviceGetAttribute, &node, ATTRIBUTE_HOST_NUMA_ID, ordinal) == CUDA_SUCCESS &&
                   node > 0
               ? node
               : 0;
}

static CUresult create_host_page(uint64_t context, uint64_t bytes,
                                 CUmemGenericAllocationHandle *created)
{
    const CUmemAllocationProp prop = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = LOCATION_HOST_NUMA, .id = host_node(location_of(context).id)}};
    size_t unit = 0;
    CUresult result =
        GC_USE(cuMemGetAllocationGranularity, &unit, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM);

    if (result != CUDA_SUCCESS || unit == 0 || bytes % unit != 0)
        return CUDA_ERROR_NOT_SUPPORTED;
    gc_shim_count(gc_driver_device(context), GC_API_cuMemCreate);
    result = GC_USE(cuMemCreate, created, (size_t)bytes, &prop, 0);
    /* A driver or a device without such pages has one of these. */
    return result == CUDA_ERROR_INVALID_VALUE || result == CUDA_ERROR_INVALID_DEVICE
               ? CUDA_ERROR_NOT_SUPPORTED
               : result;
}

static int page_create_host(void *self, uint64_t context, uint64_t bytes, uint64_t *handle)
{
    CUmemGenericAllocationHandle created = 0;

    (void)self;
    if (gc_shim.driver_version < HOST_PAGES_DRIVER)
        return CUDA_ERROR_NOT_SUPPORTED;
    int code = GC_CALL_IF_ENTERED(context, create_host_page(context, bytes, &created));
    if (code == 0)
        *handle = created;
    return code;
}

/* With unified addresses, which every supported system has, the device reaches the memory at the
 * host's address. */
static int host_alloc(void *self, uint64_t context, uint64_t bytes, uint64_t *address)
{
    void *memory = NULL;

    (void)self;
    int code = GC_CALL_IF_ENTERED(
        context, GC_CALL(gc_driver_device(context), cuMemHostAlloc, &memory, (size_t)bytes,
                         CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
    if (code == 0)
        *address = (uintptr_t)memory;
    return code;
}

static int host_free(void *self, uint64_t context, uint64_t address)
{
    (void)self;
    return GC_CALL_IF_ENTERED(
        context, GC_CALL(gc_driver_device(context), cuMemFreeHost,
                         (void *)(uintptr_t)address)); /* NOLINT: addresses travel as integers */
}

static int page_release(void *self, uint64_t context, uint64_t handle)
{
    (void)self;
    return (int)GC_CALL(gc_driver_device(context), cuMemRelease, handle);
}

static int page_map(void *self, uint64_t context, uint64_t address, uint64_t bytes, uint64_t handle)
{
    (void)self;
    return GC_CALL_IF_ENTERED(context, GC_CALL(gc_driver_device(context), cuMemMap,
                                               (CUdeviceptr)address, (size_t)bytes, 0, handle, 0));
}

static int page_set_access(void *self, uint64_t context, uint64_t address, uint64_t bytes,
                           const int *peers, uint32_t peer_count)
{
    CUmemAccessDesc access[1 + PEERS_MAX];
    uint32_t count = 0;

    (void)self;
    access[count++] = (CUmemAccessDesc){.location = location_of(context),
                                        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    for (uint32_t i = 0; i < peer_count && i < PEERS_MAX; i++) {
        /* Contexts may be peers for copies alone. */
        if (peers[i] == access[0].location.id ||
            !gc_backend_can_access(peers[i], access[0].location.id))
            continue;
        access[count] = access[0];
        access[count++].location.id = peers[i];
    }
    return GC_CALL_IF_ENTERED(context, GC_CALL(gc_driver_device(context), cuMemSetAccess,
                                               (CUdeviceptr)address, (size_t)bytes, access, count));
}

static int page_unmap(void *self, uint64_t context, uint64_t address, uint64_t bytes)
{
    (void)self;
    return (int)GC_CALL(gc_driver_device(context), cuMemUnmap, (CUdeviceptr)address, (size_t)bytes);
}

static int page_export(void *self, uint64_t context, uint64_t handle, int *fd)
{
    (void)self;
    const CUresult result = GC_CALL(gc_driver_device(context), cuMemExportToShareableHandle, fd,
                                    handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    if (result == CUDA_SUCCESS)
        (void)fcntl(*fd, F_SETFD, FD_CLOEXEC); /* the memory is nothing for a program started now */
    return (int)result;
}

static uint32_t count_devices(void *self)
{
    int count = 0;

    (void)self;
    return GC_USE(cuDeviceGetCount, &count) == CUDA_SUCCESS ? (uint32_t)count : 0;
}

static int page_import(void *self, uint64_t context, int fd, uint64_t *handle)
{
    CUmemGenericAllocationHandle imported = 0;

    (void)self;
    int code = GC_CALL_IF_ENTERED(
        context, GC_CALL(gc_driver_device(context), cuMemImportFromShareableHandle, &imported,
                         (void *)(uintptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    if (code == 0)
        *handle = imported;
    return code;
}

static int fill(void *self, uint64_t context, uint64_t address, uint64_t bytes, uint8_t value)
{
    (void)self;
    int code = GC_CALL_IF_ENTERED(
        context, GC_USE(cuMemsetD8_v2, (CUdeviceptr)address, value, (size_t)bytes));
    if (code != CUDA_SUCCESS)
        return code;
    return GC_CALL_IF_ENTERED(context, GC_CALL(gc_driver_device(context), cuCtxSynchronize));
}

static int read_memory(void *self, uint64_t context, uint64_t address, uint64_t bytes, void *to)
{
    (void)self;
    return GC_CALL_IF_ENTERED(context,
                              GC_USE(cuMemcpyDtoH_v2, to, (CUdeviceptr)address, (size_t)bytes));
}

static int write_memory(void *self, uint64_t context, uint64_t address, uint64_t bytes,
                        const void *from)
{
    (void)self;
    int code = GC_CALL_IF_ENTERED(
        context, GC_USE(cuMemcpyHtoD_v2, (CUdeviceptr)address, from, (size_t)bytes));
    if (code != CUDA_SUCCESS)
        return code;
    return GC_CALL_IF_ENTERED(context, GC_CALL(gc_driver_device(context), cuCtxSynchronize));
}

void gc_driver_map_init(struct gc_driver *driver)
{
    driver->address_reserve = address_reserve;
    driver->address_free = address_free;
    driver->page_create = page_create;
    driver->page_create_host = page_create_host;
    driver->host_alloc = host_alloc;
    driver->host_free = host_free;
    driver->page_release = page_release;
    driver->page_map = page_map;
    driver->page_set_access = page_set_access;
    driver->page_unmap = page_unmap;
    driver->page_export = page_export;
    driver->page_import = page_import;
    driver->count_devices = count_devices;
    driver->fill = fill;
    driver->read = read_memory;
    driver->write = write_memory;
}
