/* link: -l:libcuda.so.1 */
/* Stream-ordered memory is its device's. usage: device_pool answers | answers2 | late WAY | never
 *
 * answers: memory outlives the context that allocated it, and is used, described and freed in
 * others; it goes with the device's primary context. answers2, on two devices: a pool is opened to
 * the other device before and after allocations and contexts. The results of calls and the content
 * of memory, one line each: the same as without the library.
 * late: work that names no address is queued in another context ("context"), in one that was made
 * after the allocation ("made"), in one of a device that the pool was opened to ("device"); the
 * memory is freed beside it and more is allocated. Prints how many bytes of that are wrong.
 * never: another context's work does not end; frees come back all the same. */
#include "tests/preload/progs/program.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
#define BYTES MIB

static void print_result(const char *what, long long answer)
{
    printf("%s: %lld\n", what, answer);
}

#define SAY(call) print_result(#call, (long long)(call))

static CUcontext make_context(int ordinal)
{
    CUcontext context;
    CHECK(cuCtxCreate(&context, NULL, 0, ordinal));
    return context;
}

static CUstream make_stream(void)
{
    CUstream stream;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

static CUdeviceptr take(size_t bytes, unsigned char value, CUstream stream)
{
    CUdeviceptr block = 0;
    CHECK(cuMemAllocAsync(&block, bytes, stream));
    CHECK(cuMemsetD8Async(block, value, bytes, stream));
    CHECK(cuStreamSynchronize(stream));
    return block;
}

static long long wrong_bytes(CUdeviceptr block, unsigned char value, size_t bytes)
{
    unsigned char *got = malloc(bytes);
    long long wrong = 0;

    if (cuMemcpyDtoH(got, block, bytes) != CUDA_SUCCESS)
        wrong = -1;
    for (size_t i = 0; wrong >= 0 && i < bytes; i++)
        wrong += got[i] != value;
    free(got);
    return wrong;
}

static long long used_bytes(CUmemoryPool pool)
{
    cuuint64_t bytes = 0;
    CHECK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &bytes));
    return (long long)bytes;
}

/* The attributes of a block, whoever allocated it. */
static void describe(CUdeviceptr block, CUmemoryPool pool)
{
    CUdeviceptr base = 0;
    CUcontext context = (CUcontext)&base;
    CUmemoryPool of = NULL;
    size_t bytes = 0;
    int ordinal = -1;

    SAY(cuMemGetAddressRange(&base, &bytes, block + 8));
    SAY(base == block && bytes == BYTES);
    SAY(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, block));
    SAY(ordinal);
    SAY(cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, block));
    SAY(of == pool);
    SAY(cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, block));
    SAY(context == NULL);
}

/* Allocated in a context that is no more: used and freed in `user`. */
static void outlive(CUcontext user, CUmemoryPool pool)
{
    CUcontext maker = make_context(0);
    CUstream stream = make_stream();
    CUdeviceptr blocks[3], plain;

    for (int i = 0; i < 3; i++)
        blocks[i] = take(BYTES, (unsigned char)(i + 1), i == 1 ? CU_STREAM_LEGACY : stream);
    plain = program_alloc(BYTES);
    CHECK(cuCtxDestroy(maker));
    CHECK(cuCtxSetCurrent(user));
    stream = make_stream();
    describe(blocks[0], pool);
    for (int i = 0; i < 3; i++) {
        SAY(wrong_bytes(blocks[i], (unsigned char)(i + 1), BYTES));
        SAY(cuMemsetD8(blocks[i], 9, BYTES));
        SAY(wrong_bytes(blocks[i], 9, BYTES));
    }
    SAY(used_bytes(pool));
    SAY(cuMemFree(plain)); /* went with its context */
    SAY(cuMemFree(blocks[0]));
    SAY(cuMemFree(blocks[0]));
    SAY(cuMemFreeAsync(blocks[1], stream));
    CUdeviceptr next = take(BYTES, 4, stream);
    SAY(wrong_bytes(blocks[2], 9, BYTES));
    SAY(wrong_bytes(next, 4, BYTES));
    SAY(cuMemFreeAsync(blocks[2], CU_STREAM_LEGACY));
    SAY(cuMemFreeAsync(next, stream));
    SAY(cuCtxSynchronize());
    SAY(used_bytes(pool));
    SAY(cuMemPoolTrimTo(pool, 0));
    CHECK(cuStreamDestroy(stream));
}

