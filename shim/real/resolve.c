/* Real pointers: one per row of shim/api.def, keyed by the exact exported symbol, found in libcuda
 * itself.
 *
 * A libcuda that is loaded is found and read without the dynamic linker's lock, which another
 * thread may hold while it waits for this one (a constructor). No thread waits here: threads that
 * arrive together each fill the whole table with the same values. Only where libcuda is not loaded
 * yet the lock is taken, as by the program's own loading. libcuda stays loaded: the pointers stay
 * valid. */
#define _GNU_SOURCE
#include "shim/real/resolve.h"
#include "shim/real/nvml.h"
#include "shim/real/open.h"
#include "shim/real/runtime.h"

#include "core/io/elf.h"
#include "core/io/elf_object.h"

#include <string.h>

#define DRIVER_FILE GC_DRIVER_NAME ".so.1"

atomic_bool gc_resolve_is_filled; /* the table */
static struct {
    atomic_int version;
    atomic_uintptr_t low, high; /* libcuda's code */
    atomic_bool is_interposing;
    atomic_bool was_queried[GC_ROW_COUNT];
} driver;

static struct gc_thread_calls thread_calls;

const struct gc_thread_calls *gc_resolve_thread_calls(void)
{
    return &thread_calls;
}

static void find_thread_calls(void)
{
    struct gc_elf_object libc;
    struct {
        void **slot;
        const char *name;
    } calls[] = {
        {(void **)&thread_calls.create, "pthread_create"},
        {(void **)&thread_calls.key_create, "pthread_key_create"},
        {(void **)&thread_calls.set_specific, "pthread_setspecific"},
    };

    const bool has_libc = gc_elf_object_open_named(&libc, "libc.so.6");
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        void *found = has_libc ? gc_elf_object_find(&libc, calls[i].name) : NULL;

        if (found == NULL) /* before glibc 2.34 */
            found = gc_elf_find_function("libpthread", calls[i].name);
        __atomic_store_n(calls[i].slot, found, __ATOMIC_RELAXED);
    }
}

static bool find_driver(struct gc_elf_object *object, bool load)
{
    return gc_elf_object_open_named(object, DRIVER_FILE) ||
           (load && gc_open_here(DRIVER_FILE) && gc_elf_object_open_named(object, DRIVER_FILE));
}

/* The driver's function of that name: its own, or of a library that it needs and hands on. */
static void *find_symbol(const struct gc_elf_object *object, bool is_whole, const char *name)
{
    void *found = gc_elf_object_find(object, name);

    return found != NULL || is_whole ? found : gc_elf_find_in_scope(object->dynamic, name);
}

bool gc_resolve_fill(bool load)
{
    struct gc_elf_object object;
    uintptr_t low, high;
    void *anchor;

    if (!find_driver(&object, load))
        return false;
    const bool is_whole = gc_elf_object_find(&object, "cuInit") != NULL;
    for (const struct gc_row *row = gc_rows; row < gc_rows + GC_ROW_COUNT; row++) {
        void *real = row->base == 0 ? NULL : find_symbol(&object, is_whole, gc_row_symbol(row));

        if (real != NULL && !gc_row_is_own(real))
            gc_row_record(row, real);
    }
    find_thread_calls();
    gc_open_keep(object.dynamic);
    gc_runtime_scan();
    gc_nvml_find();
    anchor = gc_row_real_at(GC_ROW_cuInit);
    if (anchor == NULL)
        return false;
    if (gc_elf_find_range(anchor, &low, &high)) {
        atomic_store_explicit(&driver.high, high, memory_order_relaxed);
        atomic_store_explicit(&driver.low, low, memory_order_relaxed);
    }
    if (gc_elf_find_behind(gc_rows, "dlsym") != NULL &&
        gc_elf_find_definer(anchor, "cuInit") == GC_ELF_AFTER_US)
        atomic_store_explicit(&driver.is_interposing, true, memory_order_relaxed);
    atomic_store_explicit(&gc_resolve_is_filled, true, memory_order_release);
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
    const void *code = gc_row_real_at(GC_ROW_cuInit);

    return code != NULL &&
           (gc_elf_find_in_object(code, name) != NULL || gc_elf_find_in_scope(code, name) != NULL);
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
    if (row->base == 0 ||
        atomic_exchange_explicit(&driver.was_queried[id], true, memory_order_relaxed))
        return false;
    /* An older driver answers with its own, older ABI: exact only if the driver is new enough. */
    if (gc_resolve_driver_version() < row->version)
        return false;
    if (GC_REAL(cuGetProcAddress_v2) != NULL)
        result =
            GC_REAL(cuGetProcAddress_v2)(gc_row_base(row), &real, row->version, flags, &status);
    else if (GC_REAL(cuGetProcAddress) != NULL)
        result = GC_REAL(cuGetProcAddress)(gc_row_base(row), &real, row->version, flags);
    if (result != CUDA_SUCCESS || real == NULL || gc_row_is_own(real))
        return false;
    gc_row_record(row, real);
    return true;
}
