/* The exporter's side: a thread of the library's own answers processes that open blocks of this
 * one. It starts with the first handle that the program asks for.
 *
 * A process that opens a block is an owner in gc_core.opens until it says that it has closed the
 * block, or has ended: while the kernel still lists it, its work may still run on the device. So
 * memory that another process can write never serves anybody else. */
#define _GNU_SOURCE
#include "core/share/share.h"

#include "core/backing/change.h"
#include "core/device/lookup.h"
#include "core/io/writer.h"
#include "core/ledger/process.h"
#include "core/reclaim/defer.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Between two looks whether a process that broke its connection has ended. */
#define DYING_POLL_MS 20
/* From the first look that finds another program to the end of the former one's use: the kernel
 * releases the device's descriptors, and the driver their queued work, some time after the exec,
 * and nothing shows when. */
#define EXEC_NS UINT64_C(10000000000)
#define END_PAUSES 100
#define END_PAUSE_NS 1000000
/* In gc_core.opens: this process, while it makes a handle. Connections count from 1. */
#define OWNER_SELF UINT64_MAX

/* ---- the start ---- */

static bool start(struct gc_share *share)
{
    const struct gc_ledger *ledger = share->core->ledger;
    if (!gc_share_is_possible(share->core))
        return false;
    share->folder = gc_wire_open_folder(ledger->path);
    share->name = gc_wire_random();
    share->secret = gc_wire_random();
    if (share->folder < 0 || share->name == 0 || share->secret == 0)
        return false;
    gc_wire_sweep(share->folder);
    return gc_wire_listen(share->folder, share->name, &share->listener);
}

enum gc_status gc_share_start(struct gc_core *core, bool *is_first)
{
    struct gc_share *share = core->share;
    unsigned state = GC_SHARE_NONE;
    *is_first = atomic_compare_exchange_strong_explicit(&share->state, &state, GC_SHARE_STARTING,
                                                        memory_order_relaxed, memory_order_relaxed);
    if (*is_first) {
        state = start(share) ? GC_SHARE_OPEN : GC_SHARE_FAILED;
        atomic_store_explicit(&share->state, state, memory_order_release);
        return state == GC_SHARE_OPEN ? GC_OK : GC_NOT_SUPPORTED;
    }
    /* Acquire: pairs with the release above. */
    while ((state = atomic_load_explicit(&share->state, memory_order_acquire)) == GC_SHARE_STARTING)
        nanosleep(&(struct timespec){0, END_PAUSE_NS}, NULL);
    return state == GC_SHARE_OPEN ? GC_OK : GC_NOT_SUPPORTED;
}

static void stop(struct gc_share *share)
{
    if (atomic_exchange_explicit(&share->state, GC_SHARE_FAILED, memory_order_acq_rel) ==
        GC_SHARE_OPEN)
        gc_wire_unlink(share->folder, share->name);
}

bool gc_share_is_possible(const struct gc_core *core)
{
    return core->driver.page_export != NULL && core->ledger != NULL &&
           atomic_load_explicit(&core->share->state, memory_order_relaxed) != GC_SHARE_FAILED;
}

void gc_share_stop(struct gc_core *core)
{
    stop(core->share);
}

/* ---- the extents of a block ---- */

/* At most `most` extents of a block, from number `first` on. */
struct part {
    uint64_t first;
    uint32_t most;
    uint64_t handles[GC_WIRE_FDS];
    struct gc_wire_reply reply;
};

static void add_extent(struct part *part, const struct gc_extent *extent, uint64_t page_bytes)
{
    struct gc_wire_reply *reply = &part->reply;
    const uint64_t bytes = extent->page_count * page_bytes;
    if (reply->total_count >= part->first && reply->count < part->most) {
        part->handles[reply->count] = extent->driver_handle;
        reply->extent_bytes[reply->count++] = bytes;
    }
    reply->total_count++;
    reply->total_bytes += bytes;
}

static void list_extents_locked(const struct gc_pool *pool, const struct gc_block *block,
                                struct part *part)
{
    const struct gc_span span = gc_pages_span_of_block_locked(pool, block);
    const uint64_t page_bytes = pool->pages.page_bytes;
    for (uint64_t i = span.first; i < span.end;) {
        const struct gc_mapping *mapping = span.arena->slots[i];
        if (i == span.first)
            part->reply.offset = block->address - gc_pages_address_of(pool, mapping);
        add_extent(part, mapping->extent, page_bytes);
        i = gc_pages_end_of(mapping);
    }
    part->reply.bytes = block->live.requested_bytes;
}

