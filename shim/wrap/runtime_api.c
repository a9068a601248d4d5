/* The shared runtime's allocation calls. The driver's calls beneath do the work; most of these
 * wrappers only record the entry point that the program called, and are made from their rows.
 *
 * cudaMalloc and cudaFree are served here where the result is the same as the runtime's: a hit in
 * the thread's cache, if this thread's last real call of that runtime reached the driver. For
 * cudaMalloc the context that served that call must be current still. Everything else goes to the
 * runtime: errors, which it remembers, its lazy start, and a device chosen meanwhile (calls that
 * may choose one are wrapped for that reason). So does every call while the driver's function
 * beneath is patched: the tool that patched it, such as UCX's memory hooks, sees all calls. And
 * every call beside a profiler.
 *
 * A process may hold several runtimes (libcudart.so.12 and .13), each bound to some objects by
 * symbol version; the library's unversioned names take their place. So each call goes to the
 * runtime that the calling object is bound to: the one among its dependencies, else the first one
 * seen, else the first behind the library, else any that is loaded, else any function of that name
 * that the calling object can reach. A table holds the results by return address; the runtimes are
 * kept loaded.
 *
 * A call by name that another library behind this one must see goes there from a second wrapper
 * (gc_runtime_api_through). */
#define _GNU_SOURCE
#include "shim/wrap/runtime_api.h"

#include "core/io/elf.h"
#include "shim/account/hot.h"
#include "shim/real/open.h"
#include "shim/real/resolve.h"
#include "shim/real/runtime.h"

#include <string.h>

#define CALLER_BITS 12
#define CALLER_PROBES 8

/* A call site and the function it calls: written once, then never changed. */
struct caller {
    _Atomic(const void *) address; /* NULL: free; SETTLING: being written */
    const struct gc_row *row;
    void *real;
    const void *runtime; /* start of its object; NULL: `real` is no runtime's, as far as is known,
                            and must see every call */
};
static struct caller callers[1 << CALLER_BITS];
static const char settling;
#define SETTLING ((const void *)&settling)

static inline struct caller *slot_of(const void *address, unsigned probe)
{
    uint64_t hash = (uint64_t)(uintptr_t)address * UINT64_C(0x9E3779B97F4A7C15);

    return &callers[((hash >> (64 - CALLER_BITS)) + probe) % (1 << CALLER_BITS)];
}

static inline const struct caller *find_caller(const struct gc_row *row, const void *address)
{
    for (unsigned i = 0; i < CALLER_PROBES; i++) {
        const struct caller *slot = slot_of(address, i);
        /* Acquire: pairs with the release in remember. */
        const void *known = atomic_load_explicit(&slot->address, memory_order_acquire);

        if (GC_LIKELY(known == address && slot->row == row))
            return slot;
        if (known == NULL)
            return NULL;
    }
    return NULL;
}

/* The runtime's definition of the row's name in the scope of the object that holds `caller`. */
static void *find_in_scope_of(const struct gc_row *row, const void *caller)
{
    void *found = gc_elf_find_in_scope(caller, gc_row_symbol(row));

    /* Another library's function of that name, such as the caller's own, would call us again. */
    return gc_runtime_is_code(found) ? found : NULL;
}

/* A library that found this one as its next definition must not be called by it again. One behind
 * this library that calls its own function by name may: an exported static runtime. */
static bool calls_us_again(const struct gc_row *row, const void *real, const void *caller)
{
    return gc_row_is_own(real) ||
           (gc_elf_is_same_object(real, caller) &&
            gc_elf_find_definer(caller, gc_row_symbol(row)) == GC_ELF_BEFORE_US);
}

/* Without a free slot within CALLER_PROBES the function is searched at each call. */
static void remember(const struct gc_row *row, const void *address, void *real)
{
    uintptr_t low, high;

    if (!gc_elf_find_range(real, &low, &high))
        return;
    for (unsigned i = 0; i < CALLER_PROBES; i++) {
        struct caller *slot = slot_of(address, i);
        const void *expected = NULL;

        if (!atomic_compare_exchange_strong_explicit(&slot->address, &expected, SETTLING,
                                                     memory_order_relaxed, memory_order_relaxed))
            continue;
        slot->row = row;
        slot->real = real;
        slot->runtime = gc_runtime_is_code(real) ? (const void *)low : NULL;
        atomic_store_explicit(&slot->address, address, memory_order_release);
        return;
    }
}

