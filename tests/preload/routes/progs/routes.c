/* One set of calls by every way a program reaches the driver, from every place. Prints what they
 * answer, one line a call, with nothing in it that may differ from run to run.
 *
 * usage: routes linked|dlsym|global|next|proc1|proc2 main|thread|constructor|fork */
/* link: -l:libcuda.so.1 */
#define _GNU_SOURCE
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* CALL(symbol, base, version) */
#define CALLS                                                                                      \
    CALL(cuInit, "cuInit", 2000)                                                                   \
    CALL(cuDeviceGet, "cuDeviceGet", 2000)                                                         \
    CALL(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", 7000)                               \
    CALL(cuCtxSetCurrent, "cuCtxSetCurrent", 4000)                                                 \
    CALL(cuCtxSynchronize, "cuCtxSynchronize", 2000)                                               \
    CALL(cuMemAlloc_v2, "cuMemAlloc", 3020)                                                        \
    CALL(cuMemAllocPitch_v2, "cuMemAllocPitch", 3020)                                              \
    CALL(cuMemFree_v2, "cuMemFree", 3020)                                                          \
    CALL(cuMemGetInfo, "cuMemGetInfo", 2000)                                                       \
    CALL(cuMemGetInfo_v2, "cuMemGetInfo", 3020)                                                    \
    CALL(cuDeviceTotalMem, "cuDeviceTotalMem", 2000)                                               \
    CALL(cuDeviceTotalMem_v2, "cuDeviceTotalMem", 3020)                                            \
    CALL(cuMemGetAddressRange_v2, "cuMemGetAddressRange", 3020)                                    \
    CALL(cuPointerGetAttribute, "cuPointerGetAttribute", 4000)                                     \
    CALL(cuPointerGetAttributes, "cuPointerGetAttributes", 7000)                                   \
    CALL(cuPointerSetAttribute, "cuPointerSetAttribute", 6000)                                     \
    CALL(cuMemAllocManaged, "cuMemAllocManaged", 6000)

static struct {
#define CALL(symbol, base, version) __typeof__(&symbol) symbol;
    CALLS
#undef CALL
} driver;

static void *find(const char *way, const char *symbol, const char *base, int version)
{
    void *handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), *found = NULL;
    CUdriverProcAddressQueryResult status;

    if (strcmp(way, "dlsym") == 0)
        return dlsym(handle, symbol);
    if (strcmp(way, "global") == 0)
        return dlsym(RTLD_DEFAULT, symbol);
    if (strcmp(way, "next") == 0)
        return dlsym(RTLD_NEXT, symbol);
    if (strcmp(way, "proc1") == 0 && cuGetProcAddress(base, &found, version, 0) == CUDA_SUCCESS)
        return found;
    if (strcmp(way, "proc2") == 0 &&
        cuGetProcAddress_v2(base, &found, version, 0, &status) == CUDA_SUCCESS)
        return found;
    return NULL;
}

static void load(const char *way)
{
#define CALL(symbol, base, version)                                                                \
    driver.symbol = strcmp(way, "linked") == 0                                                     \
                        ? symbol                                                                   \
                        : (__typeof__(&symbol))find(way, #symbol, base, version);                  \
    if (driver.symbol == NULL)                                                                     \
        fprintf(stderr, "%s was not found\n", #symbol);
    CALLS
#undef CALL
}

#define SAY(call) printf("%s: %d\n", #call, (int)driver.call)

static void ask_about(CUdeviceptr block, CUdeviceptr inside)
{
    CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                   CU_POINTER_ATTRIBUTE_RANGE_SIZE,
                                   CU_POINTER_ATTRIBUTE_MEMORY_TYPE};
    CUdeviceptr base = 0, start = 0;
    unsigned type = 0, one = 1;
    size_t size = 0, range = 0;
    unsigned long long first = 0, second = 0;
    void *values[] = {&start, &range, &type};

    SAY(cuMemGetAddressRange_v2(&base, &size, inside));
    printf("base at %lld, %zu bytes\n", (long long)(base - block), size);
    SAY(cuMemGetAddressRange_v2(NULL, &size, inside));
    SAY(cuMemGetAddressRange_v2(&base, NULL, inside));
    SAY(cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, inside));
    printf("starts at %lld\n", (long long)(start - block));
    SAY(cuPointerGetAttribute(&range, CU_POINTER_ATTRIBUTE_RANGE_SIZE, inside));
    printf("%zu bytes\n", range);
    SAY(cuPointerGetAttribute(&first, CU_POINTER_ATTRIBUTE_BUFFER_ID, block));
    SAY(cuPointerGetAttribute(&second, CU_POINTER_ATTRIBUTE_BUFFER_ID, inside));
    printf("same buffer: %d\n", first == second && first != 0);
    start = range = 0;
    SAY(cuPointerGetAttributes(3, names, values, inside));
    printf("starts at %lld, %zu bytes, type %u\n", (long long)(start - block), range, type);
    SAY(cuPointerSetAttribute(&one, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, block));
}

