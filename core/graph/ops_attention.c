/* Attention in one node: ONNX's own since opset 23, and the contrib domain's (com.microsoft), which
 * exporters of transformers write; and the contrib operators that optimisers and quantisers add.
 * Source: onnxruntime/docs/ContribOperators.md. */
#include "core/graph/ops_util.h"

/* Sizes of one call. */
struct heads {
    struct gc_dim batch;
    struct gc_dim count;    /* of heads: the query's */
    struct gc_dim kv_count; /* the key's and value's */
    struct gc_dim queries;  /* length of the query */
    struct gc_dim keys;     /* length of the key, past keys excluded */
    struct gc_dim key_size; /* of one head */
    struct gc_dim value_size;
};

/* A number of heads from an attribute; UNKNOWN if absent or not positive. */
static struct gc_dim head_count(const struct gc_infer *infer, const char *name)
{
    const int64_t count = gc_infer_int(infer, name, 0);
    return count > 0 && count <= INT32_MAX ? gc_dim_number(count) : gc_dim_unknown();
}

/* The width of one head; UNKNOWN if `width` is no multiple of `count`. */
static struct gc_dim head_size(struct gc_dim width, struct gc_dim count)
{
    if (width.kind == GC_DIM_NUMBER && count.kind == GC_DIM_NUMBER && count.number > 0 &&
        width.number % count.number != 0)
        return gc_dim_unknown();
    return gc_dim_div(width, count);
}

/* ---- ONNX's ---- */

/* A dimension of an input or, where that is not known, of another input. */
static struct gc_dim dim_of_either(const struct gc_infer *infer, uint32_t input, uint32_t index,
                                   uint32_t other, uint32_t other_index)
{
    return gc_dim_either(gc_shape_dim(gc_infer_shape(infer, input), index),
                         gc_shape_dim(gc_infer_shape(infer, other), other_index));
}

/* Query, key and value: [batch, heads, length, size], or [batch, length, heads * size] with the
 * counts as attributes. */
static struct heads read_heads(const struct gc_infer *infer)
{
    const struct gc_shape *q = gc_infer_shape(infer, 0);
    const struct gc_shape *k = gc_infer_shape(infer, 1);
    const struct gc_shape *v = gc_infer_shape(infer, 2);
    struct heads heads = {.batch =
                              gc_dim_either(gc_shape_dim(q, 0), dim_of_either(infer, 1, 0, 2, 0))};
    if (q->is_known && q->rank == 4) {
        heads.count = gc_shape_dim(q, 1);
        heads.queries = gc_shape_dim(q, 2);
        heads.kv_count = dim_of_either(infer, 1, 1, 2, 1);
        heads.keys = dim_of_either(infer, 1, 2, 2, 2);
        heads.key_size = dim_of_either(infer, 1, 3, 0, 3);
        heads.value_size = gc_shape_dim(v, 3);
        return heads;
    }
    heads.count = head_count(infer, "q_num_heads");
    heads.kv_count = head_count(infer, "kv_num_heads");
    heads.queries = gc_shape_dim(q, 1);
    heads.keys = dim_of_either(infer, 1, 1, 2, 1);
    heads.key_size = gc_dim_either(head_size(gc_shape_dim(k, 2), heads.kv_count),
                                   head_size(gc_shape_dim(q, 2), heads.count));
    heads.value_size = head_size(gc_shape_dim(v, 2), heads.kv_count);
    return heads;
}

/* Outputs `first` and first + 1: present key and value, past included, [batch, heads, length,
 * size]. */
static enum gc_status set_present(struct gc_infer *infer, uint32_t first, const struct heads *heads,
                                  struct gc_dim total)
{
    const struct gc_dim key[] = {heads->batch, heads->kv_count, total, heads->key_size};
    const struct gc_dim value[] = {heads->batch, heads->kv_count, total, heads->value_size};
    enum gc_status status = gc_infer_pass_dtype(infer, first, 0);
    if (status == GC_OK)
        status = gc_infer_pass_dtype(infer, first + 1, 0);
    if (status == GC_OK)
        status = gc_infer_set_shape(infer, first, key, 4);
    return status != GC_OK ? status : gc_infer_set_shape(infer, first + 1, value, 4);
}

