"""libgpucache as PyTorch's allocator: every tensor, or those of a MemPool, in the order of PyTorch's own streams.

    import gpucache.torch
    gpucache.torch.install()                 # before the first tensor on a GPU: all of PyTorch's device memory

    with gpucache.torch.use_pool():          # or: tensors that are made here, PyTorch's own cache above the library
        ...

A request without memory is torch.OutOfMemoryError in both. tensor.record_stream, torch.cuda.empty_cache and
torch.cuda.set_per_process_memory_fraction reach the library. PyTorch has no figures of its own for another allocator
(torch.cuda.memory_allocated and its like refuse): gpucache.statistics() has them.

No preload is needed. Under `gpucache run` PyTorch's own allocator is served already: nothing of this module is.
"""
import contextlib
import ctypes
import os

import torch

from gpucache import _library

_SHIM = os.path.join(os.path.dirname(_library.PACKAGED), "libgpucache-torch.so")
_kept = {}  # PyTorch keeps no reference to what its allocators are made of


def _with_hooks(allocator):
    """So that tensor.record_stream, torch.cuda.empty_cache and set_per_process_memory_fraction reach the library."""
    inner = allocator.allocator()
    inner.set_record_stream_fn(_library.address("gpucache_torch_record_stream"))
    inner.set_reset_fn(_library.address("gpucache_torch_reset"))
    inner.set_memory_fraction_fn(_library.address("gpucache_torch_memory_fraction"))
    return allocator


def _bind():
    """Loads the part that throws PyTorch's error, and leads it to the library and to this PyTorch."""
    shim = ctypes.CDLL(_SHIM)
    folder = os.path.join(os.path.dirname(torch.__file__), "lib")
    bind = shim.gpucache_torch_bind
    bind.restype = ctypes.c_char_p
    handles = [_library.loaded(), *(ctypes.CDLL(os.path.join(folder, name)) for name in ("libc10.so", "libc10_cuda.so"))]
    missing = bind(*(ctypes.c_void_p(library._handle) for library in handles))  # pylint: disable=protected-access
    if missing is not None:
        raise RuntimeError(f"gpucache: {missing.decode()} is not in PyTorch {torch.__version__}, so that an allocator cannot "
                           "raise its torch.OutOfMemoryError; gpucache.torch.use_pool() can")
    return shim


def allocator():
    """The torch.cuda.memory.CUDAPluggableAllocator that install() makes current."""
    if "allocator" not in _kept:
        shim = _bind()
        made = _with_hooks(torch.cuda.memory.CUDAPluggableAllocator(_SHIM, "gpucache_torch_take", "gpucache_torch_give"))
        for hook, name in (("set_begin_allocate_to_pool", "begin"), ("set_end_allocate_to_pool_fn", "end"),
                           ("set_release_pool", "release"), ("set_record_stream_fn", "record")):  # a graph keeps its memory
            getattr(made.allocator(), hook)(ctypes.cast(getattr(shim, f"gpucache_torch_{name}"), ctypes.c_void_p).value)
        _kept["allocator"] = made
    return _kept["allocator"]


def install():
    """Makes the library PyTorch's allocator. RuntimeError of PyTorch's: it has allocated already."""
    torch.cuda.memory.change_current_allocator(allocator())


def MemPool(**options):  # pylint: disable=invalid-name
    """A torch.cuda.MemPool whose memory is the library's; `options` are those of torch.cuda.MemPool."""
    if "pool" not in _kept:  # NULL is out of memory there: PyTorch releases its cached blocks, and tries again
        _kept["pool"] = _with_hooks(
            torch.cuda.memory.CUDAPluggableAllocator(_library.path(), "gpucache_torch_malloc", "gpucache_torch_free"))
    return torch.cuda.MemPool(_kept["pool"].allocator(), **options)


@contextlib.contextmanager
def use_pool(pool=None, device=None):
    """Tensors that this thread makes in the scope are in `pool`, a new MemPool() unless given."""
    pool = MemPool() if pool is None else pool
    with torch.cuda.use_mem_pool(pool, device):
        yield pool
