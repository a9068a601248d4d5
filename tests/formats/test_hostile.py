"""Files that are wrong, by accident or on purpose: each is refused in one line that names the file and the place.
timeout: 120
"""
import json
import os
import random
import resource
import struct
import subprocess
import sys

import tap

SEED = int(os.environ.get("SEED", random.randrange(1 << 32)))


def refused_as(name, path, *words):
    """tap.refused of the case of that name, which a failure names."""
    try:
        tap.refused(path, path, *words)
    except AssertionError as error:
        raise AssertionError(f"{name}: {error}") from error


def put(folder, name, data):
    path = os.path.join(folder, name)
    with open(path, "wb") as file:
        file.write(data)
    return path


def safetensors(header, data=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(dtype="F32", shape=(2,), begin=0, end=8):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


def text(string):
    data = string if isinstance(string, bytes) else string.encode()
    return struct.pack("<Q", len(data)) + data


def gguf(keys=b"", key_count=0, tensors=b"", tensor_count=0, data=b"", version=3, magic=b"GGUF"):
    head = magic + struct.pack("<IQQ", version, tensor_count, key_count) + keys + tensors
    return head + b"\0" * (-len(head) % 32) + data


def gguf_tensor(name="w", dims=(32,), kind=0, offset=0):
    return text(name) + struct.pack("<I", len(dims)) + b"".join(struct.pack("<Q", d) for d in dims) + struct.pack("<IQ", kind, offset)


def varint(value):
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def onnx(graph, *more):
    return field(1, 10) + field(7, graph) + b"".join(more)


def onnx_tensor(name=b"w", dims=(2,), kind=1, *more):
    return b"".join(field(1, d & (1 << 64) - 1) for d in dims) + field(2, kind) + field(8, name) + b"".join(more)


def external(location, **keys):
    entries = {"location": location, **{key: str(value) for key, value in keys.items()}}
    return b"".join(field(13, field(1, k.encode()) + field(2, v.encode())) for k, v in entries.items()) + field(14, 1)


def wrong_safetensors(folder):
    w = entry()
    data = b"\0" * 8
    cases = {
        "empty": (b"", "empty"),
        "short length": (b"\x08\0\0", "the file ends at byte 3"),
        "no header": (safetensors(b"", length=1000), "byte 0", "cut short"),
        "2^63 header": (safetensors(b"{}", length=1 << 63), "byte 0", "100000000"),
        "huge header": (safetensors(b"{}", length=100000001), "byte 0", "100000000"),
        "big-endian length": (struct.pack(">Q", 2) + b"{}", "byte 0", "big-endian"),
        "negative length": (safetensors(b"{}", length=(1 << 64) - 1), "byte 0"),
        "array": (safetensors(b"[1, 2]"), "byte 8"),
        "cut header": (safetensors(b'{"w": {"dtype": "F32", "sha'), "byte"),
        "bad JSON": (safetensors(b'{"w" {}}'), "byte 13", "':'"),
        "trailing": (safetensors(b'{} x'), "byte 11", "nothing more"),
        "trailing comma": (safetensors(b'{"w": {},}'), "byte"),
        "two values": (safetensors(b'{}{}'), "byte 10"),
        "byte order mark": (safetensors(b'\xef\xbb\xbf{}'), "byte 8"),
        "bad UTF-8": (safetensors(b'{"\xff": 1}'), "byte 10", "UTF-8"),
        "surrogate": (safetensors(b'{"\xed\xa0\x80": 1}'), "UTF-8"),
        "half a pair": (safetensors(rb'{"\ud800": 1}'), "surrogate"),
        "control": (safetensors(b'{"a\nb": 1}'), "control"),
        "NUL name": (safetensors(rb'{"a\u0000b": {"dtype":"F32","shape":[2],"data_offsets":[0,8]}}', data), "NUL"),
        "unknown dtype": (safetensors({"w": entry("F99")}, data), '"w"', '"F99"'),
        "no dtype": (safetensors({"w": {"shape": [2], "data_offsets": [0, 8]}}, data), '"w"', "dtype"),
        "dtype twice": (safetensors(b'{"w":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}}', data), '"w"', "twice"),
        "name twice": (safetensors(b'{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"w":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}}', data * 2), '"w"', "twice"),
        "negative dim": (safetensors({"w": entry(shape=[-2])}, data), '"w"', "shape"),
        "real dim": (safetensors({"w": entry(shape=[2.0])}, data), '"w"', "shape"),
        "text dim": (safetensors({"w": entry(shape=["2"])}, data), '"w"', "shape"),
        "2^64 dim": (safetensors({"w": entry(shape=[1 << 64])}, data), '"w"', "shape"),
        "65 dims": (safetensors({"w": entry(shape=[1] * 65)}, data), '"w"', "64"),
        "overflow": (safetensors({"w": entry(shape=[1 << 32, 1 << 32])}, data), '"w"', "overflows"),
        "overflow in bytes": (safetensors({"w": entry(shape=[1 << 62])}, data), '"w"', "overflows"),
        "three offsets": (safetensors({"w": {**w, "data_offsets": [0, 8, 8]}}, data), '"w"', "data_offsets"),
        "one offset": (safetensors({"w": {**w, "data_offsets": [0]}}, data), '"w"', "data_offsets"),
        "negative offset": (safetensors({"w": entry(begin=-8, end=0)}, data), '"w"', "data_offsets"),
        "offsets reversed": (safetensors({"w": entry(begin=8, end=0)}, data), '"w"', "end before they begin"),
        "wrong size": (safetensors({"w": entry(end=7)}, data), '"w"', "span 7 bytes", "need 8"),
        "beyond the file": (safetensors({"w": entry()}, data[:-1]), '"w"', "cut short"),
        "2^63 offset": (safetensors({"w": entry(begin=1 << 63, end=(1 << 63) + 8)}, data), '"w"', "cut short"),
        "overlap": (safetensors({"a": entry(), "b": entry(begin=4, end=12)}, data * 2), '"a"', '"b"', "overlap at byte"),
        "hole": (safetensors({"a": entry(), "b": entry(begin=12, end=20)}, data * 3), "byte", "belong to no tensor"),
        "trailing data": (safetensors({"a": entry()}, data * 2), "belong to no tensor"),
        "data without tensors": (safetensors({}, data), "no tensor"),
        "too deep": (safetensors(b'{"__metadata__":' + b'{"a":' * 100 + b"1" + b"}" * 101), "byte", "deeper"),
        "too deep in a tensor": (safetensors(b'{"w":{"x":' + b"[" * 100000 + b"]" * 100000 + b"}}"), "deeper"),
        "metadata no object": (safetensors({"__metadata__": 1}), "byte", "object"),
        "metadata twice": (safetensors(b'{"__metadata__":{},"__metadata__":{}}'), "twice"),
        "long name": (safetensors({"x" * 70000: entry()}, data), "longer"),
    }
    for name, (content, *words) in cases.items():
        path = put(folder, name + ".safetensors", content)
        refused_as(name, path, *words)


def truncated_anywhere(folder):
    whole = {
        "t.safetensors": safetensors({"a": entry(), "b": entry("F16", (4,), 8, 16)}, b"\0" * 16),
        "t.gguf": gguf(text("general.alignment") + struct.pack("<II", 4, 32) + text("a") + struct.pack("<IIQ", 9, 8, 2) + text("x") * 2, 2,
                       gguf_tensor() + gguf_tensor("v", (32, 2), 2, 128), 2, b"\0" * (128 + 36)),
        "t.onnx": onnx(field(1, field(4, b"Constant") + field(2, b"c") + field(5, field(1, b"value") + field(5, onnx_tensor(b"x", (1,), 1, field(9, b"\0" * 4)))))
                       + field(5, onnx_tensor(b"w", (2,), 1, field(9, b"\0" * 8)))),
        "t.json": json.dumps({"tensors": [{"name": "w", "dtype": "bf16", "shape": [2, 3]}], "config": {"a": [1, {"b": 2}]}}).encode(),
    }
    for name, content in whole.items():
        tap.dump(put(folder, name, content))
        for length in range(len(content)):
            path = put(folder, name, content[:length])
            if name == "t.onnx" and length > 2 and content[:length] == onnx(b"")[:length]:
                continue
            if name == "t.safetensors" and length == len(content) - 16:  # its header alone
                tap.equal(tap.dump(path)["weight_bytes"], 16)
                continue
            tap.refused(path, path)


def wrong_gguf(folder):
    key = lambda name, kind, value: text(name) + struct.pack("<I", kind) + value
    by_one = key("general.alignment", 4, struct.pack("<I", 1))
    f32 = b"\0" * 128
    cases = {
        "version 1": (gguf(version=1), "byte 4", "version 1", "2 and 3"),
        "version 4": (gguf(version=4), "version 4"),
        "big-endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "byte 4", "big-endian", "version 3"),
        "version 0": (gguf(version=0), "version 0"),
        "many tensors": (gguf(tensor_count=1 << 63), "byte 8", "more than a file"),
        "many keys": (gguf(key_count=(1 << 64) - 1), "byte 8", "more than a file"),
        "key type": (gguf(key("a", 13, b"\0" * 40), 1), '"a"', "type 13"),
        "2^63 text": (gguf(key("a", 8, struct.pack("<Q", 1 << 63) + b"x" * 40), 1), '"a"', "the file ends"),
        "2^64 array": (gguf(key("a", 9, struct.pack("<IQ", 0, (1 << 64) - 1) + b"x" * 40), 1), '"a"', "array"),
        "2^62 wide array": (gguf(key("a", 9, struct.pack("<IQ", 12, 1 << 61) + b"x" * 40), 1), '"a"', "array"),
        "array type": (gguf(key("a", 9, struct.pack("<IQ", 99, 1) + b"x" * 40), 1), '"a"', "type 99"),
        "deep arrays": (gguf(key("a", 9, struct.pack("<IQ", 9, 1) * 100 + struct.pack("<IQ", 0, 0)), 1), '"a"', "deeper"),
        "key twice": (gguf(key("a", 0, b"\1") * 2, 2), '"a"', "twice"),
        "key without a name": (gguf(key("", 0, b"\1") + b"\0" * 20, 1), "0 bytes"),
        "key of 2^40": (gguf(struct.pack("<Q", 1 << 40) + b"x" * 40, 1), "1099511627776 bytes"),
        "key with NUL": (gguf(key("a\0b", 0, b"\1"), 1), "NUL"),
        "key no text": (gguf(key(b"\xff\xfe", 0, b"\1"), 1), "UTF-8"),
        "alignment 0": (gguf(key("general.alignment", 4, struct.pack("<I", 0)), 1), "power of two"),
        "alignment 3": (gguf(key("general.alignment", 4, struct.pack("<I", 3)), 1), "power of two"),
        "alignment text": (gguf(key("general.alignment", 8, text("32")), 1), "power of two"),
        "unknown type": (gguf(b"", 0, gguf_tensor(kind=77), 1, f32), '"w"', "type 77"),
        "removed type": (gguf(b"", 0, gguf_tensor(kind=4), 1, f32), '"w"', "type 4 "),
        "5 dims": (gguf(b"", 0, gguf_tensor(dims=(1, 1, 1, 1, 1)), 1, f32), '"w"', "5 dimensions"),
        "2^31 dims": (gguf(b"", 0, text("w") + struct.pack("<I", 1 << 31) + b"\0" * 40, 1, f32), '"w"', "dimensions"),
        "negative dim": (gguf(b"", 0, gguf_tensor(dims=((1 << 64) - 32,)), 1, f32), '"w"', "negative"),
        "2^63 dim": (gguf(b"", 0, gguf_tensor(dims=(1 << 63,)), 1, f32), '"w"', "negative"),
        "overflow": (gguf(b"", 0, gguf_tensor(dims=(1 << 32, 1 << 32)), 1, f32), '"w"', "overflows"),
        "half a block": (gguf(b"", 0, gguf_tensor(dims=(33,), kind=2), 1, f32), '"w"', "blocks of 32"),
        "odd offset": (gguf(b"", 0, gguf_tensor(offset=1), 1, f32), '"w"', "multiple of 32"),
        "2^63 offset": (gguf(b"", 0, gguf_tensor(offset=1 << 63), 1, f32), '"w"', "leave the data"),
        "2^64 offset": (gguf(b"", 0, gguf_tensor(offset=(1 << 64) - 32), 1, f32), '"w"', "overflows"),
        "2^64-1 where it lies": (gguf(by_one, 1, gguf_tensor(offset=(1 << 64) - 1 - 24 - len(by_one) - len(gguf_tensor())), 1, f32), '"w"', "overflows"),
        "beyond the file": (gguf(b"", 0, gguf_tensor(offset=32), 1, f32), '"w"', "leave the data"),
        "overlap": (gguf(b"", 0, gguf_tensor() + gguf_tensor("v", offset=64), 2, f32 * 2), '"w"', '"v"', "overlap"),
        "name twice": (gguf(b"", 0, gguf_tensor() + gguf_tensor(offset=128), 2, f32 * 2), '"w"', "twice"),
        "name with NUL": (gguf(b"", 0, gguf_tensor("w\0"), 1, f32), "NUL"),
        "shard of none": (gguf(key("split.count", 2, struct.pack("<H", 3)) + key("split.no", 2, struct.pack("<H", 0)), 2), "shard 1 of 3", "-00001-of-00003.gguf"),
        "shard beyond": (gguf(key("split.count", 2, struct.pack("<H", 3)) + key("split.no", 2, struct.pack("<H", 3)), 2), "split.no is 3"),
        "shards of text": (gguf(key("split.count", 8, text("3")), 1), "split.count", "whole number"),
        "many shards": (gguf(key("split.count", 10, struct.pack("<Q", 1 << 63)), 1), "split.count"),
    }
    for name, (content, *words) in cases.items():
        path = put(folder, name + ".gguf", content)
        refused_as(name, path, *words)


def wrong_gguf_shards(folder):
    def shard(number, count, tensors=b"", tensor_count=0, data=b"", total=1):
        keys = b"".join(text(name) + struct.pack("<I", 4) + struct.pack("<I", value)
                        for name, value in (("split.count", count), ("split.no", number), ("split.tensors.count", total)))
        return gguf(keys, 3, tensors, tensor_count, data)
    one = put(folder, "m-00001-of-00002.gguf", shard(0, 2, gguf_tensor(), 1, b"\0" * 128))
    tap.refused(one, one, "m-00002-of-00002.gguf", "is not there")
    put(folder, "m-00002-of-00002.gguf", shard(0, 2))
    tap.refused(one, "m-00002-of-00002.gguf", "by its keys it is shard 1 of 2")
    put(folder, "m-00002-of-00002.gguf", shard(1, 2, gguf_tensor(), 1, b"\0" * 128))
    tap.refused(one, "m-00002-of-00002.gguf", '"w"', "twice")
    put(folder, "m-00002-of-00002.gguf", shard(1, 2, gguf_tensor("v"), 1, b"\0" * 128))
    tap.refused(one, one, "split.tensors.count is 1", "2 tensors")
    put(folder, "m-00002-of-00002.gguf", shard(1, 2))
    tap.equal(tap.dump(one)["tensor_count"], 1)
    os.remove(os.path.join(folder, "m-00002-of-00002.gguf"))
    os.symlink("/etc/passwd", os.path.join(folder, "m-00002-of-00002.gguf"))
    tap.refused(one, "link")


def wrong_onnx(folder):
    raw = field(9, b"\0" * 8)
    graph = lambda *tensors: b"".join(field(5, t) for t in tensors)
    deep = b""
    for _ in range(200):
        deep = field(1, field(4, b"If") + field(5, field(1, b"then_branch") + field(6, deep)))
    sparse = lambda dims, values, indices: field(15, field(1, values) + field(2, indices) + b"".join(field(3, d) for d in dims))
    cases = {
        "no protobuf": (b"\xff" * 100, "byte 0"),
        "text": (b"hello, world", "byte 2", "protobuf"),
        "no graph": (field(1, 8), "no graph"),
        "two graphs": (onnx(b"", field(7, b"")), "second main graph"),
        "cut field": (onnx(b"")[:-1] + varint(1 << 40), "byte 2", "cut short"),
        "endless number": (field(1, 8) + b"\x38" + b"\xff" * 11, "64 bits"),
        "field 0": (field(1, 8) + b"\x02\x00", "without a number"),
        "group": (field(1, 8) + b"\x3b\x3c", "not in use"),
        "unknown type": (onnx(graph(onnx_tensor(b"w", (2,), 99, raw))), "data type 99"),
        "type 0": (onnx(graph(onnx_tensor(b"w", (2,), 0, raw))), "data type 0"),
        "no type": (onnx(graph(field(1, 2) + field(8, b"w") + raw)), '"w"', "no data type"),
        "negative dim": (onnx(graph(onnx_tensor(b"w", (-2,), 1, raw))), "negative dimension"),
        "2^63 dim": (onnx(graph(onnx_tensor(b"w", (1 << 63,), 1, raw))), "negative dimension"),
        "65 dims": (onnx(graph(onnx_tensor(b"w", (1,) * 65, 1, raw))), "64 dimensions"),
        "overflow": (onnx(graph(onnx_tensor(b"w", (1 << 40, 1 << 40), 1, raw))), '"w"', "overflows"),
        "overflow of the sum": (onnx(graph(*[onnx_tensor(b"w%d" % n, (1 << 60,), 11) for n in range(3)])), '"w1"', "sum"),
        "wrong size": (onnx(graph(onnx_tensor(b"w", (3,), 1, raw))), '"w"', "8 bytes of data", "need 12"),
        "wrong typed size": (onnx(graph(onnx_tensor(b"w", (3,), 1, field(4, b"\0" * 8)))), '"w"', "need 12"),
        "name no text": (onnx(graph(onnx_tensor(b"\xff", (2,), 1, raw))), "UTF-8"),
        "name of 100 KB": (onnx(graph(onnx_tensor(b"x" * 100000, (2,), 1, raw))), "100000 bytes"),
        "graphs too deep": (onnx(deep), "deeper"),
        "sparse without values": (onnx(field(15, field(3, 8))), "without values"),
        "sparse beyond": (onnx(sparse([1], onnx_tensor(b"w", (2,), 1, raw), onnx_tensor(b"", (2,), 7, field(9, b"\0" * 16)))), "sparse", "2 values"),
        "sparse overflow": (onnx(sparse([1 << 40, 1 << 40], onnx_tensor(b"w", (2,), 1, raw), onnx_tensor(b"", (2,), 7, field(9, b"\0" * 16)))), '"w"', "overflows"),
        "external nowhere": (onnx(graph(onnx_tensor(b"w", (2,), 1, field(14, 1)))), '"w"', "without a location"),
        "external missing": (onnx(graph(onnx_tensor(b"w", (2,), 1, external("nothing.bin")))), '"w"', '"nothing.bin"', "is not there"),
        "external empty": (onnx(graph(onnx_tensor(b"w", (2,), 1, external("")))), '"w"', "is empty"),
        "external absolute": (onnx(graph(onnx_tensor(b"w", (2,), 1, external("/etc/passwd")))), '"w"', "/etc/passwd", "absolute"),
        "external up": (onnx(graph(onnx_tensor(b"w", (2,), 1, external("../data.bin")))), '"w"', "leaves the model's folder"),
        "external up within": (onnx(graph(onnx_tensor(b"w", (2,), 1, external("a/../../data.bin")))), '"w"', "leaves the model's folder"),
        "external folder": (onnx(graph(onnx_tensor(b"w", (2,), 1, external("folder")))), '"w"', "regular file"),
        "external pipe": (onnx(graph(onnx_tensor(b"w", (2,), 1, external("pipe")))), '"w"', "regular file"),
        "external link": (onnx(graph(onnx_tensor(b"w", (2,), 1, external("link.bin")))), '"w"', "link"),
        "external behind a link": (onnx(graph(onnx_tensor(b"w", (2,), 1, external("out/passwd")))), '"w"', "link"),
        "external short": (onnx(graph(onnx_tensor(b"w", (2,), 1, external("data.bin", offset=4)))), '"w"', "data.bin", "cut short"),
        "external 2^63": (onnx(graph(onnx_tensor(b"w", (2,), 1, external("data.bin", offset=1 << 63)))), '"w"', "cut short"),
        "external 2^64-1": (onnx(graph(onnx_tensor(b"w", (2,), 1, external("data.bin", offset=(1 << 64) - 1)))), "offset", "so long"),
        "external 2^64": (onnx(graph(onnx_tensor(b"w", (2,), 1, external("data.bin", offset=1 << 64)))), "offset", "whole number"),
        "external negative": (onnx(graph(onnx_tensor(b"w", (2,), 1, external("data.bin", offset=-4)))), "offset", "whole number"),
        "external length": (onnx(graph(onnx_tensor(b"w", (2,), 1, external("data.bin", length=4)))), '"w"', "need 8"),
        "external overlap": (onnx(graph(onnx_tensor(b"w", (1,), 1, external("data.bin", offset=0)), onnx_tensor(b"v", (1,), 1, external("data.bin", offset=2)))), '"w"', '"v"', "overlap"),
    }
    put(folder, "data.bin", b"\0" * 8)
    os.mkdir(os.path.join(folder, "folder"))
    os.mkfifo(os.path.join(folder, "pipe"))
    os.symlink("/etc/passwd", os.path.join(folder, "link.bin"))
    os.symlink("/etc", os.path.join(folder, "out"))
    for name, (content, *words) in cases.items():
        path = put(folder, name + ".onnx", content)
        try:
            tap.refused(path, folder, *words)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from error
    # What is allowed: "./", a folder within, a link within the same folder.
    put(os.path.join(folder, "folder"), "deep.bin", b"\0" * 8)
    os.symlink("data.bin", os.path.join(folder, "near.bin"))
    for location in ("./data.bin", "folder/deep.bin", "near.bin"):
        path = put(folder, "fine.onnx", onnx(graph(onnx_tensor(b"w", (2,), 1, external(location)))))
        tap.equal(tap.dump(path)["weight_bytes"], 8, location)


def wrong_index(folder):
    shard = safetensors({"w": entry()}, b"\0" * 8)
    put(folder, "a.safetensors", shard)
    os.symlink("/etc/passwd", os.path.join(folder, "link.safetensors"))
    os.mkdir(os.path.join(folder, "sub"))
    cases = {
        "no map": ({"metadata": {}}, "not known"),
        "map no object": ({"weight_map": []}, "weight_map", "object"),
        "map to a number": ({"weight_map": {"w": 1}}, '"w"', "file name"),
        "missing file": ({"weight_map": {"w": "b.safetensors"}}, '"b.safetensors"', "is not there"),
        "traversal": ({"weight_map": {"w": "../a.safetensors"}}, "leaves the model's folder"),
        "absolute": ({"weight_map": {"w": "/etc/passwd"}}, "absolute"),
        "link": ({"weight_map": {"w": "link.safetensors"}}, "link"),
        "a folder": ({"weight_map": {"w": "sub"}}, "regular file"),
        "pickles": ({"weight_map": {"w": "pytorch_model-00001-of-00002.bin"}}, "pickle"),
        "promised, not there": ({"weight_map": {"w": "a.safetensors", "v": "a.safetensors"}}, '"v"', 'not in "a.safetensors"'),
        "tensor twice": (b'{"weight_map": {"w": "a.safetensors", "w": "a.safetensors"}}', '"w"', "twice"),
        "map twice": (b'{"weight_map": {"w": "a.safetensors"}, "weight_map": {}}', "twice"),
        "itself": ({"weight_map": {"w": "model.safetensors.index.json"}}, "byte 0"),
    }
    for name, (content, *words) in cases.items():
        path = put(folder, "model.safetensors.index.json", content if isinstance(content, bytes) else json.dumps(content).encode())
        try:
            tap.refused(path, folder, *words)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from error
    # One tensor in two files: the index can name but one of them.
    put(folder, "b.safetensors", safetensors({"v": entry(), "w": entry(begin=8, end=16)}, b"\0" * 16))
    path = put(folder, "model.safetensors.index.json", json.dumps({"weight_map": {"w": "a.safetensors", "v": "b.safetensors"}}).encode())
    tap.refused(path, "b.safetensors", '"w"', "twice")
    # More than in the index, and a wrong total: reported, and counted.
    put(folder, "b.safetensors", safetensors({"v": entry(), "x": entry(begin=8, end=16)}, b"\0" * 16))
    path = put(folder, "model.safetensors.index.json",
               json.dumps({"metadata": {"total_size": 1}, "weight_map": {"w": "a.safetensors", "v": "b.safetensors"}}).encode())
    got = tap.dump(path)
    tap.equal(got["weight_bytes"], 24)
    tap.equal(len(got["warnings"]), 2, got["warnings"])


def wrong_description(folder):
    tensor = {"name": "w", "dtype": "bf16", "shape": [2, 3]}
    cases = {
        "no tensors": ({"config": {}}, '"tensors"'),
        "tensors no list": ({"tensors": {}}, "tensors", "array"),
        "no object": ({"tensors": [1]}, "tensors[0]", "object"),
        "no name": ({"tensors": [{"dtype": "f32", "shape": []}]}, "tensors[0]", "name"),
        "bad dtype": ({"tensors": [{**tensor, "dtype": "f33"}]}, '"w"', "dtype"),
        "text dtype": ({"tensors": [{**tensor, "dtype": "string"}]}, '"w"', "dtype"),
        "bad shape": ({"tensors": [{**tensor, "shape": [1.5]}]}, '"w"', "shape"),
        "negative": ({"tensors": [{**tensor, "shape": [-1]}]}, '"w"', "shape"),
        "overflow": ({"tensors": [{**tensor, "shape": [1 << 63, 2]}]}, '"w"', "overflows"),
        "twice": ({"tensors": [tensor, tensor]}, '"w"', "twice"),
        "unknown key": ({"tensors": [{**tensor, "size": 1}]}, '"w"', "not known"),
        "unknown outer key": ({"tensors": [tensor], "more": 1}, '"more"', "not known"),
        "NaN": (b'{"tensors": [{"name": "w", "dtype": "f32", "shape": [NaN]}]}', "shape"),
        "infinite": (b'{"tensors": [{"name": "w", "dtype": "f32", "shape": [Infinity]}]}', "shape"),
        "large alias": ({"tensors": [tensor, {**tensor, "name": "v", "shape": [7], "alias_of": "w"}]}, '"v"', "larger"),
        "alias of nothing": ({"tensors": [{**tensor, "alias_of": "v"}]}, "alias_of"),
        "config no object": ({"tensors": [], "config": 1}, "object"),
        "config twice": (b'{"tensors": [], "config": {}, "config": {}}', "twice"),
        "config key twice": (b'{"tensors": [], "config": {"a": 1, "a": 2}}', '"a"', "twice"),
        "long key": ({"tensors": [], "config": {"a" * 2000: 1}}, "longer"),
        "1e999 dim": (b'{"tensors": [{"name": "w", "dtype": "f32", "shape": [1e999]}]}', "shape"),
    }
    for name, (content, *words) in cases.items():
        path = put(folder, "model.json", content if isinstance(content, bytes) else json.dumps(content).encode())
        refused_as(name, path, *words)
    tap.refused(put(folder, "config.json", b'{"a": 1}'), "model_type")
    path = put(folder, "model.json", json.dumps({"tensors": [tensor, {**tensor, "name": "v", "alias_of": "w"},
                                                             {"name": "q", "dtype": "Q4_K", "shape": [1e1, 256]}], "config": {"n": 1e3}}).encode())
    got = tap.dump(path)
    tap.equal((got["weight_bytes"], got["alias_bytes"], got["parameters"]), (12 + 1440, 12, 2566))


def other_files(folder):
    """Files that are no model, and their errors."""
    cases = {
        "model.pt": (b"PK\3\4" + b"\0" * 100, "zip archive"),
        "model.pkl": (b"\x80\2}q\0.", "pickle"),
        "model.h5": (b"\x89HDF\r\n\x1a\n", "HDF5"),
        "model.safetensors": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "Git LFS"),
        "model.bin": (b"\0" * 100, "no known format"),
        "old.gguf": (b"lmgg" + b"\0" * 100, "older than GGUF"),
        "model.tflite": (b"\x1c\0\0\0TFL3" + b"\0" * 100, "TensorFlow Lite"),
    }
    for name, (content, *words) in cases.items():
        path = put(folder, name, content)
        tap.refused(path, path, *words)
    tap.refused(os.path.join(folder, "nothing"), "no such file")
    tap.refused("", "no such file")
    tap.refused("/dev/null", "no regular file")
    tap.refused("/dev/zero", "no regular file")
    os.mkfifo(os.path.join(folder, "pipe"))
    tap.refused(os.path.join(folder, "pipe"), "no regular file")
    os.symlink("loop", os.path.join(folder, "loop"))
    tap.refused(os.path.join(folder, "loop"), "loop")
    tap.refused("/" + "x" * 5000, "...")


