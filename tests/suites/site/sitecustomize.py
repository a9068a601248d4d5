"""Python of the suites `bindings` and `core`, and of the processes that they start.

cuda-bindings carries NVIDIA's runtime inside, which talks to no driver but NVIDIA's. The few of its functions that
cuda-core and the tests call are taken from the simulated device's runtime instead. SUITES_HELPERS is the folder of a
package that the tests import and the wheel lacks.
"""
import ctypes
import importlib.machinery
import os
import sys

MODULE = "cuda.bindings.runtime"
HELPERS = "cuda.bindings._test_helpers"


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
    """Patches the runtime when it has been imported, and finds the helpers."""

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name == HELPERS and "SUITES_HELPERS" in os.environ:
            return importlib.machinery.PathFinder.find_spec(name, [os.environ["SUITES_HELPERS"]], target)
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
