/* Freeing memory that is not the pool's: managed, stream-ordered, of the first ABI, or unknown. The
 * driver frees it and says what there is to say; core's record goes once that has succeeded. */
#include "shim/account/device.h"
#include "shim/account/direct.h"
#include "shim/real/resolve.h"

/* What cuMemFree may free besides imports, which are recorded but never charged. */
static const enum gc_direct_kind freed_by_address[] = {GC_DIRECT_MEMORY, GC_DIRECT_MANAGED,
                                                       GC_DIRECT_ASYNC};
#define KIND_COUNT (sizeof(freed_by_address) / sizeof(freed_by_address[0]))

static bool is_plain_memory(CUdeviceptr dptr)
{
    struct gc_direct record;

    return gc_core_find_direct(gc_shim.core, GC_DIRECT_MEMORY, dptr, &record) == GC_OK;
}

CUresult gc_shim_free_direct(CUdeviceptr dptr, bool first_abi)
{
    struct gc_device *device = gc_shim_current_device();
    bool was_plain = is_plain_memory(dptr);
    CUresult result;

    for (size_t i = 0; i < KIND_COUNT; i++)
        gc_direct_release_begin(freed_by_address[i], dptr);
    result = first_abi ? GC_CALL(device, cuMemFree, (CUdeviceptr_v1)dptr)
                       : GC_CALL(device, cuMemFree_v2, dptr);
    if (result == CUDA_SUCCESS && !was_plain)
        gc_direct_forget_address(dptr);
    for (size_t i = 0; i < KIND_COUNT; i++)
        gc_direct_release_end(freed_by_address[i], dptr,
                              result == CUDA_SUCCESS && was_plain &&
                                  freed_by_address[i] == GC_DIRECT_MEMORY);
    return result;
}
