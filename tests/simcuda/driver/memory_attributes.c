/* Pointer attributes. A description of the pointer is made once, under the lock; the attributes
 * read it. */
#include "memory.h"

#include <string.h>

struct described {
    bool is_known;
    bool is_block;
    enum sim_kind kind;
    bool is_exportable; /* of a mapping */
    bool is_host, is_managed;
    bool is_mapped;
    bool sync_memops, can_decompress, has_rdma;
    struct sim_context *context;
    CUmemoryPool pool;
    int ordinal;
    unsigned handle_types, access;
    uint64_t address, start, bytes, mapping_start, mapping_bytes, id, block_id;
};

static void describe_block(const struct sim_block *block, struct described *out)
{
    out->is_known = true;
    out->is_block = true;
    out->kind = block->kind;
    out->is_host = block->kind == SIM_HOST || block->kind == SIM_REGISTERED;
    out->is_managed = block->kind == SIM_MANAGED;
    out->is_mapped = block->kind != SIM_GRAPH || block->is_committed;
    out->sync_memops = block->sync_memops;
    out->has_rdma = block->kind == SIM_PLAIN && sim_settings()->rdma != SIM_RDMA_NONE;
    out->context = block->pool != NULL ? NULL : block->context;
    out->ordinal = block->device->ordinal;
    out->start = block->node.start;
    out->bytes = block->node.end - block->node.start;
    out->mapping_start = out->start;
    out->mapping_bytes = out->bytes;
    out->id = block->id;
    out->block_id = block->id;
    out->access = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    if (block->pool != NULL) {
        out->pool = sim_pool_handle(block->pool);
        out->handle_types = sim_pool_handle_types(block->pool);
        out->is_host = sim_pool_is_host(block->pool);
        out->is_managed = sim_pool_is_managed(block->pool);
        if (out->is_host)
            out->ordinal = CU_DEVICE_CPU;
    }
}

/* Memory of the mapping interface belongs to no context. */
static void describe_mapping(const struct sim_mapping_info *info, struct described *out)
{
    out->is_known = true;
    out->is_mapped = info->is_mapped;
    out->start = info->reserved_start;
    out->bytes = info->reserved_bytes;
    out->mapping_start = info->start;
    out->mapping_bytes = info->bytes;
    out->access = info->access;
    out->ordinal = CU_DEVICE_INVALID;
    if (!info->is_mapped)
        return;
    out->start = info->start;
    out->bytes = info->bytes;
    out->has_rdma = info->physical->prop.allocFlags.gpuDirectRDMACapable &&
                    sim_settings()->rdma != SIM_RDMA_NONE;
    out->id = info->physical->id;
    out->block_id = info->physical->id;
    out->handle_types = (unsigned)info->physical->prop.requestedHandleTypes;
    out->is_host = info->physical->device == NULL;
    out->ordinal = out->is_host ? CU_DEVICE_CPU : info->physical->device->ordinal;
}

static void describe(uint64_t address, int current_ordinal, struct described *out)
{
    struct sim_mapping_info info;
    struct sim_block *block;

    memset(out, 0, sizeof *out);
    out->address = address;
    pthread_mutex_lock(&sim_memory_lock);
    block = sim_block_find(address);
    if (block != NULL)
        describe_block(block, out);
    else if (sim_mapping_query(address, current_ordinal, &info))
        describe_mapping(&info, out);
    pthread_mutex_unlock(&sim_memory_lock);
}

/* ---- one attribute ---- */

#define STORE(type, expression)                                                                    \
    do {                                                                                           \
        type stored = (expression);                                                                \
        memcpy(data, &stored, sizeof stored);                                                      \
        return CUDA_SUCCESS;                                                                       \
    } while (0)

static bool has_host_address(const struct described *d)
{
    return d->is_host || d->is_managed;
}

