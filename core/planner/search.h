/* Exact search: is there a placement of a component within a given capacity?
 *
 * Depth first over canonical placements, in which every buffer rests on another, on a fixed one or
 * on address 0, in the order of offsets; cut by bounds for each section and by dominance (Moffitt,
 * "MiniMalloc", ASPLOS 2023). Items that no longer share a section with the rest become a
 * subproblem of their own; failed states are remembered by all searches of the component.
 * Exponential in the worst case: the caller limits the steps.
 *
 * A search goes on in slices, so several, with different preferences, take turns. */
#ifndef GC_PLANNER_SEARCH_H
#define GC_PLANNER_SEARCH_H

#include "core/planner/model.h"
#include "core/planner/order.h"
#include "core/planner/run.h"

enum gc_place_verdict { GC_PLACE_OPEN, GC_PLACE_FOUND, GC_PLACE_NONE, GC_PLACE_GIVEN_UP };

struct gc_place_search;

/* Whom to place first of what may be placed at the lowest offset. */
struct gc_place_preference {
    const uint32_t *ranks; /* the least first; must stay */
    bool by_load;          /* before the rank: who is alive where most is left to be placed */
    bool by_section;       /* of a section that must be filled at once nothing else is tried */
};

/* `sorter` is scratch, for as many as the model has. `priority`, which searches share, counts for
 * each item how often it was left without a place. */
struct gc_place_search *gc_place_search_create(struct gc_region *region,
                                               const struct gc_place_model *model,
                                               struct gc_place_memo *memo,
                                               struct gc_place_sorter *sorter, uint32_t *priority);
/* Begins anew. */
void gc_place_search_begin(struct gc_place_search *search, uint64_t capacity,
                           const struct gc_place_preference *preference);
/* Goes on for about `nodes` steps, less if the run is to stop. NONE: there is no placement within
 * the capacity. */
enum gc_place_verdict gc_place_search_slice(struct gc_place_search *search,
                                            struct gc_place_run *run, uint64_t nodes);
/* After FOUND: offsets by the component's numbers. */
void gc_place_search_offsets(const struct gc_place_search *search, uint64_t *offsets);

#endif
