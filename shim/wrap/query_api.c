/* Queries about memory. Sizes agree with the limit. Inside the pool an address keeps the meaning it
 * has with the plain driver: a block is an allocation of its own, and the space between blocks is
 * no allocation. The driver is called first, so that its errors come first. */
#include "shim/account/device.h"
#include "shim/account/outside.h"
#include "shim/account/tenant.h"
#include "shim/driver/backend.h"
#include "shim/life/life.h"
#include "shim/real/resolve.h"
#include "shim/wrap/relieve.h"
#include "shim/wrap/submit.h"

#include <string.h>

/* An address that no allocation can have: a query about it returns the driver's error for such
 * addresses. */
#define ADDRESS_NOWHERE ((CUdeviceptr)8)
/* Keeps our buffer numbers apart from the driver's. */
#define BUFFER_ID_OURS (UINT64_C(1) << 62)

static unsigned saturate(uint64_t bytes)
{
    return bytes > UINT32_MAX ? UINT32_MAX : (unsigned)bytes;
}

/* ---- how much there is ---- */

/* Core's answer for the current device; false if there is no context. */
static bool mem_info(uint64_t *free_bytes, uint64_t *total_bytes, CUresult *result)
{
    struct gc_device *device = gc_account_current_device();
    size_t available = 0, total = 0;

    if (device == NULL)
        return false;
    *result = GC_CALL_RELIEVED(device, cuMemGetInfo_v2, &available, &total);
    *free_bytes = available;
    *total_bytes = total;
    if (*result == CUDA_SUCCESS)
        gc_tenants_mem_info(device, free_bytes, total_bytes);
    return true;
}

GC_EXPORT
CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
    uint64_t available, total;
    CUresult result = CUDA_SUCCESS;

    if (!gc_life_ready())
        return GC_FORWARD(cuMemGetInfo_v2, free_bytes, total_bytes);
    GC_SET_CALLER();
    gc_shim_enter(GC_API_cuMemGetInfo_v2);
    /* The driver decides whether an argument may be NULL. */
    if (free_bytes == NULL || total_bytes == NULL)
        result = GC_FORWARD(cuMemGetInfo_v2, free_bytes, total_bytes);
    if (result == CUDA_SUCCESS && !mem_info(&available, &total, &result)) {
        result = GC_FORWARD(cuMemGetInfo_v2, free_bytes, total_bytes);
    } else if (result == CUDA_SUCCESS) {
        if (free_bytes != NULL)
            *free_bytes = available;
        if (total_bytes != NULL)
            *total_bytes = total;
    }
    gc_shim_leave();
    return result;
}

GC_EXPORT
CUresult cuMemGetInfo(unsigned *free_bytes, unsigned *total_bytes)
{
    uint64_t available, total;
    CUresult result = CUDA_SUCCESS;

    if (!gc_life_ready())
        return GC_FORWARD(cuMemGetInfo, free_bytes, total_bytes);
    GC_SET_CALLER();
    gc_shim_enter(GC_API_cuMemGetInfo);
    /* The driver decides whether an argument may be NULL. */
    if (free_bytes == NULL || total_bytes == NULL)
        result = GC_FORWARD(cuMemGetInfo, free_bytes, total_bytes);
    if (result == CUDA_SUCCESS && !mem_info(&available, &total, &result)) {
        result = GC_FORWARD(cuMemGetInfo, free_bytes, total_bytes);
    } else if (result == CUDA_SUCCESS) {
        if (free_bytes != NULL)
            *free_bytes = saturate(available);
        if (total_bytes != NULL)
            *total_bytes = saturate(total);
    }
    gc_shim_leave();
    return result;
}

GC_EXPORT
CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    struct gc_device *known;
    CUresult result;

    if (!gc_life_ready() || bytes == NULL)
        return GC_FORWARD(cuDeviceTotalMem_v2, bytes, device);
    gc_shim_enter(GC_API_cuDeviceTotalMem_v2);
    result =
        GC_CALL_RELIEVED(gc_device_find(gc_shim.core, device), cuDeviceTotalMem_v2, bytes, device);
    if (result == CUDA_SUCCESS && (known = gc_account_device(device)) != NULL)
        *bytes = gc_device_total_bytes(known);
    gc_shim_leave();
    return result;
}

GC_EXPORT
CUresult cuDeviceTotalMem(unsigned *bytes, CUdevice device)
{
    struct gc_device *known;
    CUresult result;

    if (!gc_life_ready() || bytes == NULL)
        return GC_FORWARD(cuDeviceTotalMem, bytes, device);
    gc_shim_enter(GC_API_cuDeviceTotalMem);
    result =
        GC_CALL_RELIEVED(gc_device_find(gc_shim.core, device), cuDeviceTotalMem, bytes, device);
    if (result == CUDA_SUCCESS && (known = gc_account_device(device)) != NULL)
        *bytes = saturate(gc_device_total_bytes(known));
    gc_shim_leave();
    return result;
}

