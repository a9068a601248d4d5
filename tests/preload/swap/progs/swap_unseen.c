/* link: -l:libcuda.so.1 */
/* A program that looks up a name of the driver that the library does not know, through which it
 * might submit work that no gate sees. Its memory may have been taken off the device before. Prints
 * "ready", after a line of input "found" or "none", and ends after another one. */
#define _GNU_SOURCE
#include "tests/preload/progs/program.h"

#include <dlfcn.h>
#include <string.h>

#define BYTES ((size_t)64 << 20)
#define VALUE 0x5a

int main(void)
{
    CUresult (*look)(void *to, CUdeviceptr from, size_t bytes);
    unsigned char *seen = calloc(1, BYTES);
    program_start();
    const CUdeviceptr block = program_alloc(BYTES);
    CHECK(cuMemsetD8(block, VALUE, BYTES));
    CHECK(cuCtxSynchronize());
    printf("ready\n");
    fflush(stdout);
    (void)getchar();
    *(void **)&look = dlsym(RTLD_DEFAULT, "cuSimcudaRead");
    const CUresult result = look(seen, block, BYTES);
    if (result != CUDA_SUCCESS)
        printf("error %d\n", (int)result);
    else
        printf("content %s\n",
               seen[0] == VALUE && memcmp(seen, seen + 1, BYTES - 1) == 0 ? "ok" : "wrong");
    fflush(stdout);
    (void)getchar();
    free(seen);
    return EXIT_SUCCESS;
}
