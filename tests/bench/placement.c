/* Placement problems, solved: `name value unit` lines for each file. usage: placement [-d SECONDS]
 * [-c CAPACITY] [-n NODES] FILE… */
#include "core/bits.h"
#include "core/planner/placement_csv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
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
    double deadline;
};

static bool watch(void *argument, uint64_t lower, uint64_t peak, uint64_t nodes)
{
    const struct watch *self = argument;
    (void)lower;
    (void)peak;
    (void)nodes;
    return now() < self->deadline;
}

int main(int argc, char **argv)
{
    double deadline = 5;
    struct gc_placement_options options = {.seed = 1, .watch = watch};
    uint64_t capacity = GC_PLACEMENT_UNLIMITED;
    int option;
    bool all_solved = true;
    while ((option = getopt(argc, argv, "d:c:n:s:")) != -1) {
        if (option == 'd')
            deadline = atof(optarg);
        else if (option == 'c')
            capacity = strtoull(optarg, NULL, 10);
        else if (option == 'n')
            options.node_max = strtoull(optarg, NULL, 10);
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
        const double begin = now();
        struct watch watched = {begin + deadline};
        options.watch_argument = &watched;
        const enum gc_status status = gc_placement_solve(&region, &problem, &options, &placement);
        const double seconds = now() - begin;
        if (status != GC_OK) {
            fprintf(stderr, "%s: %s\n", argv[i], gc_status_text(status));
            return 1;
        }
        printf(
            "%-24s n %6u bound %12llu peak %12llu ratio %.5f %s%s nodes %10llu %.3f s %.1f MiB\n",
            name, csv.count, (unsigned long long)placement.lower_bound_bytes,
            (unsigned long long)placement.peak_bytes,
            (double)placement.peak_bytes / (double)placement.lower_bound_bytes,
            placement.optimal ? "optimal " : "", placement.fits ? "fits" : "too large",
            (unsigned long long)placement.nodes, seconds,
            (double)gc_region_bytes(&region) / 1048576.0);
        all_solved = all_solved && placement.fits;
        gc_region_fini(&region);
        free(text);
    }
    return all_solved ? 0 : 3;
}
