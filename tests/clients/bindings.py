"""A program on cuda-bindings' driver module; run by test_bindings.sh.

Prints one JSON object: what it saw (the same with and without the library) and how many allocations it made by each
entry point. cuda-bindings opens libcuda.so.1, takes cuGetProcAddress_v2 by dlsym and everything else through it.
"""
import ctypes
import json
import sys
import threading

from cuda.bindings import driver as cu

THREADS = 4
ROUNDS = 150
counts = {}
counts_lock = threading.Lock()
seen = {}


def count(entry, number=1):
    with counts_lock:
        counts[entry] = counts.get(entry, 0) + number


def call(function, *arguments):
    """Calls, insists on success, returns the outputs."""
    error, *outputs = function(*arguments)
    if error != cu.CUresult.CUDA_SUCCESS:
        raise RuntimeError(f"{function.__name__}: {error.name}")
    return outputs[0] if len(outputs) == 1 else outputs or None


def name(result):
    return result[0].name


def read(address, size):
    buffer = bytearray(size)
    call(cu.cuMemcpyDtoH, buffer, address, size)
    return bytes(buffer)


def plain_memory(context):
    """Threads that take, fill, read back and free; wrong bytes mean a block with two owners."""
    wrong = []

    def work(index):
        call(cu.cuCtxSetCurrent, context)
        for step in range(ROUNDS):
            value = (index * ROUNDS + step) % 255 + 1
            size = 256 + (step * 7919 + index * 104729) % 300000
            block = call(cu.cuMemAlloc, size)
            count("cuMemAlloc_v2")
            call(cu.cuMemsetD8, block, value, size)
            if read(block, 256) != bytes([value]) * 256:
                wrong.append((index, step))
            call(cu.cuMemFree, block)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seen["plain"] = wrong
    source = call(cu.cuMemAlloc, 4096)
    target = call(cu.cuMemAlloc, 4096)
    count("cuMemAlloc_v2", 2)
    call(cu.cuMemcpyHtoD, source, bytes(range(256)) * 16, 4096)
    call(cu.cuMemcpyDtoD, target, source, 4096)
    seen["copy"] = read(target, 4096) == bytes(range(256)) * 16
    base, size = call(cu.cuMemGetAddressRange, int(source) + 100)
    seen["range"] = [int(base) == int(source), size]
    pointer, pitch = call(cu.cuMemAllocPitch, 1000, 20, 4)
    count("cuMemAllocPitch_v2")
    seen["pitch"] = pitch >= 1000
    for block in (source, target, pointer):
        call(cu.cuMemFree, block)


def other_memory():
    managed = call(cu.cuMemAllocManaged, 65536, cu.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL.value)
    count("cuMemAllocManaged")
    ctypes.memset(int(managed), 7, 65536)
    call(cu.cuCtxSynchronize)
    seen["managed"] = ctypes.string_at(int(managed), 65536) == b"\x07" * 65536
    call(cu.cuMemFree, managed)
    stream = call(cu.cuStreamCreate, cu.CUstream_flags.CU_STREAM_NON_BLOCKING.value)
    for _ in range(20):
        block = call(cu.cuMemAllocAsync, 100000, stream)
        count("cuMemAllocAsync")
        call(cu.cuMemsetD8Async, block, 9, 100000, stream)
        call(cu.cuMemFreeAsync, block, stream)
    call(cu.cuStreamSynchronize, stream)
    call(cu.cuStreamDestroy, stream)


def virtual_memory(device):
    properties = cu.CUmemAllocationProp()
    properties.type = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    properties.location.id = int(device)
    flags = cu.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
    granularity = call(cu.cuMemGetAllocationGranularity, properties, flags)
    seen["granularity"] = granularity
    size = 4 * granularity
    address = call(cu.cuMemAddressReserve, size, 0, 0, 0)
    handles = [call(cu.cuMemCreate, 2 * granularity, properties, 0) for _ in range(2)]
    count("cuMemCreate", 2)
    access = cu.CUmemAccessDesc()
    access.location = properties.location
    access.flags = cu.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    for index, handle in enumerate(handles):
        call(cu.cuMemMap, int(address) + index * 2 * granularity, 2 * granularity, 0, handle, 0)
    call(cu.cuMemSetAccess, address, size, [access], 1)
    call(cu.cuMemsetD8, address, 42, size)
    seen["mapped"] = read(int(address) + 2 * granularity - 128, 256) == b"\x2a" * 256
    for handle in handles:
        call(cu.cuMemRelease, handle)
    call(cu.cuMemUnmap, address, size)
    call(cu.cuMemAddressFree, address, size)


