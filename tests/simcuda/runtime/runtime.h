/* The stand-in CUDA runtime's inside: what its files share. See README.md here for the whole.
 *
 * Every entry point is written with RT_API (one export) or RT_API_PT (two: the plain one, and the
 * `_ptsz` or
 * `_ptds` one where stream NULL means the calling thread's own stream). The macro makes the
 * exported symbol, which enters a level (nothing, driver loaded, context current), runs the body,
 * and records the thread's last error. Bodies reach the driver only through rt_cu, the table that
 * rt_driver_load filled by the look-ups of lookups.def. */
#ifndef RT_RUNTIME_H
#define RT_RUNTIME_H

/* Declares both flavours of every entry point, and every ABI version of the driver's. */
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* In cudaProfiler.h, which a set of headers may lack. */
CUresult CUDAAPI cuProfilerInitialize(const char *configuration, const char *output, int mode);
CUresult CUDAAPI cuProfilerStart(void);
CUresult CUDAAPI cuProfilerStop(void);

/* ---- exports ---- */

/* In the archive the entry points are visible to the program it is linked into, and no further. */
#ifdef RT_STATIC
#define RT_EXPORT __attribute__((visibility("hidden")))
#else
#define RT_EXPORT __attribute__((visibility("default")))
#endif

#define RT_UNPAREN(...) __VA_ARGS__

/* RT_API(context, cudaMalloc, (void **devPtr, size_t size), (devPtr, size)) { body } */
#define RT_API(level, name, parameters, arguments)                                                 \
    static cudaError_t body_##name parameters;                                                     \
    RT_EXPORT cudaError_t name parameters                                                          \
    {                                                                                              \
        cudaError_t rt_error = rt_enter_##level();                                                 \
        return rt_end(rt_error == cudaSuccess ? body_##name arguments : rt_error);                 \
    }                                                                                              \
    static cudaError_t body_##name parameters

/* As above, for an entry point without parameters. */
#define RT_API_VOID(level, name) RT_API(level, name, (void), ())

/* RT_API_PT(context, cudaFreeAsync, ptsz, (void *devPtr, cudaStream_t s), (devPtr, s)) { body }
 * The body has one more parameter, bool per_thread. */
#define RT_API_PT(level, name, suffix, parameters, arguments)                                      \
    static cudaError_t body_##name(bool per_thread, RT_UNPAREN parameters);                        \
    RT_EXPORT cudaError_t name parameters                                                          \
    {                                                                                              \
        cudaError_t rt_error = rt_enter_##level();                                                 \
        return rt_end(rt_error == cudaSuccess ? body_##name(false, RT_UNPAREN arguments)           \
                                              : rt_error);                                         \
    }                                                                                              \
    RT_EXPORT cudaError_t name##_##suffix parameters                                               \
    {                                                                                              \
        cudaError_t rt_error = rt_enter_##level();                                                 \
        return rt_end(rt_error == cudaSuccess ? body_##name(true, RT_UNPAREN arguments)            \
                                              : rt_error);                                         \
    }                                                                                              \
    static cudaError_t body_##name(bool per_thread, RT_UNPAREN parameters)

/* ---- the driver (driver.c) ---- */

/* One pointer per row of lookups.def, named as the driver's export; never NULL once the driver is
 * loaded: a name that the driver lacks answers CUDA_ERROR_NOT_SUPPORTED. */
struct rt_driver {
#define RT_LOOKUP(name, version, flags, symbol) __typeof__(symbol) *symbol;
#define RT_LOOKUP_UNUSED(name, version, flags)
#include "lookups.def"
#undef RT_LOOKUP
#undef RT_LOOKUP_UNUSED
};
extern struct rt_driver rt_cu;

/* The plain or the per-thread pointer of a call that comes in both. */
#define RT_PICK(symbol, suffix) (per_thread ? rt_cu.symbol##_##suffix : rt_cu.symbol)

/* Loads the driver once per process, thread-safe: cudaErrorInsufficientDriver if there is none or
 * an older one, else the result of cuInit, also at every later call. */
cudaError_t rt_driver_load(void);

/* ---- errors (error.c) ---- */

/* The runtime's code for a driver result: the same number where the runtime has one. */
cudaError_t rt_result(CUresult result);
/* Records a call's outcome as the thread's last error, and returns it. */
cudaError_t rt_end(cudaError_t error);
/* Forgets the thread's last error, sticky or not (after a reset). */
void rt_forget_error(void);

/* Leaves a body with the code of a driver call that failed. */
#define RT_TRY(call)                                                                               \
    do {                                                                                           \
        cudaError_t rt_try = (call);                                                               \
        if (rt_try != cudaSuccess)                                                                 \
            return rt_try;                                                                         \
    } while (0)
#define RT_TRY_CU(call) RT_TRY(rt_result(call))

/* ---- levels, devices and contexts (context.c) ---- */

cudaError_t rt_enter_nothing(void);
cudaError_t rt_enter_driver(void);
cudaError_t rt_enter_context(
    void); /* driver loaded and a context current: the thread's device's primary one */

int rt_device(void); /* the device of the calling thread, without making a context */
cudaError_t rt_check_device(int device); /* cudaErrorInvalidDevice unless it exists */
/* The primary context of a device, initialised; stays current nowhere. */
cudaError_t rt_primary(int device, CUcontext *context);

/* ---- shapes of copies (shape.c) ---- */

size_t rt_format_bytes(
    CUarray_format format); /* of one channel; 0 for formats with no fixed size */
cudaError_t rt_array_element_bytes(cudaArray_const_t array, size_t *bytes);
cudaError_t rt_memory_types(enum cudaMemcpyKind kind, CUmemorytype *source,
                            CUmemorytype *destination);
cudaError_t rt_copy_3d(const struct cudaMemcpy3DParms *runtime, CUDA_MEMCPY3D *driver);
cudaError_t rt_channel_to_format(const struct cudaChannelFormatDesc *desc, CUarray_format *format,
                                 unsigned *channels);
cudaError_t rt_format_to_channel(CUarray_format format, unsigned channels,
                                 struct cudaChannelFormatDesc *desc);

/* ---- registered code (module.c) ---- */

/* The driver's kernel of a host stub, of a cudaKernel_t given out before, loading its library when
 * needed: cudaErrorInvalidDeviceFunction for what nobody registered. */
cudaError_t rt_kernel_find(const void *function, CUkernel *kernel);
/* Lets rt_kernel_find accept the handle itself. */
cudaError_t rt_kernel_remember(CUkernel kernel);
/* Address and size of a registered __device__, __constant__ or __managed__ variable. */
cudaError_t rt_symbol_find(const void *symbol, CUdeviceptr *address, size_t *bytes);

#endif
