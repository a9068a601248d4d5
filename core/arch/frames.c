/* Tables of rows by class, with the configuration's values put in; the table of frames. */
#include "core/arch/frames.h"

#include "core/arch/arch.h"
#include "core/arch/architecture.h"
#include "core/arch/expression.h"
#include "core/base/bits.h"
#include "core/io/text.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define DEPTH_MAX 16

/* ---- sections ---- */

static const char *next_line(const char *at)
{
    const char *end = strchr(at, '\n');
    return end != NULL ? end + 1 : at + strlen(at);
}

static size_t line_length(const char *at)
{
    return strcspn(at, "\n");
}

/* The blank-separated part of a line. */
static const char *part_of(const char *line, unsigned number, size_t *length)
{
    const size_t whole = line_length(line);
    const char *at = line;
    for (;;) {
        const size_t left = whole - (size_t)(at - line);
        const char *blank = memchr(at, ' ', left);
        *length = blank != NULL ? (size_t)(blank - at) : left;
        if (number-- == 0)
            return at;
        if (blank == NULL)
            return NULL;
        at = blank + 1;
    }
}

static bool is_part(const char *line, unsigned number, const char *text)
{
    size_t length;
    const char *part = part_of(line, number, &length);
    return part != NULL && text != NULL && length == strlen(text) &&
           memcmp(part, text, length) == 0;
}

/* How well a head "@CLASS TYPE KIND" fits; 0: not at all. */
enum { FIT_BASE = 1, FIT_TYPE, FIT_CLASS, FIT_BOTH };

static unsigned fit_of(const char *head, const char *class, const char *type)
{
    const bool same_type = is_part(head, 1, type);
    const bool same_class = is_part(head + 1, 0, class);
    if (same_class)
        return same_type ? FIT_BOTH : FIT_CLASS;
    if (!same_type || is_part(head, 2, "head"))
        return 0;
    return is_part(head, 2, "base") ? FIT_BASE : class == NULL ? FIT_TYPE : 0;
}

/* The lines below the head that fits best, the first of equals; NULL. */
static const char *find_section(const char *table, const char *class, const char *type,
                                unsigned *fit)
{
    const char *found = NULL;
    *fit = 0;
    for (const char *at = table; *at != '\0'; at = next_line(at)) {
        const unsigned its_fit = *at == '@' ? fit_of(at, class, type) : 0;
        if (its_fit > *fit) {
            *fit = its_fit;
            found = at;
        }
    }
    while (found != NULL && *found == '@')
        found = next_line(found);
    return found;
}

/* The section's next line with this mark, from `at` on; NULL. */
static const char *find_mark(const char *at, const char *marks)
{
    for (; *at != '\0' && *at != '@'; at = next_line(at)) {
        if (strchr(marks, *at) != NULL)
            return at;
    }
    return NULL;
}

/* ---- values ---- */

/* The configuration's values, else the class's by the table of architectures, else by this one. */
struct frame_names {
    struct gc_expression_names names;
    const struct gc_architecture_scope *scope;
    const char *section;
    unsigned depth;
};

/* Whether a line is for this name, after its mark: "KEY", "#KEY", "KEY[ITEM]". */
static bool is_for(const char *line, const struct gc_expression_name *name)
{
    const bool is_item = name->part == GC_EXPRESSION_ITEM;
    const bool is_length = name->part == GC_EXPRESSION_LENGTH;
    size_t length;
    const char *key = part_of(line, 0, &length) + 1;
    if (length - 1 != name->length + is_length + (is_item ? name->item_length + 2 : 0) ||
        (is_length && *key != '#') || memcmp(key + is_length, name->name, name->length) != 0)
        return false;
    return !is_item || (key[name->length] == '[' &&
                        memcmp(key + name->length + 1, name->item, name->item_length) == 0);
}

/* The next of a section's lines "=KEY EXPRESSION" or "~KEY OTHER" for this name, from `at` on;
 * NULL. */
