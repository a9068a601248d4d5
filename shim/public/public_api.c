/* core/gpucache.h: identity, figures, limits. Nothing here starts CUDA. */
#include "core/report/snapshot.h"
#include "shim/account/mempool.h"
#include "shim/account/tenant.h"
#include "shim/public/public.h"
#include "shim/real/resolve.h"

#include <string.h>

/* Programs were compiled with this layout: fields are added at the end, never moved. */
_Static_assert(sizeof(struct gpucache_statistics) == 23 * 8, "its size is part of the interface");
_Static_assert(offsetof(struct gpucache_statistics, elastic_bytes) == 12 * 8, "and its layout");
_Static_assert(offsetof(struct gpucache_statistics, invalid_free_count) == 22 * 8, "to the end");
_Static_assert(sizeof(struct gpucache_fragmentation) == 5 * 8, "as above");
_Static_assert(sizeof(struct gpucache_elastic_statistics) == 15 * 8, "as above");
_Static_assert(offsetof(struct gpucache_elastic_statistics, base) == 14 * 8, "as above");
_Static_assert(sizeof(struct gpucache_tenant_statistics) == 18 * 8, "as above");
_Static_assert(offsetof(struct gpucache_tenant_statistics, base) == 17 * 8, "as above");
_Static_assert(sizeof(gpucache_status) == 4, "an int for every caller");

const char *gpucache_version(void)
{
    return GC_VERSION;
}

int gpucache_api_version(void)
{
    return GPUCACHE_API_VERSION;
}

const char *gpucache_status_text(gpucache_status status)
{
    switch ((int)status) {
#define STATUS_TEXT(name, value, text)                                                             \
    case value:                                                                                    \
        return text;
        GPUCACHE_STATUSES(STATUS_TEXT)
#undef STATUS_TEXT
    default:
        return "unknown status";
    }
}

gpucache_status gpucache_get_mode(int *mode, int *is_interposing)
{
    const gpucache_status state = gc_public_state();
    int value = GPUCACHE_MODE_OFF;

    if (state != GPUCACHE_OK && state != GPUCACHE_DISABLED)
        return state;
    if (state == GPUCACHE_OK)
        value = gc_shim.options->mode == GC_MODE_TRACK ? GPUCACHE_MODE_TRACK : GPUCACHE_MODE_CACHE;
    if (mode != NULL)
        *mode = value;
    if (is_interposing != NULL)
        *is_interposing = gc_resolve_is_interposing();
    return GPUCACHE_OK;
}

/* ---- figures ---- */

static void fill(struct gpucache_statistics *to, const struct gc_device_snapshot *from)
{
    *to = (struct gpucache_statistics){
        .total_bytes = from->info.total_bytes,
        .limit_bytes = from->limit_bytes,
        .requested_bytes = from->requested.current,
        .requested_peak_bytes = from->requested.peak,
        .allocated_bytes = from->allocated.current,
        .allocated_peak_bytes = from->allocated.peak,
        .reserved_bytes = from->reserved.current,
        .reserved_peak_bytes = from->reserved.peak,
        .pending_bytes = from->pending.current,
        .pending_peak_bytes = from->pending.peak,
        .idle_bytes = from->idle_bytes,
        .elastic_bytes = from->direct_bytes[GC_DIRECT_ELASTIC],
        .metadata_bytes = from->host_metadata_bytes,
        .alloc_count = from->alloc_count,
        .free_count = from->free_count,
        .hit_count = from->hit_count,
        .miss_count = from->miss_count,
        .oom_count = from->oom_count,
        .retry_count = from->retry_count,
        .trim_count = from->trim_count,
        .fence_count = from->fence_count,
        .invalid_free_count = from->invalid_free_count,
    };
}

gpucache_status gpucache_get_statistics(int device, struct gpucache_statistics *figures)
{
    struct gpucache_statistics now;
    struct gc_device_snapshot snapshot;
    struct gc_device *found;
    gpucache_status status;

    if (figures == NULL || figures->struct_bytes < sizeof(figures->struct_bytes))
        return GPUCACHE_INVALID_ARGUMENT;
    status = gc_public_find_device(device, &found);
    if (status != GPUCACHE_OK)
        return status;
    gc_tcache_flush_all_stats(gc_shim.core);
    gc_snapshot_read_device(gc_shim.core, found, &snapshot);
    fill(&now, &snapshot);
    /* A program built with another version of the header gets the fields that both know. */
    now.struct_bytes = figures->struct_bytes < sizeof(now) ? figures->struct_bytes : sizeof(now);
    memcpy(figures, &now, now.struct_bytes);
    return GPUCACHE_OK;
}

