/* A program that obeys commands, for tests that change it from outside. A line of input, a line of
 * output: "alloc MiB" the code; "kib KiB" the same; "free N" the code of freeing the N-th
 * allocation, from 0; "info" free and total bytes; "device N" goes on on that device; "fill N"
 * fills all that is allocated with that byte, by work in two streams; "check N" prints "same" if it
 * is all there; "capture 1" begins a capture, "capture 0" ends it; "pause" pauses the process by
 * the library's API. Ends with its input. */
/* link: -l:libcuda.so.1 */
#define _GNU_SOURCE
#include "tests/preload/progs/program.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <string.h>

#define BLOCKS_MAX 256

static CUdeviceptr blocks[BLOCKS_MAX];
static size_t sizes[BLOCKS_MAX]; /* 0: freed */
static unsigned count;
static CUstream streams[2];

static int allocate(size_t bytes)
{
    const CUresult result = cuMemAlloc(&blocks[count], bytes);
    if (result == CUDA_SUCCESS)
        sizes[count++] = bytes;
    return (int)result;
}

static int fill(unsigned char value)
{
    for (unsigned i = 0; i < count; i++)
        if (sizes[i] != 0)
            CHECK(cuMemsetD8Async(blocks[i], value, sizes[i], streams[i % 2]));
    return 0;
}

static const char *check(unsigned char value)
{
    static unsigned char seen[1 << 20];
    CHECK(cuCtxSynchronize());
    for (unsigned i = 0; i < count; i++) {
        for (size_t at = 0; at < sizes[i]; at += sizeof(seen)) {
            const size_t bytes = sizes[i] - at < sizeof(seen) ? sizes[i] - at : sizeof(seen);
            CHECK(cuMemcpyDtoH(seen, blocks[i] + at, bytes));
            for (size_t byte = 0; byte < bytes; byte++)
                if (seen[byte] != value)
                    return "differs";
        }
    }
    return "same";
}

static int capture(bool begins)
{
    CUgraph graph;
    if (begins)
        return (int)cuStreamBeginCapture(streams[0], CU_STREAM_CAPTURE_MODE_GLOBAL);
    const CUresult result = cuStreamEndCapture(streams[0], &graph);
    if (result == CUDA_SUCCESS)
        CHECK(cuGraphDestroy(graph));
    return (int)result;
}

static int pause_process(void)
{
    int (*pause_it)(int, unsigned, unsigned long long *);
    void *found = dlsym(RTLD_DEFAULT, "gpucache_pause");
    if (found == NULL)
        return -1;
    memcpy(&pause_it, &found, sizeof(found)); /* ISO C has no cast from an object to a function */
    return pause_it(1, 10000, NULL);
}

int main(void)
{
    char line[64];
    program_start();
    for (unsigned i = 0; i < 2; i++)
        CHECK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
    printf("ready\n");
    fflush(stdout);
    while (fgets(line, sizeof(line), stdin) != NULL) {
        unsigned number = 0;
        char word[16] = "";
        if (sscanf(line, "%15s %u", word, &number) < 1)
            return EXIT_FAILURE;
        const bool in_kib = strcmp(word, "kib") == 0;
        if ((in_kib || strcmp(word, "alloc") == 0) && count < BLOCKS_MAX) {
            printf("%d\n", allocate((size_t)number << (in_kib ? 10 : 20)));
        } else if (strcmp(word, "free") == 0 && number < count) {
            const CUresult result = cuMemFree(blocks[number]);
            sizes[number] = result == CUDA_SUCCESS ? 0 : sizes[number];
            printf("%d\n", (int)result);
        } else if (strcmp(word, "fill") == 0) {
            printf("%d\n", fill((unsigned char)number));
        } else if (strcmp(word, "check") == 0) {
            printf("%s\n", check((unsigned char)number));
        } else if (strcmp(word, "pause") == 0) {
            printf("%d\n", pause_process());
        } else if (strcmp(word, "capture") == 0) {
            printf("%d\n", capture(number != 0));
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
