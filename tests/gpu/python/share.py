"""Memory that two processes share through libraries. usage: share.py multiprocessing | nccl"""
import ctypes
import ctypes.util
import glob
import os
import sys

from rows import need, row, skip


def child(queue, back):
    tensor = queue.get()
    back.put((float(tensor.sum().item()), float(tensor[-1].item())))
    tensor.fill_(3)
    import torch
    torch.cuda.synchronize()
    back.put("filled")
    del tensor


def multiprocessing():
    torch = need("torch")
    if not torch.cuda.is_available():
        skip("*", "torch sees no device")
        return
    import torch.multiprocessing as processes
    context = processes.get_context("spawn")
    queue, back = context.Queue(), context.Queue()
    process = context.Process(target=child, args=(queue, back))
    process.start()
    tensor = torch.full((1 << 20,), 2.0, device="cuda")
    torch.cuda.synchronize()
    try:
        queue.put(tensor)
        total, last = back.get(timeout=60)
        row("tensor.reads", total == 2.0 * (1 << 20) and last == 2.0, "yes")
        back.get(timeout=60)
        row("tensor.sees_write", tensor[5].item() == 3.0, "yes")
        row("tensor.shared", 1, "yes")
    except Exception as error:
        print(f"multiprocessing: {error!r}")
        row("tensor.shared", 0, "yes")
        process.terminate()
    process.join(30)
    row("child.status", -1 if process.exitcode is None else process.exitcode, "status")
    if process.is_alive():
        process.kill()


def nccl_library():
    places = [os.path.join(path, "nvidia/nccl/lib/libnccl.so.2") for path in sys.path]
    for name in [*filter(os.path.exists, places), *glob.glob("/usr/lib/*/libnccl.so.2"), "libnccl.so.2"]:
        try:
            return ctypes.CDLL(name)
        except OSError as error:
            print(error)
    return None


def nccl():
    torch = need("torch")
    library = nccl_library()
    if library is None or not torch.cuda.is_available():
        skip("nccl.*", "no libnccl.so.2, or no device")
        return
    torch.cuda.set_device(0)
    tensor = torch.ones(8 << 20, device="cuda")
    communicator, handle = ctypes.c_void_p(), ctypes.c_void_p()
    devices = (ctypes.c_int * 1)(0)
    row("nccl.init", library.ncclCommInitAll(ctypes.byref(communicator), 1, devices), "code")
    bytes_ = ctypes.c_size_t(tensor.numel() * 4)
    address = ctypes.c_void_p(tensor.data_ptr())
    row("nccl.register", library.ncclCommRegister(communicator, address, bytes_, ctypes.byref(handle)), "code")
    float32, add = 7, 0
    row("nccl.all_reduce", library.ncclAllReduce(address, address, ctypes.c_size_t(tensor.numel()), float32, add, communicator,
                                                 ctypes.c_void_p(0)), "code")
    torch.cuda.synchronize()
    row("nccl.sum_right", tensor.sum().item() == tensor.numel(), "yes")
    if handle.value:
        row("nccl.deregister", library.ncclCommDeregister(communicator, handle), "code")
    library.ncclCommDestroy(communicator)


if __name__ == "__main__":
    {"multiprocessing": multiprocessing, "nccl": nccl}[sys.argv[1]]()
