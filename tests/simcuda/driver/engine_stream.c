/* The stream entry points, and how work gets into a stream. */
#define _GNU_SOURCE
#include "tests/simcuda/driver/engine_lazy.h"
#include "tests/simcuda/driver/engine_thread.h"

#include <stdlib.h>
#include <string.h>

#define SIM_LOWEST_PRIORITY 0
#define SIM_HIGHEST_PRIORITY (-5)
#define SIM_LEAST_HANDLE 0x10000 /* no object is below: the kernel maps nothing there */

/* ---- handles ---- */

/* The calling thread's default stream in a context, made at first use. */
static CUresult resolve_per_thread(struct sim_context *context, struct sim_stream **stream)
{
    struct engine_thread *thread = engine_thread();
    struct thread_stream *own = NULL;

    if (!thread)
        return CUDA_ERROR_OUT_OF_MEMORY;
    /* "specifying CU_STREAM_PER_THREAD will return CUDA_ERROR_INVALID_HANDLE if a green context is
     * current" */
    if (context->green_of)
        return CUDA_ERROR_INVALID_HANDLE;
    for (size_t i = 0; i < thread->stream_count; i++)
        if (thread->streams[i].context == context)
            own = &thread->streams[i];
    if (own && own->context_id == atomic_load(&context->id)) {
        *stream = own->stream;
        return CUDA_SUCCESS;
    }
    if (!own) {
        if (!engine_grow((void **)&thread->streams, &thread->stream_capacity, thread->stream_count,
                         sizeof *thread->streams))
            return CUDA_ERROR_OUT_OF_MEMORY;
        own = &thread->streams[thread->stream_count++];
        *own = (struct thread_stream){.context = context};
    }
    engine_lock();
    own->stream = stream_create_locked(context, CU_STREAM_DEFAULT, 0);
    if (own->stream)
        own->stream->is_per_thread = true;
    engine_unlock();
    own->context_id = own->stream ? atomic_load(&context->id) : 0;
    *stream = own->stream;
    return own->stream ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult sim_stream_resolve(CUstream handle, bool per_thread, struct sim_stream **stream)
{
    if (handle == NULL || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) {
        struct sim_context *context;
        CUresult result = sim_current(&context);
        if (result)
            return result;
        if (handle == CU_STREAM_PER_THREAD || (handle == NULL && per_thread))
            return resolve_per_thread(context, stream);
        engine_lock();
        *stream = context->engine == NULL ? NULL : context->engine->legacy;
        engine_unlock();
        return *stream == NULL ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_SUCCESS;
    }
    CUresult result = sim_check_init();
    if (result)
        return result;
    struct sim_stream *candidate = (struct sim_stream *)handle;
    /* A number is no stream, whatever it was meant for. */
    if ((uintptr_t)handle < SIM_LEAST_HANDLE || (uintptr_t)handle % _Alignof(struct sim_stream))
        return CUDA_ERROR_INVALID_HANDLE;
    engine_lock();
    bool is_live = candidate->magic == SIM_MAGIC_STREAM;
    struct sim_context *owner = is_live ? candidate->context : NULL;
    engine_unlock();
    if (!is_live)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!context_is_live(owner))
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    *stream = candidate;
    return sim_sticky(owner);
}

struct sim_context *sim_stream_context(const struct sim_stream *stream)
{
    return stream->context;
}

bool sim_stream_is_capturing(const struct sim_stream *stream)
{
    engine_lock();
    bool is_capturing = stream->capture != NULL;
    engine_unlock();
    return is_capturing;
}

CUresult sim_submit(struct sim_stream *stream, struct sim_op op,
                    void *(*copy)(const void *argument), CUgraphNodeType node_type)
{
    bool taken = false;

    engine_lock();
    CUresult result = capture_check_use_locked(stream);
    if (result == CUDA_SUCCESS && stream->capture) {
        taken = true;
        result = capture_add_locked(stream,
                                    (struct graph_work){.op = op, .copy = copy, .type = node_type});
    } else if (result == CUDA_SUCCESS) {
        result = stream_queue_locked(stream, &(struct stream_work){.op = op});
        taken = result == CUDA_SUCCESS;
    }
    engine_unlock();
    if (!taken && op.release)
        op.release(op.argument);
    return result;
}

/* ---- creation ---- */

