/* Unmaps and releases pages, step by step, for the release of idle pages (unmap.c) and for swap-out
 * (core/pause/). The caller has the change; no work uses the pages any more. */
#ifndef GC_UNMAP_H
#define GC_UNMAP_H

#include "core/backing/change.h"

/* Pages to release; their slots are GC_SLOT_PENDING. */
struct gc_purge_list {
    struct gc_change change;
    struct gc_page *first; /* linked by `next` */
    bool is_mapped;        /* at least one page is mapped */
};

/* Unmaps the pages from all their slots, which become GC_SLOT_UNMAPPED; stops at the first slot
 * that the driver refuses. No lock may be held. */
void gc_unmap_pages(const struct gc_purge_list *purge);
/* Makes the records of pages and slots match the driver; all slots become GC_SLOT_NONE. No lock may
 * be held. */
void gc_unmap_detach(const struct gc_purge_list *purge);
/* As gc_unmap_detach, for one page. */
void gc_unmap_detach_locked(struct gc_pool *pool, const struct gc_page *page);
/* Releases the pages that are mapped nowhere, up to the first one that the driver refuses; the rest
 * stays in the list. Returns the number of pages released. No lock may be held. */
uint64_t gc_unmap_release(struct gc_purge_list *purge);
/* Makes the pages, linked by `next`, idle. */
void gc_unmap_make_idle_locked(struct gc_pool *pool, struct gc_page *page);

#endif
