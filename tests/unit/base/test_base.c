/* The small things under everything: status texts, arithmetic, locks, host memory, record stores,
 * gauges. */
#include "core/base/bits.h"
#include "core/base/clock.h"
#include "core/base/host_mem.h"
#include "core/base/lock.h"
#include "core/base/slab.h"
#include "core/base/status.h"
#include "core/observe/stats.h"
#include "tests/unit/cmocka_all.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static void every_status_has_a_text(void **state)
{
    (void)state;
    for (int i = 0; i < GC_STATUS_COUNT; i++)
        assert_true(strlen(gc_status_text((enum gc_status)i)) > 0);
    assert_string_equal(gc_status_text(GC_OK), "success");
    assert_string_equal(gc_status_text((enum gc_status)GC_STATUS_COUNT), "unknown status");
}

static void arithmetic_notices_overflow(void **state)
{
    uint64_t result;
    (void)state;
    assert_true(gc_add_u64(UINT64_MAX - 1, 1, &result));
    assert_false(gc_add_u64(UINT64_MAX, 1, &result));
    assert_true(gc_mul_u64(UINT64_C(1) << 32, UINT64_C(1) << 31, &result));
    assert_false(gc_mul_u64(UINT64_C(1) << 32, UINT64_C(1) << 32, &result));
    assert_true(gc_round_up_u64(0, 512, &result));
    assert_int_equal(result, 0);
    assert_true(gc_round_up_u64(513, 512, &result));
    assert_int_equal(result, 1024);
    assert_true(gc_round_up_u64(UINT64_MAX - 511, 512, &result));
    assert_int_equal(result, UINT64_MAX - 511);
    assert_false(gc_round_up_u64(UINT64_MAX - 510, 512, &result));
    assert_int_equal(gc_sub_or_zero_u64(3, 5), 0);
    assert_int_equal(gc_top_bit_u64(1), 0);
    assert_int_equal(gc_top_bit_u64(UINT64_MAX), 63);
}

static void locks_know_who_holds_them(void **state)
{
    struct gc_lock outer;
    struct gc_lock inner;
    (void)state;
    gc_lock_init(&outer, GC_RANK_POOL);
    gc_lock_init(&inner, GC_RANK_SLAB);
    assert_int_equal(gc_lock_held_count(), 0);
    gc_lock_acquire(&outer);
    gc_lock_acquire(&inner);
    assert_int_equal(gc_lock_held_count(), 2);
    gc_lock_release(&outer);
    gc_lock_release(&inner);
    assert_int_equal(gc_lock_held_count(), 0);
}

/* ---- threads and a lock ---- */

#define LOCK_THREADS 4
#define LOCK_ROUNDS 20000

struct locked {
    struct gc_lock lock;
    struct gc_condition changed;
    unsigned turn; /* of LOCK_THREADS threads; guarded, as the next two */
    unsigned number;
    uint64_t sum;
};

/* Each addition is two steps, between which another thread would be seen. */
static void *add_locked(void *argument)
{
    struct locked *locked = argument;
    for (int i = 0; i < LOCK_ROUNDS; i++) {
        gc_lock_acquire(&locked->lock);
        const uint64_t sum = *(volatile uint64_t *)&locked->sum;
        if (i % 64 == 0)
            sched_yield();
        *(volatile uint64_t *)&locked->sum = sum + 1;
        gc_lock_release(&locked->lock);
    }
    return NULL;
}

/* The threads take turns: each sleeps until it is its own. */
static void *take_turns(void *argument)
{
    struct locked *locked = argument;
    gc_lock_acquire(&locked->lock);
    const unsigned own = locked->number++;
    for (int i = 0; i < LOCK_ROUNDS / 20; i++) {
        while (locked->turn % LOCK_THREADS != own)
            gc_lock_wait(&locked->lock, &locked->changed);
        locked->turn++;
        gc_lock_broadcast(&locked->changed);
    }
    gc_lock_release(&locked->lock);
    return NULL;
}

static void run_locked(struct locked *locked, void *(*work)(void *))
{
    pthread_t threads[LOCK_THREADS];
    for (unsigned i = 0; i < LOCK_THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, work, locked), 0);
    for (unsigned i = 0; i < LOCK_THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&locked->lock.word), 0);
}

static void a_lock_excludes_and_wakes(void **state)
{
    struct locked locked = {.sum = 0};
    (void)state;
    gc_lock_init(&locked.lock, GC_RANK_POOL);
    run_locked(&locked, add_locked);
    assert_int_equal(locked.sum, LOCK_THREADS * LOCK_ROUNDS);
    run_locked(&locked, take_turns);
    assert_int_equal(locked.turn, LOCK_THREADS * LOCK_ROUNDS / 20);
}

static void a_wait_with_a_limit_ends(void **state)
{
    struct locked locked = {.sum = 0};
    (void)state;
    gc_lock_init(&locked.lock, GC_RANK_POOL);
    gc_lock_acquire(&locked.lock);
    const uint64_t start_ns = gc_clock_ns();
    while (gc_lock_wait_for(&locked.lock, &locked.changed, 5000000))
        ;
    assert_true(gc_clock_ns() - start_ns >= 5000000);
    gc_lock_release(&locked.lock);
}

