/* Core, as the shim and the tools see it: devices, contexts, allocation, direct memory, figures.
 *
 * An instance holds everything; there is no mutable static state in core. Addresses, handles and
 * entry points are plain integers here: core knows no CUDA type. An entry point (`api`) is an index
 * into the names given at creation.
 *
 * All functions are thread-safe unless they say otherwise. None calls the driver while holding a
 * lock.
 *
 * Accounts: `reserved` of a device is what this process physically holds: pool segments plus direct
 * memory. Every byte is charged to the device's budget before the driver is asked and given back if
 * the driver refuses, so reserved never exceeds the limit, not even for a moment. */
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
struct gc_quota; /* what a tenant has of a device: share.h */
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
    const struct gc_plan *plan;       /* borrowed, valid; NULL: none is followed */
    const char *const *api_names;     /* borrowed; index = api */
    uint16_t api_count;
};

enum gc_status gc_core_create(const struct gc_core_config *config,
                              struct gc_core **core) GC_CHECKED;
/* Frees host memory only, makes no driver call. Not thread-safe. */
void gc_core_destroy(struct gc_core *core);

/* ---- the ledger: member.c ---- */

/* How a thread sees without a call that something was asked of the process: *control != seen. */
struct gc_doorbell {
    const _Atomic uint32_t *control; /* a constant zero, or in the ledger */
    _Atomic uint32_t seen;
};

static inline bool gc_doorbell_is_rung(const struct gc_doorbell *doorbell)
{
    return atomic_load_explicit(doorbell->control, memory_order_relaxed) !=
           atomic_load_explicit(&doorbell->seen, memory_order_relaxed);
}

/* Joins the ledger (GPUCACHE_LEDGER, GPUCACHE_GROUP, GPUCACHE_TENANT); `watch` outlives core. Where
 * that cannot be done one line says why, and limits hold in this process alone. Before the first
 * device is added. */
void gc_core_join(struct gc_core *core, const char *program, struct gc_doorbell *doorbell);
/* A forked child: the parent's slot is no business of it. Async-signal-safe. */
void gc_core_leave_child(struct gc_core *core);
/* Serves what was asked, if anything was. May call the driver. No lock may be held. */
void gc_core_serve(struct gc_core *core);
/* Whether other processes of the ledger use the device, or may soon. */
bool gc_device_is_shared(const struct gc_device *device);
/* What a context of the device takes, as members of the group found; 0: not known, or no group. */
uint64_t gc_device_context_bytes(const struct gc_device *device);
/* For all processes of the ledger, in a group or not. */
void gc_device_set_context_bytes(struct gc_device *device, uint64_t bytes);
/* The same of a device that need not be known here yet, as any process of the ledger found. */
uint64_t gc_core_context_bytes(const struct gc_core *core, const char *uuid, uint64_t total_bytes);
/* Whether the process has a group, and so should have a thread that runs gc_core_help. */
bool gc_core_wants_helper(const struct gc_core *core);
/* Serves requests until gc_core_end_help. */
void gc_core_help(struct gc_core *core);
/* No request is served by the helper after this; waits for one under way, a moment at most. */
void gc_core_end_help(struct gc_core *core);

/* ---- devices ---- */

struct gc_device_info {
    int ordinal;
    char uuid[48]; /* GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx */
    char name[128];
    uint64_t total_bytes;    /* the device's own */
    bool has_mapping;        /* pool memory may be mapped page by page */
    uint64_t page_bytes;     /* the smallest page of mapped memory, whether the pool uses it or
                                not; 0: the device has none */
    bool is_dedicated;       /* every block is to be a driver allocation of its own, but for
                            stream-ordered ones */
    char backend_reason[96]; /* why auto takes what it takes, for the report */
};

/* Adds a device (idempotent) and resolves its limit from the options. *device lives as long as
 * core. */
enum gc_status gc_core_add_device(struct gc_core *core, const struct gc_device_info *info,
                                  struct gc_device **device) GC_CHECKED;
/* NULL if not added. Lock-free. */
struct gc_device *gc_core_find_device(struct gc_core *core, int ordinal);
/* min(limit, the group's limit, the device's own total). */
uint64_t gc_device_total_bytes(const struct gc_device *device);
/* What it was added with. Lives as long as core. */
const struct gc_device_info *gc_device_get_info(const struct gc_device *device);
/* Whether memory for its requests is mapped, not the driver's own allocations. */
bool gc_device_is_mapped(const struct gc_device *device);
/* Sets the limit (GC_BUDGET_UNLIMITED: none). Where more is held, idle memory goes back, and new
 * requests fail until less is held. */
