/* The live screen of `gpucache top`, drawn by curses. */
#ifndef GC_TOP_SCREEN_H
#define GC_TOP_SCREEN_H

#include "core/config/size.h"
#include "tools/live/top_view.h"

#include <stdbool.h>

/* TOP_PIN, TOP_PAUSE: or not any more. */
enum top_action { TOP_PIN, TOP_EVICT, TOP_LIMIT, TOP_TRIM, TOP_PAUSE };

/* Fills a new view; else a status, with *why as its text (static or the reader's). */
struct top_reader {
    enum gc_status (*read)(struct top_reader *reader, struct top_view *view, const char **why);
    /* Acts on a process; TOP_PIN and TOP_EVICT on one that takes turns. `limit`: of TOP_LIMIT;
     * without an entry: none. The text that is shown. NULL: it cannot. */
    const char *(*act)(struct top_reader *reader, const struct top_subject *process,
                       enum top_action action, const struct gc_size_spec *limit);
};

enum top_screen_end {
    TOP_SCREEN_QUIT,
    TOP_SCREEN_SIGNAL,      /* *signal_number: the terminal is restored; the caller raises it */
    TOP_SCREEN_NO_TERMINAL, /* this terminal cannot show a screen: nothing was changed */
};

/* Standard output is a terminal, of a known type, on which the cursor can be moved. */
bool top_terminal_can_show(void);

/* Shows the screen until the user quits or a signal arrives. Keys change `order`. */
enum top_screen_end top_screen_run(struct top_reader *reader, struct top_order *order,
                                   unsigned interval_ms, int *signal_number);

#endif
