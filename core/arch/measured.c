#include "core/arch/measured.h"

#include "core/io/text.h"

#include <string.h>

struct measured_row {
    enum gc_arch_measured measured;
    const char *types;
};

static const struct measured_row rows[] = {
#define GC_ARCH_MEASURED(measured, types) {GC_ARCH_MEASURED_##measured, types},
#include "core/arch/arch_measured.def"
#undef GC_ARCH_MEASURED
};

enum gc_arch_measured gc_arch_measured(const char *type)
{
    const size_t length = strlen(type);
    for (size_t i = 0; length > 0 && i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (gc_text_find_word(rows[i].types, type, length) >= 0)
            return rows[i].measured;
    }
    return GC_ARCH_MEASURED_NOT;
}
