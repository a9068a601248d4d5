/* Sentences of the report, built from words and figures without libc. A text that is too long is
 * cut. */
#ifndef GC_REPORT_SENTENCE_H
#define GC_REPORT_SENTENCE_H

#include "core/io/text.h"
#include "core/report/snapshot.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define GC_SENTENCE_BYTES 400

/* Zeroed: empty. */
struct gc_sentence {
    char text[GC_SENTENCE_BYTES];
    size_t used;
};

static inline void gc_sentence_add(struct gc_sentence *sentence, const char *text)
{
    for (; *text != '\0' && sentence->used + 1 < GC_SENTENCE_BYTES; text++)
        sentence->text[sentence->used++] = *text;
    sentence->text[sentence->used] = '\0';
}

static inline void gc_sentence_add_number(struct gc_sentence *sentence, uint64_t value)
{
    char digits[24];
    char *p = digits + sizeof(digits) - 1;
    *p = '\0';
    do {
        *--p = (char)('0' + value % 10);
        value /= 10;
    } while (value != 0);
    gc_sentence_add(sentence, p);
}

static inline void gc_sentence_add_size(struct gc_sentence *sentence, uint64_t bytes)
{
    char size[GC_TEXT_SIZE_BYTES];
    gc_sentence_add(sentence, gc_text_size(bytes, size));
}

static inline void gc_sentence_add_span(struct gc_sentence *sentence, uint64_t ns)
{
    char span[GC_TEXT_SPAN_BYTES];
    gc_sentence_add(sentence, gc_text_span(ns, span));
}

/* A foreign text, of which at most `bytes` - 1 are shown. */
static inline void gc_sentence_add_foreign(struct gc_sentence *sentence, const char *text,
                                           size_t bytes)
{
    char shown[GC_SENTENCE_BYTES];
    gc_sentence_add(sentence, gc_text_printable(text, strlen(text), shown,
                                                bytes < sizeof(shown) ? bytes : sizeof(shown)));
}

/* "1 request", "12 requests". */
static inline void gc_sentence_add_count(struct gc_sentence *sentence, uint64_t count,
                                         const char *one, const char *many)
{
    gc_sentence_add_number(sentence, count);
    gc_sentence_add(sentence, count == 1 ? one : many);
}

static inline void gc_sentence_add_device(struct gc_sentence *sentence,
                                          const struct gc_device_snapshot *device)
{
    gc_sentence_add(sentence, " on device ");
    gc_sentence_add_number(sentence, (uint64_t)device->info.ordinal);
}

#endif
