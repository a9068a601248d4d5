#include "tools/trace/trace_space.h"

#include <stdlib.h>
#include <string.h>

static uint64_t end_of(const struct trace_range *range)
{
    return range->address + range->bytes;
}

/* The first range that ends behind the address. */
static size_t first_behind(const struct trace_space *space, uint64_t address)
{
    size_t low = 0;
    size_t high = space->count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (end_of(&space->ranges[middle]) <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static enum gc_status make_room(struct trace_space *space)
{
    if (space->count < space->room)
        return GC_OK;
    const size_t room = space->room > 0 ? space->room * 2 : 64;
    struct trace_range *larger = realloc(space->ranges, room * sizeof(*larger));
    if (larger == NULL)
        return GC_NO_HOST_MEMORY;
    space->ranges = larger;
    space->room = room;
    return GC_OK;
}

static enum gc_status insert(struct trace_space *space, size_t at, const struct trace_range *range)
{
    if (space->count >= TRACE_SPACE_MAX) {
        space->left_out++;
        return GC_OK;
    }
    const enum gc_status status = make_room(space);
    if (status != GC_OK)
        return status;
    memmove(&space->ranges[at + 1], &space->ranges[at],
            (space->count - at) * sizeof(*space->ranges));
    space->ranges[at] = *range;
    space->count++;
    return GC_OK;
}

static void erase(struct trace_space *space, size_t from, size_t to)
{
    if (from == to)
        return;
    memmove(&space->ranges[from], &space->ranges[to], (space->count - to) * sizeof(*space->ranges));
    space->count -= to - from;
}

enum gc_status trace_space_remove(struct trace_space *space, uint64_t address, uint64_t bytes)
{
    const uint64_t end = address + bytes;
    size_t at = first_behind(space, address);
    if (at < space->count && space->ranges[at].address < address) {
        struct trace_range *range = &space->ranges[at];
        const struct trace_range rest = {end, end_of(range) > end ? end_of(range) - end : 0,
                                         range->is_pages};
        range->bytes = address - range->address;
        at++;
        if (rest.bytes > 0)
            return insert(space, at, &rest);
    }
    size_t to = at;
    while (to < space->count && end_of(&space->ranges[to]) <= end)
        to++;
    erase(space, at, to);
    if (at < space->count && space->ranges[at].address < end) {
        space->ranges[at].bytes = end_of(&space->ranges[at]) - end;
        space->ranges[at].address = end;
    }
    return GC_OK;
}

enum gc_status trace_space_add(struct trace_space *space, uint64_t address, uint64_t bytes,
                               bool is_pages)
{
    struct trace_range added = {address, bytes, is_pages};
    /* A range that is already there overlaps: its removal was not recorded. */
    const enum gc_status status = trace_space_remove(space, address, bytes);
    if (status != GC_OK)
        return status;
    size_t at = first_behind(space, address);
    if (is_pages && at > 0 && space->ranges[at - 1].is_pages &&
        end_of(&space->ranges[at - 1]) == address) {
        at--;
        added.address = space->ranges[at].address;
        added.bytes += space->ranges[at].bytes;
        erase(space, at, at + 1);
    }
    if (is_pages && at < space->count && space->ranges[at].is_pages &&
        space->ranges[at].address == end_of(&added)) {
        added.bytes += space->ranges[at].bytes;
        erase(space, at, at + 1);
    }
    return insert(space, at, &added);
}

const struct trace_range *trace_space_find(const struct trace_space *space, uint64_t address)
{
    const size_t at = first_behind(space, address);
    if (at == space->count || space->ranges[at].address > address)
        return NULL;
    return &space->ranges[at];
}

void trace_space_fini(struct trace_space *space)
{
    free(space->ranges);
    *space = (struct trace_space){.ranges = NULL};
}
