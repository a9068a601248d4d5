/* The simulated driver: graphs built by hand, modules and launches. */
#include "tests/unit/sim_test.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

static const char ptx[] = ".version 8.0\n.target sm_90\n.address_size 64\n"
                          ".visible .global .align 4 .b8 table[1024];\n"
                          ".visible .entry scale(.param .u64 p)\n{\n ret;\n}\n";

static void graph_runs_in_order_of_dependencies(void **state)
{
    CUgraph graph, clone;
    CUgraphNode fill, copy, host, found, nodes[4];
    CUgraphExec exec;
    CUdeviceptr address;
    unsigned char back[256];
    atomic_int ran = 0;
    size_t count = 4;
    (void)state;
    assert_cuda(cuMemAlloc(&address, sizeof back));
    CUDA_MEMSET_NODE_PARAMS fill_parameters = {
        .dst = address, .elementSize = 1, .value = 0x5a, .width = sizeof back, .height = 1};
    CUDA_MEMCPY3D copy_parameters = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                     .srcDevice = address,
                                     .dstMemoryType = CU_MEMORYTYPE_HOST,
                                     .dstHost = back,
                                     .WidthInBytes = sizeof back,
                                     .Height = 1,
                                     .Depth = 1};
    CUDA_HOST_NODE_PARAMS host_parameters = {.fn = count_up, .userData = &ran};
    assert_cuda(cuGraphCreate(&graph, 0));
    assert_cuda(cuGraphAddHostNode(&host, graph, NULL, 0, &host_parameters));
    assert_cuda(cuGraphAddMemcpyNode(&copy, graph, NULL, 0, &copy_parameters, test_context));
    assert_cuda(cuGraphAddMemsetNode(&fill, graph, NULL, 0, &fill_parameters, test_context));
    assert_cuda(cuGraphAddDependencies(graph, (CUgraphNode[]){fill, copy},
                                       (CUgraphNode[]){copy, host}, NULL, 2));
    assert_cuda(cuGraphNodeGetDependencies(host, nodes, NULL, &count));
    assert_int_equal(count, 1);
    assert_ptr_equal(nodes[0], copy);
    assert_cuda(cuGraphClone(&clone, graph));
    assert_cuda(cuGraphNodeFindInClone(&found, copy, clone));
    assert_ptr_not_equal(found, copy);
    memset(back, 0, sizeof back);
    assert_cuda(cuGraphInstantiate(&exec, clone, 0));
    assert_cuda(cuGraphLaunch(exec, NULL));
    assert_cuda(cuCtxSynchronize());
    assert_int_equal(back[0], 0x5a);
    assert_int_equal(back[sizeof back - 1], 0x5a);
    assert_int_equal(atomic_load(&ran), 1);
    assert_cuda(cuGraphExecDestroy(exec));
    assert_cuda(cuGraphDestroy(graph));
    assert_cuda(cuGraphDestroy(clone));
    assert_result(cuGraphDestroy(graph), CUDA_ERROR_INVALID_VALUE);
    assert_cuda(cuMemFree(address));
}

static void cycles_are_refused(void **state)
{
    CUgraph graph;
    CUgraphNode nodes[2];
    CUgraphExec exec;
    (void)state;
    assert_cuda(cuGraphCreate(&graph, 0));
    assert_cuda(cuGraphAddEmptyNode(&nodes[0], graph, NULL, 0));
    assert_cuda(cuGraphAddEmptyNode(&nodes[1], graph, nodes, 1));
    assert_cuda(cuGraphAddDependencies(graph, &nodes[1], &nodes[0], NULL, 1));
    assert_result(cuGraphInstantiate(&exec, graph, 0), CUDA_ERROR_INVALID_VALUE);
    assert_cuda(cuGraphDestroy(graph));
}

/* A child graph is cloned into its node: later changes of the original do not reach it. */
static void child_graphs_are_cloned(void **state)
{
    CUgraph parent, child;
    CUgraphNode node, inner;
    CUgraphExec exec;
    atomic_int ran = 0;
    CUDA_HOST_NODE_PARAMS host = {.fn = count_up, .userData = &ran};
    (void)state;
    assert_cuda(cuGraphCreate(&child, 0));
    assert_cuda(cuGraphAddHostNode(&inner, child, NULL, 0, &host));
    assert_cuda(cuGraphCreate(&parent, 0));
    assert_cuda(cuGraphAddChildGraphNode(&node, parent, NULL, 0, child));
    assert_cuda(cuGraphAddHostNode(&inner, child, NULL, 0, &host));
    assert_cuda(cuGraphDestroy(child));
    assert_cuda(cuGraphInstantiate(&exec, parent, 0));
    assert_cuda(cuGraphLaunch(exec, NULL));
    assert_cuda(cuCtxSynchronize());
    assert_int_equal(atomic_load(&ran), 1);
    assert_cuda(cuGraphExecDestroy(exec));
    assert_cuda(cuGraphDestroy(parent));
}

