/* Exact search: is there a placement of a part within a given capacity?
 *
 * Depth first over canonical placements, in which every buffer rests on another, on a fixed one or
 * on address 0, built in the order of offsets (Moffitt, "MiniMalloc", ASPLOS 2023, has the idea of
 * them, of bounds by section and of dominance). Items that no longer share a section with the rest
 * are searched by themselves, and what failed once is remembered by all searches of the part.
 *
 * A search goes on in slices, so several, with different preferences, take turns. */
#ifndef GC_PLANNER_PLACE_SEARCH_H
#define GC_PLANNER_PLACE_SEARCH_H

#include "core/planner/place_memo.h"
#include "core/planner/place_run.h"

/* What all searches of a part share. */
struct gc_place_model {
    struct gc_place_item *items; /* by first section */
    uint32_t *sources;           /* their numbers in the part */
    uint32_t count;
    uint32_t section_count;
    uint64_t grain;
    const uint64_t *loads;
    uint32_t *neighbour_begin; /* count + 1 of them */
    uint32_t *neighbours;      /* whom each item meets in time */
    uint32_t *section_begin;   /* section_count + 1 of them */
    uint32_t *section_items;   /* who is alive in each section */
    uint64_t *marks;           /* random words, for the memo's keys */
};

/* GC_TOO_MANY: it would take more than `pair_max` pairs of neighbours. */
enum gc_status gc_place_model_init(struct gc_place_model *model, struct gc_region *region,
                                   const struct gc_place_part *part, uint64_t pair_max,
                                   uint64_t seed) GC_CHECKED;

enum gc_place_verdict { GC_PLACE_OPEN, GC_PLACE_FOUND, GC_PLACE_NONE, GC_PLACE_GIVEN_UP };

struct gc_place_search;

/* Whom to place first of what may be placed at the lowest offset. */
struct gc_place_preference {
    const uint32_t *ranks; /* the least first; must stay */
    bool by_load;          /* before the rank: who is alive where most is left to be placed */
    bool by_section;       /* of a section that must be filled at once nothing else is tried */
};

/* `sorter` is scratch, for as many as the model has. `blame`, which searches share, counts for each
 * item how often it was left without a place. */
struct gc_place_search *gc_place_search_create(struct gc_region *region,
                                               const struct gc_place_model *model,
                                               struct gc_place_memo *memo,
                                               struct gc_place_sorter *sorter, uint32_t *blame);
/* Begins anew. */
void gc_place_search_begin(struct gc_place_search *search, uint64_t capacity,
                           const struct gc_place_preference *preference);
/* Goes on for about `nodes` steps, less if the run is to stop. NONE: there is no placement within
 * the capacity. */
enum gc_place_verdict gc_place_search_slice(struct gc_place_search *search,
                                            struct gc_place_run *run, uint64_t nodes);
/* After FOUND: offsets by the part's numbers. */
void gc_place_search_offsets(const struct gc_place_search *search, uint64_t *offsets);

#endif
