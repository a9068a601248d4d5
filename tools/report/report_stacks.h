/* Stacks of a JSON report: each list of frames has a number. */
#ifndef GC_TOOL_REPORT_STACKS_H
#define GC_TOOL_REPORT_STACKS_H

#include "core/report/report.h"

struct report_stacks {
    const void **lists; /* JSON arrays of texts; of the report they were read from */
    uint32_t count;
    struct symbols *symbols; /* NULL: frames as they were written */
};

/* The number of a JSON array of texts, 0 if it is empty or missing; false with `why` if it is none
 * or there is no memory. */
bool report_stacks_add(struct report_stacks *stacks, const void *list, uint32_t *site,
                       const char **why);
/* From now on frames have the names that their files say. False: no memory. */
bool report_stacks_name(struct report_stacks *stacks);
void report_stacks_fini(struct report_stacks *stacks);
/* For struct gc_report_stacks. */
bool report_stacks_frame(const void *source, uint32_t site, uint32_t index,
                         char text[GC_STACK_TEXT_BYTES]);

#endif
