/* Graphs: what engine_graph.c, engine_graph_nodes.c and engine_graph_exec.c share. */
#ifndef SIM_ENGINE_GRAPH_H
#define SIM_ENGINE_GRAPH_H

#include "tests/simcuda/driver/engine.h"

#define SIM_NODE_ATTRIBUTES 20

/* The parameters that a node was made from, for the Get…Params calls; of captured nodes only
 * kernels and host functions have them. */
struct node_parameters {
    bool is_set;
    CUcontext context; /* that the node runs in; NULL: the launching stream's */
    union {
        CUDA_KERNEL_NODE_PARAMS_v1 kernel;
        CUDA_MEMCPY3D copy;
        CUDA_MEMSET_NODE_PARAMS fill;
        CUDA_HOST_NODE_PARAMS host;
        CUDA_MEM_ALLOC_NODE_PARAMS allocation;
        CUdeviceptr address;
        CUevent event;
        CUDA_BATCH_MEM_OP_NODE_PARAMS batch;
    };
};

struct sim_graph_node {
    uint32_t magic;
    struct sim_graph *graph;
    struct graph_work work;
    struct node_parameters parameters;
    CUkernelNodeAttrValue attributes[SIM_NODE_ATTRIBUTES];
    struct sim_graph *child; /* its own clone */
    struct graph_conditional *conditional;
    struct sim_graph_node *original; /* what it was cloned from */
    struct sim_graph_node **before;  /* dependencies */
    size_t before_count, before_capacity;
    unsigned mark; /* scratch of a walk */
    struct sim_graph_node *next_dead;
};

/* References to user objects (engine_user_object.c), each counted in its object. */
struct user_references {
    struct user_reference {
        struct sim_user_object *object;
        uint64_t count;
    } * items;
    size_t count, capacity;
};

struct sim_graph {
    uint32_t magic;
    struct sim_graph_node **nodes; /* in the order they were added */
    size_t node_count, node_capacity;
    bool is_child; /* owned by a node */
    struct user_references references;
    struct graph_condition *conditions; /* handles made for it */
};

CUresult graph_node_check(CUgraphNode handle, struct sim_graph_node **node);
struct sim_graph *graph_clone_locked(const struct sim_graph *graph);
/* The nodes in an order that respects every dependency; the caller frees. NULL: out of memory, or a
 * cycle, then *has_cycle. */
struct sim_graph_node **graph_order_locked(struct sim_graph *graph, bool *has_cycle);
/* False: out of memory, and some are copied. */
bool user_references_copy_locked(struct user_references *to, const struct user_references *from);
/* Destructors run later, on a thread of their own. */
void user_references_drop_locked(struct user_references *references);
/* A second reference to what the work runs on. */
bool graph_work_copy(const struct graph_work *from, struct graph_work *to);
void graph_work_release(const struct graph_work *work);

/* A conditional node's bodies (engine_graph_conditional.c), and the condition at each launch. */
struct graph_conditional {
    CUgraphConditionalNodeType type;
    unsigned value;
    struct sim_graph **bodies; /* the node's own */
    unsigned body_count;
};
CUresult conditional_make(const CUDA_CONDITIONAL_NODE_PARAMS *parameters,
                          const struct sim_graph *graph, struct graph_conditional **made);
void conditional_destroy_locked(struct graph_conditional *conditional);
struct graph_conditional *conditional_clone_locked(const struct graph_conditional *from);
/* The body that runs; NULL: none. */
struct sim_graph *conditional_choose(const struct graph_conditional *conditional);
/* The kinds of nodes that a body may have. */
bool conditional_allows(CUgraphNodeType type);
void conditions_drop_locked(struct sim_graph *graph);
/* Whether each handle that was made for the graph has a node. */
bool conditions_are_used_locked(const struct sim_graph *graph);

/* The work of each kind of node, from its parameters; INVALID_VALUE where they are nonsense. */
typedef CUresult graph_maker(const struct node_parameters *parameters, struct graph_work *work);
/* As above, in the context that the parameters name. */
CUresult graph_make(graph_maker *make, const struct node_parameters *parameters,
                    struct graph_work *work);
const CUDA_KERNEL_NODE_PARAMS_v1 *graph_plain_kernel(const void *later,
                                                     CUDA_KERNEL_NODE_PARAMS_v1 *plain);
CUresult graph_make_kernel(const struct node_parameters *parameters, struct graph_work *work);
CUresult graph_make_copy(const struct node_parameters *parameters, struct graph_work *work);
CUresult graph_make_fill(const struct node_parameters *parameters, struct graph_work *work);
CUresult graph_make_batch(const struct node_parameters *parameters, struct graph_work *work);
/* The node's own list of operations. */
CUstreamBatchMemOpParams *graph_batch_operations(const struct graph_work *work);
CUresult graph_make_host(const struct node_parameters *parameters, struct graph_work *work);
/* Reserves the address and notes it in the parameters. */
CUresult graph_make_allocation(struct node_parameters *parameters, struct graph_work *work);
CUresult graph_make_free(const struct node_parameters *parameters, struct graph_work *work);

/* Replaces what one node of an instantiated graph does. */
CUresult graph_exec_replace(CUgraphExec handle, CUgraphNode node, CUgraphNodeType type,
                            struct graph_work work);

/* The work of a launch of the kernel (engine_launch.c); NULL: of none. */
struct sim_function;
struct graph_work kernel_work(const struct sim_function *function);

#endif
