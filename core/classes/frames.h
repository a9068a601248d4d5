/* The memory of a forward pass of a transformers model, beside weights and cache, place by place.
 *
 * core/classes/frames.txt has, for each class of models, the places of its code at which the peak
 * can be, and what lives there as an expression of the configuration's values: measured by running
 * the class on shapes alone (scripts/architectures/frames.py), with attention that writes out its
 * result only and scores over the vocabulary for the last token, as generation does. The estimate
 * is the largest place. A class is found by the configuration's "architectures", else by its
 * "model_type"; a language model inside another by its object's type.
 *
 * Plain structures without pointers, about 32 KiB: too large for a stack. Thread-safe. */
#ifndef GC_FRAMES_H
#define GC_FRAMES_H

#include "core/base/status.h"
#include "core/model/model.h"

#include <stdbool.h>
#include <stdint.h>

#define GC_FRAME_MAX 32
#define GC_FRAME_BYTES 1024

/* ---- tables of rows by class ---- */

/* A table in the syntax of frames.txt, closed by NUL: sections "@CLASS TYPE KIND", in each "=KEY
 * EXPRESSION" for the class's own values, "?REASON" where the rows are not all of the class's,
 * "&KEY TYPE" for the language model inside, and rows: a mark, "FLAGS " or nothing, and
 * expressions. */
struct gc_frame_table {
    const char *text;
    const char *marks; /* with which rows begin */
};

#define GC_FRAME_ROW_BYTES 4096

/* Called for each row, with the configuration's values in place of their names. */
struct gc_frame_visitor {
    void (*row)(struct gc_frame_visitor *visitor, char mark, const char *flags, size_t flags_length,
                const char *text);
};

struct gc_frame_section {
    bool is_found;
    bool is_exact;   /* every row of the class could be read, and they are the class's own */
    uint64_t hidden; /* width of the residual stream; 0: unknown */
    uint64_t scores; /* of a token over the vocabulary; 0: unknown, or the class has none */
    bool scores_all; /* of all tokens, not of a sequence's last */
};

/* Visits the rows for a configuration. `section` is set in full. */
void gc_frames_visit(const struct gc_model *model, const struct gc_frame_table *table,
                     struct gc_frame_visitor *visitor, struct gc_frame_section *section);

/* The value of an expression of a row, as a size. `load`: what B, S, D and R stand for. */
struct gc_frame_load;
enum gc_status gc_frames_value(const char *text, size_t length, const struct gc_frame_load *load,
                               uint64_t *value) GC_CHECKED;

/* Whether a condition holds, an expression as well: it is not 0. */
bool gc_frames_hold(const char *condition, const struct gc_frame_load *load);

/* ---- frames ---- */

/* A place, with the configuration's values in place of their names. */
struct gc_frame {
    bool is_condition; /* no place: 0 beyond what the class was measured with */
    bool is_early;     /* nothing is in the cache yet */
    bool is_wide;      /* for activations in 32 bits; a class without such rows has them for all */
    char text[GC_FRAME_BYTES];
};

struct gc_frames {
    uint32_t count;  /* 0: the class has no rows */
    bool is_exact;   /* every row of the class could be read, and they are the class's own */
    uint64_t hidden; /* width of the residual stream; 0: unknown */
    uint64_t scores; /* of a token over the vocabulary; 0: unknown, or the class has none */
    bool scores_all; /* of all tokens, not of a sequence's last */
    struct gc_frame items[GC_FRAME_MAX];
};

struct gc_frame_load {
    uint64_t batch;         /* sequences, or images */
    uint64_t tokens;        /* of each, in one step */
    uint64_t element_bytes; /* of activations */
    uint64_t cache_bytes;   /* of the whole cache */
    uint32_t shards;        /* devices that share each layer; 1: none */
    uint64_t rank;          /* of adapters; 0: none */
};

/* The rows for a configuration; `frames` is set in full. */
void gc_frames_read(const struct gc_model *model, struct gc_frames *frames);

/* Whether they are exact for this load, too: no condition of the class is 0, no place less than
 * nothing. */
bool gc_frames_are_exact(const struct gc_frames *frames, const struct gc_frame_load *load);

/* The largest place, or a token's scores where they are more. What lives beside the residual stream
 * is divided over shards: four rows of `hidden` for each token are on all of them. GC_OVERFLOW
 * beyond 2^53; GC_FORMAT: the table is wrong. */
enum gc_status gc_frames_bytes(const struct gc_frames *frames, const struct gc_frame_load *load,
                               uint64_t *bytes) GC_CHECKED;

#endif
