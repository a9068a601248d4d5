/* The library's own threads: see helper.c. */
#ifndef GC_HELPER_H
#define GC_HELPER_H

/* Starts the thread that answers other processes, once, if the process has a group. */
void gc_helper_start(void);
/* Wakes the thread that compares accounts (core/reclaim/reconcile.c); starts it at the first call.
 */
void gc_helper_compare(void);

#endif
