/* The simulated device's inside: what its files share. See README.md here for the whole.
 *
 * Structure: every exported driver function is written with SIM_API: the macro makes the
 * exported symbol, which takes the call's latency, an injected failure and the journal line, and
 * the body, a static function. driver/engine_* files know contexts, streams, capture;
 * driver/memory_* files know addresses.
 *
 * Locking: two locks. The engine's (driver/engine.h) guards contexts, streams, events, captures and
 * graphs; the memory part's own guards allocations, mappings and pools. Neither is held while the
 * other part is called, while an operation runs, or across a callback of the program. */
#ifndef SIM_H
#define SIM_H

#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#undef cuGetProcAddress_v2

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Entry points have all parameters of the ABI, simulated or not. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

/* ---- calls ---- */

/* Why calls are watched; 0 once the driver is initialised and no setting asks for anything at a
 * call: neither latency, nor failures, nor a journal. Host time of a call is measured in
 * nanoseconds then. */
enum { SIM_WATCH_SETTINGS = 1, SIM_WATCH_START = 2 };
extern atomic_int sim_calls_are_watched;
/* An argument of a call; the last of a list has no address. */
struct sim_argument {
    const void *address;
    size_t bytes;
};
/* Begins a call: counts it, takes its SIMCUDA_LATENCY. If SIMCUDA_FAIL requires it, or the driver
 * is not initialised (driver/early.h), returns false and the result to give in *injected. */