def folders(folder):
    """A Hugging Face folder: which file is taken, and the error where none is."""
    tap.refused(folder, "no weights")
    put(folder, "config.json", b'{"n": 1}')
    put(folder, "pytorch_model.bin", b"PK\3\4")
    tap.refused(folder, "model_type")
    put(folder, "config.json", b'{"n": 1, "model_type": "llama"}')
    got = tap.dump(folder)
    tap.equal((got["format"], len(got["tensors"]), got["has_config"]), ("configuration", 0, True))
    tap.equal(["pickles" in warning for warning in got["warnings"]], [True])
    put(folder, "config.json", b'{"n": 1}')
    put(folder, "model_index.json", b"{}")
    tap.refused(folder, "diffusion pipeline")
    put(folder, "x.safetensors", safetensors({"w": entry()}, b"\0" * 8))
    tap.equal(tap.dump(folder)["weight_bytes"], 8)
    put(folder, "y.safetensors", safetensors({"w": entry()}, b"\0" * 8))
    tap.refused(folder, "2 files", "x.safetensors")
    put(folder, "model.safetensors", safetensors({"w": entry(shape=[4], end=16)}, b"\0" * 16))
    got = tap.dump(folder)
    tap.equal((got["weight_bytes"], got["has_config"], got["metas"]), (16, True, {"n": 1}))
    # Python's json writes what is no JSON.
    put(folder, "config.json", b'{"limit": [0.0, Infinity, -Infinity, NaN]}')
    tap.equal([float(x) for x in tap.dump(folder)["metas"]["limit"]][:3], [0.0, float("inf"), float("-inf")])
    put(folder, "config.json", b'{"n": 1')
    tap.refused(folder, "config.json", "byte 7")
    os.remove(os.path.join(folder, "config.json"))
    os.mkdir(os.path.join(folder, "config.json"))
    tap.refused(folder, "config.json", "no regular file")
    os.rmdir(os.path.join(folder, "config.json"))
    put(folder, "config.json", b'{"n": 1')
    # Only the file was requested: a damaged neighbour is reported, no more.
    got = tap.dump(os.path.join(folder, "model.safetensors"))
    tap.equal((got["weight_bytes"], got["has_config"], len(got["warnings"])), (16, False, 1))


