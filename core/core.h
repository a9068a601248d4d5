/* Core's interface for the shim and the tools: devices, contexts, allocation, direct memory,
 * figures.
 *
 * An instance holds all state; core has no mutable static data. Addresses, handles and entry points
 * are plain integers: core knows no CUDA type. An entry point (`api`) is an index into the names
 * given at creation.
 *
 * All functions are thread-safe unless their comment denies it. None calls the driver with a lock
 * held.
 *
 * Accounts: `reserved` of a device is the memory that this process physically holds: pool segments
 * and direct memory (non-pool allocations). A request is charged to the device's budget before the
 * driver is called and uncharged if the driver fails (as in memcg). So reserved exceeds the limit
 * only after the limit was lowered, or by gc_direct_adjust_device. */
#ifndef GC_CORE_H
#define GC_CORE_H

#include "core/base/status.h"
#include "core/device/driver.h"
#include "core/ledger/ledger.h"
#include "core/observe/stats.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct gc_core;
struct gc_device;
struct gc_context;
struct gc_tenant;
struct gc_quota; /* a tenant's limit and figures on a device: core/device/quota.h */
struct gc_options;
struct gc_trace;
struct gc_log;
struct gc_plan;

#define GC_ADDRESS_NONE UINT64_C(0)

struct gc_core_config {
    const struct gc_options *options; /* borrowed; must outlive the core */
    const struct gc_driver *driver;   /* copied */
    struct gc_log *log;               /* borrowed; may be NULL */
    struct gc_trace *trace;           /* borrowed; NULL records nothing */
    const struct gc_plan *plan;       /* borrowed, valid; NULL: none */
    const char *const *api_names;     /* borrowed; index = api */
    uint16_t api_count;
};

enum gc_status gc_core_create(const struct gc_core_config *config,
                              struct gc_core **core) GC_CHECKED;
/* Frees host memory only, makes no driver call. Not thread-safe. */
void gc_core_destroy(struct gc_core *core);

/* ---- the ledger: core/group ---- */

/* Rung while *control != seen: requests of other processes are pending. Read without a call. */
struct gc_doorbell {
    const _Atomic uint32_t *control; /* the ledger slot's, or a constant 0 */
    _Atomic uint32_t seen;
};

static inline bool gc_doorbell_is_rung(const struct gc_doorbell *doorbell)
{
    return atomic_load_explicit(doorbell->control, memory_order_relaxed) !=
           atomic_load_explicit(&doorbell->seen, memory_order_relaxed);
}

/* Joins the ledger (GPUCACHE_LEDGER, GPUCACHE_GROUP, GPUCACHE_TENANT); `doorbell` outlives core. On
 * failure the log has the reason, and limits apply to this process alone. Call before the first
 * device is added. */
void gc_core_join(struct gc_core *core, const char *program, struct gc_doorbell *doorbell);
/* Whether the process has a ledger: without one a group's limit holds in it alone. */
bool gc_core_has_ledger(const struct gc_core *core);
/* For a forked child: detaches it from the parent's slot. Async-signal-safe. */
void gc_group_leave_child(struct gc_core *core);
/* Serves pending requests. May call the driver. No lock may be held. */
void gc_serve_requests(struct gc_core *core);
/* Whether other processes of the ledger use the device, or may use it soon. */
bool gc_group_shares_device(const struct gc_device *device);
/* Size of a context on the device, as processes of the group measured it; 0: unknown, or no group.
 */
uint64_t gc_group_context_bytes(const struct gc_device *device);
/* Publishes the size of a context to all processes of the ledger, in a group or not. */
void gc_group_set_context_bytes(struct gc_device *device, uint64_t bytes);
/* The size that any process of the ledger measured; the device need not be added yet. */
uint64_t gc_group_measured_context_bytes(const struct gc_core *core, const char *uuid,
                                         uint64_t total_bytes);
