/* A configuration's absent values: those of its family, of its class, and of encoder and decoder.
 */
#include "core/arch/arch.h"

#include "core/arch/notes.h"
#include "core/io/text.h"

#include <string.h>

#define COUNT(rows) (sizeof(rows) / sizeof((rows)[0]))

/* ---- defaults ---- */

struct family_row {
    const char *types;
    enum gc_arch_key key;
    uint64_t value;
};

#define GC_ARCH_FAMILY(types, key, value) {types, GC_ARCH_##key, value},
#define GC_ARCH_CYCLE(types, words)
#define GC_ARCH_DERIVED(types, key)
static const struct family_row family_rows[] = {
#include "core/arch/arch_families.def"
};
static const struct family_row class_rows[] = {
#include "core/arch/arch_defaults.def"
};
#undef GC_ARCH_FAMILY
#undef GC_ARCH_CYCLE
#undef GC_ARCH_DERIVED

/* The kinds of layers by the class: words again and again; NULL: in a way of its own. */
struct kinds_row {
    const char *types;
    const char *words;
};

#define GC_ARCH_FAMILY(types, key, value)
#define GC_ARCH_CYCLE(types, words) {types, words},
#define GC_ARCH_DERIVED(types, key) {types, NULL},
static const struct kinds_row kinds_rows[] = {
#include "core/arch/arch_defaults.def"
};
#undef GC_ARCH_FAMILY
#undef GC_ARCH_CYCLE
#undef GC_ARCH_DERIVED

/* A pattern has no meaning without its window, or if the configuration lists each layer. */
static bool is_needed(const struct gc_arch *arch, enum gc_arch_key key)
{
    if (gc_arch_known(arch, key) || arch->fields[key].is_null)
        return false;
    if ((key == GC_ARCH_WINDOW_PATTERN || key == GC_ARCH_WINDOW_USED) &&
        !gc_arch_known(arch, GC_ARCH_WINDOW) && !gc_arch_known(arch, GC_ARCH_CHUNK))
        return false;
    if (key == GC_ARCH_WINDOW_PATTERN || key == GC_ARCH_WINDOW_USED ||
        key == GC_ARCH_ATTENTION_PERIOD)
        return !gc_arch_known(arch, GC_ARCH_KINDS) && !gc_arch_known(arch, GC_ARCH_NO_ROPE_LAYERS);
    if (key == GC_ARCH_HEAD_DIM)
        return !gc_arch_known(arch, GC_ARCH_KEY_DIM);
    return key != GC_ARCH_MULTI_QUERY || !gc_arch_known(arch, GC_ARCH_KV_HEADS);
}

/* ---- encoder and decoder ---- */

/* Sets `shared` to the decoder's own value where the configuration has one. */
static void override_from(struct gc_arch *arch, enum gc_arch_key shared, enum gc_arch_key own)
{
    if (gc_arch_known(arch, own))
        arch->fields[shared] = (struct gc_arch_field){
            .value = arch->fields[own].value, .known = true, .origin = arch->fields[own].origin};
}

/* A value given once for both is the encoder's too. */
static void default_to(struct gc_arch *arch, enum gc_arch_key own, enum gc_arch_key shared)
{
    if (!gc_arch_known(arch, own) && gc_arch_known(arch, shared))
        arch->fields[own] = (struct gc_arch_field){.value = arch->fields[shared].value,
                                                   .known = true,
                                                   .origin = arch->fields[shared].origin};
}

/* Of a decoder with layers of its own, with its encoder or without it. */
static void complete_pair(struct gc_arch *arch)
{
    if (!gc_arch_keeps_cache(arch) || (!gc_arch_known(arch, GC_ARCH_DECODER_LAYERS) &&
                                       gc_arch_number(arch, GC_ARCH_ENCODER_DECODER, 0) == 0))
        return;
    default_to(arch, GC_ARCH_ENCODER_LAYERS, GC_ARCH_LAYER_COUNT);
    default_to(arch, GC_ARCH_ENCODER_HEADS, GC_ARCH_HEADS);
    default_to(arch, GC_ARCH_ENCODER_INTERMEDIATE, GC_ARCH_INTERMEDIATE);
    override_from(arch, GC_ARCH_LAYER_COUNT, GC_ARCH_DECODER_LAYERS);
    override_from(arch, GC_ARCH_HEADS, GC_ARCH_DECODER_HEADS);
    override_from(arch, GC_ARCH_INTERMEDIATE, GC_ARCH_DECODER_INTERMEDIATE);
    override_from(arch, GC_ARCH_POSITIONS, GC_ARCH_TARGET_POSITIONS);
}

