"""JAX: arrays, a limit, two devices. XLA compiles for the device and launches; its kernels compute nothing there.

Content goes through copies: to the device and back, between devices, of arrays that a compiled function passes on.
"""
import os
import threading
import time

import jax
import jax.numpy as jnp
import numpy
from jax._src import hardware_utils

import program

# JAX looks for the file of NVIDIA's kernel module before it opens the driver.
hardware_utils._NVIDIA_GPU_DEVICES = ["/dev/null"]  # pylint: disable=protected-access
jax.config.update("jax_enable_x64", True)
MIB = program.MIB
HAS_POOL = "XLA_PYTHON_CLIENT_ALLOCATOR" not in os.environ


def host(size, seed):
    return numpy.frombuffer(program.content(size, seed), dtype=numpy.uint8)


def same(array, wanted, what=""):
    assert numpy.asarray(array).tobytes() == wanted.tobytes(), f"wrong bytes: {what}"


def in_use(device=0):
    return jax.devices()[device].memory_stats()["bytes_in_use"]


def round_trips(seed, steps=120):
    """Arrays come and go in random order; each keeps its bytes."""
    live = {}
    for step, size in enumerate(program.sizes(steps, 2 * MIB, seed)):
        data = host(size, (seed << 16) + step)
        live[step] = (jax.device_put(data), data)
        if step % 3 == 2:
            victim = sorted(live)[size % len(live)]
            array, data = live.pop(victim)
            same(array, data, f"array {victim} of {seed}")
            if step % 2:
                array.delete()
                assert array.is_deleted()
    for step, (array, data) in live.items():
        same(array, data, f"array {step} of {seed}")
    return len(live)


def types():
    for dtype in (numpy.float32, numpy.float64, numpy.int8, numpy.int64, numpy.bool_, jnp.bfloat16, numpy.complex64):
        data = numpy.frombuffer(program.content(480, 5), dtype=numpy.uint8) % 2
        data = data.astype(dtype).reshape(2, 3, -1)
        same(jax.device_put(data), data, str(dtype))


def donation():
    """A donated array is gone, its bytes are the new array's."""
    data = host(3 * MIB, 11)
    array = jax.device_put(data)
    passed_on = jax.jit(lambda x: x, donate_argnums=0)(array)
    assert array.is_deleted()
    same(passed_on, data, "donated to a function")
    moved = jax.device_put(passed_on, jax.devices()[0], donate=True)
    same(moved, data, "donated to device_put")
    kept = jax.device_put(data)
    copies = jax.jit(lambda x: (x, x))(kept)
    for copy in (kept, *copies):
        same(copy, data, "passed on")
    fresh = jnp.copy(kept)
    kept.delete()
    same(fresh, data, "copied")
    try:
        numpy.asarray(kept)
    except RuntimeError as error:
        return "deleted" in str(error)
    return False


def pinned_host():
    """An array in page-locked host memory, there and back."""
    device = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    data = host(MIB + 77, 12)
    away = jax.device_put(data, device.with_memory_kind("pinned_host"))
    same(away, data, "in host memory")
    same(jax.device_put(away, device.with_memory_kind("device")), data, "back on the device")
    return [memory.kind for memory in jax.devices()[0].addressable_memories()]


def statistics():
    """What is in use follows the program. An array takes its size or more: a small rest of a chunk is not split off."""
    if not HAS_POOL:
        return jax.devices()[0].memory_stats() is not None
    before = in_use()
    arrays = [jax.device_put(host(size, size)) for size in (1, 256, 257, 100000, 5 * MIB)]
    for array in arrays:
        array.block_until_ready()
    taken = in_use() - before
    for array in arrays:
        array.delete()
    assert taken >= sum(-(-array.nbytes // 256) * 256 for array in arrays), taken
    end = time.monotonic() + 10  # a thread of JAX's frees what a copy has just read
    while in_use() != before:
        assert time.monotonic() < end, (in_use(), before)
        time.sleep(0.001)
    return jax.devices()[0].memory_stats()["bytes_limit"]


@program.area
def arrays():
    # First, as memory of deleted arrays comes back a little later.
    seen = {"statistics": statistics(), "live": round_trips(1), "donation": donation(), "pinned_host": pinned_host()}
    types()
    failures = []

    def work(seed):
        try:
            round_trips(seed, 60)
        except BaseException as error:  # pylint: disable=broad-exception-caught
            failures.append(repr(error))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(2, 6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
    return seen


@program.area
def compiled():
    """Compiled functions, their temporary memory too: they are launched, and what they only pass on is copied."""
    data = host(2 * MIB, 21)
    weights = jax.device_put(data.view(numpy.float32))

    @jax.jit
    def step(x, kept):
        y = jnp.sort(jnp.cumsum(x.astype(jnp.float32)) * 2)
        return y[::-1], kept, jnp.sum(y)

    array = weights
    for size in (1000, 50000, 300000):
        array, kept, total = step(array[:size], weights)
        total.block_until_ready()
        assert array.shape == (min(size, array.shape[0]),) and total.shape == ()
        same(kept, data, "passed on")
    same(weights, data, "an argument")
    batches = [jax.device_put(host(MIB, seed)) for seed in range(30)]
    rows = jax.jit(lambda *x: x)(*batches)
    for seed, row in enumerate(rows):
        same(row, host(MIB, seed), f"row {seed}")
    jax.clear_caches()
    return {"rows": len(rows)}


@program.area
def limit():
    """Takes memory until there is none, gives some back, goes on; nothing is lost. XLA tries for ten seconds each time."""
    base = host(64 * MIB, 41)

    def numbered(step):
        data = base.copy()
        data[step * MIB : step * MIB + 8] = step
        return data

    live = {}
    seen = {}
    for turn in range(2):
        message = ""
        while not message:
            step = len(live) + 30 * turn
            assert step < 60, "no limit"
            try:
                live[step] = jax.device_put(numbered(step)).block_until_ready()
            except jax.errors.JaxRuntimeError as error:
                message = str(error)
        seen[f"turn {turn}"] = [len(live), message.split(":")[0]]
        for step, array in live.items():
            same(array, numbered(step), f"array {step}")
        for step in sorted(live)[::2]:
            live.pop(step).delete()
    array = jax.device_put(base[:MIB])
    same(array, base[:MIB])
    return seen


@program.area
def devices():
    """Two devices: arrays on each, moved, and sharded over both."""
    first, second = jax.devices()
    data = host(6 * MIB, 31)
    arrays_there = []
    for step in range(20):
        here = jax.device_put(data[: MIB + step], first)
        there = jax.device_put(here, second)
        same(there, data[: MIB + step], f"moved {step}")
        arrays_there.append(there)
        here.delete()
    for step, array in enumerate(arrays_there):
        same(jax.device_put(array, first), data[: MIB + step], f"moved back {step}")
    mesh = jax.sharding.Mesh(numpy.array([first, second]), ("half",))
    halves = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("half"))
    whole = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    sharded = jax.device_put(data, halves)
    same(sharded, data, "sharded")
    for shard in sharded.addressable_shards:
        same(shard.data, data[shard.index], str(shard.device))
    same(jax.device_put(sharded, first), data, "gathered")
    replicated = jax.device_put(data, whole)
    for shard in replicated.addressable_shards:
        same(shard.data, data, str(shard.device))
    return {"devices": len(jax.devices()), "shards": len(sharded.addressable_shards)}


program.main()
