/* GPUCACHE_DEBUG: aids for finding memory errors of the program. They are slow: every free waits
 * for the device.
 *
 * poison: freed memory is filled with GC_DEBUG_FREED. It is checked before the pool hands it out
 * again or releases it; bytes that changed are reported with the history of the freed block.
 * uaf, guard: each block has pages of its own between unbacked addresses (guard.h). The pages are
 * unmapped at the free, so that a later use faults; with uaf the addresses stay in quarantine. With
 * guard the bytes that rounding adds to a block are filled and checked too.
 * The library cannot catch a fault where it happens: when the driver reports one, the last frees
 * are logged. Where the device cannot map memory, poison replaces guard and uaf. */
#ifndef GC_DEBUG_H
#define GC_DEBUG_H

#include "core/base/lock.h"
#include "core/base/status.h"
#include "core/device/registry.h"

#define GC_DEBUG_FREED 0xdb
#define GC_DEBUG_EDGE 0xfd
#define GC_DEBUG_HISTORY_MAX 8192

struct gc_guard_table;

/* One free in the history. */
struct gc_debug_freed {
    uint64_t address;
    uint64_t bytes; /* of the memory; 0: no record */
    uint64_t requested_bytes;
    uint64_t id;
    uint64_t at_ns;
    struct gc_context *context;
    uint32_t thread;
    uint16_t api;
    uint16_t free_api;
    bool is_filled; /* with poison, until the memory is reused or released */
};

struct gc_debugger {
    struct gc_lock lock; /* guards the ring */
    unsigned flags;      /* GC_DEBUG_POISON, _GUARD, _UAF */
    uint64_t start_ns;
    struct gc_guard_table *guard;
    atomic_flag has_reported_fault;
    atomic_flag has_reported_no_mapping;
    uint64_t next; /* number of the next record in the ring */
    uint32_t filled_count;
    struct gc_debug_freed freed[GC_DEBUG_HISTORY_MAX];
};

/* Sets core->debug if GPUCACHE_DEBUG is set, in mode cache; else core->debug stays NULL. */
enum gc_status gc_debug_init(struct gc_core *core) GC_CHECKED;
void gc_debug_fini(struct gc_core *core);
/* After a device was added: warns once if it cannot map memory. */
void gc_debug_add_device(struct gc_core *core, const struct gc_device *device);

/* Below, core->debug is not NULL, no lock is held, and the driver may be called. */

/* Whether blocks get pages of their own, where the device can map memory. */
static inline bool gc_debug_maps_blocks(const struct gc_core *core)
{
    return (core->debug->flags & (GC_DEBUG_GUARD | GC_DEBUG_UAF)) != 0;
}

/* A request got a block: checks the poison of its memory, and fills the bytes that rounding added.
 */
void gc_debug_on_alloc(struct gc_context *context, uint64_t address, uint64_t bytes,
                       uint64_t requested_bytes);
/* Entry point `api` frees the block, which is FREEING: waits for its work, checks the bytes that
 * rounding added, fills the block. Does nothing if the context is dropped. */
void gc_debug_before_free(const struct gc_block_info *info, uint16_t api);
/* Logs a refused free of `address` by entry point `api`. `live`: the live block that contains the
 * address; NULL: none does. */
void gc_debug_report_refused_free(struct gc_core *core, uint64_t address, uint16_t api,
                                  const struct gc_block_info *live);
/* Before memory is released to the driver: checks its poison. */
void gc_debug_on_release(struct gc_context *context, uint64_t address, uint64_t bytes);
/* The context is dropped: its records are checked no more, its guarded blocks are unmapped. */
void gc_debug_drop_context(struct gc_context *context);

#endif
