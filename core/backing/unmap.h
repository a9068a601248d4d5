/* Pages that leave, step by step: for who gives idle ones back (unlend.c) and who swaps out
 * (swap.c). A change is begun; no work uses the pages any more. */
#ifndef GC_UNMAP_H
#define GC_UNMAP_H

#include "core/backing/change.h"

/* Pages on their way out, linked by `next`; their slots are GC_SLOT_PENDING. */
struct gc_purge_list {
    struct gc_change change;
    struct gc_page *first;
    bool is_mapped; /* one of them is */
};

/* Unmaps the pages everywhere; the first refusal ends it. No lock. Slots that came free are
 * GC_SLOT_UNMAPPED. */
void gc_unmap_pages(const struct gc_purge_list *purge);
/* Pages and slots say what was unmapped; all those slots are GC_SLOT_NONE. No lock. */
void gc_unmap_detach(const struct gc_purge_list *purge);
/* The same for one page. */
void gc_unmap_detach_locked(struct gc_pool *pool, const struct gc_page *page);
/* The pages that are mapped nowhere go, up to the first one that the driver does not take; the
 * others are left in the list. Returns how many went. No lock. */
uint64_t gc_unmap_release(struct gc_purge_list *purge);
/* The pages, linked by `next`, are idle. */
void gc_unmap_make_idle_locked(struct gc_pool *pool, struct gc_page *page);

#endif