void gc_core_set_limit(struct gc_core *core, struct gc_device *device, uint64_t limit_bytes);
/* What is charged now: segments, direct memory and reservations under way. A moment's value. */
uint64_t gc_device_reserved_bytes(const struct gc_device *device);
/* What holds, the process's own or the group's; UINT64_MAX when there is none. */
uint64_t gc_device_limit_bytes(const struct gc_device *device);
/* The process's own. */
uint64_t gc_device_own_limit_bytes(const struct gc_device *device);

/* ---- contexts ---- */

/* Adds a context (idempotent for one handle). *context stays readable until core is destroyed. */
enum gc_status gc_core_add_context(struct gc_core *core, uint64_t handle, struct gc_device *device,
                                   struct gc_context **context) GC_CHECKED;
/* NULL if unknown or dropped. Lock-free. */
struct gc_context *gc_core_find_context(struct gc_core *core, uint64_t handle);
/* Calls `function` for every context there is: the record of the handle, not of a tenant. No lock
 * is held; one that comes or goes meanwhile may be left out, or gone. */
void gc_core_each_context(struct gc_core *core,
                          void (*function)(struct gc_context *context, void *argument),
                          void *argument);
/* Whether more than one was ever added. One relaxed load. */
bool gc_core_has_several_contexts(const struct gc_core *core);
/* The end of a context: begin before the driver is asked to destroy or reset it, then finish, or
 * cancel where it declined. In between no call of core's is made in the context, whoever's thread
 * it were; those under way are waited for. Begin waits for another thread's end of the same handle;
 * NULL: the handle is unknown. With finish its blocks and direct records vanish, accounts included;
 * what was mapped is unmapped and released. */
struct gc_context *gc_core_teardown_begin(struct gc_core *core, uint64_t handle);
void gc_core_teardown_cancel(struct gc_context *context);
void gc_core_teardown_finish(struct gc_context *context);
/* Both at once, for what went unasked. Unknown handles are ignored. */
void gc_core_drop_context(struct gc_core *core, uint64_t handle);
/* The driver told of an error that does not go away, of whichever context: nothing is handed out
 * from a cache before the driver has given memory again. */
void gc_core_set_faulted(struct gc_core *core);
bool gc_context_is_faulted(const struct gc_context *context);
struct gc_device *gc_context_device(const struct gc_context *context);
uint64_t gc_context_handle(const struct gc_context *context);
/* What is charged for its memory before the device is; NULL: nothing. */
struct gc_quota *gc_context_quota(const struct gc_context *context);

/* The record that serves stream-ordered requests made in the context. Where memory is mapped that
 * is the device's own: its memory is reached by every context of the device and stays when one
 * ends. NULL: such memory cannot be had here, the driver's own pool is to serve. */
struct gc_context *gc_context_ordered(struct gc_context *context);
/* Whether the record is such a one, of no driver context; and whether a handle stands for one. */
bool gc_context_is_of_device(const struct gc_context *context);
bool gc_core_is_of_device(uint64_t handle);
/* The device's stream-ordered memory, what there is and what will be, is for the contexts of
 * another device too, those there are and those that come. For good: what they have queued may run
 * long after they lost access. */
void gc_device_open_ordered(struct gc_device *device, int ordinal);
/* Tells contexts apart, from 1; 0: one too many to have a number. */
uint16_t gc_context_number(const struct gc_context *context);

/* Between begin and end (nested, counted) of a capture that begins in the context nothing is
 * synchronised in any context, since the capture may spread: frees stay pending and allocation
 * takes idle or fresh memory. The last end does not synchronise either; the next free, allocation
 * miss or retire does. */
void gc_context_capture_begin(struct gc_context *context);
void gc_context_capture_end(struct gc_context *context);
/* Around driver calls that beside a capture are made in relaxed mode, and do it no harm: one that
 * begins meanwhile waits for their end, since where nothing captures the mode is left alone. */
void gc_core_relaxed_begin(struct gc_core *core);
void gc_core_relaxed_end(struct gc_core *core);
bool gc_context_is_capturing(const struct gc_context *context);
/* `peer` may from now on work on memory of `context`: frees in `context` wait for it too. For good:
 * what it has queued may run long after it lost access. Call before its work is submitted, or, if
 * that is too late, before the free. */
void gc_context_add_peer(struct gc_context *context, struct gc_context *peer);
/* What work of `context` reaches is not wholly known: frees in every context, present and future,
 * wait for it too. For good, and before such work is submitted. Opens no memory to other devices:
 * what is not open to a device its work cannot reach. Cheap when it is known already. */
void gc_context_set_roaming(struct gc_context *context);

