/* Code that programs carry: what nvcc's host stubs register, and libraries loaded by hand.
 *
 * A binary (fat binary of one translation unit) is loaded with cuLibraryLoadData at the first use
 * of anything in it. A library belongs to no context, so that its kernels outlive a device reset.
 * Entries map a host address, or a kernel handle given out before, to a name in a binary; they live
 * in a hash table of chains.
 *
 * Locking: registry.lock guards binaries and entries. A binary is loaded under it: loading calls
 * nothing here. */
#include "runtime.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "stubs.h"

#define BUCKET_COUNT 1024 /* a power of two */

/* The records that nvcc puts around a fat binary (fatbinary_section.h). */
#define WRAPPER_MAGIC 0x466243b1
struct wrapper {
    int magic;
    int version;
    const void *data;
    void *file_or_binaries;
};

struct binary {
    const void *image;
    bool is_loaded;
    CUlibrary library;
};

enum entry_kind { ENTRY_KERNEL, ENTRY_VARIABLE, ENTRY_MANAGED };

struct entry {
    const void *key;
    enum entry_kind kind;
    struct binary *binary; /* NULL for a handle that was given out */
    const char *name;
    CUkernel kernel;     /* ENTRY_KERNEL, once found */
    void **host_pointer; /* ENTRY_MANAGED: where the program reads the address */
    struct entry *next;
};

static struct {
    pthread_mutex_t lock;
    struct entry *buckets[BUCKET_COUNT];
} registry = {.lock = PTHREAD_MUTEX_INITIALIZER};

static struct entry **bucket_of(const void *key)
{
    return &registry.buckets[((uintptr_t)key >> 3) % BUCKET_COUNT];
}

static struct entry *find_locked(const void *key)
{
    struct entry *entry = *bucket_of(key);

    while (entry && entry->key != key)
        entry = entry->next;
    return entry;
}

/* A later registration of the same key hides an earlier one. */
static bool add(struct entry like)
{
    struct entry *entry = malloc(sizeof(*entry));
    struct entry **bucket = bucket_of(like.key);

    if (!entry)
        return false;
    *entry = like;
    pthread_mutex_lock(&registry.lock);
    entry->next = *bucket;
    *bucket = entry;
    pthread_mutex_unlock(&registry.lock);
    return true;
}

static cudaError_t load_locked(struct binary *binary)
{
    if (binary->is_loaded)
        return cudaSuccess;
    RT_TRY_CU(
        rt_cu.cuLibraryLoadData(&binary->library, binary->image, NULL, NULL, 0, NULL, NULL, 0));
    binary->is_loaded = true;
    return cudaSuccess;
}

static cudaError_t kernel_locked(const void *function, CUkernel *kernel)
{
    struct entry *entry = find_locked(function);

    if (!entry || entry->kind != ENTRY_KERNEL)
        return cudaErrorInvalidDeviceFunction;
    if (!entry->kernel) {
        RT_TRY(load_locked(entry->binary));
        if (rt_cu.cuLibraryGetKernel(&entry->kernel, entry->binary->library, entry->name) !=
            CUDA_SUCCESS) {
            entry->kernel = NULL;
            return cudaErrorInvalidDeviceFunction;
        }
    }
    *kernel = entry->kernel;
    return cudaSuccess;
}

cudaError_t rt_kernel_find(const void *function, CUkernel *kernel)
{
    cudaError_t error;

    pthread_mutex_lock(&registry.lock);
    error = kernel_locked(function, kernel);
    pthread_mutex_unlock(&registry.lock);
    return error;
}

cudaError_t rt_kernel_remember(CUkernel kernel)
{
    bool is_known;

    pthread_mutex_lock(&registry.lock);
    is_known = find_locked(kernel) != NULL;
    pthread_mutex_unlock(&registry.lock);
    if (!is_known && !add((struct entry){.key = kernel, .kind = ENTRY_KERNEL, .kernel = kernel}))
        return cudaErrorMemoryAllocation;
    return cudaSuccess;
}

static cudaError_t variable_locked(const void *symbol, CUdeviceptr *address, size_t *bytes)
{
    const struct entry *entry = find_locked(symbol);

    if (!entry || entry->kind == ENTRY_KERNEL)
        return cudaErrorInvalidSymbol;
    RT_TRY(load_locked(entry->binary));
    if (entry->kind == ENTRY_MANAGED)
        return rt_result(
            rt_cu.cuLibraryGetManaged(address, bytes, entry->binary->library, entry->name));
    /* Not kept: each context has its own. */
    return rt_result(rt_cu.cuLibraryGetGlobal(address, bytes, entry->binary->library, entry->name));
}

cudaError_t rt_symbol_find(const void *symbol, CUdeviceptr *address, size_t *bytes)
{
    cudaError_t error;

    pthread_mutex_lock(&registry.lock);
    error = variable_locked(symbol, address, bytes);
    pthread_mutex_unlock(&registry.lock);
    return error == cudaErrorSymbolNotFound ? cudaErrorInvalidSymbol : error;
}

/* ---- what nvcc's host stubs call at start-up: nothing here touches the driver ---- */

RT_EXPORT void **__cudaRegisterFatBinary(void *fatCubin)
{
    const struct wrapper *fat = fatCubin;
    struct binary *binary = calloc(1, sizeof(*binary));

    if (binary && fat && fat->magic == WRAPPER_MAGIC)
        binary->image = fat->data;
    return (void **)binary;
}

