/* The check of a schedule: an execution of it, node by node, with what each buffer holds.
 *
 * It uses the given graph, the schedule's lists and the lifetimes alone. Contents are numbers: a
 * node's output gets a new one, or that of its input if the operator is a view and both have one
 * buffer. A read is right if the buffer of the value holds the value's content. */
#include "core/schedule/schedule.h"

#include <string.h>

#define NONE UINT32_MAX

struct checker {
    struct gc_region *region;
    const struct gc_graph *given;
    const struct gc_graph *made;
    const struct gc_schedule *schedule;
    const struct gc_lifetimes *lifetimes;
    struct gc_schedule_fault *fault;
    uint32_t *tensor_of; /* by value: 1 + its tensor; 0: it takes no memory */
    uint32_t *origin;    /* by value: the given graph's value */
    uint32_t *step_of;   /* by node: its first step; NONE: it does not run */
    uint32_t *last_step; /* by node */
    uint8_t *times;      /* by node of the given graph: how often it was listed */
    bool *is_there;      /* by value: it has been made */
    uint32_t *content;   /* by value */
    uint32_t *holds;     /* by buffer: the content */
    uint32_t content_count;
};

static enum gc_status fail(const struct checker *checker, uint32_t node, const char *what)
{
    *checker->fault = (struct gc_schedule_fault){what, node};
    return GC_INVALID_ARGUMENT;
}

static uint32_t original(const struct checker *checker, uint32_t node)
{
    return node < checker->given->node_count ? node : checker->schedule->copy_of[node];
}

static const struct gc_life_tensor *tensor_of(const struct checker *checker, uint32_t value)
{
    const uint32_t tensor = checker->tensor_of[value];
    return tensor == 0 ? NULL : &checker->lifetimes->tensors[tensor - 1];
}

/* ---- the nodes ---- */

/* A copy differs from its original in the values alone. */
static enum gc_status check_copy(const struct checker *checker, uint32_t node)
{
    const struct gc_graph_node *copy = &checker->made->nodes[node];
    const uint32_t from = original(checker, node);
    if (from >= checker->given->node_count)
        return fail(checker, node, "a copy of no node");
    const struct gc_graph_node *of = &checker->given->nodes[from];
    if (copy->op != of->op || copy->rule != of->rule || copy->attributes != of->attributes ||
        copy->attribute_count != of->attribute_count || copy->input_count != of->input_count ||
        copy->output_count != of->output_count || copy->scope != of->scope)
        return fail(checker, node, "a node differs from the one that it repeats");
    if (node != from && !gc_schedule_may_repeat(of))
        return fail(checker, node, "a node is repeated that may not be");
    return GC_OK;
}

/* Outputs stand for the given graph's, inputs too. */
static enum gc_status check_values(struct checker *checker, uint32_t node)
{
    const struct gc_graph_node *made = &checker->made->nodes[node];
    const struct gc_graph_node *given = &checker->given->nodes[original(checker, node)];
    for (uint32_t i = 0; i < made->output_count; i++) {
        const uint32_t output = made->outputs[i];
        if ((output == GC_GRAPH_NONE) != (given->outputs[i] == GC_GRAPH_NONE))
            return fail(checker, node, "an output is missing");
        if (output == GC_GRAPH_NONE)
            continue;
        if (checker->is_there[output])
            return fail(checker, node, "a value is made twice");
        if (output < checker->given->value_count && output != given->outputs[i])
            return fail(checker, node, "another node's output");
        checker->origin[output] = given->outputs[i];
    }
    for (uint32_t i = 0; i < made->input_count; i++) {
        const uint32_t input = made->inputs[i];
        if ((input == GC_GRAPH_NONE) != (given->inputs[i] == GC_GRAPH_NONE))
            return fail(checker, node, "an input is missing");
        if (input == GC_GRAPH_NONE)
            continue;
        if (!checker->is_there[input])
            return fail(checker, node, "an input is read before it is made");
        if (checker->origin[input] != given->inputs[i])
            return fail(checker, node, "an input is another value");
    }
    return GC_OK;
}

/* ---- the memory ---- */

static enum gc_status check_read(const struct checker *checker, uint32_t node, uint32_t value,
                                 uint32_t step)
{
    const struct gc_life_tensor *tensor = value == GC_GRAPH_NONE ? NULL : tensor_of(checker, value);
    if (tensor == NULL)
        return GC_OK;
    const struct gc_placement_buffer *buffer = &checker->lifetimes->buffers[tensor->buffer];
    if (step < buffer->lower || step >= buffer->upper)
        return fail(checker, node, "an input is read outside its buffer's lifetime");
    if (checker->holds[tensor->buffer] != checker->content[value])
        return fail(checker, node, "an input was overwritten before it is read");
    return GC_OK;
}

