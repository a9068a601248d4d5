/* Loaded objects: see elf.h. The lookup reads DT_GNU_HASH alone: every libc that a CUDA driver runs
 * on has it. Only defined functions count. Tables are read in place; nothing is allocated. */
#define _GNU_SOURCE
#include "core/io/elf.h"

#include <elf.h>
#include <link.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

struct object {
    uintptr_t base;
    const ElfW(Dyn) * dynamic;
    const char *strings;
    const ElfW(Sym) * symbols;
    const uint32_t *gnu_hash;
    const ElfW(Verdef) * versions; /* NULL: none */
    const char *soname;
};

/* Some dynamic linkers relocate the pointers of the dynamic section in place, others do not. */
static const void *table_at(uintptr_t base, uintptr_t value)
{
    return (const void *)(value < base ? base + value : value);
}

static bool object_read(struct object *object, uintptr_t base, const ElfW(Dyn) * dynamic)
{
    uintptr_t soname = 0;

    *object = (struct object){.base = base, .dynamic = dynamic};
    for (; dynamic != NULL && dynamic->d_tag != DT_NULL; dynamic++) {
        if (dynamic->d_tag == DT_STRTAB)
            object->strings = table_at(base, dynamic->d_un.d_ptr);
        else if (dynamic->d_tag == DT_SYMTAB)
            object->symbols = table_at(base, dynamic->d_un.d_ptr);
        else if (dynamic->d_tag == DT_GNU_HASH)
            object->gnu_hash = table_at(base, dynamic->d_un.d_ptr);
        else if (dynamic->d_tag == DT_VERDEF)
            object->versions = table_at(base, dynamic->d_un.d_ptr);
        else if (dynamic->d_tag == DT_SONAME)
            soname = dynamic->d_un.d_val;
    }
    if (object->strings == NULL || object->symbols == NULL || object->gnu_hash == NULL)
        return false;
    object->soname = soname != 0 ? object->strings + soname : "";
    return true;
}

