#include "core/report/estimate_parts.h"

const char *gc_estimate_part_key(enum gc_estimate_part part)
{
    static const char *const keys[] = {
#define GC_ESTIMATE_PART(name, ...) #name "_bytes",
#include "core/report/estimate_parts.def"
#undef GC_ESTIMATE_PART
    };
    return keys[part];
}

const char *gc_estimate_part_label(enum gc_estimate_part part)
{
    static const char *const labels[] = {
#define GC_ESTIMATE_PART(name, label, modes) label,
#include "core/report/estimate_parts.def"
#undef GC_ESTIMATE_PART
    };
    return labels[part];
}

bool gc_estimate_part_is_of(enum gc_estimate_part part, bool training)
{
    enum { INFERENCE = 1, TRAINING = 2, BOTH = INFERENCE | TRAINING };
    static const unsigned modes[] = {
#define GC_ESTIMATE_PART(name, label, modes) modes,
#include "core/report/estimate_parts.def"
#undef GC_ESTIMATE_PART
    };
    return (modes[part] & (training ? TRAINING : INFERENCE)) != 0;
}
