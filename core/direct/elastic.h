/* Elastic pools: ranges of addresses with physical pages committed and decommitted by the program's
 * calls, as in PyTorch's expandable segments.
 *
 * A page of the range is free, mapped (in use), idle (freed, its physical page still mapped) or
 * busy (one thread changes it). Idle pages and physical pages that are mapped nowhere are the
 * pool's cache: counted as reserved and as idle, used before new pages are created, bounded
 * (elastic_pool.c), and released to the driver by reclaim. No driver call is made under a lock. A
 * thread that needs a busy page waits for it.
 *
 * A pool's handle is never used again. `context` is any context of the pool's device; driver calls
 * are made in it. All functions are thread-safe. An operation that fails leaves the pool as it was,
 * except for its cache. */
#ifndef GC_ELASTIC_H
#define GC_ELASTIC_H

#include "core/core.h"

struct gc_elastic_table;

struct gc_elastic_setup {
    uint64_t capacity_bytes; /* rounded up to whole pages */
    uint64_t page_bytes;     /* a multiple of the device's; 0: the device's */
    bool keeps_none;         /* no cache */
    struct gc_quota *quota;  /* charged for the pool's pages, besides the device; NULL: none */
    uint16_t api;            /* entry point under which the pool's pages are counted */
};

struct gc_elastic_figures {
    uint64_t base;
    uint64_t capacity_bytes;
    uint64_t page_bytes;
    uint64_t mapped_bytes;
    uint64_t mapped_peak_bytes;
    uint64_t warm_bytes; /* the cache */
    uint64_t free_bytes; /* addresses that are not mapped, those of idle pages too */
    uint64_t largest_free_bytes;
    uint64_t allocate_count;
    uint64_t deallocate_count;
    uint64_t map_count; /* pages */
    uint64_t unmap_count;
    uint64_t create_count;
};

/* GC_NOT_SUPPORTED: the device has no mapped memory. GC_CAPTURING, here and below: a capture
 * forbids driver calls now. GC_INVALID_ARGUMENT: no capacity, too many pages, a page size that is
 * no multiple of the device's. */
enum gc_status gc_elastic_create(struct gc_core *core, struct gc_context *context,
                                 const struct gc_elastic_setup *setup, uint64_t *handle,
                                 uint64_t *base, int *driver_code) GC_CHECKED;
/* Waits for the device, then releases everything. On failure the pool stays, with the pages that
 * the driver did not release. */
enum gc_status gc_elastic_destroy(struct gc_core *core, struct gc_context *context, uint64_t handle,
                                  int *driver_code) GC_CHECKED;
/* GC_OUT_OF_MEMORY after idle memory was released. */
enum gc_status gc_elastic_allocate(struct gc_core *core, struct gc_context *context,
                                   uint64_t handle, uint64_t offset, uint64_t bytes,
                                   int *driver_code) GC_CHECKED;
/* `is_idle`: no work uses the range. Otherwise waits for all work of the device's contexts. */
enum gc_status gc_elastic_deallocate(struct gc_core *core, struct gc_context *context,
                                     uint64_t handle, uint64_t offset, uint64_t bytes, bool is_idle,
                                     int *driver_code) GC_CHECKED;
/* Whether all of the range is mapped; the range need not be whole pages. */
enum gc_status gc_elastic_is_mapped(struct gc_core *core, uint64_t handle, uint64_t offset,
                                    uint64_t bytes, bool *is_mapped) GC_CHECKED;
enum gc_status gc_elastic_read(struct gc_core *core, uint64_t handle,
                               struct gc_elastic_figures *figures) GC_CHECKED;
/* Releases the cache; *released_bytes: the part released. GC_DRIVER: the driver kept the rest. */
enum gc_status gc_elastic_compact(struct gc_core *core, struct gc_context *context, uint64_t handle,
                                  uint64_t *released_bytes, int *driver_code) GC_CHECKED;
/* The device of a pool; GC_INVALID_HANDLE. */
enum gc_status gc_elastic_find_device(struct gc_core *core, uint64_t handle,
                                      struct gc_device **device) GC_CHECKED;

/* ---- for core ---- */

/* At the core's creation. Registers the shrinker by which reclaim releases the pools' caches. */
void gc_elastic_init(struct gc_core *core);
/* At the core's destruction. Frees host memory only. */
void gc_elastic_fini(struct gc_core *core);

#endif
