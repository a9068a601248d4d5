/* Modules: an image loaded into a context takes device memory; its functions launch, its variables
 * have addresses. */
#define _GNU_SOURCE
#include "tests/simcuda/driver/engine_lazy.h"

#include <stdlib.h>
#include <string.h>

static struct engine_pool module_pool = {.object_bytes = sizeof(struct sim_module)};
static struct engine_pool function_pool = {.object_bytes = sizeof(struct sim_function)};

/* ---- functions ---- */

static void set_usual_attributes(int *attributes)
{
    attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK] = 1024;
    attributes[CU_FUNC_ATTRIBUTE_NUM_REGS] = 32;
    attributes[CU_FUNC_ATTRIBUTE_PTX_VERSION] = 90;
    attributes[CU_FUNC_ATTRIBUTE_BINARY_VERSION] = 90;
    attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES] = 48 << 10;
    attributes[CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT] = -1;
}

CUresult function_get(struct sim_function **list, const struct sim_image *image, const char *name,
                      struct sim_function **function)
{
    if (!name || !*name)
        return CUDA_ERROR_INVALID_VALUE;
    if (!image_has_function(image, name))
        return CUDA_ERROR_NOT_FOUND;
    engine_lock();
    struct sim_function *found = *list;
    while (found && strcmp(found->name, name) != 0)
        found = found->next;
    if (!found) {
        char *own_name = strdup(name);
        found = own_name ? engine_pool_take(&function_pool) : NULL;
        if (found) {
            *found =
                (struct sim_function){.magic = SIM_MAGIC_FUNCTION, .next = *list, .name = own_name};
            set_usual_attributes(found->attributes);
            found->attributes[CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES] =
                (int)image_local_bytes(image, name);
            *list = found;
        } else {
            free(own_name);
        }
    }
    engine_unlock();
    *function = found;
    return found ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

void function_free_list(struct sim_function *list)
{
    engine_lock();
    while (list) {
        struct sim_function *next = list->next;
        free(list->name);
        list->name = NULL;
        engine_pool_give(&function_pool, list);
        list = next;
    }
    engine_unlock();
}

CUresult function_load(struct sim_function *function)
{
    struct sim_module *module = function->module;
    CUresult result = CUDA_SUCCESS;

    if (function->library)
        result = library_instance(function->library, &module);
    return result ? result
                  : lazy_load(module,
                              (uint64_t)function->attributes[CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES]);
}

CUresult function_check(const void *handle, struct sim_function **function)
{
    CUresult result = sim_check_init();
    if (result)
        return result;
    *function = (struct sim_function *)(uintptr_t)handle;
    if (!handle)
        return CUDA_ERROR_INVALID_HANDLE;
    engine_lock();
    bool is_live = (*function)->magic == SIM_MAGIC_FUNCTION;
    engine_unlock();
    return is_live ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/* ---- modules ---- */

CUresult module_check(CUmodule handle, struct sim_module **module)
{
    CUresult result = sim_check_init();
    if (result)
        return result;
    *module = (struct sim_module *)handle;
    if (!handle)
        return CUDA_ERROR_INVALID_HANDLE;
    engine_lock();
    bool is_live = (*module)->magic == SIM_MAGIC_MODULE;
    engine_unlock();
    return is_live ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult module_create(struct sim_image image, struct sim_library *library,
                       struct sim_module **module)
{
    struct sim_context *context;
    uint64_t device_bytes = sim_settings()->is_lazy ? 0 : lazy_module_bytes(&image);
    CUresult result = sim_current(&context);

    /* A launch that loads a library's module may be captured; a load may not. */
    if (result == CUDA_SUCCESS && !library)
        result = sim_check_unsafe_call(context);
    if (result == CUDA_SUCCESS && !sim_settings()->is_lazy)
        sim_wait_implicitly();
    if (result == CUDA_SUCCESS)
        result = sim_capacity_take(context->device, device_bytes);
    if (result)
        goto fail;
    context = sim_context_root(context);
    engine_lock();
    *module = engine_pool_take(&module_pool);
    if (*module) {
        **module = (struct sim_module){.magic = SIM_MAGIC_MODULE,
                                       .next = context->engine->modules,
                                       .context = context,
                                       .library = library,
                                       .image = image,
                                       .device_bytes = device_bytes,
                                       .is_loaded = !sim_settings()->is_lazy};
        context->engine->modules = *module;
    }
    engine_unlock();
    if (*module)
        return CUDA_SUCCESS;
    sim_capacity_return(context->device, device_bytes);
    result = CUDA_ERROR_OUT_OF_MEMORY;

fail:
    if (!library)
        image_free(&image);
    return result;
}

/* The module is out of its context's list, or the context is going. */
static void release(struct sim_module *module)
{
    while (module->variables) {
        struct sim_variable *variable = module->variables;
        module->variables = variable->next;
        sim_memory_variable_give(variable->address);
        free(variable->name);
        free(variable);
    }
    function_free_list(module->functions);
    if (!module->library)
        image_free(&module->image);
    sim_capacity_return(module->context->device, module->device_bytes);
    engine_lock();
    engine_pool_give(&module_pool, module);
    engine_unlock();
}

void module_destroy(struct sim_module *module)
{
    engine_lock();
    struct sim_module **link = &module->context->engine->modules;
    while (*link && *link != module)
        link = &(*link)->next;
    if (*link)
        *link = module->next;
    engine_unlock();
    release(module);
}

void module_drop_context(struct sim_context *context)
{
    library_forget_context(context);
    while (context->engine->modules)
        module_destroy(context->engine->modules);
}

/* A variable gets its memory when it is first asked for. */
static CUresult add_variable(struct sim_module *module, const char *name,
                             struct sim_variable **added)
{
    uint64_t bytes = image_variable_bytes(&module->image, name);
    if (bytes == 0)
        return CUDA_ERROR_NOT_FOUND;
    struct sim_variable *variable = calloc(1, sizeof *variable);
    char *own_name = strdup(name);
    CUresult result = variable && own_name
                          ? sim_memory_variable_take(module->context, bytes, &variable->address)
                          : CUDA_ERROR_OUT_OF_MEMORY;
    if (result) {
        free(variable);
        free(own_name);
        return result;
    }
    variable->name = own_name;
    variable->bytes = bytes;
    variable->next = module->variables;
    module->variables = variable;
    *added = variable;
    return CUDA_SUCCESS;
}

CUresult module_find_variable(struct sim_module *module, const char *name, CUdeviceptr *address,
                              size_t *bytes)
{
    /* Held over calls of the memory part, so the engine's lock cannot guard the lists. */
    static pthread_mutex_t variables_lock = PTHREAD_MUTEX_INITIALIZER;
    CUresult result = CUDA_SUCCESS;

    if (!name || (!address && !bytes))
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&variables_lock);
    struct sim_variable *variable = module->variables;
    while (variable && strcmp(variable->name, name) != 0)
        variable = variable->next;
    if (!variable)
        result = add_variable(module, name, &variable);
    if (result == CUDA_SUCCESS && address)
        *address = variable->address;
    if (result == CUDA_SUCCESS && bytes)
        *bytes = variable->bytes;
    pthread_mutex_unlock(&variables_lock);
    return result;
}

/* ---- entry points ---- */

static CUresult load(CUmodule *handle, const void *data, const char *path)
{
    struct sim_context *context;
    struct sim_module *module;
    struct sim_image image;
    CUresult result = sim_current(&context);

    if (result)
        return result;
    if (!handle)
        return CUDA_ERROR_INVALID_VALUE;
    result = path ? image_load_file(&image, path) : image_load(&image, data);
    if (result == CUDA_SUCCESS)
        result = module_create(image, NULL, &module);
    if (result == CUDA_SUCCESS)
        *handle = (CUmodule)module;
    return result;
}

SIM_API(cuModuleLoad, (CUmodule * module, const char *path), (module, path), "%s",
        path ? path : "(null)")
{
    return path ? load(module, NULL, path) : CUDA_ERROR_INVALID_VALUE;
}

SIM_API(cuModuleLoadData, (CUmodule * module, const void *image), (module, image), "%p", image)
{
    return load(module, image, NULL);
}

SIM_API(cuModuleLoadDataEx,
        (CUmodule * module, const void *image, unsigned int count, CUjit_option *options,
         void **values),
        (module, image, count, options, values), "%p %u", image, count)
{
    if (count && (!options || !values))
        return CUDA_ERROR_INVALID_VALUE;
    return load(module, image, NULL);
}

SIM_API(cuModuleLoadFatBinary, (CUmodule * module, const void *image), (module, image), "%p", image)
{
    return load(module, image, NULL);
}

SIM_API(cuModuleUnload, (CUmodule handle), (handle), "%p", (void *)handle)
{
    struct sim_context *context;
    struct sim_module *module;
    CUresult result = sim_current(&context);
    if (result == CUDA_SUCCESS)
        result = module_check(handle, &module);
    if (result == CUDA_SUCCESS)
        result = sim_check_unsafe_call(context);
    if (result)
        return result;
    if (module->library) /* the library's to unload */
        return CUDA_ERROR_NOT_PERMITTED;
    module_destroy(module);
    return CUDA_SUCCESS;
}

SIM_API(cuModuleGetFunction, (CUfunction * handle, CUmodule module_handle, const char *name),
        (handle, module_handle, name), "%p %s", (void *)module_handle, name ? name : "(null)")
{
    struct sim_module *module;
    struct sim_function *function;
    CUresult result = module_check(module_handle, &module);
    if (result)
        return result;
    if (!handle)
        return CUDA_ERROR_INVALID_VALUE;
    result = function_get(&module->functions, &module->image, name, &function);
    if (result)
        return result;
    function->module = module;
    *handle = (CUfunction)function;
    return CUDA_SUCCESS;
}

SIM_API(cuModuleGetGlobal_v2,
        (CUdeviceptr * address, size_t *bytes, CUmodule handle, const char *name),
        (address, bytes, handle, name), "%p %s", (void *)handle, name ? name : "(null)")
{
    struct sim_module *module;
    CUresult result = module_check(handle, &module);
    return result ? result : module_find_variable(module, name, address, bytes);
}

SIM_API(cuModuleGetGlobal,
        (CUdeviceptr_v1 * address, unsigned int *bytes, CUmodule handle, const char *name),
        (address, bytes, handle, name), "%p %s", (void *)handle, name ? name : "(null)")
{
    struct sim_module *module;
    CUdeviceptr wide_address;
    size_t wide_bytes;
    CUresult result = module_check(handle, &module);
    if (result == CUDA_SUCCESS)
        result = module_find_variable(module, name, &wide_address, &wide_bytes);
    if (result)
        return result;
    if (wide_address > UINT32_MAX || wide_bytes > UINT32_MAX)
        return CUDA_ERROR_INVALID_VALUE; /* the 32-bit ABI cannot express it */
    if (address)
        *address = (CUdeviceptr_v1)wide_address;
    if (bytes)
        *bytes = (unsigned)wide_bytes;
    return CUDA_SUCCESS;
}

SIM_API(cuModuleGetLoadingMode, (CUmoduleLoadingMode * mode), (mode), "%p", (void *)mode)
{
    if (!mode)
        return CUDA_ERROR_INVALID_VALUE;
    *mode = sim_settings()->is_lazy ? CU_MODULE_LAZY_LOADING : CU_MODULE_EAGER_LOADING;
    return CUDA_SUCCESS;
}
