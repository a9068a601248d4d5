#include "core/model/model.h"

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