def graphs():
    stream = call(cu.cuStreamCreate, cu.CUstream_flags.CU_STREAM_NON_BLOCKING.value)
    source = call(cu.cuMemAlloc, 8192)
    target = call(cu.cuMemAlloc, 8192)
    count("cuMemAlloc_v2", 2)
    call(cu.cuMemsetD8, target, 0, 8192)
    call(cu.cuStreamBeginCapture, stream, cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
    call(cu.cuMemsetD8Async, source, 5, 8192, stream)
    call(cu.cuMemcpyDtoDAsync, target, source, 8192, stream)
    graph = call(cu.cuStreamEndCapture, stream)
    before = read(target, 8192)
    executable = call(cu.cuGraphInstantiate, graph, 0)
    for _ in range(3):
        call(cu.cuGraphLaunch, executable, stream)
    call(cu.cuStreamSynchronize, stream)
    seen["graph"] = [before == bytes(8192), read(target, 8192) == b"\x05" * 8192]
    call(cu.cuGraphExecDestroy, executable)
    call(cu.cuGraphDestroy, graph)
    call(cu.cuStreamDestroy, stream)
    call(cu.cuMemFree, source)
    call(cu.cuMemFree, target)


def looked_up():
    """Entry points a program looks up itself and calls by pointer."""
    default = cu.CUdriverProcAddress_flags.CU_GET_PROC_ADDRESS_DEFAULT.value
    pointers = {}
    for base in ("cuMemAlloc", "cuMemFree"):
        pointers[base], status = call(cu.cuGetProcAddress, base.encode(), 12000, default)
        seen[base] = [bool(pointers[base]), status.name]
    allocate = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_uint64), ctypes.c_size_t)(pointers["cuMemAlloc"])
    free = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint64)(pointers["cuMemFree"])
    for _ in range(10):
        block = ctypes.c_uint64()
        if allocate(ctypes.byref(block), 12345) != 0:
            raise RuntimeError("cuMemAlloc by pointer")
        count("cuMemAlloc_v2")
        free(block)
    seen["unknown name"] = name(cu.cuGetProcAddress(b"cuNoSuchFunction", 13000, default))


def errors():
    block = call(cu.cuMemAlloc, 1000)
    count("cuMemAlloc_v2")
    call(cu.cuMemFree, block)
    seen["errors"] = [name(cu.cuMemFree(block)), name(cu.cuMemAlloc(0)), name(cu.cuMemAlloc(1 << 63)),
                      name(cu.cuMemFree(0x1234)), name(cu.cuMemFree(0))]


def contexts(device):
    context = call(cu.cuCtxCreate, None, 0, device)
    block = call(cu.cuMemAlloc, 54321)
    count("cuMemAlloc_v2")
    call(cu.cuMemsetD8, block, 1, 54321)
    call(cu.cuCtxDestroy, context)  # the block goes with it


def main():
    seen["before initialisation"] = name(cu.cuMemAlloc(16))
    call(cu.cuInit, 0)
    device = call(cu.cuDeviceGet, 0)
    context = call(cu.cuDevicePrimaryCtxRetain, device)
    call(cu.cuCtxSetCurrent, context)
    plain_memory(context)
    other_memory()
    virtual_memory(device)
    graphs()
    looked_up()
    errors()
    contexts(device)
    call(cu.cuCtxSetCurrent, context)
    call(cu.cuDevicePrimaryCtxRelease, device)
    json.dump({"seen": seen, "counts": counts}, sys.stdout, sort_keys=True, indent=1)
    print()


main()
