/* A hash table from names to numbers. Names may come from hostile input: the hash is keyed
 * (SipHash-1-3), so no input can choose names that collide. Open addressing, at most two thirds
 * full. The names are borrowed. */
#ifndef GC_STRMAP_H
#define GC_STRMAP_H

#include "core/base/region.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gc_strmap_entry {
    const char *text; /* ends with NUL; NULL: an empty slot */
    uint32_t hash;
    uint32_t value;
};

struct gc_strmap {
    struct gc_strmap_entry *slots; /* a power of two of them */
    uint32_t slot_count;
    uint32_t used;
    uint64_t key[2];
};

/* An empty table, without memory yet. */
void gc_strmap_init(struct gc_strmap *map);
/* The entry of the name, to read or change its value; NULL if there is none. Adding a name moves
 * entries. */
struct gc_strmap_entry *gc_strmap_find(const struct gc_strmap *map, const char *text,
                                       size_t length);
/* The entry of the name. If the name is new, *added is true, and the caller replaces the entry's
 * text by a lasting copy that ends with NUL. NULL: no memory. */
struct gc_strmap_entry *gc_strmap_find_or_add(struct gc_strmap *map, struct gc_region *region,
                                              const char *text, size_t length, bool *added);
/* The steps of find and find_or_add, for many names: prefetch the table's memory, do other work,
 * look up. A hash is valid as long as the table exists. */
uint32_t gc_strmap_hash(const struct gc_strmap *map, const char *text, size_t length);
void gc_strmap_prefetch(const struct gc_strmap *map, uint32_t hash);
void gc_strmap_prefetch_text(const struct gc_strmap *map, uint32_t hash);
struct gc_strmap_entry *gc_strmap_find_hashed(const struct gc_strmap *map, const char *text,
                                              size_t length, uint32_t hash);
struct gc_strmap_entry *gc_strmap_find_or_add_hashed(struct gc_strmap *map,
                                                     struct gc_region *region, const char *text,
                                                     size_t length, uint32_t hash, bool *added);
/* Adds a name that is not in the table. False: no memory. */
bool gc_strmap_add(struct gc_strmap *map, struct gc_region *region, const char *text, size_t length,
                   uint32_t value);

#endif
