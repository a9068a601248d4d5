/* The importer's side: opens blocks of other processes, and closes them.
 *
 * One thread at a time opens or closes (`is_changing`), without a lock while it waits for the other
 * process or calls the driver. An import is the whole extents of a block, mapped side by side as in
 * their process. It is not charged: the exporter is charged for the memory.
 *
 * Its last close waits for all work outside the change, so the import may be opened, used and
 * closed again meanwhile. A wait shows only that imports are idle whose last close came before it:
 * closes are numbered. Where a capture forbids the wait, a later call waits. */
#include "core/share/share.h"

#include "core/base/assert.h"
#include "core/base/bits.h"
#include "core/device/fence.h"
#include "core/direct/direct.h"
#include "core/io/log.h"

#include <stddef.h>
#include <string.h>
#include <unistd.h>

/* A process whose blocks this one has open. */
struct gc_exporter {
    struct gc_exporter *next;
    uint64_t name;
    struct gc_wire_end end;
    uint64_t import_count;
};

struct gc_import {
    struct gc_import *next;
    struct gc_exporter *exporter;
    uint64_t id; /* of the block, in the exporter */
    uint64_t peer_address;
    uint64_t secret;
    uint64_t address; /* of the block, here */
    uint64_t bytes;
    uint64_t range_address;
    uint64_t range_bytes;
    const struct gc_context *context; /* the head of the context in which it was opened */
    uint64_t number;                  /* as a block's id */
    bool is_synchronous;              /* as of a block */
    uint64_t open_count;              /* as often as the program opened and did not close it */
    uint64_t last_close;              /* its number in gc_share.close_count; with open_count 0 */
};

void gc_import_init(struct gc_share *share)
{
    gc_lock_init(&share->lock, GC_RANK_SHARE);
    gc_slab_init_small(&share->import_records, &share->core->host, sizeof(struct gc_import));
    gc_slab_init_small(&share->exporter_records, &share->core->host, sizeof(struct gc_exporter));
}

void gc_import_leave_child(struct gc_share *share)
{
    for (struct gc_exporter *exporter = share->exporters; exporter != NULL;
         exporter = exporter->next)
        gc_wire_close(&exporter->end);
}

void gc_import_fini(struct gc_share *share)
{
    gc_import_leave_child(share);
    gc_slab_fini(&share->import_records);
    gc_slab_fini(&share->exporter_records);
}

static void begin_change(struct gc_share *share)
{
    gc_lock_acquire(&share->lock);
    while (share->is_changing)
        gc_lock_wait(&share->lock, &share->changed);
    share->is_changing = true;
    gc_lock_release(&share->lock);
}

/* False: another thread opens or closes. */
static bool try_begin_change(struct gc_share *share)
{
    gc_lock_acquire(&share->lock);
    const bool is_free = !share->is_changing;
    share->is_changing = true;
    gc_lock_release(&share->lock);
    return is_free;
}

static void end_change(struct gc_share *share)
{
    gc_lock_acquire(&share->lock);
    share->is_changing = false;
    gc_lock_broadcast(&share->changed);
    gc_lock_release(&share->lock);
}

/* ---- the exporter ---- */

static enum gc_status connect_exporter(struct gc_share *share, uint64_t name,
                                       struct gc_exporter **made)
{
    const struct gc_ledger *ledger = share->core->ledger;
    struct gc_exporter *exporter = gc_slab_alloc(&share->exporter_records);
    if (exporter == NULL)
        return GC_NO_HOST_MEMORY;
    *exporter = (struct gc_exporter){.name = name, .end = {.fd = -1}};
    const int folder = ledger == NULL ? -1 : gc_wire_open_folder(ledger->path);
    const bool is_connected = folder >= 0 && gc_wire_connect(folder, name, &exporter->end);
    if (folder >= 0)
        close(folder);
    if (!is_connected) {
        gc_slab_free(&share->exporter_records, exporter);
        return GC_IO;
    }
    gc_lock_acquire(&share->lock);
    exporter->next = share->exporters;
    share->exporters = exporter;
    gc_lock_release(&share->lock);
    *made = exporter;
    return GC_OK;
}

