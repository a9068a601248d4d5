/* Pools of a context that is about to end, for context_end.c: hidden, so that no address of theirs
 * is known when the driver gives it to another context, and shown again where the context stays. */
#ifndef GC_CONTEXT_HIDE_H
#define GC_CONTEXT_HIDE_H

#include "core/device/context.h"

/* What a hidden pool has, in the fields of the same names. */
struct gc_pool_hidden {
    struct gc_bins bins[GC_CLASS_COUNT];
    struct gc_segment *segments;
    struct gc_segment *planned;
    struct gc_segment *idle_oldest;
    struct gc_segment *idle_newest;
    struct gc_block *pending_first;
    struct gc_block *pending_last;
    uint64_t pending_bytes;
    struct gc_stream_list streams[GC_STREAM_LISTS];
};

/* The pool is as if it were dropped: hands nothing out, takes nothing back, nothing of it is found,
 * and the trace has no more of it. Without host memory it stays as it is, and its addresses are
 * forgotten a moment too late. */
void gc_context_hide(struct gc_context *context);
/* All is as it was. */
void gc_context_show(struct gc_context *context);

/* ---- for a pool that is dropped ---- */

/* Stops the caches, so that nobody has a block of the pool in hand, and takes the pool's lock. A
 * change of mappings under way is waited for with nothing held: it may take long, and others go on
 * meanwhile. */
void gc_context_stop_and_lock(struct gc_context *context,
                              bool (*is_quiet_locked)(struct gc_pool *, void *), void *argument);
void gc_context_unlock_and_resume(struct gc_context *context);
/* Takes every block of the pool out of the pagemap, or puts it back. Where the pool could not be
 * hidden before the driver was asked, an address may be another's by now. */
void gc_pool_set_known_locked(struct gc_pool *pool, bool is_known);
void gc_pool_move_back_locked(struct gc_pool *pool, const struct gc_pool_hidden *hidden);
void gc_pool_empty_lists_locked(struct gc_pool *pool);
void gc_context_discard_hidden(struct gc_core *core, struct gc_pool_hidden *hidden);
/* What the accounts know of a live block. */
struct gc_entry gc_block_live_entry(const struct gc_block *block);
/* A live block, or a segment of the driver's own memory, goes with its context, or is there as
 * before: for the trace. */
void gc_context_tell_block(struct gc_context *context, const struct gc_block *block, bool goes);
void gc_context_tell_segment(struct gc_context *context, const struct gc_segment *segment,
                             bool goes);

/* The context is about to end: nothing that was freed in the order of its streams, whosever the
 * memory is, waits for their marks, which go with it. */
void gc_context_forget_streams(const struct gc_context *head);
/* The stream is gone: what was freed in its order waits for all work, also where the pool is
 * hidden.
 */
void gc_context_close_stream(struct gc_context *context, uint64_t stream);

#endif
