/* Fills: cuMemsetD8/16/32, two-dimensional ones, and their Async forms. All are two-dimensional
 * inside. */
#include "memory.h"

#include <stdlib.h>
#include <string.h>

struct fill {
    uint64_t address, pitch;
    unsigned element_bytes, value;
    uint64_t width, height; /* width in elements */
};

static bool is_accessible(struct sim_context *context, const struct fill *fill)
{
    uint64_t row_bytes = fill->width * fill->element_bytes;
    bool is_good = true;

    pthread_mutex_lock(&sim_memory_lock);
    if (!sim_range_is_accessible(context, fill->address,
                                 (fill->height - 1) * fill->pitch + row_bytes, true))
        for (uint64_t y = 0; is_good && y < fill->height; y++)
            is_good =
                sim_range_is_accessible(context, fill->address + y * fill->pitch, row_bytes, true);
    pthread_mutex_unlock(&sim_memory_lock);
    return is_good;
}

static void fill_row(void *row, const struct fill *fill)
{
    uint16_t *halves = row;
    uint32_t *words = row;

    if (fill->element_bytes == 1) {
        memset(row, (int)fill->value, fill->width);
    } else if (fill->element_bytes == 2) {
        for (uint64_t x = 0; x < fill->width; x++)
            halves[x] = (uint16_t)fill->value;
    } else {
        for (uint64_t x = 0; x < fill->width; x++)
            words[x] = fill->value;
    }
}

static CUresult run_fill(struct sim_context *context, void *argument)
{
    const struct fill *fill = argument;
    CUresult result = CUDA_ERROR_ILLEGAL_ADDRESS;

    if (fill->width == 0 || fill->height == 0)
        return CUDA_SUCCESS;
    sim_use_begin();
    if (is_accessible(context, fill)) {
        for (uint64_t y = 0; y < fill->height; y++)
            fill_row((void *)(uintptr_t)(fill->address + y * fill->pitch), fill); /* NOLINT */
        result = CUDA_SUCCESS;
    }
    sim_use_end();
    return result;
}

static void *duplicate_fill(const void *argument)
{
    struct fill *fill = malloc(sizeof *fill);

    if (fill != NULL)
        *fill = *(const struct fill *)argument;
    return fill;
}

