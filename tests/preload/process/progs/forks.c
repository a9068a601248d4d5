/* link: -l:libcuda.so.1 */
/* fork() in every state the library can be in: the child is answered, passes through and ends; the
 * parent goes on as before. usage: forks STATE
 *
 * The child calls what a program might and ends by exit, so that destructors run there too. */
#define _GNU_SOURCE
#include "tests/preload/progs/public.h"

#include <link.h>
#include <pthread.h>
#include <spawn.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 4
#define CHILDREN 24
#define CHILD_SECONDS 20
#define BYTES ((size_t)3 << 20)

static CUcontext context;
static atomic_bool is_over;

/* ---- the child ---- */

/* Codes are the driver's business, but for one: no memory comes from the library. */
static void live_as_child(CUdeviceptr block, CUstream stream)
{
    struct gpucache_statistics figures = {.struct_bytes = sizeof(figures)};
    CUdeviceptr other = 0;
    size_t available, total;

    alarm(CHILD_SECONDS);
    (void)cuMemsetD8Async(block, 2, 16, stream);
    (void)cuMemAlloc(&other, BYTES);
    (void)cuMemAllocAsync(&other, BYTES, stream);
    (void)cuMemGetInfo(&available, &total);
    (void)cuStreamSynchronize(stream);
    (void)cuCtxSynchronize();
    (void)cuMemFree(block);
    (void)cuDevicePrimaryCtxReset(0);
    if (gc.gpucache_get_statistics != NULL &&
        gc.gpucache_get_statistics(0, &figures) != GPUCACHE_FORKED)
        _exit(9);
    exit(other == 0 ? 7 : 8);
}

static void expect_child(pid_t child)
{
    int status = 0;

    EXPECT(child > 0);
    EXPECT(waitpid(child, &status, 0) == child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 7) {
        fprintf(stderr, "a child ended with %#x\n", (unsigned)status);
        exit(EXIT_FAILURE);
    }
}

static void fork_one(CUdeviceptr block, CUstream stream)
{
    const pid_t child = fork();

    if (child == 0)
        live_as_child(block, stream);
    expect_child(child);
}

/* The parent can do all it could. */
static void go_on(CUdeviceptr block)
{
    unsigned char seen[16];

    CHECK(cuMemsetD8(block, 5, BYTES));
    CHECK(cuMemcpyDtoH(seen, block, sizeof(seen)));
    EXPECT(seen[0] == 5 && seen[15] == 5);
    CHECK(cuMemFree(block));
    CHECK(cuMemFree(program_alloc(2 * BYTES)));
    CHECK(cuCtxSynchronize());
}

/* ---- the states ---- */

static void started(void)
{
    const CUdeviceptr block = program_alloc(BYTES);
    fork_one(block, NULL);
    go_on(block);
}

static void *allocate(void *argument)
{
    unsigned seed = (unsigned)(uintptr_t)argument;

    CHECK(cuCtxSetCurrent(context));
    while (!atomic_load(&is_over)) {
        const CUdeviceptr block = program_alloc((size_t)1 << (unsigned)rand_r(&seed) % 24);
        CHECK(cuMemFree(block));
    }
    return NULL;
}

static int visit_nothing(struct dl_phdr_info *info, size_t size, void *unused)
{
    (void)info;
    (void)size;
    (void)unused;
    return 0;
}

static void *visit_objects(void *unused)
{
    (void)unused;
    while (!atomic_load(&is_over))
        dl_iterate_phdr(visit_nothing, NULL);
    return NULL;
}

/* Another thread holds the dynamic linker's lock, which the child then never gets. */
static void linking(void)
{
    pthread_t visitor;
    const CUdeviceptr block = program_alloc(BYTES);

    EXPECT(pthread_create(&visitor, NULL, visit_objects, NULL) == 0);
    for (int i = 0; i < CHILDREN; i++)
        fork_one(block, NULL);
    atomic_store(&is_over, true);
    pthread_join(visitor, NULL);
    go_on(block);
}

/* Others are anywhere in the library, with its locks held. */
static void threads(void)
{
    pthread_t workers[THREADS];
    const CUdeviceptr block = program_alloc(BYTES);

    for (uintptr_t i = 0; i < THREADS; i++)
        EXPECT(pthread_create(&workers[i], NULL, allocate, (void *)i) == 0);
    for (int i = 0; i < CHILDREN; i++)
        fork_one(block, NULL);
    atomic_store(&is_over, true);
    for (int i = 0; i < THREADS; i++)
        pthread_join(workers[i], NULL);
    go_on(block);
}

