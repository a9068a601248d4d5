/* Placement problems, solved: `name value unit` lines for each file. usage: placement [-d SECONDS]
 * [-c CAPACITY] [-n NODES] [-s SEED] [-t THREADS] [-p] FILE…
 *
 * With -p the deadline is of processor time, so that a loaded machine changes little. */
#include "core/base/bits.h"
#include "core/planner/placement_csv.h"
#include "tools/plan/plan_threads.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static double now(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static char *read_file(const char *path, size_t *bytes)
{
    FILE *file = fopen(path, "r");
    if (file == NULL || fseek(file, 0, SEEK_END) != 0) {
        perror(path);
        exit(2);
    }
    *bytes = (size_t)ftell(file);
    rewind(file);
    char *text = malloc(*bytes + 1);
    if (text == NULL || fread(text, 1, *bytes, file) != *bytes)
        exit(2);
    fclose(file);
    return text;
}

struct watch {
    clockid_t clock;
    double deadline;
};

static bool watch(void *argument, uint64_t lower, uint64_t peak, uint64_t nodes)
{
    const struct watch *self = argument;
    (void)lower;
    (void)peak;
    (void)nodes;
    return now(self->clock) < self->deadline;
}

static void report(const char *name, const struct gc_placement_csv *csv,
                   const struct gc_placement *placement, double begin_cpu, double seconds)
{
    printf("%s.buffers %u count\n", name, csv->count);
    printf("%s.lower_bound %llu bytes\n", name, (unsigned long long)placement->lower_bound_bytes);
    printf("%s.peak %llu bytes\n", name, (unsigned long long)placement->peak_bytes);
    printf("%s.ratio %.5f ratio\n", name,
           placement->lower_bound_bytes == 0
               ? 1
               : (double)placement->peak_bytes / (double)placement->lower_bound_bytes);
    printf("%s.optimal %d bool\n", name, placement->optimal);
    printf("%s.fits %d bool\n", name, placement->fits);
    printf("%s.nodes %llu count\n", name, (unsigned long long)placement->nodes);
    printf("%s.wall %.3f seconds\n", name, seconds);
    printf("%s.cpu %.3f seconds\n", name, now(CLOCK_PROCESS_CPUTIME_ID) - begin_cpu);
}

int main(int argc, char **argv)
{
    double deadline = 5;
    unsigned threads = 1;
    clockid_t clock = CLOCK_MONOTONIC;
    struct gc_placement_options options = {.seed = 1, .watch = watch};
    uint64_t capacity = GC_PLACEMENT_UNLIMITED;
    int option;
    bool all_solved = true;
    while ((option = getopt(argc, argv, "d:c:n:s:t:p")) != -1) {
        if (option == 'd')
            deadline = atof(optarg);
        else if (option == 'c')
            capacity = strtoull(optarg, NULL, 10);
        else if (option == 'n')
            options.node_max = strtoull(optarg, NULL, 10);
        else if (option == 't')
            threads = (unsigned)strtoul(optarg, NULL, 10);
        else if (option == 'p')
            clock = CLOCK_PROCESS_CPUTIME_ID;
        else if (option == 's')
            options.seed = strtoull(optarg, NULL, 10);
        else
            return 2;
    }
    for (int i = optind; i < argc; i++) {
        size_t bytes;
        char *text = read_file(argv[i], &bytes);
        const char *slash = strrchr(argv[i], '/');
        const char *name = slash != NULL ? slash + 1 : argv[i];
        struct gc_region region;
        struct gc_placement_csv csv;
        struct gc_placement_csv_error error;
        struct gc_placement placement;
        gc_region_init(&region, GC_MIB(4096));
        if (gc_placement_csv_read(&region, text, bytes, &csv, &error) != GC_OK) {
            fprintf(stderr, "%s: line %llu: %s\n", argv[i], (unsigned long long)error.line,
                    error.text);
            return 1;
        }
        const struct gc_placement_problem problem = {csv.buffers, csv.count, capacity};
        const double begin_cpu = now(CLOCK_PROCESS_CPUTIME_ID);
        const double begin = now(CLOCK_MONOTONIC);
        struct watch watched = {clock, now(clock) + deadline};
        options.watch_argument = &watched;
        const enum gc_status status =
            plan_threads_solve(&region, &problem, &options, threads, &placement);
        const double seconds = now(CLOCK_MONOTONIC) - begin;
        if (status != GC_OK) {
            fprintf(stderr, "%s: %s\n", argv[i], gc_status_text(status));
            return 1;
        }
        report(name, &csv, &placement, begin_cpu, seconds);
        all_solved = all_solved && placement.fits;
        gc_region_fini(&region);
        free(text);
    }
    return all_solved ? 0 : 3;
}
