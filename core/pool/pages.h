/* Mapped memory: extents of physical memory and the addresses where they are mapped.
 *
 * An arena is a segment that is a range of addresses; a slot is one page of those addresses. An
 * extent is physical memory of one or more whole pages, one handle of the driver. A mapping is an
 * extent at a place of an arena, one slot for each of its pages; an extent may have several, and is
 * used through one of them at a time, its user. core/backing/map.c maps, unmap.c unmaps; the
 * bookkeeping is here, under the pool's lock and without the driver.
 *
 * The free blocks of an arena are of kinds (enum gc_free_kind), so that a request finds backed
 * memory without a look at unmapped slots. While an extent is used through one mapping its others
 * cannot serve. A search that meets such a mapping excludes it: its slots, all free, become a block
 * of kind excluded, and backed again once the extent is idle. Planned arenas have no kinds: their
 * places are fixed, and a block there takes what its slots have.
 *
 * A slot is used while a block that is not free overlaps it. Which slots of a block its neighbours
 * use too, at most the first and the last, follows from the neighbours' addresses (gc_span).
 *
 * Invariants (gc_pool_validate): a slot belongs to at most one mapping; a used slot has a mapping
 * with access, the user of its extent; an extent's used pages are the used slots of its user; each
 * extent's list of mappings is exact; the idle lists have the extents that nobody uses and no
 * others; the sums `count`, `idle_count`, `stuck_count` are those of the extents; the kind of a
 * free block is that of its slots. `stage` and `link` belong to the one thread that changes
 * mappings (is_changing). */
#ifndef GC_PAGES_H
#define GC_PAGES_H

#include "core/base/bits.h"
#include "core/base/lock.h"
#include "core/pool/block.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gc_pool;
struct gc_segment;
struct gc_extent;
struct gc_place;
struct gc_swap;
struct gc_copy;

#define GC_PAGE_BYTES_MIN (UINT64_C(2) << 20)

/* Progress of a change of a mapping. */
enum gc_mapping_stage {
    GC_MAPPING_NONE, /* no change is under way */
    GC_MAPPING_TO_UNMAP,
    GC_MAPPING_TO_MAP,
    GC_MAPPING_MAPPED,
    GC_MAPPING_ACCESSIBLE,
    GC_MAPPING_UNMAPPED
};

struct gc_mapping {
    struct gc_mapping *next; /* of the same extent */
    struct gc_mapping *link; /* of the change under way */
    struct gc_extent *extent;
    struct gc_arena *arena;
    struct gc_block *excluded; /* the free block that is its slots; NULL: it is not excluded */
    uint64_t first;            /* the slot of the extent's first page */
    bool has_access;
    _Atomic uint8_t stage; /* enum gc_mapping_stage: see gc_pages_stage */
};

/* Relaxed, as the store below: the thread that changes mappings takes a mapping from
 * GC_MAPPING_NONE and back under the pool's lock, and other threads, under that lock, ask for no
 * more than whether it is there. The stages between are that thread's own. */
static inline enum gc_mapping_stage gc_pages_stage(const struct gc_mapping *mapping)
{
    return (enum gc_mapping_stage)atomic_load_explicit(&mapping->stage, memory_order_relaxed);
}

static inline void gc_pages_set_stage(struct gc_mapping *mapping, enum gc_mapping_stage stage)
{
    atomic_store_explicit(&mapping->stage, (uint8_t)stage, memory_order_relaxed);
}

struct gc_extent {
    struct gc_extent *previous; /* in an idle list, the longest idle first */
    struct gc_extent *next;     /* also the link of extents that are being released */
    uint64_t driver_handle;     /* 0: not created yet, or swapped out */
    struct gc_mapping *mappings;
    struct gc_mapping *user; /* NULL: idle */
    struct gc_copy *copy;    /* while it is swapped out: its content */
    uint64_t used_count;     /* pages */
    uint64_t page_count;
    uint64_t walk;     /* the walk over mappings that met the extent last, */
    uint64_t walk_end; /* and the end of the mapping that it met */
    uint32_t mapping_count;
    bool is_small;  /* mapped in an arena of small blocks since it was last mapped nowhere */
    bool is_listed; /* in an idle list */
    bool is_fresh;  /* created by the change under way, or to be */
    bool is_away;   /* swapped out, or being released: in no list and in no sum */
    bool is_stuck;  /* its context is destroyed, and an unmap failed */
    /* Host memory, to which the content of a block was moved: `is_away` for good, in the pool's
     * list of such, with one mapping, its user. It serves that block alone, and goes once the block
     * is freed. */
    bool is_host;
};

struct gc_arena {
    struct gc_arena *next; /* in the pool */
    struct gc_segment *segment;
    struct gc_mapping **slots;
    uint64_t slot_count;
    uint64_t touched_count; /* slots from here on never had a mapping */
    uint64_t prepared_end;  /* the pagemap is prepared below this address */
};

