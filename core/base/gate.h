/* A drain gate: threads enter and leave it. While the gate is closed no thread enters, and the
 * thread that closed it can wait until all threads inside have left. The algorithm is the kernel's
 * percpu_ref kill and drain, on one counter.
 *
 * Gates guard driver calls on a context or on a pool of the driver's, which must not be destroyed
 * during the call, and the submission of work, during which no memory may be moved. A thread counts
 * itself in before it reads the mode, and out when it is done. Both are sequentially consistent
 * with gc_gate_set: either the thread sees the gate closed or the closer sees the thread inside.
 *
 * Entering and leaving an open gate cost one atomic addition each. Waiting threads sleep on a
 * futex. Zeroed memory is an open gate. A gate's memory is never freed while the process runs,
 * since a thread may still read it right after it left. Thread-safe; gc_gate_set is for one thread
 * at a time: the thread that claimed the gate, or the one that the gate's owner chooses in another
 * way. */
#ifndef GC_BASE_GATE_H
#define GC_BASE_GATE_H

#include "core/base/assert.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum gc_gate_mode {
    GC_GATE_OPEN,
    GC_GATE_CLOSED,
    GC_GATE_GUARDED, /* open, but each thread checks, inside, whether it may stay */
    GC_GATE_GONE,    /* closed permanently: the guarded object is destroyed */
};

/* Bits of the word: the mode, whether a thread has claimed the gate, and whether threads that count
 * themselves elsewhere (core/device/submitter.c) need a fence of their own. The remaining bits
 * count changes. */
#define GC_GATE_MODES 3U
#define GC_GATE_CLAIMED 4U
#define GC_GATE_FENCED 8U
#define GC_GATE_CHANGE 16U
#define GC_GATE_FOREVER UINT32_MAX

struct gc_gate {
    atomic_uint inside;
    atomic_uint word;
};

static inline enum gc_gate_mode gc_gate_mode_of(uint32_t word)
{
    return (enum gc_gate_mode)(word & GC_GATE_MODES);
}

/* For gc_gate_wait: read before the awaited condition. */
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
    /* Sequentially consistent, as in gc_gate_drain: either this thread reads CLOSED below and wakes
     * the closer, or the closer reads the lower count. The closer then sees the work done inside.
     */
    if (atomic_fetch_sub_explicit(&gate->inside, 1, memory_order_seq_cst) == 1 &&
        __builtin_expect(gc_gate_mode_of(gc_gate_read(gate)) == GC_GATE_CLOSED, 0))
        gc_gate_wake_drain(gate);
}

/* Enters, and returns the mode. If the mode is CLOSED or GONE, the thread is outside again. */
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

bool gc_gate_enter_slow(struct gc_gate *gate);

/* Enters; waits up to 10 s while the gate is closed. False: the gate is gone, or it stayed closed
 * (gc_gate_is_gone distinguishes them). A gate stays closed if, for example, the closer hangs in
 * its driver while the process ends. The caller holds no lock and is inside no other gate. */
static inline bool gc_gate_enter(struct gc_gate *gate)
{
    return __builtin_expect((gc_gate_try_enter(gate) & 1U) == 0, 1) || gc_gate_enter_slow(gate);
}

/* Sleeps until gc_gate_set is called after `word` was read, up to `timeout_ms` (GC_GATE_FOREVER: no
 * bound). May return early. */
void gc_gate_wait(struct gc_gate *gate, uint32_t word, uint32_t timeout_ms);
/* Sets the mode and wakes the waiting threads. Any mode but CLOSED ends a claim. */
void gc_gate_set(struct gc_gate *gate, enum gc_gate_mode mode);
/* Wakes the waiting threads, and those about to wait, in the same mode: to look again at what else
 * they wait for. Any thread. */
void gc_gate_rouse(struct gc_gate *gate);
/* Opens a gate that is GONE, for a new object in the same memory. Wakes no thread: none sleeps at
 * such a gate. */
static inline void gc_gate_renew(struct gc_gate *gate)
{
    GC_ASSERT(gc_gate_mode_of(gc_gate_read(gate)) == GC_GATE_GONE);
    atomic_fetch_add_explicit(&gate->word, GC_GATE_CHANGE - GC_GATE_GONE, memory_order_seq_cst);
}
/* Waits up to `timeout_ms` until no thread is inside; returns whether none is. For a closed gate:
 * an open one lets new threads in. */
bool gc_gate_drain(struct gc_gate *gate, uint32_t timeout_ms);

/* Claims the right to close the gate; waits while another thread has it. False: the gate is
 * gone. */
bool gc_gate_claim(struct gc_gate *gate);
/* For the thread that claimed the gate: closes and drains it. Returns after 2 s even if a thread is
 * still inside: a context's teardown and the end of a process must not wait forever for a driver
 * call that hangs. */
void gc_gate_close(struct gc_gate *gate);

/* ---- the asymmetric barrier: membarrier(2), as in liburcu ---- */

/* At the start, before the first barrier. False: the process has no such barrier. */
bool gc_gate_register_barrier(void);
/* Each thread of the process makes a full fence at some moment of the call, so that the hot side of
 * a protocol needs none. Of a thread's load that came before that moment, all earlier loads and
 * stores have taken place when the call returns; a later load sees what the caller stored before
 * the call. False: the kernel refuses the barrier, at once or since a filter of system calls was
 * set. Preserves errno. */
bool gc_gate_make_barrier(void);
/* Sleeps longer than a store stays in any processor's store buffer: a running processor drains it
 * within microseconds, an interrupt or a thread switch at once. After a refused barrier, for the
 * threads that do not know of it yet. */
void gc_gate_wait_stores(void);

#endif
