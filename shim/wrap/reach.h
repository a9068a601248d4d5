/* Whose memory a piece of work may reach: the words of api.def's `reach` column, a closed set. A
 * row without one of them does not build, and tests/preload/routes/check_coverage.py holds each
 * word against the types of the function's parameters in the toolkit's headers.
 *
 *     KERNEL                  a kernel: memory of its own context, and of those that were opened to
 *                             it (peer_api.c notes that when it happens)
 *     NOTHING                 no memory of the pools
 *     PAIR, BATCH, BATCH_3D, SHAPED, MEM_OPS, UNPACKED, FILLED, OPS, NODE_PARAMS
 *                             the memory at the addresses of the parameters that it names
 *     ANY                     not wholly known: memory of every context
 * Wrappers of their own (GC_SUBMIT) say ANY, NOTHING, or NOTED: noted by the wrapper before.
 *
 * In a process with several contexts memory at an address is the worker's to be waited for from
 * then on (gc_peer_note), and open to its device. Of ANY the worker is waited for by all contexts,
 * present and future (gc_context_set_roaming). Either happens before the driver is asked. In a
 * process with one context there is nothing to note. */
#ifndef GC_REACH_H
#define GC_REACH_H

#include "shim/shim.h"

struct gc_tenant;
struct gc_work;

/* What is to be looked for at the addresses of a piece of work, and what was found. */
struct gc_reach {
    bool notes;               /* whose memory it is, for those that may do the work: */
    bool guards;              /* whether a paused tenant has it */
    bool is_anywhere;         /* it may be done in any context, */
    struct gc_context *by[2]; /* or in these: a stream's need not be the current one */
    const struct gc_tenant *away;
};

/* Of work in a stream. Call inside a wrapper, as all that follows. */
struct gc_reach gc_reach_of_stream(CUstream stream, bool guards);
/* Of a graph's node that runs in the context; NULL: that is not told. */
struct gc_reach gc_reach_of_node(CUcontext context);

/* In a process with several contexts: work in the stream reaches what is not wholly known. */
void gc_reach_any(const struct gc_work *work, CUstream stream);

/* Of cuGraphAddNode and its kin, which tell the node's context with its other parameters. */
void gc_reach_note_node(const CUgraphNodeParams *params);

/* ---- what the words stand for ---- */

void gc_reach_note_any(struct gc_reach *reach);
void gc_reach_note_address(struct gc_reach *reach, uint64_t address);
void gc_reach_note_batch(struct gc_reach *reach, const CUdeviceptr *to, const CUdeviceptr *from,
                         size_t count);
void gc_reach_note_batch_3d(struct gc_reach *reach, const CUDA_MEMCPY3D_BATCH_OP *list,
                            size_t count);
void gc_reach_note_mem_ops(struct gc_reach *reach, const CUstreamBatchMemOpParams *list,
                           size_t count);
void gc_reach_note_unpacked(struct gc_reach *reach, const CUmemDecompressParams *list,
                            size_t count);

#define GC_REACH_KERNEL (void)0
#define GC_REACH_NOTHING (void)0
#define GC_REACH_ANY gc_reach_note_any(&reach_)
#define GC_REACH_PAIR(to, from)                                                                    \
    (gc_reach_note_address(&reach_, (uintptr_t)(to)),                                              \
     gc_reach_note_address(&reach_, (uintptr_t)(from)))
#define GC_REACH_BATCH(to, from, count) gc_reach_note_batch(&reach_, to, from, count)
#define GC_REACH_BATCH_3D(list, count) gc_reach_note_batch_3d(&reach_, list, count)
#define GC_REACH_MEM_OPS(list, count) gc_reach_note_mem_ops(&reach_, list, count)
#define GC_REACH_UNPACKED(list, count) gc_reach_note_unpacked(&reach_, list, count)
#define GC_REACH_ADDRESS(type, device)                                                             \
    ((type) == CU_MEMORYTYPE_DEVICE || (type) == CU_MEMORYTYPE_UNIFIED ? (device) : 0)
#define GC_REACH_SHAPED(copy)                                                                      \
    ((copy) == NULL ? (void)0                                                                      \
                    : GC_REACH_PAIR(GC_REACH_ADDRESS((copy)->dstMemoryType, (copy)->dstDevice),    \
                                    GC_REACH_ADDRESS((copy)->srcMemoryType, (copy)->srcDevice)))
#define GC_REACH_FILLED(fill) gc_reach_note_address(&reach_, (fill) == NULL ? 0 : (fill)->dst)
#define GC_REACH_OPS(ops)                                                                          \
    ((ops) == NULL ? (void)0 : gc_reach_note_mem_ops(&reach_, (ops)->paramArray, (ops)->count))
#define GC_REACH_NODE_PARAMS(params) ((void)reach_, gc_reach_note_node(params))

/* Whether a word of a row, as text, looks at anything. */
#define GC_REACH_LOOKS(word)                                                                       \
    (__builtin_strcmp(word, "KERNEL") != 0 && __builtin_strcmp(word, "NOTHING") != 0)

/* The words of GC_SUBMIT. */
#define GC_SUBMIT_REACH_ANY(work, stream) gc_reach_any(work, stream)
#define GC_SUBMIT_REACH_NOTHING(work, stream) (void)0
#define GC_SUBMIT_REACH_NOTED(work, stream) (void)0

#endif
