/* The order of execution: the nodes that run, and their steps. Nested graphs are walked with a
 * stack of one entry per scope. */
#include "core/planner/life.h"

#include <string.h>

struct frame {
    uint32_t scope;
    uint32_t next;      /* of its nodes */
    uint32_t node;      /* whose graphs are being walked; GC_GRAPH_NONE */
    uint32_t attribute; /* the next of its attributes */
    uint32_t second;    /* of an If: the second branch; GC_GRAPH_NONE */
};

static bool is_own(const struct gc_graph_node *node, const char *op)
{
    return node->domain[0] == '\0' && strcmp(node->op, op) == 0;
}

bool gc_life_is_if(const struct gc_graph_node *node)
{
    return is_own(node, "If");
}

/* ---- values ---- */

/* The bytes with unknown dimensions as 1: a lower bound. */
static uint64_t least_bytes(const struct gc_type *type)
{
    uint64_t elements = 1;
    uint64_t bytes;
    if (type->kind != GC_TYPE_TENSOR || !type->shape.is_known)
        return 0;
    for (uint32_t i = 0; i < type->shape.rank; i++) {
        const struct gc_dim *dim = &type->shape.dims[i];
        if (dim->kind == GC_DIM_NUMBER && dim->number > 0 &&
            __builtin_mul_overflow(elements, (uint64_t)dim->number, &elements))
            return 0;
    }
    return gc_dtype_bytes(type->dtype, elements, &bytes) ? bytes : 0;
}

static bool is_text(const struct gc_type *type)
{
    return type->dtype != GC_DTYPE_NONE &&
           gc_dtype_get_info(type->dtype)->kind == GC_DTYPE_CLASS_TEXT;
}

static enum gc_life_role role_of(const struct gc_graph_value *value)
{
    if (value->is_initializer)
        return GC_LIFE_WEIGHT;
    if (value->scope == 0 && value->is_input)
        return GC_LIFE_INPUT;
    return GC_LIFE_ACTIVATION;
}

static void set_value(const struct gc_life *life, uint32_t index)
{
    const struct gc_graph_value *from = &life->graph->values[index];
    struct gc_life_value *value = &life->values[index];
    *value = (struct gc_life_value){.parent = index,
                                    .role = (uint8_t)role_of(from),
                                    .is_constant = from->is_initializer,
                                    .made = GC_LIFE_NEVER,
                                    .last = GC_LIFE_NEVER,
                                    .group_made = GC_LIFE_NEVER,
                                    .group_last = GC_LIFE_NEVER,
                                    .held_for = GC_GRAPH_NONE,
                                    .first_use = GC_LIFE_NEVER};
    value->is_known = from->type.kind == GC_TYPE_TENSOR &&
                      gc_graph_value_bytes(life->graph, index, &value->bytes);
    if (!value->is_known)
        value->bytes = least_bytes(&from->type);
    value->own_bytes = value->bytes;
    value->is_planned = !is_text(&from->type);
}

/* Outputs of the main graph that are made in it. */
static void set_outputs(const struct gc_life *life)
{
    const struct gc_graph_scope *main = &life->graph->scopes[0];
    for (uint32_t i = 0; i < main->output_count; i++) {
        const uint32_t output = main->outputs[i];
        if (output != GC_GRAPH_NONE && life->values[output].role == GC_LIFE_ACTIVATION)
            life->values[output].role = GC_LIFE_OUTPUT;
    }
}

/* ---- nodes that do not run ---- */

/* Is the node computed once, at load? Runtimes compute DequantizeLinear of weights in the run,
 * because its result is several times as large. */
static bool is_constant_node(const struct gc_life *life, const struct gc_graph_node *node)
{
    if (node->output_count == 0 || is_own(node, "DequantizeLinear"))
        return false;
    for (uint32_t i = 0; i < node->output_count; i++) {
        if (node->outputs[i] != GC_GRAPH_NONE && !life->graph->values[node->outputs[i]].is_constant)
            return false;
    }
    for (uint32_t i = 0; i < node->input_count; i++) {
        if (node->inputs[i] != GC_GRAPH_NONE && !life->values[node->inputs[i]].is_constant)
            return false;
    }
    return true;
}

/* Is the content of all the node's outputs known, and none of them an output of the model? */
static bool is_known_node(const struct gc_life *life, const struct gc_graph_node *node)
{
    bool has_output = false;
    for (uint32_t i = 0; i < node->output_count; i++) {
        const uint32_t output = node->outputs[i];
        if (output == GC_GRAPH_NONE)
            continue;
        const struct gc_data *data = life->graph->values[output].data;
        if (data == NULL || !data->is_complete || life->values[output].role == GC_LIFE_OUTPUT)
            return false;
        has_output = true;
    }
    return has_output;
}