CUresult stream_create(struct sim_context *context, CUstream *handle, unsigned flags, int priority)
{
    if (!handle || (flags & ~(unsigned)CU_STREAM_NON_BLOCKING))
        return CUDA_ERROR_INVALID_VALUE;
    /* "Lower numbers represent higher priorities"; a value out of range is clamped. */
    if (priority < SIM_HIGHEST_PRIORITY)
        priority = SIM_HIGHEST_PRIORITY;
    if (priority > SIM_LOWEST_PRIORITY)
        priority = SIM_LOWEST_PRIORITY;
    CUresult result = lazy_take_slice(context, LAZY_STREAM_BYTES);
    if (result)
        return result;
    engine_lock();
    struct sim_stream *stream = stream_create_locked(context, flags, priority);
    engine_unlock();
    *handle = (CUstream)stream;
    return stream ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult create(CUstream *handle, unsigned flags, int priority)
{
    struct sim_context *context;
    CUresult result = sim_current(&context);
    return result ? result : stream_create(context, handle, flags, priority);
}

SIM_API(cuStreamCreate, (CUstream * stream, unsigned int flags), (stream, flags), "%u", flags)
{
    return create(stream, flags, 0);
}

SIM_API(cuStreamCreateWithPriority, (CUstream * stream, unsigned int flags, int priority),
        (stream, flags, priority), "%u %d", flags, priority)
{
    return create(stream, flags, priority);
}

SIM_API(cuCtxGetStreamPriorityRange, (int *least, int *greatest), (least, greatest), "%p %p",
        (void *)least, (void *)greatest)
{
    struct sim_context *context;
    CUresult result = sim_current(&context);
    if (result)
        return result;
    if (least)
        *least = SIM_LOWEST_PRIORITY;
    if (greatest)
        *greatest = SIM_HIGHEST_PRIORITY;
    return CUDA_SUCCESS;
}

/* Returns at once; what is queued still runs. Default streams cannot be destroyed. */
static CUresult destroy(CUstream handle)
{
    struct sim_stream *stream;

    if (handle == NULL || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) {
        CUresult ready = sim_check_init();
        return ready ? ready : CUDA_ERROR_INVALID_HANDLE;
    }
    CUresult result = sim_stream_resolve(handle, false, &stream);
    if (result == CUDA_ERROR_INVALID_HANDLE || result == CUDA_ERROR_CONTEXT_IS_DESTROYED ||
        sim_check_init() != CUDA_SUCCESS)
        return result;
    lazy_give_slice(stream->context, LAZY_STREAM_BYTES);
    stream_close(stream);
    return result;
}

SIM_API(cuStreamDestroy, (CUstream stream), (stream), "%p", (void *)stream)
{
    return destroy(stream);
}

SIM_API(cuStreamDestroy_v2, (CUstream stream), (stream), "%p", (void *)stream)
{
    return destroy(stream);
}

/* ---- waiting ---- */

SIM_API_THREAD(cuStreamSynchronize, _ptsz, (CUstream handle), (handle), "%p", (void *)handle)
{
    struct sim_stream *stream;
    CUresult result = sim_stream_resolve(handle, per_thread, &stream);
    if (result == CUDA_SUCCESS)
        result = sim_stream_wait(stream);
    if (result == CUDA_SUCCESS)
        sim_memory_synchronized(stream->context);
    return result;
}

SIM_API_THREAD(cuStreamQuery, _ptsz, (CUstream handle), (handle), "%p", (void *)handle)
{
    struct sim_stream *stream;
    CUresult result = sim_stream_resolve(handle, per_thread, &stream);
    if (result)
        return result;
    engine_lock();
    result = capture_check_sync_locked(stream->context, stream);
    engine_unlock();
    if (result)
        return result;
    if (!sim_stream_is_idle(stream))
        return CUDA_ERROR_NOT_READY;
    return sim_sticky(stream->context);
}

SIM_API_THREAD(cuStreamWaitEvent, _ptsz,
               (CUstream handle, CUevent event_handle, unsigned int flags),
               (handle, event_handle, flags), "%p %p %u", (void *)handle, (void *)event_handle,
               flags)
{
    struct sim_stream *stream;
    struct sim_event *event;
    CUresult result = sim_stream_resolve(handle, per_thread, &stream);
    if (result)
        return result;
    if (flags & ~(unsigned)CU_EVENT_WAIT_EXTERNAL)
        return CUDA_ERROR_INVALID_VALUE;
    result = event_check(event_handle, &event);
    if (result)
        return result;
    return event_wait(stream, event, flags);
}

static CUresult synchronize(struct sim_context *context)
{
    engine_lock();
    CUresult result = capture_check_sync_locked(context, NULL);
    engine_unlock();
    if (result == CUDA_SUCCESS)
        result = sim_context_wait(context);
    if (result == CUDA_SUCCESS)
        sim_memory_synchronized(context);
    return result;
}

SIM_API(cuCtxSynchronize, (void), (), " ")
{
    struct sim_context *context;
    CUresult result = sim_current(&context);
    return result ? result : synchronize(context);
}

SIM_API(cuCtxSynchronize_v2, (CUcontext handle), (handle), "%p", (void *)handle)
{
    struct sim_context *context;
    CUresult result = sim_current(&context);
    if (handle && sim_check_init() == CUDA_SUCCESS) {
        result = sim_context_check(handle, &context);
        if (result == CUDA_SUCCESS)
            result = sim_sticky(context);
    }
    return result ? result : synchronize(context);
}

/* ---- what a stream is ---- */

SIM_API_THREAD(cuStreamGetFlags, _ptsz, (CUstream handle, unsigned int *flags), (handle, flags),
               "%p", (void *)handle)
{
    struct sim_stream *stream;
    CUresult result = sim_stream_resolve(handle, per_thread, &stream);
    if (result)
        return result;
    if (!flags)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = stream->flags;
    return CUDA_SUCCESS;
}

SIM_API_THREAD(cuStreamGetPriority, _ptsz, (CUstream handle, int *priority), (handle, priority),
               "%p", (void *)handle)
{
    struct sim_stream *stream;
    CUresult result = sim_stream_resolve(handle, per_thread, &stream);
    if (result)
        return result;
    if (!priority)
        return CUDA_ERROR_INVALID_VALUE;
    *priority = stream->priority;
    return CUDA_SUCCESS;
}

SIM_API_THREAD(cuStreamGetId, _ptsz, (CUstream handle, unsigned long long *id), (handle, id), "%p",
               (void *)handle)
{
    struct sim_stream *stream;
    CUresult result = sim_stream_resolve(handle, per_thread, &stream);
    if (result)
        return result;
    if (!id)
        return CUDA_ERROR_INVALID_VALUE;
    *id = stream->id;
    return CUDA_SUCCESS;
}

SIM_API_THREAD(cuStreamGetDevice, _ptsz, (CUstream handle, CUdevice *device), (handle, device),
               "%p", (void *)handle)
{
    struct sim_stream *stream;
    CUresult result = sim_stream_resolve(handle, per_thread, &stream);
    if (result)
        return result;
    if (!device)
        return CUDA_ERROR_INVALID_VALUE;
    *device = stream->context->device->ordinal;
    return CUDA_SUCCESS;
}

SIM_API_THREAD(cuStreamGetCtx, _ptsz, (CUstream handle, CUcontext *context), (handle, context),
               "%p", (void *)handle)
{
    struct sim_stream *stream;
    CUresult result = sim_stream_resolve(handle, per_thread, &stream);
    if (result)
        return result;
    if (!context)
        return CUDA_ERROR_INVALID_VALUE;
    *context = (CUcontext)stream->context;
    return CUDA_SUCCESS;
}

#define STREAM_ATTRIBUTES (sizeof((struct sim_stream *)0)->attributes / sizeof(CUstreamAttrValue))

SIM_API_THREAD(cuStreamGetAttribute, _ptsz,
               (CUstream handle, CUstreamAttrID attribute, CUstreamAttrValue *value),
               (handle, attribute, value), "%p %d", (void *)handle, (int)attribute)
{
    struct sim_stream *stream;
    CUresult result = sim_stream_resolve(handle, per_thread, &stream);
    if (result)
        return result;
    if (!value || (unsigned)attribute >= STREAM_ATTRIBUTES)
        return CUDA_ERROR_INVALID_VALUE;
    engine_lock();
    *value = stream->attributes[attribute];
    engine_unlock();
    return CUDA_SUCCESS;
}

SIM_API_THREAD(cuStreamSetAttribute, _ptsz,
               (CUstream handle, CUstreamAttrID attribute, const CUstreamAttrValue *value),
               (handle, attribute, value), "%p %d", (void *)handle, (int)attribute)
{
    struct sim_stream *stream;
    CUresult result = sim_stream_resolve(handle, per_thread, &stream);
    if (result)
        return result;
    if (!value || (unsigned)attribute >= STREAM_ATTRIBUTES)
        return CUDA_ERROR_INVALID_VALUE;
    engine_lock();
    stream->attributes[attribute] = *value;
    engine_unlock();
    return CUDA_SUCCESS;
}

SIM_API_THREAD(cuStreamCopyAttributes, _ptsz, (CUstream to_handle, CUstream from_handle),
               (to_handle, from_handle), "%p %p", (void *)to_handle, (void *)from_handle)
{
    struct sim_stream *to, *from;
    CUresult result = sim_stream_resolve(to_handle, per_thread, &to);
    if (result == CUDA_SUCCESS)
        result = sim_stream_resolve(from_handle, per_thread, &from);
    if (result)
        return result;
    engine_lock();
    memcpy(to->attributes, from->attributes, sizeof to->attributes);
    engine_unlock();
    return CUDA_SUCCESS;
}
