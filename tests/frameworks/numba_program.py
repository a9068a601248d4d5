"""numba-cuda: arrays on the device, pinned and managed ones, streams, its deferred frees, a limit."""
import random

import numpy
from numba import cuda

import program

MIB = program.MIB


def host(size, seed):
    return numpy.frombuffer(program.content(size, seed), dtype=numpy.uint8)


def same(array, wanted, what=""):
    assert array.copy_to_host().tobytes() == wanted.tobytes(), f"wrong bytes: {what}"


@program.area
def arrays():
    """Arrays come and go in random order on four streams; numba keeps frees back and makes them together."""
    streams = [cuda.stream() for _ in range(4)]
    live = {}
    for step, size in enumerate(program.sizes(150, 2 * MIB, 1)):
        data = host(size, step)
        stream = streams[step % 4]
        array = cuda.to_device(data, stream=stream)
        live[step] = (array, data)
        stream.synchronize()
        if step % 3 == 2:
            array, data = live.pop(random.Random(step).choice(sorted(live)))
            copy = cuda.device_array_like(array)
            copy.copy_to_device(array)
            del array
            same(copy, data, "copied")
    for array, data in live.values():
        same(array, data)
    with cuda.defer_cleanup():
        for step in range(20):
            data = host(MIB + step, step)
            same(cuda.to_device(data), data, "deferred")
    pinned = cuda.pinned_array(MIB, dtype=numpy.uint8)
    pinned[:] = host(MIB, 9)
    same(cuda.to_device(pinned), pinned, "pinned")
    managed = cuda.managed_array(MIB, dtype=numpy.uint8)
    managed[:] = host(MIB, 10)
    cuda.synchronize()
    assert managed.tobytes() == host(MIB, 10).tobytes()
    mapped = cuda.mapped_array(MIB, dtype=numpy.uint8)
    mapped[:] = host(MIB, 11)
    cuda.synchronize()
    assert mapped.tobytes() == host(MIB, 11).tobytes()
    strided = numpy.asfortranarray(host(MIB, 12).reshape(1024, 1024))
    assert (cuda.to_device(strided).copy_to_host() == strided).all()
    return {"left": len(live)}


@program.area
def limit():
    """Takes memory until there is none, gives half back, goes on."""
    base = host(20 * MIB, 3)
    live, seen, step = {}, {}, 0
    for turn in range(2):
        try:
            while True:
                assert len(live) < 64, "no limit"
                data = base.copy()
                data[:8] = step
                live[step] = cuda.to_device(data)
                step += 1
        except cuda.cudadrv.driver.CudaAPIError as error:
            seen[f"turn {turn}"] = [len(live), str(error)]
        for number, array in live.items():
            back = array.copy_to_host()
            assert set(back[:8]) == {number} and (back[8:] == base[8:]).all(), f"wrong bytes of array {number}"
        array = None
        for number in sorted(live)[::2]:
            live.pop(number)
    return seen


program.main()
