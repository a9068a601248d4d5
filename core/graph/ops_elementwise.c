/* Element by element, or nearly: arithmetic, comparison, logic, activations, casts, quantisation.
 * The output has the shape of an input or of the broadcast of several. Content is computed where
 * the elements are known. A symbol is a dimension: not negative, otherwise unknown. */
#include "core/graph/engine.h"
#include "core/graph/fold.h"
#include "core/graph/ops_util.h"

#include <math.h>
#include <string.h>

static bool are_numbers(struct gc_dim a, struct gc_dim b)
{
    return a.kind == GC_DIM_NUMBER && b.kind == GC_DIM_NUMBER;
}

static bool are_reals(struct gc_dim a, struct gc_dim b)
{
    return a.kind == GC_DIM_REAL && b.kind == GC_DIM_REAL;
}

static struct gc_dim truth(bool holds)
{
    return gc_dim_number(holds);
}

/* ---- functions of two elements ---- */

struct gc_dim gc_fold_add(struct gc_dim a, struct gc_dim b)
{
    return are_reals(a, b) ? gc_dim_real(a.real + b.real) : gc_dim_add(a, b);
}

static struct gc_dim sub(struct gc_dim a, struct gc_dim b)
{
    return are_reals(a, b) ? gc_dim_real(a.real - b.real) : gc_dim_sub(a, b);
}

struct gc_dim gc_fold_mul(struct gc_dim a, struct gc_dim b)
{
    return are_reals(a, b) ? gc_dim_real(a.real * b.real) : gc_dim_mul(a, b);
}

/* Integer division truncates towards zero, as in runtimes. */
static struct gc_dim divide(struct gc_dim a, struct gc_dim b)
{
    if (are_reals(a, b))
        return gc_dim_real(a.real / b.real);
    if (are_numbers(a, b) && b.number != 0 && !(a.number == INT64_MIN && b.number == -1))
        return gc_dim_number(a.number / b.number);
    return gc_dim_is(b, 1) ? a : gc_dim_unknown();
}

static struct gc_dim modulo(struct gc_dim a, struct gc_dim b)
{
    if (gc_dim_is(b, 1))
        return gc_dim_number(0);
    if (!are_numbers(a, b) || b.number == 0 || b.number == -1)
        return gc_dim_unknown();
    const int64_t rest = a.number % b.number;
    return gc_dim_number(rest != 0 && (rest < 0) != (b.number < 0) ? rest + b.number : rest);
}

static struct gc_dim remainder_of(struct gc_dim a, struct gc_dim b)
{
    if (!are_numbers(a, b) || b.number == 0 || b.number == -1)
        return gc_dim_unknown();
    return gc_dim_number(a.number % b.number);
}

static struct gc_dim power(struct gc_dim a, struct gc_dim b)
{
    enum { EXPONENT_MAX = 64 };
    double exponent = b.kind == GC_DIM_REAL     ? b.real
                      : b.kind == GC_DIM_NUMBER ? (double)b.number
                                                : -1;
    struct gc_dim product = a.kind == GC_DIM_REAL ? gc_dim_real(1) : gc_dim_number(1);
    if (!(exponent >= 0 && exponent <= EXPONENT_MAX) || exponent != (double)(int)exponent)
        return gc_dim_unknown();
    for (int i = 0; i < (int)exponent; i++)
        product = gc_fold_mul(product, a);
    return product;
}

struct gc_dim gc_fold_smaller(struct gc_dim a, struct gc_dim b)
{
    if (are_reals(a, b))
        return b.real < a.real ? b : a;
    if (are_numbers(a, b))
        return b.number < a.number ? b : a;
    if ((a.kind == GC_DIM_NUMBER && a.number <= 0) || gc_dim_same(a, b))
        return b.kind == GC_DIM_SYMBOL ? a : gc_dim_unknown();
    return b.kind == GC_DIM_NUMBER && b.number <= 0 && a.kind == GC_DIM_SYMBOL ? b
                                                                               : gc_dim_unknown();
}

