/* cuda.h and cuda_runtime_api.h with every ABI visible, and what older headers lack.
 *
 * __CUDA_API_VERSION_INTERNAL keeps the headers from renaming cuMemAlloc to cuMemAlloc_v2 and so on: a name
 * here is always the exported symbol. The library builds with toolkits 11.8 to 13 and then covers the same
 * entry points whatever it was built with: types and constants newer than 11.8 that a row of api.def or a
 * wrapper uses are declared below, under the version that brought them. Opaque handles suffice: the shim
 * passes them on and never looks inside. */
#ifndef GC_CUDA_COMPAT_H
#define GC_CUDA_COMPAT_H

#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <cuda_runtime_api.h>

#if CUDA_VERSION < 12000
/* cuGetProcAddress_v2's last argument. */
typedef int CUdriverProcAddressQueryResult;
#endif

#endif
