/* An ONNX graph as a subject of gpucache plan: the buffers are its tensors with their lifetimes. */
#include "core/io/text.h"
#include "core/model/graph_plan.h"
#include "core/planner/lifetimes.h"
#include "tools/plan/plan_schedule.h"

#include <string.h>

#define NOTES_OF_GRAPH_MAX 12
#define DIMS_BYTES (GC_OPTION_LIST_BYTES * 2)

struct plan_graph {
    struct gc_graph *opened;
    const struct gc_graph *graph; /* the opened one, or that of the schedule */
    bool is_scheduled;
    struct plan_schedule schedule;
    struct gc_lifetimes lifetimes;
    struct gc_lifetimes_rules rules;
};

/* Accepts by file name, or by the first field of models: the version of the format, a number
 * below 32. */
static bool accepts(const struct tool_file *file)
{
    static const char ending[] = ".onnx";
    const size_t length = strlen(file->path);
    const size_t most = sizeof(ending) - 1;
    const unsigned char *bytes = file->data;
    return (length > most && gc_text_equal_nocase(file->path + length - most, ending, most)) ||
           (file->bytes > 2 && bytes[0] == 0x08 && bytes[1] > 0 && bytes[1] < 32);
}

/* ---- dimensions ---- */

/* True if `name` is an input's name, or an input's name and axis: "INPUT.0". */
static bool names_input(const struct gc_graph *graph, const char *name, size_t length)
{
    const struct gc_graph_scope *main = &graph->scopes[0];
    for (uint32_t i = 0; i < main->input_count; i++) {
        const struct gc_graph_value *value = &graph->values[main->inputs[i]];
        const size_t own = strlen(value->name);
        uint64_t axis;
        if (value->is_initializer || own > length || memcmp(value->name, name, own) != 0)
            continue;
        if (own == length ||
            (name[own] == '.' && gc_text_uint(name + own + 1, length - own - 1, &axis) &&
             axis < value->declared.shape.rank))
            return true;
    }
    return false;
}

static bool names_dimension(const struct gc_graph *graph, const char *name, size_t length)
{
    for (uint32_t i = 0; i < graph->symbol_count; i++) {
        const char *own = graph->symbols[i].name;
        if (own != NULL && strlen(own) == length && memcmp(own, name, length) == 0)
            return true;
    }
    return false;
}

/* Refuses names of no dimension: a misspelt name would go unnoticed. */
static int check_dims(const struct plan_request *request, const struct gc_graph *graph)
{
    for (const char *dims = request->dims; *dims != '\0';) {
        const size_t length = strcspn(dims, "=");
        if (!names_dimension(graph, dims, length) && !names_input(graph, dims, length)) {
            char shown[64];
            return tool_usage(request->command, "--dim %s: %s has no open dimension of this name",
                              gc_text_printable(dims, length, shown, sizeof(shown)), request->path);
        }
        dims += strcspn(dims, ",");
        dims += *dims == ',';
    }
    return TOOL_DONE;
}

/* ---- unknown sizes ---- */

static const char *show_value(const struct gc_graph *graph, uint32_t value, char shown[64])
{
    const char *name = graph->values[value].name;
    return gc_text_printable(name, strlen(name), shown, 64);
}

static const char *show_maker(const struct gc_graph *graph, uint32_t value, char shown[48])
{
    const uint32_t node = graph->values[value].producer;
    const char *op = node != GC_GRAPH_NONE ? graph->nodes[node].op : "an input";
    return gc_text_printable(op, strlen(op), shown, 48);
}

/* The first named open dimension of the inputs: its size may be all that is missing. */
static const char *open_name(const struct gc_graph *graph)
{
    const struct gc_graph_scope *main = &graph->scopes[0];
    for (uint32_t i = 0; i < main->input_count; i++) {
        const struct gc_shape *shape = &graph->values[main->inputs[i]].type.shape;
        for (uint32_t j = 0; j < shape->rank; j++) {
            const struct gc_dim *dim = &shape->dims[j];
            if (dim->kind == GC_DIM_SYMBOL && graph->symbols[dim->symbol].name != NULL &&
                !graph->symbols[dim->symbol].is_bound)
                return graph->symbols[dim->symbol].name;
        }
    }
    return NULL;
}

