/* The turnstile that work passes on its way to the driver. While it is closed nothing is submitted:
 * memory may be moved then. Whoever passes counts itself in before it looks and out when the driver
 * has the work, so that a closer who sees nobody inside knows that no work is on its way. While it
 * is guarded who comes in asks whether it may be there, and leaves again if not.
 *
 * An open turnstile costs two atomic additions. Threads that find it closed sleep until it opens;
 * the closer asks gc_turnstile_is_empty again and again, since a thread inside may be in the driver
 * for as long as work it waits for runs. Thread-safe; gc_turnstile_set is the business of one at a
 * time. */
#ifndef GC_TURNSTILE_H
#define GC_TURNSTILE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum gc_turnstile_mode { GC_TURNSTILE_OPEN, GC_TURNSTILE_CLOSED, GC_TURNSTILE_GUARDED };

#define GC_TURNSTILE_MODES                                                                         \
    3U /* the bits of the word that are the mode; the others count changes                         \
        */
#define GC_TURNSTILE_FOREVER UINT32_MAX

struct gc_turnstile {
    _Alignas(64) atomic_uint inside;
    atomic_uint word; /* a futex */
};

static inline enum gc_turnstile_mode gc_turnstile_mode_of(uint32_t word)
{
    return (enum gc_turnstile_mode)(word & GC_TURNSTILE_MODES);
}

static inline void gc_turnstile_leave(struct gc_turnstile *turnstile)
{
    /* Release: pairs with the acquire in gc_turnstile_is_empty. */
    atomic_fetch_sub_explicit(&turnstile->inside, 1, memory_order_release);
}

/* Counts itself in, and says what it finds; outside again where that is GC_TURNSTILE_CLOSED. Where
 * it is GUARDED the caller asks, inside, whether it may stay. */
static inline enum gc_turnstile_mode gc_turnstile_enter(struct gc_turnstile *turnstile)
{
    /* Sequentially consistent, as in gc_turnstile_set: either this sees it closed, or that sees us.
     */
    atomic_fetch_add_explicit(&turnstile->inside, 1, memory_order_seq_cst);
    const enum gc_turnstile_mode mode =
        gc_turnstile_mode_of(atomic_load_explicit(&turnstile->word, memory_order_seq_cst));
    if (__builtin_expect(mode == GC_TURNSTILE_CLOSED, 0))
        gc_turnstile_leave(turnstile);
    return mode;
}

/* For gc_turnstile_await: read before what is waited for is looked at. */
static inline uint32_t gc_turnstile_read(const struct gc_turnstile *turnstile)
{
    return atomic_load_explicit(&turnstile->word, memory_order_seq_cst);
}
/* Sleeps until gc_turnstile_set is called after `word` was read; GC_TURNSTILE_FOREVER, or
 * `timeout_ms` at most. May return before. */
void gc_turnstile_await(struct gc_turnstile *turnstile, uint32_t word, uint32_t timeout_ms);
/* And wakes who waits. */
void gc_turnstile_set(struct gc_turnstile *turnstile, enum gc_turnstile_mode mode);
/* Whether everybody has left. */
bool gc_turnstile_is_empty(const struct gc_turnstile *turnstile);

#endif
