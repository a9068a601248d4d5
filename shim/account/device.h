/* Devices and contexts as core knows them. */
#ifndef GC_SHIM_DEVICE_H
#define GC_SHIM_DEVICE_H

#include "shim/shim.h"

/* The calling thread's current context as core knows it, added on first sight; NULL if there is
 * none or the driver objects: the caller then forwards the call, so that the driver's own error
 * reaches the program. */
struct gc_context *gc_account_current_context(void);
struct gc_device *gc_account_current_device(void);
/* As above for any context, and for the context of a stream, green ones included: most often the
 * current one. */
struct gc_context *gc_account_context(CUcontext handle);
struct gc_context *gc_account_stream_context(CUstream stream);
/* Core's device for a driver ordinal, added on first sight; NULL if the driver objects. */
struct gc_device *gc_account_device(CUdevice ordinal);

/* The device's memory, and its UUID in the form of options. False: there is no such device. */
#define GC_UUID_BYTES 48
bool gc_account_describe_device(CUdevice ordinal, uint64_t *total_bytes, char uuid[GC_UUID_BYTES]);

/* Called before core serves the program's call, inside its wrapper: CUDA_SUCCESS, or the error that
 * the plain driver returns in the thread's state for any request: no context, a destroyed or failed
 * context, a host function, the end of the driver. With `is_unsafe` (a call that captures forbid)
 * also the error of a capture, which ends that capture as the plain call does. *current: as
 * gc_account_current_context. */
CUresult gc_account_check_state(bool is_unsafe, struct gc_context **current);

#endif
