"""The lines that blocks.py reads, for the Python programs of this folder, and what they share."""
import ctypes
import importlib
import os
import sys
import time

IS_REHEARSAL = os.environ.get("GPU_REHEARSAL", "0") != "0"
IS_SHORT = os.environ.get("GPU_SHORT", "0") != "0"


def row(name, value, unit):
    print(f"row {name} {float(value):.10g} {unit}", flush=True)


def skip(name, reason):
    """What does not apply to this device."""
    print(f"skip {name} {' '.join(str(reason).split())[:200]}", flush=True)


def missing(name, reason):
    """What was wanted, and cannot be had because something is not there."""
    print(f"missing {name} {' '.join(str(reason).split())[:200]}", flush=True)


def need(module, pattern="*"):
    """The module; without it the program ends with a line that says so. A package that is there and broken is an error."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing(pattern, f"no {module} here: {error}")
        sys.exit(0)


def need_torch():
    """PyTorch with a device."""
    torch = need("torch")
    if not torch.cuda.is_available():
        missing("*", "torch sees no device")
        sys.exit(0)
    return torch


def seconds(function):
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


class Statistics(ctypes.Structure):
    """The beginning of struct gpucache_statistics (core/gpucache.h)."""
    _fields_ = [(name, ctypes.c_uint64) for name in (
        "struct_bytes", "total", "limit", "requested", "requested_peak", "allocated", "allocated_peak", "reserved",
        "reserved_peak", "pending", "pending_peak", "idle", "elastic", "metadata", "alloc_count", "free_count", "hit_count",
        "miss_count", "oom_count", "retry_count", "trim_count", "fence_count")]


def statistics():
    """The library's figures of device 0; None without the library."""
    try:
        function = ctypes.CDLL(None).gpucache_get_statistics
    except AttributeError:
        return None
    figures = Statistics(struct_bytes=ctypes.sizeof(Statistics))
    return figures if function(0, ctypes.byref(figures)) == 0 else None
