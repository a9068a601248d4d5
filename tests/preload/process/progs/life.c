/* link: -l:libcuda.so.1 */
/* Ways in which a process can begin, multiply and end while it uses device memory: usage: life WAY
 * [ARGUMENT]
 *
 * Each way prints what the test script expects, then ends in its own manner. The report it leaves
 * behind, or does not, is looked at by the script. */
#include "tests/preload/progs/program.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 8
#define ROUNDS 200

static CUcontext context;
static CUdeviceptr early_block;

/* Before main, and with it before most libraries are ready. */
static __attribute__((constructor)) void begin(void)
{
    if (getenv("LIFE_CONSTRUCTOR") == NULL)
        return;
    context = program_start();
    early_block = program_alloc(1111);
}

static __attribute__((destructor)) void finish(void)
{
    if (early_block != 0 && cuMemFree(early_block) != CUDA_SUCCESS)
        printf("the destructor's free failed\n");
}

static int wait_for(pid_t child)
{
    int status = 0;
    if (waitpid(child, &status, 0) != child)
        return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* ---- fork ---- */

static int way_fork(const char *how)
{
    CUdeviceptr block = 0;
    context = program_start();
    block = program_alloc(1 << 20);
    fflush(stdout);
    /* The system call itself runs no handler of libc's. */
    pid_t child = strcmp(how, "raw") == 0 ? (pid_t)syscall(SYS_fork) : fork();
    if (child == 0) {
        /* The driver does not work across fork; what it answers is its own business, but it must
         * answer. */
        CUdeviceptr other = 0;
        char byte;
        (void)cuMemsetD8(block, 2, 16);
        (void)cuMemsetD8Async(block, 2, 16, NULL);
        (void)cuMemcpyDtoH(&byte, block, 1);
        (void)cuCtxSynchronize();
        (void)cuMemAlloc(&other, 4096);
        (void)cuMemFree(block);
        exit(7);
    }
    printf("child %d\n", wait_for(child));
    CHECK(cuMemsetD8(block, 1, 1 << 20));
    CHECK(cuMemFree(block));
    CHECK(cuMemFree(program_alloc(2 << 20)));
    return EXIT_SUCCESS;
}

/* A child forked before the first CUDA call is a process like any other. */
static int way_fork_first(const char *unused)
{
    (void)unused;
    fflush(stdout);
    pid_t child = fork();
    context = program_start();
    CHECK(cuMemFree(program_alloc(1 << 20)));
    if (child == 0)
        exit(EXIT_SUCCESS);
    printf("child %d\n", wait_for(child));
    return EXIT_SUCCESS;
}

static int way_exec(const char *program)
{
    context = program_start();
    CUdeviceptr block = program_alloc(1 << 20);
    pid_t child = vfork();
    if (child == 0) {
        execl(program, program, (char *)NULL);
        _exit(127);
    }
    printf("vfork child %d\n", wait_for(child));
    fflush(stdout);
    printf("system %d\n", system("exit 5") >> 8);
    CHECK(cuMemFree(block));
    return EXIT_SUCCESS;
}

/* ---- threads ---- */

static CUdeviceptr handed[THREADS][ROUNDS];
static pthread_barrier_t barrier;

/* Takes blocks, then frees those its neighbour took. */
static void *neighbour(void *argument)
{
    size_t index = (size_t)(uintptr_t)argument;
    CHECK(cuCtxSetCurrent(context));
    for (size_t i = 0; i < ROUNDS; i++)
        handed[index][i] = program_alloc(100 + i * 997);
    pthread_barrier_wait(&barrier);
    for (size_t i = 0; i < ROUNDS; i++)
        CHECK(cuMemFree(handed[(index + 1) % THREADS][i]));
    return NULL;
}

static int way_threads(const char *unused)
{
    pthread_t threads[THREADS];
    (void)unused;
    context = program_start();
    pthread_barrier_init(&barrier, NULL, THREADS);
    for (size_t i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, neighbour, (void *)(uintptr_t)i) != 0)
            return EXIT_FAILURE;
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    printf("freed by neighbours\n");
    return EXIT_SUCCESS;
}

/* The first CUDA calls of a process come from many threads at once. */
static void *starter(void *unused)
{
    (void)unused;
    pthread_barrier_wait(&barrier);
    program_start();
    CHECK(cuMemFree(program_alloc(12345)));
    return NULL;
}

static int way_start_together(const char *unused)
{
    pthread_t threads[THREADS];
    (void)unused;
    pthread_barrier_init(&barrier, NULL, THREADS);
    for (size_t i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, starter, NULL) != 0)
            return EXIT_FAILURE;
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    printf("started together\n");
    return EXIT_SUCCESS;
}

