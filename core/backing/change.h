/* Mapped memory and the driver: address ranges are reserved, pages created, mapped, remapped,
 * unmapped and released. The records of pages and slots are in core/pool/pages.h.
 *
 * A change is the right to change the mappings of one pool. One thread has it, from gc_change_begin
 * to gc_change_end; blocks whose pages are mapped are allocated and freed meanwhile. During a
 * capture in the context or one of its peers nothing is mapped, and only idle pages are unmapped,
 * to be released; a capture that begins waits for the change to end.
 *
 * Policy (docs/how-it-works.md "Mapped memory"). Unmapped slots get a new extent, as large as the
 * need, while the pools hold at most the program's peak and a little more, so that the next
 * iteration finds them mapped; beyond that idle extents are mapped there: the largest that fits, or
 * a larger one whose rest lies over free addresses. Mappings stay. Held memory beyond the bound is
 * released. An idle extent of several pages serves no block that would keep too much of it from
 * others, and where room is short whole slots alone, so that extents in use keep nothing. */
#ifndef GC_CHANGE_H
#define GC_CHANGE_H

#include "core/backing/segment.h"
#include "core/device/context.h"
#include "core/pool/segment.h"

/* How far pools may grow beyond the program's peak to save moving: in general, while the peak is
 * low, with a plan. */
#define GC_GROWTH_PERCENT 3
#define GC_GROWTH_LOW_PERCENT 4
#define GC_GROWTH_LOW_BYTES (UINT64_C(2) << 30)
#define GC_GROWTH_PLANNED_DIVISOR 512
/* A block of the first size gets one extent for all that it lacks; a smaller one extents of
 * GC_EXTENT_BYTES or a part of its own size. While the peak is low, extents are a part of its
 * excess over GC_EXTENT_PEAK_BYTES, at least one page. */
#define GC_EXTENT_WHOLE_BYTES (UINT64_C(1) << 30)
/* Where the process takes turns no extent is larger, but of a block that must have one alone: an
 * extent leaves the device as a whole, and is copied as a whole before it is released. */
#define GC_EXTENT_TURN_BYTES (UINT64_C(256) << 20)
#define GC_EXTENT_BYTES (UINT64_C(32) << 20)
#define GC_EXTENTS_PER_BLOCK 8
#define GC_EXTENT_PEAK_BYTES (UINT64_C(1) << 30)
#define GC_EXTENTS_PER_PEAK 32
/* The addresses that one extent may have. */
#define GC_MAPPINGS_PER_EXTENT 32
/* Of the room that is left, idle pages among it, so much may be stuck by the places of blocks. */
#define GC_STUCK_DIVISOR 16
/* Room may become short: the peak is beyond an eighth of a limit, or 95 % of the device. It is
 * short then, until the peak has not risen for a while (a number of changes, and a part of those
 * before) and leaves room; and when more is held than an eighth above the peak. */
#define GC_SHORT_LIMIT_DIVISOR 8
#define GC_SHORT_DEVICE_DIVISOR 20
#define GC_SHORT_HELD_DIVISOR 8
#define GC_SETTLED_CHANGES 16
#define GC_SETTLED_DIVISOR 16
#define GC_SETTLED_PEAK_DIVISOR 16 /* the peak leaves this fraction of the limit free */
#define GC_SETTLED_LEFT_DIVISOR 64 /* and what is charged now this one */
/* Addresses of one arena, in multiples of the device's memory. */
#define GC_ARENA_TIMES 4
/* A tenant's range has this fraction of its capacity in addition, for small blocks. */
#define GC_ARENA_SMALL_DIVISOR 8

/* A change of mappings under way. */
struct gc_change {
    struct gc_context *context;
    struct gc_wait_set set;
    uint32_t peer_count;
    int peers[GC_PEER_MAX]; /* devices beside the context's own that get access */
};

/* GC_OK: no other thread changes mappings until gc_change_end; no lock is held. begin: captures
 * wait; GC_DRIVER: a capture is on; waits for a swap-in. try_begin ignores captures (see
 * gc_capture_relax_begin); GC_DRIVER: swapped out. GC_INVALID_ARGUMENT: the context was dropped. */
