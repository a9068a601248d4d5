/* A shared object that takes and frees device memory in every way there is. Copied under other
 * names it is other objects. TENANT_EARLY in the environment: its constructor allocates, under the
 * dynamic linker's lock. */
/* link: -l:libcudart.so.13 -l:libcuda.so.1 -Wl,-rpath,'$ORIGIN/../../simcuda' */
#define _GNU_SOURCE
#include "tenant_ways.h"

#define GPUCACHE_NO_PROTOTYPES
#define GPUCACHE_WANT_LOADER
#include "core/gpucache.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define VISIBLE __attribute__((visibility("default")))

VISIBLE int tenant_take(const char *way, size_t bytes, uint64_t *what);
VISIBLE int tenant_give(const char *way, uint64_t what);
VISIBLE int tenant_info(const char *way, uint64_t *free_bytes, uint64_t *total_bytes);
VISIBLE uint64_t tenant_early;

static CUdeviceptr pointer;

/* ---- the driver ---- */

static int take_plain(size_t bytes, uint64_t *what)
{
    (void)what;
    return (int)cuMemAlloc(&pointer, bytes);
}

static int take_dlsym(size_t bytes, uint64_t *what)
{
    CUresult (*alloc)(CUdeviceptr *, size_t) = NULL;
    (void)what;
    *(void **)&alloc = dlsym(RTLD_DEFAULT, "cuMemAlloc_v2");
    return alloc == NULL ? -1 : (int)alloc(&pointer, bytes);
}

static int take_proc(size_t bytes, uint64_t *what)
{
    CUresult (*alloc)(CUdeviceptr *, size_t) = NULL;
    CUdriverProcAddressQueryResult found;
    (void)what;
    if (cuGetProcAddress("cuMemAlloc", (void **)&alloc, 3020, 0, &found) != CUDA_SUCCESS)
        return -1;
    return (int)alloc(&pointer, bytes);
}

static int take_pitch(size_t bytes, uint64_t *what)
{
    size_t pitch;
    (void)what;
    return (int)cuMemAllocPitch(&pointer, &pitch, 4096, bytes / 4096, 4);
}

static int take_async(size_t bytes, uint64_t *what)
{
    (void)what;
    return (int)cuMemAllocAsync(&pointer, bytes, NULL);
}

static int take_array(size_t bytes, uint64_t *what)
{
    const CUDA_ARRAY_DESCRIPTOR shape = {
        .Width = 1024, .Height = bytes / 4096, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
    return (int)cuArrayCreate((CUarray *)what, &shape);
}

static int give_array(uint64_t what)
{
    return (int)cuArrayDestroy((CUarray)what);
}

static int take_handle(size_t bytes, uint64_t *what)
{
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    return (int)cuMemCreate((CUmemGenericAllocationHandle *)what, bytes, &prop, 0);
}

static int give_handle(uint64_t what)
{
    return (int)cuMemRelease(what);
}

static int give_plain(uint64_t what)
{
    return (int)cuMemFree(what);
}

static int give_async(uint64_t what)
{
    return (int)cuMemFreeAsync(what, NULL);
}

/* ---- the runtime ---- */

static int take_runtime(size_t bytes, uint64_t *what)
{
    return (int)cudaMalloc((void **)what, bytes);
}

static int take_runtime_pitch(size_t bytes, uint64_t *what)
{
    size_t pitch;
    return (int)cudaMallocPitch((void **)what, &pitch, 4096, bytes / 4096);
}

static int take_runtime_async(size_t bytes, uint64_t *what)
{
    return (int)cudaMallocAsync((void **)what, bytes, NULL);
}

static int take_runtime_array(size_t bytes, uint64_t *what)
{
    const struct cudaChannelFormatDesc format = {32, 0, 0, 0, cudaChannelFormatKindFloat};
    return (int)cudaMallocArray((cudaArray_t *)what, &format, 1024, bytes / 4096, 0);
}

static int give_runtime(uint64_t what)
{
    return (int)cudaFree((void *)what);
}

static int give_runtime_array(uint64_t what)
{
    return (int)cudaFreeArray((cudaArray_t)what);
}

/* ---- the library's own calls ---- */

static const struct gpucache_functions *own_calls(void)
{
    static struct gpucache_functions functions;
    if (functions.gpucache_version == NULL && gpucache_load(NULL, &functions) != GPUCACHE_OK)
        abort();
    return &functions;
}

static int take_own(size_t bytes, uint64_t *what)
{
    return (int)own_calls()->gpucache_malloc((void **)what, bytes, 0, NULL);
}

static int give_own(uint64_t what)
{
    return (int)own_calls()->gpucache_free((void *)what, NULL);
}

static int take_torch(size_t bytes, uint64_t *what)
{
    *what = (uint64_t)own_calls()->gpucache_torch_malloc((ptrdiff_t)bytes, 0, NULL);
    return *what == 0 ? 2 : 0;
}

static int take_cupy(size_t bytes, uint64_t *what)
{
    *what = (uint64_t)own_calls()->gpucache_cupy_malloc(NULL, bytes, 0);
    return *what == 0 ? 2 : 0;
}

static int take_rmm(size_t bytes, uint64_t *what)
{
    int device = 0;
    *what = (uint64_t)own_calls()->gpucache_rmm_allocate(bytes, NULL, &device);
    return *what == 0 ? 2 : 0;
}

static int take_elastic(size_t bytes, uint64_t *what)
{
    void *base;
    gpucache_status status = own_calls()->gpucache_elastic_create(
        0, 4 * bytes, 0, GPUCACHE_ELASTIC_NO_WARM, what, &base);
    return status != GPUCACHE_OK ? (int)status
                                 : (int)own_calls()->gpucache_elastic_allocate(*what, 0, bytes);
}

static int give_elastic(uint64_t what)
{
    return (int)own_calls()->gpucache_elastic_destroy(what);
}

/* ---- all of them ---- */

static const struct way {
    const char *name;
    int (*take)(size_t bytes, uint64_t *what);
    int (*give)(uint64_t what);
} ways[] = {
#define WAY(name, take, give) {#name, take, give},
    TENANT_WAYS(WAY)
#undef WAY
};

static const struct way *find(const char *name)
{
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
        if (strcmp(ways[i].name, name) == 0)
            return &ways[i];
    abort();
}

int tenant_take(const char *way, size_t bytes, uint64_t *what)
{
    static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
    int result;
    pthread_mutex_lock(&one);
    *what = 0;
    pointer = 0;
    result = find(way)->take(bytes, what);
    if (pointer != 0)
        *what = pointer;
    pthread_mutex_unlock(&one);
    return result;
}

int tenant_give(const char *way, uint64_t what)
{
    return find(way)->give(what);
}

int tenant_info(const char *way, uint64_t *free_bytes, uint64_t *total_bytes)
{
    size_t available = 0, total = 0;
    const int result = strcmp(way, "runtime") == 0 ? (int)cudaMemGetInfo(&available, &total)
                                                   : (int)cuMemGetInfo(&available, &total);
    *free_bytes = available;
    *total_bytes = total;
    return result;
}

__attribute__((constructor)) static void construct(void)
{
    const char *way = getenv("TENANT_EARLY");
    if (way != NULL && way[0] != '\0' && tenant_take(way, 1 << 20, &tenant_early) != 0)
        abort();
}
