/* link: -l:libcuda.so.1 */
/* A primary context and a green one of it: one memory, two default streams. A block that one of
 * them still works on is freed in the other, which works on what it is given next. Prints how many
 * of its bytes are wrong.
 *
 * usage: greens WAY: "default": the green context's default stream works on the freed block, the
 * primary context goes on; "primary": the other way round; "stream": as "default", but in a stream
 * of the green context's; "handle": the green context's handle is learnt from a stream alone, and
 * its own wait proves nothing about the primary context's work; "ordered": stream-ordered memory,
 * freed and allocated in the default streams. "alone": only the green context holds the primary
 * one; prints nothing. */
#include "tests/preload/progs/program.h"

#include <stdbool.h>
#include <string.h>

#define BYTES (size_t)(12 << 20)

static CUcontext primary, part; /* the green one */
static CUgreenCtx green;
static CUstream stream; /* of the green one */

static void make_green(void)
{
    CUdevResource all, group;
    CUdevResourceDesc description;
    unsigned count = 1;
    CHECK(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
    CHECK(cuDevSmResourceSplitByCount(&group, &count, &all, NULL, 0, 8));
    CHECK(cuDevResourceGenerateDesc(&description, &group, 1));
    CHECK(cuGreenCtxCreate(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
}

static void use(CUcontext context)
{
    CHECK(cuCtxSetCurrent(context));
}

static void fill(CUdeviceptr block, unsigned char value, CUstream on)
{
    CHECK(cuMemsetD8Async(block, value, BYTES, on));
}

static size_t count_wrong(CUdeviceptr block)
{
    unsigned char *got = malloc(BYTES);
    size_t wrong = 0;
    CHECK(cuMemcpyDtoH(got, block, BYTES));
    for (size_t i = 0; i < BYTES; i++)
        wrong += got[i] != 2;
    free(got);
    return wrong;
}

/* By a graph, whose launch names no block. */
static void fill_by_graph(CUdeviceptr block, CUcontext context)
{
    const CUDA_MEMSET_NODE_PARAMS filled = {
        .dst = block, .pitch = BYTES, .value = 1, .elementSize = 1, .width = BYTES, .height = 1};
    CUdeviceptr other = program_alloc(BYTES);
    CUgraphExec exec;
    CUgraphNode node;
    CUgraph graph;
    CHECK(cuGraphCreate(&graph, 0));
    CHECK(cuGraphAddMemsetNode(&node, graph, NULL, 0, &filled, context));
    CHECK(cuGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 3; i++)
        fill(other, 1, NULL);
    CHECK(cuGraphLaunch(exec, NULL));
}

/* `worker` works on a block, `freer` frees it and waits for what it has itself to do. */
static size_t free_busy(CUcontext worker, CUstream on, CUcontext freer, bool by_graph)
{
    use(freer);
    CUdeviceptr block = program_alloc(BYTES);
    use(worker);
    if (by_graph)
        fill_by_graph(block, worker);
    for (int i = 0; i < 3 && !by_graph; i++)
        fill(block, 1, on);
    use(freer);
    CHECK(cuMemFree(block));
    if (freer != primary) /* that one's wait covers its parts too */
        CHECK(cuCtxSynchronize());
    CUdeviceptr next = program_alloc(BYTES);
    fill(next, 2, NULL);
    CHECK(cuStreamSynchronize(NULL));
    use(primary);
    CHECK(cuCtxSynchronize());
    return count_wrong(next);
}

/* Stream-ordered memory, in two streams of one name. */
static size_t free_ordered(void)
{
    CUdeviceptr block, next;
    use(part);
    CHECK(cuMemAllocAsync(&block, BYTES, NULL));
    for (int i = 0; i < 3; i++)
        fill(block, 1, NULL);
    CHECK(cuMemFreeAsync(block, NULL));
    use(primary);
    CHECK(cuMemAllocAsync(&next, BYTES, NULL));
    fill(next, 2, NULL);
    CHECK(cuCtxSynchronize());
    return count_wrong(next);
}

static void hold_alone(void)
{
    CHECK(cuDevicePrimaryCtxRelease(0));
    use(part);
    (void)program_alloc(1 << 20);
    CHECK(cuGreenCtxDestroy(green));
}

int main(int argc, char **argv)
{
    const char *way = argc > 1 ? argv[1] : "default";
    size_t wrong = 0;
    primary = program_start();
    make_green();
    if (strcmp(way, "handle") == 0) {
        CHECK(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
        CHECK(cuStreamGetCtx(stream, &part));
    } else {
        CHECK(cuCtxFromGreenCtx(&part, green));
        use(part);
        CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        use(primary);
    }
    if (strcmp(way, "alone") == 0) {
        hold_alone();
        return 0;
    }
    if (strcmp(way, "default") == 0)
        wrong = free_busy(part, NULL, primary, false);
    else if (strcmp(way, "stream") == 0)
        wrong = free_busy(part, stream, primary, false);
    else if (strcmp(way, "ordered") == 0)
        wrong = free_ordered();
    else
        wrong = free_busy(primary, NULL, part, strcmp(way, "handle") == 0);
    printf("wrong %zu\n", wrong);
    return 0;
}
