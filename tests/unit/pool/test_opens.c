#include "core/pool/opens.h"
#include "tests/unit/cmocka_all.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define OWNERS 5
#define IDS 7
#define STEPS 20000

static struct gc_host_mem host;
static struct gc_opens opens;

static int set_up(void **state)
{
    (void)state;
    gc_opens_init(&opens, &host);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    gc_opens_fini(&opens);
    assert_int_equal(gc_host_mem_bytes(&host), 0);
    return 0;
}

static void add(uint64_t owner, uint64_t id)
{
    while (!gc_opens_try_add(&opens, owner, id, id << 20))
        assert_true(gc_slab_grow(&opens.records));
}

static void a_block_is_open_as_often_as_it_was_opened(void **state)
{
    struct gc_open removed;
    (void)state;
    add(1, 5);
    add(1, 5);
    add(2, 5);
    assert_true(gc_opens_remove(&opens, 1, 5, &removed));
    assert_int_equal(removed.address, 5 << 20);
    assert_true(gc_opens_remove(&opens, 1, 5, &removed));
    assert_false(gc_opens_remove(&opens, 1, 5, &removed));
    assert_true(gc_opens_has(&opens, 0, 5));
    assert_true(gc_opens_has(&opens, 2, 5));
    assert_false(gc_opens_has(&opens, 1, 5));
    assert_false(gc_opens_has(&opens, 1, 0));
    assert_true(gc_opens_remove(&opens, 2, 0, &removed));
    assert_int_equal(removed.id, 5);
    assert_false(gc_opens_has(&opens, 0, 5));
}

static void random_operations_agree_with_a_model(void **state)
{
    unsigned count[OWNERS][IDS] = {{0}};
    const unsigned seed = (unsigned)time(NULL);
    struct gc_open removed;
    (void)state;
    srand(seed);
    print_message("seed %u\n", seed);
    for (int step = 0; step < STEPS; step++) {
        const unsigned owner = (unsigned)rand() % OWNERS;
        const unsigned id = (unsigned)rand() % IDS;
        unsigned of_owner = 0;
        unsigned of_id = 0;
        if (rand() % 2 != 0) {
            add(owner + 1, id + 1);
            count[owner][id]++;
        } else {
            assert_int_equal(gc_opens_remove(&opens, owner + 1, id + 1, &removed),
                             count[owner][id] > 0);
            count[owner][id] -= count[owner][id] > 0;
        }
        for (unsigned i = 0; i < IDS; i++)
            of_owner += count[owner][i];
        for (unsigned i = 0; i < OWNERS; i++)
            of_id += count[i][id];
        assert_int_equal(gc_opens_has(&opens, owner + 1, 0), of_owner > 0);
        assert_int_equal(gc_opens_has(&opens, 0, id + 1), of_id > 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_block_is_open_as_often_as_it_was_opened, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(random_operations_agree_with_a_model, set_up, tear_down),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("opens", tests, NULL, NULL);
}
