/* Where the exported names lead: see entry_exports.S. */
#ifndef GC_ENTRY_H
#define GC_ENTRY_H

#include "shim/real/rows.h"

/* The pointer for a program that looked up CUDA's own function of the row: the exported name, or
 * the wrapper if the name leads to another library's function. */
void *gc_entry_pointer(const struct gc_row *row);
/* The exported name of the row. */
void *gc_entry_export(const struct gc_row *row);
/* The function that a call by the row's name reaches next from code at `address`: that of another
 * library which stands behind the code in the program's scope, else the wrapper. */
void *gc_entry_next(const struct gc_row *row, const void *address);
/* Stores the target of a row's exported name, and returns it. For entry_exports.S. */
void *gc_entry_bind(unsigned id);

#endif
