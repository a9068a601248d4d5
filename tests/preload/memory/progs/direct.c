/* link: -l:libcuda.so.1 */
/* Device memory taken by every way but the pool: usage: direct CASE
 *
 * Each case takes and frees a plain block first, so that there is a report, does one thing and
 * ends; the script checks the report. Cases named …-hold end with the memory still held. A call
 * whose answer the script knows is printed as `name: code`. */
#include "tests/preload/progs/program.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

static CUcontext context;

static void print_result(const char *what, CUresult result)
{
    printf("%s: %d\n", what, (int)result);
}

/* ---- managed and host memory ---- */

static void managed(bool is_held)
{
    CUdeviceptr blocks[3];

    for (int i = 0; i < 3; i++)
        CHECK(cuMemAllocManaged(&blocks[i], 3 * MIB, CU_MEM_ATTACH_GLOBAL));
    for (int i = is_held ? 1 : 0; i < 3; i++)
        CHECK(cuMemFree(blocks[i]));
    print_result("managed, nothing", cuMemAllocManaged(&blocks[0], 0, CU_MEM_ATTACH_GLOBAL));
}

static void host(bool is_held)
{
    void *blocks[2];

    CHECK(cuMemHostAlloc(&blocks[0], 5 * MIB, 0));
    CHECK(cuMemAllocHost(&blocks[1], MIB));
    memset(blocks[0], 1, 5 * MIB);
    CHECK(cuMemFreeHost(blocks[1]));
    if (!is_held)
        CHECK(cuMemFreeHost(blocks[0]));
    print_result("host, twice", cuMemFreeHost(blocks[1]));
}

/* ---- arrays ---- */

static CUresult make_array(CUarray *array, size_t width, size_t height)
{
    CUDA_ARRAY_DESCRIPTOR shape = {
        .Width = width, .Height = height, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 4};
    return cuArrayCreate(array, &shape);
}

static void arrays(bool is_held)
{
    CUDA_ARRAY3D_DESCRIPTOR shape = {.Width = 64,
                                     .Height = 64,
                                     .Depth = 64,
                                     .Format = CU_AD_FORMAT_UNSIGNED_INT8,
                                     .NumChannels = 4};
    CUarray plane = NULL, solid = NULL;
    CUmipmappedArray mipmap = NULL;

    CHECK(make_array(&plane, 1024, 1024));  /* 16 MiB */
    CHECK(cuArray3DCreate(&solid, &shape)); /* 1 MiB */
    shape.Depth = 0;
    CHECK(cuMipmappedArrayCreate(&mipmap, &shape, 7));
    CHECK(cuMipmappedArrayDestroy(mipmap));
    CHECK(cuArrayDestroy(solid));
    if (!is_held)
        CHECK(cuArrayDestroy(plane));
    print_result("array, no descriptor", cuArrayCreate(&plane, NULL));
    print_result("array, twice", is_held ? CUDA_SUCCESS : cuArrayDestroy(plane));
}

/* ---- physical handles and mappings ---- */

static const CUmemAllocationProp device_memory = {
    .type = CU_MEM_ALLOCATION_TYPE_PINNED,
    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
};

static CUdeviceptr reserve_range(size_t bytes)
{
    CUdeviceptr range = 0;
    CHECK(cuMemAddressReserve(&range, bytes, 0, 0, 0));
    return range;
}

/* Two handles mapped side by side, released, one of them retained again through its mapping. */
static void vmm(bool is_held)
{
    CUmemGenericAllocationHandle handles[2], again;
    CUdeviceptr range = reserve_range(12 * MIB);

    for (int i = 0; i < 2; i++) {
        CHECK(cuMemCreate(&handles[i], 4 * MIB, &device_memory, 0));
        CHECK(cuMemMap(range + (size_t)i * 4 * MIB, 4 * MIB, 0, handles[i], 0));
        CHECK(cuMemRelease(handles[i]));
    }
    CHECK(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(range + MIB)));
    if (is_held)
        return; /* 8 MiB: mapped */
    CHECK(cuMemUnmap(range, 8 * MIB));
    CHECK(cuMemRelease(again));
    CHECK(cuMemAddressFree(range, 12 * MIB));
}

