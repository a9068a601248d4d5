/* Contexts: primary ones, created ones, each thread's stack of current ones.
 *
 * A context's memory is never freed: a handle whose context is gone reads `destroyed`, unless
 * SIMCUDA_REUSE_CONTEXTS lets a new context have it. The primary context of a device is one object
 * that starts and stops; its retain count and its state are apart, as a reset does not release.
 * Green contexts are parts of one (engine_green.c). */
#include "tests/simcuda/driver/engine_lazy.h"
#include "tests/simcuda/driver/engine_thread.h"

#include <stdlib.h>
#include <unistd.h>

#define SIM_STACK_LIMIT 1024
#define SIM_FLAGS_MASK (CU_CTX_FLAGS_MASK)

struct primary {
    struct sim_context *context; /* NULL until first retained */
    unsigned retain_count;
    unsigned green_count; /* green contexts, each of which retains it too */
    bool is_active;
    unsigned flags;
};

static struct primary primaries[SIM_MAX_DEVICES];
static struct engine_pool context_pool = {.object_bytes = sizeof(struct sim_context)};
static atomic_uint_fast64_t next_context_id = 1;
static struct sim_context **contexts; /* every one ever made, so that none is lost */
static size_t context_count, context_capacity;

/* ---- what a context is ---- */

bool context_is_live(const struct sim_context *context)
{
    return context->magic == SIM_MAGIC_CONTEXT && !atomic_load(&context->destroyed);
}

CUresult sim_context_check(CUcontext handle, struct sim_context **context)
{
    struct sim_context *candidate = (struct sim_context *)handle;
    if (!candidate || candidate->magic != SIM_MAGIC_CONTEXT)
        return CUDA_ERROR_INVALID_CONTEXT;
    *context = candidate;
    return atomic_load(&candidate->destroyed) ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_SUCCESS;
}

void sim_poison(struct sim_context *context, CUresult error)
{
    int none = CUDA_SUCCESS;
    atomic_compare_exchange_strong(&sim_context_root(context)->sticky, &none, (int)error);
}

