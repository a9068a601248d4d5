/* Device memory taken at first use, as SIMCUDA_LAZY asks for: CUDA Programming Guide, "Lazy
 * Loading", and cuCtxSetLimit. */
/* link: -l:libcuda.so.1 */
#include "tests/unit/sim_test.h"

#define MIB (UINT64_C(1) << 20)
#define DEVICE_BYTES (2048 * MIB)
/* A module takes its image and 30 MiB; both fit in 32. */
#define MODULE_BYTES (32 * MIB)

#define HEAD ".version 8.0\n.target sm_90\n.address_size 64\n"
static const char plain[] = HEAD ".visible .entry k()\n{\n ret;\n}\n";
static const char chatty[] = HEAD ".extern .func (.param .b32 r) vprintf(.param .b64 a);\n"
                                  ".visible .entry k()\n{\n ret;\n}\n";
static const char greedy[] = HEAD ".extern .func (.param .b64 r) malloc(.param .b64 a);\n"
                                  ".visible .entry k()\n{\n ret;\n}\n";
static const char deep[] =
    HEAD ".visible .entry k()\n{\n .local .align 16 .b8 __local_depot0[2048];\n ret;\n}\n";

static uint64_t used_bytes(void)
{
    size_t free_bytes, total;
    assert_cuda(cuMemGetInfo(&free_bytes, &total));
    return total - free_bytes;
}

static CUfunction load(const char *image)
{
    CUfunction function;
    CUmodule module;
    assert_cuda(cuModuleLoadData(&module, image));
    assert_cuda(cuModuleGetFunction(&function, module, "k"));
    return function;
}

static CUresult launch(CUfunction function)
{
    return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
}

static void a_module_takes_its_memory_at_the_first_launch(void **state)
{
    uint64_t before = used_bytes();
    CUfunction function = load(plain);
    CUfunctionLoadingState loading;
    CUmoduleLoadingMode mode;
    CUmodule module;

    (void)state;
    assert_cuda(cuModuleGetLoadingMode(&mode));
    assert_int_equal(mode, CU_MODULE_LAZY_LOADING);
    assert_int_equal(used_bytes(), before);
    assert_cuda(cuFuncIsLoaded(&loading, function));
    assert_int_equal(loading, CU_FUNCTION_LOADING_STATE_UNLOADED);
    assert_cuda(launch(function));
    assert_int_equal(used_bytes(), before + MODULE_BYTES);
    assert_cuda(launch(function));
    assert_int_equal(used_bytes(), before + MODULE_BYTES);
    assert_cuda(cuFuncIsLoaded(&loading, function));
    assert_int_equal(loading, CU_FUNCTION_LOADING_STATE_LOADED);
    assert_cuda(cuFuncGetModule(&module, function));
    assert_cuda(cuModuleUnload(module));
    assert_int_equal(used_bytes(), before);
}

static void a_library_takes_its_memory_at_the_first_launch(void **state)
{
    uint64_t before = used_bytes();
    CUlibrary library;
    CUkernel kernel;

    (void)state;
    assert_cuda(cuLibraryLoadData(&library, plain, NULL, NULL, 0, NULL, NULL, 0));
    assert_cuda(cuLibraryGetKernel(&kernel, library, "k"));
    assert_int_equal(used_bytes(), before);
    assert_cuda(launch((CUfunction)kernel));
    assert_int_equal(used_bytes(), before + MODULE_BYTES);
    assert_cuda(cuLibraryUnload(library));
    assert_int_equal(used_bytes(), before);
}

static void printf_and_malloc_take_their_limits_once(void **state)
{
    uint64_t before = used_bytes();

    (void)state;
    assert_cuda(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 100 * MIB));
    assert_int_equal(used_bytes(), before);
    assert_cuda(launch(load(chatty)));
    assert_int_equal(used_bytes(), before + MODULE_BYTES + 8 * MIB); /* 7 MiB, in steps of 2 */
    assert_cuda(launch(load(greedy)));
    assert_int_equal(used_bytes(), before + 2 * MODULE_BYTES + 108 * MIB);
    assert_cuda(launch(load(greedy)));
    assert_int_equal(used_bytes(), before + 3 * MODULE_BYTES + 108 * MIB);
    /* "must be performed prior to launching any kernel" */
    assert_result(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, MIB), CUDA_ERROR_INVALID_VALUE);
    assert_result(cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, MIB), CUDA_ERROR_INVALID_VALUE);
}

/* 132 multiprocessors of 2,048 threads: 264 MiB for a KiB more of each thread. */
static void stacks_are_of_all_resident_threads(void **state)
{
    uint64_t before = used_bytes();

    (void)state;
    assert_cuda(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 2048));
    assert_int_equal(used_bytes(), before + 264 * MIB);
    assert_cuda(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 1024));
    assert_int_equal(used_bytes(), before);
    assert_cuda(launch(load(deep))); /* "increases the per-thread stack size … as needed" */
    assert_int_equal(used_bytes(), before + MODULE_BYTES + 264 * MIB);
}

