/* The helpers of infer.h: inputs, attributes and outputs as a rule sees them. */
#include "core/base/bits.h"
#include "core/graph/engine.h"
#include "core/io/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void *gc_infer_alloc(struct gc_infer *infer, uint64_t bytes)
{
    void *memory = gc_region_alloc(infer->region, bytes);
    if (memory != NULL || infer->error->text[0] != '\0')
        return memory;
    char shown[GC_MODEL_ERROR_BYTES / 3];
    gc_text_printable(infer->graph->path, strlen(infer->graph->path), shown, sizeof(shown));
    if (infer->region->full)
        snprintf(infer->error->text, sizeof(infer->error->text),
                 "%s: its shapes need more than the %llu bytes of memory that inference may take",
                 shown, (unsigned long long)infer->store->memory_max);
    else
        snprintf(infer->error->text, sizeof(infer->error->text),
                 "%s: no memory to infer its shapes with", shown);
    return NULL;
}

enum gc_status gc_infer_no_memory(const struct gc_infer *infer)
{
    return infer->region->full ? GC_OUT_OF_RANGE : GC_NO_HOST_MEMORY;
}

struct gc_dim gc_infer_symbol(struct gc_infer *infer, bool is_loose)
{
    struct gc_graph *graph = infer->graph;
    if (graph->symbol_count == infer->symbol_room) {
        const uint32_t room = infer->symbol_room < 64 ? 64 : infer->symbol_room * 2;
        struct gc_graph_symbol *symbols = NULL;
        if (room > infer->symbol_room)
            symbols = gc_infer_alloc(infer, room * sizeof(*symbols));
        if (symbols == NULL)
            return gc_dim_unknown();
        if (graph->symbol_count > 0)
            memcpy(symbols, graph->symbols, graph->symbol_count * sizeof(*symbols));
        graph->symbols = symbols;
        infer->symbol_room = room;
    }
    graph->symbols[graph->symbol_count] = (struct gc_graph_symbol){.is_loose = is_loose};
    return (struct gc_dim){.kind = GC_DIM_SYMBOL, .symbol = graph->symbol_count++};
}

static void add_note(struct gc_infer *infer, const char *format, va_list list)
{
    char line[512];
    char name[112] = "";
    char op[48] = "";
    if (infer->note_count >= GC_GRAPH_NOTES_MAX)
        return;
    if (infer->node != NULL) {
        gc_text_printable(infer->node->op, strlen(infer->node->op), op, sizeof(op));
        gc_text_printable(infer->node->name, strlen(infer->node->name), name, sizeof(name));
    }
    const int head =
        infer->node == NULL ? 0 : snprintf(line, sizeof(line), "node \"%s\" (%s): ", name, op);
    if (head < 0 || (size_t)head >= sizeof(line))
        return;
    vsnprintf(line + head, sizeof(line) - (size_t)head, format, list);
    const char *text = gc_region_text(infer->region, line, strlen(line));
    if (text != NULL)
        infer->notes[infer->note_count++] = text;
}

void gc_infer_note(struct gc_infer *infer, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    add_note(infer, format, list);
    va_end(list);
}

enum gc_status gc_infer_fail(struct gc_infer *infer, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    add_note(infer, format, list);
    va_end(list);
    return GC_FORMAT;
}

/* ---- shapes ---- */

bool gc_infer_elements(const struct gc_shape *shape, uint64_t *elements)
{
    uint64_t product = 1;
    bool is_empty = false;
    bool fits = true;
    if (!shape->is_known)
        return false;
    for (uint32_t i = 0; i < shape->rank; i++) {
        if (shape->dims[i].kind != GC_DIM_NUMBER || shape->dims[i].number < 0)
            return false;
        is_empty = is_empty || shape->dims[i].number == 0;
        fits = fits && !__builtin_mul_overflow(product, (uint64_t)shape->dims[i].number, &product);
    }
    *elements = is_empty ? 0 : product;
    return is_empty || fits;
}

/* ---- the node ---- */

const struct gc_graph_node *gc_infer_node(const struct gc_infer *infer)
{
    return infer->node;
}

uint32_t gc_infer_opset(const struct gc_infer *infer)
{
    return infer->node->opset;
}

uint32_t gc_infer_input_count(const struct gc_infer *infer)
{
    return infer->node->input_count;
}

uint32_t gc_infer_output_count(const struct gc_infer *infer)
{
    return infer->node->output_count;
}

static const struct gc_graph_value *input_value(const struct gc_infer *infer, uint32_t input)
{
    if (input >= infer->node->input_count || infer->node->inputs[input] == GC_GRAPH_NONE)
        return NULL;
    return &infer->graph->values[infer->node->inputs[input]];
}

