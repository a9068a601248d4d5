/* Unmaps and releases extents, step by step, for the release of idle ones (unmap.c) and for
 * swap-out (core/pause/). The caller has the change; no work uses the extents any more. */
#ifndef GC_UNMAP_H
#define GC_UNMAP_H

#include "core/backing/change.h"

/* Handles to release, all `is_away`; their mappings are GC_MAPPING_TO_UNMAP. */
struct gc_purge_list {
    struct gc_change change;
    struct gc_extent *first; /* linked by `next` */
    bool is_mapped;          /* at least one is mapped */
};

/* Unmaps the extents everywhere; stops at the first mapping that the driver refuses. No lock may be
 * held. */
void gc_unmap_extents(const struct gc_purge_list *purge);
/* The change of the mapping has ended: if it is unmapped, it is removed. False: it is as before. */
bool gc_unmap_settle_locked(struct gc_pool *pool, struct gc_mapping *mapping);
/* Releases the extents that are mapped nowhere, up to the first that the driver refuses; the rest
 * stays in the list. Returns the number of pages released. No lock may be held. */
uint64_t gc_unmap_release(struct gc_purge_list *purge);
/* Unmaps all that serves nobody, so that its addresses serve; its extents stay. The caller has the
 * change and holds no lock. */
void gc_unmap_useless(struct gc_context *context);
/* Makes the extents, linked by `next`, idle. */
void gc_unmap_make_idle_locked(struct gc_pool *pool, struct gc_extent *extent);

#endif
