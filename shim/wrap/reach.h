/* The memory that a piece of work may reach: the words of shim/api.def's `reach` column, a closed
 * set. A row without one of them does not build, and tests/preload/routes/check_coverage.py holds
 * each word against the types of the function's parameters in the toolkit's headers.
 *
 *     KERNEL                  a kernel: memory of its own context, and of contexts opened to
 *                             it (noted at the opening: peer_api.c)
 *     NOTHING                 no memory of the pools
 *     PAIR, BATCH, BATCH_3D, SHAPED, MEM_OPS, UNPACKED, FILLED, OPS, NODE_PARAMS
 *                             the memory at the addresses of the named parameters
 *     ANY                     not wholly known: memory of every context
 *
 * Handwritten wrappers (GC_SUBMIT_CALL_IF_OPEN) use ANY or NOTHING.
 *
 * In a process with several contexts, once work reaches memory at an address, frees in the context
 * of that memory also wait for the context of the work (gc_peer_add), and the memory is opened to
 * the device of the work. For ANY, all contexts, present and future, wait for the context of the
 * work (gc_context_set_roaming). Either happens before the driver call. In a process with one
 * context there is nothing to note. */
#ifndef GC_REACH_H
#define GC_REACH_H

#include "shim/shim.h"

struct gc_tenant;
struct gc_submissions;

/* One search of the memory at a piece of work's addresses: its task and its result. */
struct gc_reach {
    bool notes;       /* make the work's contexts peers of the context that owns the memory */
    bool guards;      /* find the tenant that owns the memory, if it is out */
    bool is_anywhere; /* the work may run in any context */
    /* The contexts in which the work may run: a stream's context need not be the current one. */
    struct gc_context *by[2];
    struct gc_tenant *out_tenant;
};

/* For work in a stream. Call inside a wrapper, like all functions below. */
struct gc_reach gc_reach_of_stream(CUstream stream, bool guards);
/* For a graph's node that runs in the context; NULL: the context is unknown. */
struct gc_reach gc_reach_of_node(CUcontext context);

/* In a process with several contexts: work in the stream may reach any memory. */
void gc_reach_any(const struct gc_submissions *work, CUstream stream);

/* For cuGraphAddNode and its kin, which give the node's context with its other parameters. */
void gc_reach_add_node(const CUgraphNodeParams *params);

/* ---- the words ---- */

void gc_reach_add_any(struct gc_reach *reach);
void gc_reach_add_address(struct gc_reach *reach, uint64_t address);
void gc_reach_add_batch(struct gc_reach *reach, const CUdeviceptr *to, const CUdeviceptr *from,
                        size_t count);
void gc_reach_add_batch_3d(struct gc_reach *reach, const CUDA_MEMCPY3D_BATCH_OP *list,
                           size_t count);
void gc_reach_add_mem_ops(struct gc_reach *reach, const CUstreamBatchMemOpParams *list,
                          size_t count);
void gc_reach_add_unpacked(struct gc_reach *reach, const CUmemDecompressParams *list, size_t count);

/* The step of a wrapper for a word: GC_REACH(&reach, WORD, (operands)). */
#define GC_REACH(reach, word, operands)                                                            \
    GC_REACH_WITH(GC_REACH_##word, reach, GC_REACH_LIST operands)
#define GC_REACH_LIST(...) __VA_ARGS__
#define GC_REACH_WITH(note, ...) note(__VA_ARGS__)

#define GC_REACH_KERNEL(reach, ...) (void)(reach)
#define GC_REACH_NOTHING(reach, ...) (void)(reach)
#define GC_REACH_ANY(reach, ...) gc_reach_add_any(reach)
#define GC_REACH_PAIR(reach, to, from)                                                             \
    (gc_reach_add_address(reach, (uintptr_t)(to)), gc_reach_add_address(reach, (uintptr_t)(from)))
#define GC_REACH_BATCH(reach, to, from, count) gc_reach_add_batch(reach, to, from, count)
#define GC_REACH_BATCH_3D(reach, list, count) gc_reach_add_batch_3d(reach, list, count)
#define GC_REACH_MEM_OPS(reach, list, count) gc_reach_add_mem_ops(reach, list, count)
#define GC_REACH_UNPACKED(reach, list, count) gc_reach_add_unpacked(reach, list, count)
#define GC_REACH_ADDRESS(type, device)                                                             \
    ((type) == CU_MEMORYTYPE_DEVICE || (type) == CU_MEMORYTYPE_UNIFIED ? (device) : 0)
#define GC_REACH_SHAPED_TO(copy)                                                                   \
    ((copy) == NULL ? 0 : GC_REACH_ADDRESS((copy)->dstMemoryType, (copy)->dstDevice))
#define GC_REACH_SHAPED_FROM(copy)                                                                 \
    ((copy) == NULL ? 0 : GC_REACH_ADDRESS((copy)->srcMemoryType, (copy)->srcDevice))
#define GC_REACH_SHAPED(reach, copy)                                                               \
    GC_REACH_PAIR(reach, GC_REACH_SHAPED_TO(copy), GC_REACH_SHAPED_FROM(copy))
#define GC_REACH_FILLED(reach, fill) gc_reach_add_address(reach, (fill) == NULL ? 0 : (fill)->dst)
#define GC_REACH_OPS(reach, ops)                                                                   \
    ((ops) == NULL ? (void)0 : gc_reach_add_mem_ops(reach, (ops)->paramArray, (ops)->count))
#define GC_REACH_NODE_PARAMS(reach, params) ((void)(reach), gc_reach_add_node(params))

/* The words of handwritten wrappers (GC_SUBMIT_CALL_IF_OPEN). */
#define GC_SUBMIT_REACH_ANY(work, stream) gc_reach_any(work, stream)
#define GC_SUBMIT_REACH_NOTHING(work, stream) (void)0

#endif
