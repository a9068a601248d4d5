/* GPUCACHE_STACKS: where allocations came from. Call stacks are kept once each; a live allocation
 * has the number of its stack, a stack counts what was allocated from it.
 *
 * Thread-safe. Taking a stack costs a walk over it and a look-up without a lock; noting takes a
 * shard's lock. Memory is address space that costs where it is written, up to fixed numbers of
 * stacks and live allocations; what is beyond has no stack, and is counted. */
#ifndef GC_STACKS_H
#define GC_STACKS_H

#include "core/base/host_mem.h"
#include "core/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GC_STACK_NONE 0U
#define GC_STACK_FRAMES_MAX 48

struct gc_stack_table;

struct gc_stack_site {
    uint32_t site;  /* for gc_stacks_frame */
    uint64_t count; /* allocations ever */
    uint64_t bytes;
    uint64_t live_count;
    uint64_t live_bytes;
    uint64_t peak_bytes; /* most that was live at once */
};

/* GC_NO_HOST_MEMORY. */
enum gc_status gc_stacks_create(struct gc_host_mem *host,
                                struct gc_stack_table **stacks) GC_CHECKED;
void gc_stacks_destroy(struct gc_stack_table *stacks); /* NULL: nothing */

/* The calling thread's stack, without frames of this library; with those of a Python interpreter in
 * the place of its own. No lock is held. GC_STACK_NONE: there is no room, or nothing to walk. */
uint32_t gc_stacks_capture(struct gc_stack_table *stacks);

/* `address` of device `ordinal` was allocated, from `stack`; was freed. */
void gc_stacks_on_alloc(struct gc_stack_table *stacks, int ordinal, uint64_t address,
                        uint64_t bytes, uint32_t stack);
void gc_stacks_on_free(struct gc_stack_table *stacks, int ordinal, uint64_t address);
/* The site of a live allocation: a stack and its device. */
uint32_t gc_stacks_find(struct gc_stack_table *stacks, int ordinal, uint64_t address);

/* Frame `index` of a site, innermost first, as one line: "function+0x12 (/path/object+0x345)" or
 * "function (/path/file.py:12)"; false behind the last. Names are exported ones. */
#define GC_STACK_TEXT_BYTES 512
bool gc_stacks_frame(const struct gc_stack_table *stacks, uint32_t site, uint32_t index,
                     char text[GC_STACK_TEXT_BYTES]);

/* The sites of a device by most bytes live at once, at most `max`; returns how many. */
uint32_t gc_stacks_sites(struct gc_stack_table *stacks, int ordinal, struct gc_stack_site *sites,
                         uint32_t max);
/* Allocations that have no stack because there was no room for it. */
uint64_t gc_stacks_lost(const struct gc_stack_table *stacks);

#endif
