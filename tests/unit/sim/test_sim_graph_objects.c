/* The simulated driver: user objects of graphs, conditional nodes, DOT files, launches of CUDA 2.
 */
#include "tests/unit/sim_test.h"

#include <stdio.h>
#include <string.h>

static const char ptx[] = ".version 8.0\n.target sm_90\n.address_size 64\n"
                          ".visible .entry scale(.param .u64 p)\n{\n ret;\n}\n";

/* ---- user objects ---- */

static void wait_for(atomic_int *count, int expected)
{
    for (int i = 0; i < 2000 && atomic_load(count) != expected; i++)
        usleep(1000);
    assert_int_equal(atomic_load(count), expected);
}

static CUuserObject make_object(atomic_int *destroyed, unsigned references)
{
    CUuserObject object;
    assert_cuda(cuUserObjectCreate(&object, destroyed, count_up, references,
                                   CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    return object;
}

static void user_object_ends_with_its_last_reference(void **state)
{
    CUuserObject object;
    atomic_int destroyed = 0;
    (void)state;
    assert_result(cuUserObjectCreate(&object, &destroyed, count_up, 1, 0),
                  CUDA_ERROR_INVALID_VALUE);
    assert_result(cuUserObjectCreate(&object, &destroyed, count_up, 0, 1),
                  CUDA_ERROR_INVALID_VALUE);
    assert_result(cuUserObjectCreate(&object, &destroyed, NULL, 1, 1), CUDA_ERROR_INVALID_VALUE);
    object = make_object(&destroyed, 2);
    assert_result(cuUserObjectRetain(object, 0), CUDA_ERROR_INVALID_VALUE);
    assert_cuda(cuUserObjectRetain(object, 3));
    assert_cuda(cuUserObjectRelease(object, 4));
    usleep(20000);
    assert_int_equal(atomic_load(&destroyed), 0);
    assert_cuda(cuUserObjectRelease(object, 1));
    wait_for(&destroyed, 1);
    assert_result(cuUserObjectRelease(object, 1), CUDA_ERROR_INVALID_VALUE);
}

/* "A cloned graph retains a copy of every reference owned by the source graph"; an instantiated one
 * likewise, until it is destroyed. */
static void clones_and_instances_have_references_of_their_own(void **state)
{
    CUgraph graph, clone;
    CUgraphExec exec;
    atomic_int destroyed = 0;
    (void)state;
    CUuserObject object = make_object(&destroyed, 1);
    assert_cuda(cuGraphCreate(&graph, 0));
    assert_cuda(cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
    assert_cuda(cuGraphClone(&clone, graph));
    assert_cuda(cuGraphDestroy(graph));
    assert_cuda(cuGraphInstantiate(&exec, clone, 0));
    assert_cuda(cuGraphDestroy(clone));
    usleep(20000);
    assert_int_equal(atomic_load(&destroyed), 0);
    assert_cuda(cuGraphExecDestroy(exec));
    wait_for(&destroyed, 1);
}

static void a_graph_releases_only_references_of_its_own(void **state)
{
    CUgraph graph;
    atomic_int destroyed = 0;
    (void)state;
    CUuserObject object = make_object(&destroyed, 1);
    assert_cuda(cuGraphCreate(&graph, 0));
    assert_result(cuGraphReleaseUserObject(graph, object, 1), CUDA_ERROR_INVALID_VALUE);
    assert_result(cuGraphRetainUserObject(graph, object, 1, 2), CUDA_ERROR_INVALID_VALUE);
    assert_cuda(cuGraphRetainUserObject(graph, object, 2, 0));
    assert_cuda(cuUserObjectRelease(object, 1));
    assert_cuda(cuGraphReleaseUserObject(graph, object, 1));
    assert_result(cuGraphReleaseUserObject(graph, object, 2), CUDA_ERROR_INVALID_VALUE);
    usleep(20000);
    assert_int_equal(atomic_load(&destroyed), 0);
    assert_cuda(cuGraphReleaseUserObject(graph, object, 1));
    wait_for(&destroyed, 1);
    assert_cuda(cuGraphDestroy(graph));
}

/* "References are held until the launches have finished." */
static void launches_under_way_hold_references(void **state)
{
    CUgraph graph;
    CUgraphNode node;
    CUgraphExec exec;
    struct gate gate = {0};
    atomic_int destroyed = 0;
    CUDA_HOST_NODE_PARAMS host = {.fn = wait_at_gate, .userData = &gate};
    (void)state;
    CUuserObject object = make_object(&destroyed, 1);
    assert_cuda(cuGraphCreate(&graph, 0));
    assert_cuda(cuGraphAddHostNode(&node, graph, NULL, 0, &host));
    assert_cuda(cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
    assert_cuda(cuGraphInstantiate(&exec, graph, 0));
    assert_cuda(cuGraphLaunch(exec, NULL));
    assert_cuda(cuGraphExecDestroy(exec));
    assert_cuda(cuGraphDestroy(graph));
    usleep(20000);
    assert_int_equal(atomic_load(&destroyed), 0);
    atomic_store(&gate.is_open, true);
    wait_for(&destroyed, 1);
    assert_cuda(cuCtxSynchronize());
}

/* "The references in the new source graph replace the references in the target graph." */
static void an_update_replaces_references(void **state)
{
    CUgraph graph, other;
    CUgraphExec exec;
    CUgraphExecUpdateResultInfo info;
    atomic_int first = 0, second = 0;
    (void)state;
    CUuserObject one = make_object(&first, 1), two = make_object(&second, 1);
    assert_cuda(cuGraphCreate(&graph, 0));
    assert_cuda(cuGraphRetainUserObject(graph, one, 1, CU_GRAPH_USER_OBJECT_MOVE));
    assert_cuda(cuGraphCreate(&other, 0));
    assert_cuda(cuGraphRetainUserObject(other, two, 1, CU_GRAPH_USER_OBJECT_MOVE));
    assert_cuda(cuGraphInstantiate(&exec, graph, 0));
    assert_cuda(cuGraphDestroy(graph));
    assert_cuda(cuGraphExecUpdate(exec, other, &info));
    wait_for(&first, 1);
    assert_cuda(cuGraphDestroy(other));
    usleep(20000);
    assert_int_equal(atomic_load(&second), 0);
    assert_cuda(cuGraphExecDestroy(exec));
    wait_for(&second, 1);
}

struct destructor_call {
    CUresult result;
    atomic_int done;
};

static void call_driver(void *argument)
{
    struct destructor_call *call = argument;
    CUdeviceptr address;
    call->result = cuMemAlloc(&address, 1);
    atomic_store(&call->done, 1);
}

/* "Destructor callbacks cannot make CUDA API calls." */
static void destructors_may_not_call_the_driver(void **state)
{
    struct destructor_call call = {0};
    CUuserObject object;
    (void)state;
    assert_cuda(cuUserObjectCreate(&object, &call, call_driver, 1, 1));
    assert_cuda(cuUserObjectRelease(object, 1));
    wait_for(&call.done, 1);
    assert_int_equal(call.result, CUDA_ERROR_NOT_PERMITTED);
}

/* ---- conditional nodes ---- */

static CUresult add_conditional(CUgraph graph, CUgraphConditionalHandle handle,
                                CUgraphConditionalNodeType type, unsigned size, CUgraph **bodies)
{
    CUgraphNode node;
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_CONDITIONAL};
    params.conditional = (CUDA_CONDITIONAL_NODE_PARAMS){
        .handle = handle, .type = type, .size = size, .ctx = test_context};
    CUresult result = cuGraphAddNode(&node, graph, NULL, NULL, 0, &params);
    *bodies = NULL;
    if (result == CUDA_SUCCESS) {
        CUgraphNodeType found;
        assert_cuda(cuGraphNodeGetType(node, &found));
        assert_int_equal(found, CU_GRAPH_NODE_TYPE_CONDITIONAL);
        *bodies = params.conditional.phGraph_out;
    }
    return result;
}

static CUgraph *add_bodies(CUgraph graph, CUgraphConditionalHandle handle,
                           CUgraphConditionalNodeType type, unsigned size)
{
    CUgraph *bodies;
    assert_cuda(add_conditional(graph, handle, type, size, &bodies));
    if (!bodies)
        fail();
    return bodies;
}

static void fill_in(CUgraph body, CUdeviceptr address, unsigned value)
{
    CUgraphNode node;
    CUDA_MEMSET_NODE_PARAMS fill = {
        .dst = address, .elementSize = 1, .value = value, .width = 1, .height = 1};
    assert_cuda(cuGraphAddMemsetNode(&node, body, NULL, 0, &fill, test_context));
}

/* The byte that a graph with one conditional node leaves, whose body N writes N + 1. */
static unsigned char run_conditional(CUgraphConditionalNodeType type, unsigned size,
                                     unsigned default_value, unsigned flags)
{
    CUgraph graph, clone, *bodies;
    CUgraphConditionalHandle handle;
    CUgraphExec exec;
    CUdeviceptr address;
    unsigned char byte;
    assert_cuda(cuMemAlloc(&address, 1));
    assert_cuda(cuMemsetD8(address, 0, 1));
    assert_cuda(cuGraphCreate(&graph, 0));
    assert_cuda(cuGraphConditionalHandleCreate(&handle, graph, test_context, default_value, flags));
    bodies = add_bodies(graph, handle, type, size);
    for (unsigned i = 0; i < size; i++)
        fill_in(bodies[i], address, i + 1);
    assert_result(cuGraphDestroy(bodies[0]), CUDA_ERROR_INVALID_VALUE);
    assert_cuda(cuGraphClone(&clone, graph));
    assert_cuda(cuGraphDestroy(graph));
    assert_cuda(cuGraphInstantiate(&exec, clone, 0));
    assert_cuda(cuGraphDestroy(clone));
    assert_cuda(cuGraphLaunch(exec, NULL));
    assert_cuda(cuMemcpyDtoH(&byte, address, 1));
    assert_cuda(cuGraphExecDestroy(exec));
    assert_cuda(cuMemFree(address));
    return byte;
}

/* Kernels compute nothing here: a condition has its default at each launch. */
static void bodies_run_by_the_default_value(void **state)
{
    const unsigned assign = CU_GRAPH_COND_ASSIGN_DEFAULT;
    (void)state;
    assert_int_equal(run_conditional(CU_GRAPH_COND_TYPE_IF, 1, 1, assign), 1);
    assert_int_equal(run_conditional(CU_GRAPH_COND_TYPE_IF, 1, 0, assign), 0);
    assert_int_equal(run_conditional(CU_GRAPH_COND_TYPE_IF, 1, 1, 0), 0);
    assert_int_equal(run_conditional(CU_GRAPH_COND_TYPE_IF, 2, 0, assign), 2);
    assert_int_equal(run_conditional(CU_GRAPH_COND_TYPE_WHILE, 1, 5, assign), 1);
    assert_int_equal(run_conditional(CU_GRAPH_COND_TYPE_WHILE, 1, 0, assign), 0);
    assert_int_equal(run_conditional(CU_GRAPH_COND_TYPE_SWITCH, 3, 2, assign), 3);
    assert_int_equal(run_conditional(CU_GRAPH_COND_TYPE_SWITCH, 3, 3, assign), 0);
}

static void conditional_nodes_are_checked(void **state)
{
    CUgraph graph, other, *bodies;
    CUgraphConditionalHandle handle;
    CUgraphExec exec;
    CUDA_GRAPH_INSTANTIATE_PARAMS params = {0};
    (void)state;
    assert_cuda(cuGraphCreate(&graph, 0));
    assert_result(cuGraphConditionalHandleCreate(&handle, graph, test_context, 0, 2),
                  CUDA_ERROR_INVALID_VALUE);
    assert_cuda(cuGraphConditionalHandleCreate(&handle, graph, NULL, 0, 0));
    /* "Handles not associated with a conditional node may cause graph instantiation to fail." */
    assert_result(cuGraphInstantiateWithParams(&exec, graph, &params), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(params.result_out, CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED);
    assert_result(add_conditional(graph, handle, CU_GRAPH_COND_TYPE_WHILE, 2, &bodies),
                  CUDA_ERROR_INVALID_VALUE);
    assert_result(add_conditional(graph, handle, CU_GRAPH_COND_TYPE_IF, 3, &bodies),
                  CUDA_ERROR_INVALID_VALUE);
    assert_result(add_conditional(graph, 0, CU_GRAPH_COND_TYPE_IF, 1, &bodies),
                  CUDA_ERROR_INVALID_VALUE);
    /* "hGraph - Graph which will contain the conditional node using this handle" */
    assert_cuda(cuGraphCreate(&other, 0));
    assert_result(add_conditional(other, handle, CU_GRAPH_COND_TYPE_IF, 1, &bodies),
                  CUDA_ERROR_INVALID_VALUE);
    assert_cuda(cuGraphDestroy(other));
    (void)add_bodies(graph, handle, CU_GRAPH_COND_TYPE_IF, 1);
    assert_result(add_conditional(graph, handle, CU_GRAPH_COND_TYPE_IF, 1, &bodies),
                  CUDA_ERROR_INVALID_VALUE);
    assert_cuda(cuGraphInstantiate(&exec, graph, 0));
    assert_cuda(cuGraphExecDestroy(exec));
    assert_cuda(cuGraphDestroy(graph));
}

/* "Allowed node types are kernel nodes, empty nodes, child graphs, memsets, memcopies, and
 * conditionals", also in a body that is not chosen. */
static void bodies_have_neither_memory_nor_host_nodes(void **state)
{
    CUgraph graph, *bodies;
    CUgraphNode node;
    CUgraphConditionalHandle handle;
    CUgraphExec exec;
    atomic_int ran = 0;
    CUDA_HOST_NODE_PARAMS host = {.fn = count_up, .userData = &ran};
    CUDA_MEM_ALLOC_NODE_PARAMS allocation = {
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}},
        .bytesize = 1024};
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        assert_cuda(cuGraphCreate(&graph, 0));
        assert_cuda(cuGraphConditionalHandleCreate(&handle, graph, test_context, 0, 0));
        bodies = add_bodies(graph, handle, CU_GRAPH_COND_TYPE_IF, 1);
        if (kind == 0)
            assert_cuda(cuGraphAddHostNode(&node, bodies[0], NULL, 0, &host));
        else
            assert_cuda(cuGraphAddMemAllocNode(&node, bodies[0], NULL, 0, &allocation));
        assert_result(cuGraphInstantiate(&exec, graph, 0), CUDA_ERROR_NOT_SUPPORTED);
        assert_cuda(cuGraphDestroy(graph));
    }
}

/* ---- DOT files ---- */

static void dot_files_describe_the_structure(void **state)
{
    CUgraph graph;
    CUgraphNode nodes[2];
    CUgraphConditionalHandle handle;
    CUmodule module;
    CUfunction function;
    char path[] = "/tmp/sim-dot-XXXXXX", text[4096] = "";
    int file = mkstemp(path);
    (void)state;
    assert_true(file >= 0);
    close(file);
    assert_cuda(cuModuleLoadData(&module, ptx));
    assert_cuda(cuModuleGetFunction(&function, module, "scale"));
    CUDA_KERNEL_NODE_PARAMS kernel = {.func = function,
                                      .gridDimX = 7,
                                      .gridDimY = 1,
                                      .gridDimZ = 1,
                                      .blockDimX = 1,
                                      .blockDimY = 1,
                                      .blockDimZ = 1};
    assert_cuda(cuGraphCreate(&graph, 0));
    assert_cuda(cuGraphAddKernelNode(&nodes[0], graph, NULL, 0, &kernel));
    assert_cuda(cuGraphAddEmptyNode(&nodes[1], graph, nodes, 1));
    assert_cuda(cuGraphConditionalHandleCreate(&handle, graph, test_context, 3, 0));
    (void)add_bodies(graph, handle, CU_GRAPH_COND_TYPE_WHILE, 1);
    assert_result(cuGraphDebugDotPrint(graph, NULL, 0), CUDA_ERROR_INVALID_VALUE);
    assert_result(cuGraphDebugDotPrint(graph, path, 1u << 20), CUDA_ERROR_INVALID_VALUE);
    assert_result(cuGraphDebugDotPrint(graph, "/nowhere/at/all", 0), CUDA_ERROR_OPERATING_SYSTEM);
    assert_cuda(cuGraphDebugDotPrint(graph, path, CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE));
    FILE *written = fopen(path, "r");
    assert_non_null(written);
    size_t bytes = fread(text, 1, sizeof text - 1, written);
    fclose(written);
    unlink(path);
    assert_true(bytes > 0);
    assert_memory_equal(text, "digraph dot {", 13);
    assert_non_null(strstr(text, "scale"));
    assert_non_null(strstr(text, "grid 7 1 1"));
    assert_non_null(strstr(text, "WHILE"));
    assert_non_null(strstr(text, "\"graph_1_node_0\" -> \"graph_1_node_1\""));
    assert_non_null(strstr(text, "cluster_2"));
    assert_cuda(cuGraphDestroy(graph));
    assert_cuda(cuModuleUnload(module));
}

/* ---- launches of CUDA 2 ---- */

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

static void old_launches_take_the_functions_shape(void **state)
{
    CUmodule module;
    CUfunction function;
    CUgraph graph;
    CUstream stream;
    size_t count = 0;
    (void)state;
    assert_cuda(cuModuleLoadData(&module, ptx));
    assert_cuda(cuModuleGetFunction(&function, module, "scale"));
    assert_result(cuLaunch(function), CUDA_ERROR_INVALID_VALUE);
    assert_result(cuFuncSetBlockShape(function, 1024, 2, 1), CUDA_ERROR_INVALID_VALUE);
    assert_cuda(cuFuncSetBlockShape(function, 32, 2, 1));
    assert_cuda(cuFuncSetSharedSize(function, 16));
    assert_cuda(cuParamSetSize(function, 24));
    assert_cuda(cuParamSeti(function, 0, 1));
    assert_cuda(cuParamSetf(function, 4, 1.5f));
    assert_cuda(cuParamSetv(function, 8, &count, sizeof count));
    assert_result(cuParamSetv(function, 4090, &count, sizeof count), CUDA_ERROR_INVALID_VALUE);
    assert_result(cuParamSeti(function, -1, 1), CUDA_ERROR_INVALID_VALUE);
    assert_cuda(cuLaunch(function));
    assert_cuda(cuLaunchGrid(function, 4, 4));
    assert_result(cuLaunchGrid(function, 0, 4), CUDA_ERROR_INVALID_VALUE);
    assert_cuda(cuCtxSynchronize());
    assert_cuda(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    assert_cuda(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    assert_cuda(cuLaunchGridAsync(function, 4, 4, stream));
    assert_cuda(cuStreamEndCapture(stream, &graph));
    assert_cuda(cuGraphGetNodes(graph, NULL, &count));
    assert_int_equal(count, 1);
    assert_cuda(cuGraphDestroy(graph));
    assert_cuda(cuStreamDestroy(stream));
    assert_cuda(cuModuleUnload(module));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(user_object_ends_with_its_last_reference),
        cmocka_unit_test(clones_and_instances_have_references_of_their_own),
        cmocka_unit_test(a_graph_releases_only_references_of_its_own),
        cmocka_unit_test(launches_under_way_hold_references),
        cmocka_unit_test(an_update_replaces_references),
        cmocka_unit_test(destructors_may_not_call_the_driver),
        cmocka_unit_test(bodies_run_by_the_default_value),
        cmocka_unit_test(conditional_nodes_are_checked),
        cmocka_unit_test(bodies_have_neither_memory_nor_host_nodes),
        cmocka_unit_test(dot_files_describe_the_structure),
        cmocka_unit_test(old_launches_take_the_functions_shape),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, make_context, drop_context);
}
