/* How long an allocation and its free take: the measurements, the same for every allocator. A
 * program includes this and defines pair_alloc, pair_free and pair_start.
 *
 *   PROGRAM sizes            one thread, pairs of one size, and a mix of sizes among live blocks
 *   PROGRAM threads N        N threads at once, each its own pairs
 *   PROGRAM live N           pairs while N blocks live, and blocks replaced among them
 *
 * Each figure is the median of BENCH_ROUNDS (9) rounds of about BENCH_ROUND_US (4000), of one
 * thread its own time; of several threads the best round. Prints `name value unit` lines; the value
 * is ns a pair, or pairs in a microsecond of all threads. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ROUNDS_MAX 101
#define THREADS_MAX 64
#define BATCH 64

static void *pair_alloc(size_t bytes);
static void pair_free(void *block);
static void pair_start(void);

static unsigned rounds = 9;
static uint64_t round_ns = 4000000;

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static uint64_t now_ns(void)
{
    return clock_ns(CLOCK_MONOTONIC);
}

/* The thread's own time: other programs on its processor do not count. */
static uint64_t thread_ns(void)
{
    return clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, unsigned count)
{
    qsort(values, count, sizeof(*values), compare);
    return values[count / 2];
}

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* From 512 bytes to 4 MiB, each power of two as likely as the others. */
static size_t random_size(uint64_t *random)
{
    const uint64_t bits = next_random(random);
    const size_t base = (size_t)512 << (bits >> 32) % 13;
    return base + (size_t)(bits & (base - 1));
}

/* ---- what is timed: BATCH pairs a call ---- */

struct blocks {
    void **live;
    size_t *sizes;
    size_t count;
    uint64_t random;
    size_t bytes;
};

static void same_size(struct blocks *blocks)
{
    for (int i = 0; i < BATCH; i++)
        pair_free(pair_alloc(blocks->bytes));
}

/* Frees a random live block and allocates another of a random size in its place. */
static void mixed(struct blocks *blocks)
{
    for (int i = 0; i < BATCH; i++) {
        const size_t which = next_random(&blocks->random) % blocks->count;
        pair_free(blocks->live[which]);
        blocks->live[which] = pair_alloc(random_size(&blocks->random));
    }
}

/* As above, with the size it had. */
static void replaced(struct blocks *blocks)
{
    for (int i = 0; i < BATCH; i++) {
        const size_t which = next_random(&blocks->random) % blocks->count;
        pair_free(blocks->live[which]);
        blocks->live[which] = pair_alloc(blocks->sizes[which]);
    }
}

/* ns a pair: warmed up, then rounds of as many batches as fit the time. */
static double measure(void (*batch)(struct blocks *), struct blocks *blocks)
{
    double values[ROUNDS_MAX];
    const uint64_t warm_up = thread_ns();
    do
        batch(blocks);
    while (thread_ns() - warm_up < round_ns / 2);
    for (unsigned round = 0; round < rounds; round++) {
        const uint64_t start = thread_ns();
        uint64_t batches = 0;
        uint64_t taken;
        do {
            batch(blocks);
            batches++;
            taken = thread_ns() - start;
        } while (taken < round_ns);
        values[round] = (double)taken / (double)(batches * BATCH);
    }
    return median(values, rounds);
}

static struct blocks fill(size_t count, size_t (*size)(uint64_t *random))
{
    struct blocks blocks = {.count = count, .random = 88172645463325252U};
    blocks.live = calloc(count, sizeof(*blocks.live));
    blocks.sizes = calloc(count, sizeof(*blocks.sizes));
    if (blocks.live == NULL || blocks.sizes == NULL)
        exit(EXIT_FAILURE);
    for (size_t i = 0; i < count; i++) {
        blocks.sizes[i] = size(&blocks.random);
        blocks.live[i] = pair_alloc(blocks.sizes[i]);
    }
    return blocks;
}

static void empty(struct blocks *blocks)
{
    for (size_t i = 0; i < blocks->count; i++)
        pair_free(blocks->live[i]);
    free(blocks->live);
    free(blocks->sizes);
}

/* ---- the cases ---- */

