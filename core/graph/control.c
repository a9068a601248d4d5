/* Nodes whose work is a graph: how one is begun and ended; If. Loops are in loops.c. */
#include "core/graph/control.h"

#include <string.h>

enum gc_control gc_control_of(const struct gc_graph_node *node)
{
    if (node->rule == NULL || node->rule->rule != gc_rule_control)
        return GC_CONTROL_OTHER;
    return node->op[0] == 'I'   ? GC_CONTROL_IF
           : node->op[0] == 'L' ? GC_CONTROL_LOOP
                                : GC_CONTROL_SCAN;
}

/* The n-th graph among the attributes; GC_GRAPH_NONE if there are fewer. */
static uint32_t graph_of(const struct gc_graph_node *node, uint32_t n)
{
    for (uint32_t i = 0; i < node->attribute_count; i++) {
        if (node->attributes[i].kind == GC_ATTRIBUTE_GRAPH && n-- == 0)
            return node->attributes[i].scope;
    }
    return GC_GRAPH_NONE;
}

uint32_t gc_control_graph(const struct gc_graph_node *node, const char *name)
{
    const struct gc_graph_attribute *attribute = gc_graph_attribute(node, name);
    return attribute != NULL && attribute->kind == GC_ATTRIBUTE_GRAPH ? attribute->scope
                                                                      : GC_GRAPH_NONE;
}

bool gc_infer_is_control(const struct gc_infer *infer, uint32_t node)
{
    return graph_of(&infer->graph->nodes[node], 0) != GC_GRAPH_NONE;
}

static struct gc_graph_value *value_at(const struct gc_infer *infer, uint32_t index)
{
    return index != GC_GRAPH_NONE ? &infer->graph->values[index] : NULL;
}

struct gc_graph_value *gc_control_input(const struct gc_infer *infer,
                                        const struct gc_graph_node *node, uint32_t input)
{
    return input < node->input_count ? value_at(infer, node->inputs[input]) : NULL;
}

struct gc_graph_value *gc_control_output(const struct gc_infer *infer,
                                         const struct gc_graph_node *node, uint32_t output)
{
    return output < node->output_count ? value_at(infer, node->outputs[output]) : NULL;
}

struct gc_graph_value *gc_body_input(const struct gc_infer *infer, uint32_t scope, uint32_t n)
{
    const struct gc_graph_scope *body = &infer->graph->scopes[scope];
    return n < body->input_count ? value_at(infer, body->inputs[n]) : NULL;
}

struct gc_graph_value *gc_body_output(const struct gc_infer *infer, uint32_t scope, uint32_t n)
{
    const struct gc_graph_scope *body = &infer->graph->scopes[scope];
    return n < body->output_count ? value_at(infer, body->outputs[n]) : NULL;
}

void gc_control_copy(struct gc_graph_value *to, const struct gc_graph_value *from)
{
    to->type = from->type;
    to->data = from->data;
    to->is_constant = from->is_constant;
}

enum gc_status gc_body_clear(struct gc_infer *infer, uint32_t scope)
{
    const struct gc_graph_scope *body = &infer->graph->scopes[scope];
    for (uint32_t i = 0; i < body->input_count; i++) {
        struct gc_graph_value *value = &infer->graph->values[body->inputs[i]];
        value->type = infer->untold;
        value->data = NULL;
        value->is_constant = false;
        const enum gc_status status = gc_infer_settle(infer, body->inputs[i]);
        if (status != GC_OK)
            return status;
    }
    return GC_OK;
}

enum gc_status gc_body_settle(struct gc_infer *infer, uint32_t scope)
{
    const struct gc_graph_scope *body = &infer->graph->scopes[scope];
    enum gc_status status = GC_OK;
    for (uint32_t i = 0; status == GC_OK && i < body->input_count; i++)
        status = gc_infer_settle(infer, body->inputs[i]);
    return status;
}

/* ---- If ---- */

