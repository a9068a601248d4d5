/* The shim: knows the CUDA ABI, no policy. What its files share.
 *
 * Every wrapper does four things: guard against re-entry, translate, one core call, translate the
 * status. All mutable state is in `struct gc_shim gc_shim` and the thread-local `gc_thread`.
 *
 * Life: nothing happens in a process until its first CUDA call; gc_shim_ready() then loads the
 * options, creates core and finds the real driver, once, lazily, re-entrantly. After fork the child
 * passes through.
 *
 * A wrapper reads:
 *     GC_EXPORT CUresult cuX(args)
 *     {
 *         if (!gc_shim_ready() || args are for the driver to judge)
 *             return GC_FORWARD(cuX, args);
 *         enum gc_api api = gc_shim_enter(GC_API_cuX);
 *         … one core call, or the real call and one core call …
 *         gc_shim_leave();
 *         return result;
 *     } */
#ifndef GC_SHIM_H
#define GC_SHIM_H

#include "core/config/options.h"
#include "core/core.h"
#include "core/io/log.h"
#include "core/observe/trace.h"
#include "shim/account/nvml_abi.h"
#include "shim/cuda_compat.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GC_EXPORT __attribute__((visibility("default")))

/* The newest CUDA version whose entry points api.def and neutral.def were checked against. */
#define GC_API_TABLE_VERSION 13000

/* What a program can call: the index core counts under. */
enum gc_api {
#define API(symbol, ...) GC_API_##symbol,
#define RUNTIME(symbol, ...) GC_API_##symbol,
#include "shim/api.def"
#define OWN(symbol) GC_API_##symbol,
#include "shim/public/own.def"
#undef OWN
    GC_API_COUNT
};

/* Every row of the table, USE rows too; the slot in struct gc_real has the same number. */
enum gc_row_id {
#define API(symbol, ...) GC_ROW_##symbol,
#define USE(symbol, ...) GC_ROW_##symbol,
#define RUNTIME(symbol, ...) GC_ROW_##symbol,
#define NVML(symbol, ...) GC_ROW_##symbol,
#define NVML_USE(symbol, ...) GC_ROW_##symbol,
#include "shim/api.def"
    GC_ROW_COUNT
};

/* The real pointers, typed from the table. NULL until resolved or where the driver has none. Read
 * them through GC_REAL only: threads may be filling them in. */
struct gc_real {
#define API(symbol, base, version, variant, kind, parameters, arguments)                           \
    CUresult(*symbol) parameters;
#define USE(symbol, base, version, parameters) CUresult(*symbol) parameters;
#define RUNTIME(symbol, kind, type, parameters, arguments) type(*symbol) parameters;
#define NVML(symbol, parameters, arguments) int(*symbol) parameters;
#define NVML_USE(symbol, parameters) int(*symbol) parameters;
#include "shim/api.def"
};

/* Prototypes: those of the headers must agree with the table, and older headers lack some. */
#define API(symbol, base, version, variant, kind, parameters, arguments)                           \
    GC_EXPORT                                                                                      \
    CUresult symbol parameters;
#define RUNTIME(symbol, kind, type, parameters, arguments)                                         \
    GC_EXPORT                                                                                      \
    type symbol parameters;
#define NVML(symbol, parameters, arguments)                                                        \
    GC_EXPORT                                                                                      \
    int symbol parameters;
#include "shim/api.def"

struct gc_shim {
    struct gc_real real;
    struct gc_core *core; /* NULL: pass through (mode off, refused, failed start) */
    struct gc_options *options;
    struct gc_log log;
    struct gc_trace *trace;
    /* 1 there: a call may be served from the thread's cache. 0 before the start, in a forked child,
     * and where there are no such caches. */
    const volatile char *hot;
    struct gc_watch watch;     /* whether other processes ask something */
    bool is_refused;           /* a setting is so wrong that cuInit must fail */
    bool has_gate;             /* a model is named: its estimate is held against a budget */
    atomic_bool ipc_seen;      /* the program asks for IPC handles: whole allocations from now on */
    atomic_int driver_version; /* once a device was seen: the report asks the driver nothing */
};
extern struct gc_shim gc_shim;
extern const char *const gc_api_names[GC_API_COUNT];

