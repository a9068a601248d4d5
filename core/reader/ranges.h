/* Where tensors lie in a file: no two may share bytes, unless they are the same bytes. */
#ifndef GC_READER_RANGES_H
#define GC_READER_RANGES_H

#include "core/reader/reader.h"

struct gc_ranges {
    uint32_t first;       /* the tensors looked at: from this one to the last */
    uint64_t begin;       /* where tensors may begin in their file */
    uint64_t slack;       /* unused bytes between two tensors that are not worth a word */
    bool gaps_are_errors; /* more than that: GC_FORMAT, else a warning */
};

/* Takes tensors by file and offset; those without an offset or of no bytes are left out. Marks what
 * is the same stretch as an earlier tensor as its alias. GC_FORMAT: one reaches beyond its file's
 * end, two overlap, or there is a hole. */
enum gc_status gc_ranges_check(struct gc_reader *reader, const struct gc_ranges *ranges) GC_CHECKED;

#endif
