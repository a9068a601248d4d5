/* Entry points that add nodes to a graph, and that read and change what a node does. */
#define _GNU_SOURCE
#include "tests/simcuda/driver/engine_graph.h"

#include <string.h>

struct node_place { /* the first four arguments of every cuGraphAdd…Node */
    CUgraphNode *handle;
    CUgraph graph;
    const CUgraphNode *before;
    size_t count;
};

static CUresult check_place(struct node_place place, struct sim_graph **graph)
{
    CUresult result = graph_check(place.graph, graph);
    if (result)
        return result;
    if (!place.handle || (place.count && !place.before))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < place.count; i++) {
        struct sim_graph_node *node;
        result = graph_node_check(place.before[i], &node);
        if (result || node->graph != *graph)
            return CUDA_ERROR_INVALID_VALUE;
        for (size_t j = 0; j < i; j++)
            if (place.before[j] == place.before[i])
                return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

/* Takes the work in every case. */
static CUresult place_node(struct node_place place, struct graph_work work,
                           const struct node_parameters *parameters, struct sim_graph *child)
{
    struct sim_graph *graph;
    struct sim_graph_node *node = NULL;
    CUresult result = check_place(place, &graph);

    if (result) {
        graph_work_release(&work);
        return result;
    }
    engine_lock();
    result = graph_add_locked(graph, (struct sim_graph_node *const *)(const void *)place.before,
                              place.count, work, &node);
    if (result == CUDA_SUCCESS) {
        if (parameters)
            node->parameters = *parameters;
        node->child = child;
        *place.handle = (CUgraphNode)node;
    }
    engine_unlock();
    return result;
}

static CUresult add_made(struct node_place place, struct node_parameters *parameters,
                         graph_maker *make)
{
    struct sim_graph *graph;
    struct graph_work work;
    CUresult result = check_place(place, &graph);
    if (result == CUDA_SUCCESS)
        result = graph_make(make, parameters, &work);
    if (result)
        return result;
    parameters->is_set = true;
    return place_node(place, work, parameters, NULL);
}

static CUresult get_parameters(CUgraphNode handle, CUgraphNodeType type,
                               struct node_parameters *parameters)
{
    struct sim_graph_node *node;
    CUresult result = graph_node_check(handle, &node);
    if (result)
        return result;
    if (node->work.type != type)
        return CUDA_ERROR_INVALID_VALUE;
    *parameters = node->parameters;
    return parameters->is_set ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult set_made(CUgraphNode handle, CUgraphNodeType type,
                         struct node_parameters *parameters, graph_maker *make)
{
    struct sim_graph_node *node;
    struct graph_work work, before;
    CUresult result = graph_node_check(handle, &node);
    if (result)
        return result;
    if (node->work.type != type)
        return CUDA_ERROR_INVALID_VALUE;
    bool keeps_context = !parameters->context;
    result = graph_make(make, parameters, &work);
    if (result)
        return result;
    parameters->is_set = true;
    engine_lock();
    before = node->work;
    if (keeps_context) {
        work.context = before.context;
        parameters->context = node->parameters.context;
    }
    node->work = work;
    node->parameters = *parameters;
    engine_unlock();
    graph_work_release(&before);
    return CUDA_SUCCESS;
}

static CUresult set_made_exec(CUgraphExec exec, CUgraphNode node, CUgraphNodeType type,
                              struct node_parameters *parameters, graph_maker *make)
{
    struct graph_work work;
    CUresult result = graph_make(make, parameters, &work);
    return result ? result : graph_exec_replace(exec, node, type, work);
}

#define PLACE_PARAMETERS CUgraphNode *handle, CUgraph graph, const CUgraphNode *before, size_t count
#define PLACE ((struct node_place){handle, graph, before, count})

/* ---- kernels ---- */

/* Every version's parameters begin with the first's; the later ones name a kernel where there is no
 * function. */
const CUDA_KERNEL_NODE_PARAMS_v1 *graph_plain_kernel(const void *later,
                                                     CUDA_KERNEL_NODE_PARAMS_v1 *plain)
{
    const CUDA_KERNEL_NODE_PARAMS_v2 *kernel = later;
    if (!kernel)
        return NULL;
    memcpy(plain, kernel, sizeof *plain);
    if (!plain->func)
        plain->func = (CUfunction)kernel->kern;
    return plain;
}

static struct node_parameters from_kernel(const void *kernel)
{
    struct node_parameters parameters = {0};
    memcpy(&parameters.kernel, kernel, sizeof parameters.kernel);
    return parameters;
}

static CUresult add_kernel(struct node_place place, const void *kernel)
{
    struct node_parameters parameters;
    if (!kernel)
        return CUDA_ERROR_INVALID_VALUE;
    parameters = from_kernel(kernel);
    return add_made(place, &parameters, graph_make_kernel);
}

static CUresult get_kernel(CUgraphNode node, void *kernel, size_t bytes)
{
    struct node_parameters parameters;
    CUresult result = get_parameters(node, CU_GRAPH_NODE_TYPE_KERNEL, &parameters);
    if (result)
        return result;
    if (!kernel)
        return CUDA_ERROR_INVALID_VALUE;
    memset(kernel, 0, bytes);
    memcpy(kernel, &parameters.kernel, sizeof parameters.kernel);
    return CUDA_SUCCESS;
}

static CUresult set_kernel(CUgraphExec exec, CUgraphNode node, const void *kernel)
{
    struct node_parameters parameters;
    if (!kernel)
        return CUDA_ERROR_INVALID_VALUE;
    parameters = from_kernel(kernel);
    return exec ? set_made_exec(exec, node, CU_GRAPH_NODE_TYPE_KERNEL, &parameters,
                                graph_make_kernel)
                : set_made(node, CU_GRAPH_NODE_TYPE_KERNEL, &parameters, graph_make_kernel);
}

SIM_API(cuGraphAddKernelNode, (PLACE_PARAMETERS, const CUDA_KERNEL_NODE_PARAMS_v1 *kernel),
        (handle, graph, before, count, kernel), "%p %zu", (void *)graph, count)
{
    return add_kernel(PLACE, kernel);
}

SIM_API(cuGraphKernelNodeGetParams, (CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v1 *kernel),
        (node, kernel), "%p", (void *)node)
{
    return get_kernel(node, kernel, sizeof *kernel);
}

SIM_API(cuGraphKernelNodeSetParams, (CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *kernel),
        (node, kernel), "%p", (void *)node)
{
    return set_kernel(NULL, node, kernel);
}

SIM_API(cuGraphExecKernelNodeSetParams,
        (CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *kernel),
        (exec, node, kernel), "%p %p", (void *)exec, (void *)node)
{
    return exec ? set_kernel(exec, node, kernel) : CUDA_ERROR_INVALID_VALUE;
}

SIM_API(cuGraphAddKernelNode_v2, (PLACE_PARAMETERS, const CUDA_KERNEL_NODE_PARAMS_v2 *kernel),
        (handle, graph, before, count, kernel), "%p %zu", (void *)graph, count)
{
    CUDA_KERNEL_NODE_PARAMS_v1 plain;
    return add_kernel(PLACE, graph_plain_kernel(kernel, &plain));
}

SIM_API(cuGraphKernelNodeGetParams_v2, (CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v2 *kernel),
        (node, kernel), "%p", (void *)node)
{
    return get_kernel(node, kernel, sizeof *kernel);
}

SIM_API(cuGraphKernelNodeSetParams_v2, (CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v2 *kernel),
        (node, kernel), "%p", (void *)node)
{
    CUDA_KERNEL_NODE_PARAMS_v1 plain;
    return set_kernel(NULL, node, graph_plain_kernel(kernel, &plain));
}

SIM_API(cuGraphExecKernelNodeSetParams_v2,
        (CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v2 *kernel),
        (exec, node, kernel), "%p %p", (void *)exec, (void *)node)
{
    CUDA_KERNEL_NODE_PARAMS_v1 plain;
    return exec ? set_kernel(exec, node, graph_plain_kernel(kernel, &plain))
                : CUDA_ERROR_INVALID_VALUE;
}

/* ---- copies, fills, host functions ---- */

/* The four calls that every kind with plain parameters has. Parameters by the names below;
 * `in_context` is the context that the call or its parameters name, or NULL. */
#define NODE_KIND(Kind, TYPE, member, make, Parameters, context_parameter, context_argument,       \
                  in_context)                                                                      \
    static CUresult set_##member(CUgraphExec exec, CUgraphNode node, const Parameters *value,      \
                                 CUcontext named)                                                  \
    {                                                                                              \
        struct node_parameters parameters = {.context = named};                                    \
        if (!value)                                                                                \
            return CUDA_ERROR_INVALID_VALUE;                                                       \
        parameters.member = *value;                                                                \
        return exec ? set_made_exec(exec, node, TYPE, &parameters, make)                           \
                    : set_made(node, TYPE, &parameters, make);                                     \
    }                                                                                              \
    SIM_API(cuGraphAdd##Kind##Node,                                                                \
            (PLACE_PARAMETERS, const Parameters *value SIM_UNPAREN context_parameter),             \
            (handle, graph, before, count, value SIM_UNPAREN context_argument), "%p %zu",          \
            (void *)graph, count)                                                                  \
    {                                                                                              \
        struct node_parameters parameters = {0};                                                   \
        if (!value)                                                                                \
            return CUDA_ERROR_INVALID_VALUE;                                                       \
        parameters.member = *value;                                                                \
        parameters.context = in_context;                                                           \
        return add_made(PLACE, &parameters, make);                                                 \
    }                                                                                              \
    SIM_API(cuGraph##Kind##NodeGetParams, (CUgraphNode node, Parameters * value), (node, value),   \
            "%p", (void *)node)                                                                    \
    {                                                                                              \
        struct node_parameters parameters;                                                         \
        CUresult result = get_parameters(node, TYPE, &parameters);                                 \
        if (result == CUDA_SUCCESS && value)                                                       \
            *value = parameters.member;                                                            \
        return result == CUDA_SUCCESS && !value ? CUDA_ERROR_INVALID_VALUE : result;               \
    }                                                                                              \
    SIM_API(cuGraph##Kind##NodeSetParams, (CUgraphNode node, const Parameters *value),             \
            (node, value), "%p", (void *)node)                                                     \
    {                                                                                              \
        return set_##member(NULL, node, value, NULL);                                              \
    }                                                                                              \
    SIM_API(cuGraphExec##Kind##NodeSetParams,                                                      \
            (CUgraphExec exec, CUgraphNode node,                                                   \
             const Parameters *value SIM_UNPAREN context_parameter),                               \
            (exec, node, value SIM_UNPAREN context_argument), "%p %p", (void *)exec, (void *)node) \
    {                                                                                              \
        if (!exec || !value)                                                                       \
            return CUDA_ERROR_INVALID_VALUE;                                                       \
        return set_##member(exec, node, value, in_context);                                        \
    }