enum gc_status gc_change_begin(struct gc_context *context, struct gc_change *change) GC_CHECKED;
enum gc_status gc_change_try_begin(struct gc_context *context, struct gc_change *change) GC_CHECKED;
/* As gc_change_begin, for a caller that only grants access, without waiting for work or unmapping:
 * a capture does not forbid that. GC_DRIVER: memory is swapped out and no swap-in is under way. */
enum gc_status gc_change_begin_access(struct gc_context *context,
                                      struct gc_change *change) GC_CHECKED;
/* Lists the devices that the change grants access: those of present peers and, for a device's own
 * record, those that its memory is open to, even without a context. */
void gc_change_read_peers_locked(struct gc_change *change);
void gc_change_end(struct gc_change *change);

/* The caller uses handles of extents that blocks of the pool keep from others: the teardown of the
 * context waits until it lets go. Neither waits for a change, nor a change for them. */
void gc_change_hold_locked(struct gc_pool *pool);
void gc_change_let_go(struct gc_pool *pool);

/* As gc_segment_create, from mapped memory if the context has such memory and can map it now, else
 * from a segment of driver memory. */
enum gc_status gc_map_alloc(struct gc_context *context, const struct gc_segment_spec *segment_spec,
                            const struct gc_alloc_spec *spec, uint64_t *address,
                            struct gc_segment_failure *failure) GC_CHECKED;
/* Adds an address range for at least `bytes`. A tenant's record gets one range, of the tenant's
 * capacity; the second fails: GC_OUT_OF_MEMORY. The caller has the change and holds no lock. */
enum gc_status gc_range_add(struct gc_context *context, enum gc_size_class size_class,
                            uint64_t bytes) GC_CHECKED;

/* Adds an address range of class planned: `bytes` with a prepared pagemap and, if the driver
 * reserves them, as many bytes more. The caller has the change and holds no lock. */
enum gc_status gc_range_add_planned(struct gc_context *context, uint64_t bytes) GC_CHECKED;

/* Releases the only range of a pool. The range must be free and without pages, the pool closed.
 * GC_DRIVER: the driver refused, nothing changed. GC_CAPTURING. GC_INVALID_ARGUMENT: the context
 * was dropped. No lock may be held. */
enum gc_status gc_range_release(struct gc_context *context) GC_CHECKED;

/* Releases idle pages, the longest idle first, until `enough_bytes` are released. Returns the bytes
 * released. No lock may be held; the caller is in gc_device_release_begin. */
uint64_t gc_unmap_release_idle(struct gc_context *context, uint64_t enough_bytes);
/* Uncharges `count` pages that the driver has released. */
void gc_change_uncharge_pages(struct gc_context *context, uint64_t count);

/* Unmaps one mapping: GC_MAPPING_UNMAPPED then. Returns the driver's code. No lock may be held. */
int gc_change_unmap(struct gc_context *context, struct gc_mapping *mapping) GC_CHECKED;

/* Mappings and pages of a dropped pool, to be unmapped and released without its lock. */
struct gc_leftovers {
    struct gc_swap *swap; /* NULL: nothing is swapped out */
    struct gc_arena *arenas;
    uint64_t range_address; /* of the range that all arenas tile; 0 bytes: one range each */
    uint64_t range_bytes;
    struct gc_extent *unmapped; /* extents that are mapped nowhere */
    uint64_t page_count;
};
/* Detaches arenas and pages from a pool that is being dropped. False: a change is under way, wait
 * for it first (gc_change_wait). Does not wait itself. */
bool gc_change_detach_leftovers_locked(struct gc_pool *pool, struct gc_leftovers *leftovers);
/* Whether a change is under way that a teardown must wait for. */
bool gc_change_is_active_locked(const struct gc_pool *pool);
/* Waits until no change is under way. No lock may be held. */
void gc_change_wait(struct gc_pool *pool);
/* Unmaps and releases the leftovers; refused pages stay charged. No lock may be held. */
void gc_change_destroy_leftovers(struct gc_context *context, const struct gc_leftovers *leftovers);
/* Frees the records of an arena that is in no pool, not its addresses. */
void gc_change_destroy_arena(struct gc_context *context, struct gc_arena *arena);
/* Frees host memory only; for gc_core_destroy. */
void gc_change_free_records(struct gc_pool *pool);

#endif