static void set_default_limits(struct sim_engine_context *engine)
{
    engine->limits[CU_LIMIT_STACK_SIZE] = 1024;
    engine->limits[CU_LIMIT_PRINTF_FIFO_SIZE] = 7 << 20;
    engine->limits[CU_LIMIT_MALLOC_HEAP_SIZE] = 8 << 20;
    engine->limits[CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH] = 2;
    engine->limits[CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = 2048;
    engine->limits[CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 64;
}

/* A green context takes none of its own. */
static uint64_t bytes_of(const struct sim_context *context)
{
    return context->green_of ? 0 : SIM_CONTEXT_BYTES;
}

CUresult context_start(struct sim_context *context)
{
    CUresult result = sim_capacity_take(context->device, bytes_of(context));
    if (result)
        return result;
    struct sim_engine_context *engine = calloc(1, sizeof *engine);
    if (!engine)
        goto fail_engine;
    engine->usage_count = 1;
    engine->api_version = 3020;
    set_default_limits(engine);
    engine_lock();
    context->engine = engine;
    engine->legacy = stream_create_locked(context, CU_STREAM_DEFAULT, 0);
    if (engine->legacy)
        engine->legacy->is_legacy = true;
    engine_unlock();
    if (!engine->legacy)
        goto fail_legacy;
    atomic_store(&context->sticky, 0);
    atomic_store(&context->peers, 0);
    atomic_store(&context->capturing_count, 0);
    atomic_store(&context->id, atomic_fetch_add(&next_context_id, 1));
    atomic_store(&context->destroyed, false);
    return CUDA_SUCCESS;

fail_legacy:
    context->engine = NULL;
    free(engine);
fail_engine:
    sim_capacity_return(context->device, bytes_of(context));
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* The caller has set `destroyed`, and so is alone. */
static void stop_context(struct sim_context *context)
{
    struct sim_engine_context *engine = context->engine;
    uint64_t bytes = SIM_CONTEXT_BYTES;

    context_stop_streams(context);
    green_stop_all(context);
    module_drop_context(context);
    sim_memory_drop_context(context);
    engine_lock();
    event_drop_context_locked(context);
    context->engine = NULL;
    bytes += engine->lazy.bytes;
    engine_unlock();
    points_free(&engine->barrier);
    points_free(&engine->synchronous);
    free(engine);
    sim_capacity_return(context->device, bytes);
    engine_lock();
    context->is_stopped = true;
    engine_unlock();
}

/* The one that was destroyed last; NULL: none, or they are not reused. */
static struct sim_context *find_stopped_locked(void)
{
    struct sim_context *found = NULL;
    for (size_t i = 0; i < context_count && sim_settings()->reuses_contexts; i++)
        if (!contexts[i]->primary && !contexts[i]->green_of && contexts[i]->is_stopped)
            found = contexts[i];
    return found;
}

struct sim_context *context_new(struct sim_device *device, unsigned flags, bool primary,
                                struct sim_context *green_of)
{
    struct sim_context *context = NULL;

    engine_lock();
    if (!primary && !green_of)
        context = find_stopped_locked();
    if (!context && engine_grow((void **)&contexts, &context_capacity, context_count,
                                sizeof(struct sim_context *))) {
        context = engine_pool_take(&context_pool);
        if (context)
            contexts[context_count++] = context;
    }
    if (context) {
        context->is_stopped = false;
        context->device = device;
        context->flags = flags;
        context->primary = primary;
        context->green_of = green_of;
        atomic_store(&context->destroyed, true); /* until it has started */
        if (context->magic != SIM_MAGIC_CONTEXT) /* a caller with a stale handle reads it */
            context->magic = SIM_MAGIC_CONTEXT;
    }
    engine_unlock();
    return context;
}

/* ---- the thread's stack ---- */

struct sim_context *context_of_thread(void)
{
    const struct engine_thread *thread = engine_thread();
    return thread && thread->depth ? thread->stack[thread->depth - 1] : NULL;
}

CUresult sim_current(struct sim_context **context)
{
    CUresult result = sim_check_init();
    if (result)
        return result;
    struct sim_context *current = context_of_thread();
    if (!current)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!context_is_live(current))
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    *context = current;
    return sim_sticky(current);
}

static CUresult push(struct sim_context *context)
{
    struct engine_thread *thread = engine_thread();
    if (!thread || thread->depth == SIM_STACK_LIMIT ||
        !engine_grow((void **)&thread->stack, &thread->capacity, thread->depth,
                     sizeof(struct sim_context *)))
        return CUDA_ERROR_OUT_OF_MEMORY;
    thread->stack[thread->depth++] = context;
    return CUDA_SUCCESS;
}

static CUresult pop(CUcontext *handle)
{
    struct engine_thread *thread = engine_thread();
    if (!thread || thread->depth == 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    thread->depth--;
    if (handle)
        *handle = (CUcontext)thread->stack[thread->depth];
    return CUDA_SUCCESS;
}

void sim_wait_for_all(void)
{
    struct sim_points points = {0};

    engine_lock();
    for (size_t i = 0; i < context_count; i++)
        if (contexts[i]->engine)
            context_points_locked(contexts[i], &points);
    points_wait_locked(&points);
    engine_unlock();
    points_free(&points);
}

void sim_wait_implicitly(void)
{
    uint64_t end_ns = engine_now_ns() + sim_settings()->wait_us * 1000;
    struct sim_points points = {0};

    if (sim_settings()->wait_us == 0 || engine_in_callback())
        return;
    engine_lock();
    for (size_t i = 0; i < context_count; i++)
        if (contexts[i]->engine)
            context_points_locked(contexts[i], &points);
    while (!points_passed_locked(&points) && !engine_is_down() && engine_now_ns() < end_ns) {
        engine_unlock();
        usleep(50);
        engine_lock();
    }
    engine_unlock();
    points_free(&points);
}

/* ---- created contexts ---- */

static CUresult create(CUcontext *handle, unsigned flags, CUdevice ordinal, unsigned api_version)
{
    CUresult result = sim_check_init();
    if (result)
        return result;
    struct sim_device *device = sim_device(ordinal);
    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    if (!handle || (flags & ~(unsigned)SIM_FLAGS_MASK))
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_context *context = context_new(device, flags, false, NULL);
    if (!context)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = context_start(context);
    if (result)
        return result;
    context->engine->api_version = api_version;
    result = push(context);
    if (result == CUDA_SUCCESS)
        *handle = (CUcontext)context;
    return result;
}

SIM_API(cuCtxCreate, (CUcontext * handle, unsigned int flags, CUdevice device),
        (handle, flags, device), "%u %d", flags, device)
{
    return create(handle, flags, device, 3010);
}

SIM_API(cuCtxCreate_v2, (CUcontext * handle, unsigned int flags, CUdevice device),
        (handle, flags, device), "%u %d", flags, device)
{
    return create(handle, flags, device, 3020);
}

/* Partitioned multiprocessors are not simulated. */
SIM_API(cuCtxCreate_v3,
        (CUcontext * handle, CUexecAffinityParam *affinities, int count, unsigned int flags,
         CUdevice device),
        (handle, affinities, count, flags, device), "%p %d %u %d", (void *)affinities, count, flags,
        device)
{
    if (count < 0 || (count > 0 && !affinities))
        return CUDA_ERROR_INVALID_VALUE;
    if (count > 0)
        return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
    return create(handle, flags, device, 3020);
}

SIM_API(cuCtxCreate_v4,
        (CUcontext * handle, CUctxCreateParams *parameters, unsigned int flags, CUdevice device),
        (handle, parameters, flags, device), "%p %u %d", (void *)parameters, flags, device)
{
    if (parameters && parameters->numExecAffinityParams > 0)
        return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
    if (parameters && parameters->cigParams)
        return CUDA_ERROR_NOT_SUPPORTED;
    return create(handle, flags, device, 3020);
}

/* Contexts for OpenGL and VDPAU are as any other: there is nothing to draw on. */

SIM_API(cuGLCtxCreate, (CUcontext * handle, unsigned int flags, CUdevice device),
        (handle, flags, device), "%u %d", flags, device)
{
    return create(handle, flags, device, 3010);
}

SIM_API(cuGLCtxCreate_v2, (CUcontext * handle, unsigned int flags, CUdevice device),
        (handle, flags, device), "%u %d", flags, device)
{
    return create(handle, flags, device, 3020);
}

/* A VdpDevice is a number, the functions of VDPAU are found through a function. */
SIM_API(cuVDPAUCtxCreate,
        (CUcontext * handle, unsigned int flags, CUdevice device, uint32_t vdpau, void *functions),
        (handle, flags, device, vdpau, functions), "%u %d", flags, device)
{
    return create(handle, flags, device, 3010);
}

SIM_API(cuVDPAUCtxCreate_v2,
        (CUcontext * handle, unsigned int flags, CUdevice device, uint32_t vdpau, void *functions),
        (handle, flags, device, vdpau, functions), "%u %d", flags, device)
{
    return create(handle, flags, device, 3020);
}

/* A context that is current to the calling thread is popped; other threads keep it and read that it
 * is gone. */
static CUresult destroy(CUcontext handle)
{
    CUresult result = sim_check_init();
    struct sim_context *context;
    if (result)
        return result;
    result = sim_context_check(handle, &context);
    if (result)
        return result;
    bool alive = false;
    if (context->primary || context->green_of)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!atomic_compare_exchange_strong(&context->destroyed, &alive, true))
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (context_of_thread() == context)
        pop(NULL);
    stop_context(context);
    return CUDA_SUCCESS;
}

SIM_API(cuCtxDestroy, (CUcontext context), (context), "%p", (void *)context)
{
    return destroy(context);
}

SIM_API(cuCtxDestroy_v2, (CUcontext context), (context), "%p", (void *)context)
{
    return destroy(context);
}

SIM_API(cuCtxAttach, (CUcontext * handle, unsigned int flags), (handle, flags), "%u", flags)
{
    struct sim_context *context;
    CUresult result = sim_current(&context);
    if (result)
        return result;
    if (!handle || flags)
        return CUDA_ERROR_INVALID_VALUE;
    engine_lock();
    context->engine->usage_count++;
    engine_unlock();
    *handle = (CUcontext)context;
    return CUDA_SUCCESS;
}

SIM_API(cuCtxDetach, (CUcontext handle), (handle), "%p", (void *)handle)
{
    struct sim_context *context;
    CUresult result = sim_check_init();
    if (result)
        return result;
    result = sim_context_check(handle, &context);
    if (result)
        return result;
    if (context_of_thread() != context)
        return CUDA_ERROR_INVALID_CONTEXT;
    engine_lock();
    int left = --context->engine->usage_count;
    engine_unlock();
    return left == 0 ? destroy(handle) : CUDA_SUCCESS;
}

/* ---- current contexts ---- */

static CUresult push_current(CUcontext handle)
{
    CUresult result = sim_check_init();
    struct sim_context *context;
    if (result)
        return result;
    result = sim_context_check(handle, &context);
    return result ? result : push(context);
}

SIM_API(cuCtxPushCurrent, (CUcontext context), (context), "%p", (void *)context)
{
    return push_current(context);
}

SIM_API(cuCtxPushCurrent_v2, (CUcontext context), (context), "%p", (void *)context)
{
    return push_current(context);
}

static CUresult pop_current(CUcontext *handle)
{
    CUresult result = sim_check_init();
    return result ? result : pop(handle);
}

SIM_API(cuCtxPopCurrent, (CUcontext * context), (context), "%p", (void *)context)
{
    return pop_current(context);
}

SIM_API(cuCtxPopCurrent_v2, (CUcontext * context), (context), "%p", (void *)context)
{
    return pop_current(context);
}

/* NULL pops; else the top of the stack is replaced. */
SIM_API(cuCtxSetCurrent, (CUcontext handle), (handle), "%p", (void *)handle)
{
    CUresult result = sim_check_init();
    struct sim_context *context;
    if (result)
        return result;
    struct engine_thread *thread = engine_thread();
    if (!thread)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (!handle) {
        thread->depth -= thread->depth > 0;
        return CUDA_SUCCESS;
    }
    result = sim_context_check(handle, &context);
    if (result)
        return result;
    if (thread->depth == 0)
        return push(context);
    thread->stack[thread->depth - 1] = context;
    return CUDA_SUCCESS;
}

SIM_API(cuCtxGetCurrent, (CUcontext * handle), (handle), "%p", (void *)handle)
{
    CUresult result = sim_check_init();
    if (result)
        return result;
    if (!handle)
        return CUDA_ERROR_INVALID_VALUE;
    *handle = (CUcontext)context_of_thread();
    return CUDA_SUCCESS;
}

/* ---- primary contexts ---- */

static CUresult find_primary(CUdevice ordinal, struct primary **primary)
{
    CUresult result = sim_check_init();
    if (result)
        return result;
    if (!sim_device(ordinal))
        return CUDA_ERROR_INVALID_DEVICE;
    *primary = &primaries[ordinal];
    return CUDA_SUCCESS;
}

/* Starting and stopping a primary context call the memory part, so the engine's lock cannot guard
 * them. */
static pthread_mutex_t primary_lock = PTHREAD_MUTEX_INITIALIZER;

static CUresult start_primary_locked(struct primary *primary, struct sim_device *device)
{
    if (!primary->context)
        primary->context = context_new(device, primary->flags, true, NULL);
    if (!primary->context)
        return CUDA_ERROR_OUT_OF_MEMORY;
    primary->context->flags = primary->flags;
    CUresult result = context_start(primary->context);
    primary->is_active = result == CUDA_SUCCESS;
    return result;
}

static void stop_primary_locked(struct primary *primary)
{
    if (!primary->is_active)
        return;
    primary->is_active = false;
    primary->green_count = 0; /* they end with it */
    atomic_store(&primary->context->destroyed, true);
    stop_context(primary->context);
}

CUresult primary_retain_green(CUdevice device, struct sim_context **context)
{
    struct primary *primary;
    CUresult result = find_primary(device, &primary);
    if (result)
        return result;
    pthread_mutex_lock(&primary_lock);
    if (!primary->is_active)
        result = start_primary_locked(primary, sim_device(device));
    if (result == CUDA_SUCCESS) {
        primary->green_count++;
        *context = primary->context;
    }
    pthread_mutex_unlock(&primary_lock);
    return result;
}

void primary_release_green(CUdevice device)
{
    struct primary *primary = &primaries[device];
    pthread_mutex_lock(&primary_lock);
    if (primary->green_count > 0 && --primary->green_count == 0 && primary->retain_count == 0)
        stop_primary_locked(primary);
    pthread_mutex_unlock(&primary_lock);
}

SIM_API(cuDevicePrimaryCtxRetain, (CUcontext * handle, CUdevice device), (handle, device), "%d",
        device)
{
    struct primary *primary;
    CUresult result = find_primary(device, &primary);
    if (result)
        return result;
    if (!handle)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&primary_lock);
    if (!primary->is_active)
        result = start_primary_locked(primary, sim_device(device));
    if (result == CUDA_SUCCESS) {
        primary->retain_count++;
        *handle = (CUcontext)primary->context;
    }
    pthread_mutex_unlock(&primary_lock);
    return result;
}

static CUresult release_primary(CUdevice device)
{
    struct primary *primary;
    CUresult result = find_primary(device, &primary);
    if (result)
        return result;
    pthread_mutex_lock(&primary_lock);
    if (primary->retain_count == 0)
        result = CUDA_ERROR_INVALID_CONTEXT;
    else if (--primary->retain_count == 0 && primary->green_count == 0)
        stop_primary_locked(primary);
    pthread_mutex_unlock(&primary_lock);
    return result;
}

SIM_API(cuDevicePrimaryCtxRelease, (CUdevice device), (device), "%d", device)
{
    return release_primary(device);
}

SIM_API(cuDevicePrimaryCtxRelease_v2, (CUdevice device), (device), "%d", device)
{
    return release_primary(device);
}

static CUresult reset_primary(CUdevice device)
{
    struct primary *primary;
    CUresult result = find_primary(device, &primary);
    if (result)
        return result;
    pthread_mutex_lock(&primary_lock);
    stop_primary_locked(primary);
    pthread_mutex_unlock(&primary_lock);
    return CUDA_SUCCESS;
}

SIM_API(cuDevicePrimaryCtxReset, (CUdevice device), (device), "%d", device)
{
    return reset_primary(device);
}

SIM_API(cuDevicePrimaryCtxReset_v2, (CUdevice device), (device), "%d", device)
{
    return reset_primary(device);
}

SIM_API(cuDevicePrimaryCtxGetState, (CUdevice device, unsigned int *flags, int *active),
        (device, flags, active), "%d", device)
{
    struct primary *primary;
    CUresult result = find_primary(device, &primary);
    if (result)
        return result;
    if (!flags || !active)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&primary_lock);
    *flags = primary->flags;
    *active = primary->is_active;
    pthread_mutex_unlock(&primary_lock);
    return CUDA_SUCCESS;
}

/* The first version refuses while the context is active; the second sets the flags of the live
 * context too. */
static CUresult set_primary_flags(CUdevice device, unsigned flags, bool even_if_active)
{
    struct primary *primary;
    CUresult result = find_primary(device, &primary);
    if (result)
        return result;
    if (flags & ~(unsigned)SIM_FLAGS_MASK)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&primary_lock);
    if (primary->is_active && !even_if_active) {
        result = CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE;
    } else {
        primary->flags = flags;
        engine_lock();
        if (primary->is_active)
            primary->context->flags = flags;
        engine_unlock();
    }
    pthread_mutex_unlock(&primary_lock);
    return result;
}

SIM_API(cuDevicePrimaryCtxSetFlags, (CUdevice device, unsigned int flags), (device, flags), "%d %u",
        device, flags)
{
    return set_primary_flags(device, flags, false);
}

SIM_API(cuDevicePrimaryCtxSetFlags_v2, (CUdevice device, unsigned int flags), (device, flags),
        "%d %u", device, flags)
{
    return set_primary_flags(device, flags, true);
}
