/* link: -l:libcuda.so.1 -l:libcudart.so.13 -l:libnvidia-ml.so.1 */
/* A thread makes its first calls, and ends, while another holds the dynamic linker's lock: the
 * constructor of a library that is being opened waits for it. Plain CUDA goes on: the driver, the
 * runtime and NVML have been started, and take that lock no more.
 *
 * usage: loader PATH/libwaits.so */
#include "tests/preload/progs/program.h"
#include "tests/simcuda/nvml/nvml_abi.h"

#include <cuda_runtime_api.h>
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

static void demand(int result, int line)
{
    if (result == 0)
        return;
    fprintf(stderr, "line %d: %d\n", line, result);
    exit(EXIT_FAILURE);
}
#define DEMAND(call) demand((int)(call), __LINE__)

/* Each call of the runtime's is a new one here, and most of the functions are. */
static void use_runtime(void)
{
    cudaStream_t stream = NULL;
    size_t free_bytes, total_bytes;
    void *block = NULL;
    step("runtime");
    DEMAND(cudaSetDevice(0));
    DEMAND(cudaMalloc(&block, BYTES));
    DEMAND(cudaFree(block));
    DEMAND(cudaMalloc(&block, 2 * BYTES));
    DEMAND(cudaMemset(block, 1, BYTES));
    DEMAND(cudaFree(block));
    DEMAND(cudaStreamCreate(&stream));
    DEMAND(cudaMallocAsync(&block, BYTES, stream));
    DEMAND(cudaFreeAsync(block, stream));
    DEMAND(cudaStreamDestroy(stream));
    DEMAND(cudaMallocManaged(&block, BYTES, cudaMemAttachGlobal));
    DEMAND(cudaFree(block));
    DEMAND(cudaMallocHost(&block, BYTES));
    DEMAND(cudaFreeHost(block));
    DEMAND(cudaMemGetInfo(&free_bytes, &total_bytes));
    DEMAND(cudaDeviceSynchronize());
}

static void use_nvml(void)
{
    struct nvmlDevice_st *device = NULL;
    __typeof__(nvmlDeviceGetMemoryInfo) *ask = nvmlDeviceGetMemoryInfo;
    nvmlMemory_t memory;
    step("nvml");
    DEMAND(nvmlDeviceGetHandleByIndex_v2(0, &device));
    DEMAND(ask(device, &memory));
}

static void use_contexts(void)
{
    static const CUuuid no_table;
    CUcontext second = NULL;
    CUdriverProcAddressQueryResult status;
    const void *table;
    void *function;
    step("names");
    (void)cuGetExportTable(&table, &no_table);
    CHECK(cuGetProcAddress("cuMemAlloc", &function, 13000, 0, &status));
    step("context");
    CHECK(cuCtxCreate(&second, NULL, 0, 0));
    CHECK(cuMemFree(program_alloc(BYTES)));
    CHECK(cuCtxDestroy(second));
    CHECK(cuCtxSetCurrent(context));
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
    use_runtime();
    use_nvml();
    use_contexts();
    step("end");
    return unused;
}

int main(int argument_count, char **arguments)
{
    char text[32];
    int count;
    context = program_start();
    DEMAND(cudaGetDeviceCount(&count));
    DEMAND(nvmlInit_v2());
    kept = program_alloc(BYTES);
    snprintf(text, sizeof(text), "%lx", (unsigned long)(uintptr_t)run);
    setenv("LIBWAITS_RUN", text, 1);
    if (argument_count < 2 || dlopen(arguments[1], RTLD_NOW) == NULL)
        return EXIT_FAILURE;
    step("loaded");
    return EXIT_SUCCESS;
}