static int fail_unknown(const struct plan_request *request, const struct plan_graph *own)
{
    char value[64];
    char maker[48];
    char dim[48] = "NAME";
    const char *open = open_name(own->graph);
    const uint32_t first = own->lifetimes.unknown_value;
    if (open != NULL)
        gc_text_printable(open, strlen(open), dim, sizeof(dim));
    return tool_fail(request->command,
                     "%s: %u of %u tensors have no known size, the first is %s (%s); accepted with "
                     "--strict: all known%s%s%s",
                     request->path, (unsigned)own->lifetimes.unknown_count,
                     (unsigned)own->lifetimes.tensor_count, show_value(own->graph, first, value),
                     show_maker(own->graph, first, maker), open != NULL ? ", see --dim " : "",
                     open != NULL ? dim : "", open != NULL ? "=N" : "");
}

static void add_unknown_note(struct plan_subject *subject, const struct plan_graph *own)
{
    char value[64];
    char maker[48];
    char dim[48];
    char count[GC_NOTE_NUMBER_BYTES];
    const char *open = open_name(own->graph);
    const uint32_t first = own->lifetimes.unknown_value;
    if (own->lifetimes.unknown_count == 0)
        return;
    gc_notes_add(&subject->notes, gc_note_number(own->lifetimes.unknown_count, count),
                 " tensors have no known size, the first is ", show_value(own->graph, first, value),
                 " (", show_maker(own->graph, first, maker), "): all figures are lower bounds",
                 NULL);
    if (open != NULL)
        gc_notes_add(&subject->notes, "a dimension is open: --dim ",
                     gc_text_printable(open, strlen(open), dim, sizeof(dim)), "=N gives its size",
                     NULL);
}

static void add_graph_notes(struct plan_subject *subject, const struct gc_graph *graph)
{
    char shown[GC_NOTE_BYTES];
    char count[GC_NOTE_NUMBER_BYTES];
    for (uint32_t i = 0; i < graph->note_count && i < NOTES_OF_GRAPH_MAX; i++)
        gc_notes_add(
            &subject->notes,
            gc_text_printable(graph->notes[i], strlen(graph->notes[i]), shown, sizeof(shown)),
            NULL);
    if (graph->note_count > NOTES_OF_GRAPH_MAX)
        gc_notes_add(&subject->notes, "and ",
                     gc_note_number(graph->note_count - NOTES_OF_GRAPH_MAX, count),
                     " more remarks on the graph", NULL);
}

/* ---- the subject ---- */

static bool set_labels(struct plan_subject *subject, const struct plan_graph *own)
{
    static const char *const kinds[] = {"activation", "weight", "input", "output"};
    const struct gc_lifetimes *lifetimes = &own->lifetimes;
    subject->labels =
        gc_region_alloc(&subject->region, (uint64_t)lifetimes->count * sizeof(*subject->labels));
    if (subject->labels == NULL)
        return false;
    for (uint32_t i = 0; i < lifetimes->count; i++) {
        const uint32_t owner = lifetimes->owners[i];
        struct plan_label *label = &subject->labels[i];
        *label = (struct plan_label){.name = "(swap)", .kind = "Loop"};
        if (owner == GC_GRAPH_NONE)
            continue;
        const struct gc_graph_value *value = &own->graph->values[owner];
        label->name = value->name;
        label->kind = kinds[lifetimes->roles[i]];
        if (value->producer != GC_GRAPH_NONE && lifetimes->roles[i] != GC_LIFE_WEIGHT)
            label->kind = own->graph->nodes[value->producer].op;
    }
    return true;
}

static uint32_t coverage(const struct gc_lifetimes *lifetimes)
{
    const uint64_t all = (uint64_t)lifetimes->known_count + lifetimes->unknown_count;
    return all > 0 ? (uint32_t)(lifetimes->known_count * UINT64_C(1000) / all) : 1000;
}

