/* Shared by the files behind core/gpucache.h. Their functions are no wrappers: the program calls
 * them by name, perhaps before CUDA, perhaps without a preload, so each begins with a check of the
 * library's state. */
#ifndef GC_PUBLIC_H
#define GC_PUBLIC_H

#define GPUCACHE_NO_PROTOTYPES
#include "core/gpucache.h"
#include "shim/shim.h"

#define GC_PUBLIC_DEVICES 256 /* ordinals */

/* Prototypes from the header's own list, visible to programs. */
#define GC_PUBLIC_PROTOTYPE(result, name, parameters)                                              \
    GC_EXPORT                                                                                      \
    result name parameters;
GPUCACHE_FUNCTIONS(GC_PUBLIC_PROTOTYPE)
#undef GC_PUBLIC_PROTOTYPE

/* Whether calls can be served, without starting anything: GPUCACHE_OK, NOT_READY, DISABLED, FORKED.
 */
gpucache_status gc_public_state(void);
/* As gc_public_state, but starts the library first. */
gpucache_status gc_public_start(void);
/* Core's device for an ordinal this process has used. Starts nothing. */
gpucache_status gc_public_find_device(int ordinal, struct gc_device **device);
/* Core's status as a public one; a driver code is kept for gpucache_driver_error. */
gpucache_status gc_public_status(enum gc_status status, int driver_code);
/* As above for a request of `bytes`: distinguishes the limit from the device. */
gpucache_status gc_public_alloc_status(enum gc_status status, int driver_code,
                                       struct gc_device *device, uint64_t bytes);

/* Makes a context of the device current, if none is: the primary one. Starts CUDA. */
gpucache_status gc_public_push(int ordinal, bool *is_pushed);
void gc_public_pop(bool is_pushed);

/* One call that may reach the driver. */
struct gc_public_call {
    struct gc_context *context; /* of the requested device; NULL: none was requested */
    enum gc_api api;            /* to account under */
    bool is_pushed;             /* the context was made current for the call */
    bool is_capture;            /* the stream captures, which no wrapper has seen */
    bool is_relaxed;
    CUstreamCaptureMode mode;
};

/* Starts the library and CUDA, makes a context of the device current and enters the shim. On
 * success gc_public_leave follows. `stream`: its capture must be respected; may be NULL. */
gpucache_status gc_public_enter(int ordinal, CUstream stream, enum gc_api api,
                                struct gc_public_call *call);
/* As above for memory that exists, whose context core finds; `context` may be NULL. */
void gc_public_enter_context(struct gc_context *context, CUstream stream, enum gc_api api,
                             struct gc_public_call *call);
void gc_public_leave(struct gc_public_call *call);

#endif
