"""What PyTorch does with device memory, area by area; run by zygote.py in a process of its own.

Each function of AREAS takes the allocator's name and returns what it saw: the same with and without the library.
A wrong byte is an AssertionError. Kernels compute nothing on the simulated device: content goes through copies, fills
of zero and the stand-in of cuBLAS, whose results are made of its operands' bytes.

Where PyTorch itself refuses an allocator, the refusal is what is seen.
"""
import ctypes
import gc
import os
import pickle
import re
import signal
import threading
import traceback

MIB = 1 << 20
AREAS = {}
# What run.py compares with the report, or with stderr, rather than with the job without the library.
APART = ("log", "count", "bytes", "current_bytes", "tenants")


ALLOCATORS = ("native", "expandable", "async", "nocache", "pluggable", "own")
WITH_STATISTICS = ("native", "expandable", "async")
CACHING = ("native", "expandable")  # PyTorch's caching allocator, with MemPool, snapshots, sharing


def area(*allocators):
    """Enters a function into AREAS, for these allocators; without names for all."""
    def enter(function):
        AREAS[function.__name__] = function
        function.allocators = allocators or ALLOCATORS
        return function

    return enter


def run(name, allocator):
    """The result of one area: what it saw, and apart from it the keys of APART."""
    seen = AREAS[name](allocator)
    return {"seen": seen, **{key: seen.pop(key) for key in APART if key in seen}}


def torch():
    """Imported by the zygote before it forks."""
    import torch as module  # pylint: disable=import-outside-toplevel
    return module


def backend():
    """The library's backend, None without caching."""
    return os.environ.get("GPUCACHE_BACKEND")


def program_allocator(name):
    """An allocator of the program's: plain_allocator.c, or the library's own functions."""
    path, prefix = {"pluggable": (os.environ["TORCH_PLAIN_ALLOCATOR"], "plain_"),
                    "own": (os.environ["TORCH_OWN_ALLOCATOR"], "gpucache_torch_")}[name]
    allocator = torch().cuda.memory.CUDAPluggableAllocator(path, prefix + "malloc", prefix + "free")
    if name == "own":
        library = ctypes.CDLL(path)
        for call in ("record_stream", "reset", "memory_fraction"):
            address = ctypes.cast(getattr(library, "gpucache_torch_" + call), ctypes.c_void_p).value
            getattr(allocator.allocator(), f"set_{call}_fn")(address)
    return allocator


def refusal(function, *arguments, **named):
    """The error that a call ends with, as its type and its first line; an AssertionError if it ends without."""
    try:
        function(*arguments, **named)
    except RuntimeError as error:  # PyTorch's errors are, also OutOfMemoryError
        return [type(error).__name__, str(error).splitlines()[0]]
    raise AssertionError("not refused")


