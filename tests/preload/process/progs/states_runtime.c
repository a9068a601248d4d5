/* link: -l:libcuda.so.1 -l:libcudart.so.13 -lpthread */
/* As states.c, through the runtime: the results of its memory calls without a current context, in a
 * host function, in a capture and in a context that has failed. Run without the library and in each
 * of its modes, the output must be the same. */
#include "tests/preload/progs/program.h"

#include <cuda_runtime_api.h>

#include <stdint.h>

#define SMALL 4096
#define LARGE ((size_t)40 << 20)
#define HITS 100
#define NOWHERE ((void *)(uintptr_t)((uint64_t)1 << 45))

static cudaStream_t stream;

static void print_result(const char *what, cudaError_t result)
{
    printf("  %s: %d, last error %d\n", what, (int)result, (int)cudaGetLastError());
}

static void demand(cudaError_t result, int line)
{
    if (result == cudaSuccess)
        return;
    fprintf(stderr, "line %d: %d\n", line, (int)result);
    exit(EXIT_FAILURE);
}
#define DEMAND(call) demand((call), __LINE__)

struct things {
    void *small, *large, *ordered, *spare;
};

/* So that the calls that follow would be hits. */
static void warm_up(void)
{
    void *block;

    for (int i = 0; i < HITS; i++) {
        DEMAND(cudaMalloc(&block, SMALL));
        DEMAND(cudaFree(block));
    }
}

static struct things take(void)
{
    struct things things;

    warm_up();
    DEMAND(cudaMalloc(&things.small, SMALL));
    DEMAND(cudaMalloc(&things.large, LARGE));
    DEMAND(cudaMalloc(&things.spare, SMALL));
    DEMAND(cudaMallocAsync(&things.ordered, SMALL, stream));
    DEMAND(cudaStreamSynchronize(stream));
    return things;
}

static void try_all(const struct things *things)
{
    void *block = NULL;
    size_t pitch = 0;

    print_result("malloc", cudaMalloc(&block, SMALL));
    print_result("malloc of a large block", cudaMalloc(&block, LARGE));
    print_result("pitched", cudaMallocPitch(&block, &pitch, 1000, 10));
    print_result("malloc in order", cudaMallocAsync(&block, SMALL, stream));
    print_result("free", cudaFree(things->small));
    print_result("free of a large block", cudaFree(things->large));
    print_result("free in order", cudaFreeAsync(things->ordered, stream));
    print_result("free in order of plain memory", cudaFreeAsync(things->spare, stream));
    print_result("free of nothing", cudaFree(NULL));
}

static void give(const struct things *things)
{
    print_result("right free", cudaFree(things->small));
    print_result("right free of a large block", cudaFree(things->large));
    print_result("right free in order", cudaFreeAsync(things->ordered, stream));
    print_result("right free in order of plain memory", cudaFreeAsync(things->spare, stream));
    print_result("stream", cudaStreamSynchronize(stream));
}

static void CUDART_CB host_function(void *argument)
{
    try_all(argument);
}

static void CUDART_CB callback(cudaStream_t of, cudaError_t status, void *argument)
{
    (void)of;
    (void)status;
    try_all(argument);
}

static void captures(void)
{
    for (int mode = 0; mode < 3; mode++) {
        const struct things things = take();
        cudaGraph_t graph = NULL;
        void *block = NULL;

        printf("capture of mode %d\n", mode);
        DEMAND(cudaStreamBeginCapture(stream, (enum cudaStreamCaptureMode)mode));
        print_result("malloc", cudaMalloc(&block, SMALL));
        print_result("free", cudaFree(things.small));
        print_result("free of a large block", cudaFree(things.large));
        if (block != NULL)
            print_result("free of what is new", cudaFree(block));
        print_result("end", cudaStreamEndCapture(stream, &graph));
        give(&things);
    }
}

int main(void)
{
    struct things things;
    CUcontext context;
    CUdeviceptr unused;

    setvbuf(stdout, NULL, _IOLBF, 0);
    DEMAND(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    things = take();
    printf("no context\n");
    CHECK(cuCtxGetCurrent(&context));
    CHECK(cuCtxSetCurrent(NULL));
    printf("  the driver's alloc: %d\n", (int)cuMemAlloc(&unused, SMALL));
    try_all(&things);
    CHECK(cuCtxSetCurrent(context));
    things = take();
    printf("host function\n");
    DEMAND(cudaLaunchHostFunc(stream, host_function, &things));
    DEMAND(cudaStreamSynchronize(stream));
    printf("callback\n");
    DEMAND(cudaStreamAddCallback(stream, callback, &things, 0));
    DEMAND(cudaStreamSynchronize(stream));
    give(&things);
    captures();
    things = take();
    printf("failed\n");
    DEMAND(cudaMemsetAsync(NOWHERE, 1, 16, stream));
    print_result("stream", cudaStreamSynchronize(stream));
    try_all(&things);
    print_result("device", cudaDeviceSynchronize());
    print_result("reset", cudaDeviceReset());
    print_result("malloc after the reset", cudaMalloc(&things.small, SMALL));
    print_result("free", cudaFree(things.small));
    return EXIT_SUCCESS;
}
