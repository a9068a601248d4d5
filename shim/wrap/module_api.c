/* Modules and libraries: charged by difference, uncharged at unload or with their context.
 *
 * With lazy loading (the default since CUDA 12) a function's code is loaded at its first launch:
 * that memory is not measured here. */
#include "shim/account/direct.h"
#include "shim/account/measure.h"
#include "shim/life/life.h"
#include "shim/real/resolve.h"
#include "shim/wrap/relieve.h"

/* Charges and records the memory that loading `key` took. */
static void record_load(struct gc_direct_request *request, struct gc_measure *measure, uint64_t key)
{
    int64_t taken = gc_measure_end(measure);

    if (taken <= 0 || request->device != measure->device)
        return;
    gc_direct_adjust_device(gc_shim.core, request->device, taken);
    request->reserved_bytes = (uint64_t)taken;
    gc_direct_record(request, GC_DIRECT_MODULE, key, (uint64_t)taken);
}

#define LOAD(symbol, object, ...)                                                                  \
    do {                                                                                           \
        if (!gc_life_ready())                                                                      \
            return GC_FORWARD(symbol, __VA_ARGS__);                                                \
        struct gc_direct_request request;                                                          \
        struct gc_measure measure;                                                                 \
        gc_direct_begin(&request, GC_API_##symbol);                                                \
        request.api = GC_API_##symbol; /* not the outer call, in which a runtime loaded it */      \
        gc_measure_begin_current(&measure);                                                        \
        CUresult result = GC_DIRECT_CALL(&request, 0, symbol, __VA_ARGS__);                        \
        if (result == CUDA_SUCCESS && (object) != NULL)                                            \
            record_load(&request, &measure, (uintptr_t) * (object));                               \
        return gc_direct_end(&request, result);                                                    \
    } while (0)

#define UNLOAD(symbol, object)                                                                     \
    do {                                                                                           \
        if (!gc_life_ready())                                                                      \
            return GC_FORWARD(symbol, object);                                                     \
        struct gc_direct_request request;                                                          \
        struct gc_direct_release release;                                                          \
        gc_direct_begin(&request, GC_API_##symbol);                                                \
        gc_direct_release_begin(&release, GC_DIRECT_MODULE, (uintptr_t)(object));                  \
        CUresult result = GC_CALL_RELIEVED(request.device, symbol, object);                        \
        gc_direct_release_end(&release, result == CUDA_SUCCESS);                                   \
        return gc_direct_end(&request, result);                                                    \
    } while (0)

GC_EXPORT
CUresult cuModuleLoad(CUmodule *module, const char *path)
{
    LOAD(cuModuleLoad, module, module, path);
}

GC_EXPORT
CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    LOAD(cuModuleLoadData, module, module, image);
}

GC_EXPORT
CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned count,
                            CUjit_option *options, void **values)
{
    LOAD(cuModuleLoadDataEx, module, module, image, count, options, values);
}

GC_EXPORT
CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image)
{
    LOAD(cuModuleLoadFatBinary, module, module, image);
}

GC_EXPORT
CUresult cuModuleUnload(CUmodule module)
{
    UNLOAD(cuModuleUnload, module);
}

GC_EXPORT
CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jit_options,
                           void **jit_values, unsigned jit_count, CUlibraryOption *options,
                           void **values, unsigned count)
{
    LOAD(cuLibraryLoadData, library, library, code, jit_options, jit_values, jit_count, options,
         values, count);
}

GC_EXPORT
CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *path, CUjit_option *jit_options,
                               void **jit_values, unsigned jit_count, CUlibraryOption *options,
                               void **values, unsigned count)
{
    LOAD(cuLibraryLoadFromFile, library, library, path, jit_options, jit_values, jit_count, options,
         values, count);
}

GC_EXPORT
CUresult cuLibraryUnload(CUlibrary library)
{
    UNLOAD(cuLibraryUnload, library);
}
