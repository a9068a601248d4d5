"""The experiments of a first hour on a GPU, as tables: blocks of jobs, and what the project assumes of their rows.

A block is one command of scripts/gpu.sh and ends within nine minutes. They stand in the order of their worth. Job: its
experiment, its name, its command, its limit in seconds, and the setting of the library (LIBRARIES) it runs under. A
command's first word is a program of build/tests/gpu, or a Python program of tests/gpu/python.
"""
from collections import namedtuple

Job = namedtuple("Job", "experiment name command limit_s library variables", defaults=("none", {}))
Assumption = namedtuple("Assumption", "experiment row holds text file")

LIBRARIES = {
    "none": None,
    "cache": {},
    "vmm": {"GPUCACHE_BACKEND": "vmm"},
    "driver": {"GPUCACHE_BACKEND": "driver"},
    "whole": {"GPUCACHE_BACKEND": "whole"},
    "sync": {"GPUCACHE_REUSE": "sync"},
    "limited": {"GPUCACHE_LIMIT": "4GiB"},
    "eventless": {},  # the library built without cuCtxRecordEvent
}
NO_CACHE = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
EXPANDABLE = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
ASYNC = {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}
PATTERNS = ("one", "many", "programmatic", "graphs", "async", "threads")


def under(experiment, command, limit_s, libraries, variables=None):
    name = command.replace(".py", "").replace(" SECONDS", "").replace(" ", ".")
    return [Job(experiment, f"{name}.{library}", command, limit_s, library, variables or {}) for library in libraries]


def steps(name, library, variables):
    return Job("E9", f"steps.{name}", "torch_steps.py steps", 50, library, variables)


BLOCKS = {
    "1": ("the driver's facts, fences, reuse under real kernels", 6, [
        *under("E1", "entries", 30, ["none"]),
        *under("E2", "aliases", 40, ["none"]),
        *under("E5", "record", 60, ["none"]),
        Job("E5", "device_launch", "device_launch", 40),
        *under("E4", "busy", 60, ["none"]),
        *[job for mode in PATTERNS for job in under("E6", f"patterns {mode} SECONDS", 30, ["vmm", "driver"])],
        *[job for case in ("reset", "destroy", "none") for job in under("E7", f"teardown {case}", 20, ["none"])],
        *[job for case in ("reset", "atexit", "thread") for job in under("E7", f"teardown {case}", 20, ["cache"])],
        *under("E8", "pointers", 20, ["none", "vmm", "driver", "whole"]),
        *under("E3", "costs", 60, ["none"]),
    ]),
    "2": ("PyTorch, JAX, CuPy, Numba", 8, [
        steps("native.none", "none", {}), steps("native", "cache", {}),
        steps("expandable.none", "none", EXPANDABLE), steps("expandable", "cache", EXPANDABLE),
        steps("nocache.none", "none", NO_CACHE), steps("nocache", "cache", NO_CACHE),
        steps("async.none", "none", ASYNC), steps("async", "cache", ASYNC),
        *under("E9", "torch_steps.py compile", 100, ["cache"]),
        *under("E9", "torch_steps.py oom", 40, ["none", "cache"]),
        *under("E9", "torch_steps.py profiler", 40, ["none", "cache"]),
        *under("E10", "torch_steps.py generate", 50, ["none", "cache"]),
        *[job for name in ("jax", "cupy", "numba") for job in under("E10", f"others.py {name}", 50, ["none", "cache"])],
    ]),
    "3": ("runs of handles, bandwidth, fences without context events", 6, [
        *under("E3", "runs grid", 180, ["none"]),
        *under("E3", "runs failing", 60, ["none", "cache"]),
        *under("E3", "runs exit", 60, ["none"]),
        *under("E3", "runs slab", 40, ["none"]),
        *under("E14", "bandwidth", 120, ["none"]),
        *[job for kind in ("blocking", "others") for job in under("E15", f"fences 128 {kind}", 30, ["none"])],
        *[job for kind in ("blocking", "others")
          for job in under("E15", f"fences 128 {kind} frees", 30, ["none", "cache", "eventless", "sync"])],
    ]),
    "4": ("memory accounts, sharing, tools", 5, [
        *under("E11", "process_memory.py", 60, ["none", "limited"]),
        *under("E11", "stack", 60, ["none", "cache"]),
        *under("E13", "ipc", 30, ["none", "cache", "vmm", "driver", "whole"]),
        *under("E13", "share.py multiprocessing", 60, ["none", "cache", "whole"]),
        *under("E13", "share.py nccl", 50, ["none", "cache"]),
        Job("E12", "tools", "tools.py LIBRARY PROGRAM", 200),
    ]),
}


