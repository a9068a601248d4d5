/* The simulated device's plain, host and managed memory, arrays, copies, fills and pointer
 * attributes, each behaviour as NVIDIA's driver API documentation states it. */
#include "tests/unit/sim_memory_test.h"

#include <pthread.h>

/* ---- cuMemAlloc, cuMemFree ---- */

/* cuMemAlloc: "If bytesize is 0, cuMemAlloc() returns CUDA_ERROR_INVALID_VALUE"; what does not fit
 * is out of memory. */
static void sizes_that_cannot_be(void **state)
{
    CUdeviceptr pointer = 7;
    size_t before = free_bytes();

    (void)state;
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemAlloc(&pointer, 0));
    MUST_BE(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&pointer, (size_t)1 << 63));
    MUST_BE(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&pointer, SIZE_MAX));
    MUST_BE(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&pointer, 1024 * MIB));
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemAlloc(NULL, 100));
    assert_int_equal(pointer, 7);
    assert_int_equal(free_bytes(), before);
}

/* "The allocated memory is suitably aligned for any kind of variable": a GPU gives multiples of 256
 * at least, and takes memory in pages of 2 MiB that small allocations share. */
static void small_allocations_share_pages(void **state)
{
    CUdeviceptr first, second, large;
    size_t before = free_bytes();

    (void)state;
    MUST(cuMemAlloc(&first, 100));
    assert_int_equal(before - free_bytes(), PAGE);
    MUST(cuMemAlloc(&second, 1000));
    assert_int_equal(before - free_bytes(), PAGE);
    assert_int_equal(first % 256, 0);
    assert_int_equal(second % 256, 0);
    MUST(cuMemAlloc(&large, 2 * MIB + 1));
    assert_int_equal(before - free_bytes(), 3 * PAGE);
    MUST(cuMemFree(first));
    assert_int_equal(before - free_bytes(), 3 * PAGE);
    MUST(cuMemFree(second));
    MUST(cuMemFree(large));
    assert_int_equal(free_bytes(), before);
}

/* cuMemFree frees "the memory space pointed to by dptr, which must have been returned by a previous
 * call" to one of the allocating functions; else CUDA_ERROR_INVALID_VALUE. */
static void frees_that_are_wrong(void **state)
{
    CUdeviceptr pointer;
    char host[16];

    (void)state;
    MUST(cuMemAlloc(&pointer, 4096));
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemFree(pointer + 512));
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemFree((CUdeviceptr)(uintptr_t)host));
    MUST(cuMemFree(pointer));
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemFree(pointer));
    MUST(cuMemFree(0));
}

/* Capacity runs out and comes back. */
static void device_fills_up(void **state)
{
    CUdeviceptr blocks[64];
    size_t before = free_bytes();
    int count = 0;

    (void)state;
    while (count < 64 && cuMemAlloc(&blocks[count], 64 * MIB) == CUDA_SUCCESS)
        count++;
    assert_int_equal(count, before / (64 * MIB));
    MUST_BE(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&blocks[63], 64 * MIB));
    while (count > 0)
        MUST(cuMemFree(blocks[--count]));
    assert_int_equal(free_bytes(), before);
}

/* cuMemAllocPitch: "ElementSizeBytes ... must be 4, 8 or 16", else CUDA_ERROR_INVALID_VALUE. */
static void pitch_is_a_multiple_of_512(void **state)
{
    CUdeviceptr pointer;
    size_t pitch, bytes;

    (void)state;
    MUST(cuMemAllocPitch(&pointer, &pitch, 1000, 10, 4));
    assert_int_equal(pitch, 1024);
    MUST(cuMemGetAddressRange(NULL, &bytes, pointer + 5000));
    assert_int_equal(bytes, 10240);
    MUST(cuMemFree(pointer));
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemAllocPitch(&pointer, &pitch, 1000, 10, 3));
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemAllocPitch(&pointer, &pitch, 0, 10, 4));
    MUST_BE(CUDA_ERROR_OUT_OF_MEMORY,
            cuMemAllocPitch(&pointer, &pitch, (size_t)1 << 40, (size_t)1 << 40, 4));
}

/* "Either or both of the parameters pbase and psize may be NULL"; "CUDA_ERROR_NOT_FOUND" for memory
 * it does not know. */
