/* Arrays and mipmapped arrays: making them, asking about them, and copying to and from them. */
#include "runtime.h"

#include <string.h>

struct cudaChannelFormatDesc RT_EXPORT cudaCreateChannelDesc(int x, int y, int z, int w,
                                                             enum cudaChannelFormatKind f)
{
    return (struct cudaChannelFormatDesc){.x = x, .y = y, .z = z, .w = w, .f = f};
}

static cudaError_t describe(const struct cudaChannelFormatDesc *desc, struct cudaExtent extent,
                            unsigned flags, CUDA_ARRAY3D_DESCRIPTOR *driver)
{
    *driver = (CUDA_ARRAY3D_DESCRIPTOR){
        .Width = extent.width, .Height = extent.height, .Depth = extent.depth, .Flags = flags};
    return rt_channel_to_format(desc, &driver->Format, &driver->NumChannels);
}

RT_API(context, cudaMallocArray,
       (cudaArray_t * array, const struct cudaChannelFormatDesc *desc, size_t width, size_t height,
        unsigned flags),
       (array, desc, width, height, flags))
{
    CUDA_ARRAY3D_DESCRIPTOR full;
    CUDA_ARRAY_DESCRIPTOR flat;
    struct cudaExtent extent = {.width = width, .height = height};

    if (!array || !desc)
        return cudaErrorInvalidValue;
    RT_TRY(describe(desc, extent, flags, &full));
    if (flags)
        return rt_result(rt_cu.cuArray3DCreate_v2((CUarray *)array, &full));
    flat = (CUDA_ARRAY_DESCRIPTOR){
        .Width = width, .Height = height, .Format = full.Format, .NumChannels = full.NumChannels};
    return rt_result(rt_cu.cuArrayCreate_v2((CUarray *)array, &flat));
}

RT_API(context, cudaMalloc3DArray,
       (cudaArray_t * array, const struct cudaChannelFormatDesc *desc, struct cudaExtent extent,
        unsigned flags),
       (array, desc, extent, flags))
{
    CUDA_ARRAY3D_DESCRIPTOR full;

    if (!array || !desc)
        return cudaErrorInvalidValue;
    RT_TRY(describe(desc, extent, flags, &full));
    return rt_result(rt_cu.cuArray3DCreate_v2((CUarray *)array, &full));
}

RT_API(context, cudaFreeArray, (cudaArray_t array), (array))
{
    return array ? rt_result(rt_cu.cuArrayDestroy((CUarray)array)) : cudaSuccess;
}

RT_API(context, cudaMallocMipmappedArray,
       (cudaMipmappedArray_t * mipmapped, const struct cudaChannelFormatDesc *desc,
        struct cudaExtent extent, unsigned numLevels, unsigned flags),
       (mipmapped, desc, extent, numLevels, flags))
{
    CUDA_ARRAY3D_DESCRIPTOR full;

    if (!mipmapped || !desc)
        return cudaErrorInvalidValue;
    RT_TRY(describe(desc, extent, flags, &full));
    return rt_result(rt_cu.cuMipmappedArrayCreate((CUmipmappedArray *)mipmapped, &full, numLevels));
}

RT_API(context, cudaFreeMipmappedArray, (cudaMipmappedArray_t mipmapped), (mipmapped))
{
    return mipmapped ? rt_result(rt_cu.cuMipmappedArrayDestroy((CUmipmappedArray)mipmapped))
                     : cudaSuccess;
}

RT_API(context, cudaGetMipmappedArrayLevel,
       (cudaArray_t * array, cudaMipmappedArray_const_t mipmapped, unsigned level),
       (array, mipmapped, level))
{
    CUmipmappedArray same = (CUmipmappedArray)(uintptr_t)mipmapped;

    return array ? rt_result(rt_cu.cuMipmappedArrayGetLevel((CUarray *)array, same, level))
                 : cudaErrorInvalidValue;
}

/* ---- questions ---- */

RT_API(context, cudaArrayGetInfo,
       (struct cudaChannelFormatDesc * desc, struct cudaExtent *extent, unsigned *flags,
        cudaArray_t array),
       (desc, extent, flags, array))
{
    CUDA_ARRAY3D_DESCRIPTOR full;

    if (!array)
        return cudaErrorInvalidResourceHandle;
    RT_TRY_CU(rt_cu.cuArray3DGetDescriptor_v2(&full, (CUarray)array));
    if (flags)
        *flags = full.Flags;
    if (extent)
        *extent =
            (struct cudaExtent){.width = full.Width, .height = full.Height, .depth = full.Depth};
    return desc ? rt_format_to_channel(full.Format, full.NumChannels, desc) : cudaSuccess;
}

