/* link: -l:libcuda.so.1 -ldl */
/* Makes a context, which the library measures by NVML, while another thread loads NVML
 * (libhalfnvml.c). Prints whether NVML was there before, and whether it was called afterwards. */
#include "tests/preload/progs/program.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

static void *load(void *unused)
{
    (void)unused;
    return dlopen("libnvidia-ml.so.1", RTLD_LAZY);
}

int main(void)
{
    const struct timespec moment = {.tv_nsec = 100000000};
    pthread_t loader;
    void *nvml;
    const int was_there = dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_NOLOAD) != NULL;

    if (pthread_create(&loader, NULL, load, NULL) != 0)
        return EXIT_FAILURE;
    nanosleep(&moment, NULL);
    program_start();
    CHECK(cuMemFree(program_alloc(1)));
    pthread_join(loader, &nvml);
    if (nvml == NULL)
        return EXIT_FAILURE;
    const atomic_int *calls = dlsym(nvml, "half_nvml_calls");
    printf("%d then %d\n", was_there, atomic_load(calls) > 0);
    return 0;
}
