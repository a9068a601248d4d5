/* Loaded objects: see elf.h. Tables are read in place (elf_object.c); nothing is allocated. */
#define _GNU_SOURCE
#include "core/io/elf.h"
#include "core/io/elf_object.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static int find_libc(struct dl_phdr_info *info, size_t size, void *argument)
{
    struct gc_libc *libc = argument;
    struct gc_elf_object object;

    (void)size;
    if (!gc_elf_object_open(&object, info) ||
        (strcmp(object.soname, "libc.so.6") != 0 && strcmp(object.soname, "libdl.so.2") != 0))
        return 0;
    *(void **)&libc->dlsym = gc_elf_object_find(&object, "dlsym");
    *(void **)&libc->dlvsym = gc_elf_object_find(&object, "dlvsym");
    *(void **)&libc->dlopen = gc_elf_object_find(&object, "dlopen");
    *(void **)&libc->dlclose = gc_elf_object_find(&object, "dlclose");
    *(void **)&libc->dlerror = gc_elf_object_find(&object, "dlerror");
    *(void **)&libc->dladdr = gc_elf_object_find(&object, "dladdr");
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
    if (gc_elf_walk(find_libc, &own) == 0)
        return NULL;
    if (atomic_compare_exchange_strong_explicit(&state, &expected, WRITING, memory_order_relaxed,
                                                memory_order_relaxed)) {
        known = own;
        atomic_store_explicit(&state, KNOWN, memory_order_release);
    }
    /* no wait for the thread that writes: it may hold the dynamic linker's lock */
    return &own;
}

/* ---- the object that contains an address ---- */

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
    struct gc_elf_object object;

    (void)size;
    if (gc_elf_object_open(&object, info) && strcmp(object.soname, "libc.so.6") == 0)
        *(void **)argument = gc_elf_object_find(&object, "_dl_find_object");
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
        gc_elf_walk(find_finder, &found);
        atomic_store_explicit(&known, found, memory_order_relaxed);
        atomic_store_explicit(&is_known, true, memory_order_release);
    }
    *(void **)&finder = found;
    return finder;
}

/* Returns whether the search is over: an object was found, or none contains the address, and
 * found->map is NULL. */
static bool find_object(const void *address, struct found_object *found)
{
    find_object_function *find = object_finder();

    if (find != NULL && find((void *)(uintptr_t)address, found) != 0) /* NOLINT: const, in glibc */
        found->map = NULL;
    return find != NULL;
}

static bool find_map(const void *address, const struct link_map **map)
{
    struct found_object found;

    if (!find_object(address, &found))
        return false;
    *map = found.map;
    return true;
}

static int find_range(struct dl_phdr_info *info, size_t size, void *argument)
{
    (void)size;
    return gc_elf_object_holds(info, argument);
}

bool gc_elf_find_range(const void *address, uintptr_t *low, uintptr_t *high)
{
    struct gc_elf_range range = {.address = (uintptr_t)address};
    struct found_object found;

    if (find_object(address, &found)) {
        range.low = (uintptr_t)found.start;
        range.high = (uintptr_t)found.end;
        if (found.map == NULL)
            return false;
    } else if (gc_elf_walk(find_range, &range) == 0) {
        return false;
    }
    *low = range.low;
    *high = range.high;
    return true;
}

struct path_search {
    struct gc_elf_range range;
    gc_elf_visit *visit;
    void *argument;
};

static int visit_holder(struct dl_phdr_info *info, size_t size, void *argument)
{
    struct path_search *search = argument;

    (void)size;
    if (!gc_elf_object_holds(info, &search->range))
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
    else if (gc_elf_walk(visit_holder, &search) == 0)
        visit(argument, NULL);
}

struct definer {
    struct gc_elf_range theirs, ours;
    const char *name;
    bool is_behind_us, is_found;
};

/* Objects come in the order of symbol lookup. */
static int find_definer(struct dl_phdr_info *info, size_t size, void *argument)
{
    struct definer *definer = argument;
    struct gc_elf_object object;

    (void)size;
    if (gc_elf_object_holds(info, &definer->theirs)) {
        definer->is_found =
            gc_elf_object_open(&object, info) && gc_elf_object_find(&object, definer->name) != NULL;
        return 1;
    }
    definer->is_behind_us |= gc_elf_object_holds(info, &definer->ours);
    return 0;
}

enum gc_elf_place gc_elf_find_definer(const void *address, const char *name)
{
    struct definer definer = {.theirs.address = (uintptr_t)address,
                              .ours.address = (uintptr_t)&gc_elf_find_definer,
                              .name = name};

    gc_elf_walk(find_definer, &definer);
    if (!definer.is_found)
        return GC_ELF_NO_DEFINER;
    return definer.is_behind_us ? GC_ELF_AFTER_US : GC_ELF_BEFORE_US;
}

struct next {
    struct gc_elf_range behind;
    const char *name;
    bool is_last_libc; /* objects behind libc are not searched */
    bool is_behind;
    void *found;
};

