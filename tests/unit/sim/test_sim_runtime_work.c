/* The stand-in runtime: registration and launches, streams and their two default ones, copies of
 * every shape, arrays, capture and graphs, errors that stay. Each case pins what NVIDIA documents.
 */
/* link: -Wl,--no-as-needed -l:libcudart.so.13 -l:libcuda.so.1 -pthread */
#include "tests/unit/cmocka_all.h"

#include "tests/simcuda/runtime/stubs.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define assert_done(call) assert_int_equal(call, cudaSuccess)

/* ---- a program's code, as nvcc's stubs register it ---- */

static const char image[] = ".version 8.8\n.target sm_90\n.address_size 64\n"
                            ".visible .global .align 4 .b8 table[256];\n"
                            ".visible .entry probe(\n.param .u64 probe_param_0\n)\n{\nret;\n}\n";
static struct {
    int magic;
    int version;
    const void *data;
    void *more;
} wrapper = {0x466243b1, 1, image, NULL};

static char probe_stub, missing_stub, unknown_stub, table_shadow; /* host addresses */
static char probe_name[] = "probe", missing_name[] = "missing", table_name[] = "table";

static void **registered;

static int start(void **state)
{
    (void)state;
    if (cudaDeviceReset() != cudaSuccess || cudaSetDevice(0) != cudaSuccess)
        return -1;
    (void)cudaGetLastError();
    registered = __cudaRegisterFatBinary(&wrapper);
    __cudaRegisterFunction(registered, &probe_stub, probe_name, probe_name, -1, NULL, NULL, NULL,
                           NULL, NULL);
    __cudaRegisterFunction(registered, &missing_stub, missing_name, missing_name, -1, NULL, NULL,
                           NULL, NULL, NULL);
    __cudaRegisterVar(registered, &table_shadow, table_name, table_name, 0, 256, 0, 0);
    __cudaRegisterFatBinaryEnd(registered);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    __cudaUnregisterFatBinary(registered);
    return 0;
}

static const dim3 one = {1, 1, 1};

static void launches_by_the_stubs_address(void **state)
{
    const dim3 wide = {4096, 1, 1}, none = {0, 1, 1};
    void *argument = NULL, *arguments[] = {&argument};

    (void)state;
    assert_done(cudaLaunchKernel(&probe_stub, one, one, arguments, 0, NULL));
    assert_done(cudaLaunchKernel_ptsz(&probe_stub, one, one, arguments, 0, NULL));
    assert_done(cudaDeviceSynchronize());
    assert_int_equal(cudaLaunchKernel(&unknown_stub, one, one, arguments, 0, NULL),
                     cudaErrorInvalidDeviceFunction);
    assert_int_equal(cudaLaunchKernel(&missing_stub, one, one, arguments, 0, NULL),
                     cudaErrorInvalidDeviceFunction);
    assert_int_equal(cudaLaunchKernel(&probe_stub, none, one, arguments, 0, NULL),
                     cudaErrorInvalidConfiguration);
    assert_int_equal(cudaLaunchKernel(&probe_stub, one, wide, arguments, 0, NULL),
                     cudaErrorInvalidConfiguration);
    assert_int_equal(cudaGetLastError(), cudaErrorInvalidConfiguration);
}

static void launches_by_kernel_handle_outlive_a_reset(void **state)
{
    void *argument = NULL, *arguments[] = {&argument};
    cudaKernel_t kernel = NULL, again = NULL;

    (void)state;
    assert_done(__cudaGetKernel(&kernel, &probe_stub));
    assert_done(cudaGetKernel(&again, &probe_stub));
    assert_ptr_equal(kernel, again);
    assert_done(__cudaLaunchKernel(kernel, one, one, arguments, 0, NULL));
    assert_done(cudaLaunchKernel(kernel, one, one, arguments, 0, NULL));
    assert_done(cudaDeviceReset());
    assert_done(__cudaLaunchKernel(kernel, one, one, arguments, 0, NULL));
    assert_done(cudaDeviceSynchronize());
}

