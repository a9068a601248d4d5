/* Reads a pickle of plain data, protocol 4 or lower: None, booleans, integers, floats, text, bytes,
 * lists, tuples, dictionaries. Nothing is ever executed: opcodes that name, create or call objects
 * are refused.
 *
 * Bounds: host memory is at most 16 times the file and 64 MiB; nothing recurses. Text and bytes
 * point into the buffer, which must outlive the result. A value may be reachable by several paths,
 * from itself too: walks need their own bounds. Not thread-safe. */
#ifndef GC_PICKLE_H
#define GC_PICKLE_H

#include "core/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum pickle_kind {
    PICKLE_NONE,
    PICKLE_BOOL,
    PICKLE_INT,
    PICKLE_BIG, /* an integer beyond 64 bits: its value is not kept */
    PICKLE_FLOAT,
    PICKLE_TEXT, /* as in the file: UTF-8 except in protocol 0, whose escapes are kept */
    PICKLE_BYTES,
    PICKLE_LIST,
    PICKLE_TUPLE,
    PICKLE_DICT, /* key, value, key, value …; of equal keys the last counts */
};

struct pickle_items;

struct pickle_value {
    uint8_t kind;    /* enum pickle_kind */
    uint32_t length; /* of text and bytes */
    union {
        int64_t integer; /* and booleans */
        double real;
        const char *text;
        struct pickle_items *items;
    };
};

struct pickle_items {
    struct pickle_items *next_of_all;
    struct pickle_value *values;
    size_t count;
    size_t room;
};

struct pickle {
    struct pickle_value root;
    struct pickle_items *all;
};

struct pickle_error {
    size_t offset;
    char text[192];
};

/* GC_FORMAT with *error: not a pickle read here. GC_NO_HOST_MEMORY. End it with pickle_fini
 * whatever it returned. */
enum gc_status pickle_load(const void *data, size_t bytes, struct pickle *pickle,
                           struct pickle_error *error) GC_CHECKED;
void pickle_fini(struct pickle *pickle);

/* The value of a dictionary's text key; NULL if the value is not a dictionary or has no such key.
 * O(keys). */
const struct pickle_value *pickle_find(const struct pickle_value *dict, const char *key);
bool pickle_is_text(const struct pickle_value *value, const char *text);

/* The opcodes that are read or written here. */
enum pickle_op {
#define READ(name, code) OP_##name = (code),
#define REFUSED(name, code)
#include "tools/pickle/pickle_ops.def"
#undef READ
#undef REFUSED
};

#endif
