"""PyTorch with libgpucache as its allocator, in the order of its own streams and without a preload.

`make test-torch` runs it on the simulated device, which computes nothing.

PyTorch does not check what a pluggable allocator returns: if memory is short the tensor has no memory, and its first use
fails. In a MemPool of the allocator the request fails as torch.OutOfMemoryError. So where a limit may be reached: `pool`.

usage: torch_allocator.py /usr/local/lib/libgpucache.so [pool]
"""
import contextlib
import ctypes
import sys

import torch

path = sys.argv[1]
allocator = torch.cuda.memory.CUDAPluggableAllocator(path, "gpucache_torch_malloc", "gpucache_torch_free")
library = ctypes.CDLL(path)


def address(name):
    """What the set_…_fn functions take."""
    return ctypes.cast(getattr(library, name), ctypes.c_void_p).value


# So that tensor.record_stream, torch.cuda.empty_cache and set_per_process_memory_fraction reach the library.
inner = allocator.allocator()
inner.set_record_stream_fn(address("gpucache_torch_record_stream"))
inner.set_reset_fn(address("gpucache_torch_reset"))
inner.set_memory_fraction_fn(address("gpucache_torch_memory_fraction"))
if sys.argv[2:] == ["pool"]:
    scope = torch.cuda.use_mem_pool(torch.cuda.MemPool(inner))
else:
    torch.cuda.memory.change_current_allocator(allocator)  # before the first tensor on the GPU
    scope = contextlib.nullcontext()

with scope:
    x = torch.randn(4096, 4096, device="cuda")
    for _ in range(10):
        y = x @ x
torch.cuda.synchronize()
print(float(y.sum()))
