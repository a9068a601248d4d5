/* Features of memory that a device may lack, and this one does: sparse and planar arrays. Each
 * checks what can be checked and answers as such a device. */
#include "memory.h"

static CUresult refuse(bool is_valid)
{
    CUresult result = sim_check_init();

    if (result != CUDA_SUCCESS)
        return result;
    return is_valid ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
}

/* "If the CUDA array is not allocated with flag CUDA_ARRAY3D_SPARSE, CUDA_ERROR_INVALID_VALUE":
 * none ever is. */
SIM_API(cuArrayGetSparseProperties,
        (CUDA_ARRAY_SPARSE_PROPERTIES * sparseProperties, CUarray array), (sparseProperties, array),
        "%p", (void *)array)
{
    (void)sparseProperties;
    (void)array;
    return refuse(false);
}

SIM_API(cuMipmappedArrayGetSparseProperties,
        (CUDA_ARRAY_SPARSE_PROPERTIES * sparseProperties, CUmipmappedArray mipmap),
        (sparseProperties, mipmap), "%p", (void *)mipmap)
{
    (void)sparseProperties;
    (void)mipmap;
    return refuse(false);
}

/* Only multi-planar formats have planes, and no such array can be made. */
SIM_API(cuArrayGetPlane, (CUarray * pPlaneArray, CUarray hArray, unsigned planeIdx),
        (pPlaneArray, hArray, planeIdx), "%p %u", (void *)hArray, planeIdx)
{
    (void)pPlaneArray;
    (void)hArray;
    (void)planeIdx;
    return refuse(false);
}

SIM_API_THREAD(cuMemMapArrayAsync, _ptsz,
               (CUarrayMapInfo * mapInfoList, unsigned count, CUstream hStream),
               (mapInfoList, count, hStream), "%u %p", count, (void *)hStream)
{
    (void)per_thread;
    return refuse(mapInfoList != NULL && count != 0);
}
