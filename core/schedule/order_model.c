#include "core/schedule/order_model.h"

#define NONE UINT32_MAX

struct maker {
    struct gc_region *region;
    const struct gc_graph *graph;
    const struct gc_lifetimes_rules *rules;
    const struct gc_lifetimes *lifetimes;
    struct gc_order_model *model;
    uint32_t scope;
    uint32_t *unit_of;   /* by node; NONE: not a unit */
    uint32_t *buffer_of; /* by value: the lifetimes' buffer; NONE */
    uint64_t *own_bytes; /* by value: of its tensor */
    bool *is_known;      /* by value */
    uint32_t *seen;      /* by buffer and by node: the last unit + 1 that listed it */
    uint32_t *node_seen;
    uint32_t *item_of;   /* by the lifetimes' buffer: the model's; NONE: left out */
    uint32_t *stack;     /* of nodes or units */
    uint32_t *unit_seen; /* by unit: the last unit + 1 whose search reached it */
    bool *is_absorbed;   /* by the model's buffer */
};

/* ---- units ---- */

static uint32_t main_node(const struct maker *maker, uint32_t node)
{
    const struct gc_graph *graph = maker->graph;
    while (node != GC_GRAPH_NONE && graph->nodes[node].scope != maker->scope) {
        const uint32_t scope = graph->nodes[node].scope;
        node = scope == 0 ? GC_GRAPH_NONE : graph->scopes[scope].node;
    }
    return node;
}

static bool find_units(struct maker *maker)
{
    const struct gc_graph *graph = maker->graph;
    const struct gc_graph_scope *scope = &graph->scopes[maker->scope];
    struct gc_order_model *model = maker->model;
    maker->unit_of = gc_region_alloc(maker->region, graph->node_count * sizeof(uint32_t));
    model->nodes = gc_region_alloc(maker->region, scope->node_count * sizeof(uint32_t));
    if (maker->unit_of == NULL || model->nodes == NULL)
        return false;
    for (uint32_t i = 0; i < graph->node_count; i++)
        maker->unit_of[i] = NONE;
    for (uint32_t i = 0; i < maker->lifetimes->step_count; i++) {
        const uint32_t node = maker->lifetimes->step_nodes[i];
        if (graph->nodes[node].scope == maker->scope)
            maker->unit_of[node] = 0;
    }
    for (uint32_t i = 0; i < scope->node_count; i++) {
        if (maker->unit_of[scope->nodes[i]] != NONE) {
            maker->unit_of[scope->nodes[i]] = model->unit_count;
            model->nodes[model->unit_count++] = scope->nodes[i];
        }
    }
    return true;
}

/* ---- what a node reads and makes, with its inner graphs ---- */

typedef bool visit_value(struct maker *maker, void *argument, uint32_t value);

static bool visit_list(struct maker *maker, const uint32_t *list, uint32_t count,
                       visit_value *visit, void *argument)
{
    for (uint32_t i = 0; i < count; i++) {
        if (list[i] != GC_GRAPH_NONE && !visit(maker, argument, list[i]))
            return false;
    }
    return true;
}

/* Calls `visit` for each value that the node, or a node of its inner graphs, reads or makes. */
static bool visit_node(struct maker *maker, uint32_t node, visit_value *visit, void *argument)
{
    uint32_t depth = 1;
    maker->stack[0] = node;
    while (depth > 0) {
        const struct gc_graph_node *at = &maker->graph->nodes[maker->stack[--depth]];
        if (!visit_list(maker, at->inputs, at->input_count, visit, argument) ||
            !visit_list(maker, at->outputs, at->output_count, visit, argument))
            return false;
        for (uint32_t i = 0; i < at->attribute_count; i++) {
            if (at->attributes[i].kind != GC_ATTRIBUTE_GRAPH)
                continue;
            const struct gc_graph_scope *inner = &maker->graph->scopes[at->attributes[i].scope];
            if (!visit_list(maker, inner->inputs, inner->input_count, visit, argument) ||
                !visit_list(maker, inner->outputs, inner->output_count, visit, argument))
                return false;
            for (uint32_t j = 0; j < inner->node_count && !inner->is_dead; j++)
                maker->stack[depth++] = inner->nodes[j];
        }
    }
    return true;
}

