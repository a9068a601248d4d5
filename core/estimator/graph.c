/* An ONNX graph by the shapes its file tells: inputs and outputs exactly, what lies between as far
 * as it is told. Without the order in which values are made and dropped their peak is not known:
 * the two largest values, of which one is made from the other, are its lower bound. */
#include "core/estimator/checked.h"
#include "core/estimator/estimator.h"
#include "core/text.h"

#include <string.h>

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

/* A name that exporters give to the number of sequences, or to their length. */
static bool known_dim(const struct gc_estimate_request *request, const char *name, uint64_t *value)
{
    static const char batch[] = "batch, batch_size, N, n";
    static const char tokens[] =
        "sequence, seq, seq_len, sequence_length, seq_length, sequence_len";
    if (gc_text_find_word(batch, name, strlen(name)) >= 0) {
        *value = request->batch;
        return true;
    }
    *value = request->seq_len;
    return request->seq_len > 0 && gc_text_find_word(tokens, name, strlen(name)) >= 0;
}

static bool dim_value(const struct gc_estimate_request *request, const struct gc_model_port *port,
                      uint32_t index, uint64_t *value)
{
    const char *name = port->symbols != NULL ? port->symbols[index] : NULL;
    *value = port->dims[index];
    if (*value != GC_MODEL_UNKNOWN_DIM)
        return true;
    return name != NULL &&
           (find_dim(request->dims, name, value) || known_dim(request, name, value));
}

/* False if the shape or type is not known, or is of no fixed size; sum->overflowed if it is too
 * large. */
static bool port_bytes(struct gc_sum *sum, const struct gc_estimate_request *request,
                       const struct gc_model_port *port, uint64_t *bytes)
{
    uint64_t elements = 1;
    if (!port->has_shape || gc_dtype_info(port->dtype)->block_bytes == 0)
        return false;
    for (uint32_t i = 0; i < port->dim_count; i++) {
        uint64_t value;
        if (!dim_value(request, port, i, &value))
            return false;
        elements = gc_sum_mul(sum, elements, value);
    }
    *bytes = gc_sum_typed(sum, port->dtype, elements);
    return true;
}

struct graph_sizes {
    uint64_t input_bytes;
    uint64_t output_bytes;
    uint64_t largest_bytes; /* of inner values */
    uint64_t second_bytes;
    const struct gc_model_port *open; /* the first input that is not known */
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

static void add_port(struct gc_sum *sum, const struct gc_estimate_request *request,
                     const struct gc_model_port *port, struct graph_sizes *sizes)
{
    uint64_t bytes;
    if (!port_bytes(sum, request, port, &bytes)) {
        if (port->kind == GC_MODEL_INPUT && sizes->open == NULL)
            sizes->open = port;
        return;
    }
    if (port->kind == GC_MODEL_INPUT)
        sizes->input_bytes = gc_sum_add(sum, sizes->input_bytes, bytes);
    else if (port->kind == GC_MODEL_OUTPUT)
        sizes->output_bytes = gc_sum_add(sum, sizes->output_bytes, bytes);
    else
        add_inner(sizes, bytes);
}

/* "input x [batch, 3, ?]: a dimension is open". */
static void note_open(struct gc_notes *notes, const struct gc_model_port *port)
{
    char shown[48];
    char dim[32] = "";
    for (uint32_t i = 0; port->has_shape && i < port->dim_count; i++) {
        if (port->dims[i] != GC_MODEL_UNKNOWN_DIM || port->symbols == NULL ||
            port->symbols[i] == NULL)
            continue;
        gc_text_show(port->symbols[i], strlen(port->symbols[i]), dim, sizeof(dim));
        break;
    }
    gc_text_show(port->name, strlen(port->name), shown, sizeof(shown));
    if (dim[0] != '\0')
        gc_notes_add(notes, "input ", shown, ": its size is open (", dim,
                     "); --dim NAME=N names it", NULL);
    else
        gc_notes_add(notes, "input ", shown, ": its shape is open, and no name is given to it",
                     NULL);
}

static bool has_dim(const struct gc_model *graph, const char *name, size_t length)
{
    for (uint32_t i = 0; i < graph->port_count; i++) {
        const struct gc_model_port *port = &graph->ports[i];
        for (uint32_t j = 0; port->symbols != NULL && j < port->dim_count; j++) {
            const char *symbol = port->symbols[j];
            if (symbol != NULL && strlen(symbol) == length && memcmp(symbol, name, length) == 0)
                return true;
        }
    }
    return false;
}

/* A name that is misspelt would be taken for one that is given. */
void gc_estimate_note_dims(const struct gc_estimator *estimator, const char *dims,
                           struct gc_notes *notes)
{
    while (dims != NULL && *dims != '\0') {
        const size_t length = strcspn(dims, "=");
        char shown[48];
        if (estimator->graph == NULL || !has_dim(estimator->graph, dims, length))
            gc_notes_add(notes, "no dimension is named ",
                         gc_text_show(dims, length, shown, sizeof(shown)),
                         ": its value is not used", NULL);
        dims += strcspn(dims, ",");
        dims += *dims == ',';
    }
}

enum gc_status gc_estimate_graph(const struct gc_estimator *estimator,
                                 const struct gc_estimate_request *request,
                                 struct gc_estimate *estimate)
{
    const struct gc_model *graph = estimator->graph;
    struct gc_estimate_sizes *sizes = &estimate->devices[0];
    struct graph_sizes found = {0};
    struct gc_sum sum = {false};
    for (uint32_t i = 0; i < graph->port_count; i++)
        add_port(&sum, request, &graph->ports[i], &found);
    estimate->overflowed = GC_ESTIMATE_input;
    if (sum.overflowed)
        return GC_OVERFLOW;
    if (found.open != NULL) {
        estimate->unknown_parts |= 1U << GC_ESTIMATE_input;
        note_open(&estimate->notes, found.open);
    }
    estimate->unknown_parts |= 1U << GC_ESTIMATE_activation;
    gc_notes_add(&estimate->notes,
                 "activations of a graph are a lower bound: its outputs and two largest values",
                 NULL);
    sizes->parts[GC_ESTIMATE_input] = found.input_bytes;
    const uint64_t inner = gc_sum_add(&sum, found.largest_bytes, found.second_bytes);
    sizes->parts[GC_ESTIMATE_activation] = gc_sum_add(&sum, found.output_bytes, inner);
    estimate->overflowed = GC_ESTIMATE_activation;
    return gc_sum_status(&sum);
}
