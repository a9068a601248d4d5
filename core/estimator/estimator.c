/* An estimator: a model's weights, layers and places, from its files or its configuration alone. */
#include "core/estimator/estimator.h"

#include "core/arch/arch.h"
#include "core/base/bits.h"
#include "core/base/host_mem.h"
#include "core/classes/architecture.h"
#include "core/io/text.h"
#include "core/model/checked.h"

#include <string.h>

static struct gc_estimator *map_estimator(void)
{
    struct gc_host_mem host = {0};
    struct gc_estimator *estimator = gc_host_mem_map(&host, sizeof(*estimator));
    if (estimator != NULL)
        estimator->weight_dtype = estimator->main_dtype = GC_DTYPE_NONE;
    return estimator;
}

void gc_estimator_close(struct gc_estimator *estimator)
{
    struct gc_host_mem host = {0};
    if (estimator == NULL)
        return;
    gc_graph_close(estimator->network);
    gc_host_mem_unmap(&host, estimator, sizeof(*estimator));
}

static void note_layers(struct gc_estimator *estimator)
{
    const uint32_t named = estimator->weights.layer_count;
    char given[GC_NOTE_NUMBER_BYTES];
    char found[GC_NOTE_NUMBER_BYTES];
    if (!estimator->has_layers || named == 0 || named >= estimator->layers.count ||
        estimator->files == GC_ARCHITECTURE_FILES_SAME)
        return;
    estimator->files = GC_ARCHITECTURE_FILES_OTHER;
    gc_notes_add(&estimator->notes, "the configuration has ",
                 gc_note_number(estimator->layers.count, given), " layers, the tensors have ",
                 gc_note_number(named, found), NULL);
}

/* The ONNX file itself: in a folder the one model file, not its external data. */
static const char *network_path(const struct gc_model *model)
{
    static const char ending[] = ".onnx";
    const size_t most = sizeof(ending) - 1;
    for (uint32_t i = 0; i < model->file_count; i++) {
        const char *path = model->files[i].path;
        const size_t length = strlen(path);
        if (length > most && gc_text_equal_nocase(path + length - most, ending, most))
            return path;
    }
    return model->path;
}

/* A graph that cannot be read is a note: weights and inputs are still known. */
static void open_network(struct gc_estimator *estimator)
{
    struct gc_model_error error;
    if (estimator->graph != NULL &&
        gc_graph_open(network_path(estimator->graph), NULL, &estimator->network, &error) != GC_OK)
        gc_notes_add(&estimator->notes, "the graph cannot be read: ", error.text, NULL);
}

/* ---- weights without files ---- */

/* Sets the weights' bytes to those that an index states: its files hold whatever the configuration
 * does not tell, other types for one. Shares stay in proportion. */
static void take_indexed(struct gc_weights *weights, uint64_t bytes)
{
    const uint64_t before = gc_max_u64(weights->bytes, 1);
    uint64_t sum = 0;
    weights->expert_bytes = 0;
    struct gc_weight_share *const apart[] = {&weights->embedding, &weights->first, &weights->last};
    const uint32_t apart_count = sizeof(apart) / sizeof(apart[0]);
    for (uint32_t i = 0; i < weights->layer_count + apart_count; i++) {
        struct gc_weight_share *share =
            i < apart_count ? apart[i] : &weights->layers[i - apart_count];
        share->dense_bytes = gc_scale_u64(share->dense_bytes, bytes, before);
        share->replicated_bytes = gc_scale_u64(share->replicated_bytes, bytes, before);
        share->expert_bytes = gc_scale_u64(share->expert_bytes, bytes, before);
        sum += share->dense_bytes + share->replicated_bytes + share->expert_bytes;
        weights->expert_bytes += share->expert_bytes;
    }
    weights->first.dense_bytes += gc_sub_or_zero_u64(bytes, sum); /* rounding, or all */
    weights->bytes = bytes;
}

/* Whether the bytes are those of the same parameters in another type. */
static bool is_retyped(const struct gc_training_sums *parameters, uint64_t bytes)
{
    return parameters->elements > 0 && bytes % parameters->elements == 0 &&
           (bytes / parameters->elements == 2 || bytes / parameters->elements == 4);
}

