#include "core/base/turnstile.h"

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

void gc_turnstile_await(struct gc_turnstile *turnstile, uint32_t word, uint32_t timeout_ms)
{
    const struct timespec timeout = {timeout_ms / 1000, (long)(timeout_ms % 1000) * 1000000};
    futex(&turnstile->word, FUTEX_WAIT, word, timeout_ms == GC_TURNSTILE_FOREVER ? NULL : &timeout);
}

void gc_turnstile_set(struct gc_turnstile *turnstile, enum gc_turnstile_mode mode)
{
    const uint32_t changes = gc_turnstile_read(turnstile) & ~GC_TURNSTILE_MODES;
    /* Who comes in sees the memory where it is now. */
    atomic_store_explicit(&turnstile->word, (changes + GC_TURNSTILE_MODES + 1) | (unsigned)mode,
                          memory_order_seq_cst);
    futex(&turnstile->word, FUTEX_WAKE, INT_MAX, NULL);
}

bool gc_turnstile_is_empty(const struct gc_turnstile *turnstile)
{
    /* Acquire, by its order: pairs with the release in gc_turnstile_leave. */
    return atomic_load_explicit(&turnstile->inside, memory_order_seq_cst) == 0;
}
