/* Nodes of graphs: kernels, copies, fills, host calls, child graphs, events, memory. The runtime's
 * parameters are translated to the driver's; where both have one layout they are passed on. */
#include "runtime.h"

#include <string.h>

_Static_assert(sizeof(struct cudaMemsetParams) == sizeof(CUDA_MEMSET_NODE_PARAMS),
               "fill parameters are passed on");
_Static_assert(sizeof(struct cudaHostNodeParams) == sizeof(CUDA_HOST_NODE_PARAMS),
               "host parameters are passed on");
_Static_assert(sizeof(struct cudaMemAllocNodeParams) == sizeof(CUDA_MEM_ALLOC_NODE_PARAMS),
               "these too");
_Static_assert(sizeof(cudaKernelNodeAttrValue) == sizeof(CUkernelNodeAttrValue),
               "attribute values are passed on");

/* Most entry points begin with where the node goes. */
#define ADD_PARAMETERS                                                                             \
    cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *dependencies, size_t count
#define ADD_ARGUMENTS node, graph, dependencies, count

static cudaError_t current(CUcontext *context)
{
    return rt_result(rt_cu.cuCtxGetCurrent(context));
}

/* ---- kernels ---- */

static cudaError_t kernel_params(const struct cudaKernelNodeParams *p,
                                 CUDA_KERNEL_NODE_PARAMS *driver)
{
    CUkernel kernel;

    if (!p)
        return cudaErrorInvalidValue;
    RT_TRY(rt_kernel_find(p->func, &kernel));
    *driver = (CUDA_KERNEL_NODE_PARAMS){
        .gridDimX = p->gridDim.x,
        .gridDimY = p->gridDim.y,
        .gridDimZ = p->gridDim.z,
        .blockDimX = p->blockDim.x,
        .blockDimY = p->blockDim.y,
        .blockDimZ = p->blockDim.z,
        .sharedMemBytes = p->sharedMemBytes,
        .kernelParams = p->kernelParams,
        .extra = p->extra,
        .kern = kernel,
    };
    return cudaSuccess;
}

RT_API(context, cudaGraphAddKernelNode, (ADD_PARAMETERS, const struct cudaKernelNodeParams *params),
       (ADD_ARGUMENTS, params))
{
    CUDA_KERNEL_NODE_PARAMS same;

    RT_TRY(kernel_params(params, &same));
    return rt_result(rt_cu.cuGraphAddKernelNode_v2(node, graph, dependencies, count, &same));
}

RT_API(context, cudaGraphKernelNodeSetParams,
       (cudaGraphNode_t node, const struct cudaKernelNodeParams *params), (node, params))
{
    CUDA_KERNEL_NODE_PARAMS same;

    RT_TRY(kernel_params(params, &same));
    return rt_result(rt_cu.cuGraphKernelNodeSetParams_v2(node, &same));
}

RT_API(context, cudaGraphExecKernelNodeSetParams,
       (cudaGraphExec_t exec, cudaGraphNode_t node, const struct cudaKernelNodeParams *params),
       (exec, node, params))
{
    CUDA_KERNEL_NODE_PARAMS same;

    RT_TRY(kernel_params(params, &same));
    return rt_result(rt_cu.cuGraphExecKernelNodeSetParams_v2(exec, node, &same));
}

RT_API(driver, cudaGraphKernelNodeGetAttribute,
       (cudaGraphNode_t node, cudaKernelNodeAttrID attr, cudaKernelNodeAttrValue *value),
       (node, attr, value))
{
    return rt_result(rt_cu.cuGraphKernelNodeGetAttribute(node, (CUkernelNodeAttrID)attr,
                                                         (CUkernelNodeAttrValue *)value));
}

RT_API(driver, cudaGraphKernelNodeSetAttribute,
       (cudaGraphNode_t node, cudaKernelNodeAttrID attr, const cudaKernelNodeAttrValue *value),
       (node, attr, value))
{
    return rt_result(rt_cu.cuGraphKernelNodeSetAttribute(node, (CUkernelNodeAttrID)attr,
                                                         (const CUkernelNodeAttrValue *)value));
}

RT_API(driver, cudaGraphKernelNodeCopyAttributes, (cudaGraphNode_t dst, cudaGraphNode_t src),
       (dst, src))
{
    return rt_result(rt_cu.cuGraphKernelNodeCopyAttributes(dst, src));
}