/* The exporter with that name and a connection that stands; connects to it otherwise. */
static enum gc_status find_exporter(struct gc_share *share, uint64_t name,
                                    struct gc_exporter **found)
{
    for (*found = share->exporters; *found != NULL; *found = (*found)->next)
        if ((*found)->name == name && gc_wire_is_intact(&(*found)->end))
            return GC_OK;
    return connect_exporter(share, name, found);
}

static void drop_unused(struct gc_share *share, struct gc_exporter *exporter)
{
    if (exporter->import_count > 0)
        return;
    gc_lock_acquire(&share->lock);
    struct gc_exporter **link = &share->exporters;
    while (*link != exporter)
        link = &(*link)->next;
    *link = exporter->next;
    gc_lock_release(&share->lock);
    gc_wire_close(&exporter->end);
    gc_slab_free(&share->exporter_records, exporter);
}

/* ---- messages ---- */

static struct gc_wire_request request_of(const struct gc_wire_handle *handle,
                                         enum gc_wire_kind kind, uint64_t first)
{
    return (struct gc_wire_request){.magic = GC_WIRE_MAGIC,
                                    .secret = handle->secret,
                                    .address = handle->address,
                                    .id = handle->id,
                                    .kind = kind,
                                    .first = first};
}

static void close_fds(const int *fds, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        close(fds[i]);
}

static bool is_sound(const struct gc_wire_reply *reply, uint32_t fd_count)
{
    uint64_t sum = 0;
    if (reply->magic != GC_WIRE_MAGIC || reply->count != fd_count || fd_count > GC_WIRE_FDS ||
        memchr(reply->uuid, '\0', sizeof(reply->uuid)) == NULL)
        return false;
    for (uint32_t i = 0; i < reply->count; i++) {
        if (reply->extent_bytes[i] > reply->total_bytes - sum)
            return false;
        sum += reply->extent_bytes[i];
    }
    return (reply->status == GC_OK) == (reply->count > 0) && reply->offset <= reply->total_bytes &&
           reply->bytes <= reply->total_bytes - reply->offset &&
           (reply->bytes > 0) == (reply->count > 0) && reply->count <= reply->total_count;
}

/* The statuses that an exporter has for an importer; others would mean something else here. */
static bool is_answer(uint32_t status)
{
    return status == GC_OK || status == GC_INVALID_POINTER || status == GC_NOT_SUPPORTED ||
           status == GC_NO_HOST_MEMORY;
}

/* GC_IO: the exporter does not answer. A late answer would be taken for the next: that connection
 * is given up, and the exporter takes what is open by it as open until this process ends. */
static enum gc_status ask(struct gc_exporter *exporter, const struct gc_wire_request *request,
                          struct gc_wire_reply *reply, int *fds)
{
    uint32_t fd_count = 0;
    if (!gc_wire_send(&exporter->end, request, sizeof(*request), NULL, 0) ||
        !gc_wire_receive(&exporter->end, reply, sizeof(*reply), fds, &fd_count)) {
        gc_wire_close(&exporter->end);
        return GC_IO;
    }
    if (is_sound(reply, fd_count) && is_answer(reply->status))
        return (enum gc_status)reply->status;
    close_fds(fds, fd_count);
    gc_wire_close(&exporter->end);
    return GC_IO;
}

/* ---- mapping ---- */

struct opening {
    struct gc_share *share;
    struct gc_context *context;
    const struct gc_wire_handle *handle;
    struct gc_import *import;
    uint64_t mapped_bytes;
    uint64_t page_bytes;
    int *driver_code;
};

static enum gc_status fail(const struct opening *opening, int code)
{
    *opening->driver_code = code;
    return GC_DRIVER;
}

static enum gc_status map_one(struct opening *opening, int fd, uint64_t bytes)
{
    struct gc_context *context = opening->context;
    const struct gc_driver *driver = &context->core->driver;
    const uint64_t address = opening->import->range_address + opening->mapped_bytes;
    uint64_t page = 0;
    if (bytes == 0 || bytes % opening->page_bytes != 0 ||
        bytes > opening->import->range_bytes - opening->mapped_bytes)
        return GC_IO;
    int code =
        GC_CALL_IF_OPEN(context, driver->page_import(driver->self, context->handle, fd, &page));
    if (code != 0)
        return fail(opening, code);
    code = GC_CALL_IF_OPEN(context,
                           driver->page_map(driver->self, context->handle, address, bytes, page));
    /* The mapping keeps the memory. */
    (void)driver->page_release(driver->self, context->handle, page);
    if (code != 0)
        return fail(opening, code);
    opening->mapped_bytes += bytes;
    return GC_OK;
}

