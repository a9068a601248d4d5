/* The table of architectures: sections, their lines, the values of a configuration. */
#include "core/classes/architecture.h"

#include "core/arch/arch.h"
#include "core/io/text.h"

#include <stdlib.h>
#include <string.h>

#define DEPTH_MAX 24

/* ---- lines ---- */

static const char *line_end(const char *at)
{
    const char *end = strchr(at, '\n');
    return end != NULL ? end : at + strlen(at);
}

static const char *next_line(const char *at)
{
    const char *end = line_end(at);
    return *end != '\0' ? end + 1 : end;
}

/* The next line of the table that begins with `mark`, or its end. */
static const char *next_mark(const char *at, char mark)
{
    while (*at != '\0' && *at != mark)
        at = next_line(at);
    return at;
}

static const char *section_end(const char *at)
{
    while (*at != '\0' && *at != '@' && *at != '*')
        at = next_line(at);
    return at;
}

/* The shared block of a line "%NUMBER". */
static bool enter_block(struct gc_architecture_lines *lines, const char *number, size_t length)
{
    for (const char *at = next_mark(gc_classes_architectures, '*'); *at != '\0';
         at = next_mark(next_line(at), '*')) {
        const char *end = line_end(at);
        if ((size_t)(end - at - 1) != length || memcmp(at + 1, number, length) != 0)
            continue;
        lines->back_at = lines->at;
        lines->back_end = lines->end;
        lines->at = next_line(at);
        lines->end = section_end(lines->at);
        return true;
    }
    return false;
}

bool gc_architecture_next(struct gc_architecture_lines *lines, struct gc_architecture_line *line)
{
    for (;;) {
        if (lines->at >= lines->end && lines->back_at != NULL) {
            lines->at = lines->back_at;
            lines->end = lines->back_end;
            lines->back_at = NULL;
        }
        if (lines->at >= lines->end)
            return false;
        const char *end = line_end(lines->at);
        line->text = lines->at;
        line->length = (size_t)(end - lines->at);
        lines->at = next_line(lines->at);
        if (line->length == 0 || line->text[0] == '#')
            continue;
        if (line->text[0] != '%' || lines->back_at != NULL)
            return true;
        (void)enter_block(lines, line->text + 1, line->length - 1);
    }
}

/* The next line before the rows: values of the class, objects, guards. */
static bool next_property(struct gc_architecture_lines *lines, struct gc_architecture_line *line)
{
    return lines->at < lines->end && strchr("=^~!&+", *lines->at) != NULL &&
           gc_architecture_next(lines, line);
}

bool gc_architecture_part(const struct gc_architecture_line *line, unsigned number,
                          const char **text, size_t *length)
{
    const char *at = line->text;
    const char *end = line->text + line->length;
    for (;;) {
        const char *blank = memchr(at, ' ', (size_t)(end - at));
        const char *stop = blank != NULL ? blank : end;
        if (number-- == 0) {
            *text = at;
            *length = (size_t)(stop - at);
            return true;
        }
        if (blank == NULL)
            return false;
        at = blank + 1;
    }
}

static bool is_text(const char *text, size_t length, const char *other, size_t other_length)
{
    return length == other_length && memcmp(text, other, length) == 0;
}

/* ---- sections ---- */

#define BIT(rank) (1U << (unsigned)GC_ARCHITECTURE_RANK_##rank)

bool gc_architecture_has_ending(const char *class, const char *const *endings)
{
    for (; class != NULL && *endings != NULL; endings++) {
        if (gc_text_has_ending(class, strlen(class), *endings))
            return true;
    }
    return false;
}

/* A head "@- TYPE base" is that of a class XModel, but not of a part of it or of one with heads. */
static bool is_nameless_base(const char *head, size_t length, const char *class)
{
    static const char *const others[] = {
        "EncoderModel",     "DecoderModel", "RewardModel", "ValueModel",
        "DoubleHeadsModel", "CustomModel",  NULL};
    return is_text(head, length, "@-", 2) && gc_text_has_ending(class, strlen(class), "Model") &&
           !gc_architecture_has_ending(class, others);
}

