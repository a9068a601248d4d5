#include "core/reader/json_reader.h"

#include "core/base/bits.h"

#include <string.h>

/* Refills the window; an empty window means end of input. */
static enum gc_status refill(struct gc_json_reader *reader) GC_CHECKED;
static enum gc_status read_word(struct gc_json_reader *reader, const char *word) GC_CHECKED;

static void advance(struct gc_json_reader *reader, size_t count)
{
    reader->at += count;
    reader->position += count;
}

/* The next character, or -1 at the end; it is not consumed. */
static enum gc_status peek(struct gc_json_reader *reader, int *c)
{
    if (reader->at == reader->limit) {
        const enum gc_status status = refill(reader);
        if (status != GC_OK)
            return status;
    }
    *c = reader->at == reader->limit ? -1 : *reader->at;
    return GC_OK;
}

static enum gc_status refill(struct gc_json_reader *reader)
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

static enum gc_status skip_blanks(struct gc_json_reader *reader, int *c)
{
    for (;;) {
        const unsigned char *at = reader->at;
        while (at < reader->limit && is_blank(*at))
            at++;
        advance(reader, (size_t)(at - reader->at));
        const enum gc_status status = peek(reader, c);
        if (status != GC_OK || !is_blank(*c))
            return status;
    }
}

static enum gc_status fail_at(const struct gc_json_reader *reader, int c, const char *expected)
{
    if (c < 0)
        return gc_source_fail(reader->source, reader->position,
                              "the JSON ends where %s is expected", expected);
    const char shown = (char)c;
    return gc_source_fail(reader->source, reader->position, "'%s' where %s is expected",
                          GC_READER_SHOWN(&shown, 1), expected);
}

/* ---- strings ---- */

/* Length of the run of characters at `at` that need no decoding: printable ASCII except '"' and
 * '\'. */
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
        /* A byte's top bit is set if it is '"', '\', below ' ' or above 0x7f; a borrow can only
         * flag bytes after a true match, and the loop below checks each byte. */
        if (((quote - ones) & ~quote & tops) | ((slash - ones) & ~slash & tops) |
            ((word - ones * ' ') & ~word & tops) | (word & tops))
            break;
    }
    while (p < limit && *p != '"' && *p != '\\' && *p >= ' ' && *p < 0x80)
        p++;
    return (size_t)(p - at);
}

