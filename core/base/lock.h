/* Mutexes with ranks. A thread takes locks in rising order of rank, so no two threads can deadlock;
 * builds with GC_CHECK abort where the order is broken. A mutex is one word: free, held, or held
 * with threads that sleep on it (Drepper, "Futexes are tricky", mutex 2). Zeroed memory is a
 * condition.
 *
 * No driver call, host allocation or stdio happens while a lock is held. Code that leaves core, and
 * the simulated driver of the tests, check that with gc_lock_held_count(). Locks that are held
 * across fork() do no harm: a child passes every call through. */
#ifndef GC_LOCK_H
#define GC_LOCK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* The README.md of each room names the data that its lock guards. */
enum gc_lock_rank {
    GC_RANK_REGISTRY = 1, /* lists of devices and contexts */
    GC_RANK_TCACHES,      /* thread caches; held while all are stopped */
    GC_RANK_POOL,         /* a pool, its peers included */
    GC_RANK_DEVICE,       /* waits for releases under way of a device and its tenants */
    GC_RANK_TRACKER,      /* a shard of the non-pool allocations */
    GC_RANK_SLAB,         /* a store of records */
    GC_RANK_ELASTIC_LIST, /* the table of elastic pools */
    GC_RANK_ELASTIC,      /* an elastic pool */
    GC_RANK_DEBUG,        /* history and guard pages of GPUCACHE_DEBUG */
    GC_RANK_STACKS,       /* a shard of the stacks of live allocations */
    GC_RANK_OPENS,        /* the blocks that other processes have open */
    GC_RANK_SHARE,        /* the blocks of other processes that this one has open */
};

struct gc_lock {
    atomic_uint word;
    enum gc_lock_rank rank;
};

struct gc_condition {
    atomic_uint changes; /* a futex */
};

void gc_lock_init(struct gc_lock *lock, enum gc_lock_rank rank);
void gc_lock_acquire(struct gc_lock *lock);
void gc_lock_release(struct gc_lock *lock);
/* Waits for `condition` with `lock` held, which must be the thread's only lock. May return early.
 */
void gc_lock_wait(struct gc_lock *lock, struct gc_condition *condition);
/* Like gc_lock_wait, up to `limit_ns`. False: the time is up. */
bool gc_lock_wait_for(struct gc_lock *lock, struct gc_condition *condition, uint64_t limit_ns);
/* Wakes all threads that wait for the condition. What they wait for has changed under the lock. */
void gc_lock_broadcast(struct gc_condition *condition);
/* The number of ranked locks that the calling thread holds; in a signal handler, also those that
 * the interrupted code was acquiring or releasing. */
unsigned gc_lock_held_count(void);

#endif
