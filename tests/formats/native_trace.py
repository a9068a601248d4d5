"""The native trace file, read and written by its description (core/observe/trace_format.h), apart from our C code."""
import struct

MAGIC = b"GPUCTRC\n"
ALLOC, FREE, OOM, LEVELS, MAP, UNMAP, TEXT, FRAMES, STACK = range(1, 10)
SEGMENT, PAGES = 0, 1
NO_LIMIT = (1 << 64) - 1
RECORD = struct.Struct("<BBHIQQQQ")  # op, device, api, thread, address, bytes, stream, time_ns


class Trace:
    """pid, start_unix, names of entry points, and records: (op, device, api, thread, address, bytes, stream, time_ns)."""

    def __init__(self, names=(), records=(), pid=1, start_unix=0):
        self.names = list(names)
        self.records = list(records)
        self.pid = pid
        self.start_unix = start_unix

    @classmethod
    def read(cls, path):
        with open(path, "rb") as stream:
            data = stream.read()
        magic, version, header_bytes, record_bytes, count, pid, start = struct.unpack_from("<8sIIIIQQ", data)
        if magic != MAGIC or version not in (2, 3) or record_bytes != RECORD.size:
            raise ValueError("no trace of version 2 or 3")
        names = [name.decode() for name in data[40:header_bytes].split(b"\0")[:count]]
        end = len(data) - (len(data) - header_bytes) % RECORD.size
        return cls(names, RECORD.iter_unpack(data[header_bytes:end]), pid, start)

    def write(self, path, version=2):
        names = b"".join(name if isinstance(name, bytes) else name.encode() for name in (n + (b"\0" if isinstance(n, bytes) else "\0")
                                                                                        for n in self.names))
        names += b"\0" * (-(40 + len(names)) % 8)
        with open(path, "wb") as stream:
            stream.write(struct.pack("<8sIIIIQQ", MAGIC, version, 40 + len(names), RECORD.size, len(self.names), self.pid,
                                     self.start_unix))
            stream.write(names)
            for record in self.records:
                stream.write(RECORD.pack(*record))


def stacks(trace):
    """The frames of each stack number, innermost first."""
    texts, frames = {}, {}
    for op, _, at, number, *payload, _ in trace.records:
        if op == TEXT:
            texts.setdefault(number, {})[at] = struct.pack("<3Q", *payload)
        elif op == FRAMES:
            frames.setdefault(number, {})[at] = struct.unpack("<6I", struct.pack("<3Q", *payload))
    texts = {number: b"".join(parts[at] for at in sorted(parts)).split(b"\0")[0].decode() for number, parts in texts.items()}
    return {number: [texts[text] for at in sorted(parts) for text in parts[at] if text] for number, parts in frames.items()}


def stacks_of_lives(trace):
    """The stack number of each allocation, in order; None: unknown."""
    announced, found = {}, []
    for op, device, _, _, address, number, _, _ in trace.records:
        if op == STACK:
            announced[device, address] = number
        elif op == ALLOC:
            found.append(announced.pop((device, address), None))
    return found


class Life:
    """One allocation: what was asked for, when, and when it was freed (None: never)."""

    def __init__(self, number, record):
        _, self.device, self.api, self.thread, self.address, self.bytes, self.stream, self.begin_ns = record
        self.number = number
        self.end_ns = None


def lives(trace):
    """All allocations in order. A free of a block that is not live does not count; an address that is served again was freed."""
    found = []
    live = {}
    for record in trace.records:
        op, address, time_ns = record[0], record[4], record[7]
        if op in (ALLOC, FREE) and address in live:
            live.pop(address).end_ns = time_ns
        if op == ALLOC:
            live[address] = Life(len(found) + 1, record)
            found.append(live[address])
    return found


def live_curve(trace, device):
    """Live bytes of a device behind each event that changed them."""
    curve = []
    live = {}
    now = 0
    for record in trace.records:
        op, address = record[0], record[4]
        if op in (ALLOC, FREE) and address in live:
            owner, size = live.pop(address)
            if owner == device:
                now -= size
                curve.append(now)
        if op == ALLOC:
            live[address] = (record[1], record[5])
            if record[1] == device:
                now += record[5]
                curve.append(now)
    return curve