static CUresult check_fill(const struct fill *fill)
{
    uint64_t row_bytes, all;

    if (__builtin_mul_overflow(fill->width, fill->element_bytes, &row_bytes) ||
        __builtin_mul_overflow(fill->height, fill->pitch, &all) ||
        fill->address % fill->element_bytes != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (fill->height > 1 && (fill->pitch < row_bytes || fill->pitch % fill->element_bytes != 0))
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

CUresult sim_memory_fill_2d(struct sim_context *context, CUdeviceptr address, size_t pitch,
                            unsigned element_bytes, unsigned value, size_t width, size_t height)
{
    struct fill fill = {address, pitch, element_bytes, value, width, height};
    CUresult result = check_fill(&fill);

    return result == CUDA_SUCCESS ? run_fill(context, &fill) : result;
}

/* Fills of device memory do not wait even when they are not Async; those of memory the host sees
 * do. */
static CUresult submit(const struct fill *fill, struct sim_order order)
{
    const struct sim_side side = SIM_MEMORY(fill->address);
    struct sim_op op = {.run = run_fill, .release = free};
    struct sim_context *context;
    struct sim_stream *stream;
    CUresult result = sim_current(&context);

    if (result == CUDA_SUCCESS)
        result = sim_stream_resolve(order.stream, order.per_thread, &stream);
    if (result == CUDA_SUCCESS && order.is_sync)
        result = sim_check_unsafe_call(context);
    if (result == CUDA_SUCCESS)
        result = check_fill(fill);
    if (result == CUDA_SUCCESS)
        result = sim_lazy_kernels(context, true);
    if (result != CUDA_SUCCESS || fill->width == 0 || fill->height == 0)
        return result;
    if (fill->address == 0 || (order.is_sync && !is_accessible(context, fill)))
        return CUDA_ERROR_INVALID_VALUE;
    op.argument = duplicate_fill(fill);
    if (op.argument == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = sim_submit(stream, op, duplicate_fill, CU_GRAPH_NODE_TYPE_MEMSET);
    if (result != CUDA_SUCCESS || !order.is_sync || sim_stream_is_capturing(stream))
        return result;
    if (sim_side_is_host(&side) || sim_side_is_synchronous(&side) ||
        sim_context_is_synchronous(context))
        return sim_stream_wait(stream);
    sim_stream_note_synchronous(stream);
    return CUDA_SUCCESS;
}

static CUresult fill_1d(uint64_t address, unsigned bytes, unsigned value, uint64_t count,
                        struct sim_order order)
{
    return submit(&(struct fill){address, 0, bytes, value, count, 1}, order);
}

static CUresult fill_2d(uint64_t address, uint64_t pitch, unsigned bytes, unsigned value,
                        uint64_t width, uint64_t height, struct sim_order order)
{
    return submit(&(struct fill){address, pitch, bytes, value, width, height}, order);
}

/* The entry points differ in the width of the element alone. */
#define FILL_ENTRIES(bits, type)                                                                   \
    SIM_API_THREAD(cuMemsetD##bits##_v2, _ptds, (CUdeviceptr dstDevice, type value, size_t N),     \
                   (dstDevice, value, N), "0x%llx %u %zu", dstDevice, (unsigned)value, N)          \
    {                                                                                              \
        return fill_1d(dstDevice, (bits) / 8, value, N, SIM_SYNC(per_thread));                     \
    }                                                                                              \
    SIM_API(cuMemsetD##bits, (CUdeviceptr_v1 dstDevice, type value, unsigned N),                   \
            (dstDevice, value, N), "0x%x %u %u", dstDevice, (unsigned)value, N)                    \
    {                                                                                              \
        return fill_1d(dstDevice, (bits) / 8, value, N, SIM_SYNC(false));                          \
    }                                                                                              \
    SIM_API_THREAD(cuMemsetD##bits##Async, _ptsz,                                                  \
                   (CUdeviceptr dstDevice, type value, size_t N, CUstream hStream),                \
                   (dstDevice, value, N, hStream), "0x%llx %u %zu %p", dstDevice, (unsigned)value, \
                   N, (void *)hStream)                                                             \
    {                                                                                              \
        return fill_1d(dstDevice, (bits) / 8, value, N, SIM_ASYNC(per_thread, hStream));           \
    }                                                                                              \
    SIM_API_THREAD(                                                                                \
        cuMemsetD2D##bits##_v2, _ptds,                                                             \
        (CUdeviceptr dstDevice, size_t dstPitch, type value, size_t Width, size_t Height),         \
        (dstDevice, dstPitch, value, Width, Height), "0x%llx %zu %u %zu %zu", dstDevice, dstPitch, \
        (unsigned)value, Width, Height)                                                            \
    {                                                                                              \
        return fill_2d(dstDevice, dstPitch, (bits) / 8, value, Width, Height,                      \
                       SIM_SYNC(per_thread));                                                      \
    }                                                                                              \
    SIM_API(cuMemsetD2D##bits,                                                                     \
            (CUdeviceptr_v1 dstDevice, unsigned dstPitch, type value, unsigned Width,              \
             unsigned Height),                                                                     \
            (dstDevice, dstPitch, value, Width, Height), "0x%x %u %u %u %u", dstDevice, dstPitch,  \
            (unsigned)value, Width, Height)                                                        \
    {                                                                                              \
        return fill_2d(dstDevice, dstPitch, (bits) / 8, value, Width, Height, SIM_SYNC(false));    \
    }                                                                                              \
    SIM_API_THREAD(cuMemsetD2D##bits##Async, _ptsz,                                                \
                   (CUdeviceptr dstDevice, size_t dstPitch, type value, size_t Width,              \
                    size_t Height, CUstream hStream),                                              \
                   (dstDevice, dstPitch, value, Width, Height, hStream),                           \
                   "0x%llx %zu %u %zu %zu %p", dstDevice, dstPitch, (unsigned)value, Width,        \
                   Height, (void *)hStream)                                                        \
    {                                                                                              \
        return fill_2d(dstDevice, dstPitch, (bits) / 8, value, Width, Height,                      \
                       SIM_ASYNC(per_thread, hStream));                                            \
    }

FILL_ENTRIES(8, unsigned char)
FILL_ENTRIES(16, unsigned short)
FILL_ENTRIES(32, unsigned)
