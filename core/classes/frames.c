/* Tables of rows by class, with the configuration's values put in; the table of frames. */
#include "core/classes/frames.h"

#include "core/arch/arch.h"
#include "core/base/bits.h"
#include "core/classes/architecture.h"
#include "core/classes/expression.h"
#include "core/io/text.h"
#include "core/model/checked.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define DEPTH_MAX 16
#define WHOLE_MAX 9007199254740992.0 /* 2^53 */

/* ---- sections ---- */

/* Whether a part of a line is this text. */
static bool is_part(const struct gc_architecture_line *line, unsigned number, const char *text)
{
    const char *part;
    size_t length;
    return gc_architecture_part(line, number, &part, &length) && length == strlen(text) &&
           memcmp(part, text, length) == 0;
}

/* The section's next line with one of these marks. */
static bool next_marked(struct gc_architecture_lines *lines, const char *marks,
                        struct gc_architecture_line *line)
{
    while (gc_architecture_next(lines, line)) {
        if (strchr(marks, line->text[0]) != NULL)
            return true;
    }
    return false;
}

/* ---- values ---- */

/* The configuration's values, else the class's by the table of architectures, else by this one. */
struct frame_names {
    struct gc_expression_names names;
    const struct gc_architecture_scope *scope;
    struct gc_architecture_lines section;
    unsigned depth;
};

/* Whether a line is for this name, after its mark: "KEY", "#KEY", "KEY[ITEM]". */
static bool is_for(const struct gc_architecture_line *line, const struct gc_expression_name *name)
{
    const bool is_item = name->part == GC_EXPRESSION_ITEM;
    const bool is_length = name->part == GC_EXPRESSION_LENGTH;
    const char *key;
    size_t length;
    (void)gc_architecture_part(line, 0, &key, &length);
    key++;
    if (length - 1 != name->length + is_length + (is_item ? name->item_length + 2 : 0) ||
        (is_length && *key != '#') || memcmp(key + is_length, name->name, name->length) != 0)
        return false;
    return !is_item || (key[name->length] == '[' &&
                        memcmp(key + name->length + 1, name->item, name->item_length) == 0);
}

/* The next of a section's lines "=KEY EXPRESSION" or "~KEY OTHER" for this name: its second part.
 */
static bool next_for(struct gc_architecture_lines *lines, const char *mark,
                     const struct gc_expression_name *name, const char **text, size_t *length)
{
    struct gc_architecture_line line;
    while (next_marked(lines, mark, &line)) {
        if (is_for(&line, name) && gc_architecture_part(&line, 1, text, length))
            return true;
    }
    return false;
}

