/* The simulated device's memory between processes: shared capacity, IPC handles, exported
 * descriptors. */
#include "tests/unit/sim_child.h"

#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>

static struct child hog, exporter; /* forked by main, before the driver starts here */

/* Takes 256 MiB and waits to be killed. */
static void run_hog(int socket)
{
    CUdeviceptr pointer;
    CUresult result = cuMemAlloc(&pointer, 256 * MIB);

    send_all(socket, &result, sizeof result);
    pause();
}

struct offer {
    CUipcMemHandle small, large;
    CUdeviceptr address;
};

/* Offers memory by handle and by descriptor, then looks whether the other wrote into it. */
static void run_exporter(int socket)
{
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr small, large, other;
    unsigned char seen[2] = {0};
    struct offer offer;
    char done;
    int fd = -1;

    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    if (cuMemAlloc(&other, 700) || cuMemAlloc(&small, 700) || cuMemAlloc(&large, 5 * MIB) ||
        cuMemsetD8(small, 21, 700) || cuMemsetD8(large, 22, 5 * MIB) || cuCtxSynchronize() ||
        cuIpcGetMemHandle(&offer.small, small) ||
        cuIpcGetMemHandle(&offer.large, large + 4 * MIB) || cuMemCreate(&handle, PAGE, &prop, 0) ||
        cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0))
        _exit(5);
    offer.address = large;
    send_all(socket, &offer, sizeof offer);
    send_descriptor(socket, fd);
    hear(socket, &done, 1);
    cuMemcpyDtoH(&seen[0], small + 699, 1);
    cuMemcpyDtoH(&seen[1], large, 1);
    send_all(socket, seen, sizeof seen);
}

/* Processes with one SIMCUDA_SHARED share a device; what a process held is free when it is gone,
 * however it went. */
static void capacity_is_shared_and_comes_back(void **state)
{
    size_t before = free_bytes();
    CUdeviceptr pointer;
    CUresult result;

    (void)state;
    go(hog);
    hear(hog.socket, &result, sizeof result);
    MUST(result);
    assert_true(before - free_bytes() >= 256 * MIB);
    MUST_BE(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&pointer, before - 100 * MIB));
    kill(hog.pid, SIGKILL);
    waitpid(hog.pid, NULL, 0);
    assert_int_equal(free_bytes(), before);
    MUST(cuMemAlloc(&pointer, before - 100 * MIB));
    MUST(cuMemFree(pointer));
}

/* cuIpcOpenMemHandle maps the whole allocation at its base; opened again it counts; a process
 * cannot open its own. */
static void handles_open_in_another_process(void **state)
{
    CUdeviceptr small, again, large, base, own;
    struct offer offer;
    unsigned char seen[2];
    CUipcMemHandle handle;
    CUmemGenericAllocationHandle imported;
    CUmemAccessDesc access = {.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr mapped;
    size_t bytes;
    int fd;

    (void)state;
    go(exporter);
    hear(exporter.socket, &offer, sizeof offer);
    fd = receive_descriptor(exporter.socket);
    assert_true(fd >= 0);

    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuIpcOpenMemHandle(&small, offer.small, 0));
    MUST(cuIpcOpenMemHandle(&small, offer.small, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    MUST(cuIpcOpenMemHandle(&again, offer.small, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    assert_int_equal(small, again);
    MUST(cuIpcOpenMemHandle(&large, offer.large, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    MUST(cuMemGetAddressRange(&base, &bytes, large));
    assert_int_equal(base, large);
    assert_int_equal(bytes, 5 * MIB);
    assert_int_equal(byte_at(small), 21);
    assert_int_equal(byte_at(large + 5 * MIB - 1), 22);
    MUST(cuMemsetD8(small + 699, 31, 1));
    MUST(cuMemsetD8(large, 32, 1));
    MUST(cuCtxSynchronize());
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemFree(large));

    MUST(cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)fd,
                                        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    MUST(cuMemAddressReserve(&mapped, PAGE, 0, 0, 0));
    MUST(cuMemMap(mapped, PAGE, 0, imported, 0));
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    MUST(cuMemSetAccess(mapped, PAGE, &access, 1));
    MUST(cuMemsetD8(mapped, 1, PAGE));
    MUST(cuCtxSynchronize());
    MUST(cuMemUnmap(mapped, PAGE));
    MUST(cuMemRelease(imported));
    MUST(cuMemAddressFree(mapped, PAGE));
    close(fd);

    send_all(exporter.socket, "d", 1);
    hear(exporter.socket, seen, sizeof seen);
    assert_int_equal(seen[0], 31);
    assert_int_equal(seen[1], 32);
    waitpid(exporter.pid, NULL, 0);

    MUST(cuIpcCloseMemHandle(small));
    assert_int_equal(byte_at(small), 21); /* still open once */
    MUST(cuIpcCloseMemHandle(small));
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuIpcCloseMemHandle(small));
    MUST(cuIpcCloseMemHandle(large));

    MUST(cuMemAlloc(&own, 100));
    MUST(cuIpcGetMemHandle(&handle, own));
    MUST_BE(CUDA_ERROR_INVALID_CONTEXT,
            cuIpcOpenMemHandle(&base, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    MUST(cuMemFree(own));
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(&handle, own));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(capacity_is_shared_and_comes_back),
        cmocka_unit_test(handles_open_in_another_process),
    };
    char name[64], path[128];
    int failed;

    cmocka_set_message_output(CM_OUTPUT_TAP);
    snprintf(name, sizeof name, "test-%d", (int)getpid());
    setenv("SIMCUDA_SHARED", name, 1);
    hog = fork_child(run_hog);
    exporter = fork_child(run_exporter);
    if (start_device("1") != 0)
        return 1;
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    snprintf(path, sizeof path, "/dev/shm/simcuda-%u-%s", (unsigned)getuid(), name);
    unlink(path);
    return failed;
}
