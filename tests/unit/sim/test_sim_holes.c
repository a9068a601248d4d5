/* Copies of the simulated device leave memory alone that was never written, and their content is
 * right nevertheless: every kind of memory to every other, at random places, over stale content,
 * against a plain model. */
#include "tests/unit/sim_memory_test.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#define BYTES (6 * MIB)
#define ROUNDS 400
#define HOST_PAGE ((size_t)4096)

enum kind {
    PLAIN,
    MAPPED,
    HOSTED,
    POOLED,
    MANAGED,
    PINNED,
    REGISTERED,
    PAGEABLE,
    FILED,
    KIND_COUNT
};

/* Memory of a kind, and what it must hold. */
struct area {
    CUdeviceptr address;
    unsigned char *model;
};

static struct area areas[2][KIND_COUNT];

static unsigned char *host_of(CUdeviceptr address)
{
    return (unsigned char *)(uintptr_t)address; /* NOLINT: device memory is host memory */
}

/* Of handles of different sizes, side by side. */
static CUdeviceptr map_pieces(CUmemLocationType type)
{
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = type}};
    const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    const size_t sizes[] = {PAGE, 2 * PAGE};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
    size_t at = 0;

    MUST(cuMemAddressReserve(&address, BYTES, 0, 0, 0));
    for (int i = 0; i < 2; i++) {
        MUST(cuMemCreate(&handle, sizes[i], &prop, 0));
        MUST(cuMemMap(address + at, sizes[i], 0, handle, 0));
        MUST(cuMemRelease(handle));
        at += sizes[i];
    }
    MUST(cuMemSetAccess(address, BYTES, &access, 1));
    return address;
}

/* Half of it is registered, and that not at the page's beginning. */
static CUdeviceptr register_part(void)
{
    char *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    assert_true(memory != MAP_FAILED);
    MUST(cuMemHostRegister(memory + 100, BYTES / 2, 0));
    return (CUdeviceptr)(uintptr_t)memory;
}

/* Private memory of a file: what was not touched is not zero. */
static CUdeviceptr map_file(void)
{
    FILE *file = tmpfile();
    char *memory;

    assert_non_null(file);
    for (size_t i = 0; i < BYTES; i++)
        putc('f', file);
    fflush(file);
    memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE, fileno(file), 0);
    assert_true(memory != MAP_FAILED);
    fclose(file);
    MUST(cuMemHostRegister(memory, BYTES, 0));
    return (CUdeviceptr)(uintptr_t)memory;
}

static CUdeviceptr allocate(enum kind kind)
{
    CUdeviceptr address = 0;
    void *memory;

    switch (kind) {
    case PLAIN:
        MUST(cuMemAlloc(&address, BYTES));
        break;
    case MAPPED:
        return map_pieces(CU_MEM_LOCATION_TYPE_DEVICE);
    case HOSTED: /* of the host; that has no type of its own in old headers */
        return map_pieces(CUDA_VERSION >= 12020 ? (CUmemLocationType)3
                                                : CU_MEM_LOCATION_TYPE_DEVICE);
    case POOLED:
        MUST(cuMemAllocAsync(&address, BYTES, NULL));
        MUST(cuCtxSynchronize());
        break;
    case MANAGED:
        MUST(cuMemAllocManaged(&address, BYTES, CU_MEM_ATTACH_GLOBAL));
        break;
    case PINNED:
        MUST(cuMemHostAlloc(&memory, BYTES, 0));
        return (CUdeviceptr)(uintptr_t)memory;
    case REGISTERED:
        return register_part();
    case FILED:
        return map_file();
    default:
        memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert_true(memory != MAP_FAILED);
        return (CUdeviceptr)(uintptr_t)memory;
    }
    return address;
}

static void open_areas(void)
{
    for (int side = 0; side < 2; side++)
        for (int kind = 0; kind < KIND_COUNT; kind++) {
            struct area *area = &areas[side][kind];

            area->address = allocate((enum kind)kind);
            area->model = calloc(1, BYTES);
            assert_non_null(area->model);
            if (kind == FILED)
                memset(area->model, 'f', BYTES);
        }
}

static size_t random_below(size_t bound)
{
    return ((size_t)random() << 20 ^ (size_t)random()) % bound;
}

/* A few bytes here and there. */
static void scribble(struct area *area)
{
    for (unsigned i = 0; i < 5; i++) {
        const size_t at = random_below(BYTES - 64), count = 1 + random_below(64);
        const int value = (int)random_below(256);

        memset(host_of(area->address + at), value, count);
        memset(area->model + at, value, count);
    }
}