/* ---- copies ---- */

static struct cudaMemcpy3DParms linear(void *dst, const void *src, size_t bytes,
                                       enum cudaMemcpyKind kind)
{
    return (struct cudaMemcpy3DParms){
        .srcPtr = {.ptr = (void *)(uintptr_t)src, .pitch = bytes, .xsize = bytes, .ysize = 1},
        .dstPtr = {.ptr = dst, .pitch = bytes, .xsize = bytes, .ysize = 1},
        .extent = {.width = bytes, .height = 1, .depth = 1},
        .kind = kind,
    };
}

static cudaError_t add_copy(ADD_PARAMETERS, const struct cudaMemcpy3DParms *p)
{
    CUDA_MEMCPY3D shape;
    CUcontext context;

    if (!p)
        return cudaErrorInvalidValue;
    RT_TRY(rt_copy_3d(p, &shape));
    RT_TRY(current(&context));
    return rt_result(rt_cu.cuGraphAddMemcpyNode(node, graph, dependencies, count, &shape, context));
}

static cudaError_t set_copy(cudaGraphNode_t node, const struct cudaMemcpy3DParms *p)
{
    CUDA_MEMCPY3D shape;

    if (!p)
        return cudaErrorInvalidValue;
    RT_TRY(rt_copy_3d(p, &shape));
    return rt_result(rt_cu.cuGraphMemcpyNodeSetParams(node, &shape));
}

static cudaError_t set_exec_copy(cudaGraphExec_t exec, cudaGraphNode_t node,
                                 const struct cudaMemcpy3DParms *p)
{
    CUDA_MEMCPY3D shape;
    CUcontext context;

    if (!p)
        return cudaErrorInvalidValue;
    RT_TRY(rt_copy_3d(p, &shape));
    RT_TRY(current(&context));
    return rt_result(rt_cu.cuGraphExecMemcpyNodeSetParams(exec, node, &shape, context));
}

/* The address of `offset` in a symbol that has `bytes` from there. */
static cudaError_t inside_symbol(const void *symbol, size_t bytes, size_t offset, void **address)
{
    CUdeviceptr base;
    size_t size;

    RT_TRY(rt_symbol_find(symbol, &base, &size));
    if (offset > size || bytes > size - offset)
        return cudaErrorInvalidValue;
    *address = (void *)(uintptr_t)(base + offset);
    return cudaSuccess;
}

RT_API(context, cudaGraphAddMemcpyNode, (ADD_PARAMETERS, const struct cudaMemcpy3DParms *params),
       (ADD_ARGUMENTS, params))
{
    return add_copy(ADD_ARGUMENTS, params);
}

RT_API(context, cudaGraphAddMemcpyNode1D,
       (ADD_PARAMETERS, void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind),
       (ADD_ARGUMENTS, dst, src, bytes, kind))
{
    struct cudaMemcpy3DParms p = linear(dst, src, bytes, kind);

    return add_copy(ADD_ARGUMENTS, &p);
}

RT_API(context, cudaGraphAddMemcpyNodeToSymbol,
       (ADD_PARAMETERS, const void *symbol, const void *src, size_t bytes, size_t offset,
        enum cudaMemcpyKind kind),
       (ADD_ARGUMENTS, symbol, src, bytes, offset, kind))
{
    struct cudaMemcpy3DParms p;
    void *address;

    RT_TRY(inside_symbol(symbol, bytes, offset, &address));
    p = linear(address, src, bytes, kind);
    return add_copy(ADD_ARGUMENTS, &p);
}

RT_API(context, cudaGraphAddMemcpyNodeFromSymbol,
       (ADD_PARAMETERS, void *dst, const void *symbol, size_t bytes, size_t offset,
        enum cudaMemcpyKind kind),
       (ADD_ARGUMENTS, dst, symbol, bytes, offset, kind))
{
    struct cudaMemcpy3DParms p;
    void *address;

    RT_TRY(inside_symbol(symbol, bytes, offset, &address));
    p = linear(dst, address, bytes, kind);
    return add_copy(ADD_ARGUMENTS, &p);
}

RT_API(context, cudaGraphMemcpyNodeSetParams,
       (cudaGraphNode_t node, const struct cudaMemcpy3DParms *params), (node, params))
{
    return set_copy(node, params);
}

