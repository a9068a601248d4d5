#include "core/planner/lifetimes.h"

#include "core/base/bits.h"
#include "core/planner/life.h"

void gc_lifetimes_rules_init(struct gc_lifetimes_rules *rules)
{
    *rules = (struct gc_lifetimes_rules){
        .alignment = GC_LIFETIMES_ALIGNMENT,
        .keep = {[GC_LIFE_ACTIVATION] = GC_LIFE_USE},
    };
}

/* False if the result exceeds 64 bits. */
static bool round_up(uint64_t bytes, uint64_t alignment, uint64_t *rounded)
{
    const uint64_t rest = bytes % alignment;
    *rounded = bytes;
    return rest == 0 || gc_add_u64(bytes, alignment - rest, rounded);
}

/* ---- buffers ---- */

struct maker {
    struct gc_life *life;
    struct gc_lifetimes *made;
    uint32_t *of_root; /* buffer of a group, by its root */
    bool overflowed;
};

static bool is_left(const struct maker *maker, enum gc_life_role role)
{
    return maker->life->rules->keep[role] == GC_LIFE_LEAVE;
}

static void add_buffer(struct maker *maker, enum gc_life_role role, uint32_t owner, uint64_t lower,
                       uint64_t upper, uint64_t bytes)
{
    struct gc_lifetimes *made = maker->made;
    const uint64_t alignment = maker->life->rules->alignment;
    const uint32_t index = made->count++;
    struct gc_placement_buffer *buffer = &made->buffers[index];
    *buffer = (struct gc_placement_buffer){
        .lower = lower, .upper = upper, .alignment = alignment, .fixed = GC_PLACEMENT_FREE};
    made->roles[index] = (uint8_t)role;
    made->owners[index] = owner;
    made->role_count[role]++;
    if (!round_up(bytes, alignment, &buffer->bytes) ||
        !gc_add_u64(made->role_bytes[role], buffer->bytes, &made->role_bytes[role]))
        maker->overflowed = true;
}

/* Adds the buffers that live throughout: one role after the other, from offset 0. */
static void add_kept(struct maker *maker)
{
    static const enum gc_life_role order[] = {GC_LIFE_WEIGHT, GC_LIFE_INPUT, GC_LIFE_OUTPUT};
    const uint32_t end = maker->life->step_count > 0 ? maker->life->step_count : 1;
    struct gc_lifetimes *made = maker->made;
    for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++) {
        if (maker->life->rules->keep[order[i]] != GC_LIFE_KEEP)
            continue;
        for (uint32_t value = 0; value < maker->life->graph->value_count; value++) {
            const struct gc_life_value *root = &maker->life->values[value];
            if (!root->is_planned || root->parent != value || root->role != order[i])
                continue;
            maker->of_root[value] = made->count;
            add_buffer(maker, order[i], value, 0, end, root->bytes);
            struct gc_placement_buffer *buffer = &made->buffers[made->count - 1];
            buffer->fixed = made->base_bytes;
            if (!gc_add_u64(made->base_bytes, buffer->bytes, &made->base_bytes))
                maker->overflowed = true;
        }
    }
    made->base_count = made->count;
}

static void add_moving(struct maker *maker)
{
    const struct gc_life *life = maker->life;
    for (uint32_t value = 0; value < life->graph->value_count; value++) {
        const struct gc_life_value *root = &life->values[value];
        if (!root->is_planned || root->parent != value ||
            life->rules->keep[root->role] != GC_LIFE_USE)
            continue;
        uint64_t last = root->group_last;
        if (root->held_until > last)
            last = root->held_until;
        maker->of_root[value] = maker->made->count;
        add_buffer(maker, (enum gc_life_role)root->role, value, root->group_made, last + 1,
                   root->bytes);
    }
    for (uint32_t i = 0; i < life->spare_count; i++)
        add_buffer(maker, GC_LIFE_ACTIVATION, GC_GRAPH_NONE, life->spares[i].step,
                   life->spares[i].step + UINT64_C(1), life->spares[i].bytes);
}

/* ---- tensors ---- */

static void count_tensor(struct maker *maker, const struct gc_life_value *value, uint32_t index)
{
    struct gc_lifetimes *made = maker->made;
    uint64_t rounded;
    made->known_count += value->is_known;
    made->unknown_count += !value->is_known;
    if (!value->is_known && made->unknown_value == GC_GRAPH_NONE)
        made->unknown_value = index;
    if (value->share == GC_LIFE_VIEW)
        return;
    if (!round_up(value->own_bytes, maker->life->rules->alignment, &rounded) ||
        !gc_add_u64(made->total_bytes, rounded, &made->total_bytes))
        maker->overflowed = true;
}

