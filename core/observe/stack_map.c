#include "core/observe/stack_map.h"

#include "core/base/bits.h"

#include <stddef.h>

#define SLOTS_MIN (1U << 6)
#define SLOTS_MAX (1U << 16)
/* 64 + 128 + … + SLOTS_MAX. */
#define ALL_SLOTS (2 * SLOTS_MAX - SLOTS_MIN)

static uint64_t bytes_of(uint32_t slots)
{
    return slots * sizeof(struct gc_stack_map_entry);
}

enum gc_status gc_stack_map_init(struct gc_stack_map *map, struct gc_host_mem *host)
{
    map->host = host;
    for (unsigned i = 0; i < GC_STACK_MAP_SHARDS; i++) {
        struct gc_stack_map_shard *shard = &map->shards[i];
        gc_lock_init(&shard->lock, GC_RANK_STACKS);
        shard->tables = gc_host_mem_reserve(bytes_of(ALL_SLOTS));
        if (shard->tables == NULL)
            return GC_NO_HOST_MEMORY;
        shard->slots = shard->tables;
        shard->slot_count = SLOTS_MIN;
        gc_host_mem_count(host, bytes_of(SLOTS_MIN));
    }
    return GC_OK;
}

void gc_stack_map_fini(struct gc_stack_map *map)
{
    for (unsigned i = 0; i < GC_STACK_MAP_SHARDS; i++) {
        struct gc_stack_map_shard *shard = &map->shards[i];
        if (shard->tables == NULL)
            continue;
        gc_host_mem_uncount(map->host, bytes_of(2 * shard->slot_count - SLOTS_MIN));
        gc_host_mem_unreserve(shard->tables, bytes_of(ALL_SLOTS));
        shard->tables = NULL;
    }
}

static struct gc_stack_map_shard *shard_of(struct gc_stack_map *map, uint64_t key)
{
    return &map->shards[gc_mix_u64(key) % GC_STACK_MAP_SHARDS];
}

static uint32_t home_of(const struct gc_stack_map_shard *shard, uint64_t key)
{
    return (uint32_t)(gc_mix_u64(key) >> 32) % shard->slot_count;
}

/* The slot of the key, or the empty slot where it belongs; the caller holds the lock. */
static uint32_t seek_locked(const struct gc_stack_map_shard *shard, uint64_t key)
{
    uint32_t slot = home_of(shard, key);
    while (shard->slots[slot].stack != 0 && shard->slots[slot].key != key)
        slot = (slot + 1) % shard->slot_count;
    return slot;
}

/* Rehashes into the next table, which is still all zero. */
static void grow_locked(struct gc_stack_map *map, struct gc_stack_map_shard *shard)
{
    const struct gc_stack_map_entry *old = shard->slots;
    const uint32_t old_count = shard->slot_count;
    shard->slots += old_count;
    shard->slot_count *= 2;
    gc_host_mem_count(map->host, bytes_of(shard->slot_count));
    for (uint32_t i = 0; i < old_count; i++)
        if (old[i].stack != 0)
            shard->slots[seek_locked(shard, old[i].key)] = old[i];
}

/* A quarter of the slots stays empty. */
static bool is_full(const struct gc_stack_map_shard *shard)
{
    return shard->count >= shard->slot_count / 4 * 3;
}

bool gc_stack_map_set(struct gc_stack_map *map, const struct gc_stack_map_entry *entry,
                      struct gc_stack_map_entry *replaced)
{
    struct gc_stack_map_shard *shard = shard_of(map, entry->key);
    gc_lock_acquire(&shard->lock);
    if (is_full(shard) && shard->slot_count < SLOTS_MAX)
        grow_locked(map, shard);
    const uint32_t slot = seek_locked(shard, entry->key);
    *replaced = shard->slots[slot];
    const bool fits = replaced->stack != 0 || !is_full(shard);
    if (fits) {
        shard->count += replaced->stack == 0;
        shard->slots[slot] = *entry;
    }
    gc_lock_release(&shard->lock);
    return fits;
}

/* Closes the gap at `slot`: moves entries back that were displaced past it (backward-shift
 * deletion). */
static void close_gap_locked(struct gc_stack_map_shard *shard, uint32_t slot)
{
    const uint32_t mask = shard->slot_count - 1;
    uint32_t next = slot;
    for (;;) {
        next = (next + 1) & mask;
        const struct gc_stack_map_entry *entry = &shard->slots[next];
        if (entry->stack == 0)
            break;
        /* The entry stays if its home slot is after the gap. */
        if (((next - home_of(shard, entry->key)) & mask) < ((next - slot) & mask))
            continue;
        shard->slots[slot] = *entry;
        slot = next;
    }
    shard->slots[slot] = (struct gc_stack_map_entry){.stack = 0};
}

struct gc_stack_map_entry gc_stack_map_remove(struct gc_stack_map *map, uint64_t key)
{
    struct gc_stack_map_shard *shard = shard_of(map, key);
    gc_lock_acquire(&shard->lock);
    const uint32_t slot = seek_locked(shard, key);
    const struct gc_stack_map_entry entry = shard->slots[slot];
    if (entry.stack != 0) {
        close_gap_locked(shard, slot);
        shard->count--;
    }
    gc_lock_release(&shard->lock);
    return entry;
}

uint32_t gc_stack_map_find(struct gc_stack_map *map, uint64_t key)
{
    struct gc_stack_map_shard *shard = shard_of(map, key);
    gc_lock_acquire(&shard->lock);
    const uint32_t stack = shard->slots[seek_locked(shard, key)].stack;
    gc_lock_release(&shard->lock);
    return stack;
}
