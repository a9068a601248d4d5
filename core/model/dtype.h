/* Element and block types of tensors, declared once in dtype.def. All functions are pure. */
#ifndef GC_DTYPE_H
#define GC_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum gc_dtype {
#define GC_DTYPE(id, ...) GC_DTYPE_##id,
#include "core/model/dtype.def"
#undef GC_DTYPE
    GC_DTYPE_COUNT
};
#define GC_DTYPE_NONE GC_DTYPE_COUNT /* not known, or not one of these */

enum gc_dtype_class {
    GC_DTYPE_CLASS_FLOAT,
    GC_DTYPE_CLASS_INTEGER,
    GC_DTYPE_CLASS_BOOLEAN,
    GC_DTYPE_CLASS_COMPLEX,
    GC_DTYPE_CLASS_QUANTISED,
    GC_DTYPE_CLASS_TEXT,
};

struct gc_dtype_info {
    const char *name;
    const char *safetensors;
    const char *words;
    uint16_t block_elements;
    uint16_t block_bytes; /* 0: no fixed size */
    int16_t gguf;
    int16_t onnx;
    enum gc_dtype_class kind;
};

/* Never NULL: GC_DTYPE_NONE and values out of range have the name "?" and no size. */
const struct gc_dtype_info *gc_dtype_get_info(enum gc_dtype dtype);
const char *gc_dtype_name(enum gc_dtype dtype);

/* Size of `elements` packed elements, rounded up to whole bytes; for QUANTISED types to whole
 * blocks. False if that does not fit in 64 bits or the type has no fixed size. */
bool gc_dtype_bytes(enum gc_dtype dtype, uint64_t elements, uint64_t *bytes);

/* Return GC_DTYPE_NONE for an unknown name or number. */
enum gc_dtype gc_dtype_from_safetensors(const char *name, size_t length);
enum gc_dtype gc_dtype_from_gguf(uint32_t type);
enum gc_dtype gc_dtype_from_onnx(uint64_t type);
/* Accepts any spelling, in any case, with or without "torch.". */
enum gc_dtype gc_dtype_from_word(const char *word, size_t length);

#endif