/* Inputs 4 and 5 are past key and value; output 3 is the products of query and key. */
enum gc_status gc_rule_attention(struct gc_infer *infer)
{
    const struct gc_shape *q = gc_infer_shape(infer, 0);
    enum gc_status status = gc_infer_pass_dtype(infer, 0, 0);
    for (uint32_t i = 0; i < 3 && status == GC_OK; i++)
        status = gc_ops_want_rank(infer, i, 3, 4);
    if (status != GC_OK || !q->is_known)
        return status;
    const struct heads heads = read_heads(infer);
    const struct gc_dim past =
        gc_infer_has_input(infer, 4) ? gc_shape_dim(gc_infer_shape(infer, 4), 2) : gc_dim_number(0);
    const struct gc_dim total = gc_dim_add(past, heads.keys);
    const struct gc_dim by_head[] = {heads.batch, heads.count, heads.queries, heads.value_size};
    const struct gc_dim joined[] = {heads.batch, heads.queries,
                                    gc_dim_mul(heads.count, heads.value_size)};
    const struct gc_dim scores[] = {heads.batch, heads.count, heads.queries, total};
    status = q->rank == 4 ? gc_infer_set_shape(infer, 0, by_head, 4)
                          : gc_infer_set_shape(infer, 0, joined, 3);
    if (status == GC_OK)
        status = set_present(infer, 1, &heads, total);
    if (status == GC_OK)
        status = gc_infer_pass_dtype(infer, 3, 0);
    return status != GC_OK ? status : gc_infer_set_shape(infer, 3, scores, 4);
}

/* LinearAttention: query, key and value [batch, length, heads * size]; output 1 is the state,
 * [batch, heads, size of a key, size of a value], as input 3. Inputs 4 and 5 have batch
 * and length too. */
enum gc_status gc_rule_attention_linear(struct gc_infer *infer)
{
    const struct gc_dim count = head_count(infer, "q_num_heads");
    const struct gc_dim kv_count = head_count(infer, "kv_num_heads");
    const struct gc_shape *past = gc_infer_shape(infer, 3);
    struct gc_dim batch = gc_dim_unknown();
    struct gc_dim length = gc_dim_unknown();
    struct gc_dim key = head_size(gc_shape_dim(gc_infer_shape(infer, 0), 2), count);
    struct gc_dim value = head_size(gc_shape_dim(gc_infer_shape(infer, 2), 2), kv_count);
    key = gc_dim_either(key, head_size(gc_shape_dim(gc_infer_shape(infer, 1), 2), kv_count));
    key = gc_dim_either(key, gc_shape_dim(past, 2));
    value = gc_dim_either(value, gc_shape_dim(past, 3));
    for (uint32_t i = 0; i < 6; i++) {
        const struct gc_shape *shape = gc_infer_shape(infer, i);
        batch = gc_dim_either(batch, gc_shape_dim(shape, 0));
        if (i != 3)
            length = gc_dim_either(length, gc_shape_dim(shape, 1));
    }
    const struct gc_dim dims[] = {batch, length, gc_dim_mul(count, value)};
    const struct gc_dim state[] = {batch, kv_count, key, value};
    enum gc_status status = gc_infer_pass_dtype(infer, 0, 0);
    if (status == GC_OK)
        status = gc_infer_pass_dtype(infer, 1, gc_infer_has_input(infer, 3) ? 3 : 0);
    if (status == GC_OK)
        status = gc_ops_want_rank(infer, 0, 3, 3);
    if (status == GC_OK)
        status = gc_infer_set_shape(infer, 0, dims, 3);
    return status != GC_OK ? status : gc_infer_set_shape(infer, 1, state, 4);
}

/* CausalConvWithState: data [batch, channels, length], weight [channels, 1, k]; output 1 is the
 * state, [batch, channels, k - 1], as input 3. */
enum gc_status gc_rule_causal_conv(struct gc_infer *infer)
{
    const struct gc_dim kernel = gc_shape_dim(gc_infer_shape(infer, 1), 2);
    const struct gc_dim channels =
        gc_dim_either(dim_of_either(infer, 0, 1, 1, 0), gc_shape_dim(gc_infer_shape(infer, 3), 1));
    const struct gc_dim batch = dim_of_either(infer, 0, 0, 3, 0);
    const struct gc_dim dims[] = {batch, channels, gc_shape_dim(gc_infer_shape(infer, 0), 2)};
    const struct gc_dim state[] = {batch, channels,
                                   gc_dim_either(gc_dim_sub(kernel, gc_dim_number(1)),
                                                 gc_shape_dim(gc_infer_shape(infer, 3), 2))};
    enum gc_status status = gc_infer_pass_dtype(infer, 0, 0);
    if (status == GC_OK)
        status = gc_infer_pass_dtype(infer, 1, 0);
    if (status == GC_OK)
        status = gc_ops_want_rank(infer, 0, 3, 3);
    if (status == GC_OK)
        status = gc_infer_set_shape(infer, 0, dims, 3);
    return status != GC_OK ? status : gc_infer_set_shape(infer, 1, state, 3);
}

