/* Nodes with inner graphs. If: both branches are walked, then joined. Loop and Scan: the body is
 * walked until the types of the carried values reach a fixed point. Each walk only widens types, so
 * it ends; after GC_INFER_ROUNDS_MAX rounds no carried type is known. */
#include "core/graph/engine.h"

#include <string.h>

enum control { CONTROL_IF, CONTROL_LOOP, CONTROL_SCAN, CONTROL_OTHER };

/* Begin: before the first walk of the body. End: after each walk; sets *again if the body must be
 * walked once more. */
static enum gc_status loop_begin(struct gc_infer *infer, uint32_t node) GC_CHECKED;
static enum gc_status loop_end(struct gc_infer *infer, struct gc_infer_frame *frame,
                               bool *again) GC_CHECKED;
static enum gc_status scan_begin(struct gc_infer *infer, uint32_t node) GC_CHECKED;
static enum gc_status scan_end(struct gc_infer *infer, struct gc_infer_frame *frame,
                               bool *again) GC_CHECKED;

static enum control control_of(const struct gc_graph_node *node)
{
    if (node->rule == NULL || node->rule->rule != gc_rule_control)
        return CONTROL_OTHER;
    return node->op[0] == 'I' ? CONTROL_IF : node->op[0] == 'L' ? CONTROL_LOOP : CONTROL_SCAN;
}

/* The n-th graph attribute; GC_GRAPH_NONE if there are fewer. */
static uint32_t graph_of(const struct gc_graph_node *node, uint32_t n)
{
    for (uint32_t i = 0; i < node->attribute_count; i++) {
        if (node->attributes[i].kind == GC_ATTRIBUTE_GRAPH && n-- == 0)
            return node->attributes[i].scope;
    }
    return GC_GRAPH_NONE;
}

static uint32_t control_graph(const struct gc_graph_node *node, const char *name)
{
    const struct gc_graph_attribute *attribute = gc_graph_find_attribute(node, name);
    return attribute != NULL && attribute->kind == GC_ATTRIBUTE_GRAPH ? attribute->scope
                                                                      : GC_GRAPH_NONE;
}

bool gc_control_is_node(const struct gc_infer *infer, uint32_t node)
{
    return graph_of(&infer->graph->nodes[node], 0) != GC_GRAPH_NONE;
}

static struct gc_graph_value *value_at(const struct gc_infer *infer, uint32_t index)
{
    return index != GC_GRAPH_NONE ? &infer->graph->values[index] : NULL;
}

static struct gc_graph_value *control_input(const struct gc_infer *infer,
                                            const struct gc_graph_node *node, uint32_t input)
{
    return input < node->input_count ? value_at(infer, node->inputs[input]) : NULL;
}

static struct gc_graph_value *control_output(const struct gc_infer *infer,
                                             const struct gc_graph_node *node, uint32_t output)
{
    return output < node->output_count ? value_at(infer, node->outputs[output]) : NULL;
}

static struct gc_graph_value *body_input(const struct gc_infer *infer, uint32_t scope, uint32_t n)
{
    const struct gc_graph_scope *body = &infer->graph->scopes[scope];
    return n < body->input_count ? value_at(infer, body->inputs[n]) : NULL;
}

static struct gc_graph_value *body_output(const struct gc_infer *infer, uint32_t scope, uint32_t n)
{
    const struct gc_graph_scope *body = &infer->graph->scopes[scope];
    return n < body->output_count ? value_at(infer, body->outputs[n]) : NULL;
}

static void control_copy(struct gc_graph_value *to, const struct gc_graph_value *from)
{
    to->type = from->type;
    to->data = from->data;
    to->is_constant = from->is_constant;
}

static enum gc_status body_clear(struct gc_infer *infer, uint32_t scope)
{
    const struct gc_graph_scope *body = &infer->graph->scopes[scope];
    for (uint32_t i = 0; i < body->input_count; i++) {
        struct gc_graph_value *value = &infer->graph->values[body->inputs[i]];
        value->type = infer->unknown_type;
        value->data = NULL;
        value->is_constant = false;
        const enum gc_status status = gc_merge_declared(infer, body->inputs[i]);
        if (status != GC_OK)
            return status;
    }
    return GC_OK;
}

