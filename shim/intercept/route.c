/* Routes the names that dlsym and dlvsym get: see dlsym.S.
 *
 * Names that are not in shim/api.def, exactly, go to the real function untouched. For a name of the
 * table the real look-up comes first, and the wrapper is returned only where that found the
 * driver's (or the runtime's) own function: a caller that looks up another library's own function
 * of that name gets that function.
 *
 * Look-ups in the scopes (RTLD_DEFAULT, RTLD_NEXT, the main program's handle) would find the
 * library's own export even where there is no CUDA at all, so the object behind the library
 * decides. Look-ups by libcuda itself are never touched. */
#define _GNU_SOURCE
#include "shim/intercept/route.h"
#include "core/io/elf.h"
#include "core/io/elf_object.h"
#include "shim/account/outside.h"
#include "shim/intercept/entry.h"
#include "shim/life/tools.h"
#include "shim/real/bypass.h"
#include "shim/real/nvml.h"
#include "shim/real/open.h"
#include "shim/real/resolve.h"
#include "shim/real/runtime.h"
#include "shim/real/unknown.h"

#include <string.h>

/* The name's definition in the scope of the object that holds `caller` (itself and its
 * dependencies), which is not in our scope if dlopen loaded the object. */
static void *find_in_callers_scope(const struct gc_libc *libc, const struct gc_row *row,
                                   const void *caller)
{
    Dl_info info;
    void *handle, *found;

    if (libc->dladdr(caller, &info) == 0 || info.dli_fname == NULL)
        return NULL;
    handle = libc->dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    if (handle == NULL)
        return NULL;
    found = libc->dlsym(handle, gc_row_symbol(row));
    libc->dlclose(handle);
    return gc_row_is_own(found) ? NULL : found;
}

static void *find_next(const struct gc_libc *libc, const struct gc_row *row, const void *caller)
{
    void *found = libc->dlsym(RTLD_NEXT, gc_row_symbol(row));

    if (found == NULL)
        found = find_in_callers_scope(libc, row, caller);
    if (found == NULL)
        found =
            libc->dlsym(RTLD_NEXT, gc_row_symbol(row)); /* once more, so that dlerror reports it */
    return found;
}

/* RTLD_NEXT for an object behind the library that defines the name itself. For the driver's names
 * and NVML's: the next such object's function, else the wrapper. A call of the runtime has passed
 * its wrapper already: the real dlsym searches behind that object. */
static struct gc_route next_after_another(const struct gc_libc *libc, const struct gc_row *row,
                                          const void *caller)
{
    struct gc_route route = {(void *)libc->dlsym, NULL};

    if (row->type != GC_ROW_TYPE_RUNTIME &&
        (row->type == GC_ROW_TYPE_API ? gc_resolve_driver(false) : gc_nvml_find()) &&
        gc_row_real(row) != NULL) {
        route.jump = NULL;
        route.answer = gc_entry_next(row, caller);
    }
    return route;
}

/* Whether `real` is the function that the row names: of the driver, of NVML or of the first runtime
 * seen. Otherwise it is another library's function of that name. */
static bool is_cudas(const struct gc_row *row, void *real)
{
    if (row->type == GC_ROW_TYPE_RUNTIME)
        return gc_runtime_is_code(real) && gc_row_record(row, real) == real;
    return (row->type == GC_ROW_TYPE_API ? gc_resolve_driver(false) : gc_nvml_find()) &&
           gc_row_real(row) == real;
}

static void *substitute(const struct gc_row *row, void *real)
{
    return is_cudas(row, real) ? gc_entry_pointer(row) : real;
}

/* Whether a name has the form of the driver's: a cheap test for every dlsym of the process. */
static bool is_driver_name(const char *name)
{
    return name[0] == 'c' && name[1] == 'u' && name[2] >= 'A' && name[2] <= 'Z';
}