/* ---- growing lists ---- */

struct list {
    uint32_t *items;
    uint64_t count;
    uint64_t room;
};

static bool add(struct gc_region *region, struct list *list, uint32_t item)
{
    if (list->count == list->room) {
        const uint64_t room = list->room * 2 + 64;
        list->items = gc_region_grow(region, list->items, list->room * sizeof(uint32_t),
                                     room * sizeof(uint32_t));
        if (list->items == NULL)
            return false;
        list->room = room;
    }
    list->items[list->count++] = item;
    return true;
}

/* Its items, never NULL; false if memory runs out. */
static bool end_list(struct gc_region *region, const struct list *list, uint32_t **items)
{
    *items = list->items != NULL ? list->items : gc_region_alloc(region, sizeof(uint32_t));
    return *items != NULL;
}

static uint32_t *begin_lists(struct gc_region *region, uint32_t count)
{
    return gc_region_alloc(region, ((uint64_t)count + 1) * sizeof(uint32_t));
}

/* ---- buffers ---- */

struct touching {
    struct list list;
    uint32_t unit;
};

static bool touch(struct maker *maker, void *argument, uint32_t value)
{
    struct touching *touching = argument;
    const uint32_t buffer = maker->buffer_of[value];
    if (buffer == NONE || maker->seen[buffer] == touching->unit + 1)
        return true;
    maker->seen[buffer] = touching->unit + 1;
    return add(maker->region, &touching->list, buffer);
}

/* The lifetimes' buffers that each unit touches. */
static bool find_touches(struct maker *maker)
{
    struct gc_order_model *model = maker->model;
    struct touching touching = {.list = {NULL, 0, 0}};
    model->touch.first = begin_lists(maker->region, model->unit_count);
    if (model->touch.first == NULL)
        return false;
    for (uint32_t i = 0; i < model->unit_count; i++) {
        touching.unit = i;
        if (!visit_node(maker, model->nodes[i], touch, &touching))
            return false;
        model->touch.first[i + 1] = (uint32_t)touching.list.count;
    }
    return end_list(maker->region, &touching.list, &model->touch.items);
}

/* Leaves out the buffers of the base, those that a node outside the scope touches, and those that
 * live within one unit: they add to its own bytes. */
static bool choose_buffers(struct maker *maker)
{
    const struct gc_lifetimes *lifetimes = maker->lifetimes;
    struct gc_order_model *model = maker->model;
    const uint64_t count = lifetimes->count;
    maker->item_of = gc_region_alloc(maker->region, count * sizeof(uint32_t));
    model->bytes = gc_region_alloc(maker->region, count * sizeof(uint64_t));
    model->touch_count = gc_region_alloc(maker->region, count * sizeof(uint32_t));
    model->is_lasting = gc_region_alloc(maker->region, count);
    model->is_early = gc_region_alloc(maker->region, count);
    if (maker->item_of == NULL || model->bytes == NULL || model->touch_count == NULL ||
        model->is_lasting == NULL || model->is_early == NULL)
        return false;
    for (uint64_t i = 0; i < count; i++)
        maker->item_of[i] = i < lifetimes->base_count ? NONE : 0;
    for (uint32_t i = 0; i < maker->graph->node_count; i++) {
        const struct gc_graph_node *node = &maker->graph->nodes[i];
        if (main_node(maker, i) != GC_GRAPH_NONE)
            continue;
        for (uint32_t j = 0; j < node->input_count + node->output_count; j++) {
            const uint32_t value =
                j < node->input_count ? node->inputs[j] : node->outputs[j - node->input_count];
            if (value != GC_GRAPH_NONE && maker->buffer_of[value] != NONE)
                maker->item_of[maker->buffer_of[value]] = NONE;
        }
    }
    for (uint64_t i = lifetimes->base_count; i < count; i++) {
        if (maker->item_of[i] == NONE)
            continue;
        model->bytes[model->buffer_count] = lifetimes->buffers[i].bytes;
        maker->item_of[i] = model->buffer_count++;
    }
    return true;
}

