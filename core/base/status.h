/* Status codes, declared once in status.def. A function that can fail returns one and takes its
 * outputs last. Ignoring the result is a warning. */
#ifndef GC_STATUS_H
#define GC_STATUS_H

enum gc_status {
#define GC_STATUS(name, text) GC_##name,
#include "core/base/status.def"
#undef GC_STATUS
    GC_STATUS_COUNT
};

#define GC_CHECKED __attribute__((warn_unused_result))

/* A short lower-case text; never NULL, static storage, thread-safe. */
const char *gc_status_text(enum gc_status status);

#endif
