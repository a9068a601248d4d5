"""What PyTorch's allocations cost, run by zygote.py in a process of its own for speed.py; these areas judge nothing.

The allocator is PyTorch's own (`native`) or, with `nocache`, none: each request is a cudaMalloc, each free a cudaFree.
"""
import array
import ctypes
import os
import time

import cases

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
SIZES = {"512 B": 512, "2 KiB": 2 * KIB, "8 KiB": 8 * KIB, "32 KiB": 32 * KIB, "128 KiB": 128 * KIB, "512 KiB": 512 * KIB,
         "2 MiB": 2 * MIB, "8 MiB": 8 * MIB, "10 MiB": 10 * MIB, "32 MiB": 32 * MIB, "128 MiB": 128 * MIB, "256 MiB": 256 * MIB,
         "512 MiB": 512 * MIB, "1 GiB": GIB}
ROUNDS = 7
RAW_PAIRS, EMPTY_PAIRS = 20000, 2000  # in a round
PASSES, SECONDS = 6, 0.3  # of a trace, at least


def calls():
    """The functions of pairs.cc."""
    library = ctypes.CDLL(os.environ["TORCH_PAIRS"])
    for function in (library.torch_pair_ns, library.torch_trace_ns):
        function.restype = ctypes.c_double
    library.torch_pair_ns.argtypes = [ctypes.c_size_t] * 2
    library.torch_trace_ns.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t]
    return library


def empty_ns(size, count):
    empty, uint8 = cases.torch().empty, cases.torch().uint8
    start = time.thread_time_ns()
    for _ in range(count):
        empty(size, dtype=uint8, device="cuda")
    return (time.thread_time_ns() - start) / count


@cases.area("native", "nocache")
def speed_pairs(_):
    """Nanoseconds of a pair by size: through the allocator itself, and as a tensor in Python. The least of some rounds."""
    cases.torch().zeros(1, device="cuda")
    raw = calls().torch_pair_ns
    figures = {}
    for name, size in SIZES.items():
        raw(size, 100)
        figures[f"raw {name}"] = min(raw(size, RAW_PAIRS) for _ in range(ROUNDS))
        figures[f"torch.empty {name}"] = min(empty_ns(size, EMPTY_PAIRS) for _ in range(ROUNDS))
    return figures


def events_of(path):
    """A trace's slots, sizes (0: a free), the number of slots, and the most bytes live at once in units of 512."""
    slots, sizes = array.array("I"), array.array("Q")
    of, spare, count = {}, [], 0
    live, peak, bytes_of = 0, 0, {}
    with open(path, encoding="ascii") as stream:
        next(stream)
        for line in stream:
            op, number, size = line.split(",")[:3]
            if op == "a":
                of[number] = spare.pop() if spare else count
                count = max(count, of[number] + 1)
                bytes_of[number] = (int(size) + 511) // 512 * 512
                live += bytes_of[number]
                peak = max(peak, live)
                slots.append(of[number])
                sizes.append(int(size))
            else:
                live -= bytes_of.pop(number)
                slots.append(of[number])
                sizes.append(0)
                spare.append(of.pop(number))
    return slots, sizes, count, peak


@cases.area("native", "nocache")
def speed_trace(allocator):
    """A recorded run's allocations: nanoseconds an event in the first pass, and the least of the later ones."""
    cases.torch().zeros(1, device="cuda")
    slots, sizes, count, peak = events_of(os.environ["TORCH_TRACE"])
    run = calls().torch_trace_ns
    passes, end = [], time.monotonic() + SECONDS
    while len(passes) < PASSES or time.monotonic() < end:
        passes.append(run(slots.buffer_info()[0], sizes.buffer_info()[0], len(sizes), count))
    reserved = cases.torch().cuda.memory_stats()["reserved_bytes.all.peak"] if allocator == "native" else None
    return {"first": passes[0], "later": min(passes[1:]), "peak": peak, "reserved": reserved}
