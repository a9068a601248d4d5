/* One loaded object: see elf_object.h. The lookup reads DT_GNU_HASH alone: every libc that a CUDA
 * driver runs on has it. Only defined symbols count. Nothing is allocated. */
#define _GNU_SOURCE
#include "core/io/elf_object.h"
#include "core/io/elf.h"

#include <execinfo.h>
#include <stdatomic.h>
#include <string.h>

/* Walks of this thread, one inside the other. */
static __thread unsigned walk_count __attribute__((tls_model("initial-exec")));
static __thread bool are_over __attribute__((tls_model("initial-exec")));

static void count_walk(int change)
{
    atomic_signal_fence(memory_order_seq_cst);
    walk_count += (unsigned)change;
    atomic_signal_fence(memory_order_seq_cst);
}

int gc_elf_walk(int (*visit)(struct dl_phdr_info *, size_t, void *), void *argument)
{
    if (are_over)
        return 0;
    count_walk(1);
    const int result = dl_iterate_phdr(visit, argument);
    count_walk(-1);
    return result;
}

int gc_elf_backtrace(void **frames, int max)
{
    if (are_over)
        return 0;
    count_walk(1);
    const int count = backtrace(frames, max);
    count_walk(-1);
    return count;
}

bool gc_elf_is_walking(void)
{
    return walk_count > 0;
}

void gc_elf_end_walks(void)
{
    are_over = true;
}

const void *gc_elf_object_table(uintptr_t base, uintptr_t value)
{
    return (const void *)(value < base ? base + value : value);
}

bool gc_elf_object_read(struct gc_elf_object *object, uintptr_t base, const ElfW(Dyn) * dynamic)
{
    uintptr_t soname = 0;

    *object = (struct gc_elf_object){.base = base, .dynamic = dynamic};
    for (; dynamic != NULL && dynamic->d_tag != DT_NULL; dynamic++) {
        if (dynamic->d_tag == DT_STRTAB)
            object->strings = gc_elf_object_table(base, dynamic->d_un.d_ptr);
        else if (dynamic->d_tag == DT_SYMTAB)
            object->symbols = gc_elf_object_table(base, dynamic->d_un.d_ptr);
        else if (dynamic->d_tag == DT_GNU_HASH)
            object->gnu_hash = gc_elf_object_table(base, dynamic->d_un.d_ptr);
        else if (dynamic->d_tag == DT_VERDEF)
            object->versions = gc_elf_object_table(base, dynamic->d_un.d_ptr);
        else if (dynamic->d_tag == DT_SONAME)
            soname = dynamic->d_un.d_val;
    }
    if (object->strings == NULL || object->symbols == NULL || object->gnu_hash == NULL)
        return false;
    object->soname = soname != 0 ? object->strings + soname : "";
    return true;
}

bool gc_elf_object_open(struct gc_elf_object *object, const struct dl_phdr_info *info)
{
    const ElfW(Dyn) *dynamic = NULL;

    for (unsigned i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
            dynamic = (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
    return gc_elf_object_read(object, info->dlpi_addr, dynamic);
}

static uint32_t hash_of(const char *name)
{
    uint32_t hash = 5381;

    for (; *name != '\0'; name++)
        hash = hash * 33 + (unsigned char)*name;
    return hash;
}

static const ElfW(Sym) *
    find_symbol(const struct gc_elf_object *object, const char *name, unsigned type)
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
            ELF64_ST_TYPE(symbol->st_info) == type &&
            strcmp(object->strings + symbol->st_name, name) == 0)
            return symbol;
        if (chain[i - first] & 1)
            return NULL;
    }
}

void *gc_elf_object_find(const struct gc_elf_object *object, const char *name)
{
    const ElfW(Sym) *symbol = find_symbol(object, name, STT_FUNC);

    return symbol == NULL ? NULL : (void *)(object->base + symbol->st_value);
}

