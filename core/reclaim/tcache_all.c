/* Caches of threads: their life, and how one thread stops all others' to look inside. The list of
 * caches only grows; a thread that ends leaves its record to the next one. */
#define _GNU_SOURCE
#include "core/base/assert.h"
#include "core/base/bits.h"
#include "core/device/registry.h"
#include "core/reclaim/tcache.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SPINS_BEFORE_SLEEP 64
#define PAUSE_NS 20000
/* Longer than any processor keeps a store to itself: those that run drain their store buffers
 * within microseconds, and those that are interrupted or change threads do so at once. */
#define STORES_ARE_SEEN_NS 20000000

/* The thread sanitizer knows nothing of barriers that are made elsewhere. */
#ifdef __SANITIZE_THREAD__
#define MAY_USE_MEMBARRIER false
#else
#define MAY_USE_MEMBARRIER true
#endif

/* False: the kernel has none, or a filter refuses it; errno is the program's. */
static bool make_barrier(int command)
{
    const int saved_errno = errno;
    const bool is_made = syscall(SYS_membarrier, command, 0) == 0;
    errno = saved_errno;
    return is_made;
}

/* ---- life ---- */

void gc_caches_init(struct gc_core *core)
{
    gc_lock_init(&core->caches_lock, GC_RANK_CACHES);
    core->has_membarrier =
        MAY_USE_MEMBARRIER && make_barrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
    core->has_magazines = core->mode == GC_MODE_CACHE && core->options->reuse == GC_REUSE_FENCE &&
                          core->options->debug == 0 && core->driver.fence_record != NULL;
}

void gc_caches_fini(struct gc_core *core)
{
    struct gc_cache *cache = atomic_load_explicit(&core->caches, memory_order_relaxed);
    while (cache != NULL) {
        struct gc_cache *next = atomic_load_explicit(&cache->next, memory_order_relaxed);
        gc_host_unmap(&core->host, cache, sizeof(*cache));
        cache = next;
    }
    gc_lock_fini(&core->caches_lock);
}

static struct gc_cache *first_cache(struct gc_core *core)
{
    /* Acquire: pairs with the release in add_cache. */
    return atomic_load_explicit(&core->caches, memory_order_acquire);
}

static struct gc_cache *next_cache(struct gc_cache *cache)
{
    return atomic_load_explicit(&cache->next, memory_order_relaxed);
}

/* A record that no thread has. */
static struct gc_cache *find_unused_locked(struct gc_core *core)
{
    struct gc_cache *cache = first_cache(core);
    while (cache != NULL && cache->is_used)
        cache = next_cache(cache);
    return cache;
}

static uint8_t open_gate(const struct gc_core *core)
{
    return core->has_membarrier ? GC_CACHE_OPEN : GC_CACHE_FENCED;
}

static struct gc_cache *add_cache_locked(struct gc_core *core, struct gc_cache *cache)
{
    cache->core = core;
    atomic_store_explicit(&cache->gate, open_gate(core), memory_order_relaxed);
    cache->is_observed = core->is_observed;
    cache->until_sample = 1;
    cache->last = &cache->magazines[0];
    for (unsigned i = 0; i < GC_CACHE_MAGAZINES; i++)
        cache->magazines[i].number = GC_MAGAZINE_UNUSED;
    atomic_store_explicit(&cache->next, first_cache(core), memory_order_relaxed);
    atomic_store_explicit(&core->caches, cache, memory_order_release);
    return cache;
}

struct gc_cache *gc_core_cache_create(struct gc_core *core)
{
    struct gc_cache *fresh = NULL;
    if (!core->has_magazines)
        return NULL;
    gc_lock_acquire(&core->caches_lock);
    struct gc_cache *cache = find_unused_locked(core);
    if (cache == NULL) {
        gc_lock_release(&core->caches_lock);
        fresh = gc_host_map(&core->host, sizeof(*fresh));
        if (fresh == NULL)
            return NULL;
        gc_lock_acquire(&core->caches_lock);
        cache = add_cache_locked(core, fresh);
    }
    cache->is_used = true;
    cache->owner = pthread_self();
    gc_lock_release(&core->caches_lock);
    return cache;
}

