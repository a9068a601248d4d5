/* Descriptors that kernels would read: tensor maps and surface objects. Their arguments are checked
 * by the rules of cuda.h; old texture references cannot be made. */
#include "tests/unit/sim_memory_test.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tile {
    CUtensorMapDataType type;
    uint32_t rank;
    uint64_t address, dims[5], strides[4];
    uint32_t box[5], steps[5];
    CUtensorMapInterleave interleave;
    CUtensorMapSwizzle swizzle;
    CUtensorMapFloatOOBfill fill;
};

/* A matrix of 256 by 64 halves, read in boxes of 64 by 64. */
static const struct tile matrix = {.type = CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
                                   .rank = 2,
                                   .address = 4096,
                                   .dims = {256, 64},
                                   .strides = {512},
                                   .box = {64, 64},
                                   .steps = {1, 1},
                                   .swizzle = CU_TENSOR_MAP_SWIZZLE_128B};

struct change {
    size_t offset, bytes;
    uint64_t value;
};
#define SET(member, value)                                                                         \
    {                                                                                              \
        offsetof(struct tile, member), sizeof matrix.member, value                                 \
    }
#define NAN_FILL SET(fill, CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA)

/* What is other than in the matrix, and whether the map can be made. */
static const struct {
    bool is_good;
    struct change changes[3];
} tiles[] = {
    {true, {{0}}},
    {true, {NAN_FILL}},
    {true, {SET(type, CU_TENSOR_MAP_DATA_TYPE_UINT16)}},
    {false, {SET(type, CU_TENSOR_MAP_DATA_TYPE_UINT16), NAN_FILL}},
    {false, {SET(rank, 0)}},
    {false, {SET(rank, 6)}},
    {false, {SET(address, 4104)}},
    {false, {SET(dims[1], 0)}},
    {true, {SET(dims[1], UINT64_C(1) << 32)}},
    {false, {SET(dims[1], (UINT64_C(1) << 32) + 1)}},
    {false, {SET(strides[0], 520)}},
    {false, {SET(strides[0], UINT64_C(1) << 40)}},
    {false, {SET(box[1], 257)}},
    {false, {SET(box[0], 4)}},   /* 8 bytes */
    {false, {SET(box[0], 128)}}, /* wider than the swizzle */
    {true, {SET(box[0], 128), SET(swizzle, CU_TENSOR_MAP_SWIZZLE_NONE)}},
    {true, {SET(steps[0], 0)}}, /* ignored */
    {false, {SET(steps[1], 9)}},
    {false, {SET(swizzle, 7)}},
    {false, {SET(interleave, CU_TENSOR_MAP_INTERLEAVE_16B)}}, /* rank 3 and more */
    {true, {SET(type, CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN16B), SET(box[0], 128)}},
    {false, {SET(type, CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN16B)}},
    {false,
     {SET(type, CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B), SET(box[0], 128),
      SET(swizzle, CU_TENSOR_MAP_SWIZZLE_32B)}},
};

static CUresult encode(CUtensorMap *map, const struct tile *t)
{
    return cuTensorMapEncodeTiled(map, t->type, t->rank, (void *)(uintptr_t)t->address, t->dims,
                                  t->strides, t->box, t->steps, t->interleave, t->swizzle,
                                  CU_TENSOR_MAP_L2_PROMOTION_L2_128B, t->fill);
}

static void tiles_are_checked(void **state)
{
    CUtensorMap map, before;

    (void)state;
    for (size_t i = 0; i < sizeof tiles / sizeof tiles[0]; i++) {
        struct tile tile = matrix;
        for (int j = 0; j < 3; j++)
            memcpy((char *)&tile + tiles[i].changes[j].offset, &tiles[i].changes[j].value,
                   tiles[i].changes[j].bytes);
        memset(&map, 7, sizeof map);
        before = map;
        CUresult result = encode(&map, &tile);
        if (result != (tiles[i].is_good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE))
            fail_msg("tile %zu: %d", i, (int)result);
        assert_int_equal(memcmp(&map, &before, sizeof map) == 0, result != CUDA_SUCCESS);
    }
    MUST_BE(CUDA_ERROR_INVALID_VALUE, encode(NULL, &matrix));
    MUST_BE(CUDA_ERROR_INVALID_VALUE, encode((CUtensorMap *)((char *)&map + 32), &matrix));
}

