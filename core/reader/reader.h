/* The state of one reading of a model file: its results so far, its limits, its first error. Only
 * the format readers use it.
 *
 * Every call that can fail writes its message to the error, once, and returns a status to pass on.
 */
#ifndef GC_READER_READER_H
#define GC_READER_READER_H

#include "core/base/region.h"
#include "core/base/strmap.h"
#include "core/model/model.h"

#include <stdarg.h>

struct gc_reader {
    struct gc_region region; /* results and, until the end, scratch */
    const char *path;        /* the path given by the caller, in the region */
    struct gc_model *model;
    struct gc_model_limits limits;
    struct gc_model_error *error;
    uint64_t header_bytes; /* read so far */
    bool failed;
    unsigned char *spare_window; /* of the last closed source, for the next one */

    struct gc_model_tensor *tensors;
    uint32_t tensor_count;
    uint32_t tensor_room;
    struct gc_model_file *files;
    uint32_t file_count;
    uint32_t file_room;
    struct gc_meta *metas;
    uint32_t meta_count;
    uint32_t meta_room;
    struct gc_model_value *values;
    uint32_t value_count;
    uint32_t value_room;
    const char **warnings;
    uint32_t warning_count;
    uint32_t warning_room;
    struct gc_strmap tensor_names;
    struct gc_strmap meta_names;
};

/* A kind of reading. `owner` is zeroed memory of the region, for the result. `read` fills the
 * reader; `move_results`, which cannot fail, moves the region and the results into the owner. */
struct gc_reading {
    size_t owner_bytes;
    enum gc_status (*read)(struct gc_reader *reader, void *owner);
    void (*move_results)(struct gc_reader *reader, void *owner);
};

/* Reads `path`. Zero fields of `limits`, or NULL, mean the defaults. Keeps errno. After a failure
 * *owner is NULL and all memory is released. */
enum gc_status gc_reader_run(const struct gc_reading *reading, const char *path,
                             const struct gc_model_limits *limits, struct gc_model_error *error,
                             void **owner) GC_CHECKED;
/* After the last source is closed: releases the window kept for another. */
void gc_reader_end(struct gc_reader *reader);

/* Untrusted text for a message: printable, cut. */
#define GC_READER_SHOWN_BYTES 112
#define GC_READER_SHOWN(text, length)                                                              \
    gc_reader_show((text), (length), (char[GC_READER_SHOWN_BYTES]){0}, GC_READER_SHOWN_BYTES)
const char *gc_reader_show(const char *from, size_t length, char *to, size_t size);

/* Writes "PATH: text" to the error, unless an earlier call did, and returns `status`. */
enum gc_status gc_reader_fail(struct gc_reader *reader, enum gc_status status, const char *path,
                              const char *format, ...) __attribute__((format(printf, 4, 5)));
enum gc_status gc_reader_no_memory(struct gc_reader *reader, const char *path);
/* Adds "PATH: text" to the model's warnings; beyond GC_READER_WARNINGS_MAX nothing is added. */
#define GC_READER_WARNINGS_MAX 32
void gc_reader_warn(struct gc_reader *reader, const char *path, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Memory from the region; NULL after writing the error. */
void *gc_reader_alloc(struct gc_reader *reader, const char *path, uint64_t bytes);
/* A copy that ends in NUL. GC_FORMAT, an error about `what`: the text has a NUL or is not UTF-8. */
enum gc_status gc_reader_text(struct gc_reader *reader, const char *path, const char *what,
                              const char *text, size_t length, const char **copy) GC_CHECKED;
bool gc_reader_is_utf8(const char *text, size_t length);

/* ---- results; the caller has put texts and dims into the region ---- */

enum gc_status gc_reader_add_file(struct gc_reader *reader, const char *path, uint64_t bytes,
                                  uint32_t *file) GC_CHECKED;
/* Computes elements and bytes from dims and dtype. GC_FORMAT: they overflow. */
enum gc_status gc_reader_size_tensor(struct gc_reader *reader, const char *path,
                                     struct gc_model_tensor *tensor) GC_CHECKED;
/* In tensor_names, in place of a tensor's number: a shard index lists the tensor, and no shard read
 * so far has it. */
#define GC_READER_PROMISED UINT32_C(0x80000000)
/* Copies *tensor. With `unique`, a duplicate name is GC_FORMAT. */
enum gc_status gc_reader_add_tensor(struct gc_reader *reader, const char *path,
                                    const struct gc_model_tensor *tensor, bool unique) GC_CHECKED;
/* As gc_reader_add_tensor, for a tensor with a promised name; `name` is its entry in
 * tensor_names, still valid. */
enum gc_status gc_reader_redeem(struct gc_reader *reader, const char *path,
                                const struct gc_model_tensor *tensor,
                                struct gc_strmap_entry *name) GC_CHECKED;
/* Allocates space for `count` tensors at once. */
enum gc_status gc_reader_expect_tensors(struct gc_reader *reader, const char *path,
                                        uint64_t count) GC_CHECKED;
/* A duplicate key is GC_FORMAT. */
enum gc_status gc_reader_add_meta(struct gc_reader *reader, const char *path,
                                  const struct gc_meta *meta) GC_CHECKED;
enum gc_status gc_reader_add_value(struct gc_reader *reader, const char *path,
                                   const struct gc_model_value *declared) GC_CHECKED;

/* Grows the list for one more element. */
enum gc_status gc_reader_grow(struct gc_reader *reader, const char *path, void **list,
                              uint32_t count, uint32_t *room, size_t element_bytes) GC_CHECKED;

#endif
