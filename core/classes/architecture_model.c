/* Makes a model's tensors from the rows of its architecture. */
#define _GNU_SOURCE
#include "core/classes/architecture_rows.h"

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
    {"awq, gptq, bitsandbytes, compressed-tensors, auto-round", GC_DTYPE_I4, false},
    {"hqq", GC_DTYPE_NONE, false}, /* its bits have no usual number */
};

static const struct gc_meta_value *find_bits(const struct gc_model *model)
{
    static const char *const keys[] = {
        "quantization_config.bits", "quantization_config.nbits",
        "quantization_config.quant_config.weight_quant_params.nbits"};
    const struct gc_meta_value *bits = NULL;
    for (size_t i = 0; bits == NULL && i < sizeof(keys) / sizeof(keys[0]); i++)
        bits = gc_model_find_meta(model, keys[i]);
    return bits;
}

/* The largest type of integers that is not above these bits; GC_DTYPE_NONE: there is none. */
static enum gc_dtype dtype_of_number(uint64_t bits)
{
    return bits >= 8   ? GC_DTYPE_I8
           : bits >= 4 ? GC_DTYPE_I4
           : bits >= 2 ? GC_DTYPE_I2
                       : GC_DTYPE_NONE;
}

static enum gc_dtype dtype_of_bits(const struct gc_model *model, enum gc_dtype otherwise)
{
    const struct gc_meta_value *bits = find_bits(model);
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
    return bits != NULL && gc_meta_uint(bits, &number) && otherwise != GC_DTYPE_F8_E4M3 &&
                   otherwise != GC_DTYPE_MXFP4
               ? dtype_of_number(number)
               : otherwise;
}

/* Sets maker->packed; the weights are then a lower bound, but for blocks of known form. */
static void set_storage(struct maker *maker, const struct gc_model *model, struct gc_notes *notes,
                        bool *is_exact)
{
    char shown[64];
    const struct gc_meta_value *method = gc_arch_quant_method(model);
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

/* The number of layers that the rows beside this one have. */
static uint64_t layers_beside(const struct maker *maker, const struct gc_architecture_row *row)
{
    const size_t stem = stem_of(row);
    uint64_t most = 0;
    for (uint32_t i = 0; i < maker->row_count; i++) {
        const struct gc_architecture_row *other = &maker->rows[i];
        if (other->count > most && gc_architecture_row_numbers(other) == 1 &&
            stem_of(other) == stem && strcmp(other->prefix, row->prefix) == 0 &&
            memcmp(other->name, row->name, stem) == 0)
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

static enum gc_status find(const struct gc_model *model, struct gc_architecture_scope *scope,
                           struct gc_notes *notes, enum gc_architecture_known *known)
{
    switch (gc_architecture_find(model, scope)) {
    case GC_ARCHITECTURE_NONE:
        gc_architecture_note(
            model, notes, "the architecture ",
            " is not known: its weights cannot be computed from the configuration alone");
        return GC_NOT_SUPPORTED;
    case GC_ARCHITECTURE_TYPE:
        *known = GC_ARCHITECTURE_AT_LEAST;
        gc_architecture_note(
            model, notes, "weights are those that any class of the type has, without the head of ",
            ", which is not known: a lower bound");
        break;
    case GC_ARCHITECTURE_CLASS:
        if (gc_architecture_has_two_types(model, scope)) {
            *known = GC_ARCHITECTURE_ABOUT;
            gc_architecture_note(
                model, notes, "the class ",
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
