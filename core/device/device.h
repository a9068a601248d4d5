/* A device: its budget, figures, slabs of records, and contexts. It lives from gc_setup_add_device
 * until the core is destroyed. */
#ifndef GC_DEVICE_H
#define GC_DEVICE_H

#include "core/base/host_mem.h"
#include "core/base/lock.h"
#include "core/base/slab.h"
#include "core/core.h"
#include "core/ledger/budget.h"
#include "core/observe/idle.h"
#include "core/observe/stats.h"
#include "core/observe/trace.h"

#define GC_DEVICE_MAX 256

struct gc_device {
    struct gc_core *core;
    struct gc_device_info info;
    atomic_uint_fast64_t trim_bytes; /* idle memory above this is released at once */
    uint64_t leave_bytes;            /* GPUCACHE_LEAVE: what idle memory leaves free */
    /* Used on the device, but not by this process's account, when the driver was asked last. */
    atomic_uint_fast64_t others_bytes;
    atomic_uint_fast64_t others_ns;        /* of that reading; 0: none yet */
    atomic_uint_fast64_t refusal_ns;       /* of the last logged refusal; 0: none */
    atomic_uint_fast64_t refusals_skipped; /* since then */
    atomic_uint trim_calls;                /* of gc_release_trim */
    /* The least idle memory of the period before this one, and this one's start: leave.c. */
    atomic_uint_fast64_t idle_before_bytes;
    atomic_uint_fast64_t idle_period_ns;
    /* Comparisons with the process's own figure (core/reclaim/reconcile.c). */
    atomic_flag is_reconciling;        /* guards the next two */
    uint64_t reconcile_rest_bytes;     /* what the account did not explain at the last one */
    uint64_t reconcile_wait_ns;        /* from the last one to the next */
    atomic_uint_fast64_t reconcile_ns; /* when the next one is due */
    atomic_bool is_comparison_due;
    atomic_uint comparison_count;
    atomic_uint_fast64_t again_ns; /* when a request waited for comparisons last */
    atomic_bool is_stale;          /* a context is gone since */
    struct gc_budget budget;
    struct gc_account account; /* in the group; budget.account points here in a group */
    uint32_t ledger_row;       /* GC_LEDGER_NONE: none */
    atomic_bool is_group_over; /* the group's charges are possibly above its limit */
    atomic_bool is_over_limit; /* set by gc_limit_enforce_device: thread caches are off */
    atomic_flag over_limit_logged;
    /* A request timed out, and no memory became free or pending since. */
    atomic_bool is_exhausted;
    struct gc_api_cell *apis; /* core->api_count */
    /* Written by each miss, as all to `direct_records`. */
    _Alignas(64) struct gc_stats stats;
    /* stats.ordered again, with a peak for each mark. */
    struct gc_gauge_cell ordered_peaks[GC_ORDERED_PEAK_COUNT];
    struct gc_idle idle; /* of all pools and elastic pools */
    atomic_uint_fast64_t direct_bytes[GC_DIRECT_KIND_COUNT];
    atomic_uint direct_charges; /* calls, of direct memory */
    atomic_uint direct_records;
    _Alignas(64) struct gc_host_mem host; /* memory of this device's records */
    struct gc_slab blocks;
    struct gc_slab segments;
    struct gc_slab extent_records;
    struct gc_slab mapping_records;
    uint64_t page_bytes;               /* size of a mapped page; 0: pools use driver memory only */
    bool is_mapped;                    /* "vmm" in reports: pools or the debug aids map memory */
    atomic_uint_fast64_t mapped_bytes; /* physical pages of all pools */
    atomic_uint_fast64_t most_needed;
    /* Linked by next_in_device. A dropped context is unlinked but keeps its link, so that a reader
     * on it continues. */
    _Atomic(struct gc_context *) contexts;
    /* Serves stream-ordered requests of all contexts (context.h); NULL: the driver does. Changes
     * under the registry's lock, as does the next. */
    _Atomic(struct gc_context *) ordered;
    atomic_bool is_open_to[GC_DEVICE_MAX]; /* by ordinal, permanently */

    atomic_uint release_count;        /* releases under way */
    atomic_uint release_waiter_count; /* threads that wait until one of the counts is 0 */
    struct gc_lock release_lock;      /* orders their sleep and the wake-up */
    struct gc_condition release_done;
};

