/* link: -l:libcuda.so.1 */
/* Two contexts of its own and the primary one, one after the other, a little memory, and all given
 * back. */
#include "program.h"

int main(void)
{
    CUcontext contexts[2];
    CUcontext primary;
    CHECK(cuInit(0));
    for (int i = 0; i < 2; i++)
        CHECK(cuCtxCreate(&contexts[i], NULL, 0, 0));
    CHECK(cuDevicePrimaryCtxRetain(&primary, 0));
    CHECK(cuMemFree(program_alloc(1 << 20)));
    CHECK(cuDevicePrimaryCtxRelease(0));
    for (int i = 0; i < 2; i++)
        CHECK(cuCtxDestroy(contexts[i]));
    return 0;
}
