/* Nodes that run again instead of their results being kept (rematerialisation).
 *
 * A value that is alive at the peak but not used there is made again before its next reader, by a
 * copy of its producer, and of the producers of the inputs that are gone by then or would have to
 * be kept for it. Each choice is the one that takes most of the bytes above a target for the least
 * of the budget (greedy, as in Kumar et al., "Efficient Rematerialization for Deep Networks",
 * NeurIPS 2019); the lowest target that the budget reaches is found by bisection. Every choice is
 * judged by the lifetimes of the whole changed graph, so an input whose life grows, or that can no
 * longer be overwritten, counts. No bound is proven. */
#include "core/base/bits.h"
#include "core/schedule/schedule.h"

#include <stdio.h>
#include <string.h>

#define NONE UINT32_MAX
#define SCRATCH_BYTES_MAX GC_MIB(2048)
#define CHAIN_MAX 24       /* nodes that one choice repeats */
#define TRIED_MAX 6        /* choices that are judged, the most promising first */
#define TARGET_ROUNDS 12   /* of the bisection */
#define TARGET_DIVISOR 256 /* it ends at this fraction of the peak */
#define NAME_BYTES 24
#define CHOICES_ROOM 32U

/* The changed graph. */
struct draft {
    struct gc_graph graph;
    struct gc_graph_node *nodes;
    struct gc_graph_value *values;
    struct gc_graph_scope *scopes;
    uint32_t *list;    /* nodes of the main graph, in order */
    uint32_t *copy_of; /* by node: the given graph's; itself if it is one */
    uint32_t *origin;  /* by value: the given graph's */
    struct gc_schedule_work extra;
};

struct recomputing {
    struct gc_region *region;
    const struct gc_lifetimes_rules *rules;
    const struct gc_schedule_options *options;
    uint32_t value_count; /* of the given graph */
    uint32_t output_max;  /* of a node */
    struct gc_schedule_work budget;
    uint64_t target; /* bytes of the moving buffers */
    bool is_stopped;
};

/* A choice: the buffer's values are made again before node `reader`, at that position. */
struct choice {
    uint32_t buffer;
    uint32_t position;
    uint32_t step; /* of the reader */
    uint64_t score;
    bool is_deep; /* inputs that are gone are made again, too */
};

/* The lifetimes of a draft and what is needed of them. */
struct view {
    struct gc_region region;
    struct gc_lifetimes lifetimes;
    uint64_t *live;
    uint64_t peak;
    uint64_t excess;     /* bytes above the target, over all steps */
    uint32_t *tensor_of; /* by value: 1 + its tensor; 0: none */
    uint32_t *step_of;   /* by node: its first step; NONE */
};

/* ---- drafts ---- */

static void *copy_list(struct gc_region *region, const void *from, uint64_t count, uint64_t room,
                       uint64_t size)
{
    void *to = gc_region_alloc(region, (count + room) * size);
    if (to != NULL && count > 0)
        memcpy(to, from, count * size);
    return to;
}

/* A copy with room for so many choices. */
static bool copy_draft(const struct recomputing *recomputing, struct gc_region *region,
                       const struct draft *from, uint32_t choices, struct draft *to)
{
    const struct gc_graph *graph = &from->graph;
    const uint64_t nodes = (uint64_t)CHAIN_MAX * choices;
    const uint64_t values = nodes * recomputing->output_max;
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

static enum gc_status open_view(const struct recomputing *recomputing, const struct draft *draft,
                                struct view *view)
{
    struct gc_region *region = &view->region;
    const struct gc_graph *graph = &draft->graph;
    *view = (struct view){.peak = 0};
    gc_region_init(region, SCRATCH_BYTES_MAX);
    enum gc_status status = gc_lifetimes_find(region, graph, recomputing->rules, &view->lifetimes);
    if (status == GC_OK)
        status = gc_lifetimes_live(region, &view->lifetimes, &view->live, &view->peak);
    if (status != GC_OK)
        return status;
    for (uint32_t i = 0; i < view->lifetimes.step_count; i++)
        view->excess += gc_sub_or_zero_u64(view->live[i], recomputing->target);
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

static void close_view(struct view *view)
{
    gc_region_fini(&view->region);
}

static uint32_t buffer_of(const struct view *view, uint32_t value)
{
    const uint32_t tensor = value == GC_GRAPH_NONE ? 0 : view->tensor_of[value];
    return tensor == 0 ? NONE : view->lifetimes.tensors[tensor - 1].buffer;
}

/* ---- readers: a node with all nodes of its inner graphs ---- */

typedef bool visit_inputs(void *argument, uint32_t node);

static bool visit_inner(const struct gc_graph *graph, uint32_t node, visit_inputs *visit,
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
            if (!visit_inner(graph, inner->nodes[j], visit, argument))
                return false;
        }
    }
    return true;
}

