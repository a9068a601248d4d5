/* Green contexts: parts of a device's primary context, each with a part of the multiprocessors.
 *
 * A green context is a sim_context with streams of its own, the default one too. All but work
 * belongs to its primary context (sim_context_root): memory, modules, events, errors that stick.
 * Destroying one leaves its streams and what they still run, as documented; they stay in the
 * primary context's list, so that a wait for that context includes them, until they are idle and
 * closed or it ends. Resources are counts: nothing keeps work from other multiprocessors. */
#include "tests/simcuda/driver/engine.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_GREEN 12040
#define LEAST_SMS 8u      /* compute capability 9.0: "8 SMs and must be a multiple of 8" */
#define LEAST_FINE_SMS 2u /* with CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING */

CUresult check_version(int version)
{
    CUresult result = sim_check_init();

    return result == CUDA_SUCCESS && sim_settings()->driver_version < version
               ? CUDA_ERROR_NOT_SUPPORTED
               : result;
}

/* ---- the green contexts of a primary one ---- */

struct sim_context *green_next_locked(const struct sim_context *whole,
                                      const struct sim_context *part)
{
    return part == whole ? part->engine->greens : part->engine->next_green;
}

/* The handle is the address of the context's second magic number. */
static CUgreenCtx handle_of(struct sim_context *context)
{
    return context->green_of ? (CUgreenCtx)(void *)&context->green_magic : NULL;
}

static CUresult green_check(CUgreenCtx handle, struct sim_context **green)
{
    CUresult result = check_version(FIRST_GREEN);
    const uint32_t *magic = (const uint32_t *)(const void *)handle;

    if (result)
        return result;
    if (!handle || *magic != SIM_MAGIC_GREEN)
        return CUDA_ERROR_INVALID_CONTEXT;
    *green =
        (struct sim_context *)(void *)((char *)handle - offsetof(struct sim_context, green_magic));
    return atomic_load(&(*green)->destroyed) ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_SUCCESS;
}

static void drop_engine(struct sim_engine_context *engine)
{
    points_free(&engine->barrier);
    points_free(&engine->synchronous);
    free(engine);
}

/* Takes those out of the list that are destroyed and have no stream left. */
static void sweep_locked(struct sim_context *primary)
{
    struct sim_context **link = &primary->engine->greens;

    while (*link) {
        struct sim_context *green = *link;
        struct sim_engine_context *engine = green->engine;
        if (!atomic_load(&green->destroyed) || engine->streams) {
            link = &engine->next_green;
            continue;
        }
        *link = engine->next_green;
        green->engine = NULL;
        drop_engine(engine);
    }
}

void green_stop_all(struct sim_context *primary)
{
    engine_lock();
    for (struct sim_context *green = primary->engine->greens; green;
         green = green->engine->next_green)
        atomic_store(&green->destroyed, true);
    while (primary->engine->greens && !engine_is_down()) {
        struct sim_context *green = primary->engine->greens;
        engine_unlock();
        context_stop_streams(green);
        engine_lock();
        sweep_locked(primary);
    }
    engine_unlock();
}

/* ---- resources ---- */

/* The content of the padding of a CUdevResource. */
struct origin {
    int device;
    uint64_t split; /* the split it came from; 0: none */
};

static struct origin origin_of(const CUdevResource *resource)
{
    struct origin origin;

    memcpy(&origin, resource->_internal_padding, sizeof origin);
    return origin;
}

static void fill_resource(CUdevResource *resource, struct origin origin, unsigned sms)
{
    memset(resource, 0, sizeof *resource);
    memcpy(resource->_internal_padding, &origin, sizeof origin);
    resource->type = sms ? CU_DEV_RESOURCE_TYPE_SM : CU_DEV_RESOURCE_TYPE_INVALID;
    resource->sm.smCount = sms;
    resource->sm.minSmPartitionSize = sms ? LEAST_SMS : 0;
    resource->sm.smCoscheduledAlignment = sms ? LEAST_SMS : 0;
}

