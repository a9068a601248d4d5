/* Mapped memory and the driver: ranges of addresses, pages that come, are lent and go. Bookkeeping
 * is in page.c and the pool.
 *
 * One thread at a time changes the mappings of a pool: between gc_change_begin and _end no
 * other maps, unmaps, or takes a page that is on its way. Blocks whose pages are there come and go
 * meanwhile. Nothing is mapped or unmapped while a capture is on in the context or a peer of it,
 * and a capture that begins waits for the change to end, as for other waits.
 *
 * Policy of a request whose place is not backed (docs/how-it-works.md "Mapped memory"): a slot that
 * never had a page takes an idle one, if there is one and the pool holds what the program ever
 * needed; a slot whose page is lent gets a page of its own while what is held stays within
 * 1/128 + 128 MiB of what the program ever needed (1/512 beside a plan, and as long as the run
 * keeps to it what it says), so that the next pass finds it there, else an idle one. Small blocks
 * and large ones have pages of their own within that measure: which small ones are in use is a
 * matter of a moment, threads keep them. What the budget does not allow is taken from idle pages of
 * either. */
#ifndef GC_CHANGE_H
#define GC_CHANGE_H

#include "core/backing/segment.h"
#include "core/device/context.h"
#include "core/pool/segment.h"

/* More than the program's peak that may be held to save remapping: a share and an amount. */
#define GC_PAGE_SLACK_SHIFT 7
#define GC_PAGE_SLACK_BYTES (UINT64_C(128) << 20)
#define GC_PAGE_SLACK_PLANNED_SHIFT 9 /* the share beside a plan, without the amount */
/* Addresses of one arena: this often what the device has. */
#define GC_ARENA_TIMES 4
/* A tenant has this share of its capacity beside it, for small blocks. */
#define GC_ARENA_SMALL_SHARE 8

/* A change of mappings under way. */
struct gc_change {
    struct gc_context *context;
    struct gc_wait_set set;
    uint32_t peer_count;
    int peers[GC_PEER_MAX]; /* devices beside the context's own that get access */
};

/* GC_OK: no other thread changes mappings until _end, and captures wait; no lock is held.
 * GC_INVALID_ARGUMENT: the context was dropped. GC_DRIVER: a capture forbids it. Where memory is
 * swapped out it waits until that is back; the second kind does not: GC_DRIVER. */
enum gc_status gc_change_begin(struct gc_context *context, struct gc_change *change) GC_CHECKED;
enum gc_status gc_change_try_begin(struct gc_context *context, struct gc_change *change) GC_CHECKED;
/* The same for who gives access only, which waits for no work and takes nothing away: a capture
 * does not forbid it. GC_DRIVER: memory is swapped out, and is not on its way back. */
enum gc_status gc_change_begin_access(struct gc_context *context,
                                      struct gc_change *change) GC_CHECKED;
/* The devices that get access are those of the peers there are now. */
void gc_change_read_peers_locked(struct gc_change *change);
void gc_change_end(struct gc_change *change);

/* As gc_segment_create, from mapped memory where the context has it and nothing forbids it, else
 * from a segment. */
enum gc_status gc_map_alloc(struct gc_context *context, const struct gc_segment_spec *plan,
                            const struct gc_alloc_spec *spec, uint64_t *address,
                            struct gc_segment_failure *refusal) GC_CHECKED;
/* Adds a range of addresses for at least `bytes`. A tenant's record gets one, as large as the
 * tenant says, and no second: GC_OUT_OF_MEMORY. The change is the caller's; no lock. */
enum gc_status gc_range_add(struct gc_context *context, enum gc_size_class size_class,
                            uint64_t bytes) GC_CHECKED;

/* Adds a range of addresses of class planned: `bytes` that the pagemap knows, and as many behind
 * them, if the driver gives so many. The change is the caller's; no lock. */
enum gc_status gc_range_add_planned(struct gc_context *context, uint64_t bytes) GC_CHECKED;

/* The only range of a pool goes back, where all of it is free and no page is left; its tenant hands
 * nothing out meanwhile. GC_DRIVER: the driver keeps it, it is as before; GC_CAPTURING;
 * GC_INVALID_ARGUMENT: the context was dropped. No lock. */
enum gc_status gc_range_release(struct gc_context *context) GC_CHECKED;

/* Gives idle pages back, the longest idle first, until `enough_bytes` went. Returns bytes given
 * back. No lock; the caller has begun a give-back of the device. */
uint64_t gc_unmap_release_idle(struct gc_context *context, uint64_t enough_bytes);
/* Physical pages of the context went, and their budget with them. */
void gc_change_uncharge_pages(struct gc_context *context, uint64_t count);

/* What a dropped pool leaves to be unmapped. */
struct gc_leftovers {
    struct gc_swap *swap; /* what was swapped out; NULL: nothing */
    struct gc_arena *arenas;
    uint64_t range_address; /* of all arenas together; 0 bytes: each has its own */
    uint64_t range_bytes;
    struct gc_page_list unmapped;
    uint64_t page_count;
};
/* Takes arenas and pages out of a pool that is being dropped. False: a change is under way, to be
 * waited for first. Called with the pool's lock held; does not wait. */
bool gc_change_detach_leftovers_locked(struct gc_pool *pool, struct gc_leftovers *leftovers);
/* Whether a change is under way that is to be waited for before the end. */
bool gc_change_is_active_locked(const struct gc_pool *pool);
/* Until no change is under way. No lock. */
void gc_change_wait(struct gc_pool *pool);
/* Unmaps and gives back, as far as the driver still does it. No lock. */
void gc_change_destroy_leftovers(struct gc_context *context, const struct gc_leftovers *leftovers);
/* The records of an arena that is in no pool; its addresses are the caller's business. */
void gc_arena_destroy(struct gc_context *context, struct gc_arena *arena);
/* Frees host memory only; at the end of the core. */
void gc_change_free_records(struct gc_pool *pool);

#endif
