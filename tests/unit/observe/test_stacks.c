/* Stacks and where live allocations came from, against a naive list; many threads at once. */
#include "core/base/bits.h"
#include "core/observe/stacks.h"
#include "tests/unit/cmocka_all.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define LIVE_MAX 5000
#define STEPS 200000
#define ADDRESSES 8192 /* few, so that they come again */
#define BASE UINT64_C(0x7f0000000000)

static struct gc_host_mem host;
static struct gc_stack_table *table;

static void start(void)
{
    host = (struct gc_host_mem){0};
    assert_int_equal(gc_stacks_create(&host, &table), GC_OK);
}

static void stop(void)
{
    gc_stacks_destroy(table);
    assert_int_equal(gc_host_mem_bytes(&host), 0);
}

__attribute__((noinline)) static uint32_t take_here(void)
{
    return gc_stacks_capture(table);
}

/* A stack of this process, in memory of its own. */
static long resident_kib(void)
{
    long pages = -1, shared = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file != NULL) {
        assert_int_equal(fscanf(file, "%*d %ld %ld", &pages, &shared), 2);
        fclose(file);
    }
    return (pages - shared) * (sysconf(_SC_PAGESIZE) / 1024);
}

static void a_stack_is_kept_once(void **state)
{
    uint32_t stacks[3];
    volatile int count = 3; /* one call, not three beside each other */
    (void)state;
    start();
    for (int i = 0; i < count; i++)
        stacks[i] = take_here();
    assert_int_not_equal(stacks[0], GC_STACK_NONE);
    assert_int_equal(stacks[0], stacks[1]);
    assert_int_equal(stacks[1], stacks[2]);
    stop();
}

/* Addresses that come and go cost what is live at once, not what there ever was. */
static void memory_follows_what_is_live(void **state)
{
    const uint64_t lived = 400000;
    const uint64_t live = 100;
    (void)state;
    start();
    const uint32_t stack = take_here();
    const long before = resident_kib();
    for (uint64_t i = 0; i < lived + live; i++) {
        if (i < lived)
            gc_stacks_on_alloc(table, 0, BASE + i * 512, 512, stack);
        if (i >= live)
            gc_stacks_on_free(table, 0, BASE + (i - live) * 512);
    }
    assert_in_range(resident_kib() - before, 0, 2048);
    assert_in_range(gc_host_mem_bytes(&host), 1, 512 << 10);
    assert_int_equal(gc_stacks_lost(table), 0);
    stop();
}

static void a_site_has_its_frames_and_counts(void **state)
{
    struct gc_stack_site sites[2];
    char text[GC_STACK_TEXT_BYTES];
    (void)state;
    start();
    const uint32_t stack = take_here();
    gc_stacks_on_alloc(table, 1, 0x1000, 100, stack);
    gc_stacks_on_alloc(table, 1, 0x2000, 50, stack);
    gc_stacks_on_free(table, 1, 0x1000);
    gc_stacks_on_alloc(table, 1, 0x3000, 20, stack);
    assert_int_equal(gc_stacks_sites(table, 0, sites, 2), 0);
    assert_int_equal(gc_stacks_sites(table, 1, sites, 2), 1);
    assert_int_equal(sites[0].count, 3);
    assert_int_equal(sites[0].bytes, 170);
    assert_int_equal(sites[0].live_count, 2);
    assert_int_equal(sites[0].live_bytes, 70);
    assert_int_equal(sites[0].peak_bytes, 150);
    assert_int_equal(gc_stacks_find(table, 1, 0x2000), sites[0].site);
    assert_int_equal(gc_stacks_find(table, 1, 0x1000), 0);
    assert_int_equal(gc_stacks_find(table, 0, 0x2000), 0);
    assert_true(gc_stacks_frame(table, sites[0].site, 0, text));
    uint32_t frames = 1;
    while (gc_stacks_frame(table, sites[0].site, frames, text))
        frames++;
    assert_in_range(frames, 2, GC_STACK_FRAMES_MAX);
    /* Without a stack there is nothing to find, and that is counted. */
    gc_stacks_on_alloc(table, 1, 0x4000, 20, GC_STACK_NONE);
    assert_int_equal(gc_stacks_lost(table), 1);
    /* An unknown address is harmless; an address that comes again replaces what it was. */
    gc_stacks_on_free(table, 1, 0x9000);
    gc_stacks_on_alloc(table, 1, 0x3000, 30, stack);
    assert_int_equal(gc_stacks_sites(table, 1, sites, 2), 1);
    assert_int_equal(sites[0].live_bytes, 80);
    assert_int_equal(sites[0].live_count, 2);
    stop();
}

