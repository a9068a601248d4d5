/* Makes a model's tensors from the rows of its architecture. */
#define _GNU_SOURCE
#include "core/arch/architecture_rows.h"

#include "core/arch/arch.h"
#include "core/base/bits.h"
#include "core/base/host_mem.h"
#include "core/base/region.h"
#include "core/io/text.h"
#include "core/model/checked.h"

#include <stddef.h>
#include <string.h>

#define MEMORY_MAX (UINT64_C(512) << 20)
#define TENSORS_MAX (UINT32_C(1) << 20)

struct maker {
    struct gc_architecture_visitor visitor; /* first: the visitor is the maker */
    struct gc_region region;
    struct gc_architecture architecture;
    enum gc_dtype dtype;
    enum gc_dtype packed; /* of matrices of layers; GC_DTYPE_NONE: the same */
    bool is_experts_alone;
    bool is_method_unknown; /* no matrix of a layer is counted */
    struct gc_architecture_row *rows;
    uint32_t row_count;
    uint32_t row_room;
    uint64_t tensor_count;
    struct gc_model_tensor *tensors;
    uint32_t made;
};

/* ---- the type of weights ---- */

static enum gc_dtype dtype_of(const struct gc_model *model, struct gc_notes *notes)
{
    static const char *const objects[] = {"",
                                          "text_config.",
                                          "llm_config.",
                                          "language_config.",
                                          "thinker_config.",
                                          "thinker_config.text_config.",
                                          "decoder."};
    static const char *const keys[] = {"dtype", "torch_dtype"};
    for (size_t i = 0; i < sizeof(objects) / sizeof(*objects); i++) {
        for (size_t k = 0; k < 2; k++) {
            char name[64];
            char *end = stpcpy(stpcpy(name, objects[i]), keys[k]);
            (void)end;
            const struct gc_meta_value *value = gc_model_find_meta(model, name);
            if (value == NULL || value->kind != GC_META_TEXT)
                continue;
            const enum gc_dtype dtype = gc_dtype_from_word(value->text, strlen(value->text));
            if (dtype != GC_DTYPE_NONE && gc_dtype_get_info(dtype)->block_bytes > 0)
                return dtype;
        }
    }
    gc_notes_add(notes, "the type of weights is not given: f32, as transformers takes it", NULL);
    return GC_DTYPE_F32;
}

/* How matrices of the layers are stored, by quantization_config. */
struct storage {
    const char *methods;
    enum gc_dtype dtype;
    bool is_experts_alone; /* and then exact: a type of blocks with their scales */
};

static const struct storage storages[] = {
    {"mxfp4", GC_DTYPE_MXFP4, true},
    {"fp8, fbgemm_fp8, finegrained_fp8", GC_DTYPE_F8_E4M3, false},
    {"awq, gptq, bitsandbytes, compressed-tensors, auto-round, hqq", GC_DTYPE_I4, false},
};

static enum gc_dtype dtype_of_bits(const struct gc_model *model, enum gc_dtype otherwise)
{
    const struct gc_meta_value *bits = gc_model_find_meta(model, "quantization_config.bits");
    const struct gc_meta_value *is_8 =
        gc_model_find_meta(model, "quantization_config.load_in_8bit");
    static const char group[] = "quantization_config.config_groups.group_";
    const struct gc_meta_value *kind =
        gc_model_find_meta(model, "quantization_config.config_groups.group_0.weights.type");
    uint64_t number = 0;
    /* compressed-tensors: one group for all matrices */
    if (bits == NULL &&
        gc_architecture_count_members(model, group) ==
            gc_architecture_count_members(model, "quantization_config.config_groups.group_0."))
        bits =
            gc_model_find_meta(model, "quantization_config.config_groups.group_0.weights.num_bits");
    if (kind != NULL && kind->kind == GC_META_TEXT && strcmp(kind->text, "float") == 0 &&
        bits != NULL && gc_meta_uint(bits, &number) && number == 8)
        return GC_DTYPE_F8_E4M3;
    if (is_8 != NULL && is_8->kind == GC_META_BOOL && is_8->unsigned_value != 0)
        return GC_DTYPE_I8;
    if (bits != NULL && gc_meta_uint(bits, &number) && otherwise == GC_DTYPE_I4)
        return number == 8 ? GC_DTYPE_I8 : number < 4 ? GC_DTYPE_I2 : GC_DTYPE_I4;
    return otherwise;
}

