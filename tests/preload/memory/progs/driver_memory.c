/* link: -l:libcuda.so.1 */
/* The driver takes memory for itself at a kernel's first launch, which no call reports.
 * usage: driver_memory BYTES LIMIT [stay]: waits until the library has found BYTES more than
 * before, then takes memory up to the limit; compares that with the device's account of this
 * process. */
#include "tests/preload/progs/program.h"

#include <dlfcn.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CHUNK ((size_t)2 << 20)
#define SECONDS 20

static const char kernel_text[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                                  ".visible .entry touch(.param .u64 touch_param_0)\n{\n ret;\n}\n";

static size_t free_bytes(void)
{
    size_t available, total;

    CHECK(cuMemGetInfo(&available, &total));
    return available;
}

/* The device's own account of this process. */
static unsigned long long held_bytes(void)
{
    unsigned (*processes)(int, unsigned, unsigned *, unsigned long long *);
    unsigned pids[16];
    unsigned long long used[16];

    *(void **)&processes = dlsym(RTLD_DEFAULT, "simcuda_device_processes");
    const unsigned count = processes(0, 16, pids, used);
    for (unsigned i = 0; i < count && i < 16; i++)
        if (pids[i] == (unsigned)getpid())
            return used[i];
    return 0;
}

int main(int argument_count, char **arguments)
{
    const size_t bytes = argument_count > 2 ? strtoull(arguments[1], NULL, 10) : 0;
    const size_t limit = argument_count > 2 ? strtoull(arguments[2], NULL, 10) : 0;
    const struct timespec a_moment = {.tv_nsec = 1000000};
    const time_t end = time(NULL) + SECONDS;
    CUdeviceptr block, dummy = 0;
    CUfunction kernel;
    CUmodule module;
    size_t before;

    program_start();
    CHECK(cuMemFree(program_alloc(limit / 2))); /* idle */
    CHECK(cuModuleLoadData(&module, kernel_text));
    CHECK(cuModuleGetFunction(&kernel, module, "touch"));
    before = free_bytes();
    CHECK(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&dummy}, NULL));
    CHECK(cuCtxSynchronize());
    while (free_bytes() + bytes > before && time(NULL) < end)
        nanosleep(&a_moment, NULL);
    printf("found %s\n", free_bytes() + bytes <= before ? "yes" : "no");
    while (cuMemAlloc(&block, CHUNK) == CUDA_SUCCESS)
        ;
    printf("within the limit %s\n", held_bytes() <= limit ? "yes" : "no");
    printf("near the limit %s\n", held_bytes() + 2 * CHUNK > limit ? "yes" : "no");
    fflush(stdout);
    if (argument_count > 3)
        pause(); /* until it is killed */
    return 0;
}
