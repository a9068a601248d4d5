/* The end of a thread that has state of the library: the destructor of a pthread key. Setting the
 * key takes no lock, where __cxa_thread_atexit_impl takes the dynamic linker's, which another
 * thread may hold while it waits for this one. exit calls no such destructor: the state of the
 * thread that ends the process stays. */
#ifndef GC_THREAD_END_H
#define GC_THREAD_END_H

#include <stdbool.h>

/* Once, at the start: `end` is called in each watched thread when it ends. */
void gc_thread_end_start(void (*end)(void *unused));
/* Watches the calling thread. False: its end cannot be seen. */
bool gc_thread_watch_end(void);

#endif