/* Sets maker->packed; the weights are then a lower bound, but for blocks of known form. */
static void set_storage(struct maker *maker, const struct gc_model *model, struct gc_notes *notes,
                        bool *is_exact)
{
    char shown[64];
    const struct gc_meta_value *method =
        gc_model_find_meta(model, "quantization_config.quant_method");
    maker->packed = GC_DTYPE_NONE;
    if (method == NULL || method->kind != GC_META_TEXT)
        return;
    const size_t length = strlen(method->text);
    for (size_t i = 0; i < sizeof(storages) / sizeof(storages[0]); i++) {
        if (gc_text_find_word(storages[i].methods, method->text, length) < 0)
            continue;
        maker->packed = dtype_of_bits(model, storages[i].dtype);
        maker->is_experts_alone = storages[i].is_experts_alone;
        if (storages[i].is_experts_alone)
            return;
    }
    *is_exact = false;
    maker->is_method_unknown = maker->packed == GC_DTYPE_NONE;
    gc_notes_add(notes, "weights are quantised (",
                 gc_text_printable(method->text, length, shown, sizeof(shown)),
                 "): a lower bound, ",
                 maker->is_method_unknown ? "without the matrices of layers"
                                          : "each matrix of a layer without its scales, in ",
                 maker->is_method_unknown ? "" : gc_dtype_name(maker->packed), NULL);
}

static bool is_of_experts(const struct gc_architecture_row *row)
{
    static const char experts[] = "experts.";
    const size_t length = sizeof(experts) - 1;
    for (size_t i = 0; i + length <= row->name_length; i++) {
        if (memcmp(row->name + i, experts, length) == 0)
            return !gc_text_has_ending(row->name, row->name_length, "bias");
    }
    return false;
}

static bool is_matrix_of_layer(const struct gc_architecture_row *row)
{
    return row->dtype == GC_DTYPE_NONE && row->dim_count >= 2 &&
           memchr(row->name, '{', row->name_length) != NULL;
}

static bool is_packed_row(const struct maker *maker, const struct gc_architecture_row *row)
{
    return maker->packed != GC_DTYPE_NONE && is_matrix_of_layer(row) &&
           (!maker->is_experts_alone || is_of_experts(row));
}

/* ---- rows ---- */

static enum gc_status take_row(struct gc_architecture_visitor *visitor,
                               const struct gc_architecture_row *row)
{
    struct maker *maker = (struct maker *)visitor;
    if (maker->is_method_unknown && is_matrix_of_layer(row))
        return GC_OK;
    if (maker->row_count == maker->row_room) {
        const uint32_t room = maker->row_room == 0 ? 256 : maker->row_room * 2;
        void *rows =
            gc_region_grow(&maker->region, maker->rows, maker->row_room * sizeof(*maker->rows),
                           room * sizeof(*maker->rows));
        if (rows == NULL)
            return GC_NO_HOST_MEMORY;
        maker->rows = rows;
        maker->row_room = room;
    }
    struct gc_architecture_row *kept = &maker->rows[maker->row_count++];
    *kept = *row;
    if (row->count > TENSORS_MAX)
        return GC_NOT_SUPPORTED;
    maker->tensor_count += row->is_uneven ? 1 : row->count;
    maker->architecture.is_shaped = maker->architecture.is_shaped && !row->is_uneven;
    kept->prefix = gc_region_text(&maker->region, row->prefix, strlen(row->prefix));
    return kept->prefix != NULL ? GC_OK : GC_NO_HOST_MEMORY;
}