static void add_tensors(struct maker *maker)
{
    struct gc_life *life = maker->life;
    for (uint32_t i = 0; i < life->graph->value_count; i++) {
        const struct gc_life_value *value = &life->values[i];
        const struct gc_life_value *root = &life->values[gc_life_root(life, i)];
        const bool is_used = value->made != GC_LIFE_NEVER || root == value;
        if (!value->is_planned || !root->is_planned || !is_used) {
            maker->made->folded_count++;
            continue;
        }
        if (is_left(maker, (enum gc_life_role)root->role))
            continue;
        count_tensor(maker, value, i);
        const uint32_t buffer = maker->of_root[gc_life_root(life, i)];
        const bool is_read = value->made != GC_LIFE_NEVER;
        maker->made->tensors[maker->made->tensor_count++] = (struct gc_life_tensor){
            .value = i,
            .buffer = buffer,
            .lower = is_read ? value->made : maker->made->buffers[buffer].lower,
            .upper = is_read ? value->last + UINT64_C(1) : maker->made->buffers[buffer].upper,
            .bytes = value->own_bytes,
            .is_known = value->is_known,
            .share = (enum gc_life_share)value->share};
    }
}

/* ---- the whole ---- */

static enum gc_status make(struct gc_life *life, struct gc_lifetimes *made)
{
    struct gc_region *region = life->region;
    const uint64_t room = (uint64_t)life->graph->value_count + life->spare_count;
    struct maker maker = {.life = life, .made = made};
    made->buffers = gc_region_alloc(region, room * sizeof(*made->buffers));
    made->roles = gc_region_alloc(region, room * sizeof(*made->roles));
    made->owners = gc_region_alloc(region, room * sizeof(*made->owners));
    made->tensors = gc_region_alloc(region, room * sizeof(*made->tensors));
    made->step_nodes = gc_region_alloc(region, (uint64_t)life->step_count * sizeof(uint32_t));
    maker.of_root = gc_region_alloc(region, room * sizeof(*maker.of_root));
    if (made->buffers == NULL || made->roles == NULL || made->owners == NULL ||
        made->tensors == NULL || maker.of_root == NULL || made->step_nodes == NULL)
        return GC_NO_HOST_MEMORY;
    for (uint32_t i = 0; i < life->event_count; i++) {
        if (life->events[i].kind != GC_LIFE_FOLDED)
            made->step_nodes[life->events[i].step] = life->events[i].node;
    }
    made->step_count = life->step_count;
    made->unknown_value = GC_GRAPH_NONE;
    add_kept(&maker);
    add_moving(&maker);
    add_tensors(&maker);
    uint64_t all = 0;
    for (unsigned role = 0; role < GC_LIFE_ROLE_COUNT; role++)
        maker.overflowed = !gc_add_u64(all, made->role_bytes[role], &all) || maker.overflowed;
    return maker.overflowed ? GC_OVERFLOW : GC_OK;
}

enum gc_status gc_lifetimes_live(struct gc_region *region, const struct gc_lifetimes *lifetimes,
                                 uint64_t **live, uint64_t *peak_bytes)
{
    const uint64_t count = (uint64_t)lifetimes->step_count + 1;
    uint64_t *changes = gc_region_alloc(region, count * sizeof(*changes));
    uint64_t now = 0;
    *live = changes;
    *peak_bytes = 0;
    if (changes == NULL)
        return GC_NO_HOST_MEMORY;
    for (uint32_t i = lifetimes->base_count; i < lifetimes->count; i++) {
        changes[lifetimes->buffers[i].lower] += lifetimes->buffers[i].bytes;
        changes[lifetimes->buffers[i].upper] -= lifetimes->buffers[i].bytes;
    }
    /* All buffers together fit in 64 bits, so no sum below overflows; the changes wrap. */
    for (uint64_t i = 0; i < count; i++) {
        now += changes[i];
        changes[i] = now;
        *peak_bytes = now > *peak_bytes ? now : *peak_bytes;
    }
    return GC_OK;
}

enum gc_status gc_lifetimes_find(struct gc_region *region, const struct gc_graph *graph,
                                 const struct gc_lifetimes_rules *rules,
                                 struct gc_lifetimes *lifetimes)
{
    struct gc_life life = {.region = region, .graph = graph, .rules = rules};
    *lifetimes = (struct gc_lifetimes){.unknown_value = GC_GRAPH_NONE};
    enum gc_status status = gc_life_order(&life);
    if (status == GC_OK)
        status = gc_life_join(&life);
    return status == GC_OK ? make(&life, lifetimes) : status;
}
