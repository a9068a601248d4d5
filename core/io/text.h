/* Text helpers without libc's locale, stdio or malloc: numbers, word lists, edit distance. */
#ifndef GC_TEXT_H
#define GC_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A non-negative decimal number: whole + fraction / scale, scale a power of ten up to 10^18. */
struct gc_decimal {
    uint64_t whole;
    uint64_t fraction;
    uint64_t scale;
};

/* Reads digits with at most one '.' between digits; *end points after them. False if there is no
 * number or its whole part overflows. No sign, exponent or blanks; digits after the 18th decimal
 * are dropped. */
bool gc_text_decimal(const char *text, const char **end, struct gc_decimal *decimal);
double gc_text_decimal_value(const struct gc_decimal *decimal);

/* Parses all of `text` as an unsigned decimal integer. */
bool gc_text_uint(const char *text, size_t length, uint64_t *value);

/* The index of `word` in `words` ("a, b, c"), or -1. Case-sensitive. */
int gc_text_find_word(const char *words, const char *word, size_t length);

/* Whether the text ends with `end` or equals it. */
bool gc_text_ends_with(const char *text, const char *end);
/* Whether the name ends with `ending` and is longer. */
bool gc_text_has_ending(const char *name, size_t length, const char *ending);

bool gc_text_equal_nocase(const char *a, const char *b, size_t length);

/* The edit distance: the number of changes, insertions, removals and swaps of neighbours that turn
 * a into b. Both are cut to GC_TEXT_DISTANCE_MAX characters. */
#define GC_TEXT_DISTANCE_MAX 64
unsigned gc_text_distance(const char *a, size_t a_length, const char *b, size_t b_length);

/* "512 B", "1.5 GiB": at most 11 characters. */
#define GC_TEXT_SIZE_BYTES 16
const char *gc_text_size(uint64_t bytes, char text[GC_TEXT_SIZE_BYTES]);
/* The least size that gc_text_size shows exactly, in tenths of its unit, and that is not below. */
uint64_t gc_text_round_up(uint64_t bytes);
/* gc_text_size into memory of the enclosing block. */
#define GC_TEXT_SIZE(bytes) gc_text_size((bytes), (char[GC_TEXT_SIZE_BYTES]){0})

/* "512 ns", "1.5 us", "22.7 ms", "3.0 s": at most 15 characters. */
#define GC_TEXT_SPAN_BYTES 16
const char *gc_text_span(uint64_t ns, char text[GC_TEXT_SPAN_BYTES]);
#define GC_TEXT_SPAN(ns) gc_text_span((ns), (char[GC_TEXT_SPAN_BYTES]){0})

/* Copies at most size - 1 bytes of `from`: unprintable ones as '?', a cut text with "..." at its
 * end. For foreign values in messages. */
const char *gc_text_printable(const char *from, size_t length, char *to, size_t size);

/* Copies and adds a NUL. False, and `to` empty, if the text does not fit. */
bool gc_text_copy(char *to, size_t size, const char *from, size_t length);

/* Reads lower-case digits of base 16; returns the rest of the text. More than 16 digits overflow.
 */
const char *gc_text_read_hex(const char *text, uint64_t *number);

#endif
