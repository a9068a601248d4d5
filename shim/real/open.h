/* Objects that the library opens for itself, and those that it keeps loaded: see open.c. */
#ifndef GC_OPEN_H
#define GC_OPEN_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

/* An object that is opened once. Static: a thread may still open it after every wait is over. */
struct gc_open_task {
    _Atomic(uint32_t) state;
    char path[PATH_MAX];
    const char *symbol; /* looked up in it; NULL: none */
    /* Once it is open: */
    void *found;
    char error[512]; /* the dynamic linker's; "": it is there, and the symbol was found */
};

/* Opens `path`, by the dynamic linker's rules, with its symbols local; the first call of the task
 * decides. True: it was opened, or failed to, and the task has the result. False: another thread
 * has held the dynamic linker's lock all the time; a later call may find that it is open. */
bool gc_open_object(struct gc_open_task *task, const char *path);
/* The same for the unwinder, which glibc's backtrace opens at its first call. */
bool gc_open_unwinder(void);
/* Opens `path` in this thread, which waits for the dynamic linker's lock: where a program without
 * the library waits for it too. */
bool gc_open_here(const char *path);

/* The object that contains `code` is not unloaded from now on. Takes no lock: gc_open_pin does the
 * work. */
void gc_open_keep(const void *code);
/* The program is about to unload objects. */
void gc_open_pin(void);

#endif