struct gc_dim gc_fold_larger(struct gc_dim a, struct gc_dim b)
{
    if (are_reals(a, b))
        return b.real > a.real ? b : a;
    if (are_numbers(a, b))
        return b.number > a.number ? b : a;
    if ((a.kind == GC_DIM_NUMBER && a.number <= 0) || gc_dim_same(a, b))
        return b.kind == GC_DIM_SYMBOL ? b : gc_dim_unknown();
    return b.kind == GC_DIM_NUMBER && b.number <= 0 && a.kind == GC_DIM_SYMBOL ? a
                                                                               : gc_dim_unknown();
}

/* -1, 0, 1 for a below, equal to, above b; false if that is not known. */
static bool compare(struct gc_dim a, struct gc_dim b, int *order)
{
    if (are_reals(a, b) && (isnan(a.real) || isnan(b.real)))
        return false;
    if (are_reals(a, b))
        *order = (a.real > b.real) - (a.real < b.real);
    else if (are_numbers(a, b))
        *order = (a.number > b.number) - (a.number < b.number);
    else if (a.kind == GC_DIM_SYMBOL && gc_dim_same(a, b))
        *order = 0;
    else if (a.kind == GC_DIM_SYMBOL && b.kind == GC_DIM_NUMBER && b.number < 0)
        *order = 1;
    else if (b.kind == GC_DIM_SYMBOL && a.kind == GC_DIM_NUMBER && a.number < 0)
        *order = -1;
    else
        return false;
    return true;
}

static struct gc_dim equal(struct gc_dim a, struct gc_dim b)
{
    int order;
    return compare(a, b, &order) ? truth(order == 0) : gc_dim_unknown();
}

static struct gc_dim less(struct gc_dim a, struct gc_dim b)
{
    int order;
    return compare(a, b, &order) ? truth(order < 0) : gc_dim_unknown();
}

static struct gc_dim greater(struct gc_dim a, struct gc_dim b)
{
    int order;
    return compare(a, b, &order) ? truth(order > 0) : gc_dim_unknown();
}

static struct gc_dim less_or_equal(struct gc_dim a, struct gc_dim b)
{
    int order;
    return compare(a, b, &order) ? truth(order <= 0) : gc_dim_unknown();
}

static struct gc_dim greater_or_equal(struct gc_dim a, struct gc_dim b)
{
    int order;
    return compare(a, b, &order) ? truth(order >= 0) : gc_dim_unknown();
}

static struct gc_dim both(struct gc_dim a, struct gc_dim b)
{
    if (gc_dim_is(a, 0) || gc_dim_is(b, 0))
        return truth(false);
    return are_numbers(a, b) ? truth(true) : gc_dim_unknown();
}

static struct gc_dim either(struct gc_dim a, struct gc_dim b)
{
    if (gc_dim_is(a, 1) || gc_dim_is(b, 1))
        return truth(true);
    return are_numbers(a, b) ? truth(false) : gc_dim_unknown();
}

static struct gc_dim one_of(struct gc_dim a, struct gc_dim b)
{
    return are_numbers(a, b) ? truth(a.number != b.number) : gc_dim_unknown();
}

/* ---- functions of one element ---- */

static struct gc_dim negate(struct gc_dim a)
{
    return a.kind == GC_DIM_REAL ? gc_dim_real(-a.real) : gc_dim_sub(gc_dim_number(0), a);
}

static struct gc_dim absolute(struct gc_dim a)
{
    if (a.kind == GC_DIM_REAL)
        return a.real < 0 ? gc_dim_real(-a.real) : a;
    return a.kind == GC_DIM_NUMBER && a.number < 0 ? negate(a) : a;
}

static struct gc_dim sign(struct gc_dim a)
{
    if (a.kind == GC_DIM_REAL)
        return gc_dim_real((double)((a.real > 0) - (a.real < 0)));
    return a.kind == GC_DIM_NUMBER ? gc_dim_number((a.number > 0) - (a.number < 0))
                                   : gc_dim_unknown();
}