/* With the primary context all of the device's allocations go. */
static void end_primary(CUmemoryPool pool, CUresult (*end)(CUdevice))
{
    CUcontext primary;
    CUstream stream;

    CHECK(cuDevicePrimaryCtxRetain(&primary, 0));
    CHECK(cuCtxSetCurrent(primary));
    stream = make_stream();
    CUdeviceptr block = take(BYTES, 1, stream);
    SAY(used_bytes(pool));
    SAY(end(0));
    CUcontext other = make_context(0);
    SAY(used_bytes(pool));
    SAY(cuMemFree(block));
    block = take(BYTES, 2, CU_STREAM_LEGACY);
    SAY(wrong_bytes(block, 2, BYTES));
    SAY(cuMemFree(block));
    SAY(cuCtxSynchronize());
    SAY(used_bytes(pool));
    CHECK(cuCtxDestroy(other));
}

static int answers(void)
{
    CUmemoryPool pool;

    CUcontext primary = program_start();
    CHECK(cuDeviceGetDefaultMemPool(&pool, 0));
    outlive(primary, pool);
    CUcontext made = make_context(0);
    outlive(made, pool);
    CHECK(cuCtxDestroy(made));
    CHECK(cuDevicePrimaryCtxRelease(0));
    end_primary(pool, cuDevicePrimaryCtxReset);
    CHECK(cuDevicePrimaryCtxRelease(0)); /* retained still */
    end_primary(pool, cuDevicePrimaryCtxRelease);
    /* Where there is none a reset takes nothing. */
    made = make_context(0);
    CUdeviceptr block = take(BYTES, 3, CU_STREAM_LEGACY);
    SAY(cuDevicePrimaryCtxReset(0));
    SAY(wrong_bytes(block, 3, BYTES));
    SAY(cuMemFree(block));
    SAY(cuCtxSynchronize());
    CHECK(cuCtxDestroy(made));
    return EXIT_SUCCESS;
}

/* ---- two devices ---- */

static void open_to(CUmemoryPool pool, int ordinal)
{
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, ordinal},
                              CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    SAY(cuMemPoolSetAccess(pool, &access, 1));
}

static void print_access(CUmemoryPool pool, int ordinal)
{
    CUmemLocation location = {CU_MEM_LOCATION_TYPE_DEVICE, ordinal};
    CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_MAX;

    SAY(cuMemPoolGetAccess(&flags, pool, &location));
    SAY(flags);
}

/* By a stream of the current context; the copy has the other device's memory on one side only. */
static void use(CUdeviceptr block, unsigned char value)
{
    CUstream stream = make_stream();
    SAY(cuMemsetD8Async(block, value, BYTES, stream));
    SAY(cuStreamSynchronize(stream));
    SAY(wrong_bytes(block, value, BYTES));
    CHECK(cuStreamDestroy(stream));
}

static int answers2(void)
{
    CUmemoryPool pool;
    CUcontext primary = program_start();
    CUcontext before = make_context(1);

    CHECK(cuDeviceGetDefaultMemPool(&pool, 0));
    CHECK(cuCtxSetCurrent(primary));
    CUstream stream = make_stream();
    CUdeviceptr early = take(BYTES, 1, stream);
    print_access(pool, 1);
    open_to(pool, 1);
    print_access(pool, 1);
    CUdeviceptr late = take(BYTES, 1, stream);
    CHECK(cuCtxSetCurrent(before));
    use(early, 2);
    use(late, 3);
    CUcontext after = make_context(1);
    use(early, 4);
    use(late, 5);
    CHECK(cuCtxDestroy(before));
    CHECK(cuCtxDestroy(after));
    CHECK(cuCtxSetCurrent(primary));
    CUdeviceptr alone = take(BYTES, 6, stream); /* device 1 has no context now */
    after = make_context(1);
    use(alone, 7);
    use(early, 8);
    SAY(cuMemFree(early));
    SAY(cuMemFreeAsync(late, CU_STREAM_LEGACY));
    SAY(cuMemFreeAsync(alone, make_stream()));
    SAY(cuCtxSynchronize());
    CHECK(cuCtxSetCurrent(primary));
    SAY(cuCtxSynchronize());
    SAY(used_bytes(pool));
    SAY(cuMemPoolTrimTo(pool, 0));
    CHECK(cuCtxDestroy(after));
    return EXIT_SUCCESS;
}