void gc_core_cache_retire(struct gc_core *core, struct gc_cache *cache)
{
    /* Where a signal handler ends its thread in the middle of an allocation all stays as it is. */
    if (cache == NULL || gc_lock_held_count() > 0 ||
        atomic_load_explicit(&cache->is_busy, memory_order_relaxed))
        return;
    /* Who stops the caches holds the lock all the while, so nobody else is inside. */
    gc_lock_acquire(&core->caches_lock);
    for (unsigned i = 0; i < GC_CACHE_MAGAZINES; i++)
        gc_magazine_empty(&cache->magazines[i]);
    cache->is_used = false;
    gc_lock_release(&core->caches_lock);
}

/* ---- stopping ---- */

/* Every thread that is inside has been seen to be, and every one that enters sees its gate. Where
 * the kernel declines (a filter of system calls that was set since the start), owners make their
 * own fences from now on; those that run have passed the gate without one, once more at most, and
 * what they stored then is waited for. */
static void publish_claims_locked(struct gc_core *core)
{
    struct timespec left = {0, STORES_ARE_SEEN_NS};
    if (!core->has_membarrier || make_barrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED))
        return;
    core->has_membarrier = false;
    while (clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left) == EINTR)
        ;
}

static void await_owner(struct gc_cache *cache)
{
    struct timespec pause = {0, PAUSE_NS};
    /* Acquire: pairs with the release in magazine.c's leave. An owner that was interrupted by a
     * signal handler which came here is this thread: it does not go on before. */
    for (unsigned i = 0; atomic_load_explicit(&cache->is_busy, memory_order_seq_cst); i++) {
        if (pthread_equal(cache->owner, pthread_self()))
            return;
        if (i < SPINS_BEFORE_SLEEP)
            sched_yield();
        else
            nanosleep(&pause, NULL);
    }
}

/* Not the cache in whose middle a signal handler came here. */
static bool may_look(const struct gc_cache *cache)
{
    return !atomic_load_explicit(&cache->is_busy, memory_order_relaxed);
}

void gc_caches_stop(struct gc_core *core)
{
    gc_lock_acquire(&core->caches_lock);
    for (struct gc_cache *cache = first_cache(core); cache != NULL; cache = next_cache(cache))
        atomic_store_explicit(&cache->gate, GC_CACHE_CLAIMED, memory_order_seq_cst);
    publish_claims_locked(core);
    for (struct gc_cache *cache = first_cache(core); cache != NULL; cache = next_cache(cache)) {
        await_owner(cache);
        for (unsigned i = 0; may_look(cache) && i < GC_CACHE_MAGAZINES; i++)
            gc_magazine_merge(&cache->magazines[i]);
    }
}

void gc_caches_resume(struct gc_core *core)
{
    /* Release: pairs with the acquire in magazine.c's enter. */
    for (struct gc_cache *cache = first_cache(core); cache != NULL; cache = next_cache(cache))
        atomic_store_explicit(&cache->gate, open_gate(core), memory_order_release);
    gc_lock_release(&core->caches_lock);
}

void gc_core_settle(struct gc_core *core)
{
    gc_caches_stop(core);
    gc_caches_resume(core);
}

/* ---- flushing ---- */

static bool has_cached_blocks(struct gc_core *core)
{
    for (struct gc_cache *cache = first_cache(core); cache != NULL; cache = next_cache(cache))
        for (unsigned i = 0; i < GC_CACHE_MAGAZINES; i++)
            if (atomic_load_explicit(&cache->magazines[i].cached_bytes, memory_order_relaxed) != 0)
                return true;
    return false;
}

bool gc_magazine_flush_device(struct gc_device *device, const struct gc_share *share)
{
    struct gc_core *core = device->core;
    bool any = false;
    if (!has_cached_blocks(core))
        return false;
    gc_caches_stop(core);
    for (struct gc_cache *cache = first_cache(core); cache != NULL; cache = next_cache(cache)) {
        for (unsigned i = 0; may_look(cache) && i < GC_CACHE_MAGAZINES; i++) {
            struct gc_magazine *magazine = &cache->magazines[i];
            const struct gc_context *context = magazine->context;
            if (context != NULL && context->device == device &&
                (share == NULL || context->share == share))
                any |= gc_magazine_empty(magazine);
        }
    }
    gc_caches_resume(core);
    return any;
}

void gc_magazine_empty_context(struct gc_context *context)
{
    for (struct gc_cache *cache = first_cache(context->core); cache != NULL;
         cache = next_cache(cache))
        for (unsigned i = 0; may_look(cache) && i < GC_CACHE_MAGAZINES; i++)
            if (cache->magazines[i].context == context)
                gc_magazine_empty(&cache->magazines[i]);
}
