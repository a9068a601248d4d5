/* Checks the ranges of tensors in their files: two ranges may be equal, but not overlap otherwise.
 */
#ifndef GC_READER_RANGES_H
#define GC_READER_RANGES_H

#include "core/reader/reader.h"

struct gc_ranges {
    uint32_t first;       /* the first tensor to check; the last is the reader's last */
    uint64_t begin;       /* the lowest offset a tensor may have in its file */
    uint64_t slack;       /* gap between two tensors that is accepted silently */
    bool gaps_are_errors; /* a larger gap is GC_FORMAT; else a warning */
    bool is_header_alone; /* the data is not there: its end is not checked */
};

/* Sorts the tensors that have an offset and bytes, by file and offset. A tensor with the range of
 * an earlier one becomes that one's alias. GC_FORMAT: a tensor ends beyond its file, two overlap,
 * or there is a gap and gaps_are_errors. O(n log n). */
enum gc_status gc_ranges_check(struct gc_reader *reader, const struct gc_ranges *ranges) GC_CHECKED;

#endif
