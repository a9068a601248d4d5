/* Calls an entry point while the cache has idle memory: the test makes the driver run out of memory
 * in that call, so nothing in an argument may matter.
 *
 * usage: relieve names: prints each entry point and `again` or `once`; relieve ready: only
 * prepares; relieve spare: needs less for half a minute, and ends as programs do; relieve cycle:
 * takes and frees almost the whole device ten times; relieve ENTRY: prepares, calls it with
 * nothing in its arguments, prints its result. */
/* link: -l:libcuda.so.1 */
#define _GNU_SOURCE
#include "tests/preload/progs/program.h"

#include <dlfcn.h>
#include <string.h>
#include <unistd.h>

#define BLOCK_BYTES (64u << 20) /* more than a thread keeps for itself */
#define LESS_BYTES (20u << 20)  /* likewise */
#define PASSES 10
#define PIECES 6

typedef CUresult (*entry_function)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                                   uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                                   uint64_t, uint64_t);

static const struct {
    const char *symbol;
    const char *kind;
} rows[] = {
#define API(symbol, base, version, variant, kind, ...) {#symbol, #kind},
#include "shim/api.def"
};
static const char *const once_kinds[] = {
#define ONCE_KIND(kind) #kind,
#include "shim/once.def"
};
static const char *const once[] = {
#define ONCE(symbol) #symbol,
#include "shim/once.def"
};
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static int has(const char *const *names, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0)
            return 1;
    return 0;
}

static void print_names(void)
{
    for (size_t i = 0; i < COUNT(rows); i++)
        printf("%s %s\n", rows[i].symbol,
               has(once_kinds, COUNT(once_kinds), rows[i].kind) ||
                       has(once, COUNT(once), rows[i].symbol)
                   ? "once"
                   : "again");
}

/* 120 MiB in each pass. */
static int cycle(void)
{
    CUdeviceptr pieces[PIECES];

    for (int pass = 0; pass < PASSES; pass++) {
        for (int i = 0; i < PIECES; i++)
            pieces[i] = program_alloc(LESS_BYTES);
        for (int i = 0; i < PIECES; i++)
            CHECK(cuMemFree(pieces[i]));
    }
    return 0;
}

int main(int count, char **arguments)
{
    const char *what = count > 1 ? arguments[1] : "names";

    if (strcmp(what, "names") == 0) {
        print_names();
        return 0;
    }
    program_start();
    CHECK(cuMemFree(program_alloc(BLOCK_BYTES)));
    if (strcmp(what, "ready") == 0)
        _exit(0); /* calls at the end are not of interest */
    if (strcmp(what, "cycle") == 0)
        return cycle();
    for (int i = 0; i < 3 && strcmp(what, "spare") == 0; i++) {
        sleep(11);
        CHECK(cuMemFree(program_alloc(LESS_BYTES)));
    }
    if (strcmp(what, "spare") == 0)
        return 0;
    entry_function entry = (entry_function)dlsym(RTLD_DEFAULT, what);
    printf("%d\n", entry == NULL ? -1 : (int)entry(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0));
    fflush(stdout);
    _exit(0);
}