RT_EXPORT void __cudaRegisterFatBinaryEnd(void **handle)
{
    (void)handle; /* all is there already: loading waits for the first use */
}

static void drop_entries_locked(const struct binary *binary)
{
    for (size_t i = 0; i < BUCKET_COUNT; i++) {
        struct entry **link = &registry.buckets[i];

        while (*link) {
            struct entry *entry = *link;

            if (entry->binary != binary) {
                link = &entry->next;
                continue;
            }
            *link = entry->next;
            free(entry);
        }
    }
}

RT_EXPORT void __cudaUnregisterFatBinary(void **handle)
{
    struct binary *binary = (struct binary *)handle;

    if (!binary)
        return;
    pthread_mutex_lock(&registry.lock);
    drop_entries_locked(binary);
    pthread_mutex_unlock(&registry.lock);
    if (binary->is_loaded)
        (void)rt_cu.cuLibraryUnload(binary->library);
    free(binary);
}

RT_EXPORT void __cudaRegisterFunction(void **handle, const char *hostFun, char *deviceFun,
                                      const char *deviceName, int thread_limit, void *tid,
                                      void *bid, void *bDim, void *gDim, int *wSize)
{
    (void)deviceFun, (void)thread_limit, (void)tid, (void)bid, (void)bDim, (void)gDim, (void)wSize;
    if (handle)
        (void)add((struct entry){.key = hostFun,
                                 .kind = ENTRY_KERNEL,
                                 .binary = (struct binary *)handle,
                                 .name = deviceName});
}

RT_EXPORT void __cudaRegisterVar(void **handle, char *hostVar, char *deviceAddress,
                                 const char *deviceName, int ext, size_t size, int constant,
                                 int global)
{
    (void)deviceAddress, (void)ext, (void)size, (void)constant, (void)global;
    if (handle)
        (void)add((struct entry){.key = hostVar,
                                 .kind = ENTRY_VARIABLE,
                                 .binary = (struct binary *)handle,
                                 .name = deviceName});
}

RT_EXPORT void __cudaRegisterManagedVar(void **handle, void **hostVarPtrAddress,
                                        char *deviceAddress, const char *deviceName, int ext,
                                        size_t size, int constant, int global)
{
    (void)deviceAddress, (void)ext, (void)size, (void)constant, (void)global;
    if (handle)
        (void)add((struct entry){.key = hostVarPtrAddress,
                                 .kind = ENTRY_MANAGED,
                                 .binary = (struct binary *)handle,
                                 .name = deviceName,
                                 .host_pointer = hostVarPtrAddress});
}

RT_EXPORT void __cudaRegisterHostVar(void **handle, const char *deviceName, char *hostVar,
                                     size_t size)
{
    (void)handle, (void)deviceName, (void)hostVar, (void)size;
}

RT_EXPORT void __cudaRegisterUnifiedTable(void **handle, void *table)
{
    (void)handle, (void)table;
}

/* Puts the addresses of a binary's managed variables where the program reads them. Programs with
 * such variables call it before main, others never: it needs a context. */
static cudaError_t init_managed(const struct binary *binary)
{
    cudaError_t error = cudaSuccess;

    RT_TRY(rt_enter_context());
    pthread_mutex_lock(&registry.lock);
    for (size_t i = 0; i < BUCKET_COUNT && error == cudaSuccess; i++) {
        for (struct entry *entry = registry.buckets[i]; entry; entry = entry->next) {
            CUdeviceptr address;
            size_t bytes;

            if (entry->binary != binary || entry->kind != ENTRY_MANAGED)
                continue;
            error = variable_locked(entry->key, &address, &bytes);
            if (error != cudaSuccess)
                break;
            *entry->host_pointer = (void *)(uintptr_t)address;
        }
    }
    pthread_mutex_unlock(&registry.lock);
    return error;
}

RT_EXPORT char __cudaInitModule(void **handle)
{
    return rt_end(init_managed((struct binary *)handle)) == cudaSuccess;
}

/* ---- symbols and kernels by their host address ---- */

RT_API(context, cudaGetSymbolAddress, (void **devPtr, const void *symbol), (devPtr, symbol))
{
    CUdeviceptr address;
    size_t bytes;

    if (!devPtr)
        return cudaErrorInvalidValue;
    RT_TRY(rt_symbol_find(symbol, &address, &bytes));
    *devPtr = (void *)(uintptr_t)address;
    return cudaSuccess;
}

RT_API(context, cudaGetSymbolSize, (size_t * size, const void *symbol), (size, symbol))
{
    CUdeviceptr address;

    return size ? rt_symbol_find(symbol, &address, size) : cudaErrorInvalidValue;
}

RT_API(context, cudaGetKernel, (cudaKernel_t * kernel, const void *function), (kernel, function))
{
    if (!kernel)
        return cudaErrorInvalidValue;
    RT_TRY(rt_kernel_find(function, kernel));
    return rt_kernel_remember(*kernel);
}

RT_API(context, __cudaGetKernel, (cudaKernel_t * kernel, const void *function), (kernel, function))
{
    return body_cudaGetKernel(kernel, function);
}

RT_API(context, cudaGetFuncBySymbol, (cudaFunction_t * function, const void *symbol),
       (function, symbol))
{
    CUkernel kernel;

    if (!function)
        return cudaErrorInvalidValue;
    RT_TRY(rt_kernel_find(symbol, &kernel));
    return rt_result(rt_cu.cuKernelGetFunction(function, kernel));
}
