/* Libraries that a program loads itself. The option enums have the driver's values. */
#include "runtime.h"

RT_API(context, cudaLibraryLoadData,
       (cudaLibrary_t * library, const void *code, enum cudaJitOption *jitOptions, void **jitValues,
        unsigned jitCount, enum cudaLibraryOption *options, void **values, unsigned count),
       (library, code, jitOptions, jitValues, jitCount, options, values, count))
{
    if (!library || !code)
        return cudaErrorInvalidValue;
    return rt_result(rt_cu.cuLibraryLoadData(library, code, (CUjit_option *)jitOptions, jitValues,
                                             jitCount, (CUlibraryOption *)options, values, count));
}

RT_API(context, cudaLibraryLoadFromFile,
       (cudaLibrary_t * library, const char *fileName, enum cudaJitOption *jitOptions,
        void **jitValues, unsigned jitCount, enum cudaLibraryOption *options, void **values,
        unsigned count),
       (library, fileName, jitOptions, jitValues, jitCount, options, values, count))
{
    if (!library || !fileName)
        return cudaErrorInvalidValue;
    return rt_result(rt_cu.cuLibraryLoadFromFile(library, fileName, (CUjit_option *)jitOptions,
                                                 jitValues, jitCount, (CUlibraryOption *)options,
                                                 values, count));
}

RT_API(context, cudaLibraryUnload, (cudaLibrary_t library), (library))
{
    return rt_result(rt_cu.cuLibraryUnload(library));
}

RT_API(context, cudaLibraryGetKernel,
       (cudaKernel_t * kernel, cudaLibrary_t library, const char *name), (kernel, library, name))
{
    if (!kernel || !name)
        return cudaErrorInvalidValue;
    RT_TRY_CU(rt_cu.cuLibraryGetKernel(kernel, library, name));
    return rt_kernel_remember(*kernel);
}

RT_API(context, cudaLibraryGetKernelCount, (unsigned *count, cudaLibrary_t library),
       (count, library))
{
    return rt_result(rt_cu.cuLibraryGetKernelCount(count, library));
}

RT_API(context, cudaLibraryEnumerateKernels,
       (cudaKernel_t * kernels, unsigned count, cudaLibrary_t library), (kernels, count, library))
{
    RT_TRY_CU(rt_cu.cuLibraryEnumerateKernels(kernels, count, library));
    for (unsigned i = 0; i < count; i++)
        if (kernels[i])
            RT_TRY(rt_kernel_remember(kernels[i]));
    return cudaSuccess;
}

RT_API(context, cudaLibraryGetGlobal,
       (void **dptr, size_t *bytes, cudaLibrary_t library, const char *name),
       (dptr, bytes, library, name))
{
    return rt_result(rt_cu.cuLibraryGetGlobal((CUdeviceptr *)(void *)dptr, bytes, library, name));
}

RT_API(context, cudaLibraryGetManaged,
       (void **dptr, size_t *bytes, cudaLibrary_t library, const char *name),
       (dptr, bytes, library, name))
{
    return rt_result(rt_cu.cuLibraryGetManaged((CUdeviceptr *)(void *)dptr, bytes, library, name));
}

RT_API(context, cudaLibraryGetUnifiedFunction,
       (void **function, cudaLibrary_t library, const char *symbol), (function, library, symbol))
{
    return rt_result(rt_cu.cuLibraryGetUnifiedFunction(function, library, symbol));
}
