#include "core/pool/pagemap.h"

#include "core/base/assert.h"
#include "core/base/bits.h"

#include <stdbool.h>
#include <stddef.h>

#define LEAF_BITS GC_PAGEMAP_LEAF_BITS
#define ROOT_COUNT (UINT64_C(1) << (GC_PAGEMAP_ADDRESS_BITS - LEAF_BITS))
#define LEAF_GRANULES GC_PAGEMAP_LEAF_GRANULES
#define PAGE_BITS GC_PAGEMAP_PAGE_BITS
#define PAGE_GRANULES (UINT64_C(1) << (PAGE_BITS - GC_GRANULE_BITS))
#define LEAF_PAGES GC_PAGEMAP_LEAF_PAGES

/* The unit in which written host memory is counted, and the table entries per unit. */
#define HOST_PAGE UINT64_C(4096)
#define POINTERS_PER_HOST_PAGE (HOST_PAGE / sizeof(void *))
#define STARTS_PER_HOST_PAGE (HOST_PAGE * 8)

struct gc_pagemap_leaf {
    _Atomic(struct gc_block *) firsts[LEAF_PAGES];    /* of the pages' first granules */
    _Atomic(struct gc_block *) blocks[LEAF_GRANULES]; /* of the others */
    atomic_uint_fast64_t starts[LEAF_GRANULES / 64];
    /* Counted when the leaf is created, from here on. */
    atomic_uint_fast64_t blocks_written[LEAF_GRANULES / POINTERS_PER_HOST_PAGE / 64];
    atomic_uint_fast64_t starts_written[LEAF_GRANULES / STARTS_PER_HOST_PAGE / 64];
    _Atomic uint16_t page_starts[LEAF_PAGES]; /* at most PAGE_GRANULES */
    _Atomic uint16_t used_pages;              /* pages with starts */
};
_Static_assert(offsetof(struct gc_pagemap_leaf, firsts) == 0 &&
                   offsetof(struct gc_pagemap_leaf, blocks) == LEAF_PAGES * sizeof(void *),
               "as gc_pagemap_get expects");
#define LEAF_FIXED_BYTES                                                                           \
    (LEAF_PAGES * sizeof(void *) + sizeof(struct gc_pagemap_leaf) -                                \
     offsetof(struct gc_pagemap_leaf, blocks_written))
#define ROOT_WRITTEN_BYTES (ROOT_COUNT / POINTERS_PER_HOST_PAGE / 8)

/* Counts a host page at its first write. */
static void count_written(struct gc_host_mem *host, atomic_uint_fast64_t *bits, uint64_t index)
{
    atomic_uint_fast64_t *word = &bits[index / 64];
    const uint64_t bit = UINT64_C(1) << (index % 64);
    if ((atomic_load_explicit(word, memory_order_relaxed) & bit) != 0)
        return;
    if ((atomic_fetch_or_explicit(word, bit, memory_order_relaxed) & bit) == 0)
        gc_host_mem_count(host, HOST_PAGE);
}

enum gc_status gc_pagemap_init(struct gc_pagemap *map, struct gc_host_mem *host)
{
    *map = (struct gc_pagemap){.host = host};
    map->root = gc_host_mem_reserve(ROOT_COUNT * sizeof(*map->root));
    if (map->root == NULL)
        return GC_NO_HOST_MEMORY;
    map->root_written = gc_host_mem_map(host, ROOT_WRITTEN_BYTES);
    if (map->root_written == NULL) {
        gc_host_mem_unreserve(map->root, ROOT_COUNT * sizeof(*map->root));
        map->root = NULL;
        return GC_NO_HOST_MEMORY;
    }
    return GC_OK;
}

void gc_pagemap_fini(struct gc_pagemap *map)
{
    if (map->root == NULL)
        return;
    for (uint64_t page = 0; page < ROOT_COUNT / POINTERS_PER_HOST_PAGE; page++) {
        if ((atomic_load(&map->root_written[page / 64]) >> (page % 64) & 1) == 0)
            continue;
        for (uint64_t i = page * POINTERS_PER_HOST_PAGE; i < (page + 1) * POINTERS_PER_HOST_PAGE;
             i++) {
            struct gc_pagemap_leaf *leaf = atomic_load(&map->root[i]);
            if (leaf != NULL)
                gc_host_mem_unreserve(leaf, sizeof(*leaf));
        }
    }
    gc_host_mem_unmap(map->host, map->root_written, ROOT_WRITTEN_BYTES);
    gc_host_mem_unreserve(map->root, ROOT_COUNT * sizeof(*map->root));
    map->root = NULL;
}