# ---- what the project assumes ----
# Rows are JOB:ROW with the wildcards of a shell; every one that is there must hold.

def equals(*values):
    function = lambda value: value in values
    function.text = " or ".join(f"{value:g}" for value in values)
    return function


def below(bound):
    function = lambda value: value < bound
    function.text = f"< {bound:g}"
    return function


def above(bound):
    function = lambda value: value > bound
    function.text = f"> {bound:g}"
    return function


ok, zero, yes, no = equals(0), equals(0), equals(1), equals(0)

ASSUMPTIONS = [Assumption(*row) for row in (
    ("E1", "entries.none:entries.not_exported", zero, "every row's symbol is exported", "shim/api.def"),
    ("E1", "entries.none:entries.not_found", zero, "cuGetProcAddress knows every row", "shim/api.def"),
    ("E1", "entries.none:entries.abis_differ", zero, "both ABIs of cuGetProcAddress give one pointer",
     "shim/intercept/proc_address.c"),
    ("E1", "entries.none:entries.later_differ", zero, "up to its next row's version a name has one ABI", "shim/api.def"),
    ("E1", "entries.none:entries.differ.*", zero, "looked-up pointers are the exported ones",
     "tests/simcuda/driver/settings.c"),
    ("E1", "entries.none:attribute.102", yes, "the device maps memory", "shim/driver/backend.c"),
    ("E1", "entries.none:attribute.133", no, "no MPS", "shim/driver/backend.c"),
    ("E1", "entries.none:granularity.rdma*.minimum", equals(2 << 20), "pages are of 2 MiB", "core/pool/pages.h"),
    ("E1", "entries.none:granularity.rdma*.recommended", equals(2 << 20), "pages are of 2 MiB", "core/pool/pages.h"),
    ("E1", "entries.none:peers.*", yes, "devices reach each other's memory", "shim/driver/driver_map.c"),
    ("E2", "aliases.none:rdma0.*.wrong", zero, "a write through one alias is read through all", "core/backing/map.c"),
    ("E2", "aliases.none:rdma0.*.access", ok, "a page has access at every address", "core/backing/map.c"),
    ("E2", "aliases.none:rdma0.x64.*.mapped", equals(64), "a page is mapped at 64 addresses", "core/backing/map.c"),
    ("E2", "aliases.none:rdma?.*.unmap", ok, "aliases are unmapped in any order", "core/backing/unmap.c"),
    ("E2", "aliases.none:rdma?.*.release*", ok, "a handle is released before or after its mappings",
     "shim/driver/driver_map.c"),
    ("E2", "aliases.none:rdma1.*.access", ok, "a page with the RDMA flag has access at every address", "shim/driver/backend.c"),
    ("E2", "aliases.none:rdma1.x64.*.mapped", equals(64), "a page with the RDMA flag has aliases", "shim/driver/backend.c"),
    ("E2", "aliases.none:rdma1.*.wrong", zero, "aliases with the RDMA flag agree", "shim/driver/backend.c"),
    ("E3", "runs.grid.none:*.access", ok, "one SetAccess opens a run of many handles", "shim/driver/driver_map.c"),
    ("E3", "runs.failing.*:*.code", equals(2), "too large a request is out of memory", "shim/driver/driver_map.c"),
    ("E3", "runs.failing.cache:alloc.?", below(100e3), "a failing request takes under 0.1 s", "core/backing/segment.c"),
    ("E3", "runs.exit.none:*.status", zero, "a process that holds mapped memory ends well", "shim/life/exit_report.c"),
    ("E4", "busy.none:*.code", ok, "every memory call succeeds beside work", "shim/driver/driver_map.c"),
    ("E4", "busy.none:host.cuMemCreate.waits", no, "cuMemCreate does not wait for work", "core/backing/segment.c"),
    ("E4", "busy.none:host.cuMemMap.waits", no, "cuMemMap does not wait for work", "core/backing/map.c"),
    ("E4", "busy.none:host.cuMemSetAccess.waits", no, "cuMemSetAccess does not wait for work", "core/backing/map.c"),
    ("E4", "busy.none:host.cuCtxRecordEvent.waits", no, "a fence does not wait for work", "shim/driver/driver_fence.c"),
    ("E4", "busy.none:host.cuEventRecord.waits", no, "an event does not wait for work", "shim/driver/stream_list.c"),
    ("E4", "busy.none:host.cuMemGetInfo.waits", no, "cuMemGetInfo does not wait for work", "shim/account/measure.c"),
    ("E5", "record.none:covers.*.code", ok, "cuCtxRecordEvent works beside each kind of work", "shim/driver/driver_fence.c"),
    ("E5", "record.none:covers.*.pending", yes, "cuCtxRecordEvent covers each kind of work", "shim/driver/driver_fence.c"),
    ("E5", "record.none:covers.*.completes", ok, "a fence completes with the work", "shim/driver/driver_fence.c"),
    ("E5", "record.none:covers.*.later_runs", yes, "a fence holds up no later work", "shim/driver/driver_fence.c"),
    ("E5", "record.none:order.*_runs", yes, "a fence is no barrier for blocking streams", "shim/driver/driver_fence.c"),
    ("E5", "record.none:cost.*.median", below(50), "a fence takes under 50 us with any streams", "core/reclaim/defer.c"),
    ("E5", "device_launch:covers.*.pending", yes, "cuCtxRecordEvent covers kernels that kernels launch",
     "shim/driver/driver_fence.c"),
    ("E5", "record.none:capture.across.record", equals(900), "a fence in a capture that spans contexts fails",
     "shim/wrap/capture_api.c"),
    ("E5", "record.none:capture.*.end", equals(901), "a fence invalidates a capture: none may be made",
     "shim/driver/capture_guard.c"),
    ("E6", "patterns.*:*.wrong", zero, "no byte of a freed block is reused before its work is done", "core/reclaim/defer.c"),
    ("E6", "patterns.*:*.canary", above(0), "the check counts words that are wrong", "tests/gpu/patterns.c"),
    ("E7", "teardown.none.none:none.[!i]*", ok, "mapped memory needs no context", "shim/driver/driver_map.c"),
    ("E7", "teardown.destroy.none:destroy.*", ok, "mapped memory outlives a context", "shim/driver/driver_map.c"),
    ("E7", "teardown.reset.none:reset.mapping_kept", yes, "mapped memory outlives the reset of its device",
     "shim/driver/driver_map.c"),
    ("E7", "teardown.reset.*:reset.alloc_after", ok, "a device allocates after its reset", "shim/wrap/primary_api.c"),
    ("E7", "teardown.thread.cache:thread.ends", yes, "a thread may free while the process ends", "core/reclaim/tcache.c"),
    ("E8", "pointers.none:alignment.512B", equals(*[1 << n for n in range(9, 22)]), "small blocks have 512 bytes of alignment",
     "core/pool/place.c"),
    ("E9", "torch_steps.oom.*:failures", equals(3), "each out-of-memory is an error", "core/reclaim/reclaim.c"),
    ("E9", "torch_steps.oom.*:half_fits", yes, "memory is whole after out-of-memory", "core/reclaim/reclaim.c"),
    ("E9", "torch_steps.compile.cache:difference", below(1e-3), "compiled graphs compute the same", "shim/wrap/graph_api.c"),
    ("E9", "torch_steps.compile.cache:finite", yes, "graph trees train", "shim/wrap/graph_api.c"),
    ("E9", "torch_steps.profiler.*:kernels", above(0), "the profiler sees kernels", "shim/life/tools.c"),
    ("E10", "others.*:*_right", yes, "JAX and CuPy compute the same", "shim/wrap/driver_api.c"),
    ("E10", "others.*:numba.wrong", zero, "Numba computes the same", "shim/wrap/driver_api.c"),
    ("E11", "stack.*:launch", ok, "a launch under a full cache finds its memory", "shim/wrap/relieve.c"),
    ("E11", "stack.*:launch.ends", ok, "its kernel ends well", "shim/wrap/relieve.c"),
    ("E11", "stack.*:stream", ok, "a stream is made under a full cache", "shim/wrap/relieve.c"),
    ("E11", "stack.*:event", ok, "an event is made under a full cache", "shim/wrap/relieve.c"),
    ("E11", "stack.*:alloc_after", ok, "an allocation fits afterwards", "core/reclaim/leave.c"),
    ("E11", "stack.none:first_launch", zero, "a module's memory is taken at its load", "tests/simcuda/driver/settings.c"),
    ("E11", "process_memory.limited:process.not_counted", below(1), "less than 1 GiB of the process is not counted",
     "shim/account/outside.c"),
    ("E12", "tools:*.works", yes, "tools work beside the library", "shim/life/tools.c"),
    ("E12", "tools:*.wrong", zero, "tools change no byte", "shim/life/tools.c"),
    ("E13", "ipc.none:*.512B", ok, "the driver exports small blocks", "shim/wrap/ipc_api.c"),
    ("E13", "ipc.*:open.*.reads", yes, "an opened block reads as its own", "shim/wrap/ipc_api.c"),
    ("E13", "ipc.*:export.*.sees_write", yes, "a write through an opened block arrives", "shim/wrap/ipc_api.c"),
    ("E13", "ipc.whole:export.?*B", ok, "the backend `whole` exports every block", "shim/wrap/ipc_api.c"),
    ("E13", "share.multiprocessing.*:tensor.shared", yes, "processes share a tensor", "shim/driver/backend.c"),
    ("E13", "share.nccl.*:nccl.sum_right", yes, "NCCL adds up", "shim/wrap/vmm_api.c"),
    ("E13", "share.nccl.*:nccl.register", ok, "NCCL registers a block", "shim/wrap/vmm_api.c"),
    ("E15", "fences.128.*.frees.cache:overlap", above(4), "kernels of many streams overlap beside frees",
     "shim/driver/driver_fence.c"),
)]
# Jobs whose rows must be the same without the library and under it: (experiment, job without, job under, rows, file).
PAIRS = [
    ("E8", "pointers.none", f"pointers.{backend}", "*.code", "shim/wrap/query_api.c") for backend in ("vmm", "driver", "whole")
] + [
    ("E9", f"steps.{name}.none", f"steps.{name}", "checksum", "core/reclaim/defer.c")
    for name in ("native", "expandable", "nocache", "async")
] + [
    ("E10", "torch_steps.generate.none", "torch_steps.generate.cache", "generate.*", "core/reclaim/defer.c"),
    ("E7", "teardown.reset.none", "teardown.reset.cache", "reset.*", "shim/wrap/primary_api.c"),
]
# Entries of the latency profile, and the row of `costs` that each is read from.
LATENCIES = {
    "cuMemAlloc_v2": "cuMemAlloc.2MiB.median", "cuMemAllocPitch_v2": "cuMemAllocPitch.2MiB.median",
    "cuMemFree_v2": "cuMemFree.2MiB.median", "cuMemGetInfo_v2": "cuMemGetInfo.median",
    "cuMemHostAlloc": "cuMemHostAlloc.2MiB.median", "cuMemFreeHost": "cuMemFreeHost.2MiB.median",
    "cuMemAddressReserve": "cuMemAddressReserve.2MiB.median", "cuMemCreate": "cuMemCreate.2MiB.median",
    "cuMemMap": "cuMemMap.2MiB.median", "cuMemSetAccess": "cuMemSetAccess.2MiB.median",
    "cuMemUnmap": "cuMemUnmap.2MiB.median", "cuMemRelease": "cuMemRelease.2MiB.median",
    "cuMemAllocAsync": "cuMemAllocAsync.2MiB.median", "cuMemAllocAsync_ptsz": "cuMemAllocAsync.2MiB.median",
    "cuMemFreeAsync": "cuMemFreeAsync.2MiB.median", "cuMemFreeAsync_ptsz": "cuMemFreeAsync.2MiB.median",
    "cuLaunchKernel": "cuLaunchKernel.median", "cuLaunchKernel_ptsz": "cuLaunchKernel.median",
    "cuEventRecord": "cuEventRecord.median", "cuEventRecord_ptsz": "cuEventRecord.median",
    "cuEventQuery": "cuEventQuery.done.median", "cuCtxRecordEvent": "cuCtxRecordEvent.median",
}
