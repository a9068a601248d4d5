"""gpucache.torch in one process; prints a line of JSON with what it saw. usage: allocator.py install|pool|graphs"""
import gc
import json
import resource
import sys
import threading

import torch

import gpucache
import gpucache.torch

MIB = 1 << 20
LIMIT = 320 * MIB
LARGE = 2000 * MIB  # of a device with 4 GiB: the limit refuses it


def take(count):
    return torch.zeros(count, dtype=torch.uint8, device="cuda")


def refused(call, *arguments):
    """The type and the first line of the error that a call ends with."""
    try:
        call(*arguments)
    except Exception as error:  # pylint: disable=broad-except
        return [type(error).__module__, type(error).__name__, str(error).splitlines()[0]]
    return None


class Large(torch.autograd.Function):
    """A request without memory in the backward pass: a thread of PyTorch's own asks."""

    @staticmethod
    def forward(context, value):
        return value.clone()

    @staticmethod
    def backward(context, gradient):
        take(LARGE)
        return gradient


def backward():
    Large.apply(torch.zeros(4, device="cuda", requires_grad=True)).sum().backward()


def in_thread(call, *arguments):
    found = []
    thread = threading.Thread(target=lambda: found.append(refused(call, *arguments)))
    thread.start()
    thread.join()
    return found[0]


def stays_while_recorded(kept):
    """Memory freed while another stream may use it is not handed out before that work is done."""
    other = torch.cuda.Stream()
    address = kept.data_ptr()
    with torch.cuda.stream(other):
        for _ in range(8):
            kept.copy_(kept)  # each takes SIMCUDA_WORK_US
    kept.record_stream(other)
    del kept
    early = take(64 * MIB).data_ptr() == address
    other.synchronize()
    return early


def without_record(kept):
    address = kept.data_ptr()
    del kept
    return take(64 * MIB).data_ptr() == address


def memory_mib():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def common(seen):
    """All that holds for both ways."""
    host = torch.arange(1000, dtype=torch.int32)
    seen["content"] = bool(torch.equal(host.cuda().cpu(), host))
    gpucache.set_limit(LIMIT)
    before = gpucache.statistics()
    seen["refused"] = refused(take, LARGE)
    after = gpucache.statistics()
    seen["limit"] = after.limit_bytes
    seen["requests"] = after.oom_count - before.oom_count
    seen["within"] = after.reserved_peak_bytes <= LIMIT
    whole = take(200 * MIB)
    seen["served after"] = whole.numel()
    del whole


def install(seen):
    gpucache.torch.install()
    common(seen)
    seen["backward"] = refused(backward)
    seen["thread"] = in_thread(take, LARGE)
    seen["after"] = bool(torch.equal(take(MIB).cpu(), torch.zeros(MIB, dtype=torch.uint8)))
    seen["reused at once"] = [without_record(take(64 * MIB)), stays_while_recorded(take(64 * MIB))]
    for _ in range(200):
        refused(take, LARGE)
    before = memory_mib()
    for _ in range(3000):
        refused(take, LARGE)
    seen["growth_mib"] = memory_mib() - before
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    seen["idle"] = gpucache.statistics().idle_bytes
    torch.cuda.set_per_process_memory_fraction(0.5)
    seen["fraction"] = [gpucache.statistics().limit_bytes, torch.cuda.get_device_properties(0).total_memory]
    seen["second"] = refused(gpucache.torch.install)


def pool(seen):
    outside = take(10 * MIB)
    with gpucache.torch.use_pool() as first:
        common(seen)
        inside = take(30 * MIB)
    seen["pool"] = [len(first.snapshot()) > 0, gpucache.statistics().requested_bytes >= 30 * MIB]
    with gpucache.torch.use_pool(gpucache.torch.MemPool()):
        seen["another"] = take(MIB).numel()
    del inside, outside, first
    torch.cuda.empty_cache()
    seen["left"] = gpucache.statistics().requested_bytes


def captured(work, pool=None):
    """A graph of `work`, and its result."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        result = work()
    return graph, result


def graphs(seen):
    """Graphs keep the memory of their captures, which no other tensor gets; within a capture it is used again."""
    gpucache.torch.install()
    size = 3 * MIB
    given = take(size)

    def work():
        copy = given.clone()
        for _ in range(10):  # each leaves the copy before it
            copy = copy.clone()
        return copy

    def wide():
        copy = given.clone()
        other = torch.cuda.Stream()
        other.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(other):
            result = copy.clone()
        copy.record_stream(other)
        address = copy.data_ptr()
        del copy
        after = torch.empty_like(result)
        seen["recorded"] = after.data_ptr() != address
        torch.cuda.current_stream().wait_stream(other)
        return result.clone()

    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    before = gpucache.statistics().requested_bytes
    first, first_result = captured(work)
    seen["kept"] = gpucache.statistics().requested_bytes - before
    second, second_result = captured(wide, first.pool())
    seen["wrong"] = 0
    for step in range(5):
        host = torch.full((size,), step + 1, dtype=torch.uint8)
        others = [torch.full((size,), 100 + step + index, dtype=torch.uint8).cuda() for index in range(6)]
        given.copy_(host)
        first.replay()
        second.replay()
        torch.cuda.synchronize()
        seen["wrong"] += sum(not torch.equal(result.cpu(), host) for result in (first_result, second_result))
        seen["wrong"] += sum(not bool((other.cpu() == 100 + step + index).all()) for index, other in enumerate(others))
        del others
    gpucache.set_limit(LIMIT)
    seen["refused"] = refused(captured, lambda: take(LARGE))
    del first, first_result
    second.replay()
    torch.cuda.synchronize()
    seen["shared"] = bool(torch.equal(second_result.cpu(), host))
    del second, second_result
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    seen["left"] = gpucache.statistics().requested_bytes - before


def main():
    seen = {"way": sys.argv[1], "path": gpucache.path(), "preloaded": gpucache.is_preloaded()}
    {"install": install, "pool": pool, "graphs": graphs}[sys.argv[1]](seen)
    print(json.dumps(seen))


main()