static enum gc_status begin_if(struct gc_infer *infer, uint32_t index)
{
    const struct gc_graph_node *node = &infer->graph->nodes[index];
    const uint32_t scopes[] = {gc_control_graph(node, "then_branch"),
                               gc_control_graph(node, "else_branch")};
    const struct gc_graph_value *condition = gc_control_input(infer, node, 0);
    struct gc_infer_frame frame = {.node = index};
    bool is_dead[2] = {scopes[0] == GC_GRAPH_NONE, scopes[1] == GC_GRAPH_NONE};
    if (condition != NULL && condition->data != NULL && condition->data->count == 1 &&
        condition->data->is_whole)
        is_dead[condition->data->items[0].number != 0] = true;
    for (uint32_t i = 0; i < 2; i++) {
        if (scopes[i] != GC_GRAPH_NONE)
            infer->graph->scopes[scopes[i]].is_dead = is_dead[i];
    }
    if (is_dead[0] && is_dead[1])
        return GC_OK;
    frame.graph = is_dead[0];
    frame.scope = scopes[frame.graph];
    return gc_infer_push(infer, &frame);
}

/* Both branches are known, or the one that is taken. */
static enum gc_status end_if(struct gc_infer *infer, const struct gc_infer_frame *frame)
{
    const struct gc_graph_node *node = &infer->graph->nodes[frame->node];
    const uint32_t other = gc_control_graph(node, "then_branch");
    const bool is_both =
        frame->graph == 1 && other != GC_GRAPH_NONE && !infer->graph->scopes[other].is_dead;
    enum gc_status status = GC_OK;
    for (uint32_t i = 0; status == GC_OK && i < node->output_count; i++) {
        struct gc_graph_value *to = gc_control_output(infer, node, i);
        const struct gc_graph_value *from = gc_body_output(infer, frame->scope, i);
        const struct gc_graph_value *first = is_both ? gc_body_output(infer, other, i) : from;
        bool changed = false;
        if (to == NULL || from == NULL || first == NULL)
            continue;
        gc_control_copy(to, first);
        if (!is_both)
            continue;
        status = gc_infer_meet(infer, &to->type, &from->type, &changed);
        if (changed || !gc_data_same(first->data, from->data))
            to->data = NULL;
        to->is_constant = false;
    }
    return status;
}

/* ---- the way in and out ---- */

static enum gc_status begin_other(struct gc_infer *infer, uint32_t index, uint32_t graph)
{
    const struct gc_graph_node *node = &infer->graph->nodes[index];
    const struct gc_infer_frame frame = {
        .node = index, .graph = graph, .scope = graph_of(node, graph)};
    if (frame.scope == GC_GRAPH_NONE)
        return GC_OK;
    const enum gc_status status = gc_body_clear(infer, frame.scope);
    return status == GC_OK ? gc_infer_push(infer, &frame) : status;
}

enum gc_status gc_infer_begin_control(struct gc_infer *infer, uint32_t node)
{
    switch (gc_control_of(&infer->graph->nodes[node])) {
    case GC_CONTROL_IF:
        return begin_if(infer, node);
    case GC_CONTROL_LOOP:
        return gc_loop_begin(infer, node);
    case GC_CONTROL_SCAN:
        return gc_scan_begin(infer, node);
    default:
        return begin_other(infer, node, 0);
    }
}

enum gc_status gc_infer_end_graph(struct gc_infer *infer, struct gc_infer_frame *frame)
{
    const struct gc_graph_node *node = &infer->graph->nodes[frame->node];
    const enum gc_control control = gc_control_of(node);
    enum gc_status status = GC_OK;
    bool again = false;
    if (control == GC_CONTROL_LOOP)
        status = gc_loop_end(infer, frame, &again);
    else if (control == GC_CONTROL_SCAN)
        status = gc_scan_end(infer, frame, &again);
    if (status != GC_OK)
        return status;
    if (again) {
        frame->round++;
        frame->position = 0;
        return gc_body_settle(infer, frame->scope);
    }
    const struct gc_infer_frame done = *frame;
    infer->depth--;
    if (control == GC_CONTROL_OTHER)
        return begin_other(infer, done.node, done.graph + 1);
    const uint32_t other = gc_control_graph(node, "else_branch");
    if (control == GC_CONTROL_IF && done.graph == 0 && other != GC_GRAPH_NONE &&
        !infer->graph->scopes[other].is_dead) {
        const struct gc_infer_frame next = {.node = done.node, .graph = 1, .scope = other};
        return gc_infer_push(infer, &next);
    }
    if (control == GC_CONTROL_IF)
        status = end_if(infer, &done);
    for (uint32_t i = 0; status == GC_OK && i < node->output_count; i++) {
        if (node->outputs[i] != GC_GRAPH_NONE)
            status = gc_infer_settle(infer, node->outputs[i]);
    }
    return status;
}