/* ---- memory out of the device and back: swap.h ---- */

enum gc_swap_refusal {
    GC_SWAP_OK,
    GC_SWAP_AGAIN,      /* it is swapped out already, or was not */
    GC_SWAP_CAPTURES,   /* a capture is under way */
    GC_SWAP_PEERS,      /* other contexts reach the memory */
    GC_SWAP_EXPORTED,   /* other processes have it open */
    GC_SWAP_NOT_MAPPED, /* its memory is the driver's own allocations */
    GC_SWAP_HOST,       /* no host memory for the copy */
    GC_SWAP_FULL,       /* the device, or a limit, has no room for it */
    GC_SWAP_BUSY,       /* work under way did not end in time */
    GC_SWAP_UNSEEN,     /* work may be submitted that the library does not see */
    GC_SWAP_DRIVER,     /* the driver refused; the code is beside */
    GC_SWAP_REFUSAL_COUNT
};

struct gc_swap_result {
    enum gc_swap_refusal refusal;
    int driver_code;
    uint64_t moved_bytes; /* physical memory that went, or came */
    uint64_t stays_bytes; /* of a pause: what the process holds all the same */
};

/* ---- work that the program submits: core/device/submit.h, inline ---- */

struct gc_submissions;
/* Lives as long as core. */
struct gc_submissions *gc_core_submissions(struct gc_core *core);
/* Where allocations came from; NULL: GPUCACHE_STACKS is off. */
struct gc_stack_table *gc_core_stacks(struct gc_core *core);
/* Whether the sites are wanted too, not only those of leaks. */
bool gc_core_lists_sites(const struct gc_core *core);
/* Something that may submit work was handed out that no wrapper counts: from now on every free
 * needs a fence or a synchronisation. For good. True the first time. */
bool gc_core_set_conservative(struct gc_core *core);

/* ---- pool memory ---- */

struct gc_request {
    uint64_t bytes;  /* > 0 */
    uint64_t stream; /* 0: none named */
    uint16_t api;
    bool is_dedicated; /* a driver allocation of its own, at its base: what IPC exporters need */
    bool is_ordered;   /* stream-ordered: freed in a stream's order, counted apart */
    bool is_trial;     /* a refusal is not counted: the caller makes room and asks again */
};

/* Serves a request, in mode `cache` from the pool, in mode `track` from the driver directly.
 * GC_OUT_OF_MEMORY after the full shortage order (idle cache is given back first); GC_DRIVER with
 * the driver's own code in *driver_code for anything else it said. */
enum gc_status gc_core_alloc(struct gc_core *core, struct gc_context *context,
                             const struct gc_request *request, uint64_t *address,
                             int *driver_code) GC_CHECKED;

/* Frees what gc_core_alloc returned, from any thread, whatever context is current.
 * GC_NOT_OURS: forward it to the driver. GC_INVALID_POINTER: inside the pool, but no live block
 * (double free, interior pointer); counted. GC_DRIVER: the wait failed, the block stays live. */
enum gc_status gc_core_free(struct gc_core *core, uint64_t address, uint16_t api,
                            int *driver_code) GC_CHECKED;

struct gc_block_info {
    uint64_t address;
    uint64_t bytes;    /* as requested */
    uint64_t capacity; /* after rounding */
    uint64_t segment_address;
    uint64_t segment_bytes;
    bool is_mapped;    /* its memory is mapped, not the driver's own allocation */
    bool is_dedicated; /* it is one allocation of the driver's, and nothing else lies in that */
    uint64_t context;  /* handle; of memory of the device one that no driver context has */
    struct gc_context
        *owner;  /* the record whose pool it is in: a tenant's own, or that of the handle */
    uint64_t id; /* unique in the process, never reused */
    uint16_t api;
    bool is_plain; /* the driver frees it, as without a cache */
    bool is_ordered;
    bool is_synchronous; /* see gc_core_set_synchronous */
};

/* The live block that contains `address`. GC_NOT_OURS; GC_INVALID_POINTER inside a segment but in
 * no live block. */
enum gc_status gc_core_find_block(struct gc_core *core, uint64_t address,
                                  struct gc_block_info *info) GC_CHECKED;

/* Other processes are about to be given the live block that contains `address`: it will not serve
 * again, its memory goes back to the driver once it is free. Waits for work of the block's former
 * life, whose order others do not keep. GC_NOT_SUPPORTED: it is no driver allocation of its own
 * (info.is_dedicated). GC_NOT_OURS, GC_INVALID_POINTER as gc_core_find_block. GC_CAPTURING,
 * GC_DRIVER: it cannot be waited for. */
