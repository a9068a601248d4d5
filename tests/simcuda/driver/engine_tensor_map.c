/* Tensor maps: descriptors of the Tensor Memory Accelerator. The driver checks the parameters by
 * the rules that cuda.h lists and encodes them on the host; no device memory is touched. The
 * encoding here is the address, a mark and nothing else: no kernel reads it. */
#define _GNU_SOURCE
#include "tests/simcuda/sim.h"

#include <string.h>

#if CUDA_VERSION >= 12000

#define RANK_MAX 5u
#define MARK UINT64_C(0x54454e534f524d50)

/* By number: not every header has those from 13 on. */
enum { TYPE_U4_8B = 13, TYPE_U4_16B, TYPE_U6_16B, TYPE_COUNT };
enum { FLOAT_FIRST = 6, FLOAT_LAST = 12 };
enum {
    SWIZZLE_NONE,
    SWIZZLE_32B,
    SWIZZLE_64B,
    SWIZZLE_128B,
    SWIZZLE_128B_32B,
    SWIZZLE_128B_32B_FLIP,
    SWIZZLE_128B_64B,
    SWIZZLE_COUNT
};

static const unsigned char element_bits[TYPE_COUNT] = {8,  16, 32, 32, 64, 64, 16, 32,
                                                       64, 16, 32, 32, 32, 4,  4,  6};

/* What tiles and columns of pixels have in common. */
struct tensor {
    CUtensorMap *map;
    unsigned type, rank;
    void *address;
    const cuuint64_t *dims, *strides;
    const cuuint32_t *element_strides;
    unsigned interleave, swizzle, promotion, fill;
    cuuint32_t inner; /* elements of the box in the first dimension */
};

static bool is_padded(unsigned type)
{
    return type == TYPE_U4_16B || type == TYPE_U6_16B;
}

static bool is_aligned(const void *pointer, uint64_t bytes)
{
    return (uint64_t)(uintptr_t)pointer % bytes == 0;
}

static bool has_good_words(const struct tensor *t)
{
    if (t->map == NULL || !is_aligned(t->map, 64) || t->type >= TYPE_COUNT ||
        t->interleave > CU_TENSOR_MAP_INTERLEAVE_32B || t->swizzle >= SWIZZLE_COUNT ||
        t->promotion > CU_TENSOR_MAP_L2_PROMOTION_L2_256B ||
        t->fill > CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA)
        return false;
    if (t->fill != CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE &&
        (t->type < FLOAT_FIRST || t->type > FLOAT_LAST))
        return false;
    if (t->type == TYPE_U6_16B && t->interleave != CU_TENSOR_MAP_INTERLEAVE_NONE)
        return false;
    return t->interleave != CU_TENSOR_MAP_INTERLEAVE_32B || t->swizzle == SWIZZLE_32B;
}

/* How many bytes addresses and strides must be multiples of. */
static uint64_t alignment_of(const struct tensor *t)
{
    return t->interleave == CU_TENSOR_MAP_INTERLEAVE_32B || is_padded(t->type) ? 32 : 16;
}

static bool has_good_memory(const struct tensor *t)
{
    if (t->address == NULL || !is_aligned(t->address, alignment_of(t)) || t->dims == NULL ||
        t->element_strides == NULL || (t->rank > 1 && t->strides == NULL))
        return false;
    for (unsigned i = 0; i < t->rank; i++) {
        bool is_ignored = i == 0 && t->interleave == CU_TENSOR_MAP_INTERLEAVE_NONE;

        if (t->dims[i] == 0 || t->dims[i] > UINT64_C(1) << 32)
            return false;
        if (!is_ignored && (t->element_strides[i] == 0 || t->element_strides[i] > 8))
            return false;
    }
    for (unsigned i = 0; i + 1 < t->rank; i++)
        if (t->strides[i] % alignment_of(t) != 0 || t->strides[i] >= UINT64_C(1) << 40)
            return false;
    return t->dims[0] % (is_padded(t->type) ? 128u : t->type == TYPE_U4_8B ? 2u : 1u) == 0;
}

