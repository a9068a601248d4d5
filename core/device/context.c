/* Records of contexts: found by handle without a lock, added and claimed under the registry's lock.
 * Lists are linked by release stores at the front; a record is never reused for another context. */
#include "core/device/context.h"

#include "core/base/assert.h"
#include "core/base/bits.h"
#include "core/device/registry.h"
#include "core/device/tenant.h"

#include <stddef.h>

/* Whole cache lines: records of different threads are neighbours. */
#define LINE_BYTES 64
#define LINE_OF(field) (offsetof(struct gc_context, field) / LINE_BYTES)
_Static_assert(sizeof(struct gc_context) % LINE_BYTES == 0 && LINE_OF(completed) < LINE_OF(gate) &&
                   LINE_OF(next_dropped) < LINE_OF(gate) && LINE_OF(large_holder) < LINE_OF(pool) &&
                   LINE_OF(pool.tcache_block_bytes) < LINE_OF(pool.lock),
               "what each hit reads lies apart from what driver calls and misses write");

static _Atomic(struct gc_context *) *bucket_of(struct gc_core *core, uint64_t handle)
{
    return &core->buckets[gc_mix_u64(handle) % GC_CONTEXT_BUCKETS];
}

/* Acquire at every link: pairs with the release in push. */
static struct gc_context *load_link(const _Atomic(struct gc_context *) *link)
{
    return atomic_load_explicit(link, memory_order_acquire);
}

struct gc_context *gc_context_find(struct gc_core *core, uint64_t handle)
{
    struct gc_context *context = load_link(bucket_of(core, handle));
    while (context != NULL && (context->handle != handle || gc_context_is_dropped(context)))
        context = load_link(&context->next_in_bucket);
    return context;
}

void gc_contexts_init(struct gc_core *core)
{
    gc_slab_init_small(&core->context_records, &core->host, sizeof(struct gc_context));
    gc_slab_init(&core->fence_rings, &core->host, sizeof(struct gc_fences));
    gc_slab_init(&core->detached_rooms, &core->host, sizeof(struct gc_pool_detached));
}

void gc_contexts_fini(struct gc_core *core)
{
    gc_slab_fini(&core->context_records);
    gc_slab_fini(&core->fence_rings);
    gc_slab_fini(&core->detached_rooms);
}

/* Work submitted so far does not use memory that this pool will allocate. Work that does is
 * submitted after that allocation, so it needs no barrier to get a later epoch. */
static void complete_all(struct gc_context *context)
{
    atomic_init(&context->completed, gc_submit_open_epoch(&context->core->work));
}

/* No other thread has seen the record. */
static void destroy_context(struct gc_core *core, struct gc_context *context)
{
    if (context->fences != NULL)
        gc_slab_free(&core->fence_rings, context->fences);
    if (context->detached_room != NULL)
        gc_slab_free(&core->detached_rooms, context->detached_room);
    gc_slab_free(&core->context_records, context);
}

/* A record that is not linked yet; its own head. */
static struct gc_context *create_context(struct gc_core *core, uint64_t handle,
                                         struct gc_device *device)
{
    struct gc_context *context = gc_slab_alloc(&core->context_records);
    if (context == NULL)
        return NULL;
    *context = (struct gc_context){.core = core};
    context->fences = gc_slab_alloc(&core->fence_rings);
    context->detached_room = gc_slab_alloc(&core->detached_rooms);
    if (context->fences == NULL || context->detached_room == NULL) {
        destroy_context(core, context);
        return NULL;
    }
    *context->fences = (struct gc_fences){.count = 0};
    context->device = device;
    context->handle = handle;
    context->head = context;
    complete_all(context);
    const struct gc_pool_shared shared = {
        .host = &device->host,
        .pagemap = &core->pagemap,
        .blocks = &device->blocks,
        .segments = &device->segments,
        .next_block_id = &core->next_block_id,
        .idle = &device->idle,
        .pending = &device->stats.pending,
        .ordered = &device->stats.ordered,
        .ordered_peaks = device->ordered_peaks,
        .synchronous_count = &device->core->work.synchronous_count,
        .is_registered = &device->core->is_registered,
        .page_bytes = device->page_bytes,
        .is_dedicated = device->info.is_dedicated,
    };
    gc_pool_init(&context->pool, context, &shared);
    context->pool.streams = context->fences->streams;
    gc_context_size_tcache(context);
    return context;
}

