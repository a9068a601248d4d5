/* Holds a model's stored tensors against the rows of its configuration. */
#define _GNU_SOURCE
#include "core/classes/architecture_rows.h"

#include "core/arch/arch.h"
#include "core/base/bits.h"
#include "core/base/host_mem.h"
#include "core/io/text.h"
#include "core/model/checked.h"

#include <string.h>

/* A stored tensor. */
struct mark {
    uint32_t length; /* of its name */
    bool is_named;   /* a row has a tensor of this name */
    bool fits;       /* one of these rows has its size, and its layer */
    bool is_renamed; /* the tensor of a row that no tensor has the name of */
};

struct comparison {
    struct gc_architecture_visitor visitor; /* first */
    const struct gc_model *model;
    struct mark *marks;
    uint64_t layers;
    uint64_t predicting; /* layers behind them that predict further tokens: stored, not run */
    uint64_t elements;   /* of all rows */
    bool is_naming;      /* the first pass over the rows; the second one finds renamed tensors */
    bool is_packed;      /* integers stand for floats */
    bool lacks;          /* a row outside of layers has no tensor, nor one of another name */
};

/* The first number between dots. */
static bool find_number(const char *name, uint64_t *number)
{
    while (*name != '\0') {
        const size_t length = strcspn(name, ".");
        if (gc_text_uint(name, length, number))
            return true;
        name += length + (name[length] == '.');
    }
    return false;
}

/* Whether the row has a tensor of this name but for its numbers. */
static bool is_named(const struct gc_architecture_row *row, const char *name)
{
    const size_t before = strlen(row->prefix);
    if (strncmp(name, row->prefix, before) != 0)
        return false;
    name += before;
    for (size_t i = 0; i < row->name_length; i++) {
        if (row->name[i] != '{') {
            if (*name++ != row->name[i])
                return false;
            continue;
        }
        const size_t digits = strspn(name, "0123456789");
        if (digits == 0)
            return false;
        name += digits;
        while (row->name[i] != '}')
            i++;
    }
    return *name == '\0';
}

static bool is_parameter(const struct gc_model_tensor *tensor)
{
    return tensor->alias_of == GC_MODEL_NONE &&
           gc_dtype_get_info(tensor->dtype)->kind == GC_DTYPE_CLASS_FLOAT;
}

static bool fits(const struct comparison *comparison, const struct gc_architecture_row *row,
                 uint64_t elements, const struct gc_model_tensor *tensor)
{
    uint64_t number;
    if (row->is_uneven)
        return true;
    return tensor->elements == elements &&
           (gc_architecture_row_numbers(row) != 1 || row->count != comparison->layers ||
            !find_number(tensor->name, &number) ||
            number < comparison->layers + comparison->predicting);
}

/* Marks the tensors of the row's name; false: there are none. */
static bool mark_named(struct comparison *comparison, const struct gc_architecture_row *row,
                       uint64_t elements)
{
    const struct gc_model *model = comparison->model;
    const char *last = memrchr(row->name, '}', row->name_length);
    const char *end = last != NULL ? last + 1 : row->name; /* quick to compare */
    const size_t end_length = (size_t)(row->name + row->name_length - end);
    bool is_there = false;
    for (uint32_t i = 0; i < model->tensor_count; i++) {
        const struct gc_model_tensor *tensor = &model->tensors[i];
        struct mark *mark = &comparison->marks[i];
        if (mark->length < end_length || tensor->alias_of != GC_MODEL_NONE ||
            memcmp(tensor->name + mark->length - end_length, end, end_length) != 0 ||
            !is_named(row, tensor->name))
            continue;
        is_there = mark->is_named = true;
        if (!is_parameter(tensor))
            comparison->is_packed = true;
        mark->fits = mark->fits || fits(comparison, row, elements, tensor);
    }
    return is_there;
}

/* Finds the tensor of a row that no tensor has the name of: one of its size, without a row. */
static bool mark_renamed(struct comparison *comparison, uint64_t elements, bool is_numbered)
{
    const struct gc_model *model = comparison->model;
    uint64_t number;
    for (uint32_t i = 0; i < model->tensor_count; i++) {
        const struct gc_model_tensor *tensor = &model->tensors[i];
        struct mark *mark = &comparison->marks[i];
        if (tensor->elements != elements || mark->is_named || mark->is_renamed ||
            !is_parameter(tensor) || find_number(tensor->name, &number) != is_numbered)
            continue;
        return mark->is_renamed = true;
    }
    return false;
}

