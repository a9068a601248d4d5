/* CUDA arrays and mipmapped arrays. Texels are kept row by row in device memory whose address is
 * nobody's business but the copies'. */
#include "memory.h"

#include <stdlib.h>
#include <string.h>

#define MAX_1D UINT64_C(131072)
#define MAX_2D_WIDTH UINT64_C(131072)
#define MAX_2D_HEIGHT UINT64_C(65536)
#define MAX_3D UINT64_C(16384)
#define MAX_LAYERS UINT64_C(2048)
#define MAX_LEVELS 18

struct CUarray_st {
    struct sim_node node; /* [handle, handle + 1) */
    CUDA_ARRAY3D_DESCRIPTOR descriptor;
    struct sim_context *context;
    struct sim_block *block;            /* its memory; NULL for levels and for deferred mapping */
    struct CUmipmappedArray_st *mipmap; /* whose level it is */
    uint64_t address;
};

struct CUmipmappedArray_st {
    struct sim_node node;
    CUDA_ARRAY3D_DESCRIPTOR descriptor;
    struct sim_context *context;
    struct sim_block *block;
    uint64_t bytes;
    unsigned level_count;
    struct CUarray_st levels[MAX_LEVELS];
};

static struct sim_tree arrays, mipmaps; /* sim_memory_lock */

#define ARRAY(found) SIM_CONTAINER(found, struct CUarray_st, node)
#define MIPMAP(found) SIM_CONTAINER(found, struct CUmipmappedArray_st, node)

static struct CUarray_st *find_array(CUarray handle)
{
    struct sim_node *node = sim_tree_find(&arrays, (uint64_t)(uintptr_t)handle);

    return node == NULL ? NULL : ARRAY(node);
}

static struct CUmipmappedArray_st *find_mipmap(CUmipmappedArray handle)
{
    struct sim_node *node = sim_tree_find(&mipmaps, (uint64_t)(uintptr_t)handle);

    return node == NULL ? NULL : MIPMAP(node);
}

static void insert(struct sim_tree *tree, struct sim_node *node, const void *handle)
{
    node->start = (uint64_t)(uintptr_t)handle;
    node->end = node->start + 1;
    sim_tree_insert(tree, node);
}

/* ---- shapes ---- */

static unsigned channel_bytes(CUarray_format format)
{
    switch ((int)format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
        return 1;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
        return 2;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
        return 4;
    default:
        return 0;
    }
}

static bool is_layered(const CUDA_ARRAY3D_DESCRIPTOR *in)
{
    return (in->Flags & CUDA_ARRAY3D_LAYERED) != 0;
}

static bool has_good_extent(const CUDA_ARRAY3D_DESCRIPTOR *in)
{
    if (in->Width == 0 || (is_layered(in) && (in->Depth == 0 || in->Depth > MAX_LAYERS)))
        return false;
    if ((in->Flags & CUDA_ARRAY3D_CUBEMAP) != 0)
        return in->Width == in->Height && in->Width <= MAX_3D &&
               (is_layered(in) ? in->Depth % 6 == 0 : in->Depth == 6);
    if (in->Height == 0)
        return in->Width <= MAX_1D && (in->Depth == 0 || is_layered(in));
    if (in->Depth == 0 || is_layered(in))
        return in->Width <= MAX_2D_WIDTH && in->Height <= MAX_2D_HEIGHT;
    return in->Width <= MAX_3D && in->Height <= MAX_3D && in->Depth <= MAX_3D;
}

static CUresult check_descriptor(const CUDA_ARRAY3D_DESCRIPTOR *in)
{
    if (in == NULL || (in->NumChannels != 1 && in->NumChannels != 2 && in->NumChannels != 4) ||
        !has_good_extent(in))
        return CUDA_ERROR_INVALID_VALUE;
    if ((in->Flags & CUDA_ARRAY3D_SPARSE) != 0)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (channel_bytes(in->Format) == 0)
        return CUDA_ERROR_NOT_SUPPORTED; /* planar and block-compressed texels */
    return CUDA_SUCCESS;
}

static uint64_t at_least_one(uint64_t extent)
{
    return extent == 0 ? 1 : extent;
}

static uint64_t texel_bytes(const CUDA_ARRAY3D_DESCRIPTOR *in)
{
    return (uint64_t)channel_bytes(in->Format) * in->NumChannels;
}

static uint64_t total_bytes(const CUDA_ARRAY3D_DESCRIPTOR *in)
{
    return in->Width * texel_bytes(in) * at_least_one(in->Height) * at_least_one(in->Depth);
}