/* Whether the process has a group and needs a helper thread, which runs gc_serve_help. */
bool gc_serve_wants_helper(const struct gc_core *core);
/* Serves requests until gc_serve_end_help. */
void gc_serve_help(struct gc_core *core);
/* Whether the calling thread is the helper, which must not wait for what the helper does. */
bool gc_serve_is_helper(void);
/* Stops the helper; waits for a request under way, 100 ms at most. */
void gc_serve_end_help(struct gc_core *core);

/* ---- devices ---- */

struct gc_device_info {
    int ordinal;
    char uuid[48]; /* GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx */
    char name[128];
    uint64_t total_bytes; /* the device's own */
    bool has_mapping;     /* pool memory may be mapped page by page */
    uint64_t page_bytes;  /* smallest page of mapped memory, even if unused; 0: not supported */
    bool is_dedicated;    /* every block is its own driver allocation, except stream-ordered ones */
    char backend_reason[96]; /* why `auto` chose the backend, for the report */
};

/* Adds a device (idempotent) and resolves its limit from the options. *device lives as long as
 * core. */
enum gc_status gc_setup_add_device(struct gc_core *core, const struct gc_device_info *info,
                                   struct gc_device **device) GC_CHECKED;
/* NULL if not added. Lock-free. */
struct gc_device *gc_device_find(struct gc_core *core, int ordinal);
/* min(limit, the group's limit, the device's own total). */
uint64_t gc_device_total_bytes(const struct gc_device *device);
/* The info from gc_setup_add_device. Lives as long as core. */
const struct gc_device_info *gc_device_get_info(const struct gc_device *device);
/* Whether the device's requests are served from mapped memory, not driver allocations. */
bool gc_device_is_mapped(const struct gc_device *device);
/* Sets the limit (GC_BUDGET_UNLIMITED: none). If more is reserved, idle memory is released, and
 * requests fail until less is reserved. */
void gc_limit_set(struct gc_core *core, struct gc_device *device, uint64_t limit_bytes);
/* Bytes charged now: segments, direct memory and charges under way. A snapshot. */
uint64_t gc_device_reserved_bytes(const struct gc_device *device);
/* Compares the accounts of devices, where a comparison is due, with the bytes that the system
 * counts for this process (core/reclaim/reconcile.c). */
void gc_reconcile_compare(struct gc_core *core);
/* Compares all a last time, for the report; later calls do nothing. Call before the driver shuts
 * down, and while no gc_reconcile_compare is under way. */
void gc_reconcile_finish(struct gc_core *core);
/* The lower of the process's own limit and the group's; UINT64_MAX: none. */
uint64_t gc_device_limit_bytes(const struct gc_device *device);
/* The process's own limit. */
uint64_t gc_device_own_limit_bytes(const struct gc_device *device);

/* ---- contexts ---- */

/* Adds a context (idempotent for one handle). *context stays readable until core is destroyed. */
enum gc_status gc_setup_add_context(struct gc_core *core, uint64_t handle, struct gc_device *device,
                                    struct gc_context **context) GC_CHECKED;
/* NULL if unknown or dropped. Lock-free. */
struct gc_context *gc_context_find(struct gc_core *core, uint64_t handle);
/* Calls `function` with the head of every driver context, not with tenants' records. No lock is
 * held. A context that is added or torn down meanwhile may be left out, or destroyed already. */
void gc_contexts_visit(struct gc_core *core,
                       void (*function)(struct gc_context *context, void *argument),
                       void *argument);
/* Whether more than one context was ever added. One relaxed load. */
bool gc_contexts_are_several(const struct gc_core *core);
/* Context teardown: begin before the driver destroys or resets the context, then finish, or cancel
 * if the driver fails. In between no thread makes a driver call of core's in the context; begin
 * waits for calls under way, and for another thread's teardown of the same handle. NULL: the handle
 * is unknown. Finish drops and uncharges the context's blocks and direct records, and unmaps and
 * releases its mapped memory. */
