/* Memory in the order of a stream, linked with the library and without a preload: a block that is
 * freed on a stream serves that stream's later work at once and all other work when it is safe. */
/* link: -lgpucache -l:libcuda.so.1 */
#include "gpucache.h"

#include <cuda.h>
#include <stdio.h>

#define MIB ((size_t)1 << 20)
#define STEPS 50

static int check(gpucache_status status, const char *what)
{
    if (status == GPUCACHE_OK)
        return 1;
    fprintf(stderr, "%s: %s (CUDA error %d)\n", what, gpucache_status_text(status),
            gpucache_driver_error());
    return 0;
}

/* A step that needs scratch memory for the time of its work only. */
static int step(CUstream compute, CUstream copy, unsigned char value)
{
    void *scratch, *result;

    if (!check(gpucache_malloc(&scratch, 4 * MIB, 0, compute), "malloc") ||
        !check(gpucache_malloc(&result, MIB, 0, compute), "malloc"))
        return 0;
    cuMemsetD8Async((CUdeviceptr)scratch, value, 4 * MIB, compute);
    cuMemcpyDtoDAsync((CUdeviceptr)result, (CUdeviceptr)scratch, MIB, compute);
    if (!check(gpucache_free(scratch, compute), "free")) /* not waited for */
        return 0;
    /* Another stream reads the result: the library must learn of it before the free. (The two
     * streams are ordered by an event in a real program.) */
    cuStreamSynchronize(compute);
    cuMemsetD8Async((CUdeviceptr)result, value, MIB, copy);
    return check(gpucache_record_stream(result, copy), "record_stream") &&
           check(gpucache_free(result, compute), "free");
}

int main(void)
{
    struct gpucache_statistics now;
    CUcontext context;
    CUstream compute, copy;
    int i;

    if (cuInit(0) != CUDA_SUCCESS || cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
        cuCtxSetCurrent(context) != CUDA_SUCCESS ||
        cuStreamCreate(&compute, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS ||
        cuStreamCreate(&copy, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
        return 1;
    for (i = 0; i < STEPS; i++)
        if (!step(compute, copy, (unsigned char)i))
            return 1;
    now.struct_bytes = sizeof(now);
    if (!check(gpucache_get_statistics(0, &now), "statistics"))
        return 1;
    printf("%llu allocations, %llu MiB live, at most %llu MiB reserved\n",
           (unsigned long long)now.alloc_count, (unsigned long long)(now.requested_bytes >> 20),
           (unsigned long long)(now.reserved_peak_bytes >> 20));
    return now.alloc_count == 2 * STEPS && now.requested_bytes == 0 ? 0 : 1;
}
