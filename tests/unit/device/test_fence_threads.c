/* Several threads at the fences of one context, with a peer, captures, and a cache for each thread.
 * Every allocation checks that no queued work uses what it got. Run under the thread sanitizer too.
 */
#include "core/base/bits.h"
#include "core/device/registry.h"
#include "core/reclaim/defer.h"
#include "core/reclaim/tcache.h"
#include "tests/unit/cmocka_all.h"
#include "tests/unit/workbench.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define THREADS 4
#define ROUNDS 20000
#define STOPS 50000
#define LOOKS 200

struct crew {
    struct workbench bench;
    atomic_uint unexpected;
    atomic_uint recorded;
};

struct hand {
    struct crew *crew;
    struct gc_tcache *cache;
    unsigned seed;
};

static unsigned draw(struct hand *hand, unsigned count)
{
    return (unsigned)rand_r(&hand->seed) % count;
}

static void expect(struct crew *crew, bool is_right)
{
    if (!is_right)
        atomic_fetch_add(&crew->unexpected, 1);
}

static void use_and_free(struct hand *hand)
{
    struct workbench *bench = &hand->crew->bench;
    const struct gc_request request = {.bytes = (uint64_t)512 << draw(hand, 12)};
    struct gc_context *context = bench->contexts[0];
    uint64_t address;
    int code;
    if (!gc_tcache_alloc(hand->cache, context, &request, &address) &&
        (address = gc_tcache_alloc_from_pool(hand->cache, context, request.bytes, API_MALLOC)) ==
            GC_ADDRESS_NONE) {
        const enum gc_status status = gc_alloc(bench->core, context, &request, &address, &code);
        if (status == GC_OUT_OF_MEMORY)
            return; /* in a capture */
        expect(hand->crew, status == GC_OK);
        if (status != GC_OK)
            return;
    }
    sim_driver_expect_idle(&bench->sim, address, request.bytes);
    sim_driver_submit(&bench->sim, 1 + draw(hand, 2), address, request.bytes);
    if (!gc_tcache_free(bench->core, hand->cache, address) &&
        !gc_tcache_free_to_pool(bench->core, hand->cache, address))
        expect(hand->crew, gc_free(bench->core, address, API_OTHER, &code) == GC_OK);
}

static void kind(struct hand *hand)
{
    bool ignored = false;
    struct gc_context *context = hand->crew->bench.contexts[0];
    int code;
    switch (draw(hand, 5)) {
    case 0:
    case 1:
        atomic_fetch_add(&hand->crew->recorded, gc_fence_record(context));
        break;
    case 2:
        if (gc_fence_poll(context))
            gc_defer_collect(context);
        break;
    case 3:
        if (gc_fence_wait_oldest(context, GC_FOREVER, &ignored))
            gc_defer_collect(context);
        break;
    default:
        if (gc_fence_synchronize(context, GC_FOREVER, &code) == GC_OK)
            gc_defer_collect(context);
        break;
    }
}

static void *work(void *argument)
{
    struct hand *hand = argument;
    hand->cache = gc_tcache_create(hand->crew->bench.core);
    for (unsigned i = 0; i < ROUNDS || atomic_load(&hand->crew->recorded) <= 100; i++) {
        if (draw(hand, 3) == 0)
            kind(hand);
        else
            use_and_free(hand);
    }
    gc_tcache_destroy(hand->crew->bench.core, hand->cache);
    return NULL;
}

static void *capture(void *argument)
{
    struct hand *hand = argument;
    for (unsigned i = 0; i < ROUNDS / 40; i++) {
        workbench_capture(&hand->crew->bench, 1, true);
        use_and_free(hand);
        workbench_capture(&hand->crew->bench, 1, false);
        use_and_free(hand);
    }
    return NULL;
}

static void streak(bool has_captures)
{
    static struct crew crew;
    struct hand hands[THREADS + 1];
    pthread_t threads[THREADS + 1];
    const struct workbench_setup setup = {.mode = GC_MODE_CACHE,
                                          .capacity_bytes = GC_MIB(256),
                                          .trim_percent = 100,
                                          .is_fenced = true};
    const unsigned count = has_captures ? THREADS + 1 : THREADS;
    workbench_open(&crew.bench, &setup);
    atomic_store(&crew.unexpected, 0);
    atomic_store(&crew.recorded, 0);
    crew.bench.sim.is_prompt = true;
    gc_backing_add_peer(crew.bench.contexts[0], crew.bench.contexts[1]);
    for (unsigned i = 0; i < count; i++) {
        hands[i] = (struct hand){.crew = &crew, .seed = 7 * i + 1};
        assert_int_equal(pthread_create(&threads[i], NULL, i < THREADS ? work : capture, &hands[i]),
                         0);
    }
    for (unsigned i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&crew.unexpected), 0);
    assert_true(crew.bench.contexts[0]->fences->count <= GC_FENCES_MAX);
    /* A fence of the driver's for each member of those that are open, and no other. */
    assert_int_equal(crew.bench.sim.fence_count, 2 * crew.bench.contexts[0]->fences->count);
    gc_reclaim_empty(crew.bench.core, crew.bench.device);
    assert_int_equal(workbench_figures(&crew.bench).pending.current, 0);
    /* Memory allocated beside a capture is destroyed with its context. */
    assert_int_equal(crew.bench.sim.used_bytes, gc_device_reserved_bytes(crew.bench.device));
    gc_teardown_finish(
        gc_teardown_begin(crew.bench.core, gc_context_handle(crew.bench.contexts[0])));
    assert_int_equal(gc_device_reserved_bytes(crew.bench.device), 0);
    workbench_close(&crew.bench);
}