static unsigned rank_of(const struct gc_architecture_line *head, const char *class,
                        const char *type)
{
    const char *parts[3];
    size_t lengths[3];
    for (unsigned i = 0; i < 3; i++) {
        if (!gc_architecture_part(head, i, &parts[i], &lengths[i]))
            return 0;
    }
    const bool same_type = type != NULL && is_text(parts[1], lengths[1], type, strlen(type));
    const bool is_base = is_text(parts[2], lengths[2], "base", 4);
    if (class != NULL && is_text(parts[0] + 1, lengths[0] - 1, class, strlen(class)))
        return same_type ? GC_ARCHITECTURE_RANK_BOTH : GC_ARCHITECTURE_RANK_CLASS;
    if (class != NULL && same_type && is_base && is_nameless_base(parts[0], lengths[0], class))
        return GC_ARCHITECTURE_RANK_NAMELESS;
    if (!same_type || is_text(parts[2], lengths[2], "head", 4))
        return 0;
    if (gc_text_find_word("vlm, multimodal, s2s, speech", parts[2], lengths[2]) >= 0)
        return GC_ARCHITECTURE_RANK_WHOLE;
    return is_base ? GC_ARCHITECTURE_RANK_BASE : GC_ARCHITECTURE_RANK_TYPE;
}

unsigned gc_architecture_ranks(const char *class)
{
    return BIT(BASE) | BIT(CLASS) | BIT(NAMELESS) | BIT(BOTH) |
           (class == NULL ? BIT(TYPE) | BIT(WHOLE) : 0);
}

/* Sets `lines` to the section below a head; heads of shared sections follow each other. */
static void set_lines(struct gc_architecture_lines *lines, const char *head)
{
    const char *at = next_line(head);
    while (*at == '@')
        at = next_line(at);
    *lines = (struct gc_architecture_lines){.at = at, .end = section_end(at)};
}

bool gc_architecture_section(const char *table, const char *class, const char *type, unsigned ranks,
                             struct gc_architecture_lines *lines, enum gc_architecture_rank *rank)
{
    const char *found = NULL;
    unsigned best = 0;
    for (const char *at = next_mark(table, '@'); *at != '\0'; at = next_mark(next_line(at), '@')) {
        const struct gc_architecture_line line = {at, (size_t)(line_end(at) - at)};
        const unsigned its_rank = rank_of(&line, class, type);
        if ((ranks >> its_rank & 1U) != 0 && its_rank > best) {
            best = its_rank;
            found = at;
        }
    }
    if (found == NULL)
        return false;
    set_lines(lines, found);
    *rank = (enum gc_architecture_rank)best;
    return true;
}

static bool find_values(const struct gc_expression_names *names,
                        const struct gc_expression_name *name, double *value);

static void init_scope(struct gc_architecture_scope *scope, const struct gc_model *model)
{
    memset(scope, 0, sizeof(*scope));
    scope->names.find = find_values;
    scope->model = model;
}

static const char *text_of(const struct gc_meta_value *value)
{
    return value != NULL && value->kind == GC_META_TEXT ? value->text : NULL;
}

const char *gc_architecture_class_name(const struct gc_model *model)
{
    const struct gc_meta_value *class = gc_model_find_meta(model, "architectures");
    if (class != NULL && class->kind == GC_META_ARRAY && class->kept > 0)
        class = &class->items[0];
    return text_of(class);
}

const char *gc_architecture_type_name(const struct gc_model *model)
{
    return text_of(gc_model_find_meta(model, "model_type"));
}

/* Finds the name before the first dot of layers that a class may have without the others: of an
 * encoder, a decoder, "text_model". */
