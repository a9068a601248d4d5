/* An ONNX graph: inputs by their declared shapes; outputs, intermediate values and weights computed
 * from constants by the plan of its memory. If the graph cannot be planned, the outputs and the two
 * largest declared values are a lower bound. */
#include "core/estimator/estimator.h"
#include "core/io/text.h"
#include "core/model/checked.h"
#include "core/model/graph_plan.h"

#include <string.h>

#define DIMS_BYTES 2048
#define GRAPH_WORK_PARTS (1U << GC_ESTIMATE_activation | 1U << GC_ESTIMATE_input)

/* The value of a named dimension in "name=N,…"; false if it is not there. */
static bool find_dim(const char *dims, const char *name, uint64_t *value)
{
    const size_t length = strlen(name);
    while (dims != NULL && *dims != '\0') {
        const char *equals = strchr(dims, '=');
        const size_t here = strcspn(dims, ",");
        if (equals != NULL && (size_t)(equals - dims) == length && memcmp(dims, name, length) == 0)
            return gc_text_uint(equals + 1, here - length - 1, value);
        dims += here;
        dims += *dims == ',';
    }
    return false;
}

static bool known_dim(const struct gc_estimate_request *request, const char *name, uint64_t *value)
{
    const enum gc_dim_meaning meaning = gc_graph_dim_meaning(name);
    *value = meaning == GC_DIM_MEANS_BATCH ? request->batch : request->seq_len;
    return meaning != GC_DIM_MEANS_NOTHING && *value > 0;
}

/* "INPUT.AXIS=N", as gc_graph_infer takes it. */
static bool is_axis_of(const struct gc_model_value *declared, const char *name, size_t length,
                       uint64_t *axis)
{
    const size_t own = strlen(declared->name);
    return declared->kind == GC_MODEL_INPUT && length > own && name[own] == '.' &&
           memcmp(name, declared->name, own) == 0 &&
           gc_text_uint(name + own + 1, length - own - 1, axis) && *axis < declared->dim_count &&
           declared->dims[*axis] == GC_MODEL_UNKNOWN_DIM;
}

static bool find_axis(const char *dims, const struct gc_model_value *declared, uint32_t index,
                      uint64_t *value)
{
    for (uint64_t axis; dims != NULL && *dims != '\0'; dims += *dims == ',') {
        const size_t here = strcspn(dims, ",");
        const size_t length = strcspn(dims, "=,");
        if (length < here && is_axis_of(declared, dims, length, &axis) && axis == index)
            return gc_text_uint(dims + length + 1, here - length - 1, value);
        dims += here;
    }
    return false;
}

static bool dim_value(const struct gc_estimate_request *request,
                      const struct gc_model_value *declared, uint32_t index, uint64_t *value)
{
    const char *name = declared->symbols != NULL ? declared->symbols[index] : NULL;
    *value = declared->dims[index];
    if (*value != GC_MODEL_UNKNOWN_DIM || find_axis(request->dims, declared, index, value))
        return true;
    return name != NULL &&
           (find_dim(request->dims, name, value) || known_dim(request, name, value));
}

/* False if the shape or type is unknown or has no fixed size; sets sum->overflowed if the size
 * is too large. */
static bool declared_bytes(struct gc_sum *sum, const struct gc_estimate_request *request,
                           const struct gc_model_value *declared, uint64_t *bytes)
{
    uint64_t elements = 1;
    if (!declared->has_shape || gc_dtype_get_info(declared->dtype)->block_bytes == 0)
        return false;
    for (uint32_t i = 0; i < declared->dim_count; i++) {
        uint64_t value;
        if (!dim_value(request, declared, i, &value))
            return false;
        elements = gc_sum_mul(sum, elements, value);
    }
    *bytes = gc_sum_typed(sum, declared->dtype, elements);
    return true;
}

struct graph_sizes {
    uint64_t input_bytes;
    uint64_t output_bytes;
    uint64_t largest_bytes; /* of inner values */
    uint64_t second_bytes;
    const struct gc_model_value *open; /* the first input of unknown size */
};

