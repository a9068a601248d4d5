/* Peers: every two different devices can reach each other, or none (SIMCUDA_PEERS). */
#include "memory.h"

static CUresult check_pair(CUdevice one, CUdevice other)
{
    CUresult result = sim_check_init();

    if (result != CUDA_SUCCESS)
        return result;
    return sim_device(one) == NULL || sim_device(other) == NULL ? CUDA_ERROR_INVALID_DEVICE
                                                                : CUDA_SUCCESS;
}

SIM_API(cuDeviceCanAccessPeer, (int *canAccessPeer, CUdevice dev, CUdevice peerDev),
        (canAccessPeer, dev, peerDev), "%d %d", dev, peerDev)
{
    CUresult result = check_pair(dev, peerDev);

    if (result != CUDA_SUCCESS)
        return result;
    if (canAccessPeer == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *canAccessPeer = dev != peerDev && sim_settings()->has_peers;
    return CUDA_SUCCESS;
}

SIM_API(cuDeviceGetP2PAttribute,
        (int *value, CUdevice_P2PAttribute attrib, CUdevice srcDevice, CUdevice dstDevice),
        (value, attrib, srcDevice, dstDevice), "%d %d %d", (int)attrib, srcDevice, dstDevice)
{
    CUresult result = check_pair(srcDevice, dstDevice);

    if (result != CUDA_SUCCESS)
        return result;
    if (srcDevice == dstDevice)
        return CUDA_ERROR_INVALID_DEVICE;
    if (value == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    switch ((int)attrib) {
    case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK:
        *value = 0;
        return CUDA_SUCCESS;
    case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED:
    case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED:
    case CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED:
        *value = sim_settings()->has_peers;
        return CUDA_SUCCESS;
#if CUDA_VERSION >= 12090
    case CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED:
        *value = 0;
        return CUDA_SUCCESS;
#endif
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

/* The current context and the peer's, which must differ. */
static CUresult find_peer(CUcontext handle, struct sim_context **context, struct sim_context **peer)
{
    CUresult result = sim_current(context);

    if (result == CUDA_SUCCESS)
        result = sim_context_check(handle, peer);
    if (result != CUDA_SUCCESS)
        return result;
    *context = sim_context_root(*context);
    *peer = sim_context_root(*peer);
    return *peer == *context ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

SIM_API(cuCtxEnablePeerAccess, (CUcontext peerContext, unsigned Flags), (peerContext, Flags), "%p",
        (void *)peerContext)
{
    struct sim_context *context, *peer;
    CUresult result = find_peer(peerContext, &context, &peer);
    uint64_t bit;

    if (result != CUDA_SUCCESS)
        return result;
    if (Flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (peer->device == context->device || !sim_settings()->has_peers)
        return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    bit = UINT64_C(1) << (peer->device->ordinal & 63);
    if ((atomic_fetch_or_explicit(&context->peers, bit, memory_order_relaxed) & bit) != 0)
        return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    return CUDA_SUCCESS;
}

SIM_API(cuCtxDisablePeerAccess, (CUcontext peerContext), (peerContext), "%p", (void *)peerContext)
{
    struct sim_context *context, *peer;
    CUresult result = find_peer(peerContext, &context, &peer);
    uint64_t bit;

    if (result != CUDA_SUCCESS)
        return result;
    bit = UINT64_C(1) << (peer->device->ordinal & 63);
    if ((atomic_fetch_and_explicit(&context->peers, ~bit, memory_order_relaxed) & bit) == 0)
        return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
    return CUDA_SUCCESS;
}

#if CUDA_VERSION >= 13000
/* Every operation on every width between peers, as by NATIVE_ATOMIC_SUPPORTED. */
SIM_API(cuDeviceGetP2PAtomicCapabilities,
        (unsigned *capabilities, const CUatomicOperation *operations, unsigned count,
         CUdevice srcDevice, CUdevice dstDevice),
        (capabilities, operations, count, srcDevice, dstDevice), "%u %d %d", count, srcDevice,
        dstDevice)
{
    CUresult result = check_pair(srcDevice, dstDevice);

    if (result == CUDA_SUCCESS && srcDevice == dstDevice)
        result = CUDA_ERROR_INVALID_DEVICE;
    if (result == CUDA_SUCCESS && (capabilities == NULL || operations == NULL || count == 0))
        result = CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; result == CUDA_SUCCESS && i < count; i++)
        capabilities[i] = !sim_settings()->has_peers
                              ? 0
                              : CU_ATOMIC_CAPABILITY_SIGNED | CU_ATOMIC_CAPABILITY_UNSIGNED |
                                    CU_ATOMIC_CAPABILITY_SCALAR_32 | CU_ATOMIC_CAPABILITY_SCALAR_64;
    return result;
}
#endif
