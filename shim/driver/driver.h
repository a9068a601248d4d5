/* The platform table over the real driver, and the other driver calls made in a context's name. */
#ifndef GC_SHIM_DRIVER_H
#define GC_SHIM_DRIVER_H

#include "shim/driver/capture_guard.h"
#include "shim/real/resolve.h"
#include "shim/shim.h"

void gc_driver_cuda_init(struct gc_driver *driver);  /* driver_cuda.c */
void gc_driver_fence_init(struct gc_driver *driver); /* driver_fence.c */
void gc_driver_map_init(struct gc_driver *driver);   /* driver_map.c */
void gc_driver_copy_init(struct gc_driver *driver);  /* driver_copy.c */
/* The key by which core distinguishes the legacy stream of a context, or the calling thread's own
 * stream in it: made from the number of the context, and that of the thread, neither of which is
 * reused. 0: the context has no number. */
uint64_t gc_driver_name_stream(CUstream stream, uint16_t number);
/* Puts an operation that does nothing into a stream of the context. */
CUresult gc_driver_place(uint64_t context, CUstream stream);
/* Wait for all work of the context, and of one of its streams. After about limit_ns:
 * CUDA_ERROR_NOT_READY. CUDA_ERROR_NOT_SUPPORTED where the context's streams are not all known.
 * Call while no stream captures. */
CUresult gc_driver_wait(uint64_t context, uint64_t limit_ns);
CUresult gc_driver_wait_stream(uint64_t context, CUstream stream, uint64_t limit_ns);
/* The context is destroyed, and with it its events. */
void gc_driver_fence_drop(uint64_t context);
/* Makes `context` current for a call of the library; *pushed is true if gc_driver_leave_context
 * must undo that. */
CUresult gc_driver_enter_context(uint64_t context, bool *pushed);
void gc_driver_leave_context(bool pushed);

/* As gc_driver_enter_context, relaxed for captures: captures in other contexts do not concern the
 * library's calls. Where entering fails, do not leave. */
struct gc_driver_visit {
    struct gc_capture_guard guard;
    bool is_pushed;
};
CUresult gc_driver_enter(uint64_t context, struct gc_driver_visit *visit);
void gc_driver_leave(struct gc_driver_visit *visit);

/* One driver call in `context`: `call` is evaluated only where the context could be entered. */
#define GC_CALL_IF_ENTERED(context, call)                                                          \
    ({                                                                                             \
        struct gc_driver_visit visit_;                                                             \
        CUresult result_ = gc_driver_enter((context), &visit_);                                    \
        if (result_ == CUDA_SUCCESS) {                                                             \
            result_ = (call);                                                                      \
            gc_driver_leave(&visit_);                                                              \
        }                                                                                          \
        (int)result_;                                                                              \
    })

/* Core's device of a context's handle; NULL if unknown. */
struct gc_device *gc_driver_device(uint64_t context);

#endif