def allocated(allocator, tensors, device=0):
    """PyTorch's figure of the bytes in use by these tensors. Of cudaMallocAsync it is the driver's, in whole blocks: the
    driver's are the sizes rounded up to 512 bytes, and the library may serve one that is by a sixteenth larger."""
    if allocator not in WITH_STATISTICS:
        return None
    figure = torch().cuda.memory_allocated(device)
    if allocator != "async":
        return figure
    least = sum((tensor.nbytes + 511) // 512 * 512 for tensor in tensors)
    assert least <= figure <= least * 17 // 16, (least, figure)
    return least


RANDOM = []


def content(size, seed):
    """Bytes of a tensor, the same for the same size and seed: a part of 128 MiB of random bytes."""
    if not RANDOM:  # the zygote makes them
        RANDOM.append(torch().randint(0, 256, (128 * MIB,), dtype=torch().uint8, generator=torch().Generator().manual_seed(0)))
    begin = (seed * 1000003 + 17 * size) % (128 * MIB - size) // 16 * 16
    return RANDOM[0][begin:begin + size]


def sizes(count, largest, seed):
    generator = torch().Generator().manual_seed(seed)
    return [int(size) for size in torch().randint(1, largest, (count,), generator=generator)]


def same(tensor, host, what=""):
    assert torch().equal(tensor.cpu(), host), f"wrong bytes: {what}"


@area()
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
    return {"live": len(live), "allocated": allocated(allocator, [tensor for tensor, _ in live.values()] + clones)}


@area()
def streams(_):
    """Copies on four streams of two priorities, ordered by events, freed while they wait."""
    least, greatest = torch().cuda.Stream.priority_range()
    four = [torch().cuda.Stream(priority=priority) for priority in (least, greatest, least, greatest)]
    begin, end = torch().cuda.Event(enable_timing=True), torch().cuda.Event(enable_timing=True)
    begin.record(four[0])
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
    end.record(four[0])
    torch().cuda.synchronize()
    assert all(stream.query() for stream in four) and begin.elapsed_time(end) > 0
    return {"steps": len(results), "priorities": [stream.priority for stream in four], "range": [least, greatest]}


@area()
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


@area()
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


@area()
def hosts(_):
    """Page-locked host memory: PyTorch's, given back while copies still read it, and the program's own, registered."""
    side = torch().cuda.Stream()
    copies = []
    for step, size in enumerate(sizes(40, MIB, 8)):
        host = torch().empty(size, dtype=torch().uint8, pin_memory=True)
        assert host.is_pinned()
        host.copy_(content(size, step))
        with torch().cuda.stream(side):
            copies.append((host.to("cuda", non_blocking=True), size, step))
        del host  # the next may not get it before it is read
    side.synchronize()
    for tensor, size, step in copies:
        same(tensor, content(size, step), f"copy {step}")
    own = content(MIB, 100).clone()
    runtime = torch().cuda.cudart()
    assert runtime.cudaHostRegister(own.data_ptr(), MIB, 0) == runtime.cudaError.success
    assert own.is_pinned()
    tensor = own.to("cuda", non_blocking=True)
    back = torch().zeros_like(own).pin_memory()
    back.copy_(tensor, non_blocking=True)
    torch().cuda.synchronize()
    same(back, content(MIB, 100), "registered memory")
    assert runtime.cudaHostUnregister(own.data_ptr()) == runtime.cudaError.success
    assert not own.is_pinned()
    return {"copies": len(copies)}


@area(*WITH_STATISTICS)
def graphs(allocator):
    """Two graphs in one private pool, replayed with new inputs, while the program takes and fills other memory."""
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
        want = torch().mm(matrix, matrix).cpu().view(torch().uint8)
        same(first_product.view(torch().uint8), want, "first graph's product")
        products.append(float(want.double().sum()))
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
    return {"products": products, "allocated": None if allocator == "async" else torch().cuda.memory_allocated()}


@area(*CACHING)
def graph_trees(allocator):
    """Inductor's trees of graphs (cudagraph_trees): two functions, one after the other, one path taken twice."""
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


@area()
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


@area()
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


def request(allocator, size):
    """A tensor of so many bytes, or None where memory is short: an error, but of a program's allocator a tensor without."""
    try:
        tensor = torch().empty(size, dtype=torch().uint8, device="cuda")
    except torch().OutOfMemoryError:
        assert allocator in WITH_STATISTICS, "this allocator says it otherwise"
        return None
    except torch().AcceleratorError as error:
        assert allocator == "nocache" and "CUDA error: out of memory" in str(error), error
        return None
    if tensor.data_ptr() == 0:
        assert allocator in ("pluggable", "own"), "a tensor without memory"
        return None
    return tensor


def fill_up(allocator):
    """Takes memory until it is short; how often it got some."""
    live = []
    while len(live) < 100:
        tensor = request(allocator, 64 * MIB)
        if tensor is None:
            break
        tensor[:4096].copy_(content(4096, len(live)))
        live.append(tensor)
    for index, tensor in enumerate(live):
        same(tensor[:4096], content(4096, index), "a tensor beside the failed request")
    return len(live)


# The library's allocator says so, with a preload and without.
NO_ROOM = [r"gpucache_torch_malloc: \d+ bytes on device 0: the (limit|device) has no room"]


@area()
def limits(allocator):
    """A device, or a limit, of 1 GiB: an error, its text, and the program goes on."""
    free, total = torch().cuda.mem_get_info()
    assert total == 1 << 30, total
    seen = {"total": total, "nvml": nvml_memory().total, "log": NO_ROOM if allocator == "own" else []}
    if allocator in WITH_STATISTICS:
        text = out_of_memory(torch().empty, 2 << 30, dtype=torch().uint8, device="cuda")
        pattern = (r"Requested +: 2\.00 GiB\n.*\nFree \(according to CUDA\): ([0-9.]+) MiB" if allocator == "async" else
                   r"Tried to allocate 2\.00 GiB.*total capacity of 1024\.00 MiB of which ([0-9.]+) MiB is free")
        found = re.search(pattern, text)
        assert found, text
        assert abs(float(found.group(1)) * MIB - free) < 64 * MIB, (text, free)
        own = re.search(r"this process has ([0-9.]+) MiB memory in use", text)
        assert own or allocator == "async", text
        assert not own or float(own.group(1)) + float(found.group(1)) <= 1024.1, text
        seen["text"] = re.sub(r"Process \d+", "Process N", re.sub(r"[0-9.]+ (MiB|GiB|KiB|bytes)", "SIZE", text))
    else:
        assert request(allocator, 2 << 30) is None
    seen["chunks"] = [fill_up(allocator), fill_up(allocator)]
    assert seen["chunks"][0] == seen["chunks"][1] >= 13, seen
    if allocator in WITH_STATISTICS:
        torch().cuda.empty_cache()
    if allocator in CACHING:
        torch().cuda.set_per_process_memory_fraction(0.25)
        text = out_of_memory(torch().empty, 300 * MIB, dtype=torch().uint8, device="cuda")
        assert "256.00 MiB allowed" in text, text
        torch().cuda.set_per_process_memory_fraction(1.0)
    same(content(MIB, 5).cuda(), content(MIB, 5))
    return seen


def out_of_memory(function, *arguments, **named):
    """The text of torch.OutOfMemoryError that a call ends with."""
    try:
        function(*arguments, **named)
    except torch().OutOfMemoryError as error:
        return str(error)
    raise AssertionError("no out-of-memory error")


def nvml_memory():
    import pynvml  # pylint: disable=import-outside-toplevel
    pynvml.nvmlInit()
    return pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(0))


