/* link: -l:libcuda.so.1 */
/* Which kind of memory a block is, by the calls that tell. usage: kinds attributes | copies
 *
 * attributes: the pointer attributes of a block of 5 MiB relative to the block, by both calls; the
 * same as without the library. copies: every kind of copy between blocks of two devices, and copies
 * and fills of a block in a context of the other device: results, and how many bytes are wrong. */
#include "tests/preload/progs/program.h"

#include <string.h>

#define BYTES ((size_t)5 << 20)

static void attributes(void)
{
    CUpointer_attribute list[] = {
        CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, CU_POINTER_ATTRIBUTE_MAPPING_SIZE,
        CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID, CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE,
        CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE};
    uint64_t one[5] = {0}, all[5] = {0}, other = 0;
    void *data[5];
    CUdeviceptr block = program_alloc(BYTES), second = program_alloc(BYTES);

    for (int i = 0; i < 5; i++) {
        CHECK(cuPointerGetAttribute(&one[i], list[i], block + BYTES - 1));
        data[i] = &all[i];
    }
    CHECK(cuPointerGetAttributes(5, list, data, block + BYTES - 1));
    CHECK(cuPointerGetAttribute(&other, list[2], second));
    printf("alike %d base %d size %llu numbers %d rdma %d decompress %d\n",
           memcmp(one, all, sizeof(one)) == 0, one[0] == block, (unsigned long long)one[1],
           one[2] != 0 && one[2] != other, (int)one[3], (int)one[4]);
}

static int wrong_bytes(CUdeviceptr block, unsigned char value)
{
    static unsigned char content[BYTES];
    int wrong = 0;

    CHECK(cuCtxSynchronize());
    CHECK(cuMemcpyDtoH(content, block, BYTES));
    for (size_t i = 0; i < BYTES; i++)
        wrong += content[i] != value;
    return wrong;
}

static CUdeviceptr to, from;
static CUstream stream;
static CUcontext contexts[2];

static CUDA_MEMCPY2D shape(void)
{
    return (CUDA_MEMCPY2D){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                           .srcDevice = from,
                           .srcPitch = 1024,
                           .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                           .dstDevice = to,
                           .dstPitch = 1024,
                           .WidthInBytes = 1024,
                           .Height = BYTES / 1024};
}

static CUresult copy_linear(void)
{
    return cuMemcpyDtoD(to, from, BYTES);
}

static CUresult copy_async(void)
{
    return cuMemcpyDtoDAsync(to, from, BYTES, stream);
}

static CUresult copy_unified(void)
{
    return cuMemcpyAsync(to, from, BYTES, stream);
}

static CUresult copy_peer(void)
{
    return cuMemcpyPeerAsync(to, contexts[0], from, contexts[1], BYTES, stream);
}

static CUresult copy_shaped(void)
{
    const CUDA_MEMCPY2D copy = shape();

    return cuMemcpy2DAsync(&copy, stream);
}

static CUresult copy_node(void)
{
    const CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                .srcDevice = from,
                                .srcPitch = BYTES,
                                .srcHeight = 1,
                                .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                .dstDevice = to,
                                .dstPitch = BYTES,
                                .dstHeight = 1,
                                .WidthInBytes = BYTES,
                                .Height = 1,
                                .Depth = 1};
    CUgraph graph;
    CUgraphExec exec;
    CUgraphNode node;

    CHECK(cuGraphCreate(&graph, 0));
    CHECK(cuGraphAddMemcpyNode(&node, graph, NULL, 0, &copy, contexts[0]));
    CHECK(cuGraphInstantiate(&exec, graph, 0));
    return cuGraphLaunch(exec, stream);
}

static void copies(void)
{
    static const struct {
        const char *name;
        CUresult (*copy)(void);
    } ways[] = {{"linear", copy_linear}, {"async", copy_async},   {"unified", copy_unified},
                {"peer", copy_peer},     {"shaped", copy_shaped}, {"node", copy_node}};
    static unsigned char content[BYTES];

    for (int i = 0; i < 2; i++)
        CHECK(cuDevicePrimaryCtxRetain(&contexts[i], i));
    CHECK(cuCtxSetCurrent(contexts[1]));
    from = program_alloc(BYTES);
    CHECK(cuCtxSetCurrent(contexts[0]));
    to = program_alloc(BYTES);
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (unsigned char i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        CHECK(cuCtxSetCurrent(contexts[1]));
        CHECK(cuMemsetD8(from, (unsigned char)(i + 1), BYTES));
        CHECK(cuCtxSynchronize());
        CHECK(cuCtxSetCurrent(contexts[0]));
        printf("%s %d\n", ways[i].name, (int)ways[i].copy());
        printf("wrong %d\n", wrong_bytes(to, (unsigned char)(i + 1)));
    }
    /* `from`, in the context of the other device */
    memset(content, 77, sizeof(content));
    printf("to %d\n", (int)cuMemcpyHtoD(from, content, BYTES));
    printf("wrong %d\n", wrong_bytes(from, 77));
    printf("fill %d\n", (int)cuMemsetD8Async(from, 78, BYTES, stream));
    printf("wrong %d\n", wrong_bytes(from, 78));
}

int main(int argc, char **argv)
{
    program_start();
    if (argc == 2 && strcmp(argv[1], "attributes") == 0)
        attributes();
    else if (argc == 2 && strcmp(argv[1], "copies") == 0)
        copies();
    else
        return 2;
    return EXIT_SUCCESS;
}
