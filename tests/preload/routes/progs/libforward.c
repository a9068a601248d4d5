/* Another interposer: counts cudaMalloc, cudaFree, cuMemAlloc_v2 and cuMemFree_v2 and forwards them
 * to the next definition. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

#define EXPORT __attribute__((visibility("default")))

int forwarded_count(void);
int forwarded_driver_count(void);
int cudaMalloc(void **pointer, size_t bytes);
int cudaFree(void *pointer);
int cuMemAlloc_v2(unsigned long long *pointer, size_t bytes);
int cuMemFree_v2(unsigned long long pointer);

static int count, driver_count;

EXPORT int forwarded_count(void)
{
    return count;
}

EXPORT int forwarded_driver_count(void)
{
    return driver_count;
}

EXPORT int cudaMalloc(void **pointer, size_t bytes)
{
    int (*next)(void **, size_t) = (int (*)(void **, size_t))dlsym(RTLD_NEXT, "cudaMalloc");

    count++;
    return next(pointer, bytes);
}

EXPORT int cudaFree(void *pointer)
{
    int (*next)(void *) = (int (*)(void *))dlsym(RTLD_NEXT, "cudaFree");

    count++;
    return next(pointer);
}

EXPORT int cuMemAlloc_v2(unsigned long long *pointer, size_t bytes)
{
    int (*next)(unsigned long long *, size_t) =
        (int (*)(unsigned long long *, size_t))dlsym(RTLD_NEXT, "cuMemAlloc_v2");

    driver_count++;
    return next(pointer, bytes);
}

EXPORT int cuMemFree_v2(unsigned long long pointer)
{
    int (*next)(unsigned long long) = (int (*)(unsigned long long))dlsym(RTLD_NEXT, "cuMemFree_v2");

    driver_count++;
    return next(pointer);
}