static void add_inner(struct graph_sizes *sizes, uint64_t bytes)
{
    if (bytes > sizes->largest_bytes) {
        sizes->second_bytes = sizes->largest_bytes;
        sizes->largest_bytes = bytes;
    } else if (bytes > sizes->second_bytes) {
        sizes->second_bytes = bytes;
    }
}

static void add_declared(struct gc_sum *sum, const struct gc_estimate_request *request,
                         const struct gc_model_value *declared, struct graph_sizes *sizes)
{
    uint64_t bytes;
    if (!declared_bytes(sum, request, declared, &bytes)) {
        if (declared->kind == GC_MODEL_INPUT && sizes->open == NULL)
            sizes->open = declared;
        return;
    }
    if (declared->kind == GC_MODEL_INPUT)
        sizes->input_bytes = gc_sum_add(sum, sizes->input_bytes, bytes);
    else if (declared->kind == GC_MODEL_OUTPUT)
        sizes->output_bytes = gc_sum_add(sum, sizes->output_bytes, bytes);
    else
        add_inner(sizes, bytes);
}

static void note_open(const struct gc_estimate_request *request,
                      const struct gc_model_value *declared, struct gc_notes *notes)
{
    char shown[48];
    char dim[48];
    uint64_t value;
    uint32_t i = 0;
    gc_text_printable(declared->name, strlen(declared->name), shown, sizeof(shown));
    while (i < declared->dim_count && dim_value(request, declared, i, &value))
        i++;
    const char *name =
        i < declared->dim_count && declared->symbols != NULL ? declared->symbols[i] : NULL;
    if (name != NULL)
        gc_notes_add(notes, "input ", shown, ": its size is open; --dim ",
                     gc_text_printable(name, strlen(name), dim, sizeof(dim)), "=N names it", NULL);
    else
        gc_notes_add(notes, "input ", shown, ": its shape or type is unknown", NULL);
}

static bool has_dim(const struct gc_model *graph, const char *name, size_t length)
{
    for (uint32_t i = 0; i < graph->value_count; i++) {
        const struct gc_model_value *declared = &graph->values[i];
        /* "INPUT=N" sets an input that is a number. */
        if (declared->kind == GC_MODEL_INPUT && strlen(declared->name) == length &&
            memcmp(declared->name, name, length) == 0)
            return true;
        uint64_t axis;
        if (is_axis_of(declared, name, length, &axis))
            return true;
        for (uint32_t j = 0; declared->symbols != NULL && j < declared->dim_count; j++) {
            const char *symbol = declared->symbols[j];
            if (symbol != NULL && strlen(symbol) == length && memcmp(symbol, name, length) == 0)
                return true;
        }
    }
    return false;
}

/* Without a note a misspelt name would go unnoticed. */
void gc_estimator_note_dims(const struct gc_estimator *estimator, const char *dims,
                            struct gc_notes *notes)
{
    while (dims != NULL && *dims != '\0') {
        const size_t length = strcspn(dims, "=");
        char shown[48];
        if (estimator->graph == NULL || !has_dim(estimator->graph, dims, length))
            gc_notes_add(notes, "no dimension is named ",
                         gc_text_printable(dims, length, shown, sizeof(shown)),
                         ": its value is not used", NULL);
        dims += strcspn(dims, ",");
        dims += *dims == ',';
    }
}

/* True if a dimension of an input has a name of this meaning, and so follows the request. */
static bool has_meaning(const struct gc_model *graph, enum gc_dim_meaning meaning, const char *dims)
{
    uint64_t value;
    for (uint32_t i = 0; i < graph->value_count; i++) {
        const struct gc_model_value *declared = &graph->values[i];
        for (uint32_t j = 0; declared->symbols != NULL && j < declared->dim_count; j++) {
            const char *symbol = declared->symbols[j];
            if (declared->kind == GC_MODEL_INPUT && symbol != NULL &&
                gc_graph_dim_meaning(symbol) == meaning && !find_dim(dims, symbol, &value) &&
                !find_axis(dims, declared, j, &value))
                return true;
        }
    }
    return false;
}

