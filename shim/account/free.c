/* Freeing memory that is not the pool's: managed, stream-ordered, of the first ABI, imported, or
 * unknown. The driver frees it and says what there is to say; the record goes once that has
 * succeeded. The kind is found once, before the driver may give the address to another. */
#include "shim/account/device.h"
#include "shim/account/direct.h"
#include "shim/account/graph_memory.h"
#include "shim/account/mempool.h"
#include "shim/handles.h"
#include "shim/real/resolve.h"

static bool is_of_kind(enum gc_direct_kind kind, CUdeviceptr dptr)
{
    struct gc_direct record;
    struct gc_handle handle;

    return kind == GC_DIRECT_ASYNC
               ? gc_handles_get(GC_HANDLE_ASYNC, dptr, &handle)
               : gc_core_find_direct(gc_shim.core, kind, dptr, &record) == GC_OK;
}

/* False: no record is known, as of graph memory. */
static bool find_kind(CUdeviceptr dptr, enum gc_direct_kind *kind)
{
    static const enum gc_direct_kind kinds[] = {GC_DIRECT_MEMORY, GC_DIRECT_ASYNC,
                                                GC_DIRECT_MANAGED, GC_DIRECT_IMPORT};

    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (is_of_kind(kinds[i], dptr)) {
            *kind = kinds[i];
            return true;
        }
    return false;
}

CUresult gc_shim_free_direct(CUdeviceptr dptr, bool first_abi)
{
    struct gc_device *device = gc_shim_current_device();
    enum gc_direct_kind kind = GC_DIRECT_MEMORY;
    const bool is_known = find_kind(dptr, &kind);

    if (is_known)
        gc_direct_release_begin(kind, dptr);
    CUresult result = first_abi ? GC_CALL(device, cuMemFree, (CUdeviceptr_v1)dptr)
                                : GC_CALL(device, cuMemFree_v2, dptr);
    const bool is_freed = result == CUDA_SUCCESS;
    const bool is_ordered = is_known && kind == GC_DIRECT_ASYNC;
    if (is_freed && is_ordered)
        (void)gc_mempool_forget(dptr); /* core's record too */
    else if (is_freed && !is_known)
        gc_graph_refresh_all();
    if (is_known)
        gc_direct_release_end(kind, dptr, is_freed && !is_ordered);
    return result;
}