@area(*CACHING)
def pool_limits(allocator):
    """A MemPool of the program's allocator that is out of memory: an error, and the pool and the program go on."""
    seen = []
    for name in ("pluggable", "own"):
        own = program_allocator(name)
        pool = torch().cuda.MemPool(own.allocator())
        with torch().cuda.use_mem_pool(pool):
            live = [(content(size, 4).cuda(), content(size, 4)) for size in sizes(10, 4 * MIB, 4)]
            text = out_of_memory(torch().empty, 2 << 30, dtype=torch().uint8, device="cuda")
            assert "Tried to allocate 2.00 GiB" in text, text
            chunks = fill_up("native")
            live += [(content(MIB, 5).cuda(), content(MIB, 5))]
        for tensor, host in live:
            same(tensor, host)
        same(content(MIB, 6).cuda(), content(MIB, 6))
        seen.append([name, chunks])
        del live, tensor, pool
        torch().cuda.empty_cache()
    return {"pools": seen, "log": NO_ROOM}


@area("native", "nocache")
def tenants(allocator):
    """libc10_cuda.so, which makes PyTorch's allocations, has 256 MiB of the device's 16 GiB."""
    first = request(allocator, 100 * MIB)
    first.copy_(content(100 * MIB, 1))
    assert request(allocator, 200 * MIB) is None
    second = request(allocator, 100 * MIB)
    second.copy_(content(100 * MIB, 2))
    assert request(allocator, 100 * MIB) is None
    del second
    torch().cuda.empty_cache()
    third = request(allocator, 120 * MIB)
    third.copy_(content(120 * MIB, 3))
    same(first, content(100 * MIB, 1))
    same(third, content(120 * MIB, 3))
    return {"tenants": {"torch": 220 * MIB}}


def numbers(index):
    return torch().full((1000,), index, dtype=torch().int32)


class Numbers:
    """A data set of DataLoader's."""

    def __len__(self):
        return 64

    def __getitem__(self, index):
        return numbers(index)


@area()
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


def import_all(connection):
    """The other process of `ipc`: reads what it gets, writes to it, and keeps it as long as it is told."""
    signal.alarm(120)
    kept = {}
    while True:
        order, *arguments = connection.recv()
        if order == "open":  # bytes of `seed` are to be there; leaves those of `seed + 1`
            key, tensor, event, size, seed = arguments
            if event is not None:
                event.wait()
            right = torch().equal(tensor.cpu(), content(size, seed))
            tensor.copy_(content(size, seed + 1))
            torch().cuda.synchronize()
            kept[key] = tensor
            connection.send(right)
        elif order == "read":
            key, size, seed = arguments
            connection.send(torch().equal(kept[key].cpu(), content(size, seed)))
        elif order == "close":
            kept.clear()
            gc.collect()
            torch().cuda.ipc_collect()
            connection.send(True)
        else:
            connection.send(True)
            return


