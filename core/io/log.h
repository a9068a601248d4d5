/* Log lines on stderr, `gpucache: text`: one write(2) each, no allocation, no stdio. */
#ifndef GC_LOG_H
#define GC_LOG_H

#include <stdatomic.h>
#include <stdbool.h>

enum gc_log_level { GC_LOG_ERROR, GC_LOG_WARN, GC_LOG_INFO, GC_LOG_DEBUG };

struct gc_log {
    enum gc_log_level level;
    int fd; /* 2 unless a test redirects it */
};

/* printf-like (vsnprintf into a 1 KiB stack buffer). A NULL log drops the line. Keeps errno.
 * Thread-safe. */
void gc_log_write(const struct gc_log *log, enum gc_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Like gc_log_write, on the first call with this flag only. The caller keeps `logged` beside the
 * state that the line is about. */
void gc_log_once(const struct gc_log *log, atomic_flag *logged, enum gc_log_level level,
                 const char *format, ...) __attribute__((format(printf, 4, 5)));

#endif