/* Called while the pool is empty: its memory is charged to the quota too. */
static void set_quota(struct gc_context *context, struct gc_quota *quota)
{
    context->quota = quota;
    context->pool.shared.quota_idle = quota == NULL ? NULL : &quota->idle;
    gc_context_size_tcache(context);
}

/* Release: a reader that finds the record sees it filled in. */
static void push(_Atomic(struct gc_context *) *list, _Atomic(struct gc_context *) *next,
                 struct gc_context *context)
{
    atomic_store_explicit(next, load_link(list), memory_order_relaxed);
    atomic_store_explicit(list, context, memory_order_release);
}

/* Only heads are found by handle. */
static void link_locked(struct gc_core *core, struct gc_context *context)
{
    if (!context->is_device && core->context_count < GC_TCACHE_UNUSED - 1)
        context->pool.number = ++core->context_count;
    /* Captures start and end under this lock only. */
    atomic_init(&context->capture_count,
                atomic_load_explicit(&core->capture_count, memory_order_relaxed));
    context->next_of_all = core->all_contexts;
    core->all_contexts = context;
    if (context->head == context)
        push(bucket_of(core, context->handle), &context->next_in_bucket, context);
    else
        push(&context->head->next_record, &context->next_record, context);
    push(&context->device->contexts, &context->next_in_device, context);
}

/* ---- thread caches ---- */

#define CAP_MAX GC_MIB(16)
#define CAP_DIVISOR 256 /* a fraction of the bytes that the device or quota may hold */
#define TRIM_DIVISOR 8  /* a fraction of the bytes that may stay idle */
#define LARGE_DIVISOR 8 /* the largest block: a fraction of the bytes held at most, and idle */

void gc_context_size_tcache(struct gc_context *context)
{
    const struct gc_device *device = context->device;
    const struct gc_quota *quota = context->quota;
    uint64_t cap = gc_min_u64(gc_quota_total_bytes(device, quota) / CAP_DIVISOR, CAP_MAX);
    cap = gc_min_u64(cap, device->trim_bytes / TRIM_DIVISOR);
    if (atomic_load_explicit(&device->is_over_limit, memory_order_relaxed) ||
        (quota != NULL && atomic_load_explicit(&quota->is_over_limit, memory_order_relaxed)))
        cap = 0;
    if (atomic_load_explicit(&context->follows_plan, memory_order_relaxed) ||
        gc_context_is_fenceless(context))
        cap = 0; /* a plan needs all requests, a fenceless context all frees */
    atomic_store_explicit(&context->tcache_bytes, cap, memory_order_relaxed);
    uint64_t block_bytes = cap / 2;
    if (block_bytes >= GC_SMALL_MAX)
        block_bytes =
            gc_min_u64(gc_quota_total_bytes(device, quota), device->trim_bytes) / LARGE_DIVISOR;
    atomic_store_explicit(&context->pool.tcache_block_bytes, block_bytes, memory_order_relaxed);
}

void gc_device_size_tcaches(struct gc_device *device)
{
    for (struct gc_context *context = gc_context_first(device); context != NULL;
         context = gc_context_next(context))
        gc_context_size_tcache(context);
}

/* ---- stream-ordered memory: the device's ---- */

/* Whether the context may use the stream-ordered memory of the device. */
static bool may_reach(const struct gc_context *context, const struct gc_device *device)
{
    return context->device == device || gc_device_is_open_to(device, context->device->info.ordinal);
}

static void list_in_all(struct gc_context *ordered, struct gc_context *context)
{
    for (struct gc_context *record = ordered; record != NULL;
         record = gc_context_next_record(record))
        gc_peers_list(record, context);
}

