/* The figures of a graph: its live peak, and the work of a node, operations and bytes.
 *
 * Operations are those of the multiplications where an operator multiplies matrices or convolves,
 * as profilers count them: two for each product and its sum. Any other operator has one for each
 * element that it reads or makes, whichever are more. Bytes: all inputs are read once, all outputs
 * written. */
#include "core/base/bits.h"
#include "core/schedule/schedule.h"

#include <string.h>

#define SCRATCH_BYTES_MAX GC_MIB(2048)

enum gc_status gc_schedule_peak(const struct gc_graph *graph,
                                const struct gc_lifetimes_rules *rules, uint64_t *peak_bytes)
{
    struct gc_region scratch;
    struct gc_lifetimes lifetimes;
    uint64_t *live;
    gc_region_init(&scratch, SCRATCH_BYTES_MAX);
    enum gc_status status = gc_lifetimes_find(&scratch, graph, rules, &lifetimes);
    if (status == GC_OK)
        status = gc_lifetimes_live(&scratch, &lifetimes, &live, peak_bytes);
    if (status == GC_OK)
        *peak_bytes += lifetimes.base_bytes;
    gc_region_fini(&scratch);
    return status;
}

/* ---- work ---- */

static uint64_t saturate_add(uint64_t a, uint64_t b)
{
    uint64_t sum;
    return gc_add_u64(a, b, &sum) ? sum : UINT64_MAX;
}

static uint64_t saturate_mul(uint64_t a, uint64_t b)
{
    uint64_t product;
    return gc_mul_u64(a, b, &product) ? product : UINT64_MAX;
}

static const struct gc_shape *shape_of(const struct gc_graph *graph, const uint32_t *list,
                                       uint32_t count, uint32_t at)
{
    static const struct gc_shape none = {.is_known = false};
    if (at >= count || list[at] == GC_GRAPH_NONE)
        return &none;
    return &graph->values[list[at]].type.shape;
}

/* Open dimensions count as one. */
static uint64_t size_of(const struct gc_dim *dim)
{
    return dim->kind == GC_DIM_NUMBER && dim->number > 0 ? (uint64_t)dim->number : 1;
}

static uint64_t elements_of(const struct gc_shape *shape)
{
    uint64_t elements = shape->is_known;
    for (uint32_t i = 0; i < shape->rank; i++)
        elements = saturate_mul(elements, size_of(&shape->dims[i]));
    return elements;
}

static uint64_t dim_of(const struct gc_shape *shape, uint32_t from_end)
{
    return shape->rank > from_end ? size_of(&shape->dims[shape->rank - 1 - from_end]) : 1;
}

static bool is_one_of(const struct gc_graph_node *node, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(node->op, names[i]) == 0)
            return true;
    }
    return false;
}

#define IS_ONE_OF(node, names) is_one_of(node, names, sizeof(names) / sizeof((names)[0]))

/* Products for each element of the output; 0: the operator is none of those. */
static uint64_t products_of(const struct gc_graph *graph, const struct gc_graph_node *node)
{
    static const char *const multiplies[] = {"MatMul",
                                             "MatMulInteger",
                                             "FusedMatMul",
                                             "Gemm",
                                             "FusedGemm",
                                             "QLinearMatMul",
                                             "TransposeMatMul",
                                             "MatMulIntegerToFloat",
                                             "DynamicQuantizeMatMul",
                                             "MatMulNBits",
                                             "MatMulBnb4",
                                             "QGemm"};
    static const char *const convolves[] = {"Conv", "ConvInteger", "FusedConv", "DeformConv"};
    const struct gc_shape *first = shape_of(graph, node->inputs, node->input_count, 0);
    const struct gc_shape *second = shape_of(graph, node->inputs, node->input_count, 1);
    if (IS_ONE_OF(node, multiplies)) {
        const struct gc_graph_attribute *turned = gc_graph_find_attribute(node, "transA");
        const bool is_turned =
            turned != NULL && turned->kind == GC_ATTRIBUTE_INT && turned->integer != 0;
        return dim_of(first, is_turned ? 1 : 0);
    }
    /* A filter has [outputs, inputs of its group, kernel…]. */
    if (IS_ONE_OF(node, convolves))
        return elements_of(second) / dim_of(second, second->rank > 0 ? second->rank - 1 : 0);
    if (strcmp(node->op, "QLinearConv") == 0) {
        const struct gc_shape *filter = shape_of(graph, node->inputs, node->input_count, 3);
        return elements_of(filter) / dim_of(filter, filter->rank > 0 ? filter->rank - 1 : 0);
    }
    return 0;
}

