/* The PQ-tree against all orders: what it still allows must be exactly those in which every set
 * that was joined lies next to each other. */
#include "core/base/bits.h"
#include "core/planner/place_tree.h"
#include "tests/unit/cmocka_all.h"
#include "tests/unit/scratch.h"

#include <string.h>

#define LEAVES 7U
#define ORDERS 5040U /* of so many leaves */
#define NODE_ROOM 512U
#define CHANGE_ROOM 4096U

static struct gc_region region;
static struct gc_place_tree tree;
static uint8_t orders[ORDERS][LEAVES];

static void add_orders(uint8_t *order, unsigned at, unsigned *count)
{
    if (at == LEAVES) {
        memcpy(orders[(*count)++], order, LEAVES);
        return;
    }
    for (unsigned i = at; i < LEAVES; i++) {
        const uint8_t kept = order[at];
        order[at] = order[i];
        order[i] = kept;
        add_orders(order, at + 1, count);
        order[i] = order[at];
        order[at] = kept;
    }
}

static int setup(void **state)
{
    (void)state;
    uint8_t order[LEAVES];
    unsigned count = 0;
    for (uint8_t i = 0; i < LEAVES; i++)
        order[i] = i;
    add_orders(order, 0, &count);
    assert_int_equal(count, ORDERS);
    gc_region_init(&region, GC_MIB(16));
    assert_true(gc_place_tree_init(&tree, &region, 4 * LEAVES, NODE_ROOM, CHANGE_ROOM));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    gc_region_fini(&region);
    return 0;
}

static void begin(unsigned count)
{
    uint32_t leaves[LEAVES];
    for (uint32_t i = 0; i < count; i++)
        leaves[i] = i;
    gc_place_tree_begin(&tree, leaves, count);
}

/* Are those of the set next to each other in this order? */
static bool is_row(const uint8_t *order, uint32_t set)
{
    uint32_t row = 0;
    for (unsigned i = 0; i < LEAVES; i++)
        row |= (uint32_t)(set >> order[i] & 1) << i;
    return (row & (row + (row & -row))) == 0;
}

/* How many orders the tree allows: each P node all of its children's, each Q node two. */
static uint64_t allowed(uint32_t node)
{
    const struct gc_place_tree_node *self = &tree.nodes[node];
    uint64_t product = 1;
    uint32_t count = 0;
    for (uint32_t child = self->first; child != GC_PLACE_TREE_NONE;
         child = tree.nodes[child].next) {
        assert_int_equal(tree.nodes[child].parent, node);
        product *= allowed(child);
        count++;
        if (self->kind == GC_PLACE_TREE_P)
            product *= count;
    }
    assert_int_equal(count, self->count);
    assert_true(count != 1);
    return self->kind == GC_PLACE_TREE_Q ? 2 * product : product;
}

static void read_order(uint8_t *order)
{
    unsigned count = 0;
    for (uint32_t leaf = gc_place_tree_next_leaf(&tree, tree.root, GC_PLACE_TREE_NONE);
         leaf != GC_PLACE_TREE_NONE; leaf = gc_place_tree_next_leaf(&tree, tree.root, leaf))
        order[count++] = (uint8_t)leaf;
    assert_int_equal(count, LEAVES);
}

static bool join(uint32_t set, struct gc_place_tree_run *run)
{
    uint32_t leaves[32];
    uint32_t count = 0;
    for (uint32_t i = 0; i < 32; i++)
        if ((set >> i & 1) != 0)
            leaves[count++] = i;
    return gc_place_tree_join(&tree, leaves, count, run);
}

static uint64_t count_allowed(const uint32_t *sets, unsigned count)
{
    uint64_t found = 0;
    for (unsigned i = 0; i < ORDERS; i++) {
        bool fits = true;
        for (unsigned n = 0; n < count && fits; n++)
            fits = is_row(orders[i], sets[n]);
        found += fits;
    }
    return found;
}

/* The leaves of a run. */
static uint32_t leaves_of(const struct gc_place_tree_run *run)
{
    uint32_t set = 0;
    for (uint32_t top = run->begin;; top = tree.nodes[top].next) {
        for (uint32_t leaf = gc_place_tree_next_leaf(&tree, top, GC_PLACE_TREE_NONE);
             leaf != GC_PLACE_TREE_NONE; leaf = gc_place_tree_next_leaf(&tree, top, leaf))
            set |= UINT32_C(1) << leaf;
        if (top == run->end)
            return set;
    }
}

