/* link: -l:libcuda.so.1 */
/* Two contexts of its own and the primary one, one after the other, a little memory, and all given
 * back. usage: contexts [leave]: a context that takes what lies in it along */
#include "tests/preload/progs/program.h"

static void leave(void)
{
    CUcontext context;
    CUdeviceptr managed;
    CHECK(cuCtxCreate(&context, NULL, 0, 0));
    (void)program_alloc(1 << 20);
    (void)program_alloc(1 << 10);
    (void)program_alloc(32 << 20);
    CHECK(cuMemAllocManaged(&managed, 1 << 16, CU_MEM_ATTACH_GLOBAL));
    CHECK(cuCtxDestroy(context));
}

int main(int argument_count, char **arguments)
{
    (void)arguments;
    CUcontext contexts[2];
    CUcontext primary;
    CHECK(cuInit(0));
    if (argument_count > 1) {
        leave();
        return 0;
    }
    for (int i = 0; i < 2; i++)
        CHECK(cuCtxCreate(&contexts[i], NULL, 0, 0));
    CHECK(cuDevicePrimaryCtxRetain(&primary, 0));
    CHECK(cuMemFree(program_alloc(1 << 20)));
    CHECK(cuDevicePrimaryCtxRelease(0));
    for (int i = 0; i < 2; i++)
        CHECK(cuCtxDestroy(contexts[i]));
    return 0;
}