struct gc_context *gc_teardown_begin(struct gc_core *core, uint64_t handle);
void gc_teardown_cancel(struct gc_context *context);
void gc_teardown_finish(struct gc_context *context);
/* The driver returned a sticky error, of any context: caches serve nothing until a driver
 * allocation has succeeded again. */
void gc_contexts_set_faulted(struct gc_core *core);
bool gc_context_is_faulted(const struct gc_context *context);
struct gc_device *gc_context_device(const struct gc_context *context);
uint64_t gc_context_handle(const struct gc_context *context);

/* The record that serves stream-ordered requests of the context. With mapped memory this is the
 * device's own record, which outlives the device's contexts and whose memory they all can access.
 * NULL: not supported; such requests go to the driver's pool. */
struct gc_context *gc_context_ordered(struct gc_context *context);
/* Whether the record, or the handle's record, is the device's own, of no driver context. */
bool gc_context_is_of_device(const struct gc_context *context);
bool gc_context_handle_is_of_device(uint64_t handle);
/* Opens all stream-ordered memory of the device to all contexts of another device, later memory and
 * contexts included. Cannot be undone: queued work may run after the program revokes access. */
void gc_backing_open_ordered(struct gc_device *device, int ordinal);
/* A number for each context, from 1; 0: the numbers are used up. */
uint16_t gc_context_number(const struct gc_context *context);

/* Begin and end (nested, counted) of a capture in the context. In between no context is
 * synchronised, since the capture may spread: frees stay pending, and allocations get idle or new
 * memory. The last end does not synchronise either; the next free or allocation miss does. */
void gc_capture_begin_context(struct gc_context *context);
void gc_capture_end_context(struct gc_context *context);
/* Around driver calls that are made in relaxed mode during a capture. Calls begun without a capture
 * would invalidate one: a capture that begins meanwhile waits for their end, for a bounded time. */
void gc_capture_relax_begin(struct gc_core *core);
void gc_capture_relax_end(struct gc_core *core);
bool gc_capture_is_of_context(const struct gc_context *context);
/* Work of `peer` may use memory of `context` from now on: frees in `context` wait for it, too.
 * Cannot be undone: queued work may run after the program revokes access. Call before such work is
 * submitted, or at the latest before the free. */
void gc_backing_add_peer(struct gc_context *context, struct gc_context *peer);
/* Work of `context` may use memory of any context: frees in every context, present and future, wait
 * for it, too. Permanent; call before such work is submitted. Opens no memory to other devices:
 * work cannot access memory that is not open to its device. Cheap if the context roams already. */
void gc_context_set_roaming(struct gc_context *context);

/* ---- swap-out and swap-in: core/pause/swap.h ---- */

enum gc_swap_refusal {
    GC_SWAP_OK,
    GC_SWAP_AGAIN,      /* swapped out already; at a swap-in: not swapped out */
    GC_SWAP_CAPTURES,   /* a capture is under way */
    GC_SWAP_PEERS,      /* other contexts can access the memory */
    GC_SWAP_EXPORTED,   /* other processes have the memory open */
    GC_SWAP_NOT_MAPPED, /* the memory is driver allocations */
    GC_SWAP_HOST,       /* no host memory for the copy */
    GC_SWAP_FULL,       /* not enough free memory on the device, or within a limit */
    GC_SWAP_BUSY,       /* work under way did not complete in time */
    GC_SWAP_UNSEEN,     /* work may be submitted that the library does not see */
    GC_SWAP_DRIVER,     /* the driver failed: driver_code */
    GC_SWAP_EMPTY,      /* nothing is left that can go */
    GC_SWAP_REFUSAL_COUNT
};

struct gc_swap_result {
    enum gc_swap_refusal refusal;
    int driver_code;
    uint64_t moved_bytes; /* physical memory swapped out, or in */
    uint64_t stays_bytes; /* after a pause: bytes that are still reserved */
};

/* ---- work that the program submits: core/device/submit.h, inline ---- */

