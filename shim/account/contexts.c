/* Contexts from creation to destruction: see contexts.h.
 *
 * A context's own memory is charged by difference. After the driver has destroyed the context, that
 * memory and all else recorded for the context are uncharged. */
#include "shim/account/contexts.h"
#include "shim/account/direct.h"
#include "shim/account/graph_memory.h"
#include "shim/account/measure.h"
#include "shim/account/mempool.h"
#include "shim/driver/capture_guard.h"
#include "shim/driver/driver.h"
#include "shim/handles.h"

/* The facts about a context that core's record does not hold. */
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
        record = gc_handles_alloc_record_locked();
        if (record == NULL)
            return NULL;
        gc_handles_set_locked(GC_HANDLE_CONTEXT, (uintptr_t)context, (uintptr_t)record, 0);
    }
    *record = (struct context_record){.device = device, .usage_count = 1};
    return record;
}

/* Records the memory that a context takes and is charged for, beside core's record of it. */
static void track(CUcontext handle, struct gc_device *device, enum gc_api api, int64_t taken)
{
    struct gc_direct direct = {
        .kind = GC_DIRECT_CONTEXT,
        .key = (uintptr_t)handle,
        .requested_bytes = (uint64_t)taken,
        .charged_bytes = (uint64_t)taken,
        .device = device,
        .api = (uint16_t)api,
    };

    const enum gc_status status = gc_direct_track(gc_shim.core, &direct);
    if (status != GC_OK)
        gc_direct_log_lost(api, status); /* the charge stays */
}

void gc_contexts_add(CUcontext handle, struct gc_device *device, enum gc_api api, int64_t taken)
{
    struct gc_context *context;
    bool is_prepared = gc_handles_prepare();

    gc_contexts_end(gc_contexts_end_begin(handle), true);
    (void)gc_handles_remove(GC_HANDLE_GREEN, (uintptr_t)handle, NULL);
    const enum gc_status status =
        gc_setup_add_context(gc_shim.core, (uintptr_t)handle, device, &context);
    if (status != GC_OK) {
        gc_direct_log_lost(api, status);
        return;
    }
    gc_handles_lock();
    if (is_prepared)
        add_record_locked(handle, device);
    gc_handles_unlock();
    if (taken > 0)
        track(handle, device, api, taken);
}

struct gc_context *gc_contexts_end_begin(CUcontext handle)
{
    gc_thread.is_unconfirmed = 1; /* it may be the current one */
    return gc_teardown_begin(gc_shim.core, (uintptr_t)handle);
}

/* Removes the handle's entries. Once core has finished the teardown the handle may belong to
 * another context. */
static void forget_handle(CUcontext handle)
{
    struct context_record copy = {0};
    struct gc_direct direct;

    gc_handles_lock();
    struct context_record *record = find_record_locked(handle);
    if (record != NULL) {
        copy = *record;
        gc_handles_remove_locked(GC_HANDLE_CONTEXT, (uintptr_t)handle, NULL);
        gc_handles_free_record_locked(record);
    }
    gc_handles_unlock();
    gc_direct_adjust(copy.device, -copy.extra_bytes);
    gc_driver_fence_drop((uintptr_t)handle);
    (void)!gc_direct_untrack(gc_shim.core, GC_DIRECT_CONTEXT, (uintptr_t)handle, &direct);
}

void gc_contexts_end(struct gc_context *context, bool is_gone)
{
    if (context == NULL)
        return;
    if (!is_gone) {
        gc_teardown_cancel(context);
        return;
    }
    gc_capture_drop_context(context);
    forget_handle((CUcontext)(uintptr_t)gc_context_handle(context)); /* NOLINT: an integer */
    gc_teardown_finish(context);
    gc_mempool_refresh(gc_context_device(context));
    gc_graph_refresh(gc_context_device(context));
}

/* ---- the memory of a context ---- */

bool gc_contexts_charge(struct gc_device *device, uint64_t *expected)
{
    *expected = device == NULL ? 0 : gc_group_context_bytes(device);
    return *expected == 0 ||
           gc_direct_charge_device(gc_shim.core, device, NULL, *expected) == GC_OK;
}

int64_t gc_contexts_commit(struct gc_device *device, uint64_t expected,
                           const struct gc_measure *measure, int64_t taken)
{
    if (device == NULL || taken < 0)
        taken = 0;
    gc_direct_adjust(device, taken - (int64_t)expected);
    if (taken > 0) {
        gc_direct_commit(gc_shim.core, device, NULL);
        if (measure->is_exact)
            gc_group_set_context_bytes(device, (uint64_t)taken);
    }
    return taken;
}

uint64_t gc_contexts_count_usage(CUcontext context, int change)
{
    gc_handles_lock();
    struct context_record *record = find_record_locked(context);
    uint64_t count = 1;
    if (record != NULL)
        count = record->usage_count += (uint64_t)(int64_t)change;
    gc_handles_unlock();
    return count;
}

void gc_contexts_add_extra(CUcontext context, struct gc_device *device, int64_t bytes)
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
            bytes = -record->extra_bytes; /* not below 0: other processes released memory */
        record->extra_bytes += bytes;
    }
    gc_handles_unlock();
    if (record != NULL)
        gc_direct_adjust(device, bytes);
}