/* The scope's inputs are there from the start, its outputs to the end. */
static void set_ends(struct maker *maker)
{
    const struct gc_graph_scope *scope = &maker->graph->scopes[maker->scope];
    struct gc_order_model *model = maker->model;
    for (uint32_t i = 0; i < scope->input_count + scope->output_count; i++) {
        const bool is_input = i < scope->input_count;
        const uint32_t value = is_input ? scope->inputs[i] : scope->outputs[i - scope->input_count];
        const uint32_t buffer = value == GC_GRAPH_NONE ? NONE : maker->buffer_of[value];
        if (buffer == NONE || maker->item_of[buffer] == NONE)
            continue;
        if (!is_input)
            model->is_lasting[maker->item_of[buffer]] = true;
        else if (!maker->graph->values[value].is_initializer)
            model->is_early[maker->item_of[buffer]] = true;
    }
}

/* Renames the touched buffers to the model's. */
static void rename_touches(struct maker *maker)
{
    struct gc_order_model *model = maker->model;
    uint32_t to = 0;
    uint32_t from = 0;
    for (uint32_t i = 0; i < model->unit_count; i++) {
        for (; from < model->touch.first[i + 1]; from++) {
            const uint32_t item = maker->item_of[model->touch.items[from]];
            if (item == NONE)
                continue;
            model->touch.items[to++] = item;
            model->touch_count[item]++;
        }
        model->touch.first[i + 1] = to;
    }
}

/* The bytes that live only while one unit runs: the peak, in the graph's order, of the buffers that
 * its inner graphs alone touch. They leave the model. */
static bool find_inner(struct maker *maker)
{
    const struct gc_lifetimes *lifetimes = maker->lifetimes;
    struct gc_order_model *model = maker->model;
    const uint64_t steps = (uint64_t)lifetimes->step_count + 1;
    uint64_t *changes = gc_region_alloc(maker->region, steps * sizeof(*changes));
    uint64_t live = 0;
    model->inner = gc_region_alloc(maker->region, model->unit_count * sizeof(uint64_t));
    if (changes == NULL || model->inner == NULL)
        return false;
    for (uint32_t i = lifetimes->base_count; i < lifetimes->count; i++) {
        const struct gc_placement_buffer *buffer = &lifetimes->buffers[i];
        const uint32_t item = maker->item_of[i];
        const uint32_t first = main_node(maker, lifetimes->step_nodes[buffer->lower]);
        const uint32_t last = main_node(maker, lifetimes->step_nodes[buffer->upper - 1]);
        if (item == NONE || model->touch_count[item] > 1 || first == GC_GRAPH_NONE ||
            first != last || model->is_lasting[item] || model->is_early[item])
            continue;
        changes[buffer->lower] += buffer->bytes;
        changes[buffer->upper] -= buffer->bytes;
        model->bytes[item] = 0;
    }
    for (uint32_t i = 0; i < lifetimes->step_count; i++) {
        const uint32_t node = main_node(maker, lifetimes->step_nodes[i]);
        live += changes[i];
        if (node == GC_GRAPH_NONE)
            continue;
        if (live > model->inner[maker->unit_of[node]])
            model->inner[maker->unit_of[node]] = live;
        if (maker->graph->nodes[lifetimes->step_nodes[i]].scope != maker->scope)
            model->is_exact = false; /* the inner order's part */
    }
    return true;
}

/* ---- precedence ---- */

struct ordering {
    struct list list;
    uint32_t unit;
    uint32_t *folded; /* nodes without steps that are still to be looked through */
    uint32_t folded_count;
};

static bool need(struct maker *maker, void *argument, uint32_t value)
{
    struct ordering *ordering = argument;
    const uint32_t producer = main_node(maker, maker->graph->values[value].producer);
    if (producer == GC_GRAPH_NONE || maker->node_seen[producer] == ordering->unit + 1)
        return true;
    maker->node_seen[producer] = ordering->unit + 1;
    if (maker->unit_of[producer] == NONE) {
        ordering->folded[ordering->folded_count++] = producer;
        return true;
    }
    return maker->unit_of[producer] == ordering->unit ||
           add(maker->region, &ordering->list, maker->unit_of[producer]);
}