static void copy_at_random(struct area *to, struct area *from)
{
    size_t bytes = 1 + random_below(BYTES), to_at, from_at;
    const bool is_aligned = random_below(2) == 0;

    to_at = random_below(BYTES - bytes + 1);
    from_at = random_below(BYTES - bytes + 1);
    if (is_aligned) {
        to_at -= to_at % HOST_PAGE;
        from_at -= from_at % HOST_PAGE;
    }
    MUST(cuMemcpy(to->address + to_at, from->address + from_at, bytes));
    MUST(cuCtxSynchronize());
    memmove(to->model + to_at, from->model + from_at, bytes);
}

static void assert_content(const struct area *area, int kind, unsigned round)
{
    if (memcmp(host_of(area->address), area->model, BYTES) != 0)
        fail_msg("the content of kind %d is wrong after round %u", kind, round);
}

static void any_kind_is_copied_to_any_other(void **state)
{
    const unsigned seed = (unsigned)getpid();

    (void)state;
    print_message("# seed %u\n", seed);
    srandom(seed);
    open_areas();
    for (unsigned round = 0; round < ROUNDS; round++) {
        const int from = (int)random_below(KIND_COUNT), to = (int)random_below(KIND_COUNT);

        scribble(&areas[0][from]);
        scribble(&areas[1][to]);
        copy_at_random(&areas[1][to], &areas[0][from]);
        if (round % 8 == 0)
            assert_content(&areas[1][to], to, round);
        if (random_below(4) == 0)
            copy_at_random(&areas[0][from], &areas[1][to]);
        if (random_below(4) == 0) /* within itself */
            copy_at_random(&areas[1][to], &areas[1][to]);
    }
    for (int side = 0; side < 2; side++)
        for (int kind = 0; kind < KIND_COUNT; kind++)
            assert_content(&areas[side][kind], kind, ROUNDS);
}

/* The same physical memory at two addresses is not taken from under itself. */
static void memory_at_two_addresses_is_copied_whole(void **state)
{
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    const CUmemAccessDesc access = {.location = prop.location,
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr addresses[2];

    (void)state;
    MUST(cuMemCreate(&handle, PAGE, &prop, 0));
    for (int i = 0; i < 2; i++) {
        MUST(cuMemAddressReserve(&addresses[i], PAGE, 0, 0, 0));
        MUST(cuMemMap(addresses[i], PAGE, 0, handle, 0));
        MUST(cuMemSetAccess(addresses[i], PAGE, &access, 1));
    }
    *host_of(addresses[0] + MIB) = 5;
    MUST(cuMemcpy(addresses[1], addresses[0], PAGE));
    MUST(cuCtxSynchronize());
    assert_int_equal(byte_at(addresses[0] + MIB), 5);
    assert_int_equal(byte_at(addresses[1]), 0);
    for (int i = 0; i < 2; i++) {
        MUST(cuMemUnmap(addresses[i], PAGE));
        MUST(cuMemAddressFree(addresses[i], PAGE));
    }
    MUST(cuMemRelease(handle));
}

/* Pages that the process has, of memory and of files. */
static size_t resident_bytes(void)
{
    FILE *file = fopen("/proc/self/statm", "re");
    unsigned long total, resident;

    assert_non_null(file);
    assert_int_equal(fscanf(file, "%lu %lu", &total, &resident), 2);
    fclose(file);
    return resident * (size_t)sysconf(_SC_PAGESIZE);
}

/* Out and in again of 256 MiB with a word in each 8 MiB; then over content that must go. */
static void holes_cost_no_memory(void **state)
{
    const size_t bytes = 256 * MIB;
    CUdeviceptr device, other;
    size_t before;
    void *memory;

    (void)state;
    MUST(cuMemAlloc(&device, bytes));
    MUST(cuMemAlloc(&other, bytes));
    MUST(cuMemHostAlloc(&memory, bytes, 0));
    for (size_t at = 0; at < bytes; at += 8 * MIB)
        memcpy(host_of(device + at), &at, sizeof at);
    before = resident_bytes();
    MUST(cuMemcpyDtoH(memory, device, bytes));
    MUST(cuMemcpyHtoD(other, memory, bytes));
    MUST(cuCtxSynchronize());
    assert_true(resident_bytes() < before + 4 * MIB);
    for (size_t at = 0; at < bytes; at += 8 * MIB)
        assert_memory_equal(host_of(other + at), &at, sizeof at);
    memset(memory, 1, bytes);
    before = resident_bytes();
    MUST(cuMemcpyDtoH(memory, device, bytes));
    assert_true(resident_bytes() + bytes / 2 < before);
    assert_int_equal(((unsigned char *)memory)[5 * MIB], 0);
    MUST(cuMemFreeHost(memory));
    MUST(cuMemFree(other));
    MUST(cuMemFree(device));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_kind_is_copied_to_any_other),
        cmocka_unit_test(memory_at_two_addresses_is_copied_whole),
        cmocka_unit_test(holes_cost_no_memory),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    if (start_device("1") != 0)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