/* Notes for a requested batch or context that the graph does not use. */
static void note_sequences(const struct gc_model *graph, const struct gc_estimate_request *request,
                           struct gc_estimate *estimate)
{
    const bool batch_used =
        request->batch == 1 || has_meaning(graph, GC_DIM_MEANS_BATCH, request->dims);
    const bool tokens_used =
        request->seq_len == 0 || has_meaning(graph, GC_DIM_MEANS_TOKENS, request->dims);
    if (!batch_used)
        gc_notes_add(&estimate->notes,
                     "the batch is not used: no open dimension of an input is named so; --dim "
                     "gives sizes to those that are open",
                     NULL);
    if (!tokens_used)
        gc_notes_add(&estimate->notes,
                     "the context is not used: no open dimension of an input is named so", NULL);
    if (!batch_used || !tokens_used)
        estimate->unknown_parts |= GRAPH_WORK_PARTS;
}

/* Notes for request values that the graph itself decides. */
static void note_request(const struct gc_estimator *estimator,
                         const struct gc_estimate_request *request, struct gc_estimate *estimate)
{
    struct gc_notes *notes = &estimate->notes;
    note_sequences(estimator->graph, request, estimate);
    if (estimator->weight_dtype != GC_DTYPE_NONE)
        gc_notes_add(
            notes,
            "the requested type applies to the file's weights only: the graph has the types it computes in",
            NULL);
    if (request->kv_dtype != GC_DTYPE_NONE || request->chunk_tokens > 0 ||
        request->scores_materialised)
        gc_notes_add(
            notes,
            "a graph defines its own attention and cache: KV type, chunk and attention are not used",
            NULL);
    if (request->engine != GC_ENGINE_BY_FILES || request->device_layers != GC_ESTIMATE_ALL_LAYERS)
        gc_notes_add(
            notes, "a graph has no layers: the engine and layers on the device are not used", NULL);
    if (request->device_count > 1) {
        estimate->unknown_parts |= GRAPH_WORK_PARTS;
        gc_notes_add(notes,
                     "the split of a graph over devices is unknown: all but the file's weights is "
                     "counted on the first",
                     NULL);
    }
}

/* ---- the plan ---- */

static void note_unknown(struct gc_notes *notes, const struct gc_graph *network,
                         const struct gc_graph_need *need)
{
    char count[GC_NOTE_NUMBER_BYTES];
    char name[48];
    char op[32] = "an input";
    const struct gc_graph_value *value = &network->values[need->unknown_value];
    if (value->producer != GC_GRAPH_NONE) {
        const char *maker = network->nodes[value->producer].op;
        gc_text_printable(maker, strlen(maker), op, sizeof(op));
    }
    gc_notes_add(notes,
                 "activations are a lower bound: ", gc_note_number(need->unknown_count, count),
                 " tensors of the graph have no known size, the first is ",
                 gc_text_printable(value->name, strlen(value->name), name, sizeof(name)), " (", op,
                 ")", NULL);
}

/* Adds the first note on the graph. A node whose shapes contradict its operator cannot run. */
static void note_odd(const struct gc_graph *network, struct gc_estimate *estimate)
{
    char count[GC_NOTE_NUMBER_BYTES];
    if (network->coverage.failed_nodes > 0)
        estimate->unknown_parts |= 1U << GC_ESTIMATE_activation;
    if (network->note_count == 1)
        gc_notes_add(&estimate->notes, "the graph: ", network->notes[0], NULL);
    else if (network->note_count > 1)
        gc_notes_add(&estimate->notes, "the graph, first of ",
                     gc_note_number(network->note_count, count),
                     " remarks that gpucache plan has on it: ", network->notes[0], NULL);
}

