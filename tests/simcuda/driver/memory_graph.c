/* Memory of graph allocation nodes. An address is fixed when the node is made; physical memory
 * comes with the first launch and stays with the device's graphs, used or not, until
 * cuDeviceGraphMemTrim. */
#include "memory_pool.h"

#include <stdlib.h>
#include <string.h>

struct graph_memory {
    uint64_t used, used_high, reserved, reserved_high;
};

static struct graph_memory accounts[SIM_MAX_DEVICES]; /* sim_memory_lock */
static struct sim_block *graph_blocks;                /* the same, linked by next_graph */

static struct graph_memory *account_of(const struct sim_device *device)
{
    return &accounts[device->ordinal % SIM_MAX_DEVICES];
}

static void raise(uint64_t *current, uint64_t *high, uint64_t bytes)
{
    *current += bytes;
    if (*current > *high)
        *high = *current;
}

static struct sim_block *find_graph_block(uint64_t address)
{
    struct sim_block *block = sim_block_find(address);

    return block != NULL && block->kind == SIM_GRAPH && block->node.start == address ? block : NULL;
}

/* Gives the physical memory back. sim_use_lock held for writing. */
static void decommit(struct sim_block *block)
{
    if (!block->is_committed)
        return;
    sim_space_decommit(block->node.start, block->span);
    sim_capacity_return(block->device, block->span);
    account_of(block->device)->reserved -= block->span;
    block->is_committed = false;
}

static void stop_using(struct sim_block *block)
{
    if (block->is_used)
        account_of(block->device)->used -= block->span;
    block->is_used = false;
}

void sim_graph_block_drop_locked(struct sim_block *block)
{
    struct sim_block **link = &graph_blocks;

    while (*link != NULL && *link != block)
        link = &(*link)->next_graph;
    if (*link != NULL)
        *link = block->next_graph;
    stop_using(block);
    decommit(block);
    sim_space_give(block->node.start, block->span);
    sim_block_remove(block);
    free(block);
}

CUresult sim_graph_block_release_locked(struct sim_block *block)
{
    if (!block->is_used)
        return CUDA_ERROR_INVALID_VALUE;
    stop_using(block);
    if (block->is_orphan)
        sim_graph_block_drop_locked(block);
    return CUDA_SUCCESS;
}

CUresult sim_memory_graph_reserve(struct sim_context *context, size_t bytes, uint64_t *address)
{
    struct sim_block *block = sim_block_new(SIM_GRAPH, context);
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;

    if (block == NULL)
        return result;
    block->span = sim_round_up(bytes, SIM_PAGE);
    pthread_mutex_lock(&sim_memory_lock);
    if (block->span != 0)
        result = sim_space_take(block->span, SIM_PAGE, false, address);
    if (result == CUDA_SUCCESS) {
        sim_block_insert(block, *address, bytes);
        block->next_graph = graph_blocks;
        graph_blocks = block;
    }
    pthread_mutex_unlock(&sim_memory_lock);
    if (result != CUDA_SUCCESS)
        free(block);
    return result;
}

static CUresult commit_locked(struct sim_block *block)
{
    struct graph_memory *account = account_of(block->device);
    CUresult result;

    if (!block->is_committed) {
        result = sim_capacity_take(block->device, block->span);
        if (result != CUDA_SUCCESS)
            return result;
        result = sim_space_commit(block->node.start, block->span);
        if (result != CUDA_SUCCESS) {
            sim_capacity_return(block->device, block->span);
            return result;
        }
        block->is_committed = true;
        raise(&account->reserved, &account->reserved_high, block->span);
    }
    block->is_used = true;
    raise(&account->used, &account->used_high, block->span);
    return CUDA_SUCCESS;
}

CUresult sim_memory_graph_commit(struct sim_context *context, uint64_t address)
{
    struct sim_block *block;
    CUresult result = CUDA_ERROR_INVALID_VALUE;

    (void)context;
    pthread_mutex_lock(&sim_memory_lock);
    block = find_graph_block(address);
    if (block != NULL && !block->is_used)
        result = commit_locked(block);
    pthread_mutex_unlock(&sim_memory_lock);
    return result;
}