/* Bytes of a name before its first number; the whole without one. */
static size_t stem_of(const struct gc_architecture_row *row)
{
    const char *brace = memchr(row->name, '{', row->name_length);
    return brace != NULL ? (size_t)(brace - row->name) : row->name_length;
}

static unsigned number_count(const struct gc_architecture_row *row)
{
    unsigned count = 0;
    for (size_t i = 0; i < row->name_length; i++)
        count += row->name[i] == '{';
    return count;
}

/* The number of layers that the rows beside this one have. */
static uint64_t layers_beside(const struct maker *maker, const struct gc_architecture_row *row)
{
    const size_t stem = stem_of(row);
    uint64_t most = 0;
    for (uint32_t i = 0; i < maker->row_count; i++) {
        const struct gc_architecture_row *other = &maker->rows[i];
        if (other->count > most && number_count(other) == 1 && stem_of(other) == stem &&
            strcmp(other->prefix, row->prefix) == 0 && memcmp(other->name, row->name, stem) == 0)
            most = other->count;
    }
    return most > 0 ? most : row->count;
}

/* ---- tensors ---- */

/* The place of the item `index` among those of the row's kind. */
static uint64_t place_of(const struct gc_architecture_row *row, uint64_t index)
{
    uint64_t last = 0;
    for (uint64_t i = 0; i < row->kinds->count; i++) {
        if (!gc_architecture_row_is_in(row, i))
            continue;
        last = i;
        if (index-- == 0)
            break;
    }
    return last;
}

static uint64_t kind_count(const struct gc_architecture_row *row)
{
    uint64_t count = 0;
    for (uint64_t i = 0; i < row->kinds->count; i++)
        count += gc_architecture_row_is_in(row, i);
    return count;
}

static bool has_same_name(const struct maker *maker, const struct gc_architecture_row *row)
{
    for (uint32_t i = 0; i < maker->row_count; i++) {
        const struct gc_architecture_row *other = &maker->rows[i];
        if (other != row && other->name_length == row->name_length &&
            memcmp(other->name, row->name, row->name_length) == 0 &&
            strcmp(other->prefix, row->prefix) == 0)
            return true;
    }
    return false;
}

/* Whether only the number of the layers that have the row is known. */
static bool is_guessed(const struct maker *maker, const struct gc_architecture_row *row,
                       uint64_t layers)
{
    const char *brace = memchr(row->name, '{', row->name_length);
    return brace != NULL && row->count < layers && row->kinds == NULL &&
           (brace[1] == '~' || has_same_name(maker, row));
}

/* The name's first number: which layer the tensor `index` of the row is in. */
static uint64_t layer_of(const struct gc_architecture_row *row, uint64_t layers, uint64_t index)
{
    const char *brace = memchr(row->name, '{', row->name_length);
    if (brace == NULL)
        return 0;
    if (row->kinds != NULL)
        return place_of(row, index * kind_count(row) / row->count);
    if (row->count >= layers)
        return index * layers / row->count;
    if (brace[1] == '-')
        return layers - row->count + index;
    return brace[1] == '~' ? (index + 1) * layers / row->count - 1 : index;
}

static const char *make_name(struct maker *maker, const struct gc_architecture_row *row,
                             uint64_t layers, uint64_t index)
{
    char name[512];
    size_t length = strlen(row->prefix);
    unsigned numbers = 0;
    const uint64_t holders = row->kinds != NULL ? kind_count(row) : layers;
    const uint64_t each =
        holders > 0 && row->count > holders ? (row->count + holders - 1) / holders : 1;
    memcpy(name, row->prefix, length);
    for (size_t i = 0; i < row->name_length && length + GC_NOTE_NUMBER_BYTES < sizeof(name); i++) {
        char number[GC_NOTE_NUMBER_BYTES];
        if (row->name[i] != '{') {
            name[length++] = row->name[i];
            continue;
        }
        const uint64_t value = numbers++ == 0 ? layer_of(row, layers, index) : index % each;
        const char *text = gc_note_number(value, number);
        while (*text != '\0')
            name[length++] = *text++;
        while (i < row->name_length && row->name[i] != '}')
            i++;
    }
    return gc_region_text(&maker->region, name, length);
}