static struct gc_pagemap_leaf *leaf_at(const struct gc_pagemap *map, uint64_t index)
{
    /* Acquire: pairs with the release in add_leaf, so that the leaf is seen as zeroed. */
    return atomic_load_explicit(&map->root[index], memory_order_acquire);
}

static enum gc_status add_leaf(struct gc_pagemap *map, uint64_t index)
{
    struct gc_pagemap_leaf *leaf = gc_host_mem_reserve(sizeof(*leaf));
    if (leaf == NULL)
        return GC_NO_HOST_MEMORY;
    struct gc_pagemap_leaf *present = NULL;
    count_written(map->host, map->root_written, index / POINTERS_PER_HOST_PAGE);
    if (atomic_compare_exchange_strong_explicit(&map->root[index], &present, leaf,
                                                memory_order_acq_rel, memory_order_acquire))
        gc_host_mem_count(map->host, LEAF_FIXED_BYTES);
    else
        gc_host_mem_unreserve(leaf, sizeof(*leaf)); /* another thread was faster */
    return GC_OK;
}

enum gc_status gc_pagemap_prepare(struct gc_pagemap *map, uint64_t address, uint64_t bytes)
{
    uint64_t end;
    if (address % GC_GRANULE != 0 || bytes == 0 || !gc_add_u64(address, bytes, &end) ||
        end > UINT64_C(1) << GC_PAGEMAP_ADDRESS_BITS)
        return GC_INVALID_ARGUMENT;
    for (uint64_t i = address >> LEAF_BITS; i <= (end - 1) >> LEAF_BITS; i++) {
        if (leaf_at(map, i) == NULL) {
            const enum gc_status status = add_leaf(map, i);
            if (status != GC_OK)
                return status;
        }
    }
    uint64_t longest = atomic_load_explicit(&map->longest_bytes, memory_order_relaxed);
    while (bytes > longest &&
           !atomic_compare_exchange_weak_explicit(&map->longest_bytes, &longest, bytes,
                                                  memory_order_relaxed, memory_order_relaxed))
        ;
    return GC_OK;
}

/* Words whose writers one lock orders need no read-modify-writes; those would wait until the store
 * of the pointer, often a cache miss, has taken place. */
static inline void count_pages(struct gc_pagemap_leaf *leaf, uint16_t change,
                               enum gc_pagemap_owner owner)
{
    if (owner == GC_PAGEMAP_LEAF)
        atomic_store_explicit(
            &leaf->used_pages,
            (uint16_t)(atomic_load_explicit(&leaf->used_pages, memory_order_relaxed) + change),
            memory_order_release);
    else
        atomic_fetch_add_explicit(&leaf->used_pages, change, memory_order_release);
}

/* A start more, or less (-1), in the page. */
static inline void count_start(struct gc_pagemap_leaf *leaf, uint64_t page, uint16_t change,
                               enum gc_pagemap_owner owner)
{
    _Atomic uint16_t *count = &leaf->page_starts[page];
    uint16_t before;
    if (owner == GC_PAGEMAP_SHARED) {
        /* Other writers of the page find its count raised: by then the leaf's must be, too. */
        if (change == 1)
            count_pages(leaf, 1, owner);
        before = atomic_fetch_add_explicit(count, change, memory_order_release);
        if (change == 1 ? before != 0 : before == 1)
            count_pages(leaf, (uint16_t)-1, owner);
        return;
    }
    before = atomic_load_explicit(count, memory_order_relaxed);
    if (before == 0)
        count_pages(leaf, 1, owner);
    atomic_store_explicit(count, (uint16_t)(before + change), memory_order_release);
    if (change != 1 && before == 1)
        count_pages(leaf, (uint16_t)-1, owner);
}