RT_API(context, cudaGetChannelDesc, (struct cudaChannelFormatDesc * desc, cudaArray_const_t array),
       (desc, array))
{
    CUDA_ARRAY3D_DESCRIPTOR full;

    if (!desc)
        return cudaErrorInvalidValue;
    RT_TRY_CU(rt_cu.cuArray3DGetDescriptor_v2(&full, (CUarray)(uintptr_t)array));
    return rt_format_to_channel(full.Format, full.NumChannels, desc);
}

RT_API(context, cudaArrayGetPlane, (cudaArray_t * plane, cudaArray_t array, unsigned index),
       (plane, array, index))
{
    if (!plane)
        return cudaErrorInvalidValue;
    return rt_result(rt_cu.cuArrayGetPlane((CUarray *)plane, (CUarray)array, index));
}

_Static_assert(sizeof(struct cudaArrayMemoryRequirements) == sizeof(CUDA_ARRAY_MEMORY_REQUIREMENTS),
               "memory requirements are passed on");

RT_API(context, cudaArrayGetMemoryRequirements,
       (struct cudaArrayMemoryRequirements * requirements, cudaArray_t array, int device),
       (requirements, array, device))
{
    if (!requirements)
        return cudaErrorInvalidValue;
    return rt_result(rt_cu.cuArrayGetMemoryRequirements(
        (CUDA_ARRAY_MEMORY_REQUIREMENTS *)requirements, (CUarray)array, device));
}

RT_API(context, cudaMipmappedArrayGetMemoryRequirements,
       (struct cudaArrayMemoryRequirements * requirements, cudaMipmappedArray_t mipmapped,
        int device),
       (requirements, mipmapped, device))
{
    if (!requirements)
        return cudaErrorInvalidValue;
    return rt_result(rt_cu.cuMipmappedArrayGetMemoryRequirements(
        (CUDA_ARRAY_MEMORY_REQUIREMENTS *)requirements, (CUmipmappedArray)mipmapped, device));
}

/* ---- copies of rectangles ---- */

/* One end of a copy: an array at a place, or a pointer with a pitch. */
struct end {
    cudaArray_const_t array;
    const void *pointer;
    size_t pitch;
    size_t x;
    size_t y;
};

static cudaError_t rectangle(CUDA_MEMCPY2D *shape, struct end to, struct end from, size_t width,
                             size_t height, enum cudaMemcpyKind kind)
{
    memset(shape, 0, sizeof(*shape));
    RT_TRY(rt_memory_types(kind, &shape->srcMemoryType, &shape->dstMemoryType));
    if ((!from.array && width > from.pitch) || (!to.array && width > to.pitch))
        return cudaErrorInvalidPitchValue;
    if (from.array)
        shape->srcMemoryType = CU_MEMORYTYPE_ARRAY;
    if (to.array)
        shape->dstMemoryType = CU_MEMORYTYPE_ARRAY;
    shape->srcXInBytes = from.x;
    shape->srcY = from.y;
    shape->srcHost = from.pointer;
    shape->srcDevice = (CUdeviceptr)(uintptr_t)from.pointer;
    shape->srcArray = (CUarray)(uintptr_t)from.array;
    shape->srcPitch = from.pitch;
    shape->dstXInBytes = to.x;
    shape->dstY = to.y;
    shape->dstHost = (void *)(uintptr_t)to.pointer;
    shape->dstDevice = (CUdeviceptr)(uintptr_t)to.pointer;
    shape->dstArray = (CUarray)(uintptr_t)to.array;
    shape->dstPitch = to.pitch;
    shape->WidthInBytes = width;
    shape->Height = height;
    return cudaSuccess;
}

static cudaError_t copy(bool per_thread, struct end to, struct end from, size_t width,
                        size_t height, enum cudaMemcpyKind kind)
{
    CUDA_MEMCPY2D shape;

    RT_TRY(rectangle(&shape, to, from, width, height, kind));
    if (!width || !height)
        return cudaSuccess;
    return rt_result(RT_PICK(cuMemcpy2DUnaligned_v2, ptds)(&shape));
}

