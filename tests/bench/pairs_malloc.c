/* Pairs of malloc and free of host memory: the C library's, or, preloaded, mimalloc's. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/bench/pairs.h"

/* By pointer, so that no compiler takes a pair for nothing. */
static void *(*volatile host_malloc)(size_t) = malloc;
static void (*volatile host_free)(void *) = free;

static void *pair_alloc(size_t bytes)
{
    void *block = host_malloc(bytes);
    if (block == NULL)
        exit(EXIT_FAILURE);
    return block;
}

static void pair_free(void *block)
{
    host_free(block);
}

static void pair_start(void)
{
    pair_free(pair_alloc(512));
}