static bool object_open(struct object *object, const struct dl_phdr_info *info)
{
    const ElfW(Dyn) *dynamic = NULL;

    for (unsigned i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
            dynamic = (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
    return object_read(object, info->dlpi_addr, dynamic);
}

static uint32_t hash_of(const char *name)
{
    uint32_t hash = 5381;

    for (; *name != '\0'; name++)
        hash = hash * 33 + (unsigned char)*name;
    return hash;
}

static void *object_find(const struct object *object, const char *name)
{
    const uint32_t bucket_count = object->gnu_hash[0], first = object->gnu_hash[1];
    const uint32_t bloom_words = object->gnu_hash[2];
    const uint32_t *buckets =
        object->gnu_hash + 4 + bloom_words * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
    const uint32_t *chain = buckets + bucket_count;
    const uint32_t hash = hash_of(name);
    uint32_t i = bucket_count == 0 ? 0 : buckets[hash % bucket_count];

    if (i < first)
        return NULL;
    for (;; i++) {
        const ElfW(Sym) *symbol = &object->symbols[i];

        if ((chain[i - first] | 1) == (hash | 1) && symbol->st_shndx != SHN_UNDEF &&
            ELF64_ST_TYPE(symbol->st_info) == STT_FUNC &&
            strcmp(object->strings + symbol->st_name, name) == 0)
            return (void *)(object->base + symbol->st_value);
        if (chain[i - first] & 1)
            return NULL;
    }
}

static int find_libc(struct dl_phdr_info *info, size_t size, void *argument)
{
    struct gc_libc *libc = argument;
    struct object object;

    (void)size;
    if (!object_open(&object, info) ||
        (strcmp(object.soname, "libc.so.6") != 0 && strcmp(object.soname, "libdl.so.2") != 0))
        return 0;
    *(void **)&libc->dlsym = object_find(&object, "dlsym");
    *(void **)&libc->dlvsym = object_find(&object, "dlvsym");
    *(void **)&libc->dlopen = object_find(&object, "dlopen");
    *(void **)&libc->dlclose = object_find(&object, "dlclose");
    *(void **)&libc->dlerror = object_find(&object, "dlerror");
    *(void **)&libc->dladdr = object_find(&object, "dladdr");
    return libc->dlsym != NULL && libc->dlvsym != NULL && libc->dlopen != NULL &&
           libc->dlclose != NULL && libc->dlerror != NULL && libc->dladdr != NULL;
}

const struct gc_libc *gc_elf_libc(void)
{
    enum { UNKNOWN, WRITING, KNOWN };
    static struct gc_libc known;
    static atomic_int state;
    static __thread struct gc_libc own __attribute__((tls_model("initial-exec")));
    int expected = UNKNOWN;

    /* acquire: pairs with the release below */
    if (atomic_load_explicit(&state, memory_order_acquire) == KNOWN)
        return &known;
    if (dl_iterate_phdr(find_libc, &own) == 0)
        return NULL;
    if (atomic_compare_exchange_strong_explicit(&state, &expected, WRITING, memory_order_relaxed,
                                                memory_order_relaxed)) {
        known = own;
        atomic_store_explicit(&state, KNOWN, memory_order_release);
    }
    /* no wait for the thread that writes: it may hold the dynamic linker's lock */
    return &own;
}

struct range {
    uintptr_t address, low, high;
};

static bool holds(const struct dl_phdr_info *info, struct range *range)
{
    uintptr_t low = UINTPTR_MAX, high = 0;

    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        uintptr_t start = info->dlpi_addr + segment->p_vaddr;

        if (segment->p_type != PT_LOAD)
            continue;
        low = start < low ? start : low;
        high = start + segment->p_memsz > high ? start + segment->p_memsz : high;
    }
    range->low = low;
    range->high = high;
    return range->address >= low && range->address < high;
}

static int find_range(struct dl_phdr_info *info, size_t size, void *argument)
{
    (void)size;
    return holds(info, argument);
}

bool gc_elf_find_range(const void *address, uintptr_t *low, uintptr_t *high)
{
    struct range range = {.address = (uintptr_t)address};

    if (dl_iterate_phdr(find_range, &range) == 0)
        return false;
    *low = range.low;
    *high = range.high;
    return true;
}

/* ---- an object's path ---- */

/* The first members of glibc's struct dl_find_object, which may grow. */
struct found_object {
    unsigned long long flags;
    void *start;
    void *end;
    struct link_map *map;
    unsigned char rest[192];
};
typedef int find_object_function(void *address, struct found_object *result);

/* Only the C library's _dl_find_object counts: any object may export one. */
static int find_finder(struct dl_phdr_info *info, size_t size, void *argument)
{
    struct object object;

    (void)size;
    if (object_open(&object, info) && strcmp(object.soname, "libc.so.6") == 0)
        *(void **)argument = object_find(&object, "_dl_find_object");
    return *(void **)argument != NULL;
}

/* NULL before glibc 2.35. Any thread may search: all find the same function. */
static find_object_function *object_finder(void)
{
    static _Atomic(void *) known;
    static atomic_bool is_known;
    void *found = NULL;
    find_object_function *finder;

    /* acquire: pairs with the release below */
    if (atomic_load_explicit(&is_known, memory_order_acquire)) {
        found = atomic_load_explicit(&known, memory_order_relaxed);
    } else {
        dl_iterate_phdr(find_finder, &found);
        atomic_store_explicit(&known, found, memory_order_relaxed);
        atomic_store_explicit(&is_known, true, memory_order_release);
    }
    *(void **)&finder = found;
    return finder;
}

/* Returns whether the search is over: an object was found, or none contains the address. */
static bool find_map(const void *address, const struct link_map **map)
{
    find_object_function *find = object_finder();
    struct found_object found;

    *map = NULL;
    if (find != NULL && find((void *)(uintptr_t)address, &found) == 0) /* NOLINT: const, in glibc */
        *map = found.map;
    return find != NULL;
}

struct path_search {
    struct range range;
    gc_elf_visit *visit;
    void *argument;
};

static int visit_holder(struct dl_phdr_info *info, size_t size, void *argument)
{
    struct path_search *search = argument;

    (void)size;
    if (!holds(info, &search->range))
        return 0;
    search->visit(search->argument, info->dlpi_name != NULL ? info->dlpi_name : "");
    return 1;
}

void gc_elf_visit_path(const void *address, gc_elf_visit *visit, void *argument)
{
    struct path_search search = {{.address = (uintptr_t)address}, visit, argument};
    const struct link_map *map;

    if (find_map(address, &map))
        visit(argument, map != NULL ? map->l_name : NULL);
    else if (dl_iterate_phdr(visit_holder, &search) == 0)
        visit(argument, NULL);
}

static const char *file_name(const char *path)
{
    const char *slash = path == NULL ? NULL : strrchr(path, '/');

    return slash != NULL ? slash + 1 : path != NULL ? path : "";
}

struct definer {
    struct range theirs, ours;
    const char *name;
    bool is_behind_us, is_found;
};

/* Objects come in the order of symbol lookup. */
static int find_definer(struct dl_phdr_info *info, size_t size, void *argument)
{
    struct definer *definer = argument;
    struct object object;

    (void)size;
    if (holds(info, &definer->theirs)) {
        definer->is_found =
            object_open(&object, info) && object_find(&object, definer->name) != NULL;
        return 1;
    }
    definer->is_behind_us |= holds(info, &definer->ours);
    return 0;
}

enum gc_elf_place gc_elf_find_definer(const void *address, const char *name)
{
    struct definer definer = {.theirs.address = (uintptr_t)address,
                              .ours.address = (uintptr_t)&gc_elf_find_definer,
                              .name = name};

    dl_iterate_phdr(find_definer, &definer);
    if (!definer.is_found)
        return GC_ELF_NO_DEFINER;
    return definer.is_behind_us ? GC_ELF_AFTER_US : GC_ELF_BEFORE_US;
}

struct next {
    struct range behind;
    const char *name;
    bool is_behind;
    void *found;
};

static int find_next(struct dl_phdr_info *info, size_t size, void *argument)
{
    struct next *next = argument;
    struct object object;

    (void)size;
    if (holds(info, &next->behind)) {
        next->is_behind = true;
        return 0;
    }
    if (!object_open(&object, info))
        return 0;
    if (next->is_behind)
        next->found = object_find(&object, next->name);
    return next->found != NULL || strcmp(object.soname, "libc.so.6") == 0;
}

void *gc_elf_find_next(const void *address, const char *name)
{
    struct next next = {.behind.address = (uintptr_t)address, .name = name};

    dl_iterate_phdr(find_next, &next);
    return next.found;
}

/* ---- libraries under other names ---- */

bool gc_elf_names_library(const char *name, const char *library)
{
    const size_t length = strlen(library);

    return strncmp(name, library, length) == 0 && (name[length] == '.' || name[length] == '-') &&
           strstr(name + length, ".so") != NULL;
}

/* Whether the object defines a symbol version that begins with "<library>.so". */
static bool has_version(const struct object *object, const char *library)
{
    const size_t length = strlen(library);

    for (const ElfW(Verdef) *at = object->versions; at != NULL;
         at = at->vd_next == 0 ? NULL : (const void *)((const char *)at + at->vd_next)) {
        const ElfW(Verdaux) *names = (const void *)((const char *)at + at->vd_aux);
        const char *name = object->strings + names->vda_name;

        if (strncmp(name, library, length) == 0 && strncmp(name + length, ".so", 3) == 0)
            return true;
    }
    return false;
}

static bool is_library(const struct object *object, const char *path, const char *library)
{
    return gc_elf_names_library(file_name(path), library) ||
           gc_elf_names_library(object->soname, library) || has_version(object, library);
}

struct library_search {
    struct range range;
    const char *library;
    bool is_it;
};

static int match_library(struct dl_phdr_info *info, size_t size, void *argument)
{
    struct library_search *search = argument;
    struct object object;

    (void)size;
    if (!holds(info, &search->range))
        return 0;
    search->is_it =
        object_open(&object, info) && is_library(&object, info->dlpi_name, search->library);
    return 1;
}

bool gc_elf_is_library(const void *address, const char *library)
{
    struct library_search search = {{.address = (uintptr_t)address}, library, false};
    const struct link_map *map;
    struct object object;

    if (find_map(address, &map))
        return map != NULL && object_read(&object, map->l_addr, map->l_ld) &&
               is_library(&object, map->l_name, library);
    dl_iterate_phdr(match_library, &search);
    return search.is_it;
}

struct named {
    const char *prefix;
    char *path;
    size_t bytes;
};

static int find_named(struct dl_phdr_info *info, size_t size, void *argument)
{
    const struct named *named = argument;
    const char *path = info->dlpi_name != NULL ? info->dlpi_name : "";
    const size_t length = strlen(path);

    (void)size;
    if (strncmp(file_name(path), named->prefix, strlen(named->prefix)) != 0 ||
        length >= named->bytes)
        return 0;
    memcpy(named->path, path, length + 1);
    return 1;
}

bool gc_elf_find_path(const char *prefix, char *path, size_t bytes)
{
    struct named named = {prefix, path, bytes};

    return dl_iterate_phdr(find_named, &named) != 0;
}

/* ---- functions by name ---- */

struct function_search {
    struct range beside; /* address 0: in any object */
    const char *library; /* "": any */
    const char *name;
    void *found;
};

static int find_function(struct dl_phdr_info *info, size_t size, void *argument)
{
    struct function_search *search = argument;
    struct object object;

    (void)size;
    if ((search->beside.address == 0 || holds(info, &search->beside)) &&
        object_open(&object, info) &&
        (search->library[0] == '\0' || is_library(&object, info->dlpi_name, search->library)))
        search->found = object_find(&object, search->name);
    return search->found != NULL;
}

void *gc_elf_find_function(const char *library, const char *name)
{
    struct function_search search = {.library = library, .name = name};

    dl_iterate_phdr(find_function, &search);
    return search.found;
}

void *gc_elf_find_in_object(const void *address, const char *name)
{
    struct function_search search = {
        .beside.address = (uintptr_t)address, .library = "", .name = name};

    dl_iterate_phdr(find_function, &search);
    return search.found;
}

bool gc_elf_is_same_object(const void *a, const void *b)
{
    uintptr_t low, high;

    return gc_elf_find_range(a, &low, &high) && (uintptr_t)b >= low && (uintptr_t)b < high;
}

/* ---- an object's own scope ---- */

#define SCOPE_MAX 256 /* objects beyond the nearest are not searched */

/* The objects that an object needs, directly or not, nearest first: the order of dlsym. */
struct scope {
    struct range holder;
    const char *name;
    void *found;
    uint32_t count;
    struct {
        uintptr_t base;
        const ElfW(Dyn) * dynamic;
    } members[SCOPE_MAX];
};

/* Returns whether the name is found in the added object. */
static bool scope_add(struct scope *scope, const struct object *object)
{
    for (uint32_t i = 0; i < scope->count; i++)
        if (scope->members[i].dynamic == object->dynamic)
            return false;
    if (scope->count == SCOPE_MAX)
        return false;
    scope->members[scope->count].base = object->base;
    scope->members[scope->count++].dynamic = object->dynamic;
    scope->found = object_find(object, scope->name);
    return scope->found != NULL;
}

struct need {
    struct scope *scope;
    const char *name;
};

static int find_needed(struct dl_phdr_info *info, size_t size, void *argument)
{
    const struct need *need = argument;
    struct object object;

    (void)size;
    if (!object_open(&object, info) || (strcmp(file_name(info->dlpi_name), need->name) != 0 &&
                                        strcmp(object.soname, need->name) != 0))
        return 0;
    (void)scope_add(need->scope, &object);
    return 1;
}

static void add_needed(struct scope *scope, uint32_t member)
{
    const uintptr_t base = scope->members[member].base;
    const ElfW(Dyn) *const first = scope->members[member].dynamic;
    const char *strings = NULL;

    for (const ElfW(Dyn) *at = first; at->d_tag != DT_NULL; at++)
        if (at->d_tag == DT_STRTAB)
            strings = table_at(base, at->d_un.d_ptr);
    for (const ElfW(Dyn) *at = first; at->d_tag != DT_NULL && scope->found == NULL; at++) {
        if (at->d_tag != DT_NEEDED)
            continue;
        struct need need = {scope, file_name(strings + at->d_un.d_val)};
        dl_iterate_phdr(find_needed, &need);
    }
}

/* Runs under the dynamic linker's recursive lock: no object is unloaded meanwhile. */
static int search_scope(struct dl_phdr_info *info, size_t size, void *argument)
{
    struct scope *scope = argument;
    struct object object;

    (void)size;
    if (!holds(info, &scope->holder))
        return 0;
    if (file_name(info->dlpi_name)[0] != '\0' && object_open(&object, info) &&
        !scope_add(scope, &object))
        for (uint32_t i = 0; i < scope->count && scope->found == NULL; i++)
            add_needed(scope, i);
    return 1;
}

void *gc_elf_find_in_scope(const void *address, const char *name)
{
    struct scope scope; /* not zeroed as a whole: it is large */

    scope.holder.address = (uintptr_t)address;
    scope.name = name;
    scope.found = NULL;
    scope.count = 0;
    dl_iterate_phdr(search_scope, &scope);
    return scope.found;
}

/* ---- the place of an address ---- */

struct place_search {
    struct range range;
    gc_elf_visit_place_function *visit;
    void *argument;
};

/* Finds the symbol as dladdr does: of the symbols that contain the address, the one that begins
 * last. */
static void name_place(const struct object *object, uintptr_t address,
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
    struct object object;

    (void)size;
    if (!holds(info, &search->range))
        return 0;
    struct gc_elf_location location = {.path = info->dlpi_name != NULL ? info->dlpi_name : "",
                                       .start = search->range.low};
    if (object_open(&object, info))
        name_place(&object, search->range.address, &location);
    search->visit(search->argument, &location);
    return 1;
}

void gc_elf_visit_place(const void *address, gc_elf_visit_place_function *visit, void *argument)
{
    struct place_search search = {{.address = (uintptr_t)address}, visit, argument};

    if (dl_iterate_phdr(visit_place, &search) == 0)
        visit(argument, NULL);
}

/* ---- an object's constant data ---- */

struct mention {
    const char *file;
    const char *text;
    bool has_text;
};

static int find_mention(struct dl_phdr_info *info, size_t size, void *argument)
{
    struct mention *mention = argument;

    (void)size;
    if (strcmp(file_name(info->dlpi_name), mention->file) != 0)
        return 0;
    for (unsigned i = 0; i < info->dlpi_phnum && !mention->has_text; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        const void *start = (const void *)(info->dlpi_addr + segment->p_vaddr);

        if (segment->p_type == PT_LOAD && (segment->p_flags & (PF_R | PF_W)) == PF_R)
            mention->has_text =
                memmem(start, segment->p_filesz, mention->text, strlen(mention->text)) != NULL;
    }
    return 1;
}

bool gc_elf_mentions(const char *file, const char *text, bool *has_text)
{
    struct mention mention = {file, text, false};
    const bool is_loaded = dl_iterate_phdr(find_mention, &mention) != 0;

    *has_text = mention.has_text;
    return is_loaded;
}

/* ---- imports of the program ---- */

struct imports {
    const char *name;
    bool is_found;
};

static bool relocations_name(const struct object *object, const ElfW(Rela) * relocations,
                             size_t bytes, const char *name)
{
    for (size_t i = 0; relocations != NULL && i < bytes / sizeof(*relocations); i++) {
        const size_t symbol = ELF64_R_SYM(relocations[i].r_info);

        if (symbol != 0 && object->symbols[symbol].st_shndx == SHN_UNDEF &&
            strcmp(object->strings + object->symbols[symbol].st_name, name) == 0)
            return true;
    }
    return false;
}

/* The program itself comes first. An import is a relocation that names an undefined symbol; the
 * hash table need not list undefined symbols. */
static int find_import(struct dl_phdr_info *info, size_t size, void *argument)
{
    const ElfW(Rela) * tables[2] = {NULL, NULL};
    size_t bytes[2] = {0, 0};
    struct imports *imports = argument;
    struct object object;

    (void)size;
    if (!object_open(&object, info))
        return 1;
    for (const ElfW(Dyn) *dynamic = object.dynamic; dynamic->d_tag != DT_NULL; dynamic++) {
        if (dynamic->d_tag == DT_RELA)
            tables[0] = table_at(object.base, dynamic->d_un.d_ptr);
        else if (dynamic->d_tag == DT_RELASZ)
            bytes[0] = dynamic->d_un.d_val;
        else if (dynamic->d_tag == DT_JMPREL)
            tables[1] = table_at(object.base, dynamic->d_un.d_ptr);
        else if (dynamic->d_tag == DT_PLTRELSZ)
            bytes[1] = dynamic->d_un.d_val;
    }
    for (int i = 0; i < 2; i++)
        imports->is_found |= relocations_name(&object, tables[i], bytes[i], imports->name);
    return 1;
}

bool gc_elf_program_imports(const char *name)
{
    struct imports imports = {.name = name};

    dl_iterate_phdr(find_import, &imports);
    return imports.is_found;
}
