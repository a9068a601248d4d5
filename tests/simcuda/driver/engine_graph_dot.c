/* cuGraphDebugDotPrint: a graph's structure as text for Graphviz, one cluster for each graph. The
 * layout of NVIDIA's text is not documented; this one has the facts that its header names. */
#define _GNU_SOURCE
#include "tests/simcuda/driver/engine_graph.h"
#include "tests/simcuda/driver/engine_module.h"

#include <stdio.h>
#include <stdlib.h>

#define KNOWN_FLAGS 0xffffu

struct dot {
    FILE *text;
    unsigned flags;
    unsigned graph_count; /* the last graph's number */
};

static const char *type_name(CUgraphNodeType type)
{
    static const char *const names[] = {"KERNEL",       "MEMCPY",     "MEMSET",     "HOST",
                                        "GRAPH",        "EMPTY",      "EVENT_WAIT", "EVENT_RECORD",
                                        "EXT_SIGNAL",   "EXT_WAIT",   "MEM_ALLOC",  "MEM_FREE",
                                        "BATCH_MEM_OP", "CONDITIONAL"};
    return (unsigned)type < sizeof names / sizeof *names ? names[type] : "UNKNOWN";
}

static bool shows(const struct dot *dot, unsigned flag)
{
    return (dot->flags & (flag | CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE)) != 0;
}

static const char *memory_name(CUmemorytype type)
{
    return type == CU_MEMORYTYPE_HOST ? "HOST" : type == CU_MEMORYTYPE_DEVICE ? "DEVICE" : "ANY";
}

/* A label's lines end with \n as two characters. */
static void put_kernel(const struct dot *dot, const CUDA_KERNEL_NODE_PARAMS_v1 *kernel)
{
    const struct sim_function *function = (const struct sim_function *)kernel->func;

    if (function->magic != SIM_MAGIC_FUNCTION) /* its module was unloaded */
        return;
    fprintf(dot->text, "\\n%s", function->name);
    if (shows(dot, CU_GRAPH_DEBUG_DOT_FLAGS_KERNEL_NODE_PARAMS))
        fprintf(dot->text, "\\ngrid %u %u %u block %u %u %u shared %u", kernel->gridDimX,
                kernel->gridDimY, kernel->gridDimZ, kernel->blockDimX, kernel->blockDimY,
                kernel->blockDimZ, kernel->sharedMemBytes);
    if (shows(dot, CU_GRAPH_DEBUG_DOT_FLAGS_HANDLES))
        fprintf(dot->text, "\\nfunction %p", (const void *)function);
}

static void put_parameters(const struct dot *dot, const struct sim_graph_node *node)
{
    const struct node_parameters *from = &node->parameters;

    switch (from->is_set ? node->work.type : CU_GRAPH_NODE_TYPE_EMPTY) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        put_kernel(dot, &from->kernel);
        break;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        fprintf(dot->text, "\\n%s to %s", memory_name(from->copy.srcMemoryType),
                memory_name(from->copy.dstMemoryType));
        if (shows(dot, CU_GRAPH_DEBUG_DOT_FLAGS_MEMCPY_NODE_PARAMS))
            fprintf(dot->text, "\\n%zu x %zu x %zu", from->copy.WidthInBytes, from->copy.Height,
                    from->copy.Depth);
        break;
    case CU_GRAPH_NODE_TYPE_MEMSET:
        if (shows(dot, CU_GRAPH_DEBUG_DOT_FLAGS_MEMSET_NODE_PARAMS))
            fprintf(dot->text, "\\n0x%llx value %u, %zu x %zu of %u", from->fill.dst,
                    from->fill.value, from->fill.width, from->fill.height, from->fill.elementSize);
        break;
    case CU_GRAPH_NODE_TYPE_HOST:
        if (shows(dot, CU_GRAPH_DEBUG_DOT_FLAGS_HOST_NODE_PARAMS))
            fprintf(dot->text, "\\ndata %p", from->host.userData);
        break;
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        if (shows(dot, CU_GRAPH_DEBUG_DOT_FLAGS_EVENT_NODE_PARAMS))
            fprintf(dot->text, "\\nevent %p", (const void *)from->event);
        break;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        if (shows(dot, CU_GRAPH_DEBUG_DOT_FLAGS_MEM_ALLOC_NODE_PARAMS))
            fprintf(dot->text, "\\n%zu bytes at 0x%llx", from->allocation.bytesize,
                    from->allocation.dptr);
        break;
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        if (shows(dot, CU_GRAPH_DEBUG_DOT_FLAGS_MEM_FREE_NODE_PARAMS))
            fprintf(dot->text, "\\n0x%llx", from->address);
        break;
    default:
        break;
    }
}

