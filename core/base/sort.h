/* Heapsort of 64-bit keys: in place, O(n log n) for every order of the input. */
#ifndef GC_SORT_H
#define GC_SORT_H

#include <stdint.h>

/* Sorts the keys in rising order. */
void gc_sort_keys(uint64_t *keys, uint32_t count);

#endif
