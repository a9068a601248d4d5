#include "core/turnstile.h"

#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define POLL_NS 100000
#define POLLS_PER_MS (1000000 / POLL_NS)

static long futex(atomic_uint *word, int operation, unsigned value)
{
    return syscall(SYS_futex, word, operation | FUTEX_PRIVATE_FLAG, value, NULL, NULL, 0);
}

void gc_turnstile_await_open(struct gc_turnstile *turnstile)
{
    while (gc_turnstile_is_closed(turnstile))
        futex(&turnstile->is_closed, FUTEX_WAIT, 1);
}

void gc_turnstile_wait(struct gc_turnstile *turnstile)
{
    while (gc_turnstile_is_closed(turnstile)) {
        gc_turnstile_leave(turnstile);
        gc_turnstile_await_open(turnstile);
        atomic_fetch_add_explicit(&turnstile->inside, 1, memory_order_seq_cst);
    }
}

void gc_turnstile_close(struct gc_turnstile *turnstile)
{
    atomic_store_explicit(&turnstile->is_closed, 1, memory_order_seq_cst);
}

void gc_turnstile_open(struct gc_turnstile *turnstile)
{
    /* Release: who comes in sees the memory where it is now. */
    atomic_store_explicit(&turnstile->is_closed, 0, memory_order_release);
    futex(&turnstile->is_closed, FUTEX_WAKE, INT_MAX);
}

bool gc_turnstile_await_empty(struct gc_turnstile *turnstile, uint32_t timeout_ms)
{
    const struct timespec pause = {0, POLL_NS};
    for (uint64_t i = 0; i <= (uint64_t)timeout_ms * POLLS_PER_MS; i++) {
        if (atomic_load_explicit(&turnstile->inside, memory_order_seq_cst) == 0)
            return true;
        nanosleep(&pause, NULL);
    }
    return false;
}
