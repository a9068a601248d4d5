/* The interface of direct memory to the wrappers and to the rest of the shim.
 *
 *     direct.c          charge before the driver call, record after it, roll-back, reclaim
 *     shim/handles.c    the table behind it: handles, mappings, captures
 *     measure.c         free memory of a device around a call, where only the difference is known
 *     mempool.c         accounts of stream-ordered pools; graph_memory.c: of graph memory
 *
 * All functions are thread-safe. No lock is held across a driver call. */
#ifndef GC_DIRECT_H
#define GC_DIRECT_H

#include "shim/real/resolve.h"
#include "shim/shim.h"

/* Sets the reclaim step of core's driver table: the driver releases the memory that it caches. Call
 * it after gc_driver_cuda_init, which sets the whole table. */
void gc_direct_driver_init(struct gc_driver *driver);

/* Around the driver's own release of an allocation: the record is removed once the release has
 * succeeded, and a new allocation that gets the same key from the driver waits for that. */
struct gc_direct_release {
    struct gc_direct direct; /* without a record its kind and key alone */
    bool is_marked;          /* it has a record */
};
void gc_direct_release_begin(struct gc_direct_release *release, enum gc_direct_kind kind,
                             uint64_t key);
void gc_direct_release_end(const struct gc_direct_release *release, bool is_released);

/* The same for a free of memory outside the pool, whose kind `begin` finds. Memory of graphs has no
 * record. */
void gc_direct_free_begin(struct gc_direct_release *release, CUdeviceptr dptr);
void gc_direct_free_end(const struct gc_direct_release *release, bool is_freed);

/* Calls begin, cuMemFree_v2 (or the first ABI's cuMemFree), end. */
CUresult gc_direct_free(CUdeviceptr dptr, bool first_abi);

/* Reclaims device memory after the driver itself ran out: idle memory of the driver's pools
 * (gc_mempool_reclaim) and idle cache. `is_request`: for a request for memory, which may wait
 * longer. True if anything was released: retry. */
bool gc_direct_reclaim_all(struct gc_device *device, uint64_t wanted_bytes, bool is_request);

/* ---- one request of direct memory, from wrapper entry to exit ---- */

struct gc_direct_request {
    struct gc_context *context; /* NULL: none current; the call is only forwarded */
    struct gc_device *device;   /* NULL: nothing is charged or recorded */
    struct gc_quota *quota;     /* charged with every charge of the request; NULL: no tenant */
    uint64_t reserved_bytes;    /* charged so far */
    enum gc_api api;            /* the entry point to account under */
    bool is_refused;            /* the limit refused it; counted already */
};

/* Enters the wrapper of `symbol` in the current context. Always followed by gc_direct_end. */
void gc_direct_begin(struct gc_direct_request *request, enum gc_api symbol);
/* Charges `bytes` more before the driver call: CUDA_SUCCESS, or CUDA_ERROR_OUT_OF_MEMORY. */
CUresult gc_direct_charge(struct gc_direct_request *request, uint64_t bytes);
/* The same for a call that is known to be no tenant's. */
CUresult gc_direct_charge_untenanted(struct gc_direct_request *request, uint64_t bytes);
/* Managed memory, by GPUCACHE_MANAGED. Denied: CUDA_ERROR_NOT_SUPPORTED, the code of devices that
 * have none; said once. Limited: charged as other memory is, but with GPUCACHE_OVERCOMMIT=spill
 * what is beyond the limit is granted uncharged: the driver keeps it on the host, too. */
bool gc_direct_denies_managed(enum gc_api api);
CUresult gc_direct_charge_managed(struct gc_direct_request *request, uint64_t bytes);
/* After success: records the allocation with its charge. Before gc_direct_end. False, logged: it
 * cannot be recorded, and is charged; then GC_DIRECT_GIVE_BACK. */
bool gc_direct_record(struct gc_direct_request *request, enum gc_direct_kind kind, uint64_t key,
                      uint64_t requested_bytes);
/* The handle of the record's context; 0: its memory outlives contexts. */
static inline uint64_t gc_direct_context_handle(const struct gc_direct *direct)
{
    return direct->context == NULL ? 0 : gc_context_handle(direct->context);
}
/* Logs once that an allocation cannot be recorded, and why. */
void gc_direct_log_lost(enum gc_api api, enum gc_status status);
/* The result of a call whose memory cannot be recorded, or turned out larger than the limit allows:
 * `symbol` releases it. If the driver refuses that, the program keeps the memory, and the charge
 * stays. */
#define GC_DIRECT_GIVE_BACK(request, symbol, object)                                               \
    (GC_CALL((request)->device, symbol, (object)) == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY       \
                                                                  : CUDA_SUCCESS)
/* Leaves the wrapper: uncharges a call that failed, counts a refusal; returns `result`. What a call
 * that succeeded has charged stays, recorded or not. */
CUresult gc_direct_end(struct gc_direct_request *request, CUresult result);

/* Charges without a record of its own, after the fact; bytes may be negative. */
static inline void gc_direct_adjust(struct gc_device *device, int64_t bytes)
{
    if (device != NULL && bytes != 0)
        gc_direct_adjust_device(gc_shim.core, device, bytes);
}

#endif