/* ---- the contrib domain's ---- */

/* Query, key and value come from one product: input [batch, length, width], weight [width, total
 * width of the three]; output 1 is [2, batch, heads, past and new length, size]. */
static enum gc_status packed_attention(struct gc_infer *infer, uint32_t past)
{
    const struct gc_shape *x = gc_infer_shape(infer, 0);
    const struct gc_shape *cached = gc_infer_shape(infer, past);
    const int64_t *sizes;
    uint32_t count;
    const struct gc_dim packed = gc_shape_dim(gc_infer_shape(infer, 1), 1);
    struct gc_dim width = head_size(packed, gc_dim_number(3));
    enum gc_status status = gc_ops_want_rank(infer, 0, 3, 3);
    if (gc_infer_ints(infer, "qkv_hidden_sizes", &sizes, &count) && count == 3 && sizes[2] >= 0)
        width = gc_dim_number(sizes[2]);
    const struct gc_dim dims[] = {gc_shape_dim(x, 0), gc_shape_dim(x, 1), width};
    if (status == GC_OK)
        status = gc_infer_set_shape(infer, 0, dims, 3);
    const struct gc_dim length =
        gc_infer_has_input(infer, past) ? gc_dim_add(gc_shape_dim(cached, 3), dims[1]) : dims[1];
    const struct gc_dim heads = head_count(infer, "num_heads");
    const struct gc_dim present[] = {gc_dim_number(2), dims[0], heads, length,
                                     head_size(width, heads)};
    /* Past and present share one buffer: the present has its length. */
    if (status == GC_OK && gc_infer_int(infer, "past_present_share_buffer", 0) != 0)
        return gc_infer_pass_shape(infer, 1, past);
    return status != GC_OK ? status : gc_infer_set_shape(infer, 1, present, 5);
}

enum gc_status gc_rule_attention_packed(struct gc_infer *infer)
{
    enum gc_status status = gc_infer_pass_dtype(infer, 0, 0);
    if (status == GC_OK)
        status = gc_infer_pass_dtype(infer, 1, 0);
    return status != GC_OK ? status : packed_attention(infer, 4);
}

/* QAttention: inputs 3 and 4 are the scales of input and weight, input 8 is the past. */
enum gc_status gc_rule_attention_quantised(struct gc_infer *infer)
{
    enum gc_status status = gc_infer_pass_dtype(infer, 0, 3);
    if (status == GC_OK)
        status = gc_infer_pass_dtype(infer, 1, 3);
    return status != GC_OK ? status : packed_attention(infer, 8);
}

/* MultiHeadAttention. Query [batch, length, width] or packed [batch, length, heads, 3, size]; key
 * the same or packed [batch, length, heads, 2, size]; value the same or [batch, heads, length,
 * size]. Inputs 6 and 7 are past key and value. */
enum gc_status gc_rule_attention_multi_head(struct gc_infer *infer)
{
    const struct gc_shape *q = gc_infer_shape(infer, 0);
    const struct gc_shape *k = gc_infer_shape(infer, 1);
    const struct gc_shape *v = gc_infer_shape(infer, 2);
    const bool is_packed = q->is_known && q->rank == 5;
    const struct gc_shape *source = is_packed ? q : v;
    struct heads heads = {.batch = gc_shape_dim(q, 0), .queries = gc_shape_dim(q, 1)};
    enum gc_status status = gc_infer_pass_dtype(infer, 0, 0);
    heads.count = heads.kv_count = head_count(infer, "num_heads");
    heads.key_size = is_packed ? gc_shape_dim(q, 4) : head_size(gc_shape_dim(q, 2), heads.count);
    heads.value_size = heads.key_size;
    heads.keys = is_packed ? heads.queries : gc_shape_dim(k, k->rank == 4 ? 2 : 1);
    struct gc_dim width = gc_dim_mul(heads.count, heads.value_size);
    if (!is_packed && source->is_known && source->rank == 3) {
        width = gc_shape_dim(v, 2);
        heads.value_size = head_size(width, heads.count);
    } else if (!is_packed && source->is_known && source->rank == 4) {
        heads.value_size = gc_shape_dim(v, 3);
        width = gc_dim_mul(heads.count, heads.value_size);
    } else if (!is_packed && (gc_infer_has_input(infer, 2) || !k->is_known || k->rank != 5)) {
        width = gc_dim_unknown();
        heads.value_size = width;
    }
    const struct gc_dim dims[] = {heads.batch, heads.queries, width};
    const struct gc_dim past =
        gc_infer_has_input(infer, 6) ? gc_shape_dim(gc_infer_shape(infer, 6), 2) : gc_dim_number(0);
    if (status == GC_OK && q->is_known)
        status = gc_infer_set_shape(infer, 0, dims, 3);
    return status != GC_OK ? status : set_present(infer, 1, &heads, gc_dim_add(past, heads.keys));
}

