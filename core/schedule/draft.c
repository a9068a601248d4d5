/* A graph that choices change: the copy, its lifetimes, and the change of one choice. */
#include "core/schedule/draft.h"
#include "core/base/bits.h"

#include <stdio.h>
#include <string.h>

#define NONE UINT32_MAX
#define NAME_BYTES 24

/* ---- drafts ---- */

static void *copy_list(struct gc_region *region, const void *from, uint64_t count, uint64_t room,
                       uint64_t size)
{
    void *to = gc_region_alloc(region, (count + room) * size);
    if (to != NULL && count > 0)
        memcpy(to, from, count * size);
    return to;
}

enum gc_status gc_draft_begin(struct gc_region *region, const struct gc_graph *graph,
                              struct gc_draft *draft)
{
    *draft = (struct gc_draft){.graph = *graph,
                               .scopes = graph->scopes,
                               .value_count = graph->value_count,
                               .output_max = 1};
    draft->copy_of = gc_region_alloc(region, (uint64_t)graph->node_count * sizeof(uint32_t));
    draft->origin = gc_region_alloc(region, (uint64_t)graph->value_count * sizeof(uint32_t));
    if (draft->copy_of == NULL || draft->origin == NULL)
        return GC_NO_HOST_MEMORY;
    for (uint32_t i = 0; i < graph->node_count; i++)
        draft->copy_of[i] = i;
    for (uint32_t i = 0; i < graph->value_count; i++)
        draft->origin[i] = i;
    for (uint32_t i = 0; i < graph->node_count; i++) {
        if (graph->nodes[i].output_count > draft->output_max)
            draft->output_max = graph->nodes[i].output_count;
    }
    return GC_OK;
}

bool gc_draft_copy(struct gc_region *region, const struct gc_draft *from, uint32_t choices,
                   struct gc_draft *to)
{
    const struct gc_graph *graph = &from->graph;
    const uint64_t nodes = (uint64_t)GC_DRAFT_CHAIN_MAX * choices;
    const uint64_t values = nodes * from->output_max;
    *to = *from;
    to->nodes = copy_list(region, graph->nodes, graph->node_count, nodes, sizeof(*to->nodes));
    to->values = copy_list(region, graph->values, graph->value_count, values, sizeof(*to->values));
    to->scopes = copy_list(region, graph->scopes, graph->scope_count, 0, sizeof(*to->scopes));
    to->list = copy_list(region, graph->scopes[0].nodes, graph->scopes[0].node_count, nodes,
                         sizeof(uint32_t));
    to->copy_of = copy_list(region, from->copy_of, graph->node_count, nodes, sizeof(uint32_t));
    to->origin = copy_list(region, from->origin, graph->value_count, values, sizeof(uint32_t));
    if (to->nodes == NULL || to->values == NULL || to->scopes == NULL || to->list == NULL ||
        to->copy_of == NULL || to->origin == NULL)
        return false;
    to->scopes[0].nodes = to->list;
    to->graph.nodes = to->nodes;
    to->graph.values = to->values;
    to->graph.scopes = to->scopes;
    return true;
}

/* ---- views ---- */

enum gc_status gc_draft_view_open(const struct gc_draft *draft,
                                  const struct gc_lifetimes_rules *rules, uint64_t target,
                                  struct gc_draft_view *view)
{
    struct gc_region *region = &view->region;
    const struct gc_graph *graph = &draft->graph;
    *view = (struct gc_draft_view){.peak = 0};
    gc_region_init(region, GC_DRAFT_BYTES_MAX);
    enum gc_status status = gc_lifetimes_find(region, graph, rules, &view->lifetimes);
    if (status == GC_OK)
        status = gc_lifetimes_live(region, &view->lifetimes, &view->live, &view->peak);
    if (status != GC_OK)
        return status;
    for (uint32_t i = 0; i < view->lifetimes.step_count; i++)
        view->excess += gc_sub_or_zero_u64(view->live[i], target);
    view->tensor_of = gc_region_alloc(region, (uint64_t)graph->value_count * sizeof(uint32_t));
    view->step_of = gc_region_alloc(region, (uint64_t)graph->node_count * sizeof(uint32_t));
    if (view->tensor_of == NULL || view->step_of == NULL)
        return GC_NO_HOST_MEMORY;
    for (uint32_t i = 0; i < view->lifetimes.tensor_count; i++)
        view->tensor_of[view->lifetimes.tensors[i].value] = i + 1;
    memset(view->step_of, 0xff, (uint64_t)graph->node_count * sizeof(uint32_t));
    for (uint32_t i = view->lifetimes.step_count; i-- > 0;)
        view->step_of[view->lifetimes.step_nodes[i]] = i;
    return GC_OK;
}

