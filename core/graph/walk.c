/* Inference by abstract interpretation: visits every node once in its order, and inner graphs at
 * their node. */
#include "core/graph/engine.h"

#include "core/base/bits.h"
#include "core/io/text.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- before ---- */

static enum gc_status fail_dims(struct gc_infer *infer, const char *dims)
{
    char shown[112];
    gc_text_printable(dims, strlen(dims), shown, sizeof(shown));
    snprintf(infer->error->text, sizeof(infer->error->text),
             "dimensions \"%s\": \"name=N,...\" with whole numbers is accepted", shown);
    return GC_INVALID_ARGUMENT;
}

/* One of "name=N,…". */
struct binding {
    const char *name;
    size_t length;
    int64_t value;
};

/* Reads the next binding of the list; false at its end. The name is empty if the text is malformed.
 */
static bool next_binding(const char **dims, struct binding *binding)
{
    const char *at = *dims;
    uint64_t value;
    *binding = (struct binding){.name = at};
    if (at == NULL || *at == '\0')
        return false;
    const size_t length = strcspn(at, ",");
    const char *equals = memchr(at, '=', length);
    *dims = at + length + (at[length] == ',');
    if (equals != NULL && gc_text_uint(equals + 1, (size_t)(at + length - equals - 1), &value) &&
        value <= INT64_MAX) {
        binding->length = (size_t)(equals - at);
        binding->value = (int64_t)value;
    }
    return true;
}

/* Ignores names that the graph does not have; the caller reports them. */
static enum gc_status bind_dims(struct gc_infer *infer, const char *dims)
{
    struct gc_graph *graph = infer->graph;
    struct binding binding;
    while (next_binding(&dims, &binding)) {
        if (binding.length == 0)
            return fail_dims(infer, binding.name);
        for (uint32_t i = 0; i < graph->symbol_count; i++) {
            struct gc_graph_symbol *symbol = &graph->symbols[i];
            if (strlen(symbol->name) == binding.length &&
                memcmp(symbol->name, binding.name, binding.length) == 0) {
                symbol->is_bound = true;
                symbol->value = (uint64_t)binding.value;
            }
        }
    }
    return GC_OK;
}

/* "INPUT.AXIS=N": a dimension without a name of its own. */
static enum gc_status set_axis(struct gc_infer *infer, struct gc_graph_value *value,
                               const struct binding *binding, size_t length)
{
    const struct gc_shape *shape = &value->type.shape;
    uint64_t axis;
    if (!gc_text_uint(binding->name + length + 1, binding->length - length - 1, &axis) ||
        axis >= shape->rank || shape->dims[axis].kind == GC_DIM_NUMBER)
        return GC_OK;
    struct gc_dim *dims = gc_infer_alloc(infer, shape->rank * sizeof(*dims));
    if (dims == NULL)
        return gc_infer_no_memory(infer);
    memcpy(dims, shape->dims, shape->rank * sizeof(*dims));
    dims[axis] = gc_dim_number(binding->value);
    value->type.shape.dims = dims;
    return GC_OK;
}

/* "INPUT=N": the value of an input that is one integer. */
static enum gc_status set_content(struct gc_infer *infer, struct gc_graph_value *value,
                                  int64_t number)
{
    const enum gc_dtype_class dtype_class = gc_dtype_get_info(value->type.dtype)->kind;
    uint64_t elements;
    if (!gc_infer_elements(&value->type.shape, &elements) || elements != 1 ||
        (dtype_class != GC_DTYPE_CLASS_INTEGER && dtype_class != GC_DTYPE_CLASS_BOOLEAN))
        return GC_OK;
    struct gc_data *data = gc_infer_alloc(infer, sizeof(*data));
    struct gc_dim *item = gc_infer_alloc(infer, sizeof(*item));
    if (data == NULL || item == NULL)
        return gc_infer_no_memory(infer);
    *item = gc_dim_number(number);
    *data = (struct gc_data){.count = 1, .is_complete = true, .items = item};
    value->data = data;
    return GC_OK;
}

static enum gc_status set_inputs(struct gc_infer *infer, const char *dims)
{
    const struct gc_graph_scope *scope = &infer->graph->scopes[0];
    struct binding binding;
    enum gc_status status = GC_OK;
    while (status == GC_OK && next_binding(&dims, &binding)) {
        for (uint32_t i = 0; status == GC_OK && i < scope->input_count; i++) {
            struct gc_graph_value *value = &infer->graph->values[scope->inputs[i]];
            const size_t length = strlen(value->name);
            if (value->is_initializer || length > binding.length ||
                memcmp(value->name, binding.name, length) != 0)
                continue;
            if (length == binding.length)
                status = set_content(infer, value, binding.value);
            else if (binding.name[length] == '.')
                status = set_axis(infer, value, &binding, length);
        }
    }
    return status;
}