def ties(folder):
    """An output layer that is stored though it is the embedding is reported, and counted."""
    data = b"\0" * 16
    put(folder, "model.safetensors", safetensors({"model.embed_tokens.weight": entry(), "lm_head.weight": entry(begin=8, end=16)}, data))
    for config, want in (({"tie_word_embeddings": True}, (16, 0, 1)), ({"tie_word_embeddings": False}, (16, 0, 0)), ({}, (16, 0, 0))):
        put(folder, "config.json", json.dumps(config).encode())
        got = tap.dump(folder)
        tap.equal((got["weight_bytes"], got["alias_bytes"], len(got["warnings"])), want, config)
    # The very same bytes under two names.
    put(folder, "model.safetensors", safetensors({"a": entry(), "b": entry()}, data[:8]))
    got = tap.dump(folder)
    tap.equal((got["weight_bytes"], got["alias_bytes"], [t["alias_of"] for t in got["tensors"]]), (8, 8, [None, "a"]))


def a_cache_of_hugging_face(folder):
    """Snapshots are links to blobs: followed there, and nowhere else."""
    base = os.path.join(folder, "models--a--b")
    snapshot = os.path.join(base, "snapshots", "0123")
    blobs = os.path.join(base, "blobs")
    os.makedirs(snapshot)
    os.makedirs(blobs)
    put(blobs, "abc", safetensors({"w": entry()}, b"\0" * 8))
    put(blobs, "def", b'{"n": 1}')
    os.symlink("../../blobs/abc", os.path.join(snapshot, "model.safetensors"))
    os.symlink("../../blobs/def", os.path.join(snapshot, "config.json"))
    got = tap.dump(snapshot)
    tap.equal((got["weight_bytes"], got["metas"]), (8, {"n": 1}))
    os.symlink(snapshot, os.path.join(folder, "model"))
    tap.equal(tap.dump(os.path.join(folder, "model"))["weight_bytes"], 8)
    put(base, "outside", safetensors({"w": entry()}, b"\0" * 8))
    for target in ("../../outside", "../../blobs/../outside", "/etc/passwd", "../../blobs/"):
        os.remove(os.path.join(snapshot, "model.safetensors"))
        os.symlink(target, os.path.join(snapshot, "model.safetensors"))
        tap.refused(snapshot, snapshot, "link")
    # A blobs folder elsewhere is none, and one that is a link is none.
    other = os.path.join(folder, "x", "y", "z")
    os.makedirs(other)
    os.makedirs(os.path.join(folder, "x", "blobs"))
    put(os.path.join(folder, "x", "blobs"), "abc", safetensors({"w": entry()}, b"\0" * 8))
    os.symlink("../../blobs/abc", os.path.join(other, "model.safetensors"))
    tap.refused(other, "link")
    other = os.path.join(folder, "v", "snapshots", "z")
    os.makedirs(other)
    os.symlink(blobs, os.path.join(folder, "v", "blobs"))
    os.symlink("../../blobs/abc", os.path.join(other, "model.safetensors"))
    tap.refused(other, "link")


