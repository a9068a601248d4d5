/* A model file or folder as data, read from its headers alone: tensors, key-value metadata, inputs
 * and outputs. core/formats/ reads it; other rooms see this header only.
 *
 * A model is one piece of memory, owned by gc_model_open's caller; gc_model_close invalidates all
 * its pointers. Texts end in NUL and contain none; they are untrusted: print them through
 * gc_text_printable. An open model never changes, so threads may share it. */
#ifndef GC_MODEL_H
#define GC_MODEL_H

#include "core/base/status.h"
#include "core/model/dtype.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum gc_model_format {
    GC_MODEL_SAFETENSORS,
    GC_MODEL_GGUF,
    GC_MODEL_ONNX,
    GC_MODEL_PLAIN,         /* a JSON description */
    GC_MODEL_CONFIGURATION, /* a config.json without weights */
    GC_MODEL_FORMAT_COUNT
};

#define GC_MODEL_NONE UINT32_MAX        /* no tensor, no file */
#define GC_MODEL_NO_OFFSET UINT64_MAX   /* the bytes are not one range of a file */
#define GC_MODEL_UNKNOWN_DIM UINT64_MAX /* a dimension without a number in the file */

struct gc_model_tensor {
    const char *name;
    const uint64_t *dims; /* outermost first, GGUF's too */
    uint32_t dim_count;
    enum gc_dtype dtype;
    uint64_t elements;
    uint64_t bytes;        /* in memory: elements times element size, rounded up to blocks */
    uint64_t stored_bytes; /* in the file; differs for sparse or unpacked storage */
    uint64_t offset;       /* in its file, or GC_MODEL_NO_OFFSET */
    uint32_t file;         /* index into files, or GC_MODEL_NONE */
    uint32_t alias_of;     /* an earlier tensor in the same place, or GC_MODEL_NONE */
    bool is_layer_guessed; /* how many layers have it is known, which ones is not */
};

struct gc_model_file {
    const char *path; /* for messages */
    uint64_t bytes;
};

enum gc_meta_kind {
    GC_META_NULL,
    GC_META_BOOL,    /* unsigned_value 0 or 1 */
    GC_META_INTEGER, /* in unsigned_value (magnitude), negative and real */
    GC_META_REAL,    /* real only */
    GC_META_TEXT,
    GC_META_ARRAY,
};

/* One value. An object has no value of its own: the list of metas has its members as "outer.inner".
 * The list also has the objects and arrays within an array, as "outer.0.inner". */
struct gc_meta_value {
    enum gc_meta_kind kind;
    bool negative;
    bool cut; /* the text or array is longer than kept */
    uint64_t unsigned_value;
    double real;                       /* of INTEGER and REAL */
    const char *text;                  /* of TEXT, up to its first NUL */
    const struct gc_meta_value *items; /* of ARRAY: scalars and texts; GC_META_NULL for others */
    uint64_t count;                    /* of ARRAY: all elements, kept or not */
    uint64_t kept;                     /* of ARRAY: length of `items` */
};

struct gc_meta {
    const char *key;
    struct gc_meta_value value;
};

enum gc_model_value_kind { GC_MODEL_INPUT, GC_MODEL_OUTPUT, GC_MODEL_INNER };

/* A value of an ONNX file's main graph: an input, an output, or an intermediate value with a
 * declared shape. */
struct gc_model_value {
    const char *name;
    enum gc_model_value_kind kind;
    enum gc_dtype dtype; /* GC_DTYPE_NONE: no tensor, or not declared */
    bool has_shape;      /* else dims are unknown and dim_count is 0 */
    uint32_t dim_count;
    const uint64_t *dims;       /* GC_MODEL_UNKNOWN_DIM where open */
    const char *const *symbols; /* a name for each open dimension; NULL where there is none */
};

/* Aliases are not counted. */
struct gc_model_totals {
    uint64_t weight_bytes;
    uint64_t
        parameters; /* elements of FLOAT, QUANTISED and COMPLEX tensors, and of packed integers */
    uint64_t stored_bytes;
    uint64_t alias_bytes; /* size of the aliases if each had its own memory */
};

struct gc_strmap;

struct gc_model {
    enum gc_model_format format;
    const char *path;
    const struct gc_model_tensor *tensors;
    uint32_t tensor_count;
    const struct gc_model_file *files;
    uint32_t file_count;
    const struct gc_meta *metas; /* config.json, GGUF keys, ONNX properties; in the file's order */
    uint32_t meta_count;
    bool has_config; /* metas are a config's: HF's config.json or GGUF's keys */
    const struct gc_model_value *values;
    uint32_t value_count;
    const char *const *warnings; /* a line each */
    uint32_t warning_count;
    struct gc_model_totals totals;
    uint64_t indexed_bytes;             /* of an index without its files: its total_size; else 0 */
    uint32_t indexed_tensors;           /* the tensors that it names */
    uint32_t indexed_frequencies;       /* of these, rotary ones, which older versions kept */
    uint32_t indexed_predictions;       /* and those of gc_model_is_prediction() */
    uint64_t header_bytes;              /* read in all */
    uint64_t memory_bytes;              /* the model's own */
    const struct gc_strmap *meta_names; /* NULL: keys are searched one by one */
};

/* Limits of one reading; a file that needs more fails with GC_OUT_OF_RANGE. 0 or NULL: the
 * defaults. */
struct gc_model_limits {
    uint64_t memory_bytes; /* 256 MiB */
    uint64_t header_bytes; /* bytes read, all files together; 256 MiB */
    uint32_t tensors;      /* 2^20 */
    uint32_t files;        /* 4096 */
};

#define GC_MODEL_ERROR_BYTES 768
/* One line, closed by NUL: file, position, the fault, the accepted form. */
struct gc_model_error {
    char text[GC_MODEL_ERROR_BYTES];
};

/* Reads the headers of a file (safetensors, its index, GGUF, ONNX, a JSON description), a
 * config.json, or a Hugging Face folder. An index without any of its files, a configuration without
 * weights and a safetensors file of its header alone are models, too. The content decides the
 * format, or, without a signature, the file's name. Shards and external data must lie within the
 * model's folder or, for a link of the Hugging Face cache, in its blobs. Blocks on the file system
 * only; never maps a file; allocates from the kernel only; keeps errno. Thread-safe. GC_IO: a file
 * could not be read; GC_FORMAT: its content is invalid; GC_NO_HOST_MEMORY; GC_OUT_OF_RANGE: the
 * model needs more than `limits`. After a failure *model is NULL and *error has the reason. */
enum gc_status gc_model_open(const char *path, const struct gc_model_limits *limits,
                             struct gc_model **model, struct gc_model_error *error) GC_CHECKED;
void gc_model_close(struct gc_model *model); /* NULL: nothing */

/* NULL if there is none. */
const struct gc_meta_value *gc_model_find_meta(const struct gc_model *model, const char *key);

/* Whether a tensor of this name is of layers that predict further tokens ("multi-token
 * prediction"), which files store and few programs run. */
bool gc_model_is_prediction(const char *name);

/* The value as an unsigned number: an INTEGER that is not negative, or a REAL from 0 to below
 * 2^53 that is whole. */
bool gc_meta_uint(const struct gc_meta_value *value, uint64_t *number);

#endif
