/* link: -l:libcuda.so.1 */
/* What programs lean on in a free: that work submitted before it has ended, and that it returns the
 * error of such work. usage: barrier, with SIMCUDA_WORK_US. Prints what holds. */
#include "tests/preload/progs/program.h"

#include <string.h>

#define BYTES 4096

int main(void)
{
    volatile unsigned char *results;
    void *pinned;
    CUdeviceptr source, other;
    CUstream stream;

    program_start();
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemHostAlloc(&pinned, BYTES, 0));
    results = pinned;
    memset(pinned, 0, BYTES);
    source = program_alloc(BYTES);
    other = program_alloc(BYTES);
    CHECK(cuMemsetD8Async(source, 7, BYTES, stream));
    CHECK(cuMemcpyDtoHAsync(pinned, source, BYTES, stream));
    CHECK(cuMemFree(other));
    printf("results after the free: %s\n", results[BYTES - 1] == 7 ? "there" : "not yet");
    CHECK(cuStreamSynchronize(stream));
    printf("results after synchronization: %s\n", results[BYTES - 1] == 7 ? "there" : "lost");

    other = program_alloc(BYTES);
    CHECK(cuMemsetD8Async((CUdeviceptr)64, 7, BYTES, stream)); /* memory that nobody has */
    printf("the free returns %d\n", (int)cuMemFree(other));
    printf("synchronization returns %d\n", (int)cuStreamSynchronize(stream));
    return 0;
}
