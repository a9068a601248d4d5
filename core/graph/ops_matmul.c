/* Products of matrices and of batches of them, Gemm, Einsum. */
#include "core/graph/ops_util.h"

#include <string.h>

/* numpy.matmul: a vector on the left is a row, on the right a column, and that dimension is dropped
 * from the result. */
struct operand {
    struct gc_shape batch;
    struct gc_dim outer; /* rows of the left, columns of the right; not of a vector */
    struct gc_dim inner;
    bool is_vector;
};

static struct operand make_operand(const struct gc_shape *shape, bool is_left, bool is_transposed)
{
    struct operand operand = {.batch = {.is_known = true, .dims = shape->dims},
                              .outer = gc_dim_unknown(),
                              .is_vector = shape->rank == 1};
    if (operand.is_vector) {
        operand.inner = shape->dims[0];
        return operand;
    }
    const struct gc_dim row = shape->dims[shape->rank - 2];
    const struct gc_dim column = shape->dims[shape->rank - 1];
    const bool inner_is_last = is_left != is_transposed;
    operand.batch.rank = shape->rank - 2;
    operand.inner = inner_is_last ? column : row;
    operand.outer = inner_is_last ? row : column;
    return operand;
}

static enum gc_status multiply(struct gc_infer *infer, const struct operand *a,
                               const struct operand *b, uint32_t output)
{
    struct gc_dim dims[GC_GRAPH_RANK_MAX];
    struct gc_dim inner;
    uint32_t rank;
    enum gc_status status = gc_dim_merge(infer, "the inner dimensions", a->inner, b->inner, &inner);
    if (status == GC_OK)
        status = gc_dims_broadcast(infer, &a->batch, &b->batch, dims, &rank);
    if (status != GC_OK)
        return status;
    if (rank + 2 > GC_GRAPH_RANK_MAX)
        return gc_infer_fail(infer, "more than %d dimensions", GC_GRAPH_RANK_MAX);
    if (!a->is_vector)
        dims[rank++] = a->outer;
    if (!b->is_vector)
        dims[rank++] = b->outer;
    return gc_infer_set_shape(infer, output, dims, rank);
}

static enum gc_status product(struct gc_infer *infer, uint32_t left, uint32_t right,
                              bool is_left_transposed, bool is_right_transposed)
{
    const struct gc_shape *a = gc_infer_shape(infer, left);
    const struct gc_shape *b = gc_infer_shape(infer, right);
    enum gc_status status = gc_ops_want_rank(infer, left, 1, GC_GRAPH_RANK_MAX);
    if (status == GC_OK)
        status = gc_ops_want_rank(infer, right, 1, GC_GRAPH_RANK_MAX);
    if (status != GC_OK || !a->is_known || !b->is_known)
        return status;
    const struct operand x = make_operand(a, true, is_left_transposed);
    const struct operand y = make_operand(b, false, is_right_transposed);
    return multiply(infer, &x, &y, 0);
}

enum gc_status gc_rule_matmul(struct gc_infer *infer)
{
    const enum gc_status status = gc_infer_pass_dtype(infer, 0, 0);
    return status != GC_OK ? status : product(infer, 0, 1, false, false);
}

enum gc_status gc_rule_matmul_integer(struct gc_infer *infer)
{
    gc_infer_set_dtype(infer, 0, GC_DTYPE_I32);
    return product(infer, 0, 1, false, false);
}

/* Inputs: a, its scale and zero point, b, its scale and zero point, y's scale and zero point. */
enum gc_status gc_rule_qlinear_matmul(struct gc_infer *infer)
{
    const enum gc_status status = gc_infer_pass_dtype(infer, 0, 7);
    return status != GC_OK ? status : product(infer, 0, 3, false, false);
}

/* The contrib domain's MatMulIntegerToFloat and DynamicQuantizeMatMul. */
enum gc_status gc_rule_matmul_scaled(struct gc_infer *infer)
{
    const enum gc_status status = gc_infer_pass_dtype(infer, 0, 2);
    return status != GC_OK ? status : product(infer, 0, 1, false, false);
}

