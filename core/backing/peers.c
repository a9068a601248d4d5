/* Peers of a context: their devices get access to its memory, mapped already or later. */
#include "core/backing/peers.h"

#include "core/backing/spill.h"
#include "core/debug/guard.h"
#include "core/device/registry.h"
#include "core/device/wait.h"

#include <stddef.h>

/* ---- memory that is mapped already ---- */

/* The first run of mapped slots at or after `i`; false if there is none. The caller has the change,
 * so the slots do not change. */
static bool next_run(const struct gc_arena *arena, uint64_t *i, uint64_t *end)
{
    while (*i < arena->touched_count && arena->slots[*i] == NULL)
        (*i)++;
    *end = *i;
    while (*end < arena->touched_count && arena->slots[*end] != NULL)
        (*end)++;
    return *i < *end;
}

/* Returns the driver's code of the last refusal, or 0. */
static int grant_arena(struct gc_change *change, const struct gc_arena *arena)
{
    const struct gc_context *context = change->context;
    const struct gc_driver *driver = &context->core->driver;
    const uint64_t page_bytes = context->pool.pages.page_bytes;
    int refused = 0;
    uint64_t end;
    for (uint64_t i = 0; next_run(arena, &i, &end); i = end) {
        const int code = GC_CALL_IF_OPEN(
            context, driver->page_set_access(
                         driver->self, context->handle, arena->segment->address + i * page_bytes,
                         (end - i) * page_bytes, change->peers, change->peer_count));
        refused = code != 0 ? code : refused;
    }
    return refused;
}

/* As grant_arena, for all arenas. */
static int grant_all(struct gc_change *change)
{
    struct gc_pages *pages = &change->context->pool.pages;
    int refused = 0;
    for (const struct gc_arena *arena = pages->arenas; arena != NULL; arena = arena->next) {
        const int code = grant_arena(change, arena);
        refused = code != 0 ? code : refused;
    }
    const int spill_code = gc_spill_grant(change);
    refused = spill_code != 0 ? spill_code : refused;
    pages->is_access_due = refused != 0;
    return refused;
}

/* Memory is swapped out: the swap-in grants access to the peers of that time. The flag is for a
 * part that was swapped in before a swap-in failed. */
static void grant_later(struct gc_context *context)
{
    gc_pool_acquire_plain(&context->pool);
    context->pool.pages.is_access_due = true;
    gc_pool_release(&context->pool);
}

/* Grants a new peer's device access to everything mapped, also in a capture. GC_DRIVER with the
 * driver's code: the runs after a refused one are granted all the same, and the refused one is
 * tried again at the next map operation. */
static enum gc_status grant_mapped(struct gc_context *context, int *driver_code)
{
    struct gc_change change;
    if (context->pool.pages.page_bytes == 0)
        return GC_OK;
    enum gc_status status;
    unsigned reattach_count;
    do {
        reattach_count = gc_core_reattach_count(context->core);
        status = gc_change_begin_access(context, &change);
    } while (status == GC_INVALID_ARGUMENT && gc_wait_teardown(context, reattach_count));
    if (status == GC_DRIVER)
        grant_later(context);
    if (status != GC_OK)
        return status == GC_DRIVER ? GC_OK : status;
    *driver_code = grant_all(&change);
    gc_change_end(&change);
    return *driver_code == 0 ? GC_OK : GC_DRIVER;
}

void gc_peers_grant_rest(struct gc_change *change)
{
    if (change->context->pool.pages.is_access_due)
        (void)grant_all(change);
}

/* Later map operations grant access themselves. */
static void grant_mappings(struct gc_context *context)
{
    int code = 0;
    if (grant_mapped(context, &code) != GC_OK)
        gc_log_write(context->core->log, GC_LOG_WARN,
                     "memory of device %d that is mapped already is not open to a peer (driver "
                     "code %d)",
                     context->device->info.ordinal, code);
}

/* ---- new peers ---- */

/* For one record; `peer` is a head. */
static void add_peer(struct gc_context *context, struct gc_context *peer)
{
    if (!gc_peers_begin_opening(context, peer))
        return;
    grant_mappings(context);
    if (context->core->debug != NULL)
        gc_guard_grant_access(context);
    gc_peers_end_opening(context);
}

/* The head first: a thread that creates a record meanwhile copies the head's peers. */
static void add_peer_to_all(struct gc_context *head, struct gc_context *peer)
{
    for (struct gc_context *record = head; record != NULL; record = gc_context_next_record(record))
        add_peer(record, peer);
}

void gc_backing_add_peer(struct gc_context *context, struct gc_context *peer)
{
    int ignored;
    if (peer->head == context->head)
        return;
    (void)gc_submit_leave_single_stream(context->core, &ignored);
    add_peer_to_all(context->head, peer->head);
    /* The context uses stream-ordered memory, of the device's pool, as its own: its peers may, too.
     */
    struct gc_context *ordered = gc_device_ordered(context->device);
    if (ordered != NULL && ordered != context->head)
        add_peer_to_all(ordered, peer->head);
}

void gc_peers_copy(struct gc_context *record)
{
    struct gc_context *peers[GC_PEER_MAX];
    gc_pool_acquire_plain(&record->head->pool);
    const uint32_t count = record->head->peer_count;
    const bool is_crowded = record->head->is_crowded;
    for (uint32_t i = 0; i < count; i++)
        peers[i] = record->head->peers[i];
    gc_pool_release(&record->head->pool);
    gc_pool_acquire_plain(&record->pool);
    record->is_crowded |= is_crowded;
    gc_pool_release(&record->pool);
    for (uint32_t i = 0; i < count; i++)
        if (!gc_context_is_dropped(peers[i]))
            add_peer(record, peers[i]);
    atomic_store_explicit(&record->has_peers, true, memory_order_release);
}

void gc_backing_open_ordered(struct gc_device *device, int ordinal)
{
    struct gc_context *ordered = gc_device_admit(device, ordinal);
    for (; ordered != NULL; ordered = gc_context_next_record(ordered))
        grant_mappings(ordered);
}
