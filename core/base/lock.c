#define _GNU_SOURCE
#include "core/base/lock.h"

#include "core/base/assert.h"
#include "core/base/bits.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { FREE, HELD, WAITED_FOR }; /* the word */

/* Bit r: the thread holds a lock of rank r, is about to take one, or has just released one. A
 * thread never holds two locks of one rank, so the bits are exact, for a signal handler too. */
static __thread unsigned held_ranks __attribute__((tls_model("initial-exec")));

void gc_lock_init(struct gc_lock *lock, enum gc_lock_rank rank)
{
    atomic_init(&lock->word, FREE);
    lock->rank = rank;
}

/* False: the time is up. */
static bool futex(atomic_uint *word, int operation, unsigned value, const struct timespec *limit)
{
    const int saved_errno = errno;
    const bool is_late =
        syscall(SYS_futex, word, operation | FUTEX_PRIVATE_FLAG, value, limit, NULL, 0) != 0 &&
        errno == ETIMEDOUT;
    errno = saved_errno;
    return !is_late;
}

/* The word stays WAITED_FOR after the wake: other threads may sleep still. */
static __attribute__((noinline)) void acquire_slow(struct gc_lock *lock)
{
    /* Acquire, as in gc_lock_acquire: pairs with the release in gc_lock_release. */
    while (atomic_exchange_explicit(&lock->word, WAITED_FOR, memory_order_acquire) != FREE)
        (void)futex(&lock->word, FUTEX_WAIT, WAITED_FOR, NULL);
}

void gc_lock_acquire(struct gc_lock *lock)
{
    GC_ASSERT(held_ranks >> lock->rank == 0);
    held_ranks |= 1U << lock->rank;
    atomic_signal_fence(memory_order_seq_cst);
    unsigned expected = FREE;
    if (!GC_LIKELY(atomic_compare_exchange_strong_explicit(
            &lock->word, &expected, HELD, memory_order_acquire, memory_order_relaxed)))
        acquire_slow(lock);
}

void gc_lock_release(struct gc_lock *lock)
{
    GC_ASSERT(held_ranks >> lock->rank & 1U);
    if (!GC_LIKELY(atomic_exchange_explicit(&lock->word, FREE, memory_order_release) == HELD))
        (void)futex(&lock->word, FUTEX_WAKE, 1, NULL);
    atomic_signal_fence(memory_order_seq_cst);
    held_ranks &= ~(1U << lock->rank);
}

static bool wait(struct gc_lock *lock, struct gc_condition *condition, const struct timespec *limit)
{
    GC_ASSERT(held_ranks == 1U << lock->rank);
    /* Read under the lock: a later change is followed by a broadcast, after which the futex does
     * not sleep. */
    const unsigned changes = atomic_load_explicit(&condition->changes, memory_order_relaxed);
    gc_lock_release(lock);
    const bool is_in_time = futex(&condition->changes, FUTEX_WAIT, changes, limit);
    gc_lock_acquire(lock);
    return is_in_time;
}

void gc_lock_wait(struct gc_lock *lock, struct gc_condition *condition)
{
    (void)wait(lock, condition, NULL);
}

bool gc_lock_wait_for(struct gc_lock *lock, struct gc_condition *condition, uint64_t limit_ns)
{
    const uint64_t second_ns = 1000000000;
    const struct timespec limit = {(time_t)(limit_ns / second_ns), (long)(limit_ns % second_ns)};
    return wait(lock, condition, &limit);
}

void gc_lock_broadcast(struct gc_condition *condition)
{
    atomic_fetch_add_explicit(&condition->changes, 1, memory_order_relaxed);
    (void)futex(&condition->changes, FUTEX_WAKE, INT_MAX, NULL);
}

unsigned gc_lock_held_count(void)
{
    return (unsigned)__builtin_popcount(held_ranks);
}