static void write_value(struct checker *checker, uint32_t value, uint32_t content)
{
    const struct gc_life_tensor *tensor = value == GC_GRAPH_NONE ? NULL : tensor_of(checker, value);
    if (value == GC_GRAPH_NONE)
        return;
    checker->is_there[value] = true;
    if (tensor == NULL)
        return;
    checker->content[value] = content != 0 ? content : ++checker->content_count;
    checker->holds[tensor->buffer] = checker->content[value];
}

/* A value that is there before the run: all those of one buffer are the same bytes. */
static void begin_value(struct checker *checker, uint32_t value)
{
    const struct gc_life_tensor *tensor = tensor_of(checker, value);
    checker->is_there[value] = true;
    if (tensor == NULL)
        return;
    if (checker->holds[tensor->buffer] == 0)
        checker->holds[tensor->buffer] = ++checker->content_count;
    checker->content[value] = checker->holds[tensor->buffer];
}

/* Writes the outputs. An output in an input's buffer is a view, or the operator may write there. */
static enum gc_status write_outputs(struct checker *checker, uint32_t node)
{
    const struct gc_graph_node *at = &checker->made->nodes[node];
    const enum gc_op_memory memory = gc_graph_node_memory(at);
    for (uint32_t i = 0; i < at->output_count; i++) {
        uint32_t content = 0;
        const struct gc_life_tensor *to =
            at->outputs[i] == GC_GRAPH_NONE ? NULL : tensor_of(checker, at->outputs[i]);
        for (uint32_t j = 0; j < at->input_count && to != NULL; j++) {
            const struct gc_life_tensor *from =
                at->inputs[j] == GC_GRAPH_NONE ? NULL : tensor_of(checker, at->inputs[j]);
            if (from == NULL || from->buffer != to->buffer)
                continue;
            if (memory == GC_OP_VIEW && i == 0 && j == 0)
                content = checker->content[at->inputs[j]];
            else if (memory != GC_OP_INPLACE || i > 0 || from->bytes != to->bytes)
                return fail(checker, node, "an output lies over an input");
        }
        write_value(checker, at->outputs[i], content);
    }
    return GC_OK;
}

/* ---- the walk ---- */

static enum gc_status check_scope(struct checker *checker, uint32_t scope);

/* The values that the inner graphs read are there to the node's end, if a loop reads them again. */
static enum gc_status check_captured(const struct checker *checker, uint32_t node, uint32_t inner)
{
    const struct gc_graph_scope *scope = &checker->made->scopes[inner];
    for (uint32_t i = 0; i < scope->node_count; i++) {
        const struct gc_graph_node *at = &checker->made->nodes[scope->nodes[i]];
        for (uint32_t j = 0; j < at->input_count; j++) {
            const uint32_t value = at->inputs[j];
            if (value == GC_GRAPH_NONE || checker->made->values[value].scope == inner)
                continue;
            const enum gc_status status =
                checker->made->values[value].scope < inner
                    ? check_read(checker, node, value, checker->last_step[node])
                    : GC_OK;
            if (status != GC_OK)
                return status;
        }
    }
    return GC_OK;
}

static enum gc_status check_inner(struct checker *checker, uint32_t node)
{
    const struct gc_graph_node *at = &checker->made->nodes[node];
    const bool is_loop = strcmp(at->op, "If") != 0;
    for (uint32_t i = 0; i < at->attribute_count; i++) {
        const uint32_t inner = at->attributes[i].scope;
        if (at->attributes[i].kind != GC_ATTRIBUTE_GRAPH || checker->made->scopes[inner].is_dead)
            continue;
        const struct gc_graph_scope *scope = &checker->made->scopes[inner];
        for (uint32_t j = 0; j < scope->input_count; j++)
            write_value(checker, scope->inputs[j], 0);
        enum gc_status status = check_scope(checker, inner);
        if (status == GC_OK && is_loop)
            status = check_captured(checker, node, inner);
        if (status != GC_OK)
            return status;
    }
    return GC_OK;
}

static bool has_inner(const struct gc_graph_node *node)
{
    for (uint32_t i = 0; i < node->attribute_count; i++) {
        if (node->attributes[i].kind == GC_ATTRIBUTE_GRAPH)
            return true;
    }
    return false;
}