/* ---- applying a choice ---- */

struct applying {
    const struct recomputing *recomputing;
    struct gc_region *region;
    struct draft *draft;
    const struct view *view;
    const struct choice *choice;
    uint32_t first_value;     /* values from here on are this choice's */
    uint32_t made[CHAIN_MAX]; /* nodes, in the order in which they run */
    uint32_t made_count;
    uint32_t depth; /* of the chain under way */
    uint32_t from;  /* of the readers' values, to be replaced … */
    uint32_t to;    /* … by this one */
};

/* The copy that this choice has made of a value; NONE. */
static uint32_t find_made(const struct applying *applying, uint32_t value)
{
    const struct draft *draft = applying->draft;
    for (uint32_t i = applying->first_value; i < draft->graph.value_count; i++) {
        if (draft->origin[i] == draft->origin[value])
            return i;
    }
    return NONE;
}

static bool is_there(const struct applying *applying, uint32_t value)
{
    const struct view *view = applying->view;
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
    const struct draft *draft = applying->draft;
    if (is_there(applying, value) && buffer_of(applying->view, value) != applying->choice->buffer)
        return value;
    for (uint32_t i = applying->recomputing->value_count; i < applying->first_value; i++) {
        if (draft->origin[i] == draft->origin[value] && is_there(applying, i) &&
            buffer_of(applying->view, i) != applying->choice->buffer)
            return i;
    }
    return NONE;
}

static uint32_t copy_value(struct applying *applying, uint32_t value)
{
    struct draft *draft = applying->draft;
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
    const bool is_target = buffer_of(applying->view, value) == applying->choice->buffer;
    if (!is_target && !applying->choice->is_deep)
        return value; /* it is kept until then */
    const uint32_t again = make_again(applying, value);
    return again == NONE && !is_target ? value : again;
}

/* Copies the producer of a value; NONE: it may not run again, or the chain is too long. */
static uint32_t make_again(struct applying *applying, uint32_t value)
{
    struct draft *draft = applying->draft;
    const uint32_t producer = draft->values[value].producer;
    if (producer == GC_GRAPH_NONE || draft->nodes[producer].scope != 0 ||
        !gc_schedule_may_repeat(&draft->nodes[producer]) ||
        applying->view->step_of[producer] == NONE || applying->depth == CHAIN_MAX)
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
    if (applying->made_count == CHAIN_MAX)
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
    const struct draft *draft;
    const struct view *view;
    uint32_t buffer;
    uint32_t values[CHAIN_MAX];
    uint32_t count;
};

static bool collect(void *argument, uint32_t node)
{
    struct collecting *collecting = argument;
    const struct gc_graph_node *at = &collecting->draft->nodes[node];
    for (uint32_t i = 0; i < at->input_count; i++) {
        bool is_new = buffer_of(collecting->view, at->inputs[i]) == collecting->buffer;
        for (uint32_t j = 0; j < collecting->count; j++)
            is_new = is_new && collecting->values[j] != at->inputs[i];
        if (!is_new)
            continue;
        if (collecting->count == CHAIN_MAX)
            return false;
        collecting->values[collecting->count++] = at->inputs[i];
    }
    return true;
}

/* The values made before the reader that nodes from there on read. A value that a later node makes
 * in the buffer is no target. */
