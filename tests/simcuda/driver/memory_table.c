/* The table from address to block, and what it answers: may this range be touched now? */
#include "memory.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

pthread_mutex_t sim_memory_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_rwlock_t sim_use_lock = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;

static struct sim_tree blocks; /* sim_memory_lock */
static atomic_uint_fast64_t last_id;

void sim_use_begin(void)
{
    sim_mapping_hide_some();
    pthread_rwlock_rdlock(&sim_use_lock);
}

void sim_use_end(void)
{
    pthread_rwlock_unlock(&sim_use_lock);
}

uint64_t sim_memory_next_id(void)
{
    return atomic_fetch_add_explicit(&last_id, 1, memory_order_relaxed) + 1;
}

struct sim_block *sim_block_new(enum sim_kind kind, struct sim_context *context)
{
    struct sim_block *block = calloc(1, sizeof *block);

    if (block == NULL)
        return NULL;
    block->kind = kind;
    block->context = context == NULL ? NULL : sim_context_root(context);
    block->device = context == NULL ? sim_device(0) : context->device;
    block->id = sim_memory_next_id();
    block->preferred = CU_DEVICE_INVALID;
    block->prefetched = CU_DEVICE_INVALID;
    return block;
}

void sim_block_insert(struct sim_block *block, uint64_t start, uint64_t bytes)
{
    block->node.start = start;
    block->node.end = start + bytes;
    sim_tree_insert(&blocks, &block->node);
}

void sim_block_remove(struct sim_block *block)
{
    sim_tree_remove(&blocks, &block->node);
}

struct sim_block *sim_block_find(uint64_t address)
{
    struct sim_node *node = sim_tree_find(&blocks, address);

    return node == NULL ? NULL : SIM_CONTAINER(node, struct sim_block, node);
}

struct sim_block *sim_block_overlap(uint64_t start, uint64_t end)
{
    struct sim_node *node = sim_tree_overlap(&blocks, start, end);

    return node == NULL ? NULL : SIM_CONTAINER(node, struct sim_block, node);
}

/* Whether the host has pages there. A range of plain host memory is the program's own affair, but a
 * worker thread must report a bad one, not die of it. */
static bool is_host_memory(uint64_t address, uint64_t bytes)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t start = address / page * page;

    return msync((void *)(uintptr_t)start, address + bytes - start, MS_ASYNC) == 0; /* NOLINT */
}

bool sim_range_is_accessible(struct sim_context *context, uint64_t address, uint64_t bytes,
                             bool is_write)
{
    struct sim_block *block;

    if (bytes == 0)
        return true;
    if (address == 0 || address > UINT64_MAX - bytes)
        return false;
    block = sim_block_find(address);
    if (block != NULL && block->kind != SIM_POOLED) {
        if (block->kind == SIM_GRAPH && !block->is_used)
            return false;
        if (bytes <= block->node.end - address)
            return true;
        return block->kind == SIM_REGISTERED && is_host_memory(address, bytes);
    }
    if (!sim_space_contains(address))
        return !sim_space_contains(address + bytes - 1) && is_host_memory(address, bytes);
    if (sim_pool_owns(context, address, bytes, is_write))
        return true;
    return sim_mapping_check(context, address, bytes, is_write) == SIM_ACCESSIBLE;
}

/* Memory of another device that values are read from and written to needs the peer's access. */
static bool is_value_accessible(struct sim_context *context, uint64_t address, uint64_t bytes,
                                bool is_write)
{
    struct sim_context *root = sim_context_root(context);
    struct sim_block *block;
    bool is_accessible;

    pthread_mutex_lock(&sim_memory_lock);
    block = sim_block_find(address);
    is_accessible = sim_range_is_accessible(context, address, bytes, is_write);
    if (block != NULL && block->kind == SIM_PLAIN && block->device != root->device &&
        (atomic_load(&root->peers) >> (block->device->ordinal & 63) & 1) == 0)
        is_accessible = false;
    pthread_mutex_unlock(&sim_memory_lock);
    return is_accessible;
}

CUresult sim_memory_read_value(struct sim_context *context, uint64_t address, unsigned bytes,
                               uint64_t *value)
{
    const void *at = (const void *)(uintptr_t)address; /* NOLINT */
    CUresult result = CUDA_ERROR_ILLEGAL_ADDRESS;

    sim_use_begin();
    if (is_value_accessible(context, address, bytes, false)) {
        *value = bytes == 4 ? __atomic_load_n((const uint32_t *)at, __ATOMIC_ACQUIRE)
                            : __atomic_load_n((const uint64_t *)at, __ATOMIC_ACQUIRE);
        result = CUDA_SUCCESS;
    }
    sim_use_end();
    return result;
}

CUresult sim_memory_write_value(struct sim_context *context, uint64_t address, unsigned bytes,
                                uint64_t value)
{
    void *at = (void *)(uintptr_t)address; /* NOLINT */
    CUresult result = CUDA_ERROR_ILLEGAL_ADDRESS;

    sim_use_begin();
    if (is_value_accessible(context, address, bytes, true)) {
        if (bytes == 4)
            __atomic_store_n((uint32_t *)at, (uint32_t)value, __ATOMIC_RELEASE);
        else
            __atomic_store_n((uint64_t *)at, value, __ATOMIC_RELEASE);
        result = CUDA_SUCCESS;
    }
    sim_use_end();
    return result;
}

/* One block of the context that its end frees: pool and graph memory are the device's, and so is
 * what was imported from a pool. */
static struct sim_block *first_of_context(const struct sim_context *context)
{
    struct sim_node *node = sim_tree_lower_bound(&blocks, 0, 0);

    while (node != NULL) {
        struct sim_block *block = SIM_CONTAINER(node, struct sim_block, node);

        if (block->context == context && block->pool == NULL)
            return block;
        node = sim_tree_lower_bound(&blocks, node->start, node->end + 1);
    }
    return NULL;
}

void sim_memory_drop_context(struct sim_context *context)
{
    struct sim_block *block;

    sim_array_drop_context(context);
    pthread_rwlock_wrlock(&sim_use_lock);
    pthread_mutex_lock(&sim_memory_lock);
    while ((block = first_of_context(context)) != NULL)
        sim_block_drop_locked(block);
    sim_device_drop_context_locked(context);
    pthread_mutex_unlock(&sim_memory_lock);
    pthread_rwlock_unlock(&sim_use_lock);
    sim_memory_synchronized(context);
}