bool sim_array_surface(CUarray handle, struct sim_surface *surface)
{
    struct CUarray_st *array;
    bool is_found;

    pthread_mutex_lock(&sim_memory_lock);
    array = find_array(handle);
    is_found = array != NULL && array->address != 0;
    if (is_found)
        *surface = (struct sim_surface){
            .address = array->address,
            .texel_bytes = texel_bytes(&array->descriptor),
            .row_bytes = array->descriptor.Width * texel_bytes(&array->descriptor),
            .rows = at_least_one(array->descriptor.Height),
            .slices = at_least_one(array->descriptor.Depth),
            .context = array->context,
        };
    pthread_mutex_unlock(&sim_memory_lock);
    return is_found;
}

/* ---- arrays ---- */

/* Memory for texels, unless the program brings it later. */
static CUresult take_memory(struct sim_context *context, const CUDA_ARRAY3D_DESCRIPTOR *in,
                            uint64_t bytes, struct sim_block **block)
{
    *block = NULL;
#ifdef CUDA_ARRAY3D_DEFERRED_MAPPING
    if ((in->Flags & CUDA_ARRAY3D_DEFERRED_MAPPING) != 0)
        return CUDA_SUCCESS;
#endif
    (void)in;
    return sim_device_alloc(context, bytes, false, block);
}

static CUresult create(CUarray *handle, const CUDA_ARRAY3D_DESCRIPTOR *in)
{
    struct sim_context *context;
    struct CUarray_st *array;
    CUresult result = sim_current(&context);

    if (result != CUDA_SUCCESS)
        return result;
    result = handle == NULL ? CUDA_ERROR_INVALID_VALUE : check_descriptor(in);
    if (result == CUDA_SUCCESS)
        result = sim_check_unsafe_call(context);
    if (result != CUDA_SUCCESS)
        return result;
    array = calloc(1, sizeof *array);
    if (array == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    array->descriptor = *in;
    array->context = sim_context_root(context);
    result = take_memory(context, in, total_bytes(in), &array->block);
    if (result != CUDA_SUCCESS) {
        free(array);
        return result;
    }
    array->address = array->block == NULL ? 0 : array->block->node.start;
    pthread_mutex_lock(&sim_memory_lock);
    insert(&arrays, &array->node, array);
    pthread_mutex_unlock(&sim_memory_lock);
    *handle = array;
    return CUDA_SUCCESS;
}

SIM_API(cuArrayCreate_v2, (CUarray * pHandle, const CUDA_ARRAY_DESCRIPTOR *pAllocateArray),
        (pHandle, pAllocateArray), "%p",
        pHandle == NULL || sim_result != CUDA_SUCCESS ? NULL : (void *)*pHandle)
{
    CUDA_ARRAY3D_DESCRIPTOR flat = {0};
    if (pAllocateArray == NULL)
        return create(pHandle, NULL);
    flat.Width = pAllocateArray->Width;
    flat.Height = pAllocateArray->Height;
    flat.Format = pAllocateArray->Format;
    flat.NumChannels = pAllocateArray->NumChannels;
    return create(pHandle, &flat);
}

SIM_API(cuArrayCreate, (CUarray * pHandle, const CUDA_ARRAY_DESCRIPTOR_v1 *pAllocateArray),
        (pHandle, pAllocateArray), "%p",
        pHandle == NULL || sim_result != CUDA_SUCCESS ? NULL : (void *)*pHandle)
{
    CUDA_ARRAY3D_DESCRIPTOR flat = {0};
    if (pAllocateArray == NULL)
        return create(pHandle, NULL);
    flat.Width = pAllocateArray->Width;
    flat.Height = pAllocateArray->Height;
    flat.Format = pAllocateArray->Format;
    flat.NumChannels = pAllocateArray->NumChannels;
    return create(pHandle, &flat);
}

SIM_API(cuArray3DCreate_v2, (CUarray * pHandle, const CUDA_ARRAY3D_DESCRIPTOR *pAllocateArray),
        (pHandle, pAllocateArray), "%p",
        pHandle == NULL || sim_result != CUDA_SUCCESS ? NULL : (void *)*pHandle)
{
    return create(pHandle, pAllocateArray);
}

SIM_API(cuArray3DCreate, (CUarray * pHandle, const CUDA_ARRAY3D_DESCRIPTOR_v1 *pAllocateArray),
        (pHandle, pAllocateArray), "%p",
        pHandle == NULL || sim_result != CUDA_SUCCESS ? NULL : (void *)*pHandle)
{
    CUDA_ARRAY3D_DESCRIPTOR wide = {0};
    if (pAllocateArray == NULL)
        return create(pHandle, NULL);
    wide.Width = pAllocateArray->Width;
    wide.Height = pAllocateArray->Height;
    wide.Depth = pAllocateArray->Depth;
    wide.Format = pAllocateArray->Format;
    wide.NumChannels = pAllocateArray->NumChannels;
    wide.Flags = pAllocateArray->Flags;
    return create(pHandle, &wide);
}

static CUresult describe(CUarray handle, CUDA_ARRAY3D_DESCRIPTOR *out)
{
    struct sim_context *context;
    struct CUarray_st *array;
    CUresult result = sim_current(&context);

    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&sim_memory_lock);
    array = find_array(handle);
    if (array == NULL)
        result = CUDA_ERROR_INVALID_HANDLE;
    else
        *out = array->descriptor;
    pthread_mutex_unlock(&sim_memory_lock);
    return result;
}

