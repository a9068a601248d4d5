"""The process's true use of the device beside the library's account. usage: process_memory.py driver | torch

driver: a kernel and some blocks, by the driver's functions alone. torch: with cuBLAS and cuDNN. What the process
holds is asked of NVML by a process of its own, that nothing is preloaded into: the library shows its process no more than the
account has. Under the library the rest that the account lacks must be small.
"""
import ctypes
import os
import subprocess
import sys
import time

from rows import IS_REHEARSAL, missing, need_torch, row, skip, statistics

GIB = float(1 << 30)
KERNEL = b".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry nothing() { ret; }\n\0"
SETTLE_S = 5.0  # the library compares its account with NVML's figure on a thread of its own, once a second at least
NVML = """
import ctypes, sys
class Process(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong), ("gpu", ctypes.c_uint), ("compute", ctypes.c_uint)]
nvml = ctypes.CDLL("libnvidia-ml.so.1")
device, count, found = ctypes.c_void_p(), ctypes.c_uint(256), (Process * 256)()
for code in (nvml.nvmlInit_v2(), nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)),
             nvml.nvmlDeviceGetComputeRunningProcesses_v3(device, ctypes.byref(count), found)):
    if code != 0:
        sys.exit(f"NVML's error {code}")
for process in found[:count.value]:
    print(process.pid, process.used)
"""


def nvml_figure():
    """Bytes that NVML says this process holds; None if it does not say. In a container the number of the process may be
    another one: then the only process with memory is meant."""
    environment = {name: value for name, value in os.environ.items()
                   if name != "LD_PRELOAD" and not name.startswith(("GPUCACHE_", "CUDA_DEVICE_MEMORY_"))}
    asked = subprocess.run([sys.executable, "-c", NVML], env=environment, capture_output=True, text=True, timeout=30, check=False)
    print(f"NVML's processes: {asked.stdout.split()} {asked.stderr.strip()}")
    figures = {int(line.split()[0]): int(line.split()[1]) for line in asked.stdout.splitlines()}
    figures = {pid: used for pid, used in figures.items() if used != (1 << 64) - 1}
    own = [figures[os.getpid()]] if os.getpid() in figures else list(figures.values())
    return own[0] if len(own) == 1 else None


def check(code, call):
    if code != 0:
        sys.exit(f"{call}: CUDA error {code}")


def work_of_driver():
    """A context, a module, its first launch, 512 MiB of blocks, half of them freed."""
    cuda = ctypes.CDLL("libcuda.so.1")
    context, module, kernel = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    check(cuda.cuInit(0), "cuInit")
    check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), "cuDevicePrimaryCtxRetain")
    check(cuda.cuCtxSetCurrent(context), "cuCtxSetCurrent")
    check(cuda.cuModuleLoadData(ctypes.byref(module), KERNEL), "cuModuleLoadData")
    check(cuda.cuModuleGetFunction(ctypes.byref(kernel), module, b"nothing"), "cuModuleGetFunction")
    check(cuda.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, None, None, None), "cuLaunchKernel")
    blocks = [ctypes.c_ulonglong() for _ in range(8)]
    for block in blocks:
        check(cuda.cuMemAlloc_v2(ctypes.byref(block), ctypes.c_size_t(64 << 20)), "cuMemAlloc")
    for block in blocks[::2]:
        check(cuda.cuMemFree_v2(block), "cuMemFree")
    check(cuda.cuCtxSynchronize(), "cuCtxSynchronize")

    def again(turn):
        check(cuda.cuMemAlloc_v2(ctypes.byref(blocks[0]), ctypes.c_size_t((5 + turn) * 64 << 20)), "cuMemAlloc")
        check(cuda.cuMemFree_v2(blocks[0]), "cuMemFree")
    return again


def work_of_torch():
    torch = need_torch()
    a = torch.randn(2048, 2048, device="cuda")
    if IS_REHEARSAL:  # the stand-ins of cuBLAS and cuDNN do less
        return lambda turn: torch.empty(turn * 64 << 20, dtype=torch.uint8, device="cuda")
    for kind in (torch.float32, torch.bfloat16):
        (a.to(kind) @ a.to(kind)).sum().item()
    torch.nn.functional.conv2d(torch.randn(16, 32, 64, 64, device="cuda"), torch.randn(64, 32, 3, 3, device="cuda")).sum().item()
    torch.linalg.svd(a[:256, :256])
    torch.cuda.synchronize()
    row("torch.reserved", torch.cuda.memory_reserved() / GIB, "GiB")
    return lambda turn: torch.empty(turn * 64 << 20, dtype=torch.uint8, device="cuda")


again = {"driver": work_of_driver, "torch": work_of_torch}[sys.argv[1]]()
end, turn = time.monotonic() + SETTLE_S, 0
process, figures = nvml_figure(), statistics()
while figures is not None and process is not None and process - figures.reserved > 0.1 * GIB and time.monotonic() < end:
    turn += 1
    again(turn)  # more from the driver, which makes a comparison due
    time.sleep(0.5)
    process, figures = nvml_figure(), statistics()
if figures is None:
    skip("library.*", "the library is not loaded")
else:
    row("library.reserved", figures.reserved / GIB, "GiB")
    row("library.limit", figures.limit / GIB, "GiB")
if process is None:
    missing("process.*", "NVML has no figure for this process")
else:
    row("process.nvml", process / GIB, "GiB")
    if figures is not None:
        row("process.not_counted", (process - figures.reserved) / GIB, "GiB")
