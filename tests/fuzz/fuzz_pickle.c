/* A pickle of anyone's making: read, and every value looked at. */
#include "tools/pickle/pickle.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void look(const struct pickle_value *value)
{
    static volatile char seen;
    switch ((enum pickle_kind)value->kind) {
    case PICKLE_TEXT:
    case PICKLE_BYTES:
        if (value->length > 0)
            seen = (char)(value->text[0] + value->text[value->length - 1]);
        break;
    case PICKLE_DICT:
        if (value->items->count % 2 != 0)
            abort();
        (void)pickle_find(value, "addr");
        break;
    case PICKLE_NONE:
    case PICKLE_BOOL:
    case PICKLE_INT:
    case PICKLE_BIG:
    case PICKLE_FLOAT:
    case PICKLE_LIST:
    case PICKLE_TUPLE:
        break;
    default:
        abort();
    }
    (void)seen;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct pickle_error error;
    struct pickle pickle;
    const enum gc_status status = pickle_load(data, bytes, &pickle, &error);
    if (status == GC_FORMAT && (error.text[0] == '\0' || error.offset > bytes))
        abort();
    if (status == GC_OK)
        look(&pickle.root);
    for (const struct pickle_items *items = pickle.all; items != NULL; items = items->next_of_all) {
        for (size_t i = 0; i < items->count; i++)
            look(&items->values[i]);
    }
    pickle_fini(&pickle);
    return 0;
}