SIM_API(cuArray3DGetDescriptor_v2, (CUDA_ARRAY3D_DESCRIPTOR * pArrayDescriptor, CUarray hArray),
        (pArrayDescriptor, hArray), "%p", (void *)hArray)
{
    return pArrayDescriptor == NULL ? CUDA_ERROR_INVALID_VALUE : describe(hArray, pArrayDescriptor);
}

#define NARROW(out, in)                                                                            \
    ((out)->Width = (__typeof__((out)->Width))(in).Width,                                          \
     (out)->Height = (__typeof__((out)->Height))(in).Height, (out)->Format = (in).Format,          \
     (out)->NumChannels = (in).NumChannels)

SIM_API(cuArray3DGetDescriptor, (CUDA_ARRAY3D_DESCRIPTOR_v1 * pArrayDescriptor, CUarray hArray),
        (pArrayDescriptor, hArray), "%p", (void *)hArray)
{
    CUDA_ARRAY3D_DESCRIPTOR whole;
    CUresult result =
        pArrayDescriptor == NULL ? CUDA_ERROR_INVALID_VALUE : describe(hArray, &whole);

    if (result != CUDA_SUCCESS)
        return result;
    NARROW(pArrayDescriptor, whole);
    pArrayDescriptor->Depth = (unsigned)whole.Depth;
    pArrayDescriptor->Flags = whole.Flags;
    return result;
}

SIM_API(cuArrayGetDescriptor_v2, (CUDA_ARRAY_DESCRIPTOR * pArrayDescriptor, CUarray hArray),
        (pArrayDescriptor, hArray), "%p", (void *)hArray)
{
    CUDA_ARRAY3D_DESCRIPTOR whole;
    CUresult result =
        pArrayDescriptor == NULL ? CUDA_ERROR_INVALID_VALUE : describe(hArray, &whole);

    if (result == CUDA_SUCCESS)
        NARROW(pArrayDescriptor, whole);
    return result;
}

SIM_API(cuArrayGetDescriptor, (CUDA_ARRAY_DESCRIPTOR_v1 * pArrayDescriptor, CUarray hArray),
        (pArrayDescriptor, hArray), "%p", (void *)hArray)
{
    CUDA_ARRAY3D_DESCRIPTOR whole;
    CUresult result =
        pArrayDescriptor == NULL ? CUDA_ERROR_INVALID_VALUE : describe(hArray, &whole);

    if (result == CUDA_SUCCESS)
        NARROW(pArrayDescriptor, whole);
    return result;
}

/* ---- ends; sim_use_lock held for writing, sim_memory_lock held ---- */

static void drop_array(struct CUarray_st *array)
{
    sim_tree_remove(&arrays, &array->node);
    if (array->block != NULL)
        sim_device_free_locked(array->block);
    free(array);
}

static void drop_mipmap(struct CUmipmappedArray_st *mipmap)
{
    for (unsigned i = 0; i < mipmap->level_count; i++)
        sim_tree_remove(&arrays, &mipmap->levels[i].node);
    sim_tree_remove(&mipmaps, &mipmap->node);
    if (mipmap->block != NULL)
        sim_device_free_locked(mipmap->block);
    free(mipmap);
}

/* Finds what the context owns, level arrays aside: they go with their mipmap. */
static struct CUarray_st *first_array(const struct sim_context *context)
{
    for (struct sim_node *node = sim_tree_lower_bound(&arrays, 0, 0); node != NULL;
         node = sim_tree_lower_bound(&arrays, node->end, 0))
        if (ARRAY(node)->context == context && ARRAY(node)->mipmap == NULL)
            return ARRAY(node);
    return NULL;
}

