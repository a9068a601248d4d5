"""tinygrad: tensors on its CUDA device, its cache of buffers, a limit. Content goes through copies."""
import random

from tinygrad import Device, Tensor, dtypes
from tinygrad.device import Buffer

import program

MIB = program.MIB


def put(data):
    buffer = Buffer("CUDA", len(data), dtypes.uint8).allocate()
    Device["CUDA"].allocator._copyin(buffer._buf, memoryview(bytearray(data)))  # pylint: disable=protected-access
    return buffer


def bytes_of(buffer):
    back = bytearray(buffer.nbytes)
    Device["CUDA"].allocator._copyout(memoryview(back), buffer._buf)  # pylint: disable=protected-access
    return bytes(back)


@program.area
def tensors():
    """Buffers come and go in random order; tensors go to the device and back."""
    live = {}
    for step, size in enumerate(program.sizes(120, 2 * MIB, 1)):
        live[step] = (put(program.content(size, step)), program.content(size, step))
        if step % 3 == 2:
            buffer, data = live.pop(random.Random(step).choice(sorted(live)))
            assert bytes_of(buffer) == data, "wrong bytes"
            buffer.deallocate()
    for buffer, data in live.values():
        assert bytes_of(buffer) == data, "wrong bytes"
    for step in range(10):
        data = program.content(MIB + step, 100 + step)
        there = Tensor(data, device="PYTHON").to("CUDA").realize()
        assert bytes(there.data()) == data, "wrong bytes of a tensor"
    total = (Tensor([1.0, 2.0, 3.0], device="CUDA") + 1).realize()
    Device["CUDA"].synchronize()
    return {"left": len(live), "shape": list(total.shape)}


@program.area
def limit():
    """Takes memory until there is none, gives half back, goes on."""
    live, seen, step = {}, {}, 0
    for turn in range(2):
        try:
            while True:
                assert len(live) < 64, "no limit"
                live[step] = put(program.content(MIB, step) * 20)
                step += 1
        except (MemoryError, RuntimeError) as error:
            seen[f"turn {turn}"] = [len(live), type(error).__name__]
        for number, buffer in live.items():
            assert bytes_of(buffer)[:MIB] == program.content(MIB, number), f"wrong bytes of buffer {number}"
        for number in sorted(live)[::2]:
            live.pop(number).deallocate()
    return seen


program.main()
