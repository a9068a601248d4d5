/* A line that the user types on the screen of `gpucache top`, and the filter of its rows. */
#ifndef GC_TOP_PROMPT_H
#define GC_TOP_PROMPT_H

#include "tools/live/top_view.h"

#include <stddef.h>

#define TOP_PROMPT_BYTES 64

/* Zeroed: empty. */
struct top_prompt {
    char text[TOP_PROMPT_BYTES];
    size_t used;
};

enum top_prompt_state { TOP_PROMPT_OPEN, TOP_PROMPT_DONE, TOP_PROMPT_LEFT };

/* Takes a byte: printable ones and those of UTF-8 are added, Backspace takes the last character
 * off, Ctrl-U all; Enter ends the line, Escape leaves it. */
enum top_prompt_state top_prompt_press(struct top_prompt *prompt, int byte);

/* Keeps the rows (accounts of the view) whose process, group or tenant has the text in its name,
 * program or group, or whose PID begins with it, case-insensitively; a tenant also by its process.
 * Rows of devices stay. Returns their number. */
size_t top_prompt_filter(const struct top_view *view, const char *text, size_t *rows, size_t count);

#endif
