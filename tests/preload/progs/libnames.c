/* A library with names that begin like CUDA's, or are CUDA's, and are its own. */
#include <stddef.h>

#define OWN(name, result)                                                                          \
    __attribute__((visibility("default"))) int name(void);                                         \
    int name(void)                                                                                 \
    {                                                                                              \
        return result;                                                                             \
    }

OWN(curl_easy_init, 1)
OWN(cudnnCreate, 2)
OWN(cufftPlan1d, 3)
OWN(cuMemAllocate, 4)
OWN(cudaMallocator, 5)
OWN(cuMemAlloc_v2, 6)
OWN(probe, 7)
