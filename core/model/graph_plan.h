/* What a graph needs on a device when its memory is planned: for those who only ask how much.
 * core/planner/ has the plan itself. */
#ifndef GC_GRAPH_PLAN_H
#define GC_GRAPH_PLAN_H

#include "core/base/status.h"
#include "core/model/graph.h"

#include <stddef.h>
#include <stdint.h>

struct gc_graph_need {
    /* Outputs, and the planned peak of what lies between; where buffers are too many for that, or
     * too many live together, the most that is live at once. */
    uint64_t activation_bytes;
    bool is_planned;
    uint64_t made_bytes; /* weights that the graph makes out of constants */
    uint64_t made_elements;
    uint32_t made_count;
    uint32_t tensor_count;  /* all that take memory */
    uint32_t unknown_count; /* those of no known size: the figures are lower bounds */
    uint32_t unknown_value; /* the first of them, or GC_GRAPH_NONE */
};

/* After gc_graph_infer. Weights, inputs and outputs are there throughout; what is planned stands at
 * multiples of 256. GC_NO_HOST_MEMORY; GC_OVERFLOW: the sizes pass 64 bits. */
enum gc_status gc_graph_need_find(const struct gc_graph *graph,
                                  struct gc_graph_need *need) GC_CHECKED;

/* What exporters mean by a dimension of this name. */
enum gc_dim_meaning { GC_DIM_MEANS_NOTHING, GC_DIM_MEANS_BATCH, GC_DIM_MEANS_TOKENS };
enum gc_dim_meaning gc_graph_dim_meaning(const char *name);

/* Writes "name=N,…" for gc_graph_infer: `given` (the same form, NULL: nothing), then `batch` and,
 * where it is not 0, `seq_len` for the dimensions that mean them. False if it does not fit into
 * `size` bytes. */
bool gc_graph_name_dims(const struct gc_graph *graph, const char *given, uint64_t batch,
                        uint64_t seq_len, char *dims, size_t size);

#endif
