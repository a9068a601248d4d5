/* Decides which values share a buffer, and the lifetime of each buffer.
 *
 * Three passes over the events: views, which always share; uses; then in-place results and the
 * results of branches and loops, which need the last use of all views. Groups are union-find trees;
 * the root is the value made first. */
#include "core/planner/life.h"

#include <string.h>

uint32_t gc_life_root(struct gc_life *life, uint32_t value)
{
    uint32_t root = value;
    while (life->values[root].parent != root)
        root = life->values[root].parent;
    while (life->values[value].parent != root) {
        const uint32_t next = life->values[value].parent;
        life->values[value].parent = root;
        value = next;
    }
    return root;
}

static struct gc_life_value *planned(struct gc_life *life, uint32_t value)
{
    return value != GC_GRAPH_NONE && life->values[value].is_planned ? &life->values[value] : NULL;
}

/* GC_LIFE_NEVER, a step not set yet, is the maximum for earlier() and the minimum for later(). */
static uint32_t earlier(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static uint32_t later(uint32_t a, uint32_t b)
{
    if (a == GC_LIFE_NEVER || b == GC_LIFE_NEVER)
        return a == GC_LIFE_NEVER ? b : a;
    return a > b ? a : b;
}

/* Merges `value`, a root, into the group of `root`. */
static void unite(struct gc_life *life, uint32_t root, uint32_t value, enum gc_life_share share)
{
    struct gc_life_value *to = &life->values[root];
    struct gc_life_value *from = &life->values[value];
    from->parent = root;
    from->share = (uint8_t)share;
    if (to->role == GC_LIFE_ACTIVATION)
        to->role = from->role;
    if (from->bytes > to->bytes)
        to->bytes = from->bytes;
    to->group_made = earlier(to->group_made, from->group_made);
    to->group_last = later(to->group_last, from->group_last);
    to->first_use = earlier(to->first_use, from->first_use);
    if (from->held_until > to->held_until) {
        to->held_until = from->held_until;
        to->held_for = from->held_for;
    }
}

/* ---- views ---- */

/* An output is never a view of a buffer that the model's caller owns. */
static void view(struct gc_life *life, uint32_t output, uint32_t input)
{
    const struct gc_life_value *to = planned(life, input);
    const struct gc_life_value *from = planned(life, output);
    if (to == NULL || from == NULL || from->parent != output)
        return;
    if (to->is_known && from->is_known && to->own_bytes != from->own_bytes)
        return;
    const uint32_t root = gc_life_root(life, input);
    const enum gc_life_role role = (enum gc_life_role)life->values[root].role;
    if (root == output ||
        (from->role == GC_LIFE_OUTPUT && (role == GC_LIFE_WEIGHT || role == GC_LIFE_INPUT)))
        return;
    unite(life, root, output, GC_LIFE_VIEW);
}

static void find_views(struct gc_life *life, const struct gc_life_event *event)
{
    const struct gc_graph_node *node = &life->graph->nodes[event->node];
    if (event->kind == GC_LIFE_CLOSE && gc_life_folded_branch(life, event->node) == event->scope) {
        const struct gc_graph_scope *scope = &life->graph->scopes[event->scope];
        for (uint32_t i = 0; i < node->output_count && i < scope->output_count; i++)
            view(life, node->outputs[i], scope->outputs[i]);
    } else if (event->kind != GC_LIFE_OPEN && event->kind != GC_LIFE_CLOSE &&
               gc_graph_node_memory(node) == GC_OP_VIEW && node->input_count > 0 &&
               node->output_count > 0) {
        view(life, node->outputs[0], node->inputs[0]);
    }
}

/* ---- uses ---- */

/* A value made outside a loop and read in it lives until the loop's last iteration. */
static void extend(const struct gc_life *life, uint32_t scope, uint32_t made, uint32_t *first,
                   uint32_t *last)
{
    for (; scope != 0; scope = life->graph->scopes[scope].parent) {
        const struct gc_life_scope *around = &life->scopes[scope];
        if (!around->is_loop)
            continue;
        if (made >= around->begin && made <= around->end)
            return;
        *first = earlier(*first, around->begin);
        *last = later(*last, around->end);
    }
}

static void use(struct gc_life *life, uint32_t index, uint32_t step, uint32_t scope)
{
    struct gc_life_value *value = planned(life, index);
    uint32_t first = step;
    uint32_t last = step;
    if (value == NULL)
        return;
    extend(life, scope, value->made, &first, &last);
    value->last = later(value->last, last);
    value->first_use = earlier(value->first_use, first);
    struct gc_life_value *root = &life->values[gc_life_root(life, index)];
    first = last = step;
    extend(life, scope, root->group_made, &first, &last);
    root->group_last = later(root->group_last, last);
    root->first_use = earlier(root->first_use, first);
}

static void use_list(struct gc_life *life, const uint32_t *list, uint32_t count, uint32_t step,
                     uint32_t scope)
{
    for (uint32_t i = 0; i < count; i++)
        use(life, list[i], step, scope);
}

static void find_uses(struct gc_life *life, const struct gc_life_event *event)
{
    const struct gc_graph_node *node = &life->graph->nodes[event->node];
    if (event->kind == GC_LIFE_FOLDED)
        return;
    if (event->kind != GC_LIFE_CLOSE) {
        use_list(life, node->inputs, node->input_count, event->step, node->scope);
        return;
    }
    const struct gc_graph_scope *scope = &life->graph->scopes[event->scope];
    use_list(life, scope->outputs, scope->output_count, event->step, event->scope);
    if (gc_life_is_if(node) || strcmp(node->op, "Loop") == 0)
        return;
    /* Each iteration reads a slice of the scanned inputs. */
    const struct gc_life_carry carry = gc_life_carried(life, event->node, event->scope);
    const uint32_t skipped = carry.node_input + carry.count;
    use_list(life, node->inputs + skipped, gc_life_less(node->input_count, skipped), event->step,
             node->scope);
}

static void use_outputs(struct gc_life *life)
{
    const struct gc_graph_scope *main = &life->graph->scopes[0];
    const uint32_t end = gc_life_less(life->step_count, 1);
    use_list(life, main->outputs, main->output_count, end, 0);
}

/* ---- in place ---- */

static bool is_same_size(const struct gc_life *life, uint32_t a, uint32_t b)
{
    const struct gc_life_value *one = &life->values[a];
    const struct gc_life_value *other = &life->values[b];
    return one->is_known && other->is_known && one->own_bytes == other->own_bytes;
}

static bool is_same_width(const struct gc_life *life, uint32_t a, uint32_t b)
{
    const struct gc_dtype_info *one = gc_dtype_get_info(life->graph->values[a].type.dtype);
    const struct gc_dtype_info *other = gc_dtype_get_info(life->graph->values[b].type.dtype);
    return one->block_bytes == other->block_bytes && one->block_elements == other->block_elements;
}

/* May `taker`, a root, reuse the buffer of `value`, whose last read is in `step`? */
static bool is_dying(struct gc_life *life, uint32_t value, uint32_t step, uint32_t taker)
{
    const struct gc_life_value *root = &life->values[gc_life_root(life, value)];
    if (root->role != GC_LIFE_ACTIVATION || root->group_last != step ||
        root->bytes != life->values[taker].bytes)
        return false;
    return root->held_until <= step ||
           (root->held_for != GC_GRAPH_NONE && gc_life_root(life, root->held_for) == taker);
}

static void reuse_input(struct gc_life *life, const struct gc_life_event *event)
{
    const struct gc_graph_node *node = &life->graph->nodes[event->node];
    const uint32_t output = node->output_count > 0 ? node->outputs[0] : GC_GRAPH_NONE;
    const struct gc_life_value *taker = planned(life, output);
    if (life->rules->no_in_place || taker == NULL || taker->parent != output ||
        (taker->role != GC_LIFE_ACTIVATION && taker->role != GC_LIFE_OUTPUT) ||
        gc_graph_node_memory(node) != GC_OP_INPLACE)
        return;
    for (uint32_t i = 0; i < node->input_count; i++) {
        const uint32_t input = node->inputs[i];
        if (planned(life, input) != NULL && is_same_size(life, input, output) &&
            is_same_width(life, input, output) && is_dying(life, input, event->step, output)) {
            unite(life, gc_life_root(life, input), output, GC_LIFE_IN_PLACE);
            return;
        }
    }
}

/* ---- loops ---- */

/* A carried value keeps its buffer across iterations. Its initial value is used in place if nothing
 * else needs it. */
static void begin_loop(struct gc_life *life, const struct gc_life_event *event)
{
    const struct gc_graph_node *node = &life->graph->nodes[event->node];
    const uint32_t body = event->scope;
    const struct gc_graph_scope *scope = &life->graph->scopes[body];
    const struct gc_life_carry carry = gc_life_carried(life, event->node, body);
    for (uint32_t i = 0; i < carry.count; i++) {
        const uint32_t inside = scope->inputs[carry.body_input + i];
        const uint32_t first = node->inputs[carry.node_input + i];
        struct gc_life_value *value = planned(life, inside);
        if (value == NULL)
            continue;
        value->held_until = life->scopes[body].end;
        value->held_for = scope->outputs[carry.body_output + i];
        if (!life->rules->no_in_place && planned(life, first) != NULL &&
            is_same_size(life, first, inside) && is_dying(life, first, event->step, inside))
            unite(life, gc_life_root(life, first), inside, GC_LIFE_IN_PLACE);
    }
}

static enum gc_status add_spare(struct gc_life *life, uint32_t step, uint64_t bytes)
{
    if (life->spare_count == life->spare_room) {
        const uint64_t room = life->spare_room * UINT64_C(2) + 8;
        struct gc_life_spare *spares = gc_region_grow(
            life->region, life->spares, life->spare_room * sizeof(*spares), room * sizeof(*spares));
        if (spares == NULL)
            return GC_NO_HOST_MEMORY;
        life->spares = spares;
        life->spare_room = (uint32_t)room;
    }
    life->spares[life->spare_count++] = (struct gc_life_spare){step, bytes};
    return GC_OK;
}

/* After the last iteration the loop's output is the carried value's buffer. */
static enum gc_status end_loop(struct gc_life *life, const struct gc_life_event *event)
{
    const struct gc_graph_node *node = &life->graph->nodes[event->node];
    const struct gc_graph_scope *scope = &life->graph->scopes[event->scope];
    const struct gc_life_carry carry = gc_life_carried(life, event->node, event->scope);
    for (uint32_t i = 0; i < carry.count; i++) {
        const uint32_t inside = scope->inputs[carry.body_input + i];
        const uint32_t written = scope->outputs[carry.body_output + i];
        const uint32_t result = node->outputs[i];
        if (planned(life, inside) == NULL)
            continue;
        const uint32_t root = gc_life_root(life, inside);
        if (planned(life, written) != NULL) {
            const uint32_t from = gc_life_root(life, written);
            if (from != root && life->values[from].held_until == event->step &&
                add_spare(life, event->step, life->values[written].own_bytes) != GC_OK)
                return GC_NO_HOST_MEMORY;
        }
        if (planned(life, result) != NULL && life->values[result].parent == result &&
            result != root && is_same_size(life, inside, result) &&
            life->values[root].role == GC_LIFE_ACTIVATION)
            unite(life, root, result, GC_LIFE_JOINED);
    }
    return GC_OK;
}

/* ---- branches ---- */

/* A result made by the branch and needed by nothing else is computed in the node's output buffer.
 * Other results are copied there. */
static void end_branch(struct gc_life *life, const struct gc_life_event *event)
{
    const struct gc_graph_node *node = &life->graph->nodes[event->node];
    const struct gc_graph_scope *scope = &life->graph->scopes[event->scope];
    for (uint32_t i = 0; i < node->output_count && i < scope->output_count; i++) {
        const uint32_t result = node->outputs[i];
        const uint32_t made = scope->outputs[i];
        if (planned(life, result) == NULL || planned(life, made) == NULL ||
            !is_same_size(life, result, made))
            continue;
        const uint32_t to = gc_life_root(life, result);
        const uint32_t from = gc_life_root(life, made);
        struct gc_life_value *root = &life->values[from];
        if (to == from || root->role != GC_LIFE_ACTIVATION || root->group_last != event->step ||
            root->held_until > event->step || root->joined_at == event->step ||
            life->values[to].joined_at == event->step || root->bytes != life->values[to].bytes ||
            root->group_made <= life->scopes[event->scope].begin)
            continue;
        unite(life, to, from, GC_LIFE_JOINED);
        life->values[to].joined_at = event->step;
    }
}

/* ---- the whole ---- */

static enum gc_status join(struct gc_life *life, const struct gc_life_event *event)
{
    const bool is_if = gc_life_is_if(&life->graph->nodes[event->node]);
    if (event->kind == GC_LIFE_RUN)
        reuse_input(life, event);
    else if (event->kind == GC_LIFE_OPEN && !is_if)
        begin_loop(life, event);
    else if (event->kind == GC_LIFE_CLOSE && !is_if)
        return end_loop(life, event);
    else if (event->kind == GC_LIFE_CLOSE &&
             gc_life_folded_branch(life, event->node) == GC_GRAPH_NONE)
        end_branch(life, event);
    return GC_OK;
}

/* A value neither made nor present at the start is in a dead branch: it gets no buffer. */
static void begin_values(struct gc_life *life)
{
    for (uint32_t i = 0; i < life->graph->value_count; i++) {
        struct gc_life_value *value = &life->values[i];
        if (value->role == GC_LIFE_INPUT)
            value->made = 0;
        if (value->role != GC_LIFE_WEIGHT && value->made == GC_LIFE_NEVER)
            value->is_planned = false;
        value->group_made = value->made;
    }
}

/* A value without readers lives in the step that makes it. */
static void end_values(struct gc_life *life)
{
    for (uint32_t i = 0; i < life->graph->value_count; i++) {
        struct gc_life_value *value = &life->values[i];
        if (value->role == GC_LIFE_WEIGHT && value->made == GC_LIFE_NEVER) {
            value->made = value->first_use;
            if (value->parent == i && value->group_last == GC_LIFE_NEVER)
                value->is_planned = false;
        }
        if (value->last == GC_LIFE_NEVER)
            value->last = value->made;
        if (value->parent == i && value->group_made == GC_LIFE_NEVER)
            value->group_made = value->first_use;
        if (value->parent == i && value->group_last == GC_LIFE_NEVER)
            value->group_last = value->group_made;
    }
}

enum gc_status gc_life_join(struct gc_life *life)
{
    begin_values(life);
    for (uint32_t i = 0; i < life->event_count; i++)
        find_views(life, &life->events[i]);
    for (uint32_t i = 0; i < life->event_count; i++)
        find_uses(life, &life->events[i]);
    use_outputs(life);
    end_values(life);
    for (uint32_t i = 0; i < life->event_count; i++) {
        const enum gc_status status = join(life, &life->events[i]);
        if (status != GC_OK)
            return status;
    }
    return GC_OK;
}