/* ---- late work ---- */

static CUgraphExec make_fill(CUdeviceptr block, unsigned char value, CUcontext context)
{
    const CUDA_MEMSET_NODE_PARAMS fill = {
        .dst = block, .value = value, .elementSize = 1, .width = BYTES, .height = 1};
    CUgraph graph;
    CUgraphNode node;
    CUgraphExec made;

    CHECK(cuGraphCreate(&graph, 0));
    CHECK(cuGraphAddMemsetNode(&node, graph, NULL, 0, &fill, context));
    CHECK(cuGraphInstantiate(&made, graph, 0));
    return made;
}

static int late(const char *way)
{
    const bool is_made = strcmp(way, "made") == 0;
    const int ordinal = strcmp(way, "device") == 0;
    CUcontext owner = program_start();
    CUcontext worker = is_made ? NULL : make_context(ordinal);
    long long wrong = 0;

    CHECK(cuCtxSetCurrent(owner));
    CUstream stream = make_stream();
    CUdeviceptr block = take(BYTES, 1, stream);
    if (ordinal != 0) {
        const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, ordinal},
                                        CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        CUmemoryPool pool;
        CHECK(cuDeviceGetDefaultMemPool(&pool, 0));
        CHECK(cuMemPoolSetAccess(pool, &access, 1));
    }
    if (is_made)
        worker = make_context(0);
    CHECK(cuCtxSetCurrent(worker));
    CUstream busy = make_stream();
    CUdeviceptr scratch = program_alloc(BYTES);
    for (int round = 0; round < 4; round++) {
        CHECK(cuCtxSetCurrent(worker));
        CUgraphExec fill = make_fill(block, 7, worker);
        for (int i = 0; i < 8; i++)
            CHECK(cuMemsetD8Async(scratch, 0, BYTES, busy));
        CHECK(cuGraphLaunch(fill, busy));
        CHECK(cuCtxSetCurrent(owner));
        CHECK(cuMemFree(block));
        CHECK(cuCtxSynchronize()); /* for the owner's work only */
        CUdeviceptr next[2] = {take(BYTES, 2, stream), take(BYTES, 2, CU_STREAM_LEGACY)};
        CHECK(cuCtxSetCurrent(worker));
        CHECK(cuStreamSynchronize(busy));
        CHECK(cuCtxSetCurrent(owner));
        wrong += wrong_bytes(next[0], 2, BYTES) + wrong_bytes(next[1], 2, BYTES);
        CHECK(cuMemFree(next[1]));
        block = next[0];
    }
    CHECK(cuMemFree(block));
    printf("wrong %lld\n", wrong);
    return EXIT_SUCCESS;
}

/* ---- work that does not end ---- */

static atomic_int may_end;

static void hold(void *unused)
{
    (void)unused;
    while (!atomic_load(&may_end))
        usleep(200);
}

static int never(void)
{
    CUcontext user = program_start();
    CUcontext maker = make_context(0);
    CUdeviceptr blocks[4];

    for (int i = 0; i < 4; i++)
        blocks[i] = take(BYTES, 1, CU_STREAM_LEGACY);
    CUcontext busy = make_context(0);
    CHECK(cuLaunchHostFunc(make_stream(), hold, NULL));
    CHECK(cuCtxDestroy(maker));
    CHECK(cuCtxSetCurrent(user));
    CUstream stream = make_stream();
    for (int i = 0; i < 4; i++)
        CHECK(i % 2 == 0 ? cuMemFree(blocks[i]) : cuMemFreeAsync(blocks[i], stream));
    for (int i = 0; i < 100; i++)
        CHECK(cuMemFree(take(BYTES, 1, stream)));
    atomic_store(&may_end, 1);
    CHECK(cuCtxDestroy(busy));
    printf("done\n");
    return EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "answers") == 0)
        return answers();
    if (argc == 2 && strcmp(argv[1], "answers2") == 0)
        return answers2();
    if (argc == 3 && strcmp(argv[1], "late") == 0)
        return late(argv[2]);
    if (argc == 2 && strcmp(argv[1], "never") == 0)
        return never();
    fprintf(stderr, "usage: device_pool answers | answers2 | late WAY | never\n");
    return 2;
}
