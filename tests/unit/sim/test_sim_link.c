/* The simulated link between device and host (SIMCUDA_LINK): how long copies take, alone and beside
 * others, of this process and of another. The memory is sparse, so the machine's own memory takes
 * no part. Bounds from above are loose: the machine may be busy. */
#include "tests/unit/sim_child.h"

#include <stdbool.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#define OUT_RATE 1e9 /* bytes a second, as SIMCUDA_LINK has it below */
#define IN_RATE 5e8
#define SLOW 1.5
#define LATE_S 0.15

static struct child rival; /* forked by main, before the driver starts here */

struct sides {
    CUdeviceptr device;
    char *pinned;
    char *pageable;
    CUstream streams[2];
    CUevent event;
};

static double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void open_sides(struct sides *sides, size_t bytes)
{
    void *pinned;

    MUST(cuMemAlloc(&sides->device, bytes));
    MUST(cuMemHostAlloc(&pinned, bytes, 0));
    sides->pinned = pinned;
    sides->pageable = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(sides->pageable != MAP_FAILED);
    for (int i = 0; i < 2; i++)
        MUST(cuStreamCreate(&sides->streams[i], CU_STREAM_NON_BLOCKING));
    MUST(cuEventCreate(&sides->event, CU_EVENT_DISABLE_TIMING));
}

static void close_sides(const struct sides *sides, size_t bytes)
{
    MUST(cuEventDestroy(sides->event));
    for (int i = 0; i < 2; i++)
        MUST(cuStreamDestroy(sides->streams[i]));
    munmap(sides->pageable, bytes);
    MUST(cuMemFreeHost(sides->pinned));
    MUST(cuMemFree(sides->device));
}

static void assert_time(double taken, double modelled)
{
    print_message("# modelled %.4f s, taken %.4f s\n", modelled, taken);
    assert_true(taken >= modelled * 0.999);
    assert_true(taken < modelled * SLOW + LATE_S);
}

/* "cudaMemcpy … bandwidth of the bus": each direction has its own, pageable memory half of it. */
static void a_copy_takes_its_bytes_over_the_bandwidth(void **state)
{
    const size_t bytes = 128 * MIB;
    struct sides sides;
    double start;

    (void)state;
    open_sides(&sides, bytes);
    start = now();
    MUST(cuMemcpyDtoH(sides.pinned, sides.device, bytes));
    assert_time(now() - start, (double)bytes / OUT_RATE);
    start = now();
    MUST(cuMemcpyHtoD(sides.device, sides.pinned, bytes / 2));
    assert_time(now() - start, (double)bytes / 2 / IN_RATE);
    start = now();
    MUST(cuMemcpyDtoH(sides.pageable, sides.device, bytes / 8)); /* holes of it are filled */
    assert_time(now() - start, (double)bytes / 4 / OUT_RATE);
    start = now();
    MUST(cuMemcpyHtoD(sides.device, sides.pageable, bytes / 8));
    assert_time(now() - start, (double)bytes / 4 / IN_RATE);
    close_sides(&sides, bytes);
}

#if CUDA_VERSION >= 12020
/* Mapped memory of the host is pinned memory. */
static void mapped_memory_of_the_host_is_far(void **state)
{
    const size_t bytes = 64 * MIB;
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA}};
    const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr mapped;
    struct sides sides;
    double start;

    (void)state;
    open_sides(&sides, bytes);
    MUST(cuMemCreate(&handle, bytes, &prop, 0));
    MUST(cuMemAddressReserve(&mapped, bytes, 0, 0, 0));
    MUST(cuMemMap(mapped, bytes, 0, handle, 0));
    MUST(cuMemSetAccess(mapped, bytes, &access, 1));
    start = now();
    MUST(cuMemcpyDtoDAsync(mapped, sides.device, bytes, sides.streams[0]));
    MUST(cuStreamSynchronize(sides.streams[0]));
    assert_time(now() - start, (double)bytes / OUT_RATE);
    start = now();
    MUST(cuMemcpyDtoDAsync(sides.device, mapped, bytes / 2, sides.streams[0]));
    MUST(cuStreamSynchronize(sides.streams[0]));
    assert_time(now() - start, (double)bytes / 2 / IN_RATE);
    start = now();
    MUST(cuMemcpyDtoDAsync(mapped, (CUdeviceptr)(uintptr_t)sides.pinned, bytes, sides.streams[0]));
    MUST(cuStreamSynchronize(sides.streams[0]));
    assert_true(now() - start < (double)bytes / OUT_RATE);
    MUST(cuMemUnmap(mapped, bytes));
    MUST(cuMemAddressFree(mapped, bytes));
    MUST(cuMemRelease(handle));
    close_sides(&sides, bytes);
}
#endif