void gc_draft_view_close(struct gc_draft_view *view)
{
    gc_region_fini(&view->region);
}

uint32_t gc_draft_buffer_of(const struct gc_draft_view *view, uint32_t value)
{
    const uint32_t tensor = value == GC_GRAPH_NONE ? 0 : view->tensor_of[value];
    return tensor == 0 ? NONE : view->lifetimes.tensors[tensor - 1].buffer;
}

/* ---- readers: a node with all nodes of its inner graphs ---- */

bool gc_draft_visit(const struct gc_graph *graph, uint32_t node, gc_draft_visit_function *visit,
                    void *argument)
{
    if (!visit(argument, node))
        return false;
    for (uint32_t i = 0; i < graph->nodes[node].attribute_count; i++) {
        const struct gc_graph_attribute *attribute = &graph->nodes[node].attributes[i];
        if (attribute->kind != GC_ATTRIBUTE_GRAPH)
            continue;
        const struct gc_graph_scope *inner = &graph->scopes[attribute->scope];
        for (uint32_t j = 0; j < inner->node_count; j++) {
            if (!gc_draft_visit(graph, inner->nodes[j], visit, argument))
                return false;
        }
    }
    return true;
}

/* ---- applying a choice ---- */

struct applying {
    struct gc_region *region;
    struct gc_draft *draft;
    const struct gc_draft_view *view;
    const struct gc_draft_choice *choice;
    uint32_t first_value;              /* values from here on are this choice's */
    uint32_t made[GC_DRAFT_CHAIN_MAX]; /* nodes, in the order in which they run */
    uint32_t made_count;
    uint32_t depth; /* of the chain under way */
    uint32_t from;  /* of the readers' values, to be replaced … */
    uint32_t to;    /* … by this one */
};

/* The copy that this choice has made of a value; NONE. */
static uint32_t find_made(const struct applying *applying, uint32_t value)
{
    const struct gc_draft *draft = applying->draft;
    for (uint32_t i = applying->first_value; i < draft->graph.value_count; i++) {
        if (draft->origin[i] == draft->origin[value])
            return i;
    }
    return NONE;
}

static bool is_there(const struct applying *applying, uint32_t value)
{
    const struct gc_draft_view *view = applying->view;
    const uint32_t tensor = view->tensor_of[value];
    if (tensor == 0)
        return true; /* takes no memory */
    const struct gc_life_tensor *at = &view->lifetimes.tensors[tensor - 1];
    return at->buffer < view->lifetimes.base_count ||
           (at->lower <= applying->choice->step && applying->choice->step < at->upper);
}

/* The version of a value that is there when the reader runs; NONE. */
static uint32_t find_version(const struct applying *applying, uint32_t value)
{
    const struct gc_draft *draft = applying->draft;
    if (is_there(applying, value) &&
        gc_draft_buffer_of(applying->view, value) != applying->choice->buffer)
        return value;
    for (uint32_t i = draft->value_count; i < applying->first_value; i++) {
        if (draft->origin[i] == draft->origin[value] && is_there(applying, i) &&
            gc_draft_buffer_of(applying->view, i) != applying->choice->buffer)
            return i;
    }
    return NONE;
}

static uint32_t copy_value(struct applying *applying, uint32_t value)
{
    struct gc_draft *draft = applying->draft;
    const uint32_t index = draft->graph.value_count++;
    char name[NAME_BYTES];
    draft->values[index] = draft->values[value];
    draft->values[index].is_output = false;
    draft->origin[index] = draft->origin[value];
    const char *own = draft->values[draft->origin[value]].name;
    const size_t length = strlen(own);
    (void)snprintf(name, sizeof(name), " (again %u)", index);
    char *text = gc_region_alloc(applying->region, length + sizeof(name));
    if (text != NULL) {
        memcpy(text, own, length);
        strcpy(text + length, name);
        draft->values[index].name = text;
    }
    return index;
}

