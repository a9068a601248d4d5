#define _GNU_SOURCE
#include "core/base/gate.h"

#include "core/base/assert.h"
#include "core/base/clock.h"
#include "core/base/lock.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define STORES_ARE_SEEN_NS 20000000
#define DRAIN_MS 2000   /* how long a closer waits for the threads inside */
#define CLOSED_MS 10000 /* how long a thread waits at a closed gate */

static void sleep_on(atomic_uint *word, unsigned value, uint32_t timeout_ms)
{
    (void)gc_lock_sleep_on(
        word, value, timeout_ms == GC_GATE_FOREVER ? UINT64_MAX : (uint64_t)timeout_ms * 1000000);
}

void gc_gate_wake_drain(struct gc_gate *gate)
{
    gc_lock_wake(&gate->inside, true);
}

void gc_gate_wait(struct gc_gate *gate, uint32_t word, uint32_t timeout_ms)
{
    sleep_on(&gate->word, word, timeout_ms);
}

void gc_gate_set(struct gc_gate *gate, enum gc_gate_mode mode)
{
    uint32_t word = gc_gate_read(gate);
    uint32_t next;
    do {
        const uint32_t claim = mode == GC_GATE_CLOSED ? word & GC_GATE_CLAIMED : 0;
        const uint32_t changes = word & ~(GC_GATE_MODES | GC_GATE_CLAIMED);
        next = (changes + GC_GATE_CHANGE) | claim | (uint32_t)mode;
    } while (!atomic_compare_exchange_weak_explicit(&gate->word, &word, next, memory_order_seq_cst,
                                                    memory_order_seq_cst));
    gc_lock_wake(&gate->word, true);
}

void gc_gate_rouse(struct gc_gate *gate)
{
    atomic_fetch_add_explicit(&gate->word, GC_GATE_CHANGE, memory_order_seq_cst);
    gc_lock_wake(&gate->word, true);
}

bool gc_gate_enter_slow(struct gc_gate *gate)
{
    const int64_t end_ms = gc_clock_ms() + CLOSED_MS;
    GC_ASSERT(gc_lock_held_count() == 0);
    for (;;) {
        const uint32_t word = gc_gate_read(gate);
        const enum gc_gate_mode mode =
            gc_gate_mode_of(word) == GC_GATE_CLOSED ? GC_GATE_CLOSED : gc_gate_try_enter(gate);
        const int64_t left_ms = end_ms - gc_clock_ms();
        if (mode != GC_GATE_CLOSED)
            return mode != GC_GATE_GONE;
        if (left_ms <= 0)
            return false;
        gc_gate_wait(gate, word, (uint32_t)left_ms);
    }
}

bool gc_gate_drain(struct gc_gate *gate, uint32_t timeout_ms)
{
    const int64_t end_ms = gc_clock_ms() + timeout_ms;
    for (;;) {
        const unsigned inside = atomic_load_explicit(&gate->inside, memory_order_seq_cst);
        const int64_t left_ms = end_ms - gc_clock_ms();
        if (inside == 0 || left_ms <= 0)
            return inside == 0;
        sleep_on(&gate->inside, inside, (uint32_t)left_ms);
    }
}

bool gc_gate_claim(struct gc_gate *gate)
{
    uint32_t word = gc_gate_read(gate);
    GC_ASSERT(gc_lock_held_count() == 0);
    for (;;) {
        if (gc_gate_mode_of(word) == GC_GATE_GONE)
            return false;
        if ((word & GC_GATE_CLAIMED) != 0) {
            gc_gate_wait(gate, word, GC_GATE_FOREVER);
            word = gc_gate_read(gate);
        } else if (atomic_compare_exchange_weak_explicit(&gate->word, &word, word | GC_GATE_CLAIMED,
                                                         memory_order_seq_cst,
                                                         memory_order_seq_cst)) {
            return true;
        }
    }
}

void gc_gate_close(struct gc_gate *gate)
{
    GC_ASSERT(gc_lock_held_count() == 0);
    gc_gate_set(gate, GC_GATE_CLOSED);
    (void)gc_gate_drain(gate, DRAIN_MS);
}

/* ---- the asymmetric barrier ---- */

static bool call_membarrier(int command)
{
    const int saved_errno = errno;
    const bool is_made = syscall(SYS_membarrier, command, 0) == 0;
    errno = saved_errno;
    return is_made;
}

bool gc_gate_register_barrier(void)
{
#ifdef __SANITIZE_THREAD__
    return false; /* the thread sanitizer does not model it */
#else
    return call_membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
#endif
}

bool gc_gate_make_barrier(void)
{
    return call_membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
}

void gc_gate_wait_stores(void)
{
    struct timespec left = {0, STORES_ARE_SEEN_NS};
    while (clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left) == EINTR)
        ;
}
