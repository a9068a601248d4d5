/* Non-pool ("direct") memory: the steps common to every wrapper of a driver allocation outside the
 * pool. The charge follows the kernel's memcg: charge first, then commit or uncharge.
 *
 *     begin → charge (before the driver call) → driver call → record → end
 *
 * end uncharges what was charged for a call that failed, so a refusal leaves the account unchanged.
 * After a call that succeeded the charge stays, with the record or without one: no memory escapes
 * the limit. Memory that cannot be recorded is given back to the driver, and its call fails. A
 * release keeps its charge until the driver has released the memory; meanwhile its record is
 * marked, since the driver may give the same address or handle to another thread before the record
 * is removed. */
#include "shim/account/direct.h"
#include "core/base/assert.h"
#include "shim/account/device.h"
#include "shim/account/graph_memory.h"
#include "shim/account/mempool.h"
#include "shim/account/tenant.h"
#include "shim/driver/driver.h"
#include "shim/handles.h"
#include "shim/real/resolve.h"

#include <sched.h>

/* How often a thread yields to another that is about to remove the record of the same key. */
#define RELEASE_YIELDS 10000
/* Reclaims per request: other threads may take the memory first. */
#define RECLAIM_ATTEMPTS 4
/* Other threads may take the same key before each. */
#define RECORD_ATTEMPTS 4

static atomic_flag record_lost_logged = ATOMIC_FLAG_INIT;

void gc_direct_begin(struct gc_direct_request *request, enum gc_api symbol)
{
    request->api = gc_shim_enter(symbol);
    gc_tcache_flush_stats(gc_thread.tcache);
    request->context = gc_account_current_context();
    request->device = request->context ? gc_context_device(request->context) : NULL;
    request->quota = NULL;
    request->reserved_bytes = 0;
    request->is_refused = false;
}

/* Finds the quota at the request's first charge. False: the quota could not be opened. */
static bool find_quota(struct gc_direct_request *request)
{
    return request->reserved_bytes != 0 ||
           gc_tenants_quota(request->device, &request->quota) == GC_OK;
}

/* Where the driver's pools may have idle memory, that is tried before all else is. */
static __attribute__((noinline)) bool try_charge(const struct gc_direct_request *request,
                                                 uint64_t bytes)
{
    bool is_trial = bytes <= gc_device_limit_bytes(request->device);
    bool is_charged = false;

    for (int i = 0; is_trial; i++) {
        is_charged = gc_direct_try_charge(gc_shim.core, request->device, request->quota, bytes);
        is_trial = !is_charged && i < RECLAIM_ATTEMPTS && gc_mempool_reclaim(request->device);
    }
    return is_charged;
}