/* Called before the context can be found, so that no fence misses work of the context. */
static void join_ordered_locked(struct gc_core *core, struct gc_context *context)
{
    for (int i = 0; i < GC_DEVICE_MAX; i++) {
        const struct gc_device *device = gc_device_find(core, i);
        struct gc_context *ordered = device == NULL ? NULL : gc_device_ordered(device);
        if (ordered != NULL && may_reach(context, device))
            list_in_all(ordered, context);
    }
}

/* The existing contexts of `device` become peers. */
static void admit_contexts_locked(struct gc_context *ordered, const struct gc_device *device)
{
    for (struct gc_context *context = gc_context_first(device); context != NULL;
         context = gc_context_next(context)) {
        if (context->head == context && !context->is_device && !gc_context_is_dropped(context) &&
            may_reach(context, ordered->device))
            list_in_all(ordered, context);
    }
}

void gc_device_add_ordered(struct gc_device *device)
{
    struct gc_core *core = device->core;
    if (device->page_bytes == 0)
        return;
    struct gc_context *created =
        create_context(core, UINT64_MAX - (uint64_t)device->info.ordinal, device);
    if (created == NULL)
        return; /* the driver's own pool serves such requests */
    created->is_device = true;
    gc_lock_acquire(&core->registry);
    const bool is_wanted = gc_device_ordered(device) == NULL;
    if (is_wanted) {
        for (int i = 0; i < GC_DEVICE_MAX; i++) {
            const struct gc_device *other = gc_device_find(core, i);
            if (other != NULL)
                admit_contexts_locked(created, other);
        }
        link_locked(core, created);
        atomic_store_explicit(&device->ordered, created, memory_order_release);
    }
    gc_lock_release(&core->registry);
    if (!is_wanted)
        destroy_context(core, created);
}

struct gc_context *gc_device_admit(struct gc_device *device, int ordinal)
{
    struct gc_core *core = device->core;
    if (ordinal < 0 || ordinal >= GC_DEVICE_MAX || ordinal == device->info.ordinal)
        return NULL;
    gc_lock_acquire(&core->registry);
    atomic_store_explicit(&device->is_open_to[ordinal], true, memory_order_relaxed);
    struct gc_context *ordered = gc_device_ordered(device);
    const struct gc_device *other = gc_device_find(core, ordinal);
    if (ordered != NULL && other != NULL)
        admit_contexts_locked(ordered, other);
    gc_lock_release(&core->registry);
    return ordered;
}

struct gc_context *gc_context_ordered(struct gc_context *context)
{
    /* The debug aids record blocks by the context of their request. */
    return context->core->debug != NULL ? context : gc_device_ordered(context->device);
}

struct gc_context *gc_context_worker(struct gc_context *context)
{
    struct gc_context *worker = context->is_device ? gc_context_first(context->device) : context;
    while (worker != NULL && worker->is_device)
        worker = gc_context_next(worker);
    return worker;
}

bool gc_context_is_of_device(const struct gc_context *context)
{
    return context->is_device;
}

bool gc_context_handle_is_of_device(uint64_t handle)
{
    return handle > UINT64_MAX - GC_DEVICE_MAX;
}

uint16_t gc_context_number(const struct gc_context *context)
{
    return context->pool.number;
}

/* ---- contexts of the driver ---- */

enum gc_status gc_context_add(struct gc_core *core, uint64_t handle, struct gc_device *device,
                              struct gc_context **context, bool *is_second)
{
    *is_second = false;
    struct gc_context *created = create_context(core, handle, device);
    if (created == NULL)
        return GC_NO_HOST_MEMORY;
    gc_lock_acquire(&core->registry);
    *context = gc_context_find(core, handle);
    if (*context == NULL) {
        if (core->context_count > 0)
            atomic_store_explicit(&core->work.has_several_contexts, true, memory_order_relaxed);
        join_ordered_locked(core, created);
        complete_all(created);
        link_locked(core, created);
        *context = created;
        *is_second = ++core->live_contexts > 1;
    }
    gc_lock_release(&core->registry);
    if (*context != created)
        destroy_context(core, created);
    return GC_OK;
}