static void two_and_three_dimensions_take_theirs(void **state)
{
    const size_t bytes = 64 * MIB;
    CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstMemoryType = CU_MEMORYTYPE_HOST,
                          .srcPitch = 4 * MIB,
                          .dstPitch = 2 * MIB,
                          .WidthInBytes = 2 * MIB,
                          .Height = 16};
    struct sides sides;
    double start;

    (void)state;
    open_sides(&sides, bytes);
    copy.srcDevice = sides.device;
    copy.dstHost = sides.pinned;
    start = now();
    MUST(cuMemcpy2D(&copy));
    assert_time(now() - start, (double)bytes / 2 / OUT_RATE);
    close_sides(&sides, bytes);
}

static void copies_within_the_device_pass_no_link(void **state)
{
    CUdeviceptr from, to;
    const double start = now();

    (void)state;
    MUST(cuMemAlloc(&from, 256 * MIB));
    MUST(cuMemAlloc(&to, 256 * MIB));
    MUST(cuMemcpyDtoD(to, from, 256 * MIB));
    MUST(cuCtxSynchronize());
    assert_true(now() - start < 256e6 / OUT_RATE);
    MUST(cuMemFree(to));
    MUST(cuMemFree(from));
}

/* "The device can copy memory in both directions concurrently" (asyncEngineCount 2). */
static void the_directions_do_not_slow_each_other(void **state)
{
    const size_t bytes = 128 * MIB;
    struct sides sides;
    double start;

    (void)state;
    open_sides(&sides, bytes);
    start = now();
    MUST(cuMemcpyDtoHAsync(sides.pinned, sides.device, bytes, sides.streams[0]));
    MUST(cuMemcpyHtoDAsync(sides.device + bytes / 2, sides.pinned + bytes / 2, bytes / 2,
                           sides.streams[1]));
    MUST(cuCtxSynchronize());
    assert_time(now() - start, (double)bytes / OUT_RATE);
    close_sides(&sides, bytes);
}

/* A short copy need not wait for the end of a long one that began before; together they take as
 * long as one after the other. */
static void streams_share_a_direction(void **state)
{
    const size_t bytes = 256 * MIB, few = 16 * MIB;
    struct sides sides;
    double start, short_end;

    (void)state;
    open_sides(&sides, bytes + few);
    start = now();
    MUST(cuMemcpyDtoHAsync(sides.pinned, sides.device, bytes, sides.streams[0]));
    MUST(cuMemcpyDtoHAsync(sides.pinned + bytes, sides.device + bytes, few, sides.streams[1]));
    MUST(cuStreamSynchronize(sides.streams[1]));
    short_end = now() - start;
    MUST(cuStreamSynchronize(sides.streams[0]));
    assert_time(now() - start, (double)(bytes + few) / OUT_RATE);
    assert_true(short_end < (double)bytes / OUT_RATE * 0.8);
    close_sides(&sides, bytes + few);
}

/* What is queued runs without gaps, though a worker wakes later than it meant to. */
static void many_short_copies_lose_nothing(void **state)
{
    const size_t bytes = 256 * MIB;
    struct sides sides;
    double start;

    (void)state;
    open_sides(&sides, bytes);
    start = now();
    for (size_t at = 0; at < bytes; at += 256 << 10) {
        MUST(cuMemcpyDtoHAsync(sides.pinned + at, sides.device + at, 256 << 10, sides.streams[0]));
        MUST(cuEventRecord(sides.event, sides.streams[0]));
    }
    MUST(cuStreamSynchronize(sides.streams[0]));
    assert_time(now() - start, (double)bytes / OUT_RATE);
    close_sides(&sides, bytes);
}

static void rest(void *argument)
{
    (void)argument;
    usleep(100000);
}

