/* Which streams capture, so that our own driver calls keep captures alive and calls that a capture
 * forbids are refused. A capture is counted from before the driver begins it until it is over,
 * however it ends. Thread-safe; no lock is held across a driver call. */
#ifndef GC_CAPTURE_GUARD_H
#define GC_CAPTURE_GUARD_H

#include "shim/handles.h"
#include "shim/shim.h"

/* Around calls of our own that a capture forbids (cuMemAlloc, cuMemFree, cuMemGetInfo, …): the
 * thread's capture mode is relaxed while any stream of the process captures, so that the capture
 * survives. Never for synchronising calls. Costs one load when nothing captures. */
struct gc_capture_guard {
    CUstreamCaptureMode mode;
    CUstreamCaptureMode before; /* the thread's own, where is_exchanged */
    bool is_exchanged;
};
void gc_capture_relax(struct gc_capture_guard *guard);
void gc_capture_restore(struct gc_capture_guard *guard);
/* Whether the thread may make calls that captures forbid: CUDA_SUCCESS, or the driver's error. With
 * the error the captures that such a call ends are ended. */
CUresult gc_capture_check(void);

/* The explicit handle of a wrapper's stream argument: NULL is the legacy stream, or the thread's
 * own in a _ptsz entry. */
CUstream gc_capture_stream_handle(CUstream stream, bool is_per_thread);
/* True if this stream captures now. Costs one load when nothing captures. */
bool gc_capture_is_stream_capturing(CUstream stream);
bool gc_capture_is_any(void);
/* The thread ends, and with it the captures in its own stream. */
void gc_capture_end_thread(void);
/* The context is destroyed, its captures with it. */
void gc_capture_drop_context(struct gc_context *context);

/* ---- for the wrappers of captures ---- */

/* Counts a capture in the stream (explicit) that the calling thread is about to begin. Context
 * NULL: the capture is not counted. */
void gc_capture_begin(CUstream stream, struct gc_context *context, CUstreamCaptureMode mode);
/* The capture is over; false if none was counted. `removed`, if not NULL, is for
 * gc_capture_put_back. */
bool gc_capture_end(CUstream stream, struct gc_handle *removed);
/* Undoes gc_capture_end: the capture is not over. */
void gc_capture_put_back(CUstream stream, const struct gc_handle *removed);

#endif
