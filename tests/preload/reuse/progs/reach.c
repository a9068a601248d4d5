/* link: -l:libcuda.so.1 */
/* Work of one context is queued that uses memory of another, and its owner frees that memory, waits
 * for its own context, and uses what it is given next: it must not be what the work still uses.
 * Prints how many bytes are wrong: in the copy, or in what the owner has next.
 *
 * usage: reach WAY DEVICE [MAKER]: the work is of a context of that device (0 is the owner's), made
 * by cuCtxCreate, or by MAKER: gl, vdpau. WAY: how the memory is named (ways, below). */
#define _GNU_SOURCE
#include "tests/preload/progs/program.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define BYTES (size_t)(12 << 20)
#define LONG_COUNT 5000

static CUcontext owner, worker;
static CUstream stream;       /* of worker */
static CUdeviceptr to, spare; /* of worker; of owner: what a node names before it is changed */

static void use(CUcontext context)
{
    CHECK(cuCtxSetCurrent(context));
}

static CUDA_MEMCPY3D copy_of(CUdeviceptr from)
{
    return (CUDA_MEMCPY3D){
        .srcMemoryType = CU_MEMORYTYPE_DEVICE,
        .srcDevice = from,
        .srcPitch = BYTES,
        .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
        .dstDevice = to,
        .dstPitch = BYTES,
        .WidthInBytes = BYTES,
        .Height = 1,
        .Depth = 1,
    };
}

static CUDA_MEMSET_NODE_PARAMS fill_of(CUdeviceptr at)
{
    return (CUDA_MEMSET_NODE_PARAMS){
        .dst = at, .pitch = BYTES, .value = 1, .elementSize = 1, .width = BYTES, .height = 1};
}

static void launch(CUgraph graph)
{
    CUgraphExec exec;
    CHECK(cuGraphInstantiate(&exec, graph, 0));
    CHECK(cuGraphLaunch(exec, stream));
}

/* ---- graphs ---- */

static CUgraph graph_with_copy(CUdeviceptr from, CUgraphNode *node)
{
    const CUDA_MEMCPY3D copy = copy_of(from);
    CUgraph graph;
    CHECK(cuGraphCreate(&graph, 0));
    CHECK(cuGraphAddMemcpyNode(node, graph, NULL, 0, &copy, worker));
    return graph;
}

static void copy_node(CUdeviceptr from)
{
    CUgraphNode node;
    launch(graph_with_copy(from, &node));
}

static void copy_set(CUdeviceptr from)
{
    const CUDA_MEMCPY3D copy = copy_of(from);
    CUgraphNode node;
    CUgraph graph = graph_with_copy(to, &node);
    CHECK(cuGraphMemcpyNodeSetParams(node, &copy));
    launch(graph);
}

static void copy_exec_set(CUdeviceptr from)
{
    const CUDA_MEMCPY3D copy = copy_of(from);
    CUgraphNode node;
    CUgraph graph = graph_with_copy(spare, &node);
    CUgraphExec exec;
    CHECK(cuGraphInstantiate(&exec, graph, 0));
    CHECK(cuGraphExecMemcpyNodeSetParams(exec, node, &copy, worker));
    CHECK(cuGraphLaunch(exec, stream));
}

static void copy_updated(CUdeviceptr from)
{
    CUgraphNode node;
    CUgraphExecUpdateResultInfo info;
    CUgraphExec exec;
    CHECK(cuGraphInstantiate(&exec, graph_with_copy(spare, &node), 0));
    CHECK(cuGraphExecUpdate(exec, graph_with_copy(from, &node), &info));
    CHECK(cuGraphLaunch(exec, stream));
}

static void copy_child(CUdeviceptr from)
{
    CUgraphNode node;
    CUgraph clone, graph;
    CHECK(cuGraphClone(&clone, graph_with_copy(from, &node)));
    CHECK(cuGraphCreate(&graph, 0));
    CHECK(cuGraphAddChildGraphNode(&node, graph, NULL, 0, clone));
    launch(graph);
}

/* A block of any kind. */
static CUgraphNodeParams any_copy(CUdeviceptr from)
{
    CUgraphNodeParams any = {.type = CU_GRAPH_NODE_TYPE_MEMCPY};
    any.memcpy.copyCtx = worker;
    any.memcpy.copyParams = copy_of(from);
    return any;
}

static void copy_any(CUdeviceptr from)
{
    CUgraphNodeParams any = any_copy(from);
    CUgraphNode node;
    CUgraph graph;
    CHECK(cuGraphCreate(&graph, 0));
    CHECK(cuGraphAddNode(&node, graph, NULL, NULL, 0, &any));
    launch(graph);
}

static void copy_any_set(CUdeviceptr from)
{
    CUgraphNodeParams any = any_copy(from);
    CUgraphNode node;
    CUgraph graph = graph_with_copy(to, &node);
    CHECK(cuGraphNodeSetParams(node, &any));
    launch(graph);
}

