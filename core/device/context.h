/* A context: its pool, its captures, who else may work on its memory. The record stays readable
 * until the core is destroyed, also after the context was dropped.
 *
 * A driver context has one record, its head, and one more for each tenant that uses it: pools of
 * their own over the same handle. The driver's work is the handle's, so captures, peers, failures
 * and the end reach all of its records; a fence or a wait of one covers the work of all.
 *
 * A device that maps memory has a head of its own besides, of no driver context: stream-ordered
 * memory belongs to the device, not to the context that asked for it. Every context of the device
 * is its peer, and so is every context of a device that it was opened to: from before work of the
 * context can be submitted. It never ends: a reset leaves such memory as it is. */
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

struct gc_context {
    struct gc_core *core;
    struct gc_device *device;
    uint64_t handle;
    struct gc_context
        *next_of_all; /* every record ever, for the end; guarded by the registry's lock */
    _Atomic(struct gc_context *) next_in_bucket;
    _Atomic(struct gc_context *) next_in_device;
    atomic_bool is_dropped; /* set before the pool is emptied */
    struct gc_gate gate;    /* of a head: closed while the driver is asked to destroy it */
    atomic_uint capture_count;
    atomic_bool
        is_faulted; /* its last wait failed: the driver is asked before memory is handed out */
    atomic_uint wait_count; /* waits for this context's work that are under way */
    /* All work counted up to here is done (core/device/submit.h), that of peers too. Only rises.
     * Release: pairs with the acquire in gc_context_has_completed. */
    atomic_uint_fast64_t completed;
    /* The highest stamp that was handed out, or put into bins, in the order of the one stream and
     * before it was retired. Only rises. */
    atomic_uint_fast64_t reused_epoch;
    atomic_bool is_fenceless; /* the driver cannot mark all work: frees wait, as plain ones do */
    atomic_uint_fast64_t stuck_epoch;  /* of a fence that was waited for in vain */
    atomic_bool follows_plan;          /* every request must be seen: see core/follow */
    atomic_uint_fast64_t tcache_bytes; /* what a thread may keep of the context */
    struct gc_context *head;           /* of the handle; ordinary: the record itself */
    bool is_device;           /* of a device, not of a driver context: has no work of its own */
    struct gc_tenant *tenant; /* whose requests it serves; NULL: everyone else's */
    struct gc_quota *quota;   /* the tenant's account on the device; NULL: none */
    _Atomic(struct gc_context *) next_record; /* of the handle; the head is the first */
    struct gc_context *next_dropped;          /* of who drops the handle */
    atomic_bool has_peers;                    /* it knows the peers of its head */
    struct gc_pool pool;
    /* Guarded by the pool's lock. */
    struct gc_fences *fences; /* a store's; NULL once the pool is dropped and nobody asks */
    uint32_t peer_count;
    struct gc_context *peers[GC_PEER_MAX]; /* if there are more, one of each device at least */
    uint32_t opening_count;                /* threads that open the memory to a peer's device */
    bool is_crowded;                       /* there are more: every context is waited for */
    struct gc_range *kept_ranges;          /* of a head: reserved until the driver's context ends */
    /* Of a head: its work may reach any context's memory. Under the registry's lock, for good. */
    bool is_roaming;
    _Atomic(struct gc_context *) next_roaming; /* of core; lock-free to read */
};

/* Whose work a free must wait for: the context, its peers, and contexts that roam. */
struct gc_wait_set {
    struct gc_core *everyone; /* not NULL: all contexts of the process besides */
    uint32_t count;
    struct gc_context *contexts[1 + GC_PEER_MAX];
};

/* The contexts of a device, one after the other; NULL: no more. Dropped ones may be among them, and
 * a walk that stands on one goes on. Acquire: pairs with the release in context.c. */
static inline struct gc_context *gc_context_first(const struct gc_device *device)
{
    return atomic_load_explicit(&device->contexts, memory_order_acquire);
}

static inline struct gc_context *gc_context_next(const struct gc_context *context)
{
    return atomic_load_explicit(&context->next_in_device, memory_order_acquire);
}

static inline struct gc_context *gc_context_next_roaming(const struct gc_context *context)
{
    return atomic_load_explicit(&context->next_roaming, memory_order_acquire);
}

/* The records of a handle, beginning with its head. Acquire: as above. */
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

/* Whether a block of the context that was freed with `stamp` is idle. */
static inline bool gc_context_has_completed(const struct gc_context *context, uint64_t epoch)
{
    return epoch <= atomic_load_explicit(&context->completed, memory_order_acquire);
}

/* Whether a block of the context that is freed with `stamp` may serve again at once: it is idle, or
 * all work goes to one stream. What it answers yes to may be in bins though it is not idle: see
 * gc_submit_quiesce. */
static inline bool gc_context_may_reuse(struct gc_context *context, struct gc_submissions *work,
                                        uint64_t epoch)
{
    if (gc_context_has_completed(context, epoch))
        return true;
    if (atomic_load_explicit(&work->reuse_blocked, memory_order_relaxed) != 0)
        return false;
    /* Sequentially consistent, as in gc_submit_leave_single_stream and gc_submit_begin_load: either
     * those see the stamp and wait for it, or this sees them. */
    uint_fast64_t reused_epoch = atomic_load_explicit(&context->reused_epoch, memory_order_seq_cst);
    while (reused_epoch < epoch &&
           !atomic_compare_exchange_weak_explicit(&context->reused_epoch, &reused_epoch, epoch,
                                                  memory_order_seq_cst, memory_order_seq_cst))
        ;
    gc_submit_request_fence(work, context);
    return atomic_load_explicit(&work->reuse_blocked, memory_order_seq_cst) == 0;
}

