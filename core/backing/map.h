/* The driver calls of a map operation, for map.c and pause/swap_in.c. The caller has the change and
 * has planned the mappings (GC_MAPPING_TO_UNMAP, GC_MAPPING_TO_MAP). Handles that the driver has
 * not created yet are charged already. */
#ifndef GC_MAP_H
#define GC_MAP_H

#include "core/backing/change.h"
#include "core/backing/segment.h"

struct gc_map_op {
    struct gc_change change;
    struct gc_context *context;
    struct gc_pool *pool;
    const struct gc_segment_spec *segment_spec;
    const struct gc_alloc_spec *spec;
    struct gc_segment_failure *failure;
    struct gc_block *block;
    struct gc_span span;   /* of the block */
    struct gc_span backed; /* its slots that have mappings when it is split off */
    uint64_t wanted_end;   /* slots of the request; mappings may reach further, to `end` */
    uint64_t end;
    bool is_end_partial;       /* the request fills its last slot in part */
    struct gc_mapping *unmaps; /* to unmap, linked by `link` */
    struct gc_mapping *maps;   /* to map, in order of address */
    struct gc_mapping **maps_end;
    uint32_t map_count;
    uint64_t create_count; /* pages to create; charged */
    struct gc_charge held; /* the charge of these pages, until it is committed */
    uint64_t most_bytes;   /* that the pools may hold while something is idle */
    bool is_thrifty;       /* creates nothing while an extent is idle */
    bool has_surplus;      /* extents are created although some are idle */
    bool lacks_records;    /* of blocks, extents or mappings */
    bool lacks_blocks;     /* records of blocks: the pool provides them next time */
    bool is_device_full;   /* the driver was out of memory */
    bool may_be_thrifty;   /* is_device_full, idle extents exist: retry, which remaps these first */
};

/* Unmaps, creates, maps, grants access. No lock may be held. The stage of each mapping records how
 * far the driver got. */
enum gc_status gc_map_call_driver(struct gc_map_op *map_op) GC_CHECKED;
/* After a failure: releases the created extents unless the driver refuses. Returns the number of
 * pages to uncharge: released or never created. No lock may be held. */
uint64_t gc_map_undo_create(struct gc_map_op *map_op);

/* Makes the records of mappings and extents match the driver; no mapping is changing any more. */
void gc_map_commit_locked(struct gc_map_op *map_op, bool is_done);

#endif
