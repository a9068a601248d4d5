/* The thread that answers other processes. */
#ifndef GC_HELPER_H
#define GC_HELPER_H

/* Starts the thread, once, if the process has a group. */
void gc_helper_start(void);

#endif
