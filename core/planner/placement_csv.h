/* Placement problems as lines of text: id,lower,upper,size and, where the header names them,
 * alignment and offset. A buffer lives in [lower, upper). An offset fixes the buffer there; an
 * empty one is free. Columns come in any order, each at most once; blank lines are skipped. */
#ifndef GC_PLANNER_PLACEMENT_CSV_H
#define GC_PLANNER_PLACEMENT_CSV_H

#include "core/base/region.h"
#include "core/base/status.h"
#include "core/plan/placement.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GC_PLACEMENT_CSV_HEADER "id,lower,upper,size[,alignment][,offset]"

struct gc_placement_csv {
    struct gc_placement_buffer *buffers; /* in the file's order */
    const char **ids;                    /* closed by NUL; all different */
    uint32_t count;
    bool has_alignment; /* the header has the column */
    bool has_offset;
};

struct gc_placement_csv_error {
    uint64_t line; /* from 1; 0: the error has no line */
    char text[256];
};

/* Memory comes from `region`; the text is not needed afterwards. GC_FORMAT, GC_NO_HOST_MEMORY,
 * GC_TOO_MANY: more buffers than 32 bits count; *error has the reason. Thread-safe. */
enum gc_status gc_placement_csv_read(struct gc_region *region, const char *text, size_t bytes,
                                     struct gc_placement_csv *csv,
                                     struct gc_placement_csv_error *error) GC_CHECKED;

#endif
