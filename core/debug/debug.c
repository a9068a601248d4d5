/* The history of freed blocks, and what is found by looking at their memory: see debug.h.
 *
 * The last frees are kept in a ring. A record whose memory was filled says so until that memory is
 * handed out or leaves; what is older than the ring is not looked at. Memory moves by its address
 * only here, so poison goes with the driver's own memory, never with lent pages (device.c). */
#include "core/debug/debug.h"

#include "core/base/assert.h"
#include "core/device/registry.h"

#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FREED_MAX 8192
#define CHUNK_BYTES ((uint64_t)64 << 10)
#define FAULT_LINES 12

struct freed {
    uint64_t address;
    uint64_t bytes; /* of the memory; 0: no record */
    uint64_t requested_bytes;
    uint64_t id;
    uint64_t at_ns;
    struct gc_context *context;
    uint32_t thread;
    uint16_t api;
    uint16_t free_api;
    bool is_filled;
};

struct gc_debugger {
    struct gc_lock lock; /* guards the ring */
    unsigned flags;
    uint64_t start_ns;
    struct gc_debug_maps *maps;
    atomic_flag has_reported_fault;
    atomic_flag has_reported_no_mapping;
    uint64_t next; /* place of the next record */
    uint32_t filled_count;
    struct freed freed[FREED_MAX];
};

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
    if (gc_debug_maps_create(core, &debug->maps) != GC_OK) {
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
    gc_debug_maps_destroy(core, debug->maps);
    gc_lock_fini(&debug->lock);
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

bool gc_debug_maps_blocks(const struct gc_core *core)
{
    return (core->debug->flags & (GC_DEBUG_GUARD | GC_DEBUG_UAF)) != 0;
}

struct gc_debug_maps *gc_debug_maps_of(struct gc_core *core)
{
    return core->debug->maps;
}

unsigned gc_debug_flags(const struct gc_core *core)
{
    return core->debug->flags;
}

/* Nothing of the context's, or its peers', begins to capture until gc_context_wait_end. False, with
 * nothing to end, if something captures already: the driver may be asked nothing then. */
static bool hold(struct gc_context *context, struct gc_wait_set *set)
{
    gc_pool_acquire_plain(&context->pool);
    const bool may = gc_context_wait_begin_locked(context, set);
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

static void log_history(struct gc_core *core, const struct freed *freed, const char *what)
{
    gc_log_write(core->log, GC_LOG_ERROR,
                 "%s block %llu at 0x%llx, %llu bytes, taken by %s, freed by %s in thread %u after "
                 "%.6f s",
                 what, (unsigned long long)freed->id, (unsigned long long)freed->address,
                 (unsigned long long)freed->requested_bytes, api_name(core, freed->api),
                 api_name(core, freed->free_api), freed->thread,
                 (double)(freed->at_ns - core->debug->start_ns) / 1e9);
}

/* The last block that was freed and held the address. */
static bool find_freed(struct gc_debugger *debug, uint64_t address, struct freed *found)
{
    bool is_found = false;
    gc_lock_acquire(&debug->lock);
    for (uint64_t i = debug->next; !is_found && i > 0 && debug->next - i < FREED_MAX; i--) {
        const struct freed *freed = &debug->freed[(i - 1) % FREED_MAX];
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
    struct freed freed;
    const bool is_freed = live == NULL && find_freed(core->debug, address, &freed);
    gc_log_write(core->log, GC_LOG_ERROR, "%s was given 0x%llx, which %s", api_name(core, api),
                 (unsigned long long)address,
                 live != NULL ? "is not the start of"
                 : is_freed   ? "was freed already:"
                              : "is no block");
    if (live != NULL)
        gc_log_write(core->log, GC_LOG_ERROR, "  block %llu at 0x%llx, %llu bytes, taken by %s",
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
    struct freed last[FAULT_LINES];
    unsigned count = 0;
    if (debug == NULL || atomic_flag_test_and_set(&debug->has_reported_fault))
        return;
    gc_log_write(core->log, GC_LOG_ERROR,
                 "the program used memory that is not there; the last blocks that were freed:");
    gc_lock_acquire(&debug->lock);
    for (uint64_t i = debug->next; i > 0 && count < FAULT_LINES && debug->next - i < FREED_MAX; i--)
        if (debug->freed[(i - 1) % FREED_MAX].bytes != 0)
            last[count++] = debug->freed[(i - 1) % FREED_MAX];
    gc_lock_release(&debug->lock);
    for (unsigned i = 0; i < count; i++)
        log_history(core, &last[i], " ");
}

/* ---- looking ---- */

/* How many bytes of the range are not `value`; the first one's offset and content. */
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

static void check_freed(const struct freed *part, uint64_t offset)
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
    struct freed whole = *part;
    whole.address -= offset;
    log_history(core, &whole, " ");
}

static void drop_locked(struct gc_debugger *debug, struct freed *freed)
{
    debug->filled_count -= freed->is_filled;
    freed->is_filled = false;
}

/* Takes the first filled record that shares memory with the range; `part` is what they share. */
static bool take_overlap(struct gc_debugger *debug, const struct gc_context *context,
                         uint64_t address, uint64_t bytes, struct freed *part, uint64_t *offset)
{
    bool is_found = false;
    gc_lock_acquire(&debug->lock);
    for (unsigned i = 0; debug->filled_count > 0 && i < FREED_MAX && !is_found; i++) {
        struct freed *freed = &debug->freed[i];
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
        /* What lies behind is still free, and in front nothing is, by the way blocks are split. */
        if (freed->address + freed->bytes > end) {
            freed->bytes -= end - freed->address;
            freed->address = end;
        } else if (freed->address < start) {
            freed->bytes = start - freed->address;
        } else {
            drop_locked(debug, freed);
        }
    }
    gc_lock_release(&debug->lock);
    return is_found;
}

/* While something captures, what was filled is forgotten unseen. */
static void check_released(struct gc_context *context, uint64_t address, uint64_t bytes)
{
    struct gc_wait_set set;
    struct freed part;
    uint64_t offset;
    const bool may_check = hold(context, &set);
    while (take_overlap(context->core->debug, context, address, bytes, &part, &offset))
        if (may_check)
            check_freed(&part, offset);
    gc_context_wait_end(&set);
}

/* ---- blocks come and go ---- */

void gc_debug_on_alloc(struct gc_context *context, uint64_t address, uint64_t bytes,
                       uint64_t requested_bytes)
{
    struct gc_core *core = context->core;
    const struct gc_driver *driver = &core->driver;
    struct gc_wait_set set;
    check_released(context, address, bytes);
    if ((core->debug->flags & GC_DEBUG_GUARD) == 0 || requested_bytes % GC_GRANULE == 0 ||
        !gc_debug_maps_has(core, address))
        return;
    if (hold(context, &set) &&
        GC_CALL_IF_OPEN(
            context, driver->fill(driver->self, context->handle, address + requested_bytes,
                                  GC_GRANULE - requested_bytes % GC_GRANULE, GC_DEBUG_EDGE)) == 0)
        gc_debug_maps_set_edge(core, address);
    gc_context_wait_end(&set);
}

static void check_edge(struct gc_context *context, const struct freed *freed)
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

static void remember(struct gc_debugger *debug, const struct freed *freed)
{
    gc_lock_acquire(&debug->lock);
    struct freed *record = &debug->freed[debug->next++ % FREED_MAX];
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
    struct freed freed = {
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
    if (hold(context, &set) && wait_idle(&set)) {
        if (gc_debug_maps_has_edge(core, address))
            check_edge(context, &freed);
        /* Where nothing is mapped poison is all there is. */
        freed.is_filled =
            !gc_debug_maps_has(core, address) &&
            GC_CALL_IF_OPEN(context, driver->fill(driver->self, context->handle, address,
                                                  info->capacity, GC_DEBUG_FREED)) == 0;
    }
    gc_context_wait_end(&set);
    remember(core->debug, &freed);
}

void gc_debug_on_release(struct gc_context *context, uint64_t address, uint64_t bytes)
{
    check_released(context, address, bytes);
}

void gc_debug_drop_context(struct gc_context *context)
{
    struct gc_debugger *debug = context->core->debug;
    gc_lock_acquire(&debug->lock);
    for (unsigned i = 0; i < FREED_MAX; i++)
        if (debug->freed[i].context == context)
            drop_locked(debug, &debug->freed[i]);
    gc_lock_release(&debug->lock);
    gc_debug_maps_drop(context);
}
