/* One request on its way to a place, as follow.c sees it: its entry in the plan and the place of
 * that (follow_place.c), and the memory of all places (follow_open.c). */
#ifndef GC_FOLLOW_PLACE_H
#define GC_FOLLOW_PLACE_H

#include "core/follow/follow.h"

struct gc_pursuit {
    struct gc_context *context;
    struct gc_follow *follow;
    const struct gc_claim *claim;
    uint32_t entry; /* GC_RUN_NONE: none */
    uint32_t alike; /* whose lifetime it is thought to have; GC_RUN_NONE: not known */
    uint64_t address;
    enum gc_follow_reason reason; /* where it ends without a place */
    bool needs_driver;
    bool is_waiting; /* something pending is in the way */
};

/* To the planned place: false, with the reason, where there is none to be had. No lock is held, as
 * with the next. `is_hit`: without a driver call. */
bool gc_pursuit_follow(struct gc_pursuit *pursuit, bool *is_hit);
/* What has no place gets memory between the places. False: the pool serves it better. */
bool gc_pursuit_depart(struct gc_pursuit *pursuit, bool *is_hit);

/* Nothing has departed yet. */
void gc_follow_begin_round_locked(struct gc_follow *follow);
/* Whether this thread is to open the places: one at a time, and once a round where there was no
 * memory for them. */
bool gc_follow_begin_opening_locked(struct gc_follow *follow);
/* The thread that is to opens them. No lock is held. */
void gc_follow_open_places(struct gc_context *context);

#endif
