/* Buffered output to a descriptor, for a process in any state: no libc allocation, stdio or
 * locale. */
#ifndef GC_WRITER_H
#define GC_WRITER_H

#include "core/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Moves a new descriptor to a number above those of the standard streams; -1 stays -1. A program
 * whose stdin, stdout or stderr is closed would otherwise read and write the file there. On failure
 * closes it and returns -1, with errno. The file offset is 0. A caller that wants an empty file
 * truncates it after this call, since another thread may have written to the low number. */
int gc_writer_raise_fd(int fd);

/* Writes all bytes: continues after a signal or a short write, polls a non-blocking descriptor for
 * a while, raises neither SIGPIPE nor SIGXFSZ. GC_IO, with errno, on failure. */
enum gc_status gc_writer_write_all(int fd, const void *bytes, size_t count) GC_CHECKED;

/* A writer lives on the stack. After a failed write it drops further output and remembers the
 * error. Not thread-safe. */
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

/* Whether the descriptor is a terminal that shows colours and the user has not set NO_COLOR. Keeps
 * errno. */
bool gc_writer_wants_color(int fd);
/* Sets the style of the text that follows, if is_colored is set; takes no column. Good is green, a
 * caution yellow, an alert red. */
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
/* As printf with %s, %d, %ld, %u, %lu and %%, which take no width or precision. */
void gc_writer_print(struct gc_writer *out, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Writes blanks up to `column`, at least one unless the line is empty. */
void gc_writer_pad(struct gc_writer *out, size_t column);
/* Writes `text` right-aligned: it ends before `column`. */
void gc_writer_right(struct gc_writer *out, size_t column, const char *text);
void gc_writer_right_uint(struct gc_writer *out, size_t column, uint64_t value);
void gc_writer_right_size(struct gc_writer *out, size_t column, uint64_t bytes); /* "1.5 GiB" */

#endif