/* Of operators with several products in a row: each element of the first input with each weight of
 * its row, and the scores of attention. */
static uint64_t composite_of(const struct gc_graph *graph, const struct gc_graph_node *node)
{
    static const char *const attends[] = {"Attention", "QAttention", "MultiHeadAttention",
                                          "GroupQueryAttention", "LongformerAttention"};
    static const char *const recurs[] = {"LSTM", "GRU", "RNN", "DynamicQuantizeLSTM"};
    const struct gc_shape *first = shape_of(graph, node->inputs, node->input_count, 0);
    uint64_t weights = 0;
    if (IS_ONE_OF(node, recurs)) {
        for (uint32_t i = 1; i < 3; i++)
            weights = saturate_add(
                weights, elements_of(shape_of(graph, node->inputs, node->input_count, i)));
        return saturate_mul(saturate_mul(2, dim_of(first, 1)),
                            saturate_mul(dim_of(first, 2), weights));
    }
    if (IS_ONE_OF(node, attends)) {
        const struct gc_shape *second = shape_of(graph, node->inputs, node->input_count, 1);
        const uint64_t scores = saturate_mul(elements_of(first), dim_of(first, 1));
        const uint64_t rows = elements_of(first) / dim_of(first, 0);
        return saturate_add(saturate_mul(4, scores),
                            second->rank == 2 ? saturate_mul(rows * 2, elements_of(second)) : 0);
    }
    if (strcmp(node->op, "ConvTranspose") == 0) {
        const struct gc_shape *filter = shape_of(graph, node->inputs, node->input_count, 1);
        const uint64_t channels = dim_of(filter, filter->rank > 0 ? filter->rank - 1 : 0);
        return saturate_mul(saturate_mul(2, elements_of(first)), elements_of(filter) / channels);
    }
    /* At most: every element with every other. */
    if (strcmp(node->op, "Einsum") == 0)
        return saturate_mul(saturate_mul(2, elements_of(first)),
                            elements_of(shape_of(graph, node->inputs, node->input_count, 1)));
    return 0;
}

struct gc_schedule_work gc_schedule_node_work(const struct gc_graph *graph, uint32_t index)
{
    const struct gc_graph_node *node = &graph->nodes[index];
    struct gc_schedule_work work = {0, 0};
    uint64_t read = 0;
    uint64_t made = 0;
    for (uint32_t i = 0; i < node->input_count + node->output_count; i++) {
        const bool is_input = i < node->input_count;
        const uint32_t value = is_input ? node->inputs[i] : node->outputs[i - node->input_count];
        uint64_t bytes;
        if (value == GC_GRAPH_NONE)
            continue;
        const uint64_t elements = elements_of(&graph->values[value].type.shape);
        if (gc_graph_value_bytes(graph, value, &bytes))
            work.bytes = saturate_add(work.bytes, bytes);
        read += is_input ? gc_min_u64(elements, UINT64_MAX - read) : 0;
        made += is_input ? 0 : gc_min_u64(elements, UINT64_MAX - made);
    }
    if (gc_graph_node_memory(node) == GC_OP_VIEW)
        return (struct gc_schedule_work){0, 0};
    const uint64_t products = products_of(graph, node);
    const uint64_t composite = composite_of(graph, node);
    work.operations = gc_max_u64(read, made);
    if (products > 0)
        work.operations = saturate_mul(2, saturate_mul(made, products));
    else if (composite > 0)
        work.operations = composite;
    return work;
}

bool gc_schedule_may_repeat(const struct gc_graph_node *node)
{
    if (node->rule == NULL || gc_graph_node_memory(node) == GC_OP_RANDOM ||
        strcmp(node->op, "Dropout") == 0)
        return false;
    for (uint32_t i = 0; i < node->attribute_count; i++) {
        if (node->attributes[i].kind == GC_ATTRIBUTE_GRAPH)
            return false;
    }
    return true;
}