/* The retained handle alone keeps one of the two. */
static void vmm_retained(void)
{
    CUmemGenericAllocationHandle handle, again;
    CUdeviceptr range = reserve_range(4 * MIB);

    CHECK(cuMemCreate(&handle, 4 * MIB, &device_memory, 0));
    CHECK(cuMemMap(range, 4 * MIB, 0, handle, 0));
    CHECK(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)range));
    CHECK(cuMemRelease(handle));
    CHECK(cuMemUnmap(range, 4 * MIB));
}

static void vmm_wrong(void)
{
    CUmemGenericAllocationHandle handle;

    print_result("create, nothing", cuMemCreate(&handle, 0, &device_memory, 0));
    print_result("create, no property", cuMemCreate(&handle, 2 * MIB, NULL, 0));
    CHECK(cuMemCreate(&handle, 2 * MIB, &device_memory, 0));
    CHECK(cuMemRelease(handle));
    print_result("release, twice", cuMemRelease(handle));
}

/* ---- stream-ordered memory ---- */

static void async_plain(void)
{
    CUdeviceptr blocks[4];
    CUstream stream;

    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 4; i++) {
            CHECK(cuMemAllocAsync(&blocks[i], 5 * MIB, stream));
            CHECK(cuMemsetD8Async(blocks[i], 7, 5 * MIB, stream));
        }
        for (int i = 0; i < 3; i++)
            CHECK(cuMemFreeAsync(blocks[i], stream));
        CHECK(cuStreamSynchronize(stream));
        CHECK(cuMemFree(blocks[3]));
    }
    CHECK(cuMemAllocAsync(&blocks[0], 1000, NULL));
    CHECK(cuMemFreeAsync(blocks[0], NULL));
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuStreamSynchronize(NULL));
    CHECK(cuStreamDestroy(stream));
    print_result("async, nothing", cuMemAllocAsync(&blocks[0], 0, NULL));
}

/* Plain memory freed in stream order. */
static void async_free_of_plain(void)
{
    CUdeviceptr block;
    CUstream stream;

    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < 4; i++) {
        block = program_alloc(3 * MIB);
        CHECK(cuMemsetD8Async(block, 1, 3 * MIB, stream));
        CHECK(cuMemFreeAsync(block, stream));
    }
    CHECK(cuCtxSynchronize());
    print_result("async free, interior", cuMemFreeAsync(block + 512, stream));
}

static CUmemoryPool make_pool(void)
{
    const CUmemPoolProps props = {
        .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
    };
    cuuint64_t keep = UINT64_MAX;
    CUmemoryPool pool;

    CHECK(cuMemPoolCreate(&pool, &props));
    CHECK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
    return pool;
}

static uint64_t pool_reserved(CUmemoryPool pool)
{
    cuuint64_t bytes = 0;
    CHECK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &bytes));
    return bytes;
}

/* A pool that keeps what it has; destroyed while an allocation of it lives. */
static void pool(bool is_held)
{
    CUmemoryPool own = make_pool();
    CUdeviceptr blocks[2];

    CHECK(cuMemAllocFromPoolAsync(&blocks[0], 8 * MIB, own, NULL));
    CHECK(cuMemAllocFromPoolAsync(&blocks[1], 8 * MIB, own, NULL));
    CHECK(cuMemFreeAsync(blocks[0], NULL));
    CHECK(cuStreamSynchronize(NULL));
    printf("reserved %llu\n", (unsigned long long)pool_reserved(own));
    if (is_held)
        return;
    CHECK(cuMemPoolTrimTo(own, 0));
    CHECK(cuMemPoolDestroy(own));
    CHECK(cuMemFreeAsync(blocks[1], NULL));
    CHECK(cuStreamSynchronize(NULL));
}

/* Idle memory of a pool gives way to a plain allocation, and idle cache to the pool: limit 200 MiB.
 */
static void pool_gives_way(void)
{
    CUmemoryPool own = make_pool();
    CUdeviceptr block, refused;

    for (int i = 0; i < 3; i++) {
        CHECK(cuMemAllocFromPoolAsync(&block, 90 * MIB, own, NULL));
        print_result("pool, too much", cuMemAllocFromPoolAsync(&refused, 900 * MIB, own, NULL));
        CHECK(cuMemFreeAsync(block, NULL));
        CHECK(cuStreamSynchronize(NULL));
        block = program_alloc(90 * MIB);
        CHECK(cuMemFree(block));
    }
    CHECK(cuMemPoolDestroy(own));
}

