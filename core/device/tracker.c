#include "core/device/tracker.h"

#include "core/base/assert.h"
#include "core/base/bits.h"
#include "core/device/context.h"

#include <stddef.h>

#define FIRST_BUCKETS 64

struct gc_tracker_record {
    struct gc_tracker_record *next;
    struct gc_direct direct;
    uint64_t mark_count; /* releases under way; several where the program frees twice */
};
_Static_assert(sizeof(struct gc_tracker_record) % 8 == 0, "a slab record");

void gc_tracker_init(struct gc_tracker *tracker, struct gc_host_mem *host)
{
    tracker->host = host;
    gc_slab_init(&tracker->records, host, sizeof(struct gc_tracker_record));
    for (unsigned i = 0; i < GC_TRACKER_SHARDS; i++) {
        tracker->shards[i] = (struct gc_tracker_shard){.buckets = NULL};
        gc_lock_init(&tracker->shards[i].lock, GC_RANK_TRACKER);
    }
}

static uint64_t buckets_bytes(uint64_t count)
{
    return count * sizeof(struct gc_tracker_record *);
}

void gc_tracker_fini(struct gc_tracker *tracker)
{
    for (unsigned i = 0; i < GC_TRACKER_SHARDS; i++) {
        struct gc_tracker_shard *shard = &tracker->shards[i];
        if (shard->buckets != NULL)
            gc_host_mem_unmap(tracker->host, shard->buckets, buckets_bytes(shard->bucket_count));
    }
    gc_slab_fini(&tracker->records);
}

/* The top bits choose the shard, the low ones the bucket. */
static struct gc_tracker_shard *shard_of(struct gc_tracker *tracker, uint64_t hash)
{
    return &tracker->shards[(hash >> 58) % GC_TRACKER_SHARDS];
}

typedef bool match_kind(enum gc_direct_kind found, enum gc_direct_kind wanted);

static bool is_same(enum gc_direct_kind found, enum gc_direct_kind wanted)
{
    return found == wanted;
}

static bool is_address(enum gc_direct_kind found, enum gc_direct_kind ignored)
{
    (void)ignored;
    return gc_direct_is_address(found);
}

/* The link to the record, or the end of its chain. */
static inline struct gc_tracker_record **link_of(const struct gc_tracker_shard *shard,
                                                 uint64_t hash, match_kind *matches,
                                                 enum gc_direct_kind kind, uint64_t key)
{
    struct gc_tracker_record **link = &shard->buckets[hash & (shard->bucket_count - 1)];
    while (*link != NULL && ((*link)->direct.key != key || !matches((*link)->direct.kind, kind)))
        link = &(*link)->next;
    return link;
}

static void rehash_locked(struct gc_tracker_shard *shard, struct gc_tracker_record **buckets,
                          uint64_t count)
{
    for (uint64_t i = 0; i < shard->bucket_count; i++) {
        struct gc_tracker_record *record = shard->buckets[i];
        while (record != NULL) {
            struct gc_tracker_record *next = record->next;
            struct gc_tracker_record **bucket =
                &buckets[gc_mix_u64(record->direct.key) & (count - 1)];
            record->next = *bucket;
            *bucket = record;
            record = next;
        }
    }
    shard->buckets = buckets;
    shard->bucket_count = count;
}

/* Grows the shard if it is full and acquires its lock; false, unlocked: no buckets. */
static bool acquire_grown(struct gc_tracker *tracker, struct gc_tracker_shard *shard)
{
    gc_lock_acquire(&shard->lock);
    const uint64_t count = shard->bucket_count;
    if (shard->record_count < count)
        return true;
    gc_lock_release(&shard->lock);
    const uint64_t larger = count == 0 ? FIRST_BUCKETS : count * 2;
    struct gc_tracker_record **buckets = gc_host_mem_map(tracker->host, buckets_bytes(larger));
    struct gc_tracker_record **unused = buckets;
    gc_lock_acquire(&shard->lock);
    if (buckets != NULL && shard->bucket_count == count) {
        unused = shard->buckets;
        rehash_locked(shard, buckets, larger);
    }
    if (unused != NULL) {
        gc_lock_release(&shard->lock);
        gc_host_mem_unmap(tracker->host, unused, buckets_bytes(unused == buckets ? larger : count));
        gc_lock_acquire(&shard->lock);
    }
    if (shard->bucket_count != 0)
        return true;
    gc_lock_release(&shard->lock);
    return false;
}

