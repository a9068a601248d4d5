"""Python of the suites `bindings` and `core`, and of the processes that they start.

cuda-bindings carries NVIDIA's runtime inside, which talks to no driver but NVIDIA's. The few of its functions that
cuda-core and the tests call are taken from the simulated device's runtime instead.
"""
import ctypes
import importlib.machinery
import importlib.util
import sys

MODULE = "cuda.bindings.runtime"


def patch(runtime):
    library = ctypes.CDLL("libcudart.so.13")

    def call(name, *arguments):
        return runtime.cudaError_t(getattr(library, name)(*arguments))

    def number(name, *arguments):
        value = ctypes.c_int()
        return call(name, ctypes.byref(value), *(ctypes.c_int(int(argument)) for argument in arguments)), value.value

    def bus_id(length, device):
        text = ctypes.create_string_buffer(length)
        return call("cudaDeviceGetPCIBusId", text, ctypes.c_int(length), ctypes.c_int(device)), text.raw

    runtime.cudaDeviceSynchronize = lambda: (call("cudaDeviceSynchronize"),)
    runtime.cudaSetDevice = lambda device: (call("cudaSetDevice", ctypes.c_int(device)),)
    runtime.cudaGetDevice = lambda: number("cudaGetDevice")
    runtime.cudaGetDeviceCount = lambda: number("cudaGetDeviceCount")
    runtime.cudaDeviceGetAttribute = lambda attribute, device: number("cudaDeviceGetAttribute", attribute, device)
    runtime.cudaDeviceGetPCIBusId = bus_id


class Finder:
    """Patches the module when it has been imported."""

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name != MODULE:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec:
            run = spec.loader.exec_module

            def run_and_patch(module):
                run(module)
                patch(module)
            spec.loader.exec_module = run_and_patch
        return spec


sys.meta_path.insert(0, Finder)
