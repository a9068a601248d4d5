/* A context: its pool, its captures and its peers. The record stays readable until the core is
 * destroyed, also after the context was dropped.
 *
 * A driver context has one record, its head, and one for each tenant that uses it, with the same
 * handle and a pool of its own. Driver work belongs to the handle, so captures, peers, faults and
 * the teardown apply to all of its records; a fence or a wait of one record covers the work of all.
 *
 * A device that maps memory has one additional head, which belongs to no driver context:
 * stream-ordered memory belongs to the device, not to the context of the request. That head's peers
 * are all contexts of the device and of the devices that the memory was opened to: a context
 * becomes a peer before its work can be submitted. That head is never torn down: a reset leaves its
 * memory alone.
 *
 * Peer: a context whose work may access the memory. Roaming: a context whose work may access the
 * memory of any context. */
#ifndef GC_CONTEXT_H
#define GC_CONTEXT_H

#include "core/base/gate.h"
#include "core/core.h"
#include "core/device/device.h"
#include "core/device/fence.h"
#include "core/device/quota.h"
#include "core/device/submit.h"
#include "core/pool/pool.h"

struct gc_range;
struct gc_tcache_context;

struct gc_context {
    /* What each hit, miss and free reads: it changes rarely, but for `completed`. */
    struct gc_core *core;
    struct gc_device *device;
    uint64_t handle;
    struct gc_context *head;  /* of the handle; the record itself if it is the head */
    struct gc_tenant *tenant; /* whose requests are served; NULL: requests of no tenant */
    struct gc_quota *quota;   /* the tenant's quota of the device; NULL: none */
    atomic_uint capture_count;
    atomic_bool is_dropped; /* set before the pool is emptied */
    /* Its work failed: the pool serves nothing until the driver has allocated again. */
    atomic_bool is_faulted;
    /* The driver cannot record a fence of all work: frees wait, as the driver's own do. */
    atomic_bool is_fenceless;
    /* A plan is followed, so the pool must see every request: see core/follow. */
    atomic_bool follows_plan;
    bool is_device;        /* of a device, not of a driver context: no work of its own */
    atomic_bool has_peers; /* the head's peers have been copied to this record */
    atomic_uint_fast64_t tcache_bytes; /* capacity of a thread cache of the context */
    /* All work counted up to here is completed (core/device/submit.h), that of peers too. Only
     * rises. Release: pairs with the acquire in gc_context_has_completed. */
    atomic_uint_fast64_t completed;
    /* Links all records ever made, for gc_core_destroy. Guarded by the registry's lock. */
    struct gc_context *next_of_all;
    _Atomic(struct gc_context *) next_in_bucket;
    _Atomic(struct gc_context *) next_in_device;
    _Atomic(struct gc_context *) next_record; /* of the handle; the head is the first */
    struct gc_context *next_dropped;          /* list of the thread that drops the handle */
    /* What driver calls, waits and large frees write. */
    _Alignas(64) struct gc_gate gate; /* of a head: closed while the driver destroys the context */
    atomic_uint wait_count;           /* waits in progress for this context's work */
    /* The highest epoch among the blocks that were reused or binned in single-stream mode before
     * their epoch had completed. Only rises. */
    atomic_uint_fast64_t reused_epoch;
    atomic_uint_fast64_t stuck_epoch; /* epoch of a fence whose wait timed out */
    /* The one magazine that may hold a block above GC_SMALL_MAX; NULL: none does. Relaxed:
     * it bounds memory and orders nothing. */
    _Atomic(struct gc_tcache_context *) large_holder;
    struct gc_pool pool;
    /* From a slab; NULL once the pool is dropped and no query is under way. Guarded by the pool's
     * lock, as the fields up to is_crowded. */
    struct gc_fences *fences;
    /* From a slab, for a teardown, which needs no memory then; NULL once the pool is dropped. */
    struct gc_pool_detached *detached_room;
    uint32_t peer_count;
    struct gc_context *peers[GC_PEER_MAX]; /* if there are more, at least one of each device */
    uint32_t opening_count;                /* threads that grant access to a peer's device */
    bool is_crowded;                       /* more peers than listed: waits are for all contexts */
    struct gc_range *
        kept_ranges; /* of a head: ranges reserved until its teardown; guarded by the pool's lock */
    /* In a head, permanently: the context roams. Guarded by the registry's lock. */
    bool is_roaming;
    _Atomic(struct gc_context *) next_roaming; /* gc_core.roaming; read without a lock */
};

/* The contexts whose work a free must wait for: its own, its peers, and roaming ones. */
struct gc_wait_set {
    struct gc_core *everyone; /* the core, if all contexts belong to the set; else NULL */
    uint32_t count;
    struct gc_context *contexts[1 + GC_PEER_MAX];
};

