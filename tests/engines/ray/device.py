"""A program that uses the device through the driver alone, as a task of Ray's or Dask's; plain Python, no package."""
import ctypes
import os
import subprocess
import sys
import time

MIB = 1 << 20
kept = []


class Cuda:
    """The calls that are needed; an error is the number that the call returned."""

    def __init__(self):
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.process = ctypes.CDLL(None)
        self.status = self.driver.cuInit(0)
        if not self.status:
            context = ctypes.c_void_p()
            self.driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
            self.driver.cuCtxSetCurrent(context)

    def total(self):
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.driver.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
        return total.value

    def take(self, count):
        """Whether so many bytes were served; they stay until give()."""
        pointer = ctypes.c_uint64()
        if self.driver.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(count)):
            return False
        kept.append(pointer)
        return True

    def give(self):
        while kept:
            self.driver.cuMemFree_v2(kept.pop())


def figures():
    """The library's own: limit, reserved and its peak; None without the library."""
    library = ctypes.CDLL(None)
    if not hasattr(library, "gpucache_get_statistics"):
        return None
    struct = (ctypes.c_uint64 * 64)(23 * 8)
    status = library.gpucache_get_statistics(0, struct)
    return [status] if status else [struct[2], struct[7], struct[8]]


def fill(cuda):
    """Takes all that there is, in pieces of 64 MiB and at last of 2 MiB."""
    for piece in (64 * MIB, 2 * MIB):
        while cuda.take(piece):
            pass


def look(wait_s=0.0):
    """The device as this process finds it when it takes all; the memory is held for so long, and given back."""
    cuda = Cuda()
    seen = {"pid": os.getpid(), "cuInit": cuda.status, "visible": os.environ.get("CUDA_VISIBLE_DEVICES"),
            "preload": os.environ.get("LD_PRELOAD"), "group": os.environ.get("GPUCACHE_GROUP"), "begin": time.time()}
    if not cuda.status:
        if hasattr(cuda.process, "gpucache_reset_peaks"):
            cuda.process.gpucache_reset_peaks(0)  # those of an earlier task
        fill(cuda)
        seen["total"] = cuda.total()
        seen["figures"] = figures()
        time.sleep(wait_s)
        seen["end"] = time.time()
        cuda.give()
    return seen


def family():
    """Three processes, started by this one, take all that they get at the same time: the bytes of each."""
    code = ("import sys; sys.path.insert(0, sys.argv[1]); import device; c = device.Cuda(); device.fill(c); "
            "print(device.figures()[1], flush=True); sys.stdin.read()")
    children = [subprocess.Popen([sys.executable, "-c", code, os.path.dirname(os.path.abspath(__file__))], text=True,
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(3)]
    held = [int(child.stdout.readline()) for child in children]
    for child in children:
        child.communicate()
    return held
