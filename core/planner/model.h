/* What the exact searches of one component share: its items with their neighbours in time, and the
 * states that failed (a transposition table): keys of 128 bits in a table of fixed size, 4-way set
 * associative, in which a new state replaces the oldest of its set. */
#ifndef GC_PLANNER_MODEL_H
#define GC_PLANNER_MODEL_H

#include "core/planner/place.h"

#include <stdbool.h>
#include <stdint.h>

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

/* At most `bytes`; less, down to none, if there is not as much. */
void gc_place_memo_init(struct gc_place_memo *memo, struct gc_region *region, uint64_t bytes);
bool gc_place_memo_has(const struct gc_place_memo *memo, struct gc_place_key key);
void gc_place_memo_add(struct gc_place_memo *memo, struct gc_place_key key);

/* What all searches of a component share. */
struct gc_place_model {
    struct gc_place_item *items; /* by first section */
    uint32_t *sources;           /* their numbers in the component */
    uint32_t count;
    uint32_t section_count;
    uint64_t granule;
    const uint64_t *loads;
    uint32_t *neighbour_begin; /* count + 1 of them */
    uint32_t *neighbours;      /* whom each item meets in time */
    uint32_t *section_begin;   /* section_count + 1 of them */
    uint32_t *section_items;   /* who is alive in each section */
    uint64_t *marks;           /* random words, for the memo's keys */
};

/* GC_TOO_MANY: it would take more than `pair_max` pairs of neighbours. */
enum gc_status gc_place_model_init(struct gc_place_model *model, struct gc_region *region,
                                   const struct gc_place_component *component, uint64_t pair_max,
                                   uint64_t seed) GC_CHECKED;

#endif