static void set_subject(struct plan_subject *subject, const struct plan_graph *own)
{
    static const char *const names[] = {"activations", "weights", "inputs", "outputs"};
    const struct gc_lifetimes *lifetimes = &own->lifetimes;
    subject->buffers = lifetimes->buffers;
    subject->groups = lifetimes->roles;
    subject->count = lifetimes->count;
    subject->base_count = lifetimes->base_count;
    subject->base_bytes = lifetimes->base_bytes;
    subject->total_bytes = lifetimes->total_bytes;
    subject->coverage_thousandths = coverage(lifetimes);
    subject->time_unit = "steps, in the order of execution";
    subject->group_count = GC_LIFE_ROLE_COUNT;
    for (unsigned i = 0; i < GC_LIFE_ROLE_COUNT; i++)
        subject->group[i] =
            (struct plan_group){names[i], lifetimes->role_bytes[i], lifetimes->role_count[i]};
}

static int find_lifetimes(const struct plan_request *request, struct plan_subject *subject,
                          struct plan_graph *own)
{
    static const enum gc_life_keep keeps[] = {
        [PLAN_KEEP] = GC_LIFE_KEEP, [PLAN_USE] = GC_LIFE_USE, [PLAN_LEAVE] = GC_LIFE_LEAVE};
    gc_lifetimes_rules_init(&own->rules);
    own->rules.no_in_place = request->no_in_place;
    own->rules.keep[GC_LIFE_WEIGHT] = keeps[request->weights];
    own->rules.keep[GC_LIFE_INPUT] = keeps[request->inputs];
    own->rules.keep[GC_LIFE_OUTPUT] = keeps[request->outputs];
    if (request->alignment > 0)
        own->rules.alignment = request->alignment;
    own->is_scheduled = plan_schedule_is_wanted(request);
    if (own->is_scheduled) {
        const int found =
            plan_schedule_find(request, subject, own->opened, &own->rules, &own->schedule);
        if (found != TOOL_DONE)
            return found;
        own->graph = &own->schedule.made.graph;
    }
    const enum gc_status status =
        gc_lifetimes_find(&subject->region, own->graph, &own->rules, &own->lifetimes);
    if (status != GC_OK)
        return tool_fail(request->command, "%s: %s", request->path, gc_status_text(status));
    if (own->is_scheduled) {
        const int checked = plan_schedule_check(request, subject, &own->schedule, &own->lifetimes);
        if (checked != TOOL_DONE)
            return checked;
    }
    if (request->strict && own->lifetimes.unknown_count > 0)
        return fail_unknown(request, own);
    return TOOL_DONE;
}

static int read_graph(const struct plan_request *request, const struct tool_file *file,
                      struct plan_subject *subject)
{
    static char dims[DIMS_BYTES];
    struct gc_model_error error;
    struct plan_graph *own = gc_region_alloc(&subject->region, sizeof(*own));
    (void)file;
    if (own == NULL)
        return tool_fail(request->command, "%s: %s", request->path,
                         gc_status_text(GC_NO_HOST_MEMORY));
    subject->own = own;
    if (gc_graph_open(request->path, NULL, &own->opened, &error) != GC_OK)
        return tool_fail(request->command, "%s", error.text);
    own->graph = own->opened;
    int status = check_dims(request, own->graph);
    if (status == TOOL_DONE && !gc_graph_name_dims(own->graph, request->dims, request->batch,
                                                   request->seq_len, dims, sizeof(dims)))
        status = tool_usage(request->command, "--dim: too many names");
    if (status == TOOL_DONE && gc_graph_infer(own->opened, dims, &error) != GC_OK)
        status = tool_fail(request->command, "%s", error.text);
    if (status == TOOL_DONE)
        status = find_lifetimes(request, subject, own);
    if (status != TOOL_DONE)
        return status;
    if (!set_labels(subject, own))
        return tool_fail(request->command, "%s: %s", request->path,
                         gc_status_text(GC_NO_HOST_MEMORY));
    set_subject(subject, own);
    add_unknown_note(subject, own);
    add_graph_notes(subject, own->graph);
    return TOOL_DONE;
}

static void close_graph(struct plan_subject *subject)
{
    struct plan_graph *own = subject->own;
    if (own != NULL)
        gc_graph_close(own->opened);
}

