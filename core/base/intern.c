#include "core/base/intern.h"

#include "core/base/bits.h"

#include <string.h>

#define UNIT 16U /* bytes; a number is an offset in units */

struct entry {
    uint64_t hash;
    uint32_t bytes;
    uint32_t unused;
    _Atomic uint64_t counters[GC_INTERN_COUNTERS];
    char string[];
};

static uint64_t slots_bytes(const struct gc_intern *intern)
{
    return intern->slot_count * sizeof(*intern->slots);
}

enum gc_status gc_intern_init(struct gc_intern *intern, struct gc_host_mem *host,
                              uint32_t slot_count, uint64_t room_bytes)
{
    *intern = (struct gc_intern){
        .host = host,
        .slot_count = slot_count,
        .room_bytes = gc_min_u64(room_bytes, (uint64_t)UNIT << 32),
        .used = UNIT, /* so that no string has number 0 */
    };
    intern->room = gc_host_mem_reserve(intern->room_bytes);
    if (intern->room == NULL)
        return GC_NO_HOST_MEMORY;
    intern->slots = gc_host_mem_reserve(slots_bytes(intern));
    if (intern->slots == NULL) {
        gc_host_mem_unreserve(intern->room, intern->room_bytes);
        intern->room = NULL;
        return GC_NO_HOST_MEMORY;
    }
    return GC_OK;
}

void gc_intern_fini(struct gc_intern *intern)
{
    if (intern->room == NULL)
        return;
    gc_host_mem_uncount(intern->host,
                        atomic_load_explicit(&intern->used, memory_order_relaxed) - UNIT);
    gc_host_mem_unreserve(intern->slots, slots_bytes(intern));
    gc_host_mem_unreserve(intern->room, intern->room_bytes);
    intern->room = NULL;
}

static struct entry *entry_of(const struct gc_intern *intern, uint32_t number)
{
    return (struct entry *)(intern->room + (uint64_t)number * UNIT);
}

static uint64_t hash_of(const unsigned char *string, uint32_t bytes)
{
    uint64_t hash = bytes;
    uint64_t word;
    uint32_t i = 0;
    for (; i + sizeof(word) <= bytes; i += sizeof(word)) {
        memcpy(&word, string + i, sizeof(word));
        hash = gc_mix_u64(hash ^ word);
    }
    for (; i < bytes; i++)
        hash = gc_mix_u64(hash ^ string[i]);
    return hash;
}

static bool is_same(const struct entry *entry, uint64_t hash, const void *string, uint32_t bytes)
{
    return entry->hash == hash && entry->bytes == bytes &&
           memcmp(entry->string, string, bytes) == 0;
}

/* A copy that no other thread can find yet; 0: the table is full. */
static uint32_t write_entry(struct gc_intern *intern, uint64_t hash, const void *string,
                            uint32_t bytes)
{
    uint64_t size;
    if (!gc_round_up_u64(sizeof(struct entry) + bytes, UNIT, &size))
        return 0;
    const uint64_t start = atomic_fetch_add_explicit(&intern->used, size, memory_order_relaxed);
    if (start > intern->room_bytes || size > intern->room_bytes - start) {
        atomic_fetch_sub_explicit(&intern->used, size, memory_order_relaxed);
        return 0;
    }
    gc_host_mem_count(intern->host, size);
    struct entry *entry = (struct entry *)(intern->room + start);
    entry->hash = hash;
    entry->bytes = bytes;
    memcpy(entry->string, string, bytes);
    return (uint32_t)(start / UNIT);
}

uint32_t gc_intern_add(struct gc_intern *intern, const void *string, uint32_t bytes)
{
    const uint64_t hash = hash_of(string, bytes);
    const uint32_t mask = intern->slot_count - 1;
    uint32_t written = 0;
    for (uint32_t probe = 0; probe <= mask; probe++) {
        _Atomic uint32_t *slot = &intern->slots[(hash + probe) & mask];
        /* Acquire: pairs with the exchange below, so that the entry is complete. */
        uint32_t number = atomic_load_explicit(slot, memory_order_acquire);
        if (number == 0) {
            if (written == 0 && (atomic_load_explicit(&intern->count, memory_order_relaxed) >
                                     intern->slot_count / 2 ||
                                 (written = write_entry(intern, hash, string, bytes)) == 0))
                return 0;
            if (atomic_compare_exchange_strong_explicit(
                    slot, &number, written, memory_order_acq_rel, memory_order_acquire)) {
                atomic_fetch_add_explicit(&intern->count, 1, memory_order_relaxed);
                return written;
            }
        }
        if (is_same(entry_of(intern, number), hash, string, bytes))
            return number;
    }
    return 0;
}

const void *gc_intern_string(const struct gc_intern *intern, uint32_t number, uint32_t *bytes)
{
    const struct entry *entry = entry_of(intern, number);
    *bytes = entry->bytes;
    return entry->string;
}

_Atomic uint64_t *gc_intern_counters(const struct gc_intern *intern, uint32_t number)
{
    return entry_of(intern, number)->counters;
}

void gc_intern_visit(const struct gc_intern *intern, void (*visit)(void *argument, uint32_t number),
                     void *argument)
{
    for (uint32_t i = 0; i < intern->slot_count; i++) {
        const uint32_t number = atomic_load_explicit(&intern->slots[i], memory_order_acquire);
        if (number != 0)
            visit(argument, number);
    }
}
