/* Records of non-pool allocations, found by (kind, key).
 *
 * A hash table by key in 64 shards, each with a lock, chains and a bucket array that doubles when
 * there are more records than buckets: O(1) expected. Records come from a slab; arrays are mapped
 * outside the lock. If a larger array cannot be mapped, the chains grow longer and no call fails.
 */
#ifndef GC_TRACKER_H
#define GC_TRACKER_H

#include "core/base/host_mem.h"
#include "core/base/lock.h"
#include "core/base/slab.h"
#include "core/core.h"

#define GC_TRACKER_SHARDS 64

struct gc_tracker_record;

struct gc_tracker_shard {
    struct gc_lock lock; /* guards all below */
    struct gc_tracker_record **buckets;
    uint64_t bucket_count; /* a power of two; 0 until the first record */
    uint64_t record_count;
};

struct gc_tracker {
    struct gc_host_mem *host;
    struct gc_slab records;
    struct gc_tracker_shard shards[GC_TRACKER_SHARDS];
};

void gc_tracker_init(struct gc_tracker *tracker, struct gc_host_mem *host);
void gc_tracker_fini(struct gc_tracker *tracker);
/* Adds a copy. A record of the same kind and key is replaced and copied to *old, and *replaced is
 * set: the program freed that memory by a call that the library did not see. GC_NO_HOST_MEMORY. */
enum gc_status gc_tracker_add(struct gc_tracker *tracker, const struct gc_direct *direct,
                              bool *replaced, struct gc_direct *old) GC_CHECKED;
/* False: no such record. `direct` may be NULL. */
bool gc_tracker_remove(struct gc_tracker *tracker, enum gc_direct_kind kind, uint64_t key,
                       struct gc_direct *direct);
bool gc_tracker_find(struct gc_tracker *tracker, enum gc_direct_kind kind, uint64_t key,
                     struct gc_direct *direct);
/* The first of `kinds` in which the key has a record; GC_DIRECT_KIND_COUNT: none. */
enum gc_direct_kind gc_tracker_find_kind(struct gc_tracker *tracker,
                                         const enum gc_direct_kind *kinds, unsigned count,
                                         uint64_t key);
/* Removes every record of the context and calls `visit` with each, under no lock. */
void gc_tracker_remove_context(struct gc_tracker *tracker, uint64_t context,
                               void (*visit)(void *argument, const struct gc_direct *direct),
                               void *argument);
/* Calls `visit` with every record, under a shard's lock; `visit` takes no other lock. */
void gc_tracker_visit(struct gc_tracker *tracker,
                      void (*visit)(void *argument, const struct gc_direct *direct),
                      void *argument);

#endif
