/* A hash table from names to numbers, for names of anyone's making: the hash is keyed, so nobody
 * can choose names that collide. Open addressing, at most two thirds full. The names are borrowed.
 */
#ifndef GC_NAMES_H
#define GC_NAMES_H

#include "core/base/region.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gc_name {
    const char *text; /* closed by NUL; NULL: an empty place */
    uint32_t hash;
    uint32_t value;
};

struct gc_names {
    struct gc_name *places; /* a power of two of them */
    uint32_t place_count;
    uint32_t used;
    uint64_t key[2];
};

/* An empty table, for which no memory is taken yet. */
void gc_names_init(struct gc_names *names);
/* The entry of that name, to read or change its value; NULL if there is none. Entries move when a
 * name is added. */
struct gc_name *gc_names_find(const struct gc_names *names, const char *text, size_t length);
/* The entry of that name; one is made if there is none, and *added is true: the caller then sees to
 * it that its text is one that stays, closed by NUL. NULL: no memory. */
struct gc_name *gc_names_put(struct gc_names *names, struct gc_region *region, const char *text,
                             size_t length, bool *added);
/* The same in steps, for many names: the table's memory is on its way while something else is done.
 * A hash is good as long as the table lives. */
uint32_t gc_names_hash(const struct gc_names *names, const char *text, size_t length);
void gc_names_prefetch(const struct gc_names *names, uint32_t hash);
void gc_names_prefetch_text(const struct gc_names *names, uint32_t hash);
struct gc_name *gc_names_find_hashed(const struct gc_names *names, const char *text, size_t length,
                                     uint32_t hash);
struct gc_name *gc_names_put_hashed(struct gc_names *names, struct gc_region *region,
                                    const char *text, size_t length, uint32_t hash, bool *added);
/* Puts a name that is known not to be there. False: no memory. */
bool gc_names_add(struct gc_names *names, struct gc_region *region, const char *text, size_t length,
                  uint32_t value);

#endif
