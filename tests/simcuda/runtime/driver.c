/* Finds the driver as every CUDA 13 runtime does: dlopen, dlsym of cuGetProcAddress_v2, a first
 * round of look-ups through that pointer, and the rest through the pointer which that round gave
 * for cuGetProcAddress itself. A driver without cuGetProcAddress_v2 is asked by dlsym, name by
 * name. */
#include "runtime.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#define DRIVER_LIBRARY "libcuda.so.1"
#define NO_SLOT SIZE_MAX

typedef __typeof__(cuGetProcAddress_v2) get_proc_address;

struct lookup {
    const char *name;
    int version;
    cuuint64_t flags;
    const char *symbol; /* the export that answers; NULL for rows answered by nothing */
    size_t slot;        /* offset in struct rt_driver, or NO_SLOT */
};

static const struct lookup lookups[] = {
#define RT_LOOKUP(name, version, flags, symbol)                                                    \
    {#name, version, flags, #symbol, offsetof(struct rt_driver, symbol)},
#define RT_LOOKUP_UNUSED(name, version, flags) {#name, version, flags, NULL, NO_SLOT},
#include "lookups.def"
#undef RT_LOOKUP
#undef RT_LOOKUP_UNUSED
};
#define LOOKUP_COUNT (sizeof(lookups) / sizeof(lookups[0]))

struct rt_driver rt_cu;

static pthread_once_t load_once = PTHREAD_ONCE_INIT;
static atomic_int load_result =
    -1; /* cudaError_t, or -1 before the load; release by load, acquire by readers */

/* Stands for each entry point that the driver lacks. The System V calling conventions let a
 * function ignore arguments it was given. */
static CUresult absent(void)
{
    return CUDA_ERROR_NOT_SUPPORTED;
}

static void put(size_t slot, void *function)
{
    CUresult (*stand_in)(void) = absent;

    if (slot == NO_SLOT)
        return;
    if (function)
        memcpy((char *)&rt_cu + slot, &function, sizeof(function));
    else
        memcpy((char *)&rt_cu + slot, &stand_in, sizeof(stand_in));
}

static void look_up_by_proc_address(get_proc_address *first)
{
    get_proc_address *get = first;
    CUdriverProcAddressQueryResult status;
    void *function = NULL;

    (void)get("", &function, 0, CU_GET_PROC_ADDRESS_DEFAULT, &status);
    for (size_t i = 0; i < LOOKUP_COUNT; i++) {
        const struct lookup *row = &lookups[i];

        function = NULL;
        if (get(row->name, &function, row->version, row->flags, &status) != CUDA_SUCCESS)
            function = NULL;
        put(row->slot, function);
        if (row->slot == offsetof(struct rt_driver, cuGetProcAddress_v2) && function)
            get = rt_cu.cuGetProcAddress_v2;
    }
}

static void look_up_by_dlsym(void *library)
{
    for (size_t i = 0; i < LOOKUP_COUNT; i++) {
        const char *symbol = lookups[i].symbol ? lookups[i].symbol : lookups[i].name;

        put(lookups[i].slot, dlsym(library, symbol));
    }
}

static cudaError_t load(void)
{
    void *library = dlopen(DRIVER_LIBRARY, RTLD_NOW);
    void *first;
    get_proc_address *get;
    int version = 0;

    if (!library)
        return cudaErrorInsufficientDriver;
    first = dlsym(library, "cuGetProcAddress_v2");
    memcpy(&get, &first, sizeof(get));
    if (get)
        look_up_by_proc_address(get);
    else
        look_up_by_dlsym(library);

    /* A runtime of one major release needs a driver of that release or a later one. */
    RT_TRY_CU(rt_cu.cuDriverGetVersion(&version));
    if (version / 1000 < CUDART_VERSION / 1000)
        return cudaErrorInsufficientDriver;
    return rt_result(rt_cu.cuInit(0));
}

static void load_first_time(void)
{
    atomic_store_explicit(&load_result, (int)load(), memory_order_release);
}

cudaError_t rt_driver_load(void)
{
    int result = atomic_load_explicit(&load_result, memory_order_acquire);

    if (result < 0) {
        pthread_once(&load_once, load_first_time);
        result = atomic_load_explicit(&load_result, memory_order_acquire);
    }
    return (cudaError_t)result;
}