RT_API(context, cudaGraphMemcpyNodeSetParams1D,
       (cudaGraphNode_t node, void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind),
       (node, dst, src, bytes, kind))
{
    struct cudaMemcpy3DParms p = linear(dst, src, bytes, kind);

    return set_copy(node, &p);
}

RT_API(context, cudaGraphExecMemcpyNodeSetParams,
       (cudaGraphExec_t exec, cudaGraphNode_t node, const struct cudaMemcpy3DParms *params),
       (exec, node, params))
{
    return set_exec_copy(exec, node, params);
}

RT_API(context, cudaGraphExecMemcpyNodeSetParams1D,
       (cudaGraphExec_t exec, cudaGraphNode_t node, void *dst, const void *src, size_t bytes,
        enum cudaMemcpyKind kind),
       (exec, node, dst, src, bytes, kind))
{
    struct cudaMemcpy3DParms p = linear(dst, src, bytes, kind);

    return set_exec_copy(exec, node, &p);
}

/* ---- fills ---- */

RT_API(context, cudaGraphAddMemsetNode, (ADD_PARAMETERS, const struct cudaMemsetParams *params),
       (ADD_ARGUMENTS, params))
{
    CUcontext context;

    if (!params)
        return cudaErrorInvalidValue;
    RT_TRY(current(&context));
    return rt_result(
        rt_cu.cuGraphAddMemsetNode(node, graph, dependencies, count,
                                   (const CUDA_MEMSET_NODE_PARAMS *)(const void *)params, context));
}

RT_API(driver, cudaGraphMemsetNodeGetParams,
       (cudaGraphNode_t node, struct cudaMemsetParams *params), (node, params))
{
    return rt_result(
        rt_cu.cuGraphMemsetNodeGetParams(node, (CUDA_MEMSET_NODE_PARAMS *)(void *)params));
}

RT_API(driver, cudaGraphMemsetNodeSetParams,
       (cudaGraphNode_t node, const struct cudaMemsetParams *params), (node, params))
{
    return rt_result(rt_cu.cuGraphMemsetNodeSetParams(
        node, (const CUDA_MEMSET_NODE_PARAMS *)(const void *)params));
}

RT_API(context, cudaGraphExecMemsetNodeSetParams,
       (cudaGraphExec_t exec, cudaGraphNode_t node, const struct cudaMemsetParams *params),
       (exec, node, params))
{
    CUcontext context;

    RT_TRY(current(&context));
    return rt_result(rt_cu.cuGraphExecMemsetNodeSetParams(
        exec, node, (const CUDA_MEMSET_NODE_PARAMS *)(const void *)params, context));
}

/* ---- host calls ---- */

RT_API(driver, cudaGraphAddHostNode, (ADD_PARAMETERS, const struct cudaHostNodeParams *params),
       (ADD_ARGUMENTS, params))
{
    return rt_result(rt_cu.cuGraphAddHostNode(node, graph, dependencies, count,
                                              (const CUDA_HOST_NODE_PARAMS *)params));
}

RT_API(driver, cudaGraphHostNodeGetParams,
       (cudaGraphNode_t node, struct cudaHostNodeParams *params), (node, params))
{
    return rt_result(rt_cu.cuGraphHostNodeGetParams(node, (CUDA_HOST_NODE_PARAMS *)params));
}

RT_API(driver, cudaGraphHostNodeSetParams,
       (cudaGraphNode_t node, const struct cudaHostNodeParams *params), (node, params))
{
    return rt_result(rt_cu.cuGraphHostNodeSetParams(node, (const CUDA_HOST_NODE_PARAMS *)params));
}

RT_API(driver, cudaGraphExecHostNodeSetParams,
       (cudaGraphExec_t exec, cudaGraphNode_t node, const struct cudaHostNodeParams *params),
       (exec, node, params))
{
    return rt_result(
        rt_cu.cuGraphExecHostNodeSetParams(exec, node, (const CUDA_HOST_NODE_PARAMS *)params));
}

/* ---- child graphs, empty nodes, events ---- */

RT_API(driver, cudaGraphAddChildGraphNode, (ADD_PARAMETERS, cudaGraph_t child),
       (ADD_ARGUMENTS, child))
{
    return rt_result(rt_cu.cuGraphAddChildGraphNode(node, graph, dependencies, count, child));
}

RT_API(driver, cudaGraphChildGraphNodeGetGraph, (cudaGraphNode_t node, cudaGraph_t *child),
       (node, child))
{
    return rt_result(rt_cu.cuGraphChildGraphNodeGetGraph(node, child));
}