void gc_contexts_visit(struct gc_core *core,
                       void (*function)(struct gc_context *context, void *argument), void *argument)
{
    for (int i = 0; i < GC_DEVICE_MAX; i++) {
        const struct gc_device *device = gc_device_find(core, i);
        struct gc_context *context = device == NULL ? NULL : gc_context_first(device);
        for (; context != NULL; context = gc_context_next(context))
            if (context->head == context && !context->is_device && !gc_context_is_dropped(context))
                function(context, argument);
    }
}

bool gc_contexts_are_several(const struct gc_core *core)
{
    return atomic_load_explicit(&core->work.has_several_contexts, memory_order_relaxed);
}

struct gc_context *gc_context_find_record(const struct gc_context *head,
                                          const struct gc_tenant *tenant)
{
    struct gc_context *record = gc_context_next_record(head);
    while (record != NULL && (record->tenant != tenant || gc_context_is_dropped(record)))
        record = gc_context_next_record(record);
    return record;
}

enum gc_status gc_context_add_record(struct gc_context *head, struct gc_tenant *tenant,
                                     struct gc_quota *quota, struct gc_context **record)
{
    struct gc_core *core = head->core;
    enum gc_status status = GC_OK;
    struct gc_context *created = create_context(core, head->handle, head->device);
    if (created == NULL)
        return GC_NO_HOST_MEMORY;
    created->head = head;
    created->is_device = head->is_device;
    created->tenant = tenant;
    set_quota(created, quota);
    gc_lock_acquire(&core->registry);
    *record = gc_context_find_record(head, tenant);
    if (gc_context_is_dropped(head) || !gc_tenant_is_open(tenant)) {
        status = GC_INVALID_ARGUMENT;
    } else if (*record == NULL) {
        atomic_init(&created->is_faulted,
                    atomic_load_explicit(&head->is_faulted, memory_order_relaxed));
        link_locked(core, created);
        *record = created;
    }
    gc_lock_release(&core->registry);
    if (status != GC_OK || *record != created)
        destroy_context(core, created);
    return status;
}

/* An unlinked record keeps its own link, so that a reader on it continues with the next. */
static void unlink(_Atomic(struct gc_context *) *link, struct gc_context *context, size_t next)
{
    while (load_link(link) != context)
        link = (_Atomic(struct gc_context *) *)(void *)((char *)load_link(link) + next);
    const _Atomic(struct gc_context *) *behind =
        (const _Atomic(struct gc_context *) *)(const void *)((const char *)context + next);
    atomic_store_explicit(link, load_link(behind), memory_order_release);
}

/* The caller drops the record's pool; false: it is dropped already. */
static bool claim_record_locked(struct gc_context *record)
{
    if (atomic_exchange_explicit(&record->is_dropped, true, memory_order_acq_rel))
        return false;
    unlink(&record->device->contexts, record, offsetof(struct gc_context, next_in_device));
    return true;
}

/* ---- roaming ---- */

static bool begin_roaming(struct gc_context *head)
{
    struct gc_core *core = head->core;
    gc_lock_acquire(&core->registry);
    const bool is_new = !head->is_roaming && !gc_context_is_dropped(head);
    if (is_new) {
        push(&core->roaming, &head->next_roaming, head);
        head->is_roaming = true;
    }
    gc_lock_release(&core->registry);
    return is_new;
}

void gc_context_set_roaming(struct gc_context *context)
{
    struct gc_context *head = context->head;
    const struct gc_context *known = gc_context_first_roaming(head->core);
    while (known != NULL && known != head)
        known = gc_context_next_roaming(known);
    if (known == head || !begin_roaming(head))
        return;
    /* A thread that closes a later epoch finds the context in the list, and blocks freed from now
     * on need such a fence. */
    (void)gc_submit_advance(&head->core->work);
}