/* The head that serves stream-ordered requests; NULL: none. Acquire: pairs with the release in
 * context.c. */
static inline struct gc_context *gc_device_ordered(const struct gc_device *device)
{
    return atomic_load_explicit(&device->ordered, memory_order_acquire);
}

static inline bool gc_device_is_open_to(const struct gc_device *device, int ordinal)
{
    return atomic_load_explicit(&device->is_open_to[ordinal], memory_order_relaxed);
}

/* Brackets a release: from before the segment leaves its pool until its bytes are uncharged, so
 * that a thread that finds neither idle memory nor budget can wait for the release. `quota`:
 * charged for the segment, or NULL. */
void gc_device_release_begin(struct gc_device *device, struct gc_quota *quota);
void gc_device_release_end(struct gc_device *device, struct gc_quota *quota);
/* Waits for about limit_ns until no release is under way (of `quota`, if not NULL). False: none
 * was, or one still is. The caller has no release of its own under way and holds no lock. */
bool gc_device_wait_releases(struct gc_device *device, const struct gc_quota *quota,
                             uint64_t limit_ns);
/* Memory became free or pending: requests may wait for memory again. */
static inline void gc_device_clear_exhausted(struct gc_device *device)
{
    if (atomic_load_explicit(&device->is_exhausted, memory_order_relaxed))
        atomic_store_explicit(&device->is_exhausted, false, memory_order_relaxed);
}
/* Uncharges and wakes requests that wait for budget. */
void gc_device_uncharge(struct gc_device *device, uint64_t bytes);
/* Uncharges an amount measured by difference, which may exceed the charge. */
void gc_device_uncharge_measured(struct gc_device *device, uint64_t bytes);
/* The bytes held above the limit of the process or the group. */
uint64_t gc_device_excess_bytes(const struct gc_device *device);
uint64_t gc_device_idle_bytes(const struct gc_device *device);
/* Sets the process's own limit, and with it the idle memory that may stay. */
void gc_device_set_limit(struct gc_device *device, uint64_t limit_bytes);
/* The idle memory that may stay: GPUCACHE_TRIM's percentage, less if the limit is exceeded or too
 * little of the device is free. */
uint64_t gc_device_idle_limit_bytes(const struct gc_device *device);
/* How much less of the device is free than GPUCACHE_LEAVE, by the last reading and the bytes held
 * now. No driver call. */
uint64_t gc_device_lacking_bytes(const struct gc_device *device);
/* The idle memory that the program has not needed for a while (core/reclaim/leave.c). */
uint64_t gc_device_spare_bytes(const struct gc_device *device);
/* Adds the head that serves stream-ordered requests, if the device maps memory. (context.c) */
void gc_device_add_ordered(struct gc_device *device);
/* NULL: no host memory. The device is not published yet. */
struct gc_device *gc_device_create(struct gc_core *core, const struct gc_device_info *info);
void gc_device_fini(struct gc_device *device);

/* ---- figures of one allocation: see quota.h ---- */

#define GC_API_NONE UINT16_MAX

/* An allocation, live or just freed, for the figures. */
struct gc_entry {
    uint64_t address;
    uint64_t requested_bytes;
    uint64_t bytes; /* rounded up */
    uint64_t stream;
    uint16_t api;
};

/* Figures of the entry point alone: quota.h adds those of the device and the quota. */
void gc_device_count_other(struct gc_device *device, const struct gc_entry *entry);
void gc_device_uncount_other(struct gc_device *device, const struct gc_entry *entry);
void gc_device_recount_other(struct gc_device *device, const struct gc_entry *entry);
/* Writes a trace event and records the call stack, if either is on. Under no lock. A free is
 * observed before its memory can be reused. */
void gc_device_observe(struct gc_device *device, enum gc_trace_op op, const struct gc_entry *entry);
/* Traces pool memory that was mapped (GC_TRACE_MAP) or unmapped (GC_TRACE_UNMAP). */
void gc_device_trace_memory(struct gc_device *device, enum gc_trace_op op,
                            enum gc_trace_memory memory, uint64_t address, uint64_t bytes);

#endif
