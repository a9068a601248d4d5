/* What is known of a type's cache by measurement (arch_measured.def), and whether tensors hold what
 * the configuration says of it. */
#include "core/arch/shapes.h"

#include "core/io/text.h"

#include <string.h>

/* A type's measured caches against the estimate. */
enum measured {
    MEASURED_NOT,
    MEASURED_BOUND, /* different in some configurations */
    MEASURED_EXACT,
    MEASURED_GGUF, /* an architecture of GGUF files, exact */
};

struct measured_row {
    enum measured measured;
    const char *types;
};

static const struct measured_row rows[] = {
#define GC_ARCH_MEASURED(measured, types) {MEASURED_##measured, types},
#define GC_ARCH_KEEPS(types)
#define GC_ARCH_KEEPS_NOTHING(types)
#include "core/arch/arch_measured.def"
#undef GC_ARCH_MEASURED
#undef GC_ARCH_KEEPS
#undef GC_ARCH_KEEPS_NOTHING
};

static enum measured find_measured(const struct gc_arch *arch)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if ((rows[i].measured == MEASURED_GGUF) == arch->is_gguf &&
            gc_arch_is_type(arch, rows[i].types))
            return rows[i].measured;
    }
    return MEASURED_NOT;
}

/* True if the tensors of all layers with keys and values of their own show them. */
static bool shows_all(const struct gc_shapes *shapes, const struct gc_layers *layers)
{
    for (uint32_t i = 0; i < layers->count; i++) {
        const struct gc_shape_layer *shape = &shapes->layers[i];
        const struct gc_layer *layer = &layers->items[i];
        if (layer->has_attention && !layer->shares_kv && shape->key == 0 && shape->fused == 0 &&
            shape->latent == 0)
            return false;
    }
    return layers->count > 0;
}

/* What the layers without tensors of their own have, in sum. */
static void sum_layers(const struct gc_shapes *shapes, const struct gc_layers *layers,
                       struct gc_shape_sums *sums)
{
    for (uint32_t i = 0; i < layers->count; i++) {
        const struct gc_shape_layer *shape = &shapes->layers[i];
        const struct gc_layer *layer = &layers->items[i];
        const uint64_t keys = (uint64_t)layer->kv_heads * layer->key_dim;
        const uint64_t values = (uint64_t)layer->kv_heads * layer->value_dim;
        if (layer->state != GC_STATE_NONE && shape->convolved == 0)
            sums->convolved += layer->size.native;
        if (!layer->has_attention || layer->shares_kv || shape->key > 0 || shape->fused > 0 ||
            shape->latent > 0)
            continue;
        sums->latent += layer->is_mla ? layers->kv_rank + layers->rope_dim : 0;
        sums->key += keys;
        sums->value += values;
        sums->fused += (uint64_t)layer->heads * layer->key_dim + keys + values;
    }
}

/* True if the tensors of unknown layers are, in sum, as many as the layers without tensors of their
 * own have. */
static bool holds_sums(const struct gc_shapes *shapes, const struct gc_layers *layers)
{
    const struct gc_shape_sums *found = &shapes->unplaced;
    struct gc_shape_sums sums = {0};
    sum_layers(shapes, layers, &sums);
    return (found->key == 0 || found->key == sums.key) &&
           (found->value == 0 || found->value == sums.value) &&
           (found->fused == 0 || found->fused == sums.fused) &&
           (found->latent == 0 || found->latent == sums.latent) &&
           (found->convolved == 0 || found->convolved == sums.convolved);
}

/* An architecture that was not held against llama.cpp's own log. */
static void tell_gguf(const struct gc_arch *arch, struct gc_layers *layers, struct gc_notes *notes)
{
    char shown[2 * GC_ARCH_WORD_BYTES];
    if (find_measured(arch) == MEASURED_GGUF || !layers->has_kv_cache || layers->count == 0)
        return;
    layers->unknown |= GC_UNKNOWN_ARCHITECTURE;
    gc_notes_add(notes, "architecture ",
                 gc_text_printable(arch->type, strlen(arch->type), shown, sizeof(shown)),
                 ": not measured; weights are those of the file, KV cache, state and activations "
                 "are by general rules, approximate",
                 NULL);
}

void gc_shapes_tell_measured(const struct gc_shapes *shapes, const struct gc_arch *arch,
                             struct gc_layers *layers, struct gc_notes *notes)
{
    const enum measured measured = find_measured(arch);
    const bool is_exact = measured == MEASURED_EXACT;
    const bool is_held = !shapes->is_partial && holds_sums(shapes, layers);
    char shown[2 * GC_ARCH_WORD_BYTES];
    if (arch->is_gguf) {
        tell_gguf(arch, layers, notes);
        return;
    }
    if (arch->type[0] == '\0' || (is_exact && is_held) ||
        (measured != MEASURED_BOUND && !layers->has_kv_cache))
        return;
    if (is_exact) {
        layers->unknown |= GC_UNKNOWN_KEPT;
        gc_notes_add(notes,
                     "keys, values and states are those of the configuration alone: the tensors of "
                     "its class are not known well enough to hold them against",
                     NULL);
        return;
    }
    gc_text_printable(arch->type, strlen(arch->type), shown, sizeof(shown));
    if (measured == MEASURED_NOT && shows_all(shapes, layers)) {
        gc_notes_add(notes, "model type ", shown,
                     ": not measured; keys and values are those that its tensors show", NULL);
        return;
    }
    layers->unknown |= GC_UNKNOWN_KEPT;
    gc_notes_add(notes, "model type ", shown,
                 measured == MEASURED_NOT
                     ? ": not measured, and its tensors do not show all keys and values"
                     : ": a measured cache differs from the estimate in some configurations",
                 NULL);
}
