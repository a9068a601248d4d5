/* The native part of a stack is walked by glibc's backtrace, by means of libgcc's unwinder. The
 * unwinder reads the tables that every object has for exceptions, so code needs no frame pointers.
 * backtrace opens libgcc_s on its first call, which the library makes while it holds no lock. */
#define _GNU_SOURCE
#include "core/observe/unwind.h"

#include "core/base/bits.h"
#include "core/io/elf.h"
#include "core/io/elf_object.h"
#include "core/io/text.h"
#include "core/observe/stacks.h"

#include <link.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define WALK_MAX 64

static bool is_inside(const struct gc_stack_object *object, uintptr_t address)
{
    return address >= object->start && address < object->end;
}

void gc_unwind_scope_init(struct gc_unwind_scope *scope)
{
    void *walked[4];
    *scope = (struct gc_unwind_scope){.own = {0, 0}};
    if (!gc_objects_find_loaded((uintptr_t)&gc_unwind_scope_init, &scope->own, NULL))
        scope->own = (struct gc_stack_object){0, 0};
    (void)gc_elf_backtrace(walked, 4); /* opens the unwinder */
}

/* The program's call entered this library at the library's outermost frame; a CUDA runtime may be
 * in between. If the library is part of the program, no frame is outside it: then the innermost
 * frames are dropped. */
static int first_of_program(const struct gc_unwind_scope *scope, void *const *walked, int depth)
{
    int first = depth;
    while (first > 0 && !is_inside(&scope->own, (uintptr_t)walked[first - 1]))
        first--;
    if (first < depth)
        return first;
    for (first = 0; first < depth && is_inside(&scope->own, (uintptr_t)walked[first]);)
        first++;
    return first;
}

struct naming {
    gc_stack_intern *intern;
    void *argument;
};

static uint32_t intern_path(void *argument, const char *path)
{
    const struct naming *naming = argument;
    return naming->intern(naming->argument, "", path);
}

uint32_t gc_unwind_frames(struct gc_unwind_scope *scope, struct gc_host_mem *host, uint64_t *frames,
                          uint32_t max, gc_stack_intern *intern, void *argument)
{
    void *walked[WALK_MAX];
    unsigned long long loads;
    uint32_t count = 0;
    const int depth = gc_elf_backtrace(walked, WALK_MAX);
    const int first = first_of_program(scope, walked, depth);
    (void)gc_objects_find_loaded(0, NULL, &loads);
    gc_objects_refresh(&scope->objects, loads, intern_path, &(struct naming){intern, argument});
    struct gc_python *python = gc_python_find(scope, host, loads);
    for (int i = first; i < depth && count < max; i++) {
        const uintptr_t address = (uintptr_t)walked[i];
        if (python != NULL && gc_python_has(python, address)) {
            const uint32_t more =
                gc_python_frames(python, frames + count, max - count, intern, argument);
            if (more > 0)
                return count + more;
        }
        frames[count++] = address;
    }
    return count;
}

/* The program itself has no name. */
static const char *file_of(const struct gc_elf_location *location, char *path, size_t size)
{
    if (location->path[0] == '/')
        return location->path;
    const ssize_t length = location->path[0] == '\0' ? readlink("/proc/self/exe", path, size) : 0;
    if (length <= 0 || (size_t)length == size)
        return location->path;
    path[length] = '\0';
    return path;
}

struct description {
    uint64_t address;
    uintptr_t start; /* start of the object at capture */
    const char *name;
    char *text;
    size_t size;
};

static void describe(void *argument, const struct gc_elf_location *location)
{
    const struct description *of = argument;
    const uintptr_t page = (uintptr_t)getpagesize() - 1;
    const uintptr_t start = location != NULL ? location->start & ~page : 0;
    /* A long name keeps its end. */
    if (of->name != NULL &&
        (location == NULL || start != of->start || !gc_text_ends_with(location->path, of->name))) {
        snprintf(of->text, of->size, "%s+0x%llx", of->name,
                 (unsigned long long)(of->address - of->start));
        return;
    }
    if (location == NULL) {
        snprintf(of->text, of->size, "0x%llx", (unsigned long long)of->address);
        return;
    }
    const unsigned long long offset = of->address - start;
    char path[GC_STACK_TEXT_BYTES];
    const char *file = file_of(location, path, sizeof(path));
    if (location->symbol != NULL)
        snprintf(of->text, of->size, "%s+0x%llx (%s+0x%llx)", location->symbol,
                 (unsigned long long)(of->address - location->symbol_start), file, offset);
    else
        snprintf(of->text, of->size, "%s+0x%llx", file, offset);
}

void gc_unwind_describe(uint64_t address, uintptr_t start, const char *name, char *text,
                        size_t size)
{
    struct description of = {address, start, name, text, size};
    /* A return address may be past its function's end: the call is before it. */
    gc_elf_visit_place((const void *)(uintptr_t)(address - 1), describe, &of);
}