static int find_next(struct dl_phdr_info *info, size_t size, void *argument)
{
    struct next *next = argument;
    struct gc_elf_object object;

    (void)size;
    if (gc_elf_object_holds(info, &next->behind)) {
        next->is_behind = true;
        return 0;
    }
    if (!gc_elf_object_open(&object, info))
        return 0;
    if (next->is_behind)
        next->found = gc_elf_object_find(&object, next->name);
    return next->found != NULL || (next->is_last_libc && strcmp(object.soname, "libc.so.6") == 0);
}

void *gc_elf_find_next(const void *address, const char *name)
{
    struct next next = {.behind.address = (uintptr_t)address, .name = name, .is_last_libc = true};

    gc_elf_walk(find_next, &next);
    return next.found;
}

void *gc_elf_find_behind(const void *address, const char *name)
{
    struct next next = {.behind.address = (uintptr_t)address, .name = name};

    gc_elf_walk(find_next, &next);
    return next.found;
}

/* ---- the dynamic linker's locks ---- */

/* The layout of a mutex in glibc, on 64-bit machines. */
struct mutex {
    int lock;
    unsigned count;
    int owner;
    unsigned users;
    int kind;
};

struct linker {
    const int *words;
    size_t bytes;
};

static int find_linker(struct dl_phdr_info *info, size_t size, void *argument)
{
    struct linker *linker = argument;
    struct gc_elf_object object;

    (void)size;
    if (!gc_elf_object_open(&object, info) || strncmp(object.soname, "ld-linux", 8) != 0)
        return 0;
    linker->words = gc_elf_object_find_data(&object, "_rtld_global", &linker->bytes);
    return 1;
}

/* The linker's recursive mutexes are among its variables. Only this thread writes its own id into
 * one, so the answer for this thread is certain. */
bool gc_elf_holds_linker_lock(void)
{
    const int self = (int)syscall(SYS_gettid);
    struct linker linker = {NULL, 0};

    gc_elf_walk(find_linker, &linker);
    for (size_t i = 0; linker.words != NULL &&
                       i + sizeof(struct mutex) / sizeof(int) <= linker.bytes / sizeof(int);
         i++) {
        const volatile struct mutex *mutex = (const volatile void *)(linker.words + i);

        if (mutex->owner == self && mutex->lock != 0 && mutex->count > 0 &&
            mutex->kind == PTHREAD_MUTEX_RECURSIVE_NP)
            return true;
    }
    return false;
}

/* ---- libraries under other names ---- */

struct library_search {
    struct gc_elf_range range;
    const char *library;
    bool is_it;
};

static int match_library(struct dl_phdr_info *info, size_t size, void *argument)
{
    struct library_search *search = argument;
    struct gc_elf_object object;

    (void)size;
    if (!gc_elf_object_holds(info, &search->range))
        return 0;
    search->is_it = gc_elf_object_open(&object, info) &&
                    gc_elf_object_is_library(&object, info->dlpi_name, search->library);
    return 1;
}

bool gc_elf_is_library(const void *address, const char *library)
{
    struct library_search search = {{.address = (uintptr_t)address}, library, false};
    const struct link_map *map;
    struct gc_elf_object object;

    if (find_map(address, &map))
        return map != NULL && gc_elf_object_read(&object, map->l_addr, map->l_ld) &&
               gc_elf_object_is_library(&object, map->l_name, library);
    gc_elf_walk(match_library, &search);
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
    if (strncmp(gc_elf_file_name(path), named->prefix, strlen(named->prefix)) != 0 ||
        length >= named->bytes)
        return 0;
    memcpy(named->path, path, length + 1);
    return 1;
}

bool gc_elf_find_path(const char *prefix, char *path, size_t bytes)
{
    struct named named = {prefix, path, bytes};

    return gc_elf_walk(find_named, &named) != 0;
}

/* ---- functions by name ---- */

struct function_search {
    struct gc_elf_range beside; /* address 0: in any object */
    const char *library;        /* "": any */
    const char *name;
    void *found;
};

static int find_function(struct dl_phdr_info *info, size_t size, void *argument)
{
    struct function_search *search = argument;
    struct gc_elf_object object;

    (void)size;
    if ((search->beside.address == 0 || gc_elf_object_holds(info, &search->beside)) &&
        gc_elf_object_open(&object, info) &&
        (search->library[0] == '\0' ||
         gc_elf_object_is_library(&object, info->dlpi_name, search->library)))
        search->found = gc_elf_object_find(&object, search->name);
    return search->found != NULL;
}

void *gc_elf_find_function(const char *library, const char *name)
{
    struct function_search search = {.library = library, .name = name};

    gc_elf_walk(find_function, &search);
    return search.found;
}

void *gc_elf_find_in_object(const void *address, const char *name)
{
    struct function_search search = {
        .beside.address = (uintptr_t)address, .library = "", .name = name};

    gc_elf_walk(find_function, &search);
    return search.found;
}

bool gc_elf_is_same_object(const void *a, const void *b)
{
    uintptr_t low, high;

    return gc_elf_find_range(a, &low, &high) && (uintptr_t)b >= low && (uintptr_t)b < high;
}