struct gc_route gc_route_dlsym(void *handle, const char *name, const void *caller)
{
    const struct gc_libc *libc = gc_elf_libc();
    const struct gc_row *row = name == NULL ? NULL : gc_row_find(name);
    struct gc_route route = {NULL, NULL};
    void *found;

    if (libc == NULL)
        return route;
    route.jump = (void *)libc->dlsym;
    if (gc_thread.depth > 0 || gc_elf_is_walking())
        return route;
    if (name != NULL)
        gc_tools_look_up(name, caller);
    if (gc_thread.is_loading && !gc_resolve_is_driver_code(caller))
        gc_outside_end_load();
    if (row == NULL && name != NULL && is_driver_name(name) && !gc_resolve_is_driver_code(caller))
        gc_unknown_log_symbol(name);
    if (row == NULL || gc_resolve_is_driver_code(caller))
        return route;
    found = handle == RTLD_NEXT ? gc_entry_export(row) : libc->dlsym(handle, name);
    if (found == NULL)
        return route;
    if (gc_row_is_own(found)) {
        const enum gc_elf_place place =
            handle == RTLD_NEXT ? gc_elf_find_definer(caller, name) : GC_ELF_NO_DEFINER;
        if (place == GC_ELF_AFTER_US)
            return next_after_another(libc, row, caller);
        found = find_next(libc, row, caller);
        route.jump = NULL;
        if (found != NULL)
            route.answer =
                place == GC_ELF_BEFORE_US ? gc_entry_export(row) : substitute(row, found);
        return route;
    }
    /* Found in the given object, or before the library in the scope. */
    if (is_cudas(row, found)) {
        route.jump = NULL;
        route.answer = gc_entry_pointer(row);
    }
    return route;
}

void *gc_route_dlopen(const char *path, int flags, const void *caller)
{
    const struct gc_libc *libc = gc_elf_libc();

    gc_outside_begin_load(path, caller);
    if (gc_thread.is_loading)
        gc_bypass_load(path, flags);
    return libc == NULL ? NULL : (void *)libc->dlopen;
}

void *gc_route_dlclose(void)
{
    const struct gc_libc *libc = gc_elf_libc();

    gc_open_pin();
    return libc == NULL ? NULL : (void *)libc->dlclose;
}

/* Other preload libraries look the real dlsym up with a version, which passes over our unversioned
 * one. */
static void *own_resolver(const char *name)
{
    if (strcmp(name, "dlsym") == 0)
        return (void *)dlsym;
    if (strcmp(name, "dlvsym") == 0)
        return (void *)dlvsym;
    if (strcmp(name, "dlopen") == 0)
        return (void *)dlopen;
    if (strcmp(name, "dlclose") == 0)
        return (void *)dlclose;
    return NULL;
}

struct gc_route gc_route_dlvsym(void *handle, const char *name, const char *version,
                                const void *caller)
{
    const struct gc_libc *libc = gc_elf_libc();
    const struct gc_row *row = name == NULL ? NULL : gc_row_find(name);
    struct gc_route route = {NULL, NULL};
    void *found, *own;

    if (libc == NULL)
        return route;
    route.jump = (void *)libc->dlvsym;
    if (name == NULL || version == NULL || gc_thread.depth > 0 || gc_elf_is_walking())
        return route;
    own = row != NULL ? gc_entry_export(row) : own_resolver(name);
    if (own == NULL || gc_resolve_is_driver_code(caller))
        return route;
    /* A versioned look-up never finds our unversioned names; RTLD_NEXT searches behind us. */
    found = libc->dlvsym(handle == RTLD_DEFAULT ? RTLD_NEXT : handle, name, version);
    if (found == NULL)
        return route;
    if (row == NULL ? found == (void *)libc->dlsym || found == (void *)libc->dlvsym ||
                          found == (void *)libc->dlopen || found == (void *)libc->dlclose
                    : is_cudas(row, found)) {
        route.jump = NULL;
        route.answer = row == NULL ? own : gc_entry_pointer(row);
    }
    return route;
}