/* The block with that address and number, its pool locked; NULL, not locked. `is_freed`: also if it
 * is freed and held. */
static struct gc_block *lock_exported(struct gc_core *core, uint64_t address, uint64_t id,
                                      bool is_freed)
{
    struct gc_block *block;
    if (gc_lookup_lock_block(core, address, &block) != GC_OK)
        return NULL;
    const uint8_t state = atomic_load_explicit(&block->state, memory_order_acquire);
    const bool is_it = block->address == address && block->is_exported &&
                       (state == GC_BLOCK_LIVE || (is_freed && state == GC_BLOCK_FREEING)) &&
                       block->live.id == id;
    if (is_it)
        return block;
    gc_pool_release(gc_block_pool(block));
    return NULL;
}

static enum gc_status export_extents(struct gc_context *context, struct part *part, int *fds)
{
    const struct gc_driver *driver = &context->core->driver;
    for (uint32_t i = 0; i < part->reply.count; i++) {
        int fd = -1;
        const int code = driver->page_export(driver->self, context->handle, part->handles[i], &fd);
        fds[i] = code == 0 ? gc_writer_raise_fd(fd) : -1;
        if (fds[i] >= 0)
            continue;
        while (i-- > 0)
            close(fds[i]);
        part->reply.count = 0;
        return GC_NOT_SUPPORTED;
    }
    return GC_OK;
}

/* Descriptors of the extents from part->first on. Waits for nothing: the owner's record keeps the
 * block, the block its extents, being pinned, and the pool is held. */
static enum gc_status describe(struct gc_core *core, uint64_t owner, uint64_t address, uint64_t id,
                               struct part *part, int *fds)
{
    const struct gc_block *block =
        gc_opens_has(&core->opens, owner, id) ? lock_exported(core, address, id, true) : NULL;
    if (block == NULL)
        return GC_INVALID_POINTER;
    struct gc_pool *pool = gc_block_pool(block);
    struct gc_context *context = pool->context;
    list_extents_locked(pool, block, part);
    gc_change_hold_locked(pool);
    gc_pool_release(pool);
    snprintf(part->reply.uuid, sizeof(part->reply.uuid), "%s", context->device->info.uuid);
    const enum gc_status status = export_extents(context, part, fds);
    gc_change_let_go(pool);
    return status;
}

static void close_all(const int *fds, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        close(fds[i]);
}

/* Under the pool's lock, so that a free either comes before or finds the record. */
static enum gc_status add_open(struct gc_core *core, uint64_t owner, uint64_t address, uint64_t id)
{
    for (;;) {
        const struct gc_block *block = lock_exported(core, address, id, false);
        if (block == NULL)
            return GC_INVALID_POINTER;
        const bool is_added = gc_opens_try_add(&core->opens, owner, id, address);
        gc_pool_release(gc_block_pool(block));
        if (is_added)
            return GC_OK;
        if (!gc_slab_grow(&core->opens.records))
            return GC_NO_HOST_MEMORY;
    }
}

static bool close_one(struct gc_core *core, uint64_t owner, uint64_t id)
{
    struct gc_open removed;
    if (!gc_opens_remove(&core->opens, owner, id, &removed))
        return false;
    gc_defer_free_held(core, removed.address, removed.id);
    return true;
}

enum gc_status gc_share_make_handle(struct gc_core *core, uint64_t address, uint64_t id,
                                    void *handle)
{
    const struct gc_share *share = core->share;
    struct part part = {.most = 1}; /* a trial */
    int fds[GC_WIRE_FDS];
    enum gc_status status = add_open(core, OWNER_SELF, address, id);
    if (status != GC_OK)
        return status;
    status = describe(core, OWNER_SELF, address, id, &part, fds);
    close_one(core, OWNER_SELF, id);
    if (status != GC_OK)
        return status;
    close_all(fds, part.reply.count);
    struct gc_wire_handle made = {.magic = GC_WIRE_MAGIC,
                                  .name = share->name,
                                  .secret = share->secret,
                                  .address = address,
                                  .id = id,
                                  .bytes = part.reply.bytes,
                                  .pid = (uint64_t)getpid()};
    made.check = gc_wire_check_of(&made);
    memcpy(handle, &made, sizeof(made));
    return GC_OK;
}

/* ---- answers ---- */

