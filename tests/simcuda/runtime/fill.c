/* Fills: one, two and three dimensions. The value's low byte goes into every byte. */
#include "runtime.h"

static CUdeviceptr device(const void *pointer)
{
    return (CUdeviceptr)(uintptr_t)pointer;
}

RT_API_PT(context, cudaMemset, ptds, (void *devPtr, int value, size_t count),
          (devPtr, value, count))
{
    if (!count)
        return cudaSuccess;
    return rt_result(RT_PICK(cuMemsetD8_v2, ptds)(device(devPtr), (unsigned char)value, count));
}

RT_API_PT(context, cudaMemsetAsync, ptsz,
          (void *devPtr, int value, size_t count, cudaStream_t stream),
          (devPtr, value, count, stream))
{
    if (!count)
        return cudaSuccess;
    return rt_result(
        RT_PICK(cuMemsetD8Async, ptsz)(device(devPtr), (unsigned char)value, count, stream));
}

RT_API_PT(context, cudaMemset2D, ptds,
          (void *devPtr, size_t pitch, int value, size_t width, size_t height),
          (devPtr, pitch, value, width, height))
{
    if (!width || !height)
        return cudaSuccess;
    return rt_result(
        RT_PICK(cuMemsetD2D8_v2, ptds)(device(devPtr), pitch, (unsigned char)value, width, height));
}

RT_API_PT(context, cudaMemset2DAsync, ptsz,
          (void *devPtr, size_t pitch, int value, size_t width, size_t height, cudaStream_t stream),
          (devPtr, pitch, value, width, height, stream))
{
    if (!width || !height)
        return cudaSuccess;
    return rt_result(RT_PICK(cuMemsetD2D8Async, ptsz)(device(devPtr), pitch, (unsigned char)value,
                                                      width, height, stream));
}

/* Three dimensions are slices of pitch * ysize bytes; whole slices are one run of rows. */
struct slices {
    size_t count;
    size_t rows;
    size_t stride;
};

static struct slices slices_of(struct cudaPitchedPtr pitched, struct cudaExtent extent)
{
    struct slices slices = {extent.depth, extent.height, pitched.pitch * pitched.ysize};

    if (!extent.width || !extent.height)
        slices.count = 0;
    if (slices.count && pitched.ysize == extent.height) {
        slices.rows = extent.height * extent.depth;
        slices.count = 1;
    }
    return slices;
}

RT_API_PT(context, cudaMemset3D, ptds,
          (struct cudaPitchedPtr pitched, int value, struct cudaExtent extent),
          (pitched, value, extent))
{
    struct slices slices = slices_of(pitched, extent);

    for (size_t i = 0; i < slices.count; i++)
        RT_TRY_CU(RT_PICK(cuMemsetD2D8_v2, ptds)(device(pitched.ptr) + i * slices.stride,
                                                 pitched.pitch, (unsigned char)value, extent.width,
                                                 slices.rows));
    return cudaSuccess;
}

RT_API_PT(context, cudaMemset3DAsync, ptsz,
          (struct cudaPitchedPtr pitched, int value, struct cudaExtent extent, cudaStream_t stream),
          (pitched, value, extent, stream))
{
    struct slices slices = slices_of(pitched, extent);

    for (size_t i = 0; i < slices.count; i++)
        RT_TRY_CU(RT_PICK(cuMemsetD2D8Async, ptsz)(device(pitched.ptr) + i * slices.stride,
                                                   pitched.pitch, (unsigned char)value,
                                                   extent.width, slices.rows, stream));
    return cudaSuccess;
}