static bool collect_values(const struct applying *applying, struct collecting *collecting)
{
    const struct draft *draft = applying->draft;
    uint32_t kept = 0;
    for (uint32_t i = applying->choice->position; i < draft->graph.scopes[0].node_count; i++) {
        if (!visit_inner(&draft->graph, draft->list[i], collect, collecting))
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
    struct draft *draft = applying->draft;
    uint32_t *at = draft->list + applying->choice->position;
    struct gc_graph_scope *main = &draft->scopes[0];
    memmove(at + applying->made_count, at,
            (main->node_count - applying->choice->position) * sizeof(uint32_t));
    memcpy(at, applying->made, applying->made_count * sizeof(uint32_t));
    main->node_count += applying->made_count;
}

/* False: the choice is not possible; the draft is then of no use. */
static bool apply(const struct recomputing *recomputing, struct gc_region *region,
                  struct draft *draft, const struct view *view, const struct choice *choice)
{
    struct applying applying = {.recomputing = recomputing,
                                .region = region,
                                .draft = draft,
                                .view = view,
                                .choice = choice,
                                .first_value = draft->graph.value_count};
    struct collecting collecting = {.draft = draft, .view = view, .buffer = choice->buffer};
    const uint32_t last = draft->scopes[0].node_count;
    uint32_t again[CHAIN_MAX];
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
                !visit_inner(&draft->graph, draft->list[j], replace, &applying))
                return false;
        }
    }
    insert_nodes(&applying);
    return true;
}

/* ---- choices ---- */

struct use {
    uint32_t before; /* the last step up to the peak that touches the buffer; NONE */
    uint32_t after;  /* the first behind it; NONE */
    uint32_t position;
};

struct finding {
    const struct draft *draft;
    const struct view *view;
    struct use *uses;
    uint32_t peak_step;
    uint32_t step;
    uint32_t position;
};

static bool add_use(void *argument, uint32_t node)
{
    struct finding *finding = argument;
    const struct gc_graph_node *at = &finding->draft->nodes[node];
    for (uint32_t i = 0; i < at->input_count + at->output_count; i++) {
        const uint32_t value =
            i < at->input_count ? at->inputs[i] : at->outputs[i - at->input_count];
        const uint32_t buffer = buffer_of(finding->view, value);
        if (buffer == NONE)
            continue;
        struct use *use = &finding->uses[buffer];
        if (finding->step <= finding->peak_step) {
            use->before = finding->step;
        } else if (use->after == NONE) {
            use->after = finding->step;
            use->position = finding->position;
        }
    }
    return true;
}

/* The steps at which each buffer is touched around the peak. A node with inner graphs has the step
 * at which it begins. */
static bool find_uses(const struct draft *draft, struct view *view, uint32_t peak_step,
                      struct finding *finding)
{
    *finding = (struct finding){.draft = draft, .view = view, .peak_step = peak_step};
    finding->uses =
        gc_region_alloc(&view->region, (uint64_t)view->lifetimes.count * sizeof(*finding->uses));
    if (finding->uses == NULL)
        return false;
    memset(finding->uses, 0xff, (uint64_t)view->lifetimes.count * sizeof(*finding->uses));
    for (uint32_t i = 0; i < draft->graph.scopes[0].node_count; i++) {
        finding->position = i;
        finding->step = view->step_of[draft->list[i]];
        if (finding->step != NONE && !visit_inner(&draft->graph, draft->list[i], add_use, finding))
            return false;
    }
    return true;
}

/* The bytes above the target that the buffer's absence between its uses takes, for the share of the
 * budget that its producer needs. */
