/* Libraries beside this one that change what may be served: see loads.c. */
#ifndef GC_LOADS_H
#define GC_LOADS_H

#include <stdbool.h>

/* What a library does, by the table in loads.c. */
enum gc_loads_effect {
    GC_LOADS_OUTSIDE,   /* reaches device memory in no stream */
    GC_LOADS_REGISTRAR, /* registers device memory, each range as one piece of physical memory */
    GC_LOADS_ENCODER,   /* registers the program's memory as its input */
    GC_LOADS_CHECKER,   /* checks each access against the driver's allocations */
    GC_LOADS_PROFILER   /* shows the calls of the runtime, once it is used */
};

/* Scans the objects that were loaded since the last scan, and acts on them. Cheap where there are
 * none. Any thread; takes no lock of constructors. */
void gc_loads_scan(void);
/* The program uses NVENC: from now on each allocation is one of the driver's own. */
void gc_loads_serve_encoder(void);
/* Whether a scan has found such a library. */
bool gc_loads_has(enum gc_loads_effect effect);
/* Whether `code` belongs to such a library. */
bool gc_loads_is_code(const void *code, enum gc_loads_effect effect);

#endif