static bool find_part(const struct gc_architecture_line *line, const char **text, size_t *length)
{
    const bool is_object = line->text[0] == '+'; /* its tensors begin with the third */
    if (!gc_architecture_part(line, is_object ? 2 : 0, text, length) ||
        (!is_object && memchr(*text, '{', *length) == NULL))
        return false;
    const char *dot = memchr(*text, '.', *length);
    *length = dot != NULL ? (size_t)(dot - *text) : 0;
    return gc_text_find_word("encoder, decoder", *text, *length) >= 0 ||
           gc_text_has_ending(*text, *length, "_model");
}

enum parts {
    PARTS_ONE,
    PARTS_SEVERAL,  /* of which a class may have one alone */
    PARTS_IN_A_ROW, /* likewise, an encoder and a decoder */
};

static enum parts parts_of(const struct gc_architecture_lines *section)
{
    struct gc_architecture_lines lines = *section;
    struct gc_architecture_line line;
    const char *first = NULL;
    size_t first_length = 0;
    while (gc_architecture_next(&lines, &line)) {
        const char *part;
        size_t length;
        if (!find_part(&line, &part, &length))
            continue;
        if (first != NULL && !is_text(part, length, first, first_length))
            return gc_text_find_word("encoder, decoder", part, length) >= 0 &&
                           gc_text_find_word("encoder, decoder", first, first_length) >= 0
                       ? PARTS_IN_A_ROW
                       : PARTS_SEVERAL;
        first = part;
        first_length = length;
    }
    return PARTS_ONE;
}

/* Whether a class with a head has rows of its base, and which of them. */
static enum gc_architecture_match match_base(const char *class, const char *type,
                                             struct gc_architecture_scope *scope)
{
    static const char *const of_both[] = {"ForSequenceClassification", "ForQuestionAnswering",
                                          NULL};
    static const char *const of_encoders[] = {
        "ForSequenceClassification", "ForQuestionAnswering", "ForTokenClassification",
        "ForAudioClassification",    "EncoderModel",         NULL};
    const enum parts parts = parts_of(&scope->lines);
    struct gc_architecture_lines lines;
    enum gc_architecture_rank rank = GC_ARCHITECTURE_RANK_BASE;
    scope->is_base_alone = true;
    if (parts == PARTS_IN_A_ROW && gc_architecture_has_ending(class, of_both))
        (void)gc_architecture_section(gc_classes_architectures, NULL, type,
                                      gc_architecture_ranks(NULL), &lines, &rank);
    /* a type whose whole is a model of both, not one with a decoder for some classes */
    if (parts == PARTS_ONE || rank == GC_ARCHITECTURE_RANK_WHOLE)
        return GC_ARCHITECTURE_TYPE;
    scope->is_encoder_alone = true;
    return parts == PARTS_IN_A_ROW && gc_architecture_has_ending(class, of_encoders)
               ? GC_ARCHITECTURE_TYPE
               : GC_ARCHITECTURE_NONE;
}

enum gc_architecture_match gc_architecture_find(const struct gc_model *model,
                                                struct gc_architecture_scope *scope)
{
    const char *class = gc_architecture_class_name(model);
    const char *type = gc_architecture_type_name(model);
    enum gc_architecture_rank rank;
    init_scope(scope, model);
    if (!gc_architecture_section(gc_classes_architectures, class, type,
                                 gc_architecture_ranks(class), &scope->lines, &rank))
        return GC_ARCHITECTURE_NONE;
    scope->is_other_type = rank == GC_ARCHITECTURE_RANK_CLASS && type != NULL;
    if (rank != GC_ARCHITECTURE_RANK_BASE || class == NULL)
        return GC_ARCHITECTURE_CLASS;
    return match_base(class, type, scope);
}