#define FREQUENCIES_BYTES_MAX GC_KIB(2) /* of one tensor; a head of keys in all layers has more */

/* Whether the index's bytes are not the configuration's, with rotary frequencies at most, which
 * programs compute, and layers that predict further tokens. */
static bool contradicts(const struct gc_model *model, const struct gc_architecture *architecture)
{
    const uint64_t described = architecture->model.totals.weight_bytes;
    const uint64_t bytes = model->indexed_bytes;
    if (architecture->bytes == GC_ARCHITECTURE_AT_LEAST)
        return described > bytes;
    return architecture->bytes == GC_ARCHITECTURE_EXACT &&
           (described > bytes ||
            bytes - described > model->indexed_frequencies * FREQUENCIES_BYTES_MAX +
                                    gc_architecture_prediction_bytes(model, described));
}

/* Holds an index without its files against the configuration's tensors. */
static void hold_against_index(struct gc_estimator *estimator, const struct gc_model *model,
                               const struct gc_architecture *architecture)
{
    char stated[GC_NOTE_NUMBER_BYTES];
    char computed[GC_NOTE_NUMBER_BYTES];
    const uint64_t bytes = model->indexed_bytes;
    const bool is_taken = estimator->weight_dtype == GC_DTYPE_NONE;
    if (bytes == 0)
        return;
    if (architecture == NULL)
        estimator->weights.tensors = model->indexed_tensors;
    else if (architecture->model.totals.weight_bytes == bytes)
        return;
    else
        gc_notes_add(&estimator->notes, "the index states ", gc_note_number(bytes, stated),
                     " bytes of weights, the configuration describes ",
                     gc_note_number(architecture->model.totals.weight_bytes, computed),
                     is_taken ? ": the index is taken"
                              : ": the configuration is taken, in the type that was asked for",
                     NULL);
    if (!is_taken)
        return; /* the number of elements is not stated */
    const bool is_other_type = architecture != NULL && is_retyped(&estimator->parameters, bytes);
    if (architecture != NULL && !is_other_type && contradicts(model, architecture))
        estimator->files = GC_ARCHITECTURE_FILES_OTHER;
    estimator->has_no_weights = false;
    estimator->weights_known = is_other_type ? GC_ARCHITECTURE_ABOUT : GC_ARCHITECTURE_EXACT;
    take_indexed(&estimator->weights, bytes);
    estimator->is_indexed_apart = architecture != NULL && !is_other_type;
    if (estimator->is_indexed_apart)
        gc_training_sums_scale(&estimator->parameters,
                               gc_sub_or_zero_u64(bytes, estimator->buffer_bytes));
}

/* The tensors that the configuration describes, where the files have none. */
static enum gc_status open_architecture(struct gc_estimator *estimator,
                                        const struct gc_model *model,
                                        struct gc_architecture **architecture)
{
    *architecture = NULL;
    if (!model->has_config || model->tensor_count > 0 || estimator->is_gguf ||
        estimator->graph != NULL)
        return GC_OK;
    const enum gc_status status = gc_architecture_open(model, &estimator->notes, architecture);
    if (status == GC_OK) {
        estimator->weights_known = (*architecture)->bytes;
        estimator->is_unshaped = !(*architecture)->is_shaped;
        gc_notes_add(&estimator->notes, "weights are computed from the configuration", NULL);
    }
    return status == GC_NOT_SUPPORTED ? GC_OK : status;
}

/* By the tensors, or by the configuration, whose tensors may be floats of 8 bits. A type that the
 * user names takes the place of floats, not of matrices in integers. */
static bool is_stored_quantised(const struct gc_estimator *estimator, const struct gc_model *model)
{
    const bool is_taken = estimator->weight_dtype != GC_DTYPE_NONE && !estimator->weights.is_packed;
    return estimator->weights.is_quantised || (!is_taken && gc_arch_quant_method(model) != NULL);
}