static enum gc_status answer(struct gc_core *core, uint64_t owner,
                             const struct gc_wire_request *request, struct part *part, int *fds)
{
    const bool is_open = request->kind == GC_WIRE_OPEN;
    enum gc_status status = is_open ? add_open(core, owner, request->address, request->id) : GC_OK;
    if (status != GC_OK)
        return status;
    part->first = is_open ? 0 : request->first;
    status = describe(core, owner, request->address, request->id, part, fds);
    if (status != GC_OK && is_open)
        close_one(core, owner, request->id);
    return status;
}

/* False: the connection has ended, or the other side does not keep to the form. */
static bool serve_connection(struct gc_core *core, struct gc_share_connection *connection)
{
    struct gc_wire_request request;
    struct part part = {.most = GC_WIRE_FDS};
    int fds[GC_WIRE_FDS];
    if (!gc_wire_receive(&connection->end, &request, sizeof(request), NULL, NULL) ||
        request.magic != GC_WIRE_MAGIC || request.secret != core->share->secret ||
        request.id == 0 || request.kind > GC_WIRE_CLOSE)
        return false;
    if (request.kind == GC_WIRE_CLOSE) {
        close_one(core, connection->owner, request.id);
        return true;
    }
    const enum gc_status status = answer(core, connection->owner, &request, &part, fds);
    if (status != GC_OK)
        part.reply = (struct gc_wire_reply){.status = (uint32_t)status};
    part.reply.magic = GC_WIRE_MAGIC;
    const bool is_sent =
        gc_wire_send(&connection->end, &part.reply, sizeof(part.reply), fds, part.reply.count);
    close_all(fds, part.reply.count);
    /* A process that got no descriptor has nothing open. */
    if (!is_sent && status == GC_OK && request.kind == GC_WIRE_OPEN)
        close_one(core, connection->owner, request.id);
    return is_sent;
}

/* ---- connections ---- */

static void accept_one(struct gc_share *share)
{
    struct gc_share_connection made = {.end = {.fd = -1}};
    if (!gc_wire_accept(&share->listener, &made.end, &made.pid))
        return;
    if (made.pid != 0) {
        made.start_ticks = gc_ledger_start_ticks(made.pid);
        made.stack_address = gc_ledger_stack_address(made.pid);
    }
    for (unsigned i = 0; i < GC_SHARE_CONNECTIONS; i++) {
        if (share->connections[i].owner == 0) {
            made.owner = ++share->last_owner;
            share->connections[i] = made;
            return;
        }
    }
    gc_wire_close(&made.end); /* too many: the other process is told by that */
}

/* Whether the process has run another program for EXEC_NS. */
static bool has_called_exec(const struct gc_core *core, struct gc_share_connection *connection)
{
    const uint64_t now = gc_ledger_stack_address(connection->pid);
    const uint64_t now_ns = gc_core_now_ns(core);
    if (connection->stack_address == 0 || now == 0 || now == connection->stack_address)
        connection->exec_ns = 0;
    else if (connection->exec_ns == 0)
        connection->exec_ns = now_ns;
    return connection->exec_ns != 0 && now_ns - connection->exec_ns >= EXEC_NS;
}

/* Whether the process of a broken connection may still use the memory. One of another PID namespace
 * cannot be seen to end: its blocks are held as long as this process lives. */
static bool may_live(const struct gc_core *core, struct gc_share_connection *connection)
{
    return connection->start_ticks == 0 ||
           (gc_ledger_process_exists(connection->pid, connection->start_ticks) &&
            !has_called_exec(core, connection));
}

static void end_connection(struct gc_core *core, struct gc_share_connection *connection)
{
    while (close_one(core, connection->owner, 0))
        ;
    connection->owner = 0;
}

static void break_connection(struct gc_share_connection *connection)
{
    gc_wire_close(&connection->end);
    connection->is_lost = true;
}

static bool has_opens(struct gc_core *core, const struct gc_share_connection *connection)
{
    return gc_opens_has(&core->opens, connection->owner, 0);
}

/* True if one of them may be seen to end. */
static bool reap(struct gc_share *share)
{
    bool may_end = false;
    for (unsigned i = 0; i < GC_SHARE_CONNECTIONS; i++) {
        struct gc_share_connection *connection = &share->connections[i];
        if (connection->owner == 0 || !connection->is_lost)
            continue;
        if (has_opens(share->core, connection) && may_live(share->core, connection))
            may_end |= connection->start_ticks != 0;
        else
            end_connection(share->core, connection);
    }
    return may_end;
}