static uint32_t make_again(struct applying *applying, uint32_t value);

/* The value that a copy reads in the place of `value`; NONE: it cannot be had. */
static uint32_t find_input(struct applying *applying, uint32_t value)
{
    if (value == GC_GRAPH_NONE)
        return value;
    const uint32_t made = find_made(applying, value);
    if (made != NONE)
        return made;
    const uint32_t version = find_version(applying, value);
    if (version != NONE)
        return version;
    const bool is_target = gc_draft_buffer_of(applying->view, value) == applying->choice->buffer;
    if (!is_target && !applying->choice->is_deep)
        return value; /* it is kept until then */
    const uint32_t again = make_again(applying, value);
    return again == NONE && !is_target ? value : again;
}

/* Copies the producer of a value; NONE: it may not run again, or the chain is too long. */
static uint32_t make_again(struct applying *applying, uint32_t value)
{
    struct gc_draft *draft = applying->draft;
    const uint32_t producer = draft->values[value].producer;
    if (producer == GC_GRAPH_NONE || draft->nodes[producer].scope != 0 ||
        !gc_schedule_may_repeat(&draft->nodes[producer]) ||
        applying->view->step_of[producer] == NONE || applying->depth == GC_DRAFT_CHAIN_MAX)
        return NONE;
    struct gc_graph_node node = draft->nodes[producer];
    uint32_t *inputs = gc_region_alloc(applying->region, node.input_count * sizeof(uint32_t));
    uint32_t *outputs = gc_region_alloc(applying->region, node.output_count * sizeof(uint32_t));
    if (inputs == NULL || outputs == NULL)
        return NONE;
    applying->depth++;
    for (uint32_t i = 0; i < node.input_count; i++) {
        inputs[i] = find_input(applying, node.inputs[i]);
        if (inputs[i] == NONE && node.inputs[i] != GC_GRAPH_NONE)
            return NONE;
    }
    applying->depth--;
    if (applying->made_count == GC_DRAFT_CHAIN_MAX)
        return NONE;
    const uint32_t index = draft->graph.node_count++;
    const uint32_t first = draft->graph.value_count;
    for (uint32_t i = 0; i < node.output_count; i++) {
        outputs[i] = node.outputs[i] == GC_GRAPH_NONE ? GC_GRAPH_NONE
                                                      : copy_value(applying, node.outputs[i]);
        if (outputs[i] != GC_GRAPH_NONE)
            draft->values[outputs[i]].producer = index;
    }
    node.inputs = inputs;
    node.outputs = outputs;
    draft->nodes[index] = node;
    draft->copy_of[index] = draft->copy_of[producer];
    applying->made[applying->made_count++] = index;
    const struct gc_schedule_work work = gc_schedule_node_work(&draft->graph, index);
    draft->extra.operations += work.operations;
    draft->extra.bytes += work.bytes;
    for (uint32_t i = first; i < draft->graph.value_count; i++) {
        if (draft->origin[i] == draft->origin[value])
            return i;
    }
    return NONE;
}

/* Replaces a value in a node's inputs. */
static bool replace(void *argument, uint32_t node)
{
    struct applying *applying = argument;
    struct gc_graph_node *at = &applying->draft->nodes[node];
    uint32_t *inputs = NULL;
    for (uint32_t i = 0; i < at->input_count; i++) {
        if (at->inputs[i] != applying->from)
            continue;
        if (inputs == NULL) {
            inputs = copy_list(applying->region, at->inputs, at->input_count, 0, sizeof(uint32_t));
            if (inputs == NULL)
                return false;
            at->inputs = inputs;
        }
        inputs[i] = applying->to;
    }
    return true;
}

