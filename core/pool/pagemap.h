/* From an address to the block that starts there, without a search and without a lock; and to the
 * nearest block at or below an address, for interior pointers.
 *
 * Structure: addresses of 48 bits in granules of 512 bytes. A root of 2^18 pointers, one for each
 * GiB; a leaf per GiB in use holds one block pointer per granule and, for the second question, one
 * bit per granule that starts a block and a count of such bits per 2 MiB page. Root and leaves are
 * address space that costs memory only where it is written: 4 KiB for each 256 KiB of device memory
 * in which blocks start. Leaves live until the map ends; what was written of them goes with the
 * range of addresses it is for.
 *
 * Bound of gc_pagemap_find: 64 words of the page asked for, then the page counts below it, at most
 * as far as the longest segment reaches.
 *
 * Writers of one address are ordered by the lock of the pool that owns it; different addresses may
 * be written at once. A reader that needs more than a hint looks again under the pool's lock. */
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

/* Begins with the block pointers, which gc_pagemap_get reads. */
struct gc_pagemap_leaf;

struct gc_pagemap {
    struct gc_host_mem *host;
    _Atomic(struct gc_pagemap_leaf *) *root;
    atomic_uint_fast64_t *root_written; /* bit: this page of the root is counted */
    atomic_uint_fast64_t longest_bytes; /* of all ranges ever prepared */
};

enum gc_status gc_pagemap_init(struct gc_pagemap *map, struct gc_host_mem *host) GC_CHECKED;
void gc_pagemap_fini(struct gc_pagemap *map);

/* Makes gc_pagemap_set possible in [address, address + bytes). GC_INVALID_ARGUMENT: not
 * granule-aligned or beyond the map's addresses. GC_NO_HOST_MEMORY. Holds no lock. */
enum gc_status gc_pagemap_prepare(struct gc_pagemap *map, uint64_t address,
                                  uint64_t bytes) GC_CHECKED;
/* A block starts at `address` now: a prepared one, where none starts yet or another one does. */
void gc_pagemap_set(struct gc_pagemap *map, uint64_t address, struct gc_block *block);
void gc_pagemap_clear(struct gc_pagemap *map, uint64_t address);
/* No block starts in the range any more, and none will before it is prepared again: the memory
 * written for it goes back. Before somebody else can have the addresses. */
void gc_pagemap_drop(struct gc_pagemap *map, uint64_t address, uint64_t bytes);
/* The block that starts at exactly this address, or NULL. Any address may be asked for. */
static inline struct gc_block *gc_pagemap_get(const struct gc_pagemap *map, uint64_t address)
{
    if (address >> GC_PAGEMAP_ADDRESS_BITS != 0 || address % GC_GRANULE != 0)
        return NULL;
    /* Acquire: pairs with the release in add_leaf, so that the leaf is seen as zeroed. */
    const struct gc_pagemap_leaf *leaf =
        atomic_load_explicit(&map->root[address >> GC_PAGEMAP_LEAF_BITS], memory_order_acquire);
    if (leaf == NULL)
        return NULL;
    _Atomic(struct gc_block *) const *blocks = (_Atomic(struct gc_block *) const *)leaf;
    /* Acquire: pairs with gc_pagemap_set. */
    return atomic_load_explicit(
        &blocks[address >> GC_GRANULE_BITS & (GC_PAGEMAP_LEAF_GRANULES - 1)], memory_order_acquire);
}
/* The block with the highest start at or below `address`, and that start; or NULL. It need not
 * reach as far as `address`. */
struct gc_block *gc_pagemap_find(const struct gc_pagemap *map, uint64_t address, uint64_t *start);

#endif