static void random_allocations_are_found_as_in_a_list(void **state)
{
    static struct {
        uint64_t address;
        uint64_t bytes;
    } live[LIVE_MAX];
    static bool taken[ADDRESSES];
    uint32_t count = 0;
    uint64_t bytes = 0;
    const uint64_t first = (uint64_t)time(NULL);
    uint64_t seed = first;
    struct gc_stack_site site = {0};
    (void)state;
    print_message("seed %llu\n", (unsigned long long)first);
    start();
    const uint32_t stack = take_here();
    for (int step = 0; step < STEPS; step++) {
        seed = gc_mix_u64(seed + 1);
        const uint64_t at = (seed >> 8) % ADDRESSES;
        if (count < LIVE_MAX && !taken[at] && (count == 0 || seed % 5 < 3)) {
            taken[at] = true;
            live[count].address = BASE + at * 512;
            live[count].bytes = seed >> 40;
            bytes += live[count].bytes;
            gc_stacks_on_alloc(table, 0, live[count].address, live[count].bytes, stack);
            count++;
        } else if (count > 0) {
            const uint32_t gone = (uint32_t)(seed >> 20) % count;
            taken[(live[gone].address - BASE) / 512] = false;
            gc_stacks_on_free(table, 0, live[gone].address);
            assert_int_equal(gc_stacks_find(table, 0, live[gone].address), 0);
            bytes -= live[gone].bytes;
            live[gone] = live[--count];
            if (count > 0)
                assert_int_not_equal(gc_stacks_find(table, 0, live[(seed >> 30) % count].address),
                                     0);
        }
    }
    for (uint32_t i = 0; i < count; i++)
        assert_int_not_equal(gc_stacks_find(table, 0, live[i].address), 0);
    assert_int_equal(gc_stacks_sites(table, 0, &site, 1), 1);
    assert_int_equal(site.live_bytes, bytes);
    assert_int_equal(site.live_count, count);
    assert_int_equal(gc_stacks_lost(table), 0);
    stop();
}

static void *take_and_note(void *argument)
{
    const uint64_t base = (uint64_t)(uintptr_t)argument << 32;
    for (uint64_t i = 1; i <= 2000; i++) {
        gc_stacks_on_alloc(table, 0, base + i * 512, 512, gc_stacks_capture(table));
        if (i % 2 == 0)
            gc_stacks_on_free(table, 0, base + i * 512);
    }
    return NULL;
}

static void threads_share_sites(void **state)
{
    pthread_t threads[8];
    struct gc_stack_site sites[4];
    (void)state;
    start();
    for (uintptr_t i = 0; i < 8; i++)
        pthread_create(&threads[i], NULL, take_and_note, (void *)(i + 1));
    for (int i = 0; i < 8; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(gc_stacks_sites(table, 0, sites, 4), 1);
    assert_int_equal(sites[0].count, 16000);
    assert_int_equal(sites[0].live_count, 8000);
    assert_int_equal(sites[0].live_bytes, 8000 * 512);
    stop();
}

static void without_memory_there_is_no_table(void **state)
{
    struct gc_stack_table *none = NULL;
    (void)state;
    if (getenv("GC_TEST_EMULATED") != NULL)
        skip(); /* qemu's user mode knows no limit on addresses */
    host = (struct gc_host_mem){0};
    struct rlimit before;
    struct rlimit little;
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    /* Room for some of its parts, but not for all. */
    for (uint64_t room = GC_MIB(8); room < GC_MIB(600); room += GC_MIB(32)) {
        little = before;
        little.rlim_cur = room;
        assert_int_equal(setrlimit(RLIMIT_AS, &little), 0);
        const enum gc_status status = gc_stacks_create(&host, &none);
        assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
        if (status == GC_OK) {
            assert_true(room > GC_MIB(200));
            gc_stacks_destroy(none);
            none = NULL;
        }
    }
    assert_null(none);
    assert_int_equal(gc_host_mem_bytes(&host), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stack_is_kept_once),
        cmocka_unit_test(memory_follows_what_is_live),
        cmocka_unit_test(a_site_has_its_frames_and_counts),
        cmocka_unit_test(random_allocations_are_found_as_in_a_list),
        cmocka_unit_test(threads_share_sites),
        cmocka_unit_test(without_memory_there_is_no_table),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("stacks", tests, NULL, NULL);
}
