/* GPUCACHE_DEBUG: aids for finding memory errors of the program. Slow; every free waits for the
 * device, and freed memory is found by its history.
 *
 * poison: freed memory is filled with GC_DEBUG_FREED, and looked at before it is handed out again
 * or given back: what wrote to it in between is reported with the block's history.
 * uaf, guard: each block has pages of its own, with addresses beside them that nothing backs
 * (debug_map.c). A freed block's pages go at once, so that its use faults; with uaf its addresses
 * are kept for long. With guard the bytes that rounding leaves at a block's end are looked at too.
 * A fault cannot be caught where it happens: when the driver tells of it, the last frees are
 * logged. Where memory cannot be mapped, poison takes the place of both. */
#ifndef GC_DEBUG_H
#define GC_DEBUG_H

#include "core/base/status.h"
#include "core/device/context.h"
#include "core/pool/segment.h"

#define GC_DEBUG_FREED 0xdb
#define GC_DEBUG_EDGE 0xfd

struct gc_debugger;

/* Makes core->debug if the options ask for it, else leaves it NULL. */
enum gc_status gc_debug_init(struct gc_core *core) GC_CHECKED;
void gc_debug_fini(struct gc_core *core);
/* After a device was added: says once what cannot be done there. */
void gc_debug_add_device(struct gc_core *core, const struct gc_device *device);

/* Blocks get pages of their own, where the device can map memory. */
bool gc_debug_maps_blocks(const struct gc_core *core);

/* All below: core->debug is not NULL, no lock is held, and the driver may be called. */

/* Whether a block gets pages of its own; if so the plan says what they take. */
bool gc_debug_specify(struct gc_context *context, struct gc_alloc_spec *spec,
                      struct gc_segment_spec *segment_spec);
/* The driver's mem_alloc and mem_free; false: not a block of this kind. */
bool gc_debug_mem_alloc(struct gc_context *context, const struct gc_segment_spec *segment_spec,
                        uint64_t *address, int *code);
bool gc_debug_mem_free(struct gc_context *context, uint64_t address, int *code);

/* A block was handed out. */
void gc_debug_on_alloc(struct gc_context *context, uint64_t address, uint64_t bytes,
                       uint64_t requested_bytes);
/* Entry point `api` frees the block, which is FREEING. */
void gc_debug_before_free(const struct gc_block_info *info, uint16_t api);
/* Entry point `api` was refused the free of `address`. `live`: the live block that contains the
 * address; NULL: none does. */
void gc_debug_report_refused_free(struct gc_core *core, uint64_t address, uint16_t api,
                                  const struct gc_block_info *live);
/* Memory goes back to the driver. */
void gc_debug_on_release(struct gc_context *context, uint64_t address, uint64_t bytes);
void gc_debug_drop_context(struct gc_context *context);
/* The context got a peer: it may use mapped blocks too. */
void gc_debug_grant_access(struct gc_context *context);

/* ---- debug.c for debug_map.c ---- */

struct gc_debug_maps;
struct gc_debug_maps *gc_debug_maps_of(struct gc_core *core);
unsigned gc_debug_flags(const struct gc_core *core);
enum gc_status gc_debug_maps_create(struct gc_core *core, struct gc_debug_maps **maps) GC_CHECKED;
void gc_debug_maps_destroy(struct gc_core *core, struct gc_debug_maps *maps);
bool gc_debug_maps_has(struct gc_core *core, uint64_t address);
/* What rounding added to the block was filled, and may be looked at. */
void gc_debug_maps_set_edge(struct gc_core *core, uint64_t address);
bool gc_debug_maps_has_edge(struct gc_core *core, uint64_t address);
void gc_debug_maps_drop(struct gc_context *context);

#endif
