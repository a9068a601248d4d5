#include "core/pool/bins.h"
#include "tests/unit/cmocka_all.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define COUNT 600

static struct gc_block blocks[COUNT];
static bool is_in[COUNT];

static void reset(void)
{
    memset(blocks, 0, sizeof(blocks));
    memset(is_in, 0, sizeof(is_in));
}

/* Best fit by a plain search. */
static struct gc_block *model_best_fit(uint64_t bytes)
{
    struct gc_block *best = NULL;
    for (unsigned i = 0; i < COUNT; i++) {
        struct gc_block *block = &blocks[i];
        if (is_in[i] && block->bytes >= bytes &&
            (best == NULL || block->bytes < best->bytes ||
             (block->bytes == best->bytes && block->address < best->address)))
            best = block;
    }
    return best;
}

static void empty_bins_have_nothing(void **state)
{
    struct gc_bins bins = {.root = NULL};
    (void)state;
    assert_null(gc_bins_best_fit(&bins, 1));
    assert_int_equal(gc_bins_largest_bytes(&bins), 0);
    assert_true(gc_bins_validate(&bins));
}

static void equal_sizes_go_by_address(void **state)
{
    struct gc_bins bins = {.root = NULL};
    (void)state;
    reset();
    for (unsigned i = 0; i < 10; i++) {
        blocks[i].bytes = 512;
        blocks[i].address = (10 - i) * 4096;
        gc_bins_insert(&bins, &blocks[i]);
    }
    assert_ptr_equal(gc_bins_best_fit(&bins, 512), &blocks[9]);
    gc_bins_remove(&bins, &blocks[9]);
    assert_ptr_equal(gc_bins_best_fit(&bins, 1), &blocks[8]);
    assert_null(gc_bins_best_fit(&bins, 513));
}

static void random_operations_agree_with_a_model(void **state)
{
    struct gc_bins bins = {.root = NULL};
    unsigned seed = (unsigned)time(NULL);
    (void)state;
    print_message("# seed %u\n", seed);
    reset();
    for (unsigned step = 0; step < 20000; step++) {
        const unsigned i = (unsigned)rand_r(&seed) % COUNT;
        if (is_in[i]) {
            gc_bins_remove(&bins, &blocks[i]);
        } else {
            blocks[i].address = (uint64_t)(i + 1) << 12;
            blocks[i].bytes = ((uint64_t)rand_r(&seed) % 64 + 1) << 9;
            gc_bins_insert(&bins, &blocks[i]);
        }
        is_in[i] = !is_in[i];
        const uint64_t wanted = ((uint64_t)rand_r(&seed) % 66) << 9;
        assert_ptr_equal(gc_bins_best_fit(&bins, wanted), model_best_fit(wanted));
        if (step % 97 == 0)
            assert_true(gc_bins_validate(&bins));
    }
}

static unsigned depth(const struct gc_block *block)
{
    if (block == NULL)
        return 0;
    const unsigned left = depth(block->bin.left);
    const unsigned right = depth(block->bin.right);
    return 1 + (left > right ? left : right);
}

static void rising_sizes_do_not_unbalance_it(void **state)
{
    struct gc_bins bins = {.root = NULL};
    (void)state;
    reset();
    for (unsigned i = 0; i < COUNT; i++) {
        blocks[i].bytes = (i + 1) << 9;
        blocks[i].address = (uint64_t)(i + 1) << 21;
        gc_bins_insert(&bins, &blocks[i]);
    }
    assert_true(depth(bins.root) < 40); /* about 2 ln n expected; 600 in a list */
    assert_int_equal(gc_bins_largest_bytes(&bins), COUNT << 9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(empty_bins_have_nothing),
        cmocka_unit_test(equal_sizes_go_by_address),
        cmocka_unit_test(random_operations_agree_with_a_model),
        cmocka_unit_test(rising_sizes_do_not_unbalance_it),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("bins", tests, NULL, NULL);
}
