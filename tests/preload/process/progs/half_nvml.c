/* link: -l:libcuda.so.1 -ldl */
/* Makes a context, which the library measures by NVML, while another thread loads NVML
 * (libhalfnvml.c): usage: half_nvml [PATH]. Prints whether NVML was there before, and whether it
 * was called afterwards. With a path NVML is loaded from there, and the context is the second
 * device's; when the first device's was made there was no NVML. */
#include "tests/preload/progs/program.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

static void *load(void *path)
{
    return dlopen(path, RTLD_LAZY);
}

int main(int argc, char **argv)
{
    static char name[] = "libnvidia-ml.so.1";
    const struct timespec moment = {.tv_nsec = 100000000};
    pthread_t loader;
    void *nvml;
    const int was_there = dlopen(name, RTLD_LAZY | RTLD_NOLOAD) != NULL;
    CUcontext context;

    if (argc > 1)
        program_start();
    if (pthread_create(&loader, NULL, load, argc > 1 ? argv[1] : name) != 0)
        return EXIT_FAILURE;
    nanosleep(&moment, NULL);
    if (argc > 1)
        CHECK(cuDevicePrimaryCtxRetain(&context, 1));
    else
        program_start();
    CHECK(cuMemFree(program_alloc(1)));
    pthread_join(loader, &nvml);
    if (nvml == NULL)
        return EXIT_FAILURE;
    const atomic_int *calls = dlsym(nvml, "half_nvml_calls");
    printf("%d then %d\n", was_there, atomic_load(calls) > 0);
    return 0;
}