static uint64_t score_of(const struct recomputing *recomputing, const struct draft *draft,
                         const struct view *view, const struct use *use, uint32_t buffer)
{
    const uint32_t owner = view->lifetimes.owners[buffer];
    const uint64_t bytes = view->lifetimes.buffers[buffer].bytes;
    uint64_t gain = 0;
    const uint32_t producer = draft->values[owner].producer;
    if (producer == GC_GRAPH_NONE || draft->nodes[producer].scope != 0)
        return 0;
    for (uint32_t step = use->before + 1; step < use->after; step++)
        gain += gc_min_u64(bytes, gc_sub_or_zero_u64(view->live[step], recomputing->target));
    const struct gc_schedule_work work = gc_schedule_node_work(&draft->graph, producer);
    const double share = (double)work.operations / ((double)recomputing->budget.operations + 1) +
                         (double)work.bytes / ((double)recomputing->budget.bytes + 1);
    const double score = (double)gain / (share + 1e-4);
    return gain == 0 ? 0 : score < 1e18 ? (uint64_t)score + 1 : UINT64_C(1000000000000000000);
}

/* The most promising choices at the first step of the peak, best first. */
static uint32_t find_choices(const struct recomputing *recomputing, const struct draft *draft,
                             struct view *view, struct choice *choices)
{
    uint32_t peak_step = 0;
    uint32_t count = 0;
    struct finding finding;
    while (view->live[peak_step] < view->peak)
        peak_step++;
    if (!find_uses(draft, view, peak_step, &finding))
        return 0;
    for (uint32_t i = view->lifetimes.base_count; i < view->lifetimes.count; i++) {
        const struct use *use = &finding.uses[i];
        if (use->before == NONE || use->after == NONE || use->before >= peak_step ||
            view->lifetimes.roles[i] != GC_LIFE_ACTIVATION ||
            view->lifetimes.owners[i] == GC_GRAPH_NONE)
            continue;
        const struct choice choice = {.buffer = i,
                                      .position = use->position,
                                      .step = use->after,
                                      .score = score_of(recomputing, draft, view, use, i)};
        uint32_t at = count < TRIED_MAX ? count++ : TRIED_MAX;
        for (; at > 0 && choices[at - 1].score < choice.score; at--) {
            if (at < TRIED_MAX)
                choices[at] = choices[at - 1];
        }
        if (at < TRIED_MAX)
            choices[at] = choice;
    }
    while (count > 0 && choices[count - 1].score == 0)
        count--;
    return count;
}

/* ---- one target ---- */

static bool is_within(const struct recomputing *recomputing, const struct draft *draft)
{
    return draft->extra.operations <= recomputing->budget.operations &&
           draft->extra.bytes <= recomputing->budget.bytes;
}

static double share_of(const struct recomputing *recomputing, const struct draft *from,
                       const struct draft *to)
{
    return (double)(to->extra.operations - from->extra.operations) /
               ((double)recomputing->budget.operations + 1) +
           (double)(to->extra.bytes - from->extra.bytes) / ((double)recomputing->budget.bytes + 1);
}

/* Judges a choice: the excess that it takes for its share of the budget; 0: not possible. */
static enum gc_status judge(const struct recomputing *recomputing, const struct draft *draft,
                            const struct view *view, const struct choice *choice, double *worth)
{
    struct gc_region scratch;
    struct draft changed;
    struct view after;
    enum gc_status status = GC_OK;
    *worth = 0;
    gc_region_init(&scratch, SCRATCH_BYTES_MAX);
    if (!copy_draft(recomputing, &scratch, draft, 1, &changed)) {
        gc_region_fini(&scratch);
        return GC_NO_HOST_MEMORY;
    }
    if (apply(recomputing, &scratch, &changed, view, choice) && is_within(recomputing, &changed)) {
        status = open_view(recomputing, &changed, &after);
        if (status == GC_OK && after.excess < view->excess)
            *worth = (double)(view->excess - after.excess) /
                     (share_of(recomputing, draft, &changed) + 1e-4);
        close_view(&after);
    }
    gc_region_fini(&scratch);
    return status;
}

static bool is_late(struct recomputing *recomputing)
{
    const struct gc_schedule_options *options = recomputing->options;
    if (options->watch != NULL && !options->watch(options->watch_argument))
        recomputing->is_stopped = true;
    return recomputing->is_stopped;
}