/* GroupQueryAttention. Query [batch, length, heads * size], with key and value packed into it if
 * inputs 1 and 2 are omitted. Inputs 3 and 4 are past key and value, in a buffer of any length. */
enum gc_status gc_rule_attention_group(struct gc_infer *infer)
{
    const struct gc_shape *q = gc_infer_shape(infer, 0);
    const struct gc_shape *past = gc_infer_shape(infer, 3);
    struct heads heads = {.batch = gc_shape_dim(q, 0), .queries = gc_shape_dim(q, 1)};
    struct gc_dim width = gc_shape_dim(q, 2);
    enum gc_status status = gc_infer_pass_dtype(infer, 0, 0);
    if (status == GC_OK)
        status = gc_ops_want_rank(infer, 0, 3, 3);
    if (status != GC_OK)
        return status;
    heads.count = head_count(infer, "num_heads");
    heads.kv_count = head_count(infer, "kv_num_heads");
    if (gc_infer_has_input(infer, 1)) {
        heads.key_size = head_size(width, heads.count);
    } else {
        const struct gc_dim all =
            gc_dim_add(heads.count, gc_dim_mul(heads.kv_count, gc_dim_number(2)));
        heads.key_size = head_size(width, all);
        width = gc_dim_mul(heads.count, heads.key_size);
    }
    if (heads.key_size.kind != GC_DIM_NUMBER)
        heads.key_size = gc_shape_dim(past, 3);
    heads.value_size = heads.key_size;
    const struct gc_dim dims[] = {heads.batch, heads.queries, width};
    status = gc_infer_set_shape(infer, 0, dims, 3);
    return status != GC_OK ? status : set_present(infer, 1, &heads, gc_dim_unknown());
}

/* Operators of the contrib domain, com.microsoft, that are no attention and no product: what
 * optimisers and quantisers put into a graph.
 * Source: onnxruntime/docs/ContribOperators.md. */

/* Inputs: tokens [batch, length], segments, three tables, scale, bias, mask. Outputs: the
 * embedding [batch, length, width], the length of each mask, the sum before normalisation. */
enum gc_status gc_rule_embed_layer_normalization(struct gc_infer *infer)
{
    const struct gc_shape *tokens = gc_infer_shape(infer, 0);
    struct gc_dim dims[] = {gc_shape_dim(tokens, 0), gc_shape_dim(tokens, 1),
                            gc_shape_dim(gc_infer_shape(infer, 2), 1)};
    enum gc_status status = gc_ops_want_rank(infer, 0, 2, 2);
    if (status == GC_OK)
        status = gc_infer_pass_dtype(infer, 0, 2);
    if (status == GC_OK)
        status = gc_infer_pass_dtype(infer, 2, 2);
    gc_infer_set_dtype(infer, 1, GC_DTYPE_I32);
    if (status == GC_OK)
        status = gc_infer_set_shape(infer, 0, dims, 3);
    if (status == GC_OK)
        status = gc_infer_set_shape(infer, 2, dims, 3);
    return status != GC_OK ? status : gc_infer_set_shape(infer, 1, dims, 1);
}

/* Inputs: a, its scale and zero point, b, its scale and zero point, y's scale and zero point. */
enum gc_status gc_rule_qlinear_broadcast(struct gc_infer *infer)
{
    const struct gc_shape *a = gc_infer_shape(infer, 0);
    const struct gc_shape *b = gc_infer_shape(infer, 3);
    struct gc_dim dims[GC_GRAPH_RANK_MAX];
    uint32_t rank;
    enum gc_status status = gc_infer_pass_dtype(infer, 0, 0);
    if (status != GC_OK || !a->is_known || !b->is_known)
        return status;
    status = gc_dims_broadcast(infer, a, b, dims, &rank);
    return status != GC_OK ? status : gc_infer_set_shape(infer, 0, dims, rank);
}

