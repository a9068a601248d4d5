/* link: -l:libcuda.so.1 */
/* A thread makes its first calls, and ends, while another holds the dynamic linker's lock: the
 * constructor of a library that is being opened waits for it. Plain CUDA goes on.
 *
 * usage: loader PATH/libwaits.so */
#include "program.h"

#include <dlfcn.h>
#include <stdint.h>

#define BYTES 4096

static CUcontext context;
static CUdeviceptr kept;

static void step(const char *name)
{
    printf("%s\n", name);
    fflush(stdout);
}

static void *run(void *unused)
{
    CUdeviceptr block = 0;
    CUstream stream = NULL;
    CUgraph graph = NULL;
    size_t free_bytes, total_bytes;
    CHECK(cuCtxSetCurrent(context));
    step("free");
    CHECK(cuMemFree(kept));
    step("alloc");
    block = program_alloc(BYTES);
    step("work");
    CHECK(cuMemsetD8(block, 1, BYTES));
    CHECK(cuMemFree(block));
    step("stream");
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemsetD8Async(program_alloc(BYTES), 1, BYTES, stream));
    step("async");
    CHECK(cuMemAllocAsync(&block, BYTES, stream));
    CHECK(cuMemFreeAsync(block, stream));
    step("capture");
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    block = program_alloc(BYTES);
    CHECK(cuStreamEndCapture(stream, &graph));
    CHECK(cuGraphDestroy(graph));
    CHECK(cuMemFree(block));
    step("ask");
    CHECK(cuMemGetInfo(&free_bytes, &total_bytes));
    CHECK(cuStreamDestroy(stream));
    CHECK(cuCtxSynchronize());
    step("end");
    return unused;
}

int main(int argument_count, char **arguments)
{
    char text[32];
    context = program_start();
    kept = program_alloc(BYTES);
    snprintf(text, sizeof(text), "%lx", (unsigned long)(uintptr_t)run);
    setenv("LIBWAITS_RUN", text, 1);
    if (argument_count < 2 || dlopen(arguments[1], RTLD_NOW) == NULL)
        return EXIT_FAILURE;
    step("loaded");
    return EXIT_SUCCESS;
}
