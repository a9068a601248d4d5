/* The streams of each context, for drivers without an event that covers a whole context (before
 * CUDA 12.5): a fence there is an event behind one on every stream. A stream of our own joins them:
 * it waits for an event recorded on each, and the fence is recorded behind.
 *
 * A destroyed stream's work goes on, so the joining stream waits for it first. Threads' own default
 * streams need no place: the legacy stream, which is joined, waits for them as for all blocking
 * ones; what one of a thread that ends has queued is not known to be waited for. Streams of green
 * contexts are not listed: once there are such, or a thread with a stream of its own has ended,
 * there is no fence but waiting. Nothing is done here with newer drivers. */
#ifndef GC_SHIM_STREAM_LIST_H
#define GC_SHIM_STREAM_LIST_H

#include "shim/shim.h"

/* Whether the driver has no event that covers a whole context. */
bool gc_stream_list_is_needed(void);
/* Work went, or may go, to a stream that is not listed. For good. */
void gc_stream_list_set_incomplete(void);
/* Work goes to the thread's own default stream for the first time; the thread ends. */
void gc_stream_list_add_own(void);
void gc_stream_list_end_thread(void);
/* The driver has made a stream in the current context, whose record is `context`; for a green
 * context that of its primary one. NULL: there is no record. */
void gc_stream_list_add(CUstream stream, const struct gc_context *context);
/* The stream is one of `context`, and goes when that does, if that is a green one. */
void gc_stream_list_note_green(CUstream stream, CUcontext context);
/* The stream is about to be destroyed: what was freed in its order waits for a fence. */
void gc_stream_close(CUstream stream);
/* The stream goes with its context: all that is known of it is forgotten. */
void gc_stream_end(CUstream stream);
/* Before the driver destroys it. */
void gc_stream_list_remove(CUstream stream);
/* Records `event` behind all work of the current context, whose handle this is.
 * CUDA_ERROR_NOT_SUPPORTED: not all of its streams are known. */
CUresult gc_stream_list_record(uint64_t context, CUevent event);
/* A stream of the library in the current context, whose handle this is, in which no work is ever
 * queued; NULL: it could not be made. */
CUstream gc_stream_idle(uint64_t context);
/* The context is gone. */
void gc_stream_list_drop(uint64_t context);

#endif
