/* Calls of the shared runtime that go through another library. */
#ifndef GC_RUNTIME_API_H
#define GC_RUNTIME_API_H

#include "shim/real/rows.h"

/* The wrapper of a call by the row's name where `other`, a function of another library, stands
 * behind this one: it calls `other`, which must see every call. */
void *gc_runtime_api_through(const struct gc_row *row, void *other);

#endif
