/* What each row reserved at the last few readings, kept from one view to the next. */
#ifndef GC_TOP_HISTORY_H
#define GC_TOP_HISTORY_H

#include "tools/live/top_text.h"

struct top_history_row {
    uint64_t key; /* of the subject */
    size_t device;
    struct top_samples samples;
};

struct top_history {
    struct top_history_row *rows; /* sorted */
    size_t count;
};

/* Takes a sample of every account of a closed view; rows that are gone are forgotten. Without host
 * memory nothing changes. */
void top_history_add(struct top_history *history, const struct top_view *view);
/* NULL if it has none. */
const struct top_samples *top_history_find(const struct top_history *history,
                                           const struct top_view *view, size_t account);
void top_history_fini(struct top_history *history);

#endif
