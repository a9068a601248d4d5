/* The live allocations during a walk: address → allocation. Open addressing with linear probing and
 * backward-shift deletion, so look-ups stay short however long the trace is. */
#ifndef GC_TRACE_LEDGER_H
#define GC_TRACE_LEDGER_H

#include "core/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct trace_allocation {
    uint64_t address;
    uint64_t id; /* from 1; 0 in an empty slot */
    uint64_t bytes;
    uint64_t stream;
    uint64_t begin_ns; /* since the first event */
    uint32_t thread;
    uint32_t stack; /* number in the trace; 0: unknown */
    uint16_t api;
    uint8_t device;
    bool is_apart; /* outside the known memory of the pools */
};

struct trace_ledger {
    struct trace_allocation *slots;
    size_t capacity; /* a power of two, 0 before the first add */
    size_t count;
};

/* The address must not be present. */
enum gc_status trace_ledger_add(struct trace_ledger *ledger,
                                const struct trace_allocation *allocation) GC_CHECKED;
/* NULL if the address is not present. Valid until the next add or removal. */
const struct trace_allocation *trace_ledger_find(const struct trace_ledger *ledger,
                                                 uint64_t address);
/* False if the address is not present. */
bool trace_ledger_remove(struct trace_ledger *ledger, uint64_t address,
                         struct trace_allocation *allocation);
void trace_ledger_fini(struct trace_ledger *ledger);

#endif