/* Iterates over the contexts of a device; NULL: the end. Dropped contexts may appear, and still
 * link to the next. Acquire: pairs with the release in context.c. */
static inline struct gc_context *gc_context_first(const struct gc_device *device)
{
    return atomic_load_explicit(&device->contexts, memory_order_acquire);
}

static inline struct gc_context *gc_context_next(const struct gc_context *context)
{
    return atomic_load_explicit(&context->next_in_device, memory_order_acquire);
}

/* The next roaming head; gc_context_first_roaming is in registry.h. Acquire: as above. */
static inline struct gc_context *gc_context_next_roaming(const struct gc_context *context)
{
    return atomic_load_explicit(&context->next_roaming, memory_order_acquire);
}

/* Iterates over the records of a handle, from its head. Acquire: as above. */
static inline struct gc_context *gc_context_next_record(const struct gc_context *record)
{
    return atomic_load_explicit(&record->next_record, memory_order_acquire);
}

static inline bool gc_context_is_dropped(const struct gc_context *context)
{
    return atomic_load_explicit(&context->is_dropped, memory_order_acquire);
}

static inline bool gc_context_is_fenceless(const struct gc_context *context)
{
    return atomic_load_explicit(&context->is_fenceless, memory_order_relaxed);
}

/* Whether all work up to `epoch`, the epoch of a freed block, has completed. */
static inline bool gc_context_has_completed(const struct gc_context *context, uint64_t epoch)
{
    return epoch <= atomic_load_explicit(&context->completed, memory_order_acquire);
}

/* Whether a block that is freed with `epoch` may be reused at once: it is idle, or all work goes to
 * a single stream. In the latter case blocks in the bins may not be idle: see gc_submit_quiesce. */
static inline bool gc_context_may_reuse(struct gc_context *context, struct gc_submissions *work,
                                        uint64_t epoch)
{
    if (gc_context_has_completed(context, epoch))
        return true;
    if (atomic_load_explicit(&work->reuse_blocked, memory_order_relaxed) != 0)
        return false;
    /* Sequentially consistent, as in gc_submit_leave_single_stream and gc_submit_begin_load: either
     * those see the epoch and wait for it, or this thread sees their flag. */
    uint_fast64_t reused_epoch = atomic_load_explicit(&context->reused_epoch, memory_order_seq_cst);
    while (reused_epoch < epoch &&
           !atomic_compare_exchange_weak_explicit(&context->reused_epoch, &reused_epoch, epoch,
                                                  memory_order_seq_cst, memory_order_seq_cst))
        ;
    gc_submit_request_fence(work, context);
    return atomic_load_explicit(&work->reuse_blocked, memory_order_seq_cst) == 0;
}

/* ---- for gc_core_create and gc_core_destroy ---- */

void gc_contexts_init(struct gc_core *core);
void gc_contexts_fini(struct gc_core *core);

/* Finds or adds the head of a handle: for gc_setup_add_context. *is_second: this call added it, and
 * another context is live. */
enum gc_status gc_context_add(struct gc_core *core, uint64_t handle, struct gc_device *device,
                              struct gc_context **context, bool *is_second) GC_CHECKED;

/* ---- accounts ---- */

static inline bool gc_context_charge(struct gc_context *context, uint64_t bytes,
                                     struct gc_charge *held,
                                     struct gc_charge_failure *charge_failure)
{
    return gc_quota_charge(context->device, context->quota, bytes, held, charge_failure);
}

static inline void gc_context_commit(struct gc_context *context, const struct gc_charge *held)
{
    gc_quota_commit(context->device, context->quota, held);
}

static inline void gc_context_uncharge(struct gc_context *context, uint64_t bytes)
{
    gc_quota_uncharge(context->device, context->quota, bytes);
}

/* Whether the quota, or with NULL the device, includes the context. */
static inline bool gc_context_is_of_quota(const struct gc_context *context,
                                          const struct gc_quota *quota)
{
    return quota == NULL || context->quota == quota;
}

/* Counts physical pages that are committed (their budget is charged already) or released (their
 * budget is uncharged elsewhere). */
void gc_context_add_pages(struct gc_context *context, uint64_t bytes);
void gc_context_sub_pages(struct gc_context *context, uint64_t bytes);

static inline void gc_context_count_alloc(struct gc_context *context, const struct gc_entry *entry)
{
    gc_quota_count_alloc(context->device, context->quota, entry);
}

static inline void gc_context_count_free(struct gc_context *context, const struct gc_entry *entry)
{
    gc_quota_count_free(context->device, context->quota, entry);
}