/* The integer part of a REAL below 2^52 in magnitude; false for all others. */
static bool whole_part(struct gc_dim a, int64_t *whole)
{
    const double beyond = 4503599627370496.0; /* 2^52: from there on all reals are whole */
    if (a.kind != GC_DIM_REAL || !(a.real > -beyond && a.real < beyond))
        return false;
    *whole = (int64_t)a.real;
    return true;
}

static struct gc_dim round_down(struct gc_dim a)
{
    int64_t whole;
    if (!whole_part(a, &whole))
        return a;
    return gc_dim_real((double)(whole - ((double)whole > a.real)));
}

static struct gc_dim round_up(struct gc_dim a)
{
    int64_t whole;
    if (!whole_part(a, &whole))
        return a;
    return gc_dim_real((double)(whole + ((double)whole < a.real)));
}

/* Rounds halves to even. */
static struct gc_dim round_off(struct gc_dim a)
{
    int64_t whole;
    if (!whole_part(a, &whole))
        return a;
    const int64_t low = whole - ((double)whole > a.real);
    const double rest = a.real - (double)low;
    const bool is_up = rest > 0.5 || (rest == 0.5 && (low & 1) != 0);
    return gc_dim_real((double)(low + is_up));
}

static struct gc_dim inverse(struct gc_dim a)
{
    return a.kind == GC_DIM_REAL ? gc_dim_real(1 / a.real) : gc_dim_unknown();
}

static struct gc_dim deny(struct gc_dim a)
{
    return a.kind == GC_DIM_NUMBER ? truth(a.number == 0) : gc_dim_unknown();
}

/* ---- rules ---- */

/* Before opset 7 an attribute enables broadcasting of the second input to the first. */
static enum gc_status set_broadcast(struct gc_infer *infer)
{
    if (gc_infer_opset(infer) < 7 && gc_infer_input_count(infer) == 2)
        return gc_infer_pass_shape(infer, 0, 0);
    return gc_dims_broadcast_inputs(infer, 0, gc_infer_input_count(infer), 0);
}

static enum gc_status same_type(struct gc_infer *infer, gc_fold_combine *combine)
{
    enum gc_status status = gc_infer_pass_dtype(infer, 0, 0);
    if (status == GC_OK)
        status = set_broadcast(infer);
    return status == GC_OK ? gc_fold_combined(infer, combine) : status;
}

/* Min and Max did not broadcast before opset 8. */
static enum gc_status extreme_of(struct gc_infer *infer, gc_fold_combine *combine)
{
    if (gc_infer_opset(infer) >= 8)
        return same_type(infer, combine);
    enum gc_status status = gc_infer_pass_dtype(infer, 0, 0);
    if (status == GC_OK)
        status = gc_ops_merge_inputs(infer);
    return status == GC_OK ? gc_fold_combined(infer, combine) : status;
}

static enum gc_status test_of(struct gc_infer *infer, gc_fold_combine *combine)
{
    gc_infer_set_dtype(infer, 0, GC_DTYPE_BOOL);
    const enum gc_status status = set_broadcast(infer);
    return status == GC_OK ? gc_fold_combined(infer, combine) : status;
}

static enum gc_status change_of(struct gc_infer *infer, gc_fold_change *change)
{
    const enum gc_status status = gc_ops_pass(infer, 0, 0);
    return status == GC_OK ? gc_fold_changed(infer, change) : status;
}

#define RULE(name, kind, function)                                                                 \
    enum gc_status gc_rule_##name(struct gc_infer *infer)                                          \
    {                                                                                              \
        return kind(infer, function);                                                              \
    }