static bool has_connection(const struct gc_share *share)
{
    bool has_one = false;
    for (unsigned i = 0; i < GC_SHARE_CONNECTIONS; i++)
        has_one |= share->connections[i].owner != 0;
    return has_one;
}

/* ---- the thread ---- */

struct polled {
    struct pollfd list[1 + GC_SHARE_CONNECTIONS];
    struct gc_share_connection *connections[1 + GC_SHARE_CONNECTIONS];
    nfds_t count;
};

static void add_polled(struct polled *polled, int fd, struct gc_share_connection *connection)
{
    polled->connections[polled->count] = connection;
    polled->list[polled->count++] = (struct pollfd){.fd = fd, .events = POLLIN};
}

static void list_polled(struct gc_share *share, struct polled *polled)
{
    polled->count = 0;
    add_polled(polled, gc_wire_is_intact(&share->listener) ? share->listener.fd : -1, NULL);
    for (unsigned i = 0; i < GC_SHARE_CONNECTIONS; i++) {
        struct gc_share_connection *connection = &share->connections[i];
        if (connection->owner != 0 && !connection->is_lost)
            add_polled(polled, connection->end.fd, connection);
    }
}

static void serve_polled(struct gc_share *share, const struct polled *polled)
{
    if (polled->list[0].revents != 0 && gc_wire_is_intact(&share->listener))
        accept_one(share);
    for (nfds_t i = 1; i < polled->count; i++) {
        struct gc_share_connection *connection = polled->connections[i];
        if (polled->list[i].revents != 0 && !serve_connection(share->core, connection))
            break_connection(connection);
    }
}

/* Sequentially consistent, as in gc_share_end: either this thread sees that the process exits, or
 * that thread sees this one answer. */
static bool begin_answers(struct gc_share *share)
{
    atomic_store_explicit(&share->is_busy, true, memory_order_seq_cst);
    if (!atomic_load_explicit(&share->is_exiting, memory_order_seq_cst))
        return true;
    atomic_store_explicit(&share->is_busy, false, memory_order_release);
    return false;
}

void gc_share_serve(struct gc_core *core)
{
    struct gc_share *share = core->share;
    struct polled polled;
    int timeout_ms = -1;
    for (;;) {
        /* A program that closes descriptors it does not know ends the service, but the processes
         * that have blocks open may still close them, or end. */
        if (!gc_wire_is_intact(&share->listener)) {
            stop(share);
            if (!has_connection(share))
                return;
        }
        list_polled(share, &polled);
        const int count = poll(polled.list, polled.count, timeout_ms);
        if (!begin_answers(share))
            return;
        if (count > 0)
            serve_polled(share, &polled);
        timeout_ms = reap(share) ? DYING_POLL_MS : -1;
        atomic_store_explicit(&share->is_busy, false, memory_order_release);
    }
}

void gc_share_end(struct gc_core *core)
{
    struct gc_share *share = core->share;
    atomic_store_explicit(&share->is_exiting, true, memory_order_seq_cst);
    for (int i = 0; i < END_PAUSES && atomic_load_explicit(&share->is_busy, memory_order_seq_cst);
         i++)
        nanosleep(&(struct timespec){0, END_PAUSE_NS}, NULL);
    stop(share);
}

/* ---- for core/alloc ---- */

enum gc_status gc_share_create(struct gc_core *core)
{
    struct gc_share *share = gc_host_mem_map(&core->host, sizeof(*share));
    if (share == NULL)
        return GC_NO_HOST_MEMORY;
    share->core = core;
    share->folder = -1;
    share->listener.fd = -1;
    gc_import_init(share);
    core->share = share;
    return GC_OK;
}

void gc_share_destroy(struct gc_core *core)
{
    struct gc_share *share = core->share;
    stop(share);
    gc_import_fini(share);
    gc_wire_close(&share->listener);
    if (share->folder >= 0)
        close(share->folder);
    gc_host_mem_unmap(&core->host, share, sizeof(*share));
    core->share = NULL;
}

/* The parent's connections stay open as long as a process has them. */
void gc_share_leave_child(struct gc_core *core)
{
    struct gc_share *share = core->share;
    gc_wire_close(&share->listener);
    for (unsigned i = 0; i < GC_SHARE_CONNECTIONS; i++)
        if (share->connections[i].owner != 0)
            gc_wire_close(&share->connections[i].end);
    gc_import_leave_child(share);
}