static void instantiated_nodes_can_be_changed(void **state)
{
    CUgraph graph, same;
    CUgraphNode node;
    CUgraphExec exec;
    CUgraphExecUpdateResultInfo info;
    atomic_int first = 0, second = 0, third = 0;
    CUDA_HOST_NODE_PARAMS host = {.fn = count_up, .userData = &first};
    (void)state;
    assert_cuda(cuGraphCreate(&graph, 0));
    assert_cuda(cuGraphAddHostNode(&node, graph, NULL, 0, &host));
    assert_cuda(cuGraphInstantiate(&exec, graph, 0));
    host.userData = &second;
    assert_cuda(cuGraphExecHostNodeSetParams(exec, node, &host));
    assert_cuda(cuGraphLaunch(exec, NULL));
    assert_cuda(cuGraphNodeSetEnabled(exec, node, 0));
    assert_cuda(cuGraphLaunch(exec, NULL));
    assert_cuda(cuGraphNodeSetEnabled(exec, node, 1));
    host.userData = &third;
    assert_cuda(cuGraphCreate(&same, 0));
    assert_cuda(cuGraphAddHostNode(&node, same, NULL, 0, &host));
    assert_cuda(cuGraphExecUpdate(exec, same, &info));
    assert_cuda(cuGraphLaunch(exec, NULL));
    assert_cuda(cuCtxSynchronize());
    assert_int_equal(atomic_load(&first), 0);
    assert_int_equal(atomic_load(&second), 1);
    assert_int_equal(atomic_load(&third), 1);
    assert_cuda(cuGraphAddEmptyNode(&node, same, NULL, 0));
    assert_result(cuGraphExecUpdate(exec, same, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    assert_int_equal(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
    assert_cuda(cuGraphExecDestroy(exec));
    assert_cuda(cuGraphDestroy(graph));
    assert_cuda(cuGraphDestroy(same));
}

static void nodes_can_be_changed_by_kind_independent_parameters(void **state)
{
    CUgraph graph;
    CUgraphNode host, record;
    CUgraphExec exec;
    CUevent events[2], got;
    atomic_int first = 0, second = 0;
    CUDA_HOST_NODE_PARAMS parameters = {.fn = count_up, .userData = &first};
    CUgraphNodeParams any = {.type = CU_GRAPH_NODE_TYPE_HOST,
                             .host = {.fn = count_up, .userData = &second}};
    (void)state;
    for (int i = 0; i < 2; i++)
        assert_cuda(cuEventCreate(&events[i], CU_EVENT_DEFAULT));
    assert_cuda(cuGraphCreate(&graph, 0));
    assert_cuda(cuGraphAddHostNode(&host, graph, NULL, 0, &parameters));
    assert_cuda(cuGraphAddEventRecordNode(&record, graph, &host, 1, events[0]));
    assert_cuda(cuGraphNodeSetParams(host, &any));
    assert_result(cuGraphNodeSetParams(record, &any), CUDA_ERROR_INVALID_VALUE); /* another kind */
    assert_cuda(cuGraphEventRecordNodeSetEvent(record, events[1]));
    assert_cuda(cuGraphEventRecordNodeGetEvent(record, &got));
    assert_ptr_equal(got, events[1]);
    assert_cuda(cuGraphInstantiate(&exec, graph, 0));
    assert_cuda(cuGraphLaunch(exec, NULL));
    assert_cuda(cuCtxSynchronize());
    assert_int_equal(atomic_load(&first), 0);
    assert_int_equal(atomic_load(&second), 1);
    any.host.userData = &first;
    assert_cuda(cuGraphExecNodeSetParams(exec, host, &any));
    assert_cuda(cuGraphLaunch(exec, NULL));
    assert_cuda(cuCtxSynchronize());
    assert_int_equal(atomic_load(&first), 1);
    assert_cuda(cuGraphExecDestroy(exec));
    assert_cuda(cuGraphDestroy(graph));
    for (int i = 0; i < 2; i++)
        assert_cuda(cuEventDestroy(events[i]));
}

/* "The address of the allocation is returned … in dptr" when the node is made; memory is there
 * between the nodes. */
static void memory_nodes_fix_the_address(void **state)
{
    CUgraph graph;
    CUgraphNode allocate, fill, release;
    CUgraphExec exec;
    CUDA_MEM_ALLOC_NODE_PARAMS allocation = {
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}},
        .bytesize = 1 << 20};
    (void)state;
    assert_cuda(cuGraphCreate(&graph, 0));
    assert_cuda(cuGraphAddMemAllocNode(&allocate, graph, NULL, 0, &allocation));
    assert_true(allocation.dptr != 0);
    CUDA_MEMSET_NODE_PARAMS parameters = {
        .dst = allocation.dptr, .elementSize = 4, .value = 7, .width = 1 << 18, .height = 1};
    assert_cuda(cuGraphAddMemsetNode(&fill, graph, &allocate, 1, &parameters, test_context));
    assert_cuda(cuGraphAddMemFreeNode(&release, graph, &fill, 1, allocation.dptr));
    assert_cuda(cuGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 3; i++)
        assert_cuda(cuGraphLaunch(exec, NULL));
    assert_cuda(cuCtxSynchronize());
    assert_cuda(cuGraphExecDestroy(exec));
    assert_cuda(cuGraphDestroy(graph));
}

static void modules_know_their_names(void **state)
{
    CUmodule module;
    CUfunction function;
    CUdeviceptr address;
    size_t bytes;
    int value;
    (void)state;
    assert_result(cuModuleLoadData(&module, "no image"), CUDA_ERROR_INVALID_IMAGE);
    assert_result(cuModuleLoad(&module, "/nowhere/at.all"), CUDA_ERROR_FILE_NOT_FOUND);
    assert_cuda(cuModuleLoadData(&module, ptx));
    assert_cuda(cuModuleGetFunction(&function, module, "scale"));
    assert_result(cuModuleGetFunction(&function, module, "scal"), CUDA_ERROR_NOT_FOUND);
    assert_cuda(cuModuleGetGlobal(&address, &bytes, module, "table"));
    assert_int_equal(bytes, 1024);
    assert_result(cuModuleGetGlobal(&address, &bytes, module, "tabl"), CUDA_ERROR_NOT_FOUND);
    assert_cuda(cuModuleGetFunction(&function, module, "scale"));
    assert_cuda(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function));
    assert_int_equal(value, 1024);
    assert_cuda(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL));
    assert_result(cuLaunchKernel(function, 0, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL),
                  CUDA_ERROR_INVALID_VALUE);
    assert_result(cuLaunchKernel(function, 1, 1, 1, 1024, 2, 1, 0, NULL, NULL, NULL),
                  CUDA_ERROR_INVALID_VALUE);
    assert_cuda(cuCtxSynchronize());
    assert_cuda(cuModuleUnload(module));
    assert_result(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL),
                  CUDA_ERROR_INVALID_HANDLE);
    assert_result(cuModuleUnload(module), CUDA_ERROR_INVALID_HANDLE);
}