static CUresult check_request(const CUdevResource *resource, CUdevResourceType type)
{
    if (!resource)
        return CUDA_ERROR_INVALID_VALUE;
    return type == CU_DEV_RESOURCE_TYPE_SM ? CUDA_SUCCESS : CUDA_ERROR_INVALID_RESOURCE_TYPE;
}

static unsigned all_sms(const struct sim_device *device)
{
    return (unsigned)sim_device_attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
}

static void give_context(const struct sim_context *context, CUdevResource *resource)
{
    const struct origin origin = {.device = context->device->ordinal};

    fill_resource(resource, origin,
                  context->green_of ? context->sm_count : all_sms(context->device));
}

SIM_API(cuDeviceGetDevResource, (CUdevice device, CUdevResource *resource, CUdevResourceType type),
        (device, resource, type), "%d %d", device, (int)type)
{
    CUresult result = check_version(FIRST_GREEN);

    if (result == CUDA_SUCCESS && !sim_device(device))
        result = CUDA_ERROR_INVALID_DEVICE;
    if (result == CUDA_SUCCESS)
        result = check_request(resource, type);
    if (result == CUDA_SUCCESS)
        fill_resource(resource, (struct origin){.device = device}, all_sms(sim_device(device)));
    return result;
}

SIM_API(cuCtxGetDevResource, (CUcontext handle, CUdevResource *resource, CUdevResourceType type),
        (handle, resource, type), "%p %d", (void *)handle, (int)type)
{
    struct sim_context *context;
    CUresult result = check_version(FIRST_GREEN);

    if (result == CUDA_SUCCESS)
        result = sim_context_check(handle, &context);
    if (result == CUDA_SUCCESS)
        result = check_request(resource, type);
    if (result == CUDA_SUCCESS)
        give_context(context, resource);
    return result;
}

SIM_API(cuGreenCtxGetDevResource,
        (CUgreenCtx handle, CUdevResource *resource, CUdevResourceType type),
        (handle, resource, type), "%p %d", (void *)handle, (int)type)
{
    struct sim_context *green;
    CUresult result = green_check(handle, &green);

    if (result == CUDA_SUCCESS)
        result = check_request(resource, type);
    if (result == CUDA_SUCCESS)
        give_context(green, resource);
    return result;
}

/* Groups of one size, a multiple of the granule; what is left goes to `remaining`. */
SIM_API(cuDevSmResourceSplitByCount,
        (CUdevResource * groups, unsigned *count, const CUdevResource *input,
         CUdevResource *remaining, unsigned flags, unsigned least),
        (groups, count, input, remaining, flags, least), "%u %u", flags, least)
{
    static atomic_uint_fast64_t last_split;
    const unsigned known = CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING |
                           CU_DEV_SM_RESOURCE_SPLIT_MAX_POTENTIAL_CLUSTER_SIZE;
    CUresult result = check_version(FIRST_GREEN);

    if (result)
        return result;
    if (!count || !input || (flags & ~known))
        return CUDA_ERROR_INVALID_VALUE;
    if (input->type != CU_DEV_RESOURCE_TYPE_SM)
        return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    if (least > input->sm.smCount)
        return CUDA_ERROR_INVALID_VALUE;
    struct origin origin = origin_of(input);
    if (origin.split) /* "the output results cannot be split again" */
        return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    unsigned granule =
        flags & CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING ? LEAST_FINE_SMS : LEAST_SMS;
    unsigned size = least ? (least + granule - 1) / granule * granule : granule;
    unsigned most = input->sm.smCount / size;
    if (!groups || *count > most)
        *count = most;
    origin.split = atomic_fetch_add(&last_split, 1) + 1;
    for (unsigned i = 0; groups && i < *count; i++)
        fill_resource(&groups[i], origin, size);
    if (remaining)
        fill_resource(remaining, origin, input->sm.smCount - *count * size);
    return CUDA_SUCCESS;
}