NODE_KIND(Host, CU_GRAPH_NODE_TYPE_HOST, host, graph_make_host, CUDA_HOST_NODE_PARAMS, (), (), NULL)

#define NODE_CONTEXT (, CUcontext context)
#define NODE_CONTEXT_ARGUMENT (, context)
NODE_KIND(Memcpy, CU_GRAPH_NODE_TYPE_MEMCPY, copy, graph_make_copy, CUDA_MEMCPY3D, NODE_CONTEXT,
          NODE_CONTEXT_ARGUMENT, context)
NODE_KIND(Memset, CU_GRAPH_NODE_TYPE_MEMSET, fill, graph_make_fill, CUDA_MEMSET_NODE_PARAMS,
          NODE_CONTEXT, NODE_CONTEXT_ARGUMENT, context)

/* ---- values written and waited for ---- */

static CUresult set_batch(CUgraphExec exec, CUgraphNode node,
                          const CUDA_BATCH_MEM_OP_NODE_PARAMS *value)
{
    struct node_parameters parameters = {0};
    if (!value)
        return CUDA_ERROR_INVALID_VALUE;
    parameters.batch = *value;
    parameters.context = value->ctx;
    return exec ? set_made_exec(exec, node, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, &parameters,
                                graph_make_batch)
                : set_made(node, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, &parameters, graph_make_batch);
}

