"""libgpucache for Python programs: figures and limits of this process, reports and traces, PyTorch's allocator, Ray's plugin.

    gpucache run --limit 8GiB -- python train.py     the usual way: the program is not changed

    import gpucache
    gpucache.statistics().reserved_bytes             of this process, if it runs under the library or uses gpucache.torch
    gpucache.read_report("report.json")              what GPUCACHE_REPORT=report.json wrote
    gpucache.read_trace("run.trace")                 what GPUCACHE_TRACE=run.trace wrote

gpucache.torch and gpucache.ray are imported by name. Importing gpucache loads no library and does not touch CUDA.
"""
from gpucache._library import (ALL_DEVICES, Error, Statistics, available, empty_cache, is_preloaded, path, reset_peaks, set_limit,
                               statistics, trim, version)
from gpucache.report import read_report
from gpucache.trace import read_trace

__all__ = ["ALL_DEVICES", "Error", "Statistics", "available", "empty_cache", "is_preloaded", "path", "read_report", "read_trace",
           "reset_peaks", "set_limit", "statistics", "trim", "version"]
