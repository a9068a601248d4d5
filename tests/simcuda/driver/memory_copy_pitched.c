/* Two- and three-dimensional copies. All descriptors become a CUDA_MEMCPY3D, and that a struct
 * sim_copy. */
#include "memory.h"

#include <string.h>

/* The parts of a descriptor that describe one side. */
struct described {
    CUmemorytype type;
    uint64_t host, device, x, y, z, lod, pitch, height;
    CUarray array;
};

static CUresult parse_side(const struct described *in, const CUDA_MEMCPY3D *whole,
                           struct sim_side *side)
{
    uint64_t base = in->type == CU_MEMORYTYPE_HOST ? in->host : in->device;

    memset(side, 0, sizeof *side);
    if (in->lod != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (in->type == CU_MEMORYTYPE_ARRAY) {
        side->array = in->array;
        side->x = in->x;
        side->y = in->y;
        side->z = in->z;
        return in->array == NULL ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
    }
    if (in->type != CU_MEMORYTYPE_HOST && in->type != CU_MEMORYTYPE_DEVICE &&
        in->type != CU_MEMORYTYPE_UNIFIED)
        return CUDA_ERROR_INVALID_VALUE;
    if ((whole->Height > 1 || whole->Depth > 1 || in->y != 0 || in->z != 0) &&
        (in->pitch < in->x || in->pitch - in->x < whole->WidthInBytes))
        return CUDA_ERROR_INVALID_VALUE;
    if ((whole->Depth > 1 || in->z != 0) &&
        (in->height < in->y || in->height - in->y < whole->Height))
        return CUDA_ERROR_INVALID_VALUE;
    side->pitch = in->pitch;
    if (__builtin_mul_overflow(in->pitch, in->height, &side->slice))
        return CUDA_ERROR_INVALID_VALUE;
    if (base != 0)
        side->address = base + in->z * side->slice + in->y * in->pitch + in->x;
    return CUDA_SUCCESS;
}

CUresult sim_copy_parse(const CUDA_MEMCPY3D *in, struct sim_copy *copy)
{
    const struct described from = {in->srcMemoryType, (uint64_t)(uintptr_t)in->srcHost,
                                   in->srcDevice,     in->srcXInBytes,
                                   in->srcY,          in->srcZ,
                                   in->srcLOD,        in->srcPitch,
                                   in->srcHeight,     in->srcArray};
    const struct described to = {in->dstMemoryType, (uint64_t)(uintptr_t)in->dstHost,
                                 in->dstDevice,     in->dstXInBytes,
                                 in->dstY,          in->dstZ,
                                 in->dstLOD,        in->dstPitch,
                                 in->dstHeight,     in->dstArray};
    CUresult result = parse_side(&from, in, &copy->from);

    if (result == CUDA_SUCCESS)
        result = parse_side(&to, in, &copy->to);
    copy->width = in->WidthInBytes;
    copy->height = in->Height;
    copy->depth = in->Depth;
    return result;
}

/* Contexts: that reach the two sides; NULL: the one that copies. */
static CUresult copy_between(const CUDA_MEMCPY3D *descriptor, struct sim_context *to,
                             struct sim_context *from, struct sim_order order)
{
    struct sim_context *context;
    struct sim_copy copy;
    CUresult result = sim_current(&context);

