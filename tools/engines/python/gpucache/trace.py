"""Reads a native trace (GPUCACHE_TRACE=NAME; core/observe/trace_format.h) into plain objects."""
import struct
import typing

_MAGIC = b"GPUCTRC\n"
_VERSIONS = (1, 2, 3)  # 3: with call stacks
_HEADER = struct.Struct("<8sIIIIQQ")
_HEADER_BYTES_MAX = 4 << 20
_RECORD = struct.Struct("<BBHIQQQQ")
_OPS = {1: "alloc", 2: "free", 3: "oom", 4: "levels", 5: "map", 6: "unmap"}
_ALLOC, _TEXT, _FRAMES, _STACK = 1, 7, 8, 9
_PAYLOAD = struct.Struct("<QQQ")
_NUMBERS = struct.Struct("<6I")


class Event(typing.NamedTuple):
    """One record. `op`: alloc, free, oom (a request that failed), levels, map or unmap (memory behind the allocations)."""
    op: str
    device: int
    api: str  # the entry point that the program called; "" of levels, map and unmap
    thread: int
    address: int
    bytes: int
    stream: int
    time_ns: int  # since the recorder's start


class Allocation(typing.NamedTuple):
    """One allocation, from its request to its free. Numbers begin with 1, as in `gpucache trace FILE --csv`."""
    id: int
    device: int
    api: str
    thread: int
    address: int
    bytes: int
    stream: int
    begin_ns: int
    end_ns: typing.Optional[int]  # None: never freed in the trace
    stack: typing.Tuple[str, ...] = ()  # frames, innermost first; empty where the trace has no call stacks


class Trace:
    """A trace in memory: `pid`, `start_unix`, `apis` (the entry points), and its events, over which it iterates."""

    def __init__(self, data, name="trace"):
        header = _HEADER.unpack_from(data) if len(data) >= _HEADER.size else None
        if header is None or header[0] != _MAGIC:
            raise ValueError(f"{name}: no trace of GPUCACHE_TRACE")
        _, self.version, self._begin, self._record_bytes, count, self.pid, self.start_unix = header
        if self.version not in _VERSIONS:
            raise ValueError(f"{name}: the trace has version {self.version}; {_VERSIONS[0]} to {_VERSIONS[-1]} are read")
        names = bytes(data[_HEADER.size:self._begin]).split(b"\0")
        if not _HEADER.size <= self._begin <= min(len(data), _HEADER_BYTES_MAX) or self._record_bytes != _RECORD.size \
                or len(names) <= count:
            raise ValueError(f"{name}: the header of the trace is damaged")
        self.apis = [entry.decode("utf-8", "replace") for entry in names[:count]]
        self._data = data

    def __len__(self):
        """The number of whole records; a recorder that was killed may leave a part of one."""
        return (len(self._data) - self._begin) // self._record_bytes

    def _records(self):
        return _RECORD.iter_unpack(memoryview(self._data)[self._begin:self._begin + len(self) * self._record_bytes])

    def stacks(self):
        """The frames of each call stack, innermost first, by the stack's number."""
        texts, frames = {}, {}
        for op, _, at, number, *payload, _ in self._records() if self.version >= 3 else ():
            if op == _TEXT:
                texts.setdefault(number, {})[at] = _PAYLOAD.pack(*payload)
            elif op == _FRAMES:
                frames.setdefault(number, {})[at] = _NUMBERS.unpack(_PAYLOAD.pack(*payload))
        names = {number: b"".join(parts[at] for at in sorted(parts)).split(b"\0")[0].decode("utf-8", "replace")
                 for number, parts in texts.items()}
        return {number: tuple(names.get(text, "?") for at in sorted(parts) for text in parts[at] if text)
                for number, parts in frames.items()}

    def _stacks_of_allocations(self):
        """The stack of each allocation, in the order of the requests."""
        stacks, announced, found = self.stacks(), {}, []
        for op, device, _, _, address, count, *_ in self._records():
            if op == _STACK:
                announced[device, address] = stacks.get(count, ())
            elif op == _ALLOC:
                found.append(announced.pop((device, address), ()))
        return found

    def __iter__(self):
        for op, device, api, thread, address, count, stream, time_ns in self._records():
            name = _OPS.get(op)
            if name is not None:
                has_api = op <= 3 and api < len(self.apis)
                yield Event(name, device, self.apis[api] if has_api else "", thread, address, count, stream, time_ns)

    def allocations(self):
        """Every Allocation, in the order of the requests. A free of an address that is not live is left out; an address that is
        allocated again was freed by then."""
        found, live = [], {}
        stacks = self._stacks_of_allocations() if self.version >= 3 else []
        for event in self:
            if event.op not in ("alloc", "free"):
                continue
            index = live.pop(event.address, None)
            if index is not None:
                found[index] = found[index]._replace(end_ns=event.time_ns)
            if event.op == "alloc":
                live[event.address] = len(found)
                found.append(Allocation(len(found) + 1, event.device, event.api, event.thread, event.address, event.bytes,
                                        event.stream, event.time_ns, None, stacks[len(found)] if stacks else ()))
        return found

    def peak_bytes(self, device=None):
        """The most bytes live at once, on one device or on all."""
        live, peak, sizes = 0, 0, {}
        for event in self:
            if event.op in ("alloc", "free") and device in (None, event.device):
                live -= sizes.pop(event.address, 0)
                if event.op == "alloc":
                    sizes[event.address] = event.bytes
                    live += event.bytes
                    peak = max(peak, live)
        return peak


def read_trace(path):
    """The Trace in the file `path`. ValueError: the file is no trace, or of a version that is not read."""
    with open(path, "rb") as stream:
        return Trace(stream.read(), path)
