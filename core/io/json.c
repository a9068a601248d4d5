#include "core/io/json.h"

#include <string.h>

void gc_json_init(struct gc_json *json, struct gc_writer *out)
{
    *json = (struct gc_json){.out = out};
}

static void line_break(struct gc_json *json)
{
    gc_writer_char(json->out, '\n');
    for (unsigned i = 0; i < json->depth; i++)
        gc_writer_text(json->out, "  ");
}

/* Writes the separator between the last member and this one. */
static void begin_member(struct gc_json *json)
{
    struct gc_json_level *level = &json->levels[json->depth];
    if (json->after_key) {
        json->after_key = false;
        return;
    }
    if (json->depth == 0)
        return;
    if (level->has_member)
        gc_writer_text(json->out, level->one_line ? ", " : ",");
    if (!level->one_line)
        line_break(json);
    level->has_member = true;
}

static void begin_container(struct gc_json *json, char bracket, enum gc_json_style style)
{
    begin_member(json);
    gc_writer_char(json->out, bracket);
    const bool one_line = style == GC_JSON_LINE || json->levels[json->depth].one_line;
    if (json->depth < GC_JSON_DEPTH_MAX)
        json->depth++;
    json->levels[json->depth] = (struct gc_json_level){.one_line = one_line};
}

static void end_container(struct gc_json *json, char bracket)
{
    const struct gc_json_level level = json->levels[json->depth];
    if (json->depth > 0)
        json->depth--;
    if (level.has_member && !level.one_line)
        line_break(json);
    gc_writer_char(json->out, bracket);
    if (json->depth == 0)
        gc_writer_char(json->out, '\n');
}

void gc_json_begin_object(struct gc_json *json, enum gc_json_style style)
{
    begin_container(json, '{', style);
}

void gc_json_end_object(struct gc_json *json)
{
    end_container(json, '}');
}

void gc_json_begin_array(struct gc_json *json, enum gc_json_style style)
{
    begin_container(json, '[', style);
}

void gc_json_end_array(struct gc_json *json)
{
    end_container(json, ']');
}

size_t gc_json_sequence_length(const char *from)
{
    const unsigned char *text = (const unsigned char *)from;
    const unsigned char lead = text[0];
    size_t length;
    unsigned char low = 0x80;
    unsigned char high = 0xbf;
    if (lead < 0x80)
        return 1;
    if (lead >= 0xc2 && lead <= 0xdf)
        length = 2;
    else if (lead >= 0xe0 && lead <= 0xef)
        length = 3;
    else if (lead >= 0xf0 && lead <= 0xf4)
        length = 4;
    else
        return 0;
    if (lead == 0xe0)
        low = 0xa0;
    else if (lead == 0xed)
        high = 0x9f;
    else if (lead == 0xf0)
        low = 0x90;
    else if (lead == 0xf4)
        high = 0x8f;
    if (text[1] < low || text[1] > high)
        return 0;
    for (size_t i = 2; i < length; i++) {
        if (text[i] < 0x80 || text[i] > 0xbf)
            return 0;
    }
    return length;
}

static void write_control(struct gc_writer *out, unsigned char c)
{
    static const char hex[] = "0123456789abcdef";
    const char escape[] = {'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]};
    gc_writer_bytes(out, escape, sizeof(escape));
}

static void write_string(struct gc_writer *out, const char *text)
{
    gc_writer_char(out, '"');
    for (const unsigned char *p = (const unsigned char *)text; *p != '\0';) {
        const size_t length = gc_json_sequence_length((const char *)p);
        if (length == 0) {
            gc_writer_text(out, "\xef\xbf\xbd");
            p++;
            continue;
        }
        if (*p == '"' || *p == '\\') {
            gc_writer_char(out, '\\');
            gc_writer_char(out, (char)*p);
        } else if (*p == '\n') {
            gc_writer_text(out, "\\n");
        } else if (*p == '\t') {
            gc_writer_text(out, "\\t");
            /* safe inside an HTML page: no "</script>" */
        } else if (*p < ' ' || *p == 0x7f || *p == '<') {
            write_control(out, *p);
        } else {
            gc_writer_bytes(out, (const char *)p, length);
        }
        p += length;
    }
    gc_writer_char(out, '"');
}

void gc_json_key(struct gc_json *json, const char *key)
{
    begin_member(json);
    write_string(json->out, key);
    gc_writer_text(json->out, ": ");
    json->after_key = true;
}

void gc_json_string(struct gc_json *json, const char *text)
{
    begin_member(json);
    write_string(json->out, text != NULL ? text : "");
}

void gc_json_uint(struct gc_json *json, uint64_t value)
{
    begin_member(json);
    gc_writer_uint(json->out, value);
}

void gc_json_int(struct gc_json *json, int64_t value)
{
    begin_member(json);
    gc_writer_int(json->out, value);
}

void gc_json_fixed(struct gc_json *json, uint64_t value, unsigned digits)
{
    begin_member(json);
    gc_writer_fixed(json->out, value, digits);
}

void gc_json_bool(struct gc_json *json, bool value)
{
    begin_member(json);
    gc_writer_text(json->out, value ? "true" : "false");
}

void gc_json_null(struct gc_json *json)
{
    begin_member(json);
    gc_writer_text(json->out, "null");
}

void gc_json_limit(struct gc_json *json, uint64_t value)
{
    if (value == UINT64_MAX)
        gc_json_null(json);
    else
        gc_json_uint(json, value);
}

void gc_json_open_object(struct gc_json *json, const char *key, enum gc_json_style style)
{
    gc_json_key(json, key);
    gc_json_begin_object(json, style);
}

void gc_json_open_array(struct gc_json *json, const char *key, enum gc_json_style style)
{
    gc_json_key(json, key);
    gc_json_begin_array(json, style);
}

void gc_json_write_string(struct gc_json *json, const char *key, const char *text)
{
    gc_json_key(json, key);
    gc_json_string(json, text);
}

void gc_json_write_hex(struct gc_json *json, const char *key, uint64_t value)
{
    gc_json_key(json, key);
    begin_member(json);
    gc_writer_char(json->out, '"');
    gc_writer_hex(json->out, value);
    gc_writer_char(json->out, '"');
}

void gc_json_write_uint(struct gc_json *json, const char *key, uint64_t value)
{
    gc_json_key(json, key);
    gc_json_uint(json, value);
}

void gc_json_write_null(struct gc_json *json, const char *key)
{
    gc_json_key(json, key);
    gc_json_null(json);
}

void gc_json_write_int(struct gc_json *json, const char *key, int64_t value)
{
    gc_json_key(json, key);
    gc_json_int(json, value);
}

void gc_json_write_bool(struct gc_json *json, const char *key, bool value)
{
    gc_json_key(json, key);
    gc_json_bool(json, value);
}

void gc_json_write_fixed(struct gc_json *json, const char *key, uint64_t value, unsigned digits)
{
    gc_json_key(json, key);
    gc_json_fixed(json, value, digits);
}

void gc_json_write_limit(struct gc_json *json, const char *key, uint64_t value)
{
    gc_json_key(json, key);
    gc_json_limit(json, value);
}

void gc_json_write_maybe(struct gc_json *json, const char *key, bool is_there, uint64_t value)
{
    gc_json_key(json, key);
    if (is_there)
        gc_json_uint(json, value);
    else
        gc_json_null(json);
}