/* Host memory for an arena record and the slots behind it, in whole host pages. */
static inline uint64_t gc_arena_host_bytes(uint64_t slot_count)
{
    const uint64_t bytes = sizeof(struct gc_arena) + slot_count * sizeof(struct gc_mapping *);
    return (bytes + 4095) & ~UINT64_C(4095);
}

/* Idle extents by size: a list for each count of pages below 4, then four a doubling. Those of
 * small blocks are apart: one small block keeps a page from a large one, so with room they do not
 * share. */
#define GC_IDLE_LISTS 40

struct gc_extent_list {
    struct gc_extent *oldest;
    struct gc_extent *newest;
};

struct gc_pages {
    uint64_t page_bytes; /* a power of two; 0: the pool has driver memory only */
    unsigned page_shift; /* its logarithm */
    struct gc_arena *arenas;
    /* The range that contains all arenas of a tenant's pool; 0 bytes: none. */
    uint64_t range_address;
    uint64_t range_bytes;
    struct gc_extent_list idle[2][GC_IDLE_LISTS]; /* by is_small and size */
    uint64_t mapping_count;
    uint64_t count;       /* pages of all extents */
    uint64_t idle_count;  /* pages of idle extents */
    uint64_t stuck_count; /* unused pages of extents in use: they serve nobody else */
    uint64_t stuck_most;  /* that blocks may cause by their places */
    uint64_t walk_count;  /* walks over the mappings of a place */
    bool is_short;        /* room is short: blocks may cause none */
    bool is_exact;        /* room may become short: new extents do not reach beyond their blocks */
    /* The program's peak, the change of mappings before which it last rose, and the changes. */
    uint64_t peak_bytes;
    uint64_t peak_change;
    uint64_t change_count;
    atomic_bool is_refused; /* the driver failed to reserve addresses */
    /* A thread changes mappings, or the pool's memory is swapped out. */
    bool is_changing;
    struct gc_swap *swap;     /* memory that is swapped out; NULL: none */
    struct gc_extent *hosted; /* extents of host memory, linked by `next` */
    /* A peer lacks access to some mappings. Owned by the thread that changes mappings. */
    bool is_access_due;
    uint32_t holder_count; /* threads that use handles of extents: see gc_change_hold_locked */
    struct gc_condition changed; /* broadcast when is_changing ends, or holder_count falls */
};

/* The slots that a block overlaps, or would: [first, end). */
struct gc_span {
    struct gc_arena *arena;
    uint64_t first;
    uint64_t end;
    /* Those that no neighbour uses too: [own_first, own_end), if there are any. */
    uint64_t own_first;
    uint64_t own_end;
    /* The slots that the block fills: [whole_first, whole_end), if it fills any. */
    uint64_t whole_first;
    uint64_t whole_end;
};

/* Of a block that is in no bin, and of one that would start at the place. */
struct gc_span gc_pages_span_of_block_locked(const struct gc_pool *pool,
                                             const struct gc_block *block);
struct gc_span gc_pages_span_of_place_locked(const struct gc_pool *pool,
                                             const struct gc_place *place, uint64_t bytes);

/* The pages that a block placed now may keep from others, beside those that it uses. */
static inline uint64_t gc_pages_may_stick(const struct gc_pages *pages)
{
    return pages->is_short ? 0 : gc_sub_or_zero_u64(pages->stuck_most, pages->stuck_count);
}

/* An obstacle to a block at the span that would use the slots as they are, unmapped ones aside: a
 * mapping that cannot serve, two mappings of one extent, or an idle extent of which more pages than
 * `may_stick` would be stuck, none at all also where the block fills one in part. Returns the next
 * address to try, 0 if there is no obstacle. Adds the mappings looked at to *looks; *useless: the
 * mapping, if it serves nobody now. */
uint64_t gc_pages_obstacle_locked(struct gc_pool *pool, const struct gc_span *span,
                                  uint64_t may_stick, uint32_t *looks, struct gc_mapping **useless);
/* As that, where the block shall lie in one extent and its slots have no other obstacle. */
uint64_t gc_pages_several_locked(const struct gc_pool *pool, const struct gc_span *span);
/* Whether all slots of the span are mapped and have no obstacle, whatever would be stuck. */
bool gc_pages_are_usable_locked(struct gc_pool *pool, const struct gc_span *span);
/* Whether a block can use the mapping. */
static inline bool gc_pages_can_serve(const struct gc_mapping *mapping)
{
    const struct gc_extent *extent = mapping->extent;
    return mapping->has_access && gc_pages_stage(mapping) == GC_MAPPING_NONE && !extent->is_away &&
           (extent->user == mapping || (extent->user == NULL && extent->is_listed));
}

/* Uses the slots [first, end) of the span, all of one mapping that can serve. */
void gc_pages_use_locked(struct gc_pool *pool, const struct gc_span *span, uint64_t first,
                         uint64_t end);
