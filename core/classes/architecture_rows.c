#define _GNU_SOURCE
#include "core/classes/architecture_rows.h"

#include "core/io/text.h"

#include <stdio.h>
#include <string.h>

#define OBJECTS_MAX 16
#define DOUBTS_SHOWN 4
#define PARTS_MAX (GC_ARCHITECTURE_DIMS_MAX + 2)
#define SHOWN_BYTES 96

/* One line "&KEY TYPE PREFIX". */
struct object {
    const char *key;
    size_t key_length;
    const char *prefix;
    size_t prefix_length;
    const char
        *type; /* by the configuration, if it is another than the table's; else the table's */
    size_t type_length;
    bool is_other;
    bool is_included; /* its base rows are used */
    bool is_unknown;  /* another type, and no rows for it */
};

struct visit {
    const struct gc_architecture_scope *scope;
    struct gc_architecture_visitor *visitor;
    struct gc_notes *notes;
    enum gc_architecture_known *known;
    char prefix[GC_ARCHITECTURE_KEY_BYTES]; /* of tensors */
    struct object objects[OBJECTS_MAX];
    unsigned object_count;
    char doubts[GC_NOTE_BYTES - 80]; /* keys with values that the rows were not measured with */
    unsigned doubt_count;
    uint64_t left;      /* rows that may depend on these */
    uint64_t taken;     /* the others */
    const char *labels; /* the measured number of labels, where the configuration names others */
    size_t labels_length;
};

static enum gc_status visit_section(const struct gc_architecture_scope *scope,
                                    struct gc_architecture_visitor *visitor, const char *prefix,
                                    struct gc_notes *notes, enum gc_architecture_known *known);

static void lower_to(const struct visit *visit, enum gc_architecture_known known)
{
    if (*visit->known < known)
        *visit->known = known;
}

#define SHOWN(text, length) gc_text_printable((text), (length), (char[SHOWN_BYTES]){0}, SHOWN_BYTES)

static unsigned split(const struct gc_architecture_line *line, const char *parts[PARTS_MAX],
                      size_t lengths[PARTS_MAX])
{
    const char *at = line->text;
    const char *end = line->text + line->length;
    unsigned count = 0;
    while (count < PARTS_MAX) {
        const char *blank = memchr(at, ' ', (size_t)(end - at));
        const char *stop = blank != NULL ? blank : end;
        parts[count] = at;
        lengths[count++] = (size_t)(stop - at);
        if (blank == NULL)
            break;
        at = blank + 1;
    }
    return count;
}

static bool begins(const char *text, size_t length, const char *start, size_t start_length)
{
    return length >= start_length && memcmp(text, start, start_length) == 0;
}

/* ---- values that the rows were not measured with ---- */

static bool is_null(const char *text, size_t length)
{
    return length == 4 && memcmp(text, "null", 4) == 0;
}

static bool is_measured(const struct gc_meta_value *value, const char *text, size_t length)
{
    char word[SHOWN_BYTES];
    double number = 0;
    double wanted = 0;
    const char *end;
    struct gc_decimal decimal;
    if (value->kind == GC_META_NULL)
        return is_null(text, length);
    if (!gc_text_copy(word, sizeof(word), text, length))
        return false;
    if (value->kind == GC_META_TEXT) {
        bool same = strlen(value->text) == length;
        for (size_t i = 0; same && i < length; i++)
            same = value->text[i] == text[i] || (text[i] == '_' && value->text[i] == ' ');
        return same;
    }
    if (value->kind == GC_META_BOOL)
        number = (double)value->unsigned_value;
    else if (value->kind != GC_META_ARRAY)
        number = value->real;
    const bool is_negative = word[0] == '-';
    if (value->kind == GC_META_ARRAY || !gc_text_decimal(word + is_negative, &end, &decimal) ||
        *end != '\0')
        return false;
    wanted = gc_text_decimal_value(&decimal) * (is_negative ? -1 : 1);
    const double difference = number > wanted ? number - wanted : wanted - number;
    return difference <= 1e-9 * (wanted < 0 ? -wanted : wanted); /* decimals are rounded */
}