static inline void write_bit(struct gc_pagemap_leaf *leaf, uint64_t granule, bool is_start,
                             enum gc_pagemap_owner owner)
{
    atomic_uint_fast64_t *word = &leaf->starts[granule / 64];
    const uint64_t bit = UINT64_C(1) << (granule % 64);
    const uint64_t bits = atomic_load_explicit(word, memory_order_relaxed);
    /* Release: a thread that sees the bit sees the pointer. */
    if (owner != GC_PAGEMAP_SHARED)
        atomic_store_explicit(word, is_start ? bits | bit : bits & ~bit, memory_order_release);
    else if (is_start)
        atomic_fetch_or_explicit(word, bit, memory_order_release);
    else
        atomic_fetch_and_explicit(word, ~bit, memory_order_release);
}

static bool has_bit(const struct gc_pagemap_leaf *leaf, uint64_t granule)
{
    const uint64_t bits = atomic_load_explicit(&leaf->starts[granule / 64], memory_order_relaxed);
    return (bits >> (granule % 64) & 1) != 0;
}

/* The counts are raised before a start can be seen, and lowered after it cannot: they are never too
 * low. */
void gc_pagemap_set(struct gc_pagemap *map, uint64_t address, struct gc_block *block,
                    enum gc_pagemap_owner owner)
{
    struct gc_pagemap_leaf *leaf = leaf_at(map, address >> LEAF_BITS);
    GC_ASSERT(leaf != NULL && address % GC_GRANULE == 0);
    const uint64_t granule = address >> GC_GRANULE_BITS & (LEAF_GRANULES - 1);
    const uint64_t page = granule / PAGE_GRANULES;
    if (granule % PAGE_GRANULES == 0) {
        if (atomic_load_explicit(&leaf->firsts[page], memory_order_relaxed) == NULL)
            count_start(leaf, page, 1, owner);
        /* Release: a thread that finds the block sees its record filled in. */
        atomic_store_explicit(&leaf->firsts[page], block, memory_order_release);
        return;
    }
    /* Release: as above. */
    atomic_store_explicit(&leaf->blocks[granule], block, memory_order_release);
    if (has_bit(leaf, granule))
        return;
    count_written(map->host, leaf->blocks_written, granule / POINTERS_PER_HOST_PAGE);
    count_written(map->host, leaf->starts_written, granule / STARTS_PER_HOST_PAGE);
    count_start(leaf, page, 1, owner);
    write_bit(leaf, granule, true, owner);
}

void gc_pagemap_clear(struct gc_pagemap *map, uint64_t address, enum gc_pagemap_owner owner)
{
    struct gc_pagemap_leaf *leaf = leaf_at(map, address >> LEAF_BITS);
    GC_ASSERT(leaf != NULL && address % GC_GRANULE == 0);
    const uint64_t granule = address >> GC_GRANULE_BITS & (LEAF_GRANULES - 1);
    const uint64_t page = granule / PAGE_GRANULES;
    if (granule % PAGE_GRANULES == 0) {
        GC_ASSERT(atomic_load_explicit(&leaf->firsts[page], memory_order_relaxed) != NULL);
        atomic_store_explicit(&leaf->firsts[page], NULL, memory_order_release);
    } else {
        GC_ASSERT(has_bit(leaf, granule));
        write_bit(leaf, granule, false, owner);
        atomic_store_explicit(&leaf->blocks[granule], NULL, memory_order_release);
    }
    count_start(leaf, page, (uint16_t)-1, owner);
}

/* Discards the host pages [first, end) of a table that were written. */
static void drop_pages(struct gc_host_mem *host, void *table, atomic_uint_fast64_t *bits,
                       uint64_t first, uint64_t end)
{
    for (uint64_t i = first; i < end; i++) {
        const uint64_t bit = UINT64_C(1) << (i % 64);
        if ((atomic_load_explicit(&bits[i / 64], memory_order_relaxed) & bit) == 0 ||
            !gc_host_mem_discard((char *)table + i * HOST_PAGE, HOST_PAGE))
            continue;
        atomic_fetch_and_explicit(&bits[i / 64], ~bit, memory_order_relaxed);
        gc_host_mem_uncount(host, HOST_PAGE);
    }
}