struct gc_graph_value *gc_infer_output(const struct gc_infer *infer, uint32_t output)
{
    if (output >= infer->node->output_count || infer->node->outputs[output] == GC_GRAPH_NONE)
        return NULL;
    return &infer->graph->values[infer->node->outputs[output]];
}

bool gc_infer_has_input(const struct gc_infer *infer, uint32_t input)
{
    return input_value(infer, input) != NULL;
}

bool gc_infer_has_output(const struct gc_infer *infer, uint32_t output)
{
    return gc_infer_output(infer, output) != NULL;
}

/* ---- inputs ---- */

const struct gc_type *gc_infer_type(const struct gc_infer *infer, uint32_t input)
{
    const struct gc_graph_value *value = input_value(infer, input);
    return value != NULL ? &value->type : &infer->unknown_type;
}

enum gc_dtype gc_infer_dtype(const struct gc_infer *infer, uint32_t input)
{
    return gc_infer_type(infer, input)->dtype;
}

const struct gc_shape *gc_infer_shape(const struct gc_infer *infer, uint32_t input)
{
    return &gc_infer_type(infer, input)->shape;
}

const struct gc_data *gc_infer_data(const struct gc_infer *infer, uint32_t input)
{
    const struct gc_graph_value *value = input_value(infer, input);
    return value != NULL ? value->data : NULL;
}

static bool as_number(struct gc_dim item, int64_t *number)
{
    const double beyond = 9223372036854775808.0; /* 2^63 */
    if (item.kind == GC_DIM_REAL && item.real >= -beyond && item.real < beyond)
        *number = (int64_t)item.real;
    else if (item.kind == GC_DIM_NUMBER)
        *number = item.number;
    else
        return false;
    return true;
}

/* All elements as numbers. False if one is unknown or there are more than `max`. */
static bool numbers_of(const struct gc_infer *infer, uint32_t input, int64_t *numbers, uint32_t max,
                       uint32_t *count)
{
    const struct gc_data *data = gc_infer_data(infer, input);
    *count = 0;
    if (data == NULL || data->count > max)
        return false;
    for (uint32_t i = 0; i < data->count; i++) {
        if (!as_number(data->items[i], &numbers[i]))
            return false;
    }
    *count = data->count;
    return true;
}

bool gc_infer_scalar(const struct gc_infer *infer, uint32_t input, int64_t *number)
{
    uint32_t count;
    return numbers_of(infer, input, number, 1, &count) && count == 1;
}

/* ---- outputs ---- */

void gc_infer_set_dtype(struct gc_infer *infer, uint32_t output, enum gc_dtype dtype)
{
    struct gc_graph_value *value = gc_infer_output(infer, output);
    if (value == NULL)
        return;
    value->type.kind = GC_TYPE_TENSOR;
    value->type.dtype = dtype;
}

static enum gc_status copy_shape(struct gc_infer *infer, const struct gc_shape *from,
                                 struct gc_shape *to)
{
    *to = (struct gc_shape){.is_known = from->is_known};
    if (!from->is_known)
        return GC_OK;
    if (from->rank > GC_GRAPH_RANK_MAX)
        return gc_infer_fail(infer, "a shape of %u dimensions; %d are accepted", from->rank,
                             GC_GRAPH_RANK_MAX);
    struct gc_dim *dims = gc_infer_alloc(infer, from->rank * sizeof(*dims));
    if (dims == NULL)
        return gc_infer_no_memory(infer);
    for (uint32_t i = 0; i < from->rank; i++) {
        dims[i] = from->dims[i];
        if (dims[i].kind == GC_DIM_NUMBER && dims[i].number < 0)
            return gc_infer_fail(infer, "dimension %u of an output would be %lld", i,
                                 (long long)dims[i].number);
        if (dims[i].kind != GC_DIM_NUMBER && dims[i].kind != GC_DIM_SYMBOL)
            dims[i] = gc_infer_symbol(infer, false);
    }
    to->rank = from->rank;
    to->dims = dims;
    return GC_OK;
}

enum gc_status gc_infer_set_shape(struct gc_infer *infer, uint32_t output,
                                  const struct gc_dim *dims, uint32_t rank)
{
    const struct gc_shape shape = {.is_known = true, .rank = rank, .dims = dims};
    struct gc_graph_value *value = gc_infer_output(infer, output);
    if (value == NULL)
        return GC_OK;
    value->type.kind = GC_TYPE_TENSOR;
    return copy_shape(infer, &shape, &value->type.shape);
}

