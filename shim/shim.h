/* The shim knows the CUDA ABI and no policy. Shared by all its files.
 *
 * Every wrapper does four things: guard against re-entry, translate, one core call, translate the
 * status. State that several files use is in `struct gc_shim gc_shim` and the thread-local
 * `gc_thread`; a file's own state is static in it.
 *
 * Life: the library does nothing until the process's first CUDA call; gc_life_ready() then loads
 * the options, creates core and finds the real driver, once, lazily, re-entrantly. After fork the
 * child passes through.
 *
 * A wrapper reads:
 *     GC_EXPORT CUresult cuX(args)
 *     {
 *         if (!gc_life_ready() || the driver must check args)
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
#include "shim/cuda_compat.h"
#include "shim/nvml_abi.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GC_EXPORT __attribute__((visibility("default")))

/* The newest CUDA version whose entry points api.def and neutral.def were checked against. */
#define GC_API_TABLE_VERSION 13020

/* The entry points that a program can call: the index under which core counts. */
enum gc_api {
#define API(symbol, ...) GC_API_##symbol,
#define RUNTIME(symbol, ...) GC_API_##symbol,
#include "shim/api.def"
#define OWN(symbol) GC_API_##symbol,
#include "shim/own.def"
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

/* Prototypes of the wrappers: those of the headers must agree with the table, and older headers
 * lack some. A wrapper's own symbol is hidden; the exported symbols are in
 * shim/intercept/entry_exports.S.
 */
#define GC_WRAPPER(symbol) __asm__("wrapper_" #symbol)
#define API(symbol, base, version, variant, kind, parameters, arguments)                           \
    CUresult symbol parameters GC_WRAPPER(symbol);
#define RUNTIME(symbol, kind, type, parameters, arguments)                                         \
    type symbol parameters GC_WRAPPER(symbol);
#define NVML(symbol, parameters, arguments) int symbol parameters GC_WRAPPER(symbol);
#include "shim/api.def"

/* The first instruction of an exported name, as shim/intercept/entry_exports.S has it: a move of
 * the row's number. Another one shows that a tool has patched the function and must see every call.
 */
#if defined(__x86_64__)
#define GC_ENTRY_CODE(row) (UINT32_C(0xb8) | (uint32_t)(row) << 8)
#else
#define GC_ENTRY_CODE(row) (UINT32_C(0x52800011) | (uint32_t)(row) << 5)
#endif

struct gc_shim {
    struct gc_real real;
    /* Where the first instructions of cuMemAlloc_v2 and cuMemFree_v2 are. */
    const volatile uint32_t *alloc_code, *free_code;
    struct gc_core *core;                /* NULL: pass through (mode off, refused, failed start) */
    struct gc_submissions *_Atomic work; /* core's; set once calls are served */
    struct gc_options *options;
    struct gc_log log;
    struct gc_trace *trace;
    /* Points to 1 where a call may be served from the thread's cache, to 0 before the start, in a
     * forked child, and where threads have no caches. */
    const volatile char *hot;
    volatile char *wiped_on_fork; /* 1 here, 0 in a forked child; NULL: process ids are compared */
    struct gc_doorbell doorbell;  /* rung by other processes with a request */
    /* The driver has an event that covers a context: streams need not be listed, nor their work
     * counted (shim/driver/stream_list.h). */
    bool has_context_events;
    bool is_refused;        /* a setting is so wrong that cuInit must fail */
    bool has_model;         /* a model is named: its estimate is compared with a budget */
    atomic_bool is_watched; /* a tool must see each call of the runtime (life/tools.h) */
    atomic_bool ipc_used; /* the program exports memory or encodes video from it: whole allocations
                             from now on */
    atomic_int driver_version; /* known once a device was seen: the report makes no driver call */
};
extern struct gc_shim gc_shim;
extern struct gc_submitter gc_shim_no_submitter;    /* zero */
extern const char *gc_shim_api_names[GC_API_COUNT]; /* set at the start: gc_rows_name_apis */

struct gc_thread {
    union {
        struct {
            uint16_t depth; /* > 0: inside a wrapper; calls that come back pass straight through */
            uint16_t
                outer_api; /* the outermost entry point the program called; GC_API_COUNT: none */
            /* Not 0: the driver has not confirmed a current context since that may have changed. A
             * call that needs a context queries the driver first (shim/account/device.c). */
            uint32_t is_unconfirmed;
        };
        uint32_t entered;           /* the first two at once: see gc_shim_is_outside */
        uint64_t entered_confirmed; /* all three: see gc_shim_is_ready_outside */
    };
    bool is_starting;         /* this thread is in the middle of the lazy start */
    bool is_ending;           /* the thread's cache was released */
    bool has_missed;          /* in cudaFree, and the thread's cache does not serve that free */
    bool has_own_stream;      /* work went to the thread's own default stream */
    struct gc_tcache *tcache; /* NULL: none yet, or it could not be made */
    struct gc_submitter *submitter; /* gc_shim_no_submitter: the same */
    bool has_sought_submitter;
    /* The context that was current when core last looked one up, and its record. */
    CUcontext handle;
    struct gc_context *context;
    /* The record that serves an allocation there without a query: the context's, or that of the
     * thread's tenant. NULL: call gc_tenants_target. */
    struct gc_context *target;
    struct gc_tenant *tenant;      /* made current by the program; NULL: none */
    uint64_t tenant_handle;        /* its handle; 0: none */
    struct gc_tenant *last_tenant; /* the rules' last result for a call of the thread */
    const void *caller;     /* code that called the outermost entry point; NULL: not recorded */
    bool is_loading;        /* the thread began to load objects (shim/account/outside.h) */
    bool ends_watched;      /* the thread's end releases its state (shim/account/hot.c) */
    uint64_t number;        /* the thread's; 0: not assigned yet (state.c) */
    unsigned primary_turns; /* > 0: has a primary context's turn (shim/account/primary.h) */
    /* The context in which the driver's wrapper served the last cudaMalloc or cudaFree of
     * `runtime`; NULL: only the runtime knows its next target (shim/wrap/runtime_api.c). */
    CUcontext landed;
    const void *runtime;
};
extern __thread struct gc_thread gc_thread __attribute__((tls_model("initial-exec")));

#define GC_IS_PATCHED(code, symbol)                                                                \
    (*__atomic_load_n(&gc_shim.code, __ATOMIC_RELAXED) != GC_ENTRY_CODE(GC_ROW_##symbol))

/* ---- the library's life (state.c); the start itself: life/init.c ---- */

/* OFF: started, but it only passes through. */
enum gc_life { GC_LIFE_NEW, GC_LIFE_READY, GC_LIFE_OFF, GC_LIFE_CHILD };
enum gc_life gc_shim_life(void);

/* Whether the start is over, successful or not. */
bool gc_shim_is_started(void);

/* The start's states, in their order. One thread ends NEW, and one thread ends READ; between READ
 * and CREATING each thread opens the module that reads models. */
enum gc_start {
    GC_START_NEW,
    GC_START_READING, /* the options */
    GC_START_READ,
    GC_START_CREATING, /* core */
    GC_START_OVER,
};
/* True for one thread only, of the process that began the start: that thread moves on to the next
 * state. */
bool gc_shim_start_claim(enum gc_start from, enum gc_start to);
void gc_shim_start_reach(enum gc_start state);
/* Waits until the start has reached `state`; false in a child that was forked meanwhile. */
bool gc_shim_start_wait(enum gc_start state);
/* Whether another process began the start. Makes a system call. */
bool gc_shim_is_forked(void);
/* At the end of the process: a signal handler called exit while its thread held a lock of the
 * library or of the trace, which no thread will release. */
bool gc_shim_is_interrupted(void);
/* As gc_shim_is_forked once the library has started: without a system call where the kernel wipes
 * pages. */
static inline bool gc_shim_is_child(void)
{
    const volatile char *page = gc_shim.wiped_on_fork;

    return page != NULL ? *page == 0 : gc_shim_is_forked();
}
/* From now on no call is served from a thread's cache. */
void gc_shim_close_hot(void);

/* ---- a call (state.c) ---- */

/* Enters a wrapper: sets outer_api if this is the outermost call and returns the entry point to
 * account under (the outermost: cudaMalloc rather than cuMemAlloc_v2). Pair with gc_shim_leave. */
enum gc_api gc_shim_enter(enum gc_api api);
void gc_shim_leave(void);

/* Enters a wrapper of the runtime: records the entry point, but lets the driver wrappers beneath
 * work. Returns true if it was the outermost; pass that to gc_shim_leave_runtime. */
bool gc_shim_enter_runtime(enum gc_api api);
void gc_shim_leave_runtime(bool outermost);

/* Whether the thread is in no wrapper. */
static inline bool gc_shim_is_outside(void)
{
    const struct gc_thread outside = {.outer_api = GC_API_COUNT};

    return gc_thread.entered == outside.entered;
}

/* As gc_shim_is_outside, and the current context is confirmed. */
static inline bool gc_shim_is_ready_outside(void)
{
    const struct gc_thread outside = {.outer_api = GC_API_COUNT};

    return gc_thread.entered_confirmed == outside.entered_confirmed;
}

/* Records the wrapper's caller, for GPUCACHE_TENANTS: in wrappers that take device memory or return
 * its size, before they enter, and in no function beneath them. */
#define GC_SET_CALLER() gc_shim_set_caller(__builtin_return_address(0))
static inline void gc_shim_set_caller(const void *address)
{
    if (gc_shim_is_outside())
        gc_thread.caller = address;
}

/* Counts a driver call of `device`, NULL: of no single device. */
void gc_shim_count(struct gc_device *device, enum gc_api api);
/* Adds the calls counted before core existed to core's counters. */
void gc_shim_count_early(void);

/* Core's status as CUDA's code: `driver_code` for GC_DRIVER. */
CUresult gc_shim_result(enum gc_status status, int driver_code);

/* The calling thread's number, from 1, never reused. */
uint64_t gc_shim_thread_number(void);

/* Checks the driver's result of any call: after an error that ends a context, nothing is served
 * before the driver was queried. */
void gc_shim_on_error(CUresult result);
static inline CUresult gc_shim_check_result(CUresult result)
{
    if (__builtin_expect(result != CUDA_SUCCESS, 0))
        gc_shim_on_error(result);
    return result;
}

#endif
