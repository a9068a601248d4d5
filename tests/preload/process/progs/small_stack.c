/* link: -l:libcuda.so.1 */
/* How much of a thread's stack CUDA calls take: each step runs in a thread of its own whose stack
 * was painted before. usage: small_stack
 *
 * Prints `step bytes` lines: the deepest byte that was written, from the top; what the C library
 * has there for the thread is part of it. The first step is the process's first call, which starts
 * everything. At the end a thread with no more than PTHREAD_STACK_MIN calls exit. */
#define _GNU_SOURCE
#include "tests/preload/progs/public.h"

#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define STACK_BYTES ((size_t)512 << 10)
#define PAINT 0xa5

static CUcontext context;
static unsigned char *stack;

static void paint(void)
{
    if (stack == NULL)
        stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT(stack != MAP_FAILED);
    memset(stack, PAINT, STACK_BYTES);
}

static size_t deepest(void)
{
    size_t untouched = 0;
    while (untouched < STACK_BYTES && stack[untouched] == PAINT)
        untouched++;
    return STACK_BYTES - untouched;
}

static void print_step(const char *step)
{
    printf("%s %zu\n", step, deepest());
    fflush(stdout);
}

/* ---- steps ---- */

static void begin(void)
{
    context = program_start();
}

static void small(void)
{
    CHECK(cuMemFree(program_alloc(1000)));
}

static void large(void)
{
    CHECK(cuMemFree(program_alloc((size_t)300 << 20)));
}

/* More than there is: everything is tried. */
static void refused(void)
{
    CUdeviceptr block;
    const CUdeviceptr other = program_alloc((size_t)100 << 20);
    CHECK(cuMemFree(other));
    EXPECT(cuMemAlloc(&block, (size_t)1 << 40) == CUDA_ERROR_OUT_OF_MEMORY);
}

static void in_order(void)
{
    CUdeviceptr block;
    CUstream stream;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAllocAsync(&block, 1 << 20, stream));
    CHECK(cuMemsetD8Async(block, 1, 1 << 20, stream));
    CHECK(cuMemFreeAsync(block, stream));
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuStreamDestroy(stream));
}

static void captured(void)
{
    CUstream stream;
    CUgraph graph;
    CUgraphExec runnable;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    const CUdeviceptr block = program_alloc(1 << 20);
    CHECK(cuMemsetD8Async(block, 1, 1 << 20, stream));
    CHECK(cuStreamEndCapture(stream, &graph));
    CHECK(cuGraphInstantiate(&runnable, graph, 0));
    CHECK(cuGraphLaunch(runnable, stream));
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuGraphExecDestroy(runnable));
    CHECK(cuGraphDestroy(graph));
    CHECK(cuMemFree(block));
}

static void asked(void)
{
    size_t available, total;
    CHECK(cuMemGetInfo(&available, &total));
}

static void other_context(void)
{
    CUcontext other;
    CHECK(cuCtxCreate(&other, NULL, 0, 0));
    (void)program_alloc(1 << 20);
    CHECK(cuCtxDestroy(other));
}

static void own_calls(void)
{
    struct gpucache_statistics figures = {.struct_bytes = sizeof(figures)};
    gpucache_elastic pool;
    gpucache_tenant tenant;
    void *base;
    if (gpucache_load(NULL, &gc) != GPUCACHE_OK)
        return;
    (void)gc.gpucache_get_statistics(0, &figures);
    (void)gc.gpucache_pause(1, 1000, NULL);
    (void)gc.gpucache_resume(NULL);
    if (gc.gpucache_elastic_create(0, 8 << 20, 0, 0, &pool, &base) == GPUCACHE_OK) {
        (void)gc.gpucache_elastic_allocate(pool, 0, 4 << 20);
        (void)gc.gpucache_elastic_destroy(pool);
    }
    if (gc.gpucache_tenant_register("some", 0, GPUCACHE_NO_LIMIT, &tenant) == GPUCACHE_OK)
        (void)gc.gpucache_tenant_unregister(tenant);
    (void)gc.gpucache_empty_cache(GPUCACHE_ALL_DEVICES, NULL);
}

static void leave(void)
{
    exit(EXIT_SUCCESS);
}

static const struct step {
    const char *name;
    void (*run)(void);
} steps[] = {
    {"begin", begin},     {"small", small},           {"large", large},
    {"refused", refused}, {"in_order", in_order},     {"captured", captured},
    {"asked", asked},     {"context", other_context}, {"own", own_calls},
};

static void *run(void *argument)
{
    const struct step *step = argument;
    if (context != NULL)
        CHECK(cuCtxSetCurrent(context));
    step->run();
    return NULL;
}

static void do_step(const struct step *step)
{
    pthread_attr_t attributes;
    pthread_t thread;
    paint();
    pthread_attr_init(&attributes);
    EXPECT(pthread_attr_setstack(&attributes, stack, STACK_BYTES) == 0);
    EXPECT(pthread_create(&thread, &attributes, run, (void *)(uintptr_t)step) == 0);
    EXPECT(pthread_join(thread, NULL) == 0);
    print_step(step->name);
}

int main(void)
{
    static const struct step last = {"exit", leave};
    pthread_attr_t attributes;
    pthread_t thread;

    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++)
        do_step(&steps[i]);
    pthread_attr_init(&attributes);
    EXPECT(pthread_attr_setstacksize(&attributes, (size_t)sysconf(_SC_THREAD_STACK_MIN)) == 0);
    EXPECT(pthread_create(&thread, &attributes, run, (void *)(uintptr_t)&last) == 0);
    pthread_join(thread, NULL);
    return EXIT_FAILURE;
}
