#include "core/base/sort.h"

static void sift(uint64_t *heap, uint32_t at, uint32_t count)
{
    const uint64_t key = heap[at];
    for (uint32_t child = 2 * at + 1; child < count; child = 2 * at + 1) {
        if (child + 1 < count && heap[child + 1] > heap[child])
            child++;
        if (heap[child] <= key)
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = key;
}

void gc_sort_keys(uint64_t *keys, uint32_t count)
{
    for (uint32_t i = count / 2; i-- > 0;)
        sift(keys, i, count);
    for (uint32_t i = count; i-- > 1;) {
        const uint64_t key = keys[0];
        keys[0] = keys[i];
        keys[i] = key;
        sift(keys, 0, i);
    }
}