enum { VARIABLES = 40, ASKERS = 4 };
static CUmodule found_module;

/* A variable belongs to its module: "cuMemFree: memory allocated by cuMemAlloc and its kin", nor is
 * it memory of a graph. */
static void variables_are_the_modules_to_free(void **state)
{
    char image[8192] = ".version 7.0\n.target sm_80\n.address_size 64\n", name[16];
    CUdeviceptr addresses[VARIABLES], again;
    size_t before, loaded, used, after, total, bytes;
    cuuint64_t graph_before, graph_after;
    CUmodule module;
    (void)state;
    for (int i = 0; i < VARIABLES; i++) {
        size_t length = strlen(image);
        snprintf(image + length, sizeof image - length, ".visible .global .b8 v%d[64];\n", i);
    }
    assert_cuda(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &graph_before));
    assert_cuda(cuMemGetInfo(&before, &total));
    assert_cuda(cuModuleLoadData(&module, image));
    assert_cuda(cuMemGetInfo(&loaded, &total));
    for (int i = 0; i < VARIABLES; i++) {
        snprintf(name, sizeof name, "v%d", i);
        assert_cuda(cuModuleGetGlobal(&addresses[i], &bytes, module, name));
        assert_int_equal(bytes, 64);
        assert_true(i == 0 || addresses[i] != addresses[i - 1]);
        assert_result(cuMemFree(addresses[i]), CUDA_ERROR_INVALID_VALUE);
        assert_result(cuMemFreeAsync(addresses[i], NULL), CUDA_ERROR_INVALID_VALUE);
        assert_cuda(cuMemsetD8Async(addresses[i], 1, bytes, NULL));
    }
    assert_cuda(cuCtxSynchronize());
    assert_cuda(cuModuleGetGlobal(&again, &bytes, module, name));
    assert_int_equal(again, addresses[VARIABLES - 1]);
    assert_cuda(cuMemGetInfo(&used, &total));
    assert_true(loaded - used <= 2 << 20); /* they lie together */
    assert_cuda(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &graph_after));
    assert_int_equal(graph_after, graph_before);
    assert_cuda(cuModuleUnload(module));
    assert_cuda(cuMemGetInfo(&after, &total));
    assert_int_equal(after, before);
}