/* ---- captures ---- */

static CUstream begin_capture(CUstreamCaptureMode mode)
{
    CUstream stream;

    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamBeginCapture(stream, mode));
    return stream;
}

/* Plain memory taken and given while a stream captures, in the mode that allows it: the graph is
 * still good. */
static void capture(void)
{
    CUdeviceptr kept = program_alloc(MIB), blocks[40];
    CUstream stream = begin_capture(CU_STREAM_CAPTURE_MODE_RELAXED);
    CUgraph graph = NULL;
    CUgraphExec exec;
    unsigned char got = 0;

    for (int i = 0; i < 40; i++)
        blocks[i] = program_alloc((size_t)(i + 1) * 100000);
    CHECK(cuMemsetD8Async(kept, 9, MIB, stream));
    for (int i = 0; i < 40; i++)
        CHECK(cuMemFree(blocks[i]));
    print_result("end capture", cuStreamEndCapture(stream, &graph));
    CHECK(cuGraphInstantiate(&exec, graph, 0));
    CHECK(cuGraphLaunch(exec, stream));
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuMemcpyDtoH(&got, kept + MIB - 1, 1));
    printf("graph wrote %d\n", got);
    CHECK(cuGraphExecDestroy(exec));
    CHECK(cuGraphDestroy(graph));
    CHECK(cuMemFree(kept));
    CHECK(cuStreamDestroy(stream));
}

/* However a capture ends, memory freed afterwards is used again: no synchronisation stays
 * forbidden. */
static void capture_ends(void)
{
    CUgraph graph = NULL;
    CUstream stream = begin_capture(CU_STREAM_CAPTURE_MODE_GLOBAL);

    print_result("synchronise a capturing stream", cuStreamSynchronize(stream));
    print_result("end an invalidated capture", cuStreamEndCapture(stream, &graph));
    CHECK(cuStreamDestroy(stream));
    stream = begin_capture(CU_STREAM_CAPTURE_MODE_RELAXED);
    print_result("destroy a capturing stream", cuStreamDestroy(stream));
    print_result("capture the legacy stream",
                 cuStreamBeginCapture(NULL, CU_STREAM_CAPTURE_MODE_GLOBAL));
    for (int i = 0; i < 3; i++)
        CHECK(cuMemFree(program_alloc(150 * MIB)));
}

/* Stream-ordered allocation in a capture is memory of the graph. */
static void graph(bool is_held)
{
    CUstream stream = begin_capture(CU_STREAM_CAPTURE_MODE_GLOBAL);
    CUgraph built = NULL;
    CUgraphExec exec;
    CUdeviceptr block;
    cuuint64_t reserved = 0;

    CHECK(cuMemAllocAsync(&block, 6 * MIB, stream));
    CHECK(cuMemsetD8Async(block, 3, 6 * MIB, stream));
    CHECK(cuMemFreeAsync(block, stream));
    CHECK(cuStreamEndCapture(stream, &built));
    CHECK(cuGraphInstantiate(&exec, built, 0));
    for (int i = 0; i < 3; i++)
        CHECK(cuGraphLaunch(exec, stream));
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuGraphExecDestroy(exec));
    CHECK(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &reserved));
    printf("reserved %llu\n", (unsigned long long)reserved);
    if (!is_held)
        CHECK(cuDeviceGraphMemTrim(0));
}

/* ---- contexts ---- */

/* Takes memory in every way that belongs to a context. */
static void take_everything(void)
{
    CUdeviceptr block;
    CUarray array;
    void *pinned;

    block = program_alloc(10 * MIB);
    block = program_alloc(1000);
    CHECK(cuMemAllocManaged(&block, MIB, CU_MEM_ATTACH_GLOBAL));
    CHECK(make_array(&array, 256, 256));
    CHECK(cuMemHostAlloc(&pinned, MIB, 0));
}

static void context_destroyed(void)
{
    CUcontext own;
    CUdevice device = 0;

    for (int i = 0; i < 3; i++) {
        CHECK(cuCtxCreate(&own, NULL, 0, device));
        take_everything();
        CHECK(cuCtxDestroy(own));
    }
    CHECK(cuCtxSetCurrent(context));
}

static void context_hold(void)
{
    CUcontext own;

    CHECK(cuCtxCreate(&own, NULL, 0, 0));
}

