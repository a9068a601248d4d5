#include "core/planner/place_fill.h"

#include "core/base/bits.h"

#define SUBSETS_MAX 4096U
#define GROUP_MAX 4U    /* members of a subset, where all subsets would be too many, */
#define ALL_SUBSETS 12U /* of more than so many */
/* Costs, in sixteenths of a bit. */
#define SPLIT_COST (-32) /* beside one group alone at a time */
#define PARTED_COST 32   /* two that begin and end together, apart */
#define PARTNER_COST 16  /* one apart from what ends with it */
#define NOISE_MAX 64

bool gc_place_fill_init(struct gc_place_fill *fill, struct gc_region *region, uint32_t most)
{
    *fill = (struct gc_place_fill){.noise = 0};
    fill->gap_bytes = gc_region_alloc(region, most * sizeof(uint64_t));
    fill->item_bytes = gc_region_alloc(region, most * sizeof(uint64_t));
    fill->item_ends = gc_region_alloc(region, most * sizeof(uint32_t));
    fill->partners = gc_region_alloc(region, most * sizeof(uint64_t));
    for (unsigned side = 0; side < 2; side++)
        fill->subsets[side] = gc_region_alloc(region, SUBSETS_MAX * sizeof(*fill->subsets[0]));
    fill->order = gc_region_alloc(region, SUBSETS_MAX * sizeof(uint32_t));
    return fill->gap_bytes != NULL && fill->item_bytes != NULL && fill->item_ends != NULL &&
           fill->partners != NULL && fill->subsets[0] != NULL && fill->subsets[1] != NULL &&
           fill->order != NULL && gc_place_sorter_init(&fill->sorter, region, SUBSETS_MAX);
}

static unsigned count_bits(uint64_t bits)
{
    return (unsigned)__builtin_popcountll(bits);
}

/* All subsets that hold `first`, if it is less than `count`; of many the small ones alone. */
static void list_subsets(struct gc_place_fill *fill, unsigned side, const uint64_t *bytes,
                         uint32_t count, bool with_first)
{
    struct gc_place_fill_subset *subsets = fill->subsets[side];
    const uint32_t most = count <= ALL_SUBSETS ? count : GROUP_MAX;
    uint32_t listed = 1;
    subsets[0] = (struct gc_place_fill_subset){.bytes = with_first ? bytes[0] : 0,
                                               .members = with_first ? 1 : 0};
    /* Each grows from those before it by one member behind its last. */
    for (uint32_t at = 0; at < listed; at++) {
        const struct gc_place_fill_subset from = subsets[at];
        const uint32_t begin = from.members == 0 ? 0 : gc_top_bit_u64(from.members) + 1;
        if (count_bits(from.members) == most)
            break;
        for (uint32_t n = begin; n < count && listed < SUBSETS_MAX; n++)
            subsets[listed++] = (struct gc_place_fill_subset){
                .bytes = from.bytes + bytes[n], .members = from.members | UINT64_C(1) << n};
    }
    fill->subset_counts[side] = listed;
}

/* Sixteen times the logarithm to base 2. */
static int32_t log_of(uint64_t number)
{
    const unsigned top = gc_top_bit_u64(number);
    const uint64_t digits = top >= 4 ? number >> (top - 4) : number << (4 - top);
    return (int32_t)(top * 16 + (uint32_t)(digits & 15));
}

static int32_t log_of_choices(uint32_t from, uint32_t members)
{
    uint64_t choices = 1;
    for (uint32_t n = 1; n <= members && choices < UINT64_C(1) << 56; n++)
        choices = choices * (from - n + 1) / n;
    return log_of(choices);
}

/* That sizes agree by chance is the likelier the more there are to choose from, and the smaller
 * they are. */
static int32_t cost_of(const struct gc_place_fill *fill, const struct gc_place_fill_way *way,
                       uint64_t bytes, uint64_t all)
{
    int32_t cost = SPLIT_COST + log_of_choices(fill->gap_count, count_bits(way->gaps)) +
                   log_of_choices(fill->item_count, count_bits(way->items)) -
                   log_of(gc_min_u64(bytes, all - bytes));
    for (uint32_t a = 0; a < fill->item_count; a++) {
        const bool is_in = (way->items >> a & 1) != 0;
        for (uint32_t b = 0; b < a; b++)
            if (is_in != ((way->items >> b & 1) != 0) && fill->item_ends[a] == fill->item_ends[b])
                cost += PARTED_COST;
        cost += PARTNER_COST *
                (int32_t)count_bits(fill->partners[a] & (is_in ? ~way->gaps : way->gaps));
    }
    if (fill->noise != 0)
        cost += (int32_t)(gc_mix_u64(fill->noise ^ way->gaps ^ gc_mix_u64(way->items)) % NOISE_MAX);
    return cost;
}

/* Into its place by cost; the costliest goes when there are too many. */
static void add_way(struct gc_place_fill *fill, const struct gc_place_fill_way *way)
{
    if (fill->way_count == GC_PLACE_FILL_WAYS_MAX) {
        if (fill->ways[fill->way_count - 1].cost <= way->cost)
            return;
        fill->way_count--;
    }
    uint32_t at = fill->way_count++;
    for (; at > 0 && fill->ways[at - 1].cost > way->cost; at--)
        fill->ways[at] = fill->ways[at - 1];
    fill->ways[at] = *way;
}

static void match_subsets(struct gc_place_fill *fill, uint64_t all)
{
    const struct gc_place_fill_subset *items = fill->subsets[1];
    const uint32_t item_count = fill->subset_counts[1];
    for (uint32_t n = 0; n < item_count; n++) {
        fill->order[n] = n;
        fill->sorter.keys[n] = items[n].bytes;
    }
    gc_place_sort(&fill->sorter, fill->order, item_count);
    for (uint32_t g = 0; g < fill->subset_counts[0]; g++) {
        const struct gc_place_fill_subset *gaps = &fill->subsets[0][g];
        uint32_t at = 0;
        for (uint32_t left = item_count; left > 0;) {
            const uint32_t half = left / 2;
            if (fill->sorter.keys[at + half] < gaps->bytes) {
                at += half + 1;
                left -= half + 1;
            } else {
                left = half;
            }
        }
        for (; at < item_count && fill->sorter.keys[at] == gaps->bytes && gaps->bytes < all; at++) {
            struct gc_place_fill_way way = {.gaps = gaps->members,
                                            .items = items[fill->order[at]].members};
            way.cost = cost_of(fill, &way, gaps->bytes, all);
            add_way(fill, &way);
        }
    }
}

void gc_place_fill_find(struct gc_place_fill *fill)
{
    static const struct gc_place_fill_way all_at_once = {UINT64_MAX, UINT64_MAX, 0};
    uint64_t all = 0;
    fill->way_count = 0;
    for (uint32_t n = 0; n < fill->gap_count; n++)
        all += fill->gap_bytes[n];
    if (fill->gap_count > 1 && fill->item_count > 1 && fill->gap_count < GC_PLACE_FILL_MAX &&
        fill->item_count < GC_PLACE_FILL_MAX) {
        list_subsets(fill, 0, fill->gap_bytes, fill->gap_count, true);
        list_subsets(fill, 1, fill->item_bytes, fill->item_count, false);
        match_subsets(fill, all);
    }
    add_way(fill, &all_at_once);
}
