/* Another schedule of a graph, with a lower peak of live bytes: its nodes in another order, and
 * nodes that run again instead of their results being kept.
 *
 * The result is a graph: the given one with another list of nodes in each scope, and copies of the
 * nodes that run again, whose outputs later readers use. gc_lifetimes_find and all that follows
 * treat it as any graph. gc_schedule_check proves that it computes what the given one computes. */
#ifndef GC_SCHEDULE_H
#define GC_SCHEDULE_H

#include "core/base/region.h"
#include "core/model/graph.h"
#include "core/planner/lifetimes.h"

/* Called periodically; false: time is up, and the best so far is the result. */
typedef bool gc_schedule_watch(void *argument);

struct gc_schedule_options {
    bool reorder;
    bool recompute;
    uint64_t
        budget_ppm;   /* of recompute: extra work in millionths, in operations and in bytes each */
    uint64_t set_max; /* steps of search: sets of nodes; 0: the default */
    gc_schedule_watch *watch; /* NULL: never stopped */
    void *watch_argument;
};

/* The work of a graph's nodes that run. */
struct gc_schedule_work {
    uint64_t operations; /* multiplications and additions, and those of other elements */
    uint64_t bytes;      /* read and written */
};

struct gc_schedule {
    struct gc_graph graph; /* lists in the region or of the given graph, which must outlive it */
    uint32_t *copy_of;     /* by node from node_count of the given graph on: the node it repeats */
    uint32_t repeat_count;
    uint64_t before_bytes; /* live peak of the given order, with the buffers that live throughout */
    uint64_t ordered_bytes; /* of the new order, before any node is repeated */
    uint64_t after_bytes;
    bool is_optimal;              /* no order has a lower peak than ordered_bytes */
    uint64_t sets;                /* steps of search */
    struct gc_schedule_work work; /* of the given graph */
    struct gc_schedule_work extra;
};

/* After gc_graph_infer. Memory from `region`. GC_NO_HOST_MEMORY; GC_OVERFLOW as gc_lifetimes_find.
 */
enum gc_status gc_schedule_make(struct gc_region *region, const struct gc_graph *graph,
                                const struct gc_lifetimes_rules *rules,
                                const struct gc_schedule_options *options,
                                struct gc_schedule *schedule) GC_CHECKED;

/* ---- the check, which shares no code with the search ---- */

struct gc_schedule_fault {
    const char *what;
    uint32_t node; /* of the schedule's graph; or GC_GRAPH_NONE */
};

/* Whether each node of `graph` that is not dead runs in the schedule, the copies are of nodes that
 * may run again, each input is the given graph's own or a copy's and is there when it is read, and,
 * with the lifetimes of the schedule's graph, its buffer still holds it. GC_INVALID_ARGUMENT with
 * *fault; GC_NO_HOST_MEMORY. */
enum gc_status gc_schedule_check(struct gc_region *region, const struct gc_graph *graph,
                                 const struct gc_schedule *schedule,
                                 const struct gc_lifetimes *lifetimes,
                                 struct gc_schedule_fault *fault) GC_CHECKED;

/* ---- internal to the room ---- */

/* The live peak of the graph by the rules, with the base; memory of its own. */
enum gc_status gc_schedule_peak(const struct gc_graph *graph,
                                const struct gc_lifetimes_rules *rules,
                                uint64_t *peak_bytes) GC_CHECKED;
/* Operations and bytes of one node. */
struct gc_schedule_work gc_schedule_node_work(const struct gc_graph *graph, uint32_t node);
/* Whether the node may run again, with the same result: no inner graphs, no random numbers, and an
 * operator that is known. */
bool gc_schedule_may_repeat(const struct gc_graph_node *node);
/* Repeats nodes within the budget; see recompute.c. */
enum gc_status gc_schedule_recompute(struct gc_region *region,
                                     const struct gc_lifetimes_rules *rules,
                                     const struct gc_schedule_options *options,
                                     struct gc_schedule *schedule) GC_CHECKED;

#endif
