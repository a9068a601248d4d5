#include "core/gate.h"

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

void gc_gate_wait(struct gc_gate *gate)
{
    while (gc_gate_is_closed(gate)) {
        gc_gate_leave(gate);
        while (gc_gate_is_closed(gate))
            futex(&gate->is_closed, FUTEX_WAIT, 1);
        atomic_fetch_add_explicit(&gate->inside, 1, memory_order_seq_cst);
    }
}

void gc_gate_close(struct gc_gate *gate)
{
    atomic_store_explicit(&gate->is_closed, 1, memory_order_seq_cst);
}

void gc_gate_open(struct gc_gate *gate)
{
    /* Release: who comes in sees the memory where it is now. */
    atomic_store_explicit(&gate->is_closed, 0, memory_order_release);
    futex(&gate->is_closed, FUTEX_WAKE, INT_MAX);
}

bool gc_gate_await_empty(struct gc_gate *gate, uint32_t timeout_ms)
{
    const struct timespec pause = {0, POLL_NS};
    for (uint64_t i = 0; i <= (uint64_t)timeout_ms * POLLS_PER_MS; i++) {
        if (atomic_load_explicit(&gate->inside, memory_order_seq_cst) == 0)
            return true;
        nanosleep(&pause, NULL);
    }
    return false;
}
