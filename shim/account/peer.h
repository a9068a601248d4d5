/* Notes for frees that the work of one context may reach the memory of another. */
#ifndef GC_PEER_H
#define GC_PEER_H

#include "shim/shim.h"

/* Work of `worker` may reach memory of `owner` from now on: a free in `owner` waits for it too.
 * Does nothing if either is NULL, or both are equal. */
static inline void gc_peer_add(struct gc_context *owner, struct gc_context *worker)
{
    if (owner != NULL && worker != NULL && owner != worker)
        gc_backing_add_peer(owner, worker);
}

#endif
