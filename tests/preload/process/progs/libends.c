/* link: -l:libcuda.so.1 */
/* A library whose destructor frees device memory and takes more: for `ends object`, and before or
 * behind ours in a preload. */
#include "tests/preload/progs/program.h"

#include <stdbool.h>

__attribute__((visibility("default"))) void ends_hold(CUdeviceptr block);

static CUdeviceptr held;

void ends_hold(CUdeviceptr block)
{
    held = block;
}

/* The driver may be done by then. */
static bool is_expected(CUresult result)
{
    return result == CUDA_SUCCESS || result == CUDA_ERROR_DEINITIALIZED;
}

__attribute__((destructor)) static void let_go(void)
{
    CUdeviceptr other = 0;

    if (held == 0)
        return;
    printf("the destructor's free: %s\n", is_expected(cuMemFree(held)) ? "ok" : "failed");
    printf("its allocation: %s\n", is_expected(cuMemAlloc(&other, 1 << 20)) ? "ok" : "failed");
}
