/* The shared runtimes that are loaded: their objects, and the definitions behind the library under
 * their names. Keeps them loaded. */
#define _GNU_SOURCE
#include "shim/real/runtime.h"
#include "shim/real/rows.h"

#include "core/io/elf.h"

bool gc_runtime_is_code(const void *code)
{
    return code != NULL && gc_elf_is_library(code, GC_RUNTIME_NAME);
}

/* ---- the runtimes ---- */

#define KEPT_MAX 16 /* further ones are opened again at each call */

static _Atomic(uintptr_t) kept[KEPT_MAX]; /* starts of the objects that stay loaded */
static void *_Atomic behind_us[GC_ROW_COUNT];
static atomic_bool is_behind_known;

void gc_runtime_keep(const void *code)
{
    const struct gc_libc *libc = gc_elf_libc();
    uintptr_t low, high;
    Dl_info info;

    if (libc == NULL || !gc_elf_find_range(code, &low, &high))
        return;
    for (size_t i = 0; i < KEPT_MAX; i++)
        if (atomic_load_explicit(&kept[i], memory_order_relaxed) == low)
            return;
    if (libc->dladdr(code, &info) != 0 && info.dli_fname != NULL)
        libc->dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
    libc->dlerror(); /* the program must not see our misses */
    for (size_t i = 0; i < KEPT_MAX; i++) {
        uintptr_t none = 0;

        if (atomic_compare_exchange_strong_explicit(&kept[i], &none, low, memory_order_relaxed,
                                                    memory_order_relaxed))
            return;
    }
}

void *gc_runtime_behind_us_now(const struct gc_row *row)
{
    const struct gc_libc *libc = gc_elf_libc();
    void *found = libc == NULL ? NULL : libc->dlsym(RTLD_NEXT, row->symbol);

    if (libc != NULL)
        libc->dlerror(); /* the program must not see our misses */
    return found;
}

void gc_runtime_scan(void)
{
    /* acquire: pairs with the release at the end */
    if (atomic_load_explicit(&is_behind_known, memory_order_acquire))
        return;
    for (const struct gc_row *row = gc_rows; row < gc_rows + GC_ROW_COUNT; row++) {
        void *found = row->type == GC_ROW_TYPE_RUNTIME ? gc_runtime_behind_us_now(row) : NULL;

        if (!gc_runtime_is_code(found)) /* another library's: it is reached by its name */
            found = NULL;
        if (found != NULL)
            gc_runtime_keep(found);
        atomic_store_explicit(&behind_us[row - gc_rows], found, memory_order_relaxed);
    }
    const void *runtime = gc_elf_find_function(GC_RUNTIME_NAME, "cudaMalloc");
    if (runtime != NULL)
        gc_runtime_keep(runtime);
    atomic_store_explicit(&is_behind_known, true, memory_order_release);
}

void *gc_runtime_behind_us(const struct gc_row *row)
{
    gc_runtime_scan();
    return atomic_load_explicit(&behind_us[row - gc_rows], memory_order_relaxed);
}
