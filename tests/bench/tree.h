/* The structure that deep learning frameworks keep device memory in: best fit in an ordered tree of
 * free blocks, one mutex around it, a sharded hash map from pointer to block. Written for the
 * comparison: an address space and no memory behind it. Thread-safe. */
#ifndef BENCH_TREE_H
#define BENCH_TREE_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

void *tree_alloc(size_t bytes);
void tree_free(void *address);

#ifdef __cplusplus
}
#endif

#endif
