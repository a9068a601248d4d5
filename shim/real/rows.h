/* The table of shim/api.def at run time: rows, their real pointers, and the way from a name to a
 * row. Their wrappers: intercept/entry.h. */
#ifndef GC_ROWS_H
#define GC_ROWS_H

#include "shim/shim.h"

enum gc_row_type { GC_ROW_TYPE_API, GC_ROW_TYPE_USE, GC_ROW_TYPE_RUNTIME, GC_ROW_TYPE_NVML };
enum gc_variant { GC_VARIANT_NONE, GC_VARIANT_PTSZ };

/* Without pointers, which the dynamic linker would have to relocate in every process. */
struct gc_row {
    uint16_t symbol, base; /* offsets of their texts; base 0: none */
    int version;
    uint8_t type;    /* enum gc_row_type */
    bool is_wrapped; /* false in USE and NVML_USE rows */
    uint8_t variant; /* enum gc_variant */
    uint8_t symbol_length;
};

extern const struct gc_row gc_rows[GC_ROW_COUNT];

const char *gc_row_symbol(const struct gc_row *row);
/* As cuGetProcAddress knows it; NULL for the runtime's and NVML's. */
const char *gc_row_base(const struct gc_row *row);
/* The row that wraps exactly this exported name; NULL if none does. */
const struct gc_row *gc_row_find(const char *symbol);
/* The real pointer of a row, NULL if not known. */
static inline void *gc_row_real_at(enum gc_row_id id)
{
    return __atomic_load_n((void **)&gc_shim.real + id, __ATOMIC_RELAXED);
}
static inline void *gc_row_real(const struct gc_row *row)
{
    return gc_row_real_at((enum gc_row_id)(row - gc_rows));
}
/* Records a real pointer that the program got; the first one stays. Returns the one in force. */
void *gc_row_record(const struct gc_row *row, void *real);

/* Fills gc_shim_api_names, once. */
void gc_rows_name_apis(void);

/* True if `address` is in this library itself: a look-up found the library's own export. */
bool gc_row_is_own(const void *address);
/* Typed, safe read of a slot; NULL if the driver has no such entry point or it was not looked up
 * yet. */
#define GC_REAL(symbol) __atomic_load_n(&gc_shim.real.symbol, __ATOMIC_RELAXED)

#endif
