/* Takes device memory for the tests of the engines.
 *
 * usage: fill PIECE_MIB COUNT [FOLDER]. Allocates pieces until COUNT are there or one is refused,
 * and prints `pieces N` or `pieces N refused`. With FOLDER it then makes FOLDER/PID and waits until
 * FOLDER/go is there. */
/* link: -l:libcuda.so.1 */
#include "tests/preload/progs/program.h"

#include <unistd.h>

int main(int argc, char **argv)
{
    CUcontext context;
    CUdeviceptr piece;
    CUresult result = CUDA_SUCCESS;
    unsigned long count = 0;
    char path[4096];

    if (argc < 3)
        return EXIT_FAILURE;
    CHECK(cuInit(0));
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cuCtxSetCurrent(context));
    while (count < strtoul(argv[2], NULL, 10)) {
        result = cuMemAlloc(&piece, strtoul(argv[1], NULL, 10) << 20);
        if (result != CUDA_SUCCESS)
            break;
        count++;
    }
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_OUT_OF_MEMORY)
        CHECK(result);
    printf("pieces %lu%s\n", count, result == CUDA_SUCCESS ? "" : " refused");
    fflush(stdout);
    if (argc < 4)
        return EXIT_SUCCESS;
    snprintf(path, sizeof(path), "%s/%d", argv[3], (int)getpid());
    fclose(fopen(path, "w"));
    snprintf(path, sizeof(path), "%s/go", argv[3]);
    while (access(path, F_OK) != 0)
        usleep(10000);
    return EXIT_SUCCESS;
}
