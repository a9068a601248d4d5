/* Makes the calls that it reads, and prints what each returned.
 *
 * usage: caller LIBRARY STATE ROUTE < CALLS
 * STATE: new, or failed (after an initialisation that fails). ROUTE: symbol, or proc (by
 * cuGetProcAddress_v2, at the version in the table). CALLS: lines FUNCTION VALUES, functions in the
 * table's order, one letter an argument (functions.py chooses them):
 *
 *     pointer    0 null, z to zeroes, f to set bits, a to d to small numbers, n to the name
 * cuMemAlloc handle     0 to 2 that number, h an address of zeroes number     0 to 9 that number, x
 * 0x80, m 0x7fffffff, f all bits set structure  0 zeroes, f set bits, a to d small numbers
 *
 * calls.h is made from the headers (functions.py). A few functions at a time have a process of
 * their own, which loads the library afresh; a call that ends it is recorded by its signal, and the
 * next call starts another. Output: a result a line, `absent` where there is no such function. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define ARGUMENTS_MAX 16
#define CALLS_MAX 400000
#define BATCH 16 /* functions of one process */
#define ABSENT (-1000)
#define SCRATCH_BYTES 16384 /* of which the first ones are filled */
#define FILLED_BYTES 512

static union {
    void *pointer;
    unsigned long long number;
    unsigned char bytes[FILLED_BYTES]; /* structures that are passed by value */
} values[ARGUMENTS_MAX];

static unsigned char scratch[ARGUMENTS_MAX][SCRATCH_BYTES] __attribute__((aligned(4096)));

#define VALUE(i, type) (*(type *)(void *)values[i].bytes)

struct function {
    const char *name;   /* the symbol */
    const char *base;   /* cuGetProcAddress' name, its version and flags */
    int version, flags; /* version 0: not by that route */
    const char *kinds;  /* a letter an argument: Pointer, Handle, Number, Structure */
    int (*make)(void *address);
};
#include "calls.h"
#define FUNCTION_COUNT (sizeof(functions) / sizeof(functions[0]))

static struct call {
    const struct function *function;
    char letters[ARGUMENTS_MAX + 1];
} calls[CALLS_MAX];
static int call_count;

/* ---- arguments ---- */

/* functions.py has the same numbers (word_behind). */
static uint32_t small_word(char letter, uint32_t index)
{
    return ((uint32_t)(letter - 'a' + 1) * (1 + index % 4) + index) % 5;
}

static void fill(unsigned char *bytes, char letter)
{
    memset(bytes, letter == 'f' ? 0xff : 0, FILLED_BYTES);
    if (letter == 'n')
        strcpy((char *)bytes, "cuMemAlloc");
    for (uint32_t i = 0; letter >= 'a' && letter <= 'd' && i < FILLED_BYTES / 4; i++)
        memcpy(bytes + 4 * (size_t)i, &(uint32_t){small_word(letter, i)}, 4);
}

static void set_arguments(const struct call *call)
{
    memset(values, 0, sizeof(values));
    for (int i = 0; call->function->kinds[i]; i++) {
        char kind = call->function->kinds[i], letter = call->letters[i];
        memset(scratch[i], 0, SCRATCH_BYTES);
        if (kind == 'S') {
            fill(values[i].bytes, letter);
        } else if (letter >= '0' && letter <= '9') {
            values[i].number = (unsigned long long)(letter - '0');
        } else if (kind == 'N') {
            values[i].number = letter == 'x' ? 0x80 : letter == 'm' ? 0x7fffffff : ~0ULL;
        } else {
            fill(scratch[i], letter == 'h' ? 'z' : letter);
            values[i].pointer = scratch[i];
        }
    }
}

static bool read_calls(void)
{
    char name[128], letters[64];
    const struct function *function = functions;

    while (scanf("%127s %63s", name, letters) == 2) {
        while (function < functions + FUNCTION_COUNT && strcmp(function->name, name) != 0)
            function++;
        if (function == functions + FUNCTION_COUNT || call_count == CALLS_MAX)
            return false;
        calls[call_count].function = function;
        /* `-`: no argument. */
        memcpy(calls[call_count++].letters, letters, strlen(function->kinds) + 1);
    }
    return true;
}

/* ---- processes ---- */

static void *address_of(void *library, const struct function *function, bool by_proc)
{
    int (*look_up)(const char *, void **, int, unsigned long long, int *);
    void *address = NULL;

    if (!by_proc)
        return dlsym(library, function->name);
    *(void **)&look_up = dlsym(library, "cuGetProcAddress_v2");
    if (!look_up || function->version == 0 ||
        look_up(function->base, &address, function->version, (unsigned long long)function->flags,
                NULL) != 0)
        return NULL;
    return address;
}

/* In a process of its own: the calls of one batch, from `first` on. */
static void make_calls(char **argv, int first, volatile int *results)
{
    void *library = dlopen(argv[1], RTLD_NOW), *address = NULL;
    const struct function *function = NULL;
    int (*initialise)(unsigned) = NULL;
    bool by_proc = strcmp(argv[3], "proc") == 0;

    if (!library)
        _exit(2);
    if (strcmp(argv[2], "failed") == 0) {
        *(void **)&initialise = dlsym(library, INITIALISE);
        (void)initialise(0);
    }
    for (int i = first; i < call_count; i++) {
        if (calls[i].function != function) {
            if (function && (calls[i].function - functions) % BATCH == 0)
                break;
            function = calls[i].function;
            address = address_of(library, function, by_proc);
        }
        set_arguments(&calls[i]);
        results[i] = address ? function->make(address) : ABSENT;
        results[CALLS_MAX] = i + 1;
    }
    _exit(0);
}

int main(int argc, char **argv)
{
    int status;

    if (argc != 4) {
        fprintf(stderr, "usage: caller LIBRARY new|failed symbol|proc < CALLS\n");
        return 2;
    }
    if (!read_calls()) {
        fprintf(stderr, "a function that the table lacks, one out of order, or too many calls\n");
        return 2;
    }
    /* The last one counts those that are done. */
    volatile int *results = mmap(NULL, sizeof(int) * (CALLS_MAX + 1), PROT_READ | PROT_WRITE,
                                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    while (results[CALLS_MAX] < call_count) {
        int done = results[CALLS_MAX];
        pid_t child = fork();
        if (child == 0) {
            alarm(20);
            make_calls(argv, done, results);
        }
        if (child < 0 || waitpid(child, &status, 0) < 0)
            return 2;
        if (WIFEXITED(status) && results[CALLS_MAX] == done) {
            fprintf(stderr, "%s: exit status %d\n", calls[done].function->name,
                    WEXITSTATUS(status));
            return 2;
        }
        if (WIFSIGNALED(status)) {
            results[results[CALLS_MAX]] = -WTERMSIG(status);
            results[CALLS_MAX]++;
        }
    }
    for (int i = 0; i < call_count; i++)
        if (results[i] == ABSENT)
            printf("absent\n");
        else
            printf(results[i] >= 0 ? "%d\n" : "signal%d\n", results[i]);
    return 0;
}
