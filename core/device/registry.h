/* The core: the state that the files of core share. */
#ifndef GC_REGISTRY_H
#define GC_REGISTRY_H

#include "core/base/histogram.h"
#include "core/config/options.h"
#include "core/core.h"
#include "core/device/context.h"
#include "core/device/device.h"
#include "core/device/submit.h"
#include "core/device/tracker.h"
#include "core/ledger/host_budget.h"
#include "core/observe/spills.h"
#include "core/observe/trace.h"
#include "core/pool/opens.h"
#include "core/pool/pagemap.h"

#define GC_CONTEXT_BUCKETS 256

struct gc_elastic_table;
struct gc_follow;
struct gc_host_store;
struct gc_kept;
struct gc_share;
struct gc_turns;

/* Releases idle memory of the device, or of one of its quotas, to the driver until at most
 * `keep_bytes` are idle or `enough_bytes` were released. Returns the bytes released. No lock is
 * held. */
typedef uint64_t gc_shrink_function(struct gc_device *device, const struct gc_quota *quota,
                                    uint64_t keep_bytes, uint64_t enough_bytes);
#define GC_SHRINKER_MAX 4

struct gc_core {
    struct gc_driver driver;
    const struct gc_options *options;
    struct gc_log *log;
    struct gc_trace *trace;
    struct gc_stack_table *stacks; /* GPUCACHE_STACKS; NULL: off */
    bool is_observed;              /* trace or stacks is on */
    enum gc_mode mode;
    const char *const *api_names;
    uint16_t api_count;
    struct gc_ledger *ledger; /* of the group's client; NULL: not joined */
    /* A bit for each tenant row of the process's slot that is used. */
    atomic_uint ledger_rows;
    /* For a thread that waits for memory that is out, where no helper runs: gc_ending_serve. */
    void (*serve)(struct gc_core *core);
    /* No helper thread: the program's own threads serve requests, and those that wait make the
     * helper's steps. */
    atomic_bool serves_in_threads;
    atomic_bool is_shut_down;   /* the driver: it refuses every call */
    _Atomic uint64_t ending_ns; /* when the process's end began; 0: not yet */
    struct gc_debugger *debug;  /* GPUCACHE_DEBUG; NULL: none */
    const struct gc_plan *plan; /* NULL: none was given */
    struct gc_follow *follow;   /* NULL: no plan is followed */
    /* Memory of records without a device: the core, the pagemap, the tracker, contexts. */
    struct gc_host_mem host;
    struct gc_submissions work;
    atomic_bool is_moving; /* a thread pauses, resumes, or moves memory of a turn */
    atomic_bool is_paused; /* the whole process, not one tenant */
    atomic_bool is_away;   /* its turn is over, some memory is out: core/pause/away.h */
    /* A thread needs memory that is away, the process's or the tenant's; NULL: the process takes no
     * turns. Calls no driver and takes no lock: core/turns. Set while no other thread runs. */
    void (*demand)(struct gc_core *core, struct gc_tenant *tenant);
    struct gc_turns *turns;    /* core/turns; NULL: none */
    atomic_bool is_registered; /* see gc_export_expect_registration */
    struct gc_pagemap pagemap;
    struct gc_tracker tracker;
    struct gc_opens opens;            /* blocks that other processes have open */
    struct gc_share *share;           /* core/share/ */
    struct gc_host_store *host_store; /* core/backing/host.h */
    _Atomic(struct gc_kept *) kept;   /* core/backing/kept.h; NULL: nothing was declared */
    gc_counter *process_driver_calls; /* api_count */
    atomic_bool was_used;
    atomic_bool has_captured; /* graphs may use memory */
    /* Address ranges kept reserved so that graphs fail instead of using other memory: see
     * core/backing/range.c. */
    atomic_uint_fast64_t kept_range_count;
    _Alignas(64) atomic_uint_fast64_t next_block_id;
    struct gc_histogram alloc_ns;
    struct gc_histogram free_ns;

