/* The characters, strings and numbers of JSON: what the reader (json_reader.h) is made of. */
#ifndef GC_FORMATS_JSON_LEXER_H
#define GC_FORMATS_JSON_LEXER_H

#include "core/formats/json_reader.h"

/* Brings more to hand. Nothing at hand afterwards: the stretch has ended. */
enum gc_status gc_json_refill(struct gc_json_reader *reader) GC_CHECKED;

static inline void gc_json_advance(struct gc_json_reader *reader, size_t count)
{
    reader->at += count;
    reader->position += count;
}

/* The next character, or -1 at the end; it is not taken. */
static inline enum gc_status gc_json_peek(struct gc_json_reader *reader, int *c)
{
    if (reader->at == reader->limit) {
        const enum gc_status status = gc_json_refill(reader);
        if (status != GC_OK)
            return status;
    }
    *c = reader->at == reader->limit ? -1 : *reader->at;
    return GC_OK;
}

/* Goes past blanks and peeks. */
enum gc_status gc_json_skip_blanks(struct gc_json_reader *reader, int *c) GC_CHECKED;
/* "'x' where EXPECTED is expected". */
enum gc_status gc_json_fail_at(const struct gc_json_reader *reader, int c, const char *expected);
/* Behind the opening quote. */
enum gc_status gc_json_read_string(struct gc_json_reader *reader,
                                   struct gc_json_token *token) GC_CHECKED;
/* `c` is its first character, peeked at. */
enum gc_status gc_json_read_number(struct gc_json_reader *reader, int c,
                                   struct gc_json_token *token) GC_CHECKED;
/* Takes exactly these characters. */
enum gc_status gc_json_read_word(struct gc_json_reader *reader, const char *word) GC_CHECKED;

#endif
