/* All thread caches: their creation, and how one thread stops all of them (asymmetric barrier by
 * membarrier(2), as in liburcu). The list of caches only grows; the record of a thread that ended
 * is reused by the next one. Bound: one membarrier per stop. */
#include "core/base/assert.h"
#include "core/base/bits.h"
#include "core/device/registry.h"
#include "core/reclaim/tcache.h"

#include <sched.h>
#include <stddef.h>
#include <time.h>

#define SPINS_BEFORE_SLEEP 64
#define PAUSE_NS 20000

/* ---- create and destroy ---- */

void gc_tcache_init(struct gc_core *core)
{
    gc_lock_init(&core->tcaches_lock, GC_RANK_TCACHES);
    core->has_membarrier = gc_gate_register_barrier();
    core->has_tcaches = core->mode == GC_MODE_CACHE && core->options->reuse == GC_REUSE_FENCE &&
                        core->options->debug == 0 && core->driver.fence_record != NULL;
}

void gc_tcache_fini(struct gc_core *core)
{
    struct gc_tcache *tcache = atomic_load_explicit(&core->tcaches, memory_order_relaxed);
    while (tcache != NULL) {
        struct gc_tcache *next = atomic_load_explicit(&tcache->next, memory_order_relaxed);
        gc_host_mem_unmap(&core->host, tcache, sizeof(*tcache));
        tcache = next;
    }
}

static struct gc_tcache *first_tcache(struct gc_core *core)
{
    /* Acquire: pairs with the release in add_tcache_locked. */
    return atomic_load_explicit(&core->tcaches, memory_order_acquire);
}

static struct gc_tcache *next_tcache(struct gc_tcache *tcache)
{
    return atomic_load_explicit(&tcache->next, memory_order_relaxed);
}

/* A record of a thread that ended. */
static struct gc_tcache *find_unused_locked(struct gc_core *core)
{
    struct gc_tcache *tcache = first_tcache(core);
    while (tcache != NULL && tcache->is_used)
        tcache = next_tcache(tcache);
    return tcache;
}

static uint8_t open_mode(const struct gc_core *core)
{
    return core->has_membarrier ? GC_TCACHE_OPEN : GC_TCACHE_FENCED;
}

static struct gc_tcache *add_tcache_locked(struct gc_core *core, struct gc_tcache *tcache)
{
    tcache->core = core;
    atomic_store_explicit(&tcache->mode, open_mode(core), memory_order_relaxed);
    tcache->is_observed = core->is_observed;
    tcache->until_sample = 1;
    tcache->last = &tcache->contexts[0];
    for (unsigned i = 0; i < GC_TCACHE_CONTEXTS; i++)
        tcache->contexts[i].number = GC_TCACHE_UNUSED;
    atomic_store_explicit(&tcache->next, first_tcache(core), memory_order_relaxed);
    atomic_store_explicit(&core->tcaches, tcache, memory_order_release);
    return tcache;
}

struct gc_tcache *gc_tcache_create(struct gc_core *core)
{
    struct gc_tcache *fresh = NULL;
    if (!core->has_tcaches)
        return NULL;
    gc_lock_acquire(&core->tcaches_lock);
    struct gc_tcache *tcache = find_unused_locked(core);
    if (tcache == NULL) {
        gc_lock_release(&core->tcaches_lock);
        fresh = gc_host_mem_map(&core->host, sizeof(*fresh));
        if (fresh == NULL)
            return NULL;
        gc_lock_acquire(&core->tcaches_lock);
        tcache = add_tcache_locked(core, fresh);
    }
    tcache->is_used = true;
    tcache->owner = pthread_self();
    gc_lock_release(&core->tcaches_lock);
    return tcache;
}

void gc_tcache_destroy(struct gc_core *core, struct gc_tcache *tcache)
{
    /* A signal handler ended its thread in the middle of an allocation: the cache stays as it is.
     */
    if (tcache == NULL || gc_lock_held_count() > 0 ||
        atomic_load_explicit(&tcache->is_busy, memory_order_relaxed))
        return;
    /* A thread that stops the caches holds the lock until it resumes them: none does so now. */
    gc_lock_acquire(&core->tcaches_lock);
    for (unsigned i = 0; i < GC_TCACHE_CONTEXTS; i++)
        gc_tcache_flush(&tcache->contexts[i]);
    tcache->is_used = false;
    gc_lock_release(&core->tcaches_lock);
}

