#include "core/base/lock.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SPINS_BEFORE_SLEEP 100 /* a holder's work is short */
#define SECOND_NS UINT64_C(1000000000)

__thread unsigned gc_lock_held_ranks __attribute__((tls_model("initial-exec")));

/* ---- futexes ---- */

bool gc_lock_sleep_on(atomic_uint *word, unsigned value, uint64_t limit_ns)
{
    const int saved_errno = errno;
    const struct timespec limit = {(time_t)(limit_ns / SECOND_NS), (long)(limit_ns % SECOND_NS)};
    const bool is_over = syscall(SYS_futex, word, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, value,
                                 limit_ns == UINT64_MAX ? NULL : &limit, NULL, 0) != 0 &&
                         errno == ETIMEDOUT;
    errno = saved_errno;
    return !is_over;
}

void gc_lock_wake(atomic_uint *word, bool all)
{
    const int saved_errno = errno;
    (void)syscall(SYS_futex, word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, all ? INT_MAX : 1, NULL, NULL,
                  0);
    errno = saved_errno;
}

/* ---- locks ---- */

static inline void pause_processor(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");
#endif
}

void gc_lock_acquire_wanted(struct gc_lock *lock)
{
    for (unsigned i = 0; i < SPINS_BEFORE_SLEEP; i++) {
        unsigned word = GC_LOCK_FREE;
        if (atomic_load_explicit(&lock->word, memory_order_relaxed) == GC_LOCK_FREE &&
            atomic_compare_exchange_strong_explicit(&lock->word, &word, GC_LOCK_HELD,
                                                    memory_order_acquire, memory_order_relaxed))
            return;
        pause_processor();
    }
    /* Others may sleep besides this thread, so the lock is taken as wanted. */
    while (atomic_exchange_explicit(&lock->word, GC_LOCK_WANTED, memory_order_acquire) !=
           GC_LOCK_FREE)
        (void)gc_lock_sleep_on(&lock->word, GC_LOCK_WANTED, UINT64_MAX);
}

/* ---- conditions ---- */

bool gc_lock_wait_for(struct gc_lock *lock, struct gc_condition *condition, uint64_t limit_ns)
{
    GC_ASSERT(gc_lock_held_ranks == 1U << lock->rank);
    /* Sequentially consistent, as in gc_lock_broadcast: either that call sees the thread waiting,
     * or the count of changes read here is the later one, and what it announces is seen. */
    atomic_fetch_add_explicit(&condition->waiting, 1, memory_order_seq_cst);
    const unsigned changes = atomic_load_explicit(&condition->changes, memory_order_seq_cst);
    gc_lock_release(lock);
    const bool is_in_time = gc_lock_sleep_on(&condition->changes, changes, limit_ns);
    atomic_fetch_sub_explicit(&condition->waiting, 1, memory_order_relaxed);
    gc_lock_acquire(lock);
    return is_in_time;
}

void gc_lock_wait(struct gc_lock *lock, struct gc_condition *condition)
{
    (void)gc_lock_wait_for(lock, condition, UINT64_MAX);
}

void gc_lock_broadcast(struct gc_condition *condition)
{
    atomic_fetch_add_explicit(&condition->changes, 1, memory_order_seq_cst);
    if (atomic_load_explicit(&condition->waiting, memory_order_seq_cst) != 0)
        gc_lock_wake(&condition->changes, true);
}
