"""cuda.core: buffers of its memory resources on streams, copied to and fro; a limit."""
import ctypes
import random

from cuda.core import Device, LegacyPinnedMemoryResource

import program

MIB = program.MIB


def host_buffer(pinned, data):
    buffer = pinned.allocate(len(data))
    ctypes.memmove(int(buffer.handle), data, len(data))
    return buffer


def bytes_of(buffer):
    return ctypes.string_at(int(buffer.handle), buffer.size)


def start():
    device = Device(0)
    device.set_current()
    return device, device.memory_resource, LegacyPinnedMemoryResource()


@program.area
def buffers():
    """Buffers come and go in random order on four streams; each keeps its bytes."""
    device, resource, pinned = start()
    streams = [device.create_stream() for _ in range(4)]
    live = {}
    for step, size in enumerate(program.sizes(120, 2 * MIB, 1)):
        stream = streams[step % 4]
        data = program.content(size, step)
        source = host_buffer(pinned, data)
        buffer = resource.allocate(size, stream=stream)
        buffer.copy_from(source, stream=stream)
        live[step] = (buffer, stream, data)
        stream.sync()
        source.close()
        if step % 3 == 2:
            check(resource, pinned, *live.pop(random.Random(step).choice(sorted(live))))
    left = len(live)
    for entry in live.values():
        check(resource, pinned, *entry)
    return {"left": left, "kind": type(resource).__name__}


def check(resource, pinned, buffer, stream, data):
    copy = resource.allocate(len(data), stream=stream)
    buffer.copy_to(copy, stream=stream)
    buffer.close(stream)
    back = pinned.allocate(len(data))
    copy.copy_to(back, stream=stream)
    copy.close(stream)
    stream.sync()
    assert bytes_of(back) == data, "wrong bytes"
    back.close()


@program.area
def limit():
    """Takes memory until there is none, gives half back, goes on."""
    device, resource, pinned = start()
    stream = device.create_stream()
    live, seen, step = {}, {}, 0
    for turn in range(2):
        try:
            while True:
                assert len(live) < 64, "no limit"
                buffer = resource.allocate(20 * MIB, stream=stream)
                source = host_buffer(pinned, program.content(MIB, step) * 20)
                buffer.copy_from(source, stream=stream)
                stream.sync()
                source.close()
                live[step] = buffer
                step += 1
        except Exception as error:  # pylint: disable=broad-exception-caught
            seen[f"turn {turn}"] = [len(live), str(error)]
        back = pinned.allocate(20 * MIB)
        for number in sorted(live):
            live[number].copy_to(back, stream=stream)
            stream.sync()
            assert bytes_of(back)[:MIB] == program.content(MIB, number), f"wrong bytes of buffer {number}"
        back.close()
        for number in sorted(live)[::2]:
            live.pop(number).close(stream)
    for buffer in live.values():
        buffer.close(stream)
    stream.sync()
    return seen


program.main()