/* The best choice of all; false: none takes anything. */
static enum gc_status choose(struct recomputing *recomputing, const struct draft *draft,
                             struct view *view, struct choice *best, bool *is_found)
{
    struct choice choices[TRIED_MAX];
    const uint32_t count = find_choices(recomputing, draft, view, choices);
    double most = 0;
    *is_found = false;
    for (uint32_t i = 0; i < 2 * count && !is_late(recomputing); i++) {
        struct choice choice = choices[i / 2];
        double worth;
        choice.is_deep = i % 2 == 1;
        const enum gc_status status = judge(recomputing, draft, view, &choice, &worth);
        if (status != GC_OK)
            return status;
        if (worth <= most)
            continue;
        most = worth;
        *best = choice;
        *is_found = true;
    }
    return GC_OK;
}

/* The choices of one target, in turn. */
struct chosen {
    struct choice *choices;
    uint32_t count;
    uint32_t room;
};

static bool keep_choice(struct gc_region *region, struct chosen *chosen,
                        const struct choice *choice)
{
    if (chosen->count == chosen->room) {
        const uint32_t room = chosen->room * 2 + CHOICES_ROOM;
        chosen->choices = gc_region_grow(region, chosen->choices, chosen->room * sizeof(*choice),
                                         room * sizeof(*choice));
        if (chosen->choices == NULL)
            return false;
        chosen->room = room;
    }
    chosen->choices[chosen->count++] = *choice;
    return true;
}

/* Makes the best choice, if the peak is above the target and there is one. */
static enum gc_status take_choice(struct recomputing *recomputing, struct gc_region *scratch,
                                  struct draft *draft, struct chosen *chosen, uint64_t *peak,
                                  bool *is_found)
{
    struct view view;
    struct choice choice;
    enum gc_status status = open_view(recomputing, draft, &view);
    *peak = view.peak;
    *is_found = false;
    if (status == GC_OK && view.peak > recomputing->target)
        status = choose(recomputing, draft, &view, &choice, is_found);
    if (status == GC_OK && *is_found &&
        (!apply(recomputing, scratch, draft, &view, &choice) ||
         !keep_choice(scratch, chosen, &choice)))
        status = GC_NO_HOST_MEMORY;
    close_view(&view);
    return status;
}

/* Makes choices until the peak is at the target, or none takes anything. */
static enum gc_status reach(struct recomputing *recomputing, struct gc_region *scratch,
                            const struct draft *first, struct chosen *chosen, uint64_t *peak)
{
    struct draft draft = *first;
    uint32_t room = 0;
    bool is_found = true;
    enum gc_status status = GC_OK;
    while (status == GC_OK && is_found) {
        if (chosen->count == room) {
            struct draft roomier;
            room = room * 2 + CHOICES_ROOM;
            if (!copy_draft(recomputing, scratch, &draft, room - chosen->count, &roomier))
                return GC_NO_HOST_MEMORY;
            draft = roomier;
        }
        status = take_choice(recomputing, scratch, &draft, chosen, peak, &is_found);
    }
    return status;
}

/* ---- the whole ---- */

static enum gc_status begin_draft(struct recomputing *recomputing, struct gc_schedule *schedule,
                                  struct draft *draft)
{
    const struct gc_graph *graph = &schedule->graph;
    *draft = (struct draft){.graph = *graph, .scopes = graph->scopes};
    draft->copy_of =
        gc_region_alloc(recomputing->region, (uint64_t)graph->node_count * sizeof(uint32_t));
    draft->origin =
        gc_region_alloc(recomputing->region, (uint64_t)graph->value_count * sizeof(uint32_t));
    if (draft->copy_of == NULL || draft->origin == NULL)
        return GC_NO_HOST_MEMORY;
    for (uint32_t i = 0; i < graph->node_count; i++)
        draft->copy_of[i] = i;
    for (uint32_t i = 0; i < graph->value_count; i++)
        draft->origin[i] = i;
    recomputing->value_count = graph->value_count;
    return GC_OK;
}