/* A record for the shard, whose lock is held with room for it; NULL, unlocked: no host memory. */
static struct gc_tracker_record *acquire_record(struct gc_tracker *tracker,
                                                struct gc_tracker_shard *shard)
{
    if (!acquire_grown(tracker, shard))
        return NULL;
    struct gc_tracker_record *record = shard->spares;
    if (GC_LIKELY(record != NULL)) {
        shard->spares = record->next;
        return record;
    }
    gc_lock_release(&shard->lock);
    record = gc_slab_alloc(&tracker->records);
    if (record != NULL)
        gc_lock_acquire(&shard->lock); /* its buckets stay */
    return record;
}

static void spare_locked(struct gc_tracker_shard *shard, struct gc_tracker_record *record)
{
    record->next = shard->spares;
    shard->spares = record;
}

/* A context is dropped before its records are removed, each shard's under its lock: a record that
 * is added is removed with them, or this sees the context dropped. */
static enum gc_status may_add_locked(const struct gc_direct *direct,
                                     const struct gc_tracker_record *former)
{
    GC_ASSERT(direct->context == NULL || direct->context->head == direct->context);
    if (direct->context != NULL && gc_context_is_dropped(direct->context))
        return GC_GONE;
    return former != NULL && (former->mark_count != 0 || former->direct.kind != direct->kind)
               ? GC_BUSY
               : GC_OK;
}

enum gc_status gc_tracker_add(struct gc_tracker *tracker, const struct gc_direct *direct,
                              gc_tracker_count *count, bool *replaced, struct gc_direct *old)
{
    const uint64_t hash = gc_mix_u64(direct->key);
    struct gc_tracker_shard *shard = shard_of(tracker, hash);
    struct gc_tracker_record *record = acquire_record(tracker, shard);
    if (record == NULL)
        return GC_NO_HOST_MEMORY;
    struct gc_tracker_record **link =
        link_of(shard, hash, gc_direct_is_address(direct->kind) ? is_address : is_same,
                direct->kind, direct->key);
    struct gc_tracker_record *former = *link;
    const enum gc_status status = may_add_locked(direct, former);
    *replaced = former != NULL;
    if (status != GC_OK) {
        spare_locked(shard, record);
        gc_lock_release(&shard->lock);
        return status;
    }
    *record =
        (struct gc_tracker_record){.next = former == NULL ? NULL : former->next, .direct = *direct};
    record->direct.serial = ++shard->last_serial;
    *link = record;
    if (former != NULL) {
        *old = former->direct;
        spare_locked(shard, former);
    } else {
        shard->record_count++;
    }
    count(direct);
    gc_lock_release(&shard->lock);
    return GC_OK;
}

static struct gc_tracker_record *unlink_locked(struct gc_tracker_shard *shard,
                                               struct gc_tracker_record **link)
{
    struct gc_tracker_record *record = *link;
    *link = record->next;
    shard->record_count--;
    return record;
}

/* Acquires the shard's lock. NULL: no such record. */
static struct gc_tracker_record **acquire_link(struct gc_tracker_shard *shard, uint64_t hash,
                                               match_kind *matches, enum gc_direct_kind kind,
                                               uint64_t key)
{
    struct gc_tracker_record **link = NULL;
    gc_lock_acquire(&shard->lock);
    if (shard->bucket_count != 0)
        link = link_of(shard, hash, matches, kind, key);
    return link == NULL || *link == NULL ? NULL : link;
}

bool gc_tracker_remove(struct gc_tracker *tracker, enum gc_direct_kind kind, uint64_t key,
                       struct gc_direct *direct)
{
    const uint64_t hash = gc_mix_u64(key);
    struct gc_tracker_shard *shard = shard_of(tracker, hash);
    struct gc_tracker_record **link = acquire_link(shard, hash, is_same, kind, key);
    if (link != NULL) {
        struct gc_tracker_record *record = unlink_locked(shard, link);
        if (direct != NULL)
            *direct = record->direct;
        spare_locked(shard, record);
    }
    gc_lock_release(&shard->lock);
    return link != NULL;
}

