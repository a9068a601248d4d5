/* Arrays: charged by their descriptor, then by the driver's figure where it returns one. Sparse
 * arrays and those whose mapping is deferred take no memory of their own. */
#include "shim/account/direct.h"
#include "shim/account/physical.h"
#include "shim/life/life.h"
#include "shim/real/resolve.h"
#include "shim/wrap/relieve.h"

#define NO_MEMORY_FLAGS (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING)

/* Saturating: the limit, or the driver, refuses an overflow. */
static uint64_t multiply(uint64_t a, uint64_t b)
{
    uint64_t product;
    return __builtin_mul_overflow(a, b, &product) ? (uint64_t)INT64_MAX : product;
}

static uint64_t add(uint64_t a, uint64_t b)
{
    uint64_t sum = a + b;
    return sum < a || sum > (uint64_t)INT64_MAX ? (uint64_t)INT64_MAX : sum;
}

/* 0 for block-compressed, planar and newer formats: those are charged by the driver's figure. */
static unsigned format_bytes(CUarray_format format)
{
    switch (format) {
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

static uint64_t at_least_one(uint64_t extent)
{
    return extent ? extent : 1;
}

/* The bytes of one level; layers and cube faces are counted in depth. */
static uint64_t level_bytes(const CUDA_ARRAY3D_DESCRIPTOR *d)
{
    uint64_t texel = (uint64_t)format_bytes(d->Format) * d->NumChannels;
    uint64_t row = multiply(at_least_one(d->Width), texel);
    return multiply(multiply(row, at_least_one(d->Height)), at_least_one(d->Depth));
}

static uint64_t array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *descriptor, unsigned levels)
{
    uint64_t bytes = 0;

    if (descriptor == NULL || (descriptor->Flags & NO_MEMORY_FLAGS))
        return 0;
    CUDA_ARRAY3D_DESCRIPTOR level = *descriptor;
    bool is_layered = level.Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP);
    for (unsigned i = 0; i < levels && i < 64; i++) {
        bytes = add(bytes, level_bytes(&level));
        level.Width /= 2;
        level.Height /= 2;
        level.Depth = is_layered ? level.Depth : level.Depth / 2;
    }
    return bytes;
}

static CUDA_ARRAY3D_DESCRIPTOR from_2d(const CUDA_ARRAY_DESCRIPTOR *d)
{
    return (CUDA_ARRAY3D_DESCRIPTOR){
        .Width = d->Width, .Height = d->Height, .Format = d->Format, .NumChannels = d->NumChannels};
}

static CUDA_ARRAY3D_DESCRIPTOR from_2d_v1(const CUDA_ARRAY_DESCRIPTOR_v1 *d)
{
    return (CUDA_ARRAY3D_DESCRIPTOR){
        .Width = d->Width, .Height = d->Height, .Format = d->Format, .NumChannels = d->NumChannels};
}

static CUDA_ARRAY3D_DESCRIPTOR from_3d_v1(const CUDA_ARRAY3D_DESCRIPTOR_v1 *d)
{
    return (CUDA_ARRAY3D_DESCRIPTOR){.Width = d->Width,
                                     .Height = d->Height,
                                     .Depth = d->Depth,
                                     .Format = d->Format,
                                     .NumChannels = d->NumChannels,
                                     .Flags = d->Flags};
}

/* Sets the charge to the driver's figure for the array. False: the limit has no room for it. */
static bool adjust_charge(struct gc_direct_request *request, CUresult asked, uint64_t needed)
{
    if (asked != CUDA_SUCCESS || needed == 0 || request->device == NULL)
        return true;
    if (needed > request->reserved_bytes)
        return gc_direct_charge(request, needed - request->reserved_bytes) == CUDA_SUCCESS;
    gc_direct_uncharge(gc_shim.core, request->device, request->quota,
                       request->reserved_bytes - needed);
    request->reserved_bytes = needed;
    return true;
}

static CUresult finish_array(struct gc_direct_request *request, CUresult result, CUarray *array,
                             uint64_t bytes)
{
    CUDA_ARRAY_MEMORY_REQUIREMENTS needs = {0};

    if (result == CUDA_SUCCESS && array != NULL && request->device != NULL && bytes != 0) {
        CUresult asked = GC_USE(cuArrayGetMemoryRequirements, &needs, *array,
                                gc_device_get_info(request->device)->ordinal);
        if (!adjust_charge(request, asked, needs.size))
            result = GC_DIRECT_GIVE_BACK(request, cuArrayDestroy, *array);
    }
    if (result == CUDA_SUCCESS && array != NULL &&
        !gc_direct_record(request, GC_DIRECT_ARRAY, (uintptr_t)*array, bytes))
        result = GC_DIRECT_GIVE_BACK(request, cuArrayDestroy, *array);
    return gc_direct_end(request, result);
}