/* The kind and the place of the pointer; false in *is_mine: another group's attribute. */
static CUresult get_place(const struct described *d, CUpointer_attribute attribute, void *data,
                          bool *is_mine)
{
    *is_mine = true;
    switch ((int)attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        if (d->is_known && d->context == NULL && d->is_block && d->pool == NULL)
            return CUDA_ERROR_INVALID_VALUE;
        STORE(CUcontext, (CUcontext)(void *)d->context);
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        if (!d->is_mapped)
            return CUDA_ERROR_INVALID_VALUE;
        STORE(unsigned, d->is_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        STORE(CUdeviceptr, d->address);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        if (!has_host_address(d))
            return CUDA_ERROR_INVALID_VALUE;
        STORE(uint64_t, d->address);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        STORE(unsigned, d->is_managed);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        STORE(int, d->ordinal);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        STORE(uint64_t, d->start);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        STORE(size_t, d->bytes);
    case CU_POINTER_ATTRIBUTE_MAPPED:
        STORE(unsigned, d->is_mapped);
#if CUDA_VERSION >= 12000
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        STORE(size_t, d->mapping_bytes);
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        STORE(uint64_t, d->mapping_start);
#endif
    default:
        *is_mine = false;
        return CUDA_ERROR_INVALID_VALUE;
    }
}

/* The permitted uses of the memory. */
static CUresult get_property(const struct described *d, CUpointer_attribute attribute, void *data)
{
    switch ((int)attribute) {
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        STORE(unsigned, d->sync_memops);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        STORE(uint64_t, d->id);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        STORE(unsigned, d->is_block && d->kind == SIM_PLAIN);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        STORE(uint64_t, d->handle_types);
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        STORE(unsigned, d->has_rdma);
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        STORE(unsigned, d->access);
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        STORE(CUmemoryPool, d->pool);
#if CUDA_VERSION >= 12000
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        STORE(uint64_t, d->block_id);
#endif
#if CUDA_VERSION >= 12060
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
        STORE(unsigned, d->can_decompress);
#endif
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

static CUresult get_attribute(const struct described *d, CUpointer_attribute attribute, void *data)
{
    bool is_mine;
    CUresult result = get_place(d, attribute, data, &is_mine);

    return is_mine ? result : get_property(d, attribute, data);
}

/* How many bytes an attribute has, for its null value; 0: there is no such attribute. */
static size_t attribute_bytes(CUpointer_attribute attribute)
{
    switch ((int)attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
    case 18: /* MAPPING_SIZE, MAPPING_BASE_ADDR, MEMORY_BLOCK_ID: not in every header */
    case 19:
    case 20:
        return 8;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
    case 21: /* IS_HW_DECOMPRESS_CAPABLE */
        return 4;
    default:
        return 0;
    }
}

/* A device that is none: the null value of the ordinal. */
static void store_null(CUpointer_attribute attribute, void *data)
{
    const int none = CU_DEVICE_INVALID;

    memset(data, 0, attribute_bytes(attribute));
    if (attribute == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
        memcpy(data, &none, sizeof none);
}

/* ---- synchronous operations ---- */

/* "If there are some previously initiated synchronous memory operations that are pending when this
 * attribute is set, the function does not return until those memory operations are complete." */
static CUresult make_synchronous(struct sim_context *context, uint64_t address, bool is_set)
{
    struct sim_block *block;
    CUresult result = CUDA_SUCCESS;

    pthread_mutex_lock(&sim_memory_lock);
    block = sim_block_find(address);
    if (block == NULL || block->kind == SIM_MANAGED ||
        (block->pool != NULL && sim_pool_is_managed(block->pool)))
        result = CUDA_ERROR_INVALID_VALUE;
    else
        block->sync_memops = is_set;
    pthread_mutex_unlock(&sim_memory_lock);
    if (result == CUDA_SUCCESS && is_set)
        sim_context_wait_synchronous(context);
    return result;
}

/* "ptr must be a pointer to memory obtained from cuMemAlloc(). … has a side effect of setting the
 * attribute CU_POINTER_ATTRIBUTE_SYNC_MEMOPS". The tokens name nothing outside this process. */
static CUresult get_tokens(struct sim_context *context, const struct described *d, void *data)
{
    const CUDA_POINTER_ATTRIBUTE_P2P_TOKENS tokens = {d->id, (unsigned)d->ordinal + 1};

    if (!d->is_block || d->kind != SIM_PLAIN)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(data, &tokens, sizeof tokens);
    return make_synchronous(context, d->address, true);
}

/* ---- entry points ---- */

/* Pools' memory belongs to no context, and none needs to be current to ask about it: cuda-core asks
 * so about memory of another process. */
SIM_API(cuPointerGetAttribute, (void *data, CUpointer_attribute attribute, CUdeviceptr ptr),
        (data, attribute, ptr), "%d 0x%llx", (int)attribute, ptr)
{
    struct described described;
    struct sim_context *context = NULL;
    CUresult result = sim_current(&context);

    if (result == CUDA_ERROR_INVALID_CONTEXT) {
        describe(ptr, 0, &described);
        if (described.pool != NULL)
            result = CUDA_SUCCESS;
    }
    if (result != CUDA_SUCCESS)
        return result;
    if (data == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    describe(ptr, context == NULL ? 0 : context->device->ordinal, &described);
    described.can_decompress = sim_memory_can_decompress(ptr);
    if (!described.is_known) {
        /* Asking whether an address is mapped is how one finds out. */
        if (attribute != CU_POINTER_ATTRIBUTE_MAPPED)
            return CUDA_ERROR_INVALID_VALUE;
        store_null(attribute, data);
        return CUDA_SUCCESS;
    }
    return attribute == CU_POINTER_ATTRIBUTE_P2P_TOKENS
               ? get_tokens(context, &described, data)
               : get_attribute(&described, attribute, data);
}

SIM_API(cuPointerGetAttributes,
        (unsigned numAttributes, CUpointer_attribute *attributes, void **data, CUdeviceptr ptr),
        (numAttributes, attributes, data, ptr), "%u 0x%llx", numAttributes, ptr)
{
    struct described described;
    struct sim_context *context;
    CUresult result = sim_current(&context);

    if (result != CUDA_SUCCESS)
        return result;
    if (numAttributes == 0 || attributes == NULL || data == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < numAttributes; i++)
        if (data[i] == NULL || attribute_bytes(attributes[i]) == 0)
            return CUDA_ERROR_INVALID_VALUE;
    describe(ptr, context->device->ordinal, &described);
    described.can_decompress = sim_memory_can_decompress(ptr);
    for (unsigned i = 0; i < numAttributes; i++)
        if (!described.is_known ||
            get_attribute(&described, attributes[i], data[i]) != CUDA_SUCCESS)
            store_null(attributes[i], data[i]);
    return CUDA_SUCCESS;
}

/* Only SYNC_MEMOPS can be set. */
SIM_API(cuPointerSetAttribute, (const void *value, CUpointer_attribute attribute, CUdeviceptr ptr),
        (value, attribute, ptr), "%d 0x%llx", (int)attribute, ptr)
{
    struct sim_context *context;
    unsigned flag;
    CUresult result = sim_current(&context);

    if (result != CUDA_SUCCESS)
        return result;
    if (value == NULL || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(&flag, value, sizeof flag);
    return make_synchronous(context, ptr, flag != 0);
}
