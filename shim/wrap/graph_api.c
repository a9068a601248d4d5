/* Graphs: memory nodes and captured stream-ordered allocations take memory when the graph first
 * runs, and the driver keeps it for the next run until it is trimmed.
 *
 * A device's graph memory is charged by what the driver says is reserved for it, looked at after
 * every call that can change it, and only once the program is known to use such nodes. A launch
 * cannot be undone: it may take the account past a limit, and then the next request is refused. */
#include "shim/account/direct.h"
#include "shim/account/handles.h"
#include "shim/account/mempool.h"
#include "shim/wrap/submit.h"

#define DEVICE_COUNT_MAX 64

static struct graph_account {
    struct gc_device *_Atomic device; /* NULL: no graph memory known */
    uint64_t charged;                 /* these two: under the handles' lock */
    uint64_t sequence;
} accounts[DEVICE_COUNT_MAX];
static atomic_bool is_any_expected;

static struct graph_account *account_of(const struct gc_device *device)
{
    if (device == NULL)
        return NULL;
    unsigned ordinal = (unsigned)gc_device_get_info(device)->ordinal;
    return ordinal < DEVICE_COUNT_MAX ? &accounts[ordinal] : NULL;
}

void gc_graph_expect(struct gc_device *device)
{
    struct graph_account *account = account_of(device);

    if (account == NULL)
        return;
    account->device = device;
    is_any_expected = true;
}

static bool read_reserved(const struct gc_device *device, uint64_t *bytes)
{
    struct gc_capture_guard guard;
    cuuint64_t value = 0;

    gc_capture_relax(&guard);
    CUresult result = GC_USE(cuDeviceGetGraphMemAttribute, gc_device_get_info(device)->ordinal,
                             CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &value);
    gc_capture_restore(&guard);
    *bytes = value;
    return result == CUDA_SUCCESS;
}

/* By how much the account changed; reads again if another look came between. */
static int64_t follow(struct graph_account *account, const struct gc_device *device)
{
    int64_t growth = 0;
    bool is_done = false;

    for (int attempt = 0; attempt < 16 && !is_done; attempt++) {
        uint64_t bytes;
        gc_handles_lock();
        uint64_t sequence = account->sequence;
        gc_handles_unlock();
        if (!read_reserved(device, &bytes))
            return 0;
        gc_handles_lock();
        is_done = account->sequence == sequence;
        if (is_done) {
            growth = (int64_t)(bytes - account->charged);
            account->charged = bytes;
            account->sequence++;
        }
        gc_handles_unlock();
    }
    if (growth > 0)
        gc_core_note_use(gc_shim.core);
    return growth;
}

void gc_graph_refresh(struct gc_device *device)
{
    struct graph_account *account = account_of(device);

    if (account != NULL && account->device != NULL)
        gc_direct_adjust(device, follow(account, device));
}

bool gc_graph_is_expected(void)
{
    return atomic_load_explicit(&is_any_expected, memory_order_relaxed);
}

void gc_graph_refresh_all(void)
{
    if (!gc_graph_is_expected())
        return;
    for (int i = 0; i < DEVICE_COUNT_MAX; i++)
        if (accounts[i].device != NULL)
            gc_graph_refresh(accounts[i].device);
}

bool gc_graph_trim(struct gc_device *device)
{
    struct graph_account *account = account_of(device);
    struct gc_capture_guard guard;

    if (account == NULL || account->device == NULL)
        return false;
    gc_capture_relax(&guard);
    (void)GC_CALL(device, cuDeviceGraphMemTrim, gc_device_get_info(device)->ordinal);
    gc_capture_restore(&guard);
    int64_t growth = follow(account, device);
    gc_direct_adjust(device, growth);
    return growth < 0;
}

/* ---- nodes ---- */

GC_EXPORT
CUresult cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                                size_t count, CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
    if (!gc_shim_ready())
        return GC_FORWARD(cuGraphAddMemAllocNode, node, graph, dependencies, count, params);
    struct gc_direct_request request;
    gc_direct_begin(&request, GC_API_cuGraphAddMemAllocNode);
    CUresult result = GC_DIRECT_CALL(&request, 0, cuGraphAddMemAllocNode, node, graph, dependencies,
                                     count, params);
    if (result == CUDA_SUCCESS)
        gc_graph_expect(params->poolProps.location.type == CU_MEM_LOCATION_TYPE_DEVICE
                            ? gc_shim_device(params->poolProps.location.id)
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
        if (!gc_shim_ready())                                                                      \
            return GC_FORWARD(symbol, __VA_ARGS__);                                                \
        if (!is_memory_node(params)) {                                                             \
            gc_shim_enter(GC_API_##symbol);                                                        \
            gc_reach_note_node(params);                                                            \
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

/* ---- calls that take or give graph memory: retried once after relief, then the account is looked
 * at ---- */

#define GRAPH_CALL(symbol, ...)                                                                    \
    do {                                                                                           \
        if (!gc_shim_ready())                                                                      \
            return GC_FORWARD(symbol, __VA_ARGS__);                                                \
        struct gc_direct_request request;                                                          \
        gc_direct_begin(&request, GC_API_##symbol);                                                \
        CUresult result = GC_DIRECT_CALL(&request, 0, symbol, __VA_ARGS__);                        \
        gc_graph_refresh_all();                                                                    \
        return gc_direct_end(&request, result);                                                    \
    } while (0)

GC_EXPORT
CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
    GRAPH_CALL(cuGraphInstantiateWithFlags, exec, graph, flags);
}

/* The same for calls that submit work: the graph itself, or what prepares it. */
#define GRAPH_SUBMIT(symbol, is_per_thread, stream, ...)                                           \
    do {                                                                                           \
        if (!gc_shim_ready())                                                                      \
            return GC_SUBMIT(stream, is_per_thread, ANY, GC_FORWARD(symbol, __VA_ARGS__));         \
        struct gc_direct_request request;                                                          \
        gc_direct_begin(&request, GC_API_##symbol);                                                \
        CUresult result = GC_SUBMIT(stream, is_per_thread, ANY,                                    \
                                    GC_DIRECT_CALL(&request, 0, symbol, __VA_ARGS__));             \
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
