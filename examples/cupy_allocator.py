"""CuPy with libgpucache as its allocator, without a preload.

Not run by the tests: it needs CuPy and a GPU. The functions it names are tested with the same signatures through
ctypes (tests/preload/routes/public_api.py).

usage: cupy_allocator.py /usr/local/lib/libgpucache.so
"""
import ctypes
import sys

import cupy

library = ctypes.CDLL(sys.argv[1])
library.gpucache_torch_malloc.restype = ctypes.c_void_p
library.gpucache_torch_malloc.argtypes = [ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
library.gpucache_torch_free.restype = None
library.gpucache_torch_free.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]


def address(name):
    """What CFunctionAllocator takes."""
    return ctypes.cast(getattr(library, name), ctypes.c_void_p).value


def plain_allocator():
    """Without streams: a freed block serves others once all work submitted before is done."""
    return cupy.cuda.CFunctionAllocator(0, address("gpucache_cupy_malloc"), address("gpucache_cupy_free"), library)


def stream_allocator():
    """With CuPy's current stream at each call, through Python."""
    def malloc(size, device):
        pointer = library.gpucache_torch_malloc(size, device, cupy.cuda.get_current_stream().ptr)
        if not pointer and size > 0:
            raise cupy.cuda.memory.OutOfMemoryError(size, 0, 0)
        return pointer or 0

    def free(pointer, device):
        library.gpucache_torch_free(pointer, 0, device, cupy.cuda.get_current_stream().ptr)

    return cupy.cuda.PythonFunctionAllocator(malloc, free)


cupy.cuda.set_allocator(plain_allocator().malloc)
x = cupy.ones((4096, 4096))
print(float((x @ x).sum()))
