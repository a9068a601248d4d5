/* Reads the symbol tables of the loaded objects. Nothing here takes the dynamic linker's lock that
 * is held while constructors run, so a thread that a constructor waits for is not blocked. dlsym,
 * dladdr and their kin take that lock: code that runs inside a program's call uses this module
 * instead (scripts/check-layers.sh).
 *
 * The library exports dlsym and dlvsym, so it cannot look up the real ones by either: a reference
 * by name, with or without a version, binds to the library's own unversioned definition. The
 * library reads libc's table as the dynamic linker does: dl_iterate_phdr, PT_DYNAMIC, DT_GNU_HASH.
 * dlopen and dladdr are found in the same way, which also keeps newer symbol versions (GLIBC_2.34)
 * out of the library's requirements. */
#ifndef GC_ELF_H
#define GC_ELF_H

#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gc_libc {
    void *(*dlsym)(void *handle, const char *name);
    void *(*dlvsym)(void *handle, const char *name, const char *version);
    void *(*dlopen)(const char *path, int flags);
    int (*dlclose)(void *handle);
    char *(*dlerror)(void);
    int (*dladdr)(const void *address, Dl_info *info);
};

/* The real functions of libc (of libdl before glibc 2.34). NULL while libdl is not loaded.
 * Thread-safe; cheap once found; takes no lock but the dynamic linker's own. */
const struct gc_libc *gc_elf_libc(void);

/* The address range of the loaded object that contains `address`; false if there is none. */
bool gc_elf_find_range(const void *address, uintptr_t *low, uintptr_t *high);

/* The path of the first loaded object whose file name begins with `prefix`; false if there is none,
 * or its path does not fit. */
bool gc_elf_find_path(const char *prefix, char *path, size_t bytes);

/* Calls `visit` with the path of the loaded object that contains `address`: "" is the program
 * itself; NULL: no object contains the address. The path is valid during the call, and as long as
 * code runs in the object. Before glibc 2.35 the call briefly takes the dynamic linker's lock,
 * since then no lock; never the lock that is held while constructors run. */
typedef void gc_elf_visit(void *argument, const char *path);
void gc_elf_visit_path(const void *address, gc_elf_visit *visit, void *argument);

/* Whether the loaded object that contains `address` itself defines a function of that name, and its
 * place in the lookup order. An object after the library may have called the library; for an object
 * before it, the library is the next definition. */
enum gc_elf_place { GC_ELF_NO_DEFINER, GC_ELF_BEFORE_US, GC_ELF_AFTER_US };
enum gc_elf_place gc_elf_find_definer(const void *address, const char *name);

/* The function of that name in the first object that defines it and stands behind the object that
 * contains `address` in the lookup order of the whole program. NULL: there is none. Objects behind
 * libc are not searched: those before it were loaded with the program, all preloaded ones among
 * them. */
void *gc_elf_find_next(const void *address, const char *name);

/* The same without libc as the end: objects that were loaded later count too. */
void *gc_elf_find_behind(const void *address, const char *name);

/* Whether the calling thread holds a lock of the dynamic linker: it is inside dlopen, in the
 * constructor of an object that it loads. False where the C library is not glibc. */
bool gc_elf_holds_linker_lock(void);

/* Whether the loaded object that contains `address` is `library` ("libcudart"), under any file
 * name: the file or the SONAME is "libcudart.so…" or "libcudart-….so…" (as the tools that repair
 * Python wheels rename it), or the object defines a symbol version "libcudart.so…". */
bool gc_elf_is_library(const void *address, const char *library);

/* The same for a file name alone. */
bool gc_elf_names_library(const char *file_name, const char *library);

/* gc_elf_find_function: the function of that name in the first loaded object that defines it and is
 * `library` (as for gc_elf_is_library; "": any object). gc_elf_find_in_object: in the object that
 * contains `address`. NULL: there is none. Symbol versions and the scopes of objects are ignored.
 * An object may be unloaded unless it is in use. */
void *gc_elf_find_function(const char *library, const char *name);
void *gc_elf_find_in_object(const void *address, const char *name);
/* The function of that name as dlsym on an object's handle finds it: first in the object that
 * contains `address`, then in the objects that it needs. NULL: there is none, or the object is the
 * program itself. */
void *gc_elf_find_in_scope(const void *address, const char *name);
/* Whether one loaded object contains both addresses. */
bool gc_elf_is_same_object(const void *a, const void *b);

/* The place of an address. */
struct gc_elf_location {
    const char *path;   /* "": the program itself */
    uintptr_t start;    /* first address of the object */
    const char *symbol; /* NULL: no exported symbol */
    uintptr_t symbol_start;
};

/* Calls `visit` while the object cannot be unloaded. NULL: no object contains the address. */
typedef void gc_elf_visit_place_function(void *argument, const struct gc_elf_location *location);
void gc_elf_visit_place(const void *address, gc_elf_visit_place_function *visit, void *argument);

/* The objects that are known: zero at first. */
struct gc_elf_loads {
    unsigned long long loaded, unloaded; /* the dynamic linker's counts */
    unsigned count;                      /* of objects, in its order */
};
/* Calls `visit` with the path of each object that was loaded since `known`, which it updates; with
 * all paths after an unload. `visit` runs under the dynamic linker's lock of its list of objects.
 */
void gc_elf_visit_loads(struct gc_elf_loads *known, gc_elf_visit *visit, void *argument);
/* The objects that are loaded now. */
void gc_elf_count_loads(struct gc_elf_loads *now);

/* Whether the program's executable imports that name from another object. */
bool gc_elf_program_imports(const char *name);

#endif