static void capture(void)
{
    const CUdeviceptr block = program_alloc(BYTES);
    CUgraphExec runnable;
    CUstream stream;
    CUgraph graph;

    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK(cuMemsetD8Async(block, 3, BYTES, stream));
    fork_one(block, stream);
    CHECK(cuStreamEndCapture(stream, &graph));
    CHECK(cuGraphInstantiate(&runnable, graph, 0));
    CHECK(cuGraphLaunch(runnable, stream));
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuGraphExecDestroy(runnable));
    CHECK(cuGraphDestroy(graph));
    go_on(block);
}

/* The child's calls must not wait for a resume that never comes. */
static void paused(void)
{
    const CUdeviceptr block = program_alloc(BYTES);

    CHECK(cuCtxSynchronize());
    if (gc.gpucache_pause != NULL)
        EXPECT_STATUS(gc.gpucache_pause(1, 10000, NULL), GPUCACHE_OK);
    fork_one(block, NULL);
    if (gc.gpucache_resume != NULL)
        EXPECT_STATUS(gc.gpucache_resume(NULL), GPUCACHE_OK);
    go_on(block);
}

static void *forks(void *argument)
{
    CHECK(cuCtxSetCurrent(context));
    fork_one(*(const CUdeviceptr *)argument, NULL);
    return NULL;
}

static void from_thread(void)
{
    CUdeviceptr block = program_alloc(BYTES);
    pthread_t thread;

    EXPECT(pthread_create(&thread, NULL, forks, &block) == 0);
    EXPECT(pthread_join(thread, NULL) == 0);
    go_on(block);
}

static void *come_and_go(void *unused)
{
    (void)unused;
    while (!atomic_load(&is_over)) {
        gpucache_elastic pool;
        CUcontext own;
        CHECK(cuCtxCreate(&own, NULL, 0, 0));
        CHECK(cuMemFree(program_alloc(BYTES)));
        if (gc.gpucache_trim != NULL)
            (void)gc.gpucache_trim(0, 0, NULL);
        if (gc.gpucache_elastic_create != NULL &&
            gc.gpucache_elastic_create(0, 8 << 20, 0, 0, &pool, NULL) == GPUCACHE_OK) {
            (void)gc.gpucache_elastic_allocate(pool, 0, 4 << 20);
            (void)gc.gpucache_elastic_destroy(pool);
        }
        CHECK(cuCtxDestroy(own));
    }
    return NULL;
}

/* Contexts end, memory goes back and pools are made in other threads; others are started, too. */
static void ending(void)
{
    pthread_t workers[THREADS];
    char *const arguments[] = {"true", NULL};
    const CUdeviceptr block = program_alloc(BYTES);

    for (int i = 0; i < THREADS; i++)
        EXPECT(pthread_create(&workers[i], NULL, come_and_go, NULL) == 0);
    for (int i = 0; i < CHILDREN / 2; i++) {
        pid_t child;
        int status = 1;
        fork_one(block, NULL);
        EXPECT(posix_spawn(&child, "/bin/true", NULL, NULL, arguments, environ) == 0);
        EXPECT(waitpid(child, &status, 0) == child && status == 0);
    }
    atomic_store(&is_over, true);
    for (int i = 0; i < THREADS; i++)
        pthread_join(workers[i], NULL);
    go_on(block);
}

/* Grandchildren, and a child that outlives its parent's next allocations. */
static void twice(void)
{
    const CUdeviceptr block = program_alloc(BYTES);
    const pid_t child = fork();

    if (child == 0) {
        fork_one(block, NULL);
        live_as_child(block, NULL);
    }
    for (int i = 0; i < 100; i++)
        CHECK(cuMemFree(program_alloc(BYTES)));
    expect_child(child);
    go_on(block);
}

static const struct {
    const char *name;
    void (*run)(void);
} states[] = {
    {"started", started},         {"threads", threads}, {"capture", capture}, {"paused", paused},
    {"from-thread", from_thread}, {"twice", twice},     {"ending", ending},   {"linking", linking},
};

int main(int argument_count, char **arguments)
{
    for (size_t i = 0; argument_count == 2 && i < sizeof(states) / sizeof(states[0]); i++)
        if (strcmp(arguments[1], states[i].name) == 0) {
            context = program_start();
            (void)gpucache_load(NULL, &gc);
            states[i].run();
            printf("the parent went on\n");
            return EXIT_SUCCESS;
        }
    fprintf(stderr, "usage: forks STATE\n");
    return 2;
}