/* There is no call that would end a descriptor. */
struct description {
    struct description *next;
    int device;
    unsigned sm_count;
};
static struct description *descriptions; /* the engine's lock */

static CUresult sum_resources(const CUdevResource *resources, unsigned count,
                              struct description *sum)
{
    struct origin first = origin_of(&resources[0]);

    *sum = (struct description){.device = first.device};
    for (unsigned i = 0; i < count; i++) {
        struct origin origin = origin_of(&resources[i]);
        if (resources[i].type != CU_DEV_RESOURCE_TYPE_SM)
            return CUDA_ERROR_INVALID_RESOURCE_TYPE;
        /* "must be outputs from the same split API instance" */
        if (origin.device != first.device || (count > 1 && !origin.split) ||
            origin.split != first.split)
            return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
        sum->sm_count += resources[i].sm.smCount;
    }
    return CUDA_SUCCESS;
}

SIM_API(cuDevResourceGenerateDesc,
        (CUdevResourceDesc * handle, CUdevResource *resources, unsigned count),
        (handle, resources, count), "%u", count)
{
    struct description sum, *description;
    CUresult result = check_version(FIRST_GREEN);

    if (result == CUDA_SUCCESS && (!handle || !resources || count == 0))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        result = sum_resources(resources, count, &sum);
    if (result)
        return result;
    description = malloc(sizeof *description);
    if (!description)
        return CUDA_ERROR_OUT_OF_MEMORY;
    engine_lock();
    sum.next = descriptions;
    *description = sum;
    descriptions = description;
    engine_unlock();
    *handle = (CUdevResourceDesc)(void *)description;
    return CUDA_SUCCESS;
}

static const struct description *find_description(CUdevResourceDesc handle)
{
    engine_lock();
    const struct description *description = descriptions;
    while (description && (const void *)description != (const void *)handle)
        description = description->next;
    engine_unlock();
    return description;
}

/* ---- life ---- */

static CUresult start(struct sim_context *primary, unsigned sm_count, struct sim_context **green)
{
    struct sim_context *made = context_new(primary->device, primary->flags, false, primary);
    if (!made)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = context_start(made);
    if (result)
        return result;
    engine_lock();
    sweep_locked(primary);
    made->sm_count = sm_count;
    made->green_magic = SIM_MAGIC_GREEN;
    made->engine->next_green = primary->engine->greens;
    primary->engine->greens = made;
    engine_unlock();
    *green = made;
    return CUDA_SUCCESS;
}

SIM_API(cuGreenCtxCreate,
        (CUgreenCtx * handle, CUdevResourceDesc descriptor, CUdevice device, unsigned flags),
        (handle, descriptor, device, flags), "%d %u", device, flags)
{
    struct sim_context *primary, *green;
    CUresult result = check_version(FIRST_GREEN);

    if (result == CUDA_SUCCESS && !sim_device(device))
        result = CUDA_ERROR_INVALID_DEVICE;
    if (result)
        return result;
    const struct description *description = find_description(descriptor);
    if (!handle || !description || description->device != device ||
        flags != CU_GREEN_CTX_DEFAULT_STREAM) /* "is required" */
        return CUDA_ERROR_INVALID_VALUE;
    result = primary_retain_green(device, &primary);
    if (result)
        return result;
    result = start(primary, description->sm_count, &green);
    if (result) {
        primary_release_green(device);
        return result;
    }
    *handle = handle_of(green);
    return CUDA_SUCCESS;
}

/* "The API does not destroy streams … any subsequent API calls involving these streams will return
 * CUDA_ERROR_CONTEXT_IS_DESTROYED." The default stream goes once it is idle. */
