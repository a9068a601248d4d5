/* Device memory that a driver takes when it first needs it (SIMCUDA_LAZY).
 *
 * The parts, all of the primary or created context: a module at the first launch of one of its
 * kernels; the FIFO of printf and the heap of malloc with the first module that names them; local
 * memory for as many bytes a thread as cuCtxSetLimit or a launched kernel asked for; the driver's
 * own kernels with the first copy and the first fill; slices for streams, events and instantiated
 * graphs, out of granules that are kept. What a part holds goes back with its context, a module's
 * with the module.
 *
 * Sources: CUDA Programming Guide, "Lazy Loading"; cuCtxSetLimit. The sizes of slices and of the
 * driver's own kernels are believed, not measured. */
#define _GNU_SOURCE
#include "tests/simcuda/driver/engine_lazy.h"

#include <string.h>

#define GRANULE (UINT64_C(2) << 20)

/* Guards engine->lazy and is_loaded of modules. Held over sim_capacity_take, taken under no lock of
 * the engine. */
static pthread_mutex_t lazy_lock = PTHREAD_MUTEX_INITIALIZER;

static uint64_t granules(uint64_t bytes)
{
    return (bytes + GRANULE - 1) / GRANULE * GRANULE;
}

static CUresult take_locked(struct sim_context *context, uint64_t bytes)
{
    CUresult result = sim_capacity_take(context->device, bytes);

    if (result == CUDA_SUCCESS)
        context->engine->lazy.bytes += bytes;
    return result;
}

static void give_locked(struct sim_context *context, uint64_t bytes)
{
    sim_capacity_return(context->device, bytes);
    context->engine->lazy.bytes -= bytes;
}

/* ---- parts that a context takes once ---- */

static CUresult take_once_locked(struct sim_context *context, enum lazy_part part, uint64_t bytes)
{
    unsigned bit = 1u << part;
    CUresult result = CUDA_SUCCESS;

    if (!(context->engine->lazy.parts & bit))
        result = take_locked(context, granules(bytes));
    if (result == CUDA_SUCCESS)
        context->engine->lazy.parts |= bit;
    return result;
}

CUresult sim_lazy_kernels(struct sim_context *context, bool is_fill)
{
    CUresult result;

    if (!sim_settings()->is_lazy)
        return CUDA_SUCCESS;
    pthread_mutex_lock(&lazy_lock);
    result = take_once_locked(sim_context_root(context), is_fill ? LAZY_FILLS : LAZY_COPIES, 1);
    pthread_mutex_unlock(&lazy_lock);
    return result;
}

/* ---- local memory ---- */

/* All threads that the device can have resident have their stack at once. */
static uint64_t local_bytes(const struct sim_context *context, uint64_t stack_bytes)
{
    int multiprocessors =
        sim_device_attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, context->device);
    int threads =
        sim_device_attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, context->device);

    if (stack_bytes <= LAZY_STACK_BYTES) /* part of what every context takes */
        return 0;
    return granules((stack_bytes - LAZY_STACK_BYTES) * (uint64_t)multiprocessors *
                    (uint64_t)threads);
}

static CUresult set_stack_locked(struct sim_context *context, uint64_t stack_bytes)
{
    struct engine_lazy *lazy = &context->engine->lazy;
    uint64_t wanted = local_bytes(context, stack_bytes);
    CUresult result = CUDA_SUCCESS;

    if (wanted > lazy->local_bytes)
        result = take_locked(context, wanted - lazy->local_bytes);
    else
        give_locked(context, lazy->local_bytes - wanted);
    if (result == CUDA_SUCCESS)
        lazy->local_bytes = wanted;
    return result;
}

