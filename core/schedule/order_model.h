/* The nodes of one graph as units to be put in order, and what an order costs: the bytes that are
 * alive while each unit runs.
 *
 * The state of an execution is the set of units that have run: it alone decides which buffers are
 * alive, and which input a unit may overwrite. A buffer is alive from its first touch (or from the
 * start) to its last, whichever units these are.
 *
 * Internal to the room. */
#ifndef GC_SCHEDULE_ORDER_MODEL_H
#define GC_SCHEDULE_ORDER_MODEL_H

#include "core/base/region.h"
#include "core/model/graph.h"
#include "core/planner/lifetimes.h"

/* Rows of a list of lists: those of unit i are items[first[i]] … items[first[i + 1] - 1]. */
struct gc_order_lists {
    uint32_t *first;
    uint32_t *items;
};

struct gc_order_model {
    uint32_t unit_count;
    uint32_t *nodes;              /* by unit: the graph's node */
    struct gc_order_lists before; /* by unit: units that must run earlier */
    struct gc_order_lists after;  /* the inverse */
    struct gc_order_lists touch;  /* by unit: buffers that it makes or reads, each once */
    struct gc_order_lists take;   /* by unit: buffers that its output may take over, best first */
    uint64_t *inner;              /* by unit: bytes of its own, alive only while it runs */
    uint32_t buffer_count;
    uint64_t *bytes;
    uint32_t *touch_count; /* units that touch the buffer */
    bool *is_lasting;      /* alive to the end */
    bool *is_early;        /* alive from the start */
    bool is_exact;         /* no order costs less than the model's figure */
};

/* The units are the nodes of `scope` that have a step, in the graph's order. Buffers that other
 * scopes touch, too, are alive in any order and left out. `lifetimes`: of the graph, with rules
 * that are `rules` but without in-place results. Memory from `region`. GC_NO_HOST_MEMORY. */
enum gc_status gc_order_model_make(struct gc_region *region, const struct gc_graph *graph,
                                   uint32_t scope, const struct gc_lifetimes_rules *rules,
                                   const struct gc_lifetimes *lifetimes,
                                   struct gc_order_model *model) GC_CHECKED;

/* ---- an execution ---- */

struct gc_order_run {
    const struct gc_order_model *model;
    uint32_t *touched; /* by buffer: touches so far */
    uint32_t *awaited; /* by unit: units that must still run before it */
    uint64_t live;     /* bytes */
};

enum gc_status gc_order_run_init(struct gc_region *region, const struct gc_order_model *model,
                                 struct gc_order_run *run) GC_CHECKED;
/* The bytes alive while `unit` runs next, and *after it. */
uint64_t gc_order_run_cost(const struct gc_order_run *run, uint32_t unit, uint64_t *after);
/* Runs the unit; `after` is gc_order_run_cost's. */
void gc_order_run_step(struct gc_order_run *run, uint32_t unit, uint64_t after);
/* Undoes the last step; `before`: the live bytes before it. */
void gc_order_run_back(struct gc_order_run *run, uint32_t unit, uint64_t before);

#endif