CUresult gc_direct_charge_untenanted(struct gc_direct_request *request, uint64_t bytes)
{
    if (request->device == NULL || bytes == 0)
        return CUDA_SUCCESS;
    if (!(gc_mempool_may_reclaim() && try_charge(request, bytes)) &&
        gc_direct_charge_device(gc_shim.core, request->device, request->quota, bytes) != GC_OK) {
        request->is_refused = true;
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    request->reserved_bytes += bytes;
    return CUDA_SUCCESS;
}

CUresult gc_direct_charge(struct gc_direct_request *request, uint64_t bytes)
{
    return request->device == NULL || bytes == 0 || find_quota(request)
               ? gc_direct_charge_untenanted(request, bytes)
               : CUDA_ERROR_OUT_OF_MEMORY;
}

/* ---- managed memory ---- */

#define MANAGED_GRANULE UINT64_C(512)

static atomic_flag denial_logged = ATOMIC_FLAG_INIT;

bool gc_direct_denies_managed(enum gc_api api)
{
    if (gc_shim.options->managed != GC_MANAGED_DENY)
        return false;
    gc_log_once(&gc_shim.log, &denial_logged, GC_LOG_WARN,
                "%s: managed memory is refused (GPUCACHE_MANAGED=deny); GPUCACHE_MANAGED=limit "
                "counts it against the limit, count does not limit it",
                gc_shim_api_names[api]);
    return true;
}

CUresult gc_direct_charge_managed(struct gc_direct_request *request, uint64_t bytes)
{
    const bool may_spill = (gc_shim.options->overcommit & GC_OVERCOMMIT_SPILL) != 0;
    uint64_t charged_bytes;

    if (gc_shim.options->managed != GC_MANAGED_LIMIT || request->device == NULL)
        return CUDA_SUCCESS;
    if (bytes > UINT64_MAX - MANAGED_GRANULE)
        return CUDA_SUCCESS; /* the driver refuses it */
    charged_bytes = (bytes + MANAGED_GRANULE - 1) / MANAGED_GRANULE * MANAGED_GRANULE;
    if (!may_spill)
        return gc_direct_charge(request, charged_bytes);
    if (find_quota(request) && charged_bytes <= gc_device_limit_bytes(request->device) &&
        gc_direct_try_charge(gc_shim.core, request->device, request->quota, charged_bytes))
        request->reserved_bytes += charged_bytes;
    return CUDA_SUCCESS;
}

/* ---- records ---- */

static bool find(enum gc_direct_kind kind, uint64_t key, struct gc_direct *found)
{
    return (gc_direct_is_address(kind) ? gc_direct_find_address(gc_shim.core, key, found)
                                       : gc_direct_find(gc_shim.core, kind, key, found)) == GC_OK;
}

/* The driver has just returned the key: waits for the thread that releases the former allocation of
 * the key, or removes the record of an allocation that was released unseen. */
static void clear_key(enum gc_direct_kind kind, uint64_t key)
{
    struct gc_direct former, stale;
    bool is_there = find(kind, key, &former);

    for (int i = 0; i < RELEASE_YIELDS && is_there && former.is_releasing; i++) {
        sched_yield();
        is_there = find(kind, key, &former);
    }
    if (!is_there)
        return;
    /* The account of the pool removes core's record too. */
    if ((former.kind == GC_DIRECT_ASYNC && gc_mempool_remove(key)) ||
        gc_direct_untrack(gc_shim.core, former.kind, key, &stale) == GC_OK)
        gc_log_write(&gc_shim.log, GC_LOG_DEBUG,
                     "0x%llx was released by a call that was not seen; its record is replaced",
                     (unsigned long long)key);
}

/* Where another context has got the handle meanwhile, as a primary context does after a reset, the
 * memory may be that one's. */
static enum gc_status track(struct gc_direct *direct)
{
    const uint64_t handle = gc_direct_context_handle(direct);
    enum gc_status status = gc_direct_track(gc_shim.core, direct);

    for (int i = 0; (status == GC_BUSY || status == GC_GONE) && i < RECORD_ATTEMPTS; i++) {
        if (status == GC_BUSY)
            clear_key(direct->kind, direct->key);
        else if ((direct->context = gc_context_find(gc_shim.core, handle)) == NULL)
            break;
        status = gc_direct_track(gc_shim.core, direct);
    }
    return status;
}

/* Uncharges all bytes that are charged and not recorded. */
static void uncharge_rest(struct gc_direct_request *request)
{
    if (request->device != NULL && request->reserved_bytes != 0)
        gc_direct_uncharge(gc_shim.core, request->device, request->quota, request->reserved_bytes);
    request->reserved_bytes = 0;
}

bool gc_direct_record(struct gc_direct_request *request, enum gc_direct_kind kind, uint64_t key,
                      uint64_t requested_bytes)
{
    if (request->device == NULL)
        return true;
    struct gc_direct direct = {
        .kind = kind,
        .key = key,
        .requested_bytes = requested_bytes,
        .charged_bytes = request->reserved_bytes,
        .device = request->device,
        .quota = request->quota,
        .context = kind == GC_DIRECT_HANDLE ? NULL : request->context,
        .api = (uint16_t)request->api,
    };

    const enum gc_status status = track(&direct);
    if (status == GC_OK)
        request->reserved_bytes = 0;
    else if (status == GC_GONE)
        uncharge_rest(request); /* the memory went with its context */
    else
        gc_direct_log_lost(request->api, status);
    return request->reserved_bytes == 0;
}

void gc_direct_log_lost(enum gc_api api, enum gc_status status)
{
    gc_log_once(&gc_shim.log, &record_lost_logged, GC_LOG_WARN,
                "an allocation of %s cannot be recorded: %s; memory that counts against the limit "
                "is given back, or stays charged",
                gc_shim_api_names[api], gc_status_text(status));
}

CUresult gc_direct_end(struct gc_direct_request *request, CUresult result)
{
    if (result != CUDA_SUCCESS)
        uncharge_rest(request);
    if (result == CUDA_SUCCESS && request->device != NULL)
        gc_direct_commit(gc_shim.core, request->device, request->quota);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && request->device != NULL && !request->is_refused)
        gc_device_count_oom(gc_shim.core, request->device, request->quota);
    gc_shim_leave();
    return result;
}