static const char *find_line(const char *at, const char *mark,
                             const struct gc_expression_name *name)
{
    at = find_mark(at, mark);
    while (at != NULL && !is_for(at, name))
        at = find_mark(next_line(at), mark);
    return at;
}

static bool own_value(const struct frame_names *own, const struct gc_expression_name *name,
                      double *value)
{
    size_t length;
    const char *line = find_line(own->section, "=", name);
    const char *text = line != NULL ? part_of(line, 1, &length) : NULL;
    if (text == NULL || own->depth > DEPTH_MAX)
        return false;
    if (name->part == GC_EXPRESSION_EQUAL) {
        *value = length == name->item_length && memcmp(text, name->item, length) == 0;
        return true;
    }
    struct frame_names inner = *own;
    inner.depth++;
    return gc_expression_evaluate(text, length, &inner.names, value) == GC_OK;
}

/* The name that the configuration has for this one. */
static struct gc_expression_name given_name(const struct frame_names *own,
                                            const struct gc_expression_name *name)
{
    struct gc_expression_name given = *name;
    if (gc_architecture_find_key(own->scope, name->name, name->length) != NULL)
        return given;
    for (const char *at = find_line(own->section, "~", name); at != NULL;
         at = find_line(next_line(at), "~", name)) {
        size_t length;
        const char *other = part_of(at, 1, &length);
        if (other != NULL && gc_architecture_find_key(own->scope, other, length) != NULL) {
            given.name = other;
            given.length = length;
            break;
        }
    }
    return given;
}

/* Where the configuration has no number, the section's own comes first: its rows were measured with
 * it. A key that the class gives no number either is none: 0. */
static bool find_value(const struct gc_expression_names *names,
                       const struct gc_expression_name *name, double *value)
{
    const struct frame_names *own = (const void *)names;
    const struct gc_expression_name given = given_name(own, name);
    if (!gc_architecture_is_given(own->scope, given.name, given.length) &&
        own_value(own, name, value))
        return true;
    if (own->scope->names.find(&own->scope->names, &given, value) || own_value(own, name, value))
        return true;
    *value = 0;
    return true;
}

/* ---- values put in ---- */

struct writer {
    char *text;
    size_t room;
    bool is_full;
};

static void write_text(struct writer *writer, const char *text, size_t length)
{
    if (length >= writer->room) {
        writer->is_full = true;
        return;
    }
    memcpy(writer->text, text, length);
    writer->text += length;
    writer->room -= length;
    *writer->text = '\0';
}

static bool is_name(char c)
{
    return isalnum((unsigned char)c) != 0 || c == '_' || c == '.';
}

/* The length of a name with what belongs to it: "!NAME", "#NAME", "NAME=WORD", "NAME[ITEM]". */
static size_t name_length(const char *text, size_t length)
{
    size_t n = strchr("!?#", *text) != NULL ? 1 : 0;
    while (n < length && is_name(text[n]))
        n++;
    if (n < length && text[n] == '=') {
        do
            n++;
        while (n < length && (is_name(text[n]) || text[n] == '-'));
    } else if (n < length && text[n] == '[') {
        while (n < length && text[n] != ']')
            n++;
        n += n < length;
    }
    return n;
}

static bool is_kept(const char *text, size_t length)
{
    static const char *const words[] = {"B", "S", "D", "R", "min", "max", "or"};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (strlen(words[i]) == length && memcmp(words[i], text, length) == 0)
            return true;
    }
    return false;
}

/* False if a value is not known or the text is too long. */
static bool put_values(const struct frame_names *own, const char *row, size_t length,
                       char text[GC_FRAME_ROW_BYTES])
{
    struct writer writer = {text, GC_FRAME_ROW_BYTES, false};
    for (size_t i = 0; i < length;) {
        const bool is_start = isalpha((unsigned char)row[i]) != 0 || strchr("_!?#", row[i]) != NULL;
        size_t n = 1;
        if (is_start) {
            n = name_length(row + i, length - i);
        } else {
            while (is_name(row[i]) && i + n < length && is_name(row[i + n]))
                n++;
        }
        if (!is_start || is_kept(row + i, n)) {
            write_text(&writer, row + i, n);
        } else {
            double value;
            char number[48];
            if (gc_expression_evaluate(row + i, n, &own->names, &value) != GC_OK)
                return false;
            const int written =
                snprintf(number, sizeof(number), value < 0 ? "(0%.10g)" : "%.10g", value);
            if (strchr(number, 'e') != NULL)
                return false;
            write_text(&writer, number, (size_t)written);
        }
        i += n;
    }
    return !writer.is_full;
}

