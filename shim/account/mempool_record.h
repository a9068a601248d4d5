/* A stream-ordered pool from inside: what mempool.c and mempool_claim.c share. */
#ifndef GC_MEMPOOL_RECORD_H
#define GC_MEMPOOL_RECORD_H

#include "core/base/gate.h"
#include "shim/account/handles.h"
#include "shim/account/mempool.h"

#define GC_MEMPOOL_LOOK_ATTEMPTS 16
/* Values of freed_in that are no stream's. */
#define GC_MEMPOOL_FREED_NOWHERE UINT64_C(0)
#define GC_MEMPOOL_FREED_ANYWHERE UINT64_MAX

struct gc_mempool {
    struct gc_mempool *next;
    _Atomic(CUmemoryPool) handle; /* NULL once destroyed */
    struct gc_gate gate;          /* closed while the driver is asked to destroy it */
    struct gc_device *_Atomic device;
    /* These six: under the handles' lock. */
    uint64_t charged;
    uint64_t ahead;    /* charged besides, for what allocations under way may grow the pool by */
    uint64_t claimed;  /* what those allocations claimed of it */
    uint64_t promised; /* idle memory they count on */
    uint64_t sequence;
    uint64_t live_count;
    bool is_free; /* serves no pool */
    /* Where memory was freed since all was known to be done: such memory is idle for that stream
     * only. */
    _Atomic(uint64_t) freed_in;
};
_Static_assert(sizeof(struct gc_mempool) <= GC_HANDLE_RECORD_BYTES, "a pool fits a record");

/* False: the pool is gone or the driver does not say; *bytes is as it was. No lock. */
bool gc_mempool_read_figure(struct gc_mempool *pool, CUmemPool_attribute attribute,
                            uint64_t *bytes);

#endif