    if (result == CUDA_SUCCESS)
        result = descriptor == NULL ? CUDA_ERROR_INVALID_VALUE : sim_copy_parse(descriptor, &copy);
    if (result != CUDA_SUCCESS)
        return result;
    copy.to.context = to;
    copy.from.context = from;
    return sim_copy_submit(&copy, order);
}

static CUresult copy_3d(const CUDA_MEMCPY3D *descriptor, struct sim_order order)
{
    return copy_between(descriptor, NULL, NULL, order);
}

/* Copies the fields that all descriptors have, whatever their widths. */
#define COMMON_FIELDS(from)                                                                        \
    .srcXInBytes = (from)->srcXInBytes, .srcY = (from)->srcY,                                      \
    .srcMemoryType = (from)->srcMemoryType, .srcHost = (from)->srcHost,                            \
    .srcDevice = (from)->srcDevice, .srcArray = (from)->srcArray, .srcPitch = (from)->srcPitch,    \
    .dstXInBytes = (from)->dstXInBytes, .dstY = (from)->dstY,                                      \
    .dstMemoryType = (from)->dstMemoryType, .dstHost = (from)->dstHost,                            \
    .dstDevice = (from)->dstDevice, .dstArray = (from)->dstArray, .dstPitch = (from)->dstPitch,    \
    .WidthInBytes = (from)->WidthInBytes, .Height = (from)->Height
#define DEPTH_FIELDS(from)                                                                         \
    .srcZ = (from)->srcZ, .srcLOD = (from)->srcLOD, .srcHeight = (from)->srcHeight,                \
    .dstZ = (from)->dstZ, .dstLOD = (from)->dstLOD, .dstHeight = (from)->dstHeight,                \
    .Depth = (from)->Depth

static CUresult copy_2d(const CUDA_MEMCPY2D *in, struct sim_order order)
{
    if (in == NULL)
        return copy_3d(NULL, order);
    return copy_3d(&(CUDA_MEMCPY3D){COMMON_FIELDS(in), .Depth = 1}, order);
}

static CUresult copy_2d_v1(const CUDA_MEMCPY2D_v1 *in, struct sim_order order)
{
    if (in == NULL)
        return copy_3d(NULL, order);
    return copy_3d(&(CUDA_MEMCPY3D){COMMON_FIELDS(in), .Depth = 1}, order);
}

static CUresult copy_3d_v1(const CUDA_MEMCPY3D_v1 *in, struct sim_order order)
{
    if (in == NULL)
        return copy_3d(NULL, order);
    return copy_3d(&(CUDA_MEMCPY3D){COMMON_FIELDS(in), DEPTH_FIELDS(in)}, order);
}

static CUresult copy_3d_peer(const CUDA_MEMCPY3D_PEER *in, struct sim_order order)
{
    struct sim_context *to = NULL, *from = NULL;
    CUresult result = CUDA_SUCCESS;

    if (in == NULL)
        return copy_3d(NULL, order);
    if (in->srcMemoryType != CU_MEMORYTYPE_ARRAY && in->srcMemoryType != CU_MEMORYTYPE_HOST)
        result = sim_context_check(in->srcContext, &from);
    if (result == CUDA_SUCCESS && in->dstMemoryType != CU_MEMORYTYPE_ARRAY &&
        in->dstMemoryType != CU_MEMORYTYPE_HOST)
        result = sim_context_check(in->dstContext, &to);
    if (result != CUDA_SUCCESS)
        return result;
    return copy_between(&(CUDA_MEMCPY3D){COMMON_FIELDS(in), DEPTH_FIELDS(in)}, to, from, order);
}

#define FORMAT_COPY(type)                                                                          \
    "%p %zu %zu", (const void *)pCopy, pCopy == NULL ? (size_t)0 : (size_t)pCopy->WidthInBytes,    \
        pCopy == NULL ? (size_t)0 : (size_t)pCopy->Height

SIM_API_THREAD(cuMemcpy2D_v2, _ptds, (const CUDA_MEMCPY2D *pCopy), (pCopy), FORMAT_COPY(2D))
{
    return copy_2d(pCopy, SIM_SYNC(per_thread));
}

SIM_API(cuMemcpy2D, (const CUDA_MEMCPY2D_v1 *pCopy), (pCopy), FORMAT_COPY(2D))
{
    return copy_2d_v1(pCopy, SIM_SYNC(false));
}

SIM_API_THREAD(cuMemcpy2DUnaligned_v2, _ptds, (const CUDA_MEMCPY2D *pCopy), (pCopy),
               FORMAT_COPY(2D))
{
    return copy_2d(pCopy, SIM_SYNC(per_thread));
}

SIM_API(cuMemcpy2DUnaligned, (const CUDA_MEMCPY2D_v1 *pCopy), (pCopy), FORMAT_COPY(2D))
{
    return copy_2d_v1(pCopy, SIM_SYNC(false));
}

SIM_API_THREAD(cuMemcpy2DAsync_v2, _ptsz, (const CUDA_MEMCPY2D *pCopy, CUstream hStream),
               (pCopy, hStream), FORMAT_COPY(2D))
{
    return copy_2d(pCopy, SIM_ASYNC(per_thread, hStream));
}

SIM_API(cuMemcpy2DAsync, (const CUDA_MEMCPY2D_v1 *pCopy, CUstream hStream), (pCopy, hStream),
        FORMAT_COPY(2D))
{
    return copy_2d_v1(pCopy, SIM_ASYNC(false, hStream));
}

SIM_API_THREAD(cuMemcpy3D_v2, _ptds, (const CUDA_MEMCPY3D *pCopy), (pCopy), FORMAT_COPY(3D))
{
    return copy_3d(pCopy, SIM_SYNC(per_thread));
}

SIM_API(cuMemcpy3D, (const CUDA_MEMCPY3D_v1 *pCopy), (pCopy), FORMAT_COPY(3D))
{
    return copy_3d_v1(pCopy, SIM_SYNC(false));
}

SIM_API_THREAD(cuMemcpy3DAsync_v2, _ptsz, (const CUDA_MEMCPY3D *pCopy, CUstream hStream),
               (pCopy, hStream), FORMAT_COPY(3D))
{
    return copy_3d(pCopy, SIM_ASYNC(per_thread, hStream));
}

SIM_API(cuMemcpy3DAsync, (const CUDA_MEMCPY3D_v1 *pCopy, CUstream hStream), (pCopy, hStream),
        FORMAT_COPY(3D))
{
    return copy_3d_v1(pCopy, SIM_ASYNC(false, hStream));
}

SIM_API_THREAD(cuMemcpy3DPeer, _ptds, (const CUDA_MEMCPY3D_PEER *pCopy), (pCopy), FORMAT_COPY(3D))
{
    return copy_3d_peer(pCopy, SIM_SYNC(per_thread));
}

SIM_API_THREAD(cuMemcpy3DPeerAsync, _ptsz, (const CUDA_MEMCPY3D_PEER *pCopy, CUstream hStream),
               (pCopy, hStream), FORMAT_COPY(3D))
{
    return copy_3d_peer(pCopy, SIM_ASYNC(per_thread, hStream));
}
