"""Allocates device memory from Python: with the interpreter's lock released before the call, with it held, and
from a thread."""
import ctypes
import sys
import threading

cuda = ctypes.CDLL("libcuda.so.1")
held = ctypes.PyDLL("libcuda.so.1")
context = ctypes.c_void_p()


def check(result):
    if result != 0:
        sys.exit("CUDA error %d" % result)


def allocate(library, size):
    address = ctypes.c_uint64()
    check(library.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size)))
    return address


def leak_released():
    return allocate(cuda, 1 << 20)


def leak_held():
    return allocate(held, 2 << 20)


def leak_in_thread():
    check(cuda.cuCtxSetCurrent(context))
    allocate(cuda, 3 << 20)


check(cuda.cuInit(0))
check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
check(cuda.cuCtxSetCurrent(context))
leak_released()
leak_held()
thread = threading.Thread(target=leak_in_thread)
thread.start()
thread.join()
try:
    raise ValueError("kept")
except ValueError as error:
    leak_held()
    assert str(error) == "kept"
print("done", flush=True)
