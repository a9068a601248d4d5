/* Contexts whose work may reach another context's memory: by peer access, or by a copy between
 * contexts, which needs no peer access. A free in the owner then waits for the other context's
 * work, too (gc_backing_add_peer).
 *
 * A peer stays a peer: work that was queued before cuCtxDisablePeerAccess may still run, so that
 * call is not wrapped. */
#include "shim/account/device.h"
#include "shim/account/peer.h"
#include "shim/life/life.h"
#include "shim/real/resolve.h"
#include "shim/wrap/reach.h"
#include "shim/wrap/relieve.h"
#include "shim/wrap/submit.h"

GC_EXPORT
CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags)
{
    if (!gc_life_ready())
        return GC_FORWARD(cuCtxEnablePeerAccess, peer, flags);
    gc_shim_enter(GC_API_cuCtxEnablePeerAccess);
    struct gc_context *current = gc_account_current_context();
    struct gc_device *device = current == NULL ? NULL : gc_context_device(current);
    CUresult result = GC_CALL_RELIEVED(device, cuCtxEnablePeerAccess, peer, flags);
    if (result == CUDA_SUCCESS)
        gc_peer_add(gc_account_context(peer), current);
    gc_shim_leave();
    return result;
}

/* The copy runs in its stream, or in a stream of either side; each side's memory may be freed while
 * the copy is queued. Call before the driver call: another thread may free at once. */
static void add_copy(CUcontext to, CUcontext from, CUstream stream, uint64_t to_address,
                     uint64_t from_address)
{
    struct gc_context *current = gc_account_current_context();
    struct gc_context *worker = gc_account_stream_context(stream);
    struct gc_context *sides[] = {gc_account_context(to), gc_account_context(from)};

    for (int i = 0; i < 2; i++) {
        gc_peer_add(sides[i], current);
        gc_peer_add(sides[i], worker);
        gc_peer_add(sides[i], sides[1 - i]);
    }
    /* Either address may belong to another context of its device. */
    struct gc_reach reach = gc_reach_of_stream(stream, false);
    GC_REACH_PAIR(&reach, to_address, from_address);
}

#define PEER_COPY(symbol, is_per_thread, stream, to, from, to_address, from_address, ...)          \
    do {                                                                                           \
        const bool is_ours = gc_life_ready();                                                      \
        struct gc_submissions *work;                                                               \
        if (is_ours) {                                                                             \
            gc_shim_enter(GC_API_##symbol);                                                        \
            add_copy(to, from, stream, to_address, from_address);                                  \
        }                                                                                          \
        const uint64_t key = gc_shim_submit_key(stream, is_per_thread);                            \
        CUresult result = gc_shim_submit_enter(key, &work, GC_CALLER);                             \
        if (result == CUDA_SUCCESS) {                                                              \
            if (is_ours && work != NULL)                                                           \
                gc_shim_submit_wait_memory(work, to_address, from_address);                        \
            result = is_ours ? GC_CALL_RELIEVED(NULL, symbol, __VA_ARGS__)                         \
                             : GC_FORWARD(symbol, __VA_ARGS__);                                    \
            gc_shim_submit_end(work, key);                                                         \
        }                                                                                          \
        if (is_ours)                                                                               \
            gc_shim_leave();                                                                       \
        return result;                                                                             \
    } while (0)

GC_EXPORT
CUresult cuMemcpyPeer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                      CUcontext from_context, size_t bytes)
{
    PEER_COPY(cuMemcpyPeer, false, NULL, to_context, from_context, to, from, to, to_context, from,
              from_context, bytes);
}

GC_EXPORT
CUresult cuMemcpyPeer_ptds(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                           CUcontext from_context, size_t bytes)
{
    PEER_COPY(cuMemcpyPeer_ptds, true, NULL, to_context, from_context, to, from, to, to_context,
              from, from_context, bytes);
}

GC_EXPORT
CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                           CUcontext from_context, size_t bytes, CUstream stream)
{
    PEER_COPY(cuMemcpyPeerAsync, false, stream, to_context, from_context, to, from, to, to_context,
              from, from_context, bytes, stream);
}

GC_EXPORT
CUresult cuMemcpyPeerAsync_ptsz(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                                CUcontext from_context, size_t bytes, CUstream stream)
{
    PEER_COPY(cuMemcpyPeerAsync_ptsz, true, stream, to_context, from_context, to, from, to,
              to_context, from, from_context, bytes, stream);
}

#define SIDE(copy, side) ((copy) == NULL ? NULL : (copy)->side)
#define SIDE_ADDRESS(copy, side)                                                                   \
    ((copy) != NULL && (copy)->side##MemoryType == CU_MEMORYTYPE_DEVICE ? (copy)->side##Device : 0)

GC_EXPORT
CUresult cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER *copy)
{
    PEER_COPY(cuMemcpy3DPeer, false, NULL, SIDE(copy, dstContext), SIDE(copy, srcContext),
              SIDE_ADDRESS(copy, dst), SIDE_ADDRESS(copy, src), copy);
}

GC_EXPORT
CUresult cuMemcpy3DPeer_ptds(const CUDA_MEMCPY3D_PEER *copy)
{
    PEER_COPY(cuMemcpy3DPeer_ptds, true, NULL, SIDE(copy, dstContext), SIDE(copy, srcContext),
              SIDE_ADDRESS(copy, dst), SIDE_ADDRESS(copy, src), copy);
}

GC_EXPORT
CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER *copy, CUstream stream)
{
    PEER_COPY(cuMemcpy3DPeerAsync, false, stream, SIDE(copy, dstContext), SIDE(copy, srcContext),
              SIDE_ADDRESS(copy, dst), SIDE_ADDRESS(copy, src), copy, stream);
}

GC_EXPORT
CUresult cuMemcpy3DPeerAsync_ptsz(const CUDA_MEMCPY3D_PEER *copy, CUstream stream)
{
    PEER_COPY(cuMemcpy3DPeerAsync_ptsz, true, stream, SIDE(copy, dstContext),
              SIDE(copy, srcContext), SIDE_ADDRESS(copy, dst), SIDE_ADDRESS(copy, src), copy,
              stream);
}
