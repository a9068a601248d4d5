/* Made from an attribute's shape or another tensor's, not from its content: random numbers, ones.
 */
#include "core/graph/ops_util.h"

/* RandomNormal, RandomUniform. */
enum gc_status gc_rule_random(struct gc_infer *infer)
{
    struct gc_dim dims[GC_GRAPH_RANK_MAX];
    const int64_t *shape;
    uint32_t rank;
    gc_infer_set_dtype(infer, 0, gc_infer_dtype_attribute(infer, "dtype", GC_DTYPE_F32));
    if (!gc_infer_ints(infer, "shape", &shape, &rank))
        return gc_infer_fail(infer, "no shape");
    if (rank > GC_GRAPH_RANK_MAX)
        return gc_infer_fail(infer, "%u dimensions; %d are accepted", rank, GC_GRAPH_RANK_MAX);
    for (uint32_t i = 0; i < rank; i++)
        dims[i] = gc_dim_number(shape[i]);
    return gc_infer_set_shape(infer, 0, dims, rank);
}

/* RandomNormalLike, RandomUniformLike, Bernoulli, EyeLike: the input's type, unless told. */
enum gc_status gc_rule_like(struct gc_infer *infer)
{
    gc_infer_set_dtype(infer, 0,
                       gc_infer_dtype_attribute(infer, "dtype", gc_infer_dtype(infer, 0)));
    return gc_infer_pass_shape(infer, 0, 0);
}

enum gc_status gc_rule_multinomial(struct gc_infer *infer)
{
    const struct gc_dim dims[] = {gc_shape_dim(gc_infer_shape(infer, 0), 0),
                                  gc_dim_number(gc_infer_int(infer, "sample_size", 1))};
    gc_infer_set_dtype(infer, 0, gc_infer_dtype_attribute(infer, "dtype", GC_DTYPE_I32));
    const enum gc_status status = gc_infer_want_rank(infer, 0, 2, 2);
    return status != GC_OK ? status : gc_infer_set_shape(infer, 0, dims, 2);
}
