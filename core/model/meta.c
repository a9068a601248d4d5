#include "core/model/model.h"

#include <string.h>

bool gc_meta_uint(const struct gc_meta_value *value, uint64_t *number)
{
    const double exact_below = 9007199254740992.0; /* 2^53 */
    if (value->kind == GC_META_INTEGER && (!value->negative || value->unsigned_value == 0)) {
        *number = value->unsigned_value;
        return true;
    }
    if (value->kind != GC_META_REAL || !(value->real >= 0 && value->real < exact_below))
        return false;
    *number = (uint64_t)value->real;
    return (double)*number == value->real;
}

bool gc_model_is_prediction(const char *name)
{
    return strncmp(name, "mtp", 3) == 0 || strstr(name, ".mtp") != NULL;
}
