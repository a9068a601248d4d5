"""The experiments of a first hour on a GPU, as tables: blocks of jobs, and what the project assumes of their rows.

A block is one command of scripts/gpu.sh and ends within nine minutes: the limits of its jobs add up to less, so no job takes
another one's time. They stand in the order of their worth. Job: its experiment, its name, its command, its limit in seconds,
and the setting of the library (LIBRARIES) it runs under. A command's first word is a program of build/tests/gpu, or a Python
program of tests/gpu/python.
"""
import os
import re
from collections import namedtuple

BLOCK_S = 520  # nine minutes, less what the build and the tables take

Job = namedtuple("Job", "experiment name command limit_s library variables", defaults=("none", {}))
Assumption = namedtuple("Assumption", "experiment row holds text file")
Figure = namedtuple("Figure", "experiment title jobs rows first")

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
    return Job("E9", f"steps.{name}", "torch_steps.py steps", 24, library, variables)


BLOCKS = {
    "1": ("the driver's facts, fences, reuse under real kernels", 7, [
        *under("E1", "entries", 20, ["none"]),
        *under("E2", "aliases", 20, ["none"]),
        *under("E5", "record", 40, ["none"]),
        Job("E5", "device_launch", "device_launch", 15),
        *under("E4", "busy", 95, ["none"]),
        *[job for mode in PATTERNS for job in under("E6", f"patterns {mode} SECONDS", 9, ["none", "vmm", "driver", "whole"])],
        *[job for case in ("reset", "destroy", "atexit", "thread")
          for job in under("E7", f"teardown {case}", 6, ["none", "cache"])],
        *under("E7", "teardown none", 6, ["none"]),
        *under("E8", "pointers", 5, ["none", "vmm", "driver", "whole"]),
        *under("E3", "costs", 35, ["none"]),
    ]),
    "2": ("PyTorch, JAX, CuPy, Numba", 8, [
        steps("native.none", "none", {}), steps("native", "cache", {}),
        *under("E10", "others.py jax", 24, ["none", "cache"]),
        *[job for name in ("cupy", "numba") for job in under("E10", f"others.py {name}", 14, ["none", "cache"])],
        steps("expandable.none", "none", EXPANDABLE), steps("expandable", "cache", EXPANDABLE),
        steps("nocache.none", "none", NO_CACHE), steps("nocache", "cache", NO_CACHE),
        steps("async.none", "none", ASYNC), steps("async", "cache", ASYNC),
        *under("E9", "torch_steps.py oom", 14, ["none", "cache"]),
        *under("E9", "torch_steps.py profiler", 16, ["none", "cache"]),
        *under("E10", "torch_steps.py generate", 22, ["none", "cache"]),
        *under("E9", "torch_steps.py compile", 55, ["none", "cache"]),
    ]),
    "3": ("runs of handles, bandwidth, fences without context events", 6, [
        *under("E3", "runs grid", 150, ["none"]),
        *under("E3", "runs failing", 30, ["none", "cache"]),
        *under("E3", "runs exit", 90, ["none"]),
        *under("E3", "runs slab", 20, ["none"]),
        *under("E14", "bandwidth", 60, ["none"]),
        *[job for kind in ("blocking", "others") for job in under("E15", f"fences 128 {kind}", 10, ["none"])],
        *[job for kind in ("blocking", "others")
          for job in under("E15", f"fences 128 {kind} frees", 10, ["none", "cache", "eventless", "sync"])],
        *[job for kind in ("blocking", "others")
          for job in under("E15", f"fences 128 {kind} conservative", 10, ["cache"])],
    ]),
    "4": ("memory accounts, sharing, tools", 5, [
        *under("E11", "process_memory.py driver", 15, ["none", "limited"]),
        *under("E11", "process_memory.py torch", 25, ["none", "limited"]),
        *under("E11", "stack", 20, ["none", "cache"]),
        *under("E13", "ipc", 10, ["none", "cache", "vmm", "driver", "whole"]),
        *under("E13", "share.py multiprocessing", 35, ["none", "cache", "whole"]),
        *under("E13", "share.py nccl", 25, ["none", "cache"]),
        Job("E12", "tools", "tools.py LIBRARY PROGRAM", 180),
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
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# The account of a process's memory, and its comparison with NVML's figure, without which the driver's own memory is missed.
ACCOUNT, COMPARISON = "shim/account/measure.c", "core/reclaim/reconcile.c"
COMPARES = os.path.exists(os.path.join(ROOT, COMPARISON))

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
    ("E2", "aliases.none:rdma?.*.between.wrong", zero, "the aliases that are left keep the content", "core/backing/unmap.c"),
    ("E3", "runs.exit.none:*.status", zero, "a process that holds mapped memory ends well", "shim/life/exit_report.c"),
    ("E4", "busy.none:*.code", ok, "every memory call succeeds beside work", "shim/driver/driver_map.c"),
    ("E4", "busy.none:*.cuMemCreate.waits", no, "cuMemCreate does not wait for work", "core/backing/segment.c"),
    ("E4", "busy.none:*.cuMemMap.waits", no, "cuMemMap does not wait for work", "core/backing/map.c"),
    ("E4", "busy.none:*.cuMemSetAccess.waits", no, "cuMemSetAccess does not wait for work", "core/backing/map.c"),
    ("E4", "busy.none:*.cuMemUnmap.waits", no, "cuMemUnmap does not wait for work", "core/backing/unmap.c"),
    ("E4", "busy.none:*.cuMemRelease.waits", no, "cuMemRelease does not wait for work", "core/backing/unmap.c"),
    ("E4", "busy.none:*.cuMemAddress*.waits", no, "taking and leaving addresses does not wait for work", "core/backing/map.c"),
    ("E4", "busy.none:*.cuMemAlloc.*.waits", no, "cuMemAlloc does not wait for work", "core/backing/segment.c"),
    ("E4", "busy.none:*.cuMemFree.*.waits", yes, "cuMemFree waits for work: what a free without it saves",
     "tests/simcuda/driver/memory_free.c"),
    ("E4", "busy.none:*.cuMemHostAlloc.waits", no, "cuMemHostAlloc does not wait for work", "tests/simcuda/driver/memory_host.c"),
    ("E4", "busy.none:*.cuMemFreeHost.waits", yes, "cuMemFreeHost waits for work", "tests/simcuda/driver/memory_host.c"),
    ("E4", "busy.none:*.cuModuleLoadData.waits", no, "loading a module does not wait for work", "shim/wrap/module_api.c"),
    ("E4", "busy.none:*.cuStreamCreate.waits", no, "a stream is made beside work", "shim/driver/stream_list.c"),
    ("E4", "busy.none:*.cuCtxRecordEvent.waits", no, "a fence does not wait for work", "shim/driver/driver_fence.c"),
    ("E4", "busy.none:*.cuEventRecord.waits", no, "an event does not wait for work", "shim/driver/stream_list.c"),
    ("E4", "busy.none:*.cuMemGetInfo.waits", no, "cuMemGetInfo does not wait for work", "shim/account/measure.c"),
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
    ("E6", "patterns.programmatic.none:*.overlaps", yes, "programmatic launches overlap: the test reaches what it is for",
     "tests/gpu/kernels_90.ptx"),
    ("E6", "patterns.*:*.canary", above(0), "the check counts words that are wrong", "tests/gpu/patterns.c"),
    ("E7", "teardown.none.none:none.[!i]*", ok, "mapped memory needs no context", "shim/driver/driver_map.c"),
    ("E7", "teardown.destroy.none:destroy.*", ok, "mapped memory outlives a context", "shim/driver/driver_map.c"),
    ("E7", "teardown.reset.none:reset.mapping_kept", yes, "mapped memory outlives the reset of its device",
     "shim/driver/driver_map.c"),
    ("E7", "teardown.reset.*:reset.alloc_after", ok, "a device allocates after its reset", "shim/wrap/primary_api.c"),
    ("E7", "teardown.reset.*:reset.same_handle", yes, "the primary context's handle comes back after a reset",
     "shim/account/primary.c"),
    ("E7", "teardown.thread.*:thread.ends", yes, "a thread may free while the process ends", "core/reclaim/tcache.c"),
    ("E7", "teardown.thread.*:thread.status", zero, "and the process ends well", "core/reclaim/tcache.c"),
    ("E8", "pointers.none:alignment.512B", equals(*[1 << n for n in range(9, 22)]), "small blocks have 512 bytes of alignment",
     "core/pool/place.c"),
    ("E9", "torch_steps.oom.*:failures", equals(3), "each out-of-memory is an error", "core/reclaim/reclaim.c"),
    ("E9", "torch_steps.oom.*:half_fits", yes, "memory is whole after out-of-memory", "core/reclaim/reclaim.c"),
    ("E9", "torch_steps.compile.*:difference", below(1e-3), "compiled graphs compute the same", "shim/wrap/graph_api.c"),
    ("E9", "torch_steps.compile.*:finite", yes, "graph trees train", "shim/wrap/graph_api.c"),
    ("E9", "torch_steps.profiler.*:kernels", above(0), "the profiler sees kernels", "shim/life/tools.c"),
    ("E10", "others.*:*_right", yes, "JAX and CuPy compute the same", "shim/wrap/driver_api.c"),
    ("E10", "others.*:numba.wrong", zero, "Numba computes the same", "shim/wrap/driver_api.c"),
    ("E11", "stack.*:launch", ok, "a launch under a full cache finds its memory", "shim/wrap/relieve.c"),
    ("E11", "stack.*:launch.ends", ok, "its kernel ends well", "shim/wrap/relieve.c"),
    ("E11", "stack.*:stream", ok, "a stream is made under a full cache", "shim/wrap/relieve.c"),
    ("E11", "stack.*:event", ok, "an event is made under a full cache", "shim/wrap/relieve.c"),
    ("E11", "stack.*:alloc_after", ok, "an allocation fits afterwards", "core/reclaim/leave.c"),
    ("E11", "stack.none:first_launch", zero, "a module's memory is taken at its load", "tests/simcuda/driver/settings.c"),
    *[("E11", f"process_memory.{work}.limited:process.not_counted", below(0.1 if COMPARES else 1),
       f"less than {'100 MiB' if COMPARES else '1 GiB'} of the process's memory is not counted, {work}",
       ", ".join([ACCOUNT, COMPARISON] if COMPARES else [ACCOUNT])) for work in ("driver", "torch")],
    *[("E11", f"process_memory.{work}.limited:process.not_counted", above(-0.1),
       f"no more is counted than the process has, {work}", ACCOUNT) for work in ("driver", "torch")],
    ("E12", "tools:*.works", yes, "tools work beside the library", "shim/life/tools.c"),
    ("E12", "tools:*.wrong", zero, "tools change no byte", "shim/life/tools.c"),
    ("E13", "ipc.none:*.512B", ok, "the driver exports small blocks", "shim/wrap/ipc_api.c"),
    ("E13", "ipc.*:open.*.reads", yes, "an opened block reads as its own", "shim/wrap/ipc_api.c"),
    ("E13", "ipc.*:export.*.sees_write", yes, "a write through an opened block arrives", "shim/wrap/ipc_api.c"),
    ("E13", "ipc.whole:export.?*B", ok, "the backend `whole` exports every block", "shim/wrap/ipc_api.c"),
    ("E13", "share.multiprocessing.*:tensor.shared", yes, "processes share a tensor", "shim/driver/backend.c"),
    ("E13", "share.multiprocessing.*:tensor.[rs]e[ae]*", yes, "each reads what the other wrote", "shim/wrap/ipc_api.c"),
    ("E13", "share.nccl.*:nccl.sum_right", yes, "NCCL adds up", "shim/wrap/vmm_api.c"),
    ("E13", "share.nccl.*:nccl.register", ok, "NCCL registers a block", "shim/wrap/vmm_api.c"),
    ("E14", "bandwidth.none:handles.2MiB.*_to_plain", above(0.9), "memory in handles of 2 MiB is as fast as the driver's own",
     "core/pool/pages.h"),
    ("E15", "fences.128.*.frees.cache:overlap", above(4), "kernels of many streams overlap beside frees",
     "shim/driver/driver_fence.c"),
)]
# Jobs whose rows must be the same without the library and under it: (experiment, job without, job under, rows, file).
PAIRS = [
    ("E8", "pointers.none", f"pointers.{backend}", "*", "shim/wrap/query_api.c") for backend in ("vmm", "driver", "whole")
] + [
    ("E9", f"steps.{name}.none", f"steps.{name}", "checksum", "core/reclaim/defer.c")
    for name in ("native", "expandable", "nocache", "async")
] + [
    ("E10", "torch_steps.generate.none", "torch_steps.generate.cache", "generate.*", "core/reclaim/defer.c"),
    ("E7", "teardown.reset.none", "teardown.reset.cache", "reset.*", "shim/wrap/primary_api.c"),
    ("E7", "teardown.destroy.none", "teardown.destroy.cache", "destroy.*", "core/alloc/teardown.c"),
    ("E7", "teardown.atexit.none", "teardown.atexit.cache", "atexit.*", "shim/life/exit_report.c"),
    ("E9", "torch_steps.oom.none", "torch_steps.oom.cache", "failures", "core/reclaim/reclaim.c"),
]
# Differences of these rows that are meant: (job under the library, rows, a condition on both values, reason).
ALLOWED = [
    ("pointers.*", "alignment.*", lambda plain, under: under >= min(plain, 64 << 10), "large blocks may be aligned to 64 KiB only, others to more"),
    ("pointers.vmm", "single.*.5*", None, "the driver has tokens for cuMemAlloc's memory alone; with `whole` a block is that"),
    ("pointers.*", "tokens.*.sync_memops", None, "asking for tokens sets it in the driver, for the allocation around the block"),
    ("pointers.vmm", "*.512B.10", None, "other processes cannot open a part of a page: not capable"),
    ("pointers.driver", "*.512B.10", None, "other processes cannot open a part of an allocation: not capable"),
    ("pointers.vmm", "ipc.512B", None, "nor has such a block a handle: CUDA_ERROR_NOT_SUPPORTED; `whole` has one for each"),
    ("pointers.driver", "ipc.512B", None, "nor has such a block a handle: CUDA_ERROR_NOT_SUPPORTED; `whole` has one for each"),
    ("pointers.vmm", "dma_buf.*", None, "the page around a block can be exported, where the block's own allocation cannot"),
    ("pointers.driver", "dma_buf.*", None, "the allocation around a block can be exported, where the block's own cannot"),
]
# ---- figures ----

# Rows as tables: a line for each `row` of the expression (without one, for each job), a column for each `column`.
FIGURES = [Figure(experiment, title, jobs, re.compile(rows), first) for experiment, title, jobs, rows, first in (
    ("E1", "entry points", "entries.*", r"entries\.(?P<column>.+)", "job"),
    ("E3", "calls: median … 99th percentile", "costs.*",
     r"(?P<row>.+?)(?:\.(?P<column>\d+(?:[KMG]i)?B))?\.(?:median|p99)", "call"),
    ("E3", "runs of handles: a handle's part of each step; all of it", "runs.grid.*",
     r"(?P<row>\d+MiB\.\d+GiB\.rdma\d)\.(?P<column>(?:create|map|access|unmap|release)(?=\.handle)|all)(?:\.handle)?",
     "handles"),
    ("E3", "a process's exit", "runs.exit.*", r"exit\.(?P<row>.+)\.(?P<column>\d+[MG]iB)", "held"),
    ("E3", "the kernel's memory", "runs.slab.*", r"slab\.(?P<column>.+)", "job"),
    ("E4", "calls beside a kernel of 3 s, and beside one that the host ends: time … whether it waits", "busy.*",
     r"(?P<column>kernel|host)\.(?P<row>[^.]+(?:\.\d+MiB)?)(?:\.waits)?", "call"),
    ("E5", "cuCtxRecordEvent: median … 99th percentile", "record.*",
     r"cost\.(?P<row>streams\d+)\.(?P<column>idle|busy)\.(?:median|p99)", "streams"),
    ("E6", "blocks used, bytes checked", "patterns.*", r"\w+\.(?P<column>rounds|checked|early)", "job"),
    ("E8", "alignment", "pointers.*", r"alignment\.(?P<column>.+)", "job"),
    ("E9", "training steps", "steps.*", r"step\.(?P<column>.+)", "job"),
    ("E11", "the process's memory", "process_memory.*", r"(?P<column>(?:library|process|torch)\..+)", "job"),
    ("E11", "a full cache", "stack.*", r"(?P<column>first_launch|cached|free)", "job"),
    ("E12", "tools", "tools", r"(?P<row>[\w-]+\.\w+)\.(?P<column>status|works|wrong)", "tool"),
    ("E14", "bandwidth", "bandwidth.*", r"(?P<row>.+)\.(?P<column>(?:read|gather)(?:_to_plain)?)", "memory"),
    ("E15", "streams with fences", "fences.*", r"(?P<column>.+)", "job"),
)]
# Units of the other rows that are figures.
MEASURED = ("us", "ms", "s", "KiB", "GiB", "errors", "events", "sixteenths")

# Entries of the latency profile, and the job and row that each is read from. The simulated device takes the time of
# cuMemSetAccess and cuMemUnmap for each handle, and that of the others for each call.
RUN = "2MiB.32GiB.rdma0"
LATENCIES = {entry: ("costs.none", row) for entry, row in {
    "cuMemAlloc_v2": "cuMemAlloc.2MiB.median", "cuMemAllocPitch_v2": "cuMemAllocPitch.2MiB.median",
    "cuMemFree_v2": "cuMemFree.2MiB.median", "cuMemGetInfo_v2": "cuMemGetInfo.median",
    "cuMemHostAlloc": "cuMemHostAlloc.2MiB.median", "cuMemFreeHost": "cuMemFreeHost.2MiB.median",
    "cuMemAddressReserve": "cuMemAddressReserve.2MiB.median", "cuMemCreate": "cuMemCreate.2MiB.median",
    "cuMemMap": "cuMemMap.2MiB.median", "cuMemRelease": "cuMemRelease.2MiB.median",
    "cuMemAllocAsync": "cuMemAllocAsync.2MiB.median", "cuMemAllocAsync_ptsz": "cuMemAllocAsync.2MiB.median",
    "cuMemFreeAsync": "cuMemFreeAsync.2MiB.median", "cuMemFreeAsync_ptsz": "cuMemFreeAsync.2MiB.median",
    "cuLaunchKernel": "cuLaunchKernel.median", "cuLaunchKernel_ptsz": "cuLaunchKernel.median",
    "cuEventRecord": "cuEventRecord.median", "cuEventRecord_ptsz": "cuEventRecord.median",
    "cuEventQuery": "cuEventQuery.done.median", "cuCtxRecordEvent": "cuCtxRecordEvent.median",
}.items()}
LATENCIES.update(cuMemSetAccess=("runs.grid.none", f"{RUN}.access.handle"),
                 cuMemUnmap=("runs.grid.none", f"{RUN}.unmap.handle"))