static enum gc_status compare_row(struct gc_architecture_visitor *visitor,
                                  const struct gc_architecture_row *row)
{
    struct comparison *comparison = (struct comparison *)visitor;
    uint64_t elements = 1;
    uint64_t all;
    const bool is_of_layers = memchr(row->name, '}', row->name_length) != NULL;
    if ((row->dtype != GC_DTYPE_NONE &&
         gc_dtype_get_info(row->dtype)->kind != GC_DTYPE_CLASS_FLOAT) ||
        (is_of_layers && !comparison->is_naming))
        return GC_OK;
    for (uint32_t i = 0; i < row->dim_count; i++) {
        if (!gc_mul_u64(elements, row->dims[i], &elements))
            return GC_OVERFLOW;
    }
    const bool is_there = mark_named(comparison, row, elements);
    if (comparison->is_naming)
        return gc_mul_u64(elements, row->is_uneven ? 1 : row->count, &all) &&
                       gc_add_u64(comparison->elements, all, &comparison->elements)
                   ? GC_OK
                   : GC_OVERFLOW;
    if (!is_there && !mark_renamed(comparison, elements, false) &&
        !mark_renamed(comparison, elements, true))
        comparison->lacks = true;
    return GC_OK;
}

static uint64_t number_of(const struct gc_model *model, const char *key)
{
    char nested[64];
    uint64_t number = 0;
    (void)stpcpy(stpcpy(nested, "text_config."), key);
    const struct gc_meta_value *value = gc_model_find_meta(model, key);
    if (value == NULL)
        value = gc_model_find_meta(model, nested);
    return value != NULL && gc_meta_uint(value, &number) ? number : 0;
}

static uint64_t predicting_layers(const struct gc_model *model)
{
    const uint64_t number = number_of(model, "num_nextn_predict_layers");
    return number > 0 ? number : number_of(model, "num_mtp_layers");
}

uint64_t gc_architecture_prediction_bytes(const struct gc_model *model, uint64_t described)
{
    const uint64_t layers = gc_max_u64(number_of(model, "num_hidden_layers"), 1);
    const uint64_t predicting =
        gc_max_u64(predicting_layers(model), model->indexed_predictions > 0);
    return gc_scale_u64(gc_min_u64(predicting, layers), 2 * described, layers);
}

static bool is_predicting(const struct comparison *comparison, const char *name)
{
    const uint64_t layers = comparison->layers;
    uint64_t number;
    return gc_model_is_prediction(name) || (find_number(name, &number) && number >= layers &&
                                            number < layers + comparison->predicting);
}

/* A tensor that no row has the name of, and that is no parameter of the class: outside of layers,
 * which programs leave, or a constant that older versions kept. */
static bool is_left(const struct gc_model_tensor *tensor)
{
    const size_t length = strlen(tensor->name);
    uint64_t number;
    return !find_number(tensor->name, &number) || tensor->dim_count == 0 ||
           (tensor->dim_count == 4 && tensor->dims[0] == 1 && tensor->dims[1] == 1) ||
           gc_text_has_ending(tensor->name, length, "inv_freq") ||
           gc_text_has_ending(tensor->name, length, /* of T5, once for its cross attention */
                              "EncDecAttention.relative_attention_bias.weight");
}

static void note_sums(uint64_t stored, uint64_t described, struct gc_notes *notes)
{
    char numbers[2][GC_NOTE_NUMBER_BYTES];
    gc_notes_add(notes, "the tensors have ", gc_note_number(stored, numbers[0]),
                 " parameters, the configuration ", gc_note_number(described, numbers[1]), NULL);
}

static void note_tensor(const struct gc_model_tensor *tensor, struct gc_notes *notes)
{
    char shown[GC_ARCHITECTURE_KEY_BYTES];
    char number[GC_NOTE_NUMBER_BYTES];
    gc_text_printable(tensor->name, strlen(tensor->name), shown, sizeof(shown));
    gc_notes_add(notes, "the configuration has no ", shown, " of ",
                 gc_note_number(tensor->elements, number), " parameters", NULL);
}