SIM_API(cuGreenCtxDestroy, (CUgreenCtx handle), (handle), "%p", (void *)handle)
{
    struct sim_context *green;
    bool alive = false;
    CUresult result = green_check(handle, &green);

    if (result)
        return result;
    if (!atomic_compare_exchange_strong(&green->destroyed, &alive, true))
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    engine_lock();
    capture_invalidate_context_locked(green);
    struct sim_stream *legacy = green->engine->legacy;
    green->engine->legacy = NULL;
    engine_unlock();
    stream_close(legacy);
    primary_release_green(green->device->ordinal);
    return CUDA_SUCCESS;
}

SIM_API(cuCtxFromGreenCtx, (CUcontext * context, CUgreenCtx handle), (context, handle), "%p",
        (void *)handle)
{
    struct sim_context *green;
    CUresult result = green_check(handle, &green);

    if (result == CUDA_SUCCESS && !context)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        *context = (CUcontext)green;
    return result;
}

/* NULL: the current context, if it is a green one. */
SIM_API(cuGreenCtxGetId, (CUgreenCtx handle, unsigned long long *id), (handle, id), "%p",
        (void *)handle)
{
    struct sim_context *green;
    CUresult result = check_version(12090);

    if (result == CUDA_SUCCESS)
        result = handle ? green_check(handle, &green) : sim_current(&green);
    if (result == CUDA_SUCCESS && !green->green_of)
        result = CUDA_ERROR_INVALID_CONTEXT;
    if (result == CUDA_SUCCESS && !id)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        *id = atomic_load(&green->id);
    return result;
}

/* ---- work ---- */

SIM_API(cuGreenCtxRecordEvent, (CUgreenCtx handle, CUevent event), (handle, event), "%p %p",
        (void *)handle, (void *)event)
{
    struct sim_context *green;
    CUresult result = green_check(handle, &green);
    return result ? result : event_record_context(green, event);
}

SIM_API(cuGreenCtxWaitEvent, (CUgreenCtx handle, CUevent event), (handle, event), "%p %p",
        (void *)handle, (void *)event)
{
    struct sim_context *green;
    CUresult result = green_check(handle, &green);
    return result ? result : event_wait_context(green, event);
}

SIM_API(cuGreenCtxStreamCreate,
        (CUstream * stream, CUgreenCtx handle, unsigned flags, int priority),
        (stream, handle, flags, priority), "%p %u %d", (void *)handle, flags, priority)
{
    struct sim_context *green;
    CUresult result = check_version(12050);

    if (result == CUDA_SUCCESS)
        result = green_check(handle, &green);
    if (result == CUDA_SUCCESS)
        result = sim_sticky(green);
    if (result)
        return result;
    if (flags != CU_STREAM_NON_BLOCKING) /* "This must be specified." */
        return CUDA_ERROR_INVALID_VALUE;
    return stream_create(green, stream, flags, priority);
}

SIM_API(cuStreamGetGreenCtx, (CUstream handle, CUgreenCtx *green), (handle, green), "%p",
        (void *)handle)
{
    struct sim_stream *stream;
    CUresult result = check_version(FIRST_GREEN);

    if (result == CUDA_SUCCESS)
        result = sim_stream_resolve(handle, false, &stream);
    if (result == CUDA_SUCCESS && !green)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        *green = handle_of(stream->context);
    return result;
}

/* The regular context and the green one, or NULL. */
SIM_API_THREAD(cuStreamGetCtx_v2, _ptsz, (CUstream handle, CUcontext *context, CUgreenCtx *green),
               (handle, context, green), "%p", (void *)handle)
{
    struct sim_stream *stream;
    CUresult result = sim_stream_resolve(handle, per_thread, &stream);
    if (result)
        return result;
    if (!context || !green)
        return CUDA_ERROR_INVALID_VALUE;
    *context = (CUcontext)sim_context_root(stream->context);
    *green = handle_of(stream->context);
    return CUDA_SUCCESS;
}