SIM_API(cuGraphAddBatchMemOpNode, (PLACE_PARAMETERS, const CUDA_BATCH_MEM_OP_NODE_PARAMS *value),
        (handle, graph, before, count, value), "%p %zu", (void *)graph, count)
{
    struct node_parameters parameters = {0};
    if (!value)
        return CUDA_ERROR_INVALID_VALUE;
    parameters.batch = *value;
    parameters.context = value->ctx;
    return add_made(PLACE, &parameters, graph_make_batch);
}

/* "The memory of paramArray is owned by the node." */
SIM_API(cuGraphBatchMemOpNodeGetParams, (CUgraphNode node, CUDA_BATCH_MEM_OP_NODE_PARAMS *value),
        (node, value), "%p", (void *)node)
{
    struct node_parameters parameters;
    CUresult result = get_parameters(node, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, &parameters);
    if (result == CUDA_SUCCESS && value) {
        *value = parameters.batch;
        value->paramArray = graph_batch_operations(&((struct sim_graph_node *)node)->work);
    }
    return result == CUDA_SUCCESS && !value ? CUDA_ERROR_INVALID_VALUE : result;
}

SIM_API(cuGraphBatchMemOpNodeSetParams,
        (CUgraphNode node, const CUDA_BATCH_MEM_OP_NODE_PARAMS *value), (node, value), "%p",
        (void *)node)
{
    return set_batch(NULL, node, value);
}

