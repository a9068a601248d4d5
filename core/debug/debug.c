/* The history of freed blocks and the checks of their memory: see debug.h.
 *
 * The history is a ring of the last 8192 frees. A record is "filled" while its memory holds poison:
 * until that memory is reused or released. Memory whose record left the ring is not checked.
 * Records are found by address, so poison works with the driver's own memory only;
 * core/device/device.c therefore does not let pools remap pages under GPUCACHE_DEBUG. */
#include "core/debug/debug.h"

#include "core/base/assert.h"
#include "core/debug/guard.h"

#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CHUNK_BYTES ((uint64_t)64 << 10)
#define FAULT_LINES 12

/* ---- life ---- */

enum gc_status gc_debug_init(struct gc_core *core)
{
    if (core->options->debug == 0)
        return GC_OK;
    if (core->mode != GC_MODE_CACHE) {
        gc_log_write(core->log, GC_LOG_WARN, "GPUCACHE_DEBUG needs GPUCACHE_MODE=cache: ignored");
        return GC_OK;
    }
    struct gc_debugger *debug = gc_host_mem_map(&core->host, sizeof(*debug));
    if (debug == NULL)
        return GC_NO_HOST_MEMORY;
    if (gc_guard_create(core, &debug->guard) != GC_OK) {
        gc_host_mem_unmap(&core->host, debug, sizeof(*debug));
        return GC_NO_HOST_MEMORY;
    }
    gc_lock_init(&debug->lock, GC_RANK_DEBUG);
    debug->flags = core->options->debug;
    debug->start_ns = gc_core_now_ns(core);
    core->debug = debug;
    return GC_OK;
}

void gc_debug_fini(struct gc_core *core)
{
    struct gc_debugger *debug = core->debug;
    if (debug == NULL)
        return;
    gc_guard_destroy(core, debug->guard);
    gc_host_mem_unmap(&core->host, debug, sizeof(*debug));
    core->debug = NULL;
}

void gc_debug_add_device(struct gc_core *core, const struct gc_device *device)
{
    struct gc_debugger *debug = core->debug;
    if (gc_debug_maps_blocks(core) && !device->info.has_mapping)
        gc_log_once(core->log, &debug->has_reported_no_mapping, GC_LOG_WARN,
                    "GPUCACHE_DEBUG: device %d cannot map memory (%s); poison only",
                    device->info.ordinal, device->info.backend_reason);
}

/* Makes captures of the context and its peers wait until gc_peers_wait_end. False, with an empty
 * set: a capture is under way, and no driver call is allowed. */
static bool hold_captures(struct gc_context *context, struct gc_wait_set *set)
{
    gc_pool_acquire_plain(&context->pool);
    const bool may = gc_peers_wait_begin_locked(context, set);
    gc_pool_release(&context->pool);
    return may;
}

static bool wait_idle(const struct gc_wait_set *set)
{
    int ignored;
    return gc_fence_wait_set(set, &ignored) == GC_OK;
}

/* ---- history ---- */

static const char *api_name(const struct gc_core *core, uint16_t api)
{
    return api < core->api_count ? core->api_names[api] : "an unknown entry point";
}

static void log_history(struct gc_core *core, const struct gc_debug_freed *freed, const char *what)
{
    gc_log_write(
        core->log, GC_LOG_ERROR,
        "%s block %llu at 0x%llx, %llu bytes, allocated by %s, freed by %s in thread %u after "
        "%.6f s",
        what, (unsigned long long)freed->id, (unsigned long long)freed->address,
        (unsigned long long)freed->requested_bytes, api_name(core, freed->api),
        api_name(core, freed->free_api), freed->thread,
        (double)(freed->at_ns - core->debug->start_ns) / 1e9);
}

/* The latest free in the history whose block contained the address. */
static bool find_freed(struct gc_debugger *debug, uint64_t address, struct gc_debug_freed *found)
{
    bool is_found = false;
    gc_lock_acquire(&debug->lock);
    for (uint64_t i = debug->next; !is_found && i > 0 && debug->next - i < GC_DEBUG_HISTORY_MAX;
         i--) {
        const struct gc_debug_freed *freed = &debug->freed[(i - 1) % GC_DEBUG_HISTORY_MAX];
        is_found = address >= freed->address && address - freed->address < freed->requested_bytes;
        if (is_found)
            *found = *freed;
    }
    gc_lock_release(&debug->lock);
    return is_found;
}

