/* The memory of the places: a range of addresses where memory is mapped, else one allocation. */
#include "core/backing/change.h"
#include "core/backing/segment.h"
#include "core/device/registry.h"
#include "core/device/wait.h"
#include "core/follow/follow_place.h"

#include <stddef.h>

static enum gc_status open_arena(struct gc_context *context, uint64_t bytes)
{
    struct gc_change change;
    enum gc_status status = gc_arena_change_begin(context, &change);
    if (status != GC_OK)
        return status;
    /* Another thread may have been here before. */
    gc_pool_acquire_plain(&context->pool);
    const bool is_there = context->pool.planned != NULL;
    gc_pool_release(&context->pool);
    status = is_there ? GC_OK : gc_arena_add_planned(context, bytes);
    gc_arena_change_end(&change);
    return status;
}

static bool is_mapped(const struct gc_context *context)
{
    const struct gc_pages *pages = &context->pool.pages;
    return pages->page_bytes != 0 &&
           !atomic_load_explicit(&pages->is_refused, memory_order_relaxed);
}

static enum gc_status open_segment(struct gc_context *context, uint64_t bytes)
{
    const struct gc_segment_plan plan = {
        .driver_bytes = bytes, .bytes = bytes, .class = GC_CLASS_PLANNED};
    struct gc_segment_refusal refusal = {.driver_code = 0};
    return gc_segment_create_free(context, &plan, &refusal);
}

bool gc_follow_begin_opening_locked(struct gc_follow *follow)
{
    if (follow->is_opening || follow->refused_round == follow->match.round_count + 1)
        return false;
    follow->is_opening = true;
    return true;
}

void gc_follow_open_places(struct gc_context *context)
{
    struct gc_follow *follow = context->core->follow;
    const uint64_t bytes = follow->plan->peak_bytes;
    const enum gc_status status =
        is_mapped(context) ? open_arena(context, bytes) : open_segment(context, bytes);
    gc_context_lock_decided(context);
    if (!context->pool.is_dropped) {
        follow->is_opening = false;
        follow->refused_round = status == GC_OK ? 0 : follow->match.round_count + 1;
    }
    gc_pool_release(&context->pool);
}
