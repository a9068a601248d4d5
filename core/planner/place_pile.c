#include "core/planner/place_pile.h"

#include "core/base/bits.h"

#include <stddef.h>

bool gc_place_pile_init(struct gc_place_pile *pile, struct gc_region *region,
                        uint32_t section_count)
{
    pile->leaf_count = section_count;
    pile->whole = gc_region_alloc(region, 2 * (uint64_t)section_count * sizeof(uint64_t));
    pile->most = gc_region_alloc(region, 2 * (uint64_t)section_count * sizeof(uint64_t));
    return pile->whole != NULL && pile->most != NULL;
}

static uint64_t whole_above(const struct gc_place_pile *pile, uint32_t node)
{
    uint64_t height = 0;
    for (; node > 0; node /= 2)
        height = gc_max_u64(height, pile->whole[node]);
    return height;
}

uint64_t gc_place_pile_height(const struct gc_place_pile *pile, uint32_t first, uint32_t last)
{
    uint32_t left = first + pile->leaf_count;
    uint32_t right = last + pile->leaf_count;
    uint64_t height = gc_max_u64(whole_above(pile, left), whole_above(pile, right));
    for (right++; left < right; left /= 2, right /= 2) {
        if ((left & 1) != 0)
            height = gc_max_u64(height, pile->most[left++]);
        if ((right & 1) != 0)
            height = gc_max_u64(height, pile->most[--right]);
    }
    return height;
}

static void raise_node(struct gc_place_pile *pile, uint32_t node, uint64_t height)
{
    pile->whole[node] = gc_max_u64(pile->whole[node], height);
    for (; node > 0; node /= 2)
        pile->most[node] = gc_max_u64(pile->most[node], height);
}

void gc_place_pile_raise(struct gc_place_pile *pile, uint32_t first, uint32_t last, uint64_t height)
{
    uint32_t left = first + pile->leaf_count;
    uint32_t right = last + pile->leaf_count + 1;
    for (; left < right; left /= 2, right /= 2) {
        if ((left & 1) != 0)
            raise_node(pile, left++, height);
        if ((right & 1) != 0)
            raise_node(pile, --right, height);
    }
}
