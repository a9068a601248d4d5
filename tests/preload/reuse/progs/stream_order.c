/* link: -l:libcuda.so.1 -ldl */
/* Memory in the order of streams. usage: stream_order reuse BYTES | capture BYTES |
 * codes | devices
 *
 * reuse: blocks freed behind queued work serve the same stream at once, between two calls of
 * cuDriverGetVersion that mark it in the driver's journal, and no other stream before its time; a
 * stream that another one waited for, and one that is destroyed by a thread without a context, are
 * no exceptions. The content of all blocks is checked. Prints whether the work was still queued.
 * capture: a block that a stream freed is not in a graph which the stream captures next: that may
 * run in another one. codes, devices: what calls answer, one line each: the same as without the
 * library. */
#include "tests/preload/progs/program.h"

#include "core/gpucache.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#define ROUNDS 40
#define SAMPLE 256
#define MIB ((size_t)1 << 20)

static CUstream make_stream(void)
{
    CUstream stream;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

static unsigned char *make_seen(size_t count)
{
    void *seen;
    CHECK(cuMemHostAlloc(&seen, count * SAMPLE, 0));
    memset(seen, 0, count * SAMPLE);
    return seen;
}

static void expect(const unsigned char *seen, unsigned char value, const char *what)
{
    for (size_t i = 0; i < SAMPLE; i++)
        if (seen[i] != value) {
            fprintf(stderr, "%s: byte %zu is %u, not %u\n", what, i, seen[i], value);
            exit(EXIT_FAILURE);
        }
}

static void require(int holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "%s\n", what);
    exit(EXIT_FAILURE);
}

static CUdeviceptr take(size_t bytes, CUstream stream)
{
    CUdeviceptr block;
    CHECK(cuMemAllocAsync(&block, bytes, stream));
    return block;
}

/* Written now, read only behind other work of the stream: who gets the block too early shows. */
static void use_long(CUdeviceptr block, unsigned char value, size_t bytes, unsigned char *seen,
                     CUdeviceptr other, CUstream stream)
{
    CHECK(cuMemsetD8Async(block, value, bytes, stream));
    for (int i = 0; i < 20; i++)
        CHECK(cuMemsetD8Async(other, 0, SAMPLE, stream));
    CHECK(cuMemcpyDtoHAsync(seen, block, SAMPLE, stream));
}

static void use(CUdeviceptr block, unsigned char value, size_t bytes, unsigned char *seen,
                CUstream stream)
{
    CHECK(cuMemsetD8Async(block, value, bytes, stream));
    CHECK(cuMemcpyDtoHAsync(seen, block, SAMPLE, stream));
}

/* ---- reuse ---- */

static int version;
static atomic_int is_open;

static void hold(void *unused)
{
    (void)unused;
    while (!atomic_load(&is_open))
        usleep(200);
}

static void same_stream(size_t bytes, CUstream stream)
{
    unsigned char *seen = make_seen(ROUNDS);
    CUdeviceptr first = 0;

    CHECK(cuLaunchHostFunc(stream, hold, NULL));
    for (int i = 0; i < ROUNDS; i++) {
        CUdeviceptr block = take(bytes, stream);
        if (i == 0)
            first = block;
        require(block == first, "the stream did not get its block back");
        use(block, (unsigned char)(i + 1), bytes, seen + i * SAMPLE, stream);
        CHECK(cuMemFreeAsync(block, stream));
        if (i == 0)
            CHECK(cuDriverGetVersion(&version));
    }
    CHECK(cuDriverGetVersion(&version));
    printf("busy %d\n", cuStreamQuery(stream) == CUDA_ERROR_NOT_READY);
    atomic_store(&is_open, 1);
    CHECK(cuStreamSynchronize(stream));
    for (int i = 0; i < ROUNDS; i++)
        expect(seen + i * SAMPLE, (unsigned char)(i + 1), "a round of one stream");
}

static void other_stream(size_t bytes, CUdeviceptr aside, CUstream one, CUstream other)
{
    unsigned char *seen = make_seen(2);
    CUdeviceptr old = take(bytes, one);

    use_long(old, 1, bytes, seen, aside, one);
    CHECK(cuMemFreeAsync(old, one));
    CUdeviceptr new = take(bytes, other);
    use(new, 2, bytes, seen + SAMPLE, other);
    CHECK(cuCtxSynchronize());
    expect(seen, 1, "a block freed in one stream");
    expect(seen + SAMPLE, 2, "a block of another stream");
    CHECK(cuMemFreeAsync(new, other));
    CHECK(cuCtxSynchronize());
    /* All is idle: whoever asks. */
    CUdeviceptr third = take(bytes, other);
    require(third == old || third == new, "idle memory did not serve another stream");
    CHECK(cuMemFreeAsync(third, one));
}