static CUgraph graph_with_fill(CUdeviceptr at, CUgraphNode *node)
{
    const CUDA_MEMSET_NODE_PARAMS fill = fill_of(at);
    CUgraph graph;
    CHECK(cuGraphCreate(&graph, 0));
    CHECK(cuGraphAddMemsetNode(node, graph, NULL, 0, &fill, worker));
    return graph;
}

static void fill_node(CUdeviceptr at)
{
    CUgraphNode node;
    launch(graph_with_fill(at, &node));
}

static void fill_set(CUdeviceptr at)
{
    const CUDA_MEMSET_NODE_PARAMS fill = fill_of(at);
    CUgraphNode node;
    CUgraph graph = graph_with_fill(to, &node);
    CHECK(cuGraphMemsetNodeSetParams(node, &fill));
    launch(graph);
}

static void fill_exec_set(CUdeviceptr at)
{
    const CUDA_MEMSET_NODE_PARAMS fill = fill_of(at);
    CUgraphNode node;
    CUgraphExec exec;
    CHECK(cuGraphInstantiate(&exec, graph_with_fill(spare, &node), 0));
    CHECK(cuGraphExecMemsetNodeSetParams(exec, node, &fill, worker));
    CHECK(cuGraphLaunch(exec, stream));
}

/* Captured in a stream of the owner, launched in one of the worker. */
static void captured(CUdeviceptr at)
{
    CUstream own;
    CUgraph graph;
    use(owner);
    CHECK(cuStreamCreate(&own, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamBeginCapture(own, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK(cuMemsetD8Async(at, 1, BYTES, own));
    CHECK(cuStreamEndCapture(own, &graph));
    use(worker);
    launch(graph);
}

/* Captured in a stream of the worker, from which it forks to one of the owner. */
static void forked(CUdeviceptr at)
{
    CUevent fork, join;
    CUstream own;
    CUgraph graph;
    use(owner);
    CHECK(cuStreamCreate(&own, CU_STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&join, CU_EVENT_DISABLE_TIMING));
    use(worker);
    CHECK(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK(cuEventRecord(fork, stream));
    use(owner);
    CHECK(cuStreamWaitEvent(own, fork, 0));
    CHECK(cuMemsetD8Async(at, 1, BYTES, own));
    CHECK(cuEventRecord(join, own));
    use(worker);
    CHECK(cuStreamWaitEvent(stream, join, 0));
    CHECK(cuStreamEndCapture(stream, &graph));
    for (int i = 0; i < 3; i++)
        CHECK(cuMemsetD8Async(to, 0, BYTES, stream));
    launch(graph);
}

/* ---- lists ---- */

static void batch(CUdeviceptr from)
{
    static CUdeviceptr targets[LONG_COUNT], sources[LONG_COUNT];
    static size_t sizes[LONG_COUNT];
    CUmemcpyAttributes attributes = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
    const size_t part = BYTES / LONG_COUNT;
    size_t first = 0;
    for (size_t i = 0; i < LONG_COUNT; i++) {
        sources[i] = from + i * part;
        targets[i] = to + i * part;
        sizes[i] = i + 1 < LONG_COUNT ? part : BYTES - i * part;
    }
    CHECK(cuMemcpyBatchAsync(targets, sources, sizes, LONG_COUNT, &attributes, &first, 1, stream));
}

/* A count that no program means; its code is the driver's. */
static void endless(CUdeviceptr from)
{
    (void)from;
    printf("error %d ", (int)cuMemcpyBatchAsync(NULL, NULL, NULL, SIZE_MAX, NULL, NULL, 0, stream));
    CHECK(cuMemcpyDtoDAsync(to, from, BYTES, stream));
}

static void values(CUdeviceptr at)
{
    CUstreamBatchMemOpParams list[2] = {{.operation = CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES},
                                        {.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64}};
    list[1].writeValue.address = at;
    list[1].writeValue.value64 = UINT64_C(0x0101010101010101);
    CHECK(cuStreamBatchMemOp(stream, 2, list, 0));
}

static void value_node(CUdeviceptr at)
{
    CUstreamBatchMemOpParams list = {.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64};
    CUDA_BATCH_MEM_OP_NODE_PARAMS ops = {.ctx = worker, .count = 1, .paramArray = &list};
    CUgraphNode node;
    CUgraph graph;
    list.writeValue.address = at;
    list.writeValue.value64 = UINT64_C(0x0101010101010101);
    CHECK(cuGraphCreate(&graph, 0));
    CHECK(cuGraphAddBatchMemOpNode(&node, graph, NULL, 0, &ops));
    launch(graph);
}

/* Four bytes of a block as LZ4 has them: a token, and what follows as it is. */
static void unpack(CUdeviceptr at)
{
    static const unsigned char block[] = {0x40, 1, 1, 1, 1};
    CUdeviceptr packed = program_alloc(4096);
    CUmemDecompressParams list = {.srcNumBytes = sizeof(block),
                                  .dstNumBytes = 4,
                                  .dstActBytes = (cuuint32_t *)(uintptr_t)(packed + 1024),
                                  .src = (const void *)(uintptr_t)packed,
                                  .dst = (void *)(uintptr_t)at,
                                  .algo = CU_MEM_DECOMPRESS_ALGORITHM_LZ4};
    size_t failed;
    CHECK(cuMemcpyHtoD(packed, block, sizeof(block)));
    for (int i = 0; i < 3; i++)
        CHECK(cuMemsetD8Async(to, 0, BYTES, stream));
    CHECK(cuMemBatchDecompressAsync(&list, 1, 0, &failed, stream));
}

static void fill(CUdeviceptr at)
{
    CHECK(cuMemsetD8Async(at, 1, BYTES, NULL));
}

static const struct way {
    const char *name;
    void (*submit)(CUdeviceptr);
    bool reads; /* else it writes what the owner has */
} ways[] = {
    {"copy-node", copy_node, true},
    {"copy-set", copy_set, true},
    {"copy-exec-set", copy_exec_set, true},
    {"copy-updated", copy_updated, true},
    {"copy-child", copy_child, true},
    {"copy-any", copy_any, true},
    {"copy-any-set", copy_any_set, true},
    {"fill-node", fill_node, false},
    {"fill-set", fill_set, false},
    {"fill-exec-set", fill_exec_set, false},
    {"captured", captured, false},
    {"forked", forked, false},
    {"endless", endless, true},
    {"batch", batch, true},
    {"values", values, false},
    {"value-node", value_node, false},
    {"unpack", unpack, false},
    {"fill", fill, false},
};

static const struct way *find_way(const char *name)
{
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
        if (strcmp(ways[i].name, name) == 0)
            return &ways[i];
    fprintf(stderr, "no way %s\n", name);
    exit(EXIT_FAILURE);
}

/* Their headers want those of OpenGL and VDPAU. */
static CUcontext make_worker(CUdevice device, const char *maker)
{
    CUcontext context = NULL;
    if (strcmp(maker, "gl") == 0) {
        CUresult (*make)(CUcontext *, unsigned, CUdevice) =
            (CUresult(*)(CUcontext *, unsigned, CUdevice))dlsym(RTLD_DEFAULT, "cuGLCtxCreate_v2");
        CHECK(make(&context, 0, device));
    } else if (strcmp(maker, "vdpau") == 0) {
        CUresult (*make)(CUcontext *, unsigned, CUdevice, unsigned, void *) =
            (CUresult(*)(CUcontext *, unsigned, CUdevice, unsigned, void *))dlsym(
                RTLD_DEFAULT, "cuVDPAUCtxCreate_v2");
        CHECK(make(&context, 0, device, 1, (void *)(uintptr_t)1));
    } else {
        CHECK(cuCtxCreate(&context, NULL, 0, device));
    }
    return context;
}

static size_t count_wrong(CUdeviceptr at, int want)
{
    unsigned char *got = malloc(BYTES);
    size_t wrong = 0;
    CHECK(cuMemcpyDtoH(got, at, BYTES));
    for (size_t i = 0; i < BYTES; i++)
        wrong += got[i] != want;
    free(got);
    return wrong;
}

int main(int argc, char **argv)
{
    const struct way *way = find_way(argc > 1 ? argv[1] : "copy-node");
    const CUdevice device = argc > 2 ? atoi(argv[2]) : 0;
    const char *maker = argc > 3 ? argv[3] : "";
    owner = program_start();
    CUdeviceptr used = program_alloc(BYTES);
    spare = program_alloc(BYTES);
    CHECK(cuMemsetD8(used, 1, BYTES));
    CHECK(cuCtxSynchronize());
    worker = make_worker(device, maker);
    use(worker);
    if (way->submit != fill) { /* that one is all the context ever does, in its default stream */
        CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        to = program_alloc(BYTES);
        for (int i = 0; i < 3; i++)
            CHECK(cuMemsetD8Async(to, 0, BYTES, stream));
    }
    way->submit(used);
    use(owner);
    CHECK(cuMemFree(used));
    CHECK(cuCtxSynchronize());
    CUdeviceptr next = program_alloc(BYTES);
    CHECK(cuMemsetD8(next, 2, BYTES));
    CHECK(cuCtxSynchronize());
    use(worker);
    CHECK(cuCtxSynchronize());
    if (way->reads) {
        printf("wrong %zu\n", count_wrong(to, 1));
    } else {
        use(owner);
        printf("wrong %zu\n", count_wrong(next, 2));
    }
    return 0;
}