struct gc_submissions;
/* Lives as long as core. */
struct gc_submissions *gc_core_submissions(struct gc_core *core);
/* The call stacks of allocations; NULL: GPUCACHE_STACKS is off. */
struct gc_stack_table *gc_core_stacks(struct gc_core *core);
/* Whether all call sites are to be listed, not only those of leaks. */
bool gc_core_lists_sites(const struct gc_core *core);
/* The program got an entry point that may submit work and that no wrapper counts: from now on every
 * free needs a fence or a synchronisation. Permanent. True the first time. */
bool gc_submit_set_conservative(struct gc_core *core);

/* ---- pool memory ---- */

struct gc_request {
    uint64_t bytes;  /* > 0 */
    uint64_t stream; /* 0: none */
    uint16_t api;
    bool is_dedicated; /* a driver allocation of its own: IPC export needs its base */
    bool is_ordered;   /* stream-ordered: freed in a stream's order, counted separately */
    bool is_trial;     /* a failure is not counted: the caller reclaims memory and tries again */
};

/* Serves a request, in mode `cache` from the pool, in mode `track` from the driver directly (the
 * shim's plain allocations are direct memory there).
 * GC_OUT_OF_MEMORY after every step of reclaim has failed; GC_DRIVER with *driver_code for any
 * other error of the driver. */
enum gc_status gc_alloc(struct gc_core *core, struct gc_context *context,
                        const struct gc_request *request, uint64_t *address,
                        int *driver_code) GC_CHECKED;

/* Frees a block of gc_alloc, from any thread and in any current context. GC_NOT_OURS: forward
 * the free to the driver. GC_INVALID_POINTER: inside the pool, but no live block (double free,
 * interior pointer); counted. GC_DRIVER: the wait failed, the block stays live. */
enum gc_status gc_free(struct gc_core *core, uint64_t address, uint16_t api,
                       int *driver_code) GC_CHECKED;

struct gc_block_info {
    uint64_t address;
    uint64_t bytes;    /* as requested */
    uint64_t capacity; /* after rounding */
    uint64_t segment_address;
    uint64_t segment_bytes;
    bool is_mapped;           /* its memory is mapped, not a driver allocation */
    bool is_dedicated;        /* the only block of its driver allocation */
    uint64_t context;         /* a handle; in a device's own pool, one that no driver context has */
    struct gc_context *owner; /* the record of its pool: a tenant's, or that of the handle */
    uint64_t id;              /* unique in the process, never reused */
    uint16_t api;
    bool is_plain;   /* the driver frees it, as without a cache */
    bool is_spilled; /* its memory is on the host: core/backing/spill.h */
    bool is_ordered;
    bool is_synchronous; /* see gc_export_set_synchronous */
};

/* The live block that contains `address`. GC_NOT_OURS; GC_INVALID_POINTER inside a segment but in
 * no live block. */
enum gc_status gc_lookup_block(struct gc_core *core, uint64_t address,
                               struct gc_block_info *info) GC_CHECKED;

/* Prepares the live block that contains `address` for export to other processes: after its free the
 * memory is released to the driver, not reused. Waits for work that used the memory before, since
 * other processes do not keep the order of streams here. GC_NOT_SUPPORTED: the block is not a
 * driver allocation of its own (info.is_dedicated). GC_NOT_OURS, GC_INVALID_POINTER as
 * gc_lookup_block. GC_CAPTURING, GC_DRIVER: the wait is not possible. GC_BUSY: it has no end. */
enum gc_status gc_export_block(struct gc_core *core, uint64_t address, int *driver_code) GC_CHECKED;

/* Device memory may be accessed outside all streams from now on: single-stream mode ends
 * (core/device/submit.h). On return all memory that was reused in the stream's order is idle.
 * GC_CAPTURING, GC_DRIVER: the wait is not possible. */