/* A constant that is an output is copied to an output buffer. */
static bool has_main_output(const struct gc_life *life, const struct gc_graph_node *node)
{
    for (uint32_t i = 0; i < node->output_count; i++) {
        if (node->outputs[i] != GC_GRAPH_NONE &&
            life->values[node->outputs[i]].role == GC_LIFE_OUTPUT)
            return true;
    }
    return false;
}

static bool fold(struct gc_life *life, const struct gc_graph_node *node)
{
    const bool is_constant = is_constant_node(life, node) && !has_main_output(life, node);
    if (!is_constant && !is_known_node(life, node))
        return false;
    for (uint32_t i = 0; i < node->output_count; i++) {
        if (node->outputs[i] == GC_GRAPH_NONE)
            continue;
        struct gc_life_value *value = &life->values[node->outputs[i]];
        value->is_constant = is_constant;
        value->is_planned = value->is_planned && is_constant;
        value->role = GC_LIFE_WEIGHT;
    }
    return true;
}

/* ---- events ---- */

static uint32_t add_event(struct gc_life *life, enum gc_life_event_kind kind, uint32_t node,
                          uint32_t scope)
{
    const uint32_t step = life->step_count;
    life->events[life->event_count++] = (struct gc_life_event){kind, node, scope, step};
    life->step_count += kind != GC_LIFE_FOLDED;
    return step;
}

/* The next graph of the node that is not dead, from `attribute` on. */
static bool next_graph(const struct gc_life *life, uint32_t node, uint32_t *attribute,
                       uint32_t *scope)
{
    const struct gc_graph_node *of = &life->graph->nodes[node];
    for (; *attribute < of->attribute_count; (*attribute)++) {
        const struct gc_graph_attribute *at = &of->attributes[*attribute];
        if (at->kind != GC_ATTRIBUTE_GRAPH || life->graph->scopes[at->scope].is_dead)
            continue;
        *scope = at->scope;
        (*attribute)++;
        return true;
    }
    return false;
}

struct gc_life_carry gc_life_carried(const struct gc_life *life, uint32_t node, uint32_t scope)
{
    const struct gc_graph_node *of = &life->graph->nodes[node];
    const struct gc_graph_scope *body = &life->graph->scopes[scope];
    struct gc_life_carry carry = {.count = 0};
    if (is_own(of, "Loop")) {
        carry = (struct gc_life_carry){.body_input = 2, .body_output = 1, .node_input = 2};
        carry.count = body->input_count > 2 ? body->input_count - 2 : 0;
    } else if (is_own(of, "Scan")) {
        const struct gc_graph_attribute *scanned = gc_graph_find_attribute(of, "num_scan_inputs");
        carry.node_input = of->opset < 9;
        if (scanned != NULL && scanned->kind == GC_ATTRIBUTE_INT && scanned->integer >= 0 &&
            scanned->integer <= body->input_count)
            carry.count = body->input_count - (uint32_t)scanned->integer;
    }
    const uint32_t outputs = gc_life_less(body->output_count, carry.body_output);
    const uint32_t inputs = gc_life_less(of->input_count, carry.node_input);
    if (carry.count > outputs)
        carry.count = outputs;
    if (carry.count > inputs)
        carry.count = inputs;
    if (carry.count > of->output_count)
        carry.count = of->output_count;
    return carry;
}

uint32_t gc_life_folded_branch(const struct gc_life *life, uint32_t node)
{
    uint32_t attribute = 0;
    uint32_t first;
    uint32_t second;
    if (!gc_life_is_if(&life->graph->nodes[node]) || !next_graph(life, node, &attribute, &first) ||
        next_graph(life, node, &attribute, &second))
        return GC_GRAPH_NONE;
    return first;
}

static void set_made(struct gc_life *life, uint32_t count, const uint32_t *list, uint32_t step)
{
    for (uint32_t i = 0; i < count; i++) {
        if (list[i] != GC_GRAPH_NONE && life->values[list[i]].made == GC_LIFE_NEVER)
            life->values[list[i]].made = step;
    }
}