/* Uses all mapped slots of the span; all can serve. O(mappings). */
void gc_pages_use_all_locked(struct gc_pool *pool, const struct gc_span *span);
/* The block of the span becomes free: extents that nobody uses any more become idle. True if one
 * did. Slots that have no mapping, or one that is not in use, are left alone. */
bool gc_pages_unuse_locked(struct gc_pool *pool, const struct gc_span *span);
/* The slot behind the mapping's last one. */
static inline uint64_t gc_pages_end_of(const struct gc_mapping *mapping)
{
    return mapping->first + mapping->extent->page_count;
}
/* The end of the run of slots from `first`, which has no mapping, below `end` that have none. */
uint64_t gc_pages_empty_end(const struct gc_arena *arena, uint64_t first, uint64_t end);
/* The end of the run of slots from `first` below `end` that have the same mapping, or none. */
static inline uint64_t gc_pages_run_end(const struct gc_arena *arena, uint64_t first, uint64_t end)
{
    const struct gc_mapping *mapping = arena->slots[first];
    if (mapping == NULL)
        return gc_pages_empty_end(arena, first, end);
    return gc_min_u64(end, gc_pages_end_of(mapping));
}

/* The kind that the block's first slots have, and the address where the next kind begins. */
uint64_t gc_pages_kind_end_locked(const struct gc_pool *pool, const struct gc_block *block,
                                  enum gc_free_kind *kind);
/* The block of kind excluded is the slots of a mapping. */
void gc_pages_set_excluded_locked(const struct gc_pool *pool, struct gc_block *block);

/* Whether a block at the addresses of a planned arena needs no driver call. */
bool gc_pages_are_backed_locked(struct gc_pool *pool, struct gc_arena *arena, uint64_t address,
                                uint64_t bytes);
/* Pages that become idle once no block uses [address, address + bytes) any more, the free and
 * pending blocks between two live ones: those of extents that only these blocks use. Swapped-out
 * ones are free already. */
uint64_t gc_pages_count_freed_locked(const struct gc_pool *pool, struct gc_arena *arena,
                                     uint64_t address, uint64_t bytes);

/* ---- for the thread that changes mappings ---- */

/* An extent in use leaves the sums, or comes back: it is swapped out. */
void gc_pages_set_away_locked(struct gc_pool *pool, struct gc_extent *extent, bool is_away);

/* The idle extent of at most `most` pages that is the largest, and of equal ones that with the
 * fewest mappings, among the longest idle. NULL: none. */
struct gc_extent *gc_pages_largest_idle_locked(const struct gc_pool *pool, bool is_small,
                                               uint64_t most);
/* The smallest idle extent of at least `least` pages, or NULL. */
struct gc_extent *gc_pages_smallest_idle_locked(const struct gc_pool *pool, bool is_small,
                                                uint64_t least);
/* Removes an idle extent from its list and excludes its mappings, which will be unmapped. False:
 * block records are lacking. */
bool gc_pages_try_take_locked(struct gc_pool *pool, struct gc_extent *extent);
/* As that, in a pool whose blocks are gone. */
void gc_pages_take_dropped_locked(struct gc_pool *pool, struct gc_extent *extent);
/* Adds an extent that nobody uses to the idle ones; its mappings are excluded no longer. */
void gc_pages_make_idle_locked(struct gc_pool *pool, struct gc_extent *extent);
/* Nobody uses the extent, whose mapping is changing, any more. It is in no list. */
void gc_pages_drop_uses_locked(struct gc_pool *pool, struct gc_extent *extent);
/* Adds the mapping to its extent and its slots, which have none. */
void gc_pages_attach_locked(struct gc_pool *pool, struct gc_mapping *mapping);
/* Removes the mapping from its extent, and from the slots that it has. If it was excluded, its
 * slots are a free block of kind unmapped. */
void gc_pages_detach_locked(struct gc_pool *pool, struct gc_mapping *mapping);
/* Excludes a mapping that serves nobody. False: block records are lacking. */
bool gc_pages_try_exclude_locked(struct gc_pool *pool, struct gc_mapping *mapping);
/* As that, for one that is not excluded yet, in the backed block with its slots. */
bool gc_pages_try_exclude_in_locked(struct gc_pool *pool, struct gc_mapping *mapping,
                                    struct gc_block *backed);
uint64_t gc_pages_address_of(const struct gc_pool *pool, const struct gc_mapping *mapping);
/* The slots of a mapping that is to be unmapped are free for others, or its own again. */
void gc_pages_clear_slots_locked(const struct gc_mapping *mapping);
void gc_pages_restore_slots_locked(struct gc_pool *pool, struct gc_mapping *mapping);
/* A mapping that was to be unmapped stays: it serves again if its extent is idle. */
void gc_pages_keep_locked(struct gc_pool *pool, struct gc_mapping *mapping);
/* Updates the idle bytes of the device and the quota from `before` idle pages to the current
 * number. True if the number rose. */
bool gc_pages_publish_idle_locked(struct gc_pool *pool, uint64_t before);

#endif
