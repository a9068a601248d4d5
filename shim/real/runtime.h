/* The shared runtimes that are loaded: see runtime.c. */
#ifndef GC_RUNTIME_H
#define GC_RUNTIME_H

#include "shim/real/rows.h"

#define GC_RUNTIME_NAME "libcudart" /* for gc_elf_is_library: the shared runtimes */

/* Whether `code` belongs to a shared CUDA runtime, under any file name. */
bool gc_runtime_is_code(const void *code);

/* The runtime's definition of the row's name, if it is the first one behind the library in the
 * program's scope when the library started, or at the first query; NULL: it is not. */
void *gc_runtime_behind_us(const struct gc_row *row);
/* The first definition at this time, of any library: takes the dynamic linker's lock. */
void *gc_runtime_behind_us_now(const struct gc_row *row);
/* Searches once for all rows; keeps the results. The runtimes found stay loaded. Takes the dynamic
 * linker's lock; never waits for another thread. */
void gc_runtime_scan(void);
/* The object that holds `code` stays loaded from now on. The first call takes the linker's lock. */
void gc_runtime_keep(const void *code);

#endif