static cudaError_t copy_async(bool per_thread, struct end to, struct end from, size_t width,
                              size_t height, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    CUDA_MEMCPY2D shape;

    RT_TRY(rectangle(&shape, to, from, width, height, kind));
    if (!width || !height)
        return cudaSuccess;
    return rt_result(RT_PICK(cuMemcpy2DAsync_v2, ptsz)(&shape, stream));
}

static struct end in_array(cudaArray_const_t array, size_t x, size_t y)
{
    return (struct end){.array = array, .x = x, .y = y};
}

static struct end in_memory(const void *pointer, size_t pitch)
{
    return (struct end){.pointer = pointer, .pitch = pitch};
}

RT_API_PT(context, cudaMemcpy2DToArray, ptds,
          (cudaArray_t dst, size_t wOffset, size_t hOffset, const void *src, size_t spitch,
           size_t width, size_t height, enum cudaMemcpyKind kind),
          (dst, wOffset, hOffset, src, spitch, width, height, kind))
{
    return copy(per_thread, in_array(dst, wOffset, hOffset), in_memory(src, spitch), width, height,
                kind);
}

RT_API_PT(context, cudaMemcpy2DToArrayAsync, ptsz,
          (cudaArray_t dst, size_t wOffset, size_t hOffset, const void *src, size_t spitch,
           size_t width, size_t height, enum cudaMemcpyKind kind, cudaStream_t stream),
          (dst, wOffset, hOffset, src, spitch, width, height, kind, stream))
{
    return copy_async(per_thread, in_array(dst, wOffset, hOffset), in_memory(src, spitch), width,
                      height, kind, stream);
}

RT_API_PT(context, cudaMemcpy2DFromArray, ptds,
          (void *dst, size_t dpitch, cudaArray_const_t src, size_t wOffset, size_t hOffset,
           size_t width, size_t height, enum cudaMemcpyKind kind),
          (dst, dpitch, src, wOffset, hOffset, width, height, kind))
{
    return copy(per_thread, in_memory(dst, dpitch), in_array(src, wOffset, hOffset), width, height,
                kind);
}

RT_API_PT(context, cudaMemcpy2DFromArrayAsync, ptsz,
          (void *dst, size_t dpitch, cudaArray_const_t src, size_t wOffset, size_t hOffset,
           size_t width, size_t height, enum cudaMemcpyKind kind, cudaStream_t stream),
          (dst, dpitch, src, wOffset, hOffset, width, height, kind, stream))
{
    return copy_async(per_thread, in_memory(dst, dpitch), in_array(src, wOffset, hOffset), width,
                      height, kind, stream);
}

RT_API_PT(context, cudaMemcpy2DArrayToArray, ptds,
          (cudaArray_t dst, size_t wOffsetDst, size_t hOffsetDst, cudaArray_const_t src,
           size_t wOffsetSrc, size_t hOffsetSrc, size_t width, size_t height,
           enum cudaMemcpyKind kind),
          (dst, wOffsetDst, hOffsetDst, src, wOffsetSrc, hOffsetSrc, width, height, kind))
{
    return copy(per_thread, in_array(dst, wOffsetDst, hOffsetDst),
                in_array(src, wOffsetSrc, hOffsetSrc), width, height, kind);
}

/* ---- copies of a run of bytes through an array, row after row ---- */

static cudaError_t row_bytes(cudaArray_const_t array, size_t *bytes)
{
    CUDA_ARRAY3D_DESCRIPTOR full;

    RT_TRY_CU(rt_cu.cuArray3DGetDescriptor_v2(&full, (CUarray)(uintptr_t)array));
    *bytes = full.Width * rt_format_bytes(full.Format) * full.NumChannels;
    return *bytes ? cudaSuccess : cudaErrorInvalidValue;
}

/* The array's end moves on by `bytes`; the other end is memory. */
static void advance(struct end *array, struct end *memory, size_t bytes, size_t row)
{
    array->x += bytes;
    if (array->x == row) {
        array->x = 0;
        array->y++;
    }
    memory->pointer = (const char *)memory->pointer + bytes;
}

struct run {
    bool is_to_array;
    bool is_async;
    struct end array;
    struct end memory;
    size_t count;
    enum cudaMemcpyKind kind;
    cudaStream_t stream;
};

