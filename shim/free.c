/* Freeing memory that is not the pool's: managed, stream-ordered, from before the library was ready, or
 * unknown. The driver frees it; core's record goes first, because as soon as the driver has freed an address
 * another thread may be given it. If the driver then refuses, the record comes back. */
#include "shim/shim.h"

static const enum gc_direct_kind freed_by_address[] = {GC_DIRECT_MEMORY, GC_DIRECT_MANAGED, GC_DIRECT_ASYNC};

static bool untrack(CUdeviceptr dptr, struct gc_direct *record)
{
    for (size_t i = 0; i < sizeof(freed_by_address) / sizeof(freed_by_address[0]); i++)
        if (gc_core_untrack(gc_shim.core, freed_by_address[i], dptr, record) == GC_OK)
            return true;
    return false;
}

static void put_back(const struct gc_direct *record)
{
    /* The driver still holds the memory, whatever the limit says. */
    if (record->charged_bytes != 0)
        gc_core_adjust(gc_shim.core, record->device, (int64_t)record->charged_bytes);
    if (gc_core_track(gc_shim.core, record) != GC_OK)
        gc_log_write(&gc_shim.log, GC_LOG_WARN, "no host memory to record an allocation");
}

CUresult gc_shim_free_direct(CUdeviceptr dptr, bool first_abi)
{
    struct gc_direct record;
    bool was_known = untrack(dptr, &record);
    struct gc_device *device = was_known ? record.device : gc_shim_current_device();
    CUresult result = first_abi ? GC_CALL(device, cuMemFree, (CUdeviceptr_v1)dptr)
                                : GC_CALL(device, cuMemFree_v2, dptr);

    if (was_known && result != CUDA_SUCCESS)
        put_back(&record);
    return result;
}