RT_API(driver, cudaGraphExecChildGraphNodeSetParams,
       (cudaGraphExec_t exec, cudaGraphNode_t node, cudaGraph_t child), (exec, node, child))
{
    return rt_result(rt_cu.cuGraphExecChildGraphNodeSetParams(exec, node, child));
}

RT_API(driver, cudaGraphAddEmptyNode, (ADD_PARAMETERS), (ADD_ARGUMENTS))
{
    return rt_result(rt_cu.cuGraphAddEmptyNode(node, graph, dependencies, count));
}

RT_API(driver, cudaGraphAddEventRecordNode, (ADD_PARAMETERS, cudaEvent_t event),
       (ADD_ARGUMENTS, event))
{
    return rt_result(rt_cu.cuGraphAddEventRecordNode(node, graph, dependencies, count, event));
}

RT_API(driver, cudaGraphAddEventWaitNode, (ADD_PARAMETERS, cudaEvent_t event),
       (ADD_ARGUMENTS, event))
{
    return rt_result(rt_cu.cuGraphAddEventWaitNode(node, graph, dependencies, count, event));
}

RT_API(driver, cudaGraphEventRecordNodeGetEvent, (cudaGraphNode_t node, cudaEvent_t *event),
       (node, event))
{
    return rt_result(rt_cu.cuGraphEventRecordNodeGetEvent(node, event));
}

RT_API(driver, cudaGraphEventRecordNodeSetEvent, (cudaGraphNode_t node, cudaEvent_t event),
       (node, event))
{
    return rt_result(rt_cu.cuGraphEventRecordNodeSetEvent(node, event));
}

RT_API(driver, cudaGraphEventWaitNodeGetEvent, (cudaGraphNode_t node, cudaEvent_t *event),
       (node, event))
{
    return rt_result(rt_cu.cuGraphEventWaitNodeGetEvent(node, event));
}

RT_API(driver, cudaGraphEventWaitNodeSetEvent, (cudaGraphNode_t node, cudaEvent_t event),
       (node, event))
{
    return rt_result(rt_cu.cuGraphEventWaitNodeSetEvent(node, event));
}

RT_API(driver, cudaGraphExecEventRecordNodeSetEvent,
       (cudaGraphExec_t exec, cudaGraphNode_t node, cudaEvent_t event), (exec, node, event))
{
    return rt_result(rt_cu.cuGraphExecEventRecordNodeSetEvent(exec, node, event));
}

RT_API(driver, cudaGraphExecEventWaitNodeSetEvent,
       (cudaGraphExec_t exec, cudaGraphNode_t node, cudaEvent_t event), (exec, node, event))
{
    return rt_result(rt_cu.cuGraphExecEventWaitNodeSetEvent(exec, node, event));
}

/* ---- memory ---- */

RT_API(context, cudaGraphAddMemAllocNode, (ADD_PARAMETERS, struct cudaMemAllocNodeParams *params),
       (ADD_ARGUMENTS, params))
{
    if (!params)
        return cudaErrorInvalidValue;
    return rt_result(rt_cu.cuGraphAddMemAllocNode(node, graph, dependencies, count,
                                                  (CUDA_MEM_ALLOC_NODE_PARAMS *)(void *)params));
}

RT_API(driver, cudaGraphMemAllocNodeGetParams,
       (cudaGraphNode_t node, struct cudaMemAllocNodeParams *params), (node, params))
{
    return rt_result(
        rt_cu.cuGraphMemAllocNodeGetParams(node, (CUDA_MEM_ALLOC_NODE_PARAMS *)(void *)params));
}

RT_API(context, cudaGraphAddMemFreeNode, (ADD_PARAMETERS, void *dptr), (ADD_ARGUMENTS, dptr))
{
    return rt_result(rt_cu.cuGraphAddMemFreeNode(node, graph, dependencies, count,
                                                 (CUdeviceptr)(uintptr_t)dptr));
}

RT_API(driver, cudaGraphMemFreeNodeGetParams, (cudaGraphNode_t node, void *dptr), (node, dptr))
{
    return rt_result(rt_cu.cuGraphMemFreeNodeGetParams(node, dptr));
}

/* ---- any kind ---- */

