/* Graphs as wholes: made, cloned, asked about, instantiated, updated, launched. Nodes are in
 * node.c. Handles are the driver's own; edge data has its layout. */
#include "runtime.h"

_Static_assert(sizeof(cudaGraphEdgeData) == sizeof(CUgraphEdgeData), "edge data is passed on");
_Static_assert(sizeof(cudaGraphInstantiateParams) == sizeof(CUDA_GRAPH_INSTANTIATE_PARAMS),
               "parameters are passed on");
_Static_assert(sizeof(cudaGraphExecUpdateResultInfo) == sizeof(CUgraphExecUpdateResultInfo),
               "results are passed on");

RT_API(driver, cudaGraphCreate, (cudaGraph_t * graph, unsigned flags), (graph, flags))
{
    return graph ? rt_result(rt_cu.cuGraphCreate(graph, flags)) : cudaErrorInvalidValue;
}

RT_API(driver, cudaGraphDestroy, (cudaGraph_t graph), (graph))
{
    return graph ? rt_result(rt_cu.cuGraphDestroy(graph)) : cudaErrorInvalidValue;
}

RT_API(driver, cudaGraphClone, (cudaGraph_t * clone, cudaGraph_t original), (clone, original))
{
    return clone ? rt_result(rt_cu.cuGraphClone(clone, original)) : cudaErrorInvalidValue;
}

RT_API(driver, cudaGraphDebugDotPrint, (cudaGraph_t graph, const char *path, unsigned flags),
       (graph, path, flags))
{
    return rt_result(rt_cu.cuGraphDebugDotPrint(graph, path, flags));
}

/* ---- nodes and edges of a graph ---- */

RT_API(driver, cudaGraphGetNodes, (cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count),
       (graph, nodes, count))
{
    return count ? rt_result(rt_cu.cuGraphGetNodes(graph, nodes, count)) : cudaErrorInvalidValue;
}

RT_API(driver, cudaGraphGetRootNodes, (cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count),
       (graph, nodes, count))
{
    return count ? rt_result(rt_cu.cuGraphGetRootNodes(graph, nodes, count))
                 : cudaErrorInvalidValue;
}

RT_API(driver, cudaGraphGetEdges,
       (cudaGraph_t graph, cudaGraphNode_t *from, cudaGraphNode_t *to, cudaGraphEdgeData *edges,
        size_t *count),
       (graph, from, to, edges, count))
{
    if (!count)
        return cudaErrorInvalidValue;
    return rt_result(rt_cu.cuGraphGetEdges_v2(graph, from, to, (CUgraphEdgeData *)edges, count));
}

RT_API(driver, cudaGraphAddDependencies,
       (cudaGraph_t graph, const cudaGraphNode_t *from, const cudaGraphNode_t *to,
        const cudaGraphEdgeData *edges, size_t count),
       (graph, from, to, edges, count))
{
    return rt_result(
        rt_cu.cuGraphAddDependencies_v2(graph, from, to, (const CUgraphEdgeData *)edges, count));
}

RT_API(driver, cudaGraphRemoveDependencies,
       (cudaGraph_t graph, const cudaGraphNode_t *from, const cudaGraphNode_t *to,
        const cudaGraphEdgeData *edges, size_t count),
       (graph, from, to, edges, count))
{
    return rt_result(
        rt_cu.cuGraphRemoveDependencies_v2(graph, from, to, (const CUgraphEdgeData *)edges, count));
}

RT_API(driver, cudaGraphNodeGetDependencies,
       (cudaGraphNode_t node, cudaGraphNode_t *nodes, cudaGraphEdgeData *edges, size_t *count),
       (node, nodes, edges, count))
{
    return rt_result(
        rt_cu.cuGraphNodeGetDependencies_v2(node, nodes, (CUgraphEdgeData *)edges, count));
}

RT_API(driver, cudaGraphNodeGetDependentNodes,
       (cudaGraphNode_t node, cudaGraphNode_t *nodes, cudaGraphEdgeData *edges, size_t *count),
       (node, nodes, edges, count))
{
    return rt_result(
        rt_cu.cuGraphNodeGetDependentNodes_v2(node, nodes, (CUgraphEdgeData *)edges, count));
}

RT_API(driver, cudaGraphNodeFindInClone,
       (cudaGraphNode_t * node, cudaGraphNode_t original, cudaGraph_t clone),
       (node, original, clone))
{
    return rt_result(rt_cu.cuGraphNodeFindInClone(node, original, clone));
}

RT_API(driver, cudaGraphNodeGetType, (cudaGraphNode_t node, enum cudaGraphNodeType *type),
       (node, type))
{
    CUgraphNodeType found;

    if (!type)
        return cudaErrorInvalidValue;
    RT_TRY_CU(rt_cu.cuGraphNodeGetType(node, &found));
    *type = (enum cudaGraphNodeType)found;
    return cudaSuccess;
}

RT_API(driver, cudaGraphDestroyNode, (cudaGraphNode_t node), (node))
{
    return rt_result(rt_cu.cuGraphDestroyNode(node));
}

/* ---- executable graphs ---- */

static cudaError_t instantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags)
{
    return exec ? rt_result(rt_cu.cuGraphInstantiateWithFlags(exec, graph, flags))
                : cudaErrorInvalidValue;
}