static void primary_reset(void)
{
    take_everything();
    CHECK(cuDevicePrimaryCtxReset(0));
}

static void primary_released(bool is_held)
{
    CUcontext again;

    CHECK(cuDevicePrimaryCtxRetain(&again, 0));
    take_everything();
    CHECK(cuDevicePrimaryCtxRelease(0));
    if (!is_held)
        CHECK(cuDevicePrimaryCtxRelease(0));
}

/* ---- sharing ---- */

/* Mapped memory without descriptors cannot be given away; at the second request the program gets
 * some that can.
 */
static void ipc(void)
{
    CUdeviceptr first = program_alloc(4096), second = program_alloc(4096);
    CUipcMemHandle handle;
    CUresult results[2] = {cuIpcGetMemHandle(&handle, first), cuIpcGetMemHandle(&handle, second)};

    printf("one refused: %d\n",
           results[0] == CUDA_ERROR_NOT_SUPPORTED || results[1] == CUDA_ERROR_NOT_SUPPORTED);
    CHECK(cuMemFree(first));
    CHECK(cuMemFree(second));
    for (int i = 0; i < 3; i++) {
        first = program_alloc(4096);
        print_result("asked again", cuIpcGetMemHandle(&handle, first));
    }
}

/* Another process opens what this one gives it, and closes it again. */
static void ipc_child(void)
{
    CUipcMemHandle handle;
    CUdeviceptr opened;

    if (read(STDIN_FILENO, &handle, sizeof(handle)) != (ssize_t)sizeof(handle))
        exit(EXIT_FAILURE);
    CHECK(cuIpcOpenMemHandle(&opened, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    CHECK(cuMemsetD8(opened, 5, 3 * MIB));
    CHECK(cuCtxSynchronize());
    CHECK(cuIpcCloseMemHandle(opened));
}

static void ipc_parent(void)
{
    CUdeviceptr block = program_alloc(3 * MIB);
    CUipcMemHandle handle;
    unsigned char got = 0;
    int ends[2], status = -1;

    CHECK(cuIpcGetMemHandle(&handle, block));
    if (pipe(ends) != 0)
        exit(EXIT_FAILURE);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[0], STDIN_FILENO);
        setenv("GPUCACHE_REPORT", getenv("CHILD_REPORT"), 1);
        execl("/proc/self/exe", "direct", "ipc-child", (char *)NULL);
        _exit(127);
    }
    if (write(ends[1], &handle, sizeof(handle)) != (ssize_t)sizeof(handle))
        exit(EXIT_FAILURE);
    waitpid(child, &status, 0);
    CHECK(cuMemcpyDtoH(&got, block + 3 * MIB - 1, 1));
    printf("child %d wrote %d\n", WEXITSTATUS(status), got);
    CHECK(cuMemFree(block));
}

/* ---- code ---- */

static const char code[] =
    ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k() { ret; }\n";

static void module(bool is_held)
{
    CUmodule loaded[2];

    CHECK(cuModuleLoadData(&loaded[0], code));
    CHECK(cuModuleLoadDataEx(&loaded[1], code, 0, NULL, NULL));
    CHECK(cuModuleUnload(loaded[1]));
    if (!is_held)
        CHECK(cuModuleUnload(loaded[0]));
}

/* ---- peers: two devices ---- */

static void peers(void)
{
    CUdeviceptr block;
    CUcontext other;

    CHECK(cuDevicePrimaryCtxRetain(&other, 1));
    CHECK(cuCtxEnablePeerAccess(other, 0));
    print_result("enable again", cuCtxEnablePeerAccess(other, 0));
    CHECK(cuCtxSetCurrent(other));
    for (int i = 0; i < 3; i++)
        CHECK(cuMemFree(program_alloc(MIB)));
    CHECK(cuMemAlloc(&block, 2 * MIB));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuMemsetD8(block, 1, 2 * MIB));
    CHECK(cuCtxSynchronize()); /* the driver's free waits for the block's own device only */
    CHECK(cuMemFree(block));
    CHECK(cuCtxDisablePeerAccess(other));
    CHECK(cuDevicePrimaryCtxRelease(1));
}

/* ---- graph nodes of their own ---- */

