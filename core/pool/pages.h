/* Mapped memory: physical pages and the addresses they are lent to.
 *
 * An arena is a segment that is a range of addresses; a slot is one page of those addresses. A
 * physical page is created once and lent: it stays mapped at every slot that ever had it, and at
 * most one of them uses it. A slot is in use while a block that is not free touches it. So a hole
 * whose slots have kept pages that nobody uses now is backed: it becomes a block without a driver
 * call. Everything else is mapped by lend.c, given back by unlend.c; here is the bookkeeping, under
 * the pool's lock and without the driver.
 *
 * Invariants (gc_pages_validate): use counts are those of the blocks; a used slot has its page,
 * accessible, and the page names that slot as its user; each page's list of slots is exact; idle
 * pages and no others are in the two idle lists. `planned` and `stage` belong to who makes a
 * change, one thread at a time (is_changing). */
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

/* How far the change of a slot has come. */
enum gc_slot_stage {
    GC_SLOT_NONE,
    GC_SLOT_PENDING,
    GC_SLOT_UNMAPPED,
    GC_SLOT_MAPPED,
    GC_SLOT_ACCESSIBLE
};

struct gc_slot {
    struct gc_page *page;    /* mapped here, maybe lent to another slot; NULL: none */
    struct gc_page *planned; /* is to be mapped here */
    struct gc_slot *next;    /* another one where `page` is mapped */
    uint32_t use_count;      /* blocks that are not free and touch it */
    bool has_access;         /* of `page`: usable, not only mapped */
    uint8_t stage;           /* enum gc_slot_stage */
    bool is_changing;        /* who makes the change has it: no block may come in meanwhile */
};
_Static_assert(sizeof(struct gc_slot) == 32, "two slots a line");

struct gc_page {
    struct gc_page *previous; /* among the idle, the longest idle first; a free record's link */
    struct gc_page *next;
    uint64_t handle;
    struct gc_slot *user;  /* NULL: idle */
    struct gc_slot *first; /* where it is mapped */
    uint32_t mapping_count;
    bool is_fresh; /* created by the change under way */
    bool is_small; /* mapped in an arena of small blocks */
    bool is_listed;
    bool is_stuck; /* its context is gone, and a mapping of it would not go */
};

struct gc_arena {
    struct gc_arena *next; /* in the pool */
    struct gc_segment *segment;
    struct gc_slot *slots;
    uint64_t slot_count;
    uint64_t touched_count; /* slots from here on were never used */
    uint64_t prepared_end;  /* the pagemap knows addresses below */
};

/* Host memory for a record and the slots behind it, in whole host pages. */
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
    uint64_t page_bytes; /* 0: the pool has plain segments only */
    struct gc_arena *arenas;
    uint64_t range_address; /* which all arenas share, of a tenant's pool; 0 bytes: none */
    uint64_t range_bytes;
    struct gc_page_list idle[2]; /* [0]: mapped nowhere */
    uint64_t idle_count;
    uint64_t small_idle_count; /* those of small blocks among them */
    uint64_t count;
    struct gc_slot purge;   /* the user of pages that are on their way out */
    atomic_bool is_refused; /* the driver gives no range of addresses */
    bool is_changing;       /* one thread changes mappings, or what was swapped out is away */
    struct gc_swap *swap;   /* what is away; NULL: nothing is */
    bool is_access_due;     /* a peer did not get access to all of them; of who changes them */
    pthread_cond_t changed; /* it has ended */
};

/* The slots that a range touches: [*first, *end). */
void gc_pages_slots(const struct gc_pool *pool, const struct gc_arena *arena, uint64_t address,
                    uint64_t bytes, uint64_t *first, uint64_t *end);

/* Whether a block could use the slot without a driver call. A page that is to be replaced there may
 * become idle elsewhere meanwhile: it is of no use here any more. */
static inline bool gc_slot_is_backed(const struct gc_slot *slot)
{
    return slot->page != NULL && slot->has_access && !slot->is_changing &&
           (slot->page->user == slot || slot->page->user == NULL);
}

/* Counts a use of each slot of the range if all are backed. False with nothing changed. */
bool gc_pages_try_use_locked(struct gc_pool *pool, struct gc_arena *arena, uint64_t address,
                             uint64_t bytes);
/* Counts the use in any case, takes the idle pages of the slots that have them and marks the others
 * GC_SLOT_PENDING. Returns how many those are. */
uint64_t gc_pages_use_locked(struct gc_pool *pool, struct gc_arena *arena, uint64_t address,
                             uint64_t bytes);
/* The block that used the range is free; pages become idle with their last use. True if one did. */
bool gc_pages_unuse_locked(struct gc_pool *pool, struct gc_arena *arena, uint64_t address,
                           uint64_t bytes);

/* Whether all slots of the range are backed. */
bool gc_pages_are_backed_locked(const struct gc_pool *pool, const struct gc_arena *arena,
                                uint64_t address, uint64_t bytes);

/* Where the search for pages to lend goes on, under one hold of the lock. */
struct gc_victim_search {
    uint64_t below;         /* slots from here on were looked at */
    uint32_t mapping_count; /* of the pages it looks for */
    uint32_t fewest;        /* above that, of those it passed */
    bool takes_small;       /* and those of small blocks, when there are no others */
};
#define GC_VICTIM_SEARCH_START ((struct gc_victim_search){0, 0, 1, false})
/* Takes the idle page that is missed least: one mapped nowhere, else with the fewest mappings, the
 * highest of those, and none of small blocks before all others: which of those are in use is a
 * matter of a moment. There is one: idle_count > 0. Its user is `slot` from now on. The caller
 * tells the accounts by gc_pages_publish_idle_locked. */
struct gc_page *gc_pages_remap_locked(struct gc_pool *pool, struct gc_victim_search *search,
                                      struct gc_slot *slot);
/* Idle again, or for the first time. */
void gc_pages_make_idle_locked(struct gc_pool *pool, struct gc_page *page);
/* Takes the longest idle page out of the lists, `leaving`; NULL if there is none. */
struct gc_page *gc_pages_pop_idle_locked(struct gc_pool *pool);
void gc_pages_attach_locked(struct gc_slot *slot, struct gc_page *page, bool has_access,
                            bool is_small);
void gc_pages_detach_locked(struct gc_pool *pool, struct gc_slot *slot);
/* Makes the device's idle bytes agree with what the pool has idle now and had `before`. True if it
 * rose, which the device's generation shows. */
bool gc_pages_publish_idle_locked(struct gc_pool *pool, uint64_t before);

bool gc_pages_validate_locked(const struct gc_pool *pool);

#endif
