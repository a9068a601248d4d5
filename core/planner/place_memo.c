#include "core/planner/place_memo.h"

#define ENTRIES_MIN 1024U
#define WAYS 4U

void gc_place_memo_init(struct gc_place_memo *memo, struct gc_region *region, uint64_t bytes)
{
    *memo = (struct gc_place_memo){0};
    uint64_t count = ENTRIES_MIN;
    while (2 * count * sizeof(*memo->entries) <= bytes)
        count *= 2;
    for (; memo->entries == NULL && count >= ENTRIES_MIN; count /= 2) {
        memo->entries = gc_region_alloc(region, count * sizeof(*memo->entries));
        memo->count = count;
    }
    if (memo->entries == NULL)
        memo->count = 0;
}

bool gc_place_memo_has(const struct gc_place_memo *memo, struct gc_place_key key)
{
    if (memo->count == 0)
        return false;
    const struct gc_place_memo_entry *entries =
        &memo->entries[key.low & (memo->count - 1) & ~(uint64_t)(WAYS - 1)];
    for (unsigned way = 0; way < WAYS; way++)
        if (entries[way].key.high == key.high && entries[way].key.low == key.low)
            return true;
    return false;
}

/* The newest comes first, the oldest goes. */
void gc_place_memo_add(struct gc_place_memo *memo, struct gc_place_key key)
{
    if (memo->count == 0)
        return;
    struct gc_place_memo_entry *entries =
        &memo->entries[key.low & (memo->count - 1) & ~(uint64_t)(WAYS - 1)];
    for (unsigned way = WAYS - 1; way > 0; way--)
        entries[way] = entries[way - 1];
    entries[0].key = key;
}
