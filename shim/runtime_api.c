/* The shared runtime's allocation calls. The work is done in the driver's calls beneath; these
 * wrappers only say which entry point the program called, so all of them are made from their rows.
 *
 * A process may hold several runtimes (libcudart.so.12 and .13), each bound to some objects by
 * symbol version, which our unversioned names take the place of. So each call goes to the runtime
 * that the calling object is bound to: the one in its own scope of dependencies, else the first
 * behind us. Answers are kept per thread in a small table by return address; the runtimes
 * themselves are held so that they stay. */
#define _GNU_SOURCE
#include "shim/elf.h"
#include "shim/resolve.h"
#include "shim/route.h"

#include <string.h>

#define CALLER_SLOTS 16

struct caller {
    const void *address;
    const struct gc_row *row;
    void *real;
};
static __thread struct caller callers[CALLER_SLOTS] __attribute__((tls_model("initial-exec")));

/* Keeps the object that holds `code` loaded for good. */
static void pin(const struct gc_libc *libc, const void *code)
{
    Dl_info info;

    if (libc->dladdr(code, &info) != 0 && info.dli_fname != NULL)
        libc->dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
}

/* What the object that holds `caller` sees under the row's name in its own dependencies. */
static void *find_in_scope_of(const struct gc_libc *libc, const struct gc_row *row,
                              const void *caller)
{
    Dl_info info;
    void *handle, *found;

    if (libc->dladdr(caller, &info) == 0 || info.dli_fname == NULL)
        return NULL;
    handle = libc->dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    if (handle == NULL)
        return NULL; /* the main program: its scope is the one behind us */
    found = libc->dlsym(handle, row->symbol);
    libc->dlclose(handle);
    /* Another library's function of that name, the caller's own above all, would come back to us.
     */
    return found != row->wrapper && gc_route_is_in_runtime(libc, found) ? found : NULL;
}

void *gc_runtime_find(const struct gc_row *row, const void *caller)
{
    struct caller *slot = &callers[((uintptr_t)caller >> 3) % CALLER_SLOTS];
    const struct gc_libc *libc;
    void *real;

    if (slot->address == caller && slot->row == row)
        return slot->real;
    libc = gc_elf_libc();
    if (libc == NULL)
        return NULL;
    real = find_in_scope_of(libc, row, caller);
    if (real == NULL)
        real = gc_row_real(row);
    if (real == NULL)
        real = libc->dlsym(RTLD_NEXT, row->symbol);
    libc->dlerror(); /* the program shall not read of our misses */
    if (real == NULL ||
        (!gc_route_is_in_runtime(libc, real) && gc_route_is_same_object(libc, real, caller)))
        return NULL;
    pin(libc, real);
    if (gc_route_is_in_runtime(libc, real))
        gc_row_record(row, real);
    *slot = (struct caller){caller, row, real};
    return real;
}

#define API(...)
#define USE(...)
#define RUNTIME(symbol, kind, type, parameters, arguments)                                         \
    GC_EXPORT                                                                                      \
    type symbol parameters                                                                         \
    {                                                                                              \
        __typeof__(gc_shim.real.symbol) real = (__typeof__(real))gc_runtime_find(                  \
            &gc_rows[GC_ROW_##symbol], __builtin_return_address(0));                               \
        bool outermost;                                                                            \
        type result;                                                                               \
                                                                                                   \
        if (real == NULL)                                                                          \
            return cudaErrorInitializationError;                                                   \
        outermost = gc_shim_enter_runtime(GC_API_##symbol);                                        \
        result = real arguments;                                                                   \
        gc_shim_leave_runtime(outermost);                                                          \
        return result;                                                                             \
    }
#include "shim/api.def"