static void measure_sizes(void)
{
    static const struct {
        const char *name;
        size_t bytes;
    } sizes[] = {{"512B", 512}, {"64KiB", 65536}, {"4MiB", 4194304}};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct blocks blocks = {.bytes = sizes[i].bytes};
        printf("pair_%s %.2f ns\n", sizes[i].name, measure(same_size, &blocks));
    }
    struct blocks blocks = fill(64, random_size);
    printf("pair_mixed %.2f ns\n", measure(mixed, &blocks));
    empty(&blocks);
}

static size_t small_size(uint64_t *random)
{
    return 512 * (1 + next_random(random) % 4);
}

static void measure_live(size_t count)
{
    struct blocks blocks = fill(count, small_size);
    blocks.bytes = 512;
    printf("pair_live_%zu %.2f ns\n", count, measure(same_size, &blocks));
    printf("replace_live_%zu %.2f ns\n", count, measure(replaced, &blocks));
    empty(&blocks);
}

/* ---- threads ---- */

static struct {
    pthread_barrier_t gate;
    atomic_bool stop;
    bool is_last;
    size_t bytes;
} team;

struct member {
    pthread_t thread;
    uint64_t pairs; /* of the last round */
    uint64_t ns;
};

static void *work(void *argument)
{
    struct member *member = argument;
    struct blocks blocks = {.bytes = team.bytes};
    pair_start();
    for (;;) {
        pthread_barrier_wait(&team.gate);
        if (team.is_last)
            return NULL;
        const uint64_t start = now_ns();
        uint64_t batches = 0;
        while (!atomic_load_explicit(&team.stop, memory_order_relaxed)) {
            same_size(&blocks);
            batches++;
        }
        member->ns = now_ns() - start;
        member->pairs = batches * BATCH;
        pthread_barrier_wait(&team.gate);
    }
}

static double team_round(const struct member *members, unsigned count)
{
    const struct timespec nap = {.tv_nsec = (long)round_ns};
    double rate = 0;
    atomic_store(&team.stop, false);
    pthread_barrier_wait(&team.gate);
    nanosleep(&nap, NULL);
    atomic_store(&team.stop, true);
    pthread_barrier_wait(&team.gate);
    for (unsigned i = 0; i < count; i++)
        rate += (double)members[i].pairs * 1000.0 / (double)members[i].ns;
    return rate;
}

static void measure_threads(unsigned count, size_t bytes, const char *name)
{
    static struct member members[THREADS_MAX];
    double values[ROUNDS_MAX];
    team.bytes = bytes;
    team.is_last = false;
    pthread_barrier_init(&team.gate, NULL, count + 1);
    for (unsigned i = 0; i < count; i++) {
        if (pthread_create(&members[i].thread, NULL, work, &members[i]) != 0)
            exit(EXIT_FAILURE);
    }
    (void)team_round(members, count);
    for (unsigned round = 0; round < rounds; round++)
        values[round] = team_round(members, count);
    team.is_last = true;
    pthread_barrier_wait(&team.gate);
    for (unsigned i = 0; i < count; i++)
        pthread_join(members[i].thread, NULL);
    pthread_barrier_destroy(&team.gate);
    qsort(values, rounds, sizeof(*values), compare);
    printf("threads_%u_%s %.3f pairs/us\n", count, name, values[rounds - 1]);
}

/* ---- the command line ---- */

static uint64_t setting(const char *name, uint64_t otherwise, uint64_t maximum)
{
    const char *text = getenv(name);
    const uint64_t value = text != NULL ? strtoull(text, NULL, 10) : otherwise;
    return value > 0 && value <= maximum ? value : otherwise;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "sizes";
    const unsigned long count = argc > 2 ? strtoul(argv[2], NULL, 10) : 1;
    rounds = (unsigned)setting("BENCH_ROUNDS", rounds, ROUNDS_MAX);
    round_ns = setting("BENCH_ROUND_US", round_ns / 1000, 1000000) * 1000;
    pair_start();
    if (strcmp(what, "sizes") == 0) {
        measure_sizes();
    } else if (strcmp(what, "live") == 0 && count > 0) {
        measure_live(count);
    } else if (strcmp(what, "threads") == 0 && count > 0 && count <= THREADS_MAX) {
        measure_threads((unsigned)count, 512, "512B");
        measure_threads((unsigned)count, 65536, "64KiB");
    } else {
        fprintf(stderr, "usage: %s sizes | live N | threads N\n", argv[0]);
        return 2;
    }
    return 0;
}