static void address_range_of_a_pointer_inside(void **state)
{
    CUdeviceptr pointer, base;
    size_t bytes;

    (void)state;
    MUST(cuMemAlloc(&pointer, 5 * MIB));
    MUST(cuMemGetAddressRange(&base, &bytes, pointer + 4 * MIB));
    assert_int_equal(base, pointer);
    assert_int_equal(bytes, 5 * MIB);
    MUST(cuMemGetAddressRange(NULL, NULL, pointer));
    MUST_BE(CUDA_ERROR_NOT_FOUND, cuMemGetAddressRange(&base, &bytes, pointer + 5 * MIB));
    MUST(cuMemFree(pointer));
    MUST_BE(CUDA_ERROR_NOT_FOUND, cuMemGetAddressRange(&base, &bytes, pointer));
}

/* ---- copies and fills ---- */

static void copies_there_and_back(void **state)
{
    CUdeviceptr one, other;
    char out[3000], in[3000] = {0};

    (void)state;
    for (size_t i = 0; i < sizeof out; i++)
        out[i] = (char)(i * 7);
    MUST(cuMemAlloc(&one, sizeof out));
    MUST(cuMemAlloc(&other, 3 * MIB));
    MUST(cuMemcpyHtoD(one, out, sizeof out));
    MUST(cuMemcpyDtoD(other + 12345, one, sizeof out));
    MUST(cuMemcpyDtoH(in, other + 12345, sizeof in));
    assert_memory_equal(out, in, sizeof in);
    memset(in, 0, sizeof in);
    MUST(cuMemcpy((CUdeviceptr)(uintptr_t)in, one,
                  sizeof in)); /* unified addressing: the kind is inferred */
    assert_memory_equal(out, in, sizeof in);
    MUST(cuMemFree(one));
    MUST(cuMemFree(other));
}

/* A call that reports before it returns reports a wrong pointer, and the context lives on.
 */
static void copy_beyond_the_end_is_an_invalid_value(void **state)
{
    CUdeviceptr pointer;
    char host[200];

    (void)state;
    MUST(cuMemAlloc(&pointer, 100));
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD(pointer, host, sizeof host));
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemsetD8(pointer + 90, 0, 11));
    MUST(cuMemFree(pointer));
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH(host, pointer, 10));
    MUST(cuCtxSynchronize());
}

/* cuMemsetD16: "dstDevice pointer must be two byte aligned"; D32: four. */
static void fills_of_every_width(void **state)
{
    CUdeviceptr pointer;
    unsigned char bytes[64];

    (void)state;
    MUST(cuMemAlloc(&pointer, 4096));
    MUST(cuMemsetD8(pointer, 0, 4096));
    MUST(cuMemsetD8(pointer + 1, 0x11, 3));
    MUST(cuMemsetD16(pointer + 4, 0x2233, 2));
    MUST(cuMemsetD32(pointer + 8, 0x44556677, 1));
    MUST(cuMemcpyDtoH(bytes, pointer, 16));
    assert_memory_equal(bytes, "\0\x11\x11\x11\x33\x22\x33\x22\x77\x66\x55\x44\0\0\0\0", 16);
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemsetD16(pointer + 1, 0, 1));
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemsetD32(pointer + 2, 0, 1));
    MUST(cuMemsetD2D8(pointer, 16, 0xff, 2, 3));
    MUST(cuMemcpyDtoH(bytes, pointer, 48));
    for (size_t i = 0; i < 48; i++)
        assert_int_equal(bytes[i] == 0xff, i % 16 < 2);
    MUST(cuMemFree(pointer));
}

