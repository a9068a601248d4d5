/* The table of api.def at run time: rows, their wrappers, and the way from a name to a row. Shared
 * by resolve.c, route.c, proc_address.c and runtime_api.c. */
#ifndef GC_RESOLVE_H
#define GC_RESOLVE_H

#include "shim/shim.h"

#include <pthread.h>

enum gc_row_type { GC_ROW_TYPE_API, GC_ROW_TYPE_USE, GC_ROW_TYPE_RUNTIME, GC_ROW_TYPE_NVML };
enum gc_variant { GC_VARIANT_NONE, GC_VARIANT_PTSZ };

struct gc_row {
    const char *symbol;
    const char *base; /* as cuGetProcAddress knows it; NULL for the runtime's and NVML's */
    void *wrapper;    /* NULL for USE and NVML_USE rows */
    int version;
    uint8_t type;    /* enum gc_row_type */
    uint8_t variant; /* enum gc_variant */
    uint8_t symbol_length;
};

extern const struct gc_row gc_rows[GC_ROW_COUNT];

/* Not linked against: their symbols have other versions in newer C libraries, and older ones have
 * them in a library of its own, which the driver brings. Found with the driver, NULL without one.
 */
struct gc_thread_calls {
    __typeof__(pthread_create) *create;
    __typeof__(pthread_key_create) *key_create;
    __typeof__(pthread_setspecific) *set_specific;
};
const struct gc_thread_calls *gc_resolve_thread_calls(void);

/* Whether the driver, which was found before, has a symbol of that name. */
bool gc_resolve_driver_exports(const char *name);
/* The row that wraps exactly this exported name; NULL if none does. */
const struct gc_row *gc_row_find(const char *symbol);
/* The real pointer of a row, NULL if not known. */
void *gc_row_real(const struct gc_row *row);
/* Remembers a real pointer the program was given; the first one stays. Returns the one in force. */
void *gc_row_record(const struct gc_row *row, void *real);

/* What to hand a program that cuGetProcAddress gave `real` for (name, version, flags): our wrapper
 * for exactly that ABI, or `real` itself. */
void *gc_row_substitute(const char *name, int version, cuuint64_t flags, void *real);

#endif
