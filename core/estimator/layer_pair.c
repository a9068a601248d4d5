/* Encoder and decoder: the decoder's layers are the model's, each with cross attention to what the
 * encoder made of its input (Vaswani et al., 2017, section 3.2.3; Raffel et al., 2020 for T5). */
#include "core/estimator/arch_read.h"
#include "core/estimator/layers.h"
#include "core/io/text.h"

#include <string.h>

/* Families whose decoder is a plain stack with cross attention of as many heads in each layer, as
 * their configuration classes have it. */
static bool is_pair(const struct gc_arch *arch)
{
    static const char types[] =
        "t5, mt5, umt5, bart, mbart, plbart, blenderbot, blenderbot-small, pegasus, marian, "
        "m2m_100, whisper";
    const size_t length = strlen(arch->type);
    return gc_arch_number(arch, GC_ARCH_ENCODER_DECODER, 0) != 0 && length > 0 &&
           gc_text_find_word(types, arch->type, length) >= 0;
}

/* `own` where it is told stands for `shared`. */
static void take(struct gc_arch *arch, enum gc_arch_key shared, enum gc_arch_key own)
{
    if (gc_arch_known(arch, own))
        arch->fields[shared] =
            (struct gc_arch_field){.value = arch->fields[own].value, .known = true};
}

/* What is told of both is the encoder's too. */
static void keep(struct gc_arch *arch, enum gc_arch_key own, enum gc_arch_key shared)
{
    if (!gc_arch_known(arch, own) && gc_arch_known(arch, shared))
        arch->fields[own] =
            (struct gc_arch_field){.value = arch->fields[shared].value, .known = true};
}

void gc_arch_complete_pair(struct gc_arch *arch)
{
    if (!is_pair(arch))
        return;
    keep(arch, GC_ARCH_ENCODER_HEADS, GC_ARCH_HEADS);
    keep(arch, GC_ARCH_ENCODER_INTERMEDIATE, GC_ARCH_INTERMEDIATE);
    take(arch, GC_ARCH_LAYER_COUNT, GC_ARCH_DECODER_LAYERS);
    take(arch, GC_ARCH_HEADS, GC_ARCH_DECODER_HEADS);
    take(arch, GC_ARCH_INTERMEDIATE, GC_ARCH_DECODER_INTERMEDIATE);
    take(arch, GC_ARCH_POSITIONS, GC_ARCH_TARGET_POSITIONS);
}

static void set_encoder(const struct gc_arch *arch, struct gc_layers *layers)
{
    struct gc_layer *layer = &layers->encoder;
    const uint64_t heads = gc_arch_number(arch, GC_ARCH_ENCODER_HEADS, 0);
    const uint64_t dim =
        gc_arch_number(arch, GC_ARCH_HEAD_DIM, heads > 0 ? layers->hidden / heads : 0);
    const uint64_t width = gc_arch_number(arch, GC_ARCH_ENCODER_INTERMEDIATE, 0);
    *layer = (struct gc_layer){.attends = true,
                               .dense = true,
                               .heads = (uint32_t)heads,
                               .kv_heads = (uint32_t)heads,
                               .key_dim = (uint32_t)dim,
                               .value_dim = (uint32_t)dim,
                               .intermediate = (uint32_t)width};
    if (heads == 0 || dim == 0 || width == 0)
        layers->unknown |= GC_UNKNOWN_WIDTHS;
}

void gc_layers_set_pair(const struct gc_arch *arch, struct gc_layers *layers,
                        struct gc_notes *notes)
{
    if (gc_arch_number(arch, GC_ARCH_ENCODER_DECODER, 0) == 0)
        return;
    if (!is_pair(arch)) {
        layers->unknown |= GC_UNKNOWN_ENCODER;
        gc_notes_add(
            notes, "encoder and decoder: one of them and what lies between are not counted", NULL);
        return;
    }
    layers->crosses = true;
    layers->source_tokens = gc_arch_number(arch, GC_ARCH_SOURCE_POSITIONS, 0);
    set_encoder(arch, layers);
    if (layers->source_tokens == 0)
        gc_notes_add(notes, "the encoder's input is taken to be as long as the context", NULL);
}
