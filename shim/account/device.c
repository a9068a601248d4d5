/* Devices and contexts as core knows them, added when they are first seen. Every driver call here
 * is made from inside a wrapper, by the thread whose context it concerns. */
#include "shim/account/device.h"
#include "shim/account/helper.h"
#include "shim/account/primary.h"
#include "shim/account/tenant.h"
#include "shim/driver/backend.h"
#include "shim/driver/capture_guard.h"
#include "shim/driver/driver.h"
#include "shim/handles.h"
#include "shim/real/resolve.h"

#include <stdio.h>
#include <string.h>

static void format_uuid(const CUuuid *uuid, char *text, size_t bytes)
{
    const unsigned char *b = (const unsigned char *)uuid->bytes;

    snprintf(text, bytes,
             "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1],
             b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14],
             b[15]);
}

/* Only the v2 call distinguishes the instances of a MIG device. */
static void get_uuid(CUdevice ordinal, char *text, size_t bytes)
{
    CUuuid uuid;

    if (GC_USE(cuDeviceGetUuid_v2, &uuid, ordinal) == CUDA_SUCCESS ||
        GC_USE(cuDeviceGetUuid, &uuid, ordinal) == CUDA_SUCCESS)
        format_uuid(&uuid, text, bytes);
}

bool gc_account_describe_device(CUdevice ordinal, uint64_t *total_bytes, char uuid[GC_UUID_BYTES])
{
    size_t total;

    uuid[0] = '\0';
    if (GC_CALL(NULL, cuDeviceTotalMem_v2, &total, ordinal) != CUDA_SUCCESS)
        return false;
    *total_bytes = total;
    get_uuid(ordinal, uuid, GC_UUID_BYTES);
    return true;
}

static struct gc_device *add_device(CUdevice ordinal)
{
    struct gc_device_info info = {.ordinal = ordinal};
    struct gc_device *device;
    size_t total;

    if (GC_CALL(NULL, cuDeviceTotalMem_v2, &total, ordinal) != CUDA_SUCCESS)
        return NULL;
    info.total_bytes = total;
    get_uuid(ordinal, info.uuid, sizeof(info.uuid));
    if (GC_USE(cuDeviceGetName, info.name, (int)sizeof(info.name), ordinal) != CUDA_SUCCESS)
        strcpy(info.name, "?");
    gc_shim.driver_version = gc_resolve_driver_version();
    gc_backend_describe(&info);
    if (gc_setup_add_device(gc_shim.core, &info, &device) != GC_OK)
        return NULL;
    gc_helper_start();
    return device;
}

struct gc_device *gc_account_device(CUdevice ordinal)
{
    struct gc_device *device = gc_device_find(gc_shim.core, ordinal);

    return device != NULL ? device : add_device(ordinal);
}

/* The primary context of a green one; for any other context, that context. */
static CUcontext primary_of(CUcontext handle)
{
    struct gc_handle green, primary;

    if (!gc_handles_get(GC_HANDLE_GREEN, (uintptr_t)handle, &green) ||
        !gc_handles_get(GC_HANDLE_PRIMARY, green.value, &primary))
        return handle;
    return (CUcontext)(uintptr_t)primary.value;
}

/* Whether the current context is a green one, even if its creation passed no wrapper. */
static bool is_green(void)
{
    CUgreenCtx green = NULL;

    return GC_USE(cuStreamGetGreenCtx, CU_STREAM_LEGACY, &green) == CUDA_SUCCESS && green != NULL;
}

/* For the hot path, which checks with core that the record is still valid. */
static struct gc_context *remember(CUcontext handle, struct gc_context *context)
{
    if (gc_thread.handle != handle || gc_thread.context != context) {
        gc_thread.handle = handle;
        gc_thread.context = context;
        gc_tenants_reset_target();
    }
    return context;
}

struct gc_context *gc_account_current_context(void)
{
    struct gc_context *context;
    struct gc_device *device;
    CUcontext handle = NULL;
    CUdevice ordinal;

    if (GC_USE(cuCtxGetCurrent, &handle) != CUDA_SUCCESS || handle == NULL)
        return NULL;
    context = gc_context_find(gc_shim.core, (uint64_t)(uintptr_t)handle);
    if (context != NULL)
        return remember(handle, context);
    /* Not remembered: core knows no record by a green context's own handle. */
    handle = primary_of(handle);
    context = gc_context_find(gc_shim.core, (uint64_t)(uintptr_t)handle);
    if (context != NULL)
        return context;
    if (GC_USE(cuCtxGetDevice, &ordinal) != CUDA_SUCCESS ||
        (device = gc_account_device(ordinal)) == NULL)
        return NULL;
    if (is_green()) {
        gc_primary_add_green(handle, ordinal);
        handle = primary_of(handle);
    }
    if (gc_setup_add_context(gc_shim.core, (uint64_t)(uintptr_t)handle, device, &context) != GC_OK)
        return NULL;
    return remember(handle, context);
}

struct gc_device *gc_account_current_device(void)
{
    struct gc_context *context = gc_account_current_context();

    return context == NULL ? NULL : gc_context_device(context);
}

struct gc_context *gc_account_context(CUcontext handle)
{
    struct gc_context *context;
    bool pushed;

    if (handle == NULL)
        return NULL;
    context = gc_context_find(gc_shim.core, (uintptr_t)handle);
    if (context == NULL)
        context = gc_context_find(gc_shim.core, (uintptr_t)primary_of(handle));
    if (context != NULL || gc_driver_enter_context((uintptr_t)handle, &pushed) != CUDA_SUCCESS)
        return context;
    context = gc_account_current_context();
    gc_driver_leave_context(pushed);
    return context;
}

struct gc_context *gc_account_stream_context(CUstream stream)
{
    struct gc_context *context = NULL;
    CUcontext handle;

    if (gc_contexts_are_several(gc_shim.core) && stream != NULL && stream != CU_STREAM_LEGACY &&
        stream != CU_STREAM_PER_THREAD && GC_USE(cuStreamGetCtx, stream, &handle) == CUDA_SUCCESS)
        context = gc_account_context(handle);
    return context != NULL ? context : gc_account_current_context();
}

/* ---- the state of the program's thread and context ----
 *
 * A call that core serves returns the result that the plain driver would return in that state; the
 * driver itself is queried, by calls that change nothing. Two facts are cached, so that hits stay
 * cheap. A thread's context is confirmed while the driver reported a current one and no call since
 * then may have changed that. A context is faulted once any call reported a lasting error: thread
 * caches and pools of faulted contexts are closed, so every call takes this path. An error of
 * queued work is known as soon as any call reports it; a program that only allocates and frees is
 * served until then. */

/* Calls the driver with a call that needs a working context and takes or releases no memory. */
static CUresult call_driver(void)
{
    size_t free_bytes, total_bytes;
    struct gc_capture_guard guard;

    gc_capture_relax(&guard);
    CUresult result = GC_USE(cuMemGetInfo_v2, &free_bytes, &total_bytes);
    gc_capture_restore(&guard);
    return result;
}

CUresult gc_account_check_state(bool is_unsafe, struct gc_context **current)
{
    CUresult result = CUDA_SUCCESS;

    *current = gc_account_current_context();
    gc_thread.is_unconfirmed = *current == NULL;
    if (*current == NULL || gc_context_is_faulted(*current))
        result = call_driver();
    if (result == CUDA_SUCCESS && is_unsafe)
        result = gc_capture_check();
    return result;
}
