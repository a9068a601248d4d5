/* A graph in which nodes run again: a copy of a given one that choices change, one after the other,
 * and the lifetimes of its buffers between them.
 *
 * Internal to the room. */
#ifndef GC_SCHEDULE_DRAFT_H
#define GC_SCHEDULE_DRAFT_H

#include "core/schedule/schedule.h"

#define GC_DRAFT_BYTES_MAX GC_MIB(2048) /* of a region for drafts or a view */
#define GC_DRAFT_CHAIN_MAX 24           /* nodes that one choice repeats */

/* The changed graph. */
struct gc_draft {
    struct gc_graph graph;
    struct gc_graph_node *nodes;
    struct gc_graph_value *values;
    struct gc_graph_scope *scopes;
    uint32_t *list;       /* nodes of the main graph, in order */
    uint32_t *copy_of;    /* by node: the given graph's; itself if it is one */
    uint32_t *origin;     /* by value: the given graph's */
    uint32_t value_count; /* of the given graph */
    uint32_t output_max;  /* of a node */
    struct gc_schedule_work extra;
};

/* A choice: the buffer's values are made again before node `reader`, at that position. */
struct gc_draft_choice {
    uint32_t buffer;
    uint32_t position;
    uint32_t step; /* of the reader */
    uint64_t score;
    bool is_deep; /* inputs that are gone are made again, too */
};

/* The lifetimes of a draft and what is needed of them. */
struct gc_draft_view {
    struct gc_region region;
    struct gc_lifetimes lifetimes;
    uint64_t *live;
    uint64_t peak;
    uint64_t excess;     /* bytes above the target, over all steps */
    uint32_t *tensor_of; /* by value: 1 + its tensor; 0: none */
    uint32_t *step_of;   /* by node: its first step; NONE */
};

/* The given graph itself: nothing can be put into it before it is copied. */
enum gc_status gc_draft_begin(struct gc_region *region, const struct gc_graph *graph,
                              struct gc_draft *draft) GC_CHECKED;
/* A copy with room for so many choices. False: no memory. */
bool gc_draft_copy(struct gc_region *region, const struct gc_draft *from, uint32_t choices,
                   struct gc_draft *to);
/* The excess is that over `target` bytes. The view is to be closed, whatever the status is. */
enum gc_status gc_draft_view_open(const struct gc_draft *draft,
                                  const struct gc_lifetimes_rules *rules, uint64_t target,
                                  struct gc_draft_view *view) GC_CHECKED;
void gc_draft_view_close(struct gc_draft_view *view);
/* UINT32_MAX: the value takes no memory. */
uint32_t gc_draft_buffer_of(const struct gc_draft_view *view, uint32_t value);

typedef bool gc_draft_visit_function(void *argument, uint32_t node);
/* A node and all nodes of its inner graphs, until one visit returns false, as this does then. */
bool gc_draft_visit(const struct gc_graph *graph, uint32_t node, gc_draft_visit_function *visit,
                    void *argument);
/* False: the choice is not possible; the draft is then of no use. */
bool gc_draft_apply(struct gc_region *region, struct gc_draft *draft,
                    const struct gc_draft_view *view, const struct gc_draft_choice *choice);

#endif
