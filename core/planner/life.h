/* Internal to gc_lifetimes_find: the events in the order of execution, and the state of each value.
 */
#ifndef GC_PLANNER_LIFE_H
#define GC_PLANNER_LIFE_H

#include "core/planner/lifetimes.h"

#define GC_LIFE_NEVER UINT32_MAX

/* Each event but FOLDED is a step. */
enum gc_life_event_kind {
    GC_LIFE_FOLDED, /* a node whose outputs take no memory in a run, or share another's */
    GC_LIFE_RUN,
    GC_LIFE_OPEN,  /* a node with inner graphs begins */
    GC_LIFE_CLOSE, /* one of its graphs ends: a branch, or an iteration of a loop */
};

struct gc_life_event {
    enum gc_life_event_kind kind;
    uint32_t node;
    uint32_t scope; /* of OPEN: the first graph that is not dead; of CLOSE: the one that is done */
    uint32_t step;
};

struct gc_life_scope {
    uint32_t begin; /* step of its node's OPEN, and of its own CLOSE */
    uint32_t end;
    bool is_loop; /* its steps are repeated */
};

struct gc_life_value {
    uint32_t parent; /* union-find: another value of the group, or itself for the root */
    uint8_t role;
    uint8_t share;
    bool is_planned;
    bool is_constant; /* computed when the model is loaded */
    bool is_known;
    uint64_t bytes; /* of the group's largest value */
    uint64_t own_bytes;
    uint32_t made; /* steps that make and last read the value */
    uint32_t last;
    uint32_t group_made; /* the same of the group */
    uint32_t group_last;
    uint32_t held_until; /* a loop writes its next iteration's value here; 0: not held */
    uint32_t held_for;   /* the value that the loop writes here */
    uint32_t joined_at;  /* the step at which a branch's result joined the group; 0: none */
    uint32_t first_use;  /* of weights */
};

/* A copy at the end of an iteration: a carried value moves to a buffer whose old value is still
 * needed. */
struct gc_life_spare {
    uint32_t step;
    uint64_t bytes;
};

struct gc_life {
    struct gc_region *region;
    const struct gc_graph *graph;
    const struct gc_lifetimes_rules *rules;
    struct gc_life_event *events;
    uint32_t event_count;
    uint32_t step_count;
    struct gc_life_scope *scopes;
    struct gc_life_value *values;
    struct gc_life_spare *spares;
    uint32_t spare_count;
    uint32_t spare_room;
};

/* Sets roles, sizes, constant and folded values; then the events. */
enum gc_status gc_life_order(struct gc_life *life) GC_CHECKED;
/* Joins views, in-place results, branches and loops; sets uses. */
enum gc_status gc_life_join(struct gc_life *life) GC_CHECKED;

/* Loop-carried values: `count` of them, from these indices on. */
struct gc_life_carry {
    uint32_t count;
    uint32_t node_input;
    uint32_t body_input;
    uint32_t body_output; /* the node's outputs begin at 0 */
};
struct gc_life_carry gc_life_carried(const struct gc_life *life, uint32_t node, uint32_t scope);

static inline uint32_t gc_life_less(uint32_t a, uint32_t b)
{
    return a > b ? a - b : 0;
}

uint32_t gc_life_root(struct gc_life *life, uint32_t value);
/* The live graph of an If with exactly one that is not dead; else GC_GRAPH_NONE. */
uint32_t gc_life_folded_branch(const struct gc_life *life, uint32_t node);
bool gc_life_is_if(const struct gc_graph_node *node);

#endif
