#include "core/io/log.h"

#include "core/io/writer.h"

#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define LINE_BYTES 1024

static const char prefix[] = "gpucache: ";

/* One write(2) a line, so that lines of several threads and processes do not mix. A longer line is
 * cut. A line break or control character becomes a space: one call, one line. */
static void write_line(const struct gc_log *log, const char *format, va_list arguments)
{
    char line[LINE_BYTES];
    const size_t head = sizeof(prefix) - 1;
    const size_t room = sizeof(line) - head - 1;
    memcpy(line, prefix, head);
    const int wanted = vsnprintf(line + head, room, format, arguments);
    if (wanted < 0)
        return;
    const size_t bytes = (size_t)wanted < room ? (size_t)wanted : room - 1;
    for (size_t i = 0; i < bytes; i++) {
        const unsigned char c = (unsigned char)line[head + i];
        if (c < ' ' || c == 0x7f)
            line[head + i] = ' ';
    }
    line[head + bytes] = '\n';
    (void)!gc_writer_write_all(log->fd, line, head + bytes + 1);
}

static void write_keeping_errno(const struct gc_log *log, const char *format, va_list arguments)
{
    const int saved_errno = errno;
    write_line(log, format, arguments);
    errno = saved_errno;
}

void gc_log_write(const struct gc_log *log, enum gc_log_level level, const char *format, ...)
{
    va_list arguments;
    if (log == NULL || level > log->level)
        return;
    va_start(arguments, format);
    write_keeping_errno(log, format, arguments);
    va_end(arguments);
}

void gc_log_once(const struct gc_log *log, atomic_flag *logged, enum gc_log_level level,
                 const char *format, ...)
{
    va_list arguments;
    if (log == NULL || level > log->level ||
        atomic_flag_test_and_set_explicit(logged, memory_order_relaxed))
        return;
    va_start(arguments, format);
    write_keeping_errno(log, format, arguments);
    va_end(arguments);
}