bool sim_call_begin(const char *entry, const struct sim_argument *arguments, CUresult *injected);
/* Ends it: writes the journal line `seq tid entry result args`. */
CUresult sim_call_end(const char *entry, CUresult result, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Host time: of what the call does beside its latency. */
void sim_call_spend(uint64_t duration_ns);
/* The call does `count` times more than once what its latency is the cost of. */
void sim_call_repeats(const char *entry, uint64_t count);

/* SIM_EACH(word, a, b, …): word(a), word(b), …, for up to some twenty. */
#define SIM_EACH(word, ...) __VA_OPT__(SIM_EXPAND(SIM_EACH_NEXT(word, __VA_ARGS__)))
#define SIM_EACH_NEXT(word, first, ...)                                                            \
    word(first) __VA_OPT__(, SIM_EACH_AGAIN SIM_NOTHING(word, __VA_ARGS__))
#define SIM_EACH_AGAIN() SIM_EACH_NEXT
#define SIM_NOTHING ()
#define SIM_EXPAND(...) SIM_EXPAND_1(SIM_EXPAND_1(SIM_EXPAND_1(SIM_EXPAND_1(__VA_ARGS__))))
#define SIM_EXPAND_1(...) SIM_EXPAND_2(SIM_EXPAND_2(SIM_EXPAND_2(SIM_EXPAND_2(__VA_ARGS__))))
#define SIM_EXPAND_2(...) __VA_ARGS__
#define SIM_ARGUMENT(a) ((struct sim_argument){&(a), sizeof(a)})
#define SIM_ARGUMENTS(...)                                                                         \
    (const struct sim_argument[])                                                                  \
    {                                                                                              \
        SIM_EACH(SIM_ARGUMENT, __VA_ARGS__) __VA_OPT__(, ) SIM_NO_ARGUMENT                         \
    }
#define SIM_NO_ARGUMENT ((struct sim_argument){NULL, 0})
#define SIM_UNPAREN(...) __VA_ARGS__
#define SIM_ENTRY(name, parameters, arguments, call, ...)                                          \
    CUresult name parameters;                                                                      \
    __attribute__((visibility("default"))) CUresult name parameters                                \
    {                                                                                              \
        CUresult sim_result;                                                                       \
        int watched = atomic_load_explicit(&sim_calls_are_watched, memory_order_relaxed);          \
        if (!watched || sim_call_begin(#name, SIM_ARGUMENTS arguments, &sim_result))               \
            sim_result = call;                                                                     \
        return watched ? sim_call_end(#name, sim_result, __VA_ARGS__) : sim_result;                \
    }
/* SIM_API(cuMemAlloc_v2, (CUdeviceptr *dptr, size_t bytes), (dptr, bytes), "%p %zu", (void *)dptr,
 * bytes) { body } */
#define SIM_API(name, parameters, arguments, ...)                                                  \
    static CUresult body_##name parameters;                                                        \
    SIM_ENTRY(name, parameters, arguments, body_##name arguments, __VA_ARGS__)                     \
    static CUresult body_##name parameters
/* As above, for an entry with a per-thread flavour, `suffix` being _ptsz or _ptds: both symbols
 * share one body, which has a `bool per_thread` before the other parameters. */
#define SIM_API_THREAD(name, suffix, parameters, arguments, ...)                                   \
    static CUresult body_##name(bool per_thread, SIM_UNPAREN parameters);                          \
    SIM_ENTRY(name, parameters, arguments, body_##name(false, SIM_UNPAREN arguments), __VA_ARGS__) \
    SIM_ENTRY(name##suffix, parameters, arguments, body_##name(true, SIM_UNPAREN arguments),       \
              __VA_ARGS__)                                                                         \
    static CUresult body_##name(bool per_thread, SIM_UNPAREN parameters)

/* The export table for cuGetProcAddress: exports_engine.def and exports_memory.def hold rows
 * SIM_EXPORT(base, version, variant, symbol): `symbol` is what `base` means from CUDA `version` on.
 * variant: NONE, PTSZ or PTDS; with the latter two <symbol>_ptsz or <symbol>_ptds is the per-thread
 * flavour. */

/* ---- settings (read once, at the first call) ---- */

/* What memory that asks for GPUDirect RDMA (gpuDirectRDMACapable) gets. */
enum sim_rdma {
    SIM_RDMA_NONE,    /* the devices have none: the flag is ignored */
    SIM_RDMA_YES,     /* it works */
    SIM_RDMA_ONCE,    /* mapped at one address only: the second is refused its access */
    SIM_RDMA_REFUSED, /* refused its access, as on WSL2 */
};

/* The directions of a device's link to the host. */
enum sim_direction { SIM_OUT, SIM_IN, SIM_DIRECTIONS };

struct sim_settings {
    int device_count;
    uint64_t memory_bytes; /* each */
    const char *shared;    /* NULL: capacity private to the process */
    uint64_t work_us;
    int driver_version;
    bool has_mapping; /* the attribute 102: without, cuMemCreate and its kin are not supported */
    bool reuses_contexts;
    bool has_peers;      /* devices reach each other's memory */
    bool looks_up_apart; /* cuGetProcAddress gives other addresses than the exported symbols' */
    enum sim_rdma rdma;
    uint64_t wait_us;              /* how long calls that may wait for the device's work do */
    bool is_lazy;                  /* memory is taken at first use (driver/engine_lazy.c) */
    uint64_t lazy_bytes;           /* by a module, beside its image */
    uint64_t link[SIM_DIRECTIONS]; /* bytes a second, of pinned memory; 0: copies take no time */
    uint64_t pageable_percent;     /* of that, for pageable memory */
    uint64_t pin_ns;               /* to pin a MiB of host memory */
};
const struct sim_settings *sim_settings(void);

/* ---- devices and contexts (driver/engine_context.c) ---- */

struct sim_device {
    int ordinal;
    CUuuid uuid;
    char name[64];
    atomic_uint_fast64_t
        used_bytes; /* private accounting; shared: in the shared file (driver/memory_capacity.c) */
    atomic_uint_fast64_t link_busy_ns[SIM_DIRECTIONS]; /* as above: until then */
};

struct sim_context { /* never freed: a stale handle is recognised, unless it is reused */
    uint32_t magic;
    bool is_stopped; /* permanent, as far as it is not reused; under the engine's lock */
    struct sim_device *device;
    struct sim_context *green_of; /* a green context's primary one; NULL: it is no green one */
    uint32_t green_magic;         /* its address is the CUgreenCtx handle */
    unsigned sm_count;            /* a green one's multiprocessors */
    unsigned flags;
    bool primary;
    atomic_bool destroyed;
    atomic_int sticky;                 /* CUresult that every later call returns; 0: none */
    atomic_int capturing_count;        /* streams of it in capture */
    atomic_uint_fast64_t peers;        /* bit per device ordinal this context may reach */
    atomic_uint_fast64_t id;           /* a primary context gets a new one each time it starts */
    struct sim_engine_context *engine; /* streams, limits: the engine's own */
};

/* The context that owns memory, modules, events and errors: a green one's primary, else itself. */
static inline struct sim_context *sim_context_root(struct sim_context *context)
{
    return context->green_of ? context->green_of : context;
}
/* The error that stuck to it; success: none. */
static inline CUresult sim_sticky(const struct sim_context *context)
{
    return (CUresult)atomic_load(context->green_of ? &context->green_of->sticky : &context->sticky);
}

/* CUDA_ERROR_NOT_INITIALIZED before cuInit, _DEINITIALIZED at exit; else success. */
CUresult sim_check_init(void);
/* The current context, checked: NOT_INITIALIZED, INVALID_CONTEXT, CONTEXT_IS_DESTROYED, the sticky
 * error. */
CUresult sim_current(struct sim_context **context);
struct sim_device *sim_device(CUdevice ordinal); /* NULL if out of range */
/* The value of cuDeviceGetAttribute; 0 where there is no such attribute. */
int sim_device_attribute(CUdevice_attribute attribute, const struct sim_device *device);
/* An explicit context handle, checked: INVALID_CONTEXT, CONTEXT_IS_DESTROYED. */
CUresult sim_context_check(CUcontext handle, struct sim_context **context);
/* Leaves the sticky error in the context (first one wins). */
void sim_poison(struct sim_context *context, CUresult error);
/* An allowed-during-capture check for calls that are unsafe then (cuMemAlloc, cuMemFree, …): if the
 * thread's capture mode and the process' captures forbid it, invalidates those captures and returns
 * CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED. */
CUresult sim_check_unsafe_call(struct sim_context *context);

/* ---- streams and operations (driver/engine_stream.c) ---- */

struct sim_stream;

/* The work that a stream runs: called on the stream's worker after all earlier work it depends on
 * and SIMCUDA_WORK_US. A non-success result becomes the context's sticky error. */
struct sim_op {
    CUresult (*run)(struct sim_context *context, void *argument);
    void (*release)(void *argument); /* frees `argument`; may be NULL */
    void *argument;
    bool is_instant; /* takes no SIMCUDA_WORK_US */
};

/* Resolves a CUstream handle (NULL, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD, created) for the
 * current context; `per_thread` is true in _ptsz/_ptds entries, where NULL means the thread's own
 * stream. */
CUresult sim_stream_resolve(CUstream handle, bool per_thread, struct sim_stream **stream);
struct sim_context *sim_stream_context(const struct sim_stream *stream);
/* Queues an operation with the real ordering rules (legacy stream against blocking ones). If the
 * stream is capturing, adds a graph node instead: `copy` duplicates the argument per launch (graph
 * nodes outlive one run); node_type is the result of cuGraphNodeGetType. Takes ownership of
 * op.argument in every case. */
CUresult sim_submit(struct sim_stream *stream, struct sim_op op,
                    void *(*copy)(const void *argument), CUgraphNodeType node_type);
bool sim_stream_is_capturing(const struct sim_stream *stream);
/* Waits until everything submitted so far to the stream / the context is done; the sticky error if
 * any. */
CUresult sim_stream_wait(struct sim_stream *stream);
CUresult sim_context_wait(struct sim_context *context);
/* A copy or fill that is not Async was left under way in the stream; waits for all such of the
 * context, as setting SYNC_MEMOPS does. */
void sim_stream_note_synchronous(struct sim_stream *stream);
void sim_context_wait_synchronous(struct sim_context *context);
/* CU_CTX_SYNC_MEMOPS: copies and fills that are not Async are waited for. */
bool sim_context_is_synchronous(struct sim_context *context);
/* For what was submitted so far to any context. */
void sim_wait_for_all(void);
/* The same, for SIMCUDA_WAIT_US at most: calls that NVIDIA documents as implicit synchronization,
 * or that may be one. */
void sim_wait_implicitly(void);
/* True when all work submitted to the stream before the call is done. */
bool sim_stream_is_idle(struct sim_stream *stream);
/* Sequence points for the stream-ordered allocator: a position in a stream and whether it has
 * passed. These three are called with the memory part's lock held, so that a stream cannot end
 * meanwhile; they call nothing back. */
/* Puts an operation that does nothing into a stream that does not capture, with the order that any
 * has; its position. */
CUresult sim_stream_mark(struct sim_stream *stream, uint64_t *position);
bool sim_stream_has_passed(struct sim_stream *stream, uint64_t position);
/* True if work submitted to `later` from now on is ordered behind `position` of `earlier` (same
 * stream, or `later` waited for an event recorded after it). */
bool sim_stream_is_ordered(struct sim_stream *earlier, uint64_t position, struct sim_stream *later);

/* ---- memory (driver/memory_* files) ---- */

/* Four or eight bytes, read or written at once by the device: CUDA_ERROR_ILLEGAL_ADDRESS. */
CUresult sim_memory_read_value(struct sim_context *context, uint64_t address, unsigned bytes,
                               uint64_t *value);
CUresult sim_memory_write_value(struct sim_context *context, uint64_t address, unsigned bytes,
                                uint64_t value);
/* Context destroyed or reset: drops its memory, gives capacity back. Pools' memory is no context's.
 * Called with no lock held, after all its streams have stopped. */
void sim_memory_drop_context(struct sim_context *context);
/* A stream is about to be destroyed; its work is done. Memory that was freed on it is free
 * everywhere. */
void sim_memory_drop_stream(struct sim_stream *stream);
/* A stream, event or context of this context was waited for with success: pools release memory that
 * is beyond their release threshold. Called with no lock held, from cuStreamSynchronize,
 * cuEventSynchronize, cuCtxSynchronize. */
void sim_memory_synchronized(struct sim_context *context);
/* Graph memory nodes: an allocation node's address is fixed at creation; physical memory is taken
 * at launch and returned by the free node. */
CUresult sim_memory_graph_reserve(struct sim_context *context, size_t bytes, uint64_t *address);
CUresult sim_memory_graph_commit(struct sim_context *context, uint64_t address);
CUresult sim_memory_graph_uncommit(struct sim_context *context, uint64_t address);
void sim_memory_graph_forget(struct sim_context *context, uint64_t address);
/* Memory of a module's variable: the program can use it and cannot free it. */
CUresult sim_memory_variable_take(struct sim_context *context, size_t bytes, uint64_t *address);
void sim_memory_variable_give(uint64_t address);
/* Copies and fills as graph nodes run them, accesses checked: CUDA_ERROR_ILLEGAL_ADDRESS,
 * INVALID_VALUE. */
CUresult sim_memory_copy_3d(struct sim_context *context, const CUDA_MEMCPY3D *copy);
CUresult sim_memory_fill_2d(struct sim_context *context, CUdeviceptr address, size_t pitch,
                            unsigned element_bytes, unsigned value, size_t width, size_t height);
/* Takes or returns capacity of a device: CUDA_ERROR_OUT_OF_MEMORY when it runs out. */
CUresult sim_capacity_take(struct sim_device *device, uint64_t bytes);
void sim_capacity_return(struct sim_device *device, uint64_t bytes);
uint64_t sim_capacity_used(struct sim_device *device);
/* Until when (CLOCK_MONOTONIC) a direction of the device's link is busy. */
atomic_uint_fast64_t *sim_capacity_link(struct sim_device *device, enum sim_direction direction);
/* For the workers of streams (driver/memory_link.c): the next copy begins no earlier than now,
 * because the worker waited; an item is done, behind which a copy may begin where the last copy
 * ended (`may_chain`) unless it was no copy. */
void sim_link_break(void);
void sim_link_end_item(bool may_chain);
uint64_t sim_link_now_ns(void);
/* The processes that hold capacity of a device: fills up to `room` of both arrays, returns how
 * many. */
unsigned sim_capacity_holders(struct sim_device *device, unsigned room, unsigned *pids,
                              uint64_t *used);
/* The driver's own kernels, loaded with a context's first copy or fill: OUT_OF_MEMORY. */
CUresult sim_lazy_kernels(struct sim_context *context, bool is_fill);
/* A module or function that occupies device memory. */
#define SIM_CONTEXT_BYTES (UINT64_C(64) << 20) /* what a context takes */

#endif
