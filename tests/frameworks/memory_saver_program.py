"""torch_memory_saver's hook, preloaded as its package does: allocations in a region of its own pause and resume.

A small library, linked as PyTorch's allocator is, calls the runtime; the hook is told by its own functions what to do.
"""
import ctypes
import os

import program

runtime = ctypes.CDLL("libcudart.so.13")
allocator = ctypes.CDLL(os.environ["MEMORY_SAVER_ALLOCATOR"])
everything = ctypes.CDLL(None)
MIB = program.MIB
allocator.plain_malloc.argtypes = [ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
allocator.plain_malloc.restype = ctypes.c_void_p
allocator.plain_free.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
everything.tms_set_current_tag.argtypes = everything.tms_pause.argtypes = everything.tms_resume.argtypes = [ctypes.c_char_p]
everything.tms_set_interesting_region.argtypes = everything.tms_set_enable_cpu_backup.argtypes = [ctypes.c_bool]


def call(function, *arguments):
    error = function(*arguments)
    assert error == 0, f"{function.__name__}: {error}"


def allocate(size):
    address = allocator.plain_malloc(size, 0, None)
    assert address, "no memory"
    return ctypes.c_void_p(address)


def write(address, data):
    call(runtime.cudaMemcpy, address, data, ctypes.c_size_t(len(data)), 1)


def read(address, size):
    data = ctypes.create_string_buffer(size)
    call(runtime.cudaMemcpy, data, address, ctypes.c_size_t(size), 2)
    return data.raw


def free_memory():
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    call(runtime.cudaMemGetInfo, ctypes.byref(free), ctypes.byref(total))
    return free.value


def region(tag, backup):
    everything.tms_set_current_tag(tag)
    everything.tms_set_enable_cpu_backup(backup)
    everything.tms_set_interesting_region(True)


@program.area
def pausing():
    """Weights with a backup, a cache without one, and memory outside of any region."""
    outside = []
    for seed, size in enumerate(program.sizes(10, 3 * MIB, 1)):
        outside.append((allocate(size), program.content(size, seed)))
        write(*outside[-1])
    region(b"weights", True)
    weights = []
    for seed, size in enumerate(program.sizes(8, 9 * MIB, 2), 100):
        weights.append((allocate(size), program.content(size, seed)))
        write(*weights[-1])
    region(b"cache", False)
    cache = [allocate(16 * MIB) for _ in range(4)]
    everything.tms_set_interesting_region(False)
    # The report names the outermost call. A library before the hook sees the program's; behind it, the hook's.
    is_outermost = "MEMORY_SAVER_IS_FIRST" not in os.environ
    mapped = len(weights) + len(cache)
    program.count("cudaMalloc", len(outside) + (mapped if is_outermost else 0))
    program.count("cuMemCreate", mapped * (2 if is_outermost else 3))  # at first, and in each of two turns
    seen = {}
    for turn in range(2):
        before = free_memory()
        call(everything.tms_pause, b"weights")
        call(everything.tms_pause, b"cache")
        seen[f"given back in turn {turn}"] = free_memory() - before
        assert free_memory() - before >= 64 * MIB
        for address, data in outside:
            assert read(address, len(data)) == data, "outside"
        call(everything.tms_resume, b"weights")
        call(everything.tms_resume, b"cache")
        assert free_memory() == before
        for address, data in weights:
            assert read(address, len(data)) == data, "weights"
        for seed, address in enumerate(cache):
            write(address, program.content(16 * MIB, 200 + seed))
        for seed, address in enumerate(cache):
            assert read(address, 16 * MIB) == program.content(16 * MIB, 200 + seed), "cache"
    for address in [address for address, _ in outside + weights] + cache:
        allocator.plain_free(address, 0, 0, None)
    return seen


program.main()