/* ---- where an address belongs ---- */

/* The driver does not know memory that is swapped out: a query about it waits. */
#define QUERY_ABOUT(status, address, symbol, ...)                                                  \
    ((status) == GC_OK                                                                             \
         ? GC_CALL_WHEN_PRESENT(                                                                   \
               (address), GC_CALL_RELIEVED(gc_account_current_device(), symbol, __VA_ARGS__))      \
         : GC_CALL_RELIEVED(gc_account_current_device(), symbol, __VA_ARGS__))

/* A live block of the pool, or one of another process that is open here: as the driver's own. */
static enum gc_status find_block(CUdeviceptr dptr, struct gc_block_info *block)
{
    const enum gc_status status = gc_lookup_block(gc_shim.core, dptr, block);

    return status == GC_NOT_OURS && gc_import_find(gc_shim.core, dptr, block) ? GC_OK : status;
}

GC_EXPORT
CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr dptr)
{
    struct gc_block_info block;
    enum gc_status status;
    CUresult result;

    if (!gc_life_ready())
        return GC_FORWARD(cuMemGetAddressRange_v2, base, size, dptr);
    gc_shim_enter(GC_API_cuMemGetAddressRange_v2);
    status = find_block(dptr, &block);
    result = QUERY_ABOUT(status, dptr, cuMemGetAddressRange_v2, base, size,
                         status == GC_INVALID_POINTER ? ADDRESS_NOWHERE : dptr);
    if (result == CUDA_SUCCESS && status == GC_OK) {
        if (base != NULL)
            *base = block.address;
        if (size != NULL)
            *size = block.bytes;
    }
    gc_shim_leave();
    return result;
}

/* A pool address does not fit this ABI: there is nothing to correct. */
GC_EXPORT
CUresult cuMemGetAddressRange(CUdeviceptr_v1 *base, unsigned *size, CUdeviceptr_v1 dptr)
{
    gc_life_ready();
    return GC_FORWARD(cuMemGetAddressRange, base, size, dptr);
}

/* Stream-ordered blocks are served in the name of their device's default pool. */
static CUmemoryPool pool_of(const struct gc_block_info *block)
{
    struct gc_context *context = gc_context_find(gc_shim.core, block->context);
    CUmemoryPool pool = NULL;

    if (context == NULL || !block->is_ordered ||
        GC_USE(cuDeviceGetDefaultMemPool, &pool,
               gc_device_get_info(gc_context_device(context))->ordinal) != CUDA_SUCCESS)
        return NULL;
    return pool;
}

/* The attributes whose value is the block's own and not that of its slab or page. `is_plain`: the
 * driver has a value for plain memory and refuses mapped memory. */
static const struct own_attribute {
    CUpointer_attribute attribute;
    unsigned char bytes; /* written; of booleans the low byte, which clears one of any size */
    bool is_plain;
} own_attributes[] = {
    {CU_POINTER_ATTRIBUTE_CONTEXT, sizeof(CUcontext), true},
    {CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, sizeof(int), true},
    {CU_POINTER_ATTRIBUTE_BUFFER_ID, sizeof(uint64_t), false},
    {CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, sizeof(CUdeviceptr), false},
    {CU_POINTER_ATTRIBUTE_RANGE_SIZE, sizeof(size_t), false},
    {CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, 1, false},
    {CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, sizeof(uint64_t), false},
    {CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, sizeof(CUmemoryPool), true},
    {CU_POINTER_ATTRIBUTE_MAPPING_SIZE, sizeof(size_t), false},
    {CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, sizeof(CUdeviceptr), false},
    {CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID, sizeof(uint64_t), false},
};

static const struct own_attribute *find_own(CUpointer_attribute attribute)
{
    for (size_t i = 0; i < sizeof(own_attributes) / sizeof(own_attributes[0]); i++)
        if (own_attributes[i].attribute == attribute)
            return &own_attributes[i];
    return NULL;
}

/* Whether cuIpcGetMemHandle gives a handle of the library's own: ipc_api.c. */
static bool can_export(const struct gc_block_info *block)
{
    return block->is_mapped && !block->is_ordered && block->owner != NULL &&
           gc_share_is_possible(gc_shim.core) &&
           gc_backend_is_shareable(gc_device_get_info(gc_context_device(block->owner))->ordinal);
}