static enum gc_status check_node(struct checker *checker, uint32_t node, uint32_t *step)
{
    const struct gc_graph_node *at = &checker->made->nodes[node];
    const uint32_t from = original(checker, node);
    enum gc_status status = check_copy(checker, node);
    if (status == GC_OK)
        status = check_values(checker, node);
    if (status != GC_OK)
        return status;
    if (node == from && checker->times[from]++ > 0)
        return fail(checker, node, "a node is listed twice");
    if (checker->step_of[node] == NONE) { /* made at load, or known: no memory in the run */
        for (uint32_t i = 0; i < at->output_count; i++) {
            if (at->outputs[i] != GC_GRAPH_NONE)
                begin_value(checker, at->outputs[i]);
        }
        return GC_OK;
    }
    if (checker->step_of[node] < *step)
        return fail(checker, node, "the lifetimes are those of another order");
    *step = checker->step_of[node];
    for (uint32_t i = 0; i < at->input_count && status == GC_OK; i++)
        status = check_read(checker, node, at->inputs[i], *step);
    if (status != GC_OK || !has_inner(at))
        return status != GC_OK ? status : write_outputs(checker, node);
    status = check_inner(checker, node);
    for (uint32_t i = 0; i < at->output_count; i++)
        write_value(checker, at->outputs[i], 0);
    return status;
}

static enum gc_status check_scope(struct checker *checker, uint32_t scope)
{
    const struct gc_graph_scope *made = &checker->made->scopes[scope];
    const struct gc_graph_scope *given = &checker->given->scopes[scope];
    uint32_t step = 0;
    for (uint32_t i = 0; i < made->node_count; i++) {
        if (checker->made->nodes[made->nodes[i]].scope != scope)
            return fail(checker, made->nodes[i], "a node of another graph");
        const enum gc_status status = check_node(checker, made->nodes[i], &step);
        if (status != GC_OK)
            return status;
    }
    for (uint32_t i = 0; i < given->node_count; i++) {
        if (checker->times[given->nodes[i]] != 1)
            return fail(checker, given->nodes[i], "a node is missing");
    }
    for (uint32_t i = 0; i < given->output_count; i++) {
        const uint32_t output = made->outputs[i];
        if (output == GC_GRAPH_NONE)
            continue;
        if (!checker->is_there[output] || checker->origin[output] != given->outputs[i])
            return fail(checker, GC_GRAPH_NONE, "an output of a graph is not made");
        const struct gc_life_tensor *tensor = tensor_of(checker, output);
        if (tensor != NULL && checker->holds[tensor->buffer] != checker->content[output])
            return fail(checker, GC_GRAPH_NONE, "an output of a graph was overwritten");
    }
    return GC_OK;
}

static bool begin(struct checker *checker)
{
    struct gc_region *region = checker->region;
    const uint64_t values = checker->made->value_count;
    const uint64_t nodes = checker->made->node_count;
    checker->tensor_of = gc_region_alloc(region, values * sizeof(uint32_t));
    checker->origin = gc_region_alloc(region, values * sizeof(uint32_t));
    checker->content = gc_region_alloc(region, values * sizeof(uint32_t));
    checker->is_there = gc_region_alloc(region, values);
    checker->step_of = gc_region_alloc(region, nodes * sizeof(uint32_t));
    checker->last_step = gc_region_alloc(region, nodes * sizeof(uint32_t));
    checker->times = gc_region_alloc(region, nodes);
    checker->holds = gc_region_alloc(region, checker->lifetimes->count * sizeof(uint32_t));
    if (checker->tensor_of == NULL || checker->origin == NULL || checker->content == NULL ||
        checker->is_there == NULL || checker->step_of == NULL || checker->last_step == NULL ||
        checker->times == NULL || checker->holds == NULL)
        return false;
    for (uint32_t i = 0; i < checker->lifetimes->tensor_count; i++)
        checker->tensor_of[checker->lifetimes->tensors[i].value] = i + 1;
    memset(checker->step_of, 0xff, nodes * sizeof(uint32_t));
    for (uint32_t i = 0; i < checker->lifetimes->step_count; i++) {
        const uint32_t node = checker->lifetimes->step_nodes[i];
        if (checker->step_of[node] == NONE)
            checker->step_of[node] = i;
        checker->last_step[node] = i;
    }
    for (uint32_t i = 0; i < values; i++) {
        const struct gc_graph_value *value = &checker->made->values[i];
        checker->origin[i] = i;
        if (value->producer == GC_GRAPH_NONE && (value->is_initializer || value->scope == 0))
            begin_value(checker, i);
    }
    return true;
}

enum gc_status gc_schedule_check(struct gc_region *region, const struct gc_graph *graph,
                                 const struct gc_schedule *schedule,
                                 const struct gc_lifetimes *lifetimes,
                                 struct gc_schedule_fault *fault)
{
    struct checker checker = {.region = region,
                              .given = graph,
                              .made = &schedule->graph,
                              .schedule = schedule,
                              .lifetimes = lifetimes,
                              .fault = fault};
    *fault = (struct gc_schedule_fault){"", GC_GRAPH_NONE};
    return begin(&checker) ? check_scope(&checker, 0) : GC_NO_HOST_MEMORY;
}
