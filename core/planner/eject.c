#include "core/planner/eject.h"

#include "core/base/bits.h"

#include <string.h>

#define STACK_NODES 128
#define PART_MIN 4 /* of the distance to the target by which the capacity falls, at most */
#define PART_MAX 4096
#define WEIGHT_BITS 14 /* of bytes and of sections, in an item's area */
#define PATIENCE_MIN 64
#define NODE_NEIGHBOURS 16 /* neighbours that take as long as a step of search */
#define OUT GC_PLACEMENT_FREE

struct gc_place_eject {
    struct gc_place_run *run;
    struct gc_place_component *component;
    struct gc_place_sorter *sorter;
    uint32_t *by_first;      /* items by first section */
    uint32_t *section_begin; /* of by_first; section_count + 1 of them */
    uint32_t *reach;         /* the highest last section: a tree over by_first, the root at 1, its
                                leaves left out */
    uint64_t *offsets;       /* of the placement in work; OUT: the item is out */
    uint32_t *out;           /* a stack of the items that are out */
    uint32_t *failures;      /* how often an item found no gap */
    uint32_t *neighbours;    /* scratch: placed ones of an item, by offset */
    uint32_t *by_end;        /* the same by end; in greedy's order, which it overwrites */

    uint32_t neighbour_count;
    uint32_t out_count;
    unsigned bytes_shift;
    unsigned sections_shift;
    uint64_t capacity;
    uint64_t part;
    uint64_t patience; /* steps without fewer items out */
    uint64_t random;
};

static uint64_t next_random(struct gc_place_eject *eject)
{
    eject->random += UINT64_C(0x9e3779b97f4a7c15);
    return gc_mix_u64(eject->random);
}

/* ---- items by time ---- */

static uint32_t reach_of(const struct gc_place_eject *eject, uint32_t node)
{
    const struct gc_place_component *component = eject->component;
    return node < component->count
               ? eject->reach[node]
               : component->items[eject->by_first[node - component->count]].last;
}

static void index_items(struct gc_place_eject *eject)
{
    const struct gc_place_component *component = eject->component;
    const uint32_t count = component->count;
    for (uint32_t i = 0; i < count; i++) {
        eject->by_first[i] = i;
        eject->sorter->keys[i] = component->items[i].first;
        eject->section_begin[component->items[i].first + 1]++;
    }
    gc_order_sort(eject->sorter, eject->by_first, count);
    for (uint32_t s = 0; s < component->section_count; s++)
        eject->section_begin[s + 1] += eject->section_begin[s];
    for (uint32_t node = count; node-- > 1;) {
        const uint32_t left = reach_of(eject, 2 * node);
        const uint32_t right = reach_of(eject, 2 * node + 1);
        eject->reach[node] = left > right ? left : right;
    }
}

static void add_neighbour(struct gc_place_eject *eject, uint32_t item)
{
    if (eject->offsets[item] != OUT)
        eject->neighbours[eject->neighbour_count++] = item;
}

/* The placed items that are alive with this one, which is out. */
static void gather(struct gc_place_eject *eject, const struct gc_place_item *item)
{
    const uint32_t leaves = eject->component->count;
    const uint32_t before = eject->section_begin[item->first];
    uint32_t stack[STACK_NODES];
    unsigned depth = 0;
    eject->neighbour_count = 0;
    for (uint32_t n = before; n < eject->section_begin[item->last + 1]; n++)
        add_neighbour(eject, eject->by_first[n]);
    uint32_t left = leaves;
    uint32_t right = leaves + before;
    for (; left < right; left /= 2, right /= 2) {
        if ((left & 1) != 0)
            stack[depth++] = left++;
        if ((right & 1) != 0)
            stack[depth++] = --right;
    }
    while (depth > 0) {
        const uint32_t node = stack[--depth];
        if (reach_of(eject, node) < item->first)
            continue;
        if (node >= leaves) {
            add_neighbour(eject, eject->by_first[node - leaves]);
            continue;
        }
        stack[depth++] = 2 * node;
        stack[depth++] = 2 * node + 1;
    }
}

static void sort_neighbours(struct gc_place_eject *eject)
{
    const struct gc_place_item *items = eject->component->items;
    const uint32_t count = eject->neighbour_count;
    for (uint32_t n = 0; n < count; n++)
        eject->sorter->keys[n] = eject->offsets[eject->neighbours[n]];
    gc_order_sort(eject->sorter, eject->neighbours, count);
    for (uint32_t n = 0; n < count; n++) {
        eject->by_end[n] = eject->neighbours[n];
        eject->sorter->keys[n] = eject->offsets[eject->by_end[n]] + items[eject->by_end[n]].bytes;
    }
    gc_order_sort(eject->sorter, eject->by_end, count);
}

