#include "core/base/bits.h"
#include "core/io/text.h"
#include "core/model/graph_plan.h"
#include "core/planner/lifetimes.h"

#include <string.h>

#define REGION_BYTES_MAX GC_MIB(512)
#define NODE_MAX 1000     /* steps of search: graphs of real models reach their bound sooner */
#define PLANNED_MAX 10000 /* more buffers are not placed: a program's start waits for the plan */
/* Sum of the buffers' lifetimes in steps: a pass of the solver is linear in it. */
#define PLANNED_STEPS_MAX (1U << 20)
#define DIGITS_MAX 20

/* ---- dimensions ---- */

static bool is_given(const char *dims, const char *name)
{
    const size_t length = strlen(name);
    while (dims != NULL && *dims != '\0') {
        if (strncmp(dims, name, length) == 0 && dims[length] == '=')
            return true;
        dims += strcspn(dims, ",");
        dims += *dims == ',';
    }
    return false;
}

static bool add_dim(char *dims, size_t size, const char *name, uint64_t value)
{
    char digits[DIGITS_MAX + 1];
    size_t at = DIGITS_MAX;
    const size_t used = strlen(dims);
    digits[at] = '\0';
    do {
        digits[--at] = (char)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    if (size - used < strlen(name) + sizeof(digits) + 2)
        return false;
    char *to = dims + used;
    if (used > 0)
        *to++ = ',';
    to = stpcpy(to, name);
    *to++ = '=';
    stpcpy(to, digits + at);
    return true;
}

enum gc_dim_meaning gc_graph_dim_meaning(const char *name)
{
    static const char batches[] = "batch, batch_size, N, n";
    static const char tokens[] =
        "sequence, seq, seq_len, sequence_length, seq_length, sequence_len";
    if (gc_text_find_word(batches, name, strlen(name)) >= 0)
        return GC_DIM_MEANS_BATCH;
    return gc_text_find_word(tokens, name, strlen(name)) >= 0 ? GC_DIM_MEANS_TOKENS
                                                              : GC_DIM_MEANS_NOTHING;
}

bool gc_graph_name_dims(const struct gc_graph *graph, const char *given, uint64_t batch,
                        uint64_t seq_len, char *dims, size_t size)
{
    dims[0] = '\0';
    if (given != NULL && !gc_text_copy(dims, size, given, strlen(given)))
        return false;
    for (uint32_t i = 0; i < graph->symbol_count; i++) {
        const char *name = graph->symbols[i].name;
        if (name == NULL || is_given(given, name))
            continue;
        const enum gc_dim_meaning meaning = gc_graph_dim_meaning(name);
        const uint64_t value = meaning == GC_DIM_MEANS_BATCH ? batch : seq_len;
        if (meaning != GC_DIM_MEANS_NOTHING && value > 0 && !add_dim(dims, size, name, value))
            return false;
    }
    return true;
}

/* ---- the need ---- */

/* A buffer that lives before the first step and is not a constant of the file was computed by the
 * graph. A local function's constants are the file's in its first call. */
static bool is_made(const struct gc_graph *graph, const struct gc_lifetimes *lifetimes,
                    const struct gc_life_tensor *tensor)
{
    const struct gc_graph_value *value = &graph->values[tensor->value];
    return lifetimes->roles[tensor->buffer] == GC_LIFE_WEIGHT && tensor->share == GC_LIFE_OWN &&
           value->producer != GC_GRAPH_NONE && value->is_constant &&
           (value->is_repeated || strcmp(graph->nodes[value->producer].op, "Constant") != 0);
}

static bool add_made(const struct gc_graph *graph, const struct gc_lifetimes *lifetimes,
                     struct gc_graph_need *need)
{
    bool fits = true;
    for (uint32_t i = 0; i < lifetimes->tensor_count; i++) {
        const struct gc_life_tensor *tensor = &lifetimes->tensors[i];
        if (!is_made(graph, lifetimes, tensor))
            continue;
        const struct gc_shape *shape = &graph->values[tensor->value].type.shape;
        uint64_t elements = tensor->is_known;
        for (uint32_t j = 0; j < shape->rank && tensor->is_known; j++)
            fits = gc_mul_u64(elements, (uint64_t)shape->dims[j].number, &elements) && fits;
        need->made_count++;
        fits = gc_add_u64(need->made_bytes, tensor->bytes, &need->made_bytes) && fits;
        fits = gc_add_u64(need->made_elements, elements, &need->made_elements) && fits;
    }
    return fits;
}

static bool is_planned(const struct gc_placement_problem *problem)
{
    uint64_t steps = 0;
    for (uint32_t i = 0; i < problem->count && problem->count <= PLANNED_MAX; i++)
        steps += problem->buffers[i].upper - problem->buffers[i].lower;
    return problem->count <= PLANNED_MAX && steps <= PLANNED_STEPS_MAX;
}

static enum gc_status find_peak(struct gc_region *region, const struct gc_lifetimes *lifetimes,
                                struct gc_graph_need *need, uint64_t *peak_bytes)
{
    const struct gc_placement_problem problem = {lifetimes->buffers + lifetimes->base_count,
                                                 lifetimes->count - lifetimes->base_count,
                                                 GC_PLACEMENT_UNLIMITED};
    const struct gc_placement_options options = {.node_max = NODE_MAX};
    struct gc_placement placement;
    need->is_planned = is_planned(&problem);
    /* The most bytes live in one step: a placement of very many small buffers comes close to it. */
    if (!need->is_planned) {
        uint64_t *live;
        return gc_lifetimes_live(region, lifetimes, &live, peak_bytes);
    }
    const enum gc_status status = gc_solve_placement(region, &problem, &options, &placement);
    if (status == GC_OK)
        *peak_bytes = placement.peak_bytes;
    return status;
}

static enum gc_status find(struct gc_region *region, const struct gc_graph *graph,
                           struct gc_graph_need *need)
{
    struct gc_lifetimes_rules rules;
    struct gc_lifetimes lifetimes;
    uint64_t peak_bytes;
    gc_lifetimes_rules_init(&rules);
    enum gc_status status = gc_lifetimes_find(region, graph, &rules, &lifetimes);
    if (status != GC_OK)
        return status;
    status = find_peak(region, &lifetimes, need, &peak_bytes);
    if (status != GC_OK)
        return status;
    need->tensor_count = lifetimes.tensor_count;
    need->unknown_count = lifetimes.unknown_count;
    need->unknown_value = lifetimes.unknown_value;
    if (!gc_add_u64(peak_bytes, lifetimes.role_bytes[GC_LIFE_OUTPUT], &need->activation_bytes) ||
        !add_made(graph, &lifetimes, need))
        return GC_OVERFLOW;
    return GC_OK;
}

enum gc_status gc_graph_need_find(const struct gc_graph *graph, struct gc_graph_need *need)
{
    struct gc_region region;
    *need = (struct gc_graph_need){.unknown_value = GC_GRAPH_NONE};
    gc_region_init(&region, REGION_BYTES_MAX);
    const enum gc_status status = find(&region, graph, need);
    gc_region_fini(&region);
    return status;
}
