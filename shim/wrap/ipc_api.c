/* Memory shared with other processes and other APIs.
 *
 * A block of mapped memory gets a handle of the library's own (core/share): another process under
 * the library opens it as it opens the driver's, at the block's base. It is reused once it is freed
 * and no process has it open. Every other handle is the driver's, and opens at the base of the
 * driver's allocation. A block inside a larger allocation has no true handle then: the importer of
 * a slab's handle would write over another block. The block cannot be moved, since the program
 * holds its address. So such a request is refused, logged once, and from then on every allocation
 * of the process is an allocation of the driver's own (gc_shim.ipc_used), cached whole: a program
 * that allocates and exports again is served. A program that may give handles to processes which
 * are not under the library starts in that mode (shim/driver/backend.c). Memory that the driver
 * exported is released to the driver when it is freed (gc_export_block).
 *
 * Imported memory is recorded (IMPORT), with the whole pages that were mapped, and not charged: its
 * owner is charged for it. */
#include "shim/account/device.h"
#include "shim/account/direct.h"
#include "shim/account/helper.h"
#include "shim/life/life.h"
#include "shim/real/resolve.h"
#include "shim/wrap/relieve.h"
#include "shim/wrap/submit.h"

static atomic_flag refusal_logged = ATOMIC_FLAG_INIT;

/* Not for a device that uses whole blocks anyhow: its threads keep their caches. */
static void add_exporter(void)
{
    struct gc_device *device = gc_account_current_device();

    if (device == NULL || !gc_device_get_info(device)->is_dedicated)
        atomic_store_explicit(&gc_shim.ipc_used, true, memory_order_relaxed);
}

static CUresult refuse_export(CUdeviceptr dptr)
{
    struct gc_block_info block;

    /* The driver has no handle for stream-ordered memory either. */
    if (gc_lookup_block(gc_shim.core, dptr, &block) != GC_OK || block.is_ordered)
        return CUDA_ERROR_INVALID_VALUE;
    add_exporter();
    gc_log_once(
        &gc_shim.log, &refusal_logged, GC_LOG_WARN,
        "cuIpcGetMemHandle: 0x%llx %s and cannot be exported; later allocations can be, and with "
        "GPUCACHE_BACKEND=whole all can",
        (unsigned long long)dptr,
        block.is_mapped    ? "is mapped memory"
        : block.is_spilled ? "lies in host memory (GPUCACHE_OVERCOMMIT=spill)"
                           : "shares a driver allocation with other blocks");
    return CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult export_result(CUdeviceptr dptr, enum gc_status status, int driver_code)
{
    if (status != GC_BUSY)
        return gc_shim_result(status, driver_code);
    gc_log_write(&gc_shim.log, GC_LOG_WARN,
                 "cuIpcGetMemHandle: 0x%llx was used before, and work of then goes on",
                 (unsigned long long)dptr);
    return CUDA_ERROR_NOT_READY;
}

_Static_assert(sizeof(CUipcMemHandle) == GC_SHARE_HANDLE_BYTES, "handles are of one size");

/* Gives the block of mapped memory that contains `dptr` a handle of the library's own. False: it is
 * none, or memory without descriptors. */
static bool share_block(CUipcMemHandle *handle, CUdeviceptr dptr, CUresult *result)
{
    struct gc_block_info block;
    int driver_code = CUDA_SUCCESS;

    if (gc_lookup_block(gc_shim.core, dptr, &block) != GC_OK || !block.is_mapped ||
        block.is_ordered || !gc_helper_share())
        return false;
    /* Pinned memory stays where it is. */
    (void)GC_CALL_WHEN_PRESENT(dptr, (gc_export_pin(gc_shim.core, dptr, 1), CUDA_SUCCESS));
    const enum gc_status status = gc_export_share(gc_shim.core, dptr, handle, &driver_code);
    *result = export_result(dptr, status, driver_code);
    return status != GC_NOT_SUPPORTED;
}

/* The result that an exporter of `dptr` gets; CUDA_SUCCESS: call the driver. */
static CUresult check_export(CUdeviceptr dptr)
{
    int driver_code = CUDA_SUCCESS;
    const enum gc_status status = gc_export_block(gc_shim.core, dptr, &driver_code);

    if (status == GC_INVALID_POINTER)
        return CUDA_ERROR_INVALID_VALUE;
    if (status == GC_NOT_OURS)
        return CUDA_SUCCESS; /* not the pool's: the driver decides */
    if (status == GC_NOT_SUPPORTED)
        return refuse_export(dptr);
    add_exporter();
    return export_result(dptr, status, driver_code);
}

GC_EXPORT
CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr dptr)
{
    if (!gc_life_ready() || handle == NULL)
        return GC_FORWARD(cuIpcGetMemHandle, handle, dptr);
    CUresult result;
    gc_shim_enter(GC_API_cuIpcGetMemHandle);
    if (!share_block(handle, dptr, &result) && (result = check_export(dptr)) == CUDA_SUCCESS)
        result = GC_CALL_RELIEVED(gc_account_current_device(), cuIpcGetMemHandle, handle, dptr);
    gc_shim_leave();
    return result;
}

