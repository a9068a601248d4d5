/* The gate that work passes on its way to the driver. While it is closed nothing is submitted:
 * memory may be moved then. Whoever passes counts itself in before it looks and out when the driver
 * has the work, so that a closer who sees nobody inside knows that no work is on its way.
 *
 * An open gate costs two atomic additions. Threads that find it closed sleep until it opens; an
 * asker of gc_gate_await_empty polls, since a thread inside may be in the driver for as long as
 * work it waits for runs. Thread-safe; closing is the business of one at a time. */
#ifndef GC_GATE_H
#define GC_GATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct gc_gate {
    _Alignas(64) atomic_uint inside;
    atomic_uint is_closed; /* a futex */
};

/* Waits until it is open, and is inside then. */
void gc_gate_wait(struct gc_gate *gate);

static inline void gc_gate_enter(struct gc_gate *gate)
{
    /* Sequentially consistent, as in gc_gate_close: either this sees it closed, or that sees us. */
    atomic_fetch_add_explicit(&gate->inside, 1, memory_order_seq_cst);
    if (__builtin_expect(atomic_load_explicit(&gate->is_closed, memory_order_seq_cst) != 0, 0))
        gc_gate_wait(gate);
}

static inline void gc_gate_leave(struct gc_gate *gate)
{
    /* Release: pairs with the acquire in gc_gate_await_empty. */
    atomic_fetch_sub_explicit(&gate->inside, 1, memory_order_release);
}

void gc_gate_close(struct gc_gate *gate);
void gc_gate_open(struct gc_gate *gate);
static inline bool gc_gate_is_closed(const struct gc_gate *gate)
{
    return atomic_load_explicit(&gate->is_closed, memory_order_acquire) != 0;
}
/* Whether everybody has left; waits for that, `timeout_ms` at most. */
bool gc_gate_await_empty(struct gc_gate *gate, uint32_t timeout_ms);

#endif