/* ---- a configuration's rows ---- */

static const char *word_of(const struct gc_model *model, const char *key)
{
    const struct gc_meta_value *value = gc_model_find_meta(model, key);
    if (value != NULL && value->kind == GC_META_ARRAY && value->count > 0)
        value = &value->items[0];
    return value != NULL && value->kind == GC_META_TEXT ? value->text : NULL;
}

/* False if a row's values are not known. */
static bool visit_rows(const struct frame_names *own, const char *marks,
                       struct gc_frame_visitor *visitor)
{
    char text[GC_FRAME_ROW_BYTES];
    bool is_whole = true;
    for (const char *at = find_mark(own->section, marks); at != NULL;
         at = find_mark(next_line(at), marks)) {
        const char *end = at + line_length(at);
        size_t length;
        const char *flags = part_of(at, 0, &length) + 1;
        const char *row = part_of(at, 1, &length);
        const size_t flags_length = row != NULL ? (size_t)(row - 1 - flags) : 0;
        if (row == NULL)
            row = flags;
        if (put_values(own, row, (size_t)(end - row), text))
            visitor->row(visitor, *at, flags, flags_length, text);
        else
            is_whole = false;
    }
    return is_whole;
}

static uint64_t hidden_of(const struct frame_names *own)
{
    static const char *const keys[] = {"hidden_size", "d_model", "n_embd",
                                       "text_config.hidden_size"};
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        uint64_t value;
        if (gc_expression_size(keys[i], strlen(keys[i]), &own->names, &value) == GC_OK && value > 0)
            return value;
    }
    return 0;
}

/* A language model of another type than the class was measured with: that type's rows. */
static bool enter_object(struct frame_names *own, struct gc_architecture_scope *inner,
                         const char *table)
{
    size_t length;
    unsigned fit;
    const char *line = find_mark(own->section, "&");
    if (line == NULL)
        return false;
    const char *key = part_of(line, 0, &length) + 1;
    length--;
    const char *type = gc_architecture_type_of(own->scope, key, length);
    if (type == NULL || is_part(line, 1, type))
        return false;
    const char *section = find_section(table, NULL, type, &fit);
    if (section == NULL || fit != FIT_TYPE ||
        !gc_architecture_find_base(own->scope, type, strlen(type), key, length, inner))
        return false;
    own->scope = inner;
    own->section = section;
    return true;
}

/* Classes whose head makes next to nothing of the model's output; none is the model itself. */
static bool is_headless(const char *class)
{
    static const char *const endings[] = {"Model", "Classification", "QuestionAnswering",
                                          "MultipleChoice"};
    if (class == NULL)
        return true;
    for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++) {
        if (gc_text_has_ending(class, strlen(class), endings[i]))
            return true;
    }
    return false;
}

void gc_frames_visit(const struct gc_model *model, const struct gc_frame_table *table,
                     struct gc_frame_visitor *visitor, struct gc_frame_section *section)
{
    struct gc_architecture_scope scope;
    struct gc_architecture_scope inner;
    unsigned fit;
    const char *class = word_of(model, "architectures");
    const char *lines = find_section(table->text, class, word_of(model, "model_type"), &fit);
    *section = (struct gc_frame_section){.is_found = lines != NULL};
    if (lines == NULL)
        return;
    (void)gc_architecture_find(model, &scope);
    struct frame_names own = {.names = {find_value}, .scope = &scope, .section = lines};
    (void)enter_object(&own, &inner, table->text);
    section->is_exact = (fit != FIT_BASE || is_headless(class)) && find_mark(lines, "?") == NULL;
    section->hidden = hidden_of(&own);
    if (!visit_rows(&own, table->marks, visitor))
        section->is_exact = false;
}

