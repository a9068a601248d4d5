/* link: -l:libcuda.so.1 */
/* How many instructions a pair of cuMemAlloc and cuMemFree takes in user space, counted one by one:
 * a machine's speed and its other programs do not move them.
 *
 *   steps [PAIRS]     prints `pair_512B N instructions`, the mean of PAIRS (1024)
 *
 * The program is traced by its parent and stops before and after what is counted; the loop around
 * it, and the calls through the linkage table, are counted with it. */
#include <cuda.h>

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(call) check((int)(call), #call)
#define WARM_PAIRS 4096
#define BLOCK_BYTES 512

static void check(int result, const char *call)
{
    if (result == 0)
        return;
    fprintf(stderr, "steps: %s: error %d\n", call, result);
    _exit(EXIT_FAILURE);
}

static void take_pairs(int count)
{
    for (int i = 0; i < count; i++) {
        CUdeviceptr block = 0;
        CHECK(cuMemAlloc(&block, BLOCK_BYTES));
        CHECK(cuMemFree(block));
    }
}

static void work(int count)
{
    CUdevice device = 0;
    CUcontext context = NULL;
    CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL));
    CHECK(ptrace(PTRACE_TRACEME, 0, NULL, NULL));
    CHECK(raise(SIGSTOP));
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    take_pairs(WARM_PAIRS);
    CHECK(raise(SIGSTOP));
    take_pairs(count);
    CHECK(raise(SIGSTOP));
    exit(EXIT_SUCCESS);
}

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

int main(int count, char **arguments)
{
    const int pairs = count > 1 ? atoi(arguments[1]) : 1024;
    if (pairs < 1) {
        fprintf(stderr, "usage: steps [PAIRS]\n");
        return EXIT_FAILURE;
    }
    const pid_t child = fork();
    if (child == 0)
        work(pairs);
    if (child < 0 || waitpid(child, NULL, 0) != child)
        return EXIT_FAILURE;
    (void)go_on(child, PTRACE_CONT);
    const uint64_t steps = go_on(child, PTRACE_SINGLESTEP);
    printf("pair_%dB %.2f instructions\n", BLOCK_BYTES, (double)steps / pairs);
    CHECK(ptrace(PTRACE_DETACH, child, NULL, NULL));
    return waitpid(child, NULL, 0) == child ? EXIT_SUCCESS : EXIT_FAILURE;
}
