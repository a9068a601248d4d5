"""Calls the allocator functions of libgpucache.so through ctypes with the signatures that PyTorch's
CUDAPluggableAllocator, CuPy's CFunctionAllocator and RMM's callback resource declare.

usage: public_api.py LIBRARY   (on the simulated device)
"""
import ctypes
import sys

MIB = 1 << 20


class Statistics(ctypes.Structure):
    """The head of struct gpucache_statistics: an older program's view of it."""
    _fields_ = [(name, ctypes.c_uint64) for name in (
        "struct_bytes", "total_bytes", "limit_bytes", "requested_bytes", "requested_peak_bytes")]


def function(library, name, result, *arguments):
    """As PyTorch does it: dlsym of the name, cast to the type it expects."""
    address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
    return ctypes.CFUNCTYPE(result, *arguments)(address)


def statistics(library, device):
    """The library's figures of a device."""
    figures = Statistics(struct_bytes=ctypes.sizeof(Statistics))
    status = library.gpucache_get_statistics(device, ctypes.byref(figures))
    assert status == 0, status
    return figures


def check_torch(library, cuda, stream):
    """void *malloc(ssize_t, int, cudaStream_t); void free(void *, ssize_t, int, cudaStream_t)"""
    malloc = function(library, "gpucache_torch_malloc", ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)
    free = function(library, "gpucache_torch_free", None, ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)
    record = function(library, "gpucache_torch_record_stream", None, ctypes.c_void_p, ctypes.c_void_p)
    reset = function(library, "gpucache_torch_reset", None)
    fraction = function(library, "gpucache_torch_memory_fraction", None, ctypes.c_double, ctypes.c_int)
    first = malloc(6 * MIB, 0, stream)
    assert first and statistics(library, 0).requested_bytes == 6 * MIB
    assert cuda.cuMemsetD8Async(ctypes.c_uint64(first), ctypes.c_ubyte(7), ctypes.c_size_t(6 * MIB), stream) == 0
    record(first, None)
    free(first, 6 * MIB, 0, stream)
    assert statistics(library, 0).requested_bytes == 0
    assert malloc(0, 0, stream) is None
    assert malloc(1 << 50, 0, stream) is None
    big = malloc(5 << 28, 0, None)  # more than 1 GiB: sizes are not cut to 32 bits
    assert big and statistics(library, 0).requested_bytes == 5 << 28
    free(big, 5 << 28, 0, None)
    reset()
    fraction(0.5, 0)
    assert statistics(library, 0).limit_bytes == statistics(library, 0).total_bytes // 2
    assert malloc(5 << 28, 0, None) is None
    fraction(1.0, 0)


def check_cupy(library, stream):
    """void *malloc(void *param, size_t, int); void free(void *param, void *, int)"""
    malloc = function(library, "gpucache_cupy_malloc", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    free = function(library, "gpucache_cupy_free", None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)
    holder = ctypes.c_void_p(stream.value)  # struct gpucache_cupy_param
    for param in (None, ctypes.addressof(holder)):
        pointer = malloc(param, 3 * MIB, 1)
        assert pointer and statistics(library, 1).requested_bytes == 3 * MIB
        free(param, pointer, 1)
        assert statistics(library, 1).requested_bytes == 0


def check_rmm(library, stream):
    """void *allocate(size_t, cudaStream_t, void *); void deallocate(void *, size_t, cudaStream_t, void *)"""
    allocate = function(library, "gpucache_rmm_allocate", ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p)
    deallocate = function(library, "gpucache_rmm_deallocate", None, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p,
                          ctypes.c_void_p)
    device = ctypes.c_int(1)
    for argument, ordinal in ((None, 0), (ctypes.addressof(device), 1)):
        pointer = allocate(MIB, stream, argument)
        assert pointer and statistics(library, ordinal).requested_bytes == MIB
        deallocate(pointer, MIB, stream, argument)
        assert statistics(library, ordinal).requested_bytes == 0


def main():
    """Loads the library as a framework would: by its path, into a scope of its own."""
    library = ctypes.CDLL(sys.argv[1])
    cuda = ctypes.CDLL("libcuda.so.1")
    context, stream = ctypes.c_void_p(), ctypes.c_void_p()
    assert cuda.cuInit(0) == 0
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert cuda.cuCtxSetCurrent(context) == 0
    assert cuda.cuStreamCreate(ctypes.byref(stream), 1) == 0
    check_torch(library, cuda, stream)
    check_cupy(library, stream)
    check_rmm(library, stream)
    assert cuda.cuStreamSynchronize(stream) == 0


main()