RULE(add, same_type, gc_fold_add)
RULE(sub, same_type, sub)
RULE(mul, same_type, gc_fold_mul)
RULE(div, same_type, divide)
RULE(pow, same_type, power)
RULE(min, extreme_of, gc_fold_smaller)
RULE(max, extreme_of, gc_fold_larger)
RULE(equal, test_of, equal)
RULE(less, test_of, less)
RULE(greater, test_of, greater)
RULE(less_or_equal, test_of, less_or_equal)
RULE(greater_or_equal, test_of, greater_or_equal)
RULE(and, test_of, both)
RULE(or, test_of, either)
RULE(xor, test_of, one_of)
RULE(neg, change_of, negate)
RULE(abs, change_of, absolute)
RULE(sign, change_of, sign)
RULE(floor, change_of, round_down)
RULE(ceil, change_of, round_up)
RULE(round, change_of, round_off)
RULE(reciprocal, change_of, inverse)
RULE(not, change_of, deny)

enum gc_status gc_rule_mod(struct gc_infer *infer)
{
    return same_type(infer, gc_infer_int(infer, "fmod", 0) != 0 ? remainder_of : modulo);
}

/* ---- Where ---- */

static struct gc_dim choose(struct gc_dim condition, struct gc_dim a, struct gc_dim b)
{
    if (condition.kind == GC_DIM_NUMBER)
        return condition.number != 0 ? a : b;
    return gc_dim_same(a, b) ? a : gc_dim_unknown();
}

enum gc_status gc_rule_where(struct gc_infer *infer)
{
    uint32_t count;
    enum gc_status status = gc_infer_pass_dtype(infer, 0, 1);
    if (status == GC_OK)
        status = gc_dims_broadcast_inputs(infer, 0, 3, 0);
    if (status != GC_OK || !gc_fold_room(infer, 0, &count))
        return status;
    for (uint32_t i = 0; i < 3; i++) {
        if (!gc_fold_has_content(infer, i))
            return GC_OK;
    }
    const struct gc_shape *shape = &gc_infer_output(infer, 0)->type.shape;
    struct gc_dim *items = gc_infer_scratch(infer, count);
    if (items == NULL)
        return gc_infer_no_memory(infer);
    for (uint32_t k = 0; k < count; k++) {
        struct gc_dim three[3];
        for (uint32_t i = 0; i < 3; i++) {
            const uint32_t at = gc_fold_source(gc_infer_shape(infer, i), shape, k);
            three[i] = gc_infer_data(infer, i)->items[at];
        }
        items[k] = choose(three[0], three[1], three[2]);
    }
    return gc_infer_set_data(infer, 0, items, count);
}

/* ---- Cast ---- */

static struct gc_dim cast_to(enum gc_dtype dtype, struct gc_dim item)
{
    const double beyond = 9223372036854775808.0; /* 2^63 */
    const enum gc_dtype_class dtype_class = gc_dtype_get_info(dtype)->kind;
    if (dtype_class == GC_DTYPE_CLASS_FLOAT) {
        if (dtype != GC_DTYPE_F32 && dtype != GC_DTYPE_F64)
            return gc_dim_unknown();
        return item.kind == GC_DIM_NUMBER ? gc_dim_real((double)item.number)
               : item.kind == GC_DIM_REAL ? item
                                          : gc_dim_unknown();
    }
    if (dtype_class == GC_DTYPE_CLASS_BOOLEAN)
        return item.kind == GC_DIM_NUMBER ? truth(item.number != 0)
               : item.kind == GC_DIM_REAL ? truth(item.real != 0)
                                          : gc_dim_unknown();
    if (dtype_class != GC_DTYPE_CLASS_INTEGER)
        return gc_dim_unknown();
    if (item.kind != GC_DIM_REAL)
        return item;
    return item.real >= -beyond && item.real < beyond ? gc_dim_number((int64_t)item.real)
                                                      : gc_dim_unknown();
}

