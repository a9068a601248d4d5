/* The driver's own memory, by the process's figure: see reconcile.c. */
#ifndef GC_RECONCILE_H
#define GC_RECONCILE_H

#include "core/device/context.h"

/* If a comparison is due: has it made. Reads the clock. Under no lock; no call in a context. */
void gc_reconcile_update(struct gc_device *device);
/* A request has found no room: has two comparisons made, at most once a second, and waits 100 ms
 * for them at most. True: the driver has given memory back. */
bool gc_reconcile_again(struct gc_device *device);
/* The memory of a context is gone, the driver's own with it: nothing is the driver's until the next
 * comparison, which is due at once. */
void gc_reconcile_forget(struct gc_device *device);

#endif