static enum gc_status size_tensor(const struct maker *maker, const struct gc_architecture_row *row,
                                  struct gc_model_tensor *tensor)
{
    tensor->elements = 1;
    for (uint32_t i = 0; i < row->dim_count; i++) {
        if (!gc_mul_u64(tensor->elements, row->dims[i], &tensor->elements))
            return GC_OVERFLOW;
    }
    tensor->dtype = is_packed_row(maker, row)     ? maker->packed
                    : row->dtype != GC_DTYPE_NONE ? row->dtype
                                                  : maker->dtype;
    return gc_dtype_bytes(tensor->dtype, tensor->elements, &tensor->bytes) ? GC_OK : GC_OVERFLOW;
}

static enum gc_status make_row(struct maker *maker, const struct gc_architecture_row *row)
{
    const uint64_t layers = layers_beside(maker, row);
    const uint64_t count = row->is_uneven ? 1 : row->count;
    struct gc_model_totals *totals = &maker->architecture.model.totals;
    struct gc_model_tensor tensor = {.dims = row->dims,
                                     .dim_count = row->dim_count,
                                     .offset = GC_MODEL_NO_OFFSET,
                                     .file = GC_MODEL_NONE,
                                     .alias_of = GC_MODEL_NONE,
                                     .is_layer_guessed = is_guessed(maker, row, layers)};
    const enum gc_status status = size_tensor(maker, row, &tensor);
    if (status != GC_OK)
        return status;
    for (uint64_t i = 0; i < count; i++) {
        tensor.name = make_name(maker, row, layers, i);
        if (tensor.name == NULL)
            return GC_NO_HOST_MEMORY;
        if (!gc_add_u64(totals->weight_bytes, tensor.bytes, &totals->weight_bytes) ||
            !gc_add_u64(totals->parameters, tensor.elements, &totals->parameters))
            return GC_OVERFLOW;
        maker->tensors[maker->made++] = tensor;
    }
    return GC_OK;
}

static enum gc_status make_tensors(struct maker *maker)
{
    enum gc_status status = GC_OK;
    if (maker->tensor_count > TENSORS_MAX)
        return GC_NOT_SUPPORTED;
    maker->tensors = gc_region_alloc(&maker->region, maker->tensor_count * sizeof(*maker->tensors));
    if (maker->tensors == NULL)
        return GC_NO_HOST_MEMORY;
    for (uint32_t i = 0; status == GC_OK && i < maker->row_count; i++)
        status = make_row(maker, &maker->rows[i]);
    maker->architecture.model.tensors = maker->tensors;
    maker->architecture.model.tensor_count = maker->made;
    return status;
}

/* ---- the whole ---- */

static void note_type(const struct gc_model *model, struct gc_notes *notes, const char *before,
                      const char *after)
{
    char shown[96];
    const struct gc_meta_value *type = gc_model_find_meta(model, "model_type");
    const struct gc_meta_value *classes = gc_model_find_meta(model, "architectures");
    const char *text = "unknown";
    if (classes != NULL && classes->kind == GC_META_ARRAY && classes->kept > 0 &&
        classes->items[0].kind == GC_META_TEXT)
        text = classes->items[0].text;
    else if (type != NULL && type->kind == GC_META_TEXT)
        text = type->text;
    gc_notes_add(notes, before, gc_text_printable(text, strlen(text), shown, sizeof(shown)), after,
                 NULL);
}

/* Whether the class is one type's and the configuration names another that is known: programs that
 * go by the type run another model than those that go by the class. */
static bool has_two_types(const struct gc_model *model, const struct gc_architecture_scope *scope)
{
    struct gc_architecture_lines lines;
    enum gc_architecture_rank rank;
    return scope->is_other_type &&
           gc_architecture_section(gc_arch_architectures, NULL, gc_architecture_type_name(model),
                                   gc_architecture_ranks(NULL), &lines, &rank);
}