void gc_debug_report_refused_free(struct gc_core *core, uint64_t address, uint16_t api,
                                  const struct gc_block_info *live)
{
    struct gc_debug_freed freed;
    const bool is_freed = live == NULL && find_freed(core->debug, address, &freed);
    gc_log_write(core->log, GC_LOG_ERROR, "%s was given 0x%llx, which %s", api_name(core, api),
                 (unsigned long long)address,
                 live != NULL ? "is not the start of"
                 : is_freed   ? "was freed already:"
                              : "is no block");
    if (live != NULL)
        gc_log_write(core->log, GC_LOG_ERROR, "  block %llu at 0x%llx, %llu bytes, allocated by %s",
                     (unsigned long long)live->id, (unsigned long long)live->address,
                     (unsigned long long)live->bytes, api_name(core, live->api));
    if (is_freed)
        log_history(core, &freed, " ");
}

void gc_debug_report_unknown_free(struct gc_core *core, uint64_t address, uint16_t api)
{
    if (core->debug != NULL)
        gc_debug_report_refused_free(core, address, api, NULL);
}

void gc_debug_report_fault(struct gc_core *core)
{
    struct gc_debugger *debug = core->debug;
    struct gc_debug_freed last[FAULT_LINES];
    unsigned count = 0;
    if (debug == NULL || atomic_flag_test_and_set(&debug->has_reported_fault))
        return;
    gc_log_write(core->log, GC_LOG_ERROR,
                 "the program accessed memory that is not mapped; the blocks freed last:");
    gc_lock_acquire(&debug->lock);
    for (uint64_t i = debug->next;
         i > 0 && count < FAULT_LINES && debug->next - i < GC_DEBUG_HISTORY_MAX; i--)
        if (debug->freed[(i - 1) % GC_DEBUG_HISTORY_MAX].bytes != 0)
            last[count++] = debug->freed[(i - 1) % GC_DEBUG_HISTORY_MAX];
    gc_lock_release(&debug->lock);
    for (unsigned i = 0; i < count; i++)
        log_history(core, &last[i], " ");
}

/* ---- checks ---- */

/* Returns how many bytes of the range differ from `value`, with the offset and content of the
 * first. */
static uint64_t count_changed(struct gc_context *context, uint64_t address, uint64_t bytes,
                              uint8_t value, uint64_t *first, uint8_t *found)
{
    const struct gc_driver *driver = &context->core->driver;
    struct gc_host_mem *host = &context->core->host;
    uint8_t *copy = gc_host_mem_map(host, CHUNK_BYTES);
    uint64_t changed = 0;
    for (uint64_t done = 0; copy != NULL && done < bytes; done += CHUNK_BYTES) {
        const uint64_t count = gc_min_u64(bytes - done, CHUNK_BYTES);
        if (GC_CALL_IF_OPEN(context, driver->read(driver->self, context->handle, address + done,
                                                  count, copy)) != 0)
            break;
        for (uint64_t i = 0; i < count; i++) {
            if (copy[i] == value)
                continue;
            if (changed++ == 0) {
                *first = done + i;
                *found = copy[i];
            }
        }
    }
    if (copy != NULL)
        gc_host_mem_unmap(host, copy, CHUNK_BYTES);
    return changed;
}

static void check_freed(const struct gc_debug_freed *part, uint64_t offset)
{
    struct gc_core *core = part->context->core;
    uint64_t first = 0;
    uint8_t found = 0;
    const uint64_t changed =
        count_changed(part->context, part->address, part->bytes, GC_DEBUG_FREED, &first, &found);
    if (changed == 0)
        return;
    gc_counter_add(&part->context->device->stats.misuse_count, 1);
    gc_log_write(core->log, GC_LOG_ERROR,
                 "%llu bytes were written after they were freed, the first 0x%02x at byte %llu of",
                 (unsigned long long)changed, found,
                 (unsigned long long)offset + (unsigned long long)first);
    struct gc_debug_freed whole = *part;
    whole.address -= offset;
    log_history(core, &whole, " ");
}

static void clear_fill_locked(struct gc_debugger *debug, struct gc_debug_freed *freed)
{
    debug->filled_count -= freed->is_filled;
    freed->is_filled = false;
}

/* Finds a filled record that overlaps the range. `part` is a copy cut to the overlap, which no
 * longer counts as filled. */
static bool pop_overlap(struct gc_debugger *debug, const struct gc_context *context,
                        uint64_t address, uint64_t bytes, struct gc_debug_freed *part,
                        uint64_t *offset)
{
    bool is_found = false;
    gc_lock_acquire(&debug->lock);
    for (unsigned i = 0; debug->filled_count > 0 && i < GC_DEBUG_HISTORY_MAX && !is_found; i++) {
        struct gc_debug_freed *freed = &debug->freed[i];
        if (!freed->is_filled || freed->context != context || freed->address >= address + bytes ||
            freed->address + freed->bytes <= address)
            continue;
        const uint64_t start = gc_max_u64(freed->address, address);
        const uint64_t end = gc_min_u64(freed->address + freed->bytes, address + bytes);
        *part = *freed;
        *offset = start - freed->address;
        part->address = start;
        part->bytes = end - start;
        is_found = true;
        /* If parts on both sides remain, only the one behind stays filled: blocks are split from
         * their start, so no memory in front of the range is free. */
        if (freed->address + freed->bytes > end) {
            freed->bytes -= end - freed->address;
            freed->address = end;
        } else if (freed->address < start) {
            freed->bytes = start - freed->address;
        } else {
            clear_fill_locked(debug, freed);
        }
    }
    gc_lock_release(&debug->lock);
    return is_found;
}

