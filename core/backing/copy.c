#include "core/backing/copy.h"

#include "core/device/registry.h"

#include <stddef.h>

static struct gc_gauge_cell *gauge_of(const struct gc_copy *copy)
{
    return copy->is_kept ? &copy->device->stats.kept : &copy->device->stats.swapped;
}

/* At most `bytes`. */
static struct gc_copy *create_one(struct gc_context *worker, uint64_t address, uint64_t bytes)
{
    struct gc_core *core = worker->core;
    struct gc_copy *copy = gc_slab_alloc(&core->copy_records);
    if (copy == NULL)
        return NULL;
    *copy = (struct gc_copy){.device = worker->device, .address = address};
    if (!gc_host_take(worker, bytes, &copy->piece)) {
        gc_slab_free(&core->copy_records, copy);
        return NULL;
    }
    gc_stats_add_gauge(gauge_of(copy), copy->piece.bytes);
    return copy;
}

struct gc_copy *gc_copy_create(struct gc_context *worker, uint64_t address, uint64_t bytes,
                               struct gc_copy *had)
{
    const uint64_t end = address + bytes;
    struct gc_copy *first = had;
    struct gc_copy **link = &first;
    while (address < end) {
        struct gc_copy *next = *link;
        if (next == NULL || next->address > address) {
            *link = create_one(worker, address, (next == NULL ? end : next->address) - address);
            if (*link == NULL) {
                *link = next;
                gc_copy_free(worker->core, first);
                return NULL;
            }
            (*link)->next = next;
        }
        address = (*link)->address + (*link)->piece.bytes;
        link = &(*link)->next;
    }
    return first;
}

struct gc_copy *gc_copy_cut(struct gc_core *core, struct gc_copy *copy, uint64_t bytes)
{
    struct gc_copy *rest = gc_slab_alloc(&core->copy_records);
    if (rest == NULL)
        return NULL;
    *rest = *copy;
    rest->address += bytes;
    rest->piece.memory += bytes;
    rest->piece.bytes -= bytes;
    copy->piece.bytes = bytes;
    return rest;
}

void gc_copy_set_kept(struct gc_copy *copy, bool is_kept)
{
    gc_stats_sub_gauge(gauge_of(copy), copy->piece.bytes);
    copy->is_kept = is_kept;
    gc_stats_add_gauge(gauge_of(copy), copy->piece.bytes);
}

void gc_copy_free(struct gc_core *core, struct gc_copy *copy)
{
    while (copy != NULL) {
        struct gc_copy *next = copy->next;
        gc_stats_sub_gauge(gauge_of(copy), copy->piece.bytes);
        gc_host_give(core, &copy->piece);
        gc_slab_free(&core->copy_records, copy);
        copy = next;
    }
}

struct gc_copy *gc_copy_join(struct gc_copy *a, struct gc_copy *b)
{
    struct gc_copy **end = &a;
    while (*end != NULL)
        end = &(*end)->next;
    *end = b;
    return a;
}

static int start_piece(struct gc_context *worker, const struct gc_copy *copy, bool is_out)
{
    const struct gc_driver *driver = &worker->core->driver;
    const struct gc_host_piece *piece = &copy->piece;
    if (driver->copy_wait == NULL)
        return is_out ? GC_CALL_IF_OPEN(worker,
                                        driver->read(driver->self, worker->handle, copy->address,
                                                     piece->bytes, piece->memory))
                      : GC_CALL_IF_OPEN(worker,
                                        driver->write(driver->self, worker->handle, copy->address,
                                                      piece->bytes, piece->memory));
    return is_out ? GC_CALL_IF_OPEN(worker,
                                    driver->copy_out(driver->self, worker->handle, copy->address,
                                                     piece->bytes, piece->memory))
                  : GC_CALL_IF_OPEN(worker,
                                    driver->copy_in(driver->self, worker->handle, copy->address,
                                                    piece->bytes, piece->memory));
}

int gc_copy_start(struct gc_context *worker, const struct gc_copy *copy, bool is_out)
{
    int code = 0;
    for (; copy != NULL && code == 0; copy = copy->next)
        if (!is_out || !copy->is_complete)
            code = start_piece(worker, copy, is_out);
    return code;
}

int gc_copy_across(struct gc_context *worker, uint64_t from, uint64_t to, uint64_t bytes)
{
    const struct gc_driver *driver = &worker->core->driver;
    return GC_CALL_IF_OPEN(worker,
                           driver->copy_across(driver->self, worker->handle, from, to, bytes));
}

static int wait_once(struct gc_context *worker, bool is_out)
{
    const struct gc_driver *driver = &worker->core->driver;
    return GC_CALL_IF_OPEN(worker, driver->copy_wait(driver->self, worker->handle, is_out));
}

/* After a failure nothing is known of the copies: the memory at both ends must not change hands
 * before they have ended. */
static void wait_again(struct gc_context *worker, bool is_out)
{
    const struct gc_driver *driver = &worker->core->driver;
    if (wait_once(worker, is_out) != 0)
        (void)GC_CALL_IF_OPEN(worker, driver->synchronize(driver->self, worker->handle));
}

int gc_copy_wait(struct gc_context *worker, bool is_out)
{
    if (worker->core->driver.copy_wait == NULL)
        return 0;
    const int code = wait_once(worker, is_out);
    if (code != 0)
        wait_again(worker, is_out);
    return code;
}
