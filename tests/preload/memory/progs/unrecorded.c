/* link: -l:libcuda.so.1 -ldl */
/* Takes memory in every direct way that is charged, with no host memory left for a record of it.
 * usage: unrecorded. Prints each call's result, then by how many bytes the driver holds more. */
#define _GNU_SOURCE
#include "tests/preload/progs/program.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
#define RECORDS 1000 /* more than fit the memory that the library has for records */
#define POOLS 20000  /* likewise */

/* A record may find a place that a former one left: which one, the key's hash decides. */
#define ATTEMPTS 4
#define UNTIL_REFUSED(name, call)                                                                  \
    do {                                                                                           \
        int result = CUDA_SUCCESS;                                                                 \
        for (int i = 0; i < ATTEMPTS && result == CUDA_SUCCESS; i++)                               \
            result = (int)(call);                                                                  \
        printf("%s %d\n", name, result);                                                           \
    } while (0)

static bool is_scarce;

static bool is_of_library(const void *caller)
{
    Dl_info info;
    return dladdr(caller, &info) != 0 && strstr(info.dli_fname, "libgpucache") != NULL;
}

__attribute__((visibility("default"))) void *mmap(void *address, size_t bytes, int protection,
                                                  int flags, int fd, off_t offset)
{
    if (is_scarce && is_of_library(__builtin_return_address(0))) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    return (void *)syscall(SYS_mmap, address, bytes, protection, flags, fd, offset);
}

static void use_up_records(void)
{
    CUdeviceptr block;

    is_scarce = true;
    for (int i = 0; i < RECORDS; i++)
        (void)cuMemAlloc(&block, 512);
}

static void first_abi(void)
{
    CUresult (*alloc)(unsigned *, unsigned) =
        (CUresult(*)(unsigned *, unsigned))dlsym(RTLD_DEFAULT, "cuMemAlloc");
    CUresult (*pitched)(unsigned *, unsigned *, unsigned, unsigned, unsigned) =
        (CUresult(*)(unsigned *, unsigned *, unsigned, unsigned, unsigned))dlsym(RTLD_DEFAULT,
                                                                                 "cuMemAllocPitch");
    unsigned block, pitch;

    UNTIL_REFUSED("cuMemAlloc", alloc(&block, 4 * MIB));
    UNTIL_REFUSED("cuMemAllocPitch", pitched(&block, &pitch, 1024, 4096, 4));
}

/* A pool is charged for what the driver reserves for it, so one without a record serves nothing. */
static void pools(void)
{
    const CUmemPoolProps props = {
        .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
    };
    CUmemoryPool pool;
    CUdeviceptr block;
    int result = CUDA_SUCCESS;

    for (int i = 0; i < POOLS && result == CUDA_SUCCESS; i++) {
        CHECK(cuMemPoolCreate(&pool, &props));
        result = (int)cuMemAllocFromPoolAsync(&block, 512, pool, NULL);
        if (result == CUDA_SUCCESS)
            CHECK(cuMemFreeAsync(block, NULL));
        CHECK(cuMemPoolTrimTo(pool, 0));
    }
    printf("cuMemAllocFromPoolAsync %d\n", result);
}

int main(void)
{
    CUmemAllocationProp memory = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
    };
    CUDA_ARRAY_DESCRIPTOR plane = {
        .Width = 1024, .Height = 1024, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
    CUDA_ARRAY3D_DESCRIPTOR solid = {.Width = 128,
                                     .Height = 128,
                                     .Depth = 128,
                                     .Format = CU_AD_FORMAT_UNSIGNED_INT8,
                                     .NumChannels = 2};
    CUmemGenericAllocationHandle handle;
    CUmipmappedArray mipmap;
    CUdeviceptr block;
    CUarray array;
    size_t before;

    (void)program_start();
    before = program_held_bytes();
    (void)program_alloc(512);
    use_up_records();
    UNTIL_REFUSED("cuMemAlloc_v2", cuMemAlloc(&block, 4 * MIB));
    first_abi();
    UNTIL_REFUSED("cuArrayCreate", cuArrayCreate(&array, &plane));
    UNTIL_REFUSED("cuArray3DCreate", cuArray3DCreate(&array, &solid));
    UNTIL_REFUSED("cuMipmappedArrayCreate", cuMipmappedArrayCreate(&mipmap, &solid, 1));
    UNTIL_REFUSED("cuMemCreate", cuMemCreate(&handle, 4 * MIB, &memory, 0));
    pools();
    printf("held %zu\n", program_held_bytes() - before);
    is_scarce = false; /* for the report */
    return EXIT_SUCCESS;
}
