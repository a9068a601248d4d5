/* The device memory a graph needs when its memory is planned: sizes only. core/planner/ makes the
 * plan. */
#ifndef GC_GRAPH_PLAN_H
#define GC_GRAPH_PLAN_H

#include "core/base/status.h"
#include "core/model/graph.h"

#include <stddef.h>
#include <stdint.h>

struct gc_graph_need {
    /* Outputs, plus the planned peak of intermediate values. If the buffers are too many to
     * plan, or their lifetimes too long in sum: the most bytes live at once. */
    uint64_t activation_bytes;
    bool is_planned;
    uint64_t made_bytes; /* weights computed from constants */
    uint64_t made_elements;
    uint32_t made_count;
    uint32_t tensor_count;  /* tensors that take memory */
    uint32_t unknown_count; /* tensors of unknown size: the figures are then lower bounds */
    uint32_t unknown_value; /* the first tensor of unknown size, or GC_GRAPH_NONE */
};

/* Call after gc_graph_infer. Weights, inputs and outputs live throughout; planned offsets are
 * multiples of 256. GC_NO_HOST_MEMORY; GC_OVERFLOW: the sizes pass 64 bits. */
enum gc_status gc_graph_need_find(const struct gc_graph *graph,
                                  struct gc_graph_need *need) GC_CHECKED;

/* The meaning of a dimension's name by the convention of exporters. */
enum gc_dim_meaning { GC_DIM_MEANS_NOTHING, GC_DIM_MEANS_BATCH, GC_DIM_MEANS_TOKENS };
enum gc_dim_meaning gc_graph_dim_meaning(const char *name);

/* Writes the list `dims` for gc_graph_infer: `given` (such a list, or NULL), then `batch` and,
 * unless 0, `seq_len` for each dimension of that meaning. False if the list does not fit into
 * `size` bytes. */
bool gc_graph_name_dims(const struct gc_graph *graph, const char *given, uint64_t batch,
                        uint64_t seq_len, char *dims, size_t size);

#endif
