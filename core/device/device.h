/* A device: its budget, figures, record stores and contexts. Lives from gc_core_add_device until
 * the core is destroyed. */
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
    atomic_uint_fast64_t trim_bytes; /* more idle memory than this is given back at once */
    struct gc_budget budget;
    struct gc_account account; /* in the group: budget.account points here, if there is one */
    uint32_t ledger_row;       /* GC_LEDGER_NONE: none */
    atomic_bool is_group_over; /* the group may hold more than its limit */
    atomic_bool is_over_limit; /* as gc_limit_enforce_device found it: threads keep nothing then */
    atomic_flag over_limit_logged;
    atomic_bool is_exhausted; /* a request waited in vain; nothing became free or pending since */
    struct gc_stats stats;
    struct gc_gauge_cell ordered_peaks[GC_ORDERED_PEAK_COUNT]; /* as stats.ordered but for peaks */
    struct gc_idle idle;                                       /* of all pools and elastic pools */
    atomic_uint_fast64_t direct_bytes[GC_DIRECT_KIND_COUNT];
    struct gc_api_cell *apis; /* core->api_count */
    struct gc_host_mem host;  /* what this device's records take */
    struct gc_slab blocks;
    struct gc_slab segments;
    struct gc_slab page_records;
    uint64_t page_bytes; /* of mapped memory; 0: pools have the driver's memory only */
    bool is_mapped;      /* what the report calls vmm: by pools, or by the debug aids */
    atomic_uint_fast64_t mapped_bytes; /* physical pages of all pools */
    atomic_uint_fast64_t most_needed;
    /* Linked by next_in_device. Dropped ones are unlinked but keep their link, so that a reader
     * that stands on one goes on. */
    _Atomic(struct gc_context *) contexts;
    /* Serves the stream-ordered requests of all of them (context.h); NULL: the driver does. Changes
     * under the registry's lock, as the next. */
    _Atomic(struct gc_context *) ordered;
    atomic_bool is_open_to[GC_DEVICE_MAX]; /* by ordinal: for good */

    struct gc_lock release_lock; /* guards release_count */
    pthread_cond_t release_done;
    uint32_t release_count; /* segments on their way back to the driver at this moment */
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

/* Brackets a give-back: from before its segment leaves the pool until its bytes are released, so
 * that a thread that finds neither idle memory nor room can wait for what is under way. `share`:
 * whose it is, or NULL. */
void gc_device_release_begin(struct gc_device *device, struct gc_quota *quota);
void gc_device_release_end(struct gc_device *device, struct gc_quota *quota);
/* Waits until no give-back is under way, of a share if one is named, for about limit_ns; false if
 * none was, or one still is. The caller has none of its own, and no lock. */
bool gc_device_wait_releases(struct gc_device *device, const struct gc_quota *quota,
                             uint64_t limit_ns);
/* Memory became free or pending: requests that are short wait again. */
static inline void gc_device_clear_exhausted(struct gc_device *device)
{
    if (atomic_load_explicit(&device->is_exhausted, memory_order_relaxed))
        atomic_store_explicit(&device->is_exhausted, false, memory_order_relaxed);
}
/* Releases budget and makes those look again who found none. */
void gc_device_uncharge(struct gc_device *device, uint64_t bytes);
/* The same for an amount that was measured by difference and may be more than is held. */
void gc_device_uncharge_measured(struct gc_device *device, uint64_t bytes);
/* By how much more is held than the limit allows, the process's own or the group's. */
uint64_t gc_device_excess_bytes(const struct gc_device *device);
uint64_t gc_device_idle_bytes(const struct gc_device *device);
/* The process's own limit, and how much may stay idle under it. */
void gc_device_set_limit(struct gc_device *device, uint64_t limit_bytes);
/* How much idle memory may stay: GPUCACHE_TRIM's share, less where the limit was set below what is
 * held. */
uint64_t gc_device_idle_limit_bytes(const struct gc_device *device);
/* Adds the head that serves stream-ordered requests, where memory is mapped. (context.c) */
void gc_device_add_ordered(struct gc_device *device);
/* NULL: there is no host memory. Nobody has seen it. */
struct gc_device *gc_device_create(struct gc_core *core, const struct gc_device_info *info);
void gc_device_fini(struct gc_device *device);

/* ---- accounts of one allocation: share.h ---- */

#define GC_API_NONE UINT16_MAX

/* A live or lately live allocation, as the accounts see it. */
struct gc_entry {
    uint64_t address;
    uint64_t requested_bytes;
    uint64_t bytes; /* after rounding */
    uint64_t stream;
    uint16_t api;
};

/* Figures of its entry point, which are all there is of memory that is no allocation. */
void gc_device_count_other(struct gc_device *device, const struct gc_entry *entry);
void gc_device_uncount_other(struct gc_device *device, const struct gc_entry *entry);
void gc_device_recount_other(struct gc_device *device, const struct gc_entry *entry);
/* Writes an event if there is a trace, notes where it came from if stacks are taken. Under no lock.
 * A free is observed before its memory can be handed out again. */
void gc_device_observe(struct gc_device *device, enum gc_trace_op op, const struct gc_entry *entry);
/* The same for memory of a pool that has come (GC_TRACE_MAP) or gone (GC_TRACE_UNMAP). */
void gc_device_trace_memory(struct gc_device *device, enum gc_trace_op op,
                            enum gc_trace_memory memory, uint64_t address, uint64_t bytes);

#endif
