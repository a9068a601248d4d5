/* Instantiated graphs: a flat list of operations in an order that respects the dependencies, run as
 * one operation of the stream they are launched into. Launches of the same graph follow each other,
 * as a GPU's do. */
#define _GNU_SOURCE
#include "tests/simcuda/driver/engine_graph.h"
#include "tests/simcuda/driver/engine_lazy.h"

#include <stdlib.h>
#include <string.h>

struct exec_step {
    struct sim_graph_node *node; /* whose it is; only to find it again */
    struct graph_work work;
    bool is_enabled;
};

struct sim_graph_exec {
    uint32_t magic;
    int references; /* the handle, launches under way, nodes of other graphs */
    uint64_t flags;
    struct exec_step *steps;
    size_t step_count, step_capacity;
    struct sim_points last_launch;
    struct sim_context *memory_of; /* SIMCUDA_LAZY: the context of its first launch */
    uint64_t memory_id;            /* of that context */
    struct user_references held;   /* of the graph and its child graphs */
};

static struct engine_pool exec_pool = {.object_bytes = sizeof(struct sim_graph_exec)};

static CUresult exec_check(CUgraphExec handle, struct sim_graph_exec **exec)
{
    CUresult result = sim_check_init();
    if (result)
        return result;
    *exec = (struct sim_graph_exec *)handle;
    if (!handle)
        return CUDA_ERROR_INVALID_VALUE;
    engine_lock();
    bool is_live = (*exec)->magic == SIM_MAGIC_EXEC;
    engine_unlock();
    return is_live ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static void drop_exec(void *argument)
{
    struct sim_graph_exec *exec = argument;

    engine_lock();
    bool is_last = --exec->references == 0;
    engine_unlock();
    if (!is_last)
        return;
    for (size_t i = 0; i < exec->step_count; i++)
        graph_work_release(&exec->steps[i].work);
    if (exec->memory_of && atomic_load(&exec->memory_of->id) == exec->memory_id)
        lazy_give_slice(exec->memory_of, LAZY_GRAPH_BYTES);
    free(exec->steps);
    points_free(&exec->last_launch);
    engine_lock();
    user_references_drop_locked(&exec->held);
    memset(exec, 0, sizeof *exec);
    engine_pool_give(&exec_pool, exec);
    engine_unlock();
}

static void *share_exec(const void *argument)
{
    struct sim_graph_exec *exec = (struct sim_graph_exec *)(uintptr_t)argument;
    exec->references++; /* with the lock held, as graphs are cloned and instantiated */
    return exec;
}

/* ---- instantiation ---- */

/* Appends the graph's nodes, those of child graphs and of chosen bodies in their node's place. */
static CUresult flatten_locked(struct sim_graph_exec *exec, struct sim_graph *graph)
{
    bool has_cycle;
    struct sim_graph_node **order = graph_order_locked(graph, &has_cycle);
    CUresult result = CUDA_SUCCESS;

    if (!order)
        return has_cycle ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY;
    for (size_t i = 0; i < graph->node_count && result == CUDA_SUCCESS; i++) {
        struct exec_step step = {.node = order[i], .is_enabled = true};
        if (order[i]->child) {
            result = flatten_locked(exec, order[i]->child);
        } else if (order[i]->conditional) {
            struct sim_graph *body = conditional_choose(order[i]->conditional);
            result = body ? flatten_locked(exec, body) : CUDA_SUCCESS;
        } else if (!engine_grow((void **)&exec->steps, &exec->step_capacity, exec->step_count,
                                sizeof step) ||
                   !graph_work_copy(&order[i]->work, &step.work)) {
            result = CUDA_ERROR_OUT_OF_MEMORY;
        } else {
            exec->steps[exec->step_count++] = step;
        }
    }
    free(order);
    return result;
}

/* Takes the references of the graph and of all graphs inside it; a conditional node's bodies are
 * checked, also those that are not chosen. No document names the error of a node that is not
 * allowed there. */
static CUresult hold_locked(struct sim_graph_exec *exec, const struct sim_graph *graph,
                            bool is_body)
{
    CUresult result = user_references_copy_locked(&exec->held, &graph->references)
                          ? CUDA_SUCCESS
                          : CUDA_ERROR_OUT_OF_MEMORY;

    for (size_t i = 0; i < graph->node_count && result == CUDA_SUCCESS; i++) {
        const struct sim_graph_node *node = graph->nodes[i];
        const struct graph_conditional *conditional = node->conditional;
        if (is_body && !conditional_allows(node->work.type))
            result = CUDA_ERROR_NOT_SUPPORTED;
        else if (node->child)
            result = hold_locked(exec, node->child, is_body);
        for (unsigned j = 0; conditional && j < conditional->body_count && !result; j++)
            result = hold_locked(exec, conditional->bodies[j], true);
    }
    return result;
}

static CUresult build_locked(struct sim_graph_exec *exec, struct sim_graph *graph)
{
    CUresult result = hold_locked(exec, graph, false);
    if (result == CUDA_SUCCESS && !conditions_are_used_locked(graph))
        result = CUDA_ERROR_INVALID_VALUE;
    return result ? result : flatten_locked(exec, graph);
}

static CUresult instantiate(CUgraphExec *handle, CUgraph graph_handle, uint64_t flags)
{
    const uint64_t known = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | 2 | 4 | 8;
    struct sim_graph *graph;
    CUresult result = graph_check(graph_handle, &graph);
    if (result)
        return result;
    if (!handle || (flags & ~known))
        return CUDA_ERROR_INVALID_VALUE;
    engine_lock();
    struct sim_graph_exec *exec = engine_pool_take(&exec_pool);
    if (exec) {
        memset(exec, 0, sizeof *exec);
        exec->references = 1;
        exec->flags = flags;
        result = build_locked(exec, graph);
        exec->magic = SIM_MAGIC_EXEC;
    }
    engine_unlock();
    if (!exec)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (result)
        drop_exec(exec);
    else
        *handle = (CUgraphExec)exec;
    return result;
}

static CUresult instantiate_with_log(CUgraphExec *handle, CUgraph graph, CUgraphNode *error_node,
                                     char *log, size_t log_bytes)
{
    if (error_node)
        *error_node = NULL;
    if (log && log_bytes)
        *log = '\0';
    return instantiate(handle, graph, 0);
}

SIM_API(cuGraphInstantiate,
        (CUgraphExec * exec, CUgraph graph, CUgraphNode *error_node, char *log, size_t log_bytes),
        (exec, graph, error_node, log, log_bytes), "%p", (void *)graph)
{
    return instantiate_with_log(exec, graph, error_node, log, log_bytes);
}

SIM_API(cuGraphInstantiate_v2,
        (CUgraphExec * exec, CUgraph graph, CUgraphNode *error_node, char *log, size_t log_bytes),
        (exec, graph, error_node, log, log_bytes), "%p", (void *)graph)
{
    return instantiate_with_log(exec, graph, error_node, log, log_bytes);
}

SIM_API(cuGraphInstantiateWithFlags, (CUgraphExec * exec, CUgraph graph, unsigned long long flags),
        (exec, graph, flags), "%p %llu", (void *)graph, flags)
{
    return instantiate(exec, graph, flags);
}

SIM_API_THREAD(cuGraphInstantiateWithParams, _ptsz,
               (CUgraphExec * exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *parameters),
               (exec, graph, parameters), "%p", (void *)graph)
{
    (void)per_thread;
    if (!parameters)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = instantiate(exec, graph, parameters->flags);
    parameters->hErrNode_out = NULL;
    parameters->result_out = result ? CUDA_GRAPH_INSTANTIATE_ERROR : CUDA_GRAPH_INSTANTIATE_SUCCESS;
    engine_lock();
    if (result && graph && !conditions_are_used_locked((const struct sim_graph *)graph))
        parameters->result_out = CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED;
    engine_unlock();
    return result;
}

SIM_API(cuGraphExecGetFlags, (CUgraphExec handle, cuuint64_t *flags), (handle, flags), "%p",
        (void *)handle)
{
    struct sim_graph_exec *exec;
    CUresult result = exec_check(handle, &exec);
    if (result)
        return result;
    if (!flags)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = exec->flags;
    return CUDA_SUCCESS;
}

/* A launch that is under way still finishes. */
SIM_API(cuGraphExecDestroy, (CUgraphExec handle), (handle), "%p", (void *)handle)
{
    struct sim_graph_exec *exec;
    CUresult result = exec_check(handle, &exec);
    if (result)
        return result;
    engine_lock();
    exec->magic = SIM_MAGIC_DEAD;
    engine_unlock();
    drop_exec(exec);
    return CUDA_SUCCESS;
}

/* ---- launching ---- */

/* The first launch uploads the graph. */
static CUresult upload(struct sim_graph_exec *exec, struct sim_context *context)
{
    struct sim_context *root = sim_context_root(context);
    CUresult result = CUDA_SUCCESS;

    engine_lock();
    bool is_first = !exec->memory_of;
    if (is_first) {
        exec->memory_of = root;
        exec->memory_id = atomic_load(&root->id);
    }
    engine_unlock();
    if (is_first)
        result = lazy_take_slice(root, LAZY_GRAPH_BYTES);
    if (result)
        exec->memory_of = NULL;
    return result;
}

/* With the flag, memory that the launch before left allocated is freed first: it is allocated again
 * at its address. Without it, that is an error. */
static CUresult run_step(struct sim_context *context, const struct graph_work *work, uint64_t flags)
{
    bool frees_first = work->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC &&
                       (flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
    struct graph_work own;
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;

    if (!work->op.is_instant)
        stream_take_time();
    engine_lock();
    bool fits = graph_work_copy(work, &own);
    engine_unlock();
    if (fits) {
        if (own.context && context_is_live(own.context))
            context = own.context;
        result = own.op.run ? own.op.run(context, own.op.argument) : CUDA_SUCCESS;
        if (result == CUDA_ERROR_INVALID_VALUE && frees_first)
            result = CUDA_SUCCESS;
        if (result) /* and the launching one's error, as the graph's */
            sim_poison(context, result);
        graph_work_release(&own);
    }
    return result;
}

static CUresult run_exec(struct sim_context *context, void *argument)
{
    const struct sim_graph_exec *exec = argument;
    CUresult result = CUDA_SUCCESS;

    for (size_t i = 0; i < exec->step_count && result == CUDA_SUCCESS && !engine_is_down(); i++)
        if (exec->steps[i].is_enabled)
            result = run_step(context, &exec->steps[i].work, exec->flags);
    sim_link_break();
    return result;
}

SIM_API_THREAD(cuGraphLaunch, _ptsz, (CUgraphExec handle, CUstream stream_handle),
               (handle, stream_handle), "%p %p", (void *)handle, (void *)stream_handle)
{
    struct sim_stream *stream;
    struct sim_graph_exec *exec;
    uint64_t position;
    CUresult result = sim_stream_resolve(stream_handle, per_thread, &stream);
    if (result == CUDA_SUCCESS)
        result = exec_check(handle, &exec);
    if (result == CUDA_SUCCESS)
        result = upload(exec, stream->context);
    if (result)
        return result;
    struct sim_op op = {
        .run = run_exec, .release = drop_exec, .argument = exec, .is_instant = true};
    engine_lock();
    result = capture_check_use_locked(stream);
    exec->references++;
    bool taken = result == CUDA_SUCCESS && stream->capture;
    if (taken) {
        result = capture_add_locked(
            stream,
            (struct graph_work){.op = op, .copy = share_exec, .type = CU_GRAPH_NODE_TYPE_GRAPH});
    } else if (result == CUDA_SUCCESS) {
        struct stream_work work = {.op = op, .after = &exec->last_launch, .position = &position};
        result = stream_queue_locked(stream, &work);
        taken = result == CUDA_SUCCESS;
        if (taken && !points_add(&exec->last_launch, stream, position))
            result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    engine_unlock();
    if (!taken)
        drop_exec(exec);
    return result;
}

/* Nothing is to be uploaded; the call is only checked. */
SIM_API_THREAD(cuGraphUpload, _ptsz, (CUgraphExec handle, CUstream stream_handle),
               (handle, stream_handle), "%p %p", (void *)handle, (void *)stream_handle)
{
    struct sim_stream *stream;
    struct sim_graph_exec *exec;
    CUresult result = sim_stream_resolve(stream_handle, per_thread, &stream);
    if (result == CUDA_SUCCESS)
        result = exec_check(handle, &exec);
    return result ? result : upload(exec, stream->context);
}

/* ---- changing an instantiated graph ---- */

static struct exec_step *find_step_locked(const struct sim_graph_exec *exec, const void *node)
{
    for (size_t i = 0; i < exec->step_count; i++)
        if (exec->steps[i].node == node)
            return &exec->steps[i];
    return NULL;
}

CUresult graph_exec_replace(CUgraphExec handle, CUgraphNode node, CUgraphNodeType type,
                            struct graph_work work)
{
    struct sim_graph_exec *exec;
    struct graph_work before = work;
    CUresult result = exec_check(handle, &exec);

    if (result == CUDA_SUCCESS) {
        engine_lock();
        points_wait_locked(
            &exec->last_launch); /* launches under way keep what they were launched with */
        struct exec_step *step = find_step_locked(exec, node);
        if (step && step->work.type == type) {
            before = step->work;
            step->work = work;
        } else {
            result = CUDA_ERROR_INVALID_VALUE;
        }
        engine_unlock();
    }
    graph_work_release(&before);
    return result;
}

SIM_API(cuGraphNodeSetEnabled, (CUgraphExec handle, CUgraphNode node, unsigned int is_enabled),
        (handle, node, is_enabled), "%p %p %u", (void *)handle, (void *)node, is_enabled)
{
    struct sim_graph_exec *exec;
    CUresult result = exec_check(handle, &exec);
    if (result)
        return result;
    engine_lock();
    points_wait_locked(&exec->last_launch);
    struct exec_step *step = find_step_locked(exec, node);
    if (step)
        step->is_enabled = is_enabled != 0;
    engine_unlock();
    return step ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SIM_API(cuGraphNodeGetEnabled, (CUgraphExec handle, CUgraphNode node, unsigned int *is_enabled),
        (handle, node, is_enabled), "%p %p", (void *)handle, (void *)node)
{
    struct sim_graph_exec *exec;
    CUresult result = exec_check(handle, &exec);
    if (result)
        return result;
    if (!is_enabled)
        return CUDA_ERROR_INVALID_VALUE;
    engine_lock();
    const struct exec_step *step = find_step_locked(exec, node);
    if (step)
        *is_enabled = step->is_enabled;
    engine_unlock();
    return step ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Takes over the work of a graph with the same nodes in the same order; anything else is a change
 * of topology. */
static CUresult update(CUgraphExec handle, CUgraph graph_handle,
                       CUgraphExecUpdateResult *update_result)
{
    struct sim_graph_exec *exec, fresh = {0};
    struct sim_graph *graph;
    CUresult result = exec_check(handle, &exec);
    if (result == CUDA_SUCCESS)
        result = graph_check(graph_handle, &graph);
    if (result)
        return result;
    engine_lock();
    points_wait_locked(&exec->last_launch);
    result = build_locked(&fresh, graph);
    bool same = result == CUDA_SUCCESS && fresh.step_count == exec->step_count;
    for (size_t i = 0; same && i < fresh.step_count; i++)
        same = fresh.steps[i].work.type == exec->steps[i].work.type;
    for (size_t i = 0; same && i < fresh.step_count; i++) {
        struct graph_work before = exec->steps[i].work;
        exec->steps[i].work = fresh.steps[i].work;
        fresh.steps[i].work = before;
    }
    if (same) {
        struct user_references before = exec->held;
        exec->held = fresh.held;
        fresh.held = before;
    }
    user_references_drop_locked(&fresh.held);
    engine_unlock();
    for (size_t i = 0; i < fresh.step_count; i++)
        graph_work_release(&fresh.steps[i].work);
    free(fresh.steps);
    *update_result =
        same ? CU_GRAPH_EXEC_UPDATE_SUCCESS : CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    if (result)
        *update_result = CU_GRAPH_EXEC_UPDATE_ERROR;
    return result ? result : same ? CUDA_SUCCESS : CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
}

SIM_API(cuGraphExecUpdate,
        (CUgraphExec exec, CUgraph graph, CUgraphNode *error_node,
         CUgraphExecUpdateResult *update_result),
        (exec, graph, error_node, update_result), "%p %p", (void *)exec, (void *)graph)
{
    if (error_node)
        *error_node = NULL;
    return update_result ? update(exec, graph, update_result) : CUDA_ERROR_INVALID_VALUE;
}

SIM_API(cuGraphExecUpdate_v2, (CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info),
        (exec, graph, info), "%p %p", (void *)exec, (void *)graph)
{
    if (!info)
        return CUDA_ERROR_INVALID_VALUE;
    memset(info, 0, sizeof *info);
    return update(exec, graph, &info->result);
}
