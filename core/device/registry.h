/* One core: what its files share. */
#ifndef GC_REGISTRY_H
#define GC_REGISTRY_H

#include "core/base/histogram.h"
#include "core/config/options.h"
#include "core/core.h"
#include "core/device/context.h"
#include "core/device/device.h"
#include "core/device/submit.h"
#include "core/device/tracker.h"
#include "core/observe/trace.h"
#include "core/pool/pagemap.h"

#define GC_CONTEXT_BUCKETS 256

struct gc_elastic_table;
struct gc_follow;
struct gc_group_client;

/* Gives idle memory of the device, or of one share of it, back to the driver until at most
 * `keep_bytes` are idle or `enough_bytes` went. Returns the bytes given back. No lock may be held.
 */
typedef uint64_t gc_shrink_function(struct gc_device *device, const struct gc_quota *quota,
                                    uint64_t keep_bytes, uint64_t enough_bytes);
#define GC_SHRINKER_MAX 4

struct gc_core {
    struct gc_driver driver;
    const struct gc_options *options;
    struct gc_log *log;
    struct gc_trace *trace;
    struct gc_stack_table *stacks; /* GPUCACHE_STACKS; NULL: off */
    bool is_observed;              /* there is one of the two */
    enum gc_mode mode;
    const char *const *api_names;
    uint16_t api_count;
    struct gc_group_client *client; /* in the ledger; NULL: not joined */
    struct gc_ledger *ledger;       /* the member's; NULL: not joined */
    atomic_uint ledger_rows;        /* of tenants in the process's slot that are taken */
    /* Answers requests of other processes, if there are any: gc_group_serve. */
    bool (*serve)(struct gc_core *core);
    atomic_bool serves_in_threads; /* nobody but the program's own threads hears requests */
    struct gc_debugger *debug;     /* GPUCACHE_DEBUG; NULL: none */
    const struct gc_plan *plan;    /* that was given; NULL: none */
    struct gc_follow *follow;      /* it is followed; NULL: it is not */
    struct gc_host_mem
        host; /* what belongs to no device: this record, the pagemap, the tracker, contexts */
    struct gc_submissions work;
    atomic_bool is_moving; /* a thread pauses or resumes */
    atomic_bool is_paused; /* the process, not only a tenant */
    struct gc_pagemap pagemap;
    struct gc_tracker tracker;
    atomic_uint_fast64_t next_block_id;
    gc_counter *process_driver_calls; /* api_count */
    atomic_bool was_used;
    atomic_bool has_several_contexts;
    atomic_bool has_captured;              /* there may be graphs that use memory */
    atomic_uint_fast64_t kept_range_count; /* reserved on, so that these fail: see range.c */
    struct gc_histogram alloc_ns;
    struct gc_histogram free_ns;

    bool has_tcaches;            /* threads may keep freed blocks for themselves */
    bool has_membarrier;         /* the kernel makes their flags visible; guarded by tcaches_lock */
    struct gc_lock tcaches_lock; /* guards who uses a cache; held while all are stopped */
    _Atomic(struct gc_tcache *) tcaches;
    uint16_t context_count; /* that have a number; guarded by the registry's lock */

    /* Stores. Who was seen by another thread may be looked at for ever, so of the first three only
     * records that nobody saw are used again. */
    struct gc_slab context_records;
    struct gc_slab tenant_records;
    struct gc_slab quota_records;
    struct gc_slab fence_rings; /* of contexts that are not dropped */
    struct gc_slab range_records;

    struct gc_lock registry; /* guards changes of the six below; reading takes no lock */
    _Atomic(struct gc_device *) devices[GC_DEVICE_MAX];
    _Atomic(struct gc_context *) buckets[GC_CONTEXT_BUCKETS];
    struct gc_context *all_contexts;
    _Atomic(struct gc_context *) roaming; /* heads whose work may reach any context's memory */
    atomic_uint detached_count;           /* pools of contexts that are about to end */
    atomic_uint reattach_count;           /* how often such a one stayed */
    uint32_t live_contexts;
    _Atomic(struct gc_tenant *) tenants; /* all there ever were, the oldest first */
    atomic_uint capture_count;           /* of all contexts together */
    atomic_uint everyone_count;          /* waits under way for the work of all contexts */

    gc_shrink_function *shrinkers[GC_SHRINKER_MAX]; /* registered at creation: see reclaim.h */
    unsigned shrinker_count;

    struct gc_lock elastic_lock; /* guards the table and its references: elastic_table.c */
    pthread_cond_t elastic_changed;
    struct gc_elastic_table *elastics; /* made with the first pool */
};

static inline uint64_t gc_core_now_ns(const struct gc_core *core)
{
    return core->driver.clock_ns(core->driver.self);
}

static inline bool gc_core_serves_in_threads(const struct gc_core *core)
{
    return atomic_load_explicit(&core->serves_in_threads, memory_order_relaxed);
}

/* Changes whenever a context that was about to end stays: what was not found may be there again. */
static inline unsigned gc_core_reattach_count(const struct gc_core *core)
{
    /* Acquire: pairs with the release in teardown.c, where pools are shown again. */
    return atomic_load_explicit(&core->reattach_count, memory_order_acquire);
}

/* The first head whose work may reach any context's memory; gc_context_next_roaming follows.
 * Acquire: pairs with the release in context.c. */
static inline struct gc_context *gc_context_first_roaming(const struct gc_core *core)
{
    return atomic_load_explicit(&core->roaming, memory_order_acquire);
}

/* ---- submit.c ---- */

/* Makes sure that what is in the bins of the context is truly idle, not only in the order of the
 * one stream: waits if it must, for work before the frees (work.h). False if a capture forbids that
 * or the driver failed. For who gives memory back or unmaps it: first take it out of the bins,
 * release all locks, then ask this, and put it back on false; what is binned after this was asked
 * is not covered. Only while there is one stream does it ever wait: otherwise it is one load. */
bool gc_submit_quiesce(struct gc_context *context, int *driver_code);

#endif
