/* Internal to the stacks: the objects of the process, each with the time it was loaded. An object
 * that is unloaded before a stack is printed keeps its name, and is not confused with a later
 * object at its addresses.
 *
 * Thread-safe without a lock: one thread scans at a time, the others use the known entries. */
#ifndef GC_STACK_OBJECTS_H
#define GC_STACK_OBJECTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GC_OBJECTS_MAX 1024 /* later ones have no name once they are unloaded */

/* An object that was loaded at scan `since` and unloaded by scan `until` (0: still loaded). */
struct gc_object_record {
    uintptr_t start; /* first page */
    uintptr_t end;
    uint32_t name; /* number from `intern` */
    uint32_t since;
    _Atomic uint32_t until;
    uint32_t seen;          /* the last scan that found it; written by the scanning thread */
    _Atomic bool is_shared; /* another object had some of its addresses */
};

/* Zeroed: nothing scanned yet. */
struct gc_objects {
    atomic_flag is_scanning;
    _Atomic unsigned long long loads; /* objects ever loaded, as of the last scan */
    _Atomic uint32_t scan;            /* number of the last scan, from 1 */
    _Atomic uint32_t count;
    _Atomic bool has_shared;
    struct gc_object_record past[GC_OBJECTS_MAX];
};

/* Interns a path and returns its number; 0: the table is full. */
typedef uint32_t gc_stack_intern_path(void *argument, const char *path);

/* Scans the objects if more have been loaded since the last scan. */
void gc_objects_refresh(struct gc_objects *objects, unsigned long long loads,
                        gc_stack_intern_path *intern, void *argument);
/* A key that separates stacks with equal addresses in different objects: a number for the loaded
 * objects that contain frames and share their addresses with others. 0: none. */
uint64_t gc_objects_key(const struct gc_objects *objects, const uint64_t *frames, uint32_t count);
/* The object that had the address at the scan; NULL: not known. */
const struct gc_object_record *gc_objects_find(const struct gc_objects *objects, uintptr_t address,
                                               uint32_t scan);

struct gc_stack_object {
    uintptr_t start;
    uintptr_t end;
};

/* The object that contains an address, and how many objects have been loaded so far. */
bool gc_objects_find_loaded(uintptr_t address, struct gc_stack_object *object,
                            unsigned long long *loads);

#endif