/* The box's first dimension: bounded by the swizzle where the layout is not interleaved. */
static bool has_good_inner(const struct tensor *t)
{
    static const unsigned most[SWIZZLE_COUNT] = {0, 32, 64, 128, 128, 128, 128};
    uint64_t bytes = (uint64_t)t->inner * element_bits[t->type] / 8;

    if (t->inner == 0 || t->inner > 256 || (is_padded(t->type) && t->inner != 128))
        return false;
    return t->interleave != CU_TENSOR_MAP_INTERLEAVE_NONE || t->swizzle == SWIZZLE_NONE ||
           bytes <= most[t->swizzle];
}

/* Packed types take some swizzles only. */
static bool has_good_swizzle(const struct tensor *t)
{
    if (t->type == TYPE_U4_16B)
        return t->swizzle == SWIZZLE_NONE || t->swizzle == SWIZZLE_128B ||
               t->swizzle == SWIZZLE_128B_32B;
    return t->type != TYPE_U6_16B || t->swizzle == SWIZZLE_NONE || t->swizzle == SWIZZLE_128B ||
           t->swizzle == SWIZZLE_128B_32B || t->swizzle == SWIZZLE_128B_64B;
}

static CUresult encode(const struct tensor *t, bool is_good)
{
    if (!is_good || !has_good_words(t) || !has_good_memory(t) || !has_good_inner(t) ||
        !has_good_swizzle(t))
        return CUDA_ERROR_INVALID_VALUE;
    memset(t->map, 0, sizeof *t->map);
    t->map->opaque[0] = (uint64_t)(uintptr_t)t->address;
    t->map->opaque[1] = alignment_of(t);
    t->map->opaque[CU_TENSOR_MAP_NUM_QWORDS - 1] = MARK;
    return CUDA_SUCCESS;
}

static bool is_good_box(const struct tensor *t, const cuuint32_t *box)
{
    if (t->rank == 0 || t->rank > RANK_MAX || t->type >= TYPE_COUNT || box == NULL ||
        (t->interleave != CU_TENSOR_MAP_INTERLEAVE_NONE && t->rank < 3))
        return false;
    for (unsigned i = 0; i < t->rank; i++)
        if (box[i] == 0 || box[i] > 256)
            return false;
    return t->interleave != CU_TENSOR_MAP_INTERLEAVE_NONE ||
           (uint64_t)box[0] * element_bits[t->type] % 128 == 0;
}

SIM_API(cuTensorMapEncodeTiled,
        (CUtensorMap * map, CUtensorMapDataType type, cuuint32_t rank, void *address,
         const cuuint64_t *dims, const cuuint64_t *strides, const cuuint32_t *box,
         const cuuint32_t *steps, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
         CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill),
        (map, type, rank, address, dims, strides, box, steps, interleave, swizzle, promotion, fill),
        "%d %u %p", (int)type, rank, address)
{
    struct tensor t = {.map = map,
                       .type = type,
                       .rank = rank,
                       .address = address,
                       .dims = dims,
                       .strides = strides,
                       .element_strides = steps,
                       .interleave = interleave,
                       .swizzle = swizzle,
                       .promotion = promotion,
                       .fill = fill};
    CUresult result = sim_check_init();

    if (result)
        return result;
    if (!is_good_box(&t, box))
        return CUDA_ERROR_INVALID_VALUE;
    t.inner = box[0];
    return encode(&t, true);
}

/* "When tensorRank is 3, one signed offset within [-32768, 32767]", two within [-128, 127], three
 * within [-16, 15]. */