static enum gc_status map_reply(struct opening *opening, const struct gc_wire_reply *reply,
                                const int *fds)
{
    enum gc_status status = GC_OK;
    for (uint32_t i = 0; status == GC_OK && i < reply->count; i++)
        status = map_one(opening, fds[i], reply->extent_bytes[i]);
    close_fds(fds, reply->count);
    return status;
}

/* The ordinal of the device here; -1: this process has not used it. */
static int find_ordinal(struct gc_core *core, const char *uuid)
{
    for (int i = 0; i < GC_DEVICE_MAX; i++) {
        const struct gc_device *device = gc_device_find(core, i);
        if (device != NULL && strcmp(device->info.uuid, uuid) == 0)
            return i;
    }
    return -1;
}

/* By other devices of this process, too, as the driver's own imports: those used later as well. */
static int set_access(const struct opening *opening, const int *peers, uint32_t count)
{
    struct gc_context *context = opening->context;
    const struct gc_driver *driver = &context->core->driver;
    const struct gc_import *import = opening->import;
    return GC_CALL_IF_OPEN(context, driver->page_set_access(driver->self, context->handle,
                                                            import->range_address,
                                                            import->range_bytes, peers, count));
}

static enum gc_status grant_access(const struct opening *opening, const char *uuid)
{
    const struct gc_driver *driver = &opening->share->core->driver;
    int peers[GC_PEER_MAX];
    uint32_t count = driver->count_devices == NULL ? 0 : driver->count_devices(driver->self);
    count = count < GC_PEER_MAX ? count : GC_PEER_MAX;
    for (uint32_t i = 0; i < count; i++)
        peers[i] = (int)i;
    if (count > 1 && set_access(opening, peers, count) == 0)
        return GC_OK;
    /* A device that reaches this one need not reach the owner. */
    const int owner = find_ordinal(opening->share->core, uuid);
    const int code = set_access(opening, &owner, owner >= 0 ? 1 : 0);
    return code == 0 ? GC_OK : fail(opening, code);
}

static enum gc_status reserve(const struct opening *opening, uint64_t bytes)
{
    struct gc_context *context = opening->context;
    const struct gc_driver *driver = &context->core->driver;
    struct gc_import *import = opening->import;
    if (bytes == 0 || bytes % opening->page_bytes != 0)
        return GC_IO;
    const int code = GC_CALL_IF_OPEN(context, driver->address_reserve(driver->self, context->handle,
                                                                      bytes, opening->page_bytes,
                                                                      &import->range_address));
    if (code != 0)
        return fail(opening, code);
    import->range_bytes = bytes;
    return GC_OK;
}

/* Its record goes before its addresses are free. False: the driver did not unmap it, and the
 * addresses stay taken. */
static bool unmap(struct gc_core *core, const struct gc_import *import, uint64_t mapped_bytes,
                  int *driver_code)
{
    struct gc_direct direct;
    const struct gc_driver *driver = &core->driver;
    *driver_code = 0;
    if (mapped_bytes > 0)
        *driver_code = driver->page_unmap(driver->self, import->context->handle,
                                          import->range_address, mapped_bytes);
    if (*driver_code != 0 || import->range_bytes == 0)
        return *driver_code == 0;
    (void)!gc_direct_untrack(core, GC_DIRECT_IMPORT, import->address, &direct);
    (void)driver->address_free(driver->self, import->context->handle, import->range_address,
                               import->range_bytes);
    return true;
}

/* ---- open ---- */

/* The block is open in the exporter; maps its extents. */
static enum gc_status map_block(struct opening *opening, struct gc_wire_reply *reply, int *fds)
{
    struct gc_import *import = opening->import;
    const uint64_t total_bytes = reply->total_bytes;
    uint64_t count = reply->count;
    enum gc_status status = reserve(opening, total_bytes);
    if (status != GC_OK) {
        close_fds(fds, reply->count);
        return status;
    }
    import->address = import->range_address + reply->offset;
    import->bytes = reply->bytes;
    status = map_reply(opening, reply, fds);
    while (status == GC_OK && count < reply->total_count) {
        const struct gc_wire_request more = request_of(opening->handle, GC_WIRE_MORE, count);
        status = ask(import->exporter, &more, reply, fds);
        if (status != GC_OK)
            break;
        count += reply->count;
        status = map_reply(opening, reply, fds);
        if (reply->total_bytes != total_bytes)
            status = GC_IO;
    }
    if (status == GC_OK && opening->mapped_bytes != total_bytes)
        status = GC_IO;
    return status == GC_OK ? grant_access(opening, reply->uuid) : status;
}

