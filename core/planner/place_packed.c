#include "core/planner/place_packed.h"

#include "core/base/bits.h"
#include "core/planner/place_sweep.h"

#include <string.h>

#define FIRST_STEPS 4U /* of each item */

/* By the code that checks the whole in the end: here what does not pass is mended. */
static bool is_valid(const struct gc_place_run *run, const struct gc_place_part *part,
                     const uint64_t *offsets, uint64_t *peak)
{
    struct gc_placement_fault fault;
    struct gc_region region;
    gc_region_init(&region,
                   gc_sub_or_zero_u64(run->region->bytes_max, gc_region_bytes(run->region)));
    struct gc_placement_buffer *buffers = gc_region_alloc(&region, part->count * sizeof(*buffers));
    bool valid = buffers != NULL;
    for (uint32_t i = 0; valid && i < part->count; i++)
        buffers[i] = run->problem->buffers[part->buffers[i]];
    const struct gc_placement_problem problem = {buffers, part->count, GC_PLACEMENT_UNLIMITED};
    valid = valid && gc_placement_check(&region, &problem, offsets, peak, &fault) == GC_OK;
    gc_region_fini(&region);
    return valid;
}

/* What the sweep did not look at is put right by first fit, from the lowest to the highest. */
static enum gc_status take(struct gc_place_greedy *greedy, const uint64_t *offsets)
{
    const struct gc_place_part *part = greedy->part;
    uint64_t peak;
    if (is_valid(greedy->run, part, offsets, &peak)) {
        memcpy(greedy->offsets, offsets, part->count * sizeof(*offsets));
    } else {
        for (uint32_t i = 0; i < part->count; i++) {
            greedy->order[i] = i;
            greedy->sorter.keys[i] = offsets[i];
        }
        gc_place_sort(&greedy->sorter, greedy->order, part->count);
        const enum gc_status status = gc_place_greedy_pass(greedy, part->peak - 1, &peak);
        if (status != GC_OK)
            return status;
    }
    gc_place_greedy_keep(greedy, peak);
    return GC_OK;
}

enum gc_status gc_place_packed_try(struct gc_place_greedy *greedy, uint64_t nodes, bool *goes_on)
{
    struct gc_place_part *part = greedy->part;
    enum gc_status status = GC_OK;
    if (!part->is_swept)
        part->sweep = gc_place_sweep_create(greedy->run, part);
    part->is_swept = true;
    *goes_on = false;
    if (part->sweep == NULL)
        return GC_OK;
    const enum gc_place_verdict verdict =
        gc_place_sweep_slice(part->sweep, nodes > 0 ? nodes : FIRST_STEPS * (uint64_t)part->count);
    if (verdict == GC_PLACE_FOUND)
        status = take(greedy, gc_place_sweep_offsets(part->sweep));
    if (verdict == GC_PLACE_OPEN) {
        *goes_on = true;
        return status;
    }
    gc_place_sweep_destroy(part->sweep);
    part->sweep = NULL;
    return status;
}

void gc_place_packed_end(struct gc_place_run *run)
{
    for (uint32_t p = 0; p < run->parts.count; p++) {
        gc_place_sweep_destroy(run->parts.parts[p].sweep);
        run->parts.parts[p].sweep = NULL;
    }
}
