/* The stacks of live allocations: a hash table from address to stack number, in 64 shards, each
 * with a lock of the last rank. Open addressing; a removal shifts the following entries back, so no
 * tombstones accumulate.
 *
 * A shard begins small and doubles, up to a fixed number of entries, so its cost follows the number
 * of live allocations. The tables of all sizes are consecutive in reserved addresses: a shard grows
 * under its lock without a system call. */
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
    struct gc_stack_map_entry *tables; /* tables of all sizes, the smallest first */
    struct gc_stack_map_entry *slots;  /* the table in use */
    uint32_t slot_count;               /* its size, a power of two */
    uint32_t count;
};

struct gc_stack_map {
    struct gc_host_mem *host;
    struct gc_stack_map_shard shards[GC_STACK_MAP_SHARDS];
};

/* The map is in zeroed memory. GC_NO_HOST_MEMORY; call fini then, too. */
enum gc_status gc_stack_map_init(struct gc_stack_map *map, struct gc_host_mem *host) GC_CHECKED;
void gc_stack_map_fini(struct gc_stack_map *map);

/* Thread-safe. *replaced is the former entry of the key, with stack 0 if none. False: the shard is
 * full. */
bool gc_stack_map_set(struct gc_stack_map *map, const struct gc_stack_map_entry *entry,
                      struct gc_stack_map_entry *replaced);
/* Removes and returns the key's entry; stack 0: there is none. */
struct gc_stack_map_entry gc_stack_map_remove(struct gc_stack_map *map, uint64_t key);
/* The stack of the key, 0: none. */
uint32_t gc_stack_map_find(struct gc_stack_map *map, uint64_t key);

#endif
