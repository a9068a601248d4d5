/* Sizes: what is taken must resolve within the device, and an accepted percentage or size is never
 * zero. */
#include "core/config/options.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct gc_size_spec spec;
    uint64_t size = 0;
    char *text = malloc(bytes + 1);
    if (text == NULL)
        return 0;
    memcpy(text, data, bytes);
    text[bytes] = '\0';
    if (gc_size_parse(text, &size) == GC_OK && size == 0)
        abort();
    if (gc_size_spec_parse(text, true, &spec) == GC_OK) {
        if (spec.count == 0 || spec.count > GC_SIZE_SPEC_MAX)
            abort();
        for (int ordinal = 0; ordinal < 3; ordinal++)
            (void)gc_size_spec_resolve(&spec, ordinal, "GPU-00000000-0000-0000-0000-000000000000",
                                       UINT64_MAX);
        if (spec.entries[0].is_percent &&
            !(spec.entries[0].percent > 0 && spec.entries[0].percent <= 100))
            abort();
    }
    free(text);
    return 0;
}
