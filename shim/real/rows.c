/* The rows of shim/api.def, keyed by the exact exported symbol, and their slots for real pointers.
 */
#define _GNU_SOURCE
#include "shim/real/rows.h"

#include "core/io/elf.h"

#include <stddef.h>
#include <string.h>

_Static_assert(sizeof(struct gc_real) == GC_ROW_COUNT * sizeof(void *), "one slot per row");

/* ---- texts ---- */

static const struct texts {
#define TEXT(member, text) char member[sizeof(text)];
#define API(symbol, base, ...) TEXT(symbol_##symbol, #symbol) TEXT(base_##symbol, #base)
#define USE(symbol, base, ...) API(symbol, base)
#define RUNTIME(symbol, ...) TEXT(symbol_##symbol, #symbol)
#define NVML(symbol, ...) TEXT(symbol_##symbol, #symbol)
#define NVML_USE(symbol, ...) TEXT(symbol_##symbol, #symbol)
#include "shim/api.def"
#undef TEXT
} texts = {
#define TEXT(member, text) .member = text,
#define API(symbol, base, ...) TEXT(symbol_##symbol, #symbol) TEXT(base_##symbol, #base)
#define USE(symbol, base, ...) API(symbol, base)
#define RUNTIME(symbol, ...) TEXT(symbol_##symbol, #symbol)
#define NVML(symbol, ...) TEXT(symbol_##symbol, #symbol)
#define NVML_USE(symbol, ...) TEXT(symbol_##symbol, #symbol)
#include "shim/api.def"
};
_Static_assert(sizeof(texts) <= UINT16_MAX, "an offset fits");

const char *gc_row_symbol(const struct gc_row *row)
{
    return (const char *)&texts + row->symbol;
}

const char *gc_row_base(const struct gc_row *row)
{
    return row->base == 0 ? NULL : (const char *)&texts + row->base;
}

/* ---- rows ---- */

#define ROW(name, base_offset, since, row_type, has_wrapper, flavour)                              \
    {                                                                                              \
        .symbol = offsetof(struct texts, symbol_##name), .base = (base_offset),                    \
        .version = (since), .type = (row_type), .is_wrapped = (has_wrapper), .variant = (flavour), \
        .symbol_length = sizeof(#name) - 1                                                         \
    }
#define BASE(name) offsetof(struct texts, base_##name)

const struct gc_row gc_rows[GC_ROW_COUNT] = {
#define API(symbol, base, version, variant, kind, parameters, arguments)                           \
    ROW(symbol, BASE(symbol), version, GC_ROW_TYPE_API, true, GC_VARIANT_##variant),
#define USE(symbol, base, version, parameters)                                                     \
    ROW(symbol, BASE(symbol), version, GC_ROW_TYPE_USE, false, GC_VARIANT_NONE),
#define RUNTIME(symbol, kind, type, parameters, arguments)                                         \
    ROW(symbol, 0, 0, GC_ROW_TYPE_RUNTIME, true, GC_VARIANT_NONE),
#define NVML(symbol, parameters, arguments)                                                        \
    ROW(symbol, 0, 0, GC_ROW_TYPE_NVML, true, GC_VARIANT_NONE),
#define NVML_USE(symbol, parameters) ROW(symbol, 0, 0, GC_ROW_TYPE_NVML, false, GC_VARIANT_NONE),
#include "shim/api.def"
};

/* In the order of enum gc_api: the rows that a program can call, then the library's own. */
void gc_rows_name_apis(void)
{
    static const char own[] =
#define OWN(symbol) #symbol "\0"
#include "shim/own.def"
        ;
    const char *next = own;
    unsigned api = 0;

    for (const struct gc_row *row = gc_rows; row < gc_rows + GC_ROW_COUNT; row++)
        if (row->type == GC_ROW_TYPE_RUNTIME || (row->type == GC_ROW_TYPE_API && row->is_wrapped))
            gc_shim_api_names[api++] = gc_row_symbol(row);
    for (; api < GC_API_COUNT; next += strlen(next) + 1)
        gc_shim_api_names[api++] = next;
}

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
            memcmp(gc_row_symbol(row), symbol, length) == 0)
            return row;
    return NULL;
}