static void it_allows_just_the_orders_in_which_sets_are_rows(void **state)
{
    (void)state;
    struct scratch_random random = {12};
    unsigned refused = 0;
    unsigned joined = 0;
    for (unsigned round = 0; round < 1500; round++) {
        uint32_t sets[8];
        unsigned count = 0;
        begin(LEAVES);
        while (count < 8) {
            const struct gc_place_tree_mark mark = gc_place_tree_mark(&tree);
            struct gc_place_tree_run run;
            sets[count] = 1 + (uint32_t)(scratch_next(&random) % ((1U << LEAVES) - 1));
            const uint64_t expected = count_allowed(sets, count + 1);
            const bool can = join(sets[count], &run);
            assert_true(can == (expected > 0));
            if (!can) {
                refused++;
                assert_true(gc_place_tree_undo(&tree, mark));
                assert_int_equal(allowed(tree.root), count_allowed(sets, count));
                break;
            }
            uint8_t order[LEAVES];
            joined++;
            count++;
            assert_int_equal(leaves_of(&run), sets[count - 1]);
            assert_int_equal(allowed(tree.root), expected);
            read_order(order);
            for (unsigned n = 0; n < count; n++)
                assert_true(is_row(order, sets[n]));
        }
    }
    assert_true(refused > 500 && joined > 2000);
}

static void what_is_undone_is_as_before(void **state)
{
    (void)state;
    struct scratch_random random = {99};
    for (unsigned round = 0; round < 300; round++) {
        struct gc_place_tree_mark marks[6];
        uint64_t before[6];
        uint8_t order[6][LEAVES];
        unsigned depth = 0;
        begin(LEAVES);
        for (; depth < 6; depth++) {
            struct gc_place_tree_run run;
            marks[depth] = gc_place_tree_mark(&tree);
            before[depth] = allowed(tree.root);
            read_order(order[depth]);
            if (!join(1 + (uint32_t)(scratch_next(&random) % ((1U << LEAVES) - 1)), &run)) {
                depth++;
                break;
            }
        }
        while (depth-- > 0) {
            uint8_t now[LEAVES];
            assert_true(gc_place_tree_undo(&tree, marks[depth]));
            assert_int_equal(allowed(tree.root), before[depth]);
            read_order(now);
            assert_memory_equal(now, order[depth], LEAVES);
        }
    }
}

static void others_take_the_place_of_a_row(void **state)
{
    (void)state;
    struct gc_place_tree_run run;
    const uint32_t others[] = {10, 11, 12};
    uint32_t tops[LEAVES];
    begin(5);
    assert_true(join(1U << 1 | 1U << 2, &run));
    assert_true(join(1U << 2 | 1U << 3, &run));
    gc_place_tree_replace(&tree, &run, others, 3);
    /* 1 lies beside the three, who may lie in any order, anywhere among 0 and 4. */
    assert_int_equal(allowed(tree.root), 3 * 2 * 2 * 6);
    assert_true(join(1U << 1 | 1U << 10, &run));
    assert_int_equal(allowed(tree.root), 3 * 2 * 2 * 2);
    assert_false(join(1U << 10 | 1U << 0, &run));
    begin(5);
    assert_true(join(1U << 1 | 1U << 2 | 1U << 3, &run));
    const uint32_t ending[] = {3, 1, 0, 2};
    assert_int_equal(gc_place_tree_tops(&tree, ending, 4, tops), 2);
    assert_int_equal(gc_place_tree_tops(&tree, ending, 2, tops), 2);
    assert_int_equal(tops[0], 3);
}

/* With little room the oldest changes are forgotten, and that is told. */
static void what_is_too_long_ago_is_told(void **state)
{
    (void)state;
    assert_true(gc_place_tree_init(&tree, &region, 4 * LEAVES, NODE_ROOM, 16));
    begin(LEAVES);
    struct gc_place_tree_run run;
    const struct gc_place_tree_mark old = gc_place_tree_mark(&tree);
    for (uint32_t i = 0; i + 1 < LEAVES; i++) {
        (void)gc_place_tree_mark(&tree);
        assert_true(join(3U << i, &run));
    }
    const uint64_t now = allowed(tree.root);
    assert_int_equal(now, 2);
    assert_false(gc_place_tree_undo(&tree, old));
    assert_int_equal(allowed(tree.root), now);
    /* No room for nodes: refused, not overrun. */
    assert_true(gc_place_tree_init(&tree, &region, LEAVES, LEAVES + 1, 4096));
    begin(LEAVES);
    assert_false(join(3, &run));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(it_allows_just_the_orders_in_which_sets_are_rows),
        TEST(what_is_undone_is_as_before),
        TEST(others_take_the_place_of_a_row),
        TEST(what_is_too_long_ago_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