/* ---- output ---- */

static void write_row(struct gc_writer *out, const char *label, uint64_t value, const char *unit)
{
    gc_writer_text(out, label);
    gc_writer_pad(out, 18);
    gc_writer_right(out, 30, gc_note_number(value, (char[GC_NOTE_NUMBER_BYTES]){0}));
    gc_writer_text(out, unit);
}

/* The way a tensor got its buffer. */
static const char *share_name(enum gc_life_share share)
{
    static const char *const names[] = {"own", "view", "in place", "joined"};
    return names[share];
}

static void write_text(struct gc_writer *out, const struct plan_subject *subject,
                       const struct plan_result *result)
{
    const struct plan_graph *own = subject->own;
    const struct gc_lifetimes *lifetimes = &own->lifetimes;
    uint32_t shares[4] = {0};
    for (uint32_t i = 0; i < lifetimes->tensor_count; i++)
        shares[lifetimes->tensors[i].share]++;
    plan_write_size(out, "activations' peak", result->peak_bytes - subject->base_bytes, "");
    write_row(out, "steps", lifetimes->step_count, "\n");
    write_row(out, "tensors", lifetimes->tensor_count, ": ");
    gc_writer_uint(out, shares[GC_LIFE_VIEW]);
    gc_writer_text(out, " views, ");
    gc_writer_uint(out, shares[GC_LIFE_IN_PLACE]);
    gc_writer_text(out, " in place\n");
    if (own->is_scheduled)
        plan_schedule_write_text(out, &own->schedule);
}

static void write_tensor(struct gc_json *json, const struct plan_graph *own,
                         const struct plan_result *result, const struct gc_life_tensor *tensor)
{
    const struct gc_graph_value *value = &own->graph->values[tensor->value];
    gc_json_begin_object(json, GC_JSON_LINE);
    gc_json_write_string(json, "name", value->name);
    if (value->producer != GC_GRAPH_NONE)
        gc_json_write_string(json, "op", own->graph->nodes[value->producer].op);
    gc_json_write_uint(json, "scope", value->scope);
    gc_json_write_uint(json, "lower", tensor->lower);
    gc_json_write_uint(json, "upper", tensor->upper);
    gc_json_write_uint(json, "bytes", tensor->bytes);
    gc_json_write_bool(json, "known", tensor->is_known);
    gc_json_write_uint(json, "buffer", tensor->buffer);
    gc_json_write_uint(json, "offset", result->offsets[tensor->buffer]);
    gc_json_write_string(json, "share", share_name(tensor->share));
    gc_json_end_object(json);
}

static void write_json(struct gc_json *json, const struct plan_subject *subject,
                       const struct plan_result *result)
{
    static const char *const keys[] = {"activation_buffer_bytes", "weight_bytes", "input_bytes",
                                       "output_bytes"};
    const struct plan_graph *own = subject->own;
    const struct gc_lifetimes *lifetimes = &own->lifetimes;
    for (unsigned i = 0; i < GC_LIFE_ROLE_COUNT; i++)
        gc_json_write_uint(json, keys[i], lifetimes->role_bytes[i]);
    gc_json_write_uint(json, "activation_bytes", result->peak_bytes - subject->base_bytes);
    gc_json_write_uint(json, "steps", lifetimes->step_count);
    gc_json_write_uint(json, "alignment", own->rules.alignment);
    gc_json_write_uint(json, "known_tensors", lifetimes->known_count);
    gc_json_write_uint(json, "unknown_tensors", lifetimes->unknown_count);
    gc_json_write_uint(json, "folded_tensors", lifetimes->folded_count);
    if (own->is_scheduled)
        plan_schedule_write_json(json, &own->schedule);
    gc_json_open_array(json, "tensors", GC_JSON_LINES);
    for (uint32_t i = 0; i < lifetimes->tensor_count; i++)
        write_tensor(json, own, result, &lifetimes->tensors[i]);
    gc_json_end_array(json);
}

const struct plan_source plan_source_graph = {
    .what = "an ONNX graph",
    .accepts = accepts,
    .read = read_graph,
    .close = close_graph,
    .write_text = write_text,
    .write_json = write_json,
};
