/* Everything a driver says about a pointer of cuMemAlloc: its 21 attributes, one by one and all
 * together, its range, its alignment, and the handles it can be exported by. Addresses are shown as
 * relations, so that the rows of two runs can be compared. */
#include "tests/gpu/gpu.h"

#define ATTRIBUTES 21
#define ALIGNMENTS 20

static uint64_t log2_of(CUdeviceptr address)
{
    return (uint64_t)__builtin_ctzll(address);
}

/* The value as a number that does not depend on where the block lies. */
static double shown(unsigned which, const uint64_t *value, CUdeviceptr block)
{
    switch (which) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        return *value == (uintptr_t)gpu.context;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        return *value == block;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
    case 20: /* MEMORY_BLOCK_ID */
        return *value != 0;
    default:
        return (double)*value;
    }
}

static void show_single(CUdeviceptr block, uint64_t bytes, unsigned which)
{
    uint64_t value[4] = {0};
    CUresult result = cu.cuPointerGetAttribute(value, (CUpointer_attribute)which, block);

    row(result, "code", "single.%s.%u.code", size_name(bytes), which);
    if (result == CUDA_SUCCESS)
        row(shown(which, value, block), "value", "single.%s.%u", size_name(bytes), which);
}

/* The tokens of GPUDirect, last: asking for them sets SYNC_MEMOPS. */
static void show_tokens(CUdeviceptr block, uint64_t bytes)
{
    unsigned is_synchronous = 0;

    show_single(block, bytes, CU_POINTER_ATTRIBUTE_P2P_TOKENS);
    if (cu.cuPointerGetAttribute(&is_synchronous, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, block) ==
        CUDA_SUCCESS)
        row(is_synchronous, "value", "tokens.%s.sync_memops", size_name(bytes));
}

static void show_attributes(CUdeviceptr block, uint64_t bytes)
{
    uint64_t values[ATTRIBUTES + 1][4];
    CUpointer_attribute all[ATTRIBUTES];
    void *to[ATTRIBUTES];
    unsigned count = 0;

    memset(values, 0, sizeof(values));
    for (unsigned i = 1; i <= ATTRIBUTES; i++)
        if (i != CU_POINTER_ATTRIBUTE_P2P_TOKENS)
            show_single(block, bytes, i);
    memset(values, 0, sizeof(values));
    for (unsigned i = 1; i <= ATTRIBUTES; i++) {
        if (i == CU_POINTER_ATTRIBUTE_P2P_TOKENS)
            continue; /* may fail, and would fail the rest */
        all[count] = (CUpointer_attribute)i;
        to[count++] = values[i];
    }
    row(cu.cuPointerGetAttributes(count, all, to, block), "code", "plural.%s.code",
        size_name(bytes));
    for (unsigned i = 0; i < count; i++)
        row(shown(all[i], to[i], block), "value", "plural.%s.%u", size_name(bytes), all[i]);
}

static void show_exports(CUdeviceptr block, uint64_t bytes)
{
    CUipcMemHandle ipc;
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr base = 0;
    size_t size = 0;
    int fd = -1;

    row(cu.cuIpcGetMemHandle(&ipc, block), "code", "ipc.%s", size_name(bytes));
    CUresult result = cu.cuMemRetainAllocationHandle(
        &handle, (void *)(uintptr_t)block); /* NOLINT: addresses are integers */
    row(result, "code", "retain.%s", size_name(bytes));
    if (result == CUDA_SUCCESS)
        CU(cuMemRelease, handle);
    result = cu.cuMemGetHandleForAddressRange(&fd, block & ~UINT64_C(4095),
                                              (bytes + 4095) & ~UINT64_C(4095),
                                              CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
    row(result, "code", "dma_buf.%s", size_name(bytes));
    if (result == CUDA_SUCCESS)
        close(fd);
    row(cu.cuMemGetAddressRange(&base, &size, block), "code", "range.%s.code", size_name(bytes));
    row(base == block, "yes", "range.%s.base", size_name(bytes));
    row((double)size, "bytes", "range.%s.bytes", size_name(bytes));
}

static void show_alignment(uint64_t bytes)
{
    CUdeviceptr blocks[ALIGNMENTS];
    uint64_t least = 21; /* 2 MiB: beyond, it is chance */

    for (unsigned i = 0; i < ALIGNMENTS; i++) {
        CU(cuMemAlloc, &blocks[i], bytes);
        if (log2_of(blocks[i]) < least)
            least = log2_of(blocks[i]);
    }
    for (unsigned i = 0; i < ALIGNMENTS; i++)
        CU(cuMemFree, blocks[i]);
    row((double)(UINT64_C(1) << least), "bytes", "alignment.%s", size_name(bytes));
}

int main(void)
{
    static const uint64_t sizes[] = {512, MIB, 7 * MIB, 64 * MIB};
    CUdeviceptr block, beside;

    gpu_open();
    CU(cuMemAlloc, &beside, 1536);
    for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        CU(cuMemAlloc, &block, sizes[i]);
        show_attributes(block, sizes[i]);
        show_exports(block, sizes[i]);
        show_tokens(block, sizes[i]);
        CU(cuMemFree, block);
        show_alignment(sizes[i]);
    }
    CU(cuMemFree, beside);
    return EXIT_SUCCESS;
}