enum gc_status gc_export_leave_single_stream(struct gc_core *core, int *driver_code) GC_CHECKED;
/* A library that registers addresses as one piece of physical memory is there (network cards,
 * gdrcopy): from now on a new block of 2 MiB or more of mapped memory lies in one handle, unless
 * memory is too short for that. Any thread; no lock is held. */
void gc_export_expect_registration(struct gc_core *core);

/* Pins the live blocks in the range for as long as they live: a network card or another process may
 * access their memory unseen, so no pause may swap that memory out (core/pause/pause.h). */
void gc_export_pin(struct gc_core *core, uint64_t address, uint64_t bytes);

/* ---- blocks opened by other processes under the library: core/share ---- */

#define GC_SHARE_HANDLE_BYTES 64

/* Opens the socket at which other processes ask for blocks. *is_first: the caller starts a thread
 * that runs gc_share_serve, or calls gc_share_stop. GC_NOT_SUPPORTED: no process can. */
enum gc_status gc_share_start(struct gc_core *core, bool *is_first) GC_CHECKED;
/* Answers other processes, until the program closes the socket's descriptor or gc_share_end. */
void gc_share_serve(struct gc_core *core);
void gc_share_stop(struct gc_core *core);
/* Whether gc_share_start succeeds, as far as is known. */
bool gc_share_is_possible(const struct gc_core *core);
/* Before the driver shuts down: answers no more; waits for an answer under way, 100 ms at most. */
void gc_share_end(struct gc_core *core);
/* For a forked child: closes its copies of the connections. Async-signal-safe. */
void gc_share_leave_child(struct gc_core *core);
/* Prepares the live block that contains `address`, of mapped memory, for other processes, and sets
 * the GC_SHARE_HANDLE_BYTES by which they open it. It is pinned; once it is freed, its memory is
 * reused when no process has it open any more. Waits as gc_export_block does. Call after
 * gc_share_start. GC_NOT_SUPPORTED: driver memory, or memory without descriptors. */
enum gc_status gc_export_share(struct gc_core *core, uint64_t address, void *handle,
                               int *driver_code) GC_CHECKED;

/* Whether a process under the library made the handle. */
bool gc_import_is_handle(const void *handle);
/* Opens a block of another process for the context: its address here; the same one, counted, while
 * it is open. GC_FORMAT: a damaged handle. GC_INVALID_ARGUMENT: it is this process's own.
 * GC_INVALID_POINTER: the block was freed. GC_IO: its process does not answer. GC_NOT_SUPPORTED:
 * the device maps no memory. */
enum gc_status gc_import_open(struct gc_context *context, const void *handle, uint64_t *address,
                              bool *is_first, int *driver_code) GC_CHECKED;
/* Closes it once; the last time waits for all work of the process, unmaps it and removes its record
 * (GC_DIRECT_IMPORT); during a capture that is put off. GC_NOT_OURS; GC_INVALID_POINTER: inside
 * such a block, or closed already. */
enum gc_status gc_import_close(struct gc_core *core, uint64_t address, int *driver_code) GC_CHECKED;
/* The open block that contains the address. */
bool gc_import_find(struct gc_core *core, uint64_t address, struct gc_block_info *info);

/* Sets whether copies and fills of the live block that contains `address` complete before they
 * return. Such blocks are counted in gc_submissions.synchronous_count while they live. GC_NOT_OURS,
 * GC_INVALID_POINTER as gc_lookup_block. */
enum gc_status gc_export_set_synchronous(struct gc_core *core, uint64_t address,
                                         bool is_it) GC_CHECKED;

/* ---- thread caches: core/reclaim/tcache.c ---- */

struct gc_tcache;
/* For the calling thread. NULL: no host memory; the thread then has no cache. */
struct gc_tcache *gc_tcache_create(struct gc_core *core);
/* When the thread ends: the cache's blocks return to their pools, its figures are merged. */
void gc_tcache_destroy(struct gc_core *core, struct gc_tcache *tcache);
/* `tcache` may be NULL in all of these but the first. */