enum gc_status gc_core_export(struct gc_core *core, uint64_t address, int *driver_code) GC_CHECKED;

/* Something may reach device memory outside all streams from now on: no memory is reused in the
 * order of the one stream any more (core/device/submit.h), and what was is idle when this returns.
 * GC_CAPTURING, GC_DRIVER: it cannot be waited for. */
enum gc_status gc_core_leave_single_stream(struct gc_core *core, int *driver_code) GC_CHECKED;

/* Others, a network card or another process, may reach the memory of the live blocks in the range
 * by ways that the library does not see, for as long as these live: it may not be moved (pause.h).
 */
void gc_core_pin(struct gc_core *core, uint64_t address, uint64_t bytes);

/* Copies and fills of the live block that contains `address` are to be done when they return, or no
 * more: counted in gc_submissions.synchronous_count for as long as the block lives. GC_NOT_OURS,
 * GC_INVALID_POINTER as gc_core_find_block. */
enum gc_status gc_core_set_synchronous(struct gc_core *core, uint64_t address,
                                       bool is_it) GC_CHECKED;

/* ---- a thread's own cache: magazine.c ---- */

struct gc_tcache;
/* For the calling thread. NULL: no host memory; everything works without. */
struct gc_tcache *gc_tcache_create(struct gc_core *core);
/* The thread ends: its blocks go back to their pools, its figures are kept. */
void gc_tcache_destroy(struct gc_core *core, struct gc_tcache *tcache);
/* A hit in the thread's magazine: no lock, no driver call, no system call. False: ask
 * gc_core_alloc, nothing is counted. `cache` may be NULL. */
bool gc_tcache_alloc(struct gc_tcache *tcache, struct gc_context *context,
                     const struct gc_request *request, uint64_t *address);
/* The same in short, for a request of that many bytes: the address, or GC_ADDRESS_NONE. */
uint64_t gc_tcache_alloc_bytes(struct gc_tcache *tcache, struct gc_context *context, uint64_t bytes,
                               uint16_t api);
/* The same for a free. False: ask gc_core_free. */
bool gc_tcache_free(struct gc_core *core, struct gc_tcache *tcache, uint64_t address);
/* The thread is about to change the figures in another way: its own are brought up to date, so that
 * a peak that one thread makes is exact. With several threads a peak may be short of what others
 * gained lately: at most 20 MiB each. */
void gc_tcache_flush_stats(struct gc_tcache *tcache);
/* The same for all threads: what they did until now shows in the figures. No lock may be held. */
void gc_core_flush_stats(struct gc_core *core);

/* ---- stream order: stream.c ---- */

/* Frees in the order of `stream`, in which request.stream's meaning is the same: the block serves
 * the same stream at once and all others when a fence says so. Never waits. Without a cache the
 * driver frees it in that stream, whose handle `stream` is. `worker`: whose stream it is; NULL:
 * that of the context whose memory it is. As gc_core_free otherwise. */
enum gc_status gc_core_free_ordered(struct gc_core *core, uint64_t address,
                                    struct gc_context *worker, uint64_t stream, uint16_t api,
                                    int *driver_code) GC_CHECKED;
/* The live block at `address` is used by another stream too than the one it was allocated for. */
enum gc_status gc_core_record_stream(struct gc_core *core, uint64_t address,
                                     uint64_t stream) GC_CHECKED;

/* Stream-ordered memory served on the device now, and the most since a mark was reset. The marks
 * are the program's own, which resets each by itself; the report's peak is another one. */
uint64_t gc_device_ordered_bytes(const struct gc_device *device);
uint64_t gc_device_ordered_peak_bytes(const struct gc_device *device, enum gc_ordered_peak mark);
void gc_device_reset_ordered_peak(struct gc_device *device, enum gc_ordered_peak mark);
/* Before the stream is destroyed: its handle may be given to another one. In every context: whose
 * the stream is need not be known. */
void gc_core_close_stream(struct gc_core *core, uint64_t stream);

/* How much work was counted so far. Take it before a synchronisation of the program starts and hand
 * it to gc_core_complete when that succeeded: what is submitted meanwhile is not covered by it. */
uint64_t gc_context_epoch(struct gc_context *context);
/* The program synchronised `context` successfully: all its work counted in `epoch` is done, and
 * what was freed before that was taken is idle, unless peers may use it. */
void gc_core_complete(struct gc_core *core, struct gc_context *context, uint64_t epoch);
/* The driver told of an access to memory that is not there: with GPUCACHE_DEBUG says once what was
 * freed last. */
void gc_debug_report_fault(struct gc_core *core);
/* Entry point `api` freed `address`, which gc_core_free called GC_NOT_OURS and the driver refused:
 * with GPUCACHE_DEBUG logs what is known of the address. */
