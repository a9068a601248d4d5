/* Real pointers: one per row of shim/api.def, keyed by the exact exported symbol, found in libcuda
 * itself.
 *
 * Filling the table needs the dynamic linker's lock, which a caller may already hold (a constructor
 * run by dlopen calls CUDA). So no thread waits here: threads that arrive together each fill the
 * whole table with the same values. The library's handle of libcuda is never closed: the pointers
 * stay valid. */
#define _GNU_SOURCE
#include "shim/real/resolve.h"
#include "shim/real/nvml.h"
#include "shim/real/runtime.h"

#include "core/io/elf.h"

#include <string.h>

static struct {
    atomic_bool is_filled;
    atomic_int version;
    atomic_uintptr_t handle;
    atomic_uintptr_t low, high; /* libcuda's code */
    atomic_bool is_interposing;
    atomic_bool was_queried[GC_ROW_COUNT];
} driver;

static struct gc_thread_calls thread_calls;

const struct gc_thread_calls *gc_resolve_thread_calls(void)
{
    return &thread_calls;
}

static void find_thread_calls(const struct gc_libc *libc, void *handle)
{
    struct {
        void **slot;
        const char *name;
    } calls[] = {
        {(void **)&thread_calls.create, "pthread_create"},
        {(void **)&thread_calls.key_create, "pthread_key_create"},
        {(void **)&thread_calls.set_specific, "pthread_setspecific"},
    };

    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
        __atomic_store_n(calls[i].slot, libc->dlsym(handle, calls[i].name), __ATOMIC_RELAXED);
}

static void *find_handle(const struct gc_libc *libc, bool load)
{
    void *handle = (void *)atomic_load_explicit(&driver.handle, memory_order_relaxed);

    if (handle == NULL)
        handle = libc->dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD);
    if (handle == NULL && load)
        handle = libc->dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    return handle;
}

bool gc_resolve_driver(bool load)
{
    const struct gc_libc *libc;
    uintptr_t low, high;
    void *handle, *anchor;

    /* acquire: pairs with the release at the end */
    if (atomic_load_explicit(&driver.is_filled, memory_order_acquire))
        return true;
    libc = gc_elf_libc();
    if (libc == NULL || (handle = find_handle(libc, load)) == NULL)
        return false;
    for (const struct gc_row *row = gc_rows; row < gc_rows + GC_ROW_COUNT; row++) {
        void *real = row->base == NULL ? NULL : libc->dlsym(handle, row->symbol);

        if (real != NULL && !gc_row_is_own(real))
            gc_row_record(row, real);
    }
    find_thread_calls(libc, handle);
    /* Resolves now the names for which later calls would take the lock. */
    gc_runtime_scan();
    gc_nvml_find(false);
    libc->dlerror(); /* the program must not see symbols that we missed */
    anchor = gc_row_real_at(GC_ROW_cuInit);
    if (anchor == NULL)
        return false;
    if (gc_elf_find_range(anchor, &low, &high)) {
        atomic_store_explicit(&driver.high, high, memory_order_relaxed);
        atomic_store_explicit(&driver.low, low, memory_order_relaxed);
    }
    if (gc_elf_find_definer((void *)libc->dlsym, "dlsym") == GC_ELF_AFTER_US &&
        gc_elf_find_definer(anchor, "cuInit") == GC_ELF_AFTER_US)
        atomic_store_explicit(&driver.is_interposing, true, memory_order_relaxed);
    atomic_store_explicit(&driver.handle, (uintptr_t)handle, memory_order_relaxed);
    atomic_store_explicit(&driver.is_filled, true, memory_order_release);
    return true;
}

bool gc_resolve_is_interposing(void)
{
    return atomic_load_explicit(&driver.is_interposing, memory_order_relaxed);
}

bool gc_resolve_is_driver_code(const void *address)
{
    uintptr_t at = (uintptr_t)address;

    gc_resolve_driver(false);
    return at >= atomic_load_explicit(&driver.low, memory_order_relaxed) &&
           at < atomic_load_explicit(&driver.high, memory_order_relaxed);
}

bool gc_resolve_driver_exports(const char *name)
{
    const struct gc_libc *libc = gc_elf_libc();
    void *handle = (void *)atomic_load_explicit(&driver.handle, memory_order_relaxed);

    if (libc == NULL || handle == NULL)
        return false;
    bool is_there = libc->dlsym(handle, name) != NULL;
    libc->dlerror(); /* the program must not see our misses */
    return is_there;
}

int gc_resolve_driver_version(void)
{
    int version = atomic_load_explicit(&driver.version, memory_order_relaxed);

    if (version == 0 && GC_REAL(cuDriverGetVersion) != NULL &&
        GC_REAL(cuDriverGetVersion)(&version) == CUDA_SUCCESS)
        atomic_store_explicit(&driver.version, version, memory_order_relaxed);
    return version;
}

bool gc_resolve_row(enum gc_row_id id)
{
    const struct gc_row *row = &gc_rows[id];
    cuuint64_t flags = row->variant == GC_VARIANT_PTSZ ? 2 : 0;
    void *real = NULL;
    CUresult result = CUDA_ERROR_NOT_FOUND;
    CUdriverProcAddressQueryResult status;

    if (gc_row_real(row) != NULL)
        return true;
    if (row->base == NULL ||
        atomic_exchange_explicit(&driver.was_queried[id], true, memory_order_relaxed))
        return false;
    /* An older driver answers with its own, older ABI: exact only if the driver is new enough. */
    if (gc_resolve_driver_version() < row->version)
        return false;
    if (GC_REAL(cuGetProcAddress_v2) != NULL)
        result = GC_REAL(cuGetProcAddress_v2)(row->base, &real, row->version, flags, &status);
    else if (GC_REAL(cuGetProcAddress) != NULL)
        result = GC_REAL(cuGetProcAddress)(row->base, &real, row->version, flags);
    if (result != CUDA_SUCCESS || real == NULL || gc_row_is_own(real))
        return false;
    gc_row_record(row, real);
    return true;
}