/* A hit in the thread cache, for a request without options: no lock, no driver call, no system
 * call. The address; GC_ADDRESS_NONE: call gc_tcache_alloc_from_pool. */
uint64_t gc_tcache_alloc_bytes(struct gc_tcache *tcache, struct gc_context *context, uint64_t bytes,
                               uint16_t api);
/* Frees the block into the thread cache. False: call gc_tcache_free_to_pool. */
bool gc_tcache_free(struct gc_core *core, struct gc_tcache *tcache, uint64_t address);
/* After a miss of the thread cache, a hit in the bins of the context's pool: one lock, and nothing
 * else is asked. GC_ADDRESS_NONE: call gc_alloc; the figures of the thread are merged. The caller
 * is inside a wrapper: a signal handler's calls pass through meanwhile. */
uint64_t gc_tcache_alloc_from_pool(struct gc_tcache *tcache, struct gc_context *context,
                                   uint64_t bytes, uint16_t api);
/* Frees a block after a miss of the thread cache. False: call gc_free, which returns the error if
 * there is one; the block is live, and the figures of the thread are merged. */
bool gc_tcache_free_to_pool(struct gc_core *core, struct gc_tcache *tcache, uint64_t address);
/* As gc_tcache_alloc_bytes, before gc_alloc; false: call that, the figures are merged. */
bool gc_tcache_alloc(struct gc_tcache *tcache, struct gc_context *context,
                     const struct gc_request *request, uint64_t *address);
/* Merges the thread's figures. Called before the thread changes figures without its cache: a single
 * thread's peaks are then exact. With several threads a peak may lack recent allocations of the
 * others, at most 20 MiB or 1/64 of the device's allocated bytes each. */
void gc_tcache_flush_stats(struct gc_tcache *tcache);
/* Merges the figures of all threads. No lock may be held. */
void gc_tcache_flush_all_stats(struct gc_core *core);

/* ---- stream order: core/pool/pending.c ---- */

/* Frees in the order of `stream` (as request.stream): the same stream can reuse the block at once,
 * all others after a fence. Never waits. Without a cache the driver frees the block in that stream,
 * whose handle is `stream`. `worker`: the stream's context; NULL: the context of the memory. As
 * gc_free otherwise. */
enum gc_status gc_free_ordered(struct gc_core *core, uint64_t address, struct gc_context *worker,
                               uint64_t stream, uint16_t api, int *driver_code) GC_CHECKED;
/* Records that `stream`, too, uses the live block at `address`. */
enum gc_status gc_free_record_stream(struct gc_core *core, uint64_t address,
                                     uint64_t stream) GC_CHECKED;

/* Stream-ordered memory in use on the device, and its peak since `mark` was reset. The program
 * resets each mark itself; the report's peak is separate. */
uint64_t gc_core_ordered_bytes(const struct gc_device *device);
uint64_t gc_core_ordered_peak_bytes(const struct gc_device *device, enum gc_ordered_peak mark);
void gc_core_reset_ordered_peak(struct gc_device *device, enum gc_ordered_peak mark);
/* Call before the stream is destroyed, since its handle may be reused. Applies to every context:
 * the stream's context need not be known. */
void gc_core_close_stream(struct gc_core *core, uint64_t stream);

/* Closes the current epoch of submitted work, and returns it. Call before the program synchronises,
 * and pass it to gc_core_complete after success. The wait does not cover work submitted meanwhile.
 */
uint64_t gc_context_epoch(struct gc_context *context);
/* After a successful synchronisation of `context`: all its work up to `epoch` has completed, and
 * memory that was freed before the epoch was closed is idle, unless peers may use it. */
void gc_core_complete(struct gc_core *core, struct gc_context *context, uint64_t epoch);
/* The driver returned an illegal address error: with GPUCACHE_DEBUG, logs once what was freed last.
 */
void gc_debug_report_fault(struct gc_core *core);
/* Entry point `api` got `address`, for which gc_free returned GC_NOT_OURS and the driver an error:
 * with GPUCACHE_DEBUG, logs this, and the block freed there last if it is in the history. */
