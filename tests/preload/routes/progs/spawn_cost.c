/* Measures what a preload costs a process: usage: spawn_cost ROUNDS LIBRARY PROGRAM
 *
 * Starts PROGRAM by posix_spawn, without and with LD_PRELOAD=LIBRARY in turn, ROUNDS times each,
 * and waits for it. Prints `without NS with NS more NS`: medians, and their difference. */
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int64_t run_ns(const char *program, char *const environment[])
{
    char *const arguments[] = {(char *)(uintptr_t)program, NULL};
    int64_t start_ns = now_ns();
    pid_t child;
    int status = -1;
    if (posix_spawn(&child, program, NULL, NULL, arguments, environment) != 0 ||
        waitpid(child, &status, 0) != child || status != 0) {
        fprintf(stderr, "spawn_cost: %s did not run\n", program);
        exit(EXIT_FAILURE);
    }
    return now_ns() - start_ns;
}

static int compare(const void *left, const void *right)
{
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

int main(int argument_count, char **arguments)
{
    if (argument_count != 4 || atoi(arguments[1]) < 1) {
        fprintf(stderr, "usage: spawn_cost ROUNDS LIBRARY PROGRAM\n");
        return 2;
    }
    size_t rounds = (size_t)atoi(arguments[1]);
    int64_t *without = calloc(rounds, sizeof(*without)), *with = calloc(rounds, sizeof(*with));
    char preload[4096];
    snprintf(preload, sizeof(preload), "LD_PRELOAD=%s", arguments[2]);
    char *const plain[] = {NULL}, *const preloaded[] = {preload, NULL};
    if (without == NULL || with == NULL)
        return EXIT_FAILURE;
    for (int i = 0; i < 10; i++) { /* warm */
        run_ns(arguments[3], plain);
        run_ns(arguments[3], preloaded);
    }
    for (size_t i = 0; i < rounds; i++) {
        without[i] = run_ns(arguments[3], plain);
        with[i] = run_ns(arguments[3], preloaded);
    }
    qsort(without, rounds, sizeof(*without), compare);
    qsort(with, rounds, sizeof(*with), compare);
    printf("without %lld with %lld more %lld\n", (long long)without[rounds / 2],
           (long long)with[rounds / 2], (long long)(with[rounds / 2] - without[rounds / 2]));
    free(without);
    free(with);
    return EXIT_SUCCESS;
}
