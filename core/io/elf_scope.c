/* Scopes, places and imports of loaded objects: see elf.h. */
#define _GNU_SOURCE
#include "core/io/elf.h"
#include "core/io/elf_object.h"

#include <string.h>

/* ---- an object's own scope ---- */

#define SCOPE_MAX 256 /* objects beyond the nearest are not searched */

/* The objects that an object needs, directly or not, nearest first: the order of dlsym. */
struct gc_elf_closure {
    struct gc_elf_range holder;
    const char *name;
    void *found;
    uint32_t count;
    struct {
        uintptr_t base;
        const ElfW(Dyn) * dynamic;
    } members[SCOPE_MAX];
};

/* Returns whether the name is found in the added object. */
static bool scope_add(struct gc_elf_closure *scope, const struct gc_elf_object *object)
{
    for (uint32_t i = 0; i < scope->count; i++)
        if (scope->members[i].dynamic == object->dynamic)
            return false;
    if (scope->count == SCOPE_MAX)
        return false;
    scope->members[scope->count].base = object->base;
    scope->members[scope->count++].dynamic = object->dynamic;
    scope->found = gc_elf_object_find(object, scope->name);
    return scope->found != NULL;
}

/* Opens the object if that is its file's name or its soname. */
static bool open_named(struct gc_elf_object *object, const struct dl_phdr_info *info,
                       const char *name)
{
    return gc_elf_object_open(object, info) &&
           (strcmp(gc_elf_file_name(info->dlpi_name), name) == 0 ||
            strcmp(object->soname, name) == 0);
}

struct need {
    struct gc_elf_closure *scope;
    const char *name;
};

static int find_needed(struct dl_phdr_info *info, size_t size, void *argument)
{
    const struct need *need = argument;
    struct gc_elf_object object;

    (void)size;
    if (!open_named(&object, info, need->name))
        return 0;
    (void)scope_add(need->scope, &object);
    return 1;
}

static void add_needed(struct gc_elf_closure *scope, uint32_t member)
{
    const uintptr_t base = scope->members[member].base;
    const ElfW(Dyn) *const first = scope->members[member].dynamic;
    const char *strings = NULL;

    for (const ElfW(Dyn) *at = first; at->d_tag != DT_NULL; at++)
        if (at->d_tag == DT_STRTAB)
            strings = gc_elf_object_table(base, at->d_un.d_ptr);
    for (const ElfW(Dyn) *at = first; at->d_tag != DT_NULL && scope->found == NULL; at++) {
        if (at->d_tag != DT_NEEDED)
            continue;
        struct need need = {scope, gc_elf_file_name(strings + at->d_un.d_val)};
        gc_elf_walk(find_needed, &need);
    }
}

/* Runs under the dynamic linker's recursive lock: no object is unloaded meanwhile. */
static int search_scope(struct dl_phdr_info *info, size_t size, void *argument)
{
    struct gc_elf_closure *scope = argument;
    struct gc_elf_object object;

    (void)size;
    if (!gc_elf_object_holds(info, &scope->holder))
        return 0;
    if (gc_elf_file_name(info->dlpi_name)[0] != '\0' && gc_elf_object_open(&object, info) &&
        !scope_add(scope, &object))
        for (uint32_t i = 0; i < scope->count && scope->found == NULL; i++)
            add_needed(scope, i);
    return 1;
}

void *gc_elf_find_in_scope(const void *address, const char *name)
{
    struct gc_elf_closure scope; /* not zeroed as a whole: it is large */

    scope.holder.address = (uintptr_t)address;
    scope.name = name;
    scope.found = NULL;
    scope.count = 0;
    gc_elf_walk(search_scope, &scope);
    return scope.found;
}

/* ---- closures ---- */

struct closure_search {
    const char *name;
    gc_elf_visit_closure_function *visit;
    void *argument;
    struct gc_elf_closure *closure;
};

static int visit_named(struct dl_phdr_info *info, size_t size, void *argument)
{
    const struct closure_search *search = argument;
    struct gc_elf_object object;

    (void)size;
    if (!open_named(&object, info, search->name))
        return 0;
    (void)scope_add(search->closure, &object);
    for (uint32_t i = 0; i < search->closure->count; i++)
        add_needed(search->closure, i);
    search->visit(search->argument, search->closure);
    return 1;
}

bool gc_elf_visit_closure(const char *name, gc_elf_visit_closure_function *visit, void *argument)
{
    struct gc_elf_closure closure; /* not zeroed as a whole: it is large */
    struct closure_search search = {name, visit, argument, &closure};

    closure.name = ""; /* no function has it */
    closure.found = NULL;
    closure.count = 0;
    return gc_elf_walk(visit_named, &search) != 0;
}

bool gc_elf_closure_open(const struct gc_elf_closure *closure, unsigned number,
                         struct gc_elf_object *object)
{
    return number < closure->count && gc_elf_object_read(object, closure->members[number].base,
                                                         closure->members[number].dynamic);
}

void *gc_elf_closure_find(const struct gc_elf_closure *closure, const char *name)
{
    struct gc_elf_object object;
    void *found = NULL;

    for (unsigned i = 0; found == NULL && gc_elf_closure_open(closure, i, &object); i++)
        found = gc_elf_object_find(&object, name);
    return found;
}

/* ---- what is loaded ---- */

struct loads {
    struct gc_elf_loads *known;
    gc_elf_visit *visit;
    void *argument;
    unsigned place, first_new;
};