/* Appends to the scratch text; text beyond its end is dropped and the token marked as cut. */
static enum gc_status retain_text(struct gc_json_reader *reader, struct gc_json_token *token,
                                  const void *bytes, size_t count)
{
    const uint64_t wanted = (uint64_t)token->length + count;
    if (token->cut || wanted > GC_JSON_READER_TEXT_MAX) {
        token->cut = true;
        return GC_OK;
    }
    if (wanted > reader->scratch_room) {
        const uint64_t room = gc_max_u64(wanted, gc_max_u64(1024, reader->scratch_room * 4ULL));
        struct gc_reader *load = reader->source->reader;
        char *scratch = gc_region_grow(&load->region, reader->scratch, reader->scratch_room, room);
        if (scratch == NULL)
            return gc_reader_no_memory(load, reader->source->path);
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
        const enum gc_status status = peek(reader, &c);
        if (status != GC_OK)
            return status;
        const int low = c | 0x20;
        if (c >= '0' && c <= '9')
            *value = *value << 4 | (uint32_t)(c - '0');
        else if (c >= 0 && low >= 'a' && low <= 'f')
            *value = *value << 4 | (uint32_t)(low - 'a' + 10);
        else
            return fail_at(reader, c, "a hexadecimal digit of \\u");
        advance(reader, 1);
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

/* After "\u": the code point, from both halves of a surrogate pair. */
static enum gc_status read_unicode(struct gc_json_reader *reader, uint32_t *code)
{
    uint32_t low = 0;
    enum gc_status status = read_hex(reader, code);
    if (status != GC_OK || *code < 0xd800 || *code > 0xdfff)
        return status;
    for (const char *p = "\\u"; *p != '\0' && *code <= 0xdbff; p++) {
        int c;
        status = peek(reader, &c);
        if (status != GC_OK)
            return status;
        if (c != *p)
            return fail_at(reader, c, "the second half of a surrogate pair");
        advance(reader, 1);
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
    enum gc_status status = peek(reader, &c);
    if (status != GC_OK)
        return status;
    const char *found = c > 0 ? strchr(from, c) : NULL;
    if (found == NULL && c != 'u')
        return fail_at(reader, c, "one of \"\\/bfnrtu behind \\");
    advance(reader, 1);
    if (found != NULL)
        return retain_text(reader, token, &to[found - from], 1);
    status = read_unicode(reader, &code);
    return status != GC_OK ? status : retain_text(reader, token, bytes, encode(code, bytes));
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
        const enum gc_status status = peek(reader, &c);
        if (status != GC_OK)
            return status;
        if (c < 0x80)
            return gc_source_fail(reader->source, offset, "no valid UTF-8");
        bytes[i] = (char)c;
        advance(reader, 1);
    }
    if (!gc_reader_is_utf8(bytes, count))
        return gc_source_fail(reader->source, offset, "no valid UTF-8");
    return retain_text(reader, token, bytes, count);
}

/* The rest of a string that has escapes or crosses a window. */
static enum gc_status read_rest(struct gc_json_reader *reader, struct gc_json_token *token)
{
    for (;;) {
        int c;
        enum gc_status status = peek(reader, &c);
        if (status != GC_OK)
            return status;
        if (c < 0)
            return gc_source_fail(reader->source, token->offset, "a string without an end");
        const size_t run = plain_run(reader->at, reader->limit);
        if (run > 0) {
            status = retain_text(reader, token, reader->at, run);
            advance(reader, run);
        } else if (c == '"') {
            advance(reader, 1);
            token->text = reader->scratch != NULL ? reader->scratch : "";
            return GC_OK;
        } else if (c == '\\') {
            advance(reader, 1);
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

static enum gc_status read_string(struct gc_json_reader *reader, struct gc_json_token *token)
{
    const size_t run = plain_run(reader->at, reader->limit);
    token->length = 0;
    if (run < (size_t)(reader->limit - reader->at) && reader->at[run] == '"' &&
        run <= GC_JSON_READER_TEXT_MAX) {
        token->text = (const char *)reader->at;
        token->length = run;
        advance(reader, run + 1);
        return GC_OK;
    }
    return read_rest(reader, token);
}

/* ---- numbers ---- */

struct number {
    uint64_t mantissa; /* the first digits, as many as fit */
    int64_t exponent;  /* of ten: up for dropped digits, down for kept decimals */
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

/* At least one digit, up to the first other character. */
static enum gc_status read_digits(struct gc_json_reader *reader, struct number *number,
                                  bool decimals)
{
    bool any = false;
    for (;;) {
        int c;
        const enum gc_status status = peek(reader, &c);
        if (status != GC_OK)
            return status;
        if (c < '0' || c > '9')
            return any ? GC_OK : fail_at(reader, c, "a digit");
        const unsigned char *at = reader->at;
        for (; at < reader->limit && *at >= '0' && *at <= '9'; at++)
            add_digit(number, (uint64_t)(*at - '0'), decimals);
        advance(reader, (size_t)(at - reader->at));
        any = true;
    }
}

static enum gc_status read_exponent(struct gc_json_reader *reader, struct number *number)
{
    struct number power = {.exact = true};
    int c;
    enum gc_status status = peek(reader, &c);
    if (status != GC_OK)
        return status;
    const bool negative = c == '-';
    if (c == '-' || c == '+')
        advance(reader, 1);
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
    /* Beyond this every result is zero or infinite. */
    left = gc_min_u64(left, 8192);
    for (; left != 0 && value != 0; left >>= 1) {
        if ((left & 1) != 0)
            value = number->exponent < 0 ? value / power : value * power;
        power *= power;
    }
    return (double)value;
}

static enum gc_status read_number(struct gc_json_reader *reader, int c, struct gc_json_token *token)
{
    struct number number = {.exact = true, .whole = true};
    token->negative = c == '-';
    if (c == '-')
        advance(reader, 1);
    enum gc_status status = peek(reader, &c);
    if (status != GC_OK)
        return status;
    if (c == 'I' && reader->takes_python && token->negative) {
        token->event = GC_JSON_REAL;
        token->real = -__builtin_inf();
        return read_word(reader, "Infinity");
    }
    if (c == '0')
        advance(reader, 1);
    else
        status = read_digits(reader, &number, false);
    if (status == GC_OK)
        status = peek(reader, &c);
    if (status == GC_OK && c == '.') {
        number.whole = false;
        advance(reader, 1);
        status = read_digits(reader, &number, true);
        if (status == GC_OK)
            status = peek(reader, &c);
    }
    if (status == GC_OK && (c == 'e' || c == 'E')) {
        number.whole = false;
        advance(reader, 1);
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

static enum gc_status read_word(struct gc_json_reader *reader, const char *word)
{
    for (const char *p = word; *p != '\0'; p++) {
        int c;
        const enum gc_status status = peek(reader, &c);
        if (status != GC_OK)
            return status;
        if (c != *p)
            return fail_at(reader, c, "true, false, null, a number, a string, '{' or '['");
        advance(reader, 1);
    }
    return GC_OK;
}

void gc_json_reader_init(struct gc_json_reader *reader, struct gc_source *source, uint64_t begin,
                         uint64_t end)
{
    *reader = (struct gc_json_reader){
        .source = source,
        .end = end,
        .position = begin,
        .at = source->window,
        .limit = source->window,
        .expect = GC_JSON_EXPECT_VALUE,
    };
}

/* ---- structure ---- */

static bool in_object(const struct gc_json_reader *reader)
{
    return (reader->is_object >> (reader->depth - 1) & 1) != 0;
}

static void value_done(struct gc_json_reader *reader)
{
    reader->expect = reader->depth == 0 ? GC_JSON_EXPECT_END : GC_JSON_EXPECT_COMMA;
}

static enum gc_status open_container(struct gc_json_reader *reader, bool object,
                                     struct gc_json_token *token)
{
    if (reader->depth == GC_JSON_READER_DEPTH_MAX)
        return gc_source_fail(reader->source, token->offset, "nested deeper than %d levels",
                              GC_JSON_READER_DEPTH_MAX);
    const uint64_t bit = UINT64_C(1) << reader->depth;
    reader->is_object = object ? reader->is_object | bit : reader->is_object & ~bit;
    reader->depth++;
    reader->expect = object ? GC_JSON_EXPECT_FIRST_KEY : GC_JSON_EXPECT_FIRST;
    token->event = object ? GC_JSON_BEGIN_OBJECT : GC_JSON_BEGIN_ARRAY;
    advance(reader, 1);
    return GC_OK;
}

static enum gc_status close_container(struct gc_json_reader *reader, struct gc_json_token *token)
{
    token->event = in_object(reader) ? GC_JSON_END_OBJECT : GC_JSON_END_ARRAY;
    reader->depth--;
    value_done(reader);
    advance(reader, 1);
    return GC_OK;
}

static enum gc_status read_value(struct gc_json_reader *reader, int c, struct gc_json_token *token)
{
    enum gc_status status;
    if (c == '{' || c == '[')
        return open_container(reader, c == '{', token);
    if (c == '"') {
        advance(reader, 1);
        token->event = GC_JSON_STRING;
        status = read_string(reader, token);
    } else if (c == '-' || (c >= '0' && c <= '9')) {
        status = read_number(reader, c, token);
    } else if (reader->takes_python && (c == 'N' || c == 'I')) {
        token->event = GC_JSON_REAL;
        token->real = c == 'N' ? __builtin_nan("") : __builtin_inf();
        status = read_word(reader, c == 'N' ? "NaN" : "Infinity");
    } else if (c == 'n') {
        token->event = GC_JSON_NULL;
        status = read_word(reader, "null");
    } else {
        token->event = GC_JSON_BOOL;
        token->truth = c == 't';
        status = read_word(reader, c == 'f' ? "false" : "true");
    }
    value_done(reader);
    return status;
}

static enum gc_status read_key(struct gc_json_reader *reader, int c, struct gc_json_token *token)
{
    if (c != '"')
        return fail_at(reader, c, "a key in quotes");
    advance(reader, 1);
    token->event = GC_JSON_KEY;
    reader->expect = GC_JSON_EXPECT_VALUE;
    return read_string(reader, token);
}

/* Reads ':' with the value, not with the key: so the key's text stays valid until then. */
static enum gc_status read_colon(struct gc_json_reader *reader, int *c)
{
    if (reader->depth == 0 || !in_object(reader))
        return GC_OK;
    if (*c != ':')
        return fail_at(reader, *c, "':'");
    advance(reader, 1);
    return skip_blanks(reader, c);
}

static enum gc_status read_more(struct gc_json_reader *reader, int c, struct gc_json_token *token)
{
    const int closing = in_object(reader) ? '}' : ']';
    const bool first = reader->expect != GC_JSON_EXPECT_COMMA;
    if (c == closing)
        return close_container(reader, token);
    if (!first) {
        if (c != ',')
            return fail_at(reader, c, closing == '}' ? "',' or '}'" : "',' or ']'");
        advance(reader, 1);
        const enum gc_status status = skip_blanks(reader, &c);
        if (status != GC_OK)
            return status;
        token->offset = reader->position;
    }
    return closing == '}' ? read_key(reader, c, token) : read_value(reader, c, token);
}

enum gc_status gc_json_reader_next(struct gc_json_reader *reader, struct gc_json_token *token)
{
    int c;
    *token = (struct gc_json_token){.event = GC_JSON_END};
    enum gc_status status = skip_blanks(reader, &c);
    if (status == GC_OK && reader->expect == GC_JSON_EXPECT_VALUE)
        status = read_colon(reader, &c);
    if (status != GC_OK)
        return status;
    token->offset = reader->position;
    if (reader->expect == GC_JSON_EXPECT_END)
        return c < 0 ? GC_OK : fail_at(reader, c, "nothing more");
    if (reader->expect == GC_JSON_EXPECT_VALUE)
        return read_value(reader, c, token);
    return read_more(reader, c, token);
}

enum gc_status gc_json_reader_skip(struct gc_json_reader *reader, const struct gc_json_token *token)
{
    struct gc_json_token inner;
    if (token->event != GC_JSON_BEGIN_OBJECT && token->event != GC_JSON_BEGIN_ARRAY)
        return GC_OK;
    const uint32_t depth = reader->depth;
    while (reader->depth >= depth) {
        const enum gc_status status = gc_json_reader_next(reader, &inner);
        if (status != GC_OK)
            return status;
    }
    return GC_OK;
}

bool gc_json_token_is(const struct gc_json_token *token, const char *word)
{
    return !token->cut && strlen(word) == token->length &&
           memcmp(word, token->text, token->length) == 0;
}

const char *gc_json_token_name(const struct gc_json_token *token)
{
    static const char *const names[] = {
        [GC_JSON_BEGIN_OBJECT] = "an object",
        [GC_JSON_END_OBJECT] = "the end of an object",
        [GC_JSON_BEGIN_ARRAY] = "an array",
        [GC_JSON_END_ARRAY] = "the end of an array",
        [GC_JSON_KEY] = "a key",
        [GC_JSON_STRING] = "a string",
        [GC_JSON_INTEGER] = "a number",
        [GC_JSON_REAL] = "a number",
        [GC_JSON_BOOL] = "true or false",
        [GC_JSON_NULL] = "null",
        [GC_JSON_END] = "the end",
    };
    return names[token->event];
}

bool gc_json_token_uint(const struct gc_json_token *token, uint64_t *value)
{
    const struct gc_meta_value meta = {
        .kind = token->event == GC_JSON_INTEGER ? GC_META_INTEGER : GC_META_REAL,
        .negative = token->negative,
        .unsigned_value = token->magnitude,
        .real = token->real,
    };
    return (token->event == GC_JSON_INTEGER || token->event == GC_JSON_REAL) &&
           gc_meta_uint(&meta, value);
}
