/* Buffered output to a descriptor for a process in any state: no libc allocation, no stdio, no
 * locale. */
#ifndef GC_WRITER_H
#define GC_WRITER_H

#include "core/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A descriptor just opened (or -1: so it comes back), moved to where no standard stream belongs. A
 * program whose stdin, stdout or stderr is closed would read and write it there. -1, with errno,
 * where it cannot be moved: it is closed then. It is at its beginning; what is to be empty is to be
 * cut once more, since another thread may have written there already. */
int gc_writer_raise_fd(int fd);

/* Writes all of it: goes on after a signal or a short write, waits a moment for a descriptor that
 * does not block, raises neither SIGPIPE nor SIGXFSZ. GC_IO, with errno, if it cannot. */
enum gc_status gc_writer_write_all(int fd, const void *bytes, size_t count) GC_CHECKED;

/* Lives on the stack. A failed write is remembered, what follows is dropped. Not thread-safe. */
struct gc_writer {
    int fd;
    int error; /* errno of the first failure, 0 for none */
    size_t used;
    size_t column; /* characters since the last line break, for gc_writer_pad */
    bool is_colored;
    bool is_styled;
    char buffer[4096];
};

void gc_writer_init(struct gc_writer *out, int fd);
/* GC_IO, with errno, if any write since init failed. */
enum gc_status gc_writer_flush(struct gc_writer *out) GC_CHECKED;

/* A terminal that shows colours, whose user has not set NO_COLOR. Keeps errno. */
bool gc_writer_wants_color(int fd);
/* What follows looks so, where is_colored is set; takes no column. Good is green, a caution yellow,
 * an alert red. */
enum gc_writer_style {
    GC_STYLE_PLAIN,
    GC_STYLE_STRONG,
    GC_STYLE_GOOD,
    GC_STYLE_CAUTION,
    GC_STYLE_ALERT
};
void gc_writer_set_style(struct gc_writer *out, enum gc_writer_style style);

void gc_writer_bytes(struct gc_writer *out, const char *text, size_t length);
void gc_writer_text(struct gc_writer *out, const char *text);
void gc_writer_char(struct gc_writer *out, char c);
void gc_writer_uint(struct gc_writer *out, uint64_t value);
void gc_writer_int(struct gc_writer *out, int64_t value);
void gc_writer_hex(struct gc_writer *out, uint64_t value); /* 0x… */
/* value / 10^digits as a decimal number, trailing zeros kept: (1500, 3) is 1.500. */
void gc_writer_fixed(struct gc_writer *out, uint64_t value, unsigned digits);
/* As printf with %s, %d, %ld, %u, %lu and %%. `%*s` and `%*lu` take a column and end before it, as
 * gc_writer_right does. */
void gc_out_print(struct gc_writer *out, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Blanks up to `column`; at least one unless the line is empty. */
void gc_writer_pad(struct gc_writer *out, size_t column);
/* `text` so that it ends before `column`. */
void gc_writer_right(struct gc_writer *out, size_t column, const char *text);
void gc_writer_right_uint(struct gc_writer *out, size_t column, uint64_t value);
void gc_writer_right_size(struct gc_writer *out, size_t column, uint64_t bytes); /* "1.5 GiB" */

#endif
