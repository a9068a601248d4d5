/* link: -l:libcudart.so.13 -l:libcuda.so.1 */
/* How many instructions the calls of a program take in user space, counted one by one: a machine's
 * speed and its other programs do not move them.
 *
 *   steps WHAT [COUNT]     prints `WHAT N instructions`, the mean of COUNT (1024)
 *
 * WHAT: `pair`, cuMemAlloc and cuMemFree of 512 bytes; `runtime`, the same through cudaMalloc and
 * cudaFree; `mixed`, a block freed and one of another size allocated among 64; `launch`,
 * cuLaunchKernel on a stream of the program's own; `start`, a whole process, from its first
 * instruction to its end, that starts CUDA and makes one pair.
 *
 * The program is traced by its parent and stops before and after what is counted; the loop around
 * it, the calls through the linkage table and the simulated driver's part are counted with it,
 * other threads are not. */
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(call) check((int)(call), #call)
#define WARM_COUNT 4096
#define BLOCK_BYTES 512
#define LIVE_COUNT 64

static struct {
    CUfunction kernel;
    CUstream stream;
    CUdeviceptr live[LIVE_COUNT];
    uint64_t random;
} program = {.random = 88172645463325252U};

static void check(int result, const char *call)
{
    if (result == 0)
        return;
    fprintf(stderr, "steps: %s: error %d\n", call, result);
    _exit(EXIT_FAILURE);
}

/* ---- what is counted ---- */

static void pair(void)
{
    CUdeviceptr block = 0;
    CHECK(cuMemAlloc(&block, BLOCK_BYTES));
    CHECK(cuMemFree(block));
}

static void runtime_pair(void)
{
    void *block = NULL;
    CHECK(cudaMalloc(&block, BLOCK_BYTES));
    CHECK(cudaFree(block));
}

static uint64_t next_random(void)
{
    program.random ^= program.random << 13;
    program.random ^= program.random >> 7;
    program.random ^= program.random << 17;
    return program.random;
}

/* From 512 bytes to 4 MiB, each power of two as likely as the others: as in pairs.h. */
static void mixed_pair(void)
{
    CUdeviceptr *block = &program.live[next_random() % LIVE_COUNT];
    const uint64_t bits = next_random();
    const size_t base = (size_t)BLOCK_BYTES << (bits >> 32) % 13;
    if (*block != 0)
        CHECK(cuMemFree(*block));
    CHECK(cuMemAlloc(block, base + (size_t)(bits & (base - 1))));
}

static void launch(void)
{
    CHECK(cuLaunchKernel(program.kernel, 1, 1, 1, 32, 1, 1, 0, program.stream, NULL, NULL));
}

static const struct {
    const char *name;
    void (*once)(void);
} kinds[] = {{"pair", pair}, {"runtime", runtime_pair}, {"mixed", mixed_pair}, {"launch", launch}};
#define KIND_COUNT (sizeof(kinds) / sizeof(kinds[0]))

/* ---- the program ---- */

static void set_up(void)
{
    static const char ptx[] = ".version 8.0\n.target sm_50\n.address_size 64\n"
                              ".visible .entry k(.param .u64 p)\n{\n ret;\n}\n";
    CUdevice device = 0;
    CUcontext context = NULL;
    CUmodule module = NULL;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuModuleLoadData(&module, ptx));
    CHECK(cuModuleGetFunction(&program.kernel, module, "k"));
    CHECK(cuStreamCreate(&program.stream, CU_STREAM_NON_BLOCKING));
}

static void repeat(void (*once)(void), int count)
{
    for (int i = 0; i < count; i++)
        once();
}

static void work(void (*once)(void), int count)
{
    CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL));
    CHECK(ptrace(PTRACE_TRACEME, 0, NULL, NULL));
    CHECK(raise(SIGSTOP));
    set_up();
    repeat(once, WARM_COUNT);
    CHECK(cuCtxSynchronize());
    CHECK(raise(SIGSTOP));
    repeat(once, count);
    CHECK(raise(SIGSTOP));
    exit(EXIT_SUCCESS);
}

/* For `start`: the process begins anew. */
static void begin_again(const char *path)
{
    CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL));
    CHECK(ptrace(PTRACE_TRACEME, 0, NULL, NULL));
    CHECK(execl(path, path, "once", (char *)NULL));
}

static int run_once(void)
{
    set_up();
    pair();
    return EXIT_SUCCESS;
}

/* ---- its parent ---- */

/* Lets the child run until it stops itself; returns how often it stopped on the way. */
static uint64_t go_on(pid_t child, enum __ptrace_request request)
{
    int status = 0;
    uint64_t stops = 0;
    do {
        CHECK(ptrace(request, child, NULL, NULL));
        if (waitpid(child, &status, 0) != child || !WIFSTOPPED(status)) {
            fprintf(stderr, "steps: the program ended early\n");
            exit(EXIT_FAILURE);
        }
        stops++;
    } while (WSTOPSIG(status) != SIGSTOP);
    return stops;
}

static int measure(const char *name, void (*once)(void), int count)
{
    const pid_t child = fork();
    if (child == 0)
        work(once, count);
    if (child < 0 || waitpid(child, NULL, 0) != child)
        return EXIT_FAILURE;
    (void)go_on(child, PTRACE_CONT);
    const uint64_t steps = go_on(child, PTRACE_SINGLESTEP);
    printf("%s %.2f instructions\n", name, (double)steps / count);
    CHECK(ptrace(PTRACE_DETACH, child, NULL, NULL));
    return waitpid(child, NULL, 0) == child ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* The start's costs do not vary: one is enough. */
static int measure_start(const char *path)
{
    uint64_t steps = 0;
    int status = 0;
    const pid_t child = fork();
    if (child == 0)
        begin_again(path);
    if (child < 0 || waitpid(child, &status, 0) != child)
        return EXIT_FAILURE;
    for (; WIFSTOPPED(status); steps++) {
        CHECK(ptrace(PTRACE_SINGLESTEP, child, NULL, NULL));
        if (waitpid(child, &status, 0) != child)
            return EXIT_FAILURE;
    }
    printf("start %.2f instructions\n", (double)steps);
    return WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_FAILURE;
}

int main(int count, char **arguments)
{
    const char *what = count > 1 ? arguments[1] : "";
    const int times = count > 2 ? atoi(arguments[2]) : 1024;
    if (strcmp(what, "once") == 0)
        return run_once();
    if (strcmp(what, "start") == 0)
        return measure_start(arguments[0]);
    for (unsigned i = 0; i < KIND_COUNT; i++)
        if (strcmp(what, kinds[i].name) == 0 && times > 0)
            return measure(what, kinds[i].once, times);
    fprintf(stderr, "usage: steps start | steps pair|runtime|mixed|launch [COUNT]\n");
    return EXIT_FAILURE;
}
