#include "core/base/lock.h"

#include "core/base/assert.h"

#include <time.h>

#include <stdatomic.h>

/* Bit r: the thread holds a lock of rank r, is about to take one, or has just released one. A
 * thread never holds two locks of one rank, so the bits are exact, for a signal handler too. */
static __thread unsigned held_ranks __attribute__((tls_model("initial-exec")));

void gc_lock_init(struct gc_lock *lock, enum gc_lock_rank rank)
{
    pthread_mutex_init(&lock->mutex, NULL);
    lock->rank = rank;
}

void gc_lock_fini(struct gc_lock *lock)
{
    pthread_mutex_destroy(&lock->mutex);
}

void gc_lock_acquire(struct gc_lock *lock)
{
    GC_ASSERT(held_ranks >> lock->rank == 0);
    held_ranks |= 1U << lock->rank;
    atomic_signal_fence(memory_order_seq_cst);
    pthread_mutex_lock(&lock->mutex);
}

void gc_lock_release(struct gc_lock *lock)
{
    GC_ASSERT(held_ranks >> lock->rank & 1U);
    pthread_mutex_unlock(&lock->mutex);
    atomic_signal_fence(memory_order_seq_cst);
    held_ranks &= ~(1U << lock->rank);
}

void gc_lock_wait(struct gc_lock *lock, pthread_cond_t *condition)
{
    GC_ASSERT(held_ranks == 1U << lock->rank);
    pthread_cond_wait(condition, &lock->mutex);
}

bool gc_lock_wait_for(struct gc_lock *lock, pthread_cond_t *condition, uint64_t limit_ns)
{
    const uint64_t second_ns = 1000000000;
    struct timespec end;
    GC_ASSERT(held_ranks == 1U << lock->rank);
    clock_gettime(CLOCK_REALTIME, &end);
    const uint64_t end_ns = (uint64_t)end.tv_nsec + limit_ns;
    end.tv_sec += (time_t)(end_ns / second_ns);
    end.tv_nsec = (long)(end_ns % second_ns);
    return pthread_cond_timedwait(condition, &lock->mutex, &end) == 0;
}

unsigned gc_lock_held_count(void)
{
    return (unsigned)__builtin_popcount(held_ranks);
}
