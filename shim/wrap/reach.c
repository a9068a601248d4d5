/* Notes the contexts whose memory work may reach: see reach.h. Under unified addressing the driver
 * finds the owner of an address, and needs no peer access: a stream of one context then reads or
 * writes memory of another, and a free in the owner has to wait for that stream's context. */
#include "shim/wrap/reach.h"
#include "shim/account/device.h"
#include "shim/account/peer.h"
#include "shim/wrap/submit.h"

#include "core/pause/pause.h"

/* Longer lists are not read: the program gives the length, which may be wrong. */
#define LIST_MAX 4096

struct gc_reach gc_reach_of_stream(CUstream stream, bool guards)
{
    struct gc_reach reach = {.notes = gc_contexts_are_several(gc_shim.core), .guards = guards};

    if (reach.notes) {
        reach.by[0] = gc_account_current_context();
        reach.by[1] = gc_account_stream_context(
            (uintptr_t)stream == GC_STREAM_OTHER ? NULL : gc_shim_submit_stream(stream));
    }
    return reach;
}

struct gc_reach gc_reach_of_node(CUcontext context)
{
    struct gc_reach reach = {.by = {gc_account_context(context)}};

    reach.is_anywhere = reach.by[0] == NULL;
    reach.notes = gc_contexts_are_several(gc_shim.core);
    return reach;
}

/* ---- any memory ---- */

static void set_roaming(struct gc_context *context, void *unused)
{
    (void)unused;
    if (context != NULL)
        gc_context_set_roaming(context);
}

void gc_reach_add_any(struct gc_reach *reach)
{
    if (!reach->notes)
        return;
    if (reach->is_anywhere)
        gc_contexts_visit(gc_shim.core, set_roaming, NULL);
    for (int i = 0; i < 2; i++)
        set_roaming(reach->by[i], NULL);
}

void gc_reach_any(const struct gc_submissions *work, CUstream stream)
{
    if (work == NULL || !gc_contexts_are_several(gc_shim.core))
        return;
    gc_shim_enter(GC_API_COUNT);
    struct gc_reach reach = gc_reach_of_stream(stream, false);
    gc_reach_add_any(&reach);
    gc_shim_leave();
}

/* ---- memory at addresses ---- */

static void add_worker(struct gc_context *worker, void *owner)
{
    gc_peer_add(owner, worker);
}

static void add_owner(struct gc_reach *reach, struct gc_context *owner)
{
    if (reach->is_anywhere && owner != NULL)
        gc_contexts_visit(gc_shim.core, add_worker, owner);
    for (int i = 0; i < 2; i++)
        gc_peer_add(owner, reach->by[i]);
}

void gc_reach_add_address(struct gc_reach *reach, uint64_t address)
{
    struct gc_block_info block;

    if (address == 0)
        return;
    if (reach->guards && reach->out_tenant == NULL)
        reach->out_tenant = gc_pause_find(gc_shim.core, address);
    if (reach->notes && gc_lookup_block(gc_shim.core, address, &block) == GC_OK)
        add_owner(reach, gc_context_find(gc_shim.core, block.context));
}

static void add_owner_of_any(struct gc_context *owner, void *reach)
{
    add_owner(reach, owner);
}

/* False: the list is too long to read, so the memory of all contexts is noted and opened. */
static bool may_read(struct gc_reach *reach, size_t count)
{
    if (count <= LIST_MAX)
        return true;
    gc_reach_add_any(reach);
    if (reach->notes)
        gc_contexts_visit(gc_shim.core, add_owner_of_any, reach);
    return false;
}

void gc_reach_add_batch(struct gc_reach *reach, const CUdeviceptr *to, const CUdeviceptr *from,
                        size_t count)
{
    if (!may_read(reach, count))
        return;
    for (size_t i = 0; i < count; i++) {
        gc_reach_add_address(reach, to == NULL ? 0 : to[i]);
        gc_reach_add_address(reach, from == NULL ? 0 : from[i]);
    }
}

static uint64_t operand_address(const CUmemcpy3DOperand *operand)
{
    return operand->type == CU_MEMCPY_OPERAND_TYPE_POINTER ? operand->op.ptr.ptr : 0;
}

void gc_reach_add_batch_3d(struct gc_reach *reach, const CUDA_MEMCPY3D_BATCH_OP *list, size_t count)
{
    if (!may_read(reach, count))
        return;
    for (size_t i = 0; list != NULL && i < count; i++) {
        gc_reach_add_address(reach, operand_address(&list[i].src));
        gc_reach_add_address(reach, operand_address(&list[i].dst));
    }
}

void gc_reach_add_mem_ops(struct gc_reach *reach, const CUstreamBatchMemOpParams *list,
                          size_t count)
{
    if (!may_read(reach, count))
        return;
    for (size_t i = 0; list != NULL && i < count; i++) {
        switch (list[i].operation) {
        case CU_STREAM_MEM_OP_WAIT_VALUE_32:
        case CU_STREAM_MEM_OP_WAIT_VALUE_64:
            gc_reach_add_address(reach, list[i].waitValue.address);
            break;
        case CU_STREAM_MEM_OP_WRITE_VALUE_32:
        case CU_STREAM_MEM_OP_WRITE_VALUE_64:
            gc_reach_add_address(reach, list[i].writeValue.address);
            break;
        case CU_STREAM_MEM_OP_BARRIER:
        case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
            break;
        default: /* of a later CUDA */
            gc_reach_add_any(reach);
        }
    }
}

void gc_reach_add_unpacked(struct gc_reach *reach, const CUmemDecompressParams *list, size_t count)
{
    if (!may_read(reach, count))
        return;
    for (size_t i = 0; list != NULL && i < count; i++) {
        gc_reach_add_address(reach, (uintptr_t)list[i].src);
        gc_reach_add_address(reach, (uintptr_t)list[i].dst);
        gc_reach_add_address(reach, (uintptr_t)list[i].dstActBytes);
    }
}

/* ---- nodes ---- */

void gc_reach_add_node(const CUgraphNodeParams *params)
{
    struct gc_reach reach;

    if (params == NULL)
        return;
    switch (params->type) {
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        reach = gc_reach_of_node(params->memcpy.copyCtx);
        GC_REACH_SHAPED(&reach, &params->memcpy.copyParams);
        break;
    case CU_GRAPH_NODE_TYPE_MEMSET:
        reach = gc_reach_of_node(params->memset.ctx);
        GC_REACH_FILLED(&reach, &params->memset);
        break;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        reach = gc_reach_of_node(params->memOp.ctx);
        GC_REACH_MEM_OPS(&reach, params->memOp.paramArray, params->memOp.count);
        break;
    default: /* names no memory, or a kernel */
        break;
    }
}