static void tell_closed(const struct gc_import *import)
{
    const struct gc_wire_request closed = {.magic = GC_WIRE_MAGIC,
                                           .secret = import->secret,
                                           .address = import->peer_address,
                                           .id = import->id,
                                           .kind = GC_WIRE_CLOSE};
    (void)gc_wire_send(&import->exporter->end, &closed, sizeof(closed), NULL, 0);
}

static enum gc_status open_block(struct opening *opening)
{
    struct gc_import *import = opening->import;
    const struct gc_wire_request first = request_of(opening->handle, GC_WIRE_OPEN, 0);
    struct gc_wire_reply reply;
    int fds[GC_WIRE_FDS];
    int ignored;
    enum gc_status status = ask(import->exporter, &first, &reply, fds);
    if (status != GC_OK)
        return status;
    status = map_block(opening, &reply, fds);
    if (status == GC_OK)
        return GC_OK;
    /* What the driver does not unmap stays open in the exporter, too. */
    if (unmap(opening->share->core, import, opening->mapped_bytes, &ignored))
        tell_closed(import);
    return status;
}

static enum gc_status open_new(struct gc_share *share, struct gc_context *context,
                               const struct gc_wire_handle *handle, struct gc_import **opened,
                               int *driver_code)
{
    struct gc_exporter *exporter;
    enum gc_status status = find_exporter(share, handle->name, &exporter);
    if (status != GC_OK)
        return status;
    struct gc_import *import = gc_slab_alloc(&share->import_records);
    if (import == NULL) {
        drop_unused(share, exporter);
        return GC_NO_HOST_MEMORY;
    }
    *import = (struct gc_import){
        .exporter = exporter,
        .id = handle->id,
        .peer_address = handle->address,
        .secret = handle->secret,
        .number = atomic_fetch_add_explicit(&share->core->next_block_id, 1, memory_order_relaxed),
        .context = context->head};
    struct opening opening = {.share = share,
                              .context = context,
                              .handle = handle,
                              .import = import,
                              .page_bytes = context->device->info.page_bytes,
                              .driver_code = driver_code};
    status = opening.page_bytes == 0 ? GC_NOT_SUPPORTED : open_block(&opening);
    if (status != GC_OK) {
        gc_slab_free(&share->import_records, import);
        drop_unused(share, exporter);
        return status;
    }
    exporter->import_count++;
    gc_lock_acquire(&share->lock);
    import->next = share->imports;
    share->imports = import;
    gc_lock_release(&share->lock);
    atomic_fetch_add_explicit(&share->import_count, 1, memory_order_relaxed);
    *opened = import;
    return GC_OK;
}

static struct gc_import *find_open(const struct gc_share *share,
                                   const struct gc_wire_handle *handle,
                                   const struct gc_context *context)
{
    struct gc_import *import = share->imports;
    while (import != NULL && (import->exporter->name != handle->name || import->id != handle->id ||
                              import->context != context))
        import = import->next;
    return import;
}

static void set_open_count(struct gc_share *share, struct gc_import *import, uint64_t count)
{
    if (count == 0) {
        import->last_close =
            atomic_fetch_add_explicit(&share->close_count, 1, memory_order_release) + 1;
        atomic_fetch_add_explicit(&share->closed_count, 1, memory_order_relaxed);
    } else if (import->open_count == 0 && import->last_close != 0) {
        atomic_fetch_sub_explicit(&share->closed_count, 1, memory_order_relaxed);
    }
    import->open_count = count;
}

bool gc_import_is_handle(const void *handle)
{
    struct gc_wire_handle read;
    memcpy(&read, handle, sizeof(read));
    return read.magic == GC_WIRE_MAGIC;
}

