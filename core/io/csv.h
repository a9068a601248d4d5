/* Reads lines of comma-separated fields without quotes: the format of the library's own files and
 * of RMM's log. Fields point into the text. */
#ifndef GC_CSV_H
#define GC_CSV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gc_csv_field {
    const char *text; /* does not end with NUL */
    size_t length;
};

struct gc_csv {
    const char *next;
    const char *end;
    uint64_t line; /* number of the last line read, from 1; 0 before the first */
};

/* The next line that is not empty, without its end (LF or CRLF); false when there is none. */
bool gc_csv_next(struct gc_csv *csv, struct gc_csv_field *line);
/* Returns the number of the line's fields; stores up to `max` of them. */
size_t gc_csv_split(const struct gc_csv_field *line, struct gc_csv_field *fields, size_t max);
/* Whether one of the line's fields begins with a quote. */
bool gc_csv_is_quoted(const struct gc_csv_field *line);

#endif