    _Alignas(64) bool has_tcaches; /* thread caches are on */
    /* Whether membarrier makes the caches' flags visible. Guarded by tcaches_lock. */
    bool has_membarrier;
    struct gc_lock tcaches_lock; /* guards the ownership of caches; held while all are stopped */
    _Atomic(struct gc_tcache *) tcaches;
    uint16_t context_count; /* contexts with a number; guarded by the registry's lock */

    /* Slabs. Other threads may read a published record at any later time, so records of the first
     * three slabs are reused only if they were never published. */
    struct gc_slab context_records;
    struct gc_slab tenant_records;
    struct gc_slab quota_records;
    struct gc_slab fence_rings;    /* of contexts that are not dropped */
    struct gc_slab detached_rooms; /* of those, too */
    struct gc_slab range_records;
    struct gc_slab copy_records; /* core/backing/copy.h */

    struct gc_lock registry; /* guards changes of the fields below; readers take no lock */
    _Atomic(struct gc_device *) devices[GC_DEVICE_MAX];
    _Atomic(struct gc_context *) buckets[GC_CONTEXT_BUCKETS];
    struct gc_context *all_contexts;
    _Atomic(struct gc_context *) roaming; /* heads whose work may access any context's memory */
    atomic_uint detached_count;           /* pools whose context has an undecided teardown */
    atomic_uint reattach_count;           /* how often such a teardown was cancelled */
    uint32_t live_contexts;
    _Atomic(struct gc_tenant *) tenants; /* all ever added, the oldest first */
    atomic_uint capture_count;           /* captures of all contexts */
    atomic_uint everyone_count;          /* waits under way for the work of all contexts */

    /* Registered at creation: see core/reclaim/reclaim.h. */
    gc_shrink_function *shrinkers[GC_SHRINKER_MAX];
    unsigned shrinker_count;

    /* Guards the table and its references: core/direct/elastic_table.c. */
    struct gc_lock elastic_lock;
    struct gc_condition elastic_changed;
    struct gc_elastic_table *elastics; /* created with the first pool */

    struct gc_host_budget host_budget; /* of swapped and spilled memory */
    struct gc_spills spills;           /* blocks in host memory */
};

static inline uint64_t gc_core_now_ns(const struct gc_core *core)
{
    return core->driver.clock_ns(core->driver.self);
}

static inline bool gc_core_serves_in_threads(const struct gc_core *core)
{
    return atomic_load_explicit(&core->serves_in_threads, memory_order_relaxed);
}

static inline bool gc_core_is_shut_down(const struct gc_core *core)
{
    return atomic_load_explicit(&core->is_shut_down, memory_order_relaxed);
}

/* Blocks in host memory, charged before: the device's figure. */
static inline void gc_core_add_spilled(struct gc_device *device, uint64_t bytes)
{
    gc_stats_add_gauge(&device->stats.spilled, bytes);
}

static inline void gc_core_sub_spilled(struct gc_device *device, uint64_t bytes)
{
    gc_stats_sub_gauge(&device->stats.spilled, bytes);
    gc_host_budget_uncharge(&device->core->host_budget, bytes);
}

/* Rises when a teardown is cancelled: an address that was not found may be found again. */
static inline unsigned gc_core_reattach_count(const struct gc_core *core)
{
    /* Acquire: pairs with the release in core/alloc/teardown.c, where pools are reattached. */
    return atomic_load_explicit(&core->reattach_count, memory_order_acquire);
}

/* The first head whose work may reach any context's memory; gc_context_next_roaming follows.
 * Acquire: pairs with the release in context.c. */
static inline struct gc_context *gc_context_first_roaming(const struct gc_core *core)
{
    return atomic_load_explicit(&core->roaming, memory_order_acquire);
}

/* ---- submit.c ---- */

/* Makes sure that blocks removed from the bins of the context are idle, not only ordered behind the
 * single stream's work: waits for work before their frees if it must. False: a capture forbids
 * that, or the driver failed. For a thread that releases or unmaps memory: remove the blocks from
 * the bins, release all locks, call this, and put them back on false. Blocks binned after the call
 * are not covered. It waits in single-stream mode only; otherwise it is one load. */
bool gc_submit_quiesce(struct gc_context *context, int *driver_code);

#endif