static void ask_about_nothing(CUdeviceptr gone)
{
    CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                   CU_POINTER_ATTRIBUTE_RANGE_SIZE};
    CUdeviceptr base = 0, start = 7;
    size_t size = 0, range = 7;
    void *values[] = {&start, &range};
    unsigned one = 1;

    SAY(cuMemGetAddressRange_v2(&base, &size, gone));
    SAY(cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, gone));
    SAY(cuPointerGetAttributes(2, names, values, gone));
    printf("starts at %llu, %zu bytes\n", (unsigned long long)start, range);
    SAY(cuPointerSetAttribute(&one, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, gone));
}

static void *run(void *unused)
{
    CUdeviceptr blocks[3] = {0}, pitched = 0, managed = 0;
    CUcontext context = NULL;
    CUdevice device = 0;
    size_t free_bytes = 0, total_bytes = 0, device_bytes = 0, pitch = 0;
    unsigned free_old = 0, total_old = 0;

    SAY(cuMemAlloc_v2(&blocks[0], 100));
    SAY(cuInit(1));
    SAY(cuInit(0));
    SAY(cuDeviceGet(&device, 0));
    SAY(cuDeviceTotalMem_v2(&device_bytes, device));
    SAY(cuDeviceTotalMem_v2(&device_bytes, 99));
    SAY(cuDeviceTotalMem_v2(NULL, device));
    SAY(cuMemAlloc_v2(&blocks[0], 100));
    SAY(cuMemGetInfo_v2(&free_bytes, &total_bytes));
    SAY(cuMemFree_v2(0));
    SAY(cuDevicePrimaryCtxRetain(&context, device));
    SAY(cuCtxSetCurrent(context));
    SAY(cuMemGetInfo_v2(&free_bytes, &total_bytes));
    printf("total %zu of %zu, free is less: %d\n", total_bytes, device_bytes,
           free_bytes <= total_bytes);
    SAY(cuMemGetInfo(&free_old, &total_old));
    printf("old total %u\n", total_old);
    SAY(cuDeviceTotalMem(&total_old, device));
    printf("old total %u\n", total_old);
    SAY(cuMemAlloc_v2(NULL, 100));
    SAY(cuMemAlloc_v2(&blocks[0], 0));
    SAY(cuMemAlloc_v2(&blocks[0], (size_t)1 << 63));
    SAY(cuMemAlloc_v2(&blocks[0], 1));
    SAY(cuMemAlloc_v2(&blocks[1], 5000));
    SAY(cuMemAlloc_v2(&blocks[2], (size_t)33 << 20));
    printf("aligned: %d %d %d\n", blocks[0] % 256 == 0, blocks[1] % 256 == 0, blocks[2] % 256 == 0);
    SAY(cuMemAllocPitch_v2(&pitched, &pitch, 1000, 30, 4));
    printf("pitch %zu\n", pitch);
    ask_about(blocks[1], blocks[1] + 4999);
    ask_about(pitched, pitched + 1);
    SAY(cuMemAllocPitch_v2(&pitched, &pitch, 1000, 30, 5));
    SAY(cuMemAllocPitch_v2(&pitched, &pitch, 0, 30, 4));
    SAY(cuMemAllocPitch_v2(&pitched, NULL, 1000, 30, 4));
    SAY(cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL));
    SAY(cuMemFree_v2(blocks[1] + 8));
    SAY(cuMemFree_v2(0xdead0000));
    SAY(cuMemFree_v2(0));
    SAY(cuMemFree_v2(managed));
    SAY(cuMemFree_v2(managed));
    SAY(cuMemFree_v2(blocks[1]));
    SAY(cuMemFree_v2(blocks[1]));
    ask_about_nothing(blocks[1]);
    SAY(cuCtxSynchronize());
    SAY(cuMemFree_v2(blocks[0]));
    SAY(cuMemFree_v2(blocks[2]));
    SAY(cuMemFree_v2(pitched));
    fflush(stdout);
    return unused;
}

static int run_in_child(void)
{
    pid_t child = fork();
    int status = 1;

    if (child == 0) {
        run(NULL);
        exit(0);
    }
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

__attribute__((constructor)) static void construct(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[2], "constructor") == 0) {
        load(argv[1]);
        run(NULL);
    }
}

int main(int argc, char **argv)
{
    const char *place = argc > 2 ? argv[2] : "main";
    pthread_t thread;

    if (argc < 2)
        return 2;
    if (strcmp(place, "constructor") == 0)
        return 0;
    load(argv[1]);
    if (strcmp(place, "fork") == 0)
        return run_in_child();
    if (strcmp(place, "thread") == 0) {
        if (pthread_create(&thread, NULL, run, NULL) != 0)
            return 1;
        return pthread_join(thread, NULL);
    }
    run(NULL);
    return 0;
}
