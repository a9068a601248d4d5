/* A model's metadata into its configuration. */
#ifndef GC_ARCH_READ_H
#define GC_ARCH_READ_H

#include "core/estimator/arch_config.h"
#include "core/estimator/notes.h"
#include "core/model/model.h"

/* `arch` must be zeroed. Values that cannot be taken are left out, each with a note: its name, what
 * is accepted. Then the family's own meaning of what is absent is filled in (arch_families.def),
 * with a note each. */
void gc_arch_read(const struct gc_model *model, struct gc_arch *arch, struct gc_notes *notes);

/* A note where all tensors are of adapters (LoRA, IA3): the base model is another file's. */
void gc_arch_note_adapters(const struct gc_model *model, struct gc_notes *notes);

/* The family's meaning alone; for configurations that were made by hand. */
void gc_arch_complete(struct gc_arch *arch, struct gc_notes *notes);

/* Inside: where encoder and decoder are told apart, the decoder's values become those of the model.
 */
void gc_arch_complete_pair(struct gc_arch *arch);

#endif