/* ---- claims ---- */

bool gc_context_claim_record(struct gc_context *record)
{
    struct gc_core *core = record->core;
    gc_lock_acquire(&core->registry);
    const bool is_mine = claim_record_locked(record);
    gc_lock_release(&core->registry);
    return is_mine;
}

struct gc_context *gc_context_claim_handle(struct gc_context *head)
{
    struct gc_core *core = head->core;
    struct gc_context *claimed = NULL;
    gc_lock_acquire(&core->registry);
    unlink(bucket_of(core, head->handle), head, offsetof(struct gc_context, next_in_bucket));
    core->live_contexts -= !head->is_device;
    if (head->is_roaming)
        unlink(&core->roaming, head, offsetof(struct gc_context, next_roaming));
    for (struct gc_context *record = head; record != NULL;
         record = gc_context_next_record(record)) {
        if (!claim_record_locked(record))
            continue;
        record->next_dropped = claimed;
        claimed = record;
    }
    gc_lock_release(&core->registry);
    return claimed;
}

void gc_context_unlink_record(struct gc_context *record)
{
    struct gc_core *core = record->core;
    gc_lock_acquire(&core->registry);
    unlink(&record->head->next_record, record, offsetof(struct gc_context, next_record));
    gc_lock_release(&core->registry);
}

void gc_context_add_pages(struct gc_context *context, uint64_t bytes)
{
    atomic_fetch_add_explicit(&context->device->mapped_bytes, bytes, memory_order_relaxed);
    if (context->quota != NULL)
        atomic_fetch_add_explicit(&context->quota->mapped_bytes, bytes, memory_order_relaxed);
}

void gc_context_sub_pages(struct gc_context *context, uint64_t bytes)
{
    atomic_fetch_sub_explicit(&context->device->mapped_bytes, bytes, memory_order_relaxed);
    if (context->quota != NULL)
        atomic_fetch_sub_explicit(&context->quota->mapped_bytes, bytes, memory_order_relaxed);
}

int gc_context_closed_code(const struct gc_context *context)
{
    const struct gc_driver *driver = &context->core->driver;
    if (gc_gate_is_gone(&context->head->gate))
        return driver->context_is_gone;
    return driver->not_ready != 0 ? driver->not_ready : driver->out_of_memory;
}

struct gc_device *gc_context_device(const struct gc_context *context)
{
    return context->device;
}

uint64_t gc_context_handle(const struct gc_context *context)
{
    return context->handle;
}

bool gc_context_is_faulted(const struct gc_context *context)
{
    return atomic_load_explicit(&context->is_faulted, memory_order_relaxed);
}

void gc_context_set_faulted(struct gc_context *context, bool is_faulted)
{
    for (struct gc_context *record = context->head; record != NULL;
         record = gc_context_next_record(record))
        if (!gc_context_is_dropped(record))
            atomic_store_explicit(&record->is_faulted, is_faulted, memory_order_relaxed);
}

void gc_contexts_set_faulted(struct gc_core *core)
{
    for (int i = 0; i < GC_DEVICE_MAX; i++) {
        const struct gc_device *device = gc_device_find(core, i);
        struct gc_context *context = device == NULL ? NULL : gc_context_first(device);
        for (; context != NULL; context = gc_context_next(context))
            atomic_store_explicit(&context->is_faulted, true, memory_order_relaxed);
    }
}

/* ---- epochs ---- */

uint64_t gc_context_epoch(struct gc_context *context)
{
    return gc_submit_close_epoch(&context->core->work);
}

void gc_context_raise_completed(struct gc_context *context, uint64_t epoch)
{
    uint_fast64_t completed = atomic_load_explicit(&context->completed, memory_order_relaxed);
    while (completed < epoch &&
           !atomic_compare_exchange_weak_explicit(&context->completed, &completed, epoch,
                                                  memory_order_release, memory_order_relaxed))
        ;
}
