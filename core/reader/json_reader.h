/* A strict pull reader of JSON (RFC 8259) over a stretch of a source: one event a call, no
 * recursion, memory bounded. UTF-8 is checked; comments, trailing commas, NaN, a byte order mark
 * and text after the value are errors. The caller detects duplicate keys.
 *
 * Why not a library: the maintained ones hold the whole text in memory or call malloc. A preloaded
 * library must not call its host's malloc, and a header of 100 MB must not cost more memory than a
 * window. */
#ifndef GC_READER_JSON_READER_H
#define GC_READER_JSON_READER_H

#include "core/reader/source.h"

#define GC_JSON_READER_DEPTH_MAX 64
#define GC_JSON_READER_TEXT_MAX (64 << 10) /* of one string; longer ones are cut */

enum gc_json_event {
    GC_JSON_BEGIN_OBJECT,
    GC_JSON_END_OBJECT,
    GC_JSON_BEGIN_ARRAY,
    GC_JSON_END_ARRAY,
    GC_JSON_KEY,
    GC_JSON_STRING,
    GC_JSON_INTEGER, /* no fraction, no exponent, and its magnitude fits 64 bits */
    GC_JSON_REAL,
    GC_JSON_BOOL,
    GC_JSON_NULL,
    GC_JSON_END, /* the value is complete and nothing follows it */
};

struct gc_json_token {
    enum gc_json_event event;
    uint64_t offset;  /* in the file, of its first byte */
    const char *text; /* of KEY and STRING: not closed by NUL, valid until the next call */
    size_t length;
    bool cut;      /* the string is longer than text */
    bool negative; /* of INTEGER */
    bool truth;
    uint64_t magnitude; /* of INTEGER */
    double real; /* of INTEGER and REAL; an approximation within a few units in the last place */
};

struct gc_json_reader {
    struct gc_source *source;
    uint64_t end;      /* where the stretch ends in the file */
    uint64_t position; /* in the file, of `at` */
    const unsigned char *at;
    const unsigned char *limit; /* end of the window */
    char *scratch;              /* strings with escapes, or across windows */
    uint32_t scratch_room;
    bool takes_python; /* NaN, Infinity and -Infinity too, as Python's json writes them */
    uint32_t depth;
    uint64_t is_object; /* a bit per level */
    enum {
        GC_JSON_EXPECT_VALUE,
        GC_JSON_EXPECT_FIRST, /* a value, or the end of the array */
        GC_JSON_EXPECT_KEY,
        GC_JSON_EXPECT_FIRST_KEY, /* a key, or the end of the object */
        GC_JSON_EXPECT_COMMA,     /* or the end of the container */
        GC_JSON_EXPECT_END,
    } expect;
};

void gc_json_reader_init(struct gc_json_reader *reader, struct gc_source *source, uint64_t begin,
                         uint64_t end);
enum gc_status gc_json_reader_next(struct gc_json_reader *reader,
                                   struct gc_json_token *token) GC_CHECKED;
/* Skips the value that `token` begins: a container to its end, a scalar needs nothing. */
enum gc_status gc_json_reader_skip(struct gc_json_reader *reader,
                                   const struct gc_json_token *token) GC_CHECKED;

/* Is the text of a KEY or STRING this word? */
bool gc_json_token_is(const struct gc_json_token *token, const char *word);
/* "a string", "an object": for messages. */
const char *gc_json_token_name(const struct gc_json_token *token);
/* A number that is whole, not negative and exact. */
bool gc_json_token_uint(const struct gc_json_token *token, uint64_t *value);

#endif
