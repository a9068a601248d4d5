/* Plan replay: allocations that are in the plan get their planned places, in one segment or arena
 * of the pool (class planned); all others are served by the pool. The plan is an offline placement
 * (dynamic storage allocation) of a recorded run.
 *
 * A plan is only a hint. A place is allocated as any free block of the pool is, under the pool's
 * lock. Memory that is live there, or freed and not yet idle, is no free block, so blocks never
 * overlap and memory is never reused too early, even with a wrong plan. Blocks that were freed in
 * the request's stream can be reused at once (core/pool/pending.h).
 *
 * With mapped memory the places are addresses that get pages at their first use: limits, reclaim,
 * pauses and peers treat these pages as any others. Otherwise the places are one driver allocation
 * of the plan's peak, made with the first block; reclaim releases it when it is wholly free.
 *
 * A request that deviates from the plan gets a free block between the places if that needs less new
 * memory than the pool would (unplanned.h). If more than a few requests deviate, the places stop
 * fitting: places of missing requests stay empty in memory that other blocks use. The plan then
 * supplies only lifetimes, until the iteration ends: long-lived blocks lie together, apart from
 * short-lived ones.
 *
 * One context replays the plan (the owner): the first one of the plan's device that allocates, and
 * after its teardown the next one. Its threads have no thread caches, so that the replay sees every
 * request. Not planned: tenants, dedicated blocks, captures, GPUCACHE_DEBUG, modes without a
 * cache. */
#ifndef GC_FOLLOW_H
#define GC_FOLLOW_H

#include "core/follow/follow_figures.h"
#include "core/observe/stats.h"
#include "core/plan/match.h"
#include "core/pool/segment.h"

struct gc_context;
struct gc_core;
struct gc_device;

enum gc_follow_reason {
#define GC_FOLLOW_REASON(name, key, text) GC_FOLLOW_##name,
#include "core/observe/unplanned.def"
#undef GC_FOLLOW_REASON
    GC_FOLLOW_REASON_COUNT
};

struct gc_follow {
    const struct gc_plan *plan;         /* borrowed */
    _Atomic(struct gc_context *) owner; /* replays the plan; set under the registry's lock */
    struct gc_match match; /* guarded by the owner's pool's lock, as are the fields to is_opening */
    bool names_streams;    /* most bytes of the plan are stream-ordered */
    uint32_t fullest;      /* the plan's time with the most live bytes */
    uint64_t iteration;    /* the match's iteration that the next three fields are for */
    uint32_t matched_count;     /* requests that are in the plan */
    uint32_t deviated_count;    /* requests that are not, or whose place is in use */
    bool has_deviated;          /* too many deviated: place by lifetime until the iteration ends */
    uint64_t refused_iteration; /* 1 + the iteration that had no memory for the segment; or 0 */
    bool is_opening;            /* a thread creates the segment */
    gc_counter followed_count;
    gc_counter followed_bytes;
    gc_counter fallback_count[GC_FOLLOW_REASON_COUNT];
    gc_counter fallback_bytes[GC_FOLLOW_REASON_COUNT];
    atomic_uint_fast64_t used_bytes; /* the end of the highest place that was allocated */
    atomic_uint_fast64_t iterations; /* the match's, for readers without the lock; resyncs too */
    atomic_uint_fast64_t resyncs;
};

/* Sets core->follow if core->plan is to be followed. GC_NO_HOST_MEMORY. */
enum gc_status gc_follow_init(struct gc_core *core) GC_CHECKED;
void gc_follow_fini(struct gc_core *core);

/* Serves the request at its planned place, or, counted as a fallback, between the places. `is_hit`:
 * no driver call was made. GC_OUT_OF_MEMORY: the pool must serve it. No lock may be held. */
enum gc_status gc_follow_alloc(struct gc_context *context, const struct gc_alloc_spec *spec,
                               uint64_t *address, bool *is_hit) GC_CHECKED;
/* Whether the places are a driver allocation, which is held even while it is free. */
bool gc_follow_has_segment(struct gc_context *context);
/* The stream is destroyed: unbinds it (core/plan/match.h). */
void gc_follow_close_stream_locked(struct gc_context *context, uint64_t stream);
/* False: the device follows no plan. */
bool gc_follow_read(const struct gc_device *device, struct gc_follow_figures *figures);

#endif
