/* An elastic pool from inside: what elastic*.c share. */
#ifndef GC_ELASTIC_POOL_H
#define GC_ELASTIC_POOL_H

#include "core/base/lock.h"
#include "core/device/context.h"
#include "core/direct/elastic.h"

#include <pthread.h>

#define GC_ELASTIC_MAX 1024             /* pools at a time */
#define GC_ELASTIC_PAGES_MAX (1U << 24) /* of one pool */
#define GC_ELASTIC_PAGE_NONE UINT32_MAX

enum gc_elastic_state { GC_ELASTIC_FREE, GC_ELASTIC_MAPPED, GC_ELASTIC_IDLE, GC_ELASTIC_BUSY };

struct gc_elastic_page {
    uint64_t handle;    /* of the physical page, if has_handle */
    uint32_t previous;  /* among the warm ones, oldest first */
    uint32_t next;      /* the same; of a busy page: whatever its thread makes of it */
    uint8_t state;      /* enum gc_elastic_state */
    bool has_handle;    /* a physical page is lent to it */
    bool is_bound;      /* and mapped here */
    bool is_accessible; /* and usable by the device */
};

struct gc_elastic {
    struct gc_device *device;
    struct gc_quota *quota; /* NULL: charged to the device alone */
    uint64_t base;
    uint64_t page_bytes;
    uint32_t page_count;
    uint32_t cache_max; /* pages */
    uint32_t slot;      /* in the table; guarded by its lock */
    uint16_t api;

    struct gc_lock lock;    /* guards all below; of a busy page its thread owns all but the state */
    pthread_cond_t changed; /* a page is no longer busy */
    struct gc_elastic_page *pages;
    uint64_t *unmapped; /* handles of physical pages that are mapped nowhere; room for page_count */
    uint32_t unmapped_count;
    uint32_t idle_first; /* the longest warm */
    uint32_t idle_last;
    uint32_t idle_count;
    struct gc_elastic_figures figures; /* but what is derived */
};

/* ---- the table: elastic_table.c ---- */

/* A pool of the device without memory of the device; NULL: no host memory. */
struct gc_elastic *gc_elastic_create_record(struct gc_device *device, uint64_t page_count,
                                            uint64_t page_bytes);
/* Frees the record, no memory of the device. */
void gc_elastic_destroy_record(struct gc_elastic *pool);
/* With the core: the lock of the table. */
void gc_elastic_init_table(struct gc_core *core);

/* Sees to it that there is one. GC_NO_HOST_MEMORY. */
enum gc_status gc_elastic_make_table(struct gc_core *core) GC_CHECKED;
/* The pool can be found by the handle from now on. GC_NO_HOST_MEMORY: every slot is in use. */
enum gc_status gc_elastic_add(struct gc_core *core, struct gc_elastic *pool,
                              uint64_t *handle) GC_CHECKED;
/* Makes the pool the caller's alone: nobody finds it, and who is in it has left. NULL: there is no
 * such pool. */
struct gc_elastic *gc_elastic_begin_close(struct gc_core *core, uint64_t handle);
/* `is_gone`: its handle is free; else others find it again. */
void gc_elastic_end_close(struct gc_core *core, uint64_t handle, bool is_gone);
/* Takes a reference: NULL if there is no such pool. Release it. */
struct gc_elastic *gc_elastic_acquire(struct gc_core *core, uint64_t handle);
void gc_elastic_release(struct gc_core *core, struct gc_elastic *pool);
/* The same for the next pool of the device, or only of a share of it, from slot *index on, which
 * moves past it: NULL at the end. */
struct gc_elastic *gc_elastic_acquire_next(struct gc_core *core, const struct gc_device *device,
                                           const struct gc_quota *quota, uint32_t *index);

/* ---- the stock: elastic_pool.c ---- */

/* An idle page, or one whose physical page is to be kept, joins the stock as it is: warm if bound,
 * else its handle becomes loose. It is busy or mapped before. */
void gc_elastic_cache_locked(struct gc_elastic *pool, uint32_t page);
/* Takes a warm page out of the stock: busy, as it is. */
void gc_elastic_remove_idle_locked(struct gc_elastic *pool, uint32_t page);
/* Takes a loose handle; false if there is none. */
bool gc_elastic_pop_unmapped_locked(struct gc_elastic *pool, uint64_t *handle);
/* Gives the stock back, the oldest first, until `keep` pages remain or `enough` went; returns the
 * pages that went. *driver_code: of the refusal that ended it, else unchanged. */
uint64_t gc_elastic_shrink(struct gc_elastic *pool, struct gc_context *context, uint64_t keep,
                           uint64_t enough, int *driver_code);
/* A new physical page, whose bytes are reserved already, is there. */
void gc_elastic_count_created(struct gc_elastic *pool);

/* ---- gates ---- */

/* Announces driver calls in the context that a capture forbids. False: a capture is under way. */
bool gc_elastic_begin_calls(struct gc_context *context, struct gc_wait_set *set);
/* Waits for all work of the device. GC_CAPTURING, GC_DRIVER. */
enum gc_status gc_elastic_wait_device(struct gc_device *device, int *driver_code) GC_CHECKED;

#endif
