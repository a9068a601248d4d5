/* The simulated driver: what real drivers do and its default does not, by its variables. Those are
 * read once, so each case runs in a child that is forked before the first driver call. */
#include "tests/unit/sim_test.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#define MIB (UINT64_C(1) << 20)
#define PAGE (2 * MIB)

#define EXPECT(call, expected)                                                                     \
    do {                                                                                           \
        int got = (int)(call);                                                                     \
        if (got != (int)(expected)) {                                                              \
            fprintf(stderr, "line %d: %s: %d\n", __LINE__, #call, got);                            \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)
#define EXPECT_CUDA(call) EXPECT(call, CUDA_SUCCESS)
#define EXPECT_TRUE(condition) EXPECT((condition) ? 0 : 1, 0)

static void run(const char *name, const char *value, void (*body)(void))
{
    int status;
    pid_t child = fork();

    if (child == 0) {
        setenv("SIMCUDA_DEVICES", "2", 1);
        setenv(name, value, 1);
        body();
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* ---- mapped memory ---- */

static CUresult set_access(CUdeviceptr address, uint64_t bytes, CUdevice device)
{
    const CUmemAccessDesc desc = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, device},
                                  .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

    return cuMemSetAccess(address, bytes, &desc, 1);
}

static CUmemGenericAllocationHandle create(CUdevice device, bool has_rdma)
{
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, device},
                                .allocFlags.gpuDirectRDMACapable = has_rdma};
    CUmemGenericAllocationHandle handle;

    EXPECT_CUDA(cuMemCreate(&handle, PAGE, &prop, 0));
    return handle;
}

static CUdeviceptr reserve(uint64_t bytes)
{
    CUdeviceptr address;

    EXPECT_CUDA(cuMemAddressReserve(&address, bytes, 0, 0, 0));
    return address;
}

static CUdeviceptr map(CUdevice device)
{
    CUdeviceptr address = reserve(PAGE);

    EXPECT_CUDA(cuMemMap(address, PAGE, 0, create(device, false), 0));
    EXPECT_CUDA(set_access(address, PAGE, device));
    return address;
}

/* ---- devices that are no peers ---- */

static void make_contexts(CUcontext contexts[2])
{
    EXPECT_CUDA(cuInit(0));
    for (int i = 1; i >= 0; i--)
        EXPECT_CUDA(cuCtxCreate(&contexts[i], NULL, 0, i));
}

static void child_no_peers(void)
{
    CUcontext contexts[2];
    CUdeviceptr mapped[2], plain[2];
    int can = 1, value = 1, word = 0;

    make_contexts(contexts);
    EXPECT_CUDA(cuDeviceCanAccessPeer(&can, 0, 1));
    EXPECT(can, 0);
    EXPECT_CUDA(cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 1));
    EXPECT(value, 0);
    EXPECT(cuCtxEnablePeerAccess(contexts[1], 0), CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
    for (int i = 0; i < 2; i++) {
        EXPECT_CUDA(cuCtxSetCurrent(contexts[i]));
        EXPECT_CUDA(cuMemAlloc(&plain[i], PAGE));
        mapped[i] = map(i);
        EXPECT_CUDA(cuMemsetD32(mapped[i], 100u + (unsigned)i, PAGE / 4));
        EXPECT_CUDA(cuCtxSynchronize());
    }
    EXPECT_CUDA(cuCtxSetCurrent(contexts[0]));
    EXPECT(set_access(mapped[0], PAGE, 1), CUDA_ERROR_INVALID_VALUE);
    /* Copies that name no context are refused at once and leave no error behind. */
    EXPECT(cuMemcpyDtoDAsync(mapped[1], mapped[0], PAGE, NULL), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMemcpyAsync(mapped[0], mapped[1], PAGE, NULL), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMemcpyDtoD(mapped[1], mapped[0], PAGE), CUDA_ERROR_INVALID_VALUE);
    const CUDA_MEMCPY2D shaped = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                  .srcDevice = mapped[1],
                                  .srcPitch = 64,
                                  .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                  .dstDevice = mapped[0],
                                  .dstPitch = 64,
                                  .WidthInBytes = 4,
                                  .Height = 2};
    EXPECT(cuMemcpy2DAsync(&shaped, NULL), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CUDA(cuCtxSynchronize());
    EXPECT_CUDA(cuMemcpyDtoD(plain[0], plain[1], PAGE)); /* by way of the host */
    EXPECT_CUDA(cuMemcpyPeerAsync(mapped[0], contexts[0], mapped[1], contexts[1], PAGE, NULL));
    EXPECT_CUDA(cuMemcpyDtoH(&word, mapped[0], sizeof word));
    EXPECT(word, 101);
}

static void devices_that_are_no_peers(void **state)
{
    (void)state;
    run("SIMCUDA_PEERS", "none", child_no_peers);
}

/* ---- GPUDirect RDMA ---- */

static CUresult rdma_results[2]; /* of the handle's first address, and of its second */

static void child_rdma(void)
{
    CUcontext contexts[2];
    CUdeviceptr first, second;
    CUmemGenericAllocationHandle handle;
    int supported = 0, capable = 0;

    make_contexts(contexts);
    handle = create(0, true);
    first = reserve(PAGE);
    second = reserve(PAGE);
    EXPECT_CUDA(cuDeviceGetAttribute(
        &supported, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, 0));
    EXPECT(supported, 1);
    EXPECT_CUDA(cuMemMap(first, PAGE, 0, handle, 0));
    EXPECT_CUDA(cuMemMap(second, PAGE, 0, handle, 0));
    EXPECT(set_access(first, PAGE, 0), rdma_results[0]);
    EXPECT(set_access(second, PAGE, 0), rdma_results[1]);
    EXPECT_CUDA(
        cuPointerGetAttribute(&capable, CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, first));
    EXPECT(capable, 1);
    EXPECT_CUDA(cuMemUnmap(first, PAGE)); /* the other may be registered instead */
    EXPECT(set_access(second, PAGE, 0), rdma_results[0]);
    first = map(0);
    EXPECT_CUDA(
        cuPointerGetAttribute(&capable, CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, first));
    EXPECT(capable, 0);
}

static void memory_for_rdma(void **state)
{
    (void)state;
    rdma_results[0] = rdma_results[1] = CUDA_SUCCESS;
    run("SIMCUDA_RDMA", "yes", child_rdma);
    rdma_results[1] = CUDA_ERROR_UNKNOWN;
    run("SIMCUDA_RDMA", "once", child_rdma);
    rdma_results[0] = CUDA_ERROR_UNKNOWN;
    run("SIMCUDA_RDMA", "refused", child_rdma);
}

/* ---- look-ups ---- */

static void *look_up(const char *name, int version, cuuint64_t flags)
{
    void *address;

    EXPECT_CUDA(cuGetProcAddress_v2(name, &address, version, flags, NULL));
    return address;
}

static void child_looks_up(void)
{
    CUresult (*get_count)(int *) = NULL;
    int count = 0;

    EXPECT_CUDA(cuInit(0));
    *(void **)&get_count = look_up("cuDeviceGetCount", 2000, 0);
    EXPECT_TRUE(get_count != cuDeviceGetCount);
    EXPECT_CUDA(get_count(&count));
    EXPECT(count, 2);
    /* one address for one ABI */
    EXPECT_TRUE(look_up("cuStreamQuery", 2000, 0) == look_up("cuStreamQuery", 13000, 0));
    EXPECT_TRUE(look_up("cuStreamQuery", 13000, 0) !=
                look_up("cuStreamQuery", 13000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM));
    EXPECT_TRUE(look_up("cuMemAlloc", 2000, 0) != look_up("cuMemAlloc", 3020, 0));
}

static void looked_up_addresses_are_not_the_exported(void **state)
{
    (void)state;
    run("SIMCUDA_LOOKUPS", "apart", child_looks_up);
}

/* ---- time ---- */

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void child_pays_for_handles(void)
{
    CUcontext contexts[2];
    CUdeviceptr range;
    double start;

    make_contexts(contexts);
    range = reserve(4 * PAGE);
    for (int i = 0; i < 4; i++)
        EXPECT_CUDA(cuMemMap(range + (unsigned)i * PAGE, PAGE, 0, create(0, false), 0));
    start = seconds_now();
    EXPECT_CUDA(set_access(range, 4 * PAGE, 0));
    EXPECT_TRUE(seconds_now() - start >= 0.04);
    start = seconds_now();
    EXPECT_CUDA(cuMemUnmap(range, 4 * PAGE));
    EXPECT_TRUE(seconds_now() - start >= 0.02);
}

static void access_and_unmapping_cost_by_the_handle(void **state)
{
    (void)state;
    run("SIMCUDA_LATENCY", "cuMemSetAccess=10000,cuMemUnmap=5000", child_pays_for_handles);
}

/* Each call of CUDA's list that returns when it is done. */
static CUresult make_waiting_call(int which, CUdeviceptr mapped)
{
    static char words[4096] __attribute__((aligned(4096)));
    const CUDA_ARRAY_DESCRIPTOR plane = {16, 16, CU_AD_FORMAT_FLOAT, 1};
    const CUDA_ARRAY3D_DESCRIPTOR volume = {16, 16, 16, CU_AD_FORMAT_FLOAT, 1, 0};
    CUdeviceptr address;
    size_t pitch;
    void *host;
    CUarray array;
    CUmipmappedArray levels;

    switch (which) {
    case 0:
        return cuMemAlloc(&address, PAGE);
    case 1:
        return cuMemAllocPitch(&address, &pitch, 100, 100, 4);
    case 2:
        return cuMemAllocManaged(&address, PAGE, CU_MEM_ATTACH_GLOBAL);
    case 3:
        return cuArrayCreate(&array, &plane);
    case 4:
        return cuArray3DCreate(&array, &volume);
    case 5:
        return cuMipmappedArrayCreate(&levels, &volume, 2);
    case 6:
        return cuMemHostAlloc(&host, 4096, 0);
    case 7:
        return cuMemAllocHost(&host, 4096);
    case 8:
        return cuMemHostRegister(words, sizeof words, 0);
    case 9:
        return cuCtxSetCacheConfig(CU_FUNC_CACHE_PREFER_L1);
    default:
        return cuMemUnmap(mapped, PAGE);
    }
}
enum { WAITING_CALLS = 11 };

static void child_waits(void)
{
    static struct gate gate;
    CUcontext contexts[2];
    CUdeviceptr address, mapped;
    CUstream stream;
    double start;

    make_contexts(contexts);
    mapped = map(0);
    EXPECT_CUDA(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    start = seconds_now();
    EXPECT_CUDA(cuMemAlloc(&address, PAGE));
    EXPECT_TRUE(seconds_now() - start < 0.03); /* there is no work */
    EXPECT_CUDA(cuLaunchHostFunc(stream, wait_at_gate, &gate));
    for (int which = 0; which < WAITING_CALLS; which++) {
        start = seconds_now();
        EXPECT_CUDA(make_waiting_call(which, mapped));
        EXPECT_TRUE(seconds_now() - start >= 0.03);
    }
    atomic_store(&gate.is_open, true);
    EXPECT_CUDA(cuCtxSynchronize());
}

static void calls_wait_for_the_devices_work(void **state)
{
    (void)state;
    run("SIMCUDA_WAIT_US", "30000", child_waits);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_that_are_no_peers),
        cmocka_unit_test(memory_for_rdma),
        cmocka_unit_test(looked_up_addresses_are_not_the_exported),
        cmocka_unit_test(access_and_unmapping_cost_by_the_handle),
        cmocka_unit_test(calls_wait_for_the_devices_work),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