static cudaError_t copy_run(bool per_thread, struct run run)
{
    size_t row;

    RT_TRY(row_bytes(run.array.array, &row));
    if (run.array.x >= row)
        return cudaErrorInvalidValue;
    while (run.count) {
        size_t bytes = row - run.array.x < run.count ? row - run.array.x : run.count;
        struct end to, from;

        run.memory.pitch = bytes;
        to = run.is_to_array ? run.array : run.memory;
        from = run.is_to_array ? run.memory : run.array;
        if (run.is_async)
            RT_TRY(copy_async(per_thread, to, from, bytes, 1, run.kind, run.stream));
        else
            RT_TRY(copy(per_thread, to, from, bytes, 1, run.kind));
        advance(&run.array, &run.memory, bytes, row);
        run.count -= bytes;
    }
    return cudaSuccess;
}

RT_API_PT(context, cudaMemcpyToArray, ptds,
          (cudaArray_t dst, size_t wOffset, size_t hOffset, const void *src, size_t count,
           enum cudaMemcpyKind kind),
          (dst, wOffset, hOffset, src, count, kind))
{
    return copy_run(per_thread, (struct run){.is_to_array = true,
                                             .array = in_array(dst, wOffset, hOffset),
                                             .memory = in_memory(src, 0),
                                             .count = count,
                                             .kind = kind});
}

RT_API_PT(context, cudaMemcpyToArrayAsync, ptsz,
          (cudaArray_t dst, size_t wOffset, size_t hOffset, const void *src, size_t count,
           enum cudaMemcpyKind kind, cudaStream_t stream),
          (dst, wOffset, hOffset, src, count, kind, stream))
{
    return copy_run(per_thread, (struct run){.is_to_array = true,
                                             .is_async = true,
                                             .array = in_array(dst, wOffset, hOffset),
                                             .memory = in_memory(src, 0),
                                             .count = count,
                                             .kind = kind,
                                             .stream = stream});
}

RT_API_PT(context, cudaMemcpyFromArray, ptds,
          (void *dst, cudaArray_const_t src, size_t wOffset, size_t hOffset, size_t count,
           enum cudaMemcpyKind kind),
          (dst, src, wOffset, hOffset, count, kind))
{
    return copy_run(per_thread, (struct run){.array = in_array(src, wOffset, hOffset),
                                             .memory = in_memory(dst, 0),
                                             .count = count,
                                             .kind = kind});
}

RT_API_PT(context, cudaMemcpyFromArrayAsync, ptsz,
          (void *dst, cudaArray_const_t src, size_t wOffset, size_t hOffset, size_t count,
           enum cudaMemcpyKind kind, cudaStream_t stream),
          (dst, src, wOffset, hOffset, count, kind, stream))
{
    return copy_run(per_thread, (struct run){.is_async = true,
                                             .array = in_array(src, wOffset, hOffset),
                                             .memory = in_memory(dst, 0),
                                             .count = count,
                                             .kind = kind,
                                             .stream = stream});
}

/* ---- surface objects: of arrays only ---- */

RT_API(context, cudaCreateSurfaceObject,
       (cudaSurfaceObject_t * surface, const struct cudaResourceDesc *desc), (surface, desc))
{
    CUDA_RESOURCE_DESC same = {.resType = CU_RESOURCE_TYPE_ARRAY};

    if (!surface || !desc || desc->resType != cudaResourceTypeArray)
        return cudaErrorInvalidValue;
    same.res.array.hArray = (CUarray)desc->res.array.array;
    same.flags = desc->flags;
    return rt_result(rt_cu.cuSurfObjectCreate(surface, &same));
}

RT_API(context, cudaDestroySurfaceObject, (cudaSurfaceObject_t surface), (surface))
{
    return rt_result(rt_cu.cuSurfObjectDestroy(surface));
}

RT_API(context, cudaGetSurfaceObjectResourceDesc,
       (struct cudaResourceDesc * desc, cudaSurfaceObject_t surface), (desc, surface))
{
    CUDA_RESOURCE_DESC same;

    if (!desc)
        return cudaErrorInvalidValue;
    RT_TRY_CU(rt_cu.cuSurfObjectGetResourceDesc(&same, surface));
    *desc = (struct cudaResourceDesc){.resType = cudaResourceTypeArray};
    desc->res.array.array = (cudaArray_t)same.res.array.hArray;
    return cudaSuccess;
}
