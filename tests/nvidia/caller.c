/* Calls each function of a table with arguments that need no device: null and odd ones. Prints what
 * came back, a line per call.
 *
 * usage: caller LIBRARY STATE ROUTE
 * STATE: new, or failed (after an initialisation that fails). ROUTE: symbol, or proc (by
 * cuGetProcAddress_v2, at the version in the table).
 *
 * calls.h is made from the headers (functions.py). A few functions at a time have a process of
 * their own, which loads the library afresh; a call that ends it is recorded by its signal, and the
 * next call starts another. Output: FUNCTION ARGUMENTS RESULT, `absent` where there is no such
 * function. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define ARGUMENTS_MAX 16
#define CALLS_MAX 40000
#define BATCH 16 /* functions of one process */
#define ABSENT (-1000)
#define SCRATCH_BYTES 16384 /* what a pointer points to: zeroes */

static union {
    void *pointer;
    unsigned long long number;
    unsigned char bytes[512]; /* structures that are passed by value */
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

/* ---- arguments ---- */

/* Bases: all null and zero; pointers to zeroes, handles null and numbers 0 or 1; handles that point
 * to zeroes; and with those, numbers and structures of all bits. From `one` and `handles` each
 * argument is changed in turn. */
enum { ALL_NULL, ZERO, ONE, HANDLES, ODD, BASE_COUNT };
static const char *const base_names[] = {"null", "zero", "one", "handles", "odd"};

static struct call {
    const struct function *function;
    int base;
    int changed;       /* an argument, counted from 1; 0: none */
    const char *value; /* null, given, zero or full */
} calls[CALLS_MAX];
static int call_count;

static void set_base(const struct function *function, int base)
{
    memset(values, 0, sizeof(values));
    memset(scratch, 0, sizeof(scratch));
    for (int i = 0; function->kinds[i] && base != ALL_NULL; i++) {
        char kind = function->kinds[i];
        if (kind == 'P' || (kind == 'H' && base >= HANDLES))
            values[i].pointer = scratch[i];
        else if (base == ODD)
            memset(values[i].bytes, 0xff, sizeof(values[i].bytes));
        else if (kind == 'N')
            values[i].number = base != ZERO;
    }
}

static void set_arguments(const struct call *call)
{
    set_base(call->function, call->base);
    if (call->changed == 0)
        return;
    int i = call->changed - 1;
    memset(values[i].bytes, strcmp(call->value, "full") == 0 ? 0xff : 0, sizeof(values[i].bytes));
    if (strcmp(call->value, "given") == 0)
        values[i].pointer = scratch[i];
}

static void add_call(const struct function *function, int base, int changed, const char *value)
{
    if (call_count == CALLS_MAX)
        abort();
    calls[call_count++] = (struct call){function, base, changed, value};
}

static void list_calls(const struct function *function)
{
    for (int base = 0; base < BASE_COUNT; base++)
        add_call(function, base, 0, NULL);
    for (int base = ONE; base <= HANDLES; base++)
        for (int i = 0; function->kinds[i]; i++) {
            char kind = function->kinds[i];
            if (kind == 'P' || (kind == 'H' && base == HANDLES))
                add_call(function, base, i + 1, "null");
            else if (kind == 'H')
                add_call(function, base, i + 1, "given");
            if (kind == 'N')
                add_call(function, base, i + 1, "zero");
            if (kind == 'N' || kind == 'S')
                add_call(function, base, i + 1, "full");
        }
}

static void print_call(const struct call *call, int result)
{
    printf("%s %s", call->function->name, base_names[call->base]);
    if (call->changed)
        printf(",%d=%s", call->changed, call->value);
    if (result == ABSENT)
        printf(" absent\n");
    else
        printf(result >= 0 ? " %d\n" : " signal%d\n", result);
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
        fprintf(stderr, "usage: caller LIBRARY new|failed symbol|proc\n");
        return 2;
    }
    for (size_t i = 0; i < FUNCTION_COUNT; i++)
        list_calls(&functions[i]);
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
        print_call(&calls[i], results[i]);
    return 0;
}
