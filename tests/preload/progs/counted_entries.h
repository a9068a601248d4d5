/* The entry points the counted program calls, by exported symbol. */
#ifndef COUNTED_ENTRIES_H
#define COUNTED_ENTRIES_H

#include <cuda.h>

#define COUNTED_ENTRIES(X)                                                                         \
    X(cuInit)                                                                                      \
    X(cuDeviceGet)                                                                                 \
    X(cuDevicePrimaryCtxRetain)                                                                    \
    X(cuDevicePrimaryCtxRelease_v2)                                                                \
    X(cuCtxSetCurrent)                                                                             \
    X(cuCtxSynchronize)                                                                            \
    X(cuMemAlloc_v2)                                                                               \
    X(cuMemAllocPitch_v2)                                                                          \
    X(cuMemAllocManaged)                                                                           \
    X(cuMemFree_v2)                                                                                \
    X(cuMemAllocAsync)                                                                             \
    X(cuMemFreeAsync)                                                                              \
    X(cuMemsetD8_v2)                                                                               \
    X(cuMemGetInfo_v2)                                                                             \
    X(cuStreamCreate)                                                                              \
    X(cuStreamSynchronize)                                                                         \
    X(cuStreamDestroy_v2)                                                                          \
    X(cuArrayCreate_v2)                                                                            \
    X(cuArrayDestroy)

#endif