/* Of the nodes that have a step. */
static enum gc_status add_work(struct recomputing *recomputing, struct gc_schedule *schedule,
                               const struct draft *draft, uint64_t *peak)
{
    struct view view;
    const enum gc_status status = open_view(recomputing, draft, &view);
    *peak = view.peak;
    for (uint32_t i = 0; status == GC_OK && i < draft->graph.node_count; i++) {
        if (view.step_of[i] == NONE)
            continue;
        const struct gc_schedule_work work = gc_schedule_node_work(&draft->graph, i);
        schedule->work.operations += work.operations;
        schedule->work.bytes += work.bytes;
        if (draft->graph.nodes[i].output_count > recomputing->output_max)
            recomputing->output_max = draft->graph.nodes[i].output_count;
    }
    close_view(&view);
    return status;
}

static uint64_t part_of(uint64_t whole, uint64_t ppm)
{
    return (uint64_t)((unsigned __int128)whole * ppm / 1000000);
}

/* Lowers the target as far as the budget goes; *best: the choices for the lowest peak. */
static enum gc_status bisect(struct recomputing *recomputing, const struct draft *first,
                             uint64_t peak, struct chosen *best)
{
    uint64_t high = peak;
    uint64_t low = 0;
    enum gc_status status = GC_OK;
    for (unsigned n = 0; n < TARGET_ROUNDS && status == GC_OK && !recomputing->is_stopped &&
                         high - low > peak / TARGET_DIVISOR;
         n++) {
        struct gc_region scratch;
        struct chosen chosen = {.count = 0};
        uint64_t reached;
        recomputing->target = low + (high - low) / 2;
        gc_region_init(&scratch, SCRATCH_BYTES_MAX);
        status = reach(recomputing, &scratch, first, &chosen, &reached);
        if (status == GC_OK && reached > recomputing->target)
            low = recomputing->target;
        if (status == GC_OK && reached < high) {
            high = reached;
            best->count = chosen.count;
            best->choices = copy_list(recomputing->region, chosen.choices, chosen.count, 0,
                                      sizeof(*chosen.choices));
            status = best->choices != NULL ? GC_OK : GC_NO_HOST_MEMORY;
        }
        gc_region_fini(&scratch);
    }
    return status;
}

/* Makes the choices once more, in the region of the result. */
static enum gc_status repeat(const struct recomputing *recomputing, const struct chosen *chosen,
                             struct draft *draft)
{
    const struct draft first = *draft;
    if (!copy_draft(recomputing, recomputing->region, &first, chosen->count, draft))
        return GC_NO_HOST_MEMORY;
    for (uint32_t i = 0; i < chosen->count; i++) {
        struct view view;
        enum gc_status status = open_view(recomputing, draft, &view);
        if (status == GC_OK &&
            !apply(recomputing, recomputing->region, draft, &view, &chosen->choices[i]))
            status = GC_NO_HOST_MEMORY;
        close_view(&view);
        if (status != GC_OK)
            return status;
    }
    return GC_OK;
}

enum gc_status gc_schedule_recompute(struct gc_region *region,
                                     const struct gc_lifetimes_rules *rules,
                                     const struct gc_schedule_options *options,
                                     struct gc_schedule *schedule)
{
    struct recomputing recomputing = {
        .region = region, .rules = rules, .options = options, .output_max = 1};
    const uint32_t node_count = schedule->graph.node_count;
    struct draft draft;
    struct chosen best = {.count = 0};
    uint64_t peak = 0;
    enum gc_status status = begin_draft(&recomputing, schedule, &draft);
    if (status == GC_OK)
        status = add_work(&recomputing, schedule, &draft, &peak);
    recomputing.budget.operations = part_of(schedule->work.operations, options->budget_ppm);
    recomputing.budget.bytes = part_of(schedule->work.bytes, options->budget_ppm);
    if (status == GC_OK)
        status = bisect(&recomputing, &draft, peak, &best);
    if (status == GC_OK)
        status = repeat(&recomputing, &best, &draft);
    if (status != GC_OK)
        return status;
    schedule->graph = draft.graph;
    schedule->copy_of = draft.copy_of;
    schedule->repeat_count = draft.graph.node_count - node_count;
    schedule->extra = draft.extra;
    return gc_schedule_peak(&schedule->graph, rules, &schedule->after_bytes);
}