#define CREATE_ARRAY(symbol, convert)                                                              \
    do {                                                                                           \
        if (!gc_life_ready() || descriptor == NULL)                                                \
            return GC_FORWARD(symbol, array, descriptor);                                          \
        const CUDA_ARRAY3D_DESCRIPTOR whole = convert;                                             \
        uint64_t bytes = array_bytes(&whole, 1);                                                   \
        struct gc_direct_request request;                                                          \
        GC_SET_CALLER();                                                                           \
        gc_direct_begin(&request, GC_API_##symbol);                                                \
        CUresult result = gc_direct_charge(&request, bytes);                                       \
        if (result == CUDA_SUCCESS)                                                                \
            result = GC_DIRECT_CALL(&request, bytes, symbol, array, descriptor);                   \
        return finish_array(&request, result, array, bytes);                                       \
    } while (0)

GC_EXPORT
CUresult cuArrayCreate(CUarray *array, const CUDA_ARRAY_DESCRIPTOR_v1 *descriptor)
{
    CREATE_ARRAY(cuArrayCreate, from_2d_v1(descriptor));
}

GC_EXPORT
CUresult cuArrayCreate_v2(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *descriptor)
{
    CREATE_ARRAY(cuArrayCreate_v2, from_2d(descriptor));
}

GC_EXPORT
CUresult cuArray3DCreate(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR_v1 *descriptor)
{
    CREATE_ARRAY(cuArray3DCreate, from_3d_v1(descriptor));
}

GC_EXPORT
CUresult cuArray3DCreate_v2(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *descriptor)
{
    CREATE_ARRAY(cuArray3DCreate_v2, *descriptor);
}

GC_EXPORT
CUresult cuMipmappedArrayCreate(CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR *descriptor,
                                unsigned levels)
{
    if (!gc_life_ready() || descriptor == NULL)
        return GC_FORWARD(cuMipmappedArrayCreate, array, descriptor, levels);
    CUDA_ARRAY_MEMORY_REQUIREMENTS needs = {0};
    uint64_t bytes = array_bytes(descriptor, levels);
    struct gc_direct_request request;
    GC_SET_CALLER();
    gc_direct_begin(&request, GC_API_cuMipmappedArrayCreate);
    CUresult result = gc_direct_charge(&request, bytes);
    if (result == CUDA_SUCCESS)
        result = GC_DIRECT_CALL(&request, bytes, cuMipmappedArrayCreate, array, descriptor, levels);
    if (result == CUDA_SUCCESS && array != NULL && request.device != NULL && bytes != 0) {
        CUresult asked = GC_USE(cuMipmappedArrayGetMemoryRequirements, &needs, *array,
                                gc_device_get_info(request.device)->ordinal);
        if (!adjust_charge(&request, asked, needs.size))
            result = GC_DIRECT_GIVE_BACK(&request, cuMipmappedArrayDestroy, *array);
    }
    if (result == CUDA_SUCCESS && array != NULL &&
        !gc_direct_record(&request, GC_DIRECT_ARRAY, (uintptr_t)*array, bytes))
        result = GC_DIRECT_GIVE_BACK(&request, cuMipmappedArrayDestroy, *array);
    return gc_direct_end(&request, result);
}

#define DESTROY_ARRAY(symbol)                                                                      \
    do {                                                                                           \
        if (!gc_life_ready())                                                                      \
            return GC_FORWARD(symbol, array);                                                      \
        struct gc_direct_request request;                                                          \
        struct gc_direct_release release;                                                          \
        gc_direct_begin(&request, GC_API_##symbol);                                                \
        gc_direct_release_begin(&release, GC_DIRECT_ARRAY, (uintptr_t)array);                      \
        CUresult result = GC_CALL_RELIEVED(request.device, symbol, array);                         \
        if (result == CUDA_SUCCESS)                                                                \
            gc_physical_unmap_array((uintptr_t)array);                                             \
        gc_direct_release_end(&release, result == CUDA_SUCCESS);                                   \
        return gc_direct_end(&request, result);                                                    \
    } while (0)

GC_EXPORT
CUresult cuArrayDestroy(CUarray array)
{
    DESTROY_ARRAY(cuArrayDestroy);
}

GC_EXPORT
CUresult cuMipmappedArrayDestroy(CUmipmappedArray array)
{
    DESTROY_ARRAY(cuMipmappedArrayDestroy);
}
