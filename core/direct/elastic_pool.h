/* An elastic pool's record, its table and its cache, for elastic*.c. */
#ifndef GC_ELASTIC_POOL_H
#define GC_ELASTIC_POOL_H

#include "core/base/lock.h"
#include "core/device/context.h"
#include "core/direct/elastic.h"

#define GC_ELASTIC_MAX 1024             /* pools at a time */
#define GC_ELASTIC_PAGES_MAX (1U << 24) /* of one pool */
#define GC_ELASTIC_PAGE_NONE UINT32_MAX

enum gc_elastic_state { GC_ELASTIC_FREE, GC_ELASTIC_MAPPED, GC_ELASTIC_IDLE, GC_ELASTIC_BUSY };

struct gc_elastic_page {
    uint64_t handle;    /* of the physical page, if has_handle */
    uint32_t previous;  /* in the list of idle pages, oldest first */
    uint32_t next;      /* in that list; of a busy page: for the thread that made it busy */
    uint8_t state;      /* enum gc_elastic_state */
    bool has_handle;    /* the page has a physical page */
    bool is_bound;      /* the physical page is mapped here */
    bool is_accessible; /* the device may access the page */
};

struct gc_elastic {
    struct gc_device *device;
    struct gc_quota *quota; /* NULL: charged to the device alone */
    uint64_t base;
    uint64_t page_bytes;
    uint32_t page_count;
    uint32_t cache_max; /* pages */
    uint32_t slot;      /* in the table; guarded by the table's lock */
    uint16_t api;

    /* Guards the fields below. The thread that made a page busy owns its fields except `state`. */
    struct gc_lock lock;
    struct gc_condition changed; /* a page is no longer busy */
    struct gc_elastic_page *pages;
    uint64_t *unmapped; /* handles of physical pages that are mapped nowhere; room for page_count */
    uint32_t unmapped_count;
    uint32_t idle_first; /* the page that has been idle longest */
    uint32_t idle_last;
    uint32_t idle_count;
    struct gc_elastic_figures figures; /* without those that gc_elastic_read derives */
};

/* ---- the table: elastic_table.c ---- */

/* A pool record without device memory; NULL: no host memory. */
struct gc_elastic *gc_elastic_create_record(struct gc_device *device, uint64_t page_count,
                                            uint64_t page_bytes);
/* Frees the record, not device memory. */
void gc_elastic_destroy_record(struct gc_elastic *pool);
/* At the core's creation: initialises the table's lock. */
void gc_elastic_init_table(struct gc_core *core);

/* Maps the table if there is none. GC_NO_HOST_MEMORY. */
enum gc_status gc_elastic_make_table(struct gc_core *core) GC_CHECKED;
/* Enters the pool into the table and sets its handle. GC_NO_HOST_MEMORY: every slot is in use. */
enum gc_status gc_elastic_add(struct gc_core *core, struct gc_elastic *pool,
                              uint64_t *handle) GC_CHECKED;
/* Makes the pool invisible to other threads and waits until they have released it. NULL: there is
 * no such pool. */
struct gc_elastic *gc_elastic_begin_close(struct gc_core *core, uint64_t handle);
/* `is_destroyed`: frees the pool's slot. Otherwise makes the pool visible again. */
void gc_elastic_end_close(struct gc_core *core, uint64_t handle, bool is_destroyed);
/* Takes a reference, to be released; NULL if there is no such pool. */
struct gc_elastic *gc_elastic_acquire(struct gc_core *core, uint64_t handle);
void gc_elastic_release(struct gc_core *core, struct gc_elastic *pool);
/* Takes a reference on the next pool of the device, or only of the quota, from slot *index on, and
 * moves *index past its slot. NULL at the end. */
struct gc_elastic *gc_elastic_acquire_next(struct gc_core *core, const struct gc_device *device,
                                           const struct gc_quota *quota, uint32_t *index);

/* ---- the cache: elastic_pool.c ---- */

/* Puts a busy or mapped page that no work uses into the cache: a bound page into the idle list, the
 * handle of any other one into `unmapped`. */
void gc_elastic_cache_locked(struct gc_elastic *pool, uint32_t page);
/* Takes an idle page out of the cache and makes it busy. */
void gc_elastic_remove_idle_locked(struct gc_elastic *pool, uint32_t page);
/* Takes a handle that is mapped nowhere; false if there is none. */
bool gc_elastic_pop_unmapped_locked(struct gc_elastic *pool, uint64_t *handle);
/* Releases cached pages, unmapped ones first, then the longest idle, until `keep` remain or
 * `enough` are released; returns their count. *driver_code: set by a driver error only. */
uint64_t gc_elastic_shrink(struct gc_elastic *pool, struct gc_context *context, uint64_t keep,
                           uint64_t enough, int *driver_code);
/* Counts a new physical page, whose bytes are charged already. */
void gc_elastic_count_created(struct gc_elastic *pool);

/* ---- calls that a capture forbids ---- */

/* Call before such calls in the context, and gc_peers_wait_end(set) after them: no capture begins
 * in between. False: a capture is under way. */
bool gc_elastic_begin_calls(struct gc_context *context, struct gc_wait_set *set);
/* Waits for all work of the device. GC_CAPTURING, GC_DRIVER. */
enum gc_status gc_elastic_wait_device(struct gc_device *device, int *driver_code) GC_CHECKED;

#endif