void *gc_elf_object_find_data(const struct gc_elf_object *object, const char *name, size_t *bytes)
{
    const ElfW(Sym) *symbol = find_symbol(object, name, STT_OBJECT);

    if (symbol == NULL)
        return NULL;
    *bytes = symbol->st_size;
    return (void *)(object->base + symbol->st_value);
}

bool gc_elf_object_holds(const struct dl_phdr_info *info, struct gc_elf_range *range)
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

const char *gc_elf_file_name(const char *path)
{
    const char *slash = path == NULL ? NULL : strrchr(path, '/');

    return slash != NULL ? slash + 1 : path != NULL ? path : "";
}

/* ---- imports ---- */

static bool visit_relocations(const struct gc_elf_object *object, const ElfW(Rela) * relocations,
                              size_t bytes, gc_elf_visit_name *visit, void *argument)
{
    for (size_t i = 0; relocations != NULL && i < bytes / sizeof(*relocations); i++) {
        const size_t symbol = ELF64_R_SYM(relocations[i].r_info);

        if (symbol != 0 && object->symbols[symbol].st_shndx == SHN_UNDEF &&
            visit(argument, object->strings + object->symbols[symbol].st_name))
            return true;
    }
    return false;
}

bool gc_elf_object_visit_imports(const struct gc_elf_object *object, gc_elf_visit_name *visit,
                                 void *argument)
{
    const ElfW(Rela) * tables[2] = {NULL, NULL};
    size_t bytes[2] = {0, 0};

    for (const ElfW(Dyn) *dynamic = object->dynamic; dynamic->d_tag != DT_NULL; dynamic++) {
        if (dynamic->d_tag == DT_RELA)
            tables[0] = gc_elf_object_table(object->base, dynamic->d_un.d_ptr);
        else if (dynamic->d_tag == DT_RELASZ)
            bytes[0] = dynamic->d_un.d_val;
        else if (dynamic->d_tag == DT_JMPREL)
            tables[1] = gc_elf_object_table(object->base, dynamic->d_un.d_ptr);
        else if (dynamic->d_tag == DT_PLTRELSZ)
            bytes[1] = dynamic->d_un.d_val;
    }
    return visit_relocations(object, tables[0], bytes[0], visit, argument) ||
           visit_relocations(object, tables[1], bytes[1], visit, argument);
}

/* ---- libraries under other names ---- */

bool gc_elf_names_library(const char *name, const char *library)
{
    const size_t length = strlen(library);

    return strncmp(name, library, length) == 0 && (name[length] == '.' || name[length] == '-') &&
           strstr(name + length, ".so") != NULL;
}

/* Whether the object defines a symbol version that begins with "<library>.so". */
static bool has_version(const struct gc_elf_object *object, const char *library)
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

bool gc_elf_object_is_library(const struct gc_elf_object *object, const char *path,
                              const char *library)
{
    return gc_elf_names_library(gc_elf_file_name(path), library) ||
           gc_elf_names_library(object->soname, library) || has_version(object, library);
}

struct opening {
    struct gc_elf_object *object;
    const char *name;
    const char *library; /* NULL: by `name` */
};

static int open_first(struct dl_phdr_info *info, size_t size, void *argument)
{
    const struct opening *opening = argument;

    (void)size;
    if (!gc_elf_object_open(opening->object, info))
        return 0;
    if (opening->library != NULL)
        return gc_elf_object_is_library(opening->object, info->dlpi_name, opening->library);
    return strcmp(gc_elf_file_name(info->dlpi_name), opening->name) == 0 ||
           strcmp(opening->object->soname, opening->name) == 0;
}

bool gc_elf_object_open_named(struct gc_elf_object *object, const char *name)
{
    struct opening opening = {object, name, NULL};

    return gc_elf_walk(open_first, &opening) != 0;
}

bool gc_elf_object_open_library(struct gc_elf_object *object, const char *library)
{
    struct opening opening = {object, NULL, library};

    return gc_elf_walk(open_first, &opening) != 0;
}
