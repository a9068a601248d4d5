#include "core/device/tracker.h"

#include "core/base/bits.h"

#include <stddef.h>

#define FIRST_BUCKETS 64

struct gc_tracker_record {
    struct gc_tracker_record *next;
    struct gc_direct direct;
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

/* The link to the record, or the end of its chain. */
static struct gc_tracker_record **link_of(const struct gc_tracker_shard *shard, uint64_t hash,
                                          enum gc_direct_kind kind, uint64_t key)
{
    struct gc_tracker_record **link = &shard->buckets[hash & (shard->bucket_count - 1)];
    while (*link != NULL && ((*link)->direct.key != key || (*link)->direct.kind != kind))
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

enum gc_status gc_tracker_add(struct gc_tracker *tracker, const struct gc_direct *direct,
                              bool *replaced, struct gc_direct *old)
{
    struct gc_tracker_record *record = gc_slab_alloc(&tracker->records);
    if (record == NULL)
        return GC_NO_HOST_MEMORY;
    record->direct = *direct;
    const uint64_t hash = gc_mix_u64(direct->key);
    struct gc_tracker_shard *shard = shard_of(tracker, hash);
    if (!acquire_grown(tracker, shard)) {
        gc_slab_free(&tracker->records, record);
        return GC_NO_HOST_MEMORY;
    }
    struct gc_tracker_record **link = link_of(shard, hash, direct->kind, direct->key);
    struct gc_tracker_record *former = *link;
    record->next = former == NULL ? NULL : former->next;
    *link = record;
    *replaced = former != NULL;
    if (former != NULL)
        *old = former->direct;
    else
        shard->record_count++;
    gc_lock_release(&shard->lock);
    if (former != NULL)
        gc_slab_free(&tracker->records, former);
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

/* Copies the record and frees it. No lock is held. */
static bool copy_and_free(struct gc_tracker *tracker, struct gc_tracker_record *record,
                          struct gc_direct *direct)
{
    if (record == NULL)
        return false;
    if (direct != NULL)
        *direct = record->direct;
    gc_slab_free(&tracker->records, record);
    return true;
}

bool gc_tracker_remove(struct gc_tracker *tracker, enum gc_direct_kind kind, uint64_t key,
                       struct gc_direct *direct)
{
    const uint64_t hash = gc_mix_u64(key);
    struct gc_tracker_shard *shard = shard_of(tracker, hash);
    struct gc_tracker_record *record = NULL;
    gc_lock_acquire(&shard->lock);
    if (shard->bucket_count != 0) {
        struct gc_tracker_record **link = link_of(shard, hash, kind, key);
        if (*link != NULL)
            record = unlink_locked(shard, link);
    }
    gc_lock_release(&shard->lock);
    return copy_and_free(tracker, record, direct);
}

bool gc_tracker_find(struct gc_tracker *tracker, enum gc_direct_kind kind, uint64_t key,
                     struct gc_direct *direct)
{
    const uint64_t hash = gc_mix_u64(key);
    struct gc_tracker_shard *shard = shard_of(tracker, hash);
    bool found = false;
    gc_lock_acquire(&shard->lock);
    if (shard->bucket_count != 0) {
        const struct gc_tracker_record *record = *link_of(shard, hash, kind, key);
        found = record != NULL;
        if (found)
            *direct = record->direct;
    }
    gc_lock_release(&shard->lock);
    return found;
}

enum gc_direct_kind gc_tracker_find_kind(struct gc_tracker *tracker,
                                         const enum gc_direct_kind *kinds, unsigned count,
                                         uint64_t key)
{
    const uint64_t hash = gc_mix_u64(key);
    struct gc_tracker_shard *shard = shard_of(tracker, hash);
    const struct gc_tracker_record *record = NULL;
    unsigned first = count;
    gc_lock_acquire(&shard->lock);
    if (shard->bucket_count != 0)
        record = shard->buckets[hash & (shard->bucket_count - 1)];
    for (; record != NULL; record = record->next)
        for (unsigned i = 0; i < first && record->direct.key == key; i++)
            if (record->direct.kind == kinds[i])
                first = i;
    gc_lock_release(&shard->lock);
    return first < count ? kinds[first] : GC_DIRECT_KIND_COUNT;
}

/* Unlinks the context's records and returns them as a list. */
static struct gc_tracker_record *unlink_context_locked(struct gc_tracker_shard *shard,
                                                       uint64_t context)
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

void gc_tracker_remove_context(struct gc_tracker *tracker, uint64_t context,
                               void (*visit)(void *argument, const struct gc_direct *direct),
                               void *argument)
{
    for (unsigned i = 0; i < GC_TRACKER_SHARDS; i++) {
        struct gc_tracker_shard *shard = &tracker->shards[i];
        gc_lock_acquire(&shard->lock);
        struct gc_tracker_record *list = unlink_context_locked(shard, context);
        gc_lock_release(&shard->lock);
        while (list != NULL) {
            struct gc_tracker_record *record = list;
            list = record->next;
            visit(argument, &record->direct);
            gc_slab_free(&tracker->records, record);
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