static void graph_node(void)
{
    CUDA_MEM_ALLOC_NODE_PARAMS memory = {
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}},
        .bytesize = 4 * MIB,
    };
    CUgraphNode taken, given;
    CUgraph built;
    CUgraphExec exec;

    CHECK(cuGraphCreate(&built, 0));
    CHECK(cuGraphAddMemAllocNode(&taken, built, NULL, 0, &memory));
    CHECK(cuGraphAddMemFreeNode(&given, built, &taken, 1, memory.dptr));
    CHECK(cuGraphInstantiate(&exec, built, 0));
    CHECK(cuGraphLaunch(exec, NULL));
    CHECK(cuCtxSynchronize());
    CHECK(cuGraphExecDestroy(exec));
    CHECK(cuGraphDestroy(built));
}

/* ---- limits: 200 MiB ---- */

/* Every way is refused beyond the limit, and gets what idle cache holds within it. */
static void limits(void)
{
    CUmemGenericAllocationHandle handle;
    CUdeviceptr block;
    CUarray array;

    CHECK(cuMemFree(program_alloc(120 * MIB)));
    print_result("create, too much", cuMemCreate(&handle, 300 * MIB, &device_memory, 0));
    print_result("create", cuMemCreate(&handle, 100 * MIB, &device_memory, 0));
    print_result("array, too much", make_array(&array, 8192, 8192));
    CHECK(cuMemRelease(handle));
    CHECK(cuMemFree(program_alloc(120 * MIB)));
    print_result("array", make_array(&array, 2048, 2048)); /* 64 MiB */
    CHECK(cuArrayDestroy(array));
    CHECK(cuMemFree(program_alloc(120 * MIB)));
    print_result("async, too much", cuMemAllocAsync(&block, 300 * MIB, NULL));
    print_result("async", cuMemAllocAsync(&block, 100 * MIB, NULL));
    CHECK(cuMemFreeAsync(block, NULL));
    CHECK(cuStreamSynchronize(NULL));
    print_result("managed", cuMemAllocManaged(&block, 300 * MIB, CU_MEM_ATTACH_GLOBAL));
    CHECK(cuMemFree(block));
}

static const struct {
    const char *name;
    void (*run)(void);
    void (*run_held)(bool);
    bool is_held;
} cases[] = {
    {.name = "managed", .run_held = managed},
    {.name = "managed-hold", .run_held = managed, .is_held = true},
    {.name = "host", .run_held = host},
    {.name = "host-hold", .run_held = host, .is_held = true},
    {.name = "arrays", .run_held = arrays},
    {.name = "arrays-hold", .run_held = arrays, .is_held = true},
    {.name = "vmm", .run_held = vmm},
    {.name = "vmm-hold", .run_held = vmm, .is_held = true},
    {.name = "vmm-retained-hold", .run = vmm_retained},
    {.name = "vmm-wrong", .run = vmm_wrong},
    {.name = "async", .run = async_plain},
    {.name = "async-free", .run = async_free_of_plain},
    {.name = "pool", .run_held = pool},
    {.name = "pool-hold", .run_held = pool, .is_held = true},
    {.name = "pool-gives-way", .run = pool_gives_way},
    {.name = "capture", .run = capture},
    {.name = "capture-ends", .run = capture_ends},
    {.name = "graph", .run_held = graph},
    {.name = "graph-hold", .run_held = graph, .is_held = true},
    {.name = "context", .run = context_destroyed},
    {.name = "context-hold", .run = context_hold},
    {.name = "reset", .run = primary_reset},
    {.name = "release", .run_held = primary_released},
    {.name = "release-hold", .run_held = primary_released, .is_held = true},
    {.name = "ipc", .run = ipc},
    {.name = "ipc-parent", .run = ipc_parent},
    {.name = "ipc-child", .run = ipc_child},
    {.name = "module", .run_held = module},
    {.name = "module-hold", .run_held = module, .is_held = true},
    {.name = "peers", .run = peers},
    {.name = "graph-node-hold", .run = graph_node},
    {.name = "limits", .run = limits},
};

int main(int argument_count, char **arguments)
{
    for (size_t i = 0; argument_count == 2 && i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (strcmp(arguments[1], cases[i].name) != 0)
            continue;
        context = program_start();
        CHECK(cuMemFree(program_alloc(512))); /* so that a report is due */
        if (cases[i].run != NULL)
            cases[i].run();
        else
            cases[i].run_held(cases[i].is_held);
        return EXIT_SUCCESS;
    }
    fprintf(stderr, "usage: direct CASE\n");
    return 2;
}