/* ---- stopping ---- */

/* Afterwards is_busy is visible for each thread that uses its cache, and each that enters sees
 * STOPPED. If the kernel refuses the barrier (a seccomp filter set since the start), owners make
 * their own fences from now on; each may enter without a fence once more, and the sleep covers its
 * stores. */
static void publish_stops_locked(struct gc_core *core)
{
    if (!core->has_membarrier || gc_gate_make_barrier())
        return;
    core->has_membarrier = false;
    gc_gate_wait_stores();
}

static void wait_owner(struct gc_tcache *tcache)
{
    struct timespec pause = {0, PAUSE_NS};
    /* Acquire: pairs with the release in tcache.c's leave. If a signal handler of the owner's
     * thread calls this, there is no wait: the owner cannot leave before the handler returns. */
    for (unsigned i = 0; atomic_load_explicit(&tcache->is_busy, memory_order_seq_cst); i++) {
        if (pthread_equal(tcache->owner, pthread_self()))
            return;
        if (i < SPINS_BEFORE_SLEEP)
            sched_yield();
        else
            nanosleep(&pause, NULL);
    }
}

/* False: a signal handler runs this, and interrupted the cache's owner between enter and leave. */
static bool may_scan(const struct gc_tcache *tcache)
{
    return !atomic_load_explicit(&tcache->is_busy, memory_order_relaxed);
}

void gc_tcache_stop_all(struct gc_core *core)
{
    gc_lock_acquire(&core->tcaches_lock);
    for (struct gc_tcache *tcache = first_tcache(core); tcache != NULL;
         tcache = next_tcache(tcache))
        atomic_store_explicit(&tcache->mode, GC_TCACHE_STOPPED, memory_order_seq_cst);
    publish_stops_locked(core);
    for (struct gc_tcache *tcache = first_tcache(core); tcache != NULL;
         tcache = next_tcache(tcache)) {
        wait_owner(tcache);
        if (may_scan(tcache))
            gc_tcache_merge_stats(tcache->last);
    }
}

void gc_tcache_resume_all(struct gc_core *core)
{
    /* Release: pairs with the acquire in tcache.c's enter. */
    for (struct gc_tcache *tcache = first_tcache(core); tcache != NULL;
         tcache = next_tcache(tcache))
        atomic_store_explicit(&tcache->mode, open_mode(core), memory_order_release);
    gc_lock_release(&core->tcaches_lock);
}

void gc_tcache_flush_all_stats(struct gc_core *core)
{
    gc_tcache_stop_all(core);
    gc_tcache_resume_all(core);
}

/* ---- flushing ---- */

static bool has_cached_blocks(struct gc_core *core)
{
    for (struct gc_tcache *tcache = first_tcache(core); tcache != NULL;
         tcache = next_tcache(tcache))
        for (unsigned i = 0; i < GC_TCACHE_CONTEXTS; i++)
            if (atomic_load_explicit(&tcache->contexts[i].cached_bytes, memory_order_relaxed) != 0)
                return true;
    return false;
}

bool gc_tcache_flush_device(struct gc_device *device, const struct gc_quota *quota)
{
    struct gc_core *core = device->core;
    bool any = false;
    if (!has_cached_blocks(core))
        return false;
    gc_tcache_stop_all(core);
    for (struct gc_tcache *tcache = first_tcache(core); tcache != NULL;
         tcache = next_tcache(tcache)) {
        for (unsigned i = 0; may_scan(tcache) && i < GC_TCACHE_CONTEXTS; i++) {
            struct gc_tcache_context *tctx = &tcache->contexts[i];
            const struct gc_context *context = tctx->context;
            if (context != NULL && context->device == device &&
                gc_context_is_of_quota(context, quota))
                any |= gc_tcache_flush(tctx);
        }
    }
    gc_tcache_resume_all(core);
    return any;
}

void gc_tcache_flush_context(struct gc_context *context)
{
    for (struct gc_tcache *tcache = first_tcache(context->core); tcache != NULL;
         tcache = next_tcache(tcache))
        for (unsigned i = 0; may_scan(tcache) && i < GC_TCACHE_CONTEXTS; i++)
            if (tcache->contexts[i].context == context)
                gc_tcache_flush(&tcache->contexts[i]);
}
