"""What PyTorch does with device memory, area by area; run by zygote.py in a process of its own.

Each function of AREAS takes the allocator's name and returns what it saw: the same with and without the library.
A wrong byte is an AssertionError. Kernels compute nothing on the simulated device: content goes through copies, fills
of zero and the stand-in of cuBLAS, whose results are made of its operands' bytes.
"""
import gc
import os
import pickle
import re
import threading
import traceback

MIB = 1 << 20
AREAS = {}


class Skip(Exception):
    """This area does not concern this allocator."""


def area(function):
    AREAS[function.__name__] = function
    return function


def torch():
    """Imported by the zygote before it forks."""
    import torch as module  # pylint: disable=import-outside-toplevel
    return module


def content(size, seed):
    """Bytes of a tensor, the same for the same size and seed."""
    generator = torch().Generator().manual_seed(seed)
    return torch().randint(0, 256, (size,), dtype=torch().uint8, generator=generator)


def sizes(count, largest, seed):
    generator = torch().Generator().manual_seed(seed)
    return [int(size) for size in torch().randint(1, largest, (count,), generator=generator)]


def same(tensor, host, what=""):
    assert torch().equal(tensor.cpu(), host), f"wrong bytes: {what}"


def statistics(allocator):
    return allocator in ("native", "expandable", "async")


@area
def tensors(allocator):
    """Tensors come and go in random order; each keeps its bytes."""
    live = {}
    for step, size in enumerate(sizes(300, 3 * MIB, 1)):
        host = content(size, step)
        live[step] = (host.cuda(), host)
        if step % 3 == 2:
            victim = sorted(live)[size % len(live)]
            same(*live.pop(victim), what=f"tensor {victim}")
        if step % 100 == 99:
            torch().cuda.empty_cache()
    for tensor, host in live.values():
        same(tensor, host)
    clones = [tensor.clone() for tensor, _ in live.values()]
    for clone, (_, host) in zip(clones, live.values()):
        same(clone, host)
    return {"live": len(live), "allocated": torch().cuda.memory_allocated() if statistics(allocator) else None}


@area
def streams(_):
    """Copies on four streams, ordered by events, freed while they wait."""
    four = [torch().cuda.Stream() for _ in range(4)]
    results = []
    for step, size in enumerate(sizes(80, 2 * MIB, 2)):
        first, second = four[step % 4], four[(step + 1) % 4]
        host = content(size, step).pin_memory()
        with torch().cuda.stream(first):
            tensor = host.to("cuda", non_blocking=True)
            ready = first.record_event()
        with torch().cuda.stream(second):
            second.wait_event(ready)
            copy = tensor.clone()
            tensor.record_stream(second)
            back = torch().empty(size, dtype=torch().uint8, pin_memory=True)
            back.copy_(copy, non_blocking=True)
            done = second.record_event()
        results.append((back, host, done))
        del tensor, copy
    for back, host, done in results:
        done.synchronize()
        assert torch().equal(back, host)
    return {"steps": len(results)}


@area
def record_stream(_):
    """A tensor that a slow stream still reads is deleted, and its memory asked for at once by another stream."""
    side = torch().cuda.Stream()
    wrong = []
    zeros = torch().zeros(4 * MIB + 20 * 4096, dtype=torch().uint8, pin_memory=True)
    for step in range(20):
        size = 4 * MIB + step * 4096
        host = content(size, step)
        tensor = host.cuda()
        copies = []
        side.wait_stream(torch().cuda.current_stream())
        with torch().cuda.stream(side):
            for _ in range(5):
                copies.append(tensor.clone())
            tensor.record_stream(side)
        del tensor
        other = zeros[:size].to("cuda", non_blocking=True)  # overwrites memory that came back too early
        side.synchronize()
        wrong += [step for copy in copies if not torch().equal(copy.cpu(), host)]
        assert int(other.cpu().sum()) == 0
    assert not wrong, wrong
    return {}


@area
def threads(_):
    """Four threads with streams of their own."""
    failures = []

    def work(index):
        try:
            with torch().cuda.stream(torch().cuda.Stream()):
                live = []
                for step, size in enumerate(sizes(60, MIB, index)):
                    host = content(size, step * 4 + index)
                    live.append((host.cuda(), host))
                    if step % 2:
                        same(*live.pop(step % len(live)))
                for tensor, host in live:
                    same(tensor, host)
        except BaseException:  # pylint: disable=broad-exception-caught
            failures.append(traceback.format_exc())

    four = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    for thread in four:
        thread.start()
    for thread in four:
        thread.join()
    assert not failures, "\n".join(failures)
    return {}


