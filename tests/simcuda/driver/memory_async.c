/* Stream-ordered allocation: cuMemAllocAsync, cuMemAllocFromPoolAsync, cuMemFreeAsync, on a stream
 * or captured. */
#include "memory_pool.h"

#include <stdlib.h>

/* ---- in a capture: an allocation or free node ---- */

/* Memory of a captured allocation: lives while a graph refers to it. */
struct captured {
    atomic_int references;
    struct sim_context *context;
    uint64_t address;
    bool is_free; /* the node frees */
};

static CUresult run_captured(struct sim_context *context, void *argument)
{
    const struct captured *captured = argument;

    return captured->is_free ? sim_memory_graph_uncommit(context, captured->address)
                             : sim_memory_graph_commit(context, captured->address);
}

static void release_captured(void *argument)
{
    struct captured *captured = argument;

    if (atomic_fetch_sub_explicit(&captured->references, 1, memory_order_acq_rel) != 1)
        return;
    if (!captured->is_free)
        sim_memory_graph_forget(captured->context, captured->address);
    free(captured);
}

static void *share_captured(const void *argument)
{
    struct captured *captured = (struct captured *)(uintptr_t)argument;

    atomic_fetch_add_explicit(&captured->references, 1, memory_order_relaxed);
    return captured;
}