/* ---- places ---- */

/* The lowest gap within the capacity, or OUT. */
static uint64_t find_gap(const struct gc_place_eject *eject, const struct gc_place_item *item)
{
    const struct gc_place_item *items = eject->component->items;
    uint64_t offset = 0;
    for (uint32_t n = 0; n < eject->neighbour_count; n++) {
        const uint64_t begin = eject->offsets[eject->neighbours[n]];
        const uint64_t end = begin + items[eject->neighbours[n]].bytes;
        if (offset + item->bytes <= begin)
            break;
        if (end > offset)
            offset = gc_place_align(end, item->alignment);
    }
    return gc_place_end(item, offset) <= eject->capacity ? offset : OUT;
}

static uint64_t weight_of(const struct gc_place_eject *eject, uint32_t i)
{
    const struct gc_place_item *item = &eject->component->items[i];
    const uint64_t sections = (item->last - item->first) >> eject->sections_shift;
    const uint64_t area = ((item->bytes >> eject->bytes_shift) + 1) * (sections + 1);
    return item->fixed != GC_PLACEMENT_FREE ? UINT64_C(1) << 62
                                            : area * (eject->failures[i] + UINT64_C(1));
}

/* The offset at which the items in the way weigh the least; at 0 or at another's end. */
static uint64_t find_cheapest(struct gc_place_eject *eject, const struct gc_place_item *item)
{
    const struct gc_place_item *items = eject->component->items;
    uint64_t best = OUT;
    uint64_t least = UINT64_C(1) << 62;
    uint64_t weight = 0;
    uint32_t begun = 0;
    uint32_t ended = 0;
    for (uint64_t offset = 0; gc_place_end(item, offset) <= eject->capacity;) {
        const uint32_t *by_end = eject->by_end;
        while (begun < eject->neighbour_count &&
               eject->offsets[eject->neighbours[begun]] < offset + item->bytes)
            weight += weight_of(eject, eject->neighbours[begun++]);
        while (ended < eject->neighbour_count &&
               eject->offsets[by_end[ended]] + items[by_end[ended]].bytes <= offset)
            weight -= weight_of(eject, by_end[ended++]);
        const uint64_t noise = weight / 1024 * (next_random(eject) % 64);
        if (weight + noise < least) {
            least = weight + noise;
            best = offset;
        }
        if (ended == eject->neighbour_count)
            break;
        offset = gc_place_align(eject->offsets[by_end[ended]] + items[by_end[ended]].bytes,
                                item->alignment);
    }
    return best;
}

static void push_out(struct gc_place_eject *eject, uint32_t item)
{
    eject->offsets[item] = OUT;
    eject->out[eject->out_count++] = item;
}

static void eject_neighbours(struct gc_place_eject *eject, uint64_t begin, uint64_t end)
{
    const struct gc_place_item *items = eject->component->items;
    for (uint32_t n = 0; n < eject->neighbour_count; n++) {
        const uint32_t other = eject->neighbours[n];
        const uint64_t offset = eject->offsets[other];
        if (offset < end && offset + items[other].bytes > begin)
            push_out(eject, other);
    }
}

/* Places the item that was taken out last. False: it has no place. */
static bool place_next(struct gc_place_eject *eject)
{
    const uint32_t i = eject->out[--eject->out_count];
    const struct gc_place_item *item = &eject->component->items[i];
    gather(eject, item);
    sort_neighbours(eject);
    uint64_t offset = find_gap(eject, item);
    if (offset == OUT) {
        eject->failures[i]++;
        offset = find_cheapest(eject, item);
        if (offset == OUT)
            return false;
        eject_neighbours(eject, offset, offset + item->bytes);
    }
    eject->offsets[i] = offset;
    return true;
}

/* ---- one capacity ---- */

/* The items above the capacity, the largest on top. */
static void begin(struct gc_place_eject *eject)
{
    const struct gc_place_component *component = eject->component;
    const uint32_t count = component->count;
    eject->out_count = 0;
    for (uint32_t i = 0; i < count; i++)
        if (gc_place_end(&component->items[i], eject->offsets[i]) > eject->capacity)
            push_out(eject, i);
    for (uint32_t n = 0; n < eject->out_count; n++)
        eject->sorter->keys[n] = weight_of(eject, eject->out[n]);
    gc_order_sort(eject->sorter, eject->out, eject->out_count);
}

