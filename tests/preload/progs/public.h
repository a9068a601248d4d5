/* Common to the programs that use core/gpucache.h: its functions, filled by gpucache_load, and what
 * is expected of them. The checked driver calls of program.h too. */
#ifndef PUBLIC_H
#define PUBLIC_H

#define GPUCACHE_NO_PROTOTYPES
#define GPUCACHE_WANT_LOADER
#include "core/gpucache.h"
#include "tests/preload/progs/program.h"

#include <stdbool.h>

#define EXPECT(condition) expect((condition), #condition, __LINE__)
#define EXPECT_STATUS(call, status) expect_status((call), (status), #call, __LINE__)

static struct gpucache_functions gc;

static inline void expect(bool holds, const char *condition, int line)
{
    if (holds)
        return;
    fprintf(stderr, "line %d: not so: %s\n", line, condition);
    exit(EXIT_FAILURE);
}

static inline void expect_status(gpucache_status got, gpucache_status wanted, const char *call,
                                 int line)
{
    if (got == wanted)
        return;
    fprintf(stderr, "line %d: %s: got %s (%d), wanted %s; driver error %d\n", line, call,
            gc.gpucache_status_text(got), (int)got, gc.gpucache_status_text(wanted),
            gc.gpucache_driver_error());
    exit(EXIT_FAILURE);
}

#endif
