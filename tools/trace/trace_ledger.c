#include "tools/trace/trace_ledger.h"

#include <stdlib.h>

#define CAPACITY_MIN 1024

static size_t home(const struct trace_ledger *ledger, uint64_t address)
{
    const uint64_t mixed = (address ^ address >> 32) * UINT64_C(0x9e3779b97f4a7c15);
    return (size_t)(mixed >> 20) & (ledger->capacity - 1);
}

/* The slot that holds the address, or the empty one where it belongs. */
static size_t slot_of(const struct trace_ledger *ledger, uint64_t address)
{
    size_t slot = home(ledger, address);
    while (ledger->slots[slot].id != 0 && ledger->slots[slot].address != address)
        slot = (slot + 1) & (ledger->capacity - 1);
    return slot;
}

static enum gc_status grow(struct trace_ledger *ledger)
{
    struct trace_ledger larger = {.capacity =
                                      ledger->capacity > 0 ? ledger->capacity * 2 : CAPACITY_MIN,
                                  .count = ledger->count};
    larger.slots = calloc(larger.capacity, sizeof(*larger.slots));
    if (larger.slots == NULL)
        return GC_NO_HOST_MEMORY;
    for (size_t i = 0; i < ledger->capacity; i++) {
        if (ledger->slots[i].id != 0)
            larger.slots[slot_of(&larger, ledger->slots[i].address)] = ledger->slots[i];
    }
    free(ledger->slots);
    *ledger = larger;
    return GC_OK;
}

enum gc_status trace_ledger_add(struct trace_ledger *ledger,
                                const struct trace_allocation *allocation)
{
    if (ledger->count * 2 >= ledger->capacity) {
        const enum gc_status status = grow(ledger);
        if (status != GC_OK)
            return status;
    }
    ledger->slots[slot_of(ledger, allocation->address)] = *allocation;
    ledger->count++;
    return GC_OK;
}

/* Moves back the entries whose probe sequence crosses the empty slot (Knuth's algorithm R). */
static void close_gap(struct trace_ledger *ledger, size_t empty)
{
    const size_t mask = ledger->capacity - 1;
    for (size_t slot = (empty + 1) & mask; ledger->slots[slot].id != 0; slot = (slot + 1) & mask) {
        const size_t wanted = home(ledger, ledger->slots[slot].address);
        if (((slot - wanted) & mask) < ((slot - empty) & mask))
            continue;
        ledger->slots[empty] = ledger->slots[slot];
        empty = slot;
    }
    ledger->slots[empty].id = 0;
}

const struct trace_allocation *trace_ledger_find(const struct trace_ledger *ledger,
                                                 uint64_t address)
{
    if (ledger->count == 0)
        return NULL;
    const size_t slot = slot_of(ledger, address);
    return ledger->slots[slot].id != 0 ? &ledger->slots[slot] : NULL;
}

bool trace_ledger_remove(struct trace_ledger *ledger, uint64_t address,
                         struct trace_allocation *allocation)
{
    if (ledger->count == 0)
        return false;
    const size_t slot = slot_of(ledger, address);
    if (ledger->slots[slot].id == 0)
        return false;
    *allocation = ledger->slots[slot];
    close_gap(ledger, slot);
    ledger->count--;
    return true;
}

void trace_ledger_fini(struct trace_ledger *ledger)
{
    free(ledger->slots);
    *ledger = (struct trace_ledger){.slots = NULL};
}
