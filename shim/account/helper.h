/* The thread that answers other processes. */
#ifndef GC_HELPER_H
#define GC_HELPER_H

/* Starts it if the process has a group and it does not run yet. */
void gc_helper_start(void);

#endif