/* NULL: the driver's error says it. */
static const char *reason_of(enum gc_status status)
{
    switch (status) {
    case GC_IO:
        return "the process has ended, does not answer, has given blocks to as many processes as "
               "it can, or is another user's or another ledger's";
    case GC_INVALID_POINTER:
        return "it was freed";
    case GC_NOT_SUPPORTED:
        return "the process has no descriptor left for it (RLIMIT_NOFILE), or the device here "
               "cannot map memory";
    default:
        return NULL;
    }
}

/* Another thread may be making this process's name. */
static bool is_own(const struct gc_share *share, uint64_t name)
{
    /* Acquire: pairs with the release in gc_share_start. */
    return atomic_load_explicit(&share->state, memory_order_acquire) > GC_SHARE_STARTING &&
           name == share->name;
}

enum gc_status gc_import_open(struct gc_context *context, const void *raw, uint64_t *address,
                              bool *is_first, int *driver_code)
{
    struct gc_share *share = context->core->share;
    struct gc_wire_handle handle;
    memcpy(&handle, raw, sizeof(handle));
    if (handle.check != gc_wire_check_of(&handle) || handle.id == 0)
        return GC_FORMAT;
    if (is_own(share, handle.name))
        return GC_INVALID_ARGUMENT;
    if (share->core->driver.page_import == NULL)
        return GC_NOT_SUPPORTED;
    GC_ASSERT(gc_lock_held_count() == 0);
    gc_import_finish_closes(share->core);
    begin_change(share);
    enum gc_status status = GC_OK;
    struct gc_import *import = find_open(share, &handle, context->head);
    *is_first = import == NULL;
    if (import == NULL)
        status = open_new(share, context, &handle, &import, driver_code);
    if (status == GC_OK) {
        set_open_count(share, import, import->open_count + 1);
        *address = import->address;
    }
    end_change(share);
    const char *reason = reason_of(status);
    if (reason != NULL)
        gc_log_write(share->core->log, GC_LOG_WARN, "a block of process %llu cannot be opened: %s",
                     (unsigned long long)handle.pid, reason);
    return status;
}

/* ---- close ---- */

static struct gc_import *find_at(const struct gc_share *share, uint64_t address)
{
    struct gc_import *import = share->imports;
    while (import != NULL && address - import->address >= import->bytes)
        import = import->next;
    return import;
}

static void set_synchronous_locked(struct gc_share *share, struct gc_import *import, bool is_it)
{
    if (import->is_synchronous == is_it)
        return;
    import->is_synchronous = is_it;
    if (is_it)
        atomic_fetch_add_explicit(&share->core->work.synchronous_count, 1, memory_order_relaxed);
    else
        atomic_fetch_sub_explicit(&share->core->work.synchronous_count, 1, memory_order_relaxed);
}

/* Unlinks the import. A range that the driver does not unmap stays open in the exporter. */
static bool close_import(struct gc_share *share, struct gc_import *import, int *driver_code)
{
    struct gc_exporter *exporter = import->exporter;
    if (!unmap(share->core, import, import->range_bytes, driver_code))
        return false;
    gc_lock_acquire(&share->lock);
    struct gc_import **link = &share->imports;
    while (*link != import)
        link = &(*link)->next;
    *link = import->next;
    set_synchronous_locked(share, import, false);
    gc_lock_release(&share->lock);
    if (import->open_count == 0)
        atomic_fetch_sub_explicit(&share->closed_count, 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&share->import_count, 1, memory_order_relaxed);
    tell_closed(import);
    gc_slab_free(&share->import_records, import);
    exporter->import_count--;
    drop_unused(share, exporter);
    return true;
}

struct waiting {
    uint64_t limit_ns;
    enum gc_status status;
    int *driver_code;
};

static void wait_for_context(struct gc_context *context, void *argument)
{
    struct waiting *waiting = argument;
    if (waiting->status == GC_OK && !gc_context_is_of_device(context) &&
        !gc_context_is_dropped(context))
        waiting->status = gc_fence_synchronize(context, waiting->limit_ns, waiting->driver_code);
}

/* Work of this process may use the memory, as before any unmapping. */
static enum gc_status wait_for_all(struct gc_core *core, uint64_t limit_ns, int *driver_code)
{
    struct waiting waiting = {limit_ns, GC_OK, driver_code};
    gc_contexts_visit(core, wait_for_context, &waiting);
    return waiting.status;
}

