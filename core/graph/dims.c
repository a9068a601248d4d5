/* Arithmetic on dimensions that may be numbers, symbols or unknown. */
#include "core/graph/engine.h"

bool gc_dim_same(struct gc_dim a, struct gc_dim b)
{
    if (a.kind != b.kind)
        return false;
    switch (a.kind) {
    case GC_DIM_NUMBER:
        return a.number == b.number;
    case GC_DIM_REAL:
        return a.real == b.real;
    case GC_DIM_SYMBOL:
        return a.symbol == b.symbol;
    default:
        return false;
    }
}

static bool are_numbers(struct gc_dim a, struct gc_dim b)
{
    return a.kind == GC_DIM_NUMBER && b.kind == GC_DIM_NUMBER;
}

struct gc_dim gc_dim_add(struct gc_dim a, struct gc_dim b)
{
    int64_t sum;
    if (gc_dim_is(a, 0))
        return b;
    if (gc_dim_is(b, 0))
        return a;
    if (!are_numbers(a, b) || __builtin_add_overflow(a.number, b.number, &sum))
        return gc_dim_unknown();
    return gc_dim_number(sum);
}

struct gc_dim gc_dim_sub(struct gc_dim a, struct gc_dim b)
{
    int64_t difference;
    if (gc_dim_is(b, 0))
        return a;
    if (a.kind == GC_DIM_SYMBOL && gc_dim_same(a, b))
        return gc_dim_number(0);
    if (!are_numbers(a, b) || __builtin_sub_overflow(a.number, b.number, &difference))
        return gc_dim_unknown();
    return gc_dim_number(difference);
}

struct gc_dim gc_dim_mul(struct gc_dim a, struct gc_dim b)
{
    int64_t product;
    if (gc_dim_is(a, 0) || gc_dim_is(b, 0))
        return gc_dim_number(0);
    if (gc_dim_is(a, 1))
        return b;
    if (gc_dim_is(b, 1))
        return a;
    if (!are_numbers(a, b) || __builtin_mul_overflow(a.number, b.number, &product))
        return gc_dim_unknown();
    return gc_dim_number(product);
}

struct gc_dim gc_dim_div(struct gc_dim a, struct gc_dim b)
{
    if (gc_dim_is(b, 1))
        return a;
    /* INT64_MIN / -1 is the one quotient that does not fit. */
    if (!are_numbers(a, b) || b.number == 0 || (a.number == INT64_MIN && b.number == -1))
        return gc_dim_unknown();
    const int64_t quotient = a.number / b.number;
    const bool is_cut = a.number % b.number != 0 && (a.number < 0) != (b.number < 0);
    return gc_dim_number(quotient - is_cut);
}

struct gc_dim gc_dim_product(const struct gc_dim *dims, uint32_t from, uint32_t to)
{
    struct gc_dim product = gc_dim_number(1);
    for (uint32_t i = from; i < to; i++)
        product = gc_dim_mul(product, dims[i]);
    return product;
}

enum gc_status gc_dim_merge(struct gc_infer *infer, const char *what, struct gc_dim a,
                            struct gc_dim b, struct gc_dim *merged)
{
    if (are_numbers(a, b) && a.number != b.number) {
        *merged = a;
        return gc_infer_fail(infer, "%s: %lld and %lld, which must be equal", what,
                             (long long)a.number, (long long)b.number);
    }
    /* A number is the most precise; of two equal symbols either will do. */
    *merged = a.kind == GC_DIM_UNKNOWN || b.kind == GC_DIM_NUMBER ? b : a;
    return GC_OK;
}

enum gc_status gc_dim_broadcast(struct gc_infer *infer, struct gc_dim a, struct gc_dim b,
                                struct gc_dim *dim)
{
    if (gc_dim_is(a, 1) || gc_dim_same(a, b)) {
        *dim = b;
    } else if (gc_dim_is(b, 1)) {
        *dim = a;
    } else if (are_numbers(a, b)) {
        *dim = a;
        return gc_infer_fail(infer, "dimensions %lld and %lld do not broadcast",
                             (long long)a.number, (long long)b.number);
    } else if (a.kind == GC_DIM_NUMBER || b.kind == GC_DIM_NUMBER) {
        /* In a valid graph the other is 1 or the same number. */
        *dim = a.kind == GC_DIM_NUMBER ? a : b;
    } else {
        *dim = gc_dim_unknown();
    }
    return GC_OK;
}

enum gc_status gc_dims_broadcast(struct gc_infer *infer, const struct gc_shape *a,
                                 const struct gc_shape *b, struct gc_dim *dims, uint32_t *rank)
{
    const struct gc_dim one = gc_dim_number(1);
    *rank = a->rank > b->rank ? a->rank : b->rank;
    for (uint32_t i = 0; i < *rank; i++) {
        const uint32_t skip_a = *rank - a->rank;
        const uint32_t skip_b = *rank - b->rank;
        const enum gc_status status =
            gc_dim_broadcast(infer, i < skip_a ? one : a->dims[i - skip_a],
                             i < skip_b ? one : b->dims[i - skip_b], &dims[i]);
        if (status != GC_OK)
            return status;
    }
    return GC_OK;
}

enum gc_status gc_dims_broadcast_inputs(struct gc_infer *infer, uint32_t from, uint32_t to,
                                        uint32_t output)
{
    struct gc_dim dims[2][GC_GRAPH_RANK_MAX];
    struct gc_shape all = {.is_known = true};
    for (uint32_t i = from; i < to; i++) {
        const struct gc_shape *shape = gc_infer_shape(infer, i);
        struct gc_dim *into = dims[(i - from) % 2];
        uint32_t rank;
        if (!shape->is_known)
            return GC_OK;
        const enum gc_status status = gc_dims_broadcast(infer, &all, shape, into, &rank);
        if (status != GC_OK)
            return status;
        all.dims = into;
        all.rank = rank;
    }
    return gc_infer_set_shape(infer, output, all.dims, all.rank);
}