static CUresult capture_node(struct sim_stream *stream, uint64_t address, bool is_free)
{
    struct sim_op op = {.run = run_captured, .release = release_captured, .is_instant = true};
    struct captured *captured = calloc(1, sizeof *captured);

    if (captured == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    captured->references = 1;
    captured->context = sim_stream_context(stream);
    captured->address = address;
    captured->is_free = is_free;
    op.argument = captured;
    return sim_submit(stream, op, share_captured,
                      is_free ? CU_GRAPH_NODE_TYPE_MEM_FREE : CU_GRAPH_NODE_TYPE_MEM_ALLOC);
}

static CUresult capture_allocation(struct sim_stream *stream, uint64_t bytes, uint64_t *address)
{
    CUresult result = sim_memory_graph_reserve(sim_stream_context(stream), bytes, address);

    return result == CUDA_SUCCESS ? capture_node(stream, *address, false) : result;
}

/* ---- on a stream: a context need not be current, unless the stream is a default one ---- */

static CUresult take_locked(struct sim_pool *pool, struct sim_block *block, uint64_t bytes,
                            struct sim_stream *stream)
{
    uint64_t address;
    CUresult result = sim_pool_allot(pool, block->span, stream, &address);

    if (result != CUDA_SUCCESS)
        return result;
    block->pool = pool;
    if (pool->device != NULL)
        block->device = pool->device;
    pool->block_count++;
    pool->used_bytes += block->span;
    if (pool->used_bytes > pool->used_high)
        pool->used_high = pool->used_bytes;
    sim_block_insert(block, address, bytes);
    return CUDA_SUCCESS;
}

/* Frees memory when the device is full: waits for one stream's frees, or releases free pages so
 * that they can come again in one piece. False when there is nothing left to try. */
static bool free_up(CUmemoryPool handle)
{
    struct sim_stream *stream = NULL;
    struct sim_pool *pool;
    bool has_changed = false;

    pthread_rwlock_wrlock(&sim_use_lock);
    pthread_mutex_lock(&sim_memory_lock);
    pool = sim_pool_find(handle);
    if (pool != NULL) {
        uint64_t reserved = pool->reserved_bytes;

        sim_pool_reap(pool);
        sim_pool_trim(pool, 0);
        has_changed = pool->reserved_bytes != reserved;
        if (!has_changed && pool->adds_dependencies)
            stream = sim_pool_pending_stream(pool);
    }
    pthread_mutex_unlock(&sim_memory_lock);
    pthread_rwlock_unlock(&sim_use_lock);
    return has_changed || (stream != NULL && sim_stream_wait(stream) == CUDA_SUCCESS);
}

/* `handle` NULL: the device's current pool. */
static CUresult take(CUmemoryPool handle, struct sim_stream *stream, uint64_t bytes,
                     uint64_t *address)
{
    struct sim_block *block = sim_block_new(SIM_POOLED, sim_stream_context(stream));
    struct sim_pool *pool;
    uint64_t position;
    CUresult result;

    if (block == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    block->span = sim_round_up(bytes, SIM_UNIT);
    pthread_mutex_lock(&sim_memory_lock);
    result = sim_stream_mark(stream, &position);
    pthread_mutex_unlock(&sim_memory_lock);
    if (result != CUDA_SUCCESS) {
        free(block);
        return result;
    }
    do {
        pthread_mutex_lock(&sim_memory_lock);
        pool = handle == NULL ? sim_pool_current((unsigned)block->context->device->ordinal)
                              : sim_pool_find(handle);
        if (pool == NULL)
            result = CUDA_ERROR_INVALID_VALUE;
        else if (block->span == 0)
            result = CUDA_ERROR_OUT_OF_MEMORY;
        else
            result = take_locked(pool, block, bytes, stream);
        if (result == CUDA_SUCCESS)
            *address = block->node.start;
        if (pool != NULL)
            handle = sim_pool_handle(pool);
        pthread_mutex_unlock(&sim_memory_lock);
    } while (result == CUDA_ERROR_OUT_OF_MEMORY && bytes <= sim_settings()->memory_bytes &&
             free_up(handle));
    if (result != CUDA_SUCCESS)
        free(block);
    return result;
}

static CUresult allocate(CUdeviceptr *dptr, uint64_t bytes, CUmemoryPool pool, CUstream handle,
                         bool per_thread)
{
    struct sim_stream *stream;
    uint64_t address = 0;
    CUresult result = sim_stream_resolve(handle, per_thread, &stream);

    if (result != CUDA_SUCCESS)
        return result;
    if (dptr == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (bytes == 0) { /* not documented; cuda-core's tests have it succeed */
        *dptr = 0;
        return CUDA_SUCCESS;
    }
    result = sim_stream_is_capturing(stream) ? capture_allocation(stream, bytes, &address)
                                             : take(pool, stream, bytes, &address);
    if (result == CUDA_SUCCESS)
        *dptr = address;
    return result;
}

SIM_API_THREAD(cuMemAllocAsync, _ptsz, (CUdeviceptr * dptr, size_t bytesize, CUstream hStream),
               (dptr, bytesize, hStream), "0x%llx %zu %p",
               dptr == NULL || sim_result != CUDA_SUCCESS ? 0 : *dptr, bytesize, (void *)hStream)
{
    return allocate(dptr, bytesize, NULL, hStream, per_thread);
}

SIM_API_THREAD(cuMemAllocFromPoolAsync, _ptsz,
               (CUdeviceptr * dptr, size_t bytesize, CUmemoryPool pool, CUstream hStream),
               (dptr, bytesize, pool, hStream), "0x%llx %zu %p %p",
               dptr == NULL || sim_result != CUDA_SUCCESS ? 0 : *dptr, bytesize, (void *)pool,
               (void *)hStream)
{
    return pool == NULL ? CUDA_ERROR_INVALID_VALUE
                        : allocate(dptr, bytesize, pool, hStream, per_thread);
}

/* ---- frees ---- */

/* An allocation, named when its free is submitted: by the time that runs, the address may be
 * another's, as the owner's context may have ended meanwhile. */
struct named {
    uint64_t address, id;
};

/* Frees memory of other kinds in stream order. */
static CUresult run_free(struct sim_context *context, void *argument)
{
    const struct named *named = argument;
    struct sim_block *block;
    CUresult result = CUDA_SUCCESS;

    (void)context;
    pthread_rwlock_wrlock(&sim_use_lock);
    pthread_mutex_lock(&sim_memory_lock);
    block = sim_block_find(named->address);
    if (block == NULL || block->id != named->id)
        result = CUDA_ERROR_ILLEGAL_ADDRESS;
    else if (block->kind == SIM_GRAPH)
        result = sim_graph_block_release_locked(block);
    else
        sim_block_drop_locked(block);
    pthread_mutex_unlock(&sim_memory_lock);
    pthread_rwlock_unlock(&sim_use_lock);
    return result;
}

/* Takes back that the block is being freed. */
static void keep(const struct named *named)
{
    struct sim_block *block;

    pthread_mutex_lock(&sim_memory_lock);
    block = sim_block_find(named->address);
    if (block != NULL && block->id == named->id)
        block->is_freed = false;
    pthread_mutex_unlock(&sim_memory_lock);
}

static CUresult submit_free(struct sim_stream *stream, struct named named)
{
    struct sim_op op = {.run = run_free, .release = free, .is_instant = true};
    struct named *argument = malloc(sizeof *argument);
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;

    if (argument != NULL) {
        *argument = named;
        op.argument = argument;
        result = sim_submit(stream, op, NULL, CU_GRAPH_NODE_TYPE_MEM_FREE);
    }
    if (result != CUDA_SUCCESS)
        keep(&named);
    return result;
}

static CUresult free_on(struct sim_stream *stream, uint64_t address)
{
    enum sim_kind kind = SIM_HOST;
    struct named named = {.address = address};
    struct sim_block *block;
    bool is_capturing = sim_stream_is_capturing(stream);
    uint64_t position;
    CUresult result = CUDA_SUCCESS;

    pthread_mutex_lock(&sim_memory_lock);
    block = sim_block_find(address);
    if (block != NULL && block->node.start == address && !block->is_freed)
        kind = block->kind;
    bool is_freed_so = kind == SIM_POOLED || kind == SIM_GRAPH || kind == SIM_PLAIN ||
                       kind == SIM_MANAGED || (kind == SIM_IMPORTED && block->pool != NULL);
    if (!is_freed_so || (is_capturing && kind != SIM_GRAPH))
        result = CUDA_ERROR_INVALID_VALUE;
    else if (kind == SIM_POOLED)
        result = sim_stream_mark(stream, &position);
    if (result == CUDA_SUCCESS && kind == SIM_POOLED) {
        sim_pool_free_locked(block, stream, position);
    } else if (result == CUDA_SUCCESS) {
        named.id = block->id;
        block->is_freed = kind != SIM_GRAPH; /* that comes again with each launch */
    }
    pthread_mutex_unlock(&sim_memory_lock);
    if (result != CUDA_SUCCESS || kind == SIM_POOLED)
        return result;
    return is_capturing ? capture_node(stream, address, true) : submit_free(stream, named);
}

SIM_API_THREAD(cuMemFreeAsync, _ptsz, (CUdeviceptr dptr, CUstream hStream), (dptr, hStream),
               "0x%llx %p", dptr, (void *)hStream)
{
    struct sim_stream *stream;
    CUresult result = sim_stream_resolve(hStream, per_thread, &stream);

    if (result != CUDA_SUCCESS)
        return result;
    return dptr == 0 ? CUDA_ERROR_INVALID_VALUE : free_on(stream, dptr);
}
