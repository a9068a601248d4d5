#include "core/base/assert.h"

#ifdef GC_CHECK
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void gc_assert_fail(const char *condition, const char *file, int line)
{
    char text[1024];
    const int bytes = snprintf(text, sizeof(text), "gpucache: %s:%d: assertion failed: %s\n", file,
                               line, condition);
    (void)!write(STDERR_FILENO, text,
                 (size_t)bytes < sizeof(text) ? (size_t)bytes : sizeof(text) - 1);
    abort();
}
#else
/* ISO C requires a declaration in every file. */
typedef int gc_assert_is_off;
#endif