/* With transBatch* the operand's first dimension comes behind its rows: not inferred. */
enum gc_status gc_rule_matmul_fused(struct gc_infer *infer)
{
    const enum gc_status status = gc_infer_pass_dtype(infer, 0, 0);
    if (status != GC_OK || gc_infer_int(infer, "transBatchA", 0) != 0 ||
        gc_infer_int(infer, "transBatchB", 0) != 0)
        return status;
    return product(infer, 0, 1, gc_infer_int(infer, "transA", 0) != 0,
                   gc_infer_int(infer, "transB", 0) != 0);
}

/* The contrib domain's products with a packed weight, whose sizes are attributes. */
enum gc_status gc_rule_matmul_packed(struct gc_infer *infer)
{
    const struct gc_shape *a = gc_infer_shape(infer, 0);
    struct gc_dim dims[GC_GRAPH_RANK_MAX] = {gc_dim_unknown()};
    int64_t inner;
    int64_t columns;
    enum gc_status status = gc_infer_pass_dtype(infer, 0, 0);
    if (status == GC_OK)
        status = gc_ops_int_within(infer, "K", 0, 1, INT32_MAX, &inner);
    if (status == GC_OK)
        status = gc_ops_int_within(infer, "N", 0, 1, INT32_MAX, &columns);
    if (status == GC_OK)
        status = gc_ops_want_rank(infer, 0, 1, GC_GRAPH_RANK_MAX);
    if (status != GC_OK || !a->is_known)
        return status;
    const uint32_t last = gc_shape_copy(a, dims) - 1;
    status =
        gc_dim_merge(infer, "the inner dimensions", dims[last], gc_dim_number(inner), &dims[last]);
    dims[last] = gc_dim_number(columns);
    return status != GC_OK ? status : gc_infer_set_shape(infer, 0, dims, last + 1);
}

static enum gc_status gemm(struct gc_infer *infer, uint32_t left, uint32_t right)
{
    const struct gc_shape *a = gc_infer_shape(infer, left);
    const struct gc_shape *b = gc_infer_shape(infer, right);
    const bool is_left_transposed = gc_infer_int(infer, "transA", 0) != 0;
    const bool is_right_transposed = gc_infer_int(infer, "transB", 0) != 0;
    struct gc_dim inner;
    enum gc_status status = gc_ops_want_rank(infer, left, 2, 2);
    if (status == GC_OK)
        status = gc_ops_want_rank(infer, right, 2, 2);
    if (status == GC_OK)
        status =
            gc_dim_merge(infer, "the inner dimensions", gc_shape_dim(a, is_left_transposed ? 0 : 1),
                         gc_shape_dim(b, is_right_transposed ? 1 : 0), &inner);
    const struct gc_dim dims[] = {gc_shape_dim(a, is_left_transposed ? 1 : 0),
                                  gc_shape_dim(b, is_right_transposed ? 0 : 1)};
    return status != GC_OK ? status : gc_infer_set_shape(infer, 0, dims, 2);
}

enum gc_status gc_rule_gemm(struct gc_infer *infer)
{
    const enum gc_status status = gc_infer_pass_dtype(infer, 0, 0);
    return status != GC_OK ? status : gemm(infer, 0, 1);
}

/* The contrib domain's QGemm: a, its scale and zero point, b, its scale and zero point, c, y's
 * scale and zero point; without y's zero point the result is not quantised. */
enum gc_status gc_rule_qlinear_gemm(struct gc_infer *infer)
{
    const enum gc_status status = gc_infer_has_input(infer, 8) ? gc_infer_pass_dtype(infer, 0, 8)
                                                               : gc_infer_pass_dtype(infer, 0, 1);
    return status != GC_OK ? status : gemm(infer, 0, 3);
}