static void call_configurations_nest(void **state)
{
    dim3 grid, block;
    size_t shared;
    cudaStream_t stream;

    (void)state;
    assert_int_equal(__cudaPushCallConfiguration((dim3){1, 2, 3}, one, 10, cudaStreamLegacy), 0);
    assert_int_equal(__cudaPushCallConfiguration((dim3){4, 5, 6}, one, 20, NULL), 0);
    assert_done(__cudaPopCallConfiguration(&grid, &block, &shared, &stream));
    assert_int_equal(grid.z, 6);
    assert_int_equal(shared, 20);
    assert_null(stream);
    assert_done(__cudaPopCallConfiguration(&grid, &block, &shared, &stream));
    assert_int_equal(grid.z, 3);
    assert_ptr_equal(stream, cudaStreamLegacy);
    assert_int_equal(__cudaPopCallConfiguration(&grid, &block, &shared, &stream),
                     cudaErrorMissingConfiguration);
}

static void functions_report_their_attributes(void **state)
{
    struct cudaFuncAttributes attributes;
    const char *name = NULL;
    int blocks = 0;

    (void)state;
    assert_done(cudaFuncGetAttributes(&attributes, &probe_stub));
    assert_true(attributes.maxThreadsPerBlock > 0);
    assert_done(
        cudaFuncSetAttribute(&probe_stub, cudaFuncAttributeMaxDynamicSharedMemorySize, 65536));
    assert_done(cudaFuncGetAttributes(&attributes, &probe_stub));
    assert_int_equal(attributes.maxDynamicSharedSizeBytes, 65536);
    assert_int_equal(cudaFuncSetAttribute(&probe_stub, (enum cudaFuncAttribute)0, 1),
                     cudaErrorInvalidValue);
    assert_int_equal(cudaFuncGetAttributes(&attributes, &unknown_stub),
                     cudaErrorInvalidDeviceFunction);
    assert_done(cudaFuncGetName(&name, &probe_stub));
    assert_string_equal(name, "probe");
    assert_done(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, &probe_stub, 128, 0));
    assert_true(blocks > 0);
}

static void symbols_are_copied_within_their_bounds(void **state)
{
    char in[256], out[256] = {0};
    size_t bytes = 0;
    void *address = NULL;

    (void)state;
    memset(in, 7, sizeof(in));
    assert_done(cudaGetSymbolSize(&bytes, &table_shadow));
    assert_int_equal(bytes, 256);
    assert_done(cudaGetSymbolAddress(&address, &table_shadow));
    assert_done(cudaMemcpyToSymbol(&table_shadow, in, 200, 56, cudaMemcpyHostToDevice));
    assert_done(cudaMemcpyFromSymbol(out, &table_shadow, 200, 56, cudaMemcpyDeviceToHost));
    assert_memory_equal(in, out, 200);
    assert_int_equal(cudaMemcpyToSymbol(&table_shadow, in, 201, 56, cudaMemcpyHostToDevice),
                     cudaErrorInvalidValue);
    assert_int_equal(cudaMemcpyToSymbol(&table_shadow, in, 8, 0, cudaMemcpyDeviceToHost),
                     cudaErrorInvalidMemcpyDirection);
    assert_int_equal(cudaGetSymbolSize(&bytes, &unknown_stub), cudaErrorInvalidSymbol);
}

/* ---- streams ---- */

static atomic_bool gate_is_open;

static void CUDART_CB wait_at_gate(void *argument)
{
    (void)argument;
    while (!atomic_load(&gate_is_open))
        usleep(100);
}