static void *resolve_real(const struct gc_row *row, const void *caller)
{
    void *real = find_in_scope_of(row, caller);

    if (real == NULL)
        real = gc_row_real(row);
    if (real == NULL)
        real = gc_runtime_first(row);
    /* A library outside all scopes may tail-call the runtime: `caller` is then not in that
     * library. */
    if (real == NULL)
        real = gc_elf_find_function(GC_RUNTIME_NAME, gc_row_symbol(row));
    /* No runtime that is known as one: the definition that the caller would be bound to, of the
     * program's scope, of the caller's, or of a library that was opened for all. */
    if (real == NULL)
        real = gc_elf_find_next(gc_rows, gc_row_symbol(row));
    if (real == NULL)
        real = gc_elf_find_in_scope(caller, gc_row_symbol(row));
    if (real == NULL)
        real = gc_elf_find_behind(gc_rows, gc_row_symbol(row));
    if (real == NULL || calls_us_again(row, real, caller))
        return NULL;
    gc_open_keep(real);
    if (gc_runtime_is_code(real))
        gc_row_record(row, real);
    remember(row, caller, real);
    return real;
}

/* The wrapper's counterpart in the runtime that the calling object is bound to. */
static void *find_real(const struct gc_row *row, const void *caller)
{
    const struct caller *known = find_caller(row, caller);

    return known != NULL ? known->real : resolve_real(row, caller);
}

/* ---- cudaMalloc and cudaFree ---- */

/* Whether the thread's last cudaMalloc or cudaFree went to this call's runtime, and no call since
 * can have changed the context that the runtime uses. */
static inline bool is_owned(const struct caller *caller)
{
    return GC_LIKELY(caller != NULL && gc_shim_is_ready_outside() && gc_hot_is_open() &&
                     gc_thread.landed != NULL && gc_thread.runtime == caller->runtime &&
                     caller->runtime != NULL &&
                     !atomic_load_explicit(&gc_shim.is_watched, memory_order_relaxed));
}

/* The context to allocate in; NULL: the runtime must be called. */
static inline struct gc_context *owned_target(const struct caller *caller)
{
    CUcontext handle;

    if (!is_owned(caller))
        return NULL;
    struct gc_context *target = gc_hot_target(&handle);
    return GC_LIKELY(handle == gc_thread.landed) ? target : NULL;
}

/* Around a call that goes to the runtime: finds the context that serves the call. */
static bool enter_real(enum gc_api api)
{
    gc_thread.landed = NULL;
    return gc_shim_enter_runtime(api);
}

static cudaError_t leave_real(bool outermost, const struct gc_row *row, const void *address,
                              cudaError_t result)
{
    const struct caller *caller = find_caller(row, address);

    gc_shim_leave_runtime(outermost);
    if (result != cudaSuccess || caller == NULL)
        gc_thread.landed = NULL;
    else
        gc_thread.runtime = caller->runtime;
    return result;
}

GC_EXPORT
cudaError_t cudaMalloc(void **pointer, size_t bytes)
{
    const struct gc_row *row = &gc_rows[GC_ROW_cudaMalloc];
    const void *address = __builtin_return_address(0);
    const struct caller *caller = find_caller(row, address);
    uint64_t memory;

    if (pointer != NULL && !GC_IS_PATCHED(alloc_code, cuMemAlloc_v2) &&
        gc_hot_alloc(owned_target(caller), bytes, GC_API_cudaMalloc, &memory)) {
        *pointer = (void *)(uintptr_t)memory; /* NOLINT: addresses are integers beneath */
        return cudaSuccess;
    }
    __typeof__(gc_shim.real.cudaMalloc) real = (__typeof__(real))find_real(row, address);
    if (real == NULL)
        return cudaErrorInitializationError;
    GC_SET_CALLER();
    bool outermost = enter_real(GC_API_cudaMalloc);
    return leave_real(outermost, row, address, real(pointer, bytes));
}

