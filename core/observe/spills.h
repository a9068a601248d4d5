/* The record of blocks in host memory (GPUCACHE_OVERCOMMIT=spill): the host memory that they take,
 * and a list for the report. A block stays listed after its free; once the list is full, a new
 * block replaces the freed one that took the least time, or is counted alone. */
#ifndef GC_SPILLS_H
#define GC_SPILLS_H

#include "core/base/host_mem.h"
#include "core/base/lock.h"

#define GC_SPILLS_MAX 256

/* Why the block is not on the device. */
enum gc_spill_reason {
    GC_SPILL_LIMIT,
    GC_SPILL_GROUP,
    GC_SPILL_TENANT,
    GC_SPILL_DEVICE, /* and no limit */
    GC_SPILL_REASON_COUNT
};
/* "limit", "group", "tenant", "device". */
const char *gc_spills_reason_text(enum gc_spill_reason reason);

struct gc_spilled {
    uint64_t address;
    uint64_t bytes;      /* of host memory */
    uint64_t span_bytes; /* of the block */
    uint64_t at_ns;      /* since the core was created */
    uint64_t ended_ns;   /* freed; 0: in use */
    uint64_t cost_ns;    /* of the calls that made it */
    int ordinal;
    uint16_t api;
    uint8_t reason; /* enum gc_spill_reason */
    bool is_moved;  /* from the device, when other memory needed the room */
};

struct gc_spills {
    uint64_t start_ns;
    /* No move is tried before: the last one waited for work in vain. */
    atomic_uint_fast64_t move_after_ns;
    struct gc_lock lock;        /* guards the rest */
    struct gc_spilled *entries; /* GC_SPILLS_MAX; mapped with the first */
    uint32_t count;
};

void gc_spills_init(struct gc_spills *spills, uint64_t now_ns);
void gc_spills_fini(struct gc_spills *spills, struct gc_host_mem *host);

/* Lists a block; its `at_ns` is a reading of the clock. */
void gc_spills_add(struct gc_spills *spills, struct gc_host_mem *host,
                   const struct gc_spilled *spilled);
/* The block in use that contains the address has been freed. */
void gc_spills_end(struct gc_spills *spills, uint64_t address, uint64_t now_ns);
/* It has not: the driver refused. */
void gc_spills_reopen(struct gc_spills *spills, uint64_t address);
/* Copies the listed blocks of a device, at most `max`, in the order of their time. Returns their
 * number. */
uint32_t gc_spills_read(struct gc_spills *spills, int ordinal, struct gc_spilled *to, uint32_t max);

#endif
