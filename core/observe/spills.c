#include "core/observe/spills.h"

#include <stddef.h>

#define LIST_BYTES (GC_SPILLS_MAX * sizeof(struct gc_spilled))

const char *gc_spills_reason_text(enum gc_spill_reason reason)
{
    static const char *const texts[GC_SPILL_REASON_COUNT] = {
        [GC_SPILL_LIMIT] = "limit",
        [GC_SPILL_GROUP] = "group",
        [GC_SPILL_TENANT] = "tenant",
        [GC_SPILL_DEVICE] = "device",
    };
    return (unsigned)reason < GC_SPILL_REASON_COUNT ? texts[reason] : "?";
}

void gc_spills_init(struct gc_spills *spills, uint64_t now_ns)
{
    gc_lock_init(&spills->lock, GC_RANK_SPILLS);
    spills->start_ns = now_ns;
    spills->entries = NULL;
    spills->count = 0;
}

void gc_spills_fini(struct gc_spills *spills, struct gc_host_mem *host)
{
    if (spills->entries != NULL)
        gc_host_mem_unmap(host, spills->entries, LIST_BYTES);
    spills->entries = NULL;
}

/* ---- the list ---- */

/* The entry that a new block takes: an unused one, else the freed one of the least time. NULL: all
 * are in use. */
static struct gc_spilled *place_locked(struct gc_spills *spills)
{
    struct gc_spilled *least = NULL;
    if (spills->count < GC_SPILLS_MAX)
        return &spills->entries[spills->count++];
    for (uint32_t i = 0; i < spills->count; i++) {
        struct gc_spilled *entry = &spills->entries[i];
        if (entry->ended_ns != 0 &&
            (least == NULL || entry->ended_ns - entry->at_ns < least->ended_ns - least->at_ns))
            least = entry;
    }
    return least;
}

static uint64_t since_start(const struct gc_spills *spills, uint64_t now_ns)
{
    return now_ns > spills->start_ns ? now_ns - spills->start_ns : 0;
}

void gc_spills_add(struct gc_spills *spills, struct gc_host_mem *host,
                   const struct gc_spilled *spilled)
{
    /* Mapped without the lock: one of two threads unmaps its list. */
    struct gc_spilled *list = gc_host_mem_map(host, LIST_BYTES);
    if (list == NULL)
        return;
    gc_lock_acquire(&spills->lock);
    if (spills->entries == NULL) {
        spills->entries = list;
        list = NULL;
    }
    struct gc_spilled *entry = place_locked(spills);
    if (entry != NULL) {
        *entry = *spilled;
        entry->at_ns = since_start(spills, spilled->at_ns);
        entry->ended_ns = 0;
    }
    gc_lock_release(&spills->lock);
    if (list != NULL)
        gc_host_mem_unmap(host, list, LIST_BYTES);
}

void gc_spills_end(struct gc_spills *spills, uint64_t address, uint64_t now_ns)
{
    gc_lock_acquire(&spills->lock);
    for (uint32_t i = 0; i < spills->count; i++) {
        struct gc_spilled *entry = &spills->entries[i];
        if (address - entry->address < entry->span_bytes && entry->ended_ns == 0)
            entry->ended_ns = since_start(spills, now_ns) | 1; /* 0 is taken */
    }
    gc_lock_release(&spills->lock);
}

void gc_spills_reopen(struct gc_spills *spills, uint64_t address)
{
    struct gc_spilled *last = NULL;
    gc_lock_acquire(&spills->lock);
    for (uint32_t i = 0; i < spills->count; i++) {
        struct gc_spilled *entry = &spills->entries[i];
        if (entry->address == address && (last == NULL || entry->at_ns >= last->at_ns))
            last = entry;
    }
    if (last != NULL)
        last->ended_ns = 0;
    gc_lock_release(&spills->lock);
}

/* The entry of the device that comes after `last` (NULL: the first), by time, then by place. */
static const struct gc_spilled *next_locked(const struct gc_spills *spills, int ordinal,
                                            const struct gc_spilled *last)
{
    const struct gc_spilled *next = NULL;
    for (uint32_t i = 0; i < spills->count; i++) {
        const struct gc_spilled *entry = &spills->entries[i];
        const bool is_left = last == NULL || entry->at_ns > last->at_ns ||
                             (entry->at_ns == last->at_ns && entry > last);
        if (entry->ordinal == ordinal && is_left && (next == NULL || entry->at_ns < next->at_ns))
            next = entry;
    }
    return next;
}

uint32_t gc_spills_read(struct gc_spills *spills, int ordinal, struct gc_spilled *to, uint32_t max)
{
    uint32_t count = 0;
    gc_lock_acquire(&spills->lock);
    const struct gc_spilled *entry = next_locked(spills, ordinal, NULL);
    for (; entry != NULL && count < max; entry = next_locked(spills, ordinal, entry))
        to[count++] = *entry;
    gc_lock_release(&spills->lock);
    return count;
}