/* Local memory is the launched kernel's, not that of another one of its module. */
static void another_kernels_stack_takes_nothing(void **state)
{
    static const char mixed[] =
        HEAD ".visible .entry huge()\n{\n .local .align 16 .b8 depot[65536];\n ret;\n}\n"
             ".visible .entry k(.param .u64 n)\n{\n ret;\n}\n"
             ".visible .entry kk()\n{\n .local .align 16 .b8 depot[2048];\n ret;\n}\n";
    uint64_t before = used_bytes();
    CUfunction function = load(mixed), other;
    CUmodule module;
    int bytes;

    (void)state;
    assert_cuda(cuFuncGetAttribute(&bytes, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, function));
    assert_int_equal(bytes, 0);
    assert_cuda(launch(function));
    assert_int_equal(used_bytes(), before + MODULE_BYTES);
    assert_cuda(cuFuncGetModule(&module, function));
    assert_cuda(cuModuleGetFunction(&other, module, "kk"));
    assert_cuda(launch(other));
    assert_int_equal(used_bytes(), before + MODULE_BYTES + 264 * MIB);
    assert_cuda(cuModuleGetFunction(&other, module, "huge"));
    assert_result(launch(other), CUDA_ERROR_OUT_OF_MEMORY);
}

static void copies_fills_streams_and_events_take_little(void **state)
{
    uint64_t before = used_bytes();
    CUstream streams[17];
    CUdeviceptr address;
    CUevent event;
    int word = 0;

    (void)state;
    assert_cuda(cuMemAlloc(&address, MIB));
    assert_cuda(cuMemcpyHtoD(address, &word, sizeof word));
    assert_int_equal(used_bytes(), before + 4 * MIB);
    assert_cuda(cuMemsetD8(address, 0, MIB));
    assert_int_equal(used_bytes(), before + 6 * MIB);
    for (int i = 0; i < 17; i++)
        assert_cuda(cuStreamCreate(&streams[i], 0)); /* 128 KiB each */
    assert_int_equal(used_bytes(), before + 10 * MIB);
    assert_cuda(cuEventCreate(&event, 0));
    assert_int_equal(used_bytes(), before + 10 * MIB);
    for (int i = 0; i < 17; i++)
        assert_cuda(cuStreamDestroy(streams[i]));
    for (int i = 0; i < 17; i++)
        assert_cuda(cuStreamCreate(&streams[i], 0)); /* out of the same granules */
    assert_int_equal(used_bytes(), before + 10 * MIB);
}

static void nothing_is_left_where_the_device_is_full(void **state)
{
    CUfunction function = load(plain), other = load(deep);
    CUdeviceptr block, last;
    CUgraphExec exec;
    CUgraphNode node;
    CUevent event;
    CUstream stream;
    CUgraph graph;

    (void)state;
    assert_cuda(cuGraphCreate(&graph, 0));
    assert_cuda(cuGraphAddEmptyNode(&node, graph, NULL, 0));
    assert_cuda(cuGraphInstantiate(&exec, graph, 0));
    assert_cuda(cuMemAlloc(&block, DEVICE_BYTES - used_bytes() - MODULE_BYTES));
    assert_cuda(cuMemAlloc(&last, MODULE_BYTES));
    assert_result(launch(function), CUDA_ERROR_OUT_OF_MEMORY);
    assert_result(cuMemsetD8(block, 0, MIB), CUDA_ERROR_OUT_OF_MEMORY);
    assert_result(cuMemcpyDtoD(block, last, MIB), CUDA_ERROR_OUT_OF_MEMORY);
    assert_result(cuStreamCreate(&stream, 0), CUDA_ERROR_OUT_OF_MEMORY);
    assert_result(cuEventCreate(&event, 0), CUDA_ERROR_OUT_OF_MEMORY);
    assert_result(cuGraphLaunch(exec, NULL), CUDA_ERROR_OUT_OF_MEMORY);
    assert_result(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4096), CUDA_ERROR_OUT_OF_MEMORY);
    assert_cuda(cuMemFree(last));
    assert_result(launch(other), CUDA_ERROR_OUT_OF_MEMORY); /* its stacks need more */
    assert_cuda(launch(function));
    assert_result(cuGraphLaunch(exec, NULL), CUDA_ERROR_OUT_OF_MEMORY);
    assert_cuda(cuMemFree(block));
    assert_cuda(cuGraphLaunch(exec, NULL));
    assert_cuda(launch(other));
    assert_cuda(cuGraphExecDestroy(exec));
    assert_cuda(cuGraphDestroy(graph));
}

/* All of it goes with the context. */
static int drop_and_look(void **state)
{
    CUcontext context;
    int failed = drop_context(state);

    if (failed || cuCtxCreate(&context, NULL, 0, 0))
        return -1;
    return used_bytes() != 64 * MIB || cuCtxDestroy(context);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, make_context, drop_and_look)
    const struct CMUnitTest tests[] = {
        CASE(a_module_takes_its_memory_at_the_first_launch),
        CASE(a_library_takes_its_memory_at_the_first_launch),
        CASE(printf_and_malloc_take_their_limits_once),
        CASE(stacks_are_of_all_resident_threads),
        CASE(another_kernels_stack_takes_nothing),
        CASE(copies_fills_streams_and_events_take_little),
        CASE(nothing_is_left_where_the_device_is_full),
    };

    setenv("SIMCUDA_LAZY", "30MiB", 1);
    setenv("SIMCUDA_MEMORY", "2GiB", 1);
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
