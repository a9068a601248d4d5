#include "tests/unit/arch_sample.h"

#include "core/base/host_mem.h"
#include "core/estimator/estimator.h"
#include "core/io/text.h"
#include "tests/unit/cmocka_all.h"

#include <string.h>

static struct gc_arch_value value_of(const char *text, size_t length)
{
    struct gc_arch_value value = {.type = GC_ARCH_VALUE_TEXT, .text = text, .length = length};
    if (gc_text_uint(text, length, &value.number)) {
        value.type = GC_ARCH_VALUE_UINT;
    } else if (gc_text_find_word("false, true", text, length) >= 0) {
        value.type = GC_ARCH_VALUE_BOOL;
        value.number = *text == 't';
    } else if (length == 4 && memcmp(text, "null", 4) == 0) {
        value.type = GC_ARCH_VALUE_NULL;
    }
    return value;
}

static void set(struct gc_arch *arch, const struct gc_arch_place *place, uint32_t index,
                const char *text, size_t length)
{
    const struct gc_arch_value value = value_of(text, length);
    if (gc_arch_config_set(arch, place, index, &value) != GC_OK)
        fail_msg("not taken: %s", text);
}

void arch_sample(struct gc_arch *arch, enum gc_arch_names names, const char *text)
{
    struct gc_arch_index index;
    gc_arch_index_init(&index, names);
    memset(arch, 0, sizeof(*arch));
    while (*text != '\0') {
        struct gc_arch_place place;
        const size_t length = strcspn(text, " ");
        const size_t name = strcspn(text, "=");
        const char *value = text + name + 1;
        const char *end = text + length;
        if (!gc_arch_key_find(&index, text, name, &place))
            fail_msg("not known: %s", text);
        if (memchr(value, ',', (size_t)(end - value)) == NULL) {
            set(arch, &place, GC_ARCH_SINGLE, value, (size_t)(end - value));
        } else {
            for (uint32_t i = 0; value < end; i++) {
                const size_t item = strcspn(value, ", ");
                set(arch, &place, i, value, item);
                value += item + 1;
            }
        }
        text = end + strspn(end, " ");
    }
}

struct gc_estimator *arch_sample_open(const struct gc_arch *arch)
{
    struct gc_host_mem host = {0};
    struct gc_estimator *estimator = gc_host_mem_map(&host, sizeof(*estimator));
    assert_non_null(estimator);
    estimator->weight_dtype = estimator->main_dtype = GC_DTYPE_NONE;
    estimator->arch = *arch;
    estimator->has_layers = true;
    gc_arch_complete(&estimator->arch);
    gc_layers_make(&estimator->arch, &estimator->layers, &estimator->notes);
    return estimator;
}
