#include "core/classes/expression.h"

#include "core/io/text.h"

#include <string.h>

#define DEPTH_MAX 64
#define EXACT_MAX 9007199254740992.0 /* 2^53 */

/* A failed read sets `status` and reads no further; `unknown` spreads through the operators, and
 * "!", "?" and "or" take it for 0. */
struct parser {
    const char *at;
    const char *end;
    const struct gc_expression_names *names;
    enum gc_status status;
    unsigned depth;
};

struct result {
    double value;
    bool known;
};

static const struct result nothing = {0, false};

static struct result read_sum(struct parser *parser);
static struct result read_factor(struct parser *parser);

static struct result fail(struct parser *parser, enum gc_status status)
{
    if (parser->status == GC_OK)
        parser->status = status;
    parser->at = parser->end;
    return nothing;
}

static struct result known(struct parser *parser, double value)
{
    if (!(value <= EXACT_MAX && value >= -EXACT_MAX))
        return fail(parser, GC_OVERFLOW);
    return (struct result){value, true};
}

static bool take(struct parser *parser, const char *text)
{
    const size_t length = strlen(text);
    if ((size_t)(parser->end - parser->at) < length || memcmp(parser->at, text, length) != 0)
        return false;
    parser->at += length;
    return true;
}

static double round_down(double value)
{
    const double whole = (double)(int64_t)value; /* |value| is at most 2^53 */
    return whole > value ? whole - 1 : whole;
}

/* ---- names and numbers ---- */

static bool is_name_character(char c, bool in_word)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.' || (in_word && c == '-');
}

static size_t read_characters(struct parser *parser, const char **text, bool in_word)
{
    *text = parser->at;
    while (parser->at < parser->end && is_name_character(*parser->at, in_word))
        parser->at++;
    return (size_t)(parser->at - *text);
}

static struct result find(struct parser *parser, const struct gc_expression_name *name)
{
    double value;
    if (parser->status != GC_OK || !parser->names->find(parser->names, name, &value))
        return nothing;
    return known(parser, value);
}

static struct result read_call(struct parser *parser, const struct gc_expression_name *name)
{
    const struct result a = read_sum(parser);
    if (!take(parser, ","))
        return fail(parser, GC_FORMAT);
    const struct result b = read_sum(parser);
    if (!take(parser, ")"))
        return fail(parser, GC_FORMAT);
    switch (gc_text_find_word("min, max, or", name->name, name->length)) {
    case 0:
        return a.known && b.known ? (a.value < b.value ? a : b) : nothing;
    case 1:
        return a.known && b.known ? (a.value > b.value ? a : b) : nothing;
    case 2:
        return a.known && a.value != 0 ? a : b;
    default:
        return fail(parser, GC_FORMAT);
    }
}

static struct result read_name(struct parser *parser)
{
    struct gc_expression_name name = {.part = GC_EXPRESSION_VALUE};
    name.length = read_characters(parser, &name.name, false);
    if (name.length == 0)
        return fail(parser, GC_FORMAT);
    if (take(parser, "("))
        return read_call(parser, &name);
    if (take(parser, "[")) {
        name.part = GC_EXPRESSION_ITEM;
        name.item = parser->at;
        while (parser->at < parser->end && *parser->at != ']')
            parser->at++;
        name.item_length = (size_t)(parser->at - name.item);
        if (!take(parser, "]"))
            return fail(parser, GC_FORMAT);
    } else if (take(parser, "=")) {
        name.part = GC_EXPRESSION_EQUAL;
        name.item_length = read_characters(parser, &name.item, true);
    }
    return find(parser, &name);
}

static struct result read_length(struct parser *parser)
{
    struct gc_expression_name name = {.part = GC_EXPRESSION_LENGTH};
    name.length = read_characters(parser, &name.name, false);
    return name.length == 0 ? fail(parser, GC_FORMAT) : find(parser, &name);
}

