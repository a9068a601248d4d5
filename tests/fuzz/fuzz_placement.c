/* Placement problems as CSV of anyone's making: what is read is solved in a few steps, and no two
 * buffers of the plan are in each other's way. */
#include "core/base/bits.h"
#include "core/planner/placement_csv.h"

#include <stdlib.h>

#define COUNT_MAX 128

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static bool overlap(const struct gc_placement_buffer *a, uint64_t a_offset,
                    const struct gc_placement_buffer *b, uint64_t b_offset)
{
    return a->bytes > 0 && b->bytes > 0 && a->lower < b->upper && b->lower < a->upper &&
           a_offset < b_offset + b->bytes && b_offset < a_offset + a->bytes;
}

static void check(const struct gc_placement_problem *problem, const struct gc_placement *placement)
{
    for (uint32_t i = 0; i < problem->count; i++) {
        const struct gc_placement_buffer *buffer = &problem->buffers[i];
        const uint64_t offset = placement->offsets[i];
        if ((buffer->fixed != GC_PLACEMENT_FREE && offset != buffer->fixed) ||
            (buffer->alignment > 1 && offset % buffer->alignment != 0) ||
            (buffer->bytes > 0 && offset + buffer->bytes > placement->peak_bytes))
            abort();
        for (uint32_t k = 0; k < i; k++)
            if (overlap(buffer, offset, &problem->buffers[k], placement->offsets[k]))
                abort();
    }
    if (placement->lower_bound_bytes > placement->peak_bytes)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct gc_region region;
    struct gc_placement_csv csv;
    struct gc_placement_csv_error error;
    struct gc_placement placement;
    const struct gc_placement_options options = {.seed = bytes, .node_max = 2000};
    gc_region_init(&region, GC_MIB(32));
    if (gc_placement_csv_read(&region, (const char *)data, bytes, &csv, &error) == GC_OK &&
        csv.count <= COUNT_MAX) {
        const struct gc_placement_problem problem = {csv.buffers, csv.count,
                                                     GC_PLACEMENT_UNLIMITED};
        if (gc_solve_placement(&region, &problem, &options, &placement) == GC_OK)
            check(&problem, &placement);
    }
    gc_region_fini(&region);
    return 0;
}
