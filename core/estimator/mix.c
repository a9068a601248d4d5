/* Bytes of quantised weights: mixes.def as tables, and the rules by layer. */
#include "core/estimator/mix.h"

#include "core/io/text.h"
#include "core/model/checked.h"
#include "core/model/dtype.h"

#include <string.h>

enum mix_rule { NEVER, MORE_BITS, EIGHTH, SIXTEENTH, FOUR, TWO, GQA4 };

/* `more`: in the layers of the rule. */
struct cell {
    enum gc_dtype usual;
    enum gc_dtype more;
    enum mix_rule rule;
};

struct mix_row {
    const char *name;
    struct cell kinds[GC_WEIGHT_KIND_COUNT];
    enum gc_dtype output;
    uint32_t elements; /* of a file whose layers' matrices alone are quantised; else 0 */
    uint32_t bytes;
};

#define CELL(type)                                                                                 \
    {                                                                                              \
        GC_DTYPE_##type, GC_DTYPE_##type, NEVER                                                    \
    }

static const struct mix_row rows[] = {
#define GC_MIX(id, name, base, output, k, v, v_more, v_rule, qkv, attn_out, down, down_more,       \
               down_rule)                                                                          \
    {name,                                                                                         \
     {CELL(base),                                                                                  \
      CELL(k),                                                                                     \
      {GC_DTYPE_##v, GC_DTYPE_##v_more, v_rule},                                                   \
      CELL(qkv),                                                                                   \
      CELL(attn_out),                                                                              \
      {GC_DTYPE_##down, GC_DTYPE_##down_more, down_rule},                                          \
      CELL(F32)},                                                                                  \
     GC_DTYPE_##output,                                                                            \
     0,                                                                                            \
     0},
#define GC_MIX_LINEAR(id, name, elements, bytes) {name, {{0}}, GC_DTYPE_F16, elements, bytes},
#include "core/estimator/mixes.def"
};

const char *gc_mix_name(enum gc_mix mix)
{
    return (unsigned)mix < GC_MIX_COUNT ? rows[mix].name : NULL;
}

enum gc_mix gc_mix_from_word(const char *word, size_t length)
{
    for (unsigned i = 0; i < GC_MIX_COUNT; i++) {
        if (strlen(rows[i].name) == length && gc_text_equal_nocase(word, rows[i].name, length))
            return (enum gc_mix)i;
    }
    return GC_MIX_NONE;
}

bool gc_mix_is_gguf(enum gc_mix mix)
{
    return rows[mix].elements == 0;
}

static bool is_of_rule(enum mix_rule rule, const struct gc_mix_model *model, uint32_t layer)
{
    const uint32_t count = model->layers;
    switch (rule) {
    case MORE_BITS:
        return layer < count / 8 || layer >= 7 * count / 8 || (layer - count / 8) % 3 == 2;
    case EIGHTH:
        return layer < count / 8;
    case SIXTEENTH:
        return layer < count / 16;
    case FOUR:
        return layer < 4;
    case TWO:
        return layer < 2;
    case GQA4:
        return model->group >= 4;
    default:
        return false;
    }
}

/* Models of eight experts keep more of their small attention (llama-quant.cpp). */
static enum gc_dtype type_of(const struct mix_row *row, const struct gc_mix_model *model,
                             uint32_t layer, enum gc_weight_kind kind)
{
    const struct cell *cell = &row->kinds[kind];
    const enum gc_dtype type = is_of_rule(cell->rule, model, layer) ? cell->more : cell->usual;
    const bool is_small =
        gc_dtype_get_info(row->kinds[GC_WEIGHT_MATRIX].usual)->block_elements == 256;
    if (model->experts != 8 || !is_small)
        return type;
    if (kind == GC_WEIGHT_KEY || kind == GC_WEIGHT_VALUE)
        return GC_DTYPE_Q8_0;
    if (kind == GC_WEIGHT_ATTENTION_OUTPUT && (type == GC_DTYPE_Q3_K || type == GC_DTYPE_Q4_K))
        return GC_DTYPE_Q5_K;
    return type;
}

/* For rows that are no multiple of 256 elements. */
static enum gc_dtype odd_type(enum gc_dtype type)
{
    switch (type) {
    case GC_DTYPE_Q2_K:
    case GC_DTYPE_Q3_K:
    case GC_DTYPE_IQ4_XS:
        return GC_DTYPE_IQ4_NL;
    case GC_DTYPE_Q4_K:
        return GC_DTYPE_Q5_0;
    case GC_DTYPE_Q5_K:
        return GC_DTYPE_Q5_1;
    case GC_DTYPE_Q6_K:
        return GC_DTYPE_Q8_0;
    default:
        return type;
    }
}

static uint64_t in_groups(struct gc_sum *sum, uint64_t elements, uint32_t group, uint32_t bytes)
{
    return gc_sum_mul(sum, gc_divide_up_u64(elements, group), bytes);
}

/* `odd`: of the elements. */
static uint64_t typed(struct gc_sum *sum, enum gc_dtype type, uint64_t elements, uint64_t odd)
{
    return gc_sum_add(sum, gc_sum_typed(sum, type, elements - odd),
                      gc_sum_typed(sum, odd_type(type), odd));
}

static enum gc_dtype section_type(const struct mix_row *row, const struct gc_mix_model *model,
                                  enum gc_weight_section section, uint32_t layer,
                                  enum gc_weight_kind kind)
{
    if (section == GC_WEIGHT_LAYER || kind == GC_WEIGHT_ROUTER)
        return type_of(row, model, layer, kind);
    const bool is_output = section == GC_WEIGHT_OUTPUT || model->is_tied;
    return is_output ? row->output : row->kinds[GC_WEIGHT_MATRIX].usual;
}

static enum gc_status count_linear(const struct mix_row *row, enum gc_weight_section section,
                                   const struct gc_weight_elements *elements,
                                   struct gc_mix_bytes *bytes)
{
    struct gc_sum sum = {false};
    *bytes = (struct gc_mix_bytes){.replicated = gc_sum_mul(&sum, elements->vector, 2)};
    for (unsigned kind = 0; kind < GC_WEIGHT_KIND_COUNT; kind++) {
        const bool is_kept = section != GC_WEIGHT_LAYER || kind == GC_WEIGHT_ROUTER;
        const uint32_t group = is_kept ? 1 : row->elements;
        const uint32_t size = is_kept ? 2 : row->bytes;
        bytes->dense =
            gc_sum_add(&sum, bytes->dense, in_groups(&sum, elements->dense[kind], group, size));
        bytes->expert =
            gc_sum_add(&sum, bytes->expert, in_groups(&sum, elements->expert[kind], group, size));
    }
    return gc_sum_status(&sum);
}

enum gc_status gc_mix_count(enum gc_mix mix, const struct gc_mix_model *model,
                            enum gc_weight_section section, uint32_t layer,
                            const struct gc_weight_elements *elements, struct gc_mix_bytes *bytes)
{
    const struct mix_row *row = &rows[mix];
    struct gc_sum sum = {false};
    if (!gc_mix_is_gguf(mix))
        return count_linear(row, section, elements, bytes);
    *bytes = (struct gc_mix_bytes){.replicated = gc_sum_mul(&sum, elements->vector, sizeof(float))};
    for (unsigned i = 0; i < GC_WEIGHT_KIND_COUNT; i++) {
        const enum gc_weight_kind kind = (enum gc_weight_kind)i;
        const enum gc_dtype type = section_type(row, model, section, layer, kind);
        bytes->dense =
            gc_sum_add(&sum, bytes->dense,
                       typed(&sum, type, elements->dense[kind], elements->odd_dense[kind]));
        bytes->expert =
            gc_sum_add(&sum, bytes->expert,
                       typed(&sum, type, elements->expert[kind], elements->odd_expert[kind]));
    }
    return gc_sum_status(&sum);
}
