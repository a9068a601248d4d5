"""Models written by the formats' own packages; what those read back is what the library must see.

Started by test_oracle.sh in an environment that has the packages.
"""
import json
import math
import os
import random
import struct
import sys

import gguf
import numpy as np
import onnx
import safetensors
from onnx import TensorProto, helper, numpy_helper

import tap

SEED = int(os.environ.get("SEED", random.randrange(1 << 32)))

# ---- safetensors ----

# Bits of an element, by the package's own source.
SAFETENSORS_BITS = {
    "BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32,
    "C64": 64, "F64": 64, "I64": 64, "U64": 64,
}


def write_safetensors(path, tensors, metadata=None):
    """tensors: name → (dtype, shape)."""
    header = {}
    if metadata:
        header["__metadata__"] = metadata
    at = 0
    for name, (dtype, shape) in tensors.items():
        size = math.prod(shape) * SAFETENSORS_BITS[dtype] // 8
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"\1" * at)


def read_safetensors(path):
    """name → (shape, bytes), by the package."""
    with open(path, "rb") as file:
        return {name: (view["shape"], len(view["data"])) for name, view in safetensors.deserialize(file.read())}


def compare_safetensors(path, files):
    want = {}
    for file in files:
        want.update(read_safetensors(file))
    got = tap.dump(path)
    tap.equal({t["name"]: (t["shape"], t["bytes"]) for t in got["tensors"]}, want, "tensors")
    tap.equal(got["weight_bytes"], sum(size for _, size in want.values()), "weight bytes")
    tap.equal(got["parameters"], sum(math.prod(shape) for shape, _ in want.values()), "parameters")
    tap.equal(got["tensor_count"], len(want), "tensors")
    tap.equal(got["warnings"], [], "warnings")
    return got


def safetensors_of_every_dtype(folder):
    path = os.path.join(folder, "model.safetensors")
    write_safetensors(path, {f"layer.{dtype}": (dtype, [3, 8]) for dtype in SAFETENSORS_BITS}, {"format": "pt"})
    got = compare_safetensors(path, [path])
    tap.equal(got["metas"], {"__metadata__.format": "pt"})


def safetensors_written_by_the_package(folder):
    from safetensors.numpy import save_file
    path = os.path.join(folder, "model.safetensors")
    save_file({"b": np.zeros((5, 7), np.float32), "scalar": np.zeros((), np.int64), "none": np.zeros((0, 4), np.float16),
               "ä.\u4e2d\"\\\n": np.zeros(3, np.uint8)}, path)
    compare_safetensors(path, [path])


