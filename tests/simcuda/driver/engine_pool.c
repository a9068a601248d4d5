/* Memory that keeps its type, so that the magic number of a stale handle can always be read. */
#include "tests/simcuda/driver/engine.h"

#include <stdlib.h>
#include <string.h>

#define SIM_POOL_DELAY 256 /* objects that wait before the first is used again */

struct engine_pool_link {
    struct engine_pool_link *next;
    uint64_t padding; /* keeps objects aligned to 16 */
};

void *engine_pool_take(struct engine_pool *pool)
{
    struct engine_pool_link *link;

    if (pool->idle_count > SIM_POOL_DELAY) {
        link = pool->head;
        pool->head = link->next;
        pool->idle_count--;
        return link + 1;
    }
    link = calloc(1, sizeof *link + pool->object_bytes);
    return link ? link + 1 : NULL;
}

void engine_pool_give(struct engine_pool *pool, void *object)
{
    struct engine_pool_link *link = (struct engine_pool_link *)object - 1;

    *(uint32_t *)object = SIM_MAGIC_DEAD;
    link->next = NULL;
    if (pool->idle_count++ > 0)
        pool->tail->next = link;
    else
        pool->head = link;
    pool->tail = link;
}

bool engine_grow(void **array, size_t *capacity, size_t count, size_t element_bytes)
{
    if (count < *capacity)
        return true;
    size_t larger = *capacity ? *capacity * 2 : 8;
    void *moved = realloc(*array, larger * element_bytes);
    if (!moved)
        return false;
    *array = moved;
    *capacity = larger;
    return true;
}
