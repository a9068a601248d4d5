#include "core/formats/json_lexer.h"

#include "core/base/bits.h"

#include <string.h>

/* Brings more to hand. Nothing at hand afterwards: the stretch has ended. */
enum gc_status gc_json_refill(struct gc_json_reader *reader)
{
    size_t count = 0;
    const unsigned char *view = reader->source->window;
    if (reader->position < reader->end) {
        const enum gc_status status =
            gc_source_more(reader->source, reader->position, &view, &count);
        if (status != GC_OK)
            return status;
        count = (size_t)gc_min_u64(count, reader->end - reader->position);
    }
    reader->at = view;
    reader->limit = view + count;
    return GC_OK;
}

static bool is_blank(int c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

enum gc_status gc_json_skip_blanks(struct gc_json_reader *reader, int *c)
{
    for (;;) {
        const unsigned char *at = reader->at;
        while (at < reader->limit && is_blank(*at))
            at++;
        gc_json_advance(reader, (size_t)(at - reader->at));
        const enum gc_status status = gc_json_peek(reader, c);
        if (status != GC_OK || !is_blank(*c))
            return status;
    }
}

enum gc_status gc_json_fail_at(const struct gc_json_reader *reader, int c, const char *expected)
{
    if (c < 0)
        return gc_source_fail(reader->source, reader->position,
                              "the JSON ends where %s is expected", expected);
    const char shown = (char)c;
    return gc_source_fail(reader->source, reader->position, "'%s' where %s is expected",
                          GC_LOAD_SHOWN(&shown, 1), expected);
}

/* ---- strings ---- */

/* How many characters from `at` can be taken as they are: printable ASCII but '"' and '\'. */
static size_t plain_run(const unsigned char *at, const unsigned char *limit)
{
    const uint64_t ones = UINT64_C(0x0101010101010101);
    const uint64_t tops = UINT64_C(0x8080808080808080);
    const unsigned char *p = at;
    uint64_t word;
    for (; limit - p >= (ptrdiff_t)sizeof(word); p += sizeof(word)) {
        memcpy(&word, p, sizeof(word));
        const uint64_t quote = word ^ ones * '"';
        const uint64_t slash = word ^ ones * '\\';
        /* A byte's top bit is set if it is '"', '\', below ' ' or above 0x7f; borrows can only
         * add bytes behind a true one, and then the loop below looks closely. */
        if (((quote - ones) & ~quote & tops) | ((slash - ones) & ~slash & tops) |
            ((word - ones * ' ') & ~word & tops) | (word & tops))
            break;
    }
    while (p < limit && *p != '"' && *p != '\\' && *p >= ' ' && *p < 0x80)
        p++;
    return (size_t)(p - at);
}

/* Adds to the scratch text; what has no room is dropped and the token cut. */
static enum gc_status keep(struct gc_json_reader *reader, struct gc_json_token *token,
                           const void *bytes, size_t count)
{
    const uint64_t wanted = (uint64_t)token->length + count;
    if (token->cut || wanted > GC_JSON_READER_TEXT_MAX) {
        token->cut = true;
        return GC_OK;
    }
    if (wanted > reader->scratch_room) {
        const uint64_t room = gc_max_u64(wanted, gc_max_u64(1024, reader->scratch_room * 4ULL));
        struct gc_load *load = reader->source->load;
        char *scratch = gc_region_grow(&load->region, reader->scratch, reader->scratch_room, room);
        if (scratch == NULL)
            return gc_load_no_memory(load, reader->source->path);
        reader->scratch = scratch;
        reader->scratch_room = (uint32_t)room;
    }
    memcpy(reader->scratch + token->length, bytes, count);
    token->length += count;
    return GC_OK;
}

/* Four hexadecimal digits. */
static enum gc_status read_hex(struct gc_json_reader *reader, uint32_t *value)
{
    *value = 0;
    for (int i = 0; i < 4; i++) {
        int c;
        const enum gc_status status = gc_json_peek(reader, &c);
        if (status != GC_OK)
            return status;
        const int low = c | 0x20;
        if (c >= '0' && c <= '9')
            *value = *value << 4 | (uint32_t)(c - '0');
        else if (c >= 0 && low >= 'a' && low <= 'f')
            *value = *value << 4 | (uint32_t)(low - 'a' + 10);
        else
            return gc_json_fail_at(reader, c, "a hexadecimal digit of \\u");
        gc_json_advance(reader, 1);
    }
    return GC_OK;
}

static size_t encode(uint32_t code, unsigned char *to)
{
    if (code < 0x80) {
        to[0] = (unsigned char)code;
        return 1;
    }
    size_t tail = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    static const unsigned char leads[] = {0, 0xc0, 0xe0, 0xf0};
    to[0] = (unsigned char)(leads[tail] | code >> (6 * tail));
    for (size_t i = 1; i <= tail; i++)
        to[i] = (unsigned char)(0x80 | (code >> (6 * (tail - i)) & 0x3f));
    return tail + 1;
}

/* Behind "\u": the code, of a surrogate pair both halves. */
static enum gc_status read_unicode(struct gc_json_reader *reader, uint32_t *code)
{
    uint32_t low = 0;
    enum gc_status status = read_hex(reader, code);
    if (status != GC_OK || *code < 0xd800 || *code > 0xdfff)
        return status;
    for (const char *p = "\\u"; *p != '\0' && *code <= 0xdbff; p++) {
        int c;
        status = gc_json_peek(reader, &c);
        if (status != GC_OK)
            return status;
        if (c != *p)
            return gc_json_fail_at(reader, c, "the second half of a surrogate pair");
        gc_json_advance(reader, 1);
    }
    if (*code <= 0xdbff)
        status = read_hex(reader, &low);
    if (status != GC_OK)
        return status;
    if (low < 0xdc00 || low > 0xdfff)
        return gc_source_fail(reader->source, reader->position,
                              "half a surrogate pair; a whole one is accepted");
    *code = 0x10000 + ((*code - 0xd800) << 10) + (low - 0xdc00);
    return GC_OK;
}

static enum gc_status read_escape(struct gc_json_reader *reader, struct gc_json_token *token)
{
    static const char from[] = "\"\\/bfnrt";
    static const char to[] = "\"\\/\b\f\n\r\t";
    unsigned char bytes[4];
    uint32_t code;
    int c;
    enum gc_status status = gc_json_peek(reader, &c);
    if (status != GC_OK)
        return status;
    const char *found = c > 0 ? strchr(from, c) : NULL;
    if (found == NULL && c != 'u')
        return gc_json_fail_at(reader, c, "one of \"\\/bfnrtu behind \\");
    gc_json_advance(reader, 1);
    if (found != NULL)
        return keep(reader, token, &to[found - from], 1);
    status = read_unicode(reader, &code);
    return status != GC_OK ? status : keep(reader, token, bytes, encode(code, bytes));
}

/* A character above ASCII, which may lie across two windows. */
static enum gc_status read_sequence(struct gc_json_reader *reader, struct gc_json_token *token)
{
    char bytes[4];
    const unsigned char lead = *reader->at;
    const size_t count = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    const uint64_t offset = reader->position;
    for (size_t i = 0; i < count; i++) {
        int c;
        const enum gc_status status = gc_json_peek(reader, &c);
        if (status != GC_OK)
            return status;
        if (c < 0x80)
            return gc_source_fail(reader->source, offset, "no valid UTF-8");
        bytes[i] = (char)c;
        gc_json_advance(reader, 1);
    }
    if (!gc_load_is_utf8(bytes, count))
        return gc_source_fail(reader->source, offset, "no valid UTF-8");
    return keep(reader, token, bytes, count);
}

/* What is left of a string that is not plain or not at hand in one piece. */
static enum gc_status read_rest(struct gc_json_reader *reader, struct gc_json_token *token)
{
    for (;;) {
        int c;
        enum gc_status status = gc_json_peek(reader, &c);
        if (status != GC_OK)
            return status;
        if (c < 0)
            return gc_source_fail(reader->source, token->offset, "a string without an end");
        const size_t run = plain_run(reader->at, reader->limit);
        if (run > 0) {
            status = keep(reader, token, reader->at, run);
            gc_json_advance(reader, run);
        } else if (c == '"') {
            gc_json_advance(reader, 1);
            token->text = reader->scratch != NULL ? reader->scratch : "";
            return GC_OK;
        } else if (c == '\\') {
            gc_json_advance(reader, 1);
            status = read_escape(reader, token);
        } else if (c >= 0x80) {
            status = read_sequence(reader, token);
        } else {
            return gc_source_fail(reader->source, reader->position,
                                  "a control character in a string; \\u%04x is accepted", c);
        }
        if (status != GC_OK)
            return status;
    }
}

enum gc_status gc_json_read_string(struct gc_json_reader *reader, struct gc_json_token *token)
{
    const size_t run = plain_run(reader->at, reader->limit);
    token->length = 0;
    if (run < (size_t)(reader->limit - reader->at) && reader->at[run] == '"' &&
        run <= GC_JSON_READER_TEXT_MAX) {
        token->text = (const char *)reader->at;
        token->length = run;
        gc_json_advance(reader, run + 1);
        return GC_OK;
    }
    return read_rest(reader, token);
}

/* ---- numbers ---- */

struct number {
    uint64_t mantissa; /* the first digits, as many as fit */
    int64_t exponent;  /* of ten, for those that did not, and for decimals */
    bool exact;        /* all digits are in the mantissa */
    bool whole;        /* neither '.' nor exponent */
};

static void add_digit(struct number *number, uint64_t digit, bool decimals)
{
    uint64_t grown;
    if (number->exact && gc_mul_u64(number->mantissa, 10, &grown) &&
        gc_add_u64(grown, digit, &grown)) {
        number->mantissa = grown;
        number->exponent -= decimals;
    } else {
        number->exact = false;
        number->exponent += !decimals;
    }
}

/* Digits up to something else; at least one. */
static enum gc_status read_digits(struct gc_json_reader *reader, struct number *number,
                                  bool decimals)
{
    bool any = false;
    for (;;) {
        int c;
        const enum gc_status status = gc_json_peek(reader, &c);
        if (status != GC_OK)
            return status;
        if (c < '0' || c > '9')
            return any ? GC_OK : gc_json_fail_at(reader, c, "a digit");
        const unsigned char *at = reader->at;
        for (; at < reader->limit && *at >= '0' && *at <= '9'; at++)
            add_digit(number, (uint64_t)(*at - '0'), decimals);
        gc_json_advance(reader, (size_t)(at - reader->at));
        any = true;
    }
}

static enum gc_status read_exponent(struct gc_json_reader *reader, struct number *number)
{
    struct number power = {.exact = true};
    int c;
    enum gc_status status = gc_json_peek(reader, &c);
    if (status != GC_OK)
        return status;
    const bool negative = c == '-';
    if (c == '-' || c == '+')
        gc_json_advance(reader, 1);
    status = read_digits(reader, &power, false);
    if (status != GC_OK)
        return status;
    const int64_t much = 100000;
    const int64_t value =
        power.exact && power.mantissa < (uint64_t)much ? (int64_t)power.mantissa : much;
    number->exponent += negative ? -value : value;
    return GC_OK;
}

/* mantissa · 10^exponent, by squaring in extended precision. */
static double number_value(const struct number *number)
{
    long double value = (long double)number->mantissa;
    long double power = 10;
    uint64_t left = (uint64_t)(number->exponent < 0 ? -number->exponent : number->exponent);
    if (left == 0)
        return (double)number->mantissa;
    /* Beyond this all is zero or infinite. */
    left = gc_min_u64(left, 8192);
    for (; left != 0 && value != 0; left >>= 1) {
        if ((left & 1) != 0)
            value = number->exponent < 0 ? value / power : value * power;
        power *= power;
    }
    return (double)value;
}

enum gc_status gc_json_read_number(struct gc_json_reader *reader, int c,
                                   struct gc_json_token *token)
{
    struct number number = {.exact = true, .whole = true};
    token->negative = c == '-';
    if (c == '-')
        gc_json_advance(reader, 1);
    enum gc_status status = gc_json_peek(reader, &c);
    if (status != GC_OK)
        return status;
    if (c == 'I' && reader->takes_python && token->negative) {
        token->event = GC_JSON_REAL;
        token->real = -__builtin_inf();
        return gc_json_read_word(reader, "Infinity");
    }
    if (c == '0')
        gc_json_advance(reader, 1);
    else
        status = read_digits(reader, &number, false);
    if (status == GC_OK)
        status = gc_json_peek(reader, &c);
    if (status == GC_OK && c == '.') {
        number.whole = false;
        gc_json_advance(reader, 1);
        status = read_digits(reader, &number, true);
        if (status == GC_OK)
            status = gc_json_peek(reader, &c);
    }
    if (status == GC_OK && (c == 'e' || c == 'E')) {
        number.whole = false;
        gc_json_advance(reader, 1);
        status = read_exponent(reader, &number);
    }
    if (status != GC_OK)
        return status;
    token->event = number.whole && number.exact ? GC_JSON_INTEGER : GC_JSON_REAL;
    token->magnitude = number.mantissa;
    token->real = number_value(&number);
    if (token->negative)
        token->real = -token->real;
    return GC_OK;
}

enum gc_status gc_json_read_word(struct gc_json_reader *reader, const char *word)
{
    for (const char *p = word; *p != '\0'; p++) {
        int c;
        const enum gc_status status = gc_json_peek(reader, &c);
        if (status != GC_OK)
            return status;
        if (c != *p)
            return gc_json_fail_at(reader, c, "true, false, null, a number, a string, '{' or '['");
        gc_json_advance(reader, 1);
    }
    return GC_OK;
}