static void not_ready_is_no_error(void **state)
{
    cudaStream_t stream;
    cudaEvent_t event;

    (void)state;
    assert_done(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    assert_done(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    atomic_store(&gate_is_open, false);
    assert_done(cudaLaunchHostFunc(stream, wait_at_gate, NULL));
    assert_done(cudaEventRecord(event, stream));
    assert_int_equal(cudaStreamQuery(stream), cudaErrorNotReady);
    assert_int_equal(cudaEventQuery(event), cudaErrorNotReady);
    assert_int_equal(cudaPeekAtLastError(), cudaSuccess);
    atomic_store(&gate_is_open, true);
    assert_done(cudaStreamSynchronize(stream));
    assert_done(cudaStreamQuery(stream));
    assert_done(cudaEventQuery(event));
    assert_done(cudaEventDestroy(event));
    assert_done(cudaStreamDestroy(stream));
    assert_int_equal(cudaStreamDestroy(NULL), cudaErrorInvalidResourceHandle);
}

static void *per_thread_id(void *argument)
{
    (void)cudaStreamGetId_ptsz(NULL, argument);
    return NULL;
}

static void per_thread_default_stream_is_each_threads_own(void **state)
{
    unsigned long long legacy, mine, named, other = 0;
    pthread_t thread;

    (void)state;
    assert_done(cudaStreamGetId(NULL, &legacy));
    assert_done(cudaStreamGetId_ptsz(NULL, &mine));
    assert_done(cudaStreamGetId(cudaStreamPerThread, &named));
    assert_int_equal(pthread_create(&thread, NULL, per_thread_id, &other), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(legacy != mine);
    assert_true(mine == named);
    assert_true(other != 0 && other != mine && other != legacy);
}

/* Work on the calling thread's own stream does not hold up another thread's. */
static void *query_own_stream(void *argument)
{
    *(cudaError_t *)argument = cudaStreamQuery_ptsz(NULL);
    return NULL;
}

static void per_thread_streams_do_not_wait_for_each_other(void **state)
{
    cudaError_t other = cudaErrorUnknown;
    pthread_t thread;

    (void)state;
    atomic_store(&gate_is_open, false);
    assert_done(cudaLaunchHostFunc_ptsz(NULL, wait_at_gate, NULL));
    assert_int_equal(cudaStreamQuery_ptsz(NULL), cudaErrorNotReady);
    assert_int_equal(pthread_create(&thread, NULL, query_own_stream, &other), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    atomic_store(&gate_is_open, true);
    assert_done(cudaStreamSynchronize_ptsz(NULL));
    assert_int_equal(other, cudaSuccess);
}

/* ---- copies ---- */

static void copies_check_their_direction(void **state)
{
    char *p, text[8] = "gpu";

    (void)state;
    assert_done(cudaMalloc((void **)&p, 64));
    assert_done(cudaMemcpy(p, text, sizeof(text), cudaMemcpyDefault));
    memset(text, 0, sizeof(text));
    assert_done(cudaMemcpy(text, p, sizeof(text), cudaMemcpyDefault));
    assert_string_equal(text, "gpu");
    assert_int_equal(cudaMemcpy(p, text, 8, (enum cudaMemcpyKind)9),
                     cudaErrorInvalidMemcpyDirection);
    assert_int_equal(cudaMemcpy(p, text, 100, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    assert_done(cudaMemcpy(p, NULL, 0, cudaMemcpyHostToDevice));
    assert_int_equal(cudaMemcpy2D(p, 8, text, 8, 9, 1, cudaMemcpyHostToDevice),
                     cudaErrorInvalidPitchValue);
    assert_done(cudaFree(p));
}

static void box_is_filled_and_read_back(void **state)
{
    unsigned char out[3][4][5];
    struct cudaExtent all = {5, 4, 3};
    struct cudaPitchedPtr box;
    struct cudaMemcpy3DParms copy = {.extent = all, .kind = cudaMemcpyDeviceToHost};

    (void)state;
    assert_done(cudaMalloc3D(&box, all));
    assert_int_equal(box.xsize, 5);
    assert_int_equal(box.ysize, 4);
    assert_done(cudaMemset3D(box, 1, all));
    /* Rows 0 and 1 of each slice: not the whole slice, so slice after slice. */
    assert_done(cudaMemset3D(box, 2, (struct cudaExtent){2, 2, 3}));
    copy.srcPtr = box;
    copy.dstPtr = (struct cudaPitchedPtr){.ptr = out, .pitch = 5, .xsize = 5, .ysize = 4};
    assert_done(cudaMemcpy3D(&copy));
    for (int z = 0; z < 3; z++)
        for (int y = 0; y < 4; y++)
            for (int x = 0; x < 5; x++)
                assert_int_equal(out[z][y][x], y < 2 && x < 2 ? 2 : 1);
    copy.dstPtr.ptr = NULL;
    assert_int_equal(cudaMemcpy3D(&copy), cudaErrorInvalidValue);
    assert_done(cudaFree(box.ptr));
}

static void arrays_are_copied_by_rectangle_run_and_box(void **state)
{
    struct cudaChannelFormatDesc pair = cudaCreateChannelDesc(16, 16, 0, 0,
                                                              cudaChannelFormatKindSigned),
                                 found,
                                 odd = cudaCreateChannelDesc(8, 16, 0, 0,
                                                             cudaChannelFormatKindSigned);
    unsigned char in[32 * 8], out[32 * 8] = {0};
    struct cudaExtent extent;
    struct cudaMemcpy3DParms copy = {.extent = {8, 8, 1}, .kind = cudaMemcpyDeviceToHost};
    unsigned flags = 9;
    cudaArray_t array;

    (void)state;
    for (unsigned i = 0; i < sizeof(in); i++)
        in[i] = (unsigned char)(i * 7);
    assert_int_equal(cudaMallocArray(&array, &odd, 8, 8, 0), cudaErrorInvalidChannelDescriptor);
    assert_done(cudaMallocArray(&array, &pair, 8, 8, 0)); /* rows of 32 bytes */
    assert_done(cudaArrayGetInfo(&found, &extent, &flags, array));
    assert_int_equal(found.x, 16);
    assert_int_equal(found.y, 16);
    assert_int_equal(found.z, 0);
    assert_int_equal(extent.width, 8);
    assert_int_equal(flags, 0);
    assert_done(cudaMemcpy2DToArray(array, 0, 0, in, 32, 32, 8, cudaMemcpyHostToDevice));
    copy.srcArray = array;
    copy.dstPtr = (struct cudaPitchedPtr){.ptr = out, .pitch = 32, .xsize = 32, .ysize = 8};
    assert_done(cudaMemcpy3D(&copy)); /* the extent counts the array's elements */
    assert_memory_equal(in, out, sizeof(in));
    memset(out, 0, sizeof(out));
    assert_done(cudaMemcpy2DFromArray(out, 32, array, 4, 1, 8, 2, cudaMemcpyDeviceToHost));
    assert_memory_equal(out, in + 32 + 4, 8);
    assert_memory_equal(out + 32, in + 64 + 4, 8);
    assert_done(cudaFreeArray(array));
}

/* ---- capture and graphs ---- */

static void captured_work_runs_at_launch(void **state)
{
    enum cudaStreamCaptureStatus status;
    unsigned char in[512], out[512] = {0}, *p;
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    void *q;

    (void)state;
    memset(in, 3, sizeof(in));
    assert_done(cudaMalloc((void **)&p, sizeof(in)));
    assert_done(cudaStreamCreate(&stream));
    assert_done(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    assert_done(cudaStreamIsCapturing(stream, &status));
    assert_int_equal(status, cudaStreamCaptureStatusActive);
    assert_done(cudaMemcpyAsync(p, in, sizeof(in), cudaMemcpyHostToDevice, stream));
    assert_done(cudaMemcpyAsync(out, p, sizeof(out), cudaMemcpyDeviceToHost, stream));
    assert_done(cudaStreamEndCapture(stream, &graph));
    assert_done(cudaGraphInstantiate(&exec, graph, 0));
    assert_int_equal(out[0], 0);
    assert_done(cudaGraphLaunch(exec, stream));
    assert_done(cudaStreamSynchronize(stream));
    assert_memory_equal(in, out, sizeof(in));

    /* An unsafe call ends the capture. */
    assert_done(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    assert_int_equal(cudaMalloc(&q, 64), cudaErrorStreamCaptureUnsupported);
    assert_int_equal(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
    (void)cudaGetLastError();
    assert_done(cudaGraphExecDestroy(exec));
    assert_done(cudaStreamDestroy(stream));
    assert_done(cudaFree(p));
}

static void graph_is_built_node_by_node(void **state)
{
    struct cudaMemsetParams fill = {
        .value = 9, .elementSize = 1, .width = 64, .height = 1, .pitch = 64};
    struct cudaKernelNodeParams kernel = {.func = &probe_stub, .gridDim = one, .blockDim = one};
    struct cudaGraphNodeParams read = {.type = cudaGraphNodeTypeMemcpy};
    cudaGraphNode_t nodes[3];
    enum cudaGraphNodeType type;
    void *argument = NULL, *arguments[] = {&argument};
    unsigned char out[64] = {0};
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    size_t count = 0;

    (void)state;
    kernel.kernelParams = arguments;
    assert_done(cudaMalloc(&fill.dst, 64));
    assert_done(cudaGraphCreate(&graph, 0));
    assert_done(cudaGraphAddMemsetNode(&nodes[0], graph, NULL, 0, &fill));
    assert_done(cudaGraphAddKernelNode(&nodes[1], graph, &nodes[0], 1, &kernel));
    read.memcpy.copyParams = (struct cudaMemcpy3DParms){
        .srcPtr = {.ptr = fill.dst, .pitch = 64, .xsize = 64, .ysize = 1},
        .dstPtr = {.ptr = out, .pitch = 64, .xsize = 64, .ysize = 1},
        .extent = {64, 1, 1},
        .kind = cudaMemcpyDeviceToHost};
    assert_done(cudaGraphAddNode(&nodes[2], graph, &nodes[1], NULL, 1, &read));
    assert_done(cudaGraphGetNodes(graph, NULL, &count));
    assert_int_equal(count, 3);
    assert_done(cudaGraphNodeGetType(nodes[1], &type));
    assert_int_equal(type, cudaGraphNodeTypeKernel);
    assert_done(cudaGraphInstantiate(&exec, graph, 0));
    assert_done(cudaGraphLaunch(exec, NULL));
    assert_done(cudaDeviceSynchronize());
    assert_int_equal(out[0], 9);
    assert_int_equal(out[63], 9);
    assert_done(cudaGraphExecDestroy(exec));
    assert_done(cudaGraphDestroy(graph));
    assert_done(cudaFree(fill.dst));
}

/* ---- host functions ---- */

static struct {
    void *memory;
    cudaStream_t stream;
    int results[5];
} inside;

static void call_the_runtime(void *unused)
{
    void *fresh;

    (void)unused;
    inside.results[0] = (int)cudaMalloc(&fresh, 64);
    inside.results[1] = (int)cudaFree(inside.memory);
    inside.results[2] = (int)cudaFreeAsync(inside.memory, inside.stream);
    inside.results[3] = (int)cudaMallocAsync(&fresh, 64, inside.stream);
    inside.results[4] = (int)cudaDeviceSynchronize();
}

/* "The host function must not make any CUDA API calls", and what it tried to free is still there.
 */
static void host_functions_may_not_call(void **state)
{
    (void)state;
    assert_done(cudaMalloc(&inside.memory, 4096));
    assert_done(cudaStreamCreateWithFlags(&inside.stream, cudaStreamNonBlocking));
    assert_done(cudaLaunchHostFunc(inside.stream, call_the_runtime, NULL));
    assert_done(cudaStreamSynchronize(inside.stream));
    for (int i = 0; i < 5; i++)
        assert_int_equal(inside.results[i], cudaErrorNotPermitted);
    assert_done(cudaFree(inside.memory));
    assert_done(cudaStreamDestroy(inside.stream));
}

/* ---- errors that stay: last, since a process does not get over them ---- */

static void conditional_node_has_bodies(void **state)
{
    struct cudaGraphNodeParams params = {.type = cudaGraphNodeTypeConditional};
    cudaGraphConditionalHandle condition;
    cudaGraphExec_t exec;
    cudaGraphNode_t node, fill;
    cudaGraph_t graph;
    unsigned char *p, seen = 0;

    (void)state;
    assert_done(cudaMalloc((void **)&p, 64));
    assert_done(cudaGraphCreate(&graph, 0));
    assert_int_equal(cudaGraphConditionalHandleCreate(NULL, graph, 1, 0), cudaErrorInvalidValue);
    assert_done(cudaGraphConditionalHandleCreate(&condition, graph, 1, cudaGraphCondAssignDefault));
    params.conditional.handle = condition;
    params.conditional.type = cudaGraphCondTypeIf;
    params.conditional.size = 1;
    assert_done(cudaGraphAddNode(&node, graph, NULL, NULL, 0, &params));
    assert_non_null(params.conditional.phGraph_out);
    const struct cudaMemsetParams nine = {
        .dst = p, .elementSize = 1, .width = 64, .height = 1, .value = 9};
    assert_done(cudaGraphAddMemsetNode(&fill, params.conditional.phGraph_out[0], NULL, 0, &nine));
    assert_done(cudaMemset(p, 1, 64));
    assert_done(cudaGraphInstantiate(&exec, graph, 0));
    assert_done(cudaGraphLaunch(exec, 0));
    assert_done(cudaMemcpy(&seen, p + 63, 1, cudaMemcpyDefault));
    assert_int_equal(seen, 9);
    assert_done(cudaGraphExecDestroy(exec));
    assert_done(cudaGraphDestroy(graph));
    assert_done(cudaFree(p));
}

static void surfaces_name_arrays(void **state)
{
    struct cudaResourceDesc desc = {.resType = cudaResourceTypeArray}, seen;
    struct cudaChannelFormatDesc channel = cudaCreateChannelDesc(32, 0, 0, 0, 1);
    cudaSurfaceObject_t surface;

    (void)state;
    assert_done(
        cudaMallocArray(&desc.res.array.array, &channel, 16, 16, cudaArraySurfaceLoadStore));
    assert_done(cudaCreateSurfaceObject(&surface, &desc));
    assert_done(cudaGetSurfaceObjectResourceDesc(&seen, surface));
    assert_ptr_equal(seen.res.array.array, desc.res.array.array);
    assert_done(cudaDestroySurfaceObject(surface));
    assert_int_equal(cudaDestroySurfaceObject(surface), cudaErrorInvalidValue);
    desc.resType = cudaResourceTypeLinear;
    assert_int_equal(cudaCreateSurfaceObject(&surface, &desc), cudaErrorInvalidValue);
    assert_done(cudaFreeArray(seen.res.array.array));
}

static void sticky_error_is_not_cleared(void **state)
{
    char *p, *host, *plain, *fresh;
    cudaStream_t stream;
    size_t pitch;

    (void)state;
    assert_done(cudaMallocHost((void **)&host, 4096));
    assert_done(cudaMalloc((void **)&plain, 4096));
    assert_done(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    assert_done(cudaMallocAsync((void **)&p, 4096, stream));
    assert_done(cudaStreamSynchronize(stream));
    atomic_store(&gate_is_open, false);
    assert_done(cudaLaunchHostFunc(stream, wait_at_gate, NULL));
    assert_done(cudaMemsetAsync(p, 1, 4096, stream));
    /* Freed on another stream, before the fill that is queued above gets to it. */
    assert_done(cudaFreeAsync(p, cudaStreamPerThread));
    assert_done(cudaStreamSynchronize(cudaStreamPerThread));
    atomic_store(&gate_is_open, true);
    assert_int_equal(cudaStreamSynchronize(stream), cudaErrorIllegalAddress);
    assert_int_equal(cudaGetLastError(), cudaErrorIllegalAddress);
    assert_int_equal(cudaGetLastError(), cudaErrorIllegalAddress);
    assert_int_equal(cudaMalloc((void **)&fresh, 64), cudaErrorIllegalAddress);
    assert_int_equal(cudaMallocPitch((void **)&fresh, &pitch, 64, 64), cudaErrorIllegalAddress);
    assert_int_equal(cudaFree(plain), cudaErrorIllegalAddress);
    assert_int_equal(cudaMallocAsync((void **)&fresh, 64, stream), cudaErrorIllegalAddress);
    assert_int_equal(cudaFreeAsync(plain, stream), cudaErrorIllegalAddress);
    assert_int_equal(cudaMemcpy(plain, plain + 64, 64, cudaMemcpyDefault), cudaErrorIllegalAddress);
    assert_int_equal(cudaMemsetAsync(plain, 1, 64, stream), cudaErrorIllegalAddress);
    assert_int_equal(cudaFreeHost(host), cudaErrorIllegalAddress);
    assert_int_equal(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
    assert_int_equal(cudaPeekAtLastError(), cudaErrorIllegalAddress);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, start, stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(launches_by_the_stubs_address),
        CASE(launches_by_kernel_handle_outlive_a_reset),
        CASE(call_configurations_nest),
        CASE(functions_report_their_attributes),
        CASE(symbols_are_copied_within_their_bounds),
        CASE(not_ready_is_no_error),
        CASE(per_thread_default_stream_is_each_threads_own),
        CASE(per_thread_streams_do_not_wait_for_each_other),
        CASE(copies_check_their_direction),
        CASE(box_is_filled_and_read_back),
        CASE(arrays_are_copied_by_rectangle_run_and_box),
        CASE(captured_work_runs_at_launch),
        CASE(graph_is_built_node_by_node),
        CASE(host_functions_may_not_call),
        CASE(conditional_node_has_bodies),
        CASE(surfaces_name_arrays),
        CASE(sticky_error_is_not_cleared),
    };

    setenv("SIMCUDA_MEMORY", "1GiB", 1);
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