/* cuMemcpy2D: rows of WidthInBytes at pitches of their own. */
static void copies_of_two_dimensions(void **state)
{
    CUdeviceptr pointer;
    size_t pitch;
    char out[8][10], in[8][12];
    CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = out, .srcPitch = 10};

    (void)state;
    for (size_t i = 0; i < sizeof out; i++)
        ((char *)out)[i] = (char)i;
    memset(in, 0x55, sizeof in);
    MUST(cuMemAllocPitch(&pointer, &pitch, 10, 8, 4));
    copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.dstDevice = pointer;
    copy.dstPitch = pitch;
    copy.WidthInBytes = 10;
    copy.Height = 8;
    MUST(cuMemcpy2D(&copy));
    copy = (CUDA_MEMCPY2D){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                           .srcDevice = pointer,
                           .srcPitch = pitch,
                           .srcXInBytes = 2,
                           .srcY = 1,
                           .dstMemoryType = CU_MEMORYTYPE_HOST,
                           .dstHost = in,
                           .dstPitch = 12,
                           .WidthInBytes = 8,
                           .Height = 7};
    MUST(cuMemcpy2D(&copy));
    for (size_t y = 0; y < 7; y++) {
        assert_memory_equal(in[y], &out[y + 1][2], 8);
        assert_int_equal(in[y][8], 0x55);
    }
    copy.srcPitch = 5; /* "srcPitch must be greater than or equal to WidthInBytes + srcXInBytes" */
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D(&copy));
    MUST(cuMemFree(pointer));
}

/* ---- arrays ---- */

static void arrays_hold_texels(void **state)
{
    const CUDA_ARRAY_DESCRIPTOR flat = {
        .Width = 16, .Height = 4, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 2};
    CUDA_ARRAY_DESCRIPTOR got;
    CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                          .srcPitch = 128,
                          .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                          .WidthInBytes = 128,
                          .Height = 4};
    char out[512], in[512];
    size_t before = free_bytes();
    CUarray array;

    (void)state;
    for (size_t i = 0; i < sizeof out; i++)
        out[i] = (char)(i * 3);
    MUST(cuArrayCreate(&array, &flat));
    assert_true(free_bytes() < before);
    MUST(cuArrayGetDescriptor(&got, array));
    assert_memory_equal(&got, &flat, sizeof got);
    copy.srcHost = out;
    copy.dstArray = array;
    MUST(cuMemcpy2D(&copy));
    copy.Height = 5; /* more rows than the array has */
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D(&copy));
    copy = (CUDA_MEMCPY2D){.srcMemoryType = CU_MEMORYTYPE_ARRAY,
                           .srcArray = array,
                           .dstMemoryType = CU_MEMORYTYPE_HOST,
                           .dstHost = in,
                           .dstPitch = 128,
                           .WidthInBytes = 128,
                           .Height = 4};
    MUST(cuMemcpy2D(&copy));
    assert_memory_equal(in, out, sizeof in);
    MUST(cuArrayDestroy(array));
    MUST_BE(CUDA_ERROR_INVALID_HANDLE, cuArrayDestroy(array));
    assert_int_equal(free_bytes(), before);
}

/* cuMipmappedArrayCreate: levels are "clamped to the range [1, 1 + floor(log2(max(width, height,
 * depth)))]". */
static void mipmaps_have_levels_of_half_the_size(void **state)
{
    const CUDA_ARRAY3D_DESCRIPTOR base = {
        .Width = 64, .Height = 16, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 4};
    CUDA_ARRAY3D_DESCRIPTOR got;
    size_t before = free_bytes();
    CUmipmappedArray mipmap;
    CUarray level;

    (void)state;
    MUST(cuMipmappedArrayCreate(&mipmap, &base, 100));
    MUST(cuMipmappedArrayGetLevel(&level, mipmap, 5));
    MUST(cuArray3DGetDescriptor(&got, level));
    assert_int_equal(got.Width, 2);
    assert_int_equal(got.Height, 1);
    MUST(cuMipmappedArrayGetLevel(&level, mipmap, 6));
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMipmappedArrayGetLevel(&level, mipmap, 7));
    MUST(cuMipmappedArrayDestroy(mipmap));
    assert_int_equal(free_bytes(), before);
}

/* ---- host memory ---- */

/* cuMemHostRegister: "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED"; unregister: "..._NOT_REGISTERED".
 */
static void host_memory_is_registered_once(void **state)
{
    char *memory = aligned_alloc(4096, 8192);

    (void)state;
    MUST(cuMemHostRegister(memory, 8192, 0));
    MUST_BE(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, cuMemHostRegister(memory + 4096, 4096, 0));
    MUST(cuMemHostUnregister(memory));
    MUST_BE(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(memory));
    free(memory);
}

