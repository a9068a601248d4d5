/* The driver's part of a lending: slots are taken from stage to stage, those that lie side by side
 * and are alike in one call. */
#include "core/backing/map.h"
#include "core/base/assert.h"
#include "core/device/registry.h"

#include <stddef.h>

static uint64_t address_of(const struct gc_lending *lending, uint64_t i)
{
    return lending->arena->segment->address + i * lending->pool->pages.page_bytes;
}

static enum gc_status refuse(struct gc_lending *lending, int code)
{
    lending->refusal->driver_code = code;
    lending->is_device_full = code == lending->context->core->driver.out_of_memory;
    lending->refusal->decline.is_share_short = false;
    return lending->is_device_full ? GC_OUT_OF_MEMORY : GC_DRIVER;
}

static enum gc_status create_pages(struct gc_lending *lending)
{
    struct gc_context *context = lending->context;
    const struct gc_driver *driver = &context->core->driver;
    for (uint64_t i = lending->first; i < lending->end; i++) {
        struct gc_slot *slot = gc_lend_slot(lending, i);
        if (slot->stage != GC_SLOT_NEEDS || slot->planned != NULL)
            continue;
        struct gc_page *page = gc_slab_take(&context->device->page_records);
        if (page == NULL)
            return GC_NO_HOST_MEMORY;
        *page = (struct gc_page){.user = slot, .is_fresh = true};
        const int code = GC_IN_CONTEXT(context, driver->page_create(driver->self, context->handle,
                                                                    lending->pool->pages.page_bytes,
                                                                    &page->handle));
        if (code != 0) {
            gc_slab_put(&context->device->page_records, page);
            return refuse(lending, code);
        }
        slot->planned = page;
        lending->create_count--;
        gc_context_add_pages(context, lending->pool->pages.page_bytes);
    }
    return GC_OK;
}

/* The end of the run of slots in `stage` that starts at `i`, all with a page or all without. */
static uint64_t run_end(const struct gc_lending *lending, uint64_t i, enum gc_slot_stage stage)
{
    const bool has_page = gc_lend_slot(lending, i)->page != NULL;
    while (i < lending->end && gc_lend_slot(lending, i)->stage == stage &&
           (stage != GC_SLOT_NEEDS || (gc_lend_slot(lending, i)->page != NULL) == has_page))
        i++;
    return i;
}

static void set_stage(const struct gc_lending *lending, uint64_t i, uint64_t end,
                      enum gc_slot_stage stage)
{
    for (; i < end; i++)
        gc_lend_slot(lending, i)->stage = (uint8_t)stage;
}

static void trace_run(const struct gc_lending *lending, enum gc_trace_op op, uint64_t i,
                      uint64_t end)
{
    if (i < end)
        gc_device_trace_memory(lending->context->device, op, GC_TRACE_PAGES, address_of(lending, i),
                               (end - i) * lending->pool->pages.page_bytes);
}

static int unmap_run(struct gc_lending *lending, uint64_t i, uint64_t end)
{
    const struct gc_driver *driver = &lending->context->core->driver;
    if (gc_lend_slot(lending, i)->page == NULL)
        return 0;
    const int code =
        driver->page_unmap(driver->self, lending->context->handle, address_of(lending, i),
                           (end - i) * lending->pool->pages.page_bytes);
    if (code == 0)
        trace_run(lending, GC_TRACE_UNMAP, i, end);
    return code;
}

static int map_run(struct gc_lending *lending, uint64_t i, uint64_t end)
{
    const struct gc_driver *driver = &lending->context->core->driver;
    const uint64_t first = i;
    int code = 0;
    for (; i < end; i++) {
        code =
            GC_IN_CONTEXT(lending->context,
                          driver->page_map(driver->self, lending->context->handle,
                                           address_of(lending, i), lending->pool->pages.page_bytes,
                                           gc_lend_slot(lending, i)->planned->handle));
        if (code != 0)
            break;
        set_stage(lending, i, i + 1, GC_SLOT_MAPPED);
    }
    trace_run(lending, GC_TRACE_MAP, first, i);
    return code;
}

static int share_run(struct gc_lending *lending, uint64_t i, uint64_t end)
{
    const struct gc_driver *driver = &lending->context->core->driver;
    return GC_IN_CONTEXT(
        lending->context,
        driver->page_set_access(driver->self, lending->context->handle, address_of(lending, i),
                                (end - i) * lending->pool->pages.page_bytes, lending->change.peers,
                                lending->change.peer_count));
}

typedef int step_run(struct gc_lending *lending, uint64_t i, uint64_t end);

/* Takes each run of slots from one stage to the next. */
static enum gc_status advance(struct gc_lending *lending, enum gc_slot_stage from, step_run *step)
{
    for (uint64_t i = lending->first; i < lending->end; i++) {
        if (gc_lend_slot(lending, i)->stage != from)
            continue;
        const uint64_t end = run_end(lending, i, from);
        const int code = step(lending, i, end);
        if (code != 0)
            return refuse(lending, code);
        set_stage(lending, i, end, from + 1);
        i = end - 1;
    }
    return GC_OK;
}

enum gc_status gc_lend_ask_driver(struct gc_lending *lending)
{
    GC_ASSERT(gc_lock_held_count() == 0);
    int code = 0;
    if (lending->must_unmap && !gc_reuse_quiesce(lending->context, &code))
        return code != 0 ? refuse(lending, code) : GC_OUT_OF_MEMORY;
    enum gc_status status = create_pages(lending);
    if (status == GC_OK)
        status = advance(lending, GC_SLOT_NEEDS, unmap_run);
    if (status == GC_OK)
        status = advance(lending, GC_SLOT_EMPTY, map_run);
    if (status == GC_OK)
        status = advance(lending, GC_SLOT_MAPPED, share_run);
    return status;
}

uint64_t gc_lend_uncreate(struct gc_lending *lending)
{
    struct gc_context *context = lending->context;
    const struct gc_driver *driver = &context->core->driver;
    const uint64_t page_bytes = lending->pool->pages.page_bytes;
    for (uint64_t i = lending->first; i < lending->end; i++) {
        struct gc_slot *slot = gc_lend_slot(lending, i);
        struct gc_page *page = slot->planned;
        if (page == NULL || !page->is_fresh)
            continue;
        if (slot->stage >= GC_SLOT_MAPPED &&
            driver->page_unmap(driver->self, context->handle, address_of(lending, i), page_bytes) ==
                0) {
            slot->stage = GC_SLOT_EMPTY;
            trace_run(lending, GC_TRACE_UNMAP, i, i + 1);
        }
        if (slot->stage >= GC_SLOT_MAPPED ||
            driver->page_release(driver->self, context->handle, page->handle) != 0)
            continue; /* it stays, idle */
        slot->planned = NULL;
        gc_slab_put(&context->device->page_records, page);
        lending->create_count++;
        gc_context_sub_pages(context, page_bytes);
    }
    return lending->create_count;
}
