/* cuGetProcAddress, both ABIs: the real function is called first; its pointer is replaced only
 * where it is an entry point of shim/api.def in exactly the requested ABI. Look-ups by libcuda
 * itself are left alone.
 *
 * A look-up does not start the library: programs look names up while they load, and may fork before
 * they call any of them. */
#include "shim/intercept/entry.h"
#include "shim/real/resolve.h"
#include "shim/real/unknown.h"

#include <string.h>

static bool fits(const struct gc_row *row, const char *name, enum gc_variant variant)
{
    return row->type == GC_ROW_TYPE_API && row->variant == variant &&
           strcmp(gc_row_base(row), name) == 0;
}

/* The row of the requested ABI: the newest that is not newer than `version`. */
static const struct gc_row *find_abi(const char *name, int version, enum gc_variant variant)
{
    const struct gc_row *best = NULL;

    for (const struct gc_row *row = gc_rows; row < gc_rows + GC_ROW_COUNT; row++)
        if (fits(row, name, variant) && row->version <= version &&
            (best == NULL || row->version > best->version))
            best = row;
    return best;
}

/* Accepts either variant: a driver without a per-thread flavour of a name returns the plain one. */
static const struct gc_row *find_same(const char *name, const void *real)
{
    for (const struct gc_row *row = gc_rows; row < gc_rows + GC_ROW_COUNT; row++)
        if (row->type == GC_ROW_TYPE_API && strcmp(gc_row_base(row), name) == 0 &&
            gc_row_real(row) == real)
            return row;
    return NULL;
}

/* The driver's own pointer. */
static void *ask(const char *name, int version, cuuint64_t flags)
{
    CUdriverProcAddressQueryResult status;
    void *found = NULL;
    CUresult result = CUDA_ERROR_NOT_FOUND;

    if (GC_REAL(cuGetProcAddress_v2) != NULL)
        result = GC_REAL(cuGetProcAddress_v2)(name, &found, version, flags, &status);
    else if (GC_REAL(cuGetProcAddress) != NULL)
        result = GC_REAL(cuGetProcAddress)(name, &found, version, flags);
    return result == CUDA_SUCCESS ? found : NULL;
}

/* The pointer that the program gets when cuGetProcAddress returned `real` for (name, version,
 * flags): the wrapper for exactly that ABI, or `real` itself. */
static void *replace(const char *name, int version, cuuint64_t flags, void *real)
{
    const struct gc_row *row = NULL, *same;
    enum gc_variant variant = GC_VARIANT_NONE;

    const int newest = gc_resolve_driver_version();
    /* No driver returns an ABI newer than itself, and drivers count versions without a sign. */
    const int known = version >= 0 && version < newest ? version : newest;

    if ((flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) &&
        find_abi(name, known, GC_VARIANT_PTSZ))
        variant = GC_VARIANT_PTSZ;
    row = find_abi(name, known, variant);
    if (row == NULL)
        gc_unknown_log(name, version);
    if (row == NULL || gc_row_is_own(real))
        return real;
    if (gc_row_real(row) == real)
        return gc_entry_pointer(row);
    /* The driver may be newer than this table: the driver's pointer decides. */
    same = find_same(name, real);
    if (same != NULL)
        return gc_entry_pointer(same);
    /* A version that is newer than the table: the same pointer is the same ABI. */
    if (version <= GC_API_TABLE_VERSION || real == ask(name, GC_API_TABLE_VERSION, flags)) {
        gc_row_record(row, real); /* if the symbol itself is not exported */
        return gc_entry_pointer(row);
    }
    gc_unknown_check(name, version);
    return real;
}

static void substitute(const char *symbol, void **pfn, int version, cuuint64_t flags,
                       const void *caller)
{
    if (symbol == NULL || pfn == NULL || *pfn == NULL || gc_resolve_is_driver_code(caller))
        return;
    *pfn = replace(symbol, version, flags, *pfn);
}

GC_EXPORT
CUresult cuGetProcAddress(const char *symbol, void **pfn, int version, cuuint64_t flags)
{
    CUresult result;

    gc_resolve_driver(true);
    if (gc_thread.depth > 0)
        return GC_CALL(NULL, cuGetProcAddress, symbol, pfn, version, flags);
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
        return GC_CALL(NULL, cuGetProcAddress_v2, symbol, pfn, version, flags, status);
    gc_shim_enter(GC_API_cuGetProcAddress_v2);
    result = GC_CALL(NULL, cuGetProcAddress_v2, symbol, pfn, version, flags, status);
    if (result == CUDA_SUCCESS)
        substitute(symbol, pfn, version, flags, __builtin_return_address(0));
    gc_shim_leave();
    return result;
}

/* Returns the driver's undocumented tables unchanged. The runtimes call the driver through them;
 * other libraries of the driver (video, ray tracing, optical flow) submit work through them, on
 * memory of the program. */
GC_EXPORT
CUresult cuGetExportTable(const void **table, const CUuuid *id)
{
    gc_resolve_driver(true);
    if (gc_thread.depth == 0)
        gc_unknown_log_export_table(__builtin_return_address(0));
    return GC_CALL(NULL, cuGetExportTable, table, id);
}
