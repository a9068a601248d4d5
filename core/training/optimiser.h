/* What an optimiser keeps for each trainable parameter, and what its step needs beside that.
 * optimisers.def lists the optimisers with their sources. Pure. */
#ifndef GC_OPTIMISER_H
#define GC_OPTIMISER_H

#include "core/training/sums.h"

enum gc_optimiser {
#define GC_OPTIMISER(id, ...) GC_OPTIMISER_##id,
#include "core/training/optimisers.def"
    GC_OPTIMISER_COUNT
};
#define GC_OPTIMISER_NONE GC_OPTIMISER_COUNT /* inference */

const char *gc_optimiser_name(enum gc_optimiser optimiser);  /* "adamw"; NULL for NONE */
const char *gc_optimiser_label(enum gc_optimiser optimiser); /* "AdamW" */
/* The names joined by ", ", for messages. */
const char *gc_optimiser_names(void);
/* GC_OPTIMISER_NONE for any other word. */
enum gc_optimiser gc_optimiser_from_word(const char *word);

/* Bytes kept from step to step. GC_OVERFLOW. */
enum gc_status gc_optimiser_state_bytes(enum gc_optimiser optimiser,
                                        const struct gc_training_sums *sums,
                                        uint64_t *bytes) GC_CHECKED;
/* Bytes alive in the step alone. GC_OVERFLOW. */
enum gc_status gc_optimiser_step_bytes(enum gc_optimiser optimiser,
                                       const struct gc_training_sums *sums,
                                       uint64_t *bytes) GC_CHECKED;

#endif
