/* Error codes: names, texts, and each thread's last error.
 *
 * NVIDIA documents that cudaGetLastError returns the last error of the calling thread and resets
 * it, cudaPeekAtLastError does not reset it, and cudaErrorNotReady is no error and reported by
 * neither. A code after which the process must be relaunched is sticky: nothing but a device reset
 * clears it. */
#include "runtime.h"

struct error {
    cudaError_t code;
    bool is_sticky;
    const char *name;
    const char *text;
};

static const struct error errors[] = {
#define RT_ERROR(name, is_sticky, text) {name, is_sticky, #name, text},
#include "errors.def"
#undef RT_ERROR
};
#define ERROR_COUNT (sizeof(errors) / sizeof(errors[0]))
#define UNRECOGNIZED "unrecognized error code"

static _Thread_local cudaError_t last_error;

static const struct error *error_find(cudaError_t code)
{
    for (size_t i = 0; i < ERROR_COUNT; i++)
        if (errors[i].code == code)
            return &errors[i];
    return NULL;
}

static bool error_is_sticky(cudaError_t code)
{
    const struct error *error = error_find(code);

    return error && error->is_sticky;
}

cudaError_t rt_result(CUresult result)
{
    cudaError_t code = (cudaError_t)(int)result;

    if (result == CUDA_SUCCESS)
        return cudaSuccess;
    return error_find(code) ? code : cudaErrorUnknown;
}

cudaError_t rt_end(cudaError_t error)
{
    if (error != cudaSuccess && error != cudaErrorNotReady && !error_is_sticky(last_error))
        last_error = error;
    return error;
}

void rt_forget_error(void)
{
    last_error = cudaSuccess;
}

RT_EXPORT cudaError_t cudaPeekAtLastError(void)
{
    return last_error;
}

RT_EXPORT cudaError_t cudaGetLastError(void)
{
    cudaError_t error = last_error;

    if (!error_is_sticky(error))
        last_error = cudaSuccess;
    return error;
}

RT_EXPORT const char *cudaGetErrorName(cudaError_t error)
{
    const struct error *found = error_find(error);

    return found ? found->name : UNRECOGNIZED;
}

RT_EXPORT const char *cudaGetErrorString(cudaError_t error)
{
    const struct error *found = error_find(error);

    return found ? found->text : UNRECOGNIZED;
}
