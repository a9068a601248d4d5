/* Streams, events, and capture. Handles are the driver's own. */
#include "runtime.h"

RT_API(context, cudaStreamCreate, (cudaStream_t * pStream), (pStream))
{
    return pStream ? rt_result(rt_cu.cuStreamCreate(pStream, CU_STREAM_DEFAULT))
                   : cudaErrorInvalidValue;
}

RT_API(context, cudaStreamCreateWithFlags, (cudaStream_t * pStream, unsigned flags),
       (pStream, flags))
{
    return pStream ? rt_result(rt_cu.cuStreamCreate(pStream, flags)) : cudaErrorInvalidValue;
}

RT_API(context, cudaStreamCreateWithPriority,
       (cudaStream_t * pStream, unsigned flags, int priority), (pStream, flags, priority))
{
    return pStream ? rt_result(rt_cu.cuStreamCreateWithPriority(pStream, flags, priority))
                   : cudaErrorInvalidValue;
}

RT_API(context, cudaStreamDestroy, (cudaStream_t stream), (stream))
{
    /* The default streams cannot be destroyed. */
    if (!stream || stream == cudaStreamLegacy || stream == cudaStreamPerThread)
        return cudaErrorInvalidResourceHandle;
    return rt_result(rt_cu.cuStreamDestroy_v2(stream));
}

RT_API_PT(context, cudaStreamSynchronize, ptsz, (cudaStream_t stream), (stream))
{
    return rt_result(RT_PICK(cuStreamSynchronize, ptsz)(stream));
}

RT_API_PT(context, cudaStreamQuery, ptsz, (cudaStream_t stream), (stream))
{
    return rt_result(RT_PICK(cuStreamQuery, ptsz)(stream));
}

RT_API_PT(context, cudaStreamWaitEvent, ptsz,
          (cudaStream_t stream, cudaEvent_t event, unsigned flags), (stream, event, flags))
{
    return rt_result(RT_PICK(cuStreamWaitEvent, ptsz)(stream, event, flags));
}

RT_API_PT(context, cudaStreamGetFlags, ptsz, (cudaStream_t hStream, unsigned *flags),
          (hStream, flags))
{
    return rt_result(RT_PICK(cuStreamGetFlags, ptsz)(hStream, flags));
}

RT_API_PT(context, cudaStreamGetPriority, ptsz, (cudaStream_t hStream, int *priority),
          (hStream, priority))
{
    return rt_result(RT_PICK(cuStreamGetPriority, ptsz)(hStream, priority));
}

RT_API_PT(context, cudaStreamGetId, ptsz, (cudaStream_t hStream, unsigned long long *streamId),
          (hStream, streamId))
{
    return rt_result(RT_PICK(cuStreamGetId, ptsz)(hStream, streamId));
}

RT_API_PT(context, cudaStreamGetDevice, ptsz, (cudaStream_t hStream, int *device),
          (hStream, device))
{
    return rt_result(RT_PICK(cuStreamGetDevice, ptsz)(hStream, device));
}

RT_API_PT(context, cudaStreamAttachMemAsync, ptsz,
          (cudaStream_t stream, void *devPtr, size_t length, unsigned flags),
          (stream, devPtr, length, flags))
{
    return rt_result(RT_PICK(cuStreamAttachMemAsync, ptsz)(stream, (CUdeviceptr)(uintptr_t)devPtr,
                                                           length, flags));
}

RT_API_PT(context, cudaStreamCopyAttributes, ptsz, (cudaStream_t dst, cudaStream_t src), (dst, src))
{
    return rt_result(RT_PICK(cuStreamCopyAttributes, ptsz)(dst, src));
}

_Static_assert(sizeof(cudaStreamAttrValue) == sizeof(CUstreamAttrValue),
               "attribute values are passed on");

RT_API_PT(context, cudaStreamGetAttribute, ptsz,
          (cudaStream_t hStream, cudaStreamAttrID attr, cudaStreamAttrValue *value),
          (hStream, attr, value))
{
    return rt_result(RT_PICK(cuStreamGetAttribute, ptsz)(hStream, (CUstreamAttrID)attr,
                                                         (CUstreamAttrValue *)value));
}

RT_API_PT(context, cudaStreamSetAttribute, ptsz,
          (cudaStream_t hStream, cudaStreamAttrID attr, const cudaStreamAttrValue *value),
          (hStream, attr, value))
{
    return rt_result(RT_PICK(cuStreamSetAttribute, ptsz)(hStream, (CUstreamAttrID)attr,
                                                         (const CUstreamAttrValue *)value));
}

/* ---- host work ---- */

RT_API_PT(context, cudaLaunchHostFunc, ptsz, (cudaStream_t stream, cudaHostFn_t fn, void *userData),
          (stream, fn, userData))
{
    return fn ? rt_result(RT_PICK(cuLaunchHostFunc, ptsz)(stream, fn, userData))
              : cudaErrorInvalidValue;
}

RT_API_PT(context, cudaStreamAddCallback, ptsz,
          (cudaStream_t stream, cudaStreamCallback_t callback, void *userData, unsigned flags),
          (stream, callback, userData, flags))
{
    /* The two callback types differ in the name of the status enum alone: same size, same values.
     */
    CUstreamCallback same = (CUstreamCallback)(void (*)(void))callback;

    if (!callback || flags)
        return cudaErrorInvalidValue;
    return rt_result(RT_PICK(cuStreamAddCallback, ptsz)(stream, same, userData, flags));
}