GC_EXPORT
cudaError_t cudaFree(void *pointer)
{
    const struct gc_row *row = &gc_rows[GC_ROW_cudaFree];
    const void *address = __builtin_return_address(0);
    const struct caller *caller = find_caller(row, address);

    /* Whichever context is current: an address implies its owner. */
    const bool is_tried = is_owned(caller) && !GC_IS_PATCHED(free_code, cuMemFree_v2);
    if (is_tried && gc_hot_free((uint64_t)(uintptr_t)pointer))
        return cudaSuccess;
    __typeof__(gc_shim.real.cudaFree) real = (__typeof__(real))find_real(row, address);
    if (real == NULL)
        return cudaErrorInitializationError;
    bool outermost = enter_real(GC_API_cudaFree);
    gc_thread.has_missed = is_tried;
    const cudaError_t result = real(pointer);
    gc_thread.has_missed = false;
    return leave_real(outermost, row, address, result);
}

#define API(...)
#define USE(...)
#define RUNTIME(symbol, kind, ...) RUNTIME_##kind(symbol, __VA_ARGS__)
#define RUNTIME_OWNED(...) /* above */
/* A call that may choose another device: only the runtime knows its next target. */
#define RUNTIME_DEVICE(symbol, type, parameters, arguments)                                        \
    GC_EXPORT                                                                                      \
    type symbol parameters                                                                         \
    {                                                                                              \
        __typeof__(gc_shim.real.symbol) real =                                                     \
            (__typeof__(real))find_real(&gc_rows[GC_ROW_##symbol], __builtin_return_address(0));   \
                                                                                                   \
        gc_thread.landed = NULL;                                                                   \
        return real == NULL ? cudaErrorInitializationError : real arguments;                       \
    }
#define RUNTIME_FREE(...) RUNTIME_ALLOC(__VA_ARGS__)
#define RUNTIME_QUERY(...) RUNTIME_ALLOC(__VA_ARGS__)
#define RUNTIME_ALLOC(symbol, type, parameters, arguments)                                         \
    GC_EXPORT                                                                                      \
    type symbol parameters                                                                         \
    {                                                                                              \
        __typeof__(gc_shim.real.symbol) real =                                                     \
            (__typeof__(real))find_real(&gc_rows[GC_ROW_##symbol], __builtin_return_address(0));   \
        bool outermost;                                                                            \
        type result;                                                                               \
                                                                                                   \
        if (real == NULL)                                                                          \
            return cudaErrorInitializationError;                                                   \
        GC_SET_CALLER();                                                                           \
        outermost = gc_shim_enter_runtime(GC_API_##symbol);                                        \
        result = real arguments;                                                                   \
        gc_shim_leave_runtime(outermost);                                                          \
        return result;                                                                             \
    }
#include "shim/api.def"

/* ---- calls that another library must see ---- */

static void *others[GC_ROW_COUNT]; /* its functions; stored before the wrapper is known */

#define API(...)
#define USE(...)
#define RUNTIME(symbol, kind, type, parameters, arguments)                                         \
    static type through_##symbol parameters                                                        \
    {                                                                                              \
        __typeof__(gc_shim.real.symbol) other =                                                    \
            (__typeof__(other))__atomic_load_n(&others[GC_ROW_##symbol], __ATOMIC_RELAXED);        \
                                                                                                   \
        GC_SET_CALLER();                                                                           \
        bool outermost = enter_real(GC_API_##symbol);                                              \
        const type result = other arguments;                                                       \
        gc_shim_leave_runtime(outermost);                                                          \
        gc_thread.landed = NULL;                                                                   \
        return result;                                                                             \
    }
#include "shim/api.def"

void *gc_runtime_api_through(const struct gc_row *row, void *other)
{
    static void *const through[GC_ROW_COUNT] = {
#define API(...)
#define USE(...)
#define RUNTIME(symbol, ...) [GC_ROW_##symbol] = (void *)through_##symbol,
#include "shim/api.def"
    };

    __atomic_store_n(&others[row - gc_rows], other, __ATOMIC_RELAXED);
    return through[row - gc_rows];
}
