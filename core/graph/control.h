/* Nodes whose work is a graph: what control.c and loops.c share. */
#ifndef GC_GRAPH_CONTROL_H
#define GC_GRAPH_CONTROL_H

#include "core/graph/engine.h"

enum gc_control { GC_CONTROL_IF, GC_CONTROL_LOOP, GC_CONTROL_SCAN, GC_CONTROL_OTHER };

enum gc_control gc_control_of(const struct gc_graph_node *node);
/* The graph of that name among the attributes, GC_GRAPH_NONE if there is none. */
uint32_t gc_control_graph(const struct gc_graph_node *node, const char *name);

/* The values of a node and of a body; NULL where there is none. */
struct gc_graph_value *gc_control_input(const struct gc_infer *infer,
                                        const struct gc_graph_node *node, uint32_t input);
struct gc_graph_value *gc_control_output(const struct gc_infer *infer,
                                         const struct gc_graph_node *node, uint32_t output);
struct gc_graph_value *gc_body_input(const struct gc_infer *infer, uint32_t scope, uint32_t n);
struct gc_graph_value *gc_body_output(const struct gc_infer *infer, uint32_t scope, uint32_t n);
/* What is known of the one is of the other. */
void gc_control_copy(struct gc_graph_value *to, const struct gc_graph_value *from);

/* What a body's inputs start with: nothing known, but what it declares. */
enum gc_status gc_body_clear(struct gc_infer *infer, uint32_t scope) GC_CHECKED;
/* Where less is known of them than the body declares, that. */
enum gc_status gc_body_settle(struct gc_infer *infer, uint32_t scope) GC_CHECKED;

/* Into the first turn, and after each: *again where the body is to be walked once more. */
enum gc_status gc_loop_begin(struct gc_infer *infer, uint32_t node) GC_CHECKED;
enum gc_status gc_loop_end(struct gc_infer *infer, struct gc_infer_frame *frame,
                           bool *again) GC_CHECKED;
enum gc_status gc_scan_begin(struct gc_infer *infer, uint32_t node) GC_CHECKED;
enum gc_status gc_scan_end(struct gc_infer *infer, struct gc_infer_frame *frame,
                           bool *again) GC_CHECKED;

#endif