/* The program orders the two streams itself: its block comes home with all its work behind it. */
static void ordered_by_events(size_t bytes, CUdeviceptr aside, CUstream one, CUstream other)
{
    unsigned char *seen = make_seen(3);
    CUevent there, back;

    CHECK(cuEventCreate(&there, CU_EVENT_DISABLE_TIMING));
    CHECK(cuEventCreate(&back, CU_EVENT_DISABLE_TIMING));
    CUdeviceptr block = take(bytes, one);
    CHECK(cuMemsetD8Async(block, 3, bytes, one));
    CHECK(cuEventRecord(there, one));
    CHECK(cuStreamWaitEvent(other, there, 0));
    for (int i = 0; i < 20; i++)
        CHECK(cuMemsetD8Async(aside, 0, SAMPLE, other));
    CHECK(cuMemcpyDtoHAsync(seen, block, SAMPLE, other));
    CHECK(cuEventRecord(back, other));
    CHECK(cuStreamWaitEvent(one, back, 0));
    CHECK(cuMemFreeAsync(block, one));
    CUdeviceptr again = take(bytes, one);
    require(again == block, "the stream did not get its block back");
    use(again, 4, bytes, seen + SAMPLE, one);
    /* And freed in the other one, which is behind it again. */
    CHECK(cuEventRecord(there, one));
    CHECK(cuStreamWaitEvent(other, there, 0));
    CHECK(cuMemFreeAsync(again, other));
    CUdeviceptr last = take(bytes, other);
    require(last == again, "the block did not serve the stream it was freed in");
    use(last, 5, bytes, seen + 2 * SAMPLE, other);
    CHECK(cuMemFreeAsync(last, other));
    CHECK(cuCtxSynchronize());
    expect(seen, 3, "what another stream read");
    expect(seen + SAMPLE, 4, "what came behind it");
    expect(seen + 2 * SAMPLE, 5, "what the other stream got");
}

static void *destroy(void *stream)
{
    CHECK(cuStreamDestroy(stream));
    return NULL;
}

/* Its work goes on; who gets the handle next is not behind it. */
static void destroyed_stream(size_t bytes, CUdeviceptr aside)
{
    unsigned char *seen = make_seen(9);
    CUdeviceptr blocks[8];
    CUstream streams[8], gone = make_stream();
    pthread_t thread;

    CUdeviceptr old = take(bytes, gone);
    use_long(old, 6, bytes, seen, aside, gone);
    CHECK(cuMemFreeAsync(old, gone));
    require(pthread_create(&thread, NULL, destroy, gone) == 0, "no thread");
    pthread_join(thread, NULL);
    for (int i = 0; i < 8; i++) {
        streams[i] = make_stream();
        blocks[i] = take(bytes, streams[i]);
        use(blocks[i], (unsigned char)(i + 10), bytes, seen + (i + 1) * SAMPLE, streams[i]);
    }
    CHECK(cuCtxSynchronize());
    expect(seen, 6, "a block of a destroyed stream");
    for (int i = 0; i < 8; i++) {
        expect(seen + (i + 1) * SAMPLE, (unsigned char)(i + 10), "a block of a new stream");
        CHECK(cuMemFreeAsync(blocks[i], streams[i]));
        CHECK(cuStreamDestroy(streams[i]));
    }
}

static int reuse(size_t bytes)
{
    program_start();
    CUstream one = make_stream(), other = make_stream();
    CUdeviceptr aside = program_alloc(SAMPLE);

    CHECK(cuMemsetD8Async(aside, 0, SAMPLE, other)); /* more than one stream has work */
    same_stream(bytes, one);
    other_stream(bytes, aside, one, other);
    ordered_by_events(bytes, aside, one, other);
    destroyed_stream(bytes, aside);
    CHECK(cuCtxSynchronize());
    CHECK(cuMemFree(aside));
    return EXIT_SUCCESS;
}

/* ---- capture ---- */

