#include "core/base/assert.h"

#ifdef GC_CHECK
#include "core/io/log.h"

#include <stdlib.h>

void gc_check_fail(const char *condition, const char *file, int line)
{
    static const struct gc_log log = {GC_LOG_ERROR, 2};
    gc_log_write(&log, GC_LOG_ERROR, "%s:%d: does not hold: %s", file, line, condition);
    abort();
}
#else
/* ISO C wants a declaration in every file. */
typedef int gc_check_is_off;
#endif
