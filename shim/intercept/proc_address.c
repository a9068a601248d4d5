/* cuGetProcAddress, both ABIs: the real one answers first; what it handed out is replaced only
 * where it is an entry point of api.def in exactly the ABI asked for. Look-ups made by libcuda
 * itself are left alone.
 *
 * A look-up does not start the library: programs look names up when they load and fork before they
 * use any. */
#include "shim/intercept/resolve.h"
#include "shim/intercept/unknown.h"

static void substitute(const char *symbol, void **pfn, int version, cuuint64_t flags,
                       const void *caller)
{
    if (symbol == NULL || pfn == NULL || *pfn == NULL || gc_resolve_is_driver_code(caller))
        return;
    *pfn = gc_row_substitute(symbol, version, flags, *pfn);
}

GC_EXPORT
CUresult cuGetProcAddress(const char *symbol, void **pfn, int version, cuuint64_t flags)
{
    CUresult result;

    gc_resolve_driver(true);
    if (gc_thread.depth > 0)
        return GC_FORWARD(cuGetProcAddress, symbol, pfn, version, flags);
    gc_shim_enter(GC_API_cuGetProcAddress);
    result = GC_CALL(NULL, cuGetProcAddress, symbol, pfn, version, flags);
    if (result == CUDA_SUCCESS)
        substitute(symbol, pfn, version, flags, __builtin_return_address(0));
    gc_shim_leave();
    return result;
}

GC_EXPORT
CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status)
{
    CUresult result;

    gc_resolve_driver(true);
    if (gc_thread.depth > 0)
        return GC_FORWARD(cuGetProcAddress_v2, symbol, pfn, version, flags, status);
    gc_shim_enter(GC_API_cuGetProcAddress_v2);
    result = GC_CALL(NULL, cuGetProcAddress_v2, symbol, pfn, version, flags, status);
    if (result == CUDA_SUCCESS)
        substitute(symbol, pfn, version, flags, __builtin_return_address(0));
    gc_shim_leave();
    return result;
}

/* The driver's undocumented tables are handed through as they are. The runtimes use them to find
 * their way; other libraries of the driver (video, ray tracing, optical flow) submit work by them,
 * on memory of the program. */
GC_EXPORT
CUresult cuGetExportTable(const void **table, const CUuuid *id)
{
    gc_resolve_driver(true);
    if (gc_thread.depth == 0)
        gc_unknown_note_export_table(__builtin_return_address(0));
    return GC_FORWARD(cuGetExportTable, table, id);
}