/* `architecture`: what the tensors are computed from; NULL: they are the model's own. */
static enum gc_status count_weights(struct gc_estimator *estimator, const struct gc_model *model,
                                    const struct gc_architecture *architecture)
{
    const struct gc_model *counted = architecture != NULL ? &architecture->model : model;
    estimator->has_no_weights = counted->tensor_count == 0;
    estimator->main_dtype = gc_weights_main_dtype(counted);
    const enum gc_status status =
        gc_weights_count(counted, estimator->weight_dtype, &estimator->weights);
    if (status != GC_OK)
        return status;
    gc_lora_read(counted, &estimator->lora);
    if (gc_training_sums_count(counted, estimator->weight_dtype, &estimator->parameters,
                               &estimator->buffer_bytes) != GC_OK)
        return GC_OVERFLOW;
    if (architecture != NULL)
        estimator->files = GC_ARCHITECTURE_FILES_SAME; /* computed from it */
    hold_against_index(estimator, model, architecture);
    estimator->is_stored_quantised = is_stored_quantised(estimator, model);
    if (model->tensor_count > 0 && estimator->has_layers)
        estimator->files = gc_architecture_compare(model, &estimator->notes);
    return GC_OK;
}

/* A layer that alone needs more for a token than all places of the class is wider than any that was
 * measured: its own place was never the peak, and is not among them. Places that do not grow with
 * the tokens are of images. */
static void hold_frames(struct gc_estimator *estimator)
{
    struct gc_frame_load load = {.batch = 1, .tokens = 4096, .element_bytes = 2, .shards = 1};
    uint64_t few, many;
    if (gc_frames_bytes(&estimator->frames, &load, &few) != GC_OK)
        return;
    load.tokens *= 2;
    if (gc_frames_bytes(&estimator->frames, &load, &many) != GC_OK || many <= few)
        return;
    if (many / (load.tokens * load.element_bytes) < gc_formula_least_elements(&estimator->layers))
        estimator->frames.is_exact = false;
}

static void read_layers(struct gc_estimator *estimator, const struct gc_model *model,
                        const struct gc_architecture *architecture)
{
    struct gc_shapes *shapes = &estimator->shapes;
    struct gc_arch *arch = &estimator->arch;
    const bool is_computed = architecture != NULL && architecture->shapes == GC_ARCHITECTURE_EXACT;
    gc_arch_read(model, arch, &estimator->notes);
    /* Tensors that are computed have the default width where none is given. */
    gc_shapes_read(is_computed ? &architecture->model : model,
                   is_computed ? gc_arch_number(arch, GC_ARCH_HIDDEN, 0)
                               : gc_arch_given(arch, GC_ARCH_HIDDEN),
                   shapes);
    gc_shapes_complete(shapes, arch);
    gc_arch_note_defaults(arch, &estimator->notes);
    if (!estimator->is_gguf) {
        gc_frames_read(model, &estimator->frames);
        gc_training_rows_read(model, &estimator->training_rows);
    }
    gc_layers_make(arch, &estimator->layers, &estimator->notes);
    gc_shapes_apply(shapes, arch, &estimator->layers, &estimator->notes);
    note_layers(estimator);
    hold_frames(estimator);
}

enum gc_status gc_estimator_open(const struct gc_model *model, enum gc_dtype dtype,
                                 struct gc_estimator **estimator)
{
    struct gc_estimator *made = map_estimator();
    struct gc_architecture *architecture = NULL;
    *estimator = NULL;
    if (made == NULL)
        return GC_NO_HOST_MEMORY;
    for (uint32_t i = 0; i < model->warning_count; i++)
        gc_notes_add(&made->notes, model->warnings[i], NULL);
    made->graph = model->format == GC_MODEL_ONNX ? model : NULL;
    made->is_gguf = model->format == GC_MODEL_GGUF;
    made->has_layers = model->has_config && made->graph == NULL;
    made->weight_dtype = dtype;
    enum gc_status status = open_architecture(made, model, &architecture);
    if (status == GC_OK)
        status = count_weights(made, model, architecture);
    if (status == GC_OK) {
        gc_arch_note_adapters(model, &made->notes);
        open_network(made);
        if (made->has_layers)
            read_layers(made, model, architecture);
        *estimator = made;
    } else {
        gc_estimator_close(made);
    }
    gc_architecture_close(architecture);
    return status;
}

bool gc_estimator_is_quantised(const struct gc_estimator *estimator)
{
    return estimator->weights.is_quantised;
}

bool gc_estimator_has_kinds(const struct gc_estimator *estimator)
{
    return estimator->has_layers && estimator->weights.layer_count > 0 &&
           !estimator->weights.is_packed;
}