/* Discards the host pages that serve only granules [first, end). */
static void drop_granules(struct gc_host_mem *host, struct gc_pagemap_leaf *leaf, uint64_t first,
                          uint64_t end)
{
    drop_pages(host, leaf->blocks, leaf->blocks_written,
               (first + POINTERS_PER_HOST_PAGE - 1) / POINTERS_PER_HOST_PAGE,
               end / POINTERS_PER_HOST_PAGE);
    drop_pages(host, leaf->starts, leaf->starts_written,
               (first + STARTS_PER_HOST_PAGE - 1) / STARTS_PER_HOST_PAGE,
               end / STARTS_PER_HOST_PAGE);
}

void gc_pagemap_drop(struct gc_pagemap *map, uint64_t address, uint64_t bytes)
{
    const uint64_t end = address + bytes;
    for (uint64_t i = address >> LEAF_BITS; i <= (end - 1) >> LEAF_BITS; i++) {
        const uint64_t base = i << LEAF_BITS;
        struct gc_pagemap_leaf *leaf = leaf_at(map, i);
        if (leaf != NULL)
            drop_granules(map->host, leaf, gc_sub_or_zero_u64(address, base) >> GC_GRANULE_BITS,
                          gc_min_u64(end - base, UINT64_C(1) << LEAF_BITS) >> GC_GRANULE_BITS);
    }
}

/* The last granule of [first, last] in a leaf that starts a block; false: none does. */
static bool last_start(const struct gc_pagemap_leaf *leaf, uint64_t first, uint64_t last,
                       uint64_t *granule)
{
    uint64_t mask = UINT64_MAX >> (63 - last % 64);
    for (uint64_t word = last / 64;; word--) {
        /* Acquire: pairs with gc_pagemap_set. */
        const uint64_t bits =
            atomic_load_explicit(&leaf->starts[word], memory_order_acquire) & mask;
        if (bits != 0) {
            *granule = word * 64 + gc_top_bit_u64(bits);
            return true;
        }
        if (word == first / 64)
            return false;
        mask = UINT64_MAX;
    }
}

/* The last block start at or below granule `last` in the page whose first granule is `first`. A
 * start that another thread is clearing has no block any more. */
static struct gc_block *last_in_page(const struct gc_pagemap_leaf *leaf, uint64_t first,
                                     uint64_t last, uint64_t *granule)
{
    while (last_start(leaf, first, last, granule)) {
        struct gc_block *block =
            atomic_load_explicit(&leaf->blocks[*granule], memory_order_acquire);
        if (block != NULL)
            return block;
        last = *granule - 1; /* the first granule has no bit */
    }
    *granule = first;
    return atomic_load_explicit(&leaf->firsts[first / PAGE_GRANULES], memory_order_acquire);
}

/* The last block start at or below granule `last` of a leaf. Skips pages without a start. */
static struct gc_block *last_in_leaf(const struct gc_pagemap_leaf *leaf, uint64_t last,
                                     uint64_t *granule)
{
    if (atomic_load_explicit(&leaf->used_pages, memory_order_acquire) == 0)
        return NULL;
    for (uint64_t page = last / PAGE_GRANULES + 1; page-- > 0;) {
        const uint64_t first = page * PAGE_GRANULES;
        if (atomic_load_explicit(&leaf->page_starts[page], memory_order_acquire) != 0) {
            struct gc_block *block = last_in_page(leaf, first, last, granule);
            if (block != NULL)
                return block;
        }
        last = first - 1; /* not used after page 0 */
    }
    return NULL;
}

struct gc_block *gc_pagemap_find(const struct gc_pagemap *map, uint64_t address, uint64_t *start)
{
    if (address >> GC_PAGEMAP_ADDRESS_BITS != 0)
        return NULL;
    const uint64_t longest = atomic_load_explicit(&map->longest_bytes, memory_order_relaxed);
    const uint64_t lowest = gc_sub_or_zero_u64(address, longest) >> LEAF_BITS;
    uint64_t last = address >> GC_GRANULE_BITS & (LEAF_GRANULES - 1);
    for (uint64_t index = (address >> LEAF_BITS) + 1; index-- > lowest;) {
        const struct gc_pagemap_leaf *leaf = leaf_at(map, index);
        uint64_t granule;
        struct gc_block *block = leaf == NULL ? NULL : last_in_leaf(leaf, last, &granule);
        if (block != NULL) {
            *start = (index << LEAF_BITS) + (granule << GC_GRANULE_BITS);
            return block;
        }
        last = LEAF_GRANULES - 1;
    }
    return NULL;
}