/* Every thread that asks for a variable gets the same address. */
static void *ask_for_variables(void *argument)
{
    CUdeviceptr *addresses = argument;
    size_t bytes;
    if (cuCtxSetCurrent(test_context))
        return NULL;
    for (int i = 0; i < VARIABLES; i++) {
        char name[16];
        snprintf(name, sizeof name, "v%d", i);
        if (cuModuleGetGlobal(&addresses[i], &bytes, found_module, name))
            addresses[i] = 0;
    }
    return NULL;
}

static void threads_find_the_same_variables(void **state)
{
    char image[8192] = ".version 7.0\n.target sm_80\n.address_size 64\n";
    CUdeviceptr addresses[ASKERS][VARIABLES] = {{0}};
    pthread_t threads[ASKERS];
    (void)state;
    for (int i = 0; i < VARIABLES; i++) {
        size_t length = strlen(image);
        snprintf(image + length, sizeof image - length, ".visible .global .b8 v%d[64];\n", i);
    }
    for (int round = 0; round < 20; round++) {
        assert_cuda(cuModuleLoadData(&found_module, image));
        for (int i = 0; i < ASKERS; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, ask_for_variables, addresses[i]), 0);
        for (int i = 0; i < ASKERS; i++)
            pthread_join(threads[i], NULL);
        for (int i = 0; i < VARIABLES; i++) {
            assert_int_not_equal(addresses[0][i], 0);
            for (int j = 1; j < ASKERS; j++)
                assert_int_equal(addresses[j][i], addresses[0][i]);
        }
        assert_cuda(cuModuleUnload(found_module));
    }
}

static void libraries_load_into_each_context(void **state)
{
    CUlibrary library;
    CUkernel kernel;
    CUfunction function;
    CUmodule module;
    CUcontext second;
    (void)state;
    assert_cuda(cuLibraryLoadData(&library, ptx, NULL, NULL, 0, NULL, NULL, 0));
    assert_cuda(cuLibraryGetKernel(&kernel, library, "scale"));
    assert_result(cuLibraryGetKernel(&kernel, library, "other"), CUDA_ERROR_NOT_FOUND);
    assert_cuda(cuLibraryGetKernel(&kernel, library, "scale"));
    assert_cuda(cuKernelGetFunction(&function, kernel));
    assert_cuda(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    assert_cuda(cuLibraryGetModule(&module, library));
    assert_result(cuModuleUnload(module), CUDA_ERROR_NOT_PERMITTED);
    assert_cuda(cuCtxCreate(&second, NULL, 0, 0));
    assert_cuda(cuLaunchKernel((CUfunction)kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    assert_cuda(cuCtxSynchronize());
    assert_cuda(cuCtxDestroy(second));
    assert_cuda(cuLibraryUnload(library));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(graph_runs_in_order_of_dependencies),
        cmocka_unit_test(cycles_are_refused),
        cmocka_unit_test(child_graphs_are_cloned),
        cmocka_unit_test(instantiated_nodes_can_be_changed),
        cmocka_unit_test(nodes_can_be_changed_by_kind_independent_parameters),
        cmocka_unit_test(memory_nodes_fix_the_address),
        cmocka_unit_test(modules_know_their_names),
        cmocka_unit_test(variables_are_the_modules_to_free),
        cmocka_unit_test(threads_find_the_same_variables),
        cmocka_unit_test(libraries_load_into_each_context),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, make_context, drop_context);
}
