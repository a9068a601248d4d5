/* Loaded objects: see elf.h. The lookup reads DT_GNU_HASH alone: every libc that a CUDA driver runs
 * on has it. A symbol counts only if it is a defined function. Tables are read in place; nothing is
 * allocated. */
#define _GNU_SOURCE
#include "shim/elf.h"

#include <elf.h>
#include <link.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

struct object {
    uintptr_t base;
    const char *strings;
    const ElfW(Sym) * symbols;
    const uint32_t *gnu_hash;
    const char *soname;
};

/* Some dynamic linkers relocate the pointers of the dynamic section in place, some do not. */
static const void *table_at(uintptr_t base, uintptr_t value)
{
    return (const void *)(value < base ? base + value : value);
}

static bool object_open(struct object *object, const struct dl_phdr_info *info)
{
    const ElfW(Dyn) *dynamic = NULL;
    uintptr_t soname = 0;

    *object = (struct object){.base = info->dlpi_addr};
    for (unsigned i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
            dynamic = (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
    for (; dynamic != NULL && dynamic->d_tag != DT_NULL; dynamic++) {
        if (dynamic->d_tag == DT_STRTAB)
            object->strings = table_at(object->base, dynamic->d_un.d_ptr);
        else if (dynamic->d_tag == DT_SYMTAB)
            object->symbols = table_at(object->base, dynamic->d_un.d_ptr);
        else if (dynamic->d_tag == DT_GNU_HASH)
            object->gnu_hash = table_at(object->base, dynamic->d_un.d_ptr);
        else if (dynamic->d_tag == DT_SONAME)
            soname = dynamic->d_un.d_val;
    }
    if (object->strings == NULL || object->symbols == NULL || object->gnu_hash == NULL)
        return false;
    object->soname = soname != 0 ? object->strings + soname : "";
    return true;
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
    return &own; /* nobody waits for another thread here: it may hold the dynamic linker's lock */
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

/* The beginning of glibc's own, which may grow. */
struct found_object {
    unsigned long long flags;
    void *start;
    void *end;
    struct link_map *map;
    unsigned char rest[192];
};
typedef int find_object_function(void *address, struct found_object *result);

/* Any object may export it: glibc's dynamic linker does. */
static int find_finder(struct dl_phdr_info *info, size_t size, void *argument)
{
    struct object object;

    (void)size;
    if (object_open(&object, info) && strncmp(object.soname, "ld", 2) == 0)
        *(void **)argument = object_find(&object, "_dl_find_object");
    return *(void **)argument != NULL;
}

/* NULL before glibc 2.35. Every thread may look: they find the same. */
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
    find_object_function *find = object_finder();
    struct found_object found;

    if (find != NULL && find((void *)(uintptr_t)address, &found) == 0) /* NOLINT: const, in glibc */
        visit(argument, found.map->l_name);
    else if (find != NULL || dl_iterate_phdr(visit_holder, &search) == 0)
        visit(argument, NULL);
}

struct definer {
    struct range theirs, ours;
    const char *name;
    bool is_behind_us, is_found;
};

/* Objects come in the order in which names are looked up. */
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
    return definer.is_behind_us ? GC_ELF_BEHIND_US : GC_ELF_BEFORE_US;
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
    const char *slash = strrchr(path, '/');
    const size_t length = strlen(path);

    (void)size;
    if (strncmp(slash == NULL ? path : slash + 1, named->prefix, strlen(named->prefix)) != 0 ||
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

/* ---- what the program imports ---- */

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

/* The program itself comes first. An import is a relocation that names an undefined symbol: the
 * hash table need not count those. */
static int find_import(struct dl_phdr_info *info, size_t size, void *argument)
{
    const ElfW(Rela) * tables[2] = {NULL, NULL};
    size_t bytes[2] = {0, 0};
    struct imports *imports = argument;
    const ElfW(Dyn) *dynamic = NULL;
    struct object object;

    (void)size;
    if (!object_open(&object, info))
        return 1;
    for (unsigned i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
            dynamic = (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
    for (; dynamic != NULL && dynamic->d_tag != DT_NULL; dynamic++) {
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