SIM_API(cuGraphExecBatchMemOpNodeSetParams,
        (CUgraphExec exec, CUgraphNode node, const CUDA_BATCH_MEM_OP_NODE_PARAMS *value),
        (exec, node, value), "%p %p", (void *)exec, (void *)node)
{
    return exec ? set_batch(exec, node, value) : CUDA_ERROR_INVALID_VALUE;
}

/* ---- empty nodes, child graphs ---- */

SIM_API(cuGraphAddEmptyNode, (PLACE_PARAMETERS), (handle, graph, before, count), "%p %zu",
        (void *)graph, count)
{
    return place_node(
        PLACE, (struct graph_work){.op = {.is_instant = true}, .type = CU_GRAPH_NODE_TYPE_EMPTY},
        NULL, NULL);
}

static CUresult add_child(struct node_place place, CUgraph child_handle)
{
    struct sim_graph *child, *graph;
    CUresult result = graph_check(child_handle, &child);
    if (result == CUDA_SUCCESS)
        result = check_place(place, &graph);
    if (result)
        return result;
    engine_lock();
    struct sim_graph *clone = graph_clone_locked(child);
    if (clone)
        clone->is_child = true;
    engine_unlock();
    if (!clone)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct graph_work work = {.op = {.is_instant = true}, .type = CU_GRAPH_NODE_TYPE_GRAPH};
    return place_node(place, work, NULL, clone);
}

SIM_API(cuGraphAddChildGraphNode, (PLACE_PARAMETERS, CUgraph child),
        (handle, graph, before, count, child), "%p %p", (void *)graph, (void *)child)
{
    return add_child(PLACE, child);
}

