/* Untrusted text in columns of a terminal (a wide character takes two): without control
 * characters, escapes and broken UTF-8, and plain ASCII outside UTF-8. */
#ifndef GC_COLUMNS_H
#define GC_COLUMNS_H

#include <stdbool.h>
#include <stddef.h>

/* True if the locale (LC_CTYPE) is a UTF-8 one. */
bool columns_is_utf8(void);
/* Copies as much of `name` as fits `columns`, with "…" or "~" at the end if it was cut;
 * returns the columns used. A `size` of 8 * columns + 1 is enough. */
unsigned columns_fit(const char *name, unsigned columns, bool utf8, char *to, size_t size);

#endif