bool gc_architecture_find_base(const struct gc_architecture_scope *outer, const char *type,
                               size_t type_length, const char *key, size_t key_length,
                               struct gc_architecture_scope *scope)
{
    char name[GC_ARCHITECTURE_KEY_BYTES];
    enum gc_architecture_rank rank;
    init_scope(scope, outer->model);
    scope->depth = outer->depth + 1;
    scope->is_base_alone = outer->is_base_alone;
    const size_t before = strlen(outer->prefix);
    if (!gc_text_copy(name, sizeof(name), type, type_length) ||
        before + key_length + 2 > sizeof(scope->prefix))
        return false;
    memcpy(scope->prefix, outer->prefix, before);
    memcpy(scope->prefix + before, key, key_length);
    scope->prefix[before + key_length] = '.';
    return gc_architecture_section(gc_classes_architectures, NULL, name, BIT(BASE), &scope->lines,
                                   &rank);
}

/* ---- values ---- */

/* Older configurations have the language model's values outside its object. */
static const char text_object[] = "text_config.";

uint32_t gc_architecture_count_members(const struct gc_model *model, const char *start)
{
    const size_t length = strlen(start);
    uint32_t count = 0;
    for (uint32_t i = 0; i < model->meta_count; i++)
        count += strncmp(model->metas[i].key, start, length) == 0;
    return count;
}

bool gc_architecture_has_object(const struct gc_model *model, const char *start)
{
    return gc_architecture_count_members(model, start) > 0;
}

uint32_t gc_architecture_count_labels(const struct gc_architecture_scope *scope, const char *key,
                                      size_t length)
{
    static const char labels[] = "num_labels";
    return scope->prefix[0] == '\0' && is_text(key, length, labels, sizeof(labels) - 1)
               ? gc_architecture_count_members(scope->model, "id2label.")
               : 0;
}

const struct gc_meta_value *gc_architecture_find_key(const struct gc_architecture_scope *scope,
                                                     const char *key, size_t length)
{
    char name[2 * GC_ARCHITECTURE_KEY_BYTES];
    const size_t before = strlen(scope->prefix);
    if (before + length >= sizeof(name))
        return NULL;
    memcpy(name, scope->prefix, before);
    memcpy(name + before, key, length);
    name[before + length] = '\0';
    const struct gc_meta_value *value = gc_model_find_meta(scope->model, name);
    if (value == NULL && strncmp(name, text_object, sizeof(text_object) - 1) == 0 &&
        !gc_architecture_has_object(scope->model, text_object))
        value = gc_model_find_meta(scope->model, name + sizeof(text_object) - 1);
    return value;
}

static const struct gc_meta_value *find_other_name(const struct gc_architecture_scope *scope,
                                                   const char *key, size_t length)
{
    struct gc_architecture_lines lines = scope->lines;
    struct gc_architecture_line line;
    while (next_property(&lines, &line)) {
        const char *other;
        size_t other_length;
        if (line.text[0] != '~' || line.length < length + 2 || line.text[length + 1] != ' ' ||
            memcmp(line.text + 1, key, length) != 0 ||
            !gc_architecture_part(&line, 1, &other, &other_length))
            continue;
        const struct gc_meta_value *value = gc_architecture_find_key(scope, other, other_length);
        if (value != NULL)
            return value;
    }
    return NULL;
}

const struct gc_meta_value *gc_architecture_find_name(const struct gc_architecture_scope *scope,
                                                      const char *key, size_t length)
{
    const struct gc_meta_value *value = gc_architecture_find_key(scope, key, length);
    return value != NULL ? value : find_other_name(scope, key, length);
}

bool gc_architecture_is_given(const struct gc_architecture_scope *scope, const char *key,
                              size_t length)
{
    const struct gc_meta_value *value = gc_architecture_find_name(scope, key, length);
    return value != NULL && value->kind != GC_META_NULL;
}

static const char *type_at(const struct gc_architecture_scope *scope, const char *key,
                           size_t length)
{
    static const char member[] = "model_type";
    char name[2 * GC_ARCHITECTURE_KEY_BYTES];
    const size_t before = strlen(scope->prefix);
    if (before + length + 1 + sizeof(member) > sizeof(name))
        return NULL;
    memcpy(name, scope->prefix, before);
    memcpy(name + before, key, length);
    if (length > 0)
        name[before + length++] = '.';
    memcpy(name + before + length, member, sizeof(member));
    return text_of(gc_model_find_meta(scope->model, name));
}