@area
def graphs(allocator):
    """Two graphs in one private pool, replayed with new inputs, while the program takes and fills other memory."""
    if allocator in ("nocache", "pluggable", "own"):
        raise Skip("needs an allocator with private pools")
    size = 3 * MIB
    given = torch().zeros(size, dtype=torch().uint8, device="cuda")
    matrix = torch().zeros(256, 256, device="cuda")

    def work():
        copy = given.clone()
        again = torch().empty_like(copy)
        again.copy_(copy)
        return again, torch().mm(matrix, matrix)

    side = torch().cuda.Stream()
    side.wait_stream(torch().cuda.current_stream())
    with torch().cuda.stream(side):
        work()
    torch().cuda.current_stream().wait_stream(side)
    first, second = torch().cuda.CUDAGraph(), torch().cuda.CUDAGraph()
    with torch().cuda.graph(first):
        first_copy, first_product = work()
    with torch().cuda.graph(second, pool=first.pool()):
        second_copy, _ = work()
        third = second_copy.clone()
    products = []
    for step in range(5):
        others = [(content(other, step).cuda(), content(other, step)) for other in sizes(10, 4 * MIB, step)]
        host = content(size, step)
        given.copy_(host)
        matrix.copy_(content(256 * 256 * 4, step).view(torch().float32).view(256, 256).nan_to_num(1.0))
        first.replay()
        same(first_copy, host, "first graph")
        products.append(hash(bytes(first_product.cpu().view(torch().uint8).numpy().tobytes())) is not None)
        second.replay()
        same(third, host, "second graph")
        for tensor, other in others:
            same(tensor, other, "memory beside the graphs")
        del others
        torch().cuda.empty_cache()
    del first, second, first_copy, second_copy, third, first_product
    gc.collect()
    torch().cuda.synchronize()
    torch().cuda.empty_cache()
    return {"replays": len(products), "allocated": torch().cuda.memory_allocated()}


@area
def graph_trees(allocator):
    """Inductor's trees of graphs (cudagraph_trees): two functions, one after the other, one path taken twice."""
    if allocator in ("nocache", "pluggable", "own", "async"):
        raise Skip("needs an allocator with checkpoints of private pools")
    import torch._inductor.cudagraph_trees as trees  # pylint: disable=import-outside-toplevel

    weight = torch().full((512, 512), 0.5).cuda()
    given = torch().empty(512, 512, device="cuda")

    def first(inputs):  # Inductor's functions take their inputs off the list
        left, right = inputs
        inputs.clear()
        return torch().mm(left, right), left.clone()

    def second(inputs):
        left, right = inputs
        inputs.clear()
        return (torch().mm(right, torch().mm(left, right)).clone(),)

    def compiled(function, outputs):  # inputs that are not fixed would be copied into the graph's by a kernel
        return trees.cudagraphify_impl(function, [given, weight], (0, 1), device_index=0, is_backward=False,
                                      is_inference=True, stack_traces=[None] * outputs)

    both = None
    sums = []
    for number in range(8):
        torch().compiler.cudagraph_mark_step_begin()
        host = torch().full((512, 512), float(number))
        given.copy_(host)
        if both is None:
            both = (compiled(first, 2), compiled(second, 1))
        product, copy = both[0]([given, weight])
        if number % 2:
            product = both[1]([given, weight])[0]
        same(copy, host, f"step {number}")
        sums.append(float(product.cpu().double().sum()))
        for size in sizes(5, 2 * MIB, number):
            same(content(size, number).cuda(), content(size, number))
    manager = trees.get_container(0).tree_manager
    assert manager is not None and manager.roots, "nothing was captured"
    del product, copy
    return {"graphs": sum(len(nodes) for nodes in manager.roots.values()), "sums": sums}


@area
def training(_):
    """A network's steps: products forward and backward, an optimizer's state, gradients taken and given up."""
    layers = torch().nn
    model = layers.Sequential(layers.Linear(512, 1024), layers.Linear(1024, 256), layers.Linear(256, 512)).cuda()
    for index, weight in enumerate(model.parameters()):
        weight.data.copy_(torch().full(weight.shape, 0.25 + index))
    optimizer = torch().optim.AdamW(model.parameters(), lr=1e-3)
    sums = []
    for step in range(6):
        given = torch().full((64 + 32 * (step % 3), 512), float(step)).cuda()
        given.requires_grad_(True)
        output = model(given)
        output.backward(torch().full(output.shape, 0.5 + step).cuda())
        gradients = [layer.weight.grad.cpu() for layer in model]
        sums.append([float(gradient.double().sum()) for gradient in gradients] + [float(given.grad.cpu().double().sum())])
        optimizer.step()
        optimizer.zero_grad(set_to_none=step % 2 == 0)
        for layer, gradient in zip(model, gradients):
            layer.weight.data.copy_(gradient)
    return {"sums": sums}