CUresult lazy_set_limit(struct sim_context *context, CUlimit limit, size_t value)
{
    struct sim_context *root = sim_context_root(context);
    CUresult result = CUDA_SUCCESS;

    if (limit ==
        CU_LIMIT_STACK_SIZE) /* "will block until all preceding requested tasks are complete" */
        sim_wait_implicitly();
    if (!sim_settings()->is_lazy)
        return CUDA_SUCCESS;
    pthread_mutex_lock(&lazy_lock);
    if (limit == CU_LIMIT_STACK_SIZE)
        result = set_stack_locked(root, value);
    /* "must be performed prior to launching any kernel that uses" them */
    else if ((limit == CU_LIMIT_PRINTF_FIFO_SIZE && (root->engine->lazy.parts & 1u << LAZY_FIFO)) ||
             (limit == CU_LIMIT_MALLOC_HEAP_SIZE && (root->engine->lazy.parts & 1u << LAZY_HEAP)))
        result = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_unlock(&lazy_lock);
    return result;
}

/* ---- modules ---- */

uint64_t lazy_module_bytes(const struct sim_image *image)
{
    return granules(image->bytes + sim_settings()->lazy_bytes);
}

static CUresult load_locked(struct sim_module *module)
{
    struct sim_context *context = module->context;
    const size_t *limits = context->engine->limits;
    uint64_t bytes = lazy_module_bytes(&module->image);
    CUresult result = CUDA_SUCCESS;

    if (image_names(&module->image, "vprintf"))
        result = take_once_locked(context, LAZY_FIFO, limits[CU_LIMIT_PRINTF_FIFO_SIZE]);
    if (result == CUDA_SUCCESS && image_names(&module->image, "malloc"))
        result = take_once_locked(context, LAZY_HEAP, limits[CU_LIMIT_MALLOC_HEAP_SIZE]);
    if (result == CUDA_SUCCESS)
        result = sim_capacity_take(context->device, bytes);
    if (result)
        return result;
    module->device_bytes = bytes;
    module->is_loaded = true;
    return CUDA_SUCCESS;
}

CUresult lazy_load(struct sim_module *module, uint64_t stack_bytes)
{
    struct sim_context *context = module->context;
    CUresult result = CUDA_SUCCESS;

    if (!lazy_is_loaded(module)) /* "may require context synchronization" */
        sim_wait_implicitly();
    pthread_mutex_lock(&lazy_lock);
    if (sim_settings()->is_lazy &&
        local_bytes(context, stack_bytes) > context->engine->lazy.local_bytes)
        result = set_stack_locked(context, stack_bytes);
    if (result == CUDA_SUCCESS && !module->is_loaded)
        result = load_locked(module);
    pthread_mutex_unlock(&lazy_lock);
    return result;
}

bool lazy_is_loaded(const struct sim_module *module)
{
    pthread_mutex_lock(&lazy_lock);
    bool is_loaded = module->is_loaded;
    pthread_mutex_unlock(&lazy_lock);
    return is_loaded;
}

/* ---- slices ---- */

CUresult lazy_take_slice(struct sim_context *context, uint64_t bytes)
{
    struct sim_context *root = sim_context_root(context);
    struct engine_lazy *lazy = &root->engine->lazy;
    CUresult result = CUDA_SUCCESS;

    if (!sim_settings()->is_lazy)
        return CUDA_SUCCESS;
    pthread_mutex_lock(&lazy_lock);
    uint64_t wanted = granules(lazy->slice_bytes + bytes);
    if (wanted > lazy->granule_bytes) {
        result = take_locked(root, wanted - lazy->granule_bytes);
        if (result == CUDA_SUCCESS)
            lazy->granule_bytes = wanted;
    }
    if (result == CUDA_SUCCESS)
        lazy->slice_bytes += bytes;
    pthread_mutex_unlock(&lazy_lock);
    return result;
}

void lazy_give_slice(struct sim_context *context, uint64_t bytes)
{
    struct sim_context *root = sim_context_root(context);

    if (!sim_settings()->is_lazy)
        return;
    pthread_mutex_lock(&lazy_lock);
    if (root->engine) /* else all went with its context */
        root->engine->lazy.slice_bytes -=
            bytes < root->engine->lazy.slice_bytes ? bytes : root->engine->lazy.slice_bytes;
    pthread_mutex_unlock(&lazy_lock);
}

uint64_t lazy_bytes(struct sim_context *context)
{
    return context->engine->lazy.bytes;
}
