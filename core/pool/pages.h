/* Mapped memory: physical pages and the addresses where they are mapped.
 *
 * An arena is a segment that is a range of addresses; a slot is one page of those addresses. A
 * physical page is created once and remapped: it stays mapped at every slot that ever had it, and
 * at most one of them uses it. A slot is in use while a block that is not free overlaps it. So a
 * free block whose slots still have idle pages is backed: it becomes live without a driver call.
 * core/backing/map.c maps all other pages, core/backing/unmap.c unmaps them; the bookkeeping is
 * here, under the pool's lock and without the driver.
 *
 * Invariants (gc_pool_validate): use counts match the blocks; a used slot has its page,
 * accessible, and the page names that slot as its user; each page's list of slots is exact; the two
 * idle lists hold the idle pages and no others. `planned` and `stage` belong to the one thread that
 * changes mappings (is_changing). */
#ifndef GC_PAGES_H
#define GC_PAGES_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct gc_pool;
struct gc_segment;
struct gc_page;
struct gc_swap;

#define GC_PAGE_BYTES_MIN (UINT64_C(2) << 20)

/* Progress of a change of a slot's mapping. */
enum gc_slot_stage {
    GC_SLOT_NONE,
    GC_SLOT_PENDING,
    GC_SLOT_UNMAPPED,
    GC_SLOT_MAPPED,
    GC_SLOT_ACCESSIBLE
};

struct gc_slot {
    struct gc_page *page;    /* mapped here, maybe used by another slot; NULL: none */
    struct gc_page *planned; /* to be mapped here */
    struct gc_slot *next;    /* the next slot where `page` is mapped */
    uint32_t use_count;      /* blocks that are not free and overlap the slot */
    bool has_access;         /* `page` is accessible, not only mapped */
    uint8_t stage;           /* enum gc_slot_stage */
    /* A thread changes its mapping: no other block may use it meanwhile. */
    bool is_changing;
};
_Static_assert(sizeof(struct gc_slot) == 32, "two slots a line");

struct gc_page {
    /* In an idle list, the longest idle first; also the link of a spare record. */
    struct gc_page *previous;
    struct gc_page *next;
    uint64_t handle;
    struct gc_slot *user;  /* NULL: idle */
    struct gc_slot *first; /* the slots where it is mapped */
    uint32_t mapping_count;
    bool is_fresh; /* created by the current change */
    bool is_small; /* mapped in an arena of small blocks */
    bool is_listed;
    bool is_stuck; /* its context is destroyed, and an unmap of the page failed */
};

struct gc_arena {
    struct gc_arena *next; /* in the pool */
    struct gc_segment *segment;
    struct gc_slot *slots;
    uint64_t slot_count;
    uint64_t touched_count; /* slots from here on have never been used */
    uint64_t prepared_end;  /* the pagemap is prepared below this address */
};

/* Host memory for an arena record and the slots behind it, in whole host pages. */
static inline uint64_t gc_arena_host_bytes(uint64_t slot_count)
{
    const uint64_t bytes = sizeof(struct gc_arena) + slot_count * sizeof(struct gc_slot);
    return (bytes + 4095) & ~UINT64_C(4095);
}

struct gc_page_list {
    struct gc_page *oldest;
    struct gc_page *newest;
};

struct gc_pages {
    uint64_t page_bytes; /* 0: the pool has driver memory only */
    struct gc_arena *arenas;
    /* The range that contains all arenas of a tenant's pool; 0 bytes: none. */
    uint64_t range_address;
    uint64_t range_bytes;
    struct gc_page_list idle[2]; /* [0]: mapped nowhere; [1]: the others */
    uint64_t idle_count;
    uint64_t small_idle_count; /* pages with is_small among them */
    uint64_t count;
    struct gc_slot purge;   /* the user of pages that are being purged */
    atomic_bool is_refused; /* the driver failed to reserve addresses */
    /* A thread changes mappings, or the pool's memory is swapped out. */
    bool is_changing;
    struct gc_swap *swap; /* memory that is swapped out; NULL: none */
    /* A peer lacks access to some pages. Owned by the thread that changes mappings. */
    bool is_access_due;
    pthread_cond_t changed; /* signalled when is_changing ends */
};

/* The slots that a range overlaps: [*first, *end). */
void gc_pages_slots(const struct gc_pool *pool, const struct gc_arena *arena, uint64_t address,
                    uint64_t bytes, uint64_t *first, uint64_t *end);

/* Whether a block can use the slot without a driver call. Not while its mapping changes: a page
 * that is to be replaced there may become idle elsewhere meanwhile. */
static inline bool gc_slot_is_backed(const struct gc_slot *slot)
{
    return slot->page != NULL && slot->has_access && !slot->is_changing &&
           (slot->page->user == slot || slot->page->user == NULL);
}

/* Counts a use of each slot of the range if all are backed. False with nothing changed. */
bool gc_pages_try_use_locked(struct gc_pool *pool, struct gc_arena *arena, uint64_t address,
                             uint64_t bytes);
/* Counts a use of each slot of the range, takes the idle pages of backed slots and sets the other
 * slots to GC_SLOT_PENDING. Returns the number of pending slots. */
uint64_t gc_pages_use_locked(struct gc_pool *pool, struct gc_arena *arena, uint64_t address,
                             uint64_t bytes);
/* The block of the range becomes free; a page without a use becomes idle. True if a page did. */
bool gc_pages_unuse_locked(struct gc_pool *pool, struct gc_arena *arena, uint64_t address,
                           uint64_t bytes);

/* Whether all slots of the range are backed. */
bool gc_pages_are_backed_locked(const struct gc_pool *pool, const struct gc_arena *arena,
                                uint64_t address, uint64_t bytes);

/* State of a search for victim pages, valid while the lock is held. */
struct gc_victim_search {
    uint64_t below;         /* slots from here on were searched */
    uint32_t mapping_count; /* of the pages searched for */
    uint32_t fewest;        /* the least count above mapping_count that was seen */
    bool takes_small;       /* also pages with is_small, when there are no others */
};
#define GC_VICTIM_SEARCH_START ((struct gc_victim_search){0, 0, 1, false})
/* Takes a victim for `slot`, its new user: an idle page mapped nowhere; else one with the fewest
 * mappings and, of those, at the highest slot. Pages of small blocks come last, since their slots
 * come into use often. Call with idle_count > 0, and gc_pages_publish_idle_locked afterwards. */
struct gc_page *gc_pages_remap_locked(struct gc_pool *pool, struct gc_victim_search *search,
                                      struct gc_slot *slot);
/* The page becomes idle. */
void gc_pages_make_idle_locked(struct gc_pool *pool, struct gc_page *page);
/* Removes the longest idle page from its list, with the purge slot as its user; NULL: there is
 * none. */
struct gc_page *gc_pages_pop_idle_locked(struct gc_pool *pool);
void gc_pages_attach_locked(struct gc_slot *slot, struct gc_page *page, bool has_access,
                            bool is_small);
void gc_pages_detach_locked(struct gc_pool *pool, struct gc_slot *slot);
/* Updates the idle bytes of the device and the quota from `before` idle pages to the current
 * number. True if the number rose. */
bool gc_pages_publish_idle_locked(struct gc_pool *pool, uint64_t before);

#endif