def long_ones(folder):
    """Files made to keep a reader busy, in time or memory: taken or refused soon."""
    million = 1000000
    cases = {
        "nodes.onnx": (onnx(field(1, b"") * (20 * million)), "more than 16777216 fields"),
        "tensors.onnx": (onnx(field(5, onnx_tensor(b"", (), 1)) * (2 * million)), "more than 1048576 tensors"),
        "tensors.safetensors": (safetensors(b"{" + b",".join(b'"t%d":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}' % n for n in range(1100000)) + b"}"), "more than"),
        "arrays.json": (b'{"tensors":[],"config":{"' + b"a" * 900 + b'":[' + b"[]," * (4 * million) + b"1]}}", "bytes of memory"),
        "texts.gguf": (gguf(text("a") + struct.pack("<IIQ", 9, 8, 5 * million) + b"\0" * (40 * million), 1), None),
        "blanks.safetensors": (safetensors(b"{" + b" " * (90 * million) + b"}"), "no tensors and no configuration"),
    }
    for name, (content, word) in cases.items():
        path = put(folder, name, content)
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        if word is None:
            tap.dump(path, brief=True)
        else:
            tap.refused(path, path, word)
        spent = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - usage.ru_utime
        tap.equal((name, spent < 10), (name, True), f"{spent} s")
        os.remove(path)