static void addresses_are_replaced(void **state)
{
    CUtensorMap map, other;
    struct tile moved = matrix;

    (void)state;
    memset(&map, 0, sizeof map);
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuTensorMapReplaceAddress(&map, (void *)8192));
    MUST(encode(&map, &matrix));
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuTensorMapReplaceAddress(&map, (void *)8200));
    MUST(cuTensorMapReplaceAddress(&map, (void *)8192));
    moved.address = 8192;
    MUST(encode(&other, &moved));
    assert_memory_equal(&map, &other, sizeof map);
}

static CUresult encode_pixels(uint32_t rank, int corner, uint32_t channels, uint32_t pixels)
{
    static const uint64_t dims[5] = {64, 32, 32, 8, 8},
                          strides[4] = {128, 128 * 32, 128 * 1024, 128 * 8192};
    static const uint32_t steps[5] = {1, 1, 1, 1, 1};
    const int lower[3] = {corner, corner, corner}, upper[3] = {0, 0, 0};
    CUtensorMap map;

    return cuTensorMapEncodeIm2col(
        &map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, rank, (void *)4096, dims, strides, lower, upper,
        channels, pixels, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
        CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

static void columns_of_pixels_are_checked(void **state)
{
    (void)state;
    MUST(encode_pixels(4, -1, 64, 128));
    MUST(encode_pixels(3, -32768, 64, 1024));
    MUST(encode_pixels(5, 15, 64, 1024));
    MUST_BE(CUDA_ERROR_INVALID_VALUE, encode_pixels(5, 16, 64, 1024));
    MUST_BE(CUDA_ERROR_INVALID_VALUE, encode_pixels(4, -129, 64, 128));
    MUST_BE(CUDA_ERROR_INVALID_VALUE, encode_pixels(2, 0, 64, 128));
    MUST_BE(CUDA_ERROR_INVALID_VALUE, encode_pixels(4, 0, 128, 128)); /* 256 bytes, swizzle 128 */
    MUST_BE(CUDA_ERROR_INVALID_VALUE, encode_pixels(4, 0, 64, 1025));
}

static void surfaces_name_arrays(void **state)
{
    CUDA_ARRAY3D_DESCRIPTOR shape = {.Width = 16,
                                     .Height = 16,
                                     .Format = CU_AD_FORMAT_FLOAT,
                                     .NumChannels = 1,
                                     .Flags = CUDA_ARRAY3D_SURFACE_LDST};
    CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_ARRAY}, seen;
    CUsurfObject surface;

    (void)state;
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuSurfObjectCreate(&surface, &resource));
    MUST(cuArray3DCreate(&resource.res.array.hArray, &shape));
    MUST(cuSurfObjectCreate(&surface, &resource));
    MUST(cuSurfObjectGetResourceDesc(&seen, surface));
    assert_int_equal(seen.resType, CU_RESOURCE_TYPE_ARRAY);
    assert_ptr_equal(seen.res.array.hArray, resource.res.array.hArray);
    MUST(cuSurfObjectDestroy(surface));
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuSurfObjectDestroy(surface));
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuSurfObjectGetResourceDesc(&seen, surface));
    resource.flags = 1;
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuSurfObjectCreate(&surface, &resource));
    resource.flags = 0;
    MUST(cuArrayDestroy(resource.res.array.hArray));
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuSurfObjectCreate(&surface, &resource));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tiles_are_checked),
        cmocka_unit_test(addresses_are_replaced),
        cmocka_unit_test(columns_of_pixels_are_checked),
        cmocka_unit_test(surfaces_name_arrays),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    if (start_device("1") != 0)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