static int visit_load(struct dl_phdr_info *info, size_t size, void *argument)
{
    struct loads *loads = argument;

    (void)size;
    if (loads->place == 0) {
        if (info->dlpi_adds == loads->known->loaded && info->dlpi_subs == loads->known->unloaded)
            return 1;
        loads->first_new = info->dlpi_subs == loads->known->unloaded ? loads->known->count : 0;
        loads->known->loaded = info->dlpi_adds;
        loads->known->unloaded = info->dlpi_subs;
    }
    if (loads->place >= loads->first_new && loads->visit != NULL)
        loads->visit(loads->argument, info->dlpi_name != NULL ? info->dlpi_name : "");
    loads->known->count = ++loads->place;
    return 0;
}

void gc_elf_visit_loads(struct gc_elf_loads *known, gc_elf_visit *visit, void *argument)
{
    struct loads loads = {known, visit, argument, 0, 0};

    gc_elf_walk(visit_load, &loads);
}

void gc_elf_count_loads(struct gc_elf_loads *now)
{
    *now = (struct gc_elf_loads){0, 0, 0};
    gc_elf_visit_loads(now, NULL, NULL);
}

struct place_of {
    const ElfW(Dyn) * dynamic;
    unsigned place;
    const char *path;
};

static int find_place(struct dl_phdr_info *info, size_t size, void *argument)
{
    struct place_of *of = argument;
    struct gc_elf_object object;

    (void)size;
    if (gc_elf_object_open(&object, info) && object.dynamic == of->dynamic) {
        of->path = info->dlpi_name != NULL ? info->dlpi_name : "";
        return 1;
    }
    of->place++;
    return 0;
}

bool gc_elf_object_place(const struct gc_elf_object *object, unsigned *place, const char **path)
{
    struct place_of of = {object->dynamic, 0, ""};
    const bool is_found = gc_elf_walk(find_place, &of) != 0;

    *place = of.place;
    *path = of.path;
    return is_found;
}

struct mention {
    const ElfW(Dyn) * dynamic;
    const char *text;
    size_t bytes;
    bool has_text;
};

static int find_mention(struct dl_phdr_info *info, size_t size, void *argument)
{
    struct mention *mention = argument;
    struct gc_elf_object object;

    (void)size;
    if (!gc_elf_object_open(&object, info) || object.dynamic != mention->dynamic)
        return 0;
    for (unsigned i = 0; i < info->dlpi_phnum && !mention->has_text; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        const void *start = (const void *)(info->dlpi_addr + segment->p_vaddr);

        if (segment->p_type != PT_LOAD || (segment->p_flags & (PF_R | PF_W | PF_X)) != PF_R)
            continue;
        const size_t bytes =
            segment->p_filesz < mention->bytes ? segment->p_filesz : mention->bytes;
        mention->has_text = memmem(start, bytes, mention->text, strlen(mention->text)) != NULL;
        mention->bytes -= bytes;
    }
    return 1;
}

bool gc_elf_object_mentions(const struct gc_elf_object *object, const char *text, size_t bytes)
{
    struct mention mention = {object->dynamic, text, bytes, false};

    gc_elf_walk(find_mention, &mention);
    return mention.has_text;
}

/* ---- the place of an address ---- */

struct place_search {
    struct gc_elf_range range;
    gc_elf_visit_place_function *visit;
    void *argument;
};

/* Finds the symbol as dladdr does: of the symbols that contain the address, the one that begins
 * last. */
static void name_place(const struct gc_elf_object *object, uintptr_t address,
                       struct gc_elf_location *location)
{
    const uint32_t bucket_count = object->gnu_hash[0], first = object->gnu_hash[1];
    const uint32_t *buckets =
        object->gnu_hash + 4 + object->gnu_hash[2] * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
    const uint32_t *chain = buckets + bucket_count;

    for (uint32_t bucket = 0; bucket < bucket_count; bucket++) {
        uint32_t i = buckets[bucket];

        for (bool is_last = i < first; !is_last; i++) {
            const ElfW(Sym) *symbol = &object->symbols[i];
            const uintptr_t start = object->base + symbol->st_value;

            is_last = chain[i - first] & 1;
            if (symbol->st_shndx != SHN_UNDEF && ELF64_ST_TYPE(symbol->st_info) != STT_TLS &&
                address >= start && (address < start + symbol->st_size || address == start) &&
                start > location->symbol_start) {
                location->symbol_start = start;
                location->symbol = object->strings + symbol->st_name;
            }
        }
    }
}

static int visit_place(struct dl_phdr_info *info, size_t size, void *argument)
{
    struct place_search *search = argument;
    struct gc_elf_object object;

    (void)size;
    if (!gc_elf_object_holds(info, &search->range))
        return 0;
    struct gc_elf_location location = {.path = info->dlpi_name != NULL ? info->dlpi_name : "",
                                       .start = search->range.low};
    if (gc_elf_object_open(&object, info))
        name_place(&object, search->range.address, &location);
    search->visit(search->argument, &location);
    return 1;
}

void gc_elf_visit_place(const void *address, gc_elf_visit_place_function *visit, void *argument)
{
    struct place_search search = {{.address = (uintptr_t)address}, visit, argument};

    if (gc_elf_walk(visit_place, &search) == 0)
        visit(argument, NULL);
}

/* ---- imports of the program ---- */

struct imports {
    const char *name;
    bool is_found;
};

static bool is_name(void *name, const char *import)
{
    return strcmp(import, name) == 0;
}

/* The program itself comes first. */
static int find_import(struct dl_phdr_info *info, size_t size, void *argument)
{
    struct imports *imports = argument;
    struct gc_elf_object object;

    (void)size;
    imports->is_found =
        gc_elf_object_open(&object, info) &&
        gc_elf_object_visit_imports(&object, is_name, (void *)(uintptr_t)imports->name);
    return 1;
}

bool gc_elf_program_imports(const char *name)
{
    struct imports imports = {.name = name};

    gc_elf_walk(find_import, &imports);
    return imports.is_found;
}
