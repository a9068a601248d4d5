/* Finds out whether the terminal can show a screen. */
#include "tools/live/top_screen.h"

#include <stdint.h>
#include <unistd.h>

#include <curses.h>
#include <term.h>

/* tigetstr takes no const text, but does not change its argument. */
static const char *find_string(const char *name)
{
    const char *text = tigetstr((char *)(uintptr_t)name);
    return text == (const char *)-1 ? NULL : text;
}

bool top_terminal_can_show(void)
{
    int error;
    if (isatty(STDOUT_FILENO) != 1 || setupterm(NULL, STDOUT_FILENO, &error) != OK)
        return false;
    const bool can = find_string("cup") != NULL && find_string("clear") != NULL &&
                     tigetflag((char *)(uintptr_t) "hc") <= 0;
    del_curterm(cur_term);
    return can;
}