static struct result read_number(struct parser *parser)
{
    double value = 0;
    double scale = 1;
    bool is_fraction = false;
    for (; parser->at < parser->end; parser->at++) {
        const char c = *parser->at;
        if (c == '.' && !is_fraction) {
            is_fraction = true;
        } else if (c >= '0' && c <= '9') {
            value = value * 10 + (c - '0');
            scale *= is_fraction ? 10 : 1;
        } else {
            break;
        }
    }
    return known(parser, value / scale);
}

/* ---- operators ---- */

static struct result read_nested(struct parser *parser)
{
    const struct result inner = read_sum(parser);
    return take(parser, ")") ? inner : fail(parser, GC_FORMAT);
}

static struct result read_factor(struct parser *parser)
{
    struct result inner;
    if (parser->at == parser->end || ++parser->depth > DEPTH_MAX)
        return fail(parser, GC_FORMAT);
    if (take(parser, "-")) {
        inner = read_factor(parser);
        inner.value = -inner.value;
    } else if (take(parser, "!")) {
        inner = read_factor(parser);
        inner = (struct result){!inner.known || inner.value == 0, true};
    } else if (take(parser, "?")) {
        inner = read_factor(parser);
        inner = (struct result){inner.known && inner.value != 0, true};
    } else if (take(parser, "(")) {
        inner = read_nested(parser);
    } else if (take(parser, "#")) {
        inner = read_length(parser);
    } else if (*parser->at >= '0' && *parser->at <= '9') {
        inner = read_number(parser);
    } else {
        inner = read_name(parser);
    }
    parser->depth--;
    return inner;
}

/* 0 times an unknown value is 0: a part that the model does not have needs no size. */
static struct result multiply(struct parser *parser, struct result a, struct result b)
{
    if ((a.known && a.value == 0) || (b.known && b.value == 0))
        return known(parser, 0);
    return a.known && b.known ? known(parser, a.value * b.value) : nothing;
}

static struct result divide(struct parser *parser, struct result a, struct result b, char sign)
{
    if (!a.known || !b.known || b.value == 0)
        return nothing;
    if (sign == '/')
        return known(parser, a.value / b.value);
    const struct result quotient = known(parser, a.value / b.value);
    const double whole = round_down(quotient.value);
    return known(parser, sign == '%' ? a.value - whole * b.value : whole);
}

static struct result read_product(struct parser *parser)
{
    struct result left = read_factor(parser);
    while (parser->at < parser->end) {
        if (take(parser, "*"))
            left = multiply(parser, left, read_factor(parser));
        else if (take(parser, "//"))
            left = divide(parser, left, read_factor(parser), 'w');
        else if (take(parser, "/"))
            left = divide(parser, left, read_factor(parser), '/');
        else if (take(parser, "%"))
            left = divide(parser, left, read_factor(parser), '%');
        else
            break;
    }
    return left;
}

static struct result read_sum(struct parser *parser)
{
    struct result left = read_product(parser);
    while (parser->at < parser->end) {
        const bool is_minus = take(parser, "-");
        if (!is_minus && !take(parser, "+"))
            break;
        const struct result right = read_product(parser);
        left = left.known && right.known
                   ? known(parser, is_minus ? left.value - right.value : left.value + right.value)
                   : nothing;
    }
    return left;
}

/* ---- the whole ---- */

enum gc_status gc_expression_evaluate(const char *text, size_t length,
                                      const struct gc_expression_names *names, double *value)
{
    struct parser parser = {.at = text, .end = text + length, .names = names};
    const struct result result = read_sum(&parser);
    if (parser.status == GC_OK && parser.at != parser.end)
        return GC_FORMAT;
    *value = result.value;
    if (parser.status != GC_OK)
        return parser.status;
    return result.known ? GC_OK : GC_NOT_SUPPORTED;
}

enum gc_status gc_expression_size(const char *text, size_t length,
                                  const struct gc_expression_names *names, uint64_t *value)
{
    double number;
    const enum gc_status status = gc_expression_evaluate(text, length, names, &number);
    if (status != GC_OK)
        return status;
    if (number < 0)
        return GC_NOT_SUPPORTED;
    *value = (uint64_t)number;
    return GC_OK;
}
