/* Records of non-pool allocations, found by (kind, key).
 *
 * A hash table by key in 64 shards, each with a lock, chains and a bucket array that doubles when
 * there are more records than buckets: O(1) expected. Records come from a slab and stay with their
 * shard; arrays are mapped outside the lock. If a larger array cannot be mapped, the chains grow
 * longer and no call fails.
 *
 * A record is marked while the driver releases its allocation: the driver may give the key to
 * another allocation before the record is removed. A release ends its own mark alone: a serial
 * tells the records of one key apart. Kinds of addresses share their keys. */
#ifndef GC_TRACKER_H
#define GC_TRACKER_H

#include "core/base/host_mem.h"
#include "core/base/lock.h"
#include "core/base/slab.h"
#include "core/core.h"

#define GC_TRACKER_SHARDS 64

struct gc_tracker_record;

struct gc_tracker_shard {
    _Alignas(64) struct gc_lock lock; /* guards all below */
    struct gc_tracker_record **buckets;
    uint64_t bucket_count; /* a power of two; 0 until the first record */
    uint64_t record_count;
    struct gc_tracker_record *spares; /* records that were removed */
    uint64_t last_serial;
};

struct gc_tracker {
    struct gc_host_mem *host;
    struct gc_slab records;
    struct gc_tracker_shard shards[GC_TRACKER_SHARDS];
};

void gc_tracker_init(struct gc_tracker *tracker, struct gc_host_mem *host);
void gc_tracker_fini(struct gc_tracker *tracker);
/* Adds a copy, and calls `count` with it before another thread can find it, under the shard's lock.
 * A record of the same kind and key is replaced and copied to *old, and *replaced is set: the
 * program freed that memory by a call that the library did not see. GC_BUSY: the record is marked,
 * or the key is an address that has a record of another kind. GC_GONE: the context is dropped.
 * GC_NO_HOST_MEMORY. */
typedef void gc_tracker_count(const struct gc_direct *direct);
enum gc_status gc_tracker_add(struct gc_tracker *tracker, const struct gc_direct *direct,
                              gc_tracker_count *count, bool *replaced,
                              struct gc_direct *old) GC_CHECKED;
/* False: no such record. `direct` may be NULL. */
bool gc_tracker_remove(struct gc_tracker *tracker, enum gc_direct_kind kind, uint64_t key,
                       struct gc_direct *direct);
bool gc_tracker_find(struct gc_tracker *tracker, enum gc_direct_kind kind, uint64_t key,
                     struct gc_direct *direct);
/* The record of an address, of any kind of addresses. */
bool gc_tracker_find_address(struct gc_tracker *tracker, uint64_t address,
                             struct gc_direct *direct);
/* Marks the record of the kind, or of any kind of addresses if `is_address`; copies it. */
bool gc_tracker_mark(struct gc_tracker *tracker, enum gc_direct_kind kind, bool is_address,
                     uint64_t key, struct gc_direct *direct);
/* Takes back one mark of the record, of which `marked` is the copy. If `is_released` it removes the
 * record and calls `uncount` with it before another one of its key can be added, under the shard's
 * lock. True: removed; false also if it was removed before. */
bool gc_tracker_unmark(struct gc_tracker *tracker, const struct gc_direct *marked, bool is_released,
                       gc_tracker_count *uncount);
/* Removes every record of the context and calls `visit` with each, under no lock. The context is
 * dropped: none of its records is added later. */
void gc_tracker_remove_context(struct gc_tracker *tracker, const struct gc_context *context,
                               void (*visit)(void *argument, const struct gc_direct *direct),
                               void *argument);
/* Calls `visit` with every record, under a shard's lock; `visit` takes no other lock. */
void gc_tracker_visit(struct gc_tracker *tracker,
                      void (*visit)(void *argument, const struct gc_direct *direct),
                      void *argument);

#endif
