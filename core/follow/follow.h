/* A plan of the run, followed: allocations that are in it get their places in one segment or arena
 * of the pool (class planned), all others what the pool gives.
 *
 * The plan says where a block would go, never that it may: a place is taken as any hole is, out of
 * the free blocks of the pool, under its lock. What is live there, or freed and not yet idle, is no
 * free block, so nothing overlaps and nothing serves too early, whatever a plan says. Blocks that
 * were freed in the stream that asks may serve again at once, as in stream.h.
 *
 * With mapped memory the places are addresses, which get pages when they are first used: limits,
 * shortages, pauses and peers reach them as they do any page. Else they are one allocation of the
 * plan's peak, made with the first block and given back when it is wholly free and memory is short.
 *
 * What departs from the plan is served from what is free between its places, where that takes less
 * new memory than the pool's own does (stray.h). Where more than a few do, places lose their sense:
 * what would have had one stays empty, in pages of which others use the rest. With mapped memory
 * the plan then gives lifetimes only, up to the end of the round: what lasts is packed behind the
 * places, what is brief goes among them.
 *
 * One record follows the plan: the first context of the plan's device that allocates, and when that
 * has ended the next one. Its threads keep no blocks for themselves, so that every request is seen.
 * Tenants, blocks of their own for other processes, captures, GPUCACHE_DEBUG and the modes without
 * a cache take nothing from the plan. */
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
    _Atomic(struct gc_context *) owner; /* who follows it; changes under the registry's lock */
    struct gc_match match;              /* guarded by the owner's pool's lock, as the next */
    bool names_streams;         /* most bytes of the plan were asked for in a stream's order */
    uint32_t fullest;           /* the plan's time of the most bytes */
    uint64_t iteration;         /* of the match's, that the next three are of */
    uint32_t matched_count;     /* requests that are in the plan */
    uint32_t deviated_count;    /* that are not, or whose place is in use */
    bool has_deviated;          /* too many: what comes in this round is placed by its lifetime */
    uint64_t refused_iteration; /* in which there was no memory for the segment, plus one; or 0 */
    bool is_opening;            /* a thread makes the segment */
    gc_counter followed_count;
    gc_counter followed_bytes;
    gc_counter fallback_count[GC_FOLLOW_REASON_COUNT];
    gc_counter fallback_bytes[GC_FOLLOW_REASON_COUNT];
    atomic_uint_fast64_t used_bytes; /* the end of the highest place that was taken */
    atomic_uint_fast64_t iterations; /* copies of the match's, for who takes no lock */
    atomic_uint_fast64_t resyncs;
};

/* Where core->plan is to be followed: sets core->follow. GC_NO_HOST_MEMORY. */
enum gc_status gc_follow_init(struct gc_core *core) GC_CHECKED;
void gc_follow_fini(struct gc_core *core);

/* The claim's planned place, or, which is counted, memory that lies between the places. `is_hit`:
 * without a driver call. GC_OUT_OF_MEMORY: the pool serves it better. No lock may be held. */
enum gc_status gc_follow_alloc(struct gc_context *context, const struct gc_alloc_spec *spec,
                               uint64_t *address, bool *is_hit) GC_CHECKED;
/* Whether the places are memory of the driver's, held whether the plan uses it or not. */
bool gc_follow_has_segment(struct gc_context *context);
/* The stream is destroyed. */
void gc_follow_close_stream_locked(struct gc_context *context, uint64_t stream);
/* False: the device follows no plan. */
bool gc_follow_read(const struct gc_device *device, struct gc_follow_figures *figures);

#endif
