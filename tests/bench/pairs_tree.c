/* link: -lstdc++ */
/* Pairs of a best-fit tree behind one mutex. */
#include "tests/bench/tree.h"

#include "tests/bench/pairs.h"

static void *pair_alloc(size_t bytes)
{
    return tree_alloc(bytes);
}

static void pair_free(void *block)
{
    tree_free(block);
}

static void pair_start(void)
{
    pair_free(pair_alloc(512));
}
