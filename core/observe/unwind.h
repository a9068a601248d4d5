/* Inside stacks.c: frames of the calling thread. A frame is the address behind a call, or, with its
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

/* Numbers texts, "function" NUL "file" NUL. 0: there is no room. */
typedef uint32_t gc_stack_intern(void *argument, const char *function, const char *file);

struct gc_python;

/* What is known of the process's objects. Zero bytes know nothing yet. */
struct gc_unwind_scope {
    struct gc_stack_object own;             /* this library */
    _Atomic(struct gc_python *) python;     /* once it was found; never freed, a thread uses it */
    _Atomic unsigned long long searched_at; /* objects that had been loaded when it was not */
    struct gc_objects objects;
};

void gc_unwind_scope_init(struct gc_unwind_scope *scope);

/* Innermost first, at most `max`; returns how many. `intern` is called for Python's. */
uint32_t gc_unwind_frames(struct gc_unwind_scope *scope, struct gc_host_mem *host, uint64_t *frames,
                          uint32_t max, gc_stack_intern *intern, void *argument);

/* An address as "function+0x12 (/path/object+0x345)". `start` and `name` are those of the object
 * that it was in when the stack was taken; where that is no longer there, "/path/object+0x345".
 * NULL: not known. */
void gc_unwind_describe(uint64_t address, uintptr_t start, const char *name, char *text,
                        size_t size);

/* ---- stack_python.c ---- */

/* The interpreter in this process; NULL: there is none. `loads`, as gc_unwind_find_object says. */
struct gc_python *gc_python_find(struct gc_unwind_scope *scope, struct gc_host_mem *host,
                                 unsigned long long loads);
bool gc_python_has(const struct gc_python *python, uintptr_t address);
/* Frames of the Python code that the calling thread runs; 0 if it runs none or they
 * could not be read in time. */
uint32_t gc_python_frames(struct gc_python *python, uint64_t *frames, uint32_t max,
                          gc_stack_intern *intern, void *argument);

#endif
