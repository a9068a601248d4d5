"""Memory that two processes share through libraries. usage: share.py multiprocessing | nccl"""
import ctypes
import ctypes.util
import glob
import os
import queue as queues
import sys
import time

from rows import IS_REHEARSAL, missing, need_torch, row, skip

ANSWER_S = 15  # for a child to import PyTorch and open a tensor


def child(queue, back):
    tensor = queue.get()
    import torch
    host = tensor.cpu()
    back.put((float(host.sum()), float(host[-1])))
    tensor.copy_(torch.full(tensor.shape, 3.0))
    torch.cuda.synchronize()
    back.put("filled")
    del tensor


def multiprocessing():
    torch = need_torch()
    import torch.multiprocessing as processes
    context = processes.get_context("spawn")
    queue, back = context.Queue(), context.Queue()
    process = context.Process(target=child, args=(queue, back))
    process.start()

    def answer():
        """The child's next; waits no longer than the child lives."""
        end = time.monotonic() + ANSWER_S
        while time.monotonic() < end:
            try:
                return back.get(timeout=0.2)
            except queues.Empty:
                if not process.is_alive() and back.empty():
                    raise RuntimeError(f"the child ended with status {process.exitcode}") from None
        raise TimeoutError(f"no answer within {ANSWER_S} s")

    tensor = torch.full((1 << 20,), 2.0).cuda()
    torch.cuda.synchronize()
    is_shared = False
    try:
        queue.put(tensor)
        total, last = answer()
        row("tensor.reads", total == 2.0 * (1 << 20) and last == 2.0, "yes")
        answer()
        row("tensor.sees_write", tensor[5].item() == 3.0, "yes")
        is_shared = True
    except Exception as error:  # the assumption is named, whatever it was
        print(f"multiprocessing: {error!r}")
        process.kill()
    row("tensor.shared", is_shared, "yes")
    process.join(5)
    row("child.status", -1 if process.exitcode is None else process.exitcode, "status")
    if process.is_alive():
        process.kill()
    queue.cancel_join_thread()  # an unread tensor is no reason to wait


def nccl_library():
    places = [os.path.join(path, "nvidia/nccl/lib/libnccl.so.2") for path in sys.path]
    for name in [*filter(os.path.exists, places), *glob.glob("/usr/lib/*/libnccl.so.2"), "libnccl.so.2"]:
        try:
            return ctypes.CDLL(name)
        except OSError as error:
            print(error)
    return None


def nccl():
    torch = need_torch()
    library = nccl_library()
    if library is None:
        missing("nccl.*", "no libnccl.so.2 here")
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
    if IS_REHEARSAL:
        skip("nccl.sum_right", "the stand-in of NCCL adds nothing up")
    else:
        row("nccl.sum_right", tensor.sum().item() == tensor.numel(), "yes")
    if handle.value:
        row("nccl.deregister", library.ncclCommDeregister(communicator, handle), "code")
    library.ncclCommDestroy(communicator)


if __name__ == "__main__":
    {"multiprocessing": multiprocessing, "nccl": nccl}[sys.argv[1]]()
