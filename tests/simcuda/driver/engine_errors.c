/* Names and texts of error codes. */
#define _GNU_SOURCE
#include "tests/simcuda/driver/settings.h"

#include <stdlib.h>
#include <string.h>

static const struct error_row {
    int code;
    const char *name, *text;
} errors[] = {
#define SIM_ERROR(code, name, text) {code, #name, text},
#include "tests/simcuda/driver/errors.def"
#undef SIM_ERROR
};

static const struct error_row *find_error(int code)
{
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++)
        if (errors[i].code == code)
            return &errors[i];
    return NULL;
}

bool sim_error_by_name(const char *name, size_t length, CUresult *result)
{
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++) {
        char number[16];
        size_t digits = 0;
        for (int rest = errors[i].code; rest > 0 || digits == 0; rest /= 10)
            number[sizeof number - ++digits] = (char)('0' + rest % 10);
        if ((strlen(errors[i].name) == length && strncmp(errors[i].name, name, length) == 0) ||
            (digits == length && strncmp(number + sizeof number - digits, name, length) == 0)) {
            *result = (CUresult)errors[i].code;
            return true;
        }
    }
    return false;
}

/* An unknown code: CUDA_ERROR_INVALID_VALUE and a NULL string. */
SIM_API(cuGetErrorName, (CUresult error, const char **text), (error, text), "%d", (int)error)
{
    const struct error_row *row = find_error((int)error);
    if (!text)
        return CUDA_ERROR_INVALID_VALUE;
    *text = row ? row->name : NULL;
    return row ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SIM_API(cuGetErrorString, (CUresult error, const char **text), (error, text), "%d", (int)error)
{
    const struct error_row *row = find_error((int)error);
    if (!text)
        return CUDA_ERROR_INVALID_VALUE;
    *text = row ? row->text : NULL;
    return row ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
