/* The shared runtimes that are loaded: their objects. Takes no lock of the dynamic linker's. */
#define _GNU_SOURCE
#include "shim/real/runtime.h"
#include "shim/real/open.h"
#include "shim/real/rows.h"

#include "core/io/elf.h"
#include "core/io/elf_object.h"

bool gc_runtime_is_code(const void *code)
{
    return code != NULL && gc_elf_is_library(code, GC_RUNTIME_NAME);
}

static void *_Atomic first[GC_ROW_COUNT];
static atomic_bool is_scanned;

void gc_runtime_scan(void)
{
    struct gc_elf_object object = {.base = 0};

    /* acquire: pairs with the release at the end */
    if (atomic_load_explicit(&is_scanned, memory_order_acquire))
        return;
    if (gc_elf_object_open_library(&object, GC_RUNTIME_NAME)) {
        for (const struct gc_row *row = gc_rows; row < gc_rows + GC_ROW_COUNT; row++)
            if (row->type == GC_ROW_TYPE_RUNTIME)
                atomic_store_explicit(&first[row - gc_rows],
                                      gc_elf_object_find(&object, gc_row_symbol(row)),
                                      memory_order_relaxed);
        gc_open_keep(object.dynamic);
    }
    atomic_store_explicit(&is_scanned, true, memory_order_release);
}

void *gc_runtime_first(const struct gc_row *row)
{
    gc_runtime_scan();
    return atomic_load_explicit(&first[row - gc_rows], memory_order_relaxed);
}
