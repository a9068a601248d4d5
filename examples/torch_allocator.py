"""PyTorch with libgpucache as its allocator, in the order of its own streams and without a preload.

The package gpucache is in the wheel (`make wheel`), and in build/python (`make python`): PYTHONPATH=build/python.
`make test-torch` runs it on the simulated device, which computes nothing.

usage: torch_allocator.py [pool]     pool: only the tensors of a scope, in PyTorch's own cache above the library
"""
import contextlib
import sys

import torch

import gpucache
import gpucache.torch

if sys.argv[1:] == ["pool"]:
    scope = gpucache.torch.use_pool()
else:
    gpucache.torch.install()  # before the first tensor on the GPU
    scope = contextlib.nullcontext()

with scope:
    x = torch.randn(4096, 4096, device="cuda")
    for _ in range(10):
        y = x @ x
torch.cuda.synchronize()
print(float(y.sum()))
print("reserved at most:", gpucache.statistics().reserved_peak_bytes >> 20, "MiB")
