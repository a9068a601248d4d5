/* Inside stacks.c: the objects of the process, and when each was there. What is unloaded before a
 * stack is shown keeps its name, and is not taken for what lies at its addresses by then.
 *
 * Thread-safe without a lock: one thread looks at a time, others go on with what is known. */
#ifndef GC_STACK_OBJECTS_H
#define GC_STACK_OBJECTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GC_OBJECTS_MAX 1024 /* what comes later has no name once it is gone */

/* An object from the look `since` on, before the look `until`; 0: it is still there. */
struct gc_object_record {
    uintptr_t start; /* of its first page */
    uintptr_t end;
    uint32_t name; /* as `intern` numbers it */
    uint32_t since;
    _Atomic uint32_t until;
    uint32_t seen;          /* the last look that found it; of who looks */
    _Atomic bool is_shared; /* another one had some of its addresses */
};

/* Zero bytes know nothing yet. */
struct gc_objects {
    atomic_flag is_looking;
    _Atomic unsigned long long loads; /* objects that had been loaded at the last look */
    _Atomic uint32_t scan;            /* its number, from 1 on */
    _Atomic uint32_t count;
    _Atomic bool has_shared;
    struct gc_object_record past[GC_OBJECTS_MAX];
};

/* Numbers a path; 0: there is no room. */
typedef uint32_t gc_stack_intern_path(void *argument, const char *path);

/* Looks at them where more have been loaded than at the last look. */
void gc_objects_refresh(struct gc_objects *objects, unsigned long long loads,
                        gc_stack_intern_path *intern, void *argument);
/* Tells stacks of the same addresses apart, where these are of other objects by now: a number for
 * the ones among the objects there are that frames lie in and that share their addresses. 0: none.
 */
uint64_t gc_objects_key(const struct gc_objects *objects, const uint64_t *frames, uint32_t count);
/* The object that had the address at the look; NULL: not known. */
const struct gc_object_record *gc_objects_find(const struct gc_objects *objects, uintptr_t address,
                                               uint32_t scan);

struct gc_stack_object {
    uintptr_t start;
    uintptr_t end;
};

/* The object that an address lies in, and how many objects have been loaded so far. */
bool gc_unwind_find_object(uintptr_t address, struct gc_stack_object *object,
                           unsigned long long *loads);

#endif
