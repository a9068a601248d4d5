/* Reads the loaded objects' own symbol tables. Nothing here takes the dynamic linker's lock that is
 * held while constructors run: a thread that a constructor waits for gets its answer. dlsym, dladdr
 * and their kin take it, so who asks while a program's call is served asks here
 * (scripts/check-layers.sh).
 *
 * The library exports dlsym and dlvsym, so it cannot ask either for the real ones: a reference by
 * name, with a version or without, binds to our own unversioned definition. libc's table is read
 * instead, the way the dynamic linker does: dl_iterate_phdr, PT_DYNAMIC, DT_GNU_HASH. dlopen and
 * dladdr are found the same way, which also keeps newer symbol versions (GLIBC_2.34) out of our
 * requirements. */
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
 * Thread-safe, cheap once found, takes no lock but the dynamic linker's own. */
const struct gc_libc *gc_elf_libc(void);

/* The address range of the loaded object that contains `address`; false if there is none. */
bool gc_elf_find_range(const void *address, uintptr_t *low, uintptr_t *high);

/* The path of the first loaded object whose file name begins with `prefix`; false if there is none,
 * or its path does not fit. */
bool gc_elf_find_path(const char *prefix, char *path, size_t bytes);

/* Calls `visit` with the path of the loaded object that contains `address`: "" is the program
 * itself, NULL code of no object. The path lives as long as the object, which may end with the call
 * where the address is none that is being executed. Takes the dynamic linker's lock for a moment
 * before glibc 2.35, and none since; never the one that is held while constructors run. */
typedef void gc_elf_visit(void *argument, const char *path);
void gc_elf_visit_path(const void *address, gc_elf_visit *visit, void *argument);

/* Whether the loaded object that contains `address` defines a function of that name itself, and
 * where it stands: behind us it may be what called us, before us we are its next one. */
enum gc_elf_place { GC_ELF_NO_DEFINER, GC_ELF_BEFORE_US, GC_ELF_AFTER_US };
enum gc_elf_place gc_elf_find_definer(const void *address, const char *name);

/* The function of that name that the first loaded object defines whose file name begins with
 * `prefix` ("": any); that the object which contains `address` defines; NULL: there is none.
 * Versions of symbols and the scopes of objects do not count. The object may be unloaded once it is
 * not used. */
void *gc_elf_find_function(const char *prefix, const char *name);
void *gc_elf_find_in_object(const void *address, const char *name);
/* The function of that name that the object which contains `address` finds first in itself and in
 * what it needs, as dlsym on its handle does; NULL: it has none, or is the program itself. */
void *gc_elf_find_in_scope(const void *address, const char *name);
/* Whether one loaded object contains both addresses. */
bool gc_elf_is_same_object(const void *a, const void *b);

/* Where an address lies. */
struct gc_elf_location {
    const char *path;   /* "": the program itself */
    uintptr_t start;    /* of the object */
    const char *symbol; /* NULL: none that is exported */
    uintptr_t symbol_start;
};

/* Calls `visit` while the object cannot be unloaded; NULL: it is code of no object. */
typedef void gc_elf_visit_place_function(void *argument, const struct gc_elf_location *location);
void gc_elf_visit_place(const void *address, gc_elf_visit_place_function *visit, void *argument);

/* Whether the program's own executable asks for that name from another object. */
bool gc_elf_program_imports(const char *name);

#endif
