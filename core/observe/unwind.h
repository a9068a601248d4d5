/* Internal to the stacks: frames of the calling thread. A frame is a return address or, with its
 * top bit set, a place in Python code: the number of a text, and a line. */
#ifndef GC_UNWIND_H
#define GC_UNWIND_H

#include "core/base/host_mem.h"
#include "core/observe/objects.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GC_FRAME_PYTHON (UINT64_C(1) << 63)
#define GC_FRAME_LINE_BITS 24

/* Interns "function" NUL "file" NUL and returns its number. 0: the table is full. */
typedef uint32_t gc_stack_intern(void *argument, const char *function, const char *file);

struct gc_python;

/* The known objects of the process. Zeroed: nothing known yet. */
struct gc_unwind_scope {
    struct gc_stack_object own;             /* this library */
    _Atomic(struct gc_python *) python;     /* set once found; never freed: the reader uses it */
    _Atomic unsigned long long searched_at; /* objects loaded at the last search without result */
    struct gc_objects objects;
};

void gc_unwind_scope_init(struct gc_unwind_scope *scope);

/* Captures at most `max` frames, innermost first; returns their number. `intern` is called for
 * Python's frames. */
uint32_t gc_unwind_frames(struct gc_unwind_scope *scope, struct gc_host_mem *host, uint64_t *frames,
                          uint32_t max, gc_stack_intern *intern, void *argument);

/* An address as "function+0x12 (/path/object+0x345)". `start` and `name` describe the object that
 * contained it at capture; if that object is unloaded the text is "/path/object+0x345". `name`
 * NULL: not known. */
void gc_unwind_describe(uint64_t address, uintptr_t start, const char *name, char *text,
                        size_t size);

/* ---- python.c ---- */

/* The interpreter of this process; NULL: there is none. `loads` comes from
 * gc_objects_find_loaded. */
struct gc_python *gc_python_find(struct gc_unwind_scope *scope, struct gc_host_mem *host,
                                 unsigned long long loads);
bool gc_python_has(const struct gc_python *python, uintptr_t address);
/* Frames of the Python code that the calling thread runs; 0 if it runs none or they could not be
 * read in time. */
uint32_t gc_python_frames(struct gc_python *python, uint64_t *frames, uint32_t max,
                          gc_stack_intern *intern, void *argument);

#endif
