/* Between dlsym.S and route.c. */
#ifndef GC_ROUTE_H
#define GC_ROUTE_H

/* In two registers: `jump` to the real function, or if that is NULL return `answer`. */
#include "shim/elf.h"

struct gc_route {
    void *jump;
    void *answer;
};

struct gc_route gc_route_dlsym(void *handle, const char *name, const void *caller);
struct gc_route gc_route_dlvsym(void *handle, const char *name, const char *version,
                                const void *caller);
/* What dlopen goes on with. */
void *gc_route_dlopen(const char *path);

/* Whether `code` belongs to a shared CUDA runtime; whether both addresses belong to one loaded
 * object. */
bool gc_route_is_in_runtime(const void *code);
bool gc_route_is_same_object(const struct gc_libc *libc, const void *a, const void *b);

#endif
