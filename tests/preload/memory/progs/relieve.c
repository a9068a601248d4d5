/* Calls an entry point while the cache has idle memory: the test makes the driver run out of memory
 * in that call, so nothing in an argument may matter.
 *
 * usage: relieve names: prints each entry point and `again` or `once`; relieve ready: only
 * prepares; relieve none: the same, and ends as programs do; relieve ENTRY: prepares, calls it with
 * nothing in its arguments, prints its result. */
/* link: -l:libcuda.so.1 */
#define _GNU_SOURCE
#include "tests/preload/progs/program.h"

#include <dlfcn.h>
#include <string.h>
#include <unistd.h>

#define BLOCK_BYTES (64u << 20) /* more than a thread keeps for itself */

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
    if (strcmp(what, "none") == 0)
        return 0;
    entry_function entry = (entry_function)dlsym(RTLD_DEFAULT, what);
    printf("%d\n", entry == NULL ? -1 : (int)entry(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0));
    fflush(stdout);
    _exit(0);
}
