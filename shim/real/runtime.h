/* The shared runtimes that are loaded: see runtime.c. */
#ifndef GC_RUNTIME_H
#define GC_RUNTIME_H

#include "shim/real/rows.h"

#define GC_RUNTIME_NAME "libcudart" /* for gc_elf_is_library: the shared runtimes */

/* Whether `code` belongs to a shared CUDA runtime, under any file name. */
bool gc_runtime_is_code(const void *code);

/* The definition of the row's name in the first runtime that was loaded, when the library started
 * or at the first query; NULL: there was none. */
void *gc_runtime_first(const struct gc_row *row);
/* Searches once for all rows; keeps the results. The runtime found stays loaded. */
void gc_runtime_scan(void);

#endif
