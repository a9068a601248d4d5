/* How the stand-ins of mathematical libraries compute: a result is made of its operands' bytes, by
 * copies and fills in the caller's stream. So memory is really read and written, a graph captures
 * the work, and a result depends on its operands alone. The runtime is linked in, as it is in the
 * real libraries. */
#ifndef TOUCH_H
#define TOUCH_H

#include <stddef.h>
#include <stdint.h>

int cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind, void *stream);
int cudaMemsetAsync(void *to, int value, size_t bytes, void *stream);

#define DEVICE_TO_DEVICE 3
/* Four of it are a small float, two a half near 1: no result is infinite or not a number. */
#define FILL 0x3c

static inline size_t touch_least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* The first half of `to` from the first operand, the second half from the other, the rest filled.
 */
static inline int touch(void *to, size_t bytes, const void *a, size_t a_bytes, const void *b,
                        size_t b_bytes, void *stream)
{
    size_t half = bytes / 2;
    int error = bytes ? cudaMemsetAsync(to, FILL, bytes, stream) : 0;

    a_bytes = touch_least(a_bytes, half);
    b_bytes = touch_least(b_bytes, bytes - half);
    if (!error && a_bytes && a != to)
        error = cudaMemcpyAsync(to, a, a_bytes, DEVICE_TO_DEVICE, stream);
    if (!error && b_bytes && b != to)
        error = cudaMemcpyAsync((char *)to + half, b, b_bytes, DEVICE_TO_DEVICE, stream);
    return error;
}

/* Bytes of an element of a cudaDataType: those of the formats in use. */
static inline size_t touch_element(int type)
{
    switch (type) {
    case 0:  /* CUDA_R_32F */
    case 10: /* CUDA_R_32I */
        return 4;
    case 1: /* CUDA_R_64F */
    case 4: /* CUDA_C_32F */
        return 8;
    case 5: /* CUDA_C_64F */
        return 16;
    case 2:  /* CUDA_R_16F */
    case 14: /* CUDA_R_16BF */
        return 2;
    default:
        return 1;
    }
}

/* Bytes from the first to the last element of a matrix of `columns` columns, `leading` apart. */
static inline size_t touch_matrix(long rows, long columns, long leading, size_t element)
{
    return rows > 0 && columns > 0 ? (size_t)((columns - 1) * leading + rows) * element : 0;
}

#endif
