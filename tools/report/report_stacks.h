/* Stacks of a JSON report: each list of frames has a number. */
#ifndef GC_TOOL_REPORT_STACKS_H
#define GC_TOOL_REPORT_STACKS_H

#include "core/report/report.h"

struct report_stack {
    const void *frames; /* a JSON array of strings, owned by the report */
    uint32_t own;       /* index of the program's own frame */
};

struct report_stacks {
    struct report_stack *lists;
    uint32_t count;
    struct symbols *symbols; /* NULL: frames are kept as written */
};

/* The number of the JSON array "stack" of an object, 0 if it is empty or missing; false with `why`
 * if it is malformed or memory runs out. The object's "frame" names the program's own frame; it is
 * found by the frames' objects if the key is missing. */
bool report_stacks_add(struct report_stacks *stacks, const void *object, uint32_t *site,
                       const char **why);
/* Names frames by the symbols of their files from now on. False if memory runs out. */
bool report_stacks_name(struct report_stacks *stacks);
void report_stacks_fini(struct report_stacks *stacks);
/* For struct gc_report_stacks. */
bool report_stacks_frame(const void *source, uint32_t site, uint32_t index,
                         char text[GC_STACK_TEXT_BYTES]);
uint32_t report_stacks_own(const void *source, uint32_t site);

#endif
