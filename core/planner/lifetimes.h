/* What of a graph takes device memory, and from when to when: the buffers of a placement problem.
 *
 * The graph's nodes run one after the other, each in a step of its own; a branch or the body of a
 * loop has the steps within its node's. A value lives from the step that makes it to the last that
 * reads it; what a loop's body reads from outside lives as long as the loop. Values share a buffer
 * where an operator only gives a view of what it reads, or may write over it. The rules are told in
 * docs/planner.md.
 *
 * No memory is planned for what a graph computes out of constants alone on the way to another
 * constant, for values whose content inference has found (shapes), and for texts. */
#ifndef GC_PLANNER_LIFETIMES_H
#define GC_PLANNER_LIFETIMES_H

#include "core/base/region.h"
#include "core/model/graph.h"
#include "core/plan/placement.h"

#define GC_LIFETIMES_ALIGNMENT 256

enum gc_life_role { GC_LIFE_ACTIVATION, GC_LIFE_WEIGHT, GC_LIFE_INPUT, GC_LIFE_OUTPUT };
#define GC_LIFE_ROLE_COUNT 4

/* The buffers of a role: there in all steps; from when they are made, or first read, to the last
 * step that reads them (outputs: to the end); not planned at all. */
enum gc_life_keep { GC_LIFE_KEEP, GC_LIFE_USE, GC_LIFE_LEAVE };

struct gc_lifetimes_rules {
    uint64_t alignment;                         /* of offsets and sizes, from 1 */
    enum gc_life_keep keep[GC_LIFE_ROLE_COUNT]; /* of ACTIVATION: always USE */
    bool no_in_place;
};

enum gc_life_share {
    GC_LIFE_OWN,      /* the buffer is made for it */
    GC_LIFE_VIEW,     /* the bytes of another value */
    GC_LIFE_IN_PLACE, /* written over another value */
    GC_LIFE_JOINED,   /* where a branch or a loop leaves its result */
};

struct gc_life_tensor {
    uint32_t value;
    uint32_t buffer;
    uint64_t lower; /* of the value itself, within its buffer's */
    uint64_t upper;
    uint64_t bytes; /* not rounded; where is_known is false no more than a lower bound */
    bool is_known;
    enum gc_life_share share;
};

struct gc_lifetimes {
    /* Those of KEEP come first, one after the other from offset 0; the rest is free and lies from
     * base_bytes on, which is a multiple of the alignment. */
    struct gc_placement_buffer *buffers; /* sizes are multiples of the alignment */
    uint8_t *roles;                      /* as many: enum gc_life_role */
    uint32_t *owners;                    /* as many: the value each was made for; GC_GRAPH_NONE */
    uint32_t count;
    uint32_t base_count;
    uint64_t base_bytes;
    struct gc_life_tensor *tensors; /* in the order of their values */
    uint32_t tensor_count;
    uint32_t step_count;
    uint64_t total_bytes; /* of all tensors but views, each with memory of its own (rounded) */
    uint64_t role_bytes[GC_LIFE_ROLE_COUNT]; /* of buffers */
    uint32_t role_count[GC_LIFE_ROLE_COUNT];
    uint32_t known_count;   /* tensors whose size is known */
    uint32_t unknown_count; /* the others */
    uint32_t unknown_value; /* the first of them, GC_GRAPH_NONE */
    uint32_t folded_count;  /* values without memory: constants on the way, contents, texts */
};

void gc_lifetimes_rules_init(struct gc_lifetimes_rules *rules);

/* After gc_graph_infer. Memory comes from `region`, which holds the result too. O(nodes + values +
 * edges times the depth of loops). GC_NO_HOST_MEMORY; GC_OVERFLOW: the sizes pass 64 bits. */
enum gc_status gc_lifetimes_find(struct gc_region *region, const struct gc_graph *graph,
                                 const struct gc_lifetimes_rules *rules,
                                 struct gc_lifetimes *lifetimes) GC_CHECKED;

#endif