const char *gc_architecture_type_of(const struct gc_architecture_scope *scope, const char *key,
                                    size_t length)
{
    const char *type = type_at(scope, key, length);
    const char *outer = type_at(scope, "", 0);
    return type != NULL && outer != NULL && strcmp(type, outer) == 0 ? NULL : type;
}

static bool number_of(const struct gc_meta_value *value, double *number)
{
    if (value->kind == GC_META_BOOL)
        *number = (double)value->unsigned_value;
    else if (value->kind == GC_META_INTEGER || value->kind == GC_META_REAL)
        *number = value->real;
    else
        return false;
    return true;
}

/* name[item]: item ITEM, "sum" of all, or the number of items that are the word ITEM; of a word,
 * the number of its letters that are ITEM. */
static bool item_of(const struct gc_meta_value *list, const struct gc_expression_name *name,
                    double *value)
{
    uint64_t index;
    *value = 0;
    if (list->kind == GC_META_TEXT) {
        for (const char *at = list->text; at != NULL && *at != '\0'; at++)
            *value += is_text(at, 1, name->item, name->item_length);
        return true;
    }
    if (list->kind != GC_META_ARRAY || list->kept < list->count)
        return false;
    if (gc_text_uint(name->item, name->item_length, &index))
        return index < list->count && number_of(&list->items[index], value);
    const bool is_sum = is_text(name->item, name->item_length, "sum", 3);
    for (uint64_t i = 0; i < list->count; i++) {
        const struct gc_meta_value *item = &list->items[i];
        double number;
        if (item->kind == GC_META_TEXT)
            *value += is_text(item->text, strlen(item->text), name->item, name->item_length);
        else if (is_sum && number_of(item, &number))
            *value += number;
        else
            return false;
    }
    return true;
}

static bool read_value(const struct gc_meta_value *meta, const struct gc_expression_name *name,
                       double *value)
{
    switch (name->part) {
    case GC_EXPRESSION_VALUE:
        return number_of(meta, value);
    case GC_EXPRESSION_LENGTH:
        *value = (double)meta->count;
        return meta->kind == GC_META_ARRAY;
    case GC_EXPRESSION_ITEM:
        return item_of(meta, name, value);
    case GC_EXPRESSION_EQUAL:
        *value = text_of(meta) != NULL &&
                 is_text(text_of(meta), strlen(text_of(meta)), name->item, name->item_length);
        return true;
    }
    return false;
}

/* Whether a line is for this atom: after its mark, the atom as expressions write it. */
static bool is_for(const struct gc_architecture_line *line, const struct gc_expression_name *name)
{
    const char *text;
    size_t length;
    (void)gc_architecture_part(line, 0, &text, &length);
    text++;
    length--;
    if (name->part == GC_EXPRESSION_LENGTH) {
        if (length == 0 || *text != '#')
            return false;
        text++;
        length--;
    }
    if (length < name->length || memcmp(text, name->name, name->length) != 0)
        return false;
    text += name->length;
    length -= name->length;
    if (name->part == GC_EXPRESSION_ITEM)
        return length == name->item_length + 2 && *text == '[' &&
               memcmp(text + 1, name->item, name->item_length) == 0;
    if (name->part == GC_EXPRESSION_EQUAL)
        return length == name->item_length + 1 && *text == '=' &&
               memcmp(text + 1, name->item, name->item_length) == 0;
    return length == 0;
}

/* The class's value, by a line "=ATOM EXPRESSION" or "^ATOM EXPRESSION". */
static bool class_value(const struct gc_architecture_scope *scope, char mark,
                        const struct gc_expression_name *name, double *value)
{
    struct gc_architecture_lines lines = scope->lines;
    struct gc_architecture_line line;
    while (next_property(&lines, &line)) {
        const char *text;
        size_t length;
        if (line.text[0] != mark || !is_for(&line, name) ||
            !gc_architecture_part(&line, 1, &text, &length))
            continue;
        struct gc_architecture_scope inner = *scope;
        inner.depth++;
        return gc_expression_evaluate(text, length, &inner.names, value) == GC_OK;
    }
    return false;
}

