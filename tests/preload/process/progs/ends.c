/* link: -l:libcuda.so.1 */
/* Ends of a process that uses device memory, the unusual ones. usage: ends WAY [ARGUMENT]
 *
 * Each prints what the script expects and ends in its own manner; what is left behind the script
 * looks at. Argument of the ways with a signal: after how many microseconds it comes. */
#define _GNU_SOURCE
#include "tests/preload/progs/public.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#define THREADS 4
#define SLOTS 64

static CUcontext context;

static void print_result(const char *text)
{
    printf("%s\n", text);
    fflush(stdout);
}

/* ---- work that never ends ---- */

/* Small and large, so that the cache, the pool and the driver are all come by. */
static void allocate_endlessly(unsigned seed)
{
    CUdeviceptr blocks[SLOTS] = {0};

    for (unsigned long i = 0;; i++) {
        CUdeviceptr *slot = &blocks[(unsigned)rand_r(&seed) % SLOTS];
        CUresult result = CUDA_SUCCESS;
        if (*slot != 0)
            result = cuMemFree(*slot);
        *slot = 0;
        if (result == CUDA_SUCCESS)
            result = cuMemAlloc(slot, (size_t)1 << (unsigned)rand_r(&seed) % 25);
        if (result == CUDA_ERROR_DEINITIALIZED)
            pause(); /* the process ends */
        if (i % 64 == 0)
            (void)cuCtxSynchronize();
    }
}

static void *worker(void *argument)
{
    CHECK(cuCtxSetCurrent(context));
    allocate_endlessly((unsigned)(uintptr_t)argument);
    return NULL;
}

static void start_workers(void)
{
    pthread_t thread;

    context = program_start();
    for (uintptr_t i = 0; i < THREADS; i++)
        EXPECT(pthread_create(&thread, NULL, worker, (void *)i) == 0);
    usleep(20000);
}

/* ---- signals ---- */

static void exits(int number)
{
    (void)number;
    exit(4);
}

static void signal_after(const char *us)
{
    const long after = 1000 + atol(us);
    const struct itimerval once = {
        .it_value = {.tv_sec = after / 1000000, .tv_usec = after % 1000000}};

    signal(SIGALRM, exits);
    setitimer(ITIMER_REAL, &once, NULL);
}

static int way_exit_in_signal(const char *us)
{
    context = program_start();
    program_alloc(1 << 20);
    signal_after(us);
    allocate_endlessly(1);
    return EXIT_FAILURE;
}

static int way_abort(const char *unused)
{
    (void)unused;
    start_workers();
    print_result("abort");
    abort();
}

static int way_term(const char *unused)
{
    (void)unused;
    start_workers();
    print_result("terminated");
    raise(SIGTERM);
    return EXIT_FAILURE;
}

/* ---- exits ---- */

static int way_quick_exit(const char *unused)
{
    (void)unused;
    start_workers();
    print_result("quick_exit");
    quick_exit(5);
}

static int way_main_returns(const char *unused)
{
    (void)unused;
    start_workers();
    print_result("main returns");
    return 3;
}

static void exits_again(void)
{
    CHECK(cuMemFree(program_alloc(1 << 20)));
    print_result("exit in a handler");
    exit(8);
}

static int way_exit_in_handler(const char *unused)
{
    (void)unused;
    context = program_start();
    program_alloc(1 << 20);
    atexit(exits_again);
    return EXIT_SUCCESS;
}

static int way_during_capture(const char *unused)
{
    CUstream stream;
    (void)unused;
    context = program_start();
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    const CUdeviceptr block = program_alloc(1 << 20);
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CHECK(cuMemsetD8Async(block, 1, 1 << 20, stream));
    print_result("captures");
    return EXIT_SUCCESS;
}

static int way_while_paused(const char *unused)
{
    (void)unused;
    start_workers();
    if (gpucache_load(NULL, &gc) == GPUCACHE_OK)
        EXPECT_STATUS(gc.gpucache_pause(1, 10000, NULL), GPUCACHE_OK);
    print_result("paused");
    return EXIT_SUCCESS;
}

static int way_context_gone(const char *unused)
{
    (void)unused;
    context = program_start();
    program_alloc(1 << 20);
    CHECK(cuDevicePrimaryCtxReset(0));
    print_result("reset");
    return EXIT_SUCCESS;
}

/* ---- contexts that end ---- */

static CUdeviceptr lasting_block;

static void free_late(void)
{
    (void)cuMemFree(lasting_block);
    (void)cuDevicePrimaryCtxRelease(0);
}

