/* States that have been searched in vain, by a key of 128 bits: a table of fixed size in which new
 * ones replace the oldest of the same place. */
#ifndef GC_PLANNER_PLACE_MEMO_H
#define GC_PLANNER_PLACE_MEMO_H

#include "core/base/region.h"

#include <stdbool.h>
#include <stdint.h>

struct gc_place_key {
    uint64_t high;
    uint64_t low;
};

struct gc_place_memo_entry {
    struct gc_place_key key;
};

struct gc_place_memo {
    struct gc_place_memo_entry *entries;
    uint64_t count; /* a power of two */
};

/* At most `bytes`; less, down to none, if there is not as much. */
void gc_place_memo_init(struct gc_place_memo *memo, struct gc_region *region, uint64_t bytes);
bool gc_place_memo_has(const struct gc_place_memo *memo, struct gc_place_key key);
void gc_place_memo_add(struct gc_place_memo *memo, struct gc_place_key key);

#endif
