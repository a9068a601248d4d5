/* Translates the runtime's words for shapes into the driver's: channel descriptions, copy kinds,
 * and the three-dimensional copy with its units (an array's elements, else bytes). */
#include "runtime.h"

#include <string.h>

size_t rt_format_bytes(CUarray_format format)
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

static cudaError_t format_find(enum cudaChannelFormatKind kind, int bits, CUarray_format *format)
{
    static const struct {
        enum cudaChannelFormatKind kind;
        int bits;
        CUarray_format format;
    } formats[] = {
        {cudaChannelFormatKindSigned, 8, CU_AD_FORMAT_SIGNED_INT8},
        {cudaChannelFormatKindSigned, 16, CU_AD_FORMAT_SIGNED_INT16},
        {cudaChannelFormatKindSigned, 32, CU_AD_FORMAT_SIGNED_INT32},
        {cudaChannelFormatKindUnsigned, 8, CU_AD_FORMAT_UNSIGNED_INT8},
        {cudaChannelFormatKindUnsigned, 16, CU_AD_FORMAT_UNSIGNED_INT16},
        {cudaChannelFormatKindUnsigned, 32, CU_AD_FORMAT_UNSIGNED_INT32},
        {cudaChannelFormatKindFloat, 16, CU_AD_FORMAT_HALF},
        {cudaChannelFormatKindFloat, 32, CU_AD_FORMAT_FLOAT},
    };

    for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++) {
        if (formats[i].kind == kind && formats[i].bits == bits) {
            *format = formats[i].format;
            return cudaSuccess;
        }
    }
    return cudaErrorInvalidChannelDescriptor;
}

cudaError_t rt_channel_to_format(const struct cudaChannelFormatDesc *desc, CUarray_format *format,
                                 unsigned *channels)
{
    const int bits[4] = {desc->x, desc->y, desc->z, desc->w};
    unsigned count = 0;

    while (count < 4 && bits[count])
        count++;
    for (unsigned i = 0; i < 4; i++)
        if (bits[i] != (i < count ? bits[0] : 0))
            return cudaErrorInvalidChannelDescriptor;
    if (count == 0 || count == 3)
        return cudaErrorInvalidChannelDescriptor;
    *channels = count;
    return format_find(desc->f, bits[0], format);
}

cudaError_t rt_format_to_channel(CUarray_format format, unsigned channels,
                                 struct cudaChannelFormatDesc *desc)
{
    int bits = (int)rt_format_bytes(format) * 8;
    enum cudaChannelFormatKind kind;

    switch ((int)format) {
    case CU_AD_FORMAT_HALF:
    case CU_AD_FORMAT_FLOAT:
        kind = cudaChannelFormatKindFloat;
        break;
    case CU_AD_FORMAT_SIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT32:
        kind = cudaChannelFormatKindSigned;
        break;
    default:
        kind = cudaChannelFormatKindUnsigned;
    }
    if (!bits)
        return cudaErrorInvalidChannelDescriptor;
    *desc = (struct cudaChannelFormatDesc){.x = bits, .f = kind};
    desc->y = channels > 1 ? bits : 0;
    desc->z = channels > 2 ? bits : 0;
    desc->w = channels > 3 ? bits : 0;
    return cudaSuccess;
}

cudaError_t rt_array_element_bytes(cudaArray_const_t array, size_t *bytes)
{
    CUDA_ARRAY3D_DESCRIPTOR desc;

    RT_TRY_CU(rt_cu.cuArray3DGetDescriptor_v2(&desc, (CUarray)(uintptr_t)array));
    *bytes = rt_format_bytes(desc.Format) * desc.NumChannels;
    return *bytes ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t rt_memory_types(enum cudaMemcpyKind kind, CUmemorytype *source,
                            CUmemorytype *destination)
{
    switch (kind) {
    case cudaMemcpyHostToHost:
        *source = *destination = CU_MEMORYTYPE_HOST;
        return cudaSuccess;
    case cudaMemcpyHostToDevice:
        *source = CU_MEMORYTYPE_HOST;
        *destination = CU_MEMORYTYPE_DEVICE;
        return cudaSuccess;
    case cudaMemcpyDeviceToHost:
        *source = CU_MEMORYTYPE_DEVICE;
        *destination = CU_MEMORYTYPE_HOST;
        return cudaSuccess;
    case cudaMemcpyDeviceToDevice:
        *source = *destination = CU_MEMORYTYPE_DEVICE;
        return cudaSuccess;
    case cudaMemcpyDefault:
        *source = *destination = CU_MEMORYTYPE_UNIFIED;
        return cudaSuccess;
    }
    return cudaErrorInvalidMemcpyDirection;
}

/* Bytes of the unit that the extent of a copy is counted in. */
static cudaError_t extent_unit(cudaArray_const_t source, cudaArray_const_t destination,
                               size_t *bytes)
{
    size_t other;

    *bytes = 1;
    if (source)
        RT_TRY(rt_array_element_bytes(source, bytes));
    if (destination)
        RT_TRY(rt_array_element_bytes(destination, source ? &other : bytes));
    return source && destination && other != *bytes ? cudaErrorInvalidValue : cudaSuccess;
}

cudaError_t rt_copy_3d(const struct cudaMemcpy3DParms *p, CUDA_MEMCPY3D *copy)
{
    size_t unit;

    if (!p->srcArray == !p->srcPtr.ptr || !p->dstArray == !p->dstPtr.ptr)
        return cudaErrorInvalidValue;
    memset(copy, 0, sizeof(*copy));
    RT_TRY(rt_memory_types(p->kind, &copy->srcMemoryType, &copy->dstMemoryType));
    RT_TRY(extent_unit(p->srcArray, p->dstArray, &unit));

    copy->srcXInBytes = p->srcArray ? p->srcPos.x * unit : p->srcPos.x;
    copy->srcY = p->srcPos.y;
    copy->srcZ = p->srcPos.z;
    copy->dstXInBytes = p->dstArray ? p->dstPos.x * unit : p->dstPos.x;
    copy->dstY = p->dstPos.y;
    copy->dstZ = p->dstPos.z;
    if (p->srcArray) {
        copy->srcMemoryType = CU_MEMORYTYPE_ARRAY;
        copy->srcArray = (CUarray)p->srcArray;
    } else {
        copy->srcHost = p->srcPtr.ptr;
        copy->srcDevice = (CUdeviceptr)(uintptr_t)p->srcPtr.ptr;
        copy->srcPitch = p->srcPtr.pitch;
        copy->srcHeight = p->srcPtr.ysize;
    }
    if (p->dstArray) {
        copy->dstMemoryType = CU_MEMORYTYPE_ARRAY;
        copy->dstArray = (CUarray)p->dstArray;
    } else {
        copy->dstHost = p->dstPtr.ptr;
        copy->dstDevice = (CUdeviceptr)(uintptr_t)p->dstPtr.ptr;
        copy->dstPitch = p->dstPtr.pitch;
        copy->dstHeight = p->dstPtr.ysize;
    }
    copy->WidthInBytes = p->extent.width * unit;
    copy->Height = p->extent.height;
    copy->Depth = p->extent.depth;
    return cudaSuccess;
}
