/* Exact search: is there a placement of a component within a given capacity?
 *
 * Depth first over canonical placements, in which every buffer rests on another, on a fixed one or
 * on address 0, in the order of offsets; cut by bounds for each section and by dominance (Moffitt,
 * "MiniMalloc", ASPLOS 2023). Items that no longer share a section with the rest become a
 * subproblem of their own; failed states are remembered by all searches of the component.
 * Exponential in the worst case: the caller limits the steps.
 *
 * A search runs in slices, so several with different preferences take turns. */
#ifndef GC_PLANNER_SEARCH_H
#define GC_PLANNER_SEARCH_H

#include "core/planner/order.h"
#include "core/planner/place.h"

/* ---- model.c: the state shared by the searches of one component ----
 *
 * Items with their neighbours in time, and failed states (a transposition table): 128-bit keys in a
 * table of fixed size, 4-way set associative; a new state replaces the oldest of its set. */

struct gc_place_key {
    uint64_t high;
    uint64_t low;
};

struct gc_place_memo_entry {
    struct gc_place_key key;
};

struct gc_place_memo {
    struct gc_place_memo_entry *entries;
    uint64_t count; /* a power of two */
};

/* Allocates at most `bytes`; less, down to none, if memory is short. */
void gc_model_memo_init(struct gc_place_memo *memo, struct gc_region *region, uint64_t bytes);
bool gc_model_memo_has(const struct gc_place_memo *memo, struct gc_place_key key);
void gc_model_memo_add(struct gc_place_memo *memo, struct gc_place_key key);

/* The read-only state shared by all searches of a component. */
struct gc_place_model {
    struct gc_place_item *items; /* by first section */
    uint32_t *sources;           /* their numbers in the component */
    uint32_t count;
    uint32_t section_count;
    uint64_t granule;
    const uint64_t *loads;
    uint32_t *neighbour_begin; /* count + 1 of them */
    uint32_t *neighbours;      /* the items that overlap each item in time */
    uint32_t *section_begin;   /* section_count + 1 of them */
    uint32_t *section_items;   /* the items alive in each section */
    uint64_t *marks;           /* random words, for the memo's keys (Zobrist hashing); of buffers,
                                  as components share the memo */
};

/* GC_TOO_MANY: the component has more than `pair_max` pairs of neighbours. */
enum gc_status gc_model_of_component(struct gc_place_model *model, struct gc_region *region,
                                     const struct gc_place_component *component, uint64_t pair_max,
                                     uint64_t seed) GC_CHECKED;

/* ---- one search ---- */

enum gc_place_verdict { GC_PLACE_OPEN, GC_PLACE_FOUND, GC_PLACE_NONE, GC_PLACE_GIVEN_UP };

struct gc_place_search;

/* The order in which candidates at the lowest offset are tried. */
struct gc_place_preference {
    const uint32_t *ranks; /* the least first; must outlive the search */
    bool by_load;    /* before the rank: items alive in the section with the most unplaced bytes */
    bool by_section; /* tries only items of a section that must be filled at once */
};

/* `sorter` is scratch for all items of the model. Searches share `priority`, which counts for each
 * item how often it could not be placed. */
struct gc_place_search *gc_search_create(struct gc_region *region,
                                         const struct gc_place_model *model,
                                         struct gc_place_memo *memo, struct gc_place_sorter *sorter,
                                         uint32_t *priority);
/* Begins anew. */
void gc_search_begin(struct gc_place_search *search, uint64_t capacity,
                     const struct gc_place_preference *preference);
/* Continues for about `nodes` steps, fewer if the run stops. NONE: there is no placement within the
 * capacity. */
enum gc_place_verdict gc_search_slice(struct gc_place_search *search, struct gc_place_run *run,
                                      uint64_t nodes);
/* After FOUND: offsets by the component's numbers. */
void gc_search_offsets(const struct gc_place_search *search, uint64_t *offsets);

#endif
