/* The streams of each context, for drivers without an event that covers a whole context (before
 * CUDA 12.5): a fence there is an event behind one on every stream that has got work since the last
 * fence. A stream of the library joins them: it waits for an event recorded on each, and the fence
 * is recorded behind.
 *
 * Work is counted by stream, in counters that several streams may share, once the driver has it. A
 * stream's entry has the count that the joining stream waits for; while the two are equal the
 * stream has nothing new. So an operation in the legacy stream, which all blocking streams wait
 * for, is queued only behind work in that stream or in threads' own default streams.
 *
 * A destroyed stream's work goes on, so the joining stream waits for it first. Threads' own default
 * streams are not listed: the legacy stream, which is joined, waits for them as for all blocking
 * ones; it is not known to wait for the work queued by a thread that has ended. Streams of green
 * contexts are not listed: once one exists, or a thread with a stream of its own has ended, the
 * only fence is a wait. Nothing is done here with newer drivers. */
#ifndef GC_SHIM_STREAM_LIST_H
#define GC_SHIM_STREAM_LIST_H

#include "shim/shim.h"

/* Once, at the start. */
void gc_stream_list_start(void);
/* Whether the driver has no event that covers a whole context. */
static inline bool gc_stream_list_is_needed(void)
{
    return !gc_shim.has_context_events;
}
/* Work went to `stream`, a key of core/device/submit.h: call once the driver has it, and before
 * core counts it (gc_submit_end). */
void gc_stream_list_count(uint64_t stream);
/* Work went, or may go, to a stream that is not listed. Cannot be undone. */
void gc_stream_list_set_incomplete(void);
/* The thread's own default stream gets its first work; the thread ends. */
void gc_stream_list_add_own(void);
void gc_stream_list_end_thread(void);
/* The driver has made a stream in the current context, whose record is `context`; for a green
 * context that of its primary one. NULL: there is no record. */
void gc_stream_list_add(CUstream stream, const struct gc_context *context);
/* The stream belongs to `context`, and is destroyed with `context` if that is a green one. */
void gc_stream_list_add_green(CUstream stream, CUcontext context);
/* The stream is about to be destroyed: memory freed in its order waits for a fence. */
void gc_stream_close(CUstream stream);
/* The stream is destroyed with its context: its records are removed. */
void gc_stream_end(CUstream stream);
/* Takes the stream off the list. Call before the driver destroys the stream. */
void gc_stream_list_remove(CUstream stream);
/* Records `event` behind all work of the current context, which has the handle `context`.
 * CUDA_ERROR_NOT_SUPPORTED: some of its streams are unknown. */
CUresult gc_stream_list_record(uint64_t context, CUevent event);
/* A stream of the library that stays empty, in the current context, which has the handle
 * `context`; NULL: it could not be created. */
CUstream gc_stream_idle(uint64_t context);
/* As above, the library's stream of copies in one direction. */
CUstream gc_stream_copy(uint64_t context, bool is_out);
/* The context is destroyed. */
void gc_stream_list_drop(uint64_t context);

#endif
