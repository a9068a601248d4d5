/* How copies run: one form for all of them, three-dimensional, from memory or array to memory or
 * array.
 *
 * Accesses are checked when the copy runs, over its whole range, and nothing can be unmapped until
 * it is done. The time at which a call returns follows NVIDIA's "API synchronization behavior":
 * copies between device memory do not wait; pageable memory is staged or waited for; everything
 * else that is not Async waits. */
#include "memory.h"

#include <stdlib.h>
#include <string.h>

#define STAGED_BYTES (UINT64_C(64) << 10) /* pageable sources up to this are copied at the call */

struct job {
    struct sim_copy copy;
    void *staged;
    uint64_t queued_ns; /* 0: not known */
};

/* Where the rows of a side are, arrays resolved. */
struct rows {
    uint64_t base, pitch, slice;
};

static bool locate(const struct sim_side *side, const struct sim_copy *copy, struct rows *rows)
{
    struct sim_surface surface;

    if (side->array == NULL) {
        *rows = (struct rows){side->address, side->pitch, side->slice};
        return true;
    }
    if (!sim_array_surface(side->array, &surface) || side->x + copy->width > surface.row_bytes ||
        side->y + copy->height > surface.rows || side->z + copy->depth > surface.slices)
        return false;
    rows->pitch = surface.row_bytes;
    rows->slice = surface.row_bytes * surface.rows;
    rows->base = surface.address + side->z * rows->slice + side->y * rows->pitch + side->x;
    return true;
}

static uint64_t row_address(const struct rows *rows, uint64_t y, uint64_t z)
{
    return rows->base + z * rows->slice + y * rows->pitch;
}

/* Arrays need no check: they cannot be reached but by their handle. */
static bool is_side_accessible(struct sim_context *context, const struct sim_side *side,
                               const struct rows *rows, const struct sim_copy *copy, bool is_write)
{
    uint64_t last = row_address(rows, copy->height - 1, copy->depth - 1) + copy->width;

    if (side->array != NULL)
        return true;
    if (side->context != NULL)
        context = side->context;
    if (sim_range_is_accessible(context, rows->base, last - rows->base, is_write) ||
        sim_pool_owns_on_host(rows->base, last - rows->base))
        return true;
    for (uint64_t z = 0; z < copy->depth; z++)
        for (uint64_t y = 0; y < copy->height; y++)
            if (!sim_range_is_accessible(context, row_address(rows, y, z), copy->width, is_write))
                return false;
    return true;
}

static bool is_accessible(struct sim_context *context, const struct sim_copy *copy,
                          const struct rows *from, const struct rows *to)
{
    bool is_good;

    pthread_mutex_lock(&sim_memory_lock);
    is_good = is_side_accessible(context, &copy->from, from, copy, false) &&
              is_side_accessible(context, &copy->to, to, copy, true);
    pthread_mutex_unlock(&sim_memory_lock);
    return is_good;
}

static void move(const struct sim_copy *copy, const struct rows *from, const struct rows *to)
{
    for (uint64_t z = 0; z < copy->depth; z++)
        for (uint64_t y = 0; y < copy->height; y++)
            sim_sparse_move(row_address(to, y, z), row_address(from, y, z), copy->width);
}

/* Whether the copy goes over the link. Managed memory counts as the device's. */
static bool find_direction(const struct sim_copy *copy, enum sim_direction *direction)
{
    const bool is_in = sim_side_is_far(&copy->from);

    *direction = is_in ? SIM_IN : SIM_OUT;
    return sim_settings()->link[*direction] != 0 && is_in != sim_side_is_far(&copy->to);
}

static CUresult run_copy(struct sim_context *context, const struct sim_copy *copy,
                         uint64_t queued_ns)
{
    const uint64_t start_ns = sim_link_start_ns(queued_ns);
    struct rows from, to;
    enum sim_direction direction;
    bool has_link = false, is_pageable = false;
    CUresult result = CUDA_ERROR_ILLEGAL_ADDRESS;

    if (copy->width == 0 || copy->height == 0 || copy->depth == 0)
        return CUDA_SUCCESS;
    sim_use_begin();
    if (locate(&copy->from, copy, &from) && locate(&copy->to, copy, &to) &&
        is_accessible(context, copy, &from, &to)) {
        move(copy, &from, &to);
        result = CUDA_SUCCESS;
        has_link = find_direction(copy, &direction);
        is_pageable = sim_side_is_pageable(&copy->from) || sim_side_is_pageable(&copy->to);
    }
    sim_use_end();
    if (has_link)
        sim_link_pass(context->device, direction, copy->width * copy->height * copy->depth,
                      is_pageable, start_ns);
    return result;
}

