#include "core/report/estimate_parts.h"

const char *gc_estimate_part_key(enum gc_estimate_part part)
{
    static const char *const keys[] = {
#define GC_ESTIMATE_PART(name, label) #name "_bytes",
#include "core/report/estimate_parts.def"
#undef GC_ESTIMATE_PART
    };
    return keys[part];
}

const char *gc_estimate_part_label(enum gc_estimate_part part)
{
    static const char *const labels[] = {
#define GC_ESTIMATE_PART(name, label) label,
#include "core/report/estimate_parts.def"
#undef GC_ESTIMATE_PART
    };
    return labels[part];
}
