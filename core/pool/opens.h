/* The blocks of this process that other processes have open (core/share). While one has a block
 * open its free does not end: its memory serves nobody else (core/reclaim/defer.c).
 *
 * A block may be open several times, by one owner too. An owner is a connection of core/share. The
 * list is short, and searched from its start. */
#ifndef GC_OPENS_H
#define GC_OPENS_H

#include "core/base/lock.h"
#include "core/base/slab.h"

#include <stdbool.h>
#include <stdint.h>

struct gc_open {
    struct gc_open *next;
    uint64_t owner;
    uint64_t id; /* of the block */
    uint64_t address;
};

struct gc_opens {
    struct gc_lock lock; /* guards the list; taken under a pool's lock */
    struct gc_open *first;
    struct gc_slab records;
};

void gc_opens_init(struct gc_opens *opens, struct gc_host_mem *host);
void gc_opens_fini(struct gc_opens *opens);
/* False: no record; the caller calls gc_slab_grow without a lock and tries again. */
bool gc_opens_try_add(struct gc_opens *opens, uint64_t owner, uint64_t id, uint64_t address);
/* Removes one record of the owner: that of the block, or with id 0 any. False: there is none. */
bool gc_opens_remove(struct gc_opens *opens, uint64_t owner, uint64_t id, struct gc_open *removed);
/* Whether the owner has the block open. Owner 0: any; id 0: any block. */
bool gc_opens_has(struct gc_opens *opens, uint64_t owner, uint64_t id);

#endif
