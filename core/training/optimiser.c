#include "core/training/optimiser.h"

#include "core/io/text.h"
#include "core/model/checked.h"

#include <string.h>

enum state_kind { KIND_NONE, KIND_FACTORED, KIND_BLOCKS };

struct optimiser_row {
    const char *name;
    const char *label;
    uint32_t copies;
    enum state_kind kind;
    uint32_t step_copies;
    uint32_t step_words;
};

static const struct optimiser_row rows[] = {
#define GC_OPTIMISER(id, name, label, copies, kind, step_copies, step_words)                       \
    {name, label, copies, KIND_##kind, step_copies, step_words},
#include "core/training/optimisers.def"
};

const char *gc_optimiser_name(enum gc_optimiser optimiser)
{
    return (unsigned)optimiser < GC_OPTIMISER_COUNT ? rows[optimiser].name : NULL;
}

const char *gc_optimiser_label(enum gc_optimiser optimiser)
{
    return rows[optimiser].label;
}

const char *gc_optimiser_names(void)
{
    static const char after_separator[] = ""
#define GC_OPTIMISER(id, name, ...) ", " name
#include "core/training/optimisers.def"
        ;
    return &after_separator[2];
}

enum gc_optimiser gc_optimiser_from_word(const char *word)
{
    const int at = gc_text_find_word(gc_optimiser_names(), word, strlen(word));
    return at >= 0 ? (enum gc_optimiser)at : GC_OPTIMISER_NONE;
}

static uint64_t kind_bytes(struct gc_sum *sum, enum state_kind kind,
                           const struct gc_training_sums *sums)
{
    switch (kind) {
    case KIND_FACTORED:
        return gc_sum_mul(sum, sums->factored, sizeof(float));
    case KIND_BLOCKS:
        return gc_sum_add(sum, gc_sum_mul(sum, sums->unblocked, 2 * sizeof(float)),
                          gc_sum_add(sum, gc_sum_mul(sum, sums->elements - sums->unblocked, 2),
                                     gc_sum_mul(sum, sums->blocks, 2 * sizeof(float))));
    default:
        return 0;
    }
}

enum gc_status gc_optimiser_state_bytes(enum gc_optimiser optimiser,
                                        const struct gc_training_sums *sums, uint64_t *bytes)
{
    struct gc_sum sum = {false};
    const struct optimiser_row *row = &rows[optimiser];
    *bytes = gc_sum_add(&sum, gc_sum_mul(&sum, sums->bytes, row->copies),
                        kind_bytes(&sum, row->kind, sums));
    return gc_sum_status(&sum);
}

/* The temporaries of one tensor, or of two of a size: the first one's go when the second's are
 * made. */
static uint64_t tensor_bytes(struct gc_sum *sum, const struct optimiser_row *row,
                             const struct gc_training_sums *sums)
{
    const bool is_narrow = sums->bytes < gc_sum_mul(sum, sums->elements, sizeof(float));
    const uint64_t words = row->step_words + (is_narrow ? 2 : 0);
    if (row->step_words == 0)
        return 0;
    return gc_max_u64(gc_sum_mul(sum, gc_training_largest(sums), words * sizeof(float)),
                      gc_sum_mul(sum, gc_training_largest_pair(sums), (words + 1) * sizeof(float)));
}

enum gc_status gc_optimiser_step_bytes(enum gc_optimiser optimiser,
                                       const struct gc_training_sums *sums, uint64_t *bytes)
{
    struct gc_sum sum = {false};
    const struct optimiser_row *row = &rows[optimiser];
    *bytes = gc_sum_add(&sum, gc_sum_mul(&sum, sums->bytes, row->step_copies),
                        tensor_bytes(&sum, row, sums));
    return gc_sum_status(&sum);
}