static enum gc_status begin_symbols(struct gc_infer *infer)
{
    const struct gc_graph_store *store = infer->store;
    infer->symbol_room = store->file_symbol_count + 64;
    infer->graph->symbols =
        gc_infer_alloc(infer, infer->symbol_room * sizeof(*infer->graph->symbols));
    infer->notes = gc_infer_alloc(infer, GC_GRAPH_NOTES_MAX * sizeof(*infer->notes));
    infer->states = gc_infer_alloc(infer, infer->graph->node_count);
    if (infer->graph->symbols == NULL || infer->notes == NULL || infer->states == NULL) {
        infer->graph->symbol_count = 0;
        return gc_infer_no_memory(infer);
    }
    if (store->file_symbol_count > 0)
        memcpy(infer->graph->symbols, store->file_symbols,
               store->file_symbol_count * sizeof(*infer->graph->symbols));
    infer->graph->symbol_count = store->file_symbol_count;
    return GC_OK;
}

static void begin_notes(struct gc_infer *infer)
{
    const struct gc_graph_store *store = infer->store;
    for (uint32_t i = 0; i < store->file_note_count && i < GC_GRAPH_NOTES_MAX; i++)
        infer->notes[infer->note_count++] = store->file_notes[i];
}

static enum gc_status begin_values(struct gc_infer *infer)
{
    struct gc_graph *graph = infer->graph;
    enum gc_status status = GC_OK;
    for (uint32_t i = 0; status == GC_OK && i < graph->value_count; i++) {
        struct gc_graph_value *value = &graph->values[i];
        value->is_constant = value->is_initializer;
        value->type = infer->unknown_type;
        if (value->is_initializer) {
            value->type = value->declared;
            continue;
        }
        value->data = NULL;
        if (value->is_input && value->scope == 0)
            status = gc_merge_import_type(infer, &value->declared, &value->type);
    }
    return status;
}

static enum gc_status begin_nodes(struct gc_infer *infer)
{
    struct gc_graph *graph = infer->graph;
    struct gc_op_index index;
    if (!gc_op_index_init(&index, infer->region))
        return gc_infer_no_memory(infer);
    for (uint32_t i = 0; i < graph->node_count; i++) {
        struct gc_graph_node *node = &graph->nodes[i];
        node->is_dead = false;
        node->rule = gc_op_find(&index, node->domain, node->op, node->opset);
    }
    for (uint32_t i = 0; i < graph->scope_count; i++)
        graph->scopes[i].is_dead = i > 0 && graph->scopes[i].node == GC_GRAPH_NONE;
    return GC_OK;
}

/* ---- the walk ---- */

static void clear_outputs(struct gc_infer *infer)
{
    for (uint32_t i = 0; i < infer->node->output_count; i++) {
        struct gc_graph_value *value = gc_infer_output(infer, i);
        if (value == NULL)
            continue;
        value->type = infer->unknown_type;
        value->data = NULL;
        value->is_constant = false;
    }
}

/* After a contradiction the dtypes still hold. */
static void clear_shapes(struct gc_infer *infer)
{
    for (uint32_t i = 0; i < infer->node->output_count; i++) {
        struct gc_graph_value *value = gc_infer_output(infer, i);
        if (value == NULL)
            continue;
        value->type.shape = (struct gc_shape){0};
        value->data = NULL;
    }
}

/* True if the node's outputs are the same in every run: the operator is deterministic and all
 * inputs are constant. */
static bool is_constant(const struct gc_infer *infer)
{
    const struct gc_graph_node *node = infer->node;
    if (node->rule == NULL || node->rule->memory == GC_OP_RANDOM)
        return false;
    if (node->input_count == 0)
        return strcmp(node->op, "Constant") == 0;
    for (uint32_t i = 0; i < node->input_count; i++) {
        if (node->inputs[i] != GC_GRAPH_NONE && !infer->graph->values[node->inputs[i]].is_constant)
            return false;
    }
    return true;
}

static enum gc_status run_rule(struct gc_infer *infer, uint32_t index)
{
    enum gc_status status = GC_OK;
    infer->scratch_used = 0;
    infer->states[index] = GC_INFER_FINE;
    clear_outputs(infer);
    if (infer->node->rule == NULL)
        infer->states[index] = GC_INFER_UNKNOWN_NODE;
    else
        status = infer->node->rule->rule(infer);
    if (status == GC_FORMAT) {
        infer->states[index] = GC_INFER_FAILED;
        clear_shapes(infer);
        status = GC_OK;
    }
    const bool constant = is_constant(infer);
    for (uint32_t i = 0; status == GC_OK && i < infer->node->output_count; i++) {
        if (infer->node->outputs[i] == GC_GRAPH_NONE)
            continue;
        infer->graph->values[infer->node->outputs[i]].is_constant = constant;
        status = gc_merge_declared(infer, infer->node->outputs[i]);
    }
    return status;
}

