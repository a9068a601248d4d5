/* The work of graph nodes when they run: kernels, copies, fills, host functions. */
#define _GNU_SOURCE
#include "tests/simcuda/driver/engine_graph.h"
#include "tests/simcuda/driver/engine_module.h"

#include <stdlib.h>
#include <string.h>

CUresult graph_make(graph_maker *make, const struct node_parameters *parameters,
                    struct graph_work *work)
{
    struct sim_context *context = NULL;
    CUresult result =
        parameters->context ? sim_context_check(parameters->context, &context) : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS)
        result = make(parameters, work);
    if (result == CUDA_SUCCESS)
        work->context = context;
    return result;
}

/* ---- kernels: they take their time and do nothing ---- */

CUresult graph_make_kernel(const struct node_parameters *parameters, struct graph_work *work)
{
    const CUDA_KERNEL_NODE_PARAMS_v1 *kernel = &parameters->kernel;
    CUresult result = launch_check(
        kernel->func, (const unsigned[]){kernel->gridDimX, kernel->gridDimY, kernel->gridDimZ},
        (const unsigned[]){kernel->blockDimX, kernel->blockDimY, kernel->blockDimZ},
        kernel->sharedMemBytes);
    if (result == CUDA_SUCCESS)
        result = function_load((struct sim_function *)kernel->func);
    *work = kernel_work(result == CUDA_SUCCESS ? (struct sim_function *)kernel->func : NULL);
    return result;
}

/* ---- copies ---- */

static void *duplicate(const void *from, size_t bytes)
{
    void *copy = malloc(bytes);
    if (copy)
        memcpy(copy, from, bytes);
    return copy;
}

static void *duplicate_copy(const void *argument)
{
    return duplicate(argument, sizeof(CUDA_MEMCPY3D));
}

static CUresult run_copy(struct sim_context *context, void *argument)
{
    return sim_memory_copy_3d(context, argument);
}

CUresult graph_make_copy(const struct node_parameters *parameters, struct graph_work *work)
{
    const CUDA_MEMCPY3D *copy = &parameters->copy;
    if (copy->WidthInBytes == 0 || copy->Height == 0 || copy->Depth == 0)
        return CUDA_ERROR_INVALID_VALUE;
    *work = (struct graph_work){
        .op = {.run = run_copy, .release = free, .argument = duplicate_copy(copy)},
        .copy = duplicate_copy,
        .type = CU_GRAPH_NODE_TYPE_MEMCPY};
    return work->op.argument ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* ---- fills ---- */

static void *duplicate_fill(const void *argument)
{
    return duplicate(argument, sizeof(CUDA_MEMSET_NODE_PARAMS));
}

static CUresult run_fill(struct sim_context *context, void *argument)
{
    const CUDA_MEMSET_NODE_PARAMS *fill = argument;
    return sim_memory_fill_2d(context, fill->dst, fill->pitch, fill->elementSize, fill->value,
                              fill->width, fill->height);
}

CUresult graph_make_fill(const struct node_parameters *parameters, struct graph_work *work)
{
    const CUDA_MEMSET_NODE_PARAMS *fill = &parameters->fill;
    if ((fill->elementSize != 1 && fill->elementSize != 2 && fill->elementSize != 4) ||
        fill->width == 0 || fill->height == 0 ||
        (fill->height > 1 && fill->pitch < fill->width * fill->elementSize))
        return CUDA_ERROR_INVALID_VALUE;
    *work = (struct graph_work){
        .op = {.run = run_fill, .release = free, .argument = duplicate_fill(fill)},
        .copy = duplicate_fill,
        .type = CU_GRAPH_NODE_TYPE_MEMSET};
    return work->op.argument ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* ---- host functions ---- */

static void *duplicate_host(const void *argument)
{
    return duplicate(argument, sizeof(CUDA_HOST_NODE_PARAMS));
}

static CUresult run_host(struct sim_context *context, void *argument)
{
    const CUDA_HOST_NODE_PARAMS *host = argument;
    (void)context;
    host->fn(host->userData);
    return CUDA_SUCCESS;
}

CUresult graph_make_host(const struct node_parameters *parameters, struct graph_work *work)
{
    if (!parameters->host.fn)
        return CUDA_ERROR_INVALID_VALUE;
    *work = (struct graph_work){
        .op = {.run = run_host, .release = free, .argument = duplicate_host(&parameters->host)},
        .copy = duplicate_host,
        .type = CU_GRAPH_NODE_TYPE_HOST};
    return work->op.argument ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* ---- memory: an address for the graph's life, physical memory from node to node ---- */

struct graph_memory {
    atomic_int references;
    struct sim_context *context;
    uint64_t address;
};

static void *share_memory(const void *argument)
{
    struct graph_memory *memory = (struct graph_memory *)(uintptr_t)argument;
    atomic_fetch_add(&memory->references, 1);
    return memory;
}

static void drop_memory(void *argument)
{
    struct graph_memory *memory = argument;
    if (atomic_fetch_sub(&memory->references, 1) > 1)
        return;
    if (context_is_live(memory->context))
        sim_memory_graph_forget(memory->context, memory->address);
    free(memory);
}

static CUresult run_allocation(struct sim_context *context, void *argument)
{
    const struct graph_memory *memory = argument;
    (void)context;
    return sim_memory_graph_commit(memory->context, memory->address);
}

CUresult graph_make_allocation(struct node_parameters *parameters, struct graph_work *work)
{
    struct graph_memory *memory = calloc(1, sizeof *memory);
    CUresult result = memory ? sim_current(&memory->context) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS && parameters->allocation.bytesize == 0)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        result = sim_memory_graph_reserve(memory->context, parameters->allocation.bytesize,
                                          &memory->address);
    if (result == CUDA_SUCCESS)
        memory->context = sim_context_root(memory->context);
    if (result) {
        free(memory);
        return result;
    }
    atomic_init(&memory->references, 1);
    parameters->allocation.dptr = memory->address;
    *work = (struct graph_work){.op = {.run = run_allocation,
                                       .release = drop_memory,
                                       .argument = memory,
                                       .is_instant = true},
                                .copy = share_memory,
                                .type = CU_GRAPH_NODE_TYPE_MEM_ALLOC};
    return CUDA_SUCCESS;
}

static void *duplicate_address(const void *argument)
{
    return duplicate(argument, sizeof(CUdeviceptr));
}

static CUresult run_free(struct sim_context *context, void *argument)
{
    return sim_memory_graph_uncommit(context, *(const CUdeviceptr *)argument);
}

CUresult graph_make_free(const struct node_parameters *parameters, struct graph_work *work)
{
    if (parameters->address == 0)
        return CUDA_ERROR_INVALID_VALUE;
    *work = (struct graph_work){.op = {.run = run_free,
                                       .release = free,
                                       .argument = duplicate_address(&parameters->address),
                                       .is_instant = true},
                                .copy = duplicate_address,
                                .type = CU_GRAPH_NODE_TYPE_MEM_FREE};
    return work->op.argument ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
