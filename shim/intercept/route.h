/* Between dlsym.S and route.c. */
#ifndef GC_ROUTE_H
#define GC_ROUTE_H

#include "shim/real/resolve.h"

/* In two registers: `jump` to the real function, or if that is NULL return `answer`. */
struct gc_route {
    void *jump;
    void *answer;
};

struct gc_route gc_route_dlsym(void *handle, const char *name, const void *caller);
struct gc_route gc_route_dlvsym(void *handle, const char *name, const char *version,
                                const void *caller);
/* Prepares a load of `path` with dlopen's flags. Returns the real dlopen, to jump to; NULL: there
 * is none. */
void *gc_route_dlopen(const char *path, int flags, const void *caller);
/* The same before a dlclose. */
void *gc_route_dlclose(void);

#endif