struct gc_thread {
    union {
        struct {
            uint16_t depth; /* > 0: inside a wrapper; calls that come back pass straight through */
            uint16_t
                outer_api; /* the outermost entry point the program called; GC_API_COUNT: none */
            /* Not 0: the driver has not said yet, since it may have changed, that a context is
             * current. What needs one asks first (state.c). */
            uint32_t is_unsettled;
        };
        uint32_t entered;         /* the first two at once: see gc_shim_is_outside */
        uint64_t entered_settled; /* all three: see gc_shim_is_settled */
    };
    bool is_starting;       /* this thread is in the middle of the lazy start */
    bool is_ending;         /* its cache was handed back */
    bool has_own_stream;    /* work went to its own default stream */
    struct gc_cache *cache; /* NULL: none yet, or none to be had */
    /* The context that was current when core last looked one up, and its record. */
    CUcontext handle;
    struct gc_context *context;
    /* Where an allocation there is served without a question: the record, or that of the thread's
     * tenant. NULL: gc_shim_target says. */
    struct gc_context *target;
    struct gc_tenant *tenant;      /* current by the program's word; NULL: none */
    uint64_t tenant_handle;        /* its handle; 0: none */
    struct gc_tenant *last_tenant; /* whom the rules last named for a call of the thread's */
    const void *caller;            /* who called the outermost entry point; NULL: not noted */
    bool is_loading;               /* it was about to load objects (outside.h) */
    bool ends_watched;             /* at its end the thread hands back what it has (hot.c) */
    uint64_t number;               /* its own; 0: not given yet (capture_api.c) */
    unsigned primary_turns;        /* > 0: it has to do with a primary context (contexts.h) */
    /* The context in which the last cudaMalloc or cudaFree of `runtime` was served beneath; NULL:
     * what it will do next is for it to say (runtime_api.c). */
    CUcontext landed;
    const void *runtime;
};
extern __thread struct gc_thread gc_thread __attribute__((tls_model("initial-exec")));

/* ---- life (init.c) ---- */

/* True if this call is ours to handle: started, not re-entered, not a forked child. Finds the real
 * driver either way, so that GC_CALL works after it. */
bool gc_shim_ready(void);

/* How far the library has come, without starting it. OFF: started, but it only passes through. */
enum gc_life { GC_LIFE_NEW, GC_LIFE_READY, GC_LIFE_OFF, GC_LIFE_CHILD };
enum gc_life gc_shim_life(void);

/* The start is over, whatever came of it. */
bool gc_shim_is_started(void);

/* Enters a wrapper: sets outer_api if this is the outermost call and returns the entry point to
 * account under (the outermost: cudaMalloc rather than cuMemAlloc_v2). Pair with gc_shim_leave. */
enum gc_api gc_shim_enter(enum gc_api api);
void gc_shim_leave(void);

/* The same for a wrapper of the runtime: names the entry point, but lets the driver wrappers
 * beneath work. Returns true if it was the outermost; hand that to gc_shim_leave_runtime. */
bool gc_shim_enter_runtime(enum gc_api api);
void gc_shim_leave_runtime(bool outermost);

/* The program's own call, in no wrapper. */
static inline bool gc_shim_is_outside(void)
{
    const struct gc_thread outside = {.outer_api = GC_API_COUNT};

    return gc_thread.entered == outside.entered;
}

/* The same, and a context is current. */
static inline bool gc_shim_is_settled(void)
{
    const struct gc_thread outside = {.outer_api = GC_API_COUNT};

    return gc_thread.entered_settled == outside.entered_settled;
}

/* Who called the wrapper, for GPUCACHE_TENANTS: in wrappers that take device memory or say how much
 * there is, before they enter, and in no function beneath them. */
