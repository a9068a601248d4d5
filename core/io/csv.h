/* Lines of comma-separated fields, without quotes: what our own files and RMM's log are made of.
 * Fields point into the text. */
#ifndef GC_CSV_H
#define GC_CSV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gc_csv_field {
    const char *text; /* not closed by NUL */
    size_t length;
};

struct gc_csv {
    const char *next;
    const char *end;
    uint64_t line; /* read last, from 1; 0 before the first */
};

/* The next line that is not empty, without its end (LF or CRLF); false when there is none. */
bool gc_csv_next(struct gc_csv *csv, struct gc_csv_field *line);
/* How many fields the line has; those beyond `max` are counted only. */
size_t gc_csv_split(const struct gc_csv_field *line, struct gc_csv_field *fields, size_t max);

#endif