SIM_API(cuGraphChildGraphNodeGetGraph, (CUgraphNode handle, CUgraph *graph), (handle, graph), "%p",
        (void *)handle)
{
    struct sim_graph_node *node;
    CUresult result = graph_node_check(handle, &node);
    if (result)
        return result;
    if (!graph || !node->child)
        return CUDA_ERROR_INVALID_VALUE;
    *graph = (CUgraph)node->child;
    return CUDA_SUCCESS;
}

static CUresult add_conditional(struct node_place place, CUDA_CONDITIONAL_NODE_PARAMS *parameters)
{
    struct graph_conditional *conditional;
    struct sim_graph *graph;
    CUresult result = check_place(place, &graph);
    if (result == CUDA_SUCCESS)
        result = conditional_make(parameters, graph, &conditional);
    if (result)
        return result;
    struct graph_work work = {.op = {.is_instant = true}, .type = CU_GRAPH_NODE_TYPE_CONDITIONAL};
    result = place_node(place, work, NULL, NULL);
    engine_lock();
    if (result)
        conditional_destroy_locked(conditional);
    else
        ((struct sim_graph_node *)*place.handle)->conditional = conditional;
    engine_unlock();
    if (result == CUDA_SUCCESS)
        parameters->phGraph_out = (CUgraph *)(void *)conditional->bodies;
    return result;
}

/* ---- events ---- */

static CUresult add_event(struct node_place place, CUevent event_handle, bool records)
{
    struct sim_event *event;
    struct node_parameters parameters = {.is_set = true, .event = event_handle};
    CUresult result = event_check(event_handle, &event);
    return result ? result
                  : place_node(place, records ? event_record_node(event) : event_wait_node(event),
                               &parameters, NULL);
}

SIM_API(cuGraphAddEventRecordNode, (PLACE_PARAMETERS, CUevent event),
        (handle, graph, before, count, event), "%p %p", (void *)graph, (void *)event)
{
    return add_event(PLACE, event, true);
}

SIM_API(cuGraphAddEventWaitNode, (PLACE_PARAMETERS, CUevent event),
        (handle, graph, before, count, event), "%p %p", (void *)graph, (void *)event)
{
    return add_event(PLACE, event, false);
}

static CUresult get_event(CUgraphNode node, CUgraphNodeType type, CUevent *event)
{
    struct node_parameters parameters;
    CUresult result = get_parameters(node, type, &parameters);
    if (result == CUDA_SUCCESS && event)
        *event = parameters.event;
    return result == CUDA_SUCCESS && !event ? CUDA_ERROR_INVALID_VALUE : result;
}

SIM_API(cuGraphEventRecordNodeGetEvent, (CUgraphNode node, CUevent *event), (node, event), "%p",
        (void *)node)
{
    return get_event(node, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event);
}

SIM_API(cuGraphEventWaitNodeGetEvent, (CUgraphNode node, CUevent *event), (node, event), "%p",
        (void *)node)
{
    return get_event(node, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event);
}

/* ---- memory ---- */

static CUresult add_allocation(struct node_place place, CUDA_MEM_ALLOC_NODE_PARAMS *allocation)
{
    struct node_parameters parameters = {.is_set = true};
    struct sim_graph *graph;
    struct graph_work work;
    CUresult result = allocation ? check_place(place, &graph) : CUDA_ERROR_INVALID_VALUE;
    if (result)
        return result;
    parameters.allocation = *allocation;
    result = graph_make_allocation(&parameters, &work);
    if (result)
        return result;
    allocation->dptr = parameters.allocation.dptr;
    return place_node(place, work, &parameters, NULL);
}

SIM_API(cuGraphAddMemAllocNode, (PLACE_PARAMETERS, CUDA_MEM_ALLOC_NODE_PARAMS *allocation),
        (handle, graph, before, count, allocation), "%p %zu", (void *)graph,
        allocation ? allocation->bytesize : 0)
{
    return add_allocation(PLACE, allocation);
}

