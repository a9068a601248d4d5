#include "core/turnstile.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static void futex(atomic_uint *word, int operation, unsigned value, const struct timespec *timeout)
{
    const int kept_errno = errno;
    syscall(SYS_futex, word, operation | FUTEX_PRIVATE_FLAG, value, timeout, NULL, 0);
    errno = kept_errno;
}

bool gc_turnstile_await_open(struct gc_turnstile *turnstile, uint32_t timeout_ms)
{
    const struct timespec timeout = {timeout_ms / 1000, (long)(timeout_ms % 1000) * 1000000};
    while (gc_turnstile_is_closed(turnstile)) {
        futex(&turnstile->is_closed, FUTEX_WAIT, 1,
              timeout_ms == GC_TURNSTILE_FOREVER ? NULL : &timeout);
        if (timeout_ms != GC_TURNSTILE_FOREVER)
            return !gc_turnstile_is_closed(turnstile);
    }
    return true;
}

void gc_turnstile_close(struct gc_turnstile *turnstile)
{
    atomic_store_explicit(&turnstile->is_closed, 1, memory_order_seq_cst);
}

void gc_turnstile_open(struct gc_turnstile *turnstile)
{
    /* Release: who comes in sees the memory where it is now. */
    atomic_store_explicit(&turnstile->is_closed, 0, memory_order_release);
    futex(&turnstile->is_closed, FUTEX_WAKE, INT_MAX, NULL);
}

bool gc_turnstile_is_empty(const struct gc_turnstile *turnstile)
{
    /* Acquire, by its order: pairs with the release in gc_turnstile_leave. */
    return atomic_load_explicit(&turnstile->inside, memory_order_seq_cst) == 0;
}