void gc_debug_report_unknown_free(struct gc_core *core, uint64_t address, uint16_t api);
/* The driver reported `free_bytes` of the device just now. */
void gc_device_note_free(struct gc_device *device, uint64_t free_bytes);
/* Releases idle segments until at most `keep_bytes` of idle memory remain; returns the bytes
 * released. */
uint64_t gc_reclaim_trim(struct gc_core *core, struct gc_device *device, uint64_t keep_bytes);

/* Waits for pending frees where no capture forbids it, and releases all idle memory; returns the
 * bytes released. */
uint64_t gc_reclaim_empty(struct gc_core *core, struct gc_device *device);
/* Gives back host memory that holds no content of swapped-out memory: kept copies, free chunks. */
void gc_reclaim_empty_host(struct gc_core *core);

/* The results of cuMemGetInfo for a thread whose memory is charged to `quota` (NULL: none). In: the
 * driver's results; out: total = min(limits, total), free = bytes that allocations could get in one
 * or more pieces (the idle cache is free, and driver memory beside live blocks: available.c), never
 * negative. */
void gc_available_mem_info(struct gc_core *core, struct gc_device *device,
                           const struct gc_quota *quota, uint64_t *free_bytes,
                           uint64_t *total_bytes);

/* Bytes that allocations could get on the device now, as in gc_available_mem_info. Calls the driver
 * if the device has a context. GC_DRIVER. */
enum gc_status gc_available_bytes(struct gc_core *core, struct gc_device *device,
                                  const struct gc_quota *quota, uint64_t *available_bytes,
                                  int *driver_code) GC_CHECKED;

/* ---- direct memory: non-pool allocations ---- */

enum gc_direct_kind {
#define GC_DIRECT(name, text, charged) GC_DIRECT_##name,
#include "core/observe/direct.def"
#undef GC_DIRECT
    GC_DIRECT_KIND_COUNT
};

struct gc_direct {
    enum gc_direct_kind kind;
    uint64_t key; /* address or handle; unique within its kind */
    uint64_t requested_bytes;
    uint64_t charged_bytes;     /* 0 for kinds that are not charged */
    struct gc_device *device;   /* may be NULL for host memory */
    struct gc_quota *quota;     /* charged besides the device; NULL: none */
    struct gc_context *context; /* the head of a handle; NULL: the memory outlives contexts */
    uint16_t api;
    /* Of a record that was found: */
    bool is_releasing; /* gc_direct_mark */
    uint64_t serial;   /* no other record of its key has it */
};

/* Kinds whose keys are addresses: no two of their records have one key. */
static inline bool gc_direct_is_address(enum gc_direct_kind kind)
{
    return kind == GC_DIRECT_MEMORY || kind == GC_DIRECT_ASYNC || kind == GC_DIRECT_MANAGED ||
           kind == GC_DIRECT_IMPORT;
}

/* Charges `bytes` to the device, and to a quota of it (NULL: none, here and below), before the
 * driver is called; reclaims idle memory if that is needed. GC_OUT_OF_MEMORY (counted) if a limit
 * would be exceeded. Undo with gc_direct_uncharge. */
enum gc_status gc_direct_charge_device(struct gc_core *core, struct gc_device *device,
                                       struct gc_quota *quota, uint64_t bytes) GC_CHECKED;
/* For a caller that can reclaim memory itself: a failure is not counted, and other processes are
 * not waited for. */
bool gc_direct_try_charge(struct gc_core *core, struct gc_device *device, struct gc_quota *quota,
                          uint64_t bytes) GC_CHECKED;
/* The driver allocated the charged bytes: they count for the peak. */
void gc_direct_commit(struct gc_core *core, struct gc_device *device, struct gc_quota *quota);
void gc_direct_uncharge(struct gc_core *core, struct gc_device *device, struct gc_quota *quota,
                        uint64_t bytes);
