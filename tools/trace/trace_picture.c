#include "tools/trace/trace_picture.h"

#include <stdlib.h>

struct block {
    uint64_t address;
    uint64_t span; /* from the first of its allocations to the end of the last */
    uint64_t bytes;
    uint64_t count;
    uint32_t site; /* of the largest allocation, which has `largest` bytes */
    uint64_t largest;
};

struct segment {
    struct trace_range range;
    size_t first; /* blocks [first, first + count) */
    size_t count;
    uint64_t live_bytes;
};

struct picture {
    struct segment *segments;
    size_t segment_count;
    struct block *blocks;
    size_t block_count;
    uint64_t merged_below; /* blocks and gaps smaller than this were drawn together; 0: none */
    uint64_t left_out;     /* segments */
};

static int by_address(const void *a, const void *b)
{
    const struct block *left = a;
    const struct block *right = b;
    return (left->address > right->address) - (left->address < right->address);
}

static int by_segment_address(const void *a, const void *b)
{
    const struct segment *left = a;
    const struct segment *right = b;
    return (left->range.address > right->range.address) -
           (left->range.address < right->range.address);
}

static int by_bytes_down(const void *a, const void *b)
{
    const struct segment *left = a;
    const struct segment *right = b;
    return (left->range.bytes < right->range.bytes) - (left->range.bytes > right->range.bytes);
}

/* Makes a segment for each range of the pools, and for each allocation outside them. */
static enum gc_status collect(struct picture *picture, const struct trace_state *state,
                              unsigned device, trace_picture_site *site_of, void *argument)
{
    const struct trace_ledger *ledger = state->ledger;
    const struct trace_space *space = &state->spaces[device];
    picture->blocks = calloc(ledger->count + 1, sizeof(*picture->blocks));
    picture->segments = calloc(space->count + ledger->count + 1, sizeof(*picture->segments));
    if (picture->blocks == NULL || picture->segments == NULL)
        return GC_NO_HOST_MEMORY;
    for (size_t i = 0; i < space->count; i++)
        picture->segments[picture->segment_count++].range = space->ranges[i];
    for (size_t i = 0; i < ledger->capacity; i++) {
        const struct trace_allocation *live = &ledger->slots[i];
        if (live->id == 0 || live->device != device || live->bytes == 0)
            continue;
        picture->blocks[picture->block_count++] = (struct block){
            live->address, live->bytes, live->bytes, 1, site_of(argument, live), live->bytes};
        if (trace_space_find(space, live->address) == NULL)
            picture->segments[picture->segment_count++].range =
                (struct trace_range){live->address, live->bytes, false};
    }
    qsort(picture->blocks, picture->block_count, sizeof(*picture->blocks), by_address);
    return GC_OK;
}

/* Keeps the largest segments if there are too many. */
static void choose_segments(struct picture *picture)
{
    if (picture->segment_count > TRACE_PICTURE_SEGMENTS) {
        qsort(picture->segments, picture->segment_count, sizeof(*picture->segments), by_bytes_down);
        picture->left_out = picture->segment_count - TRACE_PICTURE_SEGMENTS;
        picture->segment_count = TRACE_PICTURE_SEGMENTS;
    }
    qsort(picture->segments, picture->segment_count, sizeof(*picture->segments),
          by_segment_address);
}

/* Assigns blocks to the drawn segments; blocks outside of them are not drawn. */
static void assign_blocks(struct picture *picture)
{
    size_t at = 0;
    for (size_t i = 0; i < picture->segment_count; i++) {
        struct segment *segment = &picture->segments[i];
        while (at < picture->block_count && picture->blocks[at].address < segment->range.address)
            at++;
        segment->first = at;
        for (; at < picture->block_count &&
               picture->blocks[at].address - segment->range.address < segment->range.bytes;
             at++)
            segment->live_bytes += picture->blocks[at].bytes;
        segment->count = at - segment->first;
    }
}

static bool may_merge(const struct block *before, const struct block *block, uint64_t below)
{
    const uint64_t end = before->address + before->span;
    return before->span < below && block->span < below &&
           (block->address <= end || block->address - end < below);
}

static void merge(struct block *into, const struct block *block)
{
    const uint64_t end = block->address + block->span;
    if (end > into->address + into->span)
        into->span = end - into->address;
    into->bytes += block->bytes;
    into->count += block->count;
    if (block->largest > into->largest) {
        into->largest = block->largest;
        into->site = block->site;
    }
}

/* One pass of merging; returns the number of blocks left. */
static size_t merge_blocks(struct picture *picture, uint64_t below)
{
    size_t kept = 0;
    for (size_t i = 0; i < picture->segment_count; i++) {
        struct segment *segment = &picture->segments[i];
        const size_t first = kept;
        for (size_t at = segment->first; at < segment->first + segment->count; at++) {
            const struct block block = picture->blocks[at];
            if (kept > first && may_merge(&picture->blocks[kept - 1], &block, below))
                merge(&picture->blocks[kept - 1], &block);
            else
                picture->blocks[kept++] = block;
        }
        segment->first = first;
        segment->count = kept - first;
    }
    return kept;
}

static void thin_out(struct picture *picture)
{
    size_t count = merge_blocks(picture, 0);
    for (uint64_t below = 1024; count > TRACE_PICTURE_BLOCKS && below < UINT64_MAX / 4;
         below *= 2) {
        count = merge_blocks(picture, below);
        picture->merged_below = below;
    }
    picture->block_count = count;
}

/* [offset in the segment, span, bytes, call site, how many] */
static void write_block(struct gc_json *json, const struct segment *segment,
                        const struct block *block)
{
    gc_json_begin_array(json, GC_JSON_LINE);
    gc_json_uint(json, block->address - segment->range.address);
    gc_json_uint(json, block->span);
    gc_json_uint(json, block->bytes);
    gc_json_uint(json, block->site);
    gc_json_uint(json, block->count);
    gc_json_end_array(json);
}

static void write_segments(const struct picture *picture, struct gc_json *json)
{
    gc_json_write_uint(json, "merged_below_bytes", picture->merged_below);
    gc_json_write_uint(json, "segments_left_out", picture->left_out);
    gc_json_open_array(json, "segments", GC_JSON_LINES);
    for (size_t i = 0; i < picture->segment_count; i++) {
        const struct segment *segment = &picture->segments[i];
        gc_json_begin_object(json, GC_JSON_LINE);
        gc_json_write_hex(json, "address", segment->range.address);
        gc_json_write_uint(json, "bytes", segment->range.bytes);
        gc_json_write_uint(json, "live_bytes", segment->live_bytes);
        gc_json_write_bool(json, "mapped", segment->range.is_pages);
        gc_json_open_array(json, "blocks", GC_JSON_LINE);
        for (size_t at = segment->first; at < segment->first + segment->count; at++)
            write_block(json, segment, &picture->blocks[at]);
        gc_json_end_array(json);
        gc_json_end_object(json);
    }
    gc_json_end_array(json);
}

enum gc_status trace_picture_write(const struct trace_state *state, unsigned device,
                                   trace_picture_site *site_of, void *argument,
                                   struct gc_json *json)
{
    struct picture picture = {.segments = NULL};
    const enum gc_status status = collect(&picture, state, device, site_of, argument);
    if (status == GC_OK) {
        choose_segments(&picture);
        assign_blocks(&picture);
        thin_out(&picture);
        write_segments(&picture, json);
    }
    free(picture.segments);
    free(picture.blocks);
    return status;
}