/* A unit needs the units that produce its inputs, directly or through nodes that do not run. */
static bool find_before(struct maker *maker)
{
    struct gc_order_model *model = maker->model;
    struct ordering ordering = {.list = {NULL, 0, 0}};
    ordering.folded = gc_region_alloc(maker->region, maker->graph->node_count * sizeof(uint32_t));
    model->before.first = begin_lists(maker->region, model->unit_count);
    if (ordering.folded == NULL || model->before.first == NULL)
        return false;
    for (uint32_t i = 0; i < model->unit_count; i++) {
        ordering.unit = i;
        ordering.folded_count = 0;
        if (!visit_node(maker, model->nodes[i], need, &ordering))
            return false;
        while (ordering.folded_count > 0) {
            const uint32_t node = ordering.folded[--ordering.folded_count];
            if (!visit_node(maker, node, need, &ordering))
                return false;
        }
        model->before.first[i + 1] = (uint32_t)ordering.list.count;
    }
    return end_list(maker->region, &ordering.list, &model->before.items);
}

static bool invert(struct gc_region *region, uint32_t count, const struct gc_order_lists *from,
                   struct gc_order_lists *to)
{
    const uint32_t all = from->first[count];
    to->first = begin_lists(region, count + 1);
    to->items = gc_region_alloc(region, (uint64_t)all * sizeof(uint32_t));
    if (to->first == NULL || to->items == NULL)
        return false;
    for (uint32_t i = 0; i < all; i++)
        to->first[from->items[i] + 2]++;
    for (uint32_t i = 0; i < count; i++)
        to->first[i + 2] += to->first[i + 1];
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t j = from->first[i]; j < from->first[i + 1]; j++)
            to->items[to->first[from->items[j] + 1]++] = i;
    }
    return true;
}

/* ---- in place ---- */

static bool may_take(const struct maker *maker, uint32_t output, uint32_t input)
{
    const struct gc_order_model *model = maker->model;
    const uint32_t from = maker->buffer_of[input];
    const uint32_t to = maker->buffer_of[output];
    if (from == NONE || from == to || maker->item_of[from] == NONE ||
        maker->lifetimes->roles[from] != GC_LIFE_ACTIVATION || !maker->is_known[input] ||
        !maker->is_known[output] || maker->own_bytes[input] != maker->own_bytes[output] ||
        maker->lifetimes->buffers[from].bytes != maker->lifetimes->buffers[to].bytes ||
        model->is_lasting[maker->item_of[from]])
        return false;
    const struct gc_dtype_info *one = gc_dtype_get_info(maker->graph->values[input].type.dtype);
    const struct gc_dtype_info *other = gc_dtype_get_info(maker->graph->values[output].type.dtype);
    return one->block_bytes == other->block_bytes && one->block_elements == other->block_elements;
}

static bool touches(const struct gc_order_model *model, uint32_t unit, uint32_t item)
{
    for (uint32_t i = model->touch.first[unit]; i < model->touch.first[unit + 1]; i++) {
        if (model->touch.items[i] == item)
            return true;
    }
    return false;
}

/* Whether every unit that touches the buffer runs before `unit` in any order: a path of such units
 * leads from each to it. */
static bool is_last_touch(const struct maker *maker, uint32_t item, uint32_t unit)
{
    const struct gc_order_model *model = maker->model;
    uint32_t reached = 1;
    uint32_t depth = 1;
    maker->stack[0] = unit;
    maker->unit_seen[unit] = unit + 1;
    while (depth > 0) {
        const uint32_t at = maker->stack[--depth];
        for (uint32_t i = model->before.first[at]; i < model->before.first[at + 1]; i++) {
            const uint32_t before = model->before.items[i];
            if (maker->unit_seen[before] == unit + 1 || !touches(model, before, item))
                continue;
            maker->unit_seen[before] = unit + 1;
            maker->stack[depth++] = before;
            reached++;
        }
    }
    return reached == model->touch_count[item];
}

/* The buffer of the output that may overwrite an input; NONE. */
static uint32_t taker_of(const struct maker *maker, const struct gc_graph_node *node)
{
    const uint32_t output = node->output_count > 0 ? node->outputs[0] : GC_GRAPH_NONE;
    if (maker->rules->no_in_place || gc_graph_node_memory(node) != GC_OP_INPLACE ||
        output == GC_GRAPH_NONE)
        return NONE;
    return maker->buffer_of[output];
}

