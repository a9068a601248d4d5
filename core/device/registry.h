/* One core: what its files share. */
#ifndef GC_INSTANCE_H
#define GC_INSTANCE_H

#include "core/base/histogram.h"
#include "core/config/options.h"
#include "core/core.h"
#include "core/debug/debug.h"
#include "core/device/context.h"
#include "core/device/device.h"
#include "core/device/submit.h"
#include "core/device/tracker.h"
#include "core/observe/trace.h"
#include "core/pool/pagemap.h"

#define GC_CONTEXT_BUCKETS 256

struct gc_elastic_table;
struct gc_follow;
struct gc_member;

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
    struct gc_member *member;       /* in the ledger; NULL: not joined */
    struct gc_debugger *debug;      /* GPUCACHE_DEBUG; NULL: none */
    const struct gc_run_plan *plan; /* that was given; NULL: none */
    struct gc_follow *follow;       /* it is followed; NULL: it is not */
    struct gc_host
        host; /* what belongs to no device: this record, the pagemap, the tracker, contexts */
    struct gc_work work;
    atomic_bool is_moving; /* a thread pauses or resumes */
    atomic_bool is_paused; /* the process, not only a tenant */
    struct gc_pagemap pagemap;
    struct gc_tracker tracker;
    atomic_uint_fast64_t next_block_id;
    gc_counter *process_driver_calls; /* api_count */
    atomic_bool was_used;
    atomic_bool has_several_contexts;
    atomic_bool has_captured;             /* there may be graphs that use memory */
    atomic_uint_fast64_t given_up_ranges; /* reserved on, so that these fail: see range.c */
    struct gc_hist alloc_ns;
    struct gc_hist free_ns;

    bool has_magazines;         /* threads may keep freed blocks for themselves */
    bool has_membarrier;        /* the kernel makes their flags visible; guarded by caches_lock */
    struct gc_lock caches_lock; /* guards who uses a cache; held while all are stopped */
    _Atomic(struct gc_cache *) caches;
    uint16_t context_count; /* that have a number; guarded by the registry's lock */

    /* Stores. Who was seen by another thread may be looked at for ever, so of the first three only
     * records that nobody saw are used again. */
    struct gc_slab context_records;
    struct gc_slab tenant_records;
    struct gc_slab share_records;
    struct gc_slab fence_rings; /* of contexts that are not dropped */
    struct gc_slab range_records;

    struct gc_lock registry; /* guards changes of the six below; reading takes no lock */
    _Atomic(struct gc_device *) devices[GC_DEVICE_MAX];
    _Atomic(struct gc_context *) buckets[GC_CONTEXT_BUCKETS];
    struct gc_context *all_contexts;
    _Atomic(struct gc_context *) roaming; /* heads whose work may reach any context's memory */
    atomic_uint hidden_count;             /* pools of contexts that are about to end */
    atomic_uint shown_count;              /* how often such a one stayed */
    uint32_t live_contexts;
    _Atomic(struct gc_tenant *) tenants; /* all there ever were, the oldest first */
    atomic_uint capture_count;           /* of all contexts together */
    atomic_uint everyone_count;          /* waits under way for the work of all contexts */

    struct gc_lock elastic_lock; /* guards the table and its references: elastic_table.c */
    pthread_cond_t elastic_changed;
    struct gc_elastic_table *elastics; /* made with the first pool */
};

static inline uint64_t gc_core_now_ns(const struct gc_core *core)
{
    return core->driver.clock_ns(core->driver.self);
}

/* Changes whenever a context that was about to end stays: what was not found may be there again. */
static inline unsigned gc_core_shown_count(const struct gc_core *core)
{
    /* Acquire: pairs with the release in context_end.c, where pools are shown again. */
    return atomic_load_explicit(&core->shown_count, memory_order_acquire);
}

/* The block that starts at `address`, with its pool's lock held; or none, with no lock held.
 * `interior`: any address inside it will do. GC_NOT_OURS; GC_INVALID_POINTER: inside a segment, but
 * no block starts there. */
enum gc_status gc_core_lock_block(struct gc_core *core, uint64_t address, bool interior,
                                  struct gc_block **block) GC_CHECKED;
/* Settles the accounts of a direct record that went with its context. */
void gc_direct_vanished(const struct gc_direct *direct);

/* ---- reuse.c: how freed memory becomes free memory ---- */

/* Frees a live block of the context's pool, whose lock is held and is released here. `stream`, of
 * `worker` (NULL: of the context): in its order, without a wait; GC_STREAM_OTHER: of one that is
 * not named; GC_STREAM_NONE: a plain free. */
enum gc_status gc_reuse_free_unlock(struct gc_context *context, struct gc_block *block,
                                    struct gc_context *worker, uint64_t stream,
                                    int *driver_code) GC_CHECKED;