/* Time that the stream waited, or worked, is not taken from a copy's. */
static void a_copy_begins_behind_what_it_waits_for(void **state)
{
    const size_t bytes = 64 * MIB;
    struct sides sides;
    double start;

    (void)state;
    open_sides(&sides, bytes);
    MUST(cuMemcpyDtoHAsync(sides.pinned, sides.device, MIB, sides.streams[0]));
    MUST(cuStreamSynchronize(sides.streams[0]));
    start = now();
    MUST(cuLaunchHostFunc(sides.streams[1], rest, NULL));
    MUST(cuEventRecord(sides.event, sides.streams[1]));
    MUST(cuMemcpyDtoHAsync(sides.pinned, sides.device, MIB, sides.streams[0]));
    MUST(cuStreamWaitEvent(sides.streams[0], sides.event, 0));
    MUST(cuMemcpyDtoHAsync(sides.pinned, sides.device, bytes, sides.streams[0]));
    MUST(cuStreamSynchronize(sides.streams[0]));
    assert_time(now() - start, 0.1 + (double)bytes / OUT_RATE);
    start = now();
    MUST(cuMemcpyDtoHAsync(sides.pinned, sides.device, MIB, sides.streams[0]));
    MUST(cuLaunchHostFunc(sides.streams[0], rest, NULL));
    MUST(cuMemcpyDtoHAsync(sides.pinned, sides.device, bytes, sides.streams[0]));
    MUST(cuStreamSynchronize(sides.streams[0]));
    assert_time(now() - start, 0.1 + (double)(bytes + MIB) / OUT_RATE);
    close_sides(&sides, bytes);
}

/* A graph's copies begin at its launch. */
static void a_graph_takes_its_time_at_each_launch(void **state)
{
    const size_t bytes = 64 * MIB;
    struct sides sides;
    CUgraph graph;
    CUgraphExec instance;
    double start;

    (void)state;
    open_sides(&sides, bytes);
    MUST(cuStreamBeginCapture(sides.streams[0], CU_STREAM_CAPTURE_MODE_RELAXED));
    MUST(cuMemcpyDtoHAsync(sides.pinned, sides.device, bytes, sides.streams[0]));
    MUST(cuStreamEndCapture(sides.streams[0], &graph));
    MUST(cuGraphInstantiate(&instance, graph, 0));
    for (int i = 0; i < 2; i++) {
        start = now();
        MUST(cuGraphLaunch(instance, sides.streams[0]));
        MUST(cuStreamSynchronize(sides.streams[0]));
        assert_time(now() - start, (double)bytes / OUT_RATE);
    }
    MUST(cuGraphExecDestroy(instance));
    MUST(cuGraphDestroy(graph));
    close_sides(&sides, bytes);
}

/* Copies 256 MiB out when told to. */
static void run_rival(int socket)
{
    const size_t bytes = 256 * MIB;
    CUdeviceptr device;
    void *pinned;
    char begin;

    if (cuMemAlloc(&device, bytes) || cuMemHostAlloc(&pinned, bytes, 0))
        _exit(5);
    send_all(socket, "r", 1);
    hear(socket, &begin, 1);
    if (cuMemcpyDtoH(pinned, device, bytes))
        _exit(4);
    send_all(socket, "d", 1);
}

static void processes_share_a_direction(void **state)
{
    const size_t bytes = 256 * MIB;
    struct sides sides;
    char word;
    double start;

    (void)state;
    open_sides(&sides, bytes);
    go(rival);
    hear(rival.socket, &word, 1);
    start = now();
    send_all(rival.socket, "b", 1);
    MUST(cuMemcpyDtoH(sides.pinned, sides.device, bytes));
    hear(rival.socket, &word, 1);
    assert_time(now() - start, 2 * (double)bytes / OUT_RATE);
    waitpid(rival.pid, NULL, 0);
    close_sides(&sides, bytes);
}

/* SIMCUDA_PIN_US of each MiB. */
static void pinning_takes_its_time(void **state)
{
    const size_t bytes = 100 * MIB;
    void *pinned;
    double start = now();

    (void)state;
    MUST(cuMemHostAlloc(&pinned, bytes, 0));
    assert_time(now() - start, 0.1);
    MUST(cuMemFreeHost(pinned));
    pinned = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                  -1, 0);
    assert_true(pinned != MAP_FAILED);
    start = now();
    MUST(cuMemHostRegister(pinned, bytes, 0));
    assert_time(now() - start, 0.1);
    MUST(cuMemHostUnregister(pinned));
    munmap(pinned, bytes);
}

