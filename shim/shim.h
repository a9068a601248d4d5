/* The shim: knows the CUDA ABI, no policy. What its files share.
 *
 * Every wrapper does four things: guard against re-entry, translate, one core call, translate the status.
 * All mutable state is in `struct gc_shim gc_shim` and the thread-local `gc_thread`.
 *
 * Life: nothing happens in a process until its first CUDA call; gc_shim_ready() then loads the options,
 * creates core and finds the real driver, once, lazily, re-entrantly. After fork the child passes through. */
#ifndef GC_SHIM_H
#define GC_SHIM_H

#include "core/core.h"
#include "core/options.h"
#include "shim/cuda_compat.h" /* cuda.h with every ABI visible; types that older headers lack */

#include <stdatomic.h>

#define GC_EXPORT __attribute__((visibility("default")))

enum gc_api {
#define API(symbol, ...) GC_API_##symbol,
#define RUNTIME(symbol, ...) GC_API_##symbol,
#include "shim/api.def"
    GC_API_COUNT
};

/* The real pointers, typed from the table. NULL until resolved or where the driver has none. */
struct gc_real {
#define API(symbol, base, version, variant, kind, parameters, arguments) CUresult(*symbol) parameters;
#define USE(symbol, base, version, parameters) CUresult(*symbol) parameters;
#define RUNTIME(symbol, kind, type, parameters, arguments) type(*symbol) parameters;
#include "shim/api.def"
};

struct gc_shim {
    struct gc_real real;
    struct gc_core *core; /* NULL: pass through (mode off, refused, forked child, failed start) */
    struct gc_options *options;
    struct gc_log log;
    struct gc_trace *trace;
    /* … owned by init.c */
};
extern struct gc_shim gc_shim;

struct gc_thread {
    unsigned depth;      /* > 0: inside a wrapper; calls that come back pass straight through */
    uint16_t outer_api;  /* the outermost entry point the program called; GC_API_COUNT: none */
    /* … */
};
extern __thread struct gc_thread gc_thread __attribute__((tls_model("initial-exec")));

/* True if this call is ours to handle: started, not re-entered, not a forked child. Finds the real driver
 * either way, so that GC_CALL works after it. */
bool gc_shim_ready(void);

/* Calls the real driver entry point and counts the call for `device` (struct gc_device *, NULL: none).
 * CUDA_ERROR_NOT_SUPPORTED where the driver has no such entry point.
 * Usage: GC_CALL(device, cuMemFree_v2, dptr) */
#define GC_CALL(device, symbol, ...)                                                                       \
    (gc_shim.real.symbol == NULL                                                                           \
         ? CUDA_ERROR_NOT_SUPPORTED                                                                        \
         : (gc_shim_count((device), GC_API_##symbol), gc_shim.real.symbol(__VA_ARGS__)))
/* The same for USE rows: not counted. */
#define GC_USE(symbol, ...)                                                                                \
    (gc_shim.real.symbol == NULL ? CUDA_ERROR_NOT_SUPPORTED : gc_shim.real.symbol(__VA_ARGS__))
void gc_shim_count(struct gc_device *device, enum gc_api api);

/* The calling thread's current context as core knows it, added on first sight; NULL if there is none or
 * the driver objects: the caller then forwards the call, so that the driver's own error reaches the program. */
struct gc_context *gc_shim_current_context(void);
struct gc_device *gc_shim_current_device(void);
/* Core's device for a driver ordinal, added on first sight; NULL if the driver objects. */
struct gc_device *gc_shim_device(CUdevice ordinal);

/* Enters a wrapper: sets outer_api if this is the outermost call and returns the entry point to account
 * under (the outermost: cudaMalloc rather than cuMemAlloc_v2). Pair with gc_shim_leave. */
enum gc_api gc_shim_enter(enum gc_api api);
void gc_shim_leave(void);

/* Core's status as CUDA's code: `driver_code` for GC_DRIVER. */
CUresult gc_shim_result(enum gc_status status, int driver_code);

/* The platform table over the real driver (driver_cuda.c). */
void gc_driver_cuda_init(struct gc_driver *driver);

#endif