static void threads_share_a_ring(void **state)
{
    (void)state;
    streak(false);
}

static void threads_share_a_ring_beside_captures(void **state)
{
    (void)state;
    streak(true);
}

/* ---- a kernel that refuses barriers ---- */

/* From now on membarrier fails in all threads, permanently. False: filters are not available. */
static bool refuse_membarrier(void)
{
    struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog filter = {sizeof(steps) / sizeof(steps[0]), steps};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter) == 0 &&
           syscall(SYS_membarrier, 0, 0) == -1;
}

struct owners {
    struct workbench bench;
    atomic_uint ready_count;
    atomic_bool is_over;
};

/* One block in and out of the thread's cache all the while. */
static void *own_a_cache(void *argument)
{
    struct owners *owners = argument;
    struct gc_core *core = owners->bench.core;
    struct gc_tcache *cache = gc_tcache_create(core);
    struct gc_context *context = owners->bench.contexts[0];
    const struct gc_request request = {.bytes = 4096, .api = API_MALLOC};
    uint64_t address;
    int code;
    atomic_fetch_add(&owners->ready_count, 1);
    while (!atomic_load_explicit(&owners->is_over, memory_order_relaxed)) {
        if (!gc_tcache_alloc(cache, context, &request, &address) &&
            gc_alloc(core, context, &request, &address, &code) != GC_OK)
            continue;
        if (!gc_tcache_free(core, cache, address))
            (void)!gc_free(core, address, API_MALLOC, &code);
    }
    gc_tcache_destroy(core, cache);
    return NULL;
}

/* The number of calls of the owners in their caches: it stands still while those are stopped. */
static uint64_t deeds(struct gc_core *core)
{
    uint64_t count = 0;
    for (struct gc_tcache *cache = atomic_load(&core->tcaches); cache != NULL;
         cache = atomic_load(&cache->next))
        count += atomic_load(&cache->contexts[0].cached_bytes) +
                 *(volatile uint64_t *)&cache->contexts[0].free_count +
                 *(volatile uint64_t *)&cache->contexts[0].streak.count;
    return count;
}

static unsigned count_moves(struct gc_core *core)
{
    unsigned moves = 0;
    for (unsigned i = 0; i < STOPS; i++) {
        gc_tcache_stop_all(core);
        const uint64_t before = deeds(core);
        bool has_moved = false;
        for (unsigned look = 0; look < LOOKS; look++)
            has_moved |= deeds(core) != before;
        moves += has_moved;
        gc_tcache_resume_all(core);
        /* They come in again, and are met at any point. */
        for (unsigned look = 0; look < i % LOOKS; look++)
            atomic_signal_fence(memory_order_seq_cst);
    }
    return moves;
}

static void stop_owners(bool is_refused_later)
{
    static struct owners owners;
    pthread_t threads[THREADS];
    workbench_open_fenced(&owners.bench, GC_MIB(256));
    struct gc_core *core = owners.bench.core;
    atomic_store(&owners.is_over, false);
    atomic_store(&owners.ready_count, 0);
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, own_a_cache, &owners), 0);
    while (atomic_load(&owners.ready_count) < THREADS)
        ;
    const bool is_refused = !is_refused_later || refuse_membarrier();
    errno = 0;
    const unsigned moves = is_refused ? count_moves(core) : 0;
    const int error = errno;
    const bool trusts_barrier = core->has_membarrier;
    atomic_store(&owners.is_over, true);
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    workbench_close(&owners.bench);
    if (!is_refused)
        skip();
    assert_false(trusts_barrier);
    assert_int_equal(moves, 0);
    assert_int_equal(error, 0);
}

static void caches_stand_still_under_a_filter_set_later(void **state)
{
    (void)state;
    stop_owners(true);
}

static void caches_stand_still_under_a_filter_set_before(void **state)
{
    (void)state;
    stop_owners(false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_share_a_ring),
        cmocka_unit_test(threads_share_a_ring_beside_captures),
        /* Filters stay. */
        cmocka_unit_test(caches_stand_still_under_a_filter_set_later),
        cmocka_unit_test(caches_stand_still_under_a_filter_set_before),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("fence_threads", tests, NULL, NULL);
}
