#include "tools/trace/trace_blocks.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum gc_status trace_blocks_init(struct trace_blocks *blocks)
{
    *blocks = (struct trace_blocks){.blocks = calloc(TRACE_BLOCKS_MAX, sizeof(*blocks->blocks))};
    return blocks->blocks != NULL ? GC_OK : GC_NO_HOST_MEMORY;
}

void trace_blocks_fini(struct trace_blocks *blocks)
{
    free(blocks->blocks);
    *blocks = (struct trace_blocks){.blocks = NULL};
}

static void sift_down(struct trace_blocks *blocks)
{
    struct trace_block *heap = blocks->blocks;
    const struct trace_block moved = heap[0];
    size_t at = 0;
    for (size_t child = 1; child < blocks->count; child = 2 * at + 1) {
        if (child + 1 < blocks->count && heap[child + 1].area < heap[child].area)
            child++;
        if (heap[child].area >= moved.area)
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = moved;
}

void trace_blocks_add(struct trace_blocks *blocks, const struct trace_allocation *allocation,
                      uint32_t site, uint64_t until_ns, bool is_freed)
{
    struct trace_block *heap = blocks->blocks;
    const uint64_t life_ns = until_ns > allocation->begin_ns ? until_ns - allocation->begin_ns : 0;
    const struct trace_block block = {.allocation = *allocation,
                                      .end_ns = is_freed ? until_ns : UINT64_MAX,
                                      .area = (double)allocation->bytes * (double)(life_ns + 1),
                                      .site = site};
    if (blocks->count == TRACE_BLOCKS_MAX) {
        blocks->left_out++;
        if (block.area > heap[0].area) {
            heap[0] = block;
            sift_down(blocks);
        }
        return;
    }
    size_t at = blocks->count++;
    for (; at > 0 && heap[(at - 1) / 2].area > block.area; at = (at - 1) / 2)
        heap[at] = heap[(at - 1) / 2];
    heap[at] = block;
}

static int by_id(const void *a, const void *b)
{
    const struct trace_block *left = a;
    const struct trace_block *right = b;
    return (left->allocation.id > right->allocation.id) -
           (left->allocation.id < right->allocation.id);
}

void trace_blocks_write(struct trace_blocks *blocks, struct gc_json *json)
{
    char address[24];
    qsort(blocks->blocks, blocks->count, sizeof(*blocks->blocks), by_id);
    gc_json_write_uint(json, "blocks_left_out", blocks->left_out);
    gc_json_open_array(json, "blocks", GC_JSON_LINE);
    for (size_t i = 0; i < blocks->count; i++) {
        const struct trace_block *block = &blocks->blocks[i];
        gc_json_begin_array(json, GC_JSON_LINE);
        gc_json_uint(json, block->allocation.begin_ns);
        if (block->end_ns == UINT64_MAX)
            gc_json_null(json);
        else
            gc_json_uint(json, block->end_ns);
        gc_json_uint(json, block->allocation.bytes);
        gc_json_uint(json, block->site);
        snprintf(address, sizeof(address), "0x%" PRIx64, block->allocation.address);
        gc_json_string(json, address);
        gc_json_uint(json, block->allocation.thread);
        gc_json_uint(json, block->allocation.stream);
        gc_json_end_array(json);
    }
    gc_json_end_array(json);
}
