/* Accounts of stream-ordered pools, which the driver itself keeps: see mempool.c. */
#ifndef GC_MEMPOOL_H
#define GC_MEMPOOL_H

#include "shim/shim.h"

struct gc_mempool; /* record of a pool; never unmapped, reused once the pool and its allocations are
                      gone */

/* The record of a pool, made on first sight; NULL if there is no host memory for one. `device`
 * NULL: a pool that is not charged (imported, on the host, managed). */
struct gc_mempool *gc_mempool_find(CUmemoryPool pool, struct gc_device *device);
/* The device whose default pool, served by the cache, is `pool`; NULL: none. Searches only devices
 * that were used. */
struct gc_device *gc_mempool_plain_device(CUmemoryPool pool);
/* Whether allocations from the pool may come from the cache: it is the default pool of the device.
 */
bool gc_mempool_is_plain(CUmemoryPool pool, const struct gc_device *device);

/* The device that the pool is charged to; NULL: not charged. */
struct gc_device *gc_mempool_device(const struct gc_mempool *pool);
/* The claim of an allocation under way. Zeroed at first, except for the stream. */
struct gc_mempool_reservation {
    CUstream stream;         /* explicit */
    uint64_t reserved_bytes; /* charged for the growth of the pool */
    uint64_t promised_bytes; /* the pool's idle memory, promised to no other */
};
/* Before an allocation of `bytes` where a limit is in force. Claims the pool's idle memory if that
 * suffices; otherwise charges as for any memory, and reclaims idle memory of all pools if it must.
 * False: over the limit (counted). */
bool gc_mempool_reserve(struct gc_mempool *pool, uint64_t bytes,
                        struct gc_mempool_reservation *claim);
/* After the driver's result: charges the growth of the pool and ends the claim. False if the pool
 * grew by more than the claim and the limit has no room for that: the caller undoes the allocation.
 * The account is right in either case. */
bool gc_mempool_commit(struct gc_mempool *pool, struct gc_mempool_reservation *claim);
/* Sets the pool's charge to the driver's figure. */
void gc_mempool_refresh_one(struct gc_mempool *pool);
/* Releases the pool's idle memory to the driver, unless the pool is destroyed. */
void gc_mempool_trim_one(struct gc_mempool *pool);
/* gc_mempool_refresh_one for the device's pools, NULL: all. Cheap while no pool holds memory. */
void gc_mempool_refresh(const struct gc_device *device);
/* Releases idle pool memory to the driver. If nothing shrinks and no stream captures, waits for
 * pending frees and retries. True if the account shrank. */
bool gc_mempool_trim(struct gc_device *device);

/* Reclaims in the account: idle stream-ordered pools and graph memory are released to the driver.
 * For a request that core refused over the limit. True if anything was released: retry. */
bool gc_mempool_reclaim(struct gc_device *device);
/* False: there is no such memory, so nothing to reclaim. */
bool gc_mempool_may_reclaim(void);

/* Around the driver's destruction of a pool. Its charge ends with its last allocation. */
struct gc_mempool *gc_mempool_destroy_begin(CUmemoryPool pool);
void gc_mempool_destroy_end(struct gc_mempool *pool, CUmemoryPool handle, bool is_destroyed);

/* Records an allocation of the pool. */
void gc_mempool_record(struct gc_mempool *pool, uint64_t address);
/* The allocation is about to be freed in `stream` (explicit; NULL: in no stream's order). Until all
 * work is known to be done only that stream may reuse its memory. */
void gc_mempool_on_free(uint64_t address, CUstream stream);
bool gc_mempool_remove(uint64_t address); /* false: not stream-ordered memory */

#endif
