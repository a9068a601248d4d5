/* The hot path of the shim: an allocation or a free that the thread's own cache serves, or else the
 * free blocks of the context's pool, before any other check. For the cache no lock, no system call,
 * and one driver call, cuCtxGetCurrent. It is made each time, since the current context can change
 * without any wrapper being called.
 *
 * False is not an error: the caller takes the slow path, which returns the error if there is
 * one. */
#ifndef GC_HOT_H
#define GC_HOT_H

#include "core/base/bits.h"
#include "shim/real/resolve.h"
#include "shim/shim.h"

/* Creates the thread's cache unless it has one, or may have none. Call inside a wrapper. */
void gc_hot_prepare(void);
/* Gives the thread a line for its submissions (core/device/submit.h), once. The thread is outside
 * the gate. */
void gc_hot_prepare_submitter(void);
/* Once, at the start. */
void gc_hot_start(void);

/* Started, not a forked child, no request of another process, and the thread has a cache. */
static inline bool gc_hot_is_open(void)
{
    /* Acquire: pairs with the release in shim/life/init.c's begin_service. */
    const volatile char *hot = __atomic_load_n(&gc_shim.hot, __ATOMIC_ACQUIRE);
    return GC_LIKELY(*hot != 0 && gc_thread.tcache != NULL &&
                     !gc_doorbell_is_rung(&gc_shim.doorbell));
}

/* The record for allocations in the current context, if the thread used that context last. */
static inline struct gc_context *gc_hot_target(CUcontext *handle)
{
    CUresult (*get_current)(CUcontext *) = GC_REAL(cuCtxGetCurrent);

    *handle = NULL;
    if (!GC_LIKELY(get_current != NULL && get_current(handle) == CUDA_SUCCESS))
        return NULL;
    return GC_LIKELY(*handle == gc_thread.handle) ? gc_thread.target : NULL;
}

/* The pool's part: a hit in its bins (core/reclaim/tcache_pool.c). */
uint64_t gc_hot_alloc_from_pool(struct gc_context *context, size_t bytes, enum gc_api api);
bool gc_hot_free_to_pool(uint64_t address);

/* Only for the program's own call (gc_shim_is_outside). */
static inline bool gc_hot_alloc(struct gc_context *context, size_t bytes, enum gc_api api,
                                uint64_t *address)
{
    if (!GC_LIKELY(context != NULL &&
                   !atomic_load_explicit(&gc_shim.ipc_used, memory_order_relaxed)))
        return false;
    *address = gc_tcache_alloc_bytes(gc_thread.tcache, context, bytes, (uint16_t)api);
    if (!GC_LIKELY(*address != GC_ADDRESS_NONE))
        *address = gc_hot_alloc_from_pool(context, bytes, api);
    return GC_LIKELY(*address != GC_ADDRESS_NONE);
}

static inline bool gc_hot_free(uint64_t address)
{
    return GC_LIKELY(gc_tcache_free(gc_shim.core, gc_thread.tcache, address)) ||
           gc_hot_free_to_pool(address);
}

#endif
