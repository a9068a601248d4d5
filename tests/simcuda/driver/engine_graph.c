/* Graphs as data: nodes, dependencies, clones, order. The kinds of nodes are in
 * engine_graph_nodes.c, running them in engine_graph_exec.c.
 *
 * A node's operation may belong to the memory part, so a destroyed graph's nodes go to a list of
 * the dead that engine_unlock() releases once the lock is free. */
#define _GNU_SOURCE
#include "tests/simcuda/driver/engine_graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct engine_pool graph_pool = {.object_bytes = sizeof(struct sim_graph)};
static struct engine_pool node_pool = {.object_bytes = sizeof(struct sim_graph_node)};
static struct sim_graph_node *dead_nodes;
static unsigned last_mark;

/* ---- work ---- */

bool graph_work_copy(const struct graph_work *from, struct graph_work *to)
{
    *to = *from;
    if (!from->copy) {
        to->op.release = NULL; /* the node's, for as long as there is one */
        return true;
    }
    to->op.argument = from->copy(from->op.argument);
    return to->op.argument != NULL;
}

void graph_work_release(const struct graph_work *work)
{
    if (work->op.release)
        work->op.release(work->op.argument);
}

/* ---- life ---- */

CUresult graph_check(CUgraph handle, struct sim_graph **graph)
{
    CUresult result = sim_check_init();
    if (result)
        return result;
    *graph = (struct sim_graph *)handle;
    if (!handle)
        return CUDA_ERROR_INVALID_VALUE;
    engine_lock();
    bool is_live = (*graph)->magic == SIM_MAGIC_GRAPH;
    engine_unlock();
    return is_live ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult graph_node_check(CUgraphNode handle, struct sim_graph_node **node)
{
    CUresult result = sim_check_init();
    if (result)
        return result;
    *node = (struct sim_graph_node *)handle;
    if (!handle)
        return CUDA_ERROR_INVALID_VALUE;
    engine_lock();
    bool is_live = (*node)->magic == SIM_MAGIC_NODE;
    engine_unlock();
    return is_live ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

struct sim_graph *graph_create_locked(void)
{
    struct sim_graph *graph = engine_pool_take(&graph_pool);
    if (graph) {
        memset(graph, 0, sizeof *graph);
        graph->magic = SIM_MAGIC_GRAPH;
    }
    return graph;
}

static void kill_node_locked(struct sim_graph_node *node)
{
    if (node->child)
        graph_destroy_locked(node->child);
    conditional_destroy_locked(node->conditional);
    node->magic = SIM_MAGIC_DEAD;
    node->next_dead = dead_nodes;
    dead_nodes = node;
}

void graph_destroy_locked(struct sim_graph *graph)
{
    for (size_t i = 0; i < graph->node_count; i++)
        kill_node_locked(graph->nodes[i]);
    free(graph->nodes);
    graph->nodes = NULL;
    graph->node_count = 0;
    user_references_drop_locked(&graph->references);
    conditions_drop_locked(graph);
    engine_pool_give(&graph_pool, graph);
}

struct sim_graph_node *graph_take_dead_locked(void)
{
    struct sim_graph_node *dead = dead_nodes;
    dead_nodes = NULL;
    return dead;
}

void graph_free_nodes(struct sim_graph_node *dead)
{
    while (dead) {
        struct sim_graph_node *node = dead;
        dead = node->next_dead;
        graph_work_release(&node->work);
        engine_lock();
        free(node->before);
        node->before = NULL;
        engine_pool_give(&node_pool, node);
        pthread_mutex_unlock(engine_mutex());
    }
}

/* ---- structure ---- */

static bool depend_locked(struct sim_graph_node *node, struct sim_graph_node *before)
{
    for (size_t i = 0; i < node->before_count; i++)
        if (node->before[i] == before)
            return true;
    if (!engine_grow((void **)&node->before, &node->before_capacity, node->before_count,
                     sizeof(struct sim_graph_node *)))
        return false;
    node->before[node->before_count++] = before;
    return true;
}

static void independ_locked(struct sim_graph_node *node, const struct sim_graph_node *before)
{
    for (size_t i = 0; i < node->before_count; i++)
        if (node->before[i] == before) {
            node->before[i] = node->before[--node->before_count];
            return;
        }
}

CUresult graph_add_locked(struct sim_graph *graph, struct sim_graph_node *const *dependencies,
                          size_t count, struct graph_work work, struct sim_graph_node **added)
{
    struct sim_graph_node *node = engine_pool_take(&node_pool);

    if (!node)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memset(node, 0, sizeof *node);
    node->work = work;
    node->work.parameters = NULL;
    if (work.parameters)
        node->parameters = *work.parameters;
    node->graph = graph;
    bool fits = engine_grow((void **)&graph->nodes, &graph->node_capacity, graph->node_count,
                            sizeof(struct sim_graph_node *));
    for (size_t i = 0; i < count && fits; i++)
        fits = depend_locked(node, dependencies[i]);
    if (!fits) {
        kill_node_locked(node);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    node->magic = SIM_MAGIC_NODE;
    graph->nodes[graph->node_count++] = node;
    *added = node;
    return CUDA_SUCCESS;
}

static bool reaches(struct sim_graph_node *to, const struct sim_graph_node *from, unsigned mark)
{
    if (to == from)
        return true;
    if (to->mark == mark)
        return false;
    to->mark = mark;
    for (size_t i = 0; i < to->before_count; i++)
        if (reaches(to->before[i], from, mark))
            return true;
    return false;
}

bool graph_node_reaches_locked(struct sim_graph_node *from, struct sim_graph_node *const *frontier,
                               size_t count)
{
    unsigned mark = ++last_mark;
    for (size_t i = 0; i < count; i++)
        if (reaches(frontier[i], from, mark))
            return true;
    return false;
}

/* Takes, again and again, every node whose dependencies have been taken: quadratic at worst, linear
 * for nodes that were added in order. */
struct sim_graph_node **graph_order_locked(struct sim_graph *graph, bool *has_cycle)
{
    struct sim_graph_node **order = malloc((graph->node_count + 1) * sizeof *order);
    unsigned mark = ++last_mark;
    size_t taken = 0, before;

    *has_cycle = false;
    if (!order)
        return NULL;
    do {
        before = taken;
        for (size_t i = 0; i < graph->node_count; i++) {
            struct sim_graph_node *node = graph->nodes[i];
            bool is_ready = node->mark != mark;
            for (size_t j = 0; j < node->before_count && is_ready; j++)
                is_ready = node->before[j]->mark == mark;
            if (is_ready) {
                node->mark = mark;
                order[taken++] = node;
            }
        }
    } while (taken > before && taken < graph->node_count);
    if (taken == graph->node_count)
        return order;
    *has_cycle = true;
    free(order);
    return NULL;
}

static struct sim_graph_node *find_clone_locked(const struct sim_graph *clone,
                                                const struct sim_graph_node *original)
{
    for (size_t i = 0; i < clone->node_count; i++)
        if (clone->nodes[i]->original == original)
            return clone->nodes[i];
    return NULL;
}

struct sim_graph *graph_clone_locked(const struct sim_graph *graph)
{
    struct sim_graph *clone = graph_create_locked();
    if (!clone)
        return NULL;
    if (!user_references_copy_locked(&clone->references, &graph->references))
        goto fail;
    for (size_t i = 0; i < graph->node_count; i++) {
        struct sim_graph_node *from = graph->nodes[i], *to;
        struct graph_work work;
        if (!graph_work_copy(&from->work, &work) || graph_add_locked(clone, NULL, 0, work, &to))
            goto fail;
        to->original = from;
        to->parameters = from->parameters;
        if (from->child) {
            to->child = graph_clone_locked(from->child);
            if (!to->child)
                goto fail;
            to->child->is_child = true;
        }
        if (from->conditional) {
            to->conditional = conditional_clone_locked(from->conditional);
            if (!to->conditional)
                goto fail;
        }
    }
    for (size_t i = 0; i < graph->node_count; i++)
        for (size_t j = 0; j < graph->nodes[i]->before_count; j++)
            if (!depend_locked(clone->nodes[i],
                               find_clone_locked(clone, graph->nodes[i]->before[j])))
                goto fail;
    return clone;

fail:
    graph_destroy_locked(clone);
    return NULL;
}

/* ---- entry points ---- */

SIM_API(cuGraphCreate, (CUgraph * handle, unsigned int flags), (handle, flags), "%u", flags)
{
    CUresult result = sim_check_init();
    if (result)
        return result;
    if (!handle || flags)
        return CUDA_ERROR_INVALID_VALUE;
    engine_lock();
    *handle = (CUgraph)graph_create_locked();
    engine_unlock();
    return *handle ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

SIM_API(cuGraphDestroy, (CUgraph handle), (handle), "%p", (void *)handle)
{
    struct sim_graph *graph;
    CUresult result = graph_check(handle, &graph);
    if (result)
        return result;
    if (graph->is_child)
        return CUDA_ERROR_INVALID_VALUE;
    engine_lock();
    graph_destroy_locked(graph);
    engine_unlock();
    return CUDA_SUCCESS;
}

SIM_API(cuGraphClone, (CUgraph * clone, CUgraph handle), (clone, handle), "%p", (void *)handle)
{
    struct sim_graph *graph;
    CUresult result = graph_check(handle, &graph);
    if (result)
        return result;
    if (!clone)
        return CUDA_ERROR_INVALID_VALUE;
    engine_lock();
    *clone = (CUgraph)graph_clone_locked(graph);
    engine_unlock();
    return *clone ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

SIM_API(cuGraphNodeFindInClone, (CUgraphNode * found, CUgraphNode original, CUgraph clone),
        (found, original, clone), "%p %p", (void *)original, (void *)clone)
{
    struct sim_graph *graph;
    CUresult result = graph_check(clone, &graph);
    if (result)
        return result;
    if (!found)
        return CUDA_ERROR_INVALID_VALUE;
    engine_lock();
    *found = (CUgraphNode)find_clone_locked(graph, (struct sim_graph_node *)original);
    engine_unlock();
    return *found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SIM_API(cuGraphDestroyNode, (CUgraphNode handle), (handle), "%p", (void *)handle)
{
    struct sim_graph_node *node;
    CUresult result = graph_node_check(handle, &node);
    if (result)
        return result;
    engine_lock();
    struct sim_graph *graph = node->graph;
    size_t kept = 0;
    for (size_t i = 0; i < graph->node_count; i++) {
        independ_locked(graph->nodes[i], node);
        if (graph->nodes[i] != node)
            graph->nodes[kept++] = graph->nodes[i];
    }
    graph->node_count = kept;
    kill_node_locked(node);
    engine_unlock();
    return CUDA_SUCCESS;
}

SIM_API(cuGraphNodeGetType, (CUgraphNode handle, CUgraphNodeType *type), (handle, type), "%p",
        (void *)handle)
{
    struct sim_graph_node *node;
    CUresult result = graph_node_check(handle, &node);
    if (result)
        return result;
    if (!type)
        return CUDA_ERROR_INVALID_VALUE;
    *type = node->work.type;
    return CUDA_SUCCESS;
}

/* Fills an array of *count places, or with a NULL array returns their number. Places beyond are set
 * to NULL and *count to the true number, as documented for the Get calls. */
static void give_nodes(struct sim_graph_node *const *from, size_t available, CUgraphNode *nodes,
                       size_t *count)
{
    if (nodes) {
        for (size_t i = 0; i < *count; i++)
            nodes[i] = i < available ? (CUgraphNode)from[i] : NULL;
        if (*count < available)
            return;
    }
    *count = available;
}

SIM_API(cuGraphGetNodes, (CUgraph handle, CUgraphNode *nodes, size_t *count),
        (handle, nodes, count), "%p", (void *)handle)
{
    struct sim_graph *graph;
    CUresult result = graph_check(handle, &graph);
    if (result)
        return result;
    if (!count)
        return CUDA_ERROR_INVALID_VALUE;
    engine_lock();
    give_nodes(graph->nodes, graph->node_count, nodes, count);
    engine_unlock();
    return CUDA_SUCCESS;
}

/* The nodes that `matches` chooses, in graph order. */
static CUresult give_matching(struct sim_graph *graph, const struct sim_graph_node *to,
                              bool (*matches)(const struct sim_graph_node *,
                                              const struct sim_graph_node *),
                              CUgraphNode *nodes, size_t *count)
{
    if (!count)
        return CUDA_ERROR_INVALID_VALUE;
    engine_lock();
    struct sim_graph_node **found = malloc((graph->node_count + 1) * sizeof *found);
    size_t available = 0;
    for (size_t i = 0; found && i < graph->node_count; i++)
        if (matches(graph->nodes[i], to))
            found[available++] = graph->nodes[i];
    if (found)
        give_nodes(found, available, nodes, count);
    engine_unlock();
    free(found);
    return found ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static bool is_root(const struct sim_graph_node *node, const struct sim_graph_node *unused)
{
    (void)unused;
    return node->before_count == 0;
}

static bool depends_on(const struct sim_graph_node *node, const struct sim_graph_node *before)
{
    for (size_t i = 0; i < node->before_count; i++)
        if (node->before[i] == before)
            return true;
    return false;
}

SIM_API(cuGraphGetRootNodes, (CUgraph handle, CUgraphNode *nodes, size_t *count),
        (handle, nodes, count), "%p", (void *)handle)
{
    struct sim_graph *graph;
    CUresult result = graph_check(handle, &graph);
    return result ? result : give_matching(graph, NULL, is_root, nodes, count);
}

static CUresult get_dependencies(CUgraphNode handle, CUgraphNode *nodes, size_t *count)
{
    struct sim_graph_node *node;
    CUresult result = graph_node_check(handle, &node);
    if (result)
        return result;
    if (!count)
        return CUDA_ERROR_INVALID_VALUE;
    engine_lock();
    give_nodes(node->before, node->before_count, nodes, count);
    engine_unlock();
    return CUDA_SUCCESS;
}

static CUresult get_dependents(CUgraphNode handle, CUgraphNode *nodes, size_t *count)
{
    struct sim_graph_node *node;
    CUresult result = graph_node_check(handle, &node);
    return result ? result : give_matching(node->graph, node, depends_on, nodes, count);
}

static CUresult get_edges(CUgraph handle, CUgraphNode *from, CUgraphNode *to, size_t *count)
{
    struct sim_graph *graph;
    CUresult result = graph_check(handle, &graph);
    size_t available = 0;
    if (result)
        return result;
    if (!count || (from == NULL) != (to == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    engine_lock();
    for (size_t i = 0; i < graph->node_count; i++)
        for (size_t j = 0; j < graph->nodes[i]->before_count; j++, available++)
            if (from && available < *count) {
                from[available] = (CUgraphNode)graph->nodes[i]->before[j];
                to[available] = (CUgraphNode)graph->nodes[i];
            }
    engine_unlock();
    for (size_t i = available; from && i < *count; i++)
        from[i] = to[i] = NULL;
    if (!from || *count > available)
        *count = available;
    return CUDA_SUCCESS;
}

/* A dependency that would close a circle is refused when the graph is instantiated. */
static CUresult change_dependencies(CUgraph handle, const CUgraphNode *from, const CUgraphNode *to,
                                    size_t count, bool adds)
{
    struct sim_graph *graph;
    CUresult result = graph_check(handle, &graph);
    if (result)
        return result;
    if (count && (!from || !to))
        return CUDA_ERROR_INVALID_VALUE;
    engine_lock();
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
        struct sim_graph_node *before = (struct sim_graph_node *)from[i],
                              *after = (struct sim_graph_node *)to[i];
        if (!before || !after || before == after || before->graph != graph ||
            after->graph != graph || depends_on(after, before) == adds)
            result = CUDA_ERROR_INVALID_VALUE;
        else if (!adds)
            independ_locked(after, before);
        else if (!depend_locked(after, before))
            result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    engine_unlock();
    return result;
}

SIM_API(cuGraphGetEdges, (CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *count),
        (graph, from, to, count), "%p", (void *)graph)
{
    return get_edges(graph, from, to, count);
}

SIM_API(cuGraphNodeGetDependencies, (CUgraphNode node, CUgraphNode *nodes, size_t *count),
        (node, nodes, count), "%p", (void *)node)
{
    return get_dependencies(node, nodes, count);
}

SIM_API(cuGraphNodeGetDependentNodes, (CUgraphNode node, CUgraphNode *nodes, size_t *count),
        (node, nodes, count), "%p", (void *)node)
{
    return get_dependents(node, nodes, count);
}

SIM_API(cuGraphAddDependencies,
        (CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t count),
        (graph, from, to, count), "%p %zu", (void *)graph, count)
{
    return change_dependencies(graph, from, to, count, true);
}

SIM_API(cuGraphRemoveDependencies,
        (CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t count),
        (graph, from, to, count), "%p %zu", (void *)graph, count)
{
    return change_dependencies(graph, from, to, count, false);
}

/* The second versions speak of kinds of edges; here every edge is a full dependency, whose data is
 * all zero. */
static void clear_edges(CUgraphEdgeData *edges, const size_t *count)
{
    if (edges && count)
        memset(edges, 0, *count * sizeof *edges);
}

SIM_API(cuGraphGetEdges_v2,
        (CUgraph graph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *edges, size_t *count),
        (graph, from, to, edges, count), "%p", (void *)graph)
{
    CUresult result = get_edges(graph, from, to, count);
    clear_edges(edges, result ? NULL : count);
    return result;
}

SIM_API(cuGraphNodeGetDependencies_v2,
        (CUgraphNode node, CUgraphNode *nodes, CUgraphEdgeData *edges, size_t *count),
        (node, nodes, edges, count), "%p", (void *)node)
{
    CUresult result = get_dependencies(node, nodes, count);
    clear_edges(edges, result ? NULL : count);
    return result;
}

SIM_API(cuGraphNodeGetDependentNodes_v2,
        (CUgraphNode node, CUgraphNode *nodes, CUgraphEdgeData *edges, size_t *count),
        (node, nodes, edges, count), "%p", (void *)node)
{
    CUresult result = get_dependents(node, nodes, count);
    clear_edges(edges, result ? NULL : count);
    return result;
}

SIM_API(cuGraphAddDependencies_v2,
        (CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
         const CUgraphEdgeData *edges, size_t count),
        (graph, from, to, edges, count), "%p %zu", (void *)graph, count)
{
    (void)edges;
    return change_dependencies(graph, from, to, count, true);
}

SIM_API(cuGraphRemoveDependencies_v2,
        (CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
         const CUgraphEdgeData *edges, size_t count),
        (graph, from, to, edges, count), "%p %zu", (void *)graph, count)
{
    (void)edges;
    return change_dependencies(graph, from, to, count, false);
}
