/* A stream-ordered memory pool, as memory_pool.c and memory_pool_api.c see it. All fields:
 * sim_memory_lock. */
#ifndef SIM_MEMORY_POOL_H
#define SIM_MEMORY_POOL_H

#include "memory.h"

/* Freed behind a position of a stream and not yet known to be idle. */
struct sim_pending {
    struct sim_pending *next;
    uint64_t start, bytes, position;
};

/* Memory that was freed on one stream, oldest first, so that positions rise. */
struct sim_freed {
    struct sim_freed *next;
    struct sim_stream *stream;
    struct sim_pending *first;
    struct sim_pending **last;
};

/* By number: not every header has them. */
enum { SIM_LOCATION_NONE, SIM_LOCATION_DEVICE, SIM_LOCATION_HOST, SIM_LOCATION_NUMA };
enum { SIM_POOL_PINNED = 1, SIM_POOL_MANAGED };

struct sim_pool {
    struct sim_node node;      /* [handle, handle + 1) */
    struct sim_device *device; /* whose memory it takes; NULL: host or managed memory */
    CUmemPoolProps props;
    int fd; /* a pool that is shared: its memory, at offsets equal to the exporter's addresses */
    bool is_default;
    bool is_imported;  /* holds no memory; its blocks are SIM_IMPORTED */
    bool is_destroyed; /* goes with its last allocation */
    struct sim_ranges free;
    struct sim_freed *freed;
    uint64_t block_count;
    uint64_t threshold;
    uint64_t reserved_bytes, reserved_high, used_bytes, used_high;
    int follows_events, is_opportunistic, adds_dependencies;
    uint64_t readers, writers; /* bit per device, beside its own */
};

#define SIM_MAX_DEVICES 64
/* A place that has a default and a current pool: a location and an allocation type. A device's
 * pinned memory has the number of the device. */
#define SIM_POOL_PLACES (2 * SIM_MAX_DEVICES + 5)
/* SIM_POOL_PLACES: there is no such place. */
unsigned sim_pool_place(const CUmemLocation *location, CUmemAllocationType type);

/* sim_memory_lock held, for all of these. */
struct sim_pool *sim_pool_find(CUmemoryPool handle);
/* With a memory file of its own if the properties ask for it. */
struct sim_pool *sim_pool_new(const CUmemPoolProps *props);
struct sim_pool *sim_pool_default(unsigned place);
struct sim_pool *sim_pool_current(unsigned place);
void sim_pool_set_current(unsigned place, struct sim_pool *pool);
/* The pool's handle is gone; frees it unless allocations are left. sim_use_lock held for writing.
 */
void sim_pool_retire(struct sim_pool *pool);
/* Moves what is idle from freed to free. */
void sim_pool_reap(struct sim_pool *pool);
/* Gives whole free pages back until at most `keep` bytes are reserved. sim_use_lock held for
 * writing. */
void sim_pool_trim(struct sim_pool *pool, uint64_t keep);
/* Takes memory for the stream; NULL: CUDA_ERROR_OUT_OF_MEMORY. */
CUresult sim_pool_allot(struct sim_pool *pool, uint64_t bytes, struct sim_stream *stream,
                        uint64_t *address);
/* A stream on which something is pending, or NULL. */
struct sim_stream *sim_pool_pending_stream(const struct sim_pool *pool);

/* Runs `statement` on the pool of the handle with the lock held; an unknown handle is an invalid
 * value. */
#define WITH_POOL(handle, statement)                                                               \
    do {                                                                                           \
        struct sim_pool *found;                                                                    \
        CUresult outcome = sim_check_init();                                                       \
        if (outcome != CUDA_SUCCESS)                                                               \
            return outcome;                                                                        \
        pthread_rwlock_wrlock(&sim_use_lock);                                                      \
        pthread_mutex_lock(&sim_memory_lock);                                                      \
        found = sim_pool_find(handle);                                                             \
        outcome = found == NULL ? CUDA_ERROR_INVALID_VALUE : (statement);                          \
        pthread_mutex_unlock(&sim_memory_lock);                                                    \
        pthread_rwlock_unlock(&sim_use_lock);                                                      \
        return outcome;                                                                            \
    } while (0)

#endif