/* An allocation of `wanted_bytes` misses: makes pending memory free as far as that costs no wait;
 * beyond the share of the device that may be pending it waits rather than let the pool grow. True
 * if memory became free.
 */
bool gc_reuse_resolve(struct gc_context *context, uint64_t wanted_bytes);
/* What is pending can be asked about from now on, also beside captures. */
void gc_reuse_mark(struct gc_context *context);
/* What is pending and is done by now becomes free; waits for nothing. */
void gc_reuse_look(struct gc_context *context);
/* Waits for all that is pending, if there is any and no capture forbids it, for about limit_ns.
 * True if memory became free. */
bool gc_reuse_drain(struct gc_context *context, uint64_t limit_ns);
/* The same for the oldest pending memory only, where fences can tell it from the rest, and for
 * about limit_ns. *is_under_way: set if there is more to wait for. */
bool gc_reuse_wait_oldest(struct gc_context *context, uint64_t limit_ns, bool *is_under_way);
/* The context is about to end, and its memory with it: what was freed is waited for as the plain
 * driver's free would have, where work of other contexts may use it. */
void gc_reuse_await_others(struct gc_context *context);
/* `retired` may have risen: what is pending and idle now goes into the bins. True if anything did.
 */
bool gc_reuse_collect(struct gc_context *context);
/* The program itself waited for the work of `waited`: what was freed before `epoch` is idle, unless
 * others' work may use it. */
void gc_reuse_retire(struct gc_context *context, const struct gc_context *waited, uint64_t epoch);
/* How long a request that is short waits while nothing becomes free. Work may wait for the very
 * thread that asks, which a plain driver would have refused. */
#define GC_SHORT_NS UINT64_C(30000000000)
/* And how long one fence is waited for before something else is looked at. */
#define GC_TURN_NS UINT64_C(10000000)

/* Makes sure that what is in the bins of the context is truly idle, not only in the order of the
 * one stream: waits if it must, for work before the frees (work.h). False if a capture forbids that
 * or the driver failed. For who gives memory back or unmaps it: first take it out of the bins,
 * release all locks, then ask this, and put it back on false; what is binned after this was asked
 * is not covered. Only while there is one stream does it ever wait: otherwise it is one load. */
bool gc_reuse_quiesce(struct gc_context *context, int *driver_code);

/* Blocks of the context went from a magazine to its pool: what their number calls for is done. May
 * call the driver. */
void gc_reuse_note_handed(struct gc_context *context);

/* ---- shortage.c: what is done before a request fails ---- */

/* `share`, here and below: only what is its own is asked and waited for; NULL: all of the device.
 */

/* Gives idle segments back, the longest idle of each pool first, until at most `keep_bytes` are
 * idle or `enough_bytes` went back. Returns bytes given back. */
uint64_t gc_shortage_give_back(struct gc_device *device, struct gc_share *share,
                               uint64_t keep_bytes, uint64_t enough_bytes);

/* Gives back what is wanted of what is idle, or is so by now; waits for nothing. True if anything
 * went back. */
bool gc_shortage_give_idle(struct gc_device *device, struct gc_share *share, uint64_t wanted_bytes);

/* Gives everything idle of one record back. */
void gc_shortage_empty_pool(struct gc_context *context);

/* What is freed becomes free: the threads' magazines are emptied, and what is pending is waited for
 * where no capture forbids it. True if anything became free. */
bool gc_shortage_resolve(struct gc_device *device, struct gc_share *share, uint64_t limit_ns);

/* Gives back what a limit that was lowered, of the share or of the device, does not allow; after a
 * free. Cheap where there is nothing. */
void gc_shortage_trim(struct gc_context *context);
/* gc_device_settle, and gc_share_settle where the context has a share. */
bool gc_shortage_settle(struct gc_context *context);

/* State of one request that is short. */
struct gc_shortage {
    struct gc_device *device;
    struct gc_share *share; /* that pays first; may be NULL, as the next */
    struct gc_pool *pool;   /* where the request would be served */
    unsigned attempts;
    uint64_t end_ns; /* until when is waited, in all attempts together */
    uint64_t device_generation;
    uint64_t share_generation;
    uint64_t pool_generation;
    struct gc_decline seen; /* the request's own rollbacks: no room that it did not have before */
};
void gc_shortage_begin(struct gc_shortage *shortage, struct gc_device *device,
                       struct gc_share *share, struct gc_pool *pool);
/* After an attempt found no room for `wanted_bytes`: true if something changed, so that another
 * attempt is worth while. `decline` is how the last one ended: where the share alone is short only
 * what is its own is given back and waited for. False for good once nothing idle is left and
 * nothing is under way. */
bool gc_shortage_relieve(struct gc_shortage *shortage, uint64_t wanted_bytes,
                         const struct gc_decline *decline);

#endif