RT_API(context, cudaGraphInstantiate,
       (cudaGraphExec_t * exec, cudaGraph_t graph, unsigned long long flags), (exec, graph, flags))
{
    return instantiate(exec, graph, flags);
}

RT_API(context, cudaGraphInstantiateWithFlags,
       (cudaGraphExec_t * exec, cudaGraph_t graph, unsigned long long flags), (exec, graph, flags))
{
    return instantiate(exec, graph, flags);
}

RT_API_PT(context, cudaGraphInstantiateWithParams, ptsz,
          (cudaGraphExec_t * exec, cudaGraph_t graph, cudaGraphInstantiateParams *params),
          (exec, graph, params))
{
    if (!exec || !params)
        return cudaErrorInvalidValue;
    return rt_result(RT_PICK(cuGraphInstantiateWithParams,
                             ptsz)(exec, graph, (CUDA_GRAPH_INSTANTIATE_PARAMS *)params));
}

RT_API_PT(context, cudaGraphUpload, ptsz, (cudaGraphExec_t exec, cudaStream_t stream),
          (exec, stream))
{
    return rt_result(RT_PICK(cuGraphUpload, ptsz)(exec, stream));
}

RT_API_PT(context, cudaGraphLaunch, ptsz, (cudaGraphExec_t exec, cudaStream_t stream),
          (exec, stream))
{
    return exec ? rt_result(RT_PICK(cuGraphLaunch, ptsz)(exec, stream)) : cudaErrorInvalidValue;
}

RT_API(driver, cudaGraphExecDestroy, (cudaGraphExec_t exec), (exec))
{
    return exec ? rt_result(rt_cu.cuGraphExecDestroy(exec)) : cudaErrorInvalidValue;
}

RT_API(driver, cudaGraphExecGetFlags, (cudaGraphExec_t exec, unsigned long long *flags),
       (exec, flags))
{
    cuuint64_t found;

    if (!flags)
        return cudaErrorInvalidValue;
    RT_TRY_CU(rt_cu.cuGraphExecGetFlags(exec, &found));
    *flags = found;
    return cudaSuccess;
}

RT_API(context, cudaGraphExecUpdate,
       (cudaGraphExec_t exec, cudaGraph_t graph, cudaGraphExecUpdateResultInfo *info),
       (exec, graph, info))
{
    return rt_result(rt_cu.cuGraphExecUpdate_v2(exec, graph, (CUgraphExecUpdateResultInfo *)info));
}

RT_API(driver, cudaGraphNodeSetEnabled,
       (cudaGraphExec_t exec, cudaGraphNode_t node, unsigned isEnabled), (exec, node, isEnabled))
{
    return rt_result(rt_cu.cuGraphNodeSetEnabled(exec, node, isEnabled));
}

RT_API(driver, cudaGraphNodeGetEnabled,
       (cudaGraphExec_t exec, cudaGraphNode_t node, unsigned *isEnabled), (exec, node, isEnabled))
{
    return rt_result(rt_cu.cuGraphNodeGetEnabled(exec, node, isEnabled));
}

/* ---- memory that graphs hold ---- */

RT_API(driver, cudaDeviceGraphMemTrim, (int device), (device))
{
    RT_TRY(rt_check_device(device));
    return rt_result(rt_cu.cuDeviceGraphMemTrim(device));
}

RT_API(driver, cudaDeviceGetGraphMemAttribute,
       (int device, enum cudaGraphMemAttributeType attr, void *value), (device, attr, value))
{
    RT_TRY(rt_check_device(device));
    return rt_result(rt_cu.cuDeviceGetGraphMemAttribute(device, (CUgraphMem_attribute)attr, value));
}

RT_API(driver, cudaDeviceSetGraphMemAttribute,
       (int device, enum cudaGraphMemAttributeType attr, void *value), (device, attr, value))
{
    RT_TRY(rt_check_device(device));
    return rt_result(rt_cu.cuDeviceSetGraphMemAttribute(device, (CUgraphMem_attribute)attr, value));
}

/* ---- objects that graphs keep alive ---- */

RT_API(driver, cudaUserObjectCreate,
       (cudaUserObject_t * object, void *ptr, cudaHostFn_t destroy, unsigned count, unsigned flags),
       (object, ptr, destroy, count, flags))
{
    return rt_result(rt_cu.cuUserObjectCreate(object, ptr, destroy, count, flags));
}

RT_API(driver, cudaUserObjectRetain, (cudaUserObject_t object, unsigned count), (object, count))
{
    return rt_result(rt_cu.cuUserObjectRetain(object, count));
}

RT_API(driver, cudaUserObjectRelease, (cudaUserObject_t object, unsigned count), (object, count))
{
    return rt_result(rt_cu.cuUserObjectRelease(object, count));
}

RT_API(driver, cudaGraphRetainUserObject,
       (cudaGraph_t graph, cudaUserObject_t object, unsigned count, unsigned flags),
       (graph, object, count, flags))
{
    return rt_result(rt_cu.cuGraphRetainUserObject(graph, object, count, flags));
}

RT_API(driver, cudaGraphReleaseUserObject,
       (cudaGraph_t graph, cudaUserObject_t object, unsigned count), (graph, object, count))
{
    return rt_result(rt_cu.cuGraphReleaseUserObject(graph, object, count));
}