/* Replaces it in the outputs of the inner graphs, too. */
static bool replace_outputs(struct applying *applying, uint32_t node)
{
    const struct gc_graph_node *at = &applying->draft->nodes[node];
    for (uint32_t i = 0; i < at->attribute_count; i++) {
        if (at->attributes[i].kind != GC_ATTRIBUTE_GRAPH)
            continue;
        const struct gc_graph_scope *inner = &applying->draft->scopes[at->attributes[i].scope];
        for (uint32_t j = 0; j < inner->output_count; j++) {
            if (inner->outputs[j] == applying->from)
                return false; /* an output that is passed on: not worth a list of its own */
        }
        for (uint32_t j = 0; j < inner->node_count; j++) {
            if (!replace_outputs(applying, inner->nodes[j]))
                return false;
        }
    }
    return true;
}

/* Collects the values of the choice's buffer that a node reads. */
struct collecting {
    const struct gc_draft *draft;
    const struct gc_draft_view *view;
    uint32_t buffer;
    uint32_t values[GC_DRAFT_CHAIN_MAX];
    uint32_t count;
};

static bool collect(void *argument, uint32_t node)
{
    struct collecting *collecting = argument;
    const struct gc_graph_node *at = &collecting->draft->nodes[node];
    for (uint32_t i = 0; i < at->input_count; i++) {
        bool is_new = gc_draft_buffer_of(collecting->view, at->inputs[i]) == collecting->buffer;
        for (uint32_t j = 0; j < collecting->count; j++)
            is_new = is_new && collecting->values[j] != at->inputs[i];
        if (!is_new)
            continue;
        if (collecting->count == GC_DRAFT_CHAIN_MAX)
            return false;
        collecting->values[collecting->count++] = at->inputs[i];
    }
    return true;
}

/* The values made before the reader that nodes from there on read. A value that a later node makes
 * in the buffer is no target. */
static bool collect_values(const struct applying *applying, struct collecting *collecting)
{
    const struct gc_draft *draft = applying->draft;
    uint32_t kept = 0;
    for (uint32_t i = applying->choice->position; i < draft->graph.scopes[0].node_count; i++) {
        if (!gc_draft_visit(&draft->graph, draft->list[i], collect, collecting))
            return false;
    }
    for (uint32_t i = 0; i < collecting->count; i++) {
        const uint32_t value = collecting->values[i];
        const uint32_t producer = draft->values[value].producer;
        if (producer == GC_GRAPH_NONE || draft->nodes[producer].scope != 0)
            return false;
        if (applying->view->step_of[producer] < applying->choice->step)
            collecting->values[kept++] = value;
    }
    collecting->count = kept;
    return kept > 0;
}

static void insert_nodes(struct applying *applying)
{
    struct gc_draft *draft = applying->draft;
    uint32_t *at = draft->list + applying->choice->position;
    struct gc_graph_scope *main = &draft->scopes[0];
    memmove(at + applying->made_count, at,
            (main->node_count - applying->choice->position) * sizeof(uint32_t));
    memcpy(at, applying->made, applying->made_count * sizeof(uint32_t));
    main->node_count += applying->made_count;
}

bool gc_draft_apply(struct gc_region *region, struct gc_draft *draft,
                    const struct gc_draft_view *view, const struct gc_draft_choice *choice)
{
    struct applying applying = {.region = region,
                                .draft = draft,
                                .view = view,
                                .choice = choice,
                                .first_value = draft->graph.value_count};
    struct collecting collecting = {.draft = draft, .view = view, .buffer = choice->buffer};
    const uint32_t last = draft->scopes[0].node_count;
    uint32_t again[GC_DRAFT_CHAIN_MAX];
    if (!collect_values(&applying, &collecting))
        return false;
    for (uint32_t i = 0; i < collecting.count; i++) {
        again[i] = find_made(&applying, collecting.values[i]);
        if (again[i] == NONE)
            again[i] = make_again(&applying, collecting.values[i]);
        if (again[i] == NONE)
            return false;
    }
    for (uint32_t i = 0; i < collecting.count; i++) {
        applying.from = collecting.values[i];
        applying.to = again[i];
        for (uint32_t j = choice->position; j < last; j++) {
            if (!replace_outputs(&applying, draft->list[j]) ||
                !gc_draft_visit(&draft->graph, draft->list[j], replace, &applying))
                return false;
        }
    }
    insert_nodes(&applying);
    return true;
}
