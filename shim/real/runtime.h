/* The shared runtimes that are loaded: see runtime.c. */
#ifndef GC_RUNTIME_H
#define GC_RUNTIME_H

#include "shim/real/rows.h"

#define GC_RUNTIME_FILES "libcudart.so" /* how the shared runtimes' files begin */

/* Whether `code` belongs to a shared CUDA runtime. */
bool gc_runtime_is_code(const void *code);

/* The definition of the row's name behind the library in the program's scope when the library
 * started, or at the first query; NULL: none. */
void *gc_runtime_behind_us(const struct gc_row *row);
/* Its definition now: takes the dynamic linker's lock. */
void *gc_runtime_behind_us_now(const struct gc_row *row);
/* Searches once, and keeps the result and the first of the runtimes. Takes that lock; never waits
 * for another thread. */
void gc_runtime_scan(void);
/* The object that holds `code` stays loaded from now on. The first time it takes that lock. */
void gc_runtime_keep(const void *code);

#endif
