/* link: -l:libcuda.so.1 -l:libcudart.so.13 */
/* A random program that is right by CUDA's rules, and what memory must hold at each of its steps.
 * usage: torture SEED STEPS THREADS ASPECT,…|all [-ASPECT…] ; torture --list
 *
 * STEPS of each thread; an aspect is what the program may contain (torture.h). One seed with one
 * set of arguments makes one program, but for requests that find no memory. Prints what it did, and
 * `used BEFORE AFTER`: the device's used bytes. Exit status: 0 right; 1 wrong bytes, or a call that
 * failed; 3 hung: a step was not finished in TORTURE_PATIENCE seconds (90: reclaim waits for up to
 * 30). TORTURE_WAYS: the ways to another context's memory (torture.h), in place of those that the
 * seed chooses.
 *
 * It knows nothing of the library, and is right without it, which checks the test itself. */
#include "torture.h"

#include <time.h>
#include <unistd.h>

#define ROUND_STEPS 60

static const char *const aspect_names[] = {
#define ASPECT(name, help) #name,
    TORTURE_ASPECTS(ASPECT)
#undef ASPECT
};

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* ---- threads ---- */

static void meet(struct worker *worker)
{
    atomic_store(&worker->since_ns, 0);
    pthread_barrier_wait(&worker->world->barrier);
    atomic_store(&worker->since_ns, now_ns());
}

static void begin(struct worker *worker, const char *what)
{
    atomic_store(&worker->doing, what);
    atomic_store(&worker->since_ns, now_ns());
}

static void *run(void *argument)
{
    struct worker *worker = argument;
    struct world *world = worker->world;

    begin(worker, "open");
    open_worker(worker);
    for (worker->step = 0; worker->step < world->step_count; worker->step++) {
        if (worker->step % ROUND_STEPS == ROUND_STEPS - 1) {
            const uint64_t round = worker->step / ROUND_STEPS;
            begin(worker, "leave");
            leave(worker, round);
            meet(worker);
            atomic_store(&worker->doing, "change");
            if (worker->index == 0)
                change(worker, round);
            meet(worker);
            atomic_store(&worker->doing, "take up");
            take_up(worker, round);
        }
        begin(worker, "step");
        do_step(worker);
    }
    begin(worker, "close");
    close_worker(worker);
    atomic_store(&worker->since_ns, 0);
    return NULL;
}

static void *watch(void *argument)
{
    struct world *world = argument;

    for (;;) {
        usleep(200000);
        const uint64_t now = now_ns();
        for (unsigned i = 0; i <= world->thread_count; i++) {
            const uint64_t since = atomic_load(&world->workers[i].since_ns);
            if (since == 0 || now < since + world->patience * UINT64_C(1000000000))
                continue;
            for (unsigned j = 0; j <= world->thread_count; j++) {
                const struct worker *worker = &world->workers[j];
                const uint64_t begun = atomic_load(&worker->since_ns);
                fprintf(stderr, "hang: seed %llu thread %u step %llu: %s, for %.1f s\n",
                        (unsigned long long)world->seed, j, (unsigned long long)worker->step,
                        atomic_load(&worker->doing),
                        begun == 0 ? 0.0 : (double)(now - begun) / 1e9);
            }
            _exit(3);
        }
    }
    return NULL;
}

/* ---- the command line ---- */

static int list_aspects(void)
{
#define ASPECT(name, help) printf("%-12s %s\n", #name, help);
    TORTURE_ASPECTS(ASPECT)
#undef ASPECT
    return EXIT_SUCCESS;
}

static bool choose_aspects(struct world *world, char *list)
{
    for (char *word = strtok(list, ","); word != NULL; word = strtok(NULL, ",")) {
        const bool is_wanted = word[0] != '-';
        const char *name = is_wanted ? word : word + 1;
        unsigned found = 0;

        for (unsigned i = 0; i < ASPECTS; i++)
            if (strcmp(name, aspect_names[i]) == 0 || strcmp(name, "all") == 0) {
                world->with[i] = is_wanted;
                found++;
            }
        if (found == 0 && strcmp(name, "none") != 0) {
            fprintf(stderr, "torture: no aspect is called %s\n", name);
            return false;
        }
    }
    return true;
}

static size_t used_bytes(void)
{
    size_t free_bytes, total;

    CHECK(cuMemGetInfo(&free_bytes, &total));
    return total - free_bytes;
}

static void run_threads(struct world *world)
{
    pthread_t threads[THREADS], watcher;

    if (pthread_create(&watcher, NULL, watch, world) != 0)
        exit(EXIT_FAILURE);
    for (unsigned i = 0; i < world->thread_count; i++)
        if (pthread_create(&threads[i], NULL, run, &world->workers[i]) != 0)
            exit(EXIT_FAILURE);
    for (unsigned i = 0; i < world->thread_count; i++)
        pthread_join(threads[i], NULL);
    struct worker *last = &world->workers[world->thread_count];
    atomic_store(&last->doing, "end");
    atomic_store(&last->since_ns, now_ns());
    close_world(world);
    atomic_store(&last->since_ns, 0);
}

int main(int argument_count, char **arguments)
{
    static struct world world;
    CUcontext first;

    if (argument_count == 2 && strcmp(arguments[1], "--list") == 0)
        return list_aspects();
    if (argument_count != 5 || !choose_aspects(&world, arguments[4]))
        return 2;
    world.seed = strtoull(arguments[1], NULL, 10);
    world.step_count = strtoull(arguments[2], NULL, 10);
    world.thread_count = (unsigned)atoi(arguments[3]);
    world.patience = getenv("TORTURE_PATIENCE") ? (unsigned)atoi(getenv("TORTURE_PATIENCE")) : 90;
    if (world.thread_count < 1 || world.thread_count > THREADS)
        return 2;
    CHECK(cuInit(0));
    CHECK(cuDevicePrimaryCtxRetain(&first, 0));
    CHECK(cuCtxSetCurrent(first));
    const size_t before = used_bytes();
    open_world(&world);
    world.workers = calloc(world.thread_count + 1, sizeof(*world.workers)); /* the last: main */
    for (unsigned i = 0; i < world.thread_count; i++) {
        world.workers[i].world = &world;
        world.workers[i].index = i;
        world.workers[i].state = mix(world.seed * THREADS + i + 1);
    }
    run_threads(&world);
    const size_t after = used_bytes();
    printf("steps %llu work %llu checks %llu launches %llu refused %llu wrong %llu used %zu %zu\n",
           (unsigned long long)world.step_count * (unsigned)atoi(arguments[3]),
           (unsigned long long)world.work, (unsigned long long)world.checks,
           (unsigned long long)world.launches, (unsigned long long)world.refused,
           (unsigned long long)world.wrong, before, after);
    return world.wrong == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