static enum gc_architecture_files compare_sums(const struct comparison *comparison,
                                               enum gc_architecture_known known,
                                               struct gc_notes *notes)
{
    const struct gc_model *model = comparison->model;
    const struct gc_model_tensor *other = NULL;
    uint64_t stored = 0;
    uint64_t left = 0;
    uint64_t passed = 0; /* of these, the ones that no name of a row may stand for */
    for (uint32_t i = 0; i < model->tensor_count; i++) {
        const struct gc_model_tensor *tensor = &model->tensors[i];
        uint64_t number;
        if (!is_parameter(tensor))
            continue;
        stored += tensor->elements; /* the sum of all is checked */
        if (comparison->marks[i].is_named && !comparison->marks[i].fits && other == NULL)
            other = tensor;
        if (!is_predicting(comparison, tensor->name) &&
            (comparison->marks[i].is_named || !is_left(tensor)))
            continue;
        left += comparison->marks[i].is_renamed ? 0 : tensor->elements;
        passed += find_number(tensor->name, &number) ? tensor->elements : 0;
    }
    const uint64_t described = comparison->elements;
    const bool is_less = stored - passed < described;
    const bool is_exact = known == GC_ARCHITECTURE_EXACT;
    if (known == GC_ARCHITECTURE_ABOUT)
        return GC_ARCHITECTURE_FILES_UNKNOWN;
    if (comparison->is_packed ? other == NULL || !is_exact : !is_exact && !is_less)
        return GC_ARCHITECTURE_FILES_UNKNOWN;
    if (!comparison->is_packed) {
        if (stored == described && is_exact && other == NULL)
            return GC_ARCHITECTURE_FILES_SAME;
        if (stored != described)
            note_sums(stored, described, notes);
        if (stored != described && is_exact && !is_less && !comparison->lacks &&
            stored - left == described)
            return GC_ARCHITECTURE_FILES_SAME;
    }
    if (other != NULL)
        note_tensor(other, notes);
    return GC_ARCHITECTURE_FILES_OTHER;
}

enum gc_architecture_files gc_architecture_compare(const struct gc_model *model,
                                                   struct gc_notes *notes)
{
    struct gc_host_mem host = {0};
    struct gc_architecture_scope scope;
    struct gc_notes ignored = {0};
    struct comparison comparison = {.visitor = {compare_row},
                                    .model = model,
                                    .layers = number_of(model, "num_hidden_layers"),
                                    .predicting = predicting_layers(model),
                                    .is_naming = true,
                                    .is_packed = gc_arch_quant_method(model) != NULL};
    enum gc_architecture_known known = GC_ARCHITECTURE_EXACT;
    const enum gc_architecture_match match = model->format == GC_MODEL_SAFETENSORS
                                                 ? gc_architecture_find(model, &scope)
                                                 : GC_ARCHITECTURE_NONE;
    if (match == GC_ARCHITECTURE_NONE)
        return GC_ARCHITECTURE_FILES_UNKNOWN;
    if (gc_architecture_has_two_types(model, &scope)) {
        gc_architecture_note(model, notes, "the class ",
                             " is not of the configuration's model_type");
        return GC_ARCHITECTURE_FILES_OTHER;
    }
    const uint64_t bytes = (uint64_t)model->tensor_count * sizeof(*comparison.marks);
    comparison.marks = gc_host_mem_map(&host, bytes);
    if (comparison.marks == NULL)
        return GC_ARCHITECTURE_FILES_UNKNOWN;
    for (uint32_t i = 0; i < model->tensor_count; i++)
        comparison.marks[i].length = (uint32_t)strlen(model->tensors[i].name);
    enum gc_status status = gc_architecture_visit(&scope, &comparison.visitor, &ignored, &known);
    comparison.is_naming = false;
    if (status == GC_OK)
        status = gc_architecture_visit(&scope, &comparison.visitor, &ignored, &known);
    if (match == GC_ARCHITECTURE_TYPE && known == GC_ARCHITECTURE_EXACT)
        known = GC_ARCHITECTURE_AT_LEAST;
    const enum gc_architecture_files files =
        status == GC_OK ? compare_sums(&comparison, known, notes) : GC_ARCHITECTURE_FILES_UNKNOWN;
    gc_host_mem_unmap(&host, comparison.marks, bytes);
    return files;
}