/* ---- import ---- */

static CUresult import_result(enum gc_status status, int driver_code)
{
    switch (status) {
    case GC_FORMAT:
        return CUDA_ERROR_INVALID_HANDLE;
    case GC_INVALID_ARGUMENT: /* the process's own block */
        return CUDA_ERROR_INVALID_CONTEXT;
    case GC_IO:
    case GC_NOT_SUPPORTED:
        return CUDA_ERROR_MAP_FAILED;
    default:
        return gc_shim_result(status, driver_code);
    }
}

/* Opens a handle that a process under the library made. */
static CUresult open_shared(struct gc_direct_request *request, CUdeviceptr *dptr,
                            const CUipcMemHandle *handle, unsigned flags)
{
    struct gc_block_info block;
    uint64_t address = 0;
    int driver_code = CUDA_SUCCESS;
    bool is_first;

    if (request->context == NULL)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (dptr == NULL || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
        return CUDA_ERROR_INVALID_VALUE;
    const enum gc_status status =
        gc_import_open(request->context, handle, &address, &is_first, &driver_code);
    if (status != GC_OK)
        return import_result(status, driver_code);
    *dptr = address;
    if (is_first && gc_import_find(gc_shim.core, address, &block))
        gc_direct_record(request, GC_DIRECT_IMPORT, address, block.segment_bytes);
    return CUDA_SUCCESS;
}

#define OPEN_HANDLE(symbol)                                                                        \
    do {                                                                                           \
        if (!gc_life_ready())                                                                      \
            return GC_FORWARD(symbol, dptr, handle, flags);                                        \
        struct gc_direct_request request;                                                          \
        gc_direct_begin(&request, GC_API_##symbol);                                                \
        if (gc_import_is_handle(&handle))                                                          \
            return gc_direct_end(&request, open_shared(&request, dptr, &handle, flags));           \
        CUresult result = GC_DIRECT_CALL(&request, 0, symbol, dptr, handle, flags);                \
        if (result == CUDA_SUCCESS && dptr != NULL)                                                \
            record_opened(&request, *dptr);                                                        \
        return gc_direct_end(&request, result);                                                    \
    } while (0)

static void record_opened(struct gc_direct_request *request, CUdeviceptr dptr)
{
    CUdeviceptr base;
    size_t bytes = 0;

    if (GC_CALL_RELIEVED(request->device, cuMemGetAddressRange_v2, &base, &bytes, dptr) !=
        CUDA_SUCCESS)
        bytes = 0;
    gc_direct_record(request, GC_DIRECT_IMPORT, dptr, bytes);
}

GC_EXPORT
CUresult cuIpcOpenMemHandle(CUdeviceptr *dptr, CUipcMemHandle handle, unsigned flags)
{
    OPEN_HANDLE(cuIpcOpenMemHandle);
}

GC_EXPORT
CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *dptr, CUipcMemHandle handle, unsigned flags)
{
    OPEN_HANDLE(cuIpcOpenMemHandle_v2);
}

/* Closes what open_shared opened. False: the address is no such block's. */
static bool close_shared(CUdeviceptr dptr, CUresult *result)
{
    int driver_code = CUDA_SUCCESS;
    const enum gc_status status = gc_import_close(gc_shim.core, dptr, &driver_code);

    if (status == GC_NOT_OURS)
        return false;
    *result = gc_shim_result(status, driver_code);
    return true;
}

GC_EXPORT
CUresult cuIpcCloseMemHandle(CUdeviceptr dptr)
{
    if (!gc_life_ready())
        return GC_FORWARD(cuIpcCloseMemHandle, dptr);
    struct gc_direct_request request;
    struct gc_direct_release release;
    CUresult result;
    gc_direct_begin(&request, GC_API_cuIpcCloseMemHandle);
    if (close_shared(dptr, &result))
        return gc_direct_end(&request, result);
    gc_direct_release_begin(&release, GC_DIRECT_IMPORT, dptr);
    result = GC_CALL_RELIEVED(request.device, cuIpcCloseMemHandle, dptr);
    gc_direct_release_end(&release, result == CUDA_SUCCESS);
    return gc_direct_end(&request, result);
}

/* ---- external memory and graphics ---- */

GC_EXPORT
CUresult cuImportExternalMemory(CUexternalMemory *memory,
                                const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *descriptor)
{
    if (!gc_life_ready())
        return GC_FORWARD(cuImportExternalMemory, memory, descriptor);
    struct gc_direct_request request;
    gc_direct_begin(&request, GC_API_cuImportExternalMemory);
    CUresult result = GC_CALL_RELIEVED(request.device, cuImportExternalMemory, memory, descriptor);
    if (result == CUDA_SUCCESS && memory != NULL && descriptor != NULL)
        gc_direct_record(&request, GC_DIRECT_IMPORT, (uintptr_t)*memory, descriptor->size);
    return gc_direct_end(&request, result);
}

GC_EXPORT
CUresult cuDestroyExternalMemory(CUexternalMemory memory)
{
    if (!gc_life_ready())
        return GC_FORWARD(cuDestroyExternalMemory, memory);
    struct gc_direct_request request;
    struct gc_direct_release release;
    gc_direct_begin(&request, GC_API_cuDestroyExternalMemory);
    gc_direct_release_begin(&release, GC_DIRECT_IMPORT, (uintptr_t)memory);
    CUresult result = GC_CALL_RELIEVED(request.device, cuDestroyExternalMemory, memory);
    gc_direct_release_end(&release, result == CUDA_SUCCESS);
    return gc_direct_end(&request, result);
}

#define GET_MAPPED(symbol)                                                                         \
    do {                                                                                           \
        if (!gc_life_ready())                                                                      \
            return GC_FORWARD(symbol, dptr, bytes, resource);                                      \
        struct gc_direct_request request;                                                          \
        gc_direct_begin(&request, GC_API_##symbol);                                                \
        CUresult result = GC_CALL_RELIEVED(request.device, symbol, dptr, bytes, resource);         \
        if (result == CUDA_SUCCESS)                                                                \
            record_mapped(&request, resource, bytes ? *bytes : 0);                                 \
        return gc_direct_end(&request, result);                                                    \
    } while (0)

/* A program may query a resource's pointer any number of times while it is mapped. */
static void record_mapped(struct gc_direct_request *request, CUgraphicsResource resource,
                          uint64_t bytes)
{
    struct gc_direct known;

    if (gc_direct_find(gc_shim.core, GC_DIRECT_IMPORT, (uintptr_t)resource, &known) != GC_OK)
        gc_direct_record(request, GC_DIRECT_IMPORT, (uintptr_t)resource, bytes);
}

GC_EXPORT
CUresult cuGraphicsResourceGetMappedPointer(CUdeviceptr_v1 *dptr, unsigned *bytes,
                                            CUgraphicsResource resource)
{
    GET_MAPPED(cuGraphicsResourceGetMappedPointer);
}

GC_EXPORT
CUresult cuGraphicsResourceGetMappedPointer_v2(CUdeviceptr *dptr, size_t *bytes,
                                               CUgraphicsResource resource)
{
    GET_MAPPED(cuGraphicsResourceGetMappedPointer_v2);
}

static void drop_mapped(unsigned count, const CUgraphicsResource *resources)
{
    struct gc_direct direct;

    for (unsigned i = 0; resources != NULL && i < count; i++)
        (void)!gc_direct_untrack(gc_shim.core, GC_DIRECT_IMPORT, (uintptr_t)resources[i], &direct);
}

#define UNMAP_RESOURCES(symbol, is_per_thread)                                                     \
    do {                                                                                           \
        if (!gc_life_ready())                                                                      \
            return GC_SUBMIT_CALL_IF_OPEN(stream, is_per_thread, NOTHING,                          \
                                          GC_FORWARD(symbol, count, resources, stream));           \
        gc_shim_enter(GC_API_##symbol);                                                            \
        CUresult result = GC_SUBMIT_CALL_IF_OPEN(                                                  \
            stream, is_per_thread, NOTHING,                                                        \
            GC_CALL_RELIEVED(gc_account_current_device(), symbol, count, resources, stream));      \
        if (result == CUDA_SUCCESS)                                                                \
            drop_mapped(count, resources);                                                         \
        gc_shim_leave();                                                                           \
        return result;                                                                             \
    } while (0)

GC_EXPORT
CUresult cuGraphicsUnmapResources(unsigned count, CUgraphicsResource *resources, CUstream stream)
{
    UNMAP_RESOURCES(cuGraphicsUnmapResources, false);
}

GC_EXPORT
CUresult cuGraphicsUnmapResources_ptsz(unsigned count, CUgraphicsResource *resources,
                                       CUstream stream)
{
    UNMAP_RESOURCES(cuGraphicsUnmapResources_ptsz, true);
}
