"""Memory figures of NVML (nvidia-ml-py, unmodified) and of the CUDA driver, in one process.

usage: nvml.py [MIB]. Prints JSON: for each moment ("start", "held", "freed") and each device in NVML's order its UUID, both
versions of NVML's figures, and the driver's figures of the device with that UUID. Without MIB CUDA is not touched.
"""
import ctypes
import json
import sys
import uuid

import pynvml


class Driver:
    def __init__(self):
        self.library = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)
        count = ctypes.c_int()
        self.call("cuDeviceGetCount", ctypes.byref(count))
        self.devices = {self.uuid(i): (i, self.context(i)) for i in range(count.value)}

    def call(self, name, *arguments):
        result = getattr(self.library, name)(*arguments)
        if result:
            sys.exit(f"{name}: {result}")

    def uuid(self, ordinal):
        data = (ctypes.c_ubyte * 16)()
        self.call("cuDeviceGetUuid", data, ordinal)
        return f"GPU-{uuid.UUID(bytes=bytes(data))}"

    def context(self, ordinal):
        context = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), ordinal)
        return context

    def figures(self, name):
        ordinal, context = self.devices[name]
        free, total, whole = ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_size_t()
        self.call("cuCtxSetCurrent", context)
        self.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        self.call("cuDeviceTotalMem_v2", ctypes.byref(whole), ordinal)
        return {"total": total.value, "free": free.value, "device_total": whole.value}

    def allocate(self, ordinal, size):
        block = ctypes.c_uint64()
        self.call("cuCtxSetCurrent", self.devices[self.uuid(ordinal)][1])
        self.call("cuMemAlloc_v2", ctypes.byref(block), ctypes.c_size_t(size))
        return block

    def free(self, block):
        self.call("cuMemFree_v2", block)


def look(driver):
    seen = []
    for index in range(pynvml.nvmlDeviceGetCount()):
        device = pynvml.nvmlDeviceGetHandleByIndex(index)
        first = pynvml.nvmlDeviceGetMemoryInfo(device)
        second = pynvml.nvmlDeviceGetMemoryInfo(device, version=pynvml.nvmlMemory_v2)
        name = pynvml.nvmlDeviceGetUUID(device)
        seen.append({"uuid": name, "total": [first.total, second.total], "free": [first.free, second.free],
                     "used": [first.used, second.used], "reserved": second.reserved,
                     "driver": driver.figures(name) if driver else None})
    return seen


pynvml.nvmlInit()
moments = {}
if len(sys.argv) > 1:
    cuda = Driver()
    moments["start"] = look(cuda)
    held = cuda.allocate(0, int(sys.argv[1]) << 20)
    moments["held"] = look(cuda)
    cuda.free(held)
    moments["freed"] = look(cuda)
else:
    moments["start"] = look(None)
pynvml.nvmlShutdown()
print(json.dumps(moments, sort_keys=True))