def safetensors_with_headers_of_any_length(folder):
    """The length comes first in the file: none of its values is some other format's magic."""
    path = os.path.join(folder, "model")
    for length in [n for n in range(64, 1500) if n % 64 == 0 or n & 0xff in (0x08, 0x80, 0x89, 0x93)] + [0x4b50, 0x6c6d]:
        header = json.dumps({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
        with open(path, "wb") as file:
            file.write(struct.pack("<Q", length) + header + b" " * (length - len(header)) + b"\0" * 8)
        compare_safetensors(path, [path])


def safetensors_at_random(folder):
    rng = random.Random(SEED)
    for round_number in range(60):
        path = os.path.join(folder, f"{round_number}.safetensors")
        tensors = {}
        for number in range(rng.randrange(1, 60)):
            shape = [rng.choice([0, 1, 2, 3, 8, 17]) for _ in range(rng.randrange(0, 5))]
            dtype = rng.choice(list(SAFETENSORS_BITS))
            if math.prod(shape) * SAFETENSORS_BITS[dtype] % 8 == 0:
                tensors[f"model.layers.{number}.{rng.choice('abcé')}"] = (dtype, shape)
        write_safetensors(path, tensors or {"one": ("F32", [1])})
        compare_safetensors(path, [path])


def safetensors_in_shards(folder):
    rng = random.Random(SEED)
    names = [f"model.layers.{n}.mlp.weight" for n in range(100)]
    index = {"metadata": {"total_size": 0}, "weight_map": {}}
    files = []
    for shard in range(4):
        file = f"model-{shard + 1:05}-of-00004.safetensors"
        tensors = {name: (rng.choice(list(SAFETENSORS_BITS)), [4, rng.randrange(1, 9) * 2]) for name in names[shard::4]}
        files.append(os.path.join(folder, file))
        write_safetensors(files[-1], tensors)
        index["weight_map"].update(dict.fromkeys(tensors, file))
        index["metadata"]["total_size"] += sum(size for _, size in read_safetensors(files[-1]).values())
    with open(os.path.join(folder, "model.safetensors.index.json"), "w", encoding="utf-8") as file:
        json.dump(index, file)
    config = {"model_type": "llama", "num_hidden_layers": 32, "rope_scaling": {"type": "linear", "factor": 2.5}, "eos": [1, 2],
              "layer_types": ["full_attention", "sliding_attention"], "none": None, "negative": -5, "big": 18446744073709551615,
              "vocab_size": 32000.0, "flag": True, "deep": [{"a": 1}, {"a": 2}], "grid": [[1, 2], [3]]}
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file)
    compare_safetensors(os.path.join(folder, "model.safetensors.index.json"), files)
    got = compare_safetensors(folder, files)
    tap.equal(len(got["files"]), 4, "files")
    tap.equal(got["has_config"], True)
    metas = got["metas"]
    tap.equal(metas["num_hidden_layers"], 32)
    tap.equal(metas["rope_scaling.type"], "linear")
    tap.equal(float(metas["rope_scaling.factor"]), 2.5)
    tap.equal(metas["eos"], [1, 2])
    tap.equal(metas["layer_types"], ["full_attention", "sliding_attention"])
    tap.equal((metas["none"], metas["negative"], metas["big"], metas["flag"]), (None, -5, 18446744073709551615, True))
    tap.equal((metas["deep.0.a"], metas["deep.1.a"], metas["grid.0"], metas["grid.1"]), (1, 2, [1, 2], [3]))


# ---- GGUF ----

GGUF_TYPES = [t for t in gguf.GGMLQuantizationType if t.name != "Q8_1"]  # its size there, 40, is not ggml's: 36


def write_gguf(path, tensors, **options):
    """tensors: name → (type, elements by dimension, outermost first)."""
    writer = gguf.GGUFWriter(path, "llama", **options)
    writer.add_block_count(7)
    writer.add_context_length(4096)
    writer.add_head_count_kv([8, 4, 8])
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_bool("llama.flag", True)
    writer.add_token_list([f"token{n}" for n in range(5000)])
    writer.add_array("llama.names", ["a", "b"])
    writer.add_int64("llama.negative", -3)
    for name, (kind, shape) in tensors.items():
        block, size = gguf.GGML_QUANT_SIZES[kind]
        data = np.zeros(shape[:-1] + [shape[-1] // block * size], np.uint8)
        writer.add_tensor(name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def compare_gguf(path, files):
    want = {}
    for file in files:
        for tensor in gguf.GGUFReader(file).tensors:
            want[tensor.name] = (list(reversed([int(n) for n in tensor.shape])), int(tensor.n_bytes), tensor.tensor_type.name.lower())
    got = tap.dump(path)
    tap.equal({t["name"]: (t["shape"], t["bytes"], t["dtype"]) for t in got["tensors"]}, want, "tensors")
    tap.equal(got["weight_bytes"], sum(size for _, size, _ in want.values()), "weight bytes")
    tap.equal(got["parameters"], sum(math.prod(shape) for shape, _, _ in want.values()), "parameters")
    tap.equal(got["warnings"], [], "warnings")
    metas = got["metas"]
    tap.equal((metas["general.architecture"], metas["llama.block_count"], metas["llama.attention.head_count_kv"]), ("llama", 7, [8, 4, 8]))
    tap.equal((metas["llama.flag"], metas["llama.names"], metas["llama.negative"]), (True, ["a", "b"], -3))
    tap.equal(round(float(metas["llama.attention.layer_norm_rms_epsilon"]), 9), 1e-5)
    return got


def gguf_of_every_type(folder):
    path = os.path.join(folder, "model.gguf")
    write_gguf(path, {f"blk.{int(t)}.weight": (t, [3, 512]) for t in GGUF_TYPES})
    tap.equal(len(tap.dump(path)["tensors"]), len(GGUF_TYPES))
    compare_gguf(path, [path])
    # Version 2 differs in the number alone.
    with open(path, "r+b") as file:
        file.seek(4)
        file.write(struct.pack("<I", 2))
    compare_gguf(path, [path])
    compare_gguf(folder, [path])


def gguf_with_its_own_alignment(folder):
    path = os.path.join(folder, "model.gguf")
    writer_options = {f"t{n}": (gguf.GGMLQuantizationType.F16, [n + 1, 33]) for n in range(9)}
    original = gguf.GGUFWriter.add_block_count
    gguf.GGUFWriter.add_block_count = lambda self, count: (self.add_custom_alignment(256), original(self, count))[1]
    try:
        write_gguf(path, writer_options)
    finally:
        gguf.GGUFWriter.add_block_count = original
    got = compare_gguf(path, [path])
    tap.equal([t["offset"] % 256 for t in got["tensors"]], [0] * 9)


def gguf_in_shards(folder):
    tensors = {f"blk.{n}.weight": (GGUF_TYPES[n % len(GGUF_TYPES)], [2, 256]) for n in range(50)}
    write_gguf(os.path.join(folder, "model.gguf"), tensors, split_max_tensors=12)
    files = sorted(os.path.join(folder, name) for name in os.listdir(folder))
    if len(files) < 3:
        raise AssertionError(files)
    for file in files + [folder]:
        got = compare_gguf(file, files)
        tap.equal(len(got["files"]), len(files), "files")


# ---- ONNX ----

def tensor_bytes(tensor):
    """What a TensorProto takes, packed; strings take nothing on a device."""
    if tensor.data_type == TensorProto.STRING:
        return 0
    name = TensorProto.DataType.Name(tensor.data_type)
    bits = 4 if name.endswith("INT4") or name == "FLOAT4E2M1" else 2 if name.endswith("INT2") else 6 if name.startswith("FLOAT6") else \
        helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize * 8
    return (math.prod(tensor.dims) * bits + 7) // 8


def walk_nodes(nodes, found):
    for node in nodes:
        for attribute in node.attribute:
            if node.op_type == "Constant" and node.domain in ("", "ai.onnx"):
                if attribute.name == "value":
                    found.append((node.output[0], tensor_bytes(attribute.t), math.prod(attribute.t.dims)))
                elif attribute.name == "value_floats":
                    found.append((node.output[0], 4 * len(attribute.floats), len(attribute.floats)))
                elif attribute.name == "value_ints":
                    found.append((node.output[0], 8 * len(attribute.ints), len(attribute.ints)))
                elif attribute.name == "value_float":
                    found.append((node.output[0], 4, 1))
                elif attribute.name == "value_int":
                    found.append((node.output[0], 8, 1))
                elif attribute.name == "sparse_value":
                    found.append(sparse_tensor(attribute.sparse_tensor, node.output[0]))
            for graph in [attribute.g] * attribute.HasField("g") + list(attribute.graphs):
                walk_graph(graph, found)


def sparse_tensor(sparse, name):
    dense = TensorProto(dims=sparse.dims, data_type=sparse.values.data_type)
    return (name, tensor_bytes(dense), math.prod(sparse.dims))


def walk_graph(graph, found):
    walk_nodes(graph.node, found)
    found += [(t.name, tensor_bytes(t), math.prod(t.dims)) for t in graph.initializer]
    found += [sparse_tensor(sparse, sparse.values.name) for sparse in graph.sparse_initializer]


def compare_onnx(path):
    model = onnx.load(path, load_external_data=False)
    found = []
    walk_graph(model.graph, found)
    for function in model.functions:
        walk_nodes(function.node, found)
    got = tap.dump(path)
    tap.equal(sorted((t["name"], t["bytes"], t["elements"]) for t in got["tensors"]), sorted(found), "tensors")
    tap.equal(got["weight_bytes"] + got["alias_bytes"], sum(size for _, size, _ in found), "weight bytes")
    weights = {t.name for t in model.graph.initializer}
    tap.equal([p["name"] for p in got["ports"] if p["kind"] == "input"], [i.name for i in model.graph.input if i.name not in weights], "inputs")
    tap.equal([p["name"] for p in got["ports"] if p["kind"] == "output"], [o.name for o in model.graph.output], "outputs")
    for port, info in zip((p for p in got["ports"] if p["kind"] == "output"), model.graph.output):
        if info.type.HasField("tensor_type") and info.type.tensor_type.HasField("shape"):
            want = [d.dim_value if d.HasField("dim_value") else d.dim_param if d.HasField("dim_param") else None
                    for d in info.type.tensor_type.shape.dim]
            tap.equal(port["shape"], want, info.name)
    tap.equal(got["metas"]["onnx.ir_version"], model.ir_version)
    return got


def small_model(initializers, nodes=(), functions=(), sparse=()):
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, None])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 3, None])
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"]), *nodes], "g", [x], [y], list(initializers))
    graph.sparse_initializer.extend(sparse)
    return helper.make_model(graph, functions=list(functions), opset_imports=[helper.make_opsetid("", 21)])