/* ---- the table of frames ---- */

struct frame_reader {
    struct gc_frame_visitor visitor;
    struct gc_frames *frames;
    bool is_full;
};

static void add_frame(struct gc_frame_visitor *visitor, char mark, const char *flags,
                      size_t flags_length, const char *text)
{
    struct frame_reader *reader = (void *)visitor;
    struct gc_frames *frames = reader->frames;
    struct gc_frame *frame = &frames->items[frames->count];
    (void)flags;
    (void)flags_length;
    if (frames->count == GC_FRAME_MAX || strlen(text) >= sizeof(frame->text)) {
        reader->is_full = true;
        return;
    }
    strcpy(frame->text, text);
    frame->is_early = mark == '<' || mark == '{';
    frame->is_wide = mark == '{' || mark == '}';
    frames->count++;
}

void gc_frames_read(const struct gc_model *model, struct gc_frames *frames)
{
    static const struct gc_frame_table table = {gc_arch_frames, "<>{}"};
    struct frame_reader reader = {.visitor = {add_frame}, .frames = frames};
    struct gc_frame_section section;
    memset(frames, 0, sizeof(*frames));
    gc_frames_visit(model, &table, &reader.visitor, &section);
    frames->is_exact = section.is_exact && !reader.is_full;
    frames->hidden = section.hidden;
}

/* ---- sizes ---- */

struct load_names {
    struct gc_expression_names names;
    const struct gc_frame_load *load;
};

static bool find_load(const struct gc_expression_names *names,
                      const struct gc_expression_name *name, double *value)
{
    const struct gc_frame_load *load = ((const struct load_names *)(const void *)names)->load;
    if (name->length != 1)
        return false;
    switch (*name->name) {
    case 'B':
        *value = (double)load->batch;
        return true;
    case 'S':
        *value = (double)load->tokens;
        return true;
    case 'D':
        *value = (double)load->element_bytes;
        return true;
    case 'R':
        *value = (double)load->rank;
        return true;
    default:
        return false;
    }
}

enum gc_status gc_frames_value(const char *text, size_t length, const struct gc_frame_load *load,
                               uint64_t *value)
{
    const struct load_names names = {{find_load}, load};
    return gc_expression_size(text, length, &names.names, value);
}

#define RESIDUAL_ROWS 4

static uint64_t shard_bytes(const struct gc_frames *frames, const struct gc_frame_load *load,
                            uint64_t bytes)
{
    const double residual = (double)RESIDUAL_ROWS * (double)frames->hidden * (double)load->batch *
                            (double)load->tokens * (double)load->element_bytes;
    if (load->shards <= 1 || residual >= (double)bytes)
        return bytes;
    const uint64_t kept = (uint64_t)residual;
    return kept + (bytes - kept + load->shards - 1) / load->shards;
}

static bool has_wide(const struct gc_frames *frames)
{
    for (uint32_t i = 0; i < frames->count; i++) {
        if (frames->items[i].is_wide)
            return true;
    }
    return false;
}

enum gc_status gc_frames_bytes(const struct gc_frames *frames, const struct gc_frame_load *load,
                               uint64_t *bytes)
{
    const bool is_wide = load->element_bytes >= sizeof(float) && has_wide(frames);
    *bytes = 0;
    for (uint32_t i = 0; i < frames->count; i++) {
        const struct gc_frame *frame = &frames->items[i];
        uint64_t its;
        if (frame->is_wide != is_wide)
            continue;
        const enum gc_status status = gc_frames_value(frame->text, strlen(frame->text), load, &its);
        if (status != GC_OK)
            return status;
        its = shard_bytes(frames, load, its);
        if (frame->is_early)
            its -= gc_min_u64(its, load->cache_bytes);
        *bytes = gc_max_u64(*bytes, its);
    }
    return GC_OK;
}
