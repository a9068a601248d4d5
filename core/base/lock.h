/* Mutexes with ranks, and conditions. A thread takes locks in rising order of rank, so no two
 * threads can deadlock; builds with GC_CHECK abort where the order is broken.
 *
 * A lock is one word (U. Drepper, "Futexes Are Tricky", mutex 2): free, held, or held while others
 * may sleep. Zeroed memory is a free lock, but for its rank.
 *
 * No driver call, host allocation or stdio happens while a lock is held. Code that leaves core, and
 * the simulated driver of the tests, check that with gc_lock_held_count(). Locks that are held
 * across fork() do no harm: a child passes every call through. */
#ifndef GC_LOCK_H
#define GC_LOCK_H

#include "core/base/assert.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* The README.md of each room names the data that its lock guards. */
enum gc_lock_rank {
    GC_RANK_REGISTRY = 1, /* lists of devices and contexts */
    GC_RANK_TCACHES,      /* thread caches; held while all are stopped */
    GC_RANK_POOL,         /* a pool, its peers included */
    GC_RANK_DEVICE,       /* counts of releases under way of a device and its tenants */
    GC_RANK_TRACKER,      /* a shard of the non-pool allocations */
    GC_RANK_SLAB,         /* a store of records */
    GC_RANK_ELASTIC_LIST, /* the table of elastic pools */
    GC_RANK_ELASTIC,      /* an elastic pool */
    GC_RANK_DEBUG,        /* history and guard pages of GPUCACHE_DEBUG */
    GC_RANK_STACKS,       /* a shard of the stacks of live allocations */
    GC_RANK_OPENS,        /* the blocks that other processes have open */
    GC_RANK_SHARE,        /* the blocks of other processes that this one has open */
    GC_RANK_HOST,         /* host memory for swapped content */
    GC_RANK_SPILLS,       /* the list of blocks in host memory */
    GC_RANK_KEPT,         /* the ranges that the program declared unchanging */
};

enum gc_lock_word { GC_LOCK_FREE, GC_LOCK_HELD, GC_LOCK_WANTED /* held; others may sleep */ };

struct gc_lock {
    atomic_uint word; /* enum gc_lock_word */
    enum gc_lock_rank rank;
};

/* Bit r: the thread holds a lock of rank r, is about to take one, or has just released one. A
 * thread never holds two locks of one rank, so the bits are exact, for a signal handler too. */
extern __thread unsigned gc_lock_held_ranks __attribute__((tls_model("initial-exec")));

/* Sleeps while the word is `value`; it may also return early. `limit_ns`: UINT64_MAX for ever.
 * False: the time is up. errno is kept. */
bool gc_lock_sleep_on(atomic_uint *word, unsigned value, uint64_t limit_ns);
/* Wakes threads that sleep on the word: one, or all. */
void gc_lock_wake(atomic_uint *word, bool all);

/* For gc_lock_acquire, where the lock is held. */
void gc_lock_acquire_wanted(struct gc_lock *lock);

static inline void gc_lock_init(struct gc_lock *lock, enum gc_lock_rank rank)
{
    *lock = (struct gc_lock){.rank = rank};
}

static inline void gc_lock_acquire(struct gc_lock *lock)
{
    unsigned word = GC_LOCK_FREE;
    GC_ASSERT(gc_lock_held_ranks >> lock->rank == 0);
    gc_lock_held_ranks |= 1U << lock->rank;
    atomic_signal_fence(memory_order_seq_cst);
    if (__builtin_expect(!atomic_compare_exchange_strong_explicit(&lock->word, &word, GC_LOCK_HELD,
                                                                  memory_order_acquire,
                                                                  memory_order_relaxed),
                         0))
        gc_lock_acquire_wanted(lock);
}

static inline void gc_lock_release(struct gc_lock *lock)
{
    GC_ASSERT(gc_lock_held_ranks >> lock->rank & 1U);
    if (__builtin_expect(atomic_exchange_explicit(&lock->word, GC_LOCK_FREE,
                                                  memory_order_release) == GC_LOCK_WANTED,
                         0))
        gc_lock_wake(&lock->word, false);
    atomic_signal_fence(memory_order_seq_cst);
    gc_lock_held_ranks &= ~(1U << lock->rank);
}

/* The number of ranked locks that the calling thread holds; in a signal handler, also those that
 * the interrupted code was acquiring or releasing. */
static inline unsigned gc_lock_held_count(void)
{
    return (unsigned)__builtin_popcount(gc_lock_held_ranks);
}

/* Zeroed memory is a condition. */
struct gc_condition {
    atomic_uint changes;
    atomic_uint waiting;
};

/* Waits, with `lock` held, which must be the thread's only lock, until the condition is announced;
 * it may also return early. */
void gc_lock_wait(struct gc_lock *lock, struct gc_condition *condition);
/* Like gc_lock_wait, up to `limit_ns`. False: the time is up. */
bool gc_lock_wait_for(struct gc_lock *lock, struct gc_condition *condition, uint64_t limit_ns);
/* Wakes all that wait. With the lock held, or after it was. */
void gc_lock_broadcast(struct gc_condition *condition);

#endif