void gc_debug_report_unknown_free(struct gc_core *core, uint64_t address, uint16_t api);
/* Gives idle segments back until at most `keep_bytes` of idle memory remain; returns bytes given
 * back. */
uint64_t gc_core_trim(struct gc_core *core, struct gc_device *device, uint64_t keep_bytes);

/* Waits for what is pending where no capture forbids it, and gives all idle memory back; returns
 * bytes given back. */
uint64_t gc_core_empty(struct gc_core *core, struct gc_device *device);

/* What cuMemGetInfo should say to a thread whose memory is charged to `share` (NULL: to none). In:
 * what the driver said; out: total = min(limits, total), free = what a malloc could really get
 * (idle cache is free), never negative. */
void gc_core_mem_info(struct gc_core *core, struct gc_device *device, const struct gc_quota *quota,
                      uint64_t *free_bytes, uint64_t *total_bytes);

/* What a malloc could get on the device now, as gc_core_mem_info says, asked of the driver where
 * the device has a context. GC_DRIVER. */
enum gc_status gc_core_available(struct gc_core *core, struct gc_device *device,
                                 const struct gc_quota *quota, uint64_t *available_bytes,
                                 int *driver_code) GC_CHECKED;

/* ---- direct memory: what the program takes from the driver by other ways ---- */

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
    uint64_t charged_bytes; /* what was reserved in the budget; 0 for kinds that are not charged */
    struct gc_device *device; /* may be NULL for host memory */
    struct gc_quota *quota;   /* that the charge was reserved in too; NULL: none */
    uint64_t context;         /* handle; 0 if it outlives contexts */
    uint16_t api;
};

/* Charges `bytes` to the device, and to the share of it if there is one (NULL: none, here and
 * below), before the driver is asked, giving idle cache back if that makes room. GC_OUT_OF_MEMORY
 * (counted) if a limit has no room. Undo with gc_core_uncharge. */
enum gc_status gc_core_charge(struct gc_core *core, struct gc_device *device,
                              struct gc_quota *quota, uint64_t bytes) GC_CHECKED;
/* The same for a caller that knows another way to make room: a refusal is not counted. */
bool gc_core_try_charge(struct gc_core *core, struct gc_device *device, struct gc_quota *quota,
                        uint64_t bytes) GC_CHECKED;
/* The driver agreed to what was reserved: it counts for the peak. */
void gc_core_commit(struct gc_core *core, struct gc_device *device, struct gc_quota *quota);
void gc_core_uncharge(struct gc_core *core, struct gc_device *device, struct gc_quota *quota,
                      uint64_t bytes);
/* Makes the account agree with what the driver did after the fact: charges without asking (a
 * context, a module: measured by difference) or gives back. May exceed the limit; new requests then
 * fail. */
void gc_core_adjust(struct gc_core *core, struct gc_device *device, int64_t bytes);
/* Gives idle cache back because the driver itself ran out; true if anything went back, so try
 * again. */
bool gc_core_reclaim(struct gc_core *core, struct gc_device *device, uint64_t wanted_bytes);

/* Records an allocation whose charge was already reserved. Counted as an allocation of
 * `direct->api`. */
enum gc_status gc_core_track(struct gc_core *core, const struct gc_direct *direct) GC_CHECKED;
/* Removes a record, counts a free and gives its charge back. GC_NOT_OURS if there is none. */
enum gc_status gc_core_untrack(struct gc_core *core, enum gc_direct_kind kind, uint64_t key,
                               struct gc_direct *direct) GC_CHECKED;
/* A copy of the record; GC_NOT_OURS if there is none. */
enum gc_status gc_core_find_direct(struct gc_core *core, enum gc_direct_kind kind, uint64_t key,
                                   struct gc_direct *direct) GC_CHECKED;

/* ---- figures ---- */

/* A call that reached the driver. `device` NULL: it belongs to no device. */
void gc_core_count_driver_call(struct gc_core *core, struct gc_device *device, uint16_t api);
/* A request that failed before core saw it (limit on a direct allocation, driver's refusal). */
void gc_core_count_oom(struct gc_core *core, struct gc_device *device, struct gc_quota *quota);
/* The program took device memory in a way that leaves no record: a report is due all the same. */
void gc_core_set_used(struct gc_core *core);
/* True once any device memory was allocated: a report is due. */
bool gc_core_was_used(const struct gc_core *core);
/* Why nothing has followed the plan, a sentence; NULL: something has, or there is none. */
const char *gc_core_plan_problem(const struct gc_core *core);

#endif
