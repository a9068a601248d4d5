/* Primary contexts and green ones: see primary.c. */
#ifndef GC_PRIMARY_H
#define GC_PRIMARY_H

#include "shim/shim.h"

/* Serialises retain, release and reset of a device's primary context: by its state before and
 * after, a thread knows the effect of its own call. Nests. The caller holds no lock, and waits only
 * for that. */
void gc_primary_lock(CUdevice ordinal);
void gc_primary_unlock(CUdevice ordinal);

/* The context is a green one of the device: from now on it is taken for the primary context. */
void gc_primary_add_green(CUcontext context, CUdevice ordinal);
/* Whether the current context is a green one. */
bool gc_primary_is_green(void);

/* How many references the program has retained and not released, after this `change`. A turn is
 * held. */
int64_t gc_primary_count_holds(CUdevice ordinal, int change);
/* The key of a device's primary context in the table of handles. */
uint64_t gc_primary_key(CUdevice ordinal);
bool gc_primary_is_active(CUdevice ordinal);

#endif