static void *ends_the_process(void *unused)
{
    (void)unused;
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuMemFree(program_alloc(1 << 20)));
    printf("exit from a thread\n");
    exit(6);
}

static int way_exit_from_thread(const char *unused)
{
    pthread_t thread;
    (void)unused;
    context = program_start();
    if (pthread_create(&thread, NULL, ends_the_process, NULL) != 0)
        return EXIT_FAILURE;
    pause();
    return EXIT_FAILURE;
}

static void *outlives_main(void *unused)
{
    (void)unused;
    usleep(100000);
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuMemFree(program_alloc(1 << 20)));
    printf("main is gone\n");
    return NULL;
}

static int way_main_ends_first(const char *unused)
{
    pthread_t thread;
    (void)unused;
    context = program_start();
    if (pthread_create(&thread, NULL, outlives_main, NULL) != 0)
        return EXIT_FAILURE;
    pthread_exit(NULL);
}

/* ---- ends ---- */

static int way_quick_end(const char *unused)
{
    (void)unused;
    context = program_start();
    program_alloc(1 << 20);
    printf("_exit\n");
    fflush(stdout);
    _exit(9);
}

static int way_killed(const char *unused)
{
    (void)unused;
    context = program_start();
    program_alloc(1 << 20);
    printf("killed\n");
    fflush(stdout);
    raise(SIGKILL);
    return EXIT_FAILURE;
}

static void late(void)
{
    CHECK(cuMemFree(program_alloc(1 << 20)));
    printf("atexit handler\n");
}

/* Registered before the first CUDA call, so it runs after whatever that call registered. */
static int way_late_handler(const char *unused)
{
    (void)unused;
    atexit(late);
    context = program_start();
    CHECK(cuMemFree(program_alloc(1 << 20)));
    return EXIT_SUCCESS;
}

static int way_constructor(const char *unused)
{
    (void)unused;
    printf("early block %d\n", early_block != 0);
    CHECK(cuMemFree(program_alloc(2222)));
    return EXIT_SUCCESS;
}

/* ---- libraries and contexts ---- */

static int way_dlclose(const char *path)
{
    CUdeviceptr (*plugin_alloc)(size_t bytes);
    context = program_start();
    for (int i = 0; i < 3; i++) {
        void *plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (plugin == NULL) {
            fprintf(stderr, "%s\n", dlerror());
            return EXIT_FAILURE;
        }
        *(void **)&plugin_alloc = dlsym(plugin, "plugin_alloc");
        CUdeviceptr block = plugin_alloc(3333);
        dlclose(plugin);
        CHECK(cuMemsetD8(block, 1, 3333));
        if (i > 0)
            CHECK(cuMemFree(block)); /* the first one stays */
    }
    printf("plugin gone\n");
    return EXIT_SUCCESS;
}

static int way_context_destroyed(const char *unused)
{
    CUdevice device = 0;
    CUcontext other = NULL;
    (void)unused;
    context = program_start();
    CUdeviceptr kept = program_alloc(4444);
    CHECK(cuDeviceGet(&device, 0));
    for (int round = 0; round < 3; round++) {
        CHECK(cuCtxCreate(&other, NULL, 0, device));
        for (size_t i = 0; i < 50; i++)
            program_alloc(1000 + i * 20011);
        CHECK(cuCtxDestroy(other));
    }
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuMemsetD8(kept, 1, 4444));
    for (size_t i = 0; i < 50; i++) {
        CUdeviceptr block = program_alloc(1000 + i * 20011);
        CHECK(cuMemsetD8(block, 1, 1000 + i * 20011));
        CHECK(cuMemFree(block));
    }
    CHECK(cuMemFree(kept));
    printf("contexts gone\n");
    return EXIT_SUCCESS;
}

static const struct {
    const char *name;
    int (*run)(const char *argument);
} ways[] = {
    {"fork", way_fork},
    {"fork-first", way_fork_first},
    {"exec", way_exec},
    {"threads", way_threads},
    {"start-together", way_start_together},
    {"exit-from-thread", way_exit_from_thread},
    {"main-ends-first", way_main_ends_first},
    {"quick-end", way_quick_end},
    {"killed", way_killed},
    {"late-handler", way_late_handler},
    {"constructor", way_constructor},
    {"dlclose", way_dlclose},
    {"context-destroyed", way_context_destroyed},
};

int main(int argument_count, char **arguments)
{
    for (size_t i = 0; argument_count > 1 && i < sizeof(ways) / sizeof(ways[0]); i++)
        if (strcmp(arguments[1], ways[i].name) == 0)
            return ways[i].run(argument_count > 2 ? arguments[2] : "");
    fprintf(stderr, "usage: life WAY [ARGUMENT]\n");
    return 2;
}
