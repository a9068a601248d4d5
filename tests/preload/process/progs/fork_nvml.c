/* link: -l:libcuda.so.1 -ldl */
/* Forks while the library's thread is inside NVML (libslownvml.c); the child, and its child, use
 * NVML. Prints how many ended. */
#include "tests/preload/progs/program.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define FORKS 3
#define SECONDS 20

static int child(int (*init)(void), int generations)
{
    int status = 0;

    alarm(5);
    (void)init();
    if (generations > 1) {
        const pid_t pid = fork();
        if (pid == 0)
            _exit(child(init, generations - 1));
        waitpid(pid, &status, 0);
    }
    return status != 0;
}

int main(void)
{
    const time_t end = time(NULL) + SECONDS;
    int count = 0, good = 0;

    program_start();
    CHECK(cuMemFree(program_alloc(1)));
    void *nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (nvml == NULL)
        return EXIT_FAILURE;
    int (*init)(void);
    *(void **)&init = dlsym(nvml, "nvmlInit_v2");
    atomic_int *is_inside = dlsym(nvml, "slow_nvml_is_inside");
    while (count < FORKS && time(NULL) < end) {
        size_t available, total;
        int status = 1;

        CHECK(cuMemGetInfo(&available, &total)); /* a comparison may be due */
        if (atomic_load(is_inside) == 0)
            continue;
        const pid_t pid = fork();
        if (pid == 0)
            _exit(child(init, 2));
        waitpid(pid, &status, 0);
        count++;
        good += status == 0;
    }
    printf("%d of %d\n", good, FORKS);
    return 0;
}