enum gc_status gc_infer_set_type(struct gc_infer *infer, uint32_t output,
                                 const struct gc_type *type)
{
    struct gc_graph_value *value = gc_infer_output(infer, output);
    if (value == NULL)
        return GC_OK;
    value->type.kind = type->kind;
    value->type.dtype = type->dtype;
    return copy_shape(infer, &type->shape, &value->type.shape);
}

enum gc_status gc_infer_pass_dtype(struct gc_infer *infer, uint32_t output, uint32_t input)
{
    const struct gc_graph_value *from = input_value(infer, input);
    struct gc_graph_value *to = gc_infer_output(infer, output);
    if (from == NULL || to == NULL)
        return GC_OK;
    to->type.kind = from->type.kind;
    to->type.dtype = from->type.dtype;
    return GC_OK;
}

/* Shapes and contents never change once set, so they are shared. */
enum gc_status gc_infer_pass_shape(struct gc_infer *infer, uint32_t output, uint32_t input)
{
    const struct gc_graph_value *from = input_value(infer, input);
    struct gc_graph_value *to = gc_infer_output(infer, output);
    if (from == NULL || to == NULL)
        return GC_OK;
    if (to->type.kind == GC_TYPE_UNKNOWN && from->type.shape.is_known)
        to->type.kind = GC_TYPE_TENSOR;
    to->type.shape = from->type.shape;
    return GC_OK;
}

enum gc_status gc_infer_pass_data(struct gc_infer *infer, uint32_t output, uint32_t input)
{
    const struct gc_graph_value *from = input_value(infer, input);
    struct gc_graph_value *to = gc_infer_output(infer, output);
    uint64_t elements;
    if (from == NULL || to == NULL || from->data == NULL)
        return GC_OK;
    if (gc_infer_elements(&to->type.shape, &elements) && elements == from->data->count)
        to->data = from->data;
    return GC_OK;
}

enum gc_status gc_infer_set_data(struct gc_infer *infer, uint32_t output,
                                 const struct gc_dim *items, uint32_t count)
{
    struct gc_graph_value *value = gc_infer_output(infer, output);
    uint64_t elements;
    if (value == NULL || count > GC_GRAPH_DATA_MAX ||
        !gc_infer_elements(&value->type.shape, &elements) || elements != count ||
        infer->data_items + count > GC_INFER_DATA_TOTAL)
        return GC_OK;
    struct gc_data *data = gc_infer_alloc(infer, sizeof(*data));
    struct gc_dim *copy = gc_infer_alloc(infer, count * sizeof(*copy));
    if (data == NULL || copy == NULL)
        return gc_infer_no_memory(infer);
    data->count = count;
    data->is_complete = true;
    data->items = copy;
    for (uint32_t i = 0; i < count; i++) {
        copy[i] = items[i];
        data->is_complete =
            data->is_complete && (items[i].kind == GC_DIM_NUMBER || items[i].kind == GC_DIM_REAL);
    }
    infer->data_items += count;
    value->data = data;
    return GC_OK;
}

struct gc_dim *gc_infer_scratch(struct gc_infer *infer, uint32_t count)
{
    if (infer->scratch == NULL)
        infer->scratch = gc_infer_alloc(infer, GC_INFER_SCRATCH * sizeof(*infer->scratch));
    if (infer->scratch == NULL)
        return NULL;
    if (count > GC_INFER_SCRATCH - infer->scratch_used)
        return gc_infer_alloc(infer, count * sizeof(*infer->scratch));
    struct gc_dim *part = infer->scratch + infer->scratch_used;
    infer->scratch_used += count;
    return part;
}

/* Attributes, for the rules. */

const struct gc_graph_attribute *gc_graph_find_attribute(const struct gc_graph_node *node,
                                                         const char *name)
{
    for (uint32_t i = 0; i < node->attribute_count; i++) {
        if (strcmp(node->attributes[i].name, name) == 0)
            return &node->attributes[i];
    }
    return NULL;
}

static const struct gc_graph_attribute *find(const struct gc_infer *infer, const char *name,
                                             enum gc_attribute_kind kind)
{
    const struct gc_graph_attribute *attribute = gc_graph_find_attribute(infer->node, name);
    return attribute != NULL && attribute->kind == kind ? attribute : NULL;
}

bool gc_infer_has(const struct gc_infer *infer, const char *name)
{
    return gc_graph_find_attribute(infer->node, name) != NULL;
}

