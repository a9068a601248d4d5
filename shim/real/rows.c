/* The rows of shim/api.def, keyed by the exact exported symbol, and their slots for real pointers.
 */
#define _GNU_SOURCE
#include "shim/real/rows.h"

#include "core/io/elf.h"

#include <string.h>

_Static_assert(sizeof(struct gc_real) == GC_ROW_COUNT * sizeof(void *), "one slot per row");

#define ROW(name, base_name, since, row_type, has_wrapper, flavour)                                \
    {                                                                                              \
        .symbol = #name, .base = (base_name), .version = (since), .type = (row_type),              \
        .is_wrapped = (has_wrapper), .variant = (flavour), .symbol_length = sizeof(#name) - 1      \
    }

const struct gc_row gc_rows[GC_ROW_COUNT] = {
#define API(symbol, base, version, variant, kind, parameters, arguments)                           \
    ROW(symbol, #base, version, GC_ROW_TYPE_API, true, GC_VARIANT_##variant),
#define USE(symbol, base, version, parameters)                                                     \
    ROW(symbol, #base, version, GC_ROW_TYPE_USE, false, GC_VARIANT_NONE),
#define RUNTIME(symbol, kind, type, parameters, arguments)                                         \
    ROW(symbol, NULL, 0, GC_ROW_TYPE_RUNTIME, true, GC_VARIANT_NONE),
#define NVML(symbol, parameters, arguments)                                                        \
    ROW(symbol, NULL, 0, GC_ROW_TYPE_NVML, true, GC_VARIANT_NONE),
#define NVML_USE(symbol, parameters) ROW(symbol, NULL, 0, GC_ROW_TYPE_NVML, false, GC_VARIANT_NONE),
#include "shim/api.def"
};

bool gc_row_is_own(const void *address)
{
    static atomic_uintptr_t own_low, own_high; /* the library's own code; high is stored first */
    uintptr_t low = atomic_load_explicit(&own_low, memory_order_acquire), high;

    if (low == 0) {
        if (!gc_elf_find_range(&gc_rows, &low, &high))
            return false;
        atomic_store_explicit(&own_high, high, memory_order_relaxed);
        atomic_store_explicit(&own_low, low, memory_order_release);
    }
    return (uintptr_t)address >= low &&
           (uintptr_t)address < atomic_load_explicit(&own_high, memory_order_relaxed);
}

static void **slot_of(const struct gc_row *row)
{
    return (void **)&gc_shim.real + (row - gc_rows);
}

void *gc_row_record(const struct gc_row *row, void *real)
{
    void *current = NULL;

    if (__atomic_compare_exchange_n(slot_of(row), &current, real, false, __ATOMIC_RELAXED,
                                    __ATOMIC_RELAXED))
        return real;
    return current;
}

const struct gc_row *gc_row_find(const char *symbol)
{
    size_t length;

    if ((symbol[0] != 'c' || symbol[1] != 'u') && (symbol[0] != 'n' || symbol[1] != 'v'))
        return NULL;
    length = strlen(symbol);
    for (const struct gc_row *row = gc_rows; row < gc_rows + GC_ROW_COUNT; row++)
        if (row->symbol_length == length && row->is_wrapped &&
            memcmp(row->symbol, symbol, length) == 0)
            return row;
    return NULL;
}