static CUresult run_job(struct sim_context *context, void *argument)
{
    const struct job *job = argument;

    return run_copy(context, &job->copy, job->queued_ns);
}

static void release_job(void *argument)
{
    struct job *job = argument;

    free(job->staged);
    free(job);
}

static void *duplicate_job(const void *argument)
{
    struct job *job = malloc(sizeof *job);

    if (job != NULL)
        *job = *(const struct job *)argument; /* never staged: jobs of a capture are not */
    if (job != NULL)
        job->queued_ns = 0;
    return job;
}

/* The copy's error now: for calls that report before they return. */
static CUresult check_now(struct sim_context *context, const struct sim_copy *copy)
{
    struct rows from, to;

    if (copy->width == 0 || copy->height == 0 || copy->depth == 0)
        return CUDA_SUCCESS;
    if (!locate(&copy->from, copy, &from) || !locate(&copy->to, copy, &to) ||
        !is_accessible(context, copy, &from, &to))
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

/* Errors that no later moment could mend: no address, or texels outside of the array. */
static CUresult check_sides(const struct sim_copy *copy)
{
    struct rows rows;

    if (copy->width == 0 || copy->height == 0 || copy->depth == 0)
        return CUDA_SUCCESS;
    if ((copy->from.array == NULL && copy->from.address == 0) ||
        (copy->to.array == NULL && copy->to.address == 0))
        return CUDA_ERROR_INVALID_VALUE;
    if (copy->from.array != NULL && !locate(&copy->from, copy, &rows))
        return CUDA_ERROR_INVALID_VALUE;
    if (copy->to.array != NULL && !locate(&copy->to, copy, &rows))
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

/* Whether the caller may go on only when the copy is done. Stages a small pageable source instead.
 * SYNC_MEMOPS, of memory or context, is about copies that are not Async. */
static bool must_wait(struct sim_context *context, struct job *job, struct sim_order order)
{
    struct sim_copy *copy = &job->copy;
    bool from_host = sim_side_is_host(&copy->from);
    bool to_host = sim_side_is_host(&copy->to);
    uint64_t bytes = copy->width;

    if (order.is_sync)
        return from_host || to_host || sim_side_is_synchronous(&copy->from) ||
               sim_side_is_synchronous(&copy->to) || sim_context_is_synchronous(context);
    if (sim_side_is_pageable(&copy->to) || (from_host && to_host))
        return true;
    if (!sim_side_is_pageable(&copy->from))
        return false;
    if (copy->height != 1 || copy->depth != 1 || bytes > STAGED_BYTES)
        return true;
    job->staged = malloc(bytes);
    if (job->staged == NULL)
        return true;
    memcpy(job->staged, (const void *)(uintptr_t)copy->from.address, bytes); /* NOLINT */
    copy->from.address = (uint64_t)(uintptr_t)job->staged;
    return false;
}

/* A source that is not there cannot be staged; the operation will report it. */
static bool is_readable(struct sim_context *context, const struct sim_copy *copy)
{
    return check_now(context, copy) == CUDA_SUCCESS;
}

/* Whether the owner of the memory reaches it and the context that copies does not. */
static bool is_foreign(struct sim_context *context, const struct sim_side *side,
                       const struct sim_copy *copy, bool is_write)
{
    struct rows rows;
    bool is_foreign = false;

    if (side->array != NULL || side->context != NULL || !locate(side, copy, &rows))
        return false;
    pthread_mutex_lock(&sim_memory_lock);
    if (!is_side_accessible(context, side, &rows, copy, is_write))
        for (int i = 0; i < sim_settings()->device_count && !is_foreign; i++) {
            struct sim_context owner = {.device = sim_device(i)};

            is_foreign = is_side_accessible(&owner, side, &rows, copy, is_write);
        }
    pthread_mutex_unlock(&sim_memory_lock);
    return is_foreign;
}

/* Mapped memory and pools' memory of a device that is no peer is copied by calls that name both
 * contexts alone; others refuse it at once (llama.cpp#4606). Plain memory goes through the host. */
static CUresult check_peers(struct sim_context *context, const struct sim_copy *copy)
{
    if (sim_settings()->has_peers || copy->width == 0 || copy->height == 0 || copy->depth == 0)
        return CUDA_SUCCESS;
    return is_foreign(context, &copy->from, copy, false) ||
                   is_foreign(context, &copy->to, copy, true)
               ? CUDA_ERROR_INVALID_VALUE
               : CUDA_SUCCESS;
}

static CUresult prepare(const struct sim_copy *copy, struct sim_order order,
                        struct sim_context **context, struct sim_stream **stream)
{
    CUresult result = sim_current(context);

    if (result == CUDA_SUCCESS)
        result = sim_stream_resolve(order.stream, order.per_thread, stream);
    if (result == CUDA_SUCCESS && order.is_sync)
        result = sim_check_unsafe_call(*context);
    if (result == CUDA_SUCCESS)
        result = check_sides(copy);
    if (result == CUDA_SUCCESS)
        result = check_peers(*context, copy);
    if (result == CUDA_SUCCESS && order.is_sync)
        result = check_now(*context, copy);
    if (result == CUDA_SUCCESS)
        result = sim_lazy_kernels(*context, false);
    return result;
}

CUresult sim_copy_submit(const struct sim_copy *copy, struct sim_order order)
{
    struct sim_op op = {.run = run_job, .release = release_job};
    struct sim_context *context;
    struct sim_stream *stream;
    struct job *job;
    bool waits = false;
    CUresult result = prepare(copy, order, &context, &stream);

    if (result != CUDA_SUCCESS || copy->width == 0 || copy->height == 0 || copy->depth == 0)
        return result;
    job = calloc(1, sizeof *job);
    if (job == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    job->copy = *copy;
    job->queued_ns = sim_link_now_ns();
    if (!sim_stream_is_capturing(stream) && is_readable(context, copy))
        waits = must_wait(context, job, order);
    op.argument = job;
    result = sim_submit(stream, op, duplicate_job, CU_GRAPH_NODE_TYPE_MEMCPY);
    if (result == CUDA_SUCCESS && waits)
        result = sim_stream_wait(stream);
    else if (result == CUDA_SUCCESS && order.is_sync)
        sim_stream_note_synchronous(stream);
    return result;
}

CUresult sim_copy_linear(struct sim_side to, struct sim_side from, uint64_t bytes,
                         struct sim_order order)
{
    const struct sim_copy copy = {.from = from, .to = to, .width = bytes, .height = 1, .depth = 1};

    return sim_copy_submit(&copy, order);
}

CUresult sim_memory_copy_3d(struct sim_context *context, const CUDA_MEMCPY3D *descriptor)
{
    struct sim_copy copy;
    CUresult result = sim_copy_parse(descriptor, &copy);

    return result == CUDA_SUCCESS ? run_copy(context, &copy, 0) : result;
}

/* ---- what memory a side is ---- */

/* Memory of a host or managed pool is as other host or managed memory. */
static bool find_kind(uint64_t address, enum sim_kind *kind)
{
    struct sim_block *block;

    pthread_mutex_lock(&sim_memory_lock);
    block = sim_block_find(address);
    if (block != NULL)
        *kind = block->kind;
    if (block != NULL && block->pool != NULL && sim_pool_is_host(block->pool))
        *kind = SIM_HOST;
    if (block != NULL && block->pool != NULL && sim_pool_is_managed(block->pool))
        *kind = SIM_MANAGED;
    pthread_mutex_unlock(&sim_memory_lock);
    return block != NULL;
}

static bool is_in_space(uint64_t address)
{
    bool is_inside;

    pthread_mutex_lock(&sim_memory_lock);
    is_inside = sim_space_contains(address);
    pthread_mutex_unlock(&sim_memory_lock);
    return is_inside;
}

bool sim_side_is_pageable(const struct sim_side *side)
{
    enum sim_kind kind;

    return side->array == NULL && !find_kind(side->address, &kind) && !is_in_space(side->address);
}

/* Physical memory of the host behind an address that is no block's. */
static bool is_host_mapping(uint64_t address)
{
    struct sim_mapping_info info;
    bool is_host;

    pthread_mutex_lock(&sim_memory_lock);
    is_host =
        sim_mapping_query(address, 0, &info) && info.is_mapped && info.physical->device == NULL;
    pthread_mutex_unlock(&sim_memory_lock);
    return is_host;
}

bool sim_side_is_far(const struct sim_side *side)
{
    enum sim_kind kind;

    if (side->array != NULL)
        return false;
    if (find_kind(side->address, &kind))
        return kind == SIM_HOST || kind == SIM_REGISTERED;
    return !is_in_space(side->address) || is_host_mapping(side->address);
}

bool sim_side_is_host(const struct sim_side *side)
{
    enum sim_kind kind;

    return sim_side_is_far(side) ||
           (side->array == NULL && find_kind(side->address, &kind) && kind == SIM_MANAGED);
}

bool sim_side_is_synchronous(const struct sim_side *side)
{
    struct sim_block *block;
    bool is_synchronous;

    if (side->array != NULL)
        return false;
    pthread_mutex_lock(&sim_memory_lock);
    block = sim_block_find(side->address);
    is_synchronous = block != NULL && block->sync_memops;
    pthread_mutex_unlock(&sim_memory_lock);
    return is_synchronous;
}
