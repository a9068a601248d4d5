/* A context: its pool, its captures, who else may work on its memory. The record stays readable
 * until the core is destroyed, also after the context was dropped. */
#ifndef GC_CONTEXT_H
#define GC_CONTEXT_H

#include "core/core.h"
#include "core/pool.h"

#define GC_PEER_MAX 63

struct gc_context {
    struct gc_core *core;
    struct gc_device *device;
    uint64_t handle;
    struct gc_context
        *next_of_all; /* every context ever, for the end; guarded by the registry's lock */
    _Atomic(struct gc_context *) next_in_bucket;
    _Atomic(struct gc_context *) next_in_device;
    atomic_bool is_dropped; /* set before the pool is emptied */
    atomic_uint capture_count;
    atomic_bool
        is_suspect; /* its last wait failed: the driver is asked before memory is handed out */
    atomic_uint wait_count; /* waits for this context's work that are under way */
    /* All work counted up to here is done (core/work.h), that of peers too. Only rises. Release:
     * pairs with the acquire in gc_context_is_retired. */
    atomic_uint_fast64_t retired;
    uint64_t magazine_bytes;       /* what a thread may keep of the context */
    uint64_t magazine_block_bytes; /* and the largest block of it; 0: nothing */
    struct gc_pool pool;
    /* Guarded by the pool's lock. */
    uint32_t peer_count;
    struct gc_context *peers[GC_PEER_MAX];
};

/* Whose work a free must wait for: the context and its peers. */
struct gc_wait_set {
    uint32_t count;
    struct gc_context *contexts[1 + GC_PEER_MAX];
};

/* Whether a block of the context that was freed with `stamp` is idle. */
static inline bool gc_context_is_retired(const struct gc_context *context, uint64_t stamp)
{
    return stamp <= atomic_load_explicit(&context->retired, memory_order_acquire);
}

bool gc_context_is_dropped(const struct gc_context *context);
/* Fills the set under the pool's lock and announces the wait; a capture that begins meanwhile waits
 * for its end. False, with an empty set, if one of them captures: nothing may be asked of the
 * driver then. */
bool gc_context_wait_begin_locked(struct gc_context *context, struct gc_wait_set *set);
/* The wait is over, or was not needed. Empties the set; no lock needed. */
void gc_context_wait_end(struct gc_wait_set *set);

#endif
