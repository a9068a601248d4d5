/* Describes this process: for the head of the report, and for %p, %h and %n in paths. Does not use
 * libc's allocator. */
#ifndef GC_PROCESS_H
#define GC_PROCESS_H

#include "core/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gc_process {
    char program[256];  /* name of the executable, without folder */
    char command[4096]; /* arguments joined by spaces, cut at the end */
    char host[256];
    int64_t pid;
};

/* Reads /proc and calls uname; an unknown text is "?". Keeps errno. */
void gc_process_describe(struct gc_process *process);

/* Expands %p (pid), %h (host), %n (program) and %% into `path`; any other % stays. A '/' inside the
 * host or the program becomes '_'. GC_FORMAT if the path does not fit. */
enum gc_status gc_process_expand(const struct gc_process *process, const char *pattern, char *path,
                                 size_t path_bytes) GC_CHECKED;

/* Calls `visit` with each name in an open folder, such as /proc, until it returns false. Does not
 * use libc's allocator. Keeps errno. */
typedef bool gc_process_visit(void *argument, const char *name);
void gc_process_visit_names(int folder, gc_process_visit *visit, void *argument);

#endif
