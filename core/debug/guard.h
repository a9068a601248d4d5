/* Blocks with pages of their own, for GPUCACHE_DEBUG=guard,uaf (as Electric Fence does on the
 * host).
 *
 * The range of such a block is one unbacked page, the block's pages, and one more unbacked page.
 * The block lies at the end of its pages, so that an access past its end faults; debug.c checks the
 * bytes in between, up to 511, which rounding adds. Unmapping releases the memory: only the mapping
 * holds it. With uaf the addresses of freed blocks stay reserved, first in first out, at most 65536
 * ranges or 8 TiB. Such a block costs whole pages, which count as allocated and reserved.
 *
 * Every call requires core->debug != NULL. */
#ifndef GC_GUARD_H
#define GC_GUARD_H

#include "core/debug/debug.h"
#include "core/pool/segment.h"

enum gc_status gc_guard_create(struct gc_core *core, struct gc_guard_table **table) GC_CHECKED;
void gc_guard_destroy(struct gc_core *core, struct gc_guard_table *table);

/* Whether a block gets pages of its own; if so, sets the sizes in both specs. */
bool gc_guard_specify(struct gc_context *context, struct gc_alloc_spec *spec,
                      struct gc_segment_spec *segment_spec);
/* In place of the driver's mem_alloc and mem_free; *code: the driver's code. False, with no call:
 * not a block with pages of its own. No lock may be held. */
bool gc_guard_mem_alloc(struct gc_context *context, const struct gc_segment_spec *segment_spec,
                        uint64_t *address, int *code);
bool gc_guard_mem_free(struct gc_context *context, uint64_t address, int *code);
/* The context got a peer: the peer's device gets access to all guarded blocks of the context. */
void gc_guard_grant_access(struct gc_context *context);
/* Unmaps all guarded blocks of a dropped context. */
void gc_guard_drop_context(struct gc_context *context);

/* Whether the block at this address has pages of its own. */
bool gc_guard_has(struct gc_core *core, uint64_t address);
/* Sets and returns whether the bytes that rounding added to the block are filled, to be checked. */
void gc_guard_set_edge(struct gc_core *core, uint64_t address);
bool gc_guard_has_edge(struct gc_core *core, uint64_t address);

#endif