/* "[a,b,c]" against the items. */
static bool is_measured_list(const struct gc_meta_value *list, const char *text, size_t length)
{
    const char *at = text + 1;
    const char *end = text + length - 1;
    if (list->kind != GC_META_ARRAY || list->kept < list->count)
        return false;
    if (at == end)
        return list->count == 0;
    for (uint64_t i = 0; i < list->count; i++) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        const char *stop = comma != NULL ? comma : end;
        if (!is_measured(&list->items[i], at, (size_t)(stop - at)))
            return false;
        if (comma == NULL)
            return i + 1 == list->count;
        at = comma + 1;
    }
    return false;
}

static bool lies_in_other(const struct visit *visit, const char *key, size_t length)
{
    for (unsigned i = 0; i < visit->object_count; i++) {
        const struct object *object = &visit->objects[i];
        if (object->is_other && length > object->key_length && key[object->key_length] == '.' &&
            memcmp(key, object->key, object->key_length) == 0)
            return true;
    }
    return false;
}

static bool is_as_measured(const struct gc_meta_value *value, const char *text, size_t length)
{
    return text[0] == '[' ? is_measured_list(value, text, length)
                          : is_measured(value, text, length);
}

static void add_doubt(struct visit *visit, const char *key, size_t length)
{
    const size_t used = strlen(visit->doubts);
    if (visit->doubt_count++ >= DOUBTS_SHOWN)
        return;
    const char *between = used > 0 ? ", " : "";
    (void)snprintf(visit->doubts + used, sizeof(visit->doubts) - used, "%s%s", between,
                   SHOWN(key, length));
}

/* A line "!KEY VALUE". */
static void check_guard(struct visit *visit, const struct gc_architecture_line *line)
{
    const char *parts[PARTS_MAX];
    size_t lengths[PARTS_MAX];
    char name[2 * GC_ARCHITECTURE_KEY_BYTES];
    if (split(line, parts, lengths) < 2)
        return;
    const char *key = parts[0] + 1;
    const size_t length = lengths[0] - 1;
    const size_t before = strlen(visit->scope->prefix);
    if (lies_in_other(visit, key, length) || before + length >= sizeof(name))
        return;
    memcpy(name, visit->scope->prefix, before);
    memcpy(name + before, key, length);
    name[before + length] = '\0';
    const struct gc_meta_value *value = gc_architecture_find_name(visit->scope, key, length);
    const uint32_t label_count = gc_architecture_count_labels(visit->scope, key, length);
    const struct gc_meta_value labels = {
        .kind = GC_META_INTEGER, .unsigned_value = label_count, .real = label_count};
    const bool is_by_labels = value == NULL && label_count > 0 && !is_null(parts[1], lengths[1]);
    if (is_by_labels)
        value = &labels;
    if (name[before + length - 1] == '.' && gc_architecture_has_object(visit->scope->model, name))
        return;
    const bool must_be_there = lengths[1] == 1 && parts[1][0] == '*';
    if (value == NULL ? !must_be_there
                      : must_be_there || is_as_measured(value, parts[1], lengths[1]))
        return;
    add_doubt(visit, name, strlen(name));
    if (is_by_labels) {
        visit->labels = parts[1];
        visit->labels_length = lengths[1];
    }
}

/* ---- objects ---- */

/* Whether an object is not there: its class's values are taken, and the outer class may give
 * others.
 */
static bool is_absent(const struct visit *visit, const struct object *object)
{
    static const char text[] = "text_config";
    char start[2 * GC_ARCHITECTURE_KEY_BYTES];
    const size_t before = strlen(visit->scope->prefix);
    if (before + object->key_length + 2 > sizeof(start) ||
        (before == 0 && object->key_length == sizeof(text) - 1 &&
         memcmp(object->key, text, sizeof(text) - 1) == 0 &&
         gc_model_find_meta(visit->scope->model, "hidden_size") != NULL))
        return false;
    memcpy(start, visit->scope->prefix, before);
    memcpy(start + before, object->key, object->key_length);
    memcpy(start + before + object->key_length, ".", 2);
    return !gc_architecture_has_object(visit->scope->model, start);
}

