/* The memory of a training step's passes, place by place: core/classes/training.txt has, for each
 * class of models, the places of its forward and backward pass at which the peak can be, measured
 * as those of frames.h are. A row ">FLAGS SAVED|LOSS|WORK|GRADS" has expressions of the bytes kept
 * for the backward pass, of logits and loss, of other values, and of the gradients alive there
 * ("*": all). R is the rank of adapters. A row holds for the kinds of training that its flags name:
 *
 *   p w m   parameters and activations in one 16-bit type; in 32 bits; parameters in 32 bits and
 *           activations in 16 (autocast)
 *   a e     attention without scores in memory; with them
 *   c n     activations of layers computed again; kept
 *   l f     adapters trained; all parameters
 *   ~       approximate: some configurations were measured otherwise
 *
 * A condition ":KEY EXPRESSION" is 0 where the rows were not measured with the configuration's
 * value of KEY: they are a lower bound then, or approximate if it is ":KEY~ EXPRESSION".
 *
 * Plain structures without pointers, about 520 KiB: too large for a stack. Thread-safe. */
#ifndef GC_TRAINING_ROWS_H
#define GC_TRAINING_ROWS_H

#include "core/classes/frames.h"

#define GC_TRAINING_ROW_MAX 128
#define GC_TRAINING_TEXT_BYTES 4096

struct gc_training_row {
    char flags[12];
    char text[GC_TRAINING_TEXT_BYTES];
};

#define GC_TRAINING_CONDITION_MAX 24

struct gc_training_condition {
    char key[48];
    bool is_approximate;
    char text[256];
};

struct gc_training_rows {
    uint32_t count; /* 0: the class has no rows */
    bool is_exact;  /* every row of the class could be read, and they are the class's own */
    struct gc_training_row items[GC_TRAINING_ROW_MAX];
    uint32_t condition_count;
    struct gc_training_condition conditions[GC_TRAINING_CONDITION_MAX];
};

/* A kind of training: a letter of each group. */
struct gc_training_kind {
    char precision;
    char attention;
    char checkpointing;
    char parameters;
};

struct gc_training_place {
    uint64_t saved;
    uint64_t loss;
    uint64_t work;
    uint64_t gradients;
    bool is_partial; /* no row, or not each, has a value for this configuration: a lower bound */
};

void gc_training_rows_read(const struct gc_model *model, struct gc_training_rows *rows);

/* Whether some row holds for this kind. */
bool gc_training_rows_have(const struct gc_training_rows *rows,
                           const struct gc_training_kind *kind);

/* Whether some row for this kind is approximate. */
bool gc_training_rows_approximate(const struct gc_training_rows *rows,
                                  const struct gc_training_kind *kind);

/* The first condition from `*next` on that does not hold, with `*next` behind it; NULL: none. */
const struct gc_training_condition *gc_training_rows_unmet(const struct gc_training_rows *rows,
                                                           const struct gc_frame_load *load,
                                                           uint32_t *next);

/* The largest place. `gradients`: all of them, divided over `gradient_parts` devices already.
 * GC_OVERFLOW; GC_FORMAT: the table is wrong. */
enum gc_status gc_training_rows_largest(const struct gc_training_rows *rows,
                                        const struct gc_training_kind *kind,
                                        const struct gc_frame_load *load, uint64_t gradients,
                                        uint32_t gradient_parts,
                                        struct gc_training_place *place) GC_CHECKED;

#endif