/* The determinants of matrices. */
enum gc_status gc_rule_det(struct gc_infer *infer)
{
    const struct gc_shape *x = gc_infer_shape(infer, 0);
    struct gc_dim side;
    enum gc_status status = gc_infer_pass_dtype(infer, 0, 0);
    if (status == GC_OK)
        status = gc_ops_want_rank(infer, 0, 2, GC_GRAPH_RANK_MAX);
    if (status != GC_OK || !x->is_known)
        return status;
    status = gc_dim_merge(infer, "the sides of the matrix", x->dims[x->rank - 2],
                          x->dims[x->rank - 1], &side);
    return status != GC_OK ? status : gc_infer_set_shape(infer, 0, x->dims, x->rank - 2);
}

/* Einsum: "ij,jk->ik", with letters of either case and "..." for the dimensions before or between
 * them that broadcast. Without "->" the result has the dimensions of "..." and the letters that
 * occur once, in the alphabet's order ('A' before 'a', as numpy). */

#define LETTERS 128

struct einsum {
    struct gc_infer *infer;
    struct gc_dim sizes[LETTERS];
    uint32_t seen[LETTERS]; /* occurrences of a letter in the terms */
    struct gc_dim rest[GC_GRAPH_RANK_MAX];
    uint32_t rest_rank; /* of "..." */
    bool has_rest;
    bool is_open; /* the rank of a term's operand, which "..." depends on, is not known */
};

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* Counts the letters of the term at `text`, up to a comma, an arrow or the end; *has_rest: the term
 * has "...". NULL: not a term. */
static const char *measure(const char *text, uint32_t *letters, bool *has_rest)
{
    *letters = 0;
    *has_rest = false;
    while (*text != '\0' && *text != ',' && *text != '-') {
        if (*text == ' ') {
            text++;
        } else if (is_letter(*text)) {
            ++*letters;
            text++;
        } else if (strncmp(text, "...", 3) == 0 && !*has_rest) {
            *has_rest = true;
            text += 3;
        } else {
            return NULL;
        }
    }
    return text;
}

static enum gc_status bind_ellipsis(struct einsum *einsum, const struct gc_dim *dims, uint32_t rank)
{
    struct gc_dim merged[GC_GRAPH_RANK_MAX];
    const struct gc_shape old = {.is_known = true, .rank = einsum->rest_rank, .dims = einsum->rest};
    const struct gc_shape more = {.is_known = true, .rank = rank, .dims = dims};
    const enum gc_status status =
        gc_dims_broadcast(einsum->infer, &old, &more, merged, &einsum->rest_rank);
    if (status == GC_OK)
        memcpy(einsum->rest, merged, einsum->rest_rank * sizeof(*merged));
    return status;
}

static enum gc_status bind_letter(struct einsum *einsum, char letter, struct gc_dim size)
{
    struct gc_dim *known = &einsum->sizes[(unsigned char)letter];
    einsum->seen[(unsigned char)letter]++;
    /* As in numpy, a dimension of 1 broadcasts to any other. */
    return gc_dim_broadcast(einsum->infer, *known, size, known);
}

static enum gc_status bind_term(struct einsum *einsum, const char *text, const char *end,
                                const struct gc_shape *shape, uint32_t rest)
{
    uint32_t at = 0;
    enum gc_status status = GC_OK;
    while (text < end && status == GC_OK) {
        if (is_letter(*text)) {
            const struct gc_dim size = gc_shape_dim(shape, at);
            status = bind_letter(einsum, *text, size);
            at++;
            text++;
        } else if (*text == '.') {
            einsum->has_rest = true;
            if (shape->is_known)
                status = bind_ellipsis(einsum, &shape->dims[at], rest);
            at += rest;
            text += 3;
        } else {
            text++;
        }
    }
    return status;
}