/* ---- all of them; for gc_core_create and gc_core_destroy ---- */

void gc_contexts_init(struct gc_core *core);
void gc_contexts_fini(struct gc_core *core);

/* Finds or adds the head of a handle: for gc_core_add_context. *is_second: this one was added, and
 * another context is live. */
enum gc_status gc_context_add(struct gc_core *core, uint64_t handle, struct gc_device *device,
                              struct gc_context **context, bool *is_second) GC_CHECKED;

/* ---- what its memory is charged to, and counted for ---- */

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

/* Physical pages came, whose budget was reserved; or went, and their budget has its own way. */
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

/* ---- what threads may keep of it ---- */

#define GC_TCACHE_UNUSED UINT16_MAX   /* the number of no context */
#define GC_TCACHE_BLOCK_MAX GC_MIB(8) /* larger ones go to the pool at once */

/* How much of a new context a thread may keep: a share of what its device may hold. */
void gc_context_size_tcache(struct gc_context *context);
/* The same for all contexts of a device, whose limit has changed or is passed. */
void gc_device_size_tcaches(struct gc_device *device);

/* ---- work and waits ---- */

/* All work counted up to `mark` is done, that of peers too. */
void gc_context_raise_completed(struct gc_context *context, uint64_t epoch);
/* The driver's context is gone: a record may be dropped before. */
static inline bool gc_context_is_gone(const struct gc_context *context)
{
    return gc_context_is_dropped(context->head);
}
/* What is known of the handle's work holds for all its records. */
void gc_context_set_faulted(struct gc_context *context, bool is_faulted);

/* The driver's code of `call`, a call of struct gc_driver for what belongs to the context; or
 * that of gc_context_closed_code, and the driver was not asked. The context does not end meanwhile,
 * though the calling thread's program may not use it at all. What works without a context needs
 * none of this: unmapping, releasing pages, freeing addresses. */
#define GC_CALL_IF_OPEN(context, call)                                                             \
    (gc_gate_enter(&(context)->head->gate) ? gc_context_leave((context), (call))                   \
                                           : gc_context_closed_code(context))
/* Nobody was let in: context_is_gone; or, where it is not known for very long whether it goes, a
 * code that says of its work neither that it is done nor that it is no more. */
int gc_context_closed_code(const struct gc_context *context);
static inline int gc_context_leave(const struct gc_context *context, int code)
{
    gc_gate_leave(&context->head->gate);
    return code;
}

/* ---- claims: for core/alloc/teardown.c. What is claimed is the caller's to drop ---- */

/* False: it is dropped already. */
bool gc_context_claim_record(struct gc_context *record);
/* The head and all other records of the handle that are not dropped yet, linked by next_dropped.
 * The handle is unknown from then on. */
struct gc_context *gc_context_claim_handle(struct gc_context *head);

/* ---- records of tenants: for tenant*.c ---- */

/* NULL: the tenant has none. Lock-free. */
struct gc_context *gc_context_find_record(const struct gc_context *head,
                                          const struct gc_tenant *tenant);
/* The tenant's record, made if there is none. GC_INVALID_ARGUMENT: the context is dropped, or the
 * tenant is being removed. */
enum gc_status gc_context_add_record(struct gc_context *head, struct gc_tenant *tenant,
                                     struct gc_quota *quota, struct gc_context **record) GC_CHECKED;
/* The peer's work may reach the memory from now on. What is mapped is not opened to it. For one
 * record; `peer` is a head. */
void gc_context_list_peer(struct gc_context *record, struct gc_context *peer);
/* Contexts of device `ordinal` may use the stream-ordered memory of `device` from now on: they are
 * peers of the head that serves it, which is returned; NULL: there is none. (context.c) */
struct gc_context *gc_device_admit(struct gc_device *device, int ordinal);
/* Lists the peer, and begins to open the memory to its device. False: it is open already; a thread
 * that finds another one at it waits, as its work may come next. */
bool gc_context_begin_opening(struct gc_context *context, struct gc_context *peer);
void gc_context_end_opening(struct gc_context *context);
/* A driver context that uses the memory: itself, or of memory of a device one of the device's;
 * NULL: there is none. */
struct gc_context *gc_context_worker(struct gc_context *context);
/* A record was dropped (core/alloc/teardown.h), once: captures need not look at it any more. */
void gc_context_unlink_record(struct gc_context *record);

/* ---- waits ---- */

/* Fills the set under the pool's lock and announces the wait; a capture that begins meanwhile waits
 * for its end. False, with an empty set, if one of them captures: nothing may be asked of the
 * driver then. */
bool gc_context_wait_begin_locked(struct gc_context *context, struct gc_wait_set *set);
/* The wait is over, or was not needed. Empties the set; no lock needed. */
void gc_context_wait_end(struct gc_wait_set *set);

#endif
