/* Lines to stderr, each `gpucache: text`, one write(2) a line, no allocation, no stdio. */
#ifndef GC_LOG_H
#define GC_LOG_H

#include <stdatomic.h>
#include <stdbool.h>

enum gc_log_level { GC_LOG_ERROR, GC_LOG_WARN, GC_LOG_INFO, GC_LOG_DEBUG };

struct gc_log {
    enum gc_log_level level;
    int fd; /* 2 unless a test redirects it */
};

/* printf-like (vsnprintf into a 1 KiB stack buffer); log NULL: nothing. Keeps errno. Thread-safe.
 */
void gc_log_write(const struct gc_log *log, enum gc_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The same, the first time only: `said` is the caller's flag, kept beside the state it speaks of.
 */
void gc_log_once(const struct gc_log *log, atomic_flag *said, enum gc_log_level level,
                 const char *format, ...) __attribute__((format(printf, 4, 5)));

#endif
