/* Accounts of memory that the driver itself keeps: stream-ordered pools and graph memory.
 *
 * Both follow what the driver says it holds, by difference: a look at its figure charges or gives back
 * what changed since the last look. */
#ifndef GC_MEMPOOL_H
#define GC_MEMPOOL_H

#include "shim/direct.h"

/* ---- stream-ordered pools (mempool.c) ---- */

struct gc_mempool; /* record of a pool; never unmapped, used again once pool and allocations are gone */

/* The record of a pool, made on first sight; NULL if there is no host memory for one. `device` NULL: a
 * pool that is not charged (imported, on the host, managed). */
struct gc_mempool *gc_mempool_find(CUmemoryPool pool, struct gc_device *device);
/* NULL if not charged. */
struct gc_device *gc_mempool_device(const struct gc_mempool *pool);
/* What an allocation of `bytes` may add to the pool, beyond what it holds idle. */
uint64_t gc_mempool_growth(const struct gc_mempool *pool, uint64_t bytes);
/* The driver allocated: charges what the pool grew by, of which *reserved bytes are charged already, and
 * sets *reserved to 0. False if it grew beyond that and the limit has no room: the caller undoes the
 * allocation; the account is right all the same. */
bool gc_mempool_settle(struct gc_mempool *pool, uint64_t *reserved);
/* Makes one account agree with the driver. */
void gc_mempool_look(struct gc_mempool *pool);
/* All pools of a device, or of all (NULL). Cheap while no pool holds memory. */
void gc_mempool_refresh(const struct gc_device *device);
bool gc_mempool_holds_memory(void);
/* Gives idle pool memory back to the driver, at the cost of a synchronisation where that is what it takes
 * and no stream captures. True if the account shrank. */
bool gc_mempool_trim(struct gc_device *device);
/* Around the driver's destruction of a pool. Its charge ends with its last allocation. */
struct gc_mempool *gc_mempool_destroy_begin(CUmemoryPool pool);
void gc_mempool_destroy_end(struct gc_mempool *pool, CUmemoryPool handle, bool is_destroyed);

/* An allocation of the pool, and its end. */
void gc_mempool_remember(struct gc_mempool *pool, uint64_t address);
bool gc_mempool_forget(uint64_t address); /* false: not stream-ordered memory */

/* ---- graph memory (graph_api.c) ---- */

/* The device has graph memory from now on: its figure is worth a look. */
void gc_graph_expect(struct gc_device *device);
void gc_graph_refresh(struct gc_device *device);
void gc_graph_refresh_all(void);
bool gc_graph_is_expected(void);
/* True if the account shrank. */
bool gc_graph_trim(struct gc_device *device);

/* ---- captures (capture_api.c) ---- */

/* The explicit handle of what a wrapper was given: NULL is the legacy stream, or the thread's own in a
 * _ptsz entry. */
CUstream gc_stream_explicit(CUstream stream, bool is_per_thread);
/* True if this stream captures now. Costs one load when nothing captures. */
bool gc_stream_is_capturing(CUstream stream);
bool gc_capture_is_any(void);
/* The context is gone, its captures with it. */
void gc_capture_drop_context(struct gc_context *context);

#endif