@area
def convolution(_):
    """Convolutions forward and backward through cuDNN's stand-in, with its workspaces."""
    convolve = torch().nn.Conv2d(3, 16, 3, bias=False).cuda()
    convolve.weight.data.copy_(torch().full((16, 3, 3, 3), 0.25))
    sums = []
    for size in (64, 96, 64):
        given = torch().full((8, 3, size, size), 0.5).cuda().requires_grad_(True)
        output = convolve(given)
        output.backward(torch().full(output.shape, 2.0).cuda())
        sums.append([float(part.cpu().double().sum()) for part in (output.detach(), given.grad, convolve.weight.grad)])
        convolve.weight.grad = None
    return {"sums": sums}


@area
def limits(allocator):
    """A device, or a limit, of 1 GiB: an error, its text, and the program goes on."""
    free, total = torch().cuda.mem_get_info()
    assert total == 1 << 30, total
    seen = {"total": total}
    text = ""
    try:
        torch().empty(2 << 30, dtype=torch().uint8, device="cuda")
    except torch().OutOfMemoryError as error:
        text = str(error)
    except RuntimeError as error:  # the pluggable allocator's
        text = f"RuntimeError {error}"
    if statistics(allocator):
        pattern = (r"Requested +: 2\.00 GiB\n.*\nFree \(according to CUDA\): ([0-9.]+) MiB" if allocator == "async" else
                   r"Tried to allocate 2\.00 GiB.*total capacity of 1024\.00 MiB of which ([0-9.]+) MiB is free")
        found = re.search(pattern, text)
        assert found, text
        assert abs(float(found.group(1)) * MIB - free) < 64 * MIB, (text, free)
        own = re.search(r"this process has ([0-9.]+) MiB memory in use", text)
        assert not own or float(own.group(1)) + float(found.group(1)) <= 1024.1, text
        seen["text"] = re.sub(r"Process \d+", "Process N", re.sub(r"[0-9.]+ (MiB|GiB|KiB|bytes)", "SIZE", text))
    chunks = []
    for _ in range(2):
        live = []
        try:
            while len(live) < 100:
                live.append(torch().empty(64 * MIB, dtype=torch().uint8, device="cuda"))
                live[-1][:4096].copy_(content(4096, len(live)))
        except (torch().OutOfMemoryError, RuntimeError):
            pass
        for index, tensor in enumerate(live[:-1], 1):
            same(tensor[:4096], content(4096, index), "a tensor beside the failed request")
        chunks.append(len(live))
        del live, tensor
    assert chunks[0] == chunks[1], chunks
    seen["chunks"] = chunks
    torch().cuda.empty_cache()
    if statistics(allocator) and allocator != "async":
        torch().cuda.set_per_process_memory_fraction(0.25)
        try:
            torch().empty(300 * MIB, dtype=torch().uint8, device="cuda")
            seen["fraction"] = "not refused"
        except torch().OutOfMemoryError as error:
            seen["fraction"] = "256.00 MiB allowed" in str(error)
        torch().cuda.set_per_process_memory_fraction(1.0)
    same(content(MIB, 5).cuda(), content(MIB, 5))
    return seen


def numbers(index):
    return torch().full((1000,), index, dtype=torch().int32)


class Numbers:
    """A data set of DataLoader's."""

    def __len__(self):
        return 64

    def __getitem__(self, index):
        return numbers(index)


@area
def forks(_):
    """Children after CUDA has started: a refusal there, the parent goes on. DataLoader's workers and its pinned memory."""
    kept = content(5 * MIB, 1).cuda()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            torch().zeros(1, device="cuda")
        except RuntimeError as error:
            code = 0 if "Cannot re-initialize CUDA in forked subprocess" in str(error) else 2
        os._exit(code)
    seen = {"child": os.waitpid(child, 0)[1]}
    loader = torch().utils.data.DataLoader(Numbers(), batch_size=8, num_workers=2, pin_memory=True)
    seen["batches"] = []
    for batch in loader:
        on_device = batch.to("cuda", non_blocking=True)
        seen["batches"].append(int(on_device.cpu().sum()))
    same(kept, content(5 * MIB, 1))
    return seen


