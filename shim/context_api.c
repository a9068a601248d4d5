/* Contexts: created, retained, destroyed, reset, their limits and peers.
 *
 * What a context takes is charged by difference and given back when it is gone; everything that
 * belonged to it vanishes from the accounts then, after the driver did it. A primary context is
 * gone when the driver says it is inactive: other holders keep it. */
#include "shim/direct.h"
#include "shim/handles.h"
#include "shim/measure.h"
#include "shim/mempool.h"

/* What is known of a context beyond core's own record. */
struct context_record {
    struct gc_device *device;
    int64_t extra_bytes;  /* charged for cuCtxSetLimit */
    uint64_t usage_count; /* cuCtxAttach, cuCtxDetach */
};
_Static_assert(sizeof(struct context_record) <= GC_HANDLE_RECORD_BYTES, "a context fits a record");

static struct context_record *find_record_locked(CUcontext context)
{
    const struct gc_handle *found = gc_handles_find_locked(GC_HANDLE_CONTEXT, (uintptr_t)context);
    return found ? (struct context_record *)(uintptr_t)found->value : NULL;
}

static struct context_record *add_record_locked(CUcontext context, struct gc_device *device)
{
    struct context_record *record = find_record_locked(context);

    if (record == NULL) {
        record = gc_handles_take_record_locked();
        if (record == NULL)
            return NULL;
        gc_handles_put_locked(GC_HANDLE_CONTEXT, (uintptr_t)context, (uintptr_t)record, 0);
    }
    *record = (struct context_record){.device = device, .usage_count = 1};
    return record;
}

/* Makes a new context known with the `taken` bytes that are charged for it, under its own entry
 * point: a runtime makes it in the middle of whatever the program called first. */
static void add_context(CUcontext handle, struct gc_device *device, enum gc_api api, int64_t taken)
{
    struct gc_context *context;
    bool is_prepared = gc_handles_prepare();

    if (gc_core_add_context(gc_shim.core, (uintptr_t)handle, device, &context) != GC_OK) {
        gc_direct_adjust(device, -taken);
        return;
    }
    gc_handles_lock();
    if (is_prepared)
        add_record_locked(handle, device);
    gc_handles_unlock();
    if (taken == 0)
        return;
    struct gc_direct direct = {
        .kind = GC_DIRECT_CONTEXT,
        .key = (uintptr_t)handle,
        .requested_bytes = (uint64_t)taken,
        .charged_bytes = (uint64_t)taken,
        .device = device,
        .api = (uint16_t)api,
    };
    if (gc_core_track(gc_shim.core, &direct) != GC_OK)
        gc_core_adjust(gc_shim.core, device, -taken);
}

/* The driver destroyed it: everything of it goes. */
static void drop_context(CUcontext handle)
{
    struct gc_context *context = gc_core_find_context(gc_shim.core, (uintptr_t)handle);
    struct context_record copy = {0};
    struct gc_direct direct;

    if (context != NULL)
        gc_capture_drop_context(context);
    gc_handles_lock();
    struct context_record *record = find_record_locked(handle);
    if (record != NULL) {
        copy = *record;
        gc_handles_remove_locked(GC_HANDLE_CONTEXT, (uintptr_t)handle, NULL);
        gc_handles_give_record_locked(record);
    }
    gc_handles_unlock();
    gc_direct_adjust(copy.device, -copy.extra_bytes);
    gc_core_drop_context(gc_shim.core, (uintptr_t)handle);
    gc_driver_fence_drop((uintptr_t)handle);
    (void)!gc_core_untrack(gc_shim.core, GC_DIRECT_CONTEXT, (uintptr_t)handle, &direct);
    if (copy.device != NULL) {
        gc_mempool_refresh(copy.device);
        gc_graph_refresh(copy.device);
    }
}

/* ---- create and destroy ---- */

/* In a group a context's memory is reserved before it is made, where members know how much that is;
 * then what it took stands instead. False: there is no room. */
static bool expect_context(struct gc_device *device, uint64_t *expected)
{
    *expected = device == NULL ? 0 : gc_device_context_bytes(device);
    return *expected == 0 || gc_core_reserve(gc_shim.core, device, NULL, *expected) == GC_OK;
}

