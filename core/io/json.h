/* A JSON writer on a gc_writer. The output is well-formed as long as keys and values alternate in
 * objects. Containers are written one member a line. A container begun as GC_JSON_LINE is on one
 * line, with everything inside it. */
#ifndef GC_JSON_H
#define GC_JSON_H

#include "core/io/writer.h"

#define GC_JSON_DEPTH_MAX 16

enum gc_json_style { GC_JSON_LINES, GC_JSON_LINE };

struct gc_json {
    struct gc_writer *out;
    unsigned depth;
    bool after_key;
    struct gc_json_level {
        bool has_member;
        bool one_line;
    } levels[GC_JSON_DEPTH_MAX + 1];
};

/* The length of the well-formed UTF-8 sequence at the start of a text that is not empty; 0 if there
 * is none. Overlong forms, surrogates and values above U+10FFFF are not well-formed (The Unicode
 * Standard, table 3-7). */
size_t gc_json_sequence_length(const char *text);

void gc_json_init(struct gc_json *json, struct gc_writer *out);
void gc_json_begin_object(struct gc_json *json, enum gc_json_style style);
void gc_json_end_object(struct gc_json *json);
void gc_json_begin_array(struct gc_json *json, enum gc_json_style style);
void gc_json_end_array(struct gc_json *json);

void gc_json_key(struct gc_json *json, const char *key);
/* NULL is written as "". Each byte of invalid UTF-8 becomes U+FFFD. '<' is escaped, so that JSON
 * can be embedded in an HTML page. */
void gc_json_string(struct gc_json *json, const char *text);
void gc_json_uint(struct gc_json *json, uint64_t value);
void gc_json_int(struct gc_json *json, int64_t value);
void gc_json_fixed(struct gc_json *json, uint64_t value, unsigned digits); /* value / 10^digits */
void gc_json_bool(struct gc_json *json, bool value);
void gc_json_null(struct gc_json *json);
void gc_json_limit(struct gc_json *json, uint64_t value); /* UINT64_MAX is null */

/* A key with its value, or with the beginning of its container. */
void gc_json_open_object(struct gc_json *json, const char *key, enum gc_json_style style);
void gc_json_open_array(struct gc_json *json, const char *key, enum gc_json_style style);
void gc_json_write_string(struct gc_json *json, const char *key, const char *text);
void gc_json_write_uint(struct gc_json *json, const char *key, uint64_t value);
void gc_json_write_hex(struct gc_json *json, const char *key, uint64_t value);
void gc_json_write_null(struct gc_json *json, const char *key);
void gc_json_write_int(struct gc_json *json, const char *key, int64_t value);
void gc_json_write_bool(struct gc_json *json, const char *key, bool value);
void gc_json_write_fixed(struct gc_json *json, const char *key, uint64_t value, unsigned digits);
void gc_json_write_limit(struct gc_json *json, const char *key, uint64_t value);
/* Writes the value, or null where there is none. */
void gc_json_write_maybe(struct gc_json *json, const char *key, bool is_there, uint64_t value);

#endif