static struct CUmipmappedArray_st *first_mipmap(const struct sim_context *context)
{
    for (struct sim_node *node = sim_tree_lower_bound(&mipmaps, 0, 0); node != NULL;
         node = sim_tree_lower_bound(&mipmaps, node->end, 0))
        if (MIPMAP(node)->context == context)
            return MIPMAP(node);
    return NULL;
}

void sim_array_drop_context(struct sim_context *context)
{
    struct CUmipmappedArray_st *mipmap;
    struct CUarray_st *array;

    pthread_rwlock_wrlock(&sim_use_lock);
    pthread_mutex_lock(&sim_memory_lock);
    while ((mipmap = first_mipmap(context)) != NULL)
        drop_mipmap(mipmap);
    while ((array = first_array(context)) != NULL)
        drop_array(array);
    pthread_mutex_unlock(&sim_memory_lock);
    pthread_rwlock_unlock(&sim_use_lock);
}

static CUresult begin_destroy(struct sim_context **context)
{
    CUresult result = sim_current(context);

    if (result == CUDA_SUCCESS)
        result = sim_check_unsafe_call(*context);
    return result == CUDA_SUCCESS ? sim_context_wait(*context) : result;
}

SIM_API(cuArrayDestroy, (CUarray hArray), (hArray), "%p", (void *)hArray)
{
    struct sim_context *context;
    struct CUarray_st *array;
    CUresult result = begin_destroy(&context);

    if (result != CUDA_SUCCESS)
        return result;
    pthread_rwlock_wrlock(&sim_use_lock);
    pthread_mutex_lock(&sim_memory_lock);
    array = find_array(hArray);
    if (array == NULL || array->mipmap != NULL)
        result = CUDA_ERROR_INVALID_HANDLE;
    else
        drop_array(array);
    pthread_mutex_unlock(&sim_memory_lock);
    pthread_rwlock_unlock(&sim_use_lock);
    return result;
}

/* ---- mipmapped arrays ---- */

static uint64_t halved(uint64_t extent, unsigned level)
{
    return extent == 0 ? 0 : at_least_one(extent >> level);
}

/* Describes the levels, each half as large as the one before; at most until every extent is 1. */
static void lay_out_levels(struct CUmipmappedArray_st *mipmap, unsigned wanted)
{
    const CUDA_ARRAY3D_DESCRIPTOR *base = &mipmap->descriptor;
    uint64_t largest = base->Width > base->Height ? base->Width : base->Height;
    unsigned most = 1;

    if (!is_layered(base) && base->Depth > largest)
        largest = base->Depth;
    while (largest >> most != 0 && most < MAX_LEVELS)
        most++;
    mipmap->level_count = wanted < most ? wanted : most;
    for (unsigned i = 0; i < mipmap->level_count; i++) {
        struct CUarray_st *level = &mipmap->levels[i];

        level->descriptor = *base;
        level->descriptor.Width = halved(base->Width, i);
        level->descriptor.Height = halved(base->Height, i);
        if (!is_layered(base) && (base->Flags & CUDA_ARRAY3D_CUBEMAP) == 0)
            level->descriptor.Depth = halved(base->Depth, i);
        level->context = mipmap->context;
        level->mipmap = mipmap;
        level->address = mipmap->bytes; /* an offset until there is memory */
        mipmap->bytes += sim_round_up(total_bytes(&level->descriptor), SIM_UNIT);
    }
}