static uint64_t own_value(CUpointer_attribute attribute, const struct gc_block_info *block)
{
    switch ((int)attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT: /* pool memory of the driver has none */
        return block->is_ordered ? 0 : block->context;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        return block->is_synchronous;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        return block->address;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        return block->bytes;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        return (uint64_t)(uintptr_t)pool_of(block);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        return can_export(block);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES: /* of plain memory; vmm_api.c */
        return 0;
    default: /* BUFFER_ID, MEMORY_BLOCK_ID */
        return block->id | BUFFER_ID_OURS;
    }
}

/* Replaces a value that describes the block's slab or mapping by the block's own. */
static void correct_attribute(CUpointer_attribute attribute, const struct gc_block_info *block,
                              void *data)
{
    const struct own_attribute *own = find_own(attribute);

    if (data == NULL || own == NULL ||
        (attribute == CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE && block->is_dedicated))
        return;
    const uint64_t value = own_value(attribute, block);
    memcpy(data, &value, own->bytes);
}

/* A block in host memory (GPUCACHE_OVERCOMMIT=spill): as memory of the device. True: `data` has the
 * answer. */
static bool answer_spilled(CUpointer_attribute attribute, const struct gc_block_info *block,
                           CUdeviceptr dptr, void *data)
{
    const unsigned kind = CU_MEMORYTYPE_DEVICE;
    const uint64_t address = dptr;
    int ordinal;

    if (!block->is_spilled || block->owner == NULL)
        return false;
    switch ((int)attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        memcpy(data, &kind, sizeof(kind));
        return true;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        ordinal = gc_device_get_info(gc_context_device(block->owner))->ordinal;
        memcpy(data, &ordinal, sizeof(ordinal));
        return true;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        memcpy(data, &address, sizeof(address));
        return true;
    default:
        return false;
    }
}

/* The result for a block in host memory. No host address: for one attribute that is an error, in a
 * list the null value. */
static CUresult correct_spilled(CUpointer_attribute attribute, const struct gc_block_info *block,
                                CUdeviceptr dptr, void *data, CUresult result)
{
    if (attribute == CU_POINTER_ATTRIBUTE_HOST_POINTER && result == CUDA_SUCCESS) {
        memset(data, 0, sizeof(void *));
        return CUDA_ERROR_INVALID_VALUE;
    }
    return answer_spilled(attribute, block, dptr, data) ? CUDA_SUCCESS : result;
}

/* Whether the driver refused an attribute that plain memory has. */
static bool is_refused(CUpointer_attribute attribute, CUresult result)
{
    const struct own_attribute *own = find_own(attribute);

    return (result == CUDA_ERROR_INVALID_VALUE || result == CUDA_ERROR_NOT_SUPPORTED) &&
           own != NULL && own->is_plain;
}

/* By the tokens network cards reach the memory; the request "has a side effect of setting the
 * attribute SYNC_MEMOPS for the region of memory that ptr points to". */
static void note_tokens(enum gc_status status, CUdeviceptr dptr)
{
    if (status == GC_OK && gc_export_set_synchronous(gc_shim.core, dptr, true) != GC_OK)
        return; /* freed meanwhile */
    gc_export_pin(gc_shim.core, dptr, 1);
}

GC_EXPORT
CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr dptr)
{
    struct gc_block_info block;
    enum gc_status status;
    CUresult result;

    if (!gc_life_ready())
        return GC_FORWARD(cuPointerGetAttribute, data, attribute, dptr);
    gc_shim_enter(GC_API_cuPointerGetAttribute);
    status = find_block(dptr, &block);
    if (attribute == CU_POINTER_ATTRIBUTE_P2P_TOKENS &&
        (result = gc_outside_expect()) != CUDA_SUCCESS)
        goto done;
    result = QUERY_ABOUT(status, dptr, cuPointerGetAttribute, data, attribute,
                         status == GC_INVALID_POINTER ? ADDRESS_NOWHERE : dptr);
    if (result == CUDA_SUCCESS && attribute == CU_POINTER_ATTRIBUTE_P2P_TOKENS)
        note_tokens(status, dptr);
    if (status == GC_OK && data != NULL && is_refused(attribute, result))
        result = CUDA_SUCCESS;
    if (status == GC_OK && data != NULL && block.is_spilled)
        result = correct_spilled(attribute, &block, dptr, data, result);
    if (result == CUDA_SUCCESS && status == GC_OK)
        correct_attribute(attribute, &block, data);
done:
    gc_shim_leave();
    return result;
}

static bool requests_token(unsigned count, const CUpointer_attribute *attributes)
{
    for (unsigned i = 0; attributes != NULL && i < count; i++)
        if (attributes[i] == CU_POINTER_ATTRIBUTE_P2P_TOKENS)
            return true;
    return false;
}

