/* Libraries: images that belong to no context. Each context that uses one gets an instance, a
 * module, at first use. */
#define _GNU_SOURCE
#include "tests/simcuda/driver/engine_module.h"

#include <stdlib.h>

#define SIM_MAGIC_LIBRARY 0x4c494231u

struct sim_library {
    uint32_t magic;
    struct sim_image image;
    struct sim_function *kernels;
    struct library_instance {
        struct sim_context *context;
        uint64_t context_id;
        struct sim_module *module;
    } * instances;
    size_t instance_count, instance_capacity;
    struct sim_library *next;
};

static struct engine_pool library_pool = {.object_bytes = sizeof(struct sim_library)};
static struct sim_library *libraries;

static CUresult library_check(CUlibrary handle, struct sim_library **library)
{
    CUresult result = sim_check_init();
    if (result)
        return result;
    *library = (struct sim_library *)handle;
    if (!handle)
        return CUDA_ERROR_INVALID_HANDLE;
    engine_lock();
    bool is_live = (*library)->magic == SIM_MAGIC_LIBRARY;
    engine_unlock();
    return is_live ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static struct sim_module *find_instance(const struct sim_library *library,
                                        const struct sim_context *context)
{
    struct sim_module *found = NULL;

    engine_lock();
    for (size_t i = 0; i < library->instance_count; i++)
        if (library->instances[i].context == context)
            found = library->instances[i].module;
    engine_unlock();
    return found;
}

static CUresult load_instance(struct sim_library *library, struct sim_context *context,
                              struct sim_module **module)
{
    CUresult result = module_create(library->image, library, module);
    if (result)
        return result;
    engine_lock();
    bool fits = engine_grow((void **)&library->instances, &library->instance_capacity,
                            library->instance_count, sizeof *library->instances);
    if (fits)
        library->instances[library->instance_count++] =
            (struct library_instance){context, atomic_load(&context->id), *module};
    engine_unlock();
    if (!fits)
        module_destroy(*module);
    return fits ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult library_instance(struct sim_library *library, struct sim_module **module)
{
    /* One of the threads that come first together loads it. */
    static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;
    struct sim_context *context;
    CUresult result = sim_current(&context);
    if (result)
        return result;
    context = sim_context_root(context);
    pthread_mutex_lock(&loading);
    *module = find_instance(library, context);
    if (!*module)
        result = load_instance(library, context, module);
    pthread_mutex_unlock(&loading);
    return result;
}

void library_forget_context(struct sim_context *context)
{
    engine_lock();
    for (struct sim_library *library = libraries; library; library = library->next) {
        size_t kept = 0;
        for (size_t i = 0; i < library->instance_count; i++)
            if (library->instances[i].context != context)
                library->instances[kept++] = library->instances[i];
        library->instance_count = kept;
    }
    engine_unlock();
}

static CUresult load(CUlibrary *handle, const void *data, const char *path)
{
    struct sim_image image;
    CUresult result = sim_check_init();
    if (result)
        return result;
    if (!handle)
        return CUDA_ERROR_INVALID_VALUE;
    result = path ? image_load_file(&image, path) : image_load(&image, data);
    if (result)
        return result;
    engine_lock();
    struct sim_library *library = engine_pool_take(&library_pool);
    if (library) {
        *library =
            (struct sim_library){.magic = SIM_MAGIC_LIBRARY, .image = image, .next = libraries};
        libraries = library;
    }
    engine_unlock();
    if (!library)
        image_free(&image);
    *handle = (CUlibrary)library;
    return library ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

SIM_API(cuLibraryLoadData,
        (CUlibrary * library, const void *code, CUjit_option *jit, void **jit_values,
         unsigned int jit_count, CUlibraryOption *options, void **values, unsigned int count),
        (library, code, jit, jit_values, jit_count, options, values, count), "%p", code)
{
    return load(library, code, NULL);
}

SIM_API(cuLibraryLoadFromFile,
        (CUlibrary * library, const char *path, CUjit_option *jit, void **jit_values,
         unsigned int jit_count, CUlibraryOption *options, void **values, unsigned int count),
        (library, path, jit, jit_values, jit_count, options, values, count), "%s",
        path ? path : "(null)")
{
    return path ? load(library, NULL, path) : CUDA_ERROR_INVALID_VALUE;
}

SIM_API(cuLibraryUnload, (CUlibrary handle), (handle), "%p", (void *)handle)
{
    struct sim_library *library;
    CUresult result = library_check(handle, &library);
    if (result)
        return result;
    engine_lock();
    struct sim_library **link = &libraries;
    while (*link != library)
        link = &(*link)->next;
    *link = library->next;
    library->magic = SIM_MAGIC_DEAD;
    engine_unlock();
    for (size_t i = 0; i < library->instance_count; i++)
        module_destroy(library->instances[i].module);
    function_free_list(library->kernels);
    free(library->instances);
    image_free(&library->image);
    engine_lock();
    library->instances = NULL;
    engine_pool_give(&library_pool, library);
    engine_unlock();
    return CUDA_SUCCESS;
}

SIM_API(cuLibraryGetModule, (CUmodule * handle, CUlibrary library_handle), (handle, library_handle),
        "%p", (void *)library_handle)
{
    struct sim_library *library;
    struct sim_module *module;
    CUresult result = library_check(library_handle, &library);
    if (result)
        return result;
    if (!handle)
        return CUDA_ERROR_INVALID_VALUE;
    result = library_instance(library, &module);
    if (result == CUDA_SUCCESS)
        *handle = (CUmodule)module;
    return result;
}

static CUresult find_variable(CUdeviceptr *address, size_t *bytes, CUlibrary handle,
                              const char *name)
{
    struct sim_library *library;
    struct sim_module *module;
    CUresult result = library_check(handle, &library);
    if (result == CUDA_SUCCESS)
        result = library_instance(library, &module);
    return result ? result : module_find_variable(module, name, address, bytes);
}

SIM_API(cuLibraryGetGlobal,
        (CUdeviceptr * address, size_t *bytes, CUlibrary library, const char *name),
        (address, bytes, library, name), "%p %s", (void *)library, name ? name : "(null)")
{
    return find_variable(address, bytes, library, name);
}

SIM_API(cuLibraryGetManaged,
        (CUdeviceptr * address, size_t *bytes, CUlibrary library, const char *name),
        (address, bytes, library, name), "%p %s", (void *)library, name ? name : "(null)")
{
    return find_variable(address, bytes, library, name);
}

SIM_API(cuLibraryGetKernel, (CUkernel * handle, CUlibrary library_handle, const char *name),
        (handle, library_handle, name), "%p %s", (void *)library_handle, name ? name : "(null)")
{
    struct sim_library *library;
    struct sim_function *kernel;
    CUresult result = library_check(library_handle, &library);
    if (result)
        return result;
    if (!handle)
        return CUDA_ERROR_INVALID_VALUE;
    result = function_get(&library->kernels, &library->image, name, &kernel);
    if (result)
        return result;
    kernel->library = library;
    *handle = (CUkernel)kernel;
    return CUDA_SUCCESS;
}

SIM_API(cuKernelGetFunction, (CUfunction * handle, CUkernel kernel_handle), (handle, kernel_handle),
        "%p", (void *)kernel_handle)
{
    struct sim_function *kernel;
    struct sim_module *module;
    CUresult result = function_check(kernel_handle, &kernel);
    if (result)
        return result;
    if (!handle || !kernel->library)
        return handle ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_VALUE;
    result = library_instance(kernel->library, &module);
    if (result == CUDA_SUCCESS)
        *handle = (CUfunction)kernel;
    return result;
}

SIM_API(cuKernelGetLibrary, (CUlibrary * handle, CUkernel kernel_handle), (handle, kernel_handle),
        "%p", (void *)kernel_handle)
{
    struct sim_function *kernel;
    CUresult result = function_check(kernel_handle, &kernel);
    if (result)
        return result;
    if (!handle || !kernel->library)
        return CUDA_ERROR_INVALID_VALUE;
    *handle = (CUlibrary)kernel->library;
    return CUDA_SUCCESS;
}
