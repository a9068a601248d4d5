/* Where the exported names lead. A program that calls cuMemAlloc_v2 by its symbol reaches this
 * library first. Without it the next object in the order of the program's scope would be reached:
 * another preloaded library or one that the program links, which wraps the name itself, or CUDA. So
 * a name that another library behind this one defines leads there; that library finds the wrapper
 * as its next definition (route.c). A pointer that the program fetched from CUDA's own library
 * leads to the wrapper.
 *
 * The runtime's names keep the wrapper in front (gc_runtime_api_through): it records the program's
 * call, and a device that the call may choose, and calls the other library itself.
 *
 * Only objects that were loaded with the program can stand between, so the target of a name is
 * found once, at its first call. Threads that arrive together find the same one. A fork finds those
 * of all names first: the search takes a lock of the dynamic linker's that another thread may hold,
 * and that nobody gives back in the child. */
#define _GNU_SOURCE
#include "shim/intercept/entry.h"
#include "shim/real/nvml.h"
#include "shim/real/resolve.h"
#include "shim/real/runtime.h"
#include "shim/wrap/runtime_api.h"

#include "core/io/elf.h"

#include <pthread.h>
#include <stdatomic.h>

/* In entry_exports.S. */
extern void *gc_entry_targets[GC_ROW_COUNT];
extern const struct {
    int32_t name, wrapper; /* from the table's start; 0: none */
} gc_entry_exports[GC_ROW_COUNT];
extern void gc_entry_unbound(void); /* the first target of all names */

static const char *const owners[] = {
    [GC_ROW_TYPE_API] = GC_DRIVER_NAME,
    [GC_ROW_TYPE_USE] = GC_DRIVER_NAME,
    [GC_ROW_TYPE_RUNTIME] = GC_RUNTIME_NAME,
    [GC_ROW_TYPE_NVML] = GC_NVML_NAME,
};

static void *at_offset(int32_t offset)
{
    return offset == 0 ? NULL : (void *)((uintptr_t)gc_entry_exports + (uintptr_t)(intptr_t)offset);
}

static void *wrapper_of(const struct gc_row *row)
{
    return at_offset(gc_entry_exports[row - gc_rows].wrapper);
}

void *gc_entry_next(const struct gc_row *row, const void *address)
{
    void *found = gc_elf_find_next(address, gc_row_symbol(row));

    return found == NULL || gc_elf_is_library(found, owners[row->type]) ? wrapper_of(row) : found;
}

void *gc_entry_export(const struct gc_row *row)
{
    return at_offset(gc_entry_exports[row - gc_rows].name);
}

void *gc_entry_pointer(const struct gc_row *row)
{
    void *target = __atomic_load_n(&gc_entry_targets[row - gc_rows], __ATOMIC_RELAXED);
    void *wrapper = wrapper_of(row);

    if (target == (void *)gc_entry_unbound)
        target = gc_entry_bind((unsigned)(row - gc_rows));
    return target == wrapper ? gc_entry_export(row) : wrapper;
}

static void *bind(unsigned id)
{
    const struct gc_row *row = &gc_rows[id];
    void *target = gc_entry_next(row, gc_rows);

    __atomic_store_n(&gc_shim.alloc_code, gc_entry_export(&gc_rows[GC_ROW_cuMemAlloc_v2]),
                     __ATOMIC_RELAXED);
    __atomic_store_n(&gc_shim.free_code, gc_entry_export(&gc_rows[GC_ROW_cuMemFree_v2]),
                     __ATOMIC_RELAXED);
    if (row->type == GC_ROW_TYPE_RUNTIME && target != wrapper_of(row))
        target = gc_runtime_api_through(row, target);
    __atomic_store_n(&gc_entry_targets[id], target, __ATOMIC_RELAXED);
    return target;
}

static void bind_all(void)
{
    for (unsigned id = 0; id < GC_ROW_COUNT; id++)
        if (__atomic_load_n(&gc_entry_targets[id], __ATOMIC_RELAXED) == (void *)gc_entry_unbound)
            (void)bind(id);
}

void *gc_entry_bind(unsigned id)
{
    static atomic_flag is_watching = ATOMIC_FLAG_INIT;

    if (!atomic_flag_test_and_set_explicit(&is_watching, memory_order_relaxed))
        pthread_atfork(bind_all, NULL, NULL);
    return bind(id);
}