CUresult sim_memory_graph_uncommit(struct sim_context *context, uint64_t address)
{
    struct sim_block *block;
    CUresult result = CUDA_ERROR_INVALID_VALUE;

    (void)context;
    pthread_rwlock_wrlock(&sim_use_lock);
    pthread_mutex_lock(&sim_memory_lock);
    block = find_graph_block(address);
    if (block != NULL)
        result = sim_graph_block_release_locked(block);
    pthread_mutex_unlock(&sim_memory_lock);
    pthread_rwlock_unlock(&sim_use_lock);
    return result;
}

/* Memory that a launch allocated and nobody freed outlives its graph. */
void sim_memory_graph_forget(struct sim_context *context, uint64_t address)
{
    struct sim_block *block;

    (void)context;
    pthread_rwlock_wrlock(&sim_use_lock);
    pthread_mutex_lock(&sim_memory_lock);
    block = find_graph_block(address);
    if (block != NULL && block->is_used)
        block->is_orphan = true;
    else if (block != NULL)
        sim_graph_block_drop_locked(block);
    pthread_mutex_unlock(&sim_memory_lock);
    pthread_rwlock_unlock(&sim_use_lock);
}

/* ---- entry points ---- */

static CUresult check(CUdevice ordinal, struct sim_device **device)
{
    CUresult result = sim_check_init();

    if (result != CUDA_SUCCESS)
        return result;
    *device = sim_device(ordinal);
    return *device == NULL ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

SIM_API(cuDeviceGraphMemTrim, (CUdevice device), (device), "%d", device)
{
    struct sim_device *trimmed;
    CUresult result = check(device, &trimmed);

    if (result != CUDA_SUCCESS)
        return result;
    pthread_rwlock_wrlock(&sim_use_lock);
    pthread_mutex_lock(&sim_memory_lock);
    for (struct sim_block *block = graph_blocks; block != NULL; block = block->next_graph)
        if (block->device == trimmed && !block->is_used)
            decommit(block);
    pthread_mutex_unlock(&sim_memory_lock);
    pthread_rwlock_unlock(&sim_use_lock);
    return CUDA_SUCCESS;
}

SIM_API(cuDeviceGetGraphMemAttribute, (CUdevice device, CUgraphMem_attribute attr, void *value),
        (device, attr, value), "%d %d", device, (int)attr)
{
    struct sim_device *found;
    struct graph_memory account;
    cuuint64_t bytes;
    CUresult result = check(device, &found);

    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&sim_memory_lock);
    account = *account_of(found);
    pthread_mutex_unlock(&sim_memory_lock);
    switch (attr) {
    case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT:
        bytes = account.used;
        break;
    case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
        bytes = account.used_high;
        break;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT:
        bytes = account.reserved;
        break;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
        bytes = account.reserved_high;
        break;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (value == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(value, &bytes, sizeof bytes);
    return CUDA_SUCCESS;
}

SIM_API(cuDeviceSetGraphMemAttribute, (CUdevice device, CUgraphMem_attribute attr, void *value),
        (device, attr, value), "%d %d", device, (int)attr)
{
    struct graph_memory *account;
    struct sim_device *found;
    cuuint64_t bytes = 0;
    CUresult result = check(device, &found);

    if (result != CUDA_SUCCESS)
        return result;
    if (value != NULL)
        memcpy(&bytes, value, sizeof bytes);
    if (value == NULL || bytes != 0)
        return CUDA_ERROR_INVALID_VALUE;
    account = account_of(found);
    pthread_mutex_lock(&sim_memory_lock);
    if (attr == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH)
        account->used_high = account->used;
    else if (attr == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)
        account->reserved_high = account->reserved;
    else
        result = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_unlock(&sim_memory_lock);
    return result;
}