static enum gc_status cast(struct gc_infer *infer, enum gc_dtype dtype)
{
    const struct gc_data *data = gc_infer_data(infer, 0);
    uint32_t count;
    gc_infer_set_dtype(infer, 0, dtype);
    const enum gc_status status = gc_infer_pass_shape(infer, 0, 0);
    if (status != GC_OK || data == NULL || !gc_fold_room(infer, 0, &count) || count != data->count)
        return status;
    struct gc_dim *items = gc_infer_scratch(infer, count);
    if (items == NULL)
        return gc_infer_no_memory(infer);
    for (uint32_t i = 0; i < count; i++)
        items[i] = gc_fold_narrow(dtype, cast_to(dtype, data->items[i]));
    return gc_infer_set_data(infer, 0, items, count);
}

/* Before opset 6 the type was a text. */
enum gc_status gc_rule_cast(struct gc_infer *infer)
{
    enum gc_dtype dtype = gc_infer_dtype_attribute(infer, "to", GC_DTYPE_NONE);
    const char *word = gc_infer_text(infer, "to", "");
    if (dtype == GC_DTYPE_NONE)
        dtype = gc_dtype_from_word(word, strlen(word));
    return cast(infer, dtype);
}

enum gc_status gc_rule_cast_like(struct gc_infer *infer)
{
    return cast(infer, gc_infer_dtype(infer, 1));
}

/* Element by element, or nearly: operators whose output has the shape of an input or of the
 * broadcast of several. */

/* SwiGLU: inputs are the gate and the gated data, of one shape. */
enum gc_status gc_rule_gate(struct gc_infer *infer)
{
    const enum gc_status status = gc_infer_pass_dtype(infer, 0, 0);
    return status != GC_OK ? status : gc_ops_merge_inputs(infer);
}

/* Reinterprets the bits as another type of equal size. */
enum gc_status gc_rule_bit_cast(struct gc_infer *infer)
{
    gc_infer_set_dtype(infer, 0, gc_infer_dtype_attribute(infer, "to", GC_DTYPE_NONE));
    return gc_infer_pass_shape(infer, 0, 0);
}

/* Bitwise*, BitShift, Mean, Sum: all inputs broadcast. Before opset 8 they did not. */
enum gc_status gc_rule_broadcast(struct gc_infer *infer)
{
    const enum gc_status status = gc_infer_pass_dtype(infer, 0, 0);
    if (status != GC_OK)
        return status;
    if (gc_infer_opset(infer) < 8)
        return gc_ops_merge_inputs(infer);
    return gc_dims_broadcast_inputs(infer, 0, gc_infer_input_count(infer), 0);
}

/* IsNaN, IsInf, RegexFullMatch. */
enum gc_status gc_rule_test(struct gc_infer *infer)
{
    gc_infer_set_dtype(infer, 0, GC_DTYPE_BOOL);
    return gc_infer_pass_shape(infer, 0, 0);
}

/* Output 1 is the mask: of the data's type before ONNX's opset 10. */
enum gc_status gc_rule_dropout(struct gc_infer *infer)
{
    const bool is_old = gc_infer_node(infer)->domain[0] == '\0' && gc_infer_opset(infer) < 10;
    enum gc_status status = gc_ops_pass(infer, 0, 0);
    if (is_old && status == GC_OK)
        status = gc_infer_pass_dtype(infer, 1, 0);
    else
        gc_infer_set_dtype(infer, 1, GC_DTYPE_BOOL);
    return status != GC_OK ? status : gc_infer_pass_shape(infer, 1, 0);
}

/* ---- texts ---- */

/* Output: the texts that remain, at most as many as in the input. */
enum gc_status gc_rule_string_normalizer(struct gc_infer *infer)
{
    const struct gc_shape *x = gc_infer_shape(infer, 0);
    gc_infer_set_dtype(infer, 0, GC_DTYPE_TEXT);
    const enum gc_status status = gc_ops_want_rank(infer, 0, 1, 2);
    if (status != GC_OK || !x->is_known)
        return status;
    const struct gc_dim dims[] = {gc_dim_number(1), gc_dim_unknown()};
    return x->rank == 2 ? gc_infer_set_shape(infer, 0, dims, 2) : gc_ops_set_open(infer, 0, 1);
}

