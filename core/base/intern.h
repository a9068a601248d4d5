/* An interning table: each byte string is stored once, is found by its content and is never
 * removed. A string has a number, and beside it a few counters for the table's owner.
 *
 * Lock-free. A look-up that finds the string costs a probe or two. Threads may race to fill a slot;
 * the loser's copy is wasted. Memory is reserved address space that costs where it is written. */
#ifndef GC_INTERN_H
#define GC_INTERN_H

#include "core/base/host_mem.h"
#include "core/base/status.h"

#include <stddef.h>

#define GC_INTERN_COUNTERS 6

struct gc_intern {
    struct gc_host_mem *host;
    char *room;
    _Atomic uint64_t used;
    _Atomic uint32_t *slots;
    uint64_t room_bytes;
    uint32_t slot_count; /* a power of two */
    _Atomic uint32_t count;
};

/* The table holds about half as many strings as it has slots. GC_NO_HOST_MEMORY. */
enum gc_status gc_intern_init(struct gc_intern *intern, struct gc_host_mem *host,
                              uint32_t slot_count, uint64_t room_bytes) GC_CHECKED;
void gc_intern_fini(struct gc_intern *intern);

/* The string's number; 0 if the table is full. */
uint32_t gc_intern_add(struct gc_intern *intern, const void *string, uint32_t bytes);
/* The string of a number that gc_intern_add returned. */
const void *gc_intern_string(const struct gc_intern *intern, uint32_t number, uint32_t *bytes);
_Atomic uint64_t *gc_intern_counters(const struct gc_intern *intern, uint32_t number);
/* Calls `visit` for every string. */
void gc_intern_visit(const struct gc_intern *intern, void (*visit)(void *argument, uint32_t number),
                     void *argument);

#endif
