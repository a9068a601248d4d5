/* What this process is, for the report's head and for %p, %h and %n in paths. No libc allocation.
 */
#ifndef GC_PROCESS_H
#define GC_PROCESS_H

#include "core/base/status.h"

#include <stddef.h>
#include <stdint.h>

struct gc_process {
    char program[256];  /* name of the executable, without its folder */
    char command[4096]; /* arguments joined by spaces, cut where they do not fit */
    char host[256];
    int64_t pid;
};

/* Reads /proc and asks the kernel; what cannot be had is "?". Keeps errno. */
void gc_process_describe(struct gc_process *process);

/* Expands %p (pid), %h (host), %n (program) and %% into `path`; any other % stays as it is. A '/'
 * inside the host or the program becomes '_'. GC_FORMAT if it does not fit. */
enum gc_status gc_process_expand(const struct gc_process *process, const char *pattern, char *path,
                                 size_t path_bytes) GC_CHECKED;

#endif
