/* The turnstile that work passes on its way to the driver. While it is closed nothing is submitted:
 * memory may be moved then. Whoever passes counts itself in before it looks and out when the driver
 * has the work, so that a closer who sees nobody inside knows that no work is on its way.
 *
 * An open turnstile costs two atomic additions. Threads that find it closed sleep until it opens;
 * the closer asks gc_turnstile_is_empty again and again, since a thread inside may be in the driver
 * for as long as work it waits for runs. Thread-safe; closing is the business of one at a time. */
#ifndef GC_TURNSTILE_H
#define GC_TURNSTILE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct gc_turnstile {
    _Alignas(64) atomic_uint inside;
    atomic_uint is_closed; /* a futex */
};

static inline void gc_turnstile_leave(struct gc_turnstile *turnstile)
{
    /* Release: pairs with the acquire in gc_turnstile_is_empty. */
    atomic_fetch_sub_explicit(&turnstile->inside, 1, memory_order_release);
}

/* True: inside. False: it is closed, and the caller is outside. */
static inline bool gc_turnstile_try_enter(struct gc_turnstile *turnstile)
{
    /* Sequentially consistent, as in gc_turnstile_close: either this sees it closed, or that sees
     * us. */
    atomic_fetch_add_explicit(&turnstile->inside, 1, memory_order_seq_cst);
    if (__builtin_expect(atomic_load_explicit(&turnstile->is_closed, memory_order_seq_cst) == 0, 1))
        return true;
    gc_turnstile_leave(turnstile);
    return false;
}

void gc_turnstile_close(struct gc_turnstile *turnstile);
void gc_turnstile_open(struct gc_turnstile *turnstile);
static inline bool gc_turnstile_is_closed(const struct gc_turnstile *turnstile)
{
    return atomic_load_explicit(&turnstile->is_closed, memory_order_acquire) != 0;
}
/* Whether everybody has left. One look. */
bool gc_turnstile_is_empty(const struct gc_turnstile *turnstile);
/* Waits until it is open, for who is outside; GC_TURNSTILE_FOREVER, or that long at most. False: it
 * is closed still. */
bool gc_turnstile_await_open(struct gc_turnstile *turnstile, uint32_t timeout_ms);
#define GC_TURNSTILE_FOREVER UINT32_MAX

#endif