def every_onnx_tensor(elements):
    """One raw and, where the package makes it, one typed tensor of every type."""
    tensors = []
    for name, kind in TensorProto.DataType.items():
        if name == "UNDEFINED":
            continue
        if name == "STRING":
            tensors.append(helper.make_tensor("strings", kind, [2], [b"a", b"bc"]))
            continue
        raw = TensorProto(name=f"raw {name}", data_type=kind, dims=[elements])
        raw.raw_data = b"\0" * tensor_bytes(raw)
        tensors.append(raw)
        tensors.append(helper.make_tensor(f"typed {name}", kind, [elements], [0] * elements))
    return tensors


def onnx_of_every_type(folder):
    path = os.path.join(folder, "model.onnx")
    for elements in (1, 2, 3, 4, 5, 7, 12):
        onnx.save(small_model(every_onnx_tensor(elements)), path)
        tap.equal(compare_onnx(path)["warnings"], [], "warnings")


def onnx_with_weights_everywhere(folder):
    path = os.path.join(folder, "model.onnx")
    weight = numpy_helper.from_array(np.ones((4, 5), np.float32), "w")
    half = numpy_helper.from_array(np.ones(6, np.float16), "inner")
    inner = helper.make_graph([helper.make_node("Constant", [], ["deep"], value=half), helper.make_node("Identity", ["deep"], ["out"])],
                              "inner", [], [helper.make_tensor_value_info("out", TensorProto.FLOAT16, [6])],
                              [numpy_helper.from_array(np.ones(9, np.int8), "inner weight")])
    nodes = [
        helper.make_node("Constant", [], ["c0"], value=weight),
        helper.make_node("Constant", [], ["c1"], value_float=1.5),
        helper.make_node("Constant", [], ["c2"], value_int=1 << 60),
        helper.make_node("Constant", [], ["c3"], value_floats=[0.5] * 7),
        helper.make_node("Constant", [], ["c4"], value_ints=list(range(300))),
        helper.make_node("If", ["x"], ["z"], then_branch=inner, else_branch=inner),
        helper.make_node("Constant", [], ["c5"], sparse_value=helper.make_sparse_tensor(
            numpy_helper.from_array(np.ones(2, np.float32), "v"), numpy_helper.from_array(np.array([1, 5], np.int64), "i"), [3, 4])),
        helper.make_node("Other", [], ["c6"], domain="my.own", value=weight),
        helper.make_node("Constant", [], ["c7"], domain="ai.onnx", value=weight),
    ]
    function = helper.make_function("my.own", "Other", [], ["o"], [helper.make_node("Constant", [], ["o"], value=half)], [helper.make_opsetid("", 21)])
    sparse = helper.make_sparse_tensor(numpy_helper.from_array(np.ones(3, np.float64), "sparse"),
                                       numpy_helper.from_array(np.array([[0, 1], [1, 1], [2, 3]], np.int64), "i"), [100, 7])
    model = small_model([weight], nodes, [function], [sparse])
    # An initializer that is listed as an input too, as older files do.
    model.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [4, 5]))
    onnx.save(model, path)
    got = compare_onnx(path)
    tap.equal(sum(t["bytes"] for t in got["tensors"] if t["name"] == "sparse"), 5600)