/* True if a process that takes the locks in this order is ended by the check. */
static bool order_is_refused(enum gc_lock_rank first, enum gc_lock_rank second)
{
    const pid_t child = fork();
    if (child == 0) {
        struct gc_lock locks[2];
        dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), STDERR_FILENO);
        signal(SIGABRT, SIG_DFL);
        gc_lock_init(&locks[0], first);
        gc_lock_init(&locks[1], second);
        gc_lock_acquire(&locks[0]);
        gc_lock_acquire(&locks[1]);
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

static void falling_rank_is_refused(void **state)
{
    (void)state;
#ifdef GC_CHECK
    assert_true(order_is_refused(GC_RANK_SLAB, GC_RANK_POOL));
    assert_true(order_is_refused(GC_RANK_POOL, GC_RANK_POOL));
#endif
    assert_false(order_is_refused(GC_RANK_POOL, GC_RANK_SLAB));
}

static void host_memory_is_counted_exactly(void **state)
{
    struct gc_host_mem host = {0};
    (void)state;
    char *memory = gc_host_mem_map(&host, 4097);
    assert_non_null(memory);
    assert_int_equal(memory[4096], 0);
    assert_int_equal(gc_host_mem_bytes(&host) % (uint64_t)sysconf(_SC_PAGESIZE), 0);
    assert_true(gc_host_mem_bytes(&host) >= 4097);
    gc_host_mem_unmap(&host, memory, 4097);
    assert_int_equal(gc_host_mem_bytes(&host), 0);
    assert_null(gc_host_mem_map(&host, UINT64_MAX));
    assert_int_equal(gc_host_mem_bytes(&host), 0);
}

static void slab_reuses_its_records(void **state)
{
    enum { COUNT = 5000 };
    static void *records[COUNT];
    struct gc_host_mem host = {0};
    struct gc_slab slab;
    (void)state;
    gc_slab_init(&slab, &host, 64);
    assert_null(gc_slab_try_alloc(&slab));
    for (unsigned i = 0; i < COUNT; i++) {
        records[i] = gc_slab_alloc(&slab);
        assert_non_null(records[i]);
        memset(records[i], (int)i, 64);
    }
    for (unsigned i = 0; i < COUNT; i++) {
        for (unsigned j = 0; j < 64; j++)
            assert_int_equal(((unsigned char *)records[i])[j], i & 255);
    }
    const uint64_t bytes = gc_host_mem_bytes(&host);
    for (unsigned i = 0; i < COUNT; i++)
        gc_slab_free(&slab, records[i]);
    for (unsigned i = 0; i < COUNT; i++)
        assert_non_null(gc_slab_alloc(&slab));
    assert_int_equal(gc_host_mem_bytes(&host), bytes);
    gc_slab_fini(&slab);
    assert_int_equal(gc_host_mem_bytes(&host), 0);
}

/* The pages of a chunk that are in memory. */
static unsigned resident_pages(const char *chunk)
{
    unsigned char pages[GC_SLAB_CHUNK_BYTES / 4096];
    unsigned count = 0;
    assert_int_equal(mincore((void *)(uintptr_t)chunk, GC_SLAB_CHUNK_BYTES, pages), 0);
    for (size_t i = 0; i < sizeof(pages); i++)
        count += pages[i] & 1U;
    return count;
}

static void slab_touches_what_it_hands_out(void **state)
{
    struct gc_host_mem host = {0};
    struct gc_slab slab;
    (void)state;
    if (sysconf(_SC_PAGESIZE) != 4096)
        skip();
    gc_slab_init(&slab, &host, 64);
    const char *first = gc_slab_alloc(&slab); /* behind the link between chunks */
    assert_int_equal(resident_pages(first - 64), 1);
    for (int i = 2; i < 128; i++)
        *(char *)gc_slab_alloc(&slab) = 1;
    assert_int_equal(resident_pages(first - 64), 2);
    gc_slab_fini(&slab);
    assert_int_equal(gc_host_mem_bytes(&host), 0);
}

static void gauge_remembers_its_peak(void **state)
{
    struct gc_gauge_cell cell = {0};
    struct gc_gauge gauge;
    (void)state;
    gc_stats_add_gauge(&cell, 10);
    gc_stats_add_gauge(&cell, 5);
    gc_stats_sub_gauge(&cell, 12);
    gc_stats_add_gauge(&cell, 1);
    gc_stats_read_gauge(&cell, &gauge);
    assert_int_equal(gauge.current, 4);
    assert_int_equal(gauge.peak, 15);
    gc_stats_sub_gauge_saturating(&cell, 100);
    gc_stats_read_gauge(&cell, &gauge);
    assert_int_equal(gauge.current, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_status_has_a_text),
        cmocka_unit_test(arithmetic_notices_overflow),
        cmocka_unit_test(locks_know_who_holds_them),
        cmocka_unit_test(a_lock_excludes_and_wakes),
        cmocka_unit_test(a_wait_with_a_limit_ends),
        cmocka_unit_test(falling_rank_is_refused),
        cmocka_unit_test(host_memory_is_counted_exactly),
        cmocka_unit_test(slab_reuses_its_records),
        cmocka_unit_test(slab_touches_what_it_hands_out),
        cmocka_unit_test(gauge_remembers_its_peak),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