/* All work before the close of that number is done. An import that is open again, or was closed
 * later, stays: work of then may use it. */
static void unmap_closed(struct gc_share *share, uint64_t number)
{
    struct gc_import *next;
    int ignored;
    for (struct gc_import *import = share->imports; import != NULL; import = next) {
        next = import->next;
        if (import->open_count == 0 && import->last_close <= number)
            (void)close_import(share, import, &ignored);
    }
}

void gc_import_finish_closes(struct gc_core *core)
{
    struct gc_share *share = core->share;
    int ignored;
    if (atomic_load_explicit(&share->closed_count, memory_order_relaxed) == 0)
        return;
    /* Acquire: the partner is the addition in set_open_count, before which the closed memory's work
     * was submitted. */
    const uint64_t number = atomic_load_explicit(&share->close_count, memory_order_acquire);
    if (wait_for_all(core, 0, &ignored) != GC_OK || !try_begin_change(share))
        return;
    unmap_closed(share, number);
    end_change(share);
}

/* The last close of an import, which has that number. */
static enum gc_status finish_close(struct gc_core *core, uint64_t address, uint64_t number,
                                   int *driver_code)
{
    struct gc_share *share = core->share;
    enum gc_status status = wait_for_all(core, GC_FOREVER, driver_code);
    if (status == GC_CAPTURING)
        return GC_OK; /* left to gc_import_finish_closes */
    begin_change(share);
    struct gc_import *import = find_at(share, address);
    const bool is_it = import != NULL && import->open_count == 0 && import->last_close == number;
    if (is_it && status == GC_OK && !close_import(share, import, driver_code))
        status = GC_DRIVER;
    if (is_it && status != GC_OK)
        set_open_count(share, import, 1);
    if (status == GC_OK)
        unmap_closed(share, number);
    end_change(share);
    return status;
}

enum gc_status gc_import_close(struct gc_core *core, uint64_t address, int *driver_code)
{
    struct gc_share *share = core->share;
    uint64_t number = 0;
    if (atomic_load_explicit(&share->import_count, memory_order_relaxed) == 0)
        return GC_NOT_OURS;
    begin_change(share);
    struct gc_import *import = find_at(share, address);
    const bool is_it = import != NULL && import->address == address && import->open_count > 0;
    if (is_it) {
        set_open_count(share, import, import->open_count - 1);
        number = import->open_count == 0 ? import->last_close : 0;
    }
    end_change(share);
    if (!is_it)
        return import == NULL ? GC_NOT_OURS : GC_INVALID_POINTER;
    return number == 0 ? GC_OK : finish_close(core, address, number, driver_code);
}

void gc_import_drop_context(struct gc_core *core, const struct gc_context *context)
{
    struct gc_share *share = core->share;
    int ignored;
    if (atomic_load_explicit(&share->import_count, memory_order_relaxed) == 0)
        return;
    begin_change(share);
    struct gc_import *next;
    for (struct gc_import *import = share->imports; import != NULL; import = next) {
        next = import->next;
        if (import->context == context)
            (void)close_import(share, import, &ignored);
    }
    end_change(share);
}

enum gc_status gc_import_set_synchronous(struct gc_core *core, uint64_t address, bool is_it)
{
    struct gc_share *share = core->share;
    gc_lock_acquire(&share->lock);
    struct gc_import *import = find_at(share, address);
    if (import != NULL)
        set_synchronous_locked(share, import, is_it);
    gc_lock_release(&share->lock);
    return import == NULL ? GC_NOT_OURS : GC_OK;
}

bool gc_import_find(struct gc_core *core, uint64_t address, struct gc_block_info *info)
{
    struct gc_share *share = core->share;
    if (atomic_load_explicit(&share->import_count, memory_order_relaxed) == 0)
        return false;
    gc_lock_acquire(&share->lock);
    const struct gc_import *import = find_at(share, address);
    if (import != NULL)
        *info = (struct gc_block_info){.address = import->address,
                                       .bytes = import->bytes,
                                       .capacity = import->bytes,
                                       .segment_address = import->range_address,
                                       .segment_bytes = import->range_bytes,
                                       .is_mapped = true,
                                       .context = import->context->handle,
                                       .id = import->number,
                                       .is_synchronous = import->is_synchronous};
    gc_lock_release(&share->lock);
    return import != NULL;
}
