/* The block that starts at an address, without a lock and without a search; and the nearest block
 * start at or below an address, for interior pointers.
 *
 * A two-level radix table (as in TCMalloc and jemalloc) over 48-bit addresses in granules of 512
 * bytes. The root has 2^18 pointers, one per GiB. A leaf per used GiB holds one block pointer per
 * granule, one bit per granule that starts a block, and a count of such bits per 2 MiB page. A
 * page's first granule has its pointer in a table of its own, and no bit: large blocks start there,
 * and their pointers lie close together. Root and leaves are reserved addresses that cost memory
 * only where they are written: 4 KiB for each 256 KiB of device memory in which blocks start.
 * Leaves live until the map is destroyed; the written memory of a range is released with the range.
 *
 * Bound of gc_pagemap_find: 64 words of the address's own page, then the page counts below it, at
 * most over the length of the longest segment.
 *
 * The lock of the pool that owns an address orders its writers; different addresses may be written
 * at once. A result is a hint until the reader has checked it again under the pool's lock. */
#ifndef GC_PAGEMAP_H
#define GC_PAGEMAP_H

#include "core/base/host_mem.h"
#include "core/base/status.h"
#include "core/pool/block.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define GC_GRANULE_BITS 9
#define GC_GRANULE (UINT64_C(1) << GC_GRANULE_BITS)
#define GC_PAGEMAP_ADDRESS_BITS 48

#define GC_PAGEMAP_LEAF_BITS 30
#define GC_PAGEMAP_LEAF_GRANULES (UINT64_C(1) << (GC_PAGEMAP_LEAF_BITS - GC_GRANULE_BITS))

#define GC_PAGEMAP_PAGE_BITS 21
#define GC_PAGEMAP_LEAF_PAGES (UINT64_C(1) << (GC_PAGEMAP_LEAF_BITS - GC_PAGEMAP_PAGE_BITS))

/* Starts with the block pointers, which gc_pagemap_get reads: of the pages' first granules, then of
 * all granules. */
struct gc_pagemap_leaf;

struct gc_pagemap {
    struct gc_host_mem *host;
    _Atomic(struct gc_pagemap_leaf *) *root;
    atomic_uint_fast64_t *root_written; /* one bit per host page of the root: counted as written */
    atomic_uint_fast64_t longest_bytes; /* the longest range ever prepared */
};

enum gc_status gc_pagemap_init(struct gc_pagemap *map, struct gc_host_mem *host) GC_CHECKED;
void gc_pagemap_fini(struct gc_pagemap *map);

/* Makes gc_pagemap_set possible in [address, address + bytes). GC_INVALID_ARGUMENT: not
 * granule-aligned or beyond the map's addresses. GC_NO_HOST_MEMORY. No lock may be held. */
enum gc_status gc_pagemap_prepare(struct gc_pagemap *map, uint64_t address,
                                  uint64_t bytes) GC_CHECKED;
/* How much around an address has the same lock for all writers. */
enum gc_pagemap_owner {
    GC_PAGEMAP_SHARED, /* the address alone: right for any address */
    GC_PAGEMAP_PAGE,   /* its 2 MiB, as in mapped memory */
    GC_PAGEMAP_LEAF,   /* its GiB */
};
/* The owner of an address in a range of addresses, in whole pages of 2 MiB, that has one lock. */
static inline enum gc_pagemap_owner gc_pagemap_owner_in(uint64_t address, uint64_t range,
                                                        uint64_t bytes)
{
    const uint64_t leaf = address >> GC_PAGEMAP_LEAF_BITS << GC_PAGEMAP_LEAF_BITS;
    return leaf >= range && leaf + (UINT64_C(1) << GC_PAGEMAP_LEAF_BITS) - range <= bytes
               ? GC_PAGEMAP_LEAF
               : GC_PAGEMAP_PAGE;
}
/* Records that a block starts at `address`, in a prepared range. It may replace another block's
 * record there. */
void gc_pagemap_set(struct gc_pagemap *map, uint64_t address, struct gc_block *block,
                    enum gc_pagemap_owner owner);
/* No block starts at `address` any more, where one did. */
void gc_pagemap_clear(struct gc_pagemap *map, uint64_t address, enum gc_pagemap_owner owner);
/* Releases the memory written for a range in which no block starts. The range must be prepared
 * again before its next use. Call before the driver can reuse the addresses. */
void gc_pagemap_drop(struct gc_pagemap *map, uint64_t address, uint64_t bytes);
/* The block that starts at exactly this address, or NULL. Any address is allowed. */
static inline struct gc_block *gc_pagemap_get(const struct gc_pagemap *map, uint64_t address)
{
    if (address >> GC_PAGEMAP_ADDRESS_BITS != 0 || address % GC_GRANULE != 0)
        return NULL;
    /* Acquire: pairs with the release in add_leaf, so that the leaf is seen as zeroed. */
    const struct gc_pagemap_leaf *leaf =
        atomic_load_explicit(&map->root[address >> GC_PAGEMAP_LEAF_BITS], memory_order_acquire);
    if (leaf == NULL)
        return NULL;
    _Atomic(struct gc_block *) const *firsts = (_Atomic(struct gc_block *) const *)leaf;
    const uint64_t offset = address & ((UINT64_C(1) << GC_PAGEMAP_LEAF_BITS) - 1);
    const uint64_t place = (offset & ((UINT64_C(1) << GC_PAGEMAP_PAGE_BITS) - 1)) == 0
                               ? offset >> GC_PAGEMAP_PAGE_BITS
                               : GC_PAGEMAP_LEAF_PAGES + (offset >> GC_GRANULE_BITS);
    /* Acquire: pairs with gc_pagemap_set. */
    return atomic_load_explicit(&firsts[place], memory_order_acquire);
}
/* The block with the highest start at or below `address`, and that start; or NULL. The block need
 * not contain `address`. */
struct gc_block *gc_pagemap_find(const struct gc_pagemap *map, uint64_t address, uint64_t *start);

#endif
