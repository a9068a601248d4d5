/* GPUCACHE_STACKS: the call stacks of allocations. Each stack is stored once. A live allocation has
 * the number of its stack; a stack counts the allocations made from it.
 *
 * Thread-safe. A capture costs a stack walk and a lock-free look-up; on_alloc and on_free take a
 * shard's lock. The tables are reserved addresses that cost memory only where written, up to fixed
 * numbers of stacks and live allocations. Allocations beyond them have no stack and are counted as
 * lost. */
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
    uint64_t count; /* all allocations so far */
    uint64_t bytes;
    uint64_t live_count;
    uint64_t live_bytes;
    uint64_t peak_bytes; /* maximum of live bytes */
};

/* GC_NO_HOST_MEMORY. */
enum gc_status gc_stacks_create(struct gc_host_mem *host,
                                struct gc_stack_table **stacks) GC_CHECKED;
void gc_stacks_destroy(struct gc_stack_table *stacks); /* NULL: nothing */

/* The calling thread's stack, without frames of this library; Python frames replace those of the
 * interpreter. The caller holds no lock. GC_STACK_NONE: the table is full, or there is nothing to
 * walk. */
uint32_t gc_stacks_capture(struct gc_stack_table *stacks);

/* Records that `address` of device `ordinal` was allocated from `stack`, or freed. */
void gc_stacks_on_alloc(struct gc_stack_table *stacks, int ordinal, uint64_t address,
                        uint64_t bytes, uint32_t stack);
void gc_stacks_on_free(struct gc_stack_table *stacks, int ordinal, uint64_t address);
/* The site of a live allocation: a stack and its device. */
uint32_t gc_stacks_find(struct gc_stack_table *stacks, int ordinal, uint64_t address);

/* Frame `index` of a site, innermost first, as one line: "function+0x12 (/path/object+0x345)" or
 * "function (/path/file.py:12)". False after the last frame. Native names are exported ones. */
#define GC_STACK_TEXT_BYTES 512
bool gc_stacks_frame(const struct gc_stack_table *stacks, uint32_t site, uint32_t index,
                     char text[GC_STACK_TEXT_BYTES]);

/* True once for each stack of gc_stacks_capture. */
bool gc_stacks_is_new(struct gc_stack_table *stacks, uint32_t stack);
/* The texts of a captured stack's frames, as gc_stacks_frame gives them, each with a number below
 * 2^17; returns how many. Names are those of the objects that are loaded now. */
uint32_t gc_stacks_texts(struct gc_stack_table *stacks, uint32_t stack,
                         uint32_t numbers[GC_STACK_FRAMES_MAX]);
/* Copies a text of gc_stacks_texts. True once for each. */
bool gc_stacks_text(struct gc_stack_table *stacks, uint32_t number, char text[GC_STACK_TEXT_BYTES]);

/* The sites of a device in falling order of peak bytes, at most `max`; returns their number. */
uint32_t gc_stacks_sites(struct gc_stack_table *stacks, int ordinal, struct gc_stack_site *sites,
                         uint32_t max);
/* Allocations without a stack because a table was full. */
uint64_t gc_stacks_lost(const struct gc_stack_table *stacks);

#endif