gpucache_status gpucache_get_fragmentation(int device, struct gpucache_fragmentation *figures)
{
    struct gpucache_fragmentation now = {.struct_bytes = sizeof(now)};
    struct gc_device_snapshot free_blocks;
    struct gc_device *found;
    gpucache_status status;

    if (figures == NULL || figures->struct_bytes < sizeof(figures->struct_bytes))
        return GPUCACHE_INVALID_ARGUMENT;
    status = gc_public_find_device(device, &found);
    if (status != GPUCACHE_OK)
        return status;
    gc_snapshot_read_free_blocks(gc_shim.core, found, &free_blocks);
    now.free_bytes = free_blocks.free_bytes;
    now.largest_free_bytes = free_blocks.largest_free_bytes;
    now.stitchable_bytes = free_blocks.stitchable_bytes;
    if (now.free_bytes != 0)
        now.ratio = 1.0 - (double)now.largest_free_bytes / (double)now.free_bytes;
    if (figures->struct_bytes < sizeof(now))
        now.struct_bytes = figures->struct_bytes;
    memcpy(figures, &now, now.struct_bytes);
    return GPUCACHE_OK;
}

gpucache_status gpucache_reset_peaks(int device)
{
    struct gc_device *found;
    const gpucache_status status = gc_public_find_device(device, &found);

    if (status == GPUCACHE_OK)
        gc_snapshot_reset_peaks(gc_shim.core, found);
    return status;
}

/* ---- idle memory ---- */

static uint64_t release_memory(struct gc_device *device, bool is_all, uint64_t keep_bytes)
{
    struct gc_public_call call = {.context = NULL};
    uint64_t bytes;

    gc_public_enter_context(NULL, NULL, GC_API_COUNT, &call);
    if (is_all) {
        bytes = gc_reclaim_empty(gc_shim.core, device);
        gc_mempool_reclaim(device); /* idle memory of stream-ordered pools and graphs */
    } else {
        bytes = gc_reclaim_trim(gc_shim.core, device, keep_bytes);
    }
    gc_public_leave(&call);
    return bytes;
}

static gpucache_status release_idle_of(int device, bool is_all, uint64_t keep_bytes,
                                       uint64_t *given_bytes)
{
    struct gc_device *found;
    uint64_t given = 0;
    gpucache_status status = gc_public_state();

    if (device == GPUCACHE_ALL_DEVICES && status == GPUCACHE_OK) {
        for (int i = 0; i < GC_PUBLIC_DEVICES; i++) {
            found = gc_device_find(gc_shim.core, i);
            if (found != NULL)
                given += release_memory(found, is_all, keep_bytes);
        }
    } else {
        status = gc_public_find_device(device, &found);
        if (status != GPUCACHE_OK)
            return status;
        given = release_memory(found, is_all, keep_bytes);
    }
    if (given_bytes != NULL)
        *given_bytes = given;
    return GPUCACHE_OK;
}

gpucache_status gpucache_empty_cache(int device, uint64_t *given_bytes)
{
    return release_idle_of(device, true, 0, given_bytes);
}

gpucache_status gpucache_trim(int device, uint64_t keep_bytes, uint64_t *given_bytes)
{
    return release_idle_of(device, false, keep_bytes, given_bytes);
}

/* ---- limits ---- */

gpucache_status gpucache_get_limit(int device, uint64_t *limit_bytes)
{
    struct gc_device *found;
    gpucache_status status;

    if (limit_bytes == NULL)
        return GPUCACHE_INVALID_ARGUMENT;
    status = gc_public_find_device(device, &found);
    if (status == GPUCACHE_OK)
        *limit_bytes = gc_device_own_limit_bytes(found);
    return status;
}

gpucache_status gpucache_set_limit(int device, uint64_t limit_bytes)
{
    struct gc_public_call call = {.context = NULL};
    struct gc_device *found;
    gpucache_status status;

    if (limit_bytes == 0)
        return GPUCACHE_INVALID_ARGUMENT;
    status = gc_public_find_device(device, &found);
    if (status != GPUCACHE_OK)
        return status;
    gc_public_enter_context(NULL, NULL, GC_API_COUNT, &call);
    gc_limit_set(gc_shim.core, found, limit_bytes);
    gc_public_leave(&call);
    return GPUCACHE_OK;
}

gpucache_status gpucache_would_fit(int device, uint64_t bytes, int *fits, uint64_t *available_bytes)
{
    struct gc_public_call call = {.context = NULL};
    struct gc_device *found;
    uint64_t available = 0;
    int driver_code = 0;
    struct gc_quota *quota;
    enum gc_status asked;
    const gpucache_status status = gc_public_find_device(device, &found);

    if (status != GPUCACHE_OK)
        return status;
    GC_SET_CALLER();
    gc_public_enter_context(NULL, NULL, GC_API_COUNT, &call);
    asked = gc_tenants_quota(found, &quota);
    if (asked == GC_OK)
        asked = gc_available_bytes(gc_shim.core, found, quota, &available, &driver_code);
    gc_public_leave(&call);
    if (asked != GC_OK)
        return gc_public_status(asked, driver_code);
    if (fits != NULL)
        *fits = bytes <= available;
    if (available_bytes != NULL)
        *available_bytes = available;
    return GPUCACHE_OK;
}
