/* Whose work may reach whose memory: noted for frees. */
#ifndef GC_PEER_H
#define GC_PEER_H

#include "shim/shim.h"

/* Work of `worker` may reach memory of `owner` from now on: a free in `owner` waits for it too.
 * Either may be NULL, or both the same: nothing is noted then. */
static inline void gc_peer_add(struct gc_context *owner, struct gc_context *worker)
{
    if (owner != NULL && worker != NULL && owner != worker)
        gc_context_add_peer(owner, worker);
}

#endif