static void accept(struct gc_place_eject *eject)
{
    struct gc_place_component *component = eject->component;
    uint64_t peak = 0;
    memcpy(component->offsets, eject->offsets, component->count * sizeof(uint64_t));
    for (uint32_t i = 0; i < component->count; i++)
        peak = gc_max_u64(peak, gc_place_end(&component->items[i], component->offsets[i]));
    component->peak = peak;
}

static bool reach_capacity(struct gc_place_eject *eject, uint64_t end)
{
    uint64_t fewest = UINT64_MAX;
    uint64_t idle = 0;
    begin(eject);
    while (eject->out_count > 0 && idle < eject->patience + eject->out_count &&
           eject->run->nodes < end) {
        if (!place_next(eject) ||
            !gc_place_run_step(eject->run, 1 + eject->neighbour_count / NODE_NEIGHBOURS))
            return false;
        idle = eject->out_count < fewest ? 0 : idle + 1;
        fewest = gc_min_u64(fewest, eject->out_count);
    }
    return eject->out_count == 0;
}

static uint64_t target_of(const struct gc_place_eject *eject)
{
    return gc_max_u64(eject->run->target, eject->component->bound);
}

/* One capacity, in at most `most` steps. */
static void lower(struct gc_place_eject *eject, uint64_t most)
{
    const uint64_t high = eject->component->peak - 1;
    const uint64_t begun = eject->run->nodes;
    eject->capacity = high - (high - target_of(eject)) / eject->part;
    if (reach_capacity(eject, most < UINT64_MAX - begun ? begun + most : UINT64_MAX)) {
        accept(eject);
        eject->part = gc_max_u64(PART_MIN, eject->part / 2);
    } else if (eject->part < PART_MAX) {
        eject->part *= 2;
    } else {
        eject->part = PART_MIN;
        eject->patience = gc_max_u64(eject->patience, 2 * eject->patience);
    }
}

void gc_eject_run(struct gc_place_eject *eject, uint64_t nodes, uint64_t most)
{
    const struct gc_place_component *component = eject->component;
    struct gc_place_run *run = eject->run;
    const uint64_t begun = run->nodes;
    while (run->nodes - begun < nodes && !run->stopped) {
        if (component->peak <= target_of(eject) || component->peak < run->second)
            return;
        memcpy(eject->offsets, component->offsets, component->count * sizeof(uint64_t));
        lower(eject, most);
    }
}

void gc_eject_pass(struct gc_place_eject *eject, uint64_t most)
{
    if (eject->component->peak > target_of(eject) && !eject->run->stopped)
        lower(eject, most);
}

struct gc_place_eject *gc_eject_create(struct gc_place_greedy *greedy)
{
    struct gc_region *region = greedy->run->region;
    struct gc_place_component *component = greedy->component;
    struct gc_place_eject *eject = gc_region_alloc(region, sizeof(*eject));
    const uint64_t count = component->count;
    uint64_t most = 1;
    if (eject == NULL)
        return NULL;
    *eject = (struct gc_place_eject){
        .run = greedy->run,
        .component = component,
        .sorter = &greedy->sorter,
        .by_first = gc_region_alloc(region, count * sizeof(uint32_t)),
        .section_begin =
            gc_region_alloc(region, (component->section_count + UINT64_C(1)) * sizeof(uint32_t)),
        .reach = gc_region_alloc(region, count * sizeof(uint32_t)),
        .offsets = greedy->offsets,
        .out = gc_region_alloc(region, count * sizeof(uint32_t)),
        .failures = gc_region_alloc(region, count * sizeof(uint32_t)),
        .neighbours = gc_region_alloc(region, count * sizeof(uint32_t)),
        .by_end = greedy->order,
        .part = PART_MIN,
        .patience = PATIENCE_MIN,
        .random = gc_mix_u64(greedy->run->options->seed + 1),
    };
    if (eject->by_first == NULL || eject->section_begin == NULL || eject->reach == NULL ||
        eject->out == NULL || eject->failures == NULL || eject->neighbours == NULL)
        return NULL;
    for (uint32_t i = 0; i < component->count; i++)
        most = gc_max_u64(most, component->items[i].bytes);
    eject->bytes_shift = (unsigned)gc_sub_or_zero_u64(gc_top_bit_u64(most), WEIGHT_BITS);
    eject->sections_shift =
        (unsigned)gc_sub_or_zero_u64(gc_top_bit_u64(component->section_count), WEIGHT_BITS);
    index_items(eject);
    return eject;
}
