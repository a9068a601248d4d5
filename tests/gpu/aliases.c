/* One page of 2 MiB mapped at several addresses at once, without and with the RDMA flag: the codes
 * of each call, whether a write through each alias is read through every other, and whether the
 * aliases that are left keep the content while others are unmapped. */
#include "tests/gpu/gpu.h"

#define PAGE (2 * MIB)
#define ALIASES_MAX 64
#define LAST_CONTENT 0xA11A5E5u

static uint32_t read_word(CUdeviceptr address)
{
    uint32_t value = 0;

    CU(cuMemcpyDtoH, &value, address, sizeof(value));
    return value;
}

/* Writes through each alias by a fill, reads through all others by copies. */
static unsigned wrong_copies(CUdeviceptr range, unsigned count)
{
    unsigned wrong = 0;

    for (unsigned i = 0; i < count; i++) {
        CU(cuMemsetD32Async, range + i * PAGE, 1000 + i, PAGE / 4, NULL);
        CU(cuCtxSynchronize);
        for (unsigned j = 0; j < count; j++)
            wrong += read_word(range + j * PAGE) != 1000 + i ||
                     read_word(range + (j + 1) * PAGE - 4) != 1000 + i;
    }
    return wrong;
}

/* The same by kernels, one behind the other in a stream. */
static uint32_t wrong_kernels(CUdeviceptr range, unsigned count)
{
    CUfunction fill = gpu_kernel("fill"), check = gpu_kernel("check");
    uint64_t words = PAGE / 4;
    CUdeviceptr wrong = 0;

    CU(cuMemAlloc, &wrong, 4096);
    CU(cuMemsetD8, wrong, 0, 4096);
    for (uint32_t i = 0; i < count; i++) {
        CUdeviceptr to = range + i * PAGE;
        void *writes[] = {&to, &words, &i};
        gpu_launch(fill, 32, 256, NULL, writes);
        for (unsigned j = 0; j < count; j++) {
            CUdeviceptr from = range + j * PAGE;
            void *reads[] = {&from, &words, &i, &wrong};
            gpu_launch(check, 32, 256, NULL, reads);
        }
    }
    CU(cuCtxSynchronize);
    const uint32_t result = read_word(wrong);
    CU(cuMemFree, wrong);
    return result;
}

/* The number of the alias that is unmapped as the i-th. */
static unsigned unmapped_as(unsigned i, unsigned count, unsigned order)
{
    return order == 0   ? i
           : order == 1 ? count - 1 - i
                        : (i * 5 + 3) % count; /* 5: prime to 2 and 64 */
}

/* Unmaps in an order that depends on `order`. Adds to *wrong, where it is not NULL, the words
 * that do not read as before through the next and the last alias that are left, after each unmap.
 */
static CUresult unmap_all(CUdeviceptr range, unsigned count, unsigned order, unsigned *wrong)
{
    CUresult worst = CUDA_SUCCESS;

    for (unsigned i = 0; i < count; i++) {
        const CUresult result = cu.cuMemUnmap(range + unmapped_as(i, count, order) * PAGE, PAGE);
        if (result != CUDA_SUCCESS)
            worst = result;
        const unsigned left[2] = {i + 1, count - 1};
        for (unsigned j = 0; wrong != NULL && i + 1 < count && j < 2; j++) {
            const CUdeviceptr alias = range + unmapped_as(left[j], count, order) * PAGE;
            *wrong += read_word(alias) != LAST_CONTENT;
            *wrong += read_word(alias + PAGE - 4) != LAST_CONTENT;
        }
    }
    return worst;
}

static void measure(bool has_rdma, unsigned count, unsigned order)
{
    const CUmemAllocationProp properties = memory_of(has_rdma);
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr range = 0;
    char name[64];
    CUresult code = cu.cuMemCreate(&handle, PAGE, &properties, 0);

    snprintf(name, sizeof(name), "rdma%d.x%u.order%u", has_rdma, count, order);
    row(code, "code", "%s.create", name);
    if (code != CUDA_SUCCESS)
        return;
    CU(cuMemAddressReserve, &range, count * PAGE, 0, 0, 0);
    unsigned mapped = 0;
    while (mapped < count && code == CUDA_SUCCESS) {
        code = cu.cuMemMap(range + mapped * PAGE, PAGE, 0, handle, 0);
        if (code != CUDA_SUCCESS) {
            row(code, "code", "%s.map", name);
            break;
        }
        code = open_access(range + mapped * PAGE, PAGE);
        mapped++;
        if (code != CUDA_SUCCESS)
            row(code, "code", "%s.access", name);
    }
    row(mapped, "aliases", "%s.mapped", name);
    if (code == CUDA_SUCCESS) {
        row(code, "code", "%s.map", name);
        row(code, "code", "%s.access", name);
        row(wrong_copies(range, count), "words", "%s.copies.wrong", name);
        row(wrong_kernels(range, count), "words", "%s.kernels.wrong", name);
    }
    if (order == 2)
        row(cu.cuMemRelease(handle), "code", "%s.release_first", name);
    if (code == CUDA_SUCCESS) {
        CU(cuMemsetD32Async, range, LAST_CONTENT, PAGE / 4, NULL);
        CU(cuCtxSynchronize);
    }
    unsigned wrong = 0;
    row(unmap_all(range, mapped, order, code == CUDA_SUCCESS ? &wrong : NULL), "code", "%s.unmap",
        name);
    if (code == CUDA_SUCCESS)
        row(wrong, "words", "%s.between.wrong", name);
    if (order != 2)
        row(cu.cuMemRelease(handle), "code", "%s.release", name);
    CU(cuMemAddressFree, range, count * PAGE);
}

int main(void)
{
    gpu_open();
    for (int flag = 0; flag < 2; flag++)
        for (unsigned order = 0; order < 3; order++) {
            measure(flag != 0, 2, order);
            measure(flag != 0, ALIASES_MAX, order);
        }
    return EXIT_SUCCESS;
}
