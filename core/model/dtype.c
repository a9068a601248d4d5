#include "core/model/dtype.h"

#include "core/base/bits.h"
#include "core/io/text.h"

#include <string.h>

static const struct gc_dtype_info infos[] = {
#define GC_DTYPE(id, name, elements, bytes, dtype_class, safetensors, gguf, onnx, words)           \
    [GC_DTYPE_##id] = {name,  safetensors, words, elements,                                        \
                       bytes, gguf,        onnx,  GC_DTYPE_CLASS_##dtype_class},
#include "core/model/dtype.def"
#undef GC_DTYPE
};

/* The code below multiplies and rounds by blocks: none may have 0 elements. */
#define GC_DTYPE(id, name, elements, ...) _Static_assert((elements) > 0, name);
#include "core/model/dtype.def"
#undef GC_DTYPE

const struct gc_dtype_info *gc_dtype_get_info(enum gc_dtype dtype)
{
    static const struct gc_dtype_info none = {"?", "", "", 1, 0, -1, -1, GC_DTYPE_CLASS_TEXT};
    return (unsigned)dtype < GC_DTYPE_COUNT ? &infos[dtype] : &none;
}

const char *gc_dtype_name(enum gc_dtype dtype)
{
    return gc_dtype_get_info(dtype)->name;
}

bool gc_dtype_bytes(enum gc_dtype dtype, uint64_t elements, uint64_t *bytes)
{
    const struct gc_dtype_info *info = gc_dtype_get_info(dtype);
    if (info->block_bytes == 0)
        return false;
    const uint64_t rest = elements % info->block_elements;
    uint64_t rest_bytes =
        (rest * info->block_bytes + info->block_elements - 1) / info->block_elements;
    if (rest > 0 && info->kind == GC_DTYPE_CLASS_QUANTISED)
        rest_bytes = info->block_bytes;
    return gc_mul_u64(elements / info->block_elements, info->block_bytes, bytes) &&
           gc_add_u64(*bytes, rest_bytes, bytes);
}

static bool is_word(const char *word, const char *text, size_t length)
{
    return strlen(word) == length && gc_text_equal_nocase(word, text, length);
}

enum gc_dtype gc_dtype_from_safetensors(const char *name, size_t length)
{
    for (unsigned i = 0; i < GC_DTYPE_COUNT; i++) {
        if (length > 0 && infos[i].safetensors[0] == name[0] &&
            strlen(infos[i].safetensors) == length &&
            memcmp(infos[i].safetensors, name, length) == 0)
            return (enum gc_dtype)i;
    }
    return GC_DTYPE_NONE;
}

enum gc_dtype gc_dtype_from_gguf(uint32_t type)
{
    for (unsigned i = 0; i < GC_DTYPE_COUNT; i++) {
        if (infos[i].gguf >= 0 && (uint32_t)infos[i].gguf == type)
            return (enum gc_dtype)i;
    }
    return GC_DTYPE_NONE;
}

enum gc_dtype gc_dtype_from_onnx(uint64_t type)
{
    for (unsigned i = 0; i < GC_DTYPE_COUNT; i++) {
        if (infos[i].onnx >= 0 && (uint64_t)infos[i].onnx == type)
            return (enum gc_dtype)i;
    }
    return GC_DTYPE_NONE;
}

static bool has_word(const char *words, const char *word, size_t length)
{
    while (*words != '\0') {
        const size_t here = strcspn(words, " ");
        if (here == length && gc_text_equal_nocase(words, word, length))
            return true;
        words += here;
        words += strspn(words, " ");
    }
    return false;
}

enum gc_dtype gc_dtype_from_word(const char *word, size_t length)
{
    static const char torch[] = "torch.";
    if (length > sizeof(torch) - 1 && memcmp(word, torch, sizeof(torch) - 1) == 0) {
        word += sizeof(torch) - 1;
        length -= sizeof(torch) - 1;
    }
    for (unsigned i = 0; i < GC_DTYPE_COUNT; i++) {
        if (is_word(infos[i].name, word, length) || has_word(infos[i].words, word, length))
            return (enum gc_dtype)i;
    }
    return GC_DTYPE_NONE;
}
