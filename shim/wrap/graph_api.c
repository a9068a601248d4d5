/* Graphs: calls that can take or release graph memory; account/graph_memory.c has the account. A
 * launch cannot be undone: it may take the account past a limit, and then the next request is
 * refused. */
#include "shim/account/device.h"
#include "shim/account/direct.h"
#include "shim/account/graph_memory.h"
#include "shim/life/life.h"
#include "shim/real/resolve.h"
#include "shim/wrap/reach.h"
#include "shim/wrap/relieve.h"
#include "shim/wrap/submit.h"

/* ---- nodes ---- */

GC_EXPORT
CUresult cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                                size_t count, CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
    if (!gc_life_ready())
        return GC_FORWARD(cuGraphAddMemAllocNode, node, graph, dependencies, count, params);
    struct gc_direct_request request;
    gc_direct_begin(&request, GC_API_cuGraphAddMemAllocNode);
    CUresult result = GC_DIRECT_CALL(&request, 0, cuGraphAddMemAllocNode, node, graph, dependencies,
                                     count, params);
    if (result == CUDA_SUCCESS)
        gc_graph_expect(params->poolProps.location.type == CU_MEM_LOCATION_TYPE_DEVICE
                            ? gc_account_device(params->poolProps.location.id)
                            : request.device);
    return gc_direct_end(&request, result);
}

/* The node's type is the first member of CUgraphNodeParams, which older headers lack. */
static bool is_memory_node(const CUgraphNodeParams *params)
{
    return params != NULL && *(const int *)(const void *)params == CU_GRAPH_NODE_TYPE_MEM_ALLOC;
}

#define ADD_NODE(symbol, ...)                                                                      \
    do {                                                                                           \
        if (!gc_life_ready())                                                                      \
            return GC_FORWARD(symbol, __VA_ARGS__);                                                \
        if (!is_memory_node(params)) {                                                             \
            gc_shim_enter(GC_API_##symbol);                                                        \
            gc_reach_add_node(params);                                                             \
            gc_shim_leave();                                                                       \
            return GC_FORWARD(symbol, __VA_ARGS__);                                                \
        }                                                                                          \
        struct gc_direct_request request;                                                          \
        gc_direct_begin(&request, GC_API_##symbol);                                                \
        CUresult result = GC_DIRECT_CALL(&request, 0, symbol, __VA_ARGS__);                        \
        if (result == CUDA_SUCCESS)                                                                \
            gc_graph_expect(request.device);                                                       \
        return gc_direct_end(&request, result);                                                    \
    } while (0)

GC_EXPORT
CUresult cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                        size_t count, CUgraphNodeParams *params)
{
    ADD_NODE(cuGraphAddNode, node, graph, dependencies, count, params);
}

GC_EXPORT
CUresult cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                           const CUgraphEdgeData *edges, size_t count, CUgraphNodeParams *params)
{
    ADD_NODE(cuGraphAddNode_v2, node, graph, dependencies, edges, count, params);
}

/* ---- calls that take or release graph memory: retried once after a reclaim, then the account is
 * updated ---- */

#define GRAPH_CALL(symbol, ...)                                                                    \
    do {                                                                                           \
        if (!gc_life_ready())                                                                      \
            return GC_FORWARD(symbol, __VA_ARGS__);                                                \
        struct gc_direct_request request;                                                          \
        gc_direct_begin(&request, GC_API_##symbol);                                                \
        CUresult result = GC_DIRECT_CALL(&request, 0, symbol, __VA_ARGS__);                        \
        gc_graph_refresh_all();                                                                    \
        return gc_direct_end(&request, result);                                                    \
    } while (0)

GC_EXPORT
CUresult cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node, char *log,
                            size_t bytes)
{
    GRAPH_CALL(cuGraphInstantiate, exec, graph, error_node, log, bytes);
}

GC_EXPORT
CUresult cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node, char *log,
                               size_t bytes)
{
    GRAPH_CALL(cuGraphInstantiate_v2, exec, graph, error_node, log, bytes);
}

GC_EXPORT
CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
    GRAPH_CALL(cuGraphInstantiateWithFlags, exec, graph, flags);
}

/* As GRAPH_CALL for calls that submit work: the graph itself, or its preparation. */
#define GRAPH_SUBMIT(symbol, is_per_thread, stream, ...)                                           \
    do {                                                                                           \
        if (!gc_life_ready())                                                                      \
            return GC_SUBMIT_CALL_IF_OPEN(stream, is_per_thread, ANY,                              \
                                          GC_FORWARD(symbol, __VA_ARGS__));                        \
        struct gc_direct_request request;                                                          \
        gc_direct_begin(&request, GC_API_##symbol);                                                \
        CUresult result = GC_SUBMIT_CALL_IF_OPEN(                                                  \
            stream, is_per_thread, ANY, GC_DIRECT_CALL(&request, 0, symbol, __VA_ARGS__));         \
        gc_graph_refresh_all();                                                                    \
        return gc_direct_end(&request, result);                                                    \
    } while (0)

GC_EXPORT
CUresult cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
    GRAPH_SUBMIT(cuGraphInstantiateWithParams, false, CU_STREAM_PER_THREAD, exec, graph, params);
}

GC_EXPORT
CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *exec, CUgraph graph,
                                           CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
    GRAPH_SUBMIT(cuGraphInstantiateWithParams_ptsz, true, CU_STREAM_PER_THREAD, exec, graph,
                 params);
}

GC_EXPORT
CUresult cuGraphUpload(CUgraphExec exec, CUstream stream)
{
    GRAPH_SUBMIT(cuGraphUpload, false, stream, exec, stream);
}

GC_EXPORT
CUresult cuGraphUpload_ptsz(CUgraphExec exec, CUstream stream)
{
    GRAPH_SUBMIT(cuGraphUpload_ptsz, true, stream, exec, stream);
}

GC_EXPORT
CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
    GRAPH_SUBMIT(cuGraphLaunch, false, stream, exec, stream);
}

GC_EXPORT
CUresult cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream)
{
    GRAPH_SUBMIT(cuGraphLaunch_ptsz, true, stream, exec, stream);
}

GC_EXPORT
CUresult cuGraphExecDestroy(CUgraphExec exec)
{
    GRAPH_CALL(cuGraphExecDestroy, exec);
}

GC_EXPORT
CUresult cuDeviceGraphMemTrim(CUdevice ordinal)
{
    GRAPH_CALL(cuDeviceGraphMemTrim, ordinal);
}

/* ---- nodes that name memory by its address ---- */

/* The wrappers of the NODE rows. The launch of a graph checks no address: it reaches any memory.
 * But memory that a node uses must be open to the node's device by then, and these wrappers note
 * it. */
#define API(...)
#define USE(...)
#define RUNTIME(...)
#define NODE(symbol, base, version, context, word, operands, parameters, arguments)                \
    GC_EXPORT                                                                                      \
    CUresult symbol parameters                                                                     \
    {                                                                                              \
        if (gc_life_ready()) {                                                                     \
            gc_shim_enter(GC_API_##symbol);                                                        \
            struct gc_reach reach = gc_reach_of_node(context);                                     \
            GC_REACH(&reach, word, operands);                                                      \
            gc_shim_leave();                                                                       \
        }                                                                                          \
        return GC_FORWARD(symbol, GC_REACH_LIST arguments);                                        \
    }
#include "shim/api.def"