/* Charges or uncharges memory that exists already (a context, a module: measured by difference).
 * May exceed the limit; requests then fail. */
void gc_direct_adjust_device(struct gc_core *core, struct gc_device *device, int64_t bytes);
/* After the driver ran out of memory: releases up to `wanted_bytes` of idle memory; where there is
 * none, waits for pending memory and releases all. A call that is no request for memory
 * (`is_request` false) waits GC_RELIEF_WAIT_NS at most. True: try again. */
bool gc_direct_reclaim(struct gc_core *core, struct gc_device *device, uint64_t wanted_bytes,
                       bool is_request);

/* Records an allocation that is charged already; counted as an allocation of `direct->api`. A
 * record of the same kind and key is replaced. GC_BUSY: it is being released, or the address has a
 * record of another kind. GC_GONE: its context is destroyed, and the memory with it.
 * GC_NO_HOST_MEMORY. */
enum gc_status gc_direct_track(struct gc_core *core, const struct gc_direct *direct) GC_CHECKED;
/* Removes a record, counts a free and uncharges it. GC_NOT_OURS if there is none. */
enum gc_status gc_direct_untrack(struct gc_core *core, enum gc_direct_kind kind, uint64_t key,
                                 struct gc_direct *direct) GC_CHECKED;
/* A copy of the record; GC_NOT_OURS if there is none. */
enum gc_status gc_direct_find(struct gc_core *core, enum gc_direct_kind kind, uint64_t key,
                              struct gc_direct *direct) GC_CHECKED;
/* The same for the record of an address, of any kind of addresses. */
enum gc_status gc_direct_find_address(struct gc_core *core, uint64_t address,
                                      struct gc_direct *direct) GC_CHECKED;

/* Before the driver releases an allocation: marks its record and copies it, so that another
 * allocation that gets the key from the driver waits for this one's end, and requests without room
 * wait for the bytes. GC_NOT_OURS: no record, nothing to end. */
enum gc_status gc_direct_mark(struct gc_core *core, enum gc_direct_kind kind, uint64_t key,
                              struct gc_direct *direct) GC_CHECKED;
/* The record of an address, of any kind of addresses. Where core has a block there is nothing to
 * mark: a record is of the address's former allocation, whose release has not returned. */
enum gc_status gc_direct_mark_address(struct gc_core *core, uint64_t address,
                                      struct gc_direct *direct) GC_CHECKED;
/* Whether the record that was marked is still there: another thread may have removed it, and the
 * key may have another one. */
bool gc_direct_is_there(struct gc_core *core, const struct gc_direct *direct);
/* Ends it, with the copy. The driver has released the allocation (`is_released`): as
 * gc_direct_untrack, unless the record was removed meanwhile. */
void gc_direct_end_mark(struct gc_core *core, const struct gc_direct *direct, bool is_released);

/* Counts `count` allocations or frees of direct memory that took `ns` each, for the report's
 * latencies. */
void gc_direct_time_alloc(struct gc_core *core, uint64_t ns, uint64_t count);
void gc_direct_time_free(struct gc_core *core, uint64_t ns, uint64_t count);

/* ---- figures ---- */

/* Counts a call that reached the driver. `device` NULL: the call belongs to no device. */
void gc_device_count_driver_call(struct gc_core *core, struct gc_device *device, uint16_t api);
/* Counts a request that failed outside core (a limit on direct memory, an error of the driver). */
void gc_device_count_oom(struct gc_core *core, struct gc_device *device, struct gc_quota *quota);
/* The program allocated device memory that leaves no record: a report is due nevertheless. */
void gc_device_set_used(struct gc_core *core);
/* True once any device memory was allocated: a report is due. */
bool gc_device_was_used(const struct gc_core *core);
/* The reason, as a sentence, why no allocation followed the plan; NULL: one did, or no plan. */
const char *gc_snapshot_plan_problem(const struct gc_core *core);

#endif