static void complete_numbers(struct gc_arch *arch, const struct family_row *rows, size_t count,
                             enum gc_arch_origin origin)
{
    for (size_t i = 0; i < count; i++) {
        if (gc_arch_is_type(arch, rows[i].types) && is_needed(arch, rows[i].key))
            arch->fields[rows[i].key] =
                (struct gc_arch_field){.value = rows[i].value, .known = true, .origin = origin};
    }
}

/* True if another value tells the kinds of layers. */
static bool has_kinds(const struct gc_arch *arch)
{
    static const enum gc_arch_key keys[] = {GC_ARCH_KINDS,
                                            GC_ARCH_KIND_CYCLE,
                                            GC_ARCH_WINDOW_PATTERN,
                                            GC_ARCH_NO_ROPE_LAYERS,
                                            GC_ARCH_ATTENTION_PERIOD,
                                            GC_ARCH_ATTENTION_FLAGS,
                                            GC_ARCH_ATTENTION_LAYERS,
                                            GC_ARCH_ATTENTION_NUMBERS};
    for (size_t i = 0; i < COUNT(keys); i++) {
        if (gc_arch_known(arch, keys[i]))
            return true;
    }
    return false;
}

static void complete_kinds(struct gc_arch *arch)
{
    static const struct gc_arch_place cycle = {.key = GC_ARCH_KIND_CYCLE};
    for (size_t i = 0; i < COUNT(kinds_rows); i++) {
        const struct kinds_row *row = &kinds_rows[i];
        if (!gc_arch_is_type(arch, row->types) || has_kinds(arch))
            continue;
        arch->has_hidden_kinds = row->words == NULL;
        uint32_t index = 0;
        for (const char *at = row->words; at != NULL && *at != '\0';) {
            const size_t length = strcspn(at, ",");
            const struct gc_arch_value word = {GC_ARCH_VALUE_TEXT, 0, at, length};
            (void)!gc_arch_config_set(arch, &cycle, index++, &word);
            at += length;
            at += strspn(at, ", ");
        }
        return;
    }
}

void gc_arch_complete(struct gc_arch *arch)
{
    complete_numbers(arch, family_rows, COUNT(family_rows), GC_ARCH_OF_FAMILY);
    if (!arch->is_gguf) {
        complete_kinds(arch);
        complete_numbers(arch, class_rows, COUNT(class_rows), GC_ARCH_OF_CLASS);
    }
    complete_pair(arch);
}

uint64_t gc_arch_given(const struct gc_arch *arch, enum gc_arch_key key)
{
    return arch->fields[key].origin == GC_ARCH_GIVEN ? gc_arch_number(arch, key, 0) : 0;
}

void gc_arch_note_defaults(const struct gc_arch *arch, struct gc_notes *notes)
{
    char number[GC_NOTE_NUMBER_BYTES];
    uint64_t count = 0;
    for (unsigned i = 0; i < GC_ARCH_KEY_COUNT; i++) {
        const struct gc_arch_key_row *row = gc_arch_key_row((enum gc_arch_key)i);
        const struct gc_arch_field *field = &arch->fields[i];
        if (field->origin == GC_ARCH_OF_FAMILY)
            gc_notes_add(notes, row->text, ": not given, ", gc_note_number(field->value, number),
                         " as ", arch->type, " has it", NULL);
        count += field->origin == GC_ARCH_OF_CLASS && row->type != GC_ARCH_TYPE_FLAG;
    }
    if (count > 0)
        gc_notes_add(notes, "values that the configuration lacks: ", gc_note_number(count, number),
                     "; they are those of ", arch->type, "'s class", NULL);
}
