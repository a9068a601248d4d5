/* Mutexes with ranks. A thread takes locks in rising order of rank, so no two threads can wait for
 * each other; builds with GC_CHECK abort where the order is broken.
 *
 * No driver call, host allocation or stdio happens while a lock is held: gc_lock_held_count() lets
 * the code that leaves core, and the simulated driver of the tests, check it. Locks that are held
 * across fork() do not matter: a child passes every call through. */
#ifndef GC_LOCK_H
#define GC_LOCK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* What each guards is said in README.md of this folder. */
enum gc_lock_rank {
    GC_RANK_REGISTRY = 1, /* lists of devices and contexts */
    GC_RANK_TCACHES,      /* the threads' caches, and who stops them */
    GC_RANK_POOL,         /* one context's pool */
    GC_RANK_DEVICE,       /* one device's give-backs under way */
    GC_RANK_TRACKER,      /* one shard of the direct records */
    GC_RANK_SLAB,         /* one store of records */
    GC_RANK_ELASTIC_LIST, /* which elastic pools there are */
    GC_RANK_ELASTIC,      /* one elastic pool */
    GC_RANK_DEBUG,        /* what the debug aids remember */
    GC_RANK_STACKS,       /* one shard of where live allocations came from */
};

struct gc_lock {
    pthread_mutex_t mutex;
    enum gc_lock_rank rank;
};

void gc_lock_init(struct gc_lock *lock, enum gc_lock_rank rank);
void gc_lock_fini(struct gc_lock *lock);
void gc_lock_acquire(struct gc_lock *lock);
void gc_lock_release(struct gc_lock *lock);
/* Waits for `condition` with `lock` held, which must be the only one. */
void gc_lock_wait(struct gc_lock *lock, pthread_cond_t *condition);
/* The same, but for limit_ns at most; false: that long. */
bool gc_lock_wait_for(struct gc_lock *lock, pthread_cond_t *condition, uint64_t limit_ns);
/* How many locks of this kind the calling thread holds. In a signal handler: or is about to. */
unsigned gc_lock_held_count(void);

#endif
