/* Changing nodes by kind-independent parameters, events of nodes, kernel attributes of nodes. */
#define _GNU_SOURCE
#include "tests/simcuda/driver/engine_graph.h"

#include <string.h>

/* ---- events ---- */

static struct graph_work event_work(CUgraphNodeType type, struct sim_event *event)
{
    return type == CU_GRAPH_NODE_TYPE_EVENT_RECORD ? event_record_node(event)
                                                   : event_wait_node(event);
}

static CUresult set_event(CUgraphNode handle, CUgraphNodeType type, CUevent event_handle)
{
    struct sim_graph_node *node;
    struct sim_event *event;
    CUresult result = graph_node_check(handle, &node);
    if (result == CUDA_SUCCESS)
        result = event_check(event_handle, &event);
    if (result)
        return result;
    if (node->work.type != type)
        return CUDA_ERROR_INVALID_VALUE;
    engine_lock();
    node->work = event_work(type, event);
    node->parameters.is_set = true;
    node->parameters.event = event_handle;
    engine_unlock();
    return CUDA_SUCCESS;
}

static CUresult set_event_exec(CUgraphExec exec, CUgraphNode node, CUgraphNodeType type,
                               CUevent event_handle)
{
    struct sim_event *event;
    CUresult result = event_check(event_handle, &event);
    return result ? result : graph_exec_replace(exec, node, type, event_work(type, event));
}

SIM_API(cuGraphEventRecordNodeSetEvent, (CUgraphNode node, CUevent event), (node, event), "%p %p",
        (void *)node, (void *)event)
{
    return set_event(node, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event);
}

SIM_API(cuGraphEventWaitNodeSetEvent, (CUgraphNode node, CUevent event), (node, event), "%p %p",
        (void *)node, (void *)event)
{
    return set_event(node, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event);
}

SIM_API(cuGraphExecEventRecordNodeSetEvent, (CUgraphExec exec, CUgraphNode node, CUevent event),
        (exec, node, event), "%p %p %p", (void *)exec, (void *)node, (void *)event)
{
    return set_event_exec(exec, node, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event);
}

SIM_API(cuGraphExecEventWaitNodeSetEvent, (CUgraphExec exec, CUgraphNode node, CUevent event),
        (exec, node, event), "%p %p %p", (void *)exec, (void *)node, (void *)event)
{
    return set_event_exec(exec, node, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event);
}

/* ---- any kind ---- */

/* The work that the parameters describe; kinds whose parameters cannot change are refused. */
static CUresult make_any(const CUgraphNodeParams *any, struct node_parameters *parameters,
                         struct graph_work *work)
{
    *parameters = (struct node_parameters){.is_set = true};
    switch (any->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        graph_plain_kernel(&any->kernel, &parameters->kernel);
        return graph_make_kernel(parameters, work);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        parameters->copy = any->memcpy.copyParams;
        parameters->context = any->memcpy.copyCtx;
        return graph_make(graph_make_copy, parameters, work);
    case CU_GRAPH_NODE_TYPE_MEMSET:
        memcpy(&parameters->fill, &any->memset, sizeof parameters->fill);
        parameters->context = any->memset.ctx;
        return graph_make(graph_make_fill, parameters, work);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        memcpy(&parameters->batch, &any->memOp, sizeof parameters->batch);
        parameters->context = any->memOp.ctx;
        return graph_make(graph_make_batch, parameters, work);
    case CU_GRAPH_NODE_TYPE_HOST:
        parameters->host = (CUDA_HOST_NODE_PARAMS){any->host.fn, any->host.userData};
        return graph_make_host(parameters, work);
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

SIM_API(cuGraphNodeSetParams, (CUgraphNode handle, CUgraphNodeParams *any), (handle, any), "%p %d",
        (void *)handle, any ? (int)any->type : -1)
{
    struct sim_graph_node *node;
    struct node_parameters parameters;
    struct graph_work work, before;
    CUresult result = graph_node_check(handle, &node);
    if (result)
        return result;
    if (!any || node->work.type != any->type)
        return CUDA_ERROR_INVALID_VALUE;
    result = make_any(any, &parameters, &work);
    if (result)
        return result;
    engine_lock();
    before = node->work;
    node->work = work;
    node->parameters = parameters;
    engine_unlock();
    graph_work_release(&before);
    return CUDA_SUCCESS;
}

SIM_API(cuGraphExecNodeSetParams, (CUgraphExec exec, CUgraphNode node, CUgraphNodeParams *any),
        (exec, node, any), "%p %p %d", (void *)exec, (void *)node, any ? (int)any->type : -1)
{
    struct node_parameters parameters;
    struct graph_work work;
    if (!any)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = make_any(any, &parameters, &work);
    return result ? result : graph_exec_replace(exec, node, any->type, work);
}

/* ---- attributes of kernel nodes: kept, without effect ---- */

static CUresult check_kernel(CUgraphNode handle, unsigned attribute, struct sim_graph_node **node)
{
    CUresult result = graph_node_check(handle, node);
    if (result)
        return result;
    return (*node)->work.type != CU_GRAPH_NODE_TYPE_KERNEL || attribute >= SIM_NODE_ATTRIBUTES
               ? CUDA_ERROR_INVALID_VALUE
               : CUDA_SUCCESS;
}

SIM_API(cuGraphKernelNodeGetAttribute,
        (CUgraphNode handle, CUkernelNodeAttrID attribute, CUkernelNodeAttrValue *value),
        (handle, attribute, value), "%p %d", (void *)handle, (int)attribute)
{
    struct sim_graph_node *node;
    CUresult result = check_kernel(handle, attribute, &node);
    if (result == CUDA_SUCCESS && value)
        *value = node->attributes[attribute];
    return result == CUDA_SUCCESS && !value ? CUDA_ERROR_INVALID_VALUE : result;
}

SIM_API(cuGraphKernelNodeSetAttribute,
        (CUgraphNode handle, CUkernelNodeAttrID attribute, const CUkernelNodeAttrValue *value),
        (handle, attribute, value), "%p %d", (void *)handle, (int)attribute)
{
    struct sim_graph_node *node;
    CUresult result = check_kernel(handle, attribute, &node);
    if (result == CUDA_SUCCESS && value)
        node->attributes[attribute] = *value;
    return result == CUDA_SUCCESS && !value ? CUDA_ERROR_INVALID_VALUE : result;
}

SIM_API(cuGraphKernelNodeCopyAttributes, (CUgraphNode to_handle, CUgraphNode from_handle),
        (to_handle, from_handle), "%p %p", (void *)to_handle, (void *)from_handle)
{
    struct sim_graph_node *to, *from;
    CUresult result = check_kernel(to_handle, 0, &to);
    if (result == CUDA_SUCCESS)
        result = check_kernel(from_handle, 0, &from);
    if (result == CUDA_SUCCESS)
        memcpy(to->attributes, from->attributes, sizeof to->attributes);
    return result;
}
