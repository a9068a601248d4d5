/* How a row of the screen looks. The values are numbers of colour pairs. */
#ifndef GC_TOP_LOOK_H
#define GC_TOP_LOOK_H

#include "core/base/clock.h"
#include "tools/live/top_view.h"

enum top_look {
    TOP_LOOK_NONE,
    TOP_LOOK_SUM,
    TOP_LOOK_NEAR,
    TOP_LOOK_OVER,
    TOP_LOOK_WAITS,
    TOP_LOOK_STILL
};

#define TOP_LOOK_WAITS_NS (10 * GC_NS_PER_S)

/* The worst trouble of a row: requests were refused or the limit is exceeded; near the limit; long
 * without its memory; paused, stopped or away. */
static inline enum top_look top_look_of(const struct top_subject *subject,
                                        const struct gc_ledger_figures *figures)
{
    const bool has_limit = figures->limit != TOP_NO_LIMIT && figures->limit > 0;
    const bool is_sum = subject->kind == TOP_DEVICE || subject->kind == TOP_GROUP;
    if ((has_limit && figures->reserved > figures->limit) || (!is_sum && figures->oom_count > 0))
        return TOP_LOOK_OVER;
    if (has_limit && figures->reserved >= figures->idle &&
        figures->reserved - figures->idle > figures->limit / 10 * 9)
        return TOP_LOOK_NEAR;
    if (subject->takes_turns && subject->turn.waiting_ns > TOP_LOOK_WAITS_NS)
        return TOP_LOOK_WAITS;
    if (subject->state != TOP_RUNNING ||
        (subject->takes_turns && subject->turn.state == GC_TURN_AWAY))
        return TOP_LOOK_STILL;
    return is_sum ? TOP_LOOK_SUM : TOP_LOOK_NONE;
}

#endif