static CUresult create_mipmap(CUmipmappedArray *handle, struct sim_context *context,
                              const CUDA_ARRAY3D_DESCRIPTOR *in, unsigned levels)
{
    struct CUmipmappedArray_st *mipmap = calloc(1, sizeof *mipmap);
    CUresult result;

    if (mipmap == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    mipmap->descriptor = *in;
    mipmap->context = sim_context_root(context);
    lay_out_levels(mipmap, levels);
    result = take_memory(context, in, mipmap->bytes, &mipmap->block);
    if (result != CUDA_SUCCESS) {
        free(mipmap);
        return result;
    }
    pthread_mutex_lock(&sim_memory_lock);
    for (unsigned i = 0; i < mipmap->level_count; i++) {
        struct CUarray_st *level = &mipmap->levels[i];

        level->address = mipmap->block == NULL ? 0 : mipmap->block->node.start + level->address;
        insert(&arrays, &level->node, level);
    }
    insert(&mipmaps, &mipmap->node, mipmap);
    pthread_mutex_unlock(&sim_memory_lock);
    *handle = mipmap;
    return CUDA_SUCCESS;
}

SIM_API(cuMipmappedArrayCreate,
        (CUmipmappedArray * pHandle, const CUDA_ARRAY3D_DESCRIPTOR *pMipmappedArrayDesc,
         unsigned numMipmapLevels),
        (pHandle, pMipmappedArrayDesc, numMipmapLevels), "%p %u",
        pHandle == NULL || sim_result != CUDA_SUCCESS ? NULL : (void *)*pHandle, numMipmapLevels)
{
    struct sim_context *context;
    CUresult result = sim_current(&context);

    if (result != CUDA_SUCCESS)
        return result;
    result = pHandle == NULL || numMipmapLevels == 0 ? CUDA_ERROR_INVALID_VALUE
                                                     : check_descriptor(pMipmappedArrayDesc);
    if (result == CUDA_SUCCESS)
        result = sim_check_unsafe_call(context);
    if (result != CUDA_SUCCESS)
        return result;
    return create_mipmap(pHandle, context, pMipmappedArrayDesc, numMipmapLevels);
}

SIM_API(cuMipmappedArrayGetLevel,
        (CUarray * pLevelArray, CUmipmappedArray hMipmappedArray, unsigned level),
        (pLevelArray, hMipmappedArray, level), "%p %u", (void *)hMipmappedArray, level)
{
    struct CUmipmappedArray_st *mipmap;
    struct sim_context *context;
    CUresult result = sim_current(&context);

    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&sim_memory_lock);
    mipmap = find_mipmap(hMipmappedArray);
    if (mipmap == NULL)
        result = CUDA_ERROR_INVALID_HANDLE;
    else if (pLevelArray == NULL || level >= mipmap->level_count)
        result = CUDA_ERROR_INVALID_VALUE;
    else
        *pLevelArray = &mipmap->levels[level];
    pthread_mutex_unlock(&sim_memory_lock);
    return result;
}

SIM_API(cuMipmappedArrayDestroy, (CUmipmappedArray hMipmappedArray), (hMipmappedArray), "%p",
        (void *)hMipmappedArray)
{
    struct CUmipmappedArray_st *mipmap;
    struct sim_context *context;
    CUresult result = begin_destroy(&context);

    if (result != CUDA_SUCCESS)
        return result;
    pthread_rwlock_wrlock(&sim_use_lock);
    pthread_mutex_lock(&sim_memory_lock);
    mipmap = find_mipmap(hMipmappedArray);
    if (mipmap == NULL)
        result = CUDA_ERROR_INVALID_HANDLE;
    else
        drop_mipmap(mipmap);
    pthread_mutex_unlock(&sim_memory_lock);
    pthread_rwlock_unlock(&sim_use_lock);
    return result;
}

/* ---- what arrays need; only those whose memory is mapped later have an answer ---- */

#if CUDA_VERSION >= 11060
static CUresult requirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *out, const CUDA_ARRAY3D_DESCRIPTOR *in,
                             uint64_t bytes, CUdevice device)
{
    if (sim_device(device) == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    if (out == NULL || (in->Flags & CUDA_ARRAY3D_DEFERRED_MAPPING) == 0)
        return CUDA_ERROR_INVALID_VALUE;
    memset(out, 0, sizeof *out);
    out->size = sim_round_up(bytes, SIM_PAGE);
    out->alignment = SIM_PAGE;
    return CUDA_SUCCESS;
}

SIM_API(cuArrayGetMemoryRequirements,
        (CUDA_ARRAY_MEMORY_REQUIREMENTS * memoryRequirements, CUarray array, CUdevice device),
        (memoryRequirements, array, device), "%p %d", (void *)array, device)
{
    struct CUarray_st *found;
    CUresult result = sim_check_init();

    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&sim_memory_lock);
    found = find_array(array);
    result = found == NULL ? CUDA_ERROR_INVALID_HANDLE
                           : requirements(memoryRequirements, &found->descriptor,
                                          total_bytes(&found->descriptor), device);
    pthread_mutex_unlock(&sim_memory_lock);
    return result;
}

SIM_API(cuMipmappedArrayGetMemoryRequirements,
        (CUDA_ARRAY_MEMORY_REQUIREMENTS * memoryRequirements, CUmipmappedArray mipmap,
         CUdevice device),
        (memoryRequirements, mipmap, device), "%p %d", (void *)mipmap, device)
{
    struct CUmipmappedArray_st *found;
    CUresult result = sim_check_init();

    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&sim_memory_lock);
    found = find_mipmap(mipmap);
    result = found == NULL
                 ? CUDA_ERROR_INVALID_HANDLE
                 : requirements(memoryRequirements, &found->descriptor, found->bytes, device);
    pthread_mutex_unlock(&sim_memory_lock);
    return result;
}
#endif