static enum gc_status body_merge_declared(struct gc_infer *infer, uint32_t scope)
{
    const struct gc_graph_scope *body = &infer->graph->scopes[scope];
    enum gc_status status = GC_OK;
    for (uint32_t i = 0; status == GC_OK && i < body->input_count; i++)
        status = gc_merge_declared(infer, body->inputs[i]);
    return status;
}

/* ---- If ---- */

static enum gc_status begin_if(struct gc_infer *infer, uint32_t index)
{
    const struct gc_graph_node *node = &infer->graph->nodes[index];
    const uint32_t scopes[] = {control_graph(node, "then_branch"),
                               control_graph(node, "else_branch")};
    const struct gc_graph_value *condition = control_input(infer, node, 0);
    struct gc_infer_frame frame = {.node = index};
    bool is_dead[2] = {scopes[0] == GC_GRAPH_NONE, scopes[1] == GC_GRAPH_NONE};
    if (condition != NULL && condition->data != NULL && condition->data->count == 1 &&
        condition->data->is_complete)
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

/* Both branches have been walked, or the one that is taken. */
static enum gc_status end_if(struct gc_infer *infer, const struct gc_infer_frame *frame)
{
    const struct gc_graph_node *node = &infer->graph->nodes[frame->node];
    const uint32_t other = control_graph(node, "then_branch");
    const bool is_both =
        frame->graph == 1 && other != GC_GRAPH_NONE && !infer->graph->scopes[other].is_dead;
    enum gc_status status = GC_OK;
    for (uint32_t i = 0; status == GC_OK && i < node->output_count; i++) {
        struct gc_graph_value *to = control_output(infer, node, i);
        const struct gc_graph_value *from = body_output(infer, frame->scope, i);
        const struct gc_graph_value *first = is_both ? body_output(infer, other, i) : from;
        bool changed = false;
        if (to == NULL || from == NULL || first == NULL)
            continue;
        control_copy(to, first);
        if (!is_both)
            continue;
        status = gc_merge_join(infer, &to->type, &from->type, &changed);
        if (changed || !gc_merge_same_data(first->data, from->data))
            to->data = NULL;
        to->is_constant = false;
    }
    return status;
}

/* ---- begin and end of a node ---- */

static enum gc_status begin_other(struct gc_infer *infer, uint32_t index, uint32_t graph)
{
    const struct gc_graph_node *node = &infer->graph->nodes[index];
    const struct gc_infer_frame frame = {
        .node = index, .graph = graph, .scope = graph_of(node, graph)};
    if (frame.scope == GC_GRAPH_NONE)
        return GC_OK;
    const enum gc_status status = body_clear(infer, frame.scope);
    return status == GC_OK ? gc_infer_push(infer, &frame) : status;
}

enum gc_status gc_control_begin(struct gc_infer *infer, uint32_t node)
{
    switch (control_of(&infer->graph->nodes[node])) {
    case CONTROL_IF:
        return begin_if(infer, node);
    case CONTROL_LOOP:
        return loop_begin(infer, node);
    case CONTROL_SCAN:
        return scan_begin(infer, node);
    default:
        return begin_other(infer, node, 0);
    }
}

enum gc_status gc_control_end_graph(struct gc_infer *infer, struct gc_infer_frame *frame)
{
    const struct gc_graph_node *node = &infer->graph->nodes[frame->node];
    const enum control control = control_of(node);
    enum gc_status status = GC_OK;
    bool again = false;
    if (control == CONTROL_LOOP)
        status = loop_end(infer, frame, &again);
    else if (control == CONTROL_SCAN)
        status = scan_end(infer, frame, &again);
    if (status != GC_OK)
        return status;
    if (again) {
        frame->round++;
        frame->position = 0;
        return body_merge_declared(infer, frame->scope);
    }
    const struct gc_infer_frame done = *frame;
    infer->depth--;
    if (control == CONTROL_OTHER)
        return begin_other(infer, done.node, done.graph + 1);
    const uint32_t other = control_graph(node, "else_branch");
    if (control == CONTROL_IF && done.graph == 0 && other != GC_GRAPH_NONE &&
        !infer->graph->scopes[other].is_dead) {
        const struct gc_infer_frame next = {.node = done.node, .graph = 1, .scope = other};
        return gc_infer_push(infer, &next);
    }
    if (control == CONTROL_IF)
        status = end_if(infer, &done);
    for (uint32_t i = 0; status == GC_OK && i < node->output_count; i++) {
        if (node->outputs[i] != GC_GRAPH_NONE)
            status = gc_merge_declared(infer, node->outputs[i]);
    }
    return status;
}

/* ---- Loop and Scan ---- */

/* ---- carried values ---- */

struct carried {
    uint32_t first_input; /* of the node */
    uint32_t first_body_input;
    uint32_t first_body_output;
    uint32_t count;
};

static struct carried carried_of(const struct gc_infer *infer, const struct gc_graph_node *node,
                                 uint32_t scope)
{
    struct carried carried = {.first_input = 2, .first_body_input = 2, .first_body_output = 1};
    if (control_of(node) == CONTROL_LOOP) {
        carried.count = node->input_count > 2 ? node->input_count - 2 : 0;
    } else {
        const struct gc_graph_attribute *scans = gc_graph_find_attribute(node, "num_scan_inputs");
        const bool is_old = node->opset < 9; /* input 0: lengths; batches throughout */
        const uint32_t inputs = node->input_count - (is_old && node->input_count > 0);
        carried = (struct carried){.first_input = is_old};
        if (scans != NULL && scans->kind == GC_ATTRIBUTE_INT && scans->integer >= 0 &&
            scans->integer <= inputs)
            carried.count = inputs - (uint32_t)scans->integer;
    }
    const struct gc_graph_scope *body = &infer->graph->scopes[scope];
    const uint32_t in = body->input_count;
    const uint32_t out = body->output_count;
    if (carried.count + carried.first_body_input > in ||
        carried.count + carried.first_body_output > out)
        carried.count = 0;
    return carried;
}

static bool is_exhausted(const struct gc_infer *infer)
{
    return infer->steps > infer->steps_max;
}

/* Scan before opset 9 has batches: every input and output has one more dimension in front. */
static bool is_batched(const struct gc_graph_node *node)
{
    return control_of(node) == CONTROL_SCAN && node->opset < 9;
}

/* The type without `count` dimensions from `first` on; of unknown rank if it has fewer. */
static enum gc_status without_dims(struct gc_infer *infer, const struct gc_type *from,
                                   uint32_t first, uint32_t count, struct gc_type *to)
{
    struct gc_dim dims[GC_GRAPH_RANK_MAX];
    struct gc_type type = {.kind = from->kind, .dtype = from->dtype};
    const uint32_t rank = from->shape.rank;
    if (from->shape.is_known && rank >= first + count) {
        for (uint32_t i = 0; i < rank - count; i++)
            dims[i] = from->shape.dims[i < first ? i : i + count];
        type.shape = (struct gc_shape){.is_known = true, .rank = rank - count, .dims = dims};
    }
    return gc_merge_import_type(infer, &type, to);
}

/* Sets the body's inputs for the first iteration. */
static enum gc_status carry_in(struct gc_infer *infer, const struct gc_graph_node *node,
                               uint32_t scope, const struct carried *carried)
{
    enum gc_status status = GC_OK;
    for (uint32_t i = 0; status == GC_OK && i < carried->count; i++) {
        struct gc_graph_value *to = body_input(infer, scope, carried->first_body_input + i);
        const struct gc_graph_value *from = control_input(infer, node, carried->first_input + i);
        if (from == NULL || to == NULL)
            continue;
        control_copy(to, from);
        to->is_constant = false;
        if (is_batched(node)) {
            to->data = NULL;
            status = without_dims(infer, &from->type, 0, 1, &to->type);
        }
        if (is_exhausted(infer)) {
            to->type.shape = (struct gc_shape){0};
            to->data = NULL;
        }
    }
    return status;
}

/* Widening: drops the parts of the type that the last iteration changed. From the third round on a
 * changed value loses its whole shape, from the fourth on every value does. */
static enum gc_status widen(struct gc_infer *infer, struct gc_graph_value *to,
                            const struct gc_graph_value *from, uint32_t round, bool *changed)
{
    bool differs = false;
    const enum gc_status status = gc_merge_join(infer, &to->type, &from->type, &differs);
    if (to->data != NULL && (differs || !gc_merge_same_data(to->data, from->data))) {
        to->data = NULL;
        differs = true;
    }
    if (round >= 4 || (round >= 3 && differs)) {
        differs = differs || to->type.shape.is_known;
        to->type.shape = (struct gc_shape){0};
        to->data = NULL;
    }
    *changed = *changed || differs;
    return status;
}

static enum gc_status carry_over(struct gc_infer *infer, const struct gc_infer_frame *frame,
                                 const struct carried *carried, bool *changed)
{
    enum gc_status status = GC_OK;
    for (uint32_t i = 0; status == GC_OK && i < carried->count; i++) {
        struct gc_graph_value *to = body_input(infer, frame->scope, carried->first_body_input + i);
        const struct gc_graph_value *from =
            body_output(infer, frame->scope, carried->first_body_output + i);
        if (to != NULL && from != NULL)
            status = widen(infer, to, from, frame->round, changed);
    }
    return status;
}

/* After the last round the types of the body's inputs hold for the loop's outputs, too. */
static void carry_out(struct gc_infer *infer, const struct gc_infer_frame *frame,
                      const struct carried *carried)
{
    const struct gc_graph_node *node = &infer->graph->nodes[frame->node];
    for (uint32_t i = 0; i < carried->count; i++) {
        struct gc_graph_value *to = control_output(infer, node, i);
        const struct gc_graph_value *from =
            body_input(infer, frame->scope, carried->first_body_input + i);
        if (to != NULL && from != NULL)
            control_copy(to, from);
    }
}

/* Stacks a body's output of all iterations along a new axis. */
static enum gc_status stack_up(struct gc_infer *infer, struct gc_graph_value *to,
                               const struct gc_graph_value *from, struct gc_dim iterations,
                               int64_t axis)
{
    struct gc_dim dims[GC_GRAPH_RANK_MAX];
    const uint32_t rank = from->type.shape.rank;
    to->type = from->type;
    to->type.shape = (struct gc_shape){0};
    if (!from->type.shape.is_known || rank + 1 > GC_GRAPH_RANK_MAX)
        return GC_OK;
    axis = axis < 0 ? axis + rank + 1 : axis;
    if (axis < 0 || axis > rank)
        return GC_OK;
    for (uint32_t i = 0; i < rank; i++)
        dims[i + (i >= axis)] = from->type.shape.dims[i];
    dims[axis] = iterations;
    const struct gc_type type = {
        .kind = from->type.kind,
        .dtype = from->type.dtype,
        .shape = {.is_known = true, .rank = rank + 1, .dims = dims},
    };
    return gc_merge_import_type(infer, &type, &to->type);
}

/* ---- Loop ---- */

static enum gc_status loop_begin(struct gc_infer *infer, uint32_t index)
{
    const struct gc_graph_node *node = &infer->graph->nodes[index];
    const struct gc_infer_frame frame = {
        .node = index, .scope = control_graph(node, "body"), .round = 1};
    static const struct gc_dim truth = {.kind = GC_DIM_NUMBER, .number = 1};
    static const struct gc_data is_true = {.count = 1, .is_complete = true, .items = &truth};
    if (frame.scope == GC_GRAPH_NONE)
        return GC_OK;
    enum gc_status status = body_clear(infer, frame.scope);
    if (status != GC_OK)
        return status;
    const struct gc_shape scalar = {.is_known = true};
    struct gc_graph_value *iteration = body_input(infer, frame.scope, 0);
    struct gc_graph_value *condition = body_input(infer, frame.scope, 1);
    const struct gc_graph_value *given = control_input(infer, node, 1);
    if (iteration != NULL)
        iteration->type =
            (struct gc_type){.kind = GC_TYPE_TENSOR, .dtype = GC_DTYPE_I64, .shape = scalar};
    if (condition != NULL) {
        condition->type =
            (struct gc_type){.kind = GC_TYPE_TENSOR, .dtype = GC_DTYPE_BOOL, .shape = scalar};
        condition->data = given == NULL ? &is_true : given->data;
    }
    const struct carried carried = carried_of(infer, node, frame.scope);
    status = carry_in(infer, node, frame.scope, &carried);
    if (status == GC_OK)
        status = body_merge_declared(infer, frame.scope);
    return status == GC_OK ? gc_infer_push(infer, &frame) : status;
}

/* The number of iterations: the given count, if the condition is true throughout. */
static struct gc_dim iterations_of(const struct gc_infer *infer, const struct gc_infer_frame *frame)
{
    const struct gc_graph_node *node = &infer->graph->nodes[frame->node];
    const struct gc_graph_value *count = control_input(infer, node, 0);
    const struct gc_graph_value *before = body_input(infer, frame->scope, 1);
    const struct gc_graph_value *after = body_output(infer, frame->scope, 0);
    if (count == NULL || count->data == NULL || count->data->count != 1 || before == NULL ||
        after == NULL || before->data == NULL || after->data == NULL)
        return gc_dim_unknown();
    if (before->data->count != 1 || after->data->count != 1 ||
        !gc_dim_is(before->data->items[0], 1) || !gc_dim_is(after->data->items[0], 1))
        return gc_dim_unknown();
    const struct gc_dim iterations = count->data->items[0];
    return iterations.kind == GC_DIM_NUMBER && iterations.number < 0 ? gc_dim_number(0)
                                                                     : iterations;
}

/* The loop has one iteration: the body's outputs are the loop's. */
static void leave_after_one(struct gc_infer *infer, const struct gc_infer_frame *frame,
                            const struct carried *carried)
{
    const struct gc_graph_node *node = &infer->graph->nodes[frame->node];
    for (uint32_t i = 0; i < carried->count; i++) {
        struct gc_graph_value *to = control_output(infer, node, i);
        const struct gc_graph_value *from =
            body_output(infer, frame->scope, carried->first_body_output + i);
        if (to != NULL && from != NULL)
            control_copy(to, from);
    }
}

static enum gc_status loop_end(struct gc_infer *infer, struct gc_infer_frame *frame, bool *again)
{
    const struct gc_graph_node *node = &infer->graph->nodes[frame->node];
    const struct carried carried = carried_of(infer, node, frame->scope);
    struct gc_dim iterations = iterations_of(infer, frame);
    const bool is_single = frame->round == 1 && gc_dim_is(iterations, 1);
    enum gc_status status = GC_OK;
    if (!is_single && !is_exhausted(infer) && frame->round < GC_INFER_ROUNDS_MAX)
        status = carry_over(infer, frame, &carried, again);
    struct gc_graph_value *condition = body_input(infer, frame->scope, 1);
    const struct gc_graph_value *after = body_output(infer, frame->scope, 0);
    if (!is_single && condition != NULL && after != NULL && condition->data != NULL &&
        !gc_merge_same_data(condition->data, after->data)) {
        condition->data = NULL;
        *again = frame->round < GC_INFER_ROUNDS_MAX;
    }
    if (status != GC_OK || *again)
        return status;
    if (is_single)
        leave_after_one(infer, frame, &carried);
    else
        carry_out(infer, frame, &carried);
    if (iterations.kind != GC_DIM_NUMBER && iterations.kind != GC_DIM_SYMBOL)
        iterations = gc_dim_unknown();
    for (uint32_t i = carried.count; status == GC_OK && i < node->output_count; i++) {
        struct gc_graph_value *to = control_output(infer, node, i);
        const struct gc_graph_value *from = body_output(infer, frame->scope, i + 1);
        if (to != NULL && from != NULL)
            status = stack_up(infer, to, from, iterations, 0);
    }
    return status;
}

/* ---- Scan ---- */

static int64_t axis_of(const struct gc_graph_node *node, const char *name, uint32_t index)
{
    const struct gc_graph_attribute *axes = gc_graph_find_attribute(node, name);
    if (axes == NULL || axes->kind != GC_ATTRIBUTE_INTS || axes->count > GC_GRAPH_DATA_MAX ||
        index >= axes->count)
        return 0;
    return axes->integers[index];
}

/* The slicing of a Scan's inputs. */
struct scan {
    struct gc_dim iterations;
    struct gc_dim batch; /* where is_batched */
};

/* The body sees one slice of each scanned input. */
static enum gc_status slice_in(struct gc_infer *infer, const struct gc_graph_node *node,
                               uint32_t scope, const struct carried *carried, struct scan *scan)
{
    const uint32_t first_scanned = carried->first_input + carried->count;
    const bool has_batch = is_batched(node);
    enum gc_status status = GC_OK;
    *scan = (struct scan){.iterations = gc_dim_unknown(), .batch = gc_dim_unknown()};
    for (uint32_t i = first_scanned; status == GC_OK && i < node->input_count; i++) {
        const struct gc_graph_value *from = control_input(infer, node, i);
        struct gc_graph_value *to = body_input(infer, scope, i - carried->first_input);
        if (from == NULL || to == NULL)
            continue;
        const struct gc_shape *shape = &from->type.shape;
        int64_t axis = has_batch ? 1 : axis_of(node, "scan_input_axes", i - first_scanned);
        axis = axis < 0 ? axis + shape->rank : axis;
        const bool is_within = axis >= 0 && axis < shape->rank;
        if (is_within && scan->iterations.kind != GC_DIM_NUMBER)
            scan->iterations = shape->dims[axis];
        if (is_within && has_batch)
            scan->batch = shape->dims[0];
        const struct gc_type open = {.kind = from->type.kind, .dtype = from->type.dtype};
        status = without_dims(infer, is_within ? &from->type : &open,
                              has_batch || !is_within ? 0 : (uint32_t)axis, has_batch ? 2 : 1,
                              &to->type);
    }
    return status;
}

static enum gc_status scan_begin(struct gc_infer *infer, uint32_t index)
{
    const struct gc_graph_node *node = &infer->graph->nodes[index];
    const struct gc_infer_frame frame = {
        .node = index, .scope = control_graph(node, "body"), .round = 1};
    struct scan scan;
    if (frame.scope == GC_GRAPH_NONE)
        return GC_OK;
    const struct carried carried = carried_of(infer, node, frame.scope);
    enum gc_status status = body_clear(infer, frame.scope);
    if (status == GC_OK)
        status = slice_in(infer, node, frame.scope, &carried, &scan);
    if (status != GC_OK)
        return status;
    status = carry_in(infer, node, frame.scope, &carried);
    if (status == GC_OK)
        status = body_merge_declared(infer, frame.scope);
    return status == GC_OK ? gc_infer_push(infer, &frame) : status;
}

/* Stacks the body's outputs of all iterations, then those of all batches if is_batched. */
static enum gc_status collect(struct gc_infer *infer, const struct gc_graph_node *node,
                              uint32_t scope, uint32_t output, const struct carried *carried,
                              const struct scan *scan)
{
    struct gc_graph_value *to = control_output(infer, node, output);
    const struct gc_graph_value *from = body_output(infer, scope, output);
    enum gc_status status = GC_OK;
    if (to == NULL || from == NULL)
        return GC_OK;
    if (output >= carried->count)
        status = stack_up(infer, to, from, scan->iterations,
                          axis_of(node, "scan_output_axes", output - carried->count));
    if (status != GC_OK || !is_batched(node))
        return status;
    const struct gc_graph_value plain = *to;
    to->data = NULL;
    return stack_up(infer, to, &plain, scan->batch, 0);
}

static enum gc_status scan_end(struct gc_infer *infer, struct gc_infer_frame *frame, bool *again)
{
    const struct gc_graph_node *node = &infer->graph->nodes[frame->node];
    const struct carried carried = carried_of(infer, node, frame->scope);
    struct scan scan;
    enum gc_status status = GC_OK;
    if (!is_exhausted(infer) && frame->round < GC_INFER_ROUNDS_MAX)
        status = carry_over(infer, frame, &carried, again);
    if (status != GC_OK || *again)
        return status;
    status = slice_in(infer, node, frame->scope, &carried, &scan);
    if (status != GC_OK)
        return status;
    carry_out(infer, frame, &carried);
    for (uint32_t i = 0; status == GC_OK && i < node->output_count; i++)
        status = collect(infer, node, frame->scope, i, &carried, &scan);
    return status;
}