static bool are_good_corners(unsigned rank, const int *lower, const int *upper)
{
    static const int least[RANK_MAX + 1] = {[3] = -32768, [4] = -128, [5] = -16};

    if (rank < 3 || rank > RANK_MAX || lower == NULL || upper == NULL)
        return false;
    for (unsigned i = 0; i < rank - 2; i++)
        if (lower[i] < least[rank] || lower[i] >= -least[rank] || upper[i] < least[rank] ||
            upper[i] >= -least[rank])
            return false;
    return true;
}

SIM_API(cuTensorMapEncodeIm2col,
        (CUtensorMap * map, CUtensorMapDataType type, cuuint32_t rank, void *address,
         const cuuint64_t *dims, const cuuint64_t *strides, const int *lower, const int *upper,
         cuuint32_t channels, cuuint32_t pixels, const cuuint32_t *steps,
         CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
         CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill),
        (map, type, rank, address, dims, strides, lower, upper, channels, pixels, steps, interleave,
         swizzle, promotion, fill),
        "%d %u %p", (int)type, rank, address)
{
    struct tensor t = {.map = map,
                       .type = type,
                       .rank = rank,
                       .address = address,
                       .dims = dims,
                       .strides = strides,
                       .element_strides = steps,
                       .interleave = interleave,
                       .swizzle = swizzle,
                       .promotion = promotion,
                       .fill = fill,
                       .inner = channels};
    CUresult result = sim_check_init();

    if (result)
        return result;
    return encode(&t, are_good_corners(rank, lower, upper) && pixels <= 1024);
}

#if CUDA_VERSION >= 12080
/* "This API is only supported on devices of compute capability 10.0 or higher": SIMCUDA_ATTRIBUTES
 * makes one. Of the swizzles 128B and 128B_ATOM_32B. */
SIM_API(cuTensorMapEncodeIm2colWide,
        (CUtensorMap * map, CUtensorMapDataType type, cuuint32_t rank, void *address,
         const cuuint64_t *dims, const cuuint64_t *strides, int lower, int upper,
         cuuint32_t channels, cuuint32_t pixels, const cuuint32_t *steps,
         CUtensorMapInterleave interleave, CUtensorMapIm2ColWideMode mode,
         CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
         CUtensorMapFloatOOBfill fill),
        (map, type, rank, address, dims, strides, lower, upper, channels, pixels, steps, interleave,
         mode, swizzle, promotion, fill),
        "%d %u %p", (int)type, rank, address)
{
    struct tensor t = {.map = map,
                       .type = type,
                       .rank = rank,
                       .address = address,
                       .dims = dims,
                       .strides = strides,
                       .element_strides = steps,
                       .interleave = interleave,
                       .swizzle = swizzle,
                       .promotion = promotion,
                       .fill = fill,
                       .inner = channels};
    bool is_good = are_good_corners(3, &lower, &upper) && rank >= 3 && rank <= RANK_MAX &&
                   mode <= CU_TENSOR_MAP_IM2COL_WIDE_MODE_W128 &&
                   (pixels <= 1024 || mode == CU_TENSOR_MAP_IM2COL_WIDE_MODE_W128) &&
                   (t.swizzle == SWIZZLE_128B || t.swizzle == SWIZZLE_128B_32B);
    struct sim_context *context;
    CUresult result = sim_current(&context);

    if (result)
        return result;
    return encode(&t, is_good && sim_device_attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                                                      context->device) >= 10);
}
#endif

SIM_API(cuTensorMapReplaceAddress, (CUtensorMap * map, void *address), (map, address), "%p",
        address)
{
    CUresult result = sim_check_init();

    if (result)
        return result;
    if (map == NULL || !is_aligned(map, 64) || address == NULL ||
        map->opaque[CU_TENSOR_MAP_NUM_QWORDS - 1] != MARK || !is_aligned(address, map->opaque[1]))
        return CUDA_ERROR_INVALID_VALUE;
    map->opaque[0] = (uint64_t)(uintptr_t)address;
    return CUDA_SUCCESS;
}

#endif