/* Under unified addressing host memory has the same address on the device. */
static void host_allocations(void **state)
{
    CUdeviceptr pointer;
    unsigned flags;
    void *memory;

    (void)state;
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemHostAlloc(&memory, 0, 0));
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemHostAlloc(&memory, 10, 0x80));
    MUST(cuMemHostAlloc(&memory, 5000, CU_MEMHOSTALLOC_PORTABLE));
    memset(memory, 3, 5000);
    MUST(cuMemHostGetDevicePointer(&pointer, memory, 0));
    assert_int_equal(pointer, (CUdeviceptr)(uintptr_t)memory);
    MUST(cuMemHostGetFlags(&flags, memory));
    assert_true(flags & CU_MEMHOSTALLOC_PORTABLE);
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemFree(pointer));
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost((char *)memory + 16));
    MUST(cuMemFreeHost(memory));
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost(memory));
}

/* ---- managed memory ---- */

/* cuMemAllocManaged: flags "must be one of CU_MEM_ATTACH_GLOBAL or CU_MEM_ATTACH_HOST". */
static void managed_memory_is_seen_by_both(void **state)
{
    size_t before = free_bytes();
    CUdeviceptr pointer;
    int preferred = 7;

    (void)state;
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemAllocManaged(&pointer, 100, CU_MEM_ATTACH_SINGLE));
    MUST(cuMemAllocManaged(&pointer, 4096, CU_MEM_ATTACH_GLOBAL));
    assert_int_equal(free_bytes(), before);
    memset((void *)(uintptr_t)pointer, 9, 4096);
    assert_int_equal(byte_at(pointer + 100), 9);
    MUST(cuMemsetD8(pointer, 4, 4096));
    assert_int_equal(*(unsigned char *)(uintptr_t)(pointer + 4095), 4);
    MUST(cuMemRangeGetAttribute(&preferred, sizeof preferred,
                                CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, pointer, 4096));
    assert_int_equal(preferred, CU_DEVICE_INVALID);
    MUST(cuMemFree(pointer));
}

/* ---- attributes ---- */

static void attributes_of_device_memory(void **state)
{
    unsigned type = 0, managed = 7, ipc = 0;
    CUdeviceptr start, pointer;
    CUcontext context, current;
    size_t bytes;
    int ordinal;
    uint64_t id, other_id;
    CUdeviceptr other;

    (void)state;
    MUST(cuMemAlloc(&pointer, 1000));
    MUST(cuMemAlloc(&other, 1000));
    MUST(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer + 10));
    assert_int_equal(type, CU_MEMORYTYPE_DEVICE);
    MUST(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, pointer));
    assert_int_equal(managed, 0);
    MUST(cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, pointer + 999));
    assert_int_equal(start, pointer);
    MUST(cuPointerGetAttribute(&bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, pointer));
    assert_int_equal(bytes, 1000);
    MUST(cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, pointer));
    MUST(cuCtxGetCurrent(&current));
    assert_ptr_equal(context, current);
    MUST(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, pointer));
    assert_int_equal(ordinal, 0);
    MUST(cuPointerGetAttribute(&ipc, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, pointer));
    assert_int_equal(ipc, 1);
    MUST(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, pointer));
    MUST(cuPointerGetAttribute(&other_id, CU_POINTER_ATTRIBUTE_BUFFER_ID, other));
    assert_int_not_equal(id, other_id);
    MUST_BE(CUDA_ERROR_INVALID_VALUE,
            cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_HOST_POINTER, pointer));
    MUST(cuMemFree(pointer));
    MUST(cuMemFree(other));
    MUST_BE(CUDA_ERROR_INVALID_VALUE,
            cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer));
}

/* cuPointerGetAttributes: an unknown pointer is no error; "the attributes are assigned default NULL
 * values". */
static void attributes_of_an_unknown_pointer_are_null(void **state)
{
    CUpointer_attribute wanted[] = {CU_POINTER_ATTRIBUTE_CONTEXT, CU_POINTER_ATTRIBUTE_MEMORY_TYPE};
    CUcontext context = (CUcontext)(uintptr_t)1;
    unsigned type = 9;
    void *data[] = {&context, &type};
    char host[8];

    (void)state;
    MUST(cuPointerGetAttributes(2, wanted, data, (CUdeviceptr)(uintptr_t)host));
    assert_null(context);
    assert_int_equal(type, 0);
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                                            (CUdeviceptr)(uintptr_t)host));
}

