/* The library's own threads: see helper.c. */
#ifndef GC_HELPER_H
#define GC_HELPER_H

#include <stdbool.h>

/* Starts the thread that answers other processes, once, if the process has a group. */
void gc_helper_start(void);
/* Starts the thread that answers processes which open blocks of this one, at the first call. False:
 * no process can open any. */
bool gc_helper_share(void);
/* Wakes the thread that compares accounts (core/reclaim/reconcile.c); starts it at the first call.
 */
void gc_helper_compare(void);

#endif
