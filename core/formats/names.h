/* A hash table from names to numbers, for names of anyone's making: the hash is keyed, so nobody
 * can choose names that collide. Open addressing, at most two thirds full. The names are borrowed.
 */
#ifndef GC_FORMATS_NAMES_H
#define GC_FORMATS_NAMES_H

#include "core/region.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gc_name {
    const char *text; /* NULL: an empty place */
    uint32_t length;
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
/* The entry of that name, to read or change its value; NULL if there is none. */
struct gc_name *gc_names_find(const struct gc_names *names, const char *text, size_t length);
/* Adds a name that is not there. False: no memory. */
bool gc_names_add(struct gc_names *names, struct gc_region *region, const char *text, size_t length,
                  uint32_t value);

#endif