static enum gc_status find(const struct gc_model *model, struct gc_architecture_scope *scope,
                           struct gc_notes *notes, enum gc_architecture_known *known)
{
    switch (gc_architecture_find(model, scope)) {
    case GC_ARCHITECTURE_NONE:
        note_type(model, notes, "the architecture ",
                  " is not known: its weights cannot be computed from the configuration alone");
        return GC_NOT_SUPPORTED;
    case GC_ARCHITECTURE_TYPE:
        *known = GC_ARCHITECTURE_AT_LEAST;
        note_type(model, notes, "weights are those of the model without the head of ",
                  ", which is not known: a lower bound");
        break;
    case GC_ARCHITECTURE_CLASS:
        if (has_two_types(model, scope)) {
            *known = GC_ARCHITECTURE_ABOUT;
            note_type(model, notes, "the class ",
                      " is not of the configuration's model_type: weights are those of the class");
        }
        break;
    }
    return GC_OK;
}

enum gc_status gc_architecture_open(const struct gc_model *model, struct gc_notes *notes,
                                    struct gc_architecture **architecture)
{
    struct gc_architecture_scope scope;
    struct gc_region region;
    *architecture = NULL;
    enum gc_architecture_known known = GC_ARCHITECTURE_EXACT;
    bool has_exact_types = true;
    enum gc_status status = find(model, &scope, notes, &known);
    if (status != GC_OK)
        return status;
    gc_region_init(&region, MEMORY_MAX);
    struct maker *maker = gc_region_alloc(&region, sizeof(*maker));
    if (maker == NULL) {
        gc_region_fini(&region);
        return GC_NO_HOST_MEMORY;
    }
    maker->region = region;
    maker->visitor.take = take_row;
    maker->dtype = dtype_of(model, notes);
    set_storage(maker, model, notes, &has_exact_types);
    maker->architecture.model = *model;
    maker->architecture.is_shaped = true;
    memset(&maker->architecture.model.totals, 0, sizeof(maker->architecture.model.totals));
    status = gc_architecture_visit(&scope, &maker->visitor, notes, &known);
    if (status == GC_OK)
        status = make_tensors(maker);
    maker->architecture.shapes = known;
    maker->architecture.bytes =
        known == GC_ARCHITECTURE_EXACT && !has_exact_types ? GC_ARCHITECTURE_AT_LEAST : known;
    if (status == GC_NOT_SUPPORTED)
        gc_notes_add(notes, "the configuration describes more than a million tensors: its weights ",
                     "are not computed", NULL);
    if (status != GC_OK)
        gc_architecture_close(&maker->architecture);
    else
        *architecture = &maker->architecture;
    return status;
}

void gc_architecture_close(struct gc_architecture *architecture)
{
    if (architecture == NULL)
        return;
    const struct maker *maker =
        (const void *)((const char *)architecture - offsetof(struct maker, architecture));
    struct gc_region region = maker->region; /* it contains the maker itself */
    gc_region_fini(&region);
}

/* ---- against stored tensors ---- */

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
           (number_count(row) != 1 || row->count != comparison->layers ||
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

static bool is_packed(const struct gc_model *model)
{
    return gc_model_find_meta(model, "quantization_config.quant_method") != NULL;
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
        if (stored == described && is_exact)
            return GC_ARCHITECTURE_FILES_SAME;
        note_sums(stored, described, notes);
        if (is_exact && !is_less && !comparison->lacks && stored - left == described)
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
                                    .is_packed = is_packed(model)};
    enum gc_architecture_known known = GC_ARCHITECTURE_EXACT;
    const enum gc_architecture_match match = model->format == GC_MODEL_SAFETENSORS
                                                 ? gc_architecture_find(model, &scope)
                                                 : GC_ARCHITECTURE_NONE;
    if (match == GC_ARCHITECTURE_NONE)
        return GC_ARCHITECTURE_FILES_UNKNOWN;
    if (has_two_types(model, &scope)) {
        note_type(model, notes, "the class ", " is not of the configuration's model_type");
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
