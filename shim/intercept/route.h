/* Between dlsym.S and route.c. */
#ifndef GC_ROUTE_H
#define GC_ROUTE_H

#include "shim/intercept/resolve.h"

#define GC_ROUTE_RUNTIME "libcudart.so" /* how the shared runtimes' files begin */

/* In two registers: `jump` to the real function, or if that is NULL return `answer`. */
struct gc_route {
    void *jump;
    void *answer;
};

struct gc_route gc_route_dlsym(void *handle, const char *name, const void *caller);
struct gc_route gc_route_dlvsym(void *handle, const char *name, const char *version,
                                const void *caller);
/* What dlopen goes on with. */
void *gc_route_dlopen(const char *path, const void *caller);

/* Whether `code` belongs to a shared CUDA runtime. */
bool gc_route_is_in_runtime(const void *code);

/* What the row's name meant behind us in the program's scope when the library started, or first
 * asked; NULL: nothing. */
void *gc_route_behind_us(const struct gc_row *row);
/* What it means now: takes the dynamic linker's lock. */
void *gc_route_behind_us_now(const struct gc_row *row);
/* Looks once, and keeps what it finds and the first of the runtimes. Takes that lock; never waits
 * for another thread. */
void gc_route_look_behind(void);
/* The object that holds `code` stays loaded from now on. The first time it takes that lock. */
void gc_route_keep(const void *code);

#endif