/* ---- events ---- */

static cudaError_t event_create(cudaEvent_t *event, unsigned flags)
{
    return event ? rt_result(rt_cu.cuEventCreate(event, flags)) : cudaErrorInvalidValue;
}

RT_API(context, cudaEventCreate, (cudaEvent_t * event), (event))
{
    return event_create(event, cudaEventDefault);
}

RT_API(context, cudaEventCreateWithFlags, (cudaEvent_t * event, unsigned flags), (event, flags))
{
    return event_create(event, flags);
}

RT_API(context, cudaEventDestroy, (cudaEvent_t event), (event))
{
    return event ? rt_result(rt_cu.cuEventDestroy_v2(event)) : cudaErrorInvalidResourceHandle;
}

RT_API_PT(context, cudaEventRecord, ptsz, (cudaEvent_t event, cudaStream_t stream), (event, stream))
{
    return rt_result(RT_PICK(cuEventRecord, ptsz)(event, stream));
}

RT_API_PT(context, cudaEventRecordWithFlags, ptsz,
          (cudaEvent_t event, cudaStream_t stream, unsigned flags), (event, stream, flags))
{
    return rt_result(RT_PICK(cuEventRecordWithFlags, ptsz)(event, stream, flags));
}

RT_API(context, cudaEventQuery, (cudaEvent_t event), (event))
{
    return rt_result(rt_cu.cuEventQuery(event));
}

RT_API(context, cudaEventSynchronize, (cudaEvent_t event), (event))
{
    return rt_result(rt_cu.cuEventSynchronize(event));
}

RT_API(context, cudaEventElapsedTime, (float *ms, cudaEvent_t start, cudaEvent_t end),
       (ms, start, end))
{
    return ms ? rt_result(rt_cu.cuEventElapsedTime_v2(ms, start, end)) : cudaErrorInvalidValue;
}

/* ---- capture ---- */

RT_API_PT(context, cudaStreamBeginCapture, ptsz,
          (cudaStream_t stream, enum cudaStreamCaptureMode mode), (stream, mode))
{
    return rt_result(RT_PICK(cuStreamBeginCapture_v2, ptsz)(stream, (CUstreamCaptureMode)mode));
}

RT_API_PT(context, cudaStreamBeginCaptureToGraph, ptsz,
          (cudaStream_t stream, cudaGraph_t graph, const cudaGraphNode_t *dependencies,
           const cudaGraphEdgeData *dependencyData, size_t numDependencies,
           enum cudaStreamCaptureMode mode),
          (stream, graph, dependencies, dependencyData, numDependencies, mode))
{
    return rt_result(RT_PICK(cuStreamBeginCaptureToGraph, ptsz)(
        stream, graph, dependencies, (const CUgraphEdgeData *)dependencyData, numDependencies,
        (CUstreamCaptureMode)mode));
}

RT_API_PT(context, cudaStreamEndCapture, ptsz, (cudaStream_t stream, cudaGraph_t *pGraph),
          (stream, pGraph))
{
    return pGraph ? rt_result(RT_PICK(cuStreamEndCapture, ptsz)(stream, pGraph))
                  : cudaErrorInvalidValue;
}

RT_API_PT(context, cudaStreamIsCapturing, ptsz,
          (cudaStream_t stream, enum cudaStreamCaptureStatus *status), (stream, status))
{
    CUstreamCaptureStatus found;

    if (!status)
        return cudaErrorInvalidValue;
    RT_TRY_CU(RT_PICK(cuStreamIsCapturing, ptsz)(stream, &found));
    *status = (enum cudaStreamCaptureStatus)found;
    return cudaSuccess;
}

RT_API_PT(context, cudaStreamGetCaptureInfo, ptsz,
          (cudaStream_t stream, enum cudaStreamCaptureStatus *status, unsigned long long *id,
           cudaGraph_t *graph, const cudaGraphNode_t **dependencies,
           const cudaGraphEdgeData **edges, size_t *count),
          (stream, status, id, graph, dependencies, edges, count))
{
    CUstreamCaptureStatus found;
    cuuint64_t number = 0;

    if (!status)
        return cudaErrorInvalidValue;
    RT_TRY_CU(RT_PICK(cuStreamGetCaptureInfo_v3, ptsz)(stream, &found, id ? &number : NULL, graph,
                                                       dependencies,
                                                       (const CUgraphEdgeData **)edges, count));
    *status = (enum cudaStreamCaptureStatus)found;
    if (id)
        *id = number;
    return cudaSuccess;
}

RT_API_PT(context, cudaStreamUpdateCaptureDependencies, ptsz,
          (cudaStream_t stream, cudaGraphNode_t *dependencies,
           const cudaGraphEdgeData *dependencyData, size_t numDependencies, unsigned flags),
          (stream, dependencies, dependencyData, numDependencies, flags))
{
    return rt_result(RT_PICK(cuStreamUpdateCaptureDependencies_v2, ptsz)(
        stream, dependencies, (const CUgraphEdgeData *)dependencyData, numDependencies, flags));
}

RT_API(driver, cudaThreadExchangeStreamCaptureMode, (enum cudaStreamCaptureMode * mode), (mode))
{
    CUstreamCaptureMode same;

    if (!mode)
        return cudaErrorInvalidValue;
    same = (CUstreamCaptureMode)*mode;
    RT_TRY_CU(rt_cu.cuThreadExchangeStreamCaptureMode(&same));
    *mode = (enum cudaStreamCaptureMode)same;
    return cudaSuccess;
}