static int capture(size_t bytes)
{
    __typeof__(gpucache_malloc) *take_named;
    __typeof__(gpucache_free) *free_named;
    void *old = NULL, *inside = NULL;
    CUgraph graph;
    CUgraphExec exec;

    program_start();
    *(void **)&take_named = dlsym(RTLD_DEFAULT, "gpucache_malloc");
    *(void **)&free_named = dlsym(RTLD_DEFAULT, "gpucache_free");
    require(take_named != NULL && free_named != NULL, "the library is not there");
    CUstream one = make_stream(), other = make_stream();
    CUdeviceptr aside = program_alloc(SAMPLE);
    unsigned char *seen = make_seen(2);

    CHECK(cuMemsetD8Async(aside, 0, SAMPLE, other));
    require(take_named(&old, bytes, 0, one) == GPUCACHE_OK, "no block");
    use_long((CUdeviceptr)old, 1, bytes, seen, aside, one);
    require(free_named(old, one) == GPUCACHE_OK, "the block could not be freed");
    CHECK(cuStreamBeginCapture(one, CU_STREAM_CAPTURE_MODE_RELAXED));
    require(take_named(&inside, bytes, 0, one) == GPUCACHE_OK, "no block in the capture");
    use((CUdeviceptr)inside, 2, bytes, seen + SAMPLE, one);
    CHECK(cuStreamEndCapture(one, &graph));
    CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    CHECK(cuGraphLaunch(exec, other));
    CHECK(cuCtxSynchronize());
    expect(seen, 1, "a block freed before the capture");
    expect(seen + SAMPLE, 2, "a block of the graph");
    CHECK(cuGraphExecDestroy(exec));
    CHECK(cuGraphDestroy(graph));
    require(free_named(inside, other) == GPUCACHE_OK, "the graph's block could not be freed");
    CHECK(cuMemFree(aside));
    return EXIT_SUCCESS;
}

/* ---- what calls answer ---- */

#define SAY(call) printf("%s: %d\n", #call, (int)(call))

static uint64_t figure(CUmemoryPool pool, CUmemPool_attribute attribute)
{
    cuuint64_t value = 0;
    CHECK(cuMemPoolGetAttribute(pool, attribute, &value));
    return value;
}

static void print_pool_of(CUdeviceptr block, CUmemoryPool pool, const char *what)
{
    CUpointer_attribute attribute = CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE;
    CUmemoryPool one = NULL, many = NULL;
    void *values[] = {&many};
    int code = cuPointerGetAttribute(&one, attribute, block);
    printf("pool of %s: %d %d\n", what, code, code == 0 && one == pool);
    code = cuPointerGetAttributes(1, &attribute, values, block);
    printf("pool of %s, among attributes: %d %d\n", what, code, many == pool);
}

static void print_frees(CUstream stream)
{
    CUdeviceptr ordered = take(MIB, stream), plain = program_alloc(MIB);
    CUdeviceptr inner = take(MIB, stream);

    SAY(cuMemFree(ordered));
    SAY(cuMemFreeAsync(ordered, stream));
    SAY(cuMemFreeAsync(plain, stream));
    SAY(cuMemFreeAsync(inner + 512, stream));
    SAY(cuMemFree(inner + 512));
    SAY(cuMemFreeAsync(inner, stream));
    SAY(cuMemFree(inner));
    SAY(cuMemAllocAsync(NULL, MIB, stream));
    CHECK(cuStreamSynchronize(stream));
}

static void print_destroyed(void)
{
    CUstream gone = make_stream();
    CUdeviceptr block = take(MIB, gone), other = 0;

    CHECK(cuStreamSynchronize(gone));
    CHECK(cuStreamDestroy(gone));
    SAY(cuMemFreeAsync(block, gone));
    SAY(cuMemAllocAsync(&other, MIB, gone));
    SAY(cuMemFree(block));
}

static void print_captured(CUstream stream)
{
    CUdeviceptr before = take(MIB, stream), inside = 0;
    CUgraph graph = NULL;

    CHECK(cuStreamSynchronize(stream));
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    SAY(cuMemAllocAsync(&inside, MIB, stream));
    SAY(cuMemFreeAsync(inside, stream));
    SAY(cuStreamEndCapture(stream, &graph));
    SAY(graph != NULL);
    if (graph != NULL)
        SAY(cuGraphDestroy(graph));
    SAY(cuMemFreeAsync(before, stream));
    CHECK(cuStreamSynchronize(stream));
}

static void print_marks(CUmemoryPool pool, CUstream stream)
{
    cuuint64_t zero = 0;
    CUdeviceptr large = take(8 * MIB, stream), small = take(2 * MIB, stream);

    CHECK(cuMemFreeAsync(large, stream));
    CHECK(cuStreamSynchronize(stream));
    SAY(figure(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 2 * MIB);
    SAY(figure(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH) >= 10 * MIB);
    SAY(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &zero));
    SAY(figure(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH) == 2 * MIB);
    SAY(figure(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) >= 10 * MIB);
    SAY(cuMemPoolTrimTo(pool, 0));
    SAY(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &zero));
    SAY(figure(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) < 10 * MIB);
    SAY(figure(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >= 2 * MIB);
    CHECK(cuMemFreeAsync(small, stream));
    CHECK(cuStreamSynchronize(stream));
}

