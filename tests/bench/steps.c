/* link: -l:libcudart.so.13 -l:libcuda.so.1 */
/* How many instructions the calls of a program take in user space, counted one by one: a machine's
 * speed and its other programs do not move them.
 *
 *   steps WHAT [COUNT]     prints `WHAT N instructions, median M`; N is the mean of COUNT (1024)
 *
 * WHAT: `pair`, cuMemAlloc and cuMemFree of 512 bytes; `runtime`, the same through cudaMalloc and
 * cudaFree; `mixed`, a block freed and one of another size allocated among 64; `layers`, one of the
 * 64 allocations of a training step's way forward or of the frees on the way back; `launch`,
 * cuLaunchKernel on a stream of the program's own; `start`, a whole process, from its first
 * instruction to its end, that starts CUDA and makes one pair.
 *
 * The program is traced by its parent and stops around each call. The calls through the linkage
 * table and the simulated driver's part are counted with it; the way from stop to stop without it
 * and other threads are not. The driver takes more instructions where its threads are in the way:
 * the median leaves that out. */
#define _GNU_SOURCE
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <sched.h>
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
#define COUNT_MAX 65536

static struct {
    CUfunction kernel;
    CUstream stream;
    CUdeviceptr live[LIVE_COUNT];
    uint64_t random;
    unsigned event; /* of `layers` */
} program = {.random = 88172645463325252U};

static void check(int result, const char *call)
{
    if (result == 0)
        return;
    fprintf(stderr, "steps: %s: error %d\n", call, result);
    _exit(EXIT_FAILURE);
}

/* ---- what is counted ---- */

static void nothing(void)
{
}

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

static void layers(void)
{
    static const size_t bytes[] = {16384, 3145728, 12582912, 8388608};
    const unsigned event = program.event++ % (2 * LIVE_COUNT);
    if (event < LIVE_COUNT)
        CHECK(cuMemAlloc(&program.live[event], bytes[event % 4]));
    else
        CHECK(cuMemFree(program.live[2 * LIVE_COUNT - 1 - event]));
}

static void launch(void)
{
    CHECK(cuLaunchKernel(program.kernel, 1, 1, 1, 32, 1, 1, 0, program.stream, NULL, NULL));
}

static const struct {
    const char *name;
    void (*once)(void);
} kinds[] = {{"pair", pair},
             {"runtime", runtime_pair},
             {"mixed", mixed_pair},
             {"layers", layers},
             {"launch", launch}};
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

/* Stops before each. */
static void repeat(void (*once)(void), int count)
{
    for (int i = 0; i < count; i++) {
        CHECK(raise(SIGSTOP));
        once();
    }
}

static void work(void (*once)(void), int count)
{
    CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL));
    CHECK(ptrace(PTRACE_TRACEME, 0, NULL, NULL));
    CHECK(raise(SIGSTOP));
    set_up();
    for (int i = 0; i < WARM_COUNT; i++)
        once();
    CHECK(cuCtxSynchronize());
    repeat(nothing, 2);
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

static int compare(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a;
    const uint64_t y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static int measure(const char *name, void (*once)(void), int count)
{
    static uint64_t steps[COUNT_MAX];
    uint64_t sum = 0;
    const pid_t child = fork();
    if (child == 0)
        work(once, count);
    if (child < 0 || waitpid(child, NULL, 0) != child)
        return EXIT_FAILURE;
    (void)go_on(child, PTRACE_CONT);
    (void)go_on(child, PTRACE_CONT); /* the first stop binds `raise` */
    const uint64_t apart = go_on(child, PTRACE_SINGLESTEP);
    for (int i = 0; i < count; i++) {
        steps[i] = go_on(child, PTRACE_SINGLESTEP) - apart;
        sum += steps[i];
    }
    qsort(steps, (size_t)count, sizeof(*steps), compare);
    printf("%s %.2f instructions, median %llu\n", name, (double)sum / count,
           (unsigned long long)steps[count / 2]);
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
    printf("start %.2f instructions, median %.0f\n", (double)steps, (double)steps);
    return WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_FAILURE;
}

/* A stop takes a fifth of the time where both processes share a processor. */
static void stay_on_processor(void)
{
    cpu_set_t here;
    CPU_ZERO(&here);
    CPU_SET((size_t)sched_getcpu(), &here);
    CHECK(sched_setaffinity(0, sizeof(here), &here));
}

int main(int count, char **arguments)
{
    const char *what = count > 1 ? arguments[1] : "";
    const int times = count > 2 ? atoi(arguments[2]) : 1024;
    if (strcmp(what, "once") == 0)
        return run_once();
    stay_on_processor();
    if (strcmp(what, "start") == 0)
        return measure_start(arguments[0]);
    for (unsigned i = 0; i < KIND_COUNT; i++)
        if (strcmp(what, kinds[i].name) == 0 && times > 0 && times <= COUNT_MAX)
            return measure(what, kinds[i].once, times);
    fprintf(stderr, "usage: steps start | steps pair|runtime|mixed|layers|launch [COUNT]\n");
    return EXIT_FAILURE;
}