static void add_object(struct visit *visit, const struct gc_architecture_line *line)
{
    const char *parts[PARTS_MAX];
    size_t lengths[PARTS_MAX];
    if (visit->object_count == OBJECTS_MAX || split(line, parts, lengths) < 3)
        return;
    struct object *object = &visit->objects[visit->object_count++];
    *object = (struct object){.key = parts[0] + 1,
                              .key_length = lengths[0] - 1,
                              .type = parts[1],
                              .type_length = lengths[1],
                              .prefix = parts[2],
                              .prefix_length = lengths[2],
                              .is_included = line->text[0] == '+'};
    const char *type = gc_architecture_type_of(visit->scope, object->key, object->key_length);
    if (is_absent(visit, object))
        add_doubt(visit, object->key, object->key_length);
    if (type == NULL || (strlen(type) == lengths[1] && memcmp(type, parts[1], lengths[1]) == 0))
        return;
    object->is_other = object->is_included = true;
    object->type = type;
    object->type_length = strlen(type);
}

/* Whether the outer class gives the object absent values that are not those of its type: those that
 * the outer rows do not need are unknown. */
static bool has_own_values(const struct visit *visit, const struct object *object,
                           const struct gc_architecture_scope *inner)
{
    struct gc_architecture_lines lines = visit->scope->lines;
    struct gc_architecture_line line;
    while (gc_architecture_next(&lines, &line)) {
        const char *parts[PARTS_MAX];
        size_t lengths[PARTS_MAX];
        double outer_value;
        double inner_value;
        const size_t start = object->key_length + 2; /* "=KEY." */
        (void)split(&line, parts, lengths);
        if (line.text[0] == '=' && lengths[0] > start && line.text[start - 1] == '.' &&
            memcmp(line.text + 1, object->key, object->key_length) == 0 &&
            gc_expression_evaluate(line.text + 1, lengths[0] - 1, &visit->scope->names,
                                   &outer_value) == GC_OK &&
            gc_expression_evaluate(line.text + start, lengths[0] - start, &inner->names,
                                   &inner_value) == GC_OK &&
            outer_value != inner_value)
            return true;
    }
    return false;
}

static enum gc_status visit_object(struct visit *visit, struct object *object)
{
    struct gc_architecture_scope inner;
    char prefix[GC_ARCHITECTURE_KEY_BYTES];
    const size_t before = strlen(visit->prefix);
    const bool is_nowhere = object->prefix_length == 1 && object->prefix[0] == '-';
    if (!is_nowhere && before + object->prefix_length < sizeof(prefix) &&
        gc_architecture_find_base(visit->scope, object->type, object->type_length, object->key,
                                  object->key_length, &inner) &&
        !has_own_values(visit, object, &inner)) {
        memcpy(prefix, visit->prefix, before);
        memcpy(prefix + before, object->prefix, object->prefix_length);
        prefix[before + object->prefix_length] = '\0';
        return visit_section(&inner, visit->visitor, prefix, visit->notes, visit->known);
    }
    object->is_unknown = object->is_other;
    lower_to(visit, GC_ARCHITECTURE_AT_LEAST);
    gc_notes_add(visit->notes, "the weights of ", SHOWN(object->key, object->key_length),
                 ", of type ", SHOWN(object->type, object->type_length), ", are not known", NULL);
    return GC_OK;
}

/* ---- rows ---- */

static bool evaluate(const struct visit *visit, const char *text, size_t length, uint64_t *value)
{
    double number;
    if (gc_expression_evaluate(text, length, &visit->scope->names, &number) != GC_OK)
        return false;
    *value = number > 0 ? (uint64_t)number : 0;
    return number >= 0 && (double)*value == number;
}

static void set_name(struct gc_architecture_row *row, const char *name, size_t length)
{
    const char *colon = memchr(name, ':', length);
    row->name = name;
    row->name_length = colon != NULL ? (size_t)(colon - name) : length;
    row->dtype = GC_DTYPE_NONE;
    if (colon != NULL)
        row->dtype = gc_dtype_from_safetensors(colon + 1, length - (size_t)(colon + 1 - name));
}

unsigned gc_architecture_row_numbers(const struct gc_architecture_row *row)
{
    unsigned count = 0;
    for (size_t i = 0; i < row->name_length; i++)
        count += row->name[i] == '{';
    return count;
}

bool gc_architecture_row_is_in(const struct gc_architecture_row *row, uint64_t index)
{
    const struct gc_meta_value *item = &row->kinds->items[index];
    const bool is_kind = item->kind == GC_META_TEXT && strlen(item->text) == row->kind_length &&
                         memcmp(item->text, row->kind, row->kind_length) == 0;
    return is_kind != row->is_other_kind;
}