static inline void gc_context_uncount_free(struct gc_context *context, const struct gc_entry *entry)
{
    gc_quota_uncount_free(context->device, context->quota, entry);
}

static inline void gc_context_count_destroyed(struct gc_context *context,
                                              const struct gc_entry *entry)
{
    gc_quota_count_destroyed(context->device, context->quota, entry);
}

/* ---- thread caches ---- */

#define GC_TCACHE_UNUSED INT16_MAX /* the number of no context */

/* Sets the capacity of the context's thread caches: a fraction of the bytes that its device or
 * quota may hold. A block above GC_SMALL_MAX does not count: one thread cache of the context may
 * hold one. */
void gc_context_size_tcache(struct gc_context *context);
/* Resizes the thread caches of all contexts of a device whose limit has changed or is exceeded. */
void gc_device_size_tcaches(struct gc_device *device);

/* ---- work and waits ---- */

/* All work counted up to `epoch` is completed, that of peers too. */
void gc_context_raise_completed(struct gc_context *context, uint64_t epoch);
/* Whether the driver context is destroyed. A tenant's record may be dropped before. */
static inline bool gc_context_is_gone(const struct gc_context *context)
{
    return gc_context_is_dropped(context->head);
}
/* Applies to all records of the handle. */
void gc_context_set_faulted(struct gc_context *context, bool is_faulted);

/* The driver's code of `call`, a call of struct gc_driver on an object of the context; or
 * gc_context_closed_code, without a call. No teardown of the context starts during the call: core
 * may use a context that the program is about to destroy in another thread. Calls that work without
 * a context need no gate: unmap, release of pages, free of addresses. */
#define GC_CALL_IF_OPEN(context, call)                                                             \
    (gc_gate_enter(&(context)->head->gate) ? gc_context_leave((context), (call))                   \
                                           : gc_context_closed_code(context))
/* The code at a closed gate: context_is_gone if the context is destroyed; while its teardown is
 * undecided, a code that means neither completed nor gone. */
int gc_context_closed_code(const struct gc_context *context);
static inline int gc_context_leave(const struct gc_context *context, int code)
{
    gc_gate_leave(&context->head->gate);
    return code;
}

/* ---- claims: for core/alloc/teardown.c; the caller drops the claimed records ---- */

/* False: the record is dropped already. */
bool gc_context_claim_record(struct gc_context *record);
/* Claims the head and all other records of the handle that are not dropped yet, linked by
 * next_dropped. The handle is not found from then on. */
struct gc_context *gc_context_claim_handle(struct gc_context *head);

/* ---- records of tenants: for alloc/setup.c and tenant*.c ---- */

/* NULL: the tenant has none. Takes no lock. */
struct gc_context *gc_context_find_record(const struct gc_context *head,
                                          const struct gc_tenant *tenant);
/* The tenant's record, added if there is none. GC_INVALID_ARGUMENT: the context is dropped, or the
 * tenant is being removed. */
enum gc_status gc_context_add_record(struct gc_context *head, struct gc_tenant *tenant,
                                     struct gc_quota *quota, struct gc_context **record) GC_CHECKED;
/* Lists a peer of one record; `peer` is a head. Grants no access to memory that is mapped already.
 */
void gc_peers_list(struct gc_context *record, struct gc_context *peer);
/* Opens the stream-ordered memory of `device` to device `ordinal`, whose contexts become peers of
 * the head that serves such memory. Returns that head; NULL: there is none. (context.c) */
struct gc_context *gc_device_admit(struct gc_device *device, int ordinal);
/* Lists the peer and starts to grant its device access. False: access is granted already. If
 * another thread is granting access, this call waits until it is granted: the caller's work may
 * follow at once. */
bool gc_peers_begin_opening(struct gc_context *context, struct gc_context *peer);
void gc_peers_end_opening(struct gc_context *context);
/* A driver context that uses the memory: the context itself or, for a device's head, one of the
 * device's contexts; NULL: there is none. */
struct gc_context *gc_context_worker(struct gc_context *context);
/* Unlinks a dropped record from its handle, once (core/alloc/teardown.h). */
void gc_context_unlink_record(struct gc_context *record);

/* ---- waits ---- */

/* Fills the set under the pool's lock and announces the wait: a capture that begins meanwhile waits
 * for the wait's end. False, with an empty set, if one of the contexts captures: no wait is allowed
 * then. */
bool gc_peers_wait_begin_locked(struct gc_context *context, struct gc_wait_set *set);
/* Ends the wait and empties the set; needs no lock. */
void gc_peers_wait_end(struct gc_wait_set *set);

#endif