/* Binds all terms; *text is then at the arrow or the end. */
static enum gc_status bind_terms(struct einsum *einsum, const char **text)
{
    struct gc_infer *infer = einsum->infer;
    const uint32_t inputs = gc_infer_input_count(infer);
    for (uint32_t i = 0;; i++) {
        uint32_t letters;
        bool has_rest;
        const char *end = measure(*text, &letters, &has_rest);
        if (end == NULL || i == inputs)
            return gc_infer_fail(infer, "the equation is none, or not for %u inputs", inputs);
        const struct gc_shape *shape = gc_infer_shape(infer, i);
        if (shape->is_known && (shape->rank < letters || (shape->rank > letters && !has_rest)))
            return gc_infer_fail(infer, "input %u has %u dimensions and %u letters", i, shape->rank,
                                 letters);
        einsum->is_open = einsum->is_open || (has_rest && !shape->is_known);
        const enum gc_status status =
            bind_term(einsum, *text, end, shape, shape->is_known ? shape->rank - letters : 0);
        if (status != GC_OK)
            return status;
        *text = end;
        if (*end != ',')
            return i + 1 == inputs ? GC_OK
                                   : gc_infer_fail(infer, "the equation has %u terms for %u inputs",
                                                   i + 1, inputs);
        ++*text;
    }
}

static uint32_t append_ellipsis(const struct einsum *einsum, struct gc_dim *dims, uint32_t rank)
{
    for (uint32_t i = 0; i < einsum->rest_rank && rank < GC_GRAPH_RANK_MAX; i++)
        dims[rank++] = einsum->rest[i];
    return rank;
}

/* The dims by the letters behind "->". The rank may exceed the limit: the caller checks it. */
static enum gc_status make_explicit(const struct einsum *einsum, const char *text,
                                    struct gc_dim *dims, uint32_t *rank)
{
    uint32_t letters;
    bool has_rest;
    const char *end = measure(text, &letters, &has_rest);
    if (end == NULL || *end != '\0' ||
        letters + (has_rest ? einsum->rest_rank : 0) > GC_GRAPH_RANK_MAX)
        return gc_infer_fail(einsum->infer, "the equation's result is none");
    for (; text < end; text++) {
        if (*text == '.') {
            *rank = append_ellipsis(einsum, dims, *rank);
            text += 2;
        } else if (is_letter(*text)) {
            if (einsum->seen[(unsigned char)*text] == 0)
                return gc_infer_fail(einsum->infer, "\"%c\" is in no term", *text);
            dims[(*rank)++] = einsum->sizes[(unsigned char)*text];
        }
    }
    return GC_OK;
}

static uint32_t make_implicit(const struct einsum *einsum, struct gc_dim *dims)
{
    uint32_t rank = append_ellipsis(einsum, dims, 0);
    for (uint32_t i = 0; i < LETTERS && rank < GC_GRAPH_RANK_MAX; i++) {
        if (einsum->seen[i] == 1)
            dims[rank++] = einsum->sizes[i];
    }
    return rank;
}

enum gc_status gc_rule_einsum(struct gc_infer *infer)
{
    const char *text = gc_infer_text(infer, "equation", "");
    struct einsum einsum = {.infer = infer};
    struct gc_dim dims[GC_GRAPH_RANK_MAX];
    uint32_t rank = 0;
    for (uint32_t i = 0; i < LETTERS; i++)
        einsum.sizes[i] = gc_dim_number(1);
    enum gc_status status = gc_infer_pass_dtype(infer, 0, 0);
    if (status == GC_OK)
        status = bind_terms(&einsum, &text);
    if (status != GC_OK)
        return status;
    if (*text == '\0')
        rank = make_implicit(&einsum, dims);
    else if (text[1] == '>')
        status = make_explicit(&einsum, text + 2, dims, &rank);
    else
        status = gc_infer_fail(infer, "the equation has a \"-\" that is no arrow");
    if (status != GC_OK || (einsum.is_open && einsum.has_rest))
        return status;
    return gc_infer_set_shape(infer, 0, dims, rank);
}
