#include "core/plan/lifetimes.h"

#include "core/base/sort.h"

/* A key is the start or end of an entry's lifetime: time, a bit for a start, the entry's index. At
 * equal times ends sort before starts. */
#define INDEX_BITS 20U
#define BEGINS (UINT64_C(1) << INDEX_BITS)
#define TIME_SHIFT (INDEX_BITS + 1)
_Static_assert(GC_PLAN_ENTRIES_MAX <= BEGINS, "an index fits");

static uint32_t add_life(uint64_t *keys, uint32_t count, uint32_t i, uint32_t lower, uint32_t upper)
{
    keys[count] = (uint64_t)lower << TIME_SHIFT | BEGINS | i;
    keys[count + 1] = (uint64_t)upper << TIME_SHIFT | i;
    return count + 2;
}

/* Of a later iteration, where a life that crosses the end has two parts. */
static uint32_t make_keys(const struct gc_plan *plan, uint64_t *keys)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < plan->count; i++) {
        const struct gc_plan_entry *entry = &plan->entries[i];
        const uint32_t end = plan->end_time;
        if (entry->upper > end)
            count = add_life(keys, count, i, plan->loop_time, plan->loop_time + entry->upper - end);
        count = add_life(keys, count, i, entry->lower, entry->upper < end ? entry->upper : end);
    }
    return count;
}

enum gc_status gc_lifetimes_find_peak(const struct gc_plan *plan, struct gc_host_mem *host,
                                      uint32_t *time)
{
    const uint64_t room = (uint64_t)plan->count * 4 * sizeof(uint64_t);
    uint64_t *keys = gc_host_mem_map(host, room);
    uint64_t live = 0;
    uint64_t most = 0;
    *time = 0;
    if (keys == NULL)
        return GC_NO_HOST_MEMORY;
    const uint32_t count = make_keys(plan, keys);
    gc_sort_keys(keys, count);
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t bytes = plan->entries[keys[i] & (BEGINS - 1)].bytes;
        live = (keys[i] & BEGINS) != 0 ? live + bytes : live - bytes;
        if (live <= most)
            continue;
        most = live;
        *time = (uint32_t)(keys[i] >> TIME_SHIFT);
    }
    gc_host_mem_unmap(host, keys, room);
    return GC_OK;
}
