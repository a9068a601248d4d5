/* A program that does as it is told, for tests of what is done to it from outside. A line of input,
 * a line of output: "alloc MiB" the code; "kib KiB" the same; "free N" the code of freeing the N-th
 * allocation, from 0; "info" free and total bytes; "device N" goes on on that device. Ends with its
 * input. */
/* link: -l:libcuda.so.1 */
#include "tests/preload/progs/program.h"

#include <stdbool.h>
#include <string.h>

#define BLOCKS_MAX 256

int main(void)
{
    char line[64];
    CUdeviceptr blocks[BLOCKS_MAX];
    unsigned count = 0;
    program_start();
    printf("ready\n");
    fflush(stdout);
    while (fgets(line, sizeof(line), stdin) != NULL) {
        unsigned number = 0;
        char word[16] = "";
        if (sscanf(line, "%15s %u", word, &number) < 1)
            return EXIT_FAILURE;
        const bool in_kib = strcmp(word, "kib") == 0;
        if ((in_kib || strcmp(word, "alloc") == 0) && count < BLOCKS_MAX) {
            const CUresult result =
                cuMemAlloc(&blocks[count], (size_t)number << (in_kib ? 10 : 20));
            count += result == CUDA_SUCCESS;
            printf("%d\n", (int)result);
        } else if (strcmp(word, "free") == 0 && number < count) {
            printf("%d\n", (int)cuMemFree(blocks[number]));
        } else if (strcmp(word, "device") == 0) {
            CUcontext context;
            CHECK(cuDevicePrimaryCtxRetain(&context, (CUdevice)number));
            CHECK(cuCtxSetCurrent(context));
            printf("0\n");
        } else {
            size_t available = 0, total = 0;
            CHECK(cuMemGetInfo(&available, &total));
            printf("%zu %zu\n", available, total);
        }
        fflush(stdout);
    }
    return EXIT_SUCCESS;
}
