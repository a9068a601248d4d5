/* Elastic pools: a range of addresses that the program backs with physical pages as it likes.
 *
 * A page of the range is free, mapped (the program has it), warm (idle, but its physical page is
 * still there) or busy (one thread is at work on it). Warm pages and physical pages that are mapped
 * nowhere are the pool's stock: counted as reserved and as idle, used before new ones are created,
 * bounded, and given back on shortage. No driver call is made under a lock; whoever needs a busy
 * page waits for it.
 *
 * A pool has a handle, which is never used again. `context` is any context of the pool's device, to
 * make driver calls in. All functions are thread-safe. An operation that fails leaves the pool as
 * it was, but for its stock. */
#ifndef GC_ELASTIC_H
#define GC_ELASTIC_H

#include "core/core.h"

struct gc_elastic_table;

struct gc_elastic_setup {
    uint64_t capacity_bytes; /* rounded up to whole pages */
    uint64_t page_bytes;     /* a multiple of the device's; 0: the device's */
    bool keeps_none;         /* no stock */
    struct gc_quota *quota;  /* that its pages are charged to beside the device; NULL: none */
    uint16_t api;            /* what its pages are counted under */
};

struct gc_elastic_figures {
    uint64_t base;
    uint64_t capacity_bytes;
    uint64_t page_bytes;
    uint64_t mapped_bytes;
    uint64_t mapped_peak_bytes;
    uint64_t warm_bytes; /* the stock */
    uint64_t free_bytes; /* of addresses, warm ones too */
    uint64_t largest_free_bytes;
    uint64_t allocate_count;
    uint64_t deallocate_count;
    uint64_t map_count; /* pages */
    uint64_t unmap_count;
    uint64_t create_count;
};

/* GC_NOT_SUPPORTED: the device has no mapped memory. GC_CAPTURING, here and below: nothing may be
 * asked of the driver now. GC_INVALID_ARGUMENT: no capacity, too many pages, a page size that is no
 * multiple of the device's. */
enum gc_status gc_elastic_create(struct gc_core *core, struct gc_context *context,
                                 const struct gc_elastic_setup *setup, uint64_t *handle,
                                 uint64_t *base, int *driver_code) GC_CHECKED;
/* Waits for the device, then gives everything back. If that fails the pool lives on with what the
 * driver did not take. */
enum gc_status gc_elastic_destroy(struct gc_core *core, struct gc_context *context, uint64_t handle,
                                  int *driver_code) GC_CHECKED;
/* GC_OUT_OF_MEMORY after idle memory was given back. */
enum gc_status gc_elastic_allocate(struct gc_core *core, struct gc_context *context,
                                   uint64_t handle, uint64_t offset, uint64_t bytes,
                                   int *driver_code) GC_CHECKED;
/* `is_idle`: no work uses the range. Else this waits for all work of the device's contexts. */
enum gc_status gc_elastic_deallocate(struct gc_core *core, struct gc_context *context,
                                     uint64_t handle, uint64_t offset, uint64_t bytes, bool is_idle,
                                     int *driver_code) GC_CHECKED;
/* Whether all of the range is mapped; it need not be whole pages. */
enum gc_status gc_elastic_is_mapped(struct gc_core *core, uint64_t handle, uint64_t offset,
                                    uint64_t bytes, bool *is_mapped) GC_CHECKED;
enum gc_status gc_elastic_read(struct gc_core *core, uint64_t handle,
                               struct gc_elastic_figures *figures) GC_CHECKED;
/* Gives the stock back; *given_bytes is what went. GC_DRIVER: some of it did not. */
enum gc_status gc_elastic_compact(struct gc_core *core, struct gc_context *context, uint64_t handle,
                                  uint64_t *given_bytes, int *driver_code) GC_CHECKED;
/* The device of a pool; GC_INVALID_HANDLE. */
enum gc_status gc_elastic_find_device(struct gc_core *core, uint64_t handle,
                                      struct gc_device **device) GC_CHECKED;

/* ---- for core ---- */

/* With the core. What the pools keep in stock is given back where memory is short. */
void gc_elastic_init(struct gc_core *core);
/* With the core: host memory only. */
void gc_elastic_fini(struct gc_core *core);

#endif
