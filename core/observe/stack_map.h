/* Which stack a live allocation has: a table from address to stack, in 64 shards, each with a lock
 * that is the last in rank. Open addressing; a removal moves the entries behind it forward, so that
 * no marks of removed ones add up.
 *
 * A shard begins small and doubles, up to a fixed number of entries: what it costs follows what is
 * live. The tables of all sizes lie one behind the other in addresses that were reserved, so it
 * grows under its lock without a system call. */
#ifndef GC_STACK_MAP_H
#define GC_STACK_MAP_H

#include "core/base/host_mem.h"
#include "core/base/lock.h"
#include "core/base/status.h"

#include <stdbool.h>
#include <stdint.h>

#define GC_STACK_MAP_SHARDS 64U

/* A live allocation; stack 0: none. */
struct gc_stack_map_entry {
    uint64_t key;
    uint64_t bytes;
    uint32_t stack;
};

struct gc_stack_map_shard {
    struct gc_lock lock;
    struct gc_stack_map_entry *room;   /* tables of all sizes, the smallest first */
    struct gc_stack_map_entry *places; /* the one in use */
    uint32_t slot_count;               /* of it; a power of two */
    uint32_t count;
};

struct gc_stack_map {
    struct gc_host_mem *host;
    struct gc_stack_map_shard shards[GC_STACK_MAP_SHARDS];
};

/* In memory that is all zero. GC_NO_HOST_MEMORY; fini is called then too. */
enum gc_status gc_stack_map_init(struct gc_stack_map *places, struct gc_host_mem *host) GC_CHECKED;
void gc_stack_map_fini(struct gc_stack_map *places);

/* Thread-safe. The entry that the key had comes back in *replaced, with stack 0 if none. False:
 * there is no room. */
bool gc_stack_map_set(struct gc_stack_map *places, const struct gc_stack_map_entry *place,
                      struct gc_stack_map_entry *replaced);
/* Takes the key's entry out; stack 0: it has none. */
struct gc_stack_map_entry gc_stack_map_remove(struct gc_stack_map *places, uint64_t key);
/* The stack of the key, 0: none. */
uint32_t gc_stack_map_find(struct gc_stack_map *places, uint64_t key);

#endif