/* ---- releases ---- */

void gc_direct_release_begin(struct gc_direct_release *release, enum gc_direct_kind kind,
                             uint64_t key)
{
    release->is_marked = gc_direct_mark(gc_shim.core, kind, key, &release->direct) == GC_OK;
    if (!release->is_marked)
        release->direct = (struct gc_direct){.kind = kind, .key = key};
}

void gc_direct_release_end(const struct gc_direct_release *release, bool is_released)
{
    if (release->is_marked)
        gc_direct_end_mark(gc_shim.core, &release->direct, is_released);
    else if (is_released)
        gc_log_write(&gc_shim.log, GC_LOG_DEBUG, "release of 0x%llx, which has no record",
                     (unsigned long long)release->direct.key);
}

/* ---- a free of memory outside the pool ----
 *
 * The driver frees the memory and returns its result; the record is removed once that has
 * succeeded. The kind is found once, before the driver may give the address to another
 * allocation. */

/* Core drops its records of an ended context's stream-ordered memory; gc_handles keeps its own. */
void gc_direct_free_begin(struct gc_direct_release *release, CUdeviceptr dptr)
{
    struct gc_handle handle;

    release->is_marked = gc_direct_mark_address(gc_shim.core, dptr, &release->direct) == GC_OK;
    if (!release->is_marked)
        release->direct = (struct gc_direct){.kind = gc_handles_get(GC_HANDLE_ASYNC, dptr, &handle)
                                                         ? GC_DIRECT_ASYNC
                                                         : GC_DIRECT_KIND_COUNT,
                                             .key = dptr};
}

void gc_direct_free_end(const struct gc_direct_release *release, bool is_freed)
{
    if (release->direct.kind == GC_DIRECT_KIND_COUNT) {
        if (is_freed)
            gc_graph_refresh_all();
        return;
    }
    /* The account of the pool removes core's record too. */
    const bool is_removed =
        is_freed && release->direct.kind == GC_DIRECT_ASYNC &&
        (!release->is_marked || gc_direct_is_there(gc_shim.core, &release->direct)) &&
        gc_mempool_remove(release->direct.key);
    gc_direct_release_end(release, is_freed && !is_removed);
}

CUresult gc_direct_free(CUdeviceptr dptr, bool first_abi)
{
    struct gc_device *device = gc_account_current_device();
    struct gc_direct_release release;

    gc_direct_free_begin(&release, dptr);
    const CUresult result = first_abi ? GC_CALL(device, cuMemFree, (CUdeviceptr_v1)dptr)
                                      : GC_CALL(device, cuMemFree_v2, dptr);
    gc_direct_free_end(&release, result == CUDA_SUCCESS);
    return result;
}

/* ---- reclaim ---- */

bool gc_direct_reclaim_all(struct gc_device *device, uint64_t wanted_bytes, bool is_request)
{
    bool is_reclaimed = gc_direct_reclaim(gc_shim.core, device, wanted_bytes, is_request);

    is_reclaimed |= gc_mempool_trim(device);
    is_reclaimed |= gc_graph_trim(device);
    return is_reclaimed;
}

static bool reclaim(void *self, uint64_t context, uint64_t bytes)
{
    struct gc_device *device = gc_driver_device(context);

    (void)self;
    (void)bytes;
    return device != NULL && gc_mempool_reclaim(device);
}

void gc_direct_driver_init(struct gc_driver *driver)
{
    GC_ASSERT(driver->clock_ns != NULL && driver->reclaim == NULL);
    driver->reclaim = reclaim;
}
