/* A gate that threads pass and that can be drained: while it is closed nobody enters, and the
 * thread that closed it can wait until everybody inside has left. The idea is the kernel's
 * percpu_ref kill and drain, on one counter.
 *
 * It stands before the driver calls on a context, which must not be destroyed meanwhile, and before
 * the submission of work, under which memory must not be moved. A thread counts itself in before it
 * reads the mode and out when it is done; both are sequentially consistent with gc_gate_set, so
 * that either the thread sees the gate closed or the closer sees the thread inside.
 *
 * Entering and leaving an open gate cost one atomic addition each. Threads that wait sleep on a
 * futex. Zeroed memory is an open gate. A gate's memory is never freed while the process runs,
 * since a thread may still read it right after it left. Thread-safe; gc_gate_set is for one thread
 * at a time: the one that claimed the gate, or whatever else the gate's owner arranges. */
#ifndef GC_BASE_GATE_H
#define GC_BASE_GATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum gc_gate_mode {
    GC_GATE_OPEN,
    GC_GATE_CLOSED,
    GC_GATE_GUARDED, /* open, but each thread asks, inside, whether it may stay */
    GC_GATE_GONE,    /* closed forever: the guarded object is destroyed */
};

/* Bits of the word: the mode, whether a thread has claimed the gate; the others count changes. */
#define GC_GATE_MODES 3U
#define GC_GATE_CLAIMED 4U
#define GC_GATE_CHANGE 8U
#define GC_GATE_FOREVER UINT32_MAX

struct gc_gate {
    atomic_uint inside;
    atomic_uint word;
};

static inline enum gc_gate_mode gc_gate_mode_of(uint32_t word)
{
    return (enum gc_gate_mode)(word & GC_GATE_MODES);
}

/* For gc_gate_wait: read before the condition that is waited for. */
static inline uint32_t gc_gate_read(const struct gc_gate *gate)
{
    return atomic_load_explicit(&gate->word, memory_order_seq_cst);
}

static inline bool gc_gate_is_gone(const struct gc_gate *gate)
{
    return gc_gate_mode_of(atomic_load_explicit(&gate->word, memory_order_acquire)) == GC_GATE_GONE;
}

void gc_gate_wake_drain(struct gc_gate *gate);

static inline void gc_gate_leave(struct gc_gate *gate)
{
    /* Releases what was done inside to the loads in gc_gate_drain. */
    if (atomic_fetch_sub_explicit(&gate->inside, 1, memory_order_seq_cst) == 1 &&
        __builtin_expect(gc_gate_mode_of(gc_gate_read(gate)) == GC_GATE_CLOSED, 0))
        gc_gate_wake_drain(gate);
}

/* Enters, and returns the mode; the thread is outside again where that is CLOSED or GONE. */
static inline enum gc_gate_mode gc_gate_try_enter(struct gc_gate *gate)
{
    atomic_fetch_add_explicit(&gate->inside, 1, memory_order_seq_cst);
    const enum gc_gate_mode mode = gc_gate_mode_of(gc_gate_read(gate));
    if (__builtin_expect((mode & 1U) != 0, 0))
        gc_gate_leave(gate);
    return mode;
}
_Static_assert((GC_GATE_CLOSED & 1) != 0 && (GC_GATE_GONE & 1) != 0 && (GC_GATE_OPEN & 1) == 0 &&
                   (GC_GATE_GUARDED & 1) == 0,
               "the lowest bit keeps threads out");

bool gc_gate_enter_slowly(struct gc_gate *gate);

/* Enters, and waits while the gate is closed, 10 s at most. False: the gate is gone; or it stayed
 * closed and nothing is known (gc_gate_is_gone tells), as when a process ends while the closer
 * hangs in its driver. The caller holds no lock and is inside no other gate. */
static inline bool gc_gate_enter(struct gc_gate *gate)
{
    return __builtin_expect((gc_gate_try_enter(gate) & 1U) == 0, 1) || gc_gate_enter_slowly(gate);
}

/* Sleeps until gc_gate_set is called after `word` was read; `timeout_ms` at most, or
 * GC_GATE_FOREVER. May return early. */
void gc_gate_wait(struct gc_gate *gate, uint32_t word, uint32_t timeout_ms);
/* Sets the mode and wakes the threads that wait. Any mode but CLOSED ends a claim. */
void gc_gate_set(struct gc_gate *gate, enum gc_gate_mode mode);
/* Waits until nobody is inside, `timeout_ms` at most; returns whether nobody is. For a closed gate;
 * through one that is not closed threads keep coming. */
bool gc_gate_drain(struct gc_gate *gate, uint32_t timeout_ms);

/* Claims the right to close the gate; waits while another thread has it. False: the gate is gone.
 */
bool gc_gate_claim(struct gc_gate *gate);
/* For the thread that claimed it: closes and drains the gate. Returns after 2 s also where a thread
 * is still inside: the teardown of a context, and the end of a process, do not wait forever for a
 * driver call that hangs. */
void gc_gate_close(struct gc_gate *gate);

#endif
