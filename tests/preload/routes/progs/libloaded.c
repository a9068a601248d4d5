/* A library as frameworks load them: it needs the shared runtime, and uses CUDA in its constructor,
 * under the dynamic linker's lock, while another thread may be starting too. */
/* link: -l:libcudart.so.13 -Wl,-rpath,'$ORIGIN/../../simcuda' */
#include <cuda_runtime_api.h>

#include <stdlib.h>
#include <time.h>

__attribute__((visibility("default"))) int loaded_run(void);

int loaded_run(void)
{
    void *block = NULL;
    cudaError_t result = cudaMalloc(&block, 1000);

    return result != cudaSuccess ? (int)result : (int)cudaFree(block);
}

__attribute__((constructor)) static void construct(void)
{
    const char *pause_ms = getenv("LOADED_PAUSE_MS");
    struct timespec pause = {0, pause_ms == NULL ? 0 : atol(pause_ms) * 1000000};

    nanosleep(&pause, NULL);
    if (loaded_run() != 0)
        abort();
}