/* Outputs: the pieces, along a new last dimension; the number of pieces of each text. */
enum gc_status gc_rule_string_split(struct gc_infer *infer)
{
    const struct gc_shape *x = gc_infer_shape(infer, 0);
    struct gc_dim dims[GC_GRAPH_RANK_MAX + 1];
    gc_infer_set_dtype(infer, 0, GC_DTYPE_TEXT);
    gc_infer_set_dtype(infer, 1, GC_DTYPE_I64);
    if (!x->is_known)
        return GC_OK;
    gc_shape_copy(x, dims);
    dims[x->rank] = gc_dim_unknown();
    const enum gc_status status = gc_infer_set_shape(infer, 0, dims, x->rank + 1);
    return status != GC_OK ? status : gc_infer_pass_shape(infer, 1, 0);
}

/* A column for each n-gram: one more than the largest index. */
enum gc_status gc_rule_tf_idf(struct gc_infer *infer)
{
    const struct gc_shape *x = gc_infer_shape(infer, 0);
    const int64_t *indexes;
    uint32_t count;
    int64_t largest = -1;
    gc_infer_set_dtype(infer, 0, GC_DTYPE_F32);
    const enum gc_status status = gc_ops_want_rank(infer, 0, 1, 2);
    if (status != GC_OK || !x->is_known)
        return status;
    if (!gc_infer_ints(infer, "ngram_indexes", &indexes, &count))
        return gc_ops_set_open(infer, 0, x->rank);
    for (uint32_t i = 0; i < count; i++)
        largest = indexes[i] > largest ? indexes[i] : largest;
    const struct gc_dim columns = gc_dim_add(gc_dim_number(largest), gc_dim_number(1));
    const struct gc_dim dims[] = {x->rank == 2 ? x->dims[0] : columns, columns};
    return gc_infer_set_shape(infer, 0, dims, x->rank);
}

/* Rules that many operators share. */

/* Output 0 as input 0: element by element. */
enum gc_status gc_rule_same(struct gc_infer *infer)
{
    const enum gc_status status = gc_infer_pass_dtype(infer, 0, 0);
    return status != GC_OK ? status : gc_infer_pass_shape(infer, 0, 0);
}

enum gc_status gc_rule_identity(struct gc_infer *infer)
{
    const enum gc_status status = gc_rule_same(infer);
    return status != GC_OK ? status : gc_infer_pass_data(infer, 0, 0);
}

/* Quantisation: to integers with a scale, and back. */

/* The type of the zero point, input 2; else the attribute's, else u8. */
enum gc_status gc_rule_quantize(struct gc_infer *infer)
{
    if (gc_infer_has_input(infer, 2))
        gc_infer_set_dtype(infer, 0, gc_infer_dtype(infer, 2));
    else
        gc_infer_set_dtype(infer, 0, gc_infer_dtype_attribute(infer, "output_dtype", GC_DTYPE_U8));
    return gc_infer_pass_shape(infer, 0, 0);
}

/* The type of the scale, input 1, unless an attribute has another. */
enum gc_status gc_rule_dequantize(struct gc_infer *infer)
{
    gc_infer_set_dtype(infer, 0,
                       gc_infer_dtype_attribute(infer, "output_dtype", gc_infer_dtype(infer, 1)));
    return gc_infer_pass_shape(infer, 0, 0);
}

/* Outputs: the quantised elements, their scale, their zero point. */
enum gc_status gc_rule_dynamic_quantize(struct gc_infer *infer)
{
    enum gc_status status = gc_infer_pass_shape(infer, 0, 0);
    gc_infer_set_dtype(infer, 0, GC_DTYPE_U8);
    if (status == GC_OK)
        status = gc_ops_set_scalar(infer, 1, GC_DTYPE_F32);
    return status != GC_OK ? status : gc_ops_set_scalar(infer, 2, GC_DTYPE_U8);
}
