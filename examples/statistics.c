/* Uses the library if it is in the process, and runs all the same where it is not: nothing of it is
 * linked. Figures, peaks, limits, an answer before an allocation, and the release of idle memory.
 *
 *     LD_PRELOAD=libgpucache.so ./statistics */
/* link: -l:libcuda.so.1 */
#define GPUCACHE_NO_PROTOTYPES
#define GPUCACHE_WANT_LOADER
#include "gpucache.h"

#include <cuda.h>
#include <stdio.h>

static void show(const struct gpucache_functions *library, const char *when)
{
    struct gpucache_statistics now;

    now.struct_bytes = sizeof(now);
    if (library->gpucache_get_statistics(0, &now) != GPUCACHE_OK)
        return;
    printf("%s: requested %llu MiB (peak %llu), reserved %llu MiB (peak %llu)\n", when,
           (unsigned long long)(now.requested_bytes >> 20),
           (unsigned long long)(now.requested_peak_bytes >> 20),
           (unsigned long long)(now.reserved_bytes >> 20),
           (unsigned long long)(now.reserved_peak_bytes >> 20));
}

static void use_library(const struct gpucache_functions *library)
{
    uint64_t available = 0, given = 0, limit = 0;
    int fits = 0;

    printf("libgpucache %s\n", library->gpucache_version());
    show(library, "after the first phase");
    library->gpucache_reset_peaks(0);
    if (library->gpucache_would_fit(0, (uint64_t)200 << 20, &fits, &available) == GPUCACHE_OK)
        printf("200 MiB %s\n", fits ? "would fit" : "would not fit");
    library->gpucache_trim(0, 0, &given);
    printf("trim gave something back: %s\n", given > 0 ? "yes" : "no");
    library->gpucache_empty_cache(GPUCACHE_ALL_DEVICES, &given);
    show(library, "with the cache empty");
    if (library->gpucache_set_limit(0, (uint64_t)128 << 20) == GPUCACHE_OK &&
        library->gpucache_get_limit(0, &limit) == GPUCACHE_OK)
        printf("limit %llu MiB\n", (unsigned long long)(limit >> 20));
}

int main(void)
{
    struct gpucache_functions library;
    CUcontext context;
    CUdeviceptr block;
    CUresult result;

    if (cuInit(0) != CUDA_SUCCESS || cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
        cuCtxSetCurrent(context) != CUDA_SUCCESS || cuMemAlloc(&block, 100u << 20) != CUDA_SUCCESS)
        return 1;
    cuMemFree(block);
    if (gpucache_load(NULL, &library) != GPUCACHE_OK) {
        printf("without libgpucache\n");
        return 0;
    }
    use_library(&library);
    result = cuMemAlloc(&block, 200u << 20); /* more than the limit */
    printf("200 MiB under the limit: CUDA error %d\n", (int)result);
    return result == CUDA_ERROR_OUT_OF_MEMORY ? 0 : 1;
}