@area
def nvml(_):
    """What PyTorch asks NVML: the device's memory and its processes."""
    tensor = torch().zeros(100 * MIB, dtype=torch().uint8).cuda()
    used = torch().cuda.device_memory_used()
    free, total = torch().cuda.mem_get_info()
    rows = torch().cuda.list_gpu_processes()
    row = re.search(rf"process +{os.getpid()} uses +([0-9.]+) MB GPU memory", rows)
    assert row, rows
    assert float(row.group(1)) >= 100, rows
    assert used >= 100 * MIB and total - free >= 100 * MIB, (used, free, total)
    same(tensor[:100], torch().zeros(100, dtype=torch().uint8))
    return {"devices": torch().cuda.device_count(), "busy": torch().cuda.utilization(), "total": total,
            "name": torch().cuda.get_device_name(), "capability": torch().cuda.get_device_capability()}


@area
def snapshots(allocator):
    """The snapshot's segments and its history agree with the statistics."""
    if not statistics(allocator) or allocator == "async":
        raise Skip("has no snapshot")
    torch().cuda.memory._record_memory_history(stacks="python", context=None)
    live = [content(size, 1).cuda() for size in sizes(30, 4 * MIB, 9)]
    del live[::2]
    torch().cuda.empty_cache()
    snapshot = torch().cuda.memory._snapshot()
    reserved = sum(segment["total_size"] for segment in snapshot["segments"])
    assert reserved == torch().cuda.memory_reserved(), (reserved, torch().cuda.memory_reserved())
    allocated = sum(segment["allocated_size"] for segment in snapshot["segments"])
    assert allocated == torch().cuda.memory_allocated()
    actions = {}
    for event in snapshot["device_traces"][0]:
        actions[event["action"]] = actions.get(event["action"], 0) + 1
    torch().cuda.memory._record_memory_history(enabled=None)
    pickle.dumps(snapshot)
    return {"actions": actions, "reserved": reserved, "allocated": allocated,
            "expandable": any(segment["is_expandable"] for segment in snapshot["segments"])}


@area
def counts(allocator):
    """How many allocations reach CUDA, by entry point: compared with the report."""
    live = [torch().empty(size, dtype=torch().uint8, device="cuda") for size in sizes(40, 4 * MIB, 3)]
    number = len(live)
    del live[::2]
    torch().cuda.synchronize()
    if allocator in ("nocache", "pluggable"):
        return {"counts": {"cudaMalloc": number}}
    if allocator == "own":
        return {"counts": {}}
    if allocator == "async":
        return {"counts": {"cudaMallocAsync": number}}
    figures = torch().cuda.memory_stats()
    if allocator == "expandable":
        return {"counts": {"cuMemCreate": None}, "bytes": {"cuMemCreate": torch().cuda.memory_reserved()}}
    return {"counts": {"cudaMalloc": figures["num_device_alloc"]}, "bytes": {"cudaMalloc": torch().cuda.memory_reserved()}}


@area
def pools(allocator):
    """MemPool: with PyTorch's own memory, and with an allocator of the program's; both give it back."""
    if allocator not in ("native", "expandable"):
        raise Skip("needs MemPool")
    own = torch().cuda.memory.CUDAPluggableAllocator(os.environ["TORCH_PLAIN_ALLOCATOR"], "plain_malloc", "plain_free")
    seen = []
    for pool in (torch().cuda.MemPool(), torch().cuda.MemPool(own.allocator())):
        with torch().cuda.use_mem_pool(pool):
            live = [(content(size, 4).cuda(), content(size, 4)) for size in sizes(10, 4 * MIB, 4)]
        outside = content(MIB, 7).cuda()
        for tensor, host in live:
            same(tensor, host)
        seen.append(len(pool.snapshot()) > 0)
        same(outside, content(MIB, 7))
        del live, tensor, pool
    torch().cuda.empty_cache()
    return {"pools": seen}


@area
def devices(allocator):
    """Two devices: copies between them, memory of each."""
    assert torch().cuda.device_count() == 2
    seen = []
    for size in sizes(10, 4 * MIB, 6):
        host = content(size, 6)
        one = host.to("cuda:0")
        two = one.to("cuda:1")
        three = two.clone().to("cuda:0")
        same(two, host, "second device")
        same(three, host, "back on the first")
        seen.append(size)
    if statistics(allocator):
        seen += [torch().cuda.memory_allocated(0), torch().cuda.memory_allocated(1)]
    return {"sizes": seen, "peer": torch().cuda.can_device_access_peer(0, 1)}
