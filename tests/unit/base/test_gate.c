/* A thread that waits at a gate that stays closed gives up. Work behind the gate then counts as
 * neither completed nor destroyed. */
/* waits: for threads that give up */
#include "core/base/bits.h"
#include "core/device/registry.h"
#include "tests/unit/cmocka_all.h"
#include "tests/unit/workbench.h"

#include <pthread.h>

struct asking {
    struct workbench bench;
    pthread_t threads[2];
    bool is_completed;
    enum gc_status waited;
};

static void *ask_fence(void *argument)
{
    struct asking *asking = argument;
    asking->is_completed = gc_fence_poll(asking->bench.contexts[0]);
    return NULL;
}

static void *wait_for_peer(void *argument)
{
    struct asking *asking = argument;
    int ignored;
    asking->waited = gc_fence_synchronize(asking->bench.contexts[2], GC_FOREVER, &ignored);
    return NULL;
}

/* The second context is a peer of the others and uses their memory; the driver destroys it for
 * longer than anybody waits. */
static void work_of_a_context_that_does_not_come_to_its_end_is_not_done(void **state)
{
    static struct asking asking;
    struct workbench *bench = &asking.bench;
    (void)state;
    workbench_open_fenced(bench, GC_MIB(256));
    gc_backing_add_peer(bench->contexts[0], bench->contexts[1]);
    gc_backing_add_peer(bench->contexts[2], bench->contexts[1]);
    const uint64_t address = workbench_alloc(bench, 0, 4096);
    sim_driver_submit(&bench->sim, 2, address, 4096);
    workbench_free(bench, address);
    assert_true(gc_fence_record(bench->contexts[0]));
    struct gc_context *ending = gc_teardown_begin(bench->core, 2);
    pthread_create(&asking.threads[0], NULL, ask_fence, &asking);
    pthread_create(&asking.threads[1], NULL, wait_for_peer, &asking);
    pthread_join(asking.threads[0], NULL);
    pthread_join(asking.threads[1], NULL);
    assert_false(asking.is_completed);
    assert_status(asking.waited, GC_DRIVER);
    gc_teardown_cancel(ending);
    const uint64_t other = workbench_alloc(bench, 0, 4096);
    assert_int_not_equal(other, address);
    sim_driver_complete(&bench->sim, 2);
    assert_true(gc_fence_poll(bench->contexts[0]));
    workbench_free(bench, other);
    workbench_close(bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(work_of_a_context_that_does_not_come_to_its_end_is_not_done),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("door", tests, NULL, NULL);
}
