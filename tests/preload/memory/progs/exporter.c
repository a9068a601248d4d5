/* A program that gives memory to other processes: allocates, asks for a handle, frees; twice, since
 * the library learns from the first time.
 *
 * usage: exporter: all must succeed; exporter refused: the first must not. */
/* link: -l:libcuda.so.1 */
#include "tests/preload/progs/program.h"

#include <string.h>

static CUresult ask(size_t bytes)
{
    CUdeviceptr block = program_alloc(bytes), base = 0;
    CUipcMemHandle handle;
    size_t size = 0;
    CUresult result = cuIpcGetMemHandle(&handle, block);

    CHECK(cuMemGetAddressRange(&base, &size, block));
    if (base != block || size != bytes)
        result = CUDA_ERROR_UNKNOWN;
    CHECK(cuMemFree(block));
    return result;
}

int main(int count, char **arguments)
{
    const int is_refused = count > 1 && strcmp(arguments[1], "refused") == 0;

    program_start();
    if (ask(1000) != (is_refused ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS)) {
        fprintf(stderr, "the first handle\n");
        return 1;
    }
    CHECK(ask(1000));
    CHECK(ask(8 << 20));
    return 0;
}