#define GC_NOTE_CALLER() gc_shim_note_caller(__builtin_return_address(0))
static inline void gc_shim_note_caller(const void *address)
{
    if (gc_shim_is_outside())
        gc_thread.caller = address;
}

void gc_shim_count(struct gc_device *device, enum gc_api api);

/* Core's status as CUDA's code: `driver_code` for GC_DRIVER. */
CUresult gc_shim_result(enum gc_status status, int driver_code);

/* ---- in what state the program's thread and context are (state.c) ---- */

/* What the driver answered to any call: where it says that a context can do no more, nothing is
 * served from then on before the driver was asked. */
void gc_shim_note_error(CUresult result);
static inline CUresult gc_shim_note_result(CUresult result)
{
    if (__builtin_expect(result != CUDA_SUCCESS, 0))
        gc_shim_note_error(result);
    return result;
}

/* Before the program's call is served by core, inside its wrapper: CUDA_SUCCESS, or what the plain
 * driver answers in the thread's state whatever is asked for: no context, a context that is gone or
 * has failed, a host function, the end of the driver. With `is_unsafe` (the call is one that
 * captures forbid) also that a capture forbids it, which ends that capture as the plain call
 * does. *current: as gc_shim_current_context. */
CUresult gc_shim_check_state(bool is_unsafe, struct gc_context **current);

/* The calling thread's number, from 1, which no other has or had. */
uint64_t gc_shim_thread_number(void);

/* ---- devices and contexts (device.c) ---- */

/* The calling thread's current context as core knows it, added on first sight; NULL if there is
 * none or the driver objects: the caller then forwards the call, so that the driver's own error
 * reaches the program. */
struct gc_context *gc_shim_current_context(void);
struct gc_device *gc_shim_current_device(void);
/* The same for any context, and for that of a stream, of whatever flavour: most often the current
 * one. */
struct gc_context *gc_shim_context(CUcontext handle);
struct gc_context *gc_shim_stream_context(CUstream stream);
/* Where a request in `context` (a record of a handle, not of a tenant) is served: by the record of
 * the calling thread's tenant, or of the one whose object called, else by `context` itself. NULL:
 * the tenant's record is not to be had; the request must fail. */
struct gc_context *gc_shim_target(struct gc_context *context);
/* Core's device for a driver ordinal, added on first sight; NULL if the driver objects. */
struct gc_device *gc_shim_device(CUdevice ordinal);

/* ---- the thread's cache (hot.c; the hot path itself in hot.h) ---- */

/* Gives the thread a cache if it has none, and it may have one. Call inside a wrapper. */
void gc_hot_prepare(void);
/* Once, at the start. */
void gc_hot_start(void);
/* At its end the calling thread hands back what it has of the library's. False: that cannot be. */
bool gc_hot_watch_end(void);

/* ---- the thread that answers other processes (helper.c) ---- */

/* Starts it if the process has a group and it does not run yet. */
void gc_helper_start(void);

/* ---- the gate (life/admission.c) ---- */

/* Opens the model that the options name, by `module`; where that is missing, its reason is kept for
 * gc_gate_pass. False without host memory. Called once, by the start. */
struct gc_module;
bool gc_gate_open(const struct gc_module *module);

/* Whether a program whose CUDA has just been initialised may go on: CUDA_SUCCESS, or what cuInit
 * returns instead. Does not come back where the gate ends the process. */
CUresult gc_gate_pass(void);
/* The estimate, for the report; false if there is none. */
struct gc_report_estimate;
bool gc_gate_tell(struct gc_report_estimate *estimate);
/* The budget's device: its memory, and its UUID in the form of options. */
#define GC_UUID_BYTES 48
bool gc_shim_describe_device(CUdevice ordinal, uint64_t *total_bytes, char uuid[GC_UUID_BYTES]);

/* ---- direct memory (free.c; more in direct.h) ---- */

/* Forwards a free of memory that is not the pool's to the driver (cuMemFree_v2, or the first ABI's
 * cuMemFree) and drops core's record of it: plain, managed, stream-ordered. */