static void put_conditional(const struct dot *dot, const struct graph_conditional *conditional)
{
    static const char *const names[] = {"IF", "WHILE", "SWITCH"};

    fprintf(dot->text, "\\n%s", names[conditional->type]);
    if (shows(dot, CU_GRAPH_DEBUG_DOT_FLAGS_CONDITIONAL_NODE_PARAMS))
        fprintf(dot->text, "\\ndefault %u, %u bodies", conditional->value, conditional->body_count);
}

static void put_graph(struct dot *dot, const struct sim_graph *graph)
{
    unsigned number = ++dot->graph_count;

    fprintf(dot->text, "subgraph cluster_%u {\nlabel=\"graph_%u\" graph[style=\"dashed\"];\n",
            number, number);
    for (size_t i = 0; i < graph->node_count; i++) {
        const struct sim_graph_node *node = graph->nodes[i];
        fprintf(dot->text, "\"graph_%u_node_%zu\"[shape=\"rectangle\" label=\"%zu\\n%s", number, i,
                i, type_name(node->work.type));
        put_parameters(dot, node);
        if (node->conditional)
            put_conditional(dot, node->conditional);
        if (shows(dot, CU_GRAPH_DEBUG_DOT_FLAGS_HANDLES))
            fprintf(dot->text, "\\nnode %p", (const void *)node);
        fprintf(dot->text, "\"];\n");
        for (size_t j = 0; j < node->before_count; j++)
            for (size_t k = 0; k < graph->node_count; k++)
                if (graph->nodes[k] == node->before[j])
                    fprintf(dot->text, "\"graph_%u_node_%zu\" -> \"graph_%u_node_%zu\";\n", number,
                            k, number, i);
    }
    fprintf(dot->text, "}\n");
    for (size_t i = 0; i < graph->node_count; i++) {
        const struct graph_conditional *conditional = graph->nodes[i]->conditional;
        if (graph->nodes[i]->child)
            put_graph(dot, graph->nodes[i]->child);
        for (unsigned j = 0; conditional && j < conditional->body_count; j++)
            put_graph(dot, conditional->bodies[j]);
    }
}

static bool write_file(const char *path, const char *text, size_t bytes)
{
    FILE *file = fopen(path, "we");
    if (!file)
        return false;
    bool is_whole = fwrite(text, 1, bytes, file) == bytes;
    return fclose(file) == 0 && is_whole;
}

SIM_API(cuGraphDebugDotPrint, (CUgraph handle, const char *path, unsigned int flags),
        (handle, path, flags), "%p %s %u", (void *)handle, path ? path : "", flags)
{
    struct sim_graph *graph;
    char *text = NULL;
    size_t bytes = 0;
    CUresult result = graph_check(handle, &graph);
    if (result)
        return result;
    if (!path || (flags & ~KNOWN_FLAGS))
        return CUDA_ERROR_INVALID_VALUE;
    struct dot dot = {.text = open_memstream(&text, &bytes), .flags = flags};
    if (!dot.text)
        return CUDA_ERROR_OUT_OF_MEMORY;
    fprintf(dot.text, "digraph dot {\n");
    engine_lock(); /* the text is in memory: nothing waits for a file here */
    put_graph(&dot, graph);
    engine_unlock();
    fprintf(dot.text, "}\n");
    bool is_written = fclose(dot.text) == 0 && write_file(path, text, bytes);
    free(text);
    return is_written ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}
