/* Blocks freed in the order of a stream. Such a block may serve the same stream at once, because
 * its new use is ordered behind the old one; everybody else gets it once its stamp is retired, as
 * any pending block, or once the stream has passed a mark that was made behind the free
 * (fence.h): all work that may use the block was ordered before the free, by the program.
 *
 * A pool keeps lists for up to GC_STREAM_LISTS streams, each by stamp; the blocks in them are
 * pending and counted as such. What finds no list is ordinarily pending. All under the pool's lock.
 *
 * The key of a stream is its handle. A list must be closed before its stream is destroyed, since
 * the driver uses handles again. */
#ifndef GC_PENDING_H
#define GC_PENDING_H

#include <stdbool.h>
#include <stdint.h>

#define GC_STREAM_LISTS 64

struct gc_block;
struct gc_context;
struct gc_pending;
struct gc_pool;

struct gc_stream_list {
    uint64_t stream;           /* 0: unused */
    struct gc_context *worker; /* whose stream it is: a head */
    uint64_t serial;           /* of the list: the place may come to be another's */
    struct gc_block *first;
    struct gc_block *last;
    bool is_marked;   /* the stream was marked behind all stamps up to `covered` */
    bool is_ended;    /* the stream is gone: it gets nothing from here */
    uint64_t covered; /* with is_marked */
    uint64_t passed;  /* stamps up to this are idle */
};

/* False: there is no list to be had; the block is untouched. */
bool gc_stream_list_push_locked(struct gc_pool *pool, struct gc_context *worker, uint64_t stream,
                                struct gc_block *block, uint64_t epoch);
/* A block of just about `bytes` that was freed in this stream, in no list any more; NULL: none. */
struct gc_block *gc_stream_list_alloc_locked(struct gc_pool *pool, uint64_t stream, uint64_t bytes);
/* Takes the blocks of this stream that lie in a range, if they have `pending_bytes` together: all
 * that is pending there. False with nothing changed. */
bool gc_stream_list_remove_range_locked(struct gc_pool *pool, uint64_t stream, uint64_t address,
                                        uint64_t bytes, uint64_t pending_bytes,
                                        struct gc_pending *taken);
/* Adds what is retired in any list to `taken`; a list that becomes empty is free for another
 * stream. */
void gc_stream_list_remove_completed_locked(struct gc_pool *pool, uint64_t completed,
                                            struct gc_pending *taken);
bool gc_stream_list_exists_locked(struct gc_pool *pool, uint64_t stream);
/* The stream is about to be destroyed: its blocks wait for its mark, or, where it has none that
 * covers them, are ordinarily pending from now on. */
void gc_stream_list_close_locked(struct gc_pool *pool, uint64_t stream);
/* The context is about to end, and with it its streams and their marks: their blocks are ordinarily
 * pending from now on, since what they waited for in other contexts' streams may go on. */
void gc_stream_list_drop_worker_locked(struct gc_pool *pool, const struct gc_context *worker);

#endif
