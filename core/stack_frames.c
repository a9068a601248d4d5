/* The native part of a stack is walked by glibc's backtrace, which has libgcc's unwinder do it: it
 * reads the unwind tables that every object has for its exceptions, so code needs no frame
 * pointers. It opens libgcc_s on its first call, which is made when nothing is held. */
#define _GNU_SOURCE
#include "core/stack_frames.h"

#include "core/bits.h"
#include "core/stacks.h"
#include "core/text.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#define WALK_MAX 64

struct search {
    uintptr_t address;
    struct gc_stack_object object;
    bool found;
    unsigned long long loads;
};

static int look_at(struct dl_phdr_info *info, size_t size, void *argument)
{
    struct search *search = argument;
    struct gc_stack_object object = {UINTPTR_MAX, 0};
    (void)size;
    search->loads = info->dlpi_adds;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        const uintptr_t start = info->dlpi_addr + header->p_vaddr;
        if (header->p_type != PT_LOAD)
            continue;
        object.start = gc_min_u64(object.start, start);
        object.end = gc_max_u64(object.end, start + header->p_memsz);
    }
    if (search->address < object.start || search->address >= object.end)
        return search->address == 0; /* the count alone was asked for */
    search->object = object;
    search->found = true;
    return 1;
}

bool gc_stack_find_object(uintptr_t address, struct gc_stack_object *object,
                          unsigned long long *loads)
{
    struct search search = {.address = address};
    dl_iterate_phdr(look_at, &search);
    if (loads != NULL)
        *loads = search.loads;
    if (search.found && object != NULL)
        *object = search.object;
    return search.found;
}

static bool is_inside(const struct gc_stack_object *object, uintptr_t address)
{
    return address >= object->start && address < object->end;
}

void gc_stack_scope_init(struct gc_stack_scope *scope)
{
    void *walked[4];
    *scope = (struct gc_stack_scope){.own = {0, 0}};
    if (!gc_stack_find_object((uintptr_t)&gc_stack_scope_init, &scope->own, NULL))
        scope->own = (struct gc_stack_object){0, 0};
    (void)!backtrace(walked, 4); /* opens the unwinder */
}

/* What the program called is this library's outermost frame; a runtime may lie within. Where
 * nothing lies outside, because the library is part of the program, the innermost ones are left
 * out. */
static int first_of_program(const struct gc_stack_scope *scope, void *const *walked, int depth)
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

uint32_t gc_stack_frames(struct gc_stack_scope *scope, struct gc_host *host, uint64_t *frames,
                         uint32_t max, gc_stack_intern *intern, void *argument)
{
    void *walked[WALK_MAX];
    unsigned long long loads;
    uint32_t count = 0;
    const int depth = backtrace(walked, WALK_MAX);
    const int first = first_of_program(scope, walked, depth);
    (void)gc_stack_find_object(0, NULL, &loads);
    gc_stack_objects_see(&scope->objects, loads, intern_path, &(struct naming){intern, argument});
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

/* The main program goes by what it was called as, which need not be a path from the root. */
static const char *file_of(int (*look_up)(const void *, Dl_info *), const Dl_info *info, char *path,
                           size_t size)
{
    Dl_info program;
    if (info->dli_fname[0] == '/' || look_up((void *)getauxval(AT_PHDR), &program) == 0 ||
        program.dli_fbase != info->dli_fbase)
        return info->dli_fname;
    const ssize_t length = readlink("/proc/self/exe", path, size);
    if (length <= 0 || (size_t)length == size)
        return info->dli_fname;
    path[length] = '\0';
    return path;
}

void gc_stack_describe(uint64_t address, uintptr_t start, const char *name, char *text, size_t size)
{
    /* Not linked against: its symbol has another version in newer C libraries. */
    int (*look_up)(const void *, Dl_info *);
    Dl_info info;
    *(void **)&look_up = dlsym(RTLD_DEFAULT, "dladdr");
    /* A return address may be behind its function's end: the call is before it. */
    const bool is_known = look_up != NULL &&
                          look_up((void *)(uintptr_t)(address - 1), &info) != 0 &&
                          info.dli_fname != NULL;
    /* Long names are kept by their ends. */
    if (name != NULL && (!is_known || (uintptr_t)info.dli_fbase != start ||
                         !gc_text_ends_with(info.dli_fname, name))) {
        snprintf(text, size, "%s+0x%llx", name, (unsigned long long)(address - start));
        return;
    }
    if (!is_known) {
        snprintf(text, size, "0x%llx", (unsigned long long)address);
        return;
    }
    const unsigned long long offset = address - (uintptr_t)info.dli_fbase;
    char path[GC_STACK_TEXT_BYTES];
    const char *file = file_of(look_up, &info, path, sizeof(path));
    if (info.dli_sname != NULL)
        snprintf(text, size, "%s+0x%llx (%s+0x%llx)", info.dli_sname,
                 (unsigned long long)(address - (uintptr_t)info.dli_saddr), file, offset);
    else
        snprintf(text, size, "%s+0x%llx", file, offset);
}