/* The object of a line "&KEY TYPE PREFIX" that a name lies in, if the configuration has another
 * type there: its class gives the absent values. */
static bool enter_object(const struct gc_architecture_scope *scope,
                         const struct gc_expression_name *name, struct gc_architecture_scope *inner,
                         size_t *skipped)
{
    struct gc_architecture_lines lines = scope->lines;
    struct gc_architecture_line line;
    while (next_property(&lines, &line)) {
        const char *parts[2];
        size_t lengths[2];
        if ((line.text[0] != '&' && line.text[0] != '+') ||
            !gc_architecture_part(&line, 0, &parts[0], &lengths[0]) ||
            !gc_architecture_part(&line, 1, &parts[1], &lengths[1]))
            continue;
        const char *key = parts[0] + 1;
        const size_t length = lengths[0] - 1;
        if (name->length <= length + 1 || name->name[length] != '.' ||
            memcmp(name->name, key, length) != 0)
            continue;
        const char *type = gc_architecture_type_of(scope, key, length);
        if (type == NULL || is_text(type, strlen(type), parts[1], lengths[1]) ||
            !gc_architecture_find_base(scope, type, strlen(type), key, length, inner))
            continue;
        *skipped = length + 1;
        return true;
    }
    return false;
}

static bool find_values(const struct gc_expression_names *names,
                        const struct gc_expression_name *name, double *value)
{
    const struct gc_architecture_scope *scope = (const void *)names;
    struct gc_architecture_scope inner;
    size_t skipped;
    if (scope->depth > DEPTH_MAX)
        return false;
    const struct gc_meta_value *meta = gc_architecture_find_name(scope, name->name, name->length);
    const char *text = meta != NULL ? text_of(meta) : NULL;
    const bool is_auto = text != NULL && strcmp(text, "auto") == 0 &&
                         name->part == GC_EXPRESSION_VALUE; /* the class computes it */
    if (meta != NULL && meta->kind != GC_META_NULL && !is_auto)
        return read_value(meta, name, value);
    if (enter_object(scope, name, &inner, &skipped)) {
        struct gc_expression_name rest = *name;
        rest.name += skipped;
        rest.length -= skipped;
        return find_values(&inner.names, &rest, value);
    }
    if (meta == NULL && name->part == GC_EXPRESSION_VALUE) {
        *value = gc_architecture_count_labels(scope, name->name, name->length);
        if (*value > 0)
            return true;
    }
    if (meta == NULL || is_auto)
        return !scope->is_other_type && class_value(scope, '=', name, value);
    if (!class_value(scope, '^', name, value))
        *value = 0;
    return true;
}

bool gc_architecture_has_two_types(const struct gc_model *model,
                                   const struct gc_architecture_scope *scope)
{
    struct gc_architecture_lines lines;
    enum gc_architecture_rank rank;
    return scope->is_other_type &&
           gc_architecture_section(gc_classes_architectures, NULL, gc_architecture_type_name(model),
                                   gc_architecture_ranks(NULL), &lines, &rank);
}

void gc_architecture_note(const struct gc_model *model, struct gc_notes *notes, const char *before,
                          const char *after)
{
    char shown[96];
    const struct gc_meta_value *type = gc_model_find_meta(model, "model_type");
    const struct gc_meta_value *classes = gc_model_find_meta(model, "architectures");
    const char *text = "unknown";
    if (classes != NULL && classes->kind == GC_META_ARRAY && classes->kept > 0 &&
        classes->items[0].kind == GC_META_TEXT)
        text = classes->items[0].text;
    else if (type != NULL && type->kind == GC_META_TEXT)
        text = type->text;
    gc_notes_add(notes, before, gc_text_printable(text, strlen(text), shown, sizeof(shown)), after,
                 NULL);
}
