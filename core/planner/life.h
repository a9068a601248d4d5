/* Inside gc_lifetimes_find: events in the order of execution, and what is known of each value. */
#ifndef GC_PLANNER_LIFE_H
#define GC_PLANNER_LIFE_H

#include "core/planner/lifetimes.h"

#define GC_LIFE_NEVER UINT32_MAX

/* Each event but FOLDED is a step. */
enum gc_life_event_kind {
    GC_LIFE_FOLDED, /* a node whose outputs take no memory of a run, or none of their own */
    GC_LIFE_RUN,
    GC_LIFE_OPEN,  /* a node with graphs within begins */
    GC_LIFE_CLOSE, /* one of its graphs is done: a branch, or an iteration of a loop */
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
    uint32_t parent; /* another value of its group, or itself: the root, which has the group's */
    uint8_t role;
    uint8_t share;
    bool is_planned;
    bool is_constant; /* made when the model is loaded */
    bool is_known;
    uint64_t bytes; /* of the group: of the largest */
    uint64_t own_bytes;
    uint32_t made; /* steps of the value */
    uint32_t last;
    uint32_t group_made; /* and of the group */
    uint32_t group_last;
    uint32_t held_until; /* a loop writes its next iteration's value here; 0: not held */
    uint32_t held_for;   /* the value it writes */
    uint32_t joined_at;  /* the step that left a branch's result here; 0: none */
    uint32_t first_use;  /* of weights */
};

/* What a loop writes at the end of an iteration, when a value that it carries moves to where
 * another is still needed. */
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

/* Roles, sizes, what is constant and what is folded; then the events. */
enum gc_status gc_life_order(struct gc_life *life) GC_CHECKED;
/* Views, uses, in place, branches and loops. */
enum gc_status gc_life_join(struct gc_life *life) GC_CHECKED;

/* Values that a loop carries from iteration to iteration: `count` of them, from these places of the
 * lists on.
 */
struct gc_life_carry {
    uint32_t count;
    uint32_t node_input;
    uint32_t body_input;
    uint32_t body_output; /* those of the node begin at 0 */
};
struct gc_life_carry gc_life_carried(const struct gc_life *life, uint32_t node, uint32_t scope);

static inline uint32_t gc_life_less(uint32_t a, uint32_t b)
{
    return a > b ? a - b : 0;
}

uint32_t gc_life_root(struct gc_life *life, uint32_t value);
/* The only graph of the node that is not dead, if it is an If with one; else GC_GRAPH_NONE. */
uint32_t gc_life_folded_branch(const struct gc_life *life, uint32_t node);
bool gc_life_is_if(const struct gc_graph_node *node);

#endif