static bool find(struct gc_tracker *tracker, match_kind *matches, enum gc_direct_kind kind,
                 uint64_t key, bool marks, struct gc_direct *direct)
{
    const uint64_t hash = gc_mix_u64(key);
    struct gc_tracker_shard *shard = shard_of(tracker, hash);
    struct gc_tracker_record **link = acquire_link(shard, hash, matches, kind, key);
    if (link != NULL) {
        *direct = (*link)->direct;
        direct->is_releasing = (*link)->mark_count > 0;
        (*link)->mark_count += marks;
    }
    gc_lock_release(&shard->lock);
    return link != NULL;
}

bool gc_tracker_find(struct gc_tracker *tracker, enum gc_direct_kind kind, uint64_t key,
                     struct gc_direct *direct)
{
    return find(tracker, is_same, kind, key, false, direct);
}

bool gc_tracker_find_address(struct gc_tracker *tracker, uint64_t address, struct gc_direct *direct)
{
    return find(tracker, is_address, GC_DIRECT_MEMORY, address, false, direct);
}

bool gc_tracker_mark(struct gc_tracker *tracker, enum gc_direct_kind kind, bool is_any_address,
                     uint64_t key, struct gc_direct *direct)
{
    return find(tracker, is_any_address ? is_address : is_same, kind, key, true, direct);
}

bool gc_tracker_unmark(struct gc_tracker *tracker, const struct gc_direct *marked, bool is_released,
                       gc_tracker_count *uncount)
{
    const uint64_t hash = gc_mix_u64(marked->key);
    struct gc_tracker_shard *shard = shard_of(tracker, hash);
    struct gc_tracker_record **link = acquire_link(shard, hash, is_same, marked->kind, marked->key);
    const bool is_marked =
        link != NULL && (*link)->direct.serial == marked->serial && (*link)->mark_count > 0;
    if (is_marked)
        (*link)->mark_count--;
    if (is_marked && is_released) {
        struct gc_tracker_record *record = unlink_locked(shard, link);
        uncount(&record->direct);
        spare_locked(shard, record);
    }
    gc_lock_release(&shard->lock);
    return is_marked && is_released;
}

/* Unlinks the context's records and returns them as a list. */
static struct gc_tracker_record *unlink_context_locked(struct gc_tracker_shard *shard,
                                                       const struct gc_context *context)
{
    struct gc_tracker_record *list = NULL;
    for (uint64_t i = 0; i < shard->bucket_count; i++) {
        struct gc_tracker_record **link = &shard->buckets[i];
        while (*link != NULL) {
            if ((*link)->direct.context != context) {
                link = &(*link)->next;
                continue;
            }
            struct gc_tracker_record *record = unlink_locked(shard, link);
            record->next = list;
            list = record;
        }
    }
    return list;
}

void gc_tracker_remove_context(struct gc_tracker *tracker, const struct gc_context *context,
                               void (*visit)(void *argument, const struct gc_direct *direct),
                               void *argument)
{
    GC_ASSERT(gc_context_is_dropped(context));
    for (unsigned i = 0; i < GC_TRACKER_SHARDS; i++) {
        struct gc_tracker_shard *shard = &tracker->shards[i];
        gc_lock_acquire(&shard->lock);
        struct gc_tracker_record *list = unlink_context_locked(shard, context);
        gc_lock_release(&shard->lock);
        while (list != NULL) {
            struct gc_tracker_record *record = list;
            list = record->next;
            visit(argument, &record->direct);
            gc_lock_acquire(&shard->lock);
            spare_locked(shard, record);
            gc_lock_release(&shard->lock);
        }
    }
}

void gc_tracker_visit(struct gc_tracker *tracker,
                      void (*visit)(void *argument, const struct gc_direct *direct), void *argument)
{
    for (unsigned i = 0; i < GC_TRACKER_SHARDS; i++) {
        struct gc_tracker_shard *shard = &tracker->shards[i];
        gc_lock_acquire(&shard->lock);
        for (uint64_t bucket = 0; bucket < shard->bucket_count; bucket++) {
            for (const struct gc_tracker_record *record = shard->buckets[bucket]; record != NULL;
                 record = record->next)
                visit(argument, &record->direct);
        }
        gc_lock_release(&shard->lock);
    }
}