/* During a capture the records are cleared without a check. */
static void check_released(struct gc_context *context, uint64_t address, uint64_t bytes)
{
    struct gc_wait_set set;
    struct gc_debug_freed part;
    uint64_t offset;
    const bool may_check = hold_captures(context, &set);
    while (pop_overlap(context->core->debug, context, address, bytes, &part, &offset))
        if (may_check)
            check_freed(&part, offset);
    gc_peers_wait_end(&set);
}

/* ---- allocation and free ---- */

void gc_debug_on_alloc(struct gc_context *context, uint64_t address, uint64_t bytes,
                       uint64_t requested_bytes)
{
    struct gc_core *core = context->core;
    const struct gc_driver *driver = &core->driver;
    struct gc_wait_set set;
    check_released(context, address, bytes);
    if ((core->debug->flags & GC_DEBUG_GUARD) == 0 || requested_bytes % GC_GRANULE == 0 ||
        !gc_guard_has(core, address))
        return;
    if (hold_captures(context, &set) &&
        GC_CALL_IF_OPEN(
            context, driver->fill(driver->self, context->handle, address + requested_bytes,
                                  GC_GRANULE - requested_bytes % GC_GRANULE, GC_DEBUG_EDGE)) == 0)
        gc_guard_set_edge(core, address);
    gc_peers_wait_end(&set);
}

static void check_edge(struct gc_context *context, const struct gc_debug_freed *freed)
{
    struct gc_core *core = context->core;
    uint64_t first = 0;
    uint8_t found = 0;
    const uint64_t changed = count_changed(context, freed->address + freed->requested_bytes,
                                           GC_GRANULE - freed->requested_bytes % GC_GRANULE,
                                           GC_DEBUG_EDGE, &first, &found);
    if (changed == 0)
        return;
    gc_counter_add(&context->device->stats.misuse_count, 1);
    gc_log_write(core->log, GC_LOG_ERROR,
                 "%llu bytes were written past the end, the first 0x%02x %llu bytes behind it, of",
                 (unsigned long long)changed, found, (unsigned long long)first);
    log_history(core, freed, " ");
}

static void record_free(struct gc_debugger *debug, const struct gc_debug_freed *freed)
{
    gc_lock_acquire(&debug->lock);
    struct gc_debug_freed *record = &debug->freed[debug->next++ % GC_DEBUG_HISTORY_MAX];
    debug->filled_count += (uint32_t)freed->is_filled - (uint32_t)record->is_filled;
    *record = *freed;
    gc_lock_release(&debug->lock);
}

void gc_debug_before_free(const struct gc_block_info *info, uint16_t api)
{
    struct gc_context *context = info->owner;
    struct gc_core *core = context->core;
    const struct gc_driver *driver = &core->driver;
    const uint64_t address = info->address;
    if (gc_context_is_dropped(context))
        return;
    struct gc_debug_freed freed = {
        .address = address,
        .bytes = info->capacity,
        .requested_bytes = info->bytes,
        .id = info->id,
        .at_ns = driver->clock_ns(driver->self),
        .context = context,
        .thread = (uint32_t)syscall(SYS_gettid),
        .api = info->api,
        .free_api = api,
    };
    struct gc_wait_set set;
    if (hold_captures(context, &set) && wait_idle(&set)) {
        if (gc_guard_has_edge(core, address))
            check_edge(context, &freed);
        /* A guarded block's pages are unmapped at its free, so only other blocks get poison. */
        freed.is_filled =
            !gc_guard_has(core, address) &&
            GC_CALL_IF_OPEN(context, driver->fill(driver->self, context->handle, address,
                                                  info->capacity, GC_DEBUG_FREED)) == 0;
    }
    gc_peers_wait_end(&set);
    record_free(core->debug, &freed);
}

void gc_debug_on_release(struct gc_context *context, uint64_t address, uint64_t bytes)
{
    check_released(context, address, bytes);
}

void gc_debug_drop_context(struct gc_context *context)
{
    struct gc_debugger *debug = context->core->debug;
    gc_lock_acquire(&debug->lock);
    for (unsigned i = 0; i < GC_DEBUG_HISTORY_MAX; i++)
        if (debug->freed[i].context == context)
            clear_fill_locked(debug, &debug->freed[i]);
    gc_lock_release(&debug->lock);
    gc_guard_drop_context(context);
}