/* What an output of the model, or its like, is sure to take over is the caller's memory, too: it
 * leaves the model. Where that depends on the order the bytes count: an upper bound. */
static void absorb(struct maker *maker, uint32_t unit)
{
    struct gc_order_model *model = maker->model;
    const struct gc_graph_node *node = &maker->graph->nodes[model->nodes[unit]];
    const uint32_t taker = taker_of(maker, node);
    if (taker == NONE ||
        (taker >= maker->lifetimes->base_count &&
         (maker->item_of[taker] == NONE || !maker->is_absorbed[maker->item_of[taker]])))
        return;
    for (uint32_t i = 0; i < node->input_count; i++) {
        const uint32_t input = node->inputs[i];
        if (input == GC_GRAPH_NONE || !may_take(maker, node->outputs[0], input))
            continue;
        const uint32_t item = maker->item_of[maker->buffer_of[input]];
        if (!is_last_touch(maker, item, unit)) {
            model->is_exact = false;
            return;
        }
        maker->is_absorbed[item] = true;
        model->bytes[item] = 0;
        return;
    }
}

/* The buffers that the first output of a unit may take over. */
static bool find_takes(struct maker *maker)
{
    struct gc_order_model *model = maker->model;
    struct list list = {NULL, 0, 0};
    model->take.first = begin_lists(maker->region, model->unit_count);
    maker->unit_seen =
        gc_region_alloc(maker->region, (uint64_t)model->unit_count * sizeof(uint32_t));
    maker->is_absorbed = gc_region_alloc(maker->region, model->buffer_count);
    if (model->take.first == NULL || maker->unit_seen == NULL || maker->is_absorbed == NULL)
        return false;
    for (uint32_t unit = model->unit_count; unit-- > 0;)
        absorb(maker, unit);
    for (uint32_t unit = 0; unit < model->unit_count; unit++) {
        const struct gc_graph_node *node = &maker->graph->nodes[model->nodes[unit]];
        const uint32_t taker = taker_of(maker, node);
        const bool takes = taker != NONE && maker->item_of[taker] != NONE &&
                           model->bytes[maker->item_of[taker]] > 0;
        if (taker >= maker->lifetimes->base_count && taker != NONE && !takes &&
            (maker->item_of[taker] == NONE || !maker->is_absorbed[maker->item_of[taker]]))
            model->is_exact = false;
        for (uint32_t i = 0; takes && i < node->input_count; i++) {
            const uint32_t input = node->inputs[i];
            if (input != GC_GRAPH_NONE && may_take(maker, node->outputs[0], input) &&
                !add(maker->region, &list, maker->item_of[maker->buffer_of[input]]))
                return false;
        }
        model->take.first[unit + 1] = (uint32_t)list.count;
    }
    return end_list(maker->region, &list, &model->take.items);
}

/* ---- the whole ---- */

static bool prepare(struct maker *maker)
{
    const struct gc_graph *graph = maker->graph;
    const uint64_t values = graph->value_count;
    maker->buffer_of = gc_region_alloc(maker->region, values * sizeof(uint32_t));
    maker->own_bytes = gc_region_alloc(maker->region, values * sizeof(uint64_t));
    maker->is_known = gc_region_alloc(maker->region, values);
    maker->seen = gc_region_alloc(maker->region, maker->lifetimes->count * sizeof(uint32_t));
    maker->node_seen = gc_region_alloc(maker->region, graph->node_count * sizeof(uint32_t));
    maker->stack = gc_region_alloc(maker->region, (graph->node_count + UINT64_C(1)) * 4);
    if (maker->buffer_of == NULL || maker->own_bytes == NULL || maker->is_known == NULL ||
        maker->seen == NULL || maker->node_seen == NULL || maker->stack == NULL)
        return false;
    for (uint64_t i = 0; i < values; i++)
        maker->buffer_of[i] = NONE;
    for (uint32_t i = 0; i < maker->lifetimes->tensor_count; i++) {
        const struct gc_life_tensor *tensor = &maker->lifetimes->tensors[i];
        maker->buffer_of[tensor->value] = tensor->buffer;
        maker->own_bytes[tensor->value] = tensor->bytes;
        maker->is_known[tensor->value] = tensor->is_known;
    }
    return true;
}