/* Whether the row's tensors are as many as the items of its kind, or a multiple of them. */
static bool fits_kinds(const struct gc_architecture_row *row)
{
    uint64_t count = 0;
    for (uint64_t i = 0; i < row->kinds->count; i++)
        count += gc_architecture_row_is_in(row, i);
    return count > 0 && row->count % count == 0 && row->count >= count;
}

/* Finds the layers of a row whose number is that of a word in a list: "layer_types[mamba]". */
static void set_kinds(const struct visit *visit, const char *text, size_t length,
                      struct gc_architecture_row *row)
{
    static const char ends[] = "+-*/%()[],?!#";
    const char *open = memchr(text, '[', length);
    const char *close = open != NULL ? memchr(open, ']', length - (size_t)(open - text)) : NULL;
    if (close == NULL)
        return;
    const char *key = open;
    while (key > text && strchr(ends, key[-1]) == NULL)
        key--;
    row->kind = open + 1;
    row->kind_length = (size_t)(close - open - 1);
    row->kinds = gc_architecture_find_key(visit->scope, key, (size_t)(open - key));
    if (row->kinds == NULL || row->kinds->kind != GC_META_ARRAY ||
        row->kinds->kept < row->kinds->count) {
        row->kinds = NULL;
        return;
    }
    if (fits_kinds(row))
        return;
    row->is_other_kind = true;
    if (!fits_kinds(row))
        row->kinds = NULL;
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Whether an expression has a name and no number of three digits or more outside of names: that is
 * a size that was measured. */
static bool is_expression(const char *text, size_t length)
{
    bool has_name = false;
    for (size_t i = 0; i < length;) {
        const size_t start = i;
        if (is_letter(text[i])) {
            has_name = true;
            while (i < length && (is_letter(text[i]) || is_digit(text[i])))
                i++;
            continue;
        }
        while (i < length && is_digit(text[i]))
            i++;
        if (i - start >= 3)
            return false;
        i += i == start;
    }
    return has_name;
}

/* Whether a row holds for values that it was not measured with: its number and its dimensions are
 * expressions of the configuration's values, not the numbers that were measured. */
static bool is_certain(const char *const *parts, const size_t *lengths, unsigned count)
{
    for (unsigned i = 1; i < count; i++) {
        if (!is_expression(parts[i], lengths[i]) && !(lengths[i] == 1 && parts[i][0] == '1'))
            return false;
    }
    return true;
}

static bool is_of_name(char c)
{
    return is_letter(c) || is_digit(c) || c == '.';
}

/* Whether expressions name a value of the object, "KEY.", or the tensor's name begins so. */
static bool names_object(const struct gc_architecture_line *line, const struct object *object)
{
    const char *end = line->text + line->length;
    const char *at = line->text;
    while ((at = memmem(at, (size_t)(end - at), object->key, object->key_length)) != NULL) {
        const char *after = at + object->key_length;
        if (after < end && *after == '.' && (at == line->text || !is_of_name(at[-1])))
            return true;
        at = after;
    }
    return false;
}

/* Whether a class with a head may lack a row of its base: a pooler, a norm after all layers. */
static bool is_of_base_alone(const char *name, size_t length)
{
    return memmem(name, length, "pooler.", sizeof("pooler.") - 1) != NULL ||
           (memchr(name, '{', length) == NULL && memmem(name, length, "norm", 4) != NULL);
}

/* Whether the row is not counted: it is of an object of another type, whose own rows replace it,
 * where they are known; or the class may lack it. */
static bool is_replaced(const struct visit *visit, const struct gc_architecture_line *line,
                        const char *const *parts, const size_t *lengths, unsigned count)
{
    for (unsigned i = 0; i < visit->object_count; i++) {
        const struct object *object = &visit->objects[i];
        const bool is_nowhere = object->prefix_length == 1 && object->prefix[0] == '-';
        if (!object->is_other)
            continue;
        if (begins(parts[0], lengths[0], object->prefix, object->prefix_length) ||
            (object->is_unknown &&
             (names_object(line, object) || (is_nowhere && !is_certain(parts, lengths, count)))))
            return true;
    }
    return (visit->scope->is_base_alone && is_of_base_alone(parts[0], lengths[0])) ||
           (visit->scope->is_encoder_alone && begins(parts[0], lengths[0], "decoder.", 8));
}

static enum gc_status visit_row(struct visit *visit, const struct gc_architecture_line *line)
{
    const char *parts[PARTS_MAX];
    size_t lengths[PARTS_MAX];
    struct gc_architecture_row row = {.prefix = visit->prefix};
    const unsigned count = split(line, parts, lengths);
    if (is_replaced(visit, line, parts, lengths, count))
        return GC_OK;
    if (visit->doubt_count > (visit->labels != NULL) && !is_certain(parts, lengths, count)) {
        visit->left++;
        return GC_OK;
    }
    if (visit->labels != NULL && count > 2 && lengths[2] == visit->labels_length &&
        memcmp(parts[2], visit->labels, lengths[2]) == 0)
        return GC_OK; /* the first dimension of a classifier */
    set_name(&row, parts[0], lengths[0]);
    row.is_uneven = count > 2 && lengths[2] == 1 && parts[2][0] == '~';
    bool is_known = count >= 2 && evaluate(visit, parts[1], lengths[1], &row.count);
    if (is_known && row.count == 0)
        return GC_OK;
    if (is_known)
        set_kinds(visit, parts[1], lengths[1], &row);
    for (unsigned i = row.is_uneven ? 3 : 2; i < count; i++) {
        uint64_t *dim = &row.dims[row.dim_count++];
        is_known = evaluate(visit, parts[i], lengths[i], dim) && *dim > 0 && is_known;
    }
    visit->taken++;
    if (is_known)
        return visit->visitor->take(visit->visitor, &row);
    lower_to(visit, GC_ARCHITECTURE_AT_LEAST);
    gc_notes_add(visit->notes,
                 "weights by the configuration are a lower bound: their size does not follow from "
                 "it: ",
                 visit->prefix, SHOWN(row.name, row.name_length), NULL);
    return GC_OK;
}

/* Values that were not measured may make the rows that were taken less. Where most are left out,
 * the sum is far too low all the same. */
static void note_doubts(const struct visit *visit)
{
    char more[GC_NOTE_NUMBER_BYTES];
    if (visit->doubt_count == 0)
        return;
    const bool is_labels = visit->labels != NULL && visit->doubt_count == 1;
    const bool is_at_least = is_labels || visit->left > visit->taken;
    lower_to(visit, is_at_least ? GC_ARCHITECTURE_AT_LEAST : GC_ARCHITECTURE_ABOUT);
    const bool has_more = visit->doubt_count > DOUBTS_SHOWN;
    gc_notes_add(visit->notes, "weights are ", is_at_least ? "a lower bound" : "approximate",
                 ": what may depend on ", visit->doubts, has_more ? " and " : "",
                 has_more ? gc_note_number(visit->doubt_count - DOUBTS_SHOWN, more) : "",
                 has_more ? " more" : "", is_at_least ? " is not counted" : " was not measured",
                 NULL);
}

static enum gc_status visit_section(const struct gc_architecture_scope *scope,
                                    struct gc_architecture_visitor *visitor, const char *prefix,
                                    struct gc_notes *notes, enum gc_architecture_known *known)
{
    struct visit visit = {.scope = scope, .visitor = visitor, .notes = notes, .known = known};
    struct gc_architecture_lines lines = scope->lines;
    struct gc_architecture_line line;
    enum gc_status status = GC_OK;
    if (!gc_text_copy(visit.prefix, sizeof(visit.prefix), prefix, strlen(prefix)))
        return GC_OVERFLOW;
    while (gc_architecture_next(&lines, &line)) {
        if (line.text[0] == '&' || line.text[0] == '+')
            add_object(&visit, &line);
        else if (line.text[0] == '!')
            check_guard(&visit, &line);
    }
    for (unsigned i = 0; status == GC_OK && i < visit.object_count; i++) {
        if (visit.objects[i].is_included)
            status = visit_object(&visit, &visit.objects[i]);
    }
    lines = scope->lines;
    while (status == GC_OK && gc_architecture_next(&lines, &line)) {
        if (strchr("=^~&+>!", line.text[0]) == NULL)
            status = visit_row(&visit, &line);
    }
    note_doubts(&visit);
    return status;
}

enum gc_status gc_architecture_visit(const struct gc_architecture_scope *scope,
                                     struct gc_architecture_visitor *visitor,
                                     struct gc_notes *notes, enum gc_architecture_known *known)
{
    return visit_section(scope, visitor, "", notes, known);
}
