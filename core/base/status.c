#include "core/base/status.h"

static const char *const texts[] = {
#define GC_STATUS(name, text) [GC_##name] = text,
#include "core/base/status.def"
#undef GC_STATUS
};

const char *gc_status_text(enum gc_status status)
{
    if ((unsigned)status >= GC_STATUS_COUNT)
        return "unknown status";
    return texts[status];
}