/* SIMCUDA_KERNEL_US, by name: launched, and in a graph; a copy behind it begins at its end. */
static void a_kernel_takes_the_time_of_its_name(void **state)
{
    static const char image[] = ".version 8.0\n.target sm_90\n.address_size 64\n"
                                ".visible .entry spin()\n{\n ret;\n}\n"
                                ".visible .entry rest()\n{\n ret;\n}\n";
    const size_t bytes = 64 * MIB;
    struct sides sides;
    CUmodule module;
    CUfunction spin, idle;
    CUgraph graph;
    CUgraphExec instance;
    double start;

    (void)state;
    open_sides(&sides, bytes);
    MUST(cuModuleLoadData(&module, image));
    MUST(cuModuleGetFunction(&spin, module, "spin"));
    MUST(cuModuleGetFunction(&idle, module, "rest"));
    start = now();
    MUST(cuLaunchKernel(idle, 1, 1, 1, 1, 1, 1, 0, sides.streams[0], NULL, NULL));
    MUST(cuStreamSynchronize(sides.streams[0]));
    assert_true(now() - start < 0.1);
    start = now();
    MUST(cuMemcpyDtoHAsync(sides.pinned, sides.device, MIB, sides.streams[0]));
    MUST(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, sides.streams[0], NULL, NULL));
    MUST(cuMemcpyDtoHAsync(sides.pinned, sides.device, bytes, sides.streams[0]));
    MUST(cuStreamSynchronize(sides.streams[0]));
    assert_time(now() - start, 0.1 + (double)(bytes + MIB) / OUT_RATE);
    MUST(cuStreamBeginCapture(sides.streams[0], CU_STREAM_CAPTURE_MODE_RELAXED));
    MUST(cuMemcpyDtoHAsync(sides.pinned, sides.device, MIB, sides.streams[0]));
    MUST(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, sides.streams[0], NULL, NULL));
    MUST(cuStreamEndCapture(sides.streams[0], &graph));
    MUST(cuGraphInstantiate(&instance, graph, 0));
    start = now();
    MUST(cuGraphLaunch(instance, sides.streams[0]));
    MUST(cuMemcpyDtoHAsync(sides.pinned, sides.device, bytes, sides.streams[0]));
    MUST(cuStreamSynchronize(sides.streams[0]));
    assert_time(now() - start, 0.1 + (double)(bytes + MIB) / OUT_RATE);
    MUST(cuGraphExecDestroy(instance));
    MUST(cuGraphDestroy(graph));
    MUST(cuModuleUnload(module));
    close_sides(&sides, bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_copy_takes_its_bytes_over_the_bandwidth),
#if CUDA_VERSION >= 12020
        cmocka_unit_test(mapped_memory_of_the_host_is_far),
#endif
        cmocka_unit_test(two_and_three_dimensions_take_theirs),
        cmocka_unit_test(copies_within_the_device_pass_no_link),
        cmocka_unit_test(the_directions_do_not_slow_each_other),
        cmocka_unit_test(streams_share_a_direction),
        cmocka_unit_test(many_short_copies_lose_nothing),
        cmocka_unit_test(a_copy_begins_behind_what_it_waits_for),
        cmocka_unit_test(a_graph_takes_its_time_at_each_launch),
        cmocka_unit_test(processes_share_a_direction),
        cmocka_unit_test(pinning_takes_its_time),
        cmocka_unit_test(a_kernel_takes_the_time_of_its_name),
    };
    char name[64], path[128];
    int failed;

    cmocka_set_message_output(CM_OUTPUT_TAP);
    snprintf(name, sizeof name, "link-%d", (int)getpid());
    setenv("SIMCUDA_SHARED", name, 1);
    setenv("SIMCUDA_LINK", "out=1GB,in=500MB", 1);
    setenv("SIMCUDA_PIN_US", "1000", 1);
    setenv("SIMCUDA_KERNEL_US", "other=1,spin=100000", 1);
    setenv("SIMCUDA_MEMORY", "4GiB", 1);
    rival = fork_child(run_rival);
    if (start_device("1") != 0)
        return 1;
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    snprintf(path, sizeof path, "/dev/shm/simcuda-%u-%s", (unsigned)getuid(), name);
    unlink(path);
    return failed;
}
