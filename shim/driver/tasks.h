/* The other tasks of a parallel job. */
#ifndef GC_TASKS_H
#define GC_TASKS_H

#include <stdbool.h>
#include <stddef.h>

/* Whether a task of this process's job runs on this machine without the library: it cannot open
 * handles of the library's own. Then `text` names it. */
bool gc_tasks_find_stray(char *text, size_t bytes);

#endif