SIM_API(cuGraphMemAllocNodeGetParams, (CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS *allocation),
        (node, allocation), "%p", (void *)node)
{
    struct node_parameters parameters;
    CUresult result = get_parameters(node, CU_GRAPH_NODE_TYPE_MEM_ALLOC, &parameters);
    if (result == CUDA_SUCCESS && allocation)
        *allocation = parameters.allocation;
    return result == CUDA_SUCCESS && !allocation ? CUDA_ERROR_INVALID_VALUE : result;
}

SIM_API(cuGraphAddMemFreeNode, (PLACE_PARAMETERS, CUdeviceptr address),
        (handle, graph, before, count, address), "%p %llx", (void *)graph, address)
{
    struct node_parameters parameters = {.address = address};
    return add_made(PLACE, &parameters, graph_make_free);
}

SIM_API(cuGraphMemFreeNodeGetParams, (CUgraphNode node, CUdeviceptr *address), (node, address),
        "%p", (void *)node)
{
    struct node_parameters parameters;
    CUresult result = get_parameters(node, CU_GRAPH_NODE_TYPE_MEM_FREE, &parameters);
    if (result == CUDA_SUCCESS && address)
        *address = parameters.address;
    return result == CUDA_SUCCESS && !address ? CUDA_ERROR_INVALID_VALUE : result;
}

/* ---- any kind ---- */

static CUresult add_any(struct node_place place, CUgraphNodeParams *any)
{
    struct node_parameters parameters = {0};

    if (!any)
        return CUDA_ERROR_INVALID_VALUE;
    switch (any->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return add_kernel(place, &any->kernel);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        parameters.copy = any->memcpy.copyParams;
        parameters.context = any->memcpy.copyCtx;
        return add_made(place, &parameters, graph_make_copy);
    case CU_GRAPH_NODE_TYPE_MEMSET:
        memcpy(&parameters.fill, &any->memset, sizeof parameters.fill);
        parameters.context = any->memset.ctx;
        return add_made(place, &parameters, graph_make_fill);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        memcpy(&parameters.batch, &any->memOp, sizeof parameters.batch);
        parameters.context = any->memOp.ctx;
        return add_made(place, &parameters, graph_make_batch);
    case CU_GRAPH_NODE_TYPE_HOST:
        parameters.host = (CUDA_HOST_NODE_PARAMS){any->host.fn, any->host.userData};
        return add_made(place, &parameters, graph_make_host);
    case CU_GRAPH_NODE_TYPE_GRAPH:
        return add_child(place, any->graph.graph);
    case CU_GRAPH_NODE_TYPE_EMPTY:
        return body_cuGraphAddEmptyNode(place.handle, place.graph, place.before, place.count);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        return add_event(place, any->eventWait.event, false);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return add_event(place, any->eventRecord.event, true);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC: {
        CUDA_MEM_ALLOC_NODE_PARAMS allocation;
        memcpy(&allocation, &any->alloc, sizeof allocation);
        CUresult result = add_allocation(place, &allocation);
        any->alloc.dptr = allocation.dptr;
        return result;
    }
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        parameters.address = any->free.dptr;
        return add_made(place, &parameters, graph_make_free);
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
        return add_conditional(place, &any->conditional);
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

SIM_API(cuGraphAddNode, (PLACE_PARAMETERS, CUgraphNodeParams *any),
        (handle, graph, before, count, any), "%p %d", (void *)graph, any ? (int)any->type : -1)
{
    return add_any(PLACE, any);
}

SIM_API(cuGraphAddNode_v2,
        (CUgraphNode * handle, CUgraph graph, const CUgraphNode *before,
         const CUgraphEdgeData *edges, size_t count, CUgraphNodeParams *any),
        (handle, graph, before, edges, count, any), "%p %d", (void *)graph,
        any ? (int)any->type : -1)
{
    (void)edges; /* every edge is a full dependency */
    return add_any(PLACE, any);
}
