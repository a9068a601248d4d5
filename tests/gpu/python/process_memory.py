"""The process's true use of the device beside the library's account: cuBLAS and cuDNN loaded, under a limit."""
import os
import subprocess
import sys

from rows import need, row, skip, statistics

torch = need("torch")
if not torch.cuda.is_available():
    skip("*", "torch sees no device")
    sys.exit(0)
GIB = float(1 << 30)


def nvml_figure():
    """Bytes that NVML says this process holds; None if it does not say."""
    try:
        import pynvml
        pynvml.nvmlInit()
        device = pynvml.nvmlDeviceGetHandleByIndex(0)
        for process in pynvml.nvmlDeviceGetComputeRunningProcesses(device):
            if process.pid == os.getpid() and process.usedGpuMemory:
                return process.usedGpuMemory
    except Exception as error:
        print(f"NVML: {error!r}")
    query = ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"]
    try:
        lines = subprocess.run(query, capture_output=True, text=True, timeout=30, check=True).stdout.splitlines()
        rows = [line.split(", ") for line in lines]
        own = [int(used) << 20 for pid, used in rows if int(pid) == os.getpid()] or [int(used) << 20 for _, used in rows]
        return own[0] if own else None
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        print(f"nvidia-smi: {error!r}")
        return None


def work():
    a = torch.randn(2048, 2048, device="cuda")
    for kind in (torch.float32, torch.bfloat16):
        (a.to(kind) @ a.to(kind)).sum().item()
    torch.nn.functional.conv2d(torch.randn(16, 32, 64, 64, device="cuda"), torch.randn(64, 32, 3, 3, device="cuda")).sum().item()
    torch.linalg.svd(a[:256, :256])
    torch.cuda.synchronize()


try:
    work()
except RuntimeError as error:  # cuDNN's and cuBLAS's stand-ins of a rehearsal do less
    print(f"work: {error!r}")
figures, process = statistics(), nvml_figure()
row("torch.reserved", torch.cuda.memory_reserved() / GIB, "GiB")
if figures is None:
    skip("library.*", "the library is not loaded")
else:
    row("library.reserved", figures.reserved / GIB, "GiB")
    row("library.limit", figures.limit / GIB, "GiB")
if process is None:
    skip("process.*", "NVML has no figure for this process")
else:
    row("process.nvml", process / GIB, "GiB")
    if figures is not None:
        row("process.not_counted", (process - figures.reserved) / GIB, "GiB")