/* What a new context took, 0 if there is none, stands in the account in place of what was expected:
 * never both. Returns it. */
static int64_t settle_context(struct gc_device *device, uint64_t expected,
                              const struct gc_measure *measure, int64_t taken)
{
    if (device == NULL || taken < 0)
        taken = 0;
    gc_direct_adjust(device, taken - (int64_t)expected);
    if (taken > 0) {
        gc_core_confirm(gc_shim.core, device, NULL);
        if (measure->is_exact)
            gc_device_note_context_bytes(device, (uint64_t)taken);
    }
    return taken;
}

#define CREATE_CONTEXT(symbol, ...)                                                                \
    do {                                                                                           \
        if (!gc_shim_ready())                                                                      \
            return GC_FORWARD(symbol, __VA_ARGS__);                                                \
        gc_shim_enter(GC_API_##symbol);                                                            \
        struct gc_device *device = gc_shim_device(ordinal);                                        \
        CUresult result = CUDA_ERROR_OUT_OF_MEMORY;                                                \
        struct gc_measure measure;                                                                 \
        uint64_t expected;                                                                         \
        if (expect_context(device, &expected)) {                                                   \
            gc_measure_begin(&measure, device);                                                    \
            result = GC_CALL(device, symbol, __VA_ARGS__);                                         \
            int64_t taken = gc_measure_end(&measure);                                              \
            const bool is_made = result == CUDA_SUCCESS && device != NULL && context != NULL;      \
            taken = settle_context(device, expected, &measure, is_made ? taken : 0);               \
            if (is_made)                                                                           \
                add_context(*context, device, GC_API_##symbol, taken);                             \
        }                                                                                          \
        gc_shim_leave();                                                                           \
        return result;                                                                             \
    } while (0)

GC_EXPORT
CUresult cuCtxCreate(CUcontext *context, unsigned flags, CUdevice ordinal)
{
    CREATE_CONTEXT(cuCtxCreate, context, flags, ordinal);
}

GC_EXPORT
CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice ordinal)
{
    CREATE_CONTEXT(cuCtxCreate_v2, context, flags, ordinal);
}

GC_EXPORT
CUresult cuCtxCreate_v3(CUcontext *context, CUexecAffinityParam *affinity, int affinity_count,
                        unsigned flags, CUdevice ordinal)
{
    CREATE_CONTEXT(cuCtxCreate_v3, context, affinity, affinity_count, flags, ordinal);
}

GC_EXPORT
CUresult cuCtxCreate_v4(CUcontext *context, CUctxCreateParams *params, unsigned flags,
                        CUdevice ordinal)
{
    CREATE_CONTEXT(cuCtxCreate_v4, context, params, flags, ordinal);
}

#define DESTROY_CONTEXT(symbol)                                                                    \
    do {                                                                                           \
        if (!gc_shim_ready())                                                                      \
            return GC_FORWARD(symbol, context);                                                    \
        gc_shim_enter(GC_API_##symbol);                                                            \
        const struct gc_context *known = gc_core_find_context(gc_shim.core, (uintptr_t)context);   \
        gc_core_set_leaving(gc_shim.core, (uintptr_t)context, true);                               \
        CUresult result = GC_CALL(known ? gc_context_device(known) : NULL, symbol, context);       \
        if (result == CUDA_SUCCESS)                                                                \
            drop_context(context);                                                                 \
        else                                                                                       \
            gc_core_set_leaving(gc_shim.core, (uintptr_t)context, false);                          \
        gc_shim_leave();                                                                           \
        return result;                                                                             \
    } while (0)

GC_EXPORT
CUresult cuCtxDestroy(CUcontext context)
{
    DESTROY_CONTEXT(cuCtxDestroy);
}

GC_EXPORT
CUresult cuCtxDestroy_v2(CUcontext context)
{
    DESTROY_CONTEXT(cuCtxDestroy_v2);
}

/* Changes the usage count by `change`; true if that was the last use. Unknown contexts are never at
 * it. */
static bool count_usage(CUcontext context, int change)
{
    gc_handles_lock();
    struct context_record *record = find_record_locked(context);
    bool is_last = false;
    if (record != NULL) {
        record->usage_count += (uint64_t)(int64_t)change;
        is_last = record->usage_count == 0;
    }
    gc_handles_unlock();
    return is_last;
}

GC_EXPORT
CUresult cuCtxAttach(CUcontext *context, unsigned flags)
{
    if (!gc_shim_ready())
        return GC_FORWARD(cuCtxAttach, context, flags);
    gc_shim_enter(GC_API_cuCtxAttach);
    CUresult result = GC_CALL(gc_shim_current_device(), cuCtxAttach, context, flags);
    if (result == CUDA_SUCCESS && context != NULL)
        count_usage(*context, 1);
    gc_shim_leave();
    return result;
}

GC_EXPORT
CUresult cuCtxDetach(CUcontext context)
{
    if (!gc_shim_ready())
        return GC_FORWARD(cuCtxDetach, context);
    gc_shim_enter(GC_API_cuCtxDetach);
    CUresult result = GC_CALL(gc_shim_current_device(), cuCtxDetach, context);
    if (result == CUDA_SUCCESS && count_usage(context, -1))
        drop_context(context);
    gc_shim_leave();
    return result;
}

/* ---- primary contexts ---- */

static uint64_t primary_key(CUdevice ordinal)
{
    return (uint64_t)(unsigned)ordinal + 1;
}

static bool primary_is_active(CUdevice ordinal)
{
    unsigned flags;
    int is_active = 0;

    return GC_USE(cuDevicePrimaryCtxGetState, ordinal, &flags, &is_active) == CUDA_SUCCESS &&
           is_active;
}

/* The driver gave the primary context up. The handle stays known: a reset context keeps it. */
static void drop_primary(CUdevice ordinal)
{
    struct gc_handle primary;

    if (gc_handles_get(GC_HANDLE_PRIMARY, primary_key(ordinal), &primary))
        drop_context((CUcontext)(uintptr_t)primary.value);
}

struct gc_context *gc_shim_primary_context(CUdevice ordinal)
{
    struct gc_handle primary;

    if (!gc_handles_get(GC_HANDLE_PRIMARY, primary_key(ordinal), &primary) ||
        !primary_is_active(ordinal))
        return NULL;
    return gc_shim_context((CUcontext)(uintptr_t)primary.value);
}

GC_EXPORT
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice ordinal)
{
    if (!gc_shim_ready())
        return GC_FORWARD(cuDevicePrimaryCtxRetain, context, ordinal);
    gc_shim_enter(GC_API_cuDevicePrimaryCtxRetain);
    struct gc_device *device = gc_shim_device(ordinal);
    bool is_new = device != NULL && !primary_is_active(ordinal);
    struct gc_measure measure;
    uint64_t expected;
    if (!expect_context(is_new ? device : NULL, &expected)) {
        gc_shim_leave();
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    gc_measure_begin(&measure, is_new ? device : NULL);
    CUresult result = GC_CALL(device, cuDevicePrimaryCtxRetain, context, ordinal);
    int64_t taken = gc_measure_end(&measure);
    const bool is_had = result == CUDA_SUCCESS && device != NULL && context != NULL;
    if (is_new)
        taken = settle_context(device, expected, &measure, is_had ? taken : 0);
    if (is_had) {
        (void)gc_handles_put(GC_HANDLE_PRIMARY, primary_key(ordinal), (uintptr_t)*context, 0);
        if (is_new)
            add_context(*context, device, GC_API_cuDevicePrimaryCtxRetain, taken);
    }
    gc_shim_leave();
    return result;
}

#define RELEASE_PRIMARY(symbol, always)                                                            \
    do {                                                                                           \
        if (!gc_shim_ready())                                                                      \
            return GC_FORWARD(symbol, ordinal);                                                    \
        gc_shim_enter(GC_API_##symbol);                                                            \
        CUresult result = GC_CALL(gc_shim_device(ordinal), symbol, ordinal);                       \
        if (result == CUDA_SUCCESS && ((always) || !primary_is_active(ordinal)))                   \
            drop_primary(ordinal);                                                                 \
        gc_shim_leave();                                                                           \
        return result;                                                                             \
    } while (0)

GC_EXPORT
CUresult cuDevicePrimaryCtxRelease(CUdevice ordinal)
{
    RELEASE_PRIMARY(cuDevicePrimaryCtxRelease, false);
}

GC_EXPORT
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice ordinal)
{
    RELEASE_PRIMARY(cuDevicePrimaryCtxRelease_v2, false);
}

GC_EXPORT
CUresult cuDevicePrimaryCtxReset(CUdevice ordinal)
{
    RELEASE_PRIMARY(cuDevicePrimaryCtxReset, true);
}

GC_EXPORT
CUresult cuDevicePrimaryCtxReset_v2(CUdevice ordinal)
{
    RELEASE_PRIMARY(cuDevicePrimaryCtxReset_v2, true);
}

/* The primary context is retained while it has green ones, so its handle can be learnt. */
static void learn_primary(CUdevice ordinal)
{
    struct gc_handle known;
    CUcontext primary;

    if (gc_handles_get(GC_HANDLE_PRIMARY, primary_key(ordinal), &known) ||
        GC_CALL(NULL, cuDevicePrimaryCtxRetain, &primary, ordinal) != CUDA_SUCCESS)
        return;
    (void)gc_handles_put(GC_HANDLE_PRIMARY, primary_key(ordinal), (uintptr_t)primary, 0);
    (void)GC_CALL(NULL, cuDevicePrimaryCtxRelease_v2, ordinal);
}

/* A green context is a part of a device's primary context: it uses the same memory, and work in
 * either may touch any of it. So what happens in it happens, for core, in the primary context. */
GC_EXPORT
CUresult cuCtxFromGreenCtx(CUcontext *context, CUgreenCtx green)
{
    CUcontext popped;
    CUdevice ordinal;

    if (!gc_shim_ready())
        return GC_FORWARD(cuCtxFromGreenCtx, context, green);
    gc_shim_enter(GC_API_cuCtxFromGreenCtx);
    CUresult result = GC_CALL(gc_shim_current_device(), cuCtxFromGreenCtx, context, green);
    if (result == CUDA_SUCCESS && context != NULL &&
        GC_USE(cuCtxPushCurrent_v2, *context) == CUDA_SUCCESS) {
        if (GC_USE(cuCtxGetDevice, &ordinal) == CUDA_SUCCESS) {
            learn_primary(ordinal);
            (void)gc_handles_put(GC_HANDLE_GREEN, (uintptr_t)*context, primary_key(ordinal), 0);
        }
        (void)GC_USE(cuCtxPopCurrent_v2, &popped);
    }
    gc_shim_leave();
    return result;
}

/* ---- limits and peers ---- */

/* Remembers what a limit changed, to be given back with the context. */
static void add_extra(CUcontext context, struct gc_device *device, int64_t bytes)
{
    bool is_prepared = gc_handles_prepare();

    if (bytes == 0)
        return;
    gc_handles_lock();
    struct context_record *record = find_record_locked(context);
    if (record == NULL && is_prepared)
        record = add_record_locked(context, device);
    if (record != NULL) {
        if (record->extra_bytes + bytes < 0)
            bytes = -record->extra_bytes; /* less than nothing: another process' doing */
        record->extra_bytes += bytes;
    }
    gc_handles_unlock();
    if (record != NULL)
        gc_direct_adjust(device, bytes);
}

GC_EXPORT
CUresult cuCtxSetLimit(CUlimit limit, size_t value)
{
    if (!gc_shim_ready())
        return GC_FORWARD(cuCtxSetLimit, limit, value);
    gc_shim_enter(GC_API_cuCtxSetLimit);
    struct gc_context *context = gc_shim_current_context();
    struct gc_device *device = context ? gc_context_device(context) : NULL;
    struct gc_measure measure;
    gc_measure_begin_current(&measure);
    CUresult result = GC_CALL(device, cuCtxSetLimit, limit, value);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && device != NULL && gc_direct_relieve(device, value))
        result = GC_CALL(device, cuCtxSetLimit, limit, value);
    if (result == CUDA_SUCCESS && context != NULL)
        add_extra((CUcontext)(uintptr_t)gc_context_handle(context), device,
                  gc_measure_end(&measure));
    gc_shim_leave();
    return result;
}
