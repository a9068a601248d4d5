/* Accounts of stream-ordered pools, which the driver itself keeps: see mempool.c. */
#ifndef GC_MEMPOOL_H
#define GC_MEMPOOL_H

#include "shim/shim.h"

struct gc_mempool; /* record of a pool; never unmapped, used again once pool and allocations are
                      gone */

/* The record of a pool, made on first sight; NULL if there is no host memory for one. `device`
 * NULL: a pool that is not charged (imported, on the host, managed). */
struct gc_mempool *gc_mempool_find(CUmemoryPool pool, struct gc_device *device);
/* The device whose default pool it is, which the cache serves; NULL: none. Searches only devices
 * that were used. */
struct gc_device *gc_mempool_plain_device(CUmemoryPool pool);
/* Whether allocations from the pool may come from the cache: it is the default pool of the device.
 */
bool gc_mempool_is_plain(CUmemoryPool pool, const struct gc_device *device);

/* NULL if not charged. */
struct gc_device *gc_mempool_device(const struct gc_mempool *pool);
/* The claim of an allocation under way. Zeroed at first, except for the stream. */
struct gc_mempool_reservation {
    CUstream stream;         /* explicit */
    uint64_t reserved_bytes; /* charged for the growth of the pool */
    uint64_t promised_bytes; /* of the pool's idle memory, so that no other counts on it */
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
/* Makes one account agree with the driver. */
void gc_mempool_refresh_one(struct gc_mempool *pool);
/* Gives its idle memory back to the driver, where it is not destroyed. */
void gc_mempool_trim_one(struct gc_mempool *pool);
/* All pools of a device, or of all (NULL). Cheap while no pool holds memory. */
void gc_mempool_refresh(const struct gc_device *device);
/* Releases idle pool memory to the driver, with a synchronisation where it must and no stream
 * captures. True if the account shrank. */
bool gc_mempool_trim(struct gc_device *device);

/* Reclaims in the account: idle stream-ordered pools and graph memory are released to the driver.
 * For a request that core refused over the limit. True if anything was released: retry. */
bool gc_mempool_reclaim(struct gc_device *device);
/* False: there is no such memory, so nothing to reclaim. */
bool gc_mempool_may_reclaim(void);

/* Around the driver's destruction of a pool. Its charge ends with its last allocation. */
struct gc_mempool *gc_mempool_destroy_begin(CUmemoryPool pool);
void gc_mempool_destroy_end(struct gc_mempool *pool, CUmemoryPool handle, bool is_destroyed);

/* An allocation of the pool, and its end. */
void gc_mempool_record(struct gc_mempool *pool, uint64_t address);
/* It is about to be freed in `stream` (explicit; NULL: in no stream's order): until all work is
 * known to be done its memory may be of use to that stream alone. */
void gc_mempool_on_free(uint64_t address, CUstream stream);
bool gc_mempool_remove(uint64_t address); /* false: not stream-ordered memory */

#endif