static void begin_node(struct gc_life *life, struct frame *frame, uint32_t index)
{
    const struct gc_graph_node *node = &life->graph->nodes[index];
    uint32_t attribute = 0;
    uint32_t scope;
    if (node->is_dead)
        return;
    if (fold(life, node)) {
        add_event(life, GC_LIFE_FOLDED, index, GC_GRAPH_NONE);
        return;
    }
    if (!next_graph(life, index, &attribute, &scope)) {
        set_made(life, node->output_count, node->outputs,
                 add_event(life, GC_LIFE_RUN, index, GC_GRAPH_NONE));
        return;
    }
    const uint32_t step = add_event(life, GC_LIFE_OPEN, index, scope);
    /* A loop's stacked outputs live from the first iteration on. */
    if (!gc_life_is_if(node)) {
        const uint32_t carried = gc_life_carried(life, index, scope).count;
        set_made(life, node->output_count - carried, node->outputs + carried, step);
    }
    *frame = (struct frame){frame->scope, frame->next, index, 0, GC_GRAPH_NONE};
}

static uint64_t weigh(const struct gc_life *life, uint32_t index)
{
    const struct gc_graph_scope *scope = &life->graph->scopes[index];
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < scope->node_count; i++) {
        const struct gc_graph_node *node = &life->graph->nodes[scope->nodes[i]];
        for (uint32_t j = 0; j < node->output_count; j++) {
            if (node->outputs[j] != GC_GRAPH_NONE &&
                __builtin_add_overflow(bytes, life->values[node->outputs[j]].bytes, &bytes))
                return UINT64_MAX;
        }
    }
    return bytes;
}

/* The current node's next graph to walk. The branch of an If with more bytes goes first: a result
 * shared by both branches lives from the end of the first on. */
static bool next_inner(const struct gc_life *life, struct frame *frame, uint32_t *scope)
{
    uint32_t other;
    if (frame->second != GC_GRAPH_NONE) {
        *scope = frame->second;
        frame->second = GC_GRAPH_NONE;
        return true;
    }
    if (!next_graph(life, frame->node, &frame->attribute, scope))
        return false;
    if (gc_life_is_if(&life->graph->nodes[frame->node]) &&
        next_graph(life, frame->node, &frame->attribute, &other)) {
        const bool is_swapped = weigh(life, other) > weigh(life, *scope);
        frame->second = is_swapped ? *scope : other;
        *scope = is_swapped ? other : *scope;
    }
    return true;
}

static void walk(struct gc_life *life, struct frame *frames)
{
    uint32_t depth = 1;
    frames[0] = (struct frame){.node = GC_GRAPH_NONE};
    while (depth > 0) {
        struct frame *frame = &frames[depth - 1];
        const struct gc_graph_scope *scope = &life->graph->scopes[frame->scope];
        uint32_t inner;
        if (frame->node != GC_GRAPH_NONE && next_inner(life, frame, &inner)) {
            const bool is_loop = !gc_life_is_if(&life->graph->nodes[frame->node]);
            const uint32_t begin = life->step_count - 1;
            life->scopes[inner] = (struct gc_life_scope){.begin = begin, .is_loop = is_loop};
            set_made(life, life->graph->scopes[inner].input_count,
                     life->graph->scopes[inner].inputs, begin);
            frames[depth++] = (struct frame){.scope = inner, .node = GC_GRAPH_NONE};
        } else if (frame->next < scope->node_count) {
            frame->node = GC_GRAPH_NONE;
            begin_node(life, frame, scope->nodes[frame->next++]);
        } else {
            if (--depth > 0) {
                const uint32_t node = frames[depth - 1].node;
                life->scopes[frame->scope].end = add_event(life, GC_LIFE_CLOSE, node, frame->scope);
                set_made(life, life->graph->nodes[node].output_count,
                         life->graph->nodes[node].outputs, life->scopes[frame->scope].end);
            }
        }
    }
}

enum gc_status gc_life_order(struct gc_life *life)
{
    const struct gc_graph *graph = life->graph;
    const uint64_t event_max = (uint64_t)graph->node_count + graph->scope_count;
    life->events = gc_region_alloc(life->region, event_max * sizeof(*life->events));
    life->scopes = gc_region_alloc(life->region, graph->scope_count * sizeof(*life->scopes));
    life->values = gc_region_alloc(life->region, graph->value_count * sizeof(*life->values));
    struct frame *frames = gc_region_alloc(life->region, graph->scope_count * sizeof(struct frame));
    if (life->events == NULL || life->scopes == NULL || life->values == NULL || frames == NULL)
        return GC_NO_HOST_MEMORY;
    if (event_max >= GC_LIFE_NEVER)
        return GC_OVERFLOW;
    for (uint32_t i = 0; i < graph->scope_count; i++)
        life->scopes[i].begin = GC_LIFE_NEVER;
    for (uint32_t i = 0; i < graph->value_count; i++)
        set_value(life, i);
    set_outputs(life);
    walk(life, frames);
    return GC_OK;
}