static void come_and_go_endlessly(void)
{
    CUcontext own;

    for (;;) {
        const CUresult result = cuCtxCreate(&own, NULL, 0, 0);
        if (result == CUDA_ERROR_DEINITIALIZED)
            pause(); /* the process ends */
        CHECK(result);
        for (unsigned i = 0; i < 8; i++) {
            CUdeviceptr block = 0;
            if (cuMemAlloc(&block, (size_t)1 << (12 + i)) == CUDA_SUCCESS && i % 2 == 0)
                (void)cuMemFree(block);
        }
        (void)cuCtxDestroy(own);
    }
}

static void *come_and_go(void *unused)
{
    (void)unused;
    come_and_go_endlessly();
    return NULL;
}

/* Memory that is freed late is found, or waited for, though contexts of others never end. */
static int way_while_ending(const char *us)
{
    pthread_t thread;

    context = program_start();
    lasting_block = program_alloc(1 << 20);
    EXPECT(atexit(free_late) == 0);
    for (unsigned i = 0; i < THREADS; i++)
        EXPECT(pthread_create(&thread, NULL, come_and_go, NULL) == 0);
    usleep(20000 + (useconds_t)atoi(us));
    return 3;
}

/* The driver's locks may be held: nothing is called late. */
static int way_signal_while_ending(const char *us)
{
    context = program_start();
    lasting_block = program_alloc(1 << 20);
    signal_after(us);
    come_and_go_endlessly();
    return EXIT_FAILURE;
}

/* ---- objects ---- */

/* Closed long before the end: its destructor frees as at any time. */
static int way_closed_object(const char *path)
{
    void (*hold)(CUdeviceptr block);
    void *object = dlopen(path, RTLD_NOW);
    EXPECT(object != NULL);
    *(void **)&hold = dlsym(object, "ends_hold");
    context = program_start();
    hold(program_alloc(1 << 20));
    dlclose(object);
    CHECK(cuMemFree(program_alloc(1 << 20)));
    print_result("closed");
    return EXIT_SUCCESS;
}

/* The object's destructor frees what it has, when the library is done and the driver perhaps. */
static int way_object(const char *path)
{
    void (*hold)(CUdeviceptr block);
    void *object = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    EXPECT(object != NULL);
    *(void **)&hold = dlsym(object, "ends_hold");
    context = program_start();
    hold(program_alloc(1 << 20));
    return EXIT_SUCCESS;
}

/* The object's destructor ends threads whose caches have memory, when the driver is done perhaps.
 */
static int way_object_threads(const char *path)
{
    void (*start)(CUcontext context);
    void *object = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    EXPECT(object != NULL);
    *(void **)&start = dlsym(object, "ends_start_threads");
    context = program_start();
    start(context);
    return EXIT_SUCCESS;
}

/* The object's destructor works with the block's content, and ends a thread that works with it all
 * the time. The memory may have been taken off the device: a line of input ends the program. */
static int way_object_work(const char *path)
{
    void (*work)(CUcontext context, CUdeviceptr block, size_t bytes, bool has_thread);
    const size_t bytes = 64 << 20;
    void *object = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    EXPECT(object != NULL);
    *(void **)&work = dlsym(object, "ends_work");
    context = program_start();
    const CUdeviceptr block = program_alloc(bytes);
    CHECK(cuMemsetD8(block, 0x5a, bytes));
    CHECK(cuCtxSynchronize());
    work(context, block, bytes, getenv("ENDS_THREAD") != NULL);
    print_result("ready");
    (void)getchar();
    return EXIT_SUCCESS;
}

static const struct {
    const char *name;
    int (*run)(const char *argument);
} ways[] = {
    {"exit-in-signal", way_exit_in_signal},
    {"abort", way_abort},
    {"term", way_term},
    {"quick-exit", way_quick_exit},
    {"main-returns", way_main_returns},
    {"exit-in-handler", way_exit_in_handler},
    {"during-capture", way_during_capture},
    {"while-paused", way_while_paused},
    {"context-gone", way_context_gone},
    {"object", way_object},
    {"object-threads", way_object_threads},
    {"object-work", way_object_work},
    {"closed-object", way_closed_object},
    {"while-ending", way_while_ending},
    {"signal-while-ending", way_signal_while_ending},
};

int main(int argument_count, char **arguments)
{
    for (size_t i = 0; argument_count > 1 && i < sizeof(ways) / sizeof(ways[0]); i++)
        if (strcmp(arguments[1], ways[i].name) == 0)
            return ways[i].run(argument_count > 2 ? arguments[2] : "0");
    fprintf(stderr, "usage: ends WAY [ARGUMENT]\n");
    return 2;
}