CUresult gc_shim_free_direct(CUdeviceptr dptr, bool first_abi);

/* ---- real pointers (resolve.c) ---- */

/* Finds libcuda among the loaded objects (`load`: or loads it) and fills the table. Idempotent,
 * never waits for another thread. False if there is no driver. */
bool gc_resolve_driver(bool load);
/* The slow half of GC_HAVE: asks the driver's own cuGetProcAddress for a row whose symbol it does
 * not export. */
bool gc_resolve_row(enum gc_row_id row);
/* What cuDriverGetVersion says, asked once; 0 without a driver. */
int gc_resolve_driver_version(void);
/* True if the program's CUDA calls come to this library first: it stands before libc (so before
 * every look-up) and before the driver, preloaded or linked. Else it is only called by name. */
bool gc_resolve_is_interposing(void);
/* True if `address` is code of libcuda itself. */
bool gc_resolve_is_driver_code(const void *address);

/* Typed, safe read of a slot; NULL if the driver has no such entry point or it was not looked for
 * yet. */
#define GC_REAL(symbol) __atomic_load_n(&gc_shim.real.symbol, __ATOMIC_RELAXED)
#define GC_HAVE(symbol) (GC_REAL(symbol) != NULL || gc_resolve_row(GC_ROW_##symbol))

/* Calls the real driver entry point and counts the call for `device` (struct gc_device *, NULL:
 * none). CUDA_ERROR_NOT_SUPPORTED where the driver has no such entry point. Usage: GC_CALL(device,
 * cuMemFree_v2, dptr) */
#define GC_CALL(device, symbol, ...)                                                               \
    (!GC_HAVE(symbol) ? CUDA_ERROR_NOT_SUPPORTED                                                   \
                      : (gc_shim_count((device), GC_API_##symbol),                                 \
                         gc_shim_note_result(GC_REAL(symbol)(__VA_ARGS__))))
/* The same for USE rows: not counted. */
#define GC_USE(symbol, ...)                                                                        \
    (!GC_HAVE(symbol) ? CUDA_ERROR_NOT_SUPPORTED : GC_REAL(symbol)(__VA_ARGS__))
/* A call the library has nothing to say about: the driver's answer, counted for no device. */
#define GC_FORWARD(symbol, ...) GC_CALL(NULL, symbol, ##__VA_ARGS__)

/* ---- the platform table over the real driver ---- */

void gc_driver_cuda_init(struct gc_driver *driver);  /* driver_cuda.c */
void gc_driver_fence_init(struct gc_driver *driver); /* driver_fence.c */
void gc_driver_map_init(struct gc_driver *driver);   /* driver_map.c */
/* The legacy stream of a context, or the calling thread's own in it, as core tells streams apart:
 * by the number of the context, and that of the thread, which no other has or had. 0: the context
 * has no number. */
uint64_t gc_driver_name_stream(CUstream stream, uint16_t number);
/* Puts an operation that does nothing into a stream of the context. */
CUresult gc_driver_place(uint64_t context, CUstream stream);
/* Wait for all work of the context, and of one of its streams, for about limit_ns:
 * CUDA_ERROR_NOT_READY where that takes longer, CUDA_ERROR_NOT_SUPPORTED where its streams are not
 * all known. Not while something captures. */
CUresult gc_driver_await(uint64_t context, uint64_t limit_ns);
CUresult gc_driver_await_stream(uint64_t context, CUstream stream, uint64_t limit_ns);
/* The context is gone, and with it its events. */
void gc_driver_fence_drop(uint64_t context);
/* Makes `context` current for a call of the platform's; *pushed says whether leave_context has
 * something to undo. */
CUresult gc_driver_enter_context(uint64_t context, bool *pushed);
void gc_driver_leave_context(bool pushed);
/* Core's device of a context's handle; NULL if unknown. */
struct gc_device *gc_driver_device(uint64_t context);

#endif
