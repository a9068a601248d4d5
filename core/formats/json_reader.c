#include "core/formats/json_lexer.h"

#include <string.h>

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
    gc_json_advance(reader, 1);
    return GC_OK;
}

static enum gc_status close_container(struct gc_json_reader *reader, struct gc_json_token *token)
{
    token->event = in_object(reader) ? GC_JSON_END_OBJECT : GC_JSON_END_ARRAY;
    reader->depth--;
    value_done(reader);
    gc_json_advance(reader, 1);
    return GC_OK;
}

static enum gc_status read_value(struct gc_json_reader *reader, int c, struct gc_json_token *token)
{
    enum gc_status status;
    if (c == '{' || c == '[')
        return open_container(reader, c == '{', token);
    if (c == '"') {
        gc_json_advance(reader, 1);
        token->event = GC_JSON_STRING;
        status = gc_json_read_string(reader, token);
    } else if (c == '-' || (c >= '0' && c <= '9')) {
        status = gc_json_read_number(reader, c, token);
    } else if (reader->takes_python && (c == 'N' || c == 'I')) {
        token->event = GC_JSON_REAL;
        token->real = c == 'N' ? __builtin_nan("") : __builtin_inf();
        status = gc_json_read_word(reader, c == 'N' ? "NaN" : "Infinity");
    } else if (c == 'n') {
        token->event = GC_JSON_NULL;
        status = gc_json_read_word(reader, "null");
    } else {
        token->event = GC_JSON_BOOL;
        token->truth = c == 't';
        status = gc_json_read_word(reader, c == 'f' ? "false" : "true");
    }
    value_done(reader);
    return status;
}

static enum gc_status read_key(struct gc_json_reader *reader, int c, struct gc_json_token *token)
{
    if (c != '"')
        return gc_json_fail_at(reader, c, "a key in quotes");
    gc_json_advance(reader, 1);
    token->event = GC_JSON_KEY;
    reader->expect = GC_JSON_EXPECT_VALUE;
    return gc_json_read_string(reader, token);
}

/* What follows a key's text is looked at when its value is read: the text is valid until then. */
static enum gc_status take_colon(struct gc_json_reader *reader, int *c)
{
    if (reader->depth == 0 || !in_object(reader))
        return GC_OK;
    if (*c != ':')
        return gc_json_fail_at(reader, *c, "':'");
    gc_json_advance(reader, 1);
    return gc_json_skip_blanks(reader, c);
}

static enum gc_status read_more(struct gc_json_reader *reader, int c, struct gc_json_token *token)
{
    const int closing = in_object(reader) ? '}' : ']';
    const bool first = reader->expect != GC_JSON_EXPECT_COMMA;
    if (c == closing)
        return close_container(reader, token);
    if (!first) {
        if (c != ',')
            return gc_json_fail_at(reader, c, closing == '}' ? "',' or '}'" : "',' or ']'");
        gc_json_advance(reader, 1);
        const enum gc_status status = gc_json_skip_blanks(reader, &c);
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
    enum gc_status status = gc_json_skip_blanks(reader, &c);
    if (status == GC_OK && reader->expect == GC_JSON_EXPECT_VALUE)
        status = take_colon(reader, &c);
    if (status != GC_OK)
        return status;
    token->offset = reader->position;
    if (reader->expect == GC_JSON_EXPECT_END)
        return c < 0 ? GC_OK : gc_json_fail_at(reader, c, "nothing more");
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