enum gc_status gc_order_model_make(struct gc_region *region, const struct gc_graph *graph,
                                   uint32_t scope, const struct gc_lifetimes_rules *rules,
                                   const struct gc_lifetimes *lifetimes,
                                   struct gc_order_model *model)
{
    struct maker maker = {.region = region,
                          .graph = graph,
                          .rules = rules,
                          .lifetimes = lifetimes,
                          .model = model,
                          .scope = scope};
    *model = (struct gc_order_model){.is_exact = true};
    if (!prepare(&maker) || !find_units(&maker) || !find_touches(&maker) || !choose_buffers(&maker))
        return GC_NO_HOST_MEMORY;
    rename_touches(&maker);
    set_ends(&maker);
    if (!find_inner(&maker) || !find_before(&maker) ||
        !invert(region, model->unit_count, &model->before, &model->after) || !find_takes(&maker))
        return GC_NO_HOST_MEMORY;
    return GC_OK;
}

/* ---- an execution ---- */

enum gc_status gc_order_run_init(struct gc_region *region, const struct gc_order_model *model,
                                 struct gc_order_run *run)
{
    *run = (struct gc_order_run){.model = model};
    run->touched = gc_region_alloc(region, (uint64_t)model->buffer_count * sizeof(uint32_t));
    run->awaited = gc_region_alloc(region, (uint64_t)model->unit_count * sizeof(uint32_t));
    if (run->touched == NULL || run->awaited == NULL)
        return GC_NO_HOST_MEMORY;
    for (uint32_t i = 0; i < model->unit_count; i++)
        run->awaited[i] = model->before.first[i + 1] - model->before.first[i];
    for (uint32_t i = 0; i < model->buffer_count; i++)
        run->live += model->is_early[i] ? model->bytes[i] : 0;
    return GC_OK;
}

/* Whether `unit` is the last that touches the buffer. */
static bool dies(const struct gc_order_run *run, uint32_t buffer)
{
    return run->touched[buffer] + 1 == run->model->touch_count[buffer] &&
           !run->model->is_lasting[buffer];
}

uint64_t gc_order_run_cost(const struct gc_order_run *run, uint32_t unit, uint64_t *after)
{
    const struct gc_order_model *model = run->model;
    uint64_t made = 0;
    uint64_t freed = 0;
    uint64_t taken = 0;
    for (uint32_t i = model->touch.first[unit]; i < model->touch.first[unit + 1]; i++) {
        const uint32_t buffer = model->touch.items[i];
        made += run->touched[buffer] == 0 && !model->is_early[buffer] ? model->bytes[buffer] : 0;
        freed += dies(run, buffer) ? model->bytes[buffer] : 0;
    }
    for (uint32_t i = model->take.first[unit]; i < model->take.first[unit + 1] && taken == 0; i++)
        taken = dies(run, model->take.items[i]) ? model->bytes[model->take.items[i]] : 0;
    *after = run->live + made - freed;
    return run->live + made - taken + model->inner[unit];
}

void gc_order_run_step(struct gc_order_run *run, uint32_t unit, uint64_t after)
{
    const struct gc_order_model *model = run->model;
    for (uint32_t i = model->touch.first[unit]; i < model->touch.first[unit + 1]; i++)
        run->touched[model->touch.items[i]]++;
    for (uint32_t i = model->after.first[unit]; i < model->after.first[unit + 1]; i++)
        run->awaited[model->after.items[i]]--;
    run->live = after;
}

void gc_order_run_back(struct gc_order_run *run, uint32_t unit, uint64_t before)
{
    const struct gc_order_model *model = run->model;
    for (uint32_t i = model->touch.first[unit]; i < model->touch.first[unit + 1]; i++)
        run->touched[model->touch.items[i]]--;
    for (uint32_t i = model->after.first[unit]; i < model->after.first[unit + 1]; i++)
        run->awaited[model->after.items[i]]++;
    run->live = before;
}