def without_memory(folder):
    """The kernel refuses memory, at every point: one line, and an orderly end."""
    entries = b",".join(b'"t%d":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}' % n for n in range(30000))
    path = put(folder, "w.safetensors", safetensors(b"{" + entries + b"}"))
    seen = set()
    for megabytes in range(3, 24):
        limit = megabytes << 20
        done = subprocess.run(["prlimit", f"--as={limit}", tap.DUMP, "--brief", path], capture_output=True, check=False)
        error = done.stderr.decode()
        seen.add("no memory to read it with" in error)
        if done.returncode not in (0, 1, 127) or (done.returncode == 1 and "no memory" not in error):
            raise AssertionError(f"{megabytes} MiB: {done.returncode} {error}")
    tap.equal(True in seen, True, "was refused once")


def scrambled(folder):
    """Bytes changed at random: taken or refused in one line, never anything else."""
    rng = random.Random(SEED)
    samples = {
        "s.safetensors": safetensors({"a": entry(), "b": entry("F16", (4,), 8, 16)}, b"\0" * 16),
        "s.gguf": gguf(text("general.architecture") + struct.pack("<I", 8) + text("llama"), 1, gguf_tensor() + gguf_tensor("v", (32, 2), 2, 128), 2, b"\0" * 164),
        "s.onnx": onnx(field(1, field(4, b"Constant") + field(2, b"c") + field(5, field(1, b"value") + field(5, onnx_tensor(b"x", (1,), 1, field(9, b"\0" * 4)))))
                       + field(5, onnx_tensor(b"w", (2,), 1, field(9, b"\0" * 8)))),
        "s.json": json.dumps({"tensors": [{"name": "w", "dtype": "bf16", "shape": [2, 3]}], "config": {"a": [1, {"b": 2}]}}).encode(),
    }
    for number in range(600):
        name, content = rng.choice(list(samples.items()))
        data = bytearray(content)
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(len(data))] = rng.choice([0, 1, 0x7f, 0x80, 0xff, ord('"'), ord("{"), rng.randrange(256)])
        try:
            tap.dump(put(folder, name, bytes(data)), brief=True)
        except tap.Refused:
            pass
        except AssertionError as error:
            raise AssertionError(f"SEED={SEED} {number}: {bytes(data)!r}") from error


if __name__ == "__main__":
    sys.exit(tap.run([wrong_safetensors, truncated_anywhere, wrong_gguf, wrong_gguf_shards, wrong_onnx, wrong_index, wrong_description,
                      other_files, folders, ties, a_cache_of_hugging_face, long_ones, without_memory, scrambled]))