def onnx_with_external_data(folder):
    path = os.path.join(folder, "model.onnx")
    tensors = [numpy_helper.from_array(np.full((n + 1, 40), n, np.float32), f"w{n}") for n in range(20)]
    onnx.save(small_model(tensors), path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    got = compare_onnx(path)
    tap.equal(len(got["files"]), 2, "files")
    tap.equal(got["weight_bytes"], sum((n + 1) * 160 for n in range(20)))
    compare_onnx(path)
    # Each in a file of its own, and two that are the same bytes.
    onnx.save(small_model(tensors), path, save_as_external_data=True, all_tensors_to_one_file=False, size_threshold=0)
    tap.equal(len(compare_onnx(path)["files"]), 21, "files")
    onnx.save(small_model(tensors), path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    model = onnx.load(path, load_external_data=False)
    again = TensorProto()
    again.CopyFrom(model.graph.initializer[3])
    again.name = "again"
    model.graph.initializer.append(again)
    onnx.save(model, path)
    got = compare_onnx(path)
    tap.equal((got["alias_bytes"], [t["alias_of"] for t in got["tensors"] if t["name"] == "again"]), (640, ["w3"]))


def onnx_files_of_others(_):
    if not os.path.isdir(tap.SHARED_MODELS):
        return f"no {tap.SHARED_MODELS}"
    names = sorted(name for name in os.listdir(tap.SHARED_MODELS) if name.endswith(".onnx"))
    for name in names:
        compare_onnx(os.path.join(tap.SHARED_MODELS, name))
    tap.equal(len(names) > 0, True, "models")
    return None


if __name__ == "__main__":
    print(f"# SEED={SEED}")
    sys.exit(tap.run([
        safetensors_of_every_dtype, safetensors_written_by_the_package, safetensors_with_headers_of_any_length, safetensors_at_random,
        safetensors_in_shards,
        gguf_of_every_type, gguf_with_its_own_alignment, gguf_in_shards,
        onnx_of_every_type, onnx_with_weights_everywhere, onnx_with_external_data, onnx_files_of_others,
    ]))
