/* A hash table from names to numbers, for names of anyone's making: the hash is keyed, so nobody
 * can choose names that collide. Open addressing, at most two thirds full. The names are borrowed.
 */
#ifndef GC_STRMAP_H
#define GC_STRMAP_H

#include "core/base/region.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gc_strmap_entry {
    const char *text; /* closed by NUL; NULL: an empty place */
    uint32_t hash;
    uint32_t value;
};

struct gc_strmap {
    struct gc_strmap_entry *places; /* a power of two of them */
    uint32_t place_count;
    uint32_t used;
    uint64_t key[2];
};

/* An empty table, for which no memory is taken yet. */
void gc_strmap_init(struct gc_strmap *map);
/* The entry of that name, to read or change its value; NULL if there is none. Entries move when a
 * name is added. */
struct gc_strmap_entry *gc_strmap_find(const struct gc_strmap *map, const char *text,
                                       size_t length);
/* The entry of that name; one is made if there is none, and *added is true: the caller then sees to
 * it that its text is one that stays, closed by NUL. NULL: no memory. */
struct gc_strmap_entry *gc_strmap_find_or_add(struct gc_strmap *map, struct gc_region *region,
                                              const char *text, size_t length, bool *added);
/* The same in steps, for many names: the table's memory is on its way while something else is done.
 * A hash is good as long as the table lives. */
uint32_t gc_strmap_hash(const struct gc_strmap *map, const char *text, size_t length);
void gc_strmap_prefetch(const struct gc_strmap *map, uint32_t hash);
void gc_strmap_prefetch_text(const struct gc_strmap *map, uint32_t hash);
struct gc_strmap_entry *gc_strmap_find_hashed(const struct gc_strmap *map, const char *text,
                                              size_t length, uint32_t hash);
struct gc_strmap_entry *gc_strmap_find_or_add_hashed(struct gc_strmap *map,
                                                     struct gc_region *region, const char *text,
                                                     size_t length, uint32_t hash, bool *added);
/* Puts a name that is known not to be there. False: no memory. */
bool gc_strmap_add(struct gc_strmap *map, struct gc_region *region, const char *text, size_t length,
                   uint32_t value);

#endif
