#include "core/observe/stack_map.h"

#include "core/base/bits.h"

#define SLOTS_MIN (1U << 6)
#define SLOTS_MAX (1U << 16)
/* 64, 128 and so on, up to SLOTS_MAX. */
#define ROOM_SLOTS (2 * SLOTS_MAX - SLOTS_MIN)

static uint64_t bytes_of(uint32_t slots)
{
    return slots * sizeof(struct gc_stack_map_entry);
}

enum gc_status gc_stack_map_init(struct gc_stack_map *places, struct gc_host_mem *host)
{
    places->host = host;
    for (unsigned i = 0; i < GC_STACK_MAP_SHARDS; i++) {
        struct gc_stack_map_shard *shard = &places->shards[i];
        gc_lock_init(&shard->lock, GC_RANK_STACKS);
        shard->room = gc_host_mem_reserve(bytes_of(ROOM_SLOTS));
        if (shard->room == NULL)
            return GC_NO_HOST_MEMORY;
        shard->places = shard->room;
        shard->slot_count = SLOTS_MIN;
        gc_host_mem_count(host, bytes_of(SLOTS_MIN));
    }
    return GC_OK;
}

void gc_stack_map_fini(struct gc_stack_map *places)
{
    for (unsigned i = 0; i < GC_STACK_MAP_SHARDS; i++) {
        struct gc_stack_map_shard *shard = &places->shards[i];
        if (shard->room == NULL)
            continue;
        gc_host_mem_uncount(places->host, bytes_of(2 * shard->slot_count - SLOTS_MIN));
        gc_host_mem_unreserve(shard->room, bytes_of(ROOM_SLOTS));
        shard->room = NULL;
        gc_lock_fini(&shard->lock);
    }
}

static struct gc_stack_map_shard *shard_of(struct gc_stack_map *places, uint64_t key)
{
    return &places->shards[gc_mix_u64(key) % GC_STACK_MAP_SHARDS];
}

static uint32_t home_of(const struct gc_stack_map_shard *shard, uint64_t key)
{
    return (uint32_t)(gc_mix_u64(key) >> 32) % shard->slot_count;
}

/* Where the key is, or the empty slot where it would be; under the lock. */
static uint32_t seek_locked(const struct gc_stack_map_shard *shard, uint64_t key)
{
    uint32_t slot = home_of(shard, key);
    while (shard->places[slot].stack != 0 && shard->places[slot].key != key)
        slot = (slot + 1) % shard->slot_count;
    return slot;
}

/* Goes over to the next table, which nothing was ever written to. */
static void grow_locked(struct gc_stack_map *places, struct gc_stack_map_shard *shard)
{
    const struct gc_stack_map_entry *old = shard->places;
    const uint32_t old_count = shard->slot_count;
    shard->places += old_count;
    shard->slot_count *= 2;
    gc_host_mem_count(places->host, bytes_of(shard->slot_count));
    for (uint32_t i = 0; i < old_count; i++)
        if (old[i].stack != 0)
            shard->places[seek_locked(shard, old[i].key)] = old[i];
}

/* A quarter of the slots stays empty. */
static bool is_full(const struct gc_stack_map_shard *shard)
{
    return shard->count >= shard->slot_count / 4 * 3;
}

bool gc_stack_map_set(struct gc_stack_map *places, const struct gc_stack_map_entry *place,
                      struct gc_stack_map_entry *replaced)
{
    struct gc_stack_map_shard *shard = shard_of(places, place->key);
    gc_lock_acquire(&shard->lock);
    if (is_full(shard) && shard->slot_count < SLOTS_MAX)
        grow_locked(places, shard);
    const uint32_t slot = seek_locked(shard, place->key);
    *replaced = shard->places[slot];
    const bool has_room = replaced->stack != 0 || !is_full(shard);
    if (has_room) {
        shard->count += replaced->stack == 0;
        shard->places[slot] = *place;
    }
    gc_lock_release(&shard->lock);
    return has_room;
}

/* Closes the gap at `slot`: what was pushed behind its own place by it moves forward. */
static void close_gap_locked(struct gc_stack_map_shard *shard, uint32_t slot)
{
    const uint32_t mask = shard->slot_count - 1;
    uint32_t next = slot;
    for (;;) {
        next = (next + 1) & mask;
        const struct gc_stack_map_entry *place = &shard->places[next];
        if (place->stack == 0)
            break;
        /* Stays if its home lies behind the gap, seen from where it is. */
        if (((next - home_of(shard, place->key)) & mask) < ((next - slot) & mask))
            continue;
        shard->places[slot] = *place;
        slot = next;
    }
    shard->places[slot] = (struct gc_stack_map_entry){.stack = 0};
}

struct gc_stack_map_entry gc_stack_map_remove(struct gc_stack_map *places, uint64_t key)
{
    struct gc_stack_map_shard *shard = shard_of(places, key);
    gc_lock_acquire(&shard->lock);
    const uint32_t slot = seek_locked(shard, key);
    const struct gc_stack_map_entry place = shard->places[slot];
    if (place.stack != 0) {
        close_gap_locked(shard, slot);
        shard->count--;
    }
    gc_lock_release(&shard->lock);
    return place;
}

uint32_t gc_stack_map_find(struct gc_stack_map *places, uint64_t key)
{
    struct gc_stack_map_shard *shard = shard_of(places, key);
    gc_lock_acquire(&shard->lock);
    const uint32_t stack = shard->places[seek_locked(shard, key)].stack;
    gc_lock_release(&shard->lock);
    return stack;
}