GC_EXPORT
CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute *attributes, void **data,
                                CUdeviceptr dptr)
{
    struct gc_block_info block;
    enum gc_status status;
    CUresult result;

    if (!gc_life_ready())
        return GC_FORWARD(cuPointerGetAttributes, count, attributes, data, dptr);
    gc_shim_enter(GC_API_cuPointerGetAttributes);
    status = find_block(dptr, &block);
    if (requests_token(count, attributes) && (result = gc_outside_expect()) != CUDA_SUCCESS)
        goto done;
    result = QUERY_ABOUT(status, dptr, cuPointerGetAttributes, count, attributes, data,
                         status == GC_INVALID_POINTER ? ADDRESS_NOWHERE : dptr);
    if (result == CUDA_SUCCESS && status == GC_OK)
        for (unsigned i = 0; i < count; i++) {
            if (block.is_spilled && data[i] != NULL)
                (void)correct_spilled(attributes[i], &block, dptr, data[i], result);
            correct_attribute(attributes[i], &block, data[i]);
        }
done:
    gc_shim_leave();
    return result;
}

/* Sets the attribute in the driver, where it applies to the block's whole slab: stricter than
 * requested. A slab's attribute is never cleared, since other blocks of the slab may have it. */
static CUresult pass_to_driver(const struct gc_block_info *block, const void *value,
                               CUdeviceptr dptr)
{
    int before;

    if (*(const unsigned *)value != 0 || block->is_dedicated)
        return QUERY_ABOUT(GC_OK, dptr, cuPointerSetAttribute, value,
                           CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, dptr);
    return QUERY_ABOUT(GC_OK, dptr, cuPointerGetAttribute, &before,
                       CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, dptr);
}

/* The driver refuses SYNC_MEMOPS for mapped memory. So while any block has the attribute the
 * wrappers wait after every call that is synchronous by its name (submit_api.c). */
static CUresult set_sync_memops(const struct gc_block_info *block, const void *value,
                                CUdeviceptr dptr)
{
    const bool is_set = *(const unsigned *)value != 0;
    const CUresult result = pass_to_driver(block, value, dptr);

    if (result != CUDA_SUCCESS && result != CUDA_ERROR_INVALID_VALUE &&
        result != CUDA_ERROR_NOT_SUPPORTED)
        return result;
    if (gc_export_set_synchronous(gc_shim.core, dptr, is_set) != GC_OK)
        return CUDA_ERROR_INVALID_VALUE; /* freed meanwhile */
    /* The attribute lets network cards use the memory. */
    if (is_set)
        gc_export_pin(gc_shim.core, dptr, 1);
    return CUDA_SUCCESS;
}

/* SYNC_MEMOPS is the only attribute that can be set. */
GC_EXPORT
CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr dptr)
{
    struct gc_block_info block;
    enum gc_status status;
    CUresult result;

    if (!gc_life_ready())
        return GC_FORWARD(cuPointerSetAttribute, value, attribute, dptr);
    gc_shim_enter(GC_API_cuPointerSetAttribute);
    status = find_block(dptr, &block);
    if (attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS &&
        (result = gc_outside_expect()) != CUDA_SUCCESS)
        goto done;
    if (status == GC_OK && value != NULL && attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
        result = set_sync_memops(&block, value, dptr);
    else
        result = QUERY_ABOUT(status, dptr, cuPointerSetAttribute, value, attribute,
                             status == GC_INVALID_POINTER ? ADDRESS_NOWHERE : dptr);
done:
    gc_shim_leave();
    return result;
}

/* A handle by which other devices may reach the range at any time from now on. */
GC_EXPORT
CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr dptr, size_t bytes,
                                       CUmemRangeHandleType type, unsigned long long flags)
{
    struct gc_submissions *work;
    CUresult result;

    if (!gc_life_ready())
        return GC_FORWARD(cuMemGetHandleForAddressRange, handle, dptr, bytes, type, flags);
    gc_shim_enter(GC_API_cuMemGetHandleForAddressRange);
    result = gc_outside_expect();
    if (result != CUDA_SUCCESS)
        goto done;
    work = gc_life_submissions();
    if (work != NULL) {
        gc_shim_submit_enter_gate(work, GC_CALLER);
        gc_shim_submit_wait_memory(work, dptr, 0);
    }
    result = GC_CALL_RELIEVED(gc_account_current_device(), cuMemGetHandleForAddressRange, handle,
                              dptr, bytes, type, flags);
    if (result == CUDA_SUCCESS)
        gc_export_pin(gc_shim.core, dptr, bytes); /* before a pause can begin */
    gc_shim_submit_leave(work);
done:
    gc_shim_leave();
    return result;
}