/* Inputs: the result's scale and zero point, then data, scale and zero point of each part. */
enum gc_status gc_rule_qlinear_concat(struct gc_infer *infer)
{
    const struct gc_shape *first = gc_infer_shape(infer, 2);
    struct gc_dim dims[GC_GRAPH_RANK_MAX];
    uint32_t axis;
    enum gc_status status = gc_infer_pass_dtype(infer, 0, 2);
    if (status != GC_OK || !first->is_known)
        return status;
    status = gc_infer_axis(infer, gc_infer_int(infer, "axis", 0), first->rank, &axis);
    gc_shape_copy(first, dims);
    for (uint32_t i = 5; i < gc_infer_input_count(infer) && status == GC_OK; i += 3) {
        const struct gc_shape *part = gc_infer_shape(infer, i);
        if (part->is_known && part->rank != first->rank)
            return gc_infer_fail(infer, "parts of %u and %u dimensions", first->rank, part->rank);
        for (uint32_t j = 0; j < first->rank && status == GC_OK; j++) {
            if (j != axis)
                status = gc_dim_merge(infer, "the parts' dimensions", dims[j],
                                      gc_shape_dim(part, j), &dims[j]);
        }
        dims[axis] = gc_dim_add(dims[axis], gc_shape_dim(part, axis));
    }
    return status != GC_OK ? status : gc_infer_set_shape(infer, 0, dims, first->rank);
}

/* BiasSplitGelu: the last dimension is halved. */
enum gc_status gc_rule_split_gelu(struct gc_infer *infer)
{
    const struct gc_shape *x = gc_infer_shape(infer, 0);
    struct gc_dim dims[GC_GRAPH_RANK_MAX] = {gc_dim_unknown()};
    enum gc_status status = gc_infer_pass_dtype(infer, 0, 0);
    if (status == GC_OK)
        status = gc_ops_want_rank(infer, 0, 1, GC_GRAPH_RANK_MAX);
    if (status != GC_OK || !x->is_known)
        return status;
    const uint32_t last = gc_shape_copy(x, dims) - 1;
    dims[last] = gc_dim_div(dims[last], gc_dim_number(2));
    return gc_infer_set_shape(infer, 0, dims, last + 1);
}

/* SkipGroupNorm: the result and the sum that was normalised. */
enum gc_status gc_rule_same_twice(struct gc_infer *infer)
{
    const enum gc_status status = gc_ops_pass(infer, 0, 0);
    return status != GC_OK ? status : gc_ops_pass(infer, 1, 0);
}

/* Inputs: table [buckets, heads], lengths of query and key. Output: [1, heads, query, key]. */
enum gc_status gc_rule_relative_position_bias(struct gc_infer *infer)
{
    const struct gc_dim *query = gc_ops_items(infer, 1, 1);
    const struct gc_dim *key = gc_ops_items(infer, 2, 1);
    const struct gc_dim dims[] = {gc_dim_number(1), gc_shape_dim(gc_infer_shape(infer, 0), 1),
                                  query != NULL ? *query : gc_dim_unknown(),
                                  key != NULL ? *key : gc_dim_unknown()};
    const enum gc_status status = gc_infer_pass_dtype(infer, 0, 0);
    return status != GC_OK ? status : gc_infer_set_shape(infer, 0, dims, 4);
}

/* GatherBlockQuantized: rows of a packed table, input 0, unpacked in the type of the scales,
 * input 2. A byte of the table's last dimension holds several elements. */
enum gc_status gc_rule_gather_packed(struct gc_infer *infer)
{
    const struct gc_shape *x = gc_infer_shape(infer, 0);
    const struct gc_shape *index = gc_infer_shape(infer, 1);
    struct gc_dim dims[2 * GC_GRAPH_RANK_MAX];
    uint32_t rank = 0;
    uint32_t axis;
    int64_t bits;
    enum gc_status status = gc_infer_pass_dtype(infer, 0, 2);
    if (status == GC_OK)
        status = gc_ops_int_within(infer, "bits", 4, 1, 8, &bits);
    if (status == GC_OK)
        status = gc_ops_want_rank(infer, 0, 1, GC_GRAPH_RANK_MAX);
    if (status != GC_OK || !x->is_known || !index->is_known ||
        gc_infer_dtype(infer, 0) == GC_DTYPE_NONE)
        return status;
    status = gc_infer_axis(infer, gc_infer_int(infer, "gather_axis", 0), x->rank, &axis);
    if (status != GC_OK)
        return status;
    for (uint32_t i = 0; i < x->rank; i++) {
        if (i != axis) {
            dims[rank++] = x->dims[i];
            continue;
        }
        for (uint32_t j = 0; j < index->rank; j++)
            dims[rank++] = index->dims[j];
    }
    if (gc_infer_dtype(infer, 0) == GC_DTYPE_U8 && axis + 1 < x->rank)
        dims[rank - 1] = gc_dim_mul(dims[rank - 1], gc_dim_number(8 / bits));
    return gc_infer_set_shape(infer, 0, dims, rank);
}
