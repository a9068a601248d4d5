#include "core/pool/opens.h"

#include <stddef.h>

void gc_opens_init(struct gc_opens *opens, struct gc_host_mem *host)
{
    gc_lock_init(&opens->lock, GC_RANK_OPENS);
    opens->first = NULL;
    gc_slab_init_small(&opens->records, host, sizeof(struct gc_open));
}

void gc_opens_fini(struct gc_opens *opens)
{
    gc_slab_fini(&opens->records);
}

bool gc_opens_try_add(struct gc_opens *opens, uint64_t owner, uint64_t id, uint64_t address)
{
    struct gc_open *record = gc_slab_try_alloc(&opens->records);
    if (record == NULL)
        return false;
    gc_lock_acquire(&opens->lock);
    *record = (struct gc_open){opens->first, owner, id, address};
    opens->first = record;
    gc_lock_release(&opens->lock);
    return true;
}

bool gc_opens_remove(struct gc_opens *opens, uint64_t owner, uint64_t id, struct gc_open *removed)
{
    gc_lock_acquire(&opens->lock);
    struct gc_open **link = &opens->first;
    while (*link != NULL && ((*link)->owner != owner || (id != 0 && (*link)->id != id)))
        link = &(*link)->next;
    struct gc_open *record = *link;
    if (record != NULL) {
        *removed = *record;
        *link = record->next;
    }
    gc_lock_release(&opens->lock);
    if (record != NULL)
        gc_slab_free(&opens->records, record);
    return record != NULL;
}

bool gc_opens_has(struct gc_opens *opens, uint64_t owner, uint64_t id)
{
    gc_lock_acquire(&opens->lock);
    const struct gc_open *record = opens->first;
    while (record != NULL &&
           ((owner != 0 && record->owner != owner) || (id != 0 && record->id != id)))
        record = record->next;
    gc_lock_release(&opens->lock);
    return record != NULL;
}