@area()
def ipc(allocator):
    """Tensors and an event to another process, which was started before CUDA: it reads, writes, and keeps them."""
    context = torch().multiprocessing.get_context("fork")
    connection, other = context.Pipe()
    importer = context.Process(target=import_all, args=(other,), daemon=True)
    importer.start()

    def ask(*order):
        connection.send(order)
        assert connection.poll(100), f"no answer: {order[0]}"
        return connection.recv()

    seen = {}
    event = torch().cuda.Event(interprocess=True)
    if allocator not in CACHING:
        tensor = content(MIB, 1).cuda()
        seen["refusal"] = refusal(connection.send, ("open", 0, tensor, None, MIB, 1))
        same(tensor, content(MIB, 1))
    elif allocator == "native" and backend() == "driver":
        # Blocks in a part of a driver allocation are refused once; memory taken from then on is shared, as it is
        # without the library. Mapped memory is shared at once.
        tensor = content(MIB, 1).cuda()
        text = refusal(connection.send, ("open", 0, tensor, None, MIB, 1))
        assert text == ["AcceleratorError", "CUDA error: operation not supported"], text
        same(tensor, content(MIB, 1))
        del tensor
        torch().cuda.empty_cache()
        seen["log"] = ["cuIpcGetMemHandle: 0x[0-9a-f]+ shares a driver allocation with other blocks and cannot "
                       "be exported; later allocations can be, and with GPUCACHE_BACKEND=whole all can"]
    if allocator in CACHING:
        shared = {}
        for key, size in enumerate((1000, 5000, 700 * 1024, 3 * MIB, 12 * MIB, 30 * MIB)):  # two in one segment, too
            tensor = torch().zeros(size, dtype=torch().uint8, device="cuda")
            for _ in range(5):  # the event is behind all of them
                tensor.copy_(content(size, key + 50), non_blocking=True)
            tensor.copy_(content(size, key * 10).pin_memory(), non_blocking=True)
            event.record()
            assert ask("open", key, tensor, event, size, key * 10), f"wrong bytes in the other process: {key}"
            same(tensor, content(size, key * 10 + 1), f"the other process's: {key}")
            shared[key] = (tensor, size)
        for key in (2, 4):  # freed here, open there: nobody else gets it
            shared[key] = (None, shared[key][1])
        del tensor
        others = [(content(size, 7).cuda(), content(size, 7)) for size in sizes(20, 12 * MIB, 7)]
        for key, (_, size) in shared.items():
            assert ask("read", key, size, key * 10 + 1), f"overwritten while the other process had it open: {key}"
        for tensor, host in others:
            same(tensor, host)
        assert ask("close")
        del shared, others, tensor
        torch().cuda.ipc_collect()
        torch().cuda.empty_cache()
        seen["left"] = [torch().cuda.memory_allocated(), torch().cuda.memory_reserved()]
    assert ask("end")
    importer.join(60)
    seen["importer"] = importer.exitcode
    return seen


@area()
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


@area(*CACHING)
def snapshots(allocator):
    """The snapshot's segments and its history agree with the statistics."""
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


# The call by which each takes memory.
ENTRIES = {"native": "cudaMalloc", "expandable": "cuMemCreate", "async": "cudaMallocAsync", "nocache": "cudaMalloc",
           "pluggable": "cudaMalloc", "own": "gpucache_torch_malloc"}
LIVE = []  # until the process ends


@area()
def counts(allocator):
    """How many allocations reach CUDA, of how many bytes, and what is left: compared with the report."""
    each = sizes(40, 4 * MIB, 3)
    live = [torch().empty(size, dtype=torch().uint8, device="cuda") for size in each]
    del live[::2]
    torch().cuda.synchronize()
    LIVE.append(live)
    if allocator in ("native", "expandable"):
        torch().cuda.empty_cache()
        figures = torch().cuda.memory_stats()
        assert allocator == "expandable" or figures["num_device_alloc"] > figures["num_device_free"] > 0
        seen = {"current_bytes": {ENTRIES[allocator]: torch().cuda.memory_reserved()}}
        if allocator == "native":  # the figure of the other counts ranges of addresses
            seen["count"] = {"cudaMalloc": figures["num_device_alloc"]}
        return seen
    entry = ENTRIES[allocator]
    return {"count": {entry: len(each)}, "bytes": {entry: sum(each)}, "current_bytes": {entry: sum(each[1::2])}}


@area("async", "pluggable", "own")
def refusals(_):
    """The calls that PyTorch refuses to these allocators, with its text; the program goes on."""
    kept = content(MIB, 1).cuda()
    seen = {}
    for name, call in (("snapshot", torch().cuda.memory._snapshot), ("pool", torch().cuda.MemPool),
                       ("figures", torch().cuda.memory_stats)):
        try:
            call()
        except RuntimeError as error:
            seen[name] = f"{type(error).__name__}: {error}".splitlines()[0]
    assert seen, "nothing was refused"
    same(kept, content(MIB, 1))
    return seen


@area(*CACHING)
def pools(allocator):
    """MemPool: with PyTorch's own memory, and with an allocator of the program's; both give it back."""
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


@area()
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
    seen += [allocated(allocator, [one, three], 0), allocated(allocator, [two], 1)]
    return {"sizes": seen, "peer": torch().cuda.can_device_access_peer(0, 1)}