static enum gc_status step(struct gc_infer *infer)
{
    struct gc_infer_frame *frame = &infer->frames[infer->depth - 1];
    const struct gc_graph_scope *scope = &infer->graph->scopes[frame->scope];
    if (frame->position == scope->node_count) {
        if (frame->node == GC_GRAPH_NONE) {
            infer->depth--;
            return GC_OK;
        }
        infer->node = &infer->graph->nodes[frame->node];
        return gc_control_end_graph(infer, frame);
    }
    const uint32_t index = scope->nodes[frame->position++];
    infer->steps++;
    infer->node = &infer->graph->nodes[index];
    if (!gc_control_is_node(infer, index))
        return run_rule(infer, index);
    infer->states[index] = infer->node->rule == NULL ? GC_INFER_UNKNOWN_NODE : GC_INFER_FINE;
    clear_outputs(infer);
    if (infer->node->rule == NULL) {
        enum gc_status status = GC_OK;
        for (uint32_t i = 0; status == GC_OK && i < infer->node->output_count; i++) {
            if (infer->node->outputs[i] != GC_GRAPH_NONE)
                status = gc_merge_declared(infer, infer->node->outputs[i]);
        }
        if (status != GC_OK)
            return status;
    }
    return gc_control_begin(infer, index);
}

/* ---- after ---- */

/* The inner nodes of a dead branch are dead, too. */
static void propagate_dead(struct gc_graph *graph)
{
    for (uint32_t i = 0; i < graph->scope_count; i++) {
        uint32_t at = i;
        while (!graph->scopes[at].is_dead && graph->scopes[at].node != GC_GRAPH_NONE)
            at = graph->nodes[graph->scopes[at].node].scope;
        graph->scopes[i].is_dead = graph->scopes[at].is_dead;
    }
    for (uint32_t i = 0; i < graph->node_count; i++)
        graph->nodes[i].is_dead = graph->scopes[graph->nodes[i].scope].is_dead;
}

static bool is_open(const struct gc_shape *shape)
{
    for (uint32_t i = 0; i < shape->rank; i++) {
        if (shape->dims[i].kind != GC_DIM_NUMBER)
            return true;
    }
    return false;
}

static void cover(struct gc_graph *graph, const uint8_t *states)
{
    struct gc_graph_coverage *coverage = &graph->coverage;
    *coverage = (struct gc_graph_coverage){0};
    for (uint32_t i = 0; i < graph->node_count; i++) {
        const struct gc_graph_node *node = &graph->nodes[i];
        if (node->is_dead)
            continue;
        coverage->unknown_nodes += states[i] == GC_INFER_UNKNOWN_NODE;
        coverage->failed_nodes += states[i] == GC_INFER_FAILED;
        for (uint32_t k = 0; k < node->output_count; k++) {
            if (node->outputs[k] == GC_GRAPH_NONE)
                continue;
            const struct gc_type *type = &graph->values[node->outputs[k]].type;
            coverage->values++;
            if (type->dtype == GC_DTYPE_NONE || !type->shape.is_known)
                coverage->unknown++;
            else if (is_open(&type->shape))
                coverage->open++;
            else
                coverage->known++;
        }
    }
}

static enum gc_status infer_all(struct gc_infer *infer, const char *dims)
{
    enum gc_status status = begin_symbols(infer);
    if (status == GC_OK)
        status = bind_dims(infer, dims);
    if (status != GC_OK)
        return status;
    begin_notes(infer);
    status = begin_nodes(infer);
    if (status == GC_OK)
        status = begin_values(infer);
    if (status == GC_OK)
        status = set_inputs(infer, dims);
    const struct gc_infer_frame frame = {.node = GC_GRAPH_NONE};
    if (status == GC_OK)
        status = gc_infer_push(infer, &frame);
    while (status == GC_OK && infer->depth > 0)
        status = step(infer);
    return status;
}

enum gc_status gc_graph_infer(struct gc_graph *graph, const char *dims,
                              struct gc_model_error *error)
{
    struct gc_graph_store *store = (struct gc_graph_store *)graph;
    const int saved_errno = errno;
    error->text[0] = '\0';
    gc_region_fini(&store->results);
    gc_region_init(&store->results, store->memory_max);
    struct gc_infer *infer = gc_region_alloc(&store->results, sizeof(*infer));
    if (infer == NULL) {
        gc_text_copy(error->text, sizeof(error->text), "no memory to infer shapes with", 30);
        return GC_NO_HOST_MEMORY;
    }
    *infer = (struct gc_infer){
        .store = store,
        .graph = graph,
        .region = &store->results,
        .error = error,
        .unknown_type.dtype = GC_DTYPE_NONE,
        .steps_max = 16 * (uint64_t)graph->node_count + 10000,
    };
    const enum gc_status status = infer_all(infer, dims);
    for (uint32_t i = 0; status != GC_OK && i < graph->value_count; i++) {
        graph->values[i].type = infer->unknown_type;
        graph->values[i].data = NULL;
    }
    graph->notes = infer->notes;
    graph->note_count = infer->note_count;
    if (status == GC_OK) {
        propagate_dead(graph);
        cover(graph, infer->states);
    }
    errno = saved_errno;
    return status;
}
