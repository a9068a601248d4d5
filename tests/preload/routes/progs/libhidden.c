/* A driver that exports its entry points but hands out others from cuGetProcAddress, as drivers
 * may: they cannot be distinguished by address alone. The result of each shows which it is: 1000 +
 * the ABI's version / 10, + 5000 in the per-thread flavour. Stands for libcuda.so.1 in
 * test_lookups.sh. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define ENTRY(name, result)                                                                        \
    static int name(void)                                                                          \
    {                                                                                              \
        return result;                                                                             \
    }

int cuInit(unsigned flags);
int cuDriverGetVersion(int *version);
int cuSomethingOlder(void);
int cuGetProcAddress(const char *name, void **found, int version, uint64_t flags);
int cuGetProcAddress_v2(const char *name, void **found, int version, uint64_t flags, int *status);

ENTRY(alloc_2000, 1200)
ENTRY(alloc_3020, 1302)
ENTRY(alloc_14000, 2400)
ENTRY(alloc_async, 2120)
ENTRY(alloc_async_per_thread, 7120)
ENTRY(context_3020, 1320)
ENTRY(context_11040, 2104)
ENTRY(unknown, 4242)

static int proc_1(const char *name, void **found, int version, uint64_t flags);
static int proc_2(const char *name, void **found, int version, uint64_t flags, int *status);

static void *find(const char *name, int version, uint64_t flags)
{
    if (strcmp(name, "cuMemAlloc") == 0)
        return version >= 14000  ? (void *)alloc_14000
               : version >= 3020 ? (void *)alloc_3020
               : version >= 2000 ? (void *)alloc_2000
                                 : NULL;
    if (strcmp(name, "cuMemAllocAsync") == 0 && version >= 11020)
        return flags == 2 ? (void *)alloc_async_per_thread : (void *)alloc_async;
    if (strcmp(name, "cuCtxCreate") == 0)
        return version >= 11040  ? (void *)context_11040
               : version >= 3020 ? (void *)context_3020
                                 : NULL;
    if (strcmp(name, "cuGetProcAddress") == 0)
        return version >= 12000 ? (void *)proc_2 : (void *)proc_1;
    if (strcmp(name, "cuSomethingNew") == 0)
        return (void *)unknown;
    return NULL;
}

static int proc_1(const char *name, void **found, int version, uint64_t flags)
{
    *found = find(name, version, flags);
    return *found == NULL ? 500 : 0;
}

static int proc_2(const char *name, void **found, int version, uint64_t flags, int *status)
{
    int result = proc_1(name, found, version, flags);

    if (status != NULL)
        *status = result == 0 ? 0 : 1;
    return result;
}

EXPORT int cuGetProcAddress(const char *name, void **found, int version, uint64_t flags)
{
    return proc_1(name, found, version, flags);
}

EXPORT int cuGetProcAddress_v2(const char *name, void **found, int version, uint64_t flags,
                               int *status)
{
    return proc_2(name, found, version, flags, status);
}

EXPORT int cuInit(unsigned flags)
{
    (void)flags;
    return 0;
}

EXPORT int cuDriverGetVersion(int *version)
{
    const char *given = getenv("HIDDEN_VERSION");

    *version = given != NULL ? atoi(given) : 13000;
    return 0;
}

EXPORT int cuSomethingOlder(void)
{
    return 4243;
}