int64_t gc_infer_int(const struct gc_infer *infer, const char *name, int64_t fallback)
{
    const struct gc_graph_attribute *attribute = find(infer, name, GC_ATTRIBUTE_INT);
    return attribute != NULL ? attribute->integer : fallback;
}

const char *gc_infer_text(const struct gc_infer *infer, const char *name, const char *fallback)
{
    const struct gc_graph_attribute *attribute = find(infer, name, GC_ATTRIBUTE_TEXT);
    return attribute != NULL ? attribute->text : fallback;
}

bool gc_infer_ints(const struct gc_infer *infer, const char *name, const int64_t **ints,
                   uint32_t *count)
{
    const struct gc_graph_attribute *attribute = find(infer, name, GC_ATTRIBUTE_INTS);
    const bool is_complete = attribute != NULL && attribute->count <= GC_GRAPH_DATA_MAX;
    *ints = is_complete ? attribute->integers : NULL;
    *count = is_complete ? (uint32_t)attribute->count : 0;
    return is_complete;
}

const struct gc_tensor *gc_infer_tensor(const struct gc_infer *infer, const char *name)
{
    const struct gc_graph_attribute *attribute = find(infer, name, GC_ATTRIBUTE_TENSOR);
    return attribute != NULL ? attribute->tensor : NULL;
}

enum gc_dtype gc_infer_dtype_attribute(const struct gc_infer *infer, const char *name,
                                       enum gc_dtype fallback)
{
    const struct gc_graph_attribute *attribute = find(infer, name, GC_ATTRIBUTE_INT);
    if (attribute == NULL)
        return fallback;
    return attribute->integer > 0 ? gc_dtype_from_onnx((uint64_t)attribute->integer)
                                  : GC_DTYPE_NONE;
}

enum gc_status gc_infer_axis(struct gc_infer *infer, int64_t axis, uint32_t rank, uint32_t *normal)
{
    *normal = 0;
    if (axis < -(int64_t)rank || axis >= (int64_t)rank)
        return gc_infer_fail(infer, "axis %lld of a tensor of %u dimensions", (long long)axis,
                             rank);
    *normal = (uint32_t)(axis < 0 ? axis + rank : axis);
    return GC_OK;
}

static enum gc_status normalise_axes(struct gc_infer *infer, const int64_t *list, uint32_t count,
                                     uint32_t rank, struct gc_axes *axes)
{
    bool seen[GC_GRAPH_RANK_MAX] = {false};
    axes->is_given = count > 0;
    axes->is_known = true;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t axis;
        const enum gc_status status = gc_infer_axis(infer, list[i], rank, &axis);
        if (status != GC_OK)
            return status;
        if (seen[axis])
            return gc_infer_fail(infer, "axis %lld twice", (long long)list[i]);
        seen[axis] = true;
        axes->list[axes->count++] = axis;
    }
    return GC_OK;
}

enum gc_status gc_infer_axes(struct gc_infer *infer, const char *attribute, uint32_t input,
                             uint32_t rank, struct gc_axes *axes)
{
    int64_t numbers[GC_GRAPH_RANK_MAX];
    const int64_t *ints;
    uint32_t count;
    *axes = (struct gc_axes){.is_known = true};
    if (rank > GC_GRAPH_RANK_MAX)
        return gc_infer_fail(infer, "axes of a tensor of %u dimensions", rank);
    if (attribute != NULL && gc_infer_ints(infer, attribute, &ints, &count))
        return normalise_axes(infer, ints, count, rank, axes);
    if (input == GC_GRAPH_NONE || !gc_infer_has_input(infer, input))
        return GC_OK;
    if (numbers_of(infer, input, numbers, GC_GRAPH_RANK_MAX, &count))
        return normalise_axes(infer, numbers, count, rank, axes);
    const struct gc_shape *shape = gc_infer_shape(infer, input);
    axes->is_given = !shape->is_known || shape->rank != 1 || !gc_dim_is(shape->dims[0], 0);
    axes->is_known = false;
    if (shape->is_known && shape->rank == 1 && shape->dims[0].kind == GC_DIM_NUMBER &&
        shape->dims[0].number <= GC_GRAPH_RANK_MAX)
        axes->count = (uint32_t)shape->dims[0].number; /* a known number of unknown axes */
    return GC_OK;
}

enum gc_status gc_infer_push(struct gc_infer *infer, const struct gc_infer_frame *frame)
{
    if (infer->depth == GC_INFER_NEST_MAX) {
        gc_infer_note(infer, "graphs nested deeper than %d are not analysed", GC_INFER_NEST_MAX);
        return GC_OK;
    }
    infer->frames[infer->depth++] = *frame;
    return GC_OK;
}