/* ---- many ---- */

/* Random allocations and frees: addresses never overlap, contents stay, and all comes back. The
 * seed is fixed. */
static void random_allocations_keep_their_contents(void **state)
{
    enum { SLOTS = 200 };
    static CUdeviceptr pointers[SLOTS];
    static size_t sizes[SLOTS];
    size_t before = free_bytes();
    unsigned seed = 12345;

    (void)state;
    for (int step = 0; step < 3000; step++) {
        int slot = rand_r(&seed) % SLOTS;

        if (pointers[slot] != 0) {
            assert_int_equal(byte_at(pointers[slot]), slot);
            assert_int_equal(byte_at(pointers[slot] + sizes[slot] - 1), slot);
            MUST(cuMemFree(pointers[slot]));
            pointers[slot] = 0;
            continue;
        }
        sizes[slot] = 1 + (size_t)rand_r(&seed) % (rand_r(&seed) % 4 == 0 ? 3 * MIB : 20000);
        MUST(cuMemAlloc(&pointers[slot], sizes[slot]));
        MUST(cuMemsetD8(pointers[slot], (unsigned char)slot, sizes[slot]));
    }
    for (int slot = 0; slot < SLOTS; slot++)
        MUST(cuMemFree(pointers[slot]));
    assert_int_equal(free_bytes(), before);
}

/* The calls of one of several threads: every kind, its own memory, its own stream. */
static void *use_memory(void *argument)
{
    CUcontext context = argument;
    uintptr_t wrong = 0;
    CUstream stream;

    wrong += cuCtxSetCurrent(context) != 0;
    wrong += cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) != 0;
    for (int i = 0; i < 40; i++) {
        CUdeviceptr plain, pooled;
        unsigned char byte = 0;

        wrong += cuMemAlloc(&plain, (size_t)(i % 7) * 300000 + 1) != 0;
        wrong += cuMemAllocAsync(&pooled, 70000, stream) != 0;
        wrong += cuMemsetD8Async(pooled, (unsigned char)i, 70000, stream) != 0;
        wrong += cuMemcpyDtoDAsync(plain, pooled + 69999, 1, stream) != 0;
        wrong += cuMemFreeAsync(pooled, stream) != 0;
        wrong += cuStreamSynchronize(stream) != 0;
        wrong += cuMemcpyDtoH(&byte, plain, 1) != 0;
        wrong += byte != i;
        wrong += cuMemFree(plain) != 0;
    }
    wrong += cuStreamDestroy(stream) != 0;
    return (void *)wrong;
}

static void threads_do_not_disturb_each_other(void **state)
{
    enum { THREADS = 4 };
    size_t before = free_bytes();
    pthread_t threads[THREADS];
    CUcontext context;

    (void)state;
    MUST(cuCtxGetCurrent(&context));
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, use_memory, context), 0);
    for (int i = 0; i < THREADS; i++) {
        void *wrong;

        pthread_join(threads[i], &wrong);
        assert_null(wrong);
    }
    MUST(cuCtxSynchronize());
    assert_int_equal(free_bytes(), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_that_cannot_be),
        cmocka_unit_test(small_allocations_share_pages),
        cmocka_unit_test(frees_that_are_wrong),
        cmocka_unit_test(device_fills_up),
        cmocka_unit_test(pitch_is_a_multiple_of_512),
        cmocka_unit_test(address_range_of_a_pointer_inside),
        cmocka_unit_test(copies_there_and_back),
        cmocka_unit_test(copy_beyond_the_end_is_an_invalid_value),
        cmocka_unit_test(fills_of_every_width),
        cmocka_unit_test(copies_of_two_dimensions),
        cmocka_unit_test(arrays_hold_texels),
        cmocka_unit_test(mipmaps_have_levels_of_half_the_size),
        cmocka_unit_test(host_memory_is_registered_once),
        cmocka_unit_test(host_allocations),
        cmocka_unit_test(managed_memory_is_seen_by_both),
        cmocka_unit_test(attributes_of_device_memory),
        cmocka_unit_test(attributes_of_an_unknown_pointer_are_null),
        cmocka_unit_test(random_allocations_keep_their_contents),
        cmocka_unit_test(threads_do_not_disturb_each_other),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    if (start_device("1") != 0)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
