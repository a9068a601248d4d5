/* The buffers of a graph as a placement problem: sizes and lifetimes in device memory.
 *
 * The graph's nodes run one after the other, each in its own step; the steps of a branch or a
 * loop's body are within its node's. A value lives from the step that makes it to the last step
 * that reads it; a value from outside that a loop's body reads lives as long as the loop. Values
 * share a buffer where an operator returns a view of its input, or may overwrite it.
 * docs/planner.md has the rules.
 *
 * No memory is planned for intermediate constants, for values whose content inference knows
 * (shapes), or for texts. */
#ifndef GC_PLANNER_LIFETIMES_H
#define GC_PLANNER_LIFETIMES_H

#include "core/base/region.h"
#include "core/model/graph.h"
#include "core/plan/placement.h"

#define GC_LIFETIMES_ALIGNMENT 256

enum gc_life_role { GC_LIFE_ACTIVATION, GC_LIFE_WEIGHT, GC_LIFE_INPUT, GC_LIFE_OUTPUT };
#define GC_LIFE_ROLE_COUNT 4

/* The lifetime of a role's buffers. KEEP: all steps. USE: from the step that makes or first reads
 * the buffer to the last that reads it (outputs: to the end). LEAVE: not planned. */
enum gc_life_keep { GC_LIFE_KEEP, GC_LIFE_USE, GC_LIFE_LEAVE };

struct gc_lifetimes_rules {
    uint64_t alignment;                         /* of offsets and sizes; at least 1 */
    enum gc_life_keep keep[GC_LIFE_ROLE_COUNT]; /* of ACTIVATION: always USE */
    bool no_in_place;
};

enum gc_life_share {
    GC_LIFE_OWN,      /* owns the buffer */
    GC_LIFE_VIEW,     /* the bytes of another value */
    GC_LIFE_IN_PLACE, /* written over another value */
    GC_LIFE_JOINED,   /* the result buffer of a branch or loop */
};

struct gc_life_tensor {
    uint32_t value;
    uint32_t buffer;
    uint64_t lower; /* lifetime of the value, within its buffer's */
    uint64_t upper;
    uint64_t bytes; /* not rounded; a lower bound if is_known is false */
    bool is_known;
    enum gc_life_share share;
};

struct gc_lifetimes {
    /* Buffers of KEEP come first, contiguous from offset 0; the others are free to be placed from
     * base_bytes on, a multiple of the alignment. */
    struct gc_placement_buffer *buffers; /* sizes are multiples of the alignment */
    uint8_t *roles;                      /* by buffer: enum gc_life_role */
    uint32_t *owners;                    /* by buffer: the value that owns it, or GC_GRAPH_NONE */
    uint32_t count;
    uint32_t base_count;
    uint64_t base_bytes;
    struct gc_life_tensor *tensors; /* in the order of their values */
    uint32_t tensor_count;
    uint32_t step_count;
    uint32_t *step_nodes; /* by step: its node; a node with inner graphs has several */
    uint64_t total_bytes; /* of all tensors but views, each with memory of its own (rounded) */
    uint64_t role_bytes[GC_LIFE_ROLE_COUNT]; /* of buffers */
    uint32_t role_count[GC_LIFE_ROLE_COUNT];
    uint32_t known_count;   /* tensors whose size is known */
    uint32_t unknown_count; /* the others */
    uint32_t unknown_value; /* the first of them, GC_GRAPH_NONE */
    uint32_t
        folded_count; /* values without memory: intermediate constants, known contents, texts */
};

void gc_lifetimes_rules_init(struct gc_lifetimes_rules *rules);

/* After gc_graph_infer. Memory comes from `region`, which holds the result too. O(nodes + values +
 * edges times the depth of loops). GC_NO_HOST_MEMORY; GC_OVERFLOW: the sizes pass 64 bits. */
enum gc_status gc_lifetimes_find(struct gc_region *region, const struct gc_graph *graph,
                                 const struct gc_lifetimes_rules *rules,
                                 struct gc_lifetimes *lifetimes) GC_CHECKED;

/* The most bytes of the moving buffers (those behind base_count) that are alive in one step. *live:
 * the bytes of each step, in `region`. GC_NO_HOST_MEMORY. */
enum gc_status gc_lifetimes_live(struct gc_region *region, const struct gc_lifetimes *lifetimes,
                                 uint64_t **live, uint64_t *peak_bytes) GC_CHECKED;

#endif