static void note_made(struct gc_notes *notes, const struct gc_graph_need *need)
{
    char count[GC_NOTE_NUMBER_BYTES];
    if (need->made_count > 0)
        gc_notes_add(notes, gc_note_number(need->made_count, count),
                     " weights are not in the file: the graph makes them out of constants", NULL);
}

/* False, with a note, if the graph cannot be planned. */
static bool plan_graph(const struct gc_estimator *estimator,
                       const struct gc_estimate_request *request, struct gc_estimate *estimate,
                       struct gc_graph_need *need)
{
    char dims[DIMS_BYTES];
    struct gc_model_error error;
    struct gc_graph *network = estimator->network;
    if (network == NULL)
        return false;
    enum gc_status status = GC_OUT_OF_RANGE;
    if (gc_graph_name_dims(network, request->dims, request->batch, request->seq_len, dims,
                           sizeof(dims)))
        status = gc_graph_infer(network, dims, &error);
    if (status == GC_OK)
        status = gc_graph_need_find(network, need);
    if (status != GC_OK)
        gc_notes_add(&estimate->notes,
                     "the graph's memory is not planned: ", gc_status_text(status), NULL);
    return status == GC_OK;
}

static void add_plan(struct gc_sum *sum, const struct gc_estimator *estimator,
                     const struct gc_graph_need *need, struct gc_estimate *estimate)
{
    struct gc_estimate_sizes *sizes = &estimate->devices[0];
    sizes->parts[GC_ESTIMATE_activation] = need->activation_bytes;
    sizes->parts[GC_ESTIMATE_weight] =
        gc_sum_add(sum, sizes->parts[GC_ESTIMATE_weight], need->made_bytes);
    estimate->parameters = gc_sum_add(sum, estimate->parameters, need->made_elements);
    estimate->tensor_count += need->made_count;
    note_made(&estimate->notes, need);
    note_odd(estimator->network, estimate);
    if (!need->is_planned)
        gc_notes_add(
            &estimate->notes,
            "activations are the most bytes live at one time: too many buffers to plan their offsets here (gpucache plan does)",
            NULL);
    if (need->unknown_count == 0)
        return;
    estimate->unknown_parts |= 1U << GC_ESTIMATE_activation;
    note_unknown(&estimate->notes, estimator->network, need);
}

/* Outputs and the two largest values, of which one is made from the other. */
static void add_told(struct gc_sum *sum, const struct graph_sizes *found,
                     struct gc_estimate *estimate)
{
    const uint64_t inner = gc_sum_add(sum, found->largest_bytes, found->second_bytes);
    estimate->devices[0].parts[GC_ESTIMATE_activation] =
        gc_sum_add(sum, found->output_bytes, inner);
    estimate->unknown_parts |= 1U << GC_ESTIMATE_activation;
    gc_notes_add(&estimate->notes,
                 "activations of a graph are a lower bound: its outputs and two largest values",
                 NULL);
}

enum gc_status gc_estimator_graph(const struct gc_estimator *estimator,
                                  const struct gc_estimate_request *request,
                                  struct gc_estimate *estimate)
{
    const struct gc_model *graph = estimator->graph;
    struct graph_sizes found = {0};
    struct gc_graph_need need;
    struct gc_sum sum = {false};
    for (uint32_t i = 0; i < graph->value_count; i++)
        add_declared(&sum, request, &graph->values[i], &found);
    estimate->overflowed = GC_ESTIMATE_input;
    if (sum.overflowed)
        return GC_OVERFLOW;
    if (found.open != NULL) {
        estimate->unknown_parts |= 1U << GC_ESTIMATE_input;
        note_open(request, found.open, &estimate->notes);
    }
    estimate->devices[0].parts[GC_ESTIMATE_input] = found.input_bytes;
    note_request(estimator, request, estimate);
    if (plan_graph(estimator, request, estimate, &need))
        add_plan(&sum, estimator, &need, estimate);
    else
        add_told(&sum, &found, estimate);
    estimate->overflowed = GC_ESTIMATE_activation;
    return gc_sum_status(&sum);
}
