/* Conditional nodes and the handles of their conditions.
 *
 * Kernels compute nothing here, so no kernel sets a condition: at each launch it has its handle's
 * default, or 0 where CU_GRAPH_COND_ASSIGN_DEFAULT was not given. So a node's body is chosen when
 * its graph is instantiated. A WHILE body whose condition is not 0 runs once, as if it then cleared
 * the condition; it would never end otherwise. */
#define _GNU_SOURCE
#include "tests/simcuda/driver/engine_graph.h"

#include <stdlib.h>

#define BODIES_MAX 4096u

struct graph_condition { /* its address is the CUgraphConditionalHandle; it ends with its graph */
    uint32_t magic;
    struct graph_condition *next; /* of its graph */
    const struct sim_graph *graph;
    struct sim_context *context;
    unsigned value;
    bool has_node;
};

static struct engine_pool condition_pool = {.object_bytes = sizeof(struct graph_condition)};

/* ---- handles ---- */

/* "If NULL, the current one", as for the nodes that are added with a context. */
static CUresult find_context(CUcontext handle, struct sim_context **context)
{
    return handle ? sim_context_check(handle, context) : sim_current(context);
}

SIM_API(cuGraphConditionalHandleCreate,
        (CUgraphConditionalHandle * handle, CUgraph graph_handle, CUcontext context_handle,
         unsigned int value, unsigned int flags),
        (handle, graph_handle, context_handle, value, flags), "%p %u %u", (void *)graph_handle,
        value, flags)
{
    struct sim_graph *graph;
    struct sim_context *context;
    CUresult result = graph_check(graph_handle, &graph);
    if (result == CUDA_SUCCESS && (!handle || (flags & ~(unsigned)CU_GRAPH_COND_ASSIGN_DEFAULT)))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        result = find_context(context_handle, &context);
    if (result)
        return result;
    engine_lock();
    struct graph_condition *condition = engine_pool_take(&condition_pool);
    if (condition) {
        *condition = (struct graph_condition){
            .magic = SIM_MAGIC_CONDITION,
            .next = graph->conditions,
            .graph = graph,
            .context = sim_context_root(context),
            .value = flags & CU_GRAPH_COND_ASSIGN_DEFAULT ? value : 0,
        };
        graph->conditions = condition;
    }
    engine_unlock();
    *handle = (uintptr_t)condition;
    return condition ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

void conditions_drop_locked(struct sim_graph *graph)
{
    while (graph->conditions) {
        struct graph_condition *condition = graph->conditions;
        graph->conditions = condition->next;
        condition->magic = SIM_MAGIC_DEAD;
        engine_pool_give(&condition_pool, condition);
    }
}

bool conditions_are_used_locked(const struct sim_graph *graph)
{
    for (const struct graph_condition *each = graph->conditions; each; each = each->next)
        if (!each->has_node)
            return false;
    return true;
}

/* ---- nodes ---- */

static bool is_shaped(const CUDA_CONDITIONAL_NODE_PARAMS *parameters)
{
    switch (parameters->type) {
    case CU_GRAPH_COND_TYPE_IF:
        return parameters->size == 1 || parameters->size == 2;
    case CU_GRAPH_COND_TYPE_WHILE:
        return parameters->size == 1;
    case CU_GRAPH_COND_TYPE_SWITCH:
        return parameters->size >= 1 && parameters->size <= BODIES_MAX;
    default:
        return false;
    }
}

/* One node for each handle, in the handle's graph. */
static CUresult use_handle_locked(const CUDA_CONDITIONAL_NODE_PARAMS *parameters,
                                  const struct sim_graph *graph, const struct sim_context *context,
                                  unsigned *value)
{
    struct graph_condition *condition = (struct graph_condition *)(uintptr_t)parameters->handle;

    if (condition->magic != SIM_MAGIC_CONDITION || condition->has_node ||
        condition->context != context || condition->graph != graph)
        return CUDA_ERROR_INVALID_VALUE;
    condition->has_node = true;
    *value = condition->value;
    return CUDA_SUCCESS;
}

static struct graph_conditional *create_locked(unsigned body_count)
{
    struct graph_conditional *made = calloc(1, sizeof *made);
    bool fits = made && (made->bodies = calloc(body_count, sizeof(struct sim_graph *))) != NULL;

    for (unsigned i = 0; fits && i < body_count; i++) {
        fits = (made->bodies[i] = graph_create_locked()) != NULL;
        if (fits) {
            made->bodies[i]->is_child = true;
            made->body_count = i + 1;
        }
    }
    if (!fits) {
        conditional_destroy_locked(made);
        return NULL;
    }
    return made;
}

CUresult conditional_make(const CUDA_CONDITIONAL_NODE_PARAMS *parameters,
                          const struct sim_graph *graph, struct graph_conditional **made)
{
    struct sim_context *context;
    CUresult result = find_context(parameters->ctx, &context);

    if (result)
        return result;
    if (!parameters->handle || !is_shaped(parameters))
        return CUDA_ERROR_INVALID_VALUE;
    engine_lock();
    *made = create_locked(parameters->size);
    if (*made) {
        (*made)->type = parameters->type;
        result = use_handle_locked(parameters, graph, sim_context_root(context), &(*made)->value);
        if (result)
            conditional_destroy_locked(*made);
    }
    engine_unlock();
    return *made ? result : CUDA_ERROR_OUT_OF_MEMORY;
}

void conditional_destroy_locked(struct graph_conditional *conditional)
{
    if (!conditional)
        return;
    for (unsigned i = 0; i < conditional->body_count; i++)
        graph_destroy_locked(conditional->bodies[i]);
    free(conditional->bodies);
    free(conditional);
}

struct graph_conditional *conditional_clone_locked(const struct graph_conditional *from)
{
    struct graph_conditional *to = create_locked(from->body_count);

    for (unsigned i = 0; to && i < from->body_count; i++) {
        struct sim_graph *body = graph_clone_locked(from->bodies[i]);
        if (!body) {
            conditional_destroy_locked(to);
            return NULL;
        }
        graph_destroy_locked(to->bodies[i]);
        to->bodies[i] = body;
        body->is_child = true;
    }
    if (to) {
        to->type = from->type;
        to->value = from->value;
    }
    return to;
}

struct sim_graph *conditional_choose(const struct graph_conditional *conditional)
{
    unsigned body = conditional->value;

    if (conditional->type != CU_GRAPH_COND_TYPE_SWITCH)
        body = conditional->value != 0 ? 0 : 1;
    return body < conditional->body_count ? conditional->bodies[body] : NULL;
}

bool conditional_allows(CUgraphNodeType type)
{
    return type == CU_GRAPH_NODE_TYPE_KERNEL || type == CU_GRAPH_NODE_TYPE_EMPTY ||
           type == CU_GRAPH_NODE_TYPE_GRAPH || type == CU_GRAPH_NODE_TYPE_MEMSET ||
           type == CU_GRAPH_NODE_TYPE_MEMCPY || type == CU_GRAPH_NODE_TYPE_CONDITIONAL;
}