static bool own_value(const struct frame_names *own, const struct gc_expression_name *name,
                      double *value)
{
    struct gc_architecture_lines lines = own->section;
    const char *text;
    size_t length;
    if (own->depth > DEPTH_MAX || !next_for(&lines, "=", name, &text, &length))
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
    struct gc_architecture_lines lines = own->section;
    const char *other;
    size_t length;
    while (next_for(&lines, "~", name, &other, &length)) {
        if (gc_architecture_find_key(own->scope, other, length) != NULL) {
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

/* Without an exponent, which expressions lack; false if that cannot be. A negative one is a
 * difference, (0-3), whatever stands before it. */
static bool write_number(struct writer *writer, double value)
{
    const double size = value < 0 ? -value : value;
    const bool is_whole = size < WHOLE_MAX && size == (double)(uint64_t)size;
    char number[48];
    const int written = snprintf(number, sizeof(number), is_whole ? "%.0f" : "%.17g", size);
    if (strpbrk(number, "ein") != NULL)
        return false;
    if (value < 0)
        write_text(writer, "(0-", strlen("(0-"));
    write_text(writer, number, (size_t)written);
    if (value < 0)
        write_text(writer, ")", 1);
    return true;
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
            if (gc_expression_evaluate(row + i, n, &own->names, &value) != GC_OK ||
                !write_number(&writer, value))
                return false;
        }
        i += n;
    }
    return !writer.is_full;
}

/* ---- a configuration's rows ---- */

/* False if a row's values are not known. */
static bool visit_rows(const struct frame_names *own, const char *marks,
                       struct gc_frame_visitor *visitor)
{
    char text[GC_FRAME_ROW_BYTES];
    bool is_whole = true;
    struct gc_architecture_lines lines = own->section;
    struct gc_architecture_line line;
    while (next_marked(&lines, marks, &line)) {
        const char *flags = line.text + 1;
        const char *row;
        size_t length;
        const bool has_flags = gc_architecture_part(&line, 1, &row, &length);
        const size_t flags_length = has_flags ? (size_t)(row - 1 - flags) : 0;
        if (!has_flags)
            row = flags;
        if (put_values(own, row, (size_t)(line.text + line.length - row), text))
            visitor->row(visitor, line.text[0], flags, flags_length, text);
        else
            is_whole = false;
    }
    return is_whole;
}

/* The first of these keys that has a size; 0: none. */
static uint64_t size_of(const struct frame_names *own, const char *const *keys)
{
    for (; *keys != NULL; keys++) {
        uint64_t value;
        if (gc_expression_size(*keys, strlen(*keys), &own->names, &value) == GC_OK && value > 0)
            return value;
    }
    return 0;
}

static uint64_t hidden_of(const struct frame_names *own)
{
    static const char *const keys[] = {"hidden_size", "d_model", "n_embd",
                                       "text_config.hidden_size", NULL};
    return size_of(own, keys);
}

/* Scores over the vocabulary: of a sequence's last token, or of all that it has. */
static void set_scores(const struct frame_names *own, const char *class,
                       struct gc_frame_section *section)
{
    static const char *const keys[] = {"vocab_size", "text_config.vocab_size", NULL};
    static const char *const of_last[] = {"ForCausalLM", "LMHeadModel", "ForConditionalGeneration",
                                          NULL};
    static const char *const of_all[] = {"ForMaskedLM", "ForPreTraining", NULL};
    section->scores_all = gc_architecture_has_ending(class, of_all);
    section->scores =
        section->scores_all || gc_architecture_has_ending(class, of_last) ? size_of(own, keys) : 0;
}

/* A language model of another type than the class was measured with: that type's rows. */
static bool enter_object(struct frame_names *own, struct gc_architecture_scope *inner,
                         const char *table)
{
    struct gc_architecture_lines lines = own->section;
    struct gc_architecture_line line;
    enum gc_architecture_rank rank;
    const char *key;
    size_t length;
    if (!next_marked(&lines, "&", &line) || !gc_architecture_part(&line, 0, &key, &length))
        return false;
    const char *type = gc_architecture_type_of(own->scope, key + 1, length - 1);
    if (type == NULL || is_part(&line, 1, type) ||
        !gc_architecture_section(table, NULL, type, 1U << (unsigned)GC_ARCHITECTURE_RANK_TYPE,
                                 &lines, &rank) ||
        !gc_architecture_find_base(own->scope, type, strlen(type), key + 1, length - 1, inner))
        return false;
    own->scope = inner;
    own->section = lines;
    return true;
}

/* Classes whose head makes next to nothing of the model's output; none is the model itself. */
static bool is_headless(const char *class)
{
    static const char *const endings[] = {"Model", "Classification", "QuestionAnswering",
                                          "MultipleChoice", NULL};
    return class == NULL || gc_architecture_has_ending(class, endings);
}

void gc_frames_visit(const struct gc_model *model, const struct gc_frame_table *table,
                     struct gc_frame_visitor *visitor, struct gc_frame_section *section)
{
    struct gc_architecture_scope scope;
    struct gc_architecture_scope inner;
    struct gc_architecture_lines lines;
    struct gc_architecture_line line;
    enum gc_architecture_rank rank;
    const char *class = gc_architecture_class_name(model);
    section->is_found =
        gc_architecture_section(table->text, class, gc_architecture_type_name(model),
                                gc_architecture_ranks(class), &lines, &rank);
    section->is_exact = false;
    section->hidden = section->scores = 0;
    section->scores_all = false;
    if (!section->is_found)
        return;
    (void)gc_architecture_find(model, &scope);
    struct frame_names own = {.names = {find_value}, .scope = &scope, .section = lines};
    (void)enter_object(&own, &inner, table->text);
    section->is_exact = (rank != GC_ARCHITECTURE_RANK_BASE || is_headless(class)) &&
                        !next_marked(&lines, "?", &line);
    section->hidden = hidden_of(&own);
    set_scores(&own, class, section);
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
    frame->is_condition = mark == ':';
    frame->is_early = mark == '<' || mark == '{';
    frame->is_wide = mark == '{' || mark == '}';
    frames->count++;
}

void gc_frames_read(const struct gc_model *model, struct gc_frames *frames)
{
    static const struct gc_frame_table table = {gc_classes_frames, "<>{}:"};
    struct frame_reader reader = {.visitor = {add_frame}, .frames = frames};
    struct gc_frame_section section;
    memset(frames, 0, sizeof(*frames));
    gc_frames_visit(model, &table, &reader.visitor, &section);
    frames->is_exact = section.is_exact && !reader.is_full;
    frames->hidden = section.hidden;
    frames->scores = section.scores;
    frames->scores_all = section.scores_all;
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

bool gc_frames_hold(const char *condition, const struct gc_frame_load *load)
{
    uint64_t holds;
    return gc_frames_value(condition, strlen(condition), load, &holds) == GC_OK && holds != 0;
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

/* Whether the places are those of 32 bits. */
static bool takes_wide(const struct gc_frames *frames, const struct gc_frame_load *load)
{
    if (load->element_bytes < sizeof(float))
        return false;
    for (uint32_t i = 0; i < frames->count; i++) {
        if (frames->items[i].is_wide)
            return true;
    }
    return false;
}

bool gc_frames_are_exact(const struct gc_frames *frames, const struct gc_frame_load *load)
{
    const bool is_wide = takes_wide(frames, load);
    for (uint32_t i = 0; i < frames->count; i++) {
        const struct gc_frame *frame = &frames->items[i];
        uint64_t ignored;
        if (frame->is_condition
                ? !gc_frames_hold(frame->text, load)
                : frame->is_wide == is_wide && gc_frames_value(frame->text, strlen(frame->text),
                                                               load, &ignored) == GC_NOT_SUPPORTED)
            return false;
    }
    return frames->is_exact;
}

enum gc_status gc_frames_bytes(const struct gc_frames *frames, const struct gc_frame_load *load,
                               uint64_t *bytes)
{
    const bool is_wide = takes_wide(frames, load);
    struct gc_sum sum = {false};
    const uint64_t rows = gc_sum_mul(&sum, load->batch, frames->scores_all ? load->tokens : 1);
    *bytes = gc_sum_mul(&sum, gc_sum_mul(&sum, rows, load->element_bytes),
                        gc_divide_up_u64(frames->scores, gc_max_u64(load->shards, 1)));
    if (sum.overflowed)
        return GC_OVERFLOW;
    for (uint32_t i = 0; i < frames->count; i++) {
        const struct gc_frame *frame = &frames->items[i];
        uint64_t its;
        if (frame->is_condition || frame->is_wide != is_wide)
            continue;
        const enum gc_status status = gc_frames_value(frame->text, strlen(frame->text), load, &its);
        if (status == GC_NOT_SUPPORTED)
            continue; /* less than nothing: gc_frames_are_exact tells it */
        if (status != GC_OK)
            return status;
        its = shard_bytes(frames, load, its);
        if (frame->is_early)
            its -= gc_min_u64(its, load->cache_bytes);
        *bytes = gc_max_u64(*bytes, its);
    }
    return GC_OK;
}
