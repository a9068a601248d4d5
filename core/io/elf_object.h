/* One loaded object: its tables, read in place. For core/io/elf*.c, and for code that reads many
 * names of one object. */
#ifndef GC_ELF_OBJECT_H
#define GC_ELF_OBJECT_H

#include <elf.h>
#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Valid as long as the object is loaded. */
struct gc_elf_object {
    uintptr_t base;
    const ElfW(Dyn) * dynamic;
    const char *strings;
    const ElfW(Sym) * symbols;
    const uint32_t *gnu_hash;
    const ElfW(Verdef) * versions; /* NULL: none */
    const char *soname;
};

struct gc_elf_range {
    uintptr_t address, low, high;
};

/* dl_iterate_phdr and backtrace, which take locks of the dynamic linker and the unwinder. The
 * library calls them nowhere else (scripts/check-layers.sh). While a thread is in one of them
 * gc_elf_is_walking is true for a signal handler on it, and stays so if the handler leaves by
 * siglongjmp. A handler that calls exit there must not take those locks: after gc_elf_end_walks
 * both find nothing on the calling thread. That helps no other thread that walks, nor against calls
 * of dlopen that are interrupted. */
int gc_elf_walk(int (*visit)(struct dl_phdr_info *, size_t, void *), void *argument);
int gc_elf_backtrace(void **frames, int max);
bool gc_elf_is_walking(void);
void gc_elf_end_walks(void);

/* False: the object lacks a table. */
bool gc_elf_object_read(struct gc_elf_object *object, uintptr_t base, const ElfW(Dyn) * dynamic);
bool gc_elf_object_open(struct gc_elf_object *object, const struct dl_phdr_info *info);
/* A value of the dynamic section as an address: some dynamic linkers relocate these in place,
 * others do not. */
const void *gc_elf_object_table(uintptr_t base, uintptr_t value);

/* The function of that name which the object defines; NULL: none. */
void *gc_elf_object_find(const struct gc_elf_object *object, const char *name);
/* As gc_elf_object_find for data. */
void *gc_elf_object_find_data(const struct gc_elf_object *object, const char *name, size_t *bytes);

/* Calls `visit` with each name that the object imports, until one returns true. Returns whether one
 * did. A name may come twice. An import is a relocation that names an undefined symbol; the hash
 * table need not list undefined symbols. */
typedef bool gc_elf_visit_name(void *argument, const char *name);
bool gc_elf_object_visit_imports(const struct gc_elf_object *object, gc_elf_visit_name *visit,
                                 void *argument);

/* Whether the object contains range->address; sets its range. */
bool gc_elf_object_holds(const struct dl_phdr_info *info, struct gc_elf_range *range);
/* The last part of a path; NULL is "". */
const char *gc_elf_file_name(const char *path);

/* Opens the first loaded object whose file or SONAME has that name ("libcuda.so.1"), as dlopen
 * finds what is loaded. False: there is none. */
bool gc_elf_object_open_named(struct gc_elf_object *object, const char *name);
/* Opens the first loaded object that is `library`, as gc_elf_is_library has it. */
bool gc_elf_object_open_library(struct gc_elf_object *object, const char *library);
/* Whether it is, by its tables and the path it was loaded by. */
bool gc_elf_object_is_library(const struct gc_elf_object *object, const char *path,
                              const char *library);

/* The objects that an object needs, directly or not, itself first. */
struct gc_elf_closure;
/* Calls `visit` with the closure of the first loaded object whose file or SONAME has that name,
 * under the dynamic linker's lock of its list of objects. False: there is none. */
typedef void gc_elf_visit_closure_function(void *argument, const struct gc_elf_closure *closure);
bool gc_elf_visit_closure(const char *name, gc_elf_visit_closure_function *visit, void *argument);
/* Opens the closure's object of that number; false beyond the last one. */
bool gc_elf_closure_open(const struct gc_elf_closure *closure, unsigned number,
                         struct gc_elf_object *object);
/* The first definition of the function in the closure; NULL: none. */
void *gc_elf_closure_find(const struct gc_elf_closure *closure, const char *name);

/* Whether the text stands in the first `bytes` of the object's constant data that are no code. */
bool gc_elf_object_mentions(const struct gc_elf_object *object, const char *text, size_t bytes);
/* The object's place in the dynamic linker's list, from 0, and its path. */
bool gc_elf_object_place(const struct gc_elf_object *object, unsigned *place, const char **path);

#endif