static cudaError_t node_params(const struct cudaGraphNodeParams *p, CUgraphNodeParams *driver)
{
    const struct cudaKernelNodeParams kernel = {.func = p->kernel.func,
                                                .gridDim = p->kernel.gridDim,
                                                .blockDim = p->kernel.blockDim,
                                                .sharedMemBytes = p->kernel.sharedMemBytes,
                                                .kernelParams = p->kernel.kernelParams,
                                                .extra = p->kernel.extra};
    CUDA_KERNEL_NODE_PARAMS same;

    memset(driver, 0, sizeof(*driver));
    driver->type = (CUgraphNodeType)p->type;
    switch (p->type) {
    case cudaGraphNodeTypeKernel:
        RT_TRY(kernel_params(&kernel, &same));
        memcpy(&driver->kernel, &same, sizeof(driver->kernel));
        return cudaSuccess;
    case cudaGraphNodeTypeMemcpy:
        RT_TRY(rt_copy_3d(&p->memcpy.copyParams, &driver->memcpy.copyParams));
        return current(&driver->memcpy.copyCtx);
    case cudaGraphNodeTypeMemset:
        memcpy(&driver->memset, &p->memset, sizeof(p->memset));
        return current(&driver->memset.ctx);
    case cudaGraphNodeTypeHost:
    case cudaGraphNodeTypeGraph:
    case cudaGraphNodeTypeEmpty:
    case cudaGraphNodeTypeWaitEvent:
    case cudaGraphNodeTypeEventRecord:
    case cudaGraphNodeTypeMemAlloc:
    case cudaGraphNodeTypeMemFree:
        memcpy(driver->reserved1, p->reserved1, sizeof(driver->reserved1));
        return cudaSuccess;
    case cudaGraphNodeTypeConditional:
        driver->conditional =
            (CUDA_CONDITIONAL_NODE_PARAMS){.handle = p->conditional.handle,
                                           .type = (CUgraphConditionalNodeType)p->conditional.type,
                                           .size = p->conditional.size};
        return current(&driver->conditional.ctx);
    default:
        return cudaErrorNotSupported;
    }
}

RT_API(context, cudaGraphAddNode,
       (cudaGraphNode_t * node, cudaGraph_t graph, const cudaGraphNode_t *dependencies,
        const cudaGraphEdgeData *edges, size_t count, struct cudaGraphNodeParams *params),
       (node, graph, dependencies, edges, count, params))
{
    CUgraphNodeParams same;

    if (!node || !params)
        return cudaErrorInvalidValue;
    RT_TRY(node_params(params, &same));
    RT_TRY_CU(rt_cu.cuGraphAddNode_v2(node, graph, dependencies, (const CUgraphEdgeData *)edges,
                                      count, &same));
    if (params->type == cudaGraphNodeTypeMemAlloc)
        params->alloc.dptr = (void *)(uintptr_t)same.alloc.dptr;
    if (params->type == cudaGraphNodeTypeGraph)
        params->graph.graph = same.graph.graph;
    if (params->type == cudaGraphNodeTypeConditional)
        params->conditional.phGraph_out = same.conditional.phGraph_out;
    return cudaSuccess;
}

RT_API(context, cudaGraphNodeSetParams, (cudaGraphNode_t node, struct cudaGraphNodeParams *params),
       (node, params))
{
    CUgraphNodeParams same;

    if (!params)
        return cudaErrorInvalidValue;
    RT_TRY(node_params(params, &same));
    return rt_result(rt_cu.cuGraphNodeSetParams(node, &same));
}

RT_API(context, cudaGraphExecNodeSetParams,
       (cudaGraphExec_t exec, cudaGraphNode_t node, struct cudaGraphNodeParams *params),
       (exec, node, params))
{
    CUgraphNodeParams same;

    if (!params)
        return cudaErrorInvalidValue;
    RT_TRY(node_params(params, &same));
    return rt_result(rt_cu.cuGraphExecNodeSetParams(exec, node, &same));
}

RT_API(context, cudaGraphConditionalHandleCreate,
       (cudaGraphConditionalHandle * handle, cudaGraph_t graph, unsigned value, unsigned flags),
       (handle, graph, value, flags))
{
    CUgraphConditionalHandle made;

    if (!handle)
        return cudaErrorInvalidValue;
    RT_TRY_CU(rt_cu.cuGraphConditionalHandleCreate(&made, graph, NULL, value, flags));
    *handle = made;
    return cudaSuccess;
}