static void print_other_pool(CUstream stream)
{
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    cuuint64_t threshold = 64 * MIB;
    CUmemoryPool plain, pool;

    CHECK(cuDeviceGetDefaultMemPool(&plain, 0));
    CHECK(cuMemPoolCreate(&pool, &props));
    SAY(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
    SAY(cuDeviceSetMemPool(0, pool));
    CUdeviceptr block = take(MIB, stream);
    print_pool_of(block, pool, "a block of another pool");
    SAY(figure(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == MIB);
    SAY(cuMemFreeAsync(block, stream));
    CHECK(cuStreamSynchronize(stream));
    SAY(figure(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) > 0);
    SAY(cuMemPoolTrimTo(pool, 0));
    SAY(figure(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 0);
    SAY(cuDeviceSetMemPool(0, plain));
    SAY(cuMemPoolDestroy(pool));
    block = take(MIB, stream);
    print_pool_of(block, plain, "a block of the default pool");
    SAY(cuMemFreeAsync(block, stream));
    block = program_alloc(MIB);
    print_pool_of(block, NULL, "a plain block");
    SAY(cuMemFree(block));
}

static int codes(void)
{
    CUmemoryPool pool;

    program_start();
    CUstream stream = make_stream();
    CHECK(cuDeviceGetDefaultMemPool(&pool, 0));
    print_marks(pool, stream);
    print_frees(stream);
    print_destroyed();
    print_captured(stream);
    print_other_pool(stream);
    return EXIT_SUCCESS;
}

/* ---- two devices ---- */

static int devices(void)
{
    CUcontext contexts[2];
    CUmemoryPool pools[2];
    CUstream streams[2];
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    cuuint64_t zero = 0;

    CHECK(cuInit(0));
    for (int i = 0; i < 2; i++) {
        CHECK(cuDevicePrimaryCtxRetain(&contexts[i], i));
        CHECK(cuCtxSetCurrent(contexts[i]));
        CHECK(cuDeviceGetDefaultMemPool(&pools[i], i));
        streams[i] = make_stream();
    }
    CHECK(cuCtxSetCurrent(contexts[0]));
    /* A pool of the device that is not current. */
    CUdeviceptr block = 0, other = 0;
    SAY(cuMemAllocFromPoolAsync(&block, 4 * MIB, pools[1], streams[1]));
    print_pool_of(block, pools[1], "a block of the other device");
    SAY(figure(pools[1], CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 4 * MIB);
    SAY(figure(pools[0], CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 0);
    SAY(cuMemPoolSetAttribute(pools[1], CU_MEMPOOL_ATTR_USED_MEM_HIGH, &zero));
    SAY(figure(pools[1], CU_MEMPOOL_ATTR_USED_MEM_HIGH) == 4 * MIB);
    /* Opened to the current device afterwards: blocks of before are open too. */
    SAY(cuMemPoolSetAccess(pools[1], &access, 1));
    CHECK(cuDriverGetVersion(&version)); /* marks it in the driver's journal */
    SAY(cuMemsetD8Async(block, 7, 4 * MIB, streams[0]));
    SAY(cuStreamSynchronize(streams[0]));
    SAY(cuMemAllocFromPoolAsync(&other, MIB, pools[1], streams[1]));
    print_pool_of(other, pools[1], "a block after that");
    SAY(cuStreamSynchronize(streams[1]));
    SAY(cuMemsetD8Async(other, 7, MIB, streams[0]));
    SAY(cuStreamSynchronize(streams[0]));
    SAY(figure(pools[1], CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 5 * MIB);
    SAY(cuMemFreeAsync(block, streams[1]));
    SAY(cuMemFreeAsync(other, streams[1]));
    SAY(cuStreamSynchronize(streams[1]));
    SAY(figure(pools[1], CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 0);
    return EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "reuse") == 0)
        return reuse(strtoul(argv[2], NULL, 10));
    if (argc == 3 && strcmp(argv[1], "capture") == 0)
        return capture(strtoul(argv[2], NULL, 10));
    if (argc == 2 && strcmp(argv[1], "codes") == 0)
        return codes();
    if (argc == 2 && strcmp(argv[1], "devices") == 0)
        return devices();
    fprintf(stderr, "usage: stream_order reuse BYTES | capture BYTES | codes | devices\n");
    return 2;
}
