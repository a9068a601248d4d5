"""Every operator of core/graph/ops.def on small graphs made at random: where ONNX's own inference knows a type or a dimension the
library must know the same, what it knows must be true of the graph when it is run, and of a graph that leaves nothing open it must
know everything.

Started by test_ops.sh. SEED=N draws other graphs, CASES=N sets how many each operator gets at least, OPS="A B" takes some alone.
"""
import json
import os
import random
import subprocess
import sys

import numpy as np
import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator

import graph_case
import ops_contrib
import ops_network
import ops_plain
import ops_shapes
import tap

SEED = int(os.environ.get("SEED", "1"))
CASES = int(os.environ.get("CASES", "8"))
ONLY = os.environ.get("OPS", "").split()
DUMP = os.path.join(tap.BUILD, "tests", "formats", "ops_dump")
FILES_AT_ONCE = 500
SHOWN = 12
# Operators with many ways to be written are drawn more often.
OFTEN = {name: 5 for name in ("AveragePool", "Attention", "Conv", "ConvTranspose", "Einsum", "MaxPool", "Pad", "Reshape", "Slice", "Split",
                              "SplitToSequence", "Upsample")} | {"Resize": 12}
TENSOR = 1  # enum gc_type_kind
ODD = (0, -1, 1, 2, 7, 64, 65, 2**31 - 1, 2**31, 2**62, 2**63 - 1, -2**63)
MODULES = (ops_contrib, ops_network, ops_plain, ops_shapes)

# What the library calls ONNX's types; others are not drawn.
DTYPES = {"f32": "float32", "f16": "float16", "f64": "float64", "i8": "int8", "u8": "uint8", "i32": "int32", "u32": "uint32",
          "i64": "int64", "u64": "uint64", "bool": "bool", "text": "string", "?": None}


def dump(folder, models, dims=None):
    """What the library makes of each model; the files' places in `folder` are used again."""
    results = []
    for start in range(0, len(models), FILES_AT_ONCE):
        paths = []
        for number, model in enumerate(models[start:start + FILES_AT_ONCE]):
            paths.append(os.path.join(folder, f"{number}.onnx"))
            with open(paths[-1], "wb") as file:
                file.write(model)
        done = subprocess.run([DUMP] + (["--dims", dims] if dims else []) + paths, capture_output=True, timeout=100, check=False)
        lines = done.stdout.splitlines()
        if done.returncode != 0 or len(lines) != len(paths):
            shown = onnx.printer.to_text(onnx.load_from_string(models[start + min(len(lines), len(paths) - 1)]))
            raise AssertionError(f"ended with {done.returncode} after {len(lines)} files of {len(paths)}: "
                                 f"{done.stderr.decode('utf-8', 'replace')[-1500:]} {shown}")
        results += [json.loads(line) for line in lines]
    return results


class Drawn:
    """A case with all that is known of it."""

    def __init__(self, entry, number):
        self.op, self.domain, since, until, build = entry
        rng = random.Random(f"{SEED}/{self.op}/{self.domain}/{build.__name__}/{number}")
        newest = onnx.defs.onnx_opset_version()
        self.case = graph_case.Case(rng, rng.randint(since, min(until, newest)), rng.choice([0, 0, 0.3, 0.7]))
        build(self.case)
        self.model = self.case.model()
        self.bytes = self.model.SerializeToString()
        self.inferred = {}  # name → (dtype or None, dims or None), by inference
        self.true = {}  # name → (dtype, dims), by a run
        self.trouble = None

    def names(self):
        return [name for node in self.model.graph.node for name in node.output if name]

    def infer(self):
        if self.domain or self.case.lax:
            return
        try:
            model = onnx.shape_inference.infer_shapes(self.model, strict_mode=True, data_prop=True)
        except onnx.shape_inference.InferenceError as error:
            self.trouble = f"the reference refuses it: {error}"
            return
        for info in list(model.graph.value_info) + list(model.graph.output):
            if info.type.HasField("tensor_type"):
                tensor = info.type.tensor_type
                dims = [dim.dim_value if dim.HasField("dim_value") else None for dim in tensor.shape.dim]
                dtype = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.elem_type)).name if tensor.elem_type else None
                self.inferred[info.name] = ("string" if dtype == "object" else dtype, dims if tensor.HasField("shape") else None)

    def run(self):
        for name, (dtype, dims) in self.case.expected.items():
            self.true[name] = (dtype, dims)
        if self.domain or not self.case.by_reference or self.case.expected:
            return
        names = self.names()
        try:
            values = ReferenceEvaluator(self.model).run(names, self.case.feeds)
        except Exception:  # pylint: disable=broad-except
            return  # it does not implement everything; how much it does is counted
        for name, value in zip(names, values):
            if isinstance(value, (np.ndarray, np.generic)):
                dtype = value.dtype.name if value.dtype.kind not in "OUST" else "string"
                self.true[name] = (dtype, list(value.shape))


def draw_all():
    entries = [entry for entry in graph_case.REGISTRY if not ONLY or entry[0] in ONLY]
    drawn = [Drawn(entry, number) for entry in entries for number in range(CASES * OFTEN.get(entry[0], 1))]
    for one in drawn:
        one.infer()
        one.run()
    return drawn


DRAWN = draw_all()


def against(got, want, what, lax_ones=False):
    """A sentence if what is known is less than `want` or another, (dtype, dims), None where open."""
    dtype, dims = want
    if got is None or got["kind"] != TENSOR:
        return f"{what}: nothing is known"
    if dtype is not None and DTYPES[got["dtype"]] != dtype:
        return f"{what}: type {got['dtype']}, want {dtype}"
    if dims is None:
        return None
    have = got.get("dims")
    if have is None or len(have) != len(dims) or any(
            want not in (None, size) and not (lax_ones and want == 1 and not isinstance(size, int)) for size, want in zip(have, dims)):
        return f"{what}: shape {have}, want {dims}"
    return None


def contradicts(got, true, what):
    """The same the other way: only what is known must agree."""
    dtype, dims = true
    if got["dtype"] != "?" and DTYPES[got["dtype"]] != dtype:
        return f"{what}: type {got['dtype']}, run: {dtype}"
    have = got.get("dims")
    if have is not None and (len(have) != len(dims) or any(isinstance(size, int) and want is not None and size != want
                                                           for size, want in zip(have, dims))):
        return f"{what}: shape {have}, run: {dims}"
    return None


def symbols_differ(values, one):
    """One symbol stands for one size."""
    sizes = {}
    truth = {name: list(value.shape) for name, value in one.case.feeds.items()}
    truth.update({name: dims for name, (_, dims) in one.true.items()})
    for name, dims in truth.items():
        for symbol, size in zip(values.get(name, {}).get("dims", []), dims):
            if isinstance(symbol, str) and size is not None and sizes.setdefault(symbol, size) != size:
                return f"{name}: symbol {symbol} stands for {size} and {sizes[symbol]}"
    return None


def is_whole(got):
    return got is not None and all(isinstance(size, int) for size in got.get("dims", [None]))


def find_errors(one, got, is_closed):
    """What is wrong with what the library found, in sentences."""
    if "error" in got or got["failed_nodes"] or got["unknown_nodes"]:
        return [f"not taken: {got.get('error')} {got.get('notes')}"]
    values = {value["name"]: value for value in got["values"] if value["scope"] == 0}
    wrong = [against(values.get(name), want, name, one.case.lax_ones) for name, want in one.inferred.items()]
    wrong += [contradicts(values[name], true, name) for name, true in one.true.items() if name in values]
    wrong.append(symbols_differ(values, one))
    if is_closed and not one.case.dependent:
        wrong += [f"{name}: {values.get(name)} is not all that can be known" for name in one.case.outputs
                  if not is_whole(values.get(name)) and None not in one.true.get(name, (0, []))[1]]
    return [sentence for sentence in wrong if sentence]


def report(wrong):
    """Fails with the first of them in full."""
    if wrong:
        texts = [f"{one.op} (SEED={SEED}): {'; '.join(sentences)}\n{onnx.printer.to_text(one.model)}"
                 for one, sentences in wrong[:SHOWN]]
        raise AssertionError(f"{len(wrong)} graphs of {len(DRAWN)}, of {sorted({one.op for one, _ in wrong})}\n" + "\n".join(texts))


def operators_agree_with_the_reference(folder):
    wrong = []
    for one, got in zip(DRAWN, dump(folder, [one.bytes for one in DRAWN])):
        sentences = [one.trouble] if one.trouble else find_errors(one, got, one.case.openness == 0)
        if sentences:
            wrong.append((one, sentences))
    report(wrong)


def dimensions_by_name_make_the_rest_known(folder):
    """Every name that is drawn has its size in it; given them, what was open is known, unless it has no name."""
    taken = [one for one in DRAWN if one.case.openness > 0 and not one.trouble]
    wrong = []
    for one, got in zip(taken, dump(folder, [one.bytes for one in taken], graph_case.NAMED_DIMS)):
        sentences = find_errors(one, got, not one.case.unnamed)
        if sentences:
            wrong.append((one, sentences))
    report(wrong)


def the_references_were_there_to_compare_with(_folder):
    """Else the comparisons above would be of nothing."""
    own = [one for one in DRAWN if not one.domain]
    inferred, run = (sum(1 for one in own if getattr(one, what)) for what in ("inferred", "true"))
    print(f"# {len(DRAWN)} graphs, {inferred} with shapes by inference, {run} by a run, of {len({one.op for one in DRAWN})} operators")
    if not ONLY and (inferred < 0.9 * len(own) or run < 0.75 * len(own)):
        raise AssertionError(f"of {len(own)} graphs inference covers {inferred}, a run of {run}")


def every_row_of_the_table_is_drawn(_folder):
    done = subprocess.run([DUMP, "--ops"], capture_output=True, timeout=50, check=True)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    seen = {}
    for one in DRAWN:
        nodes = list(one.model.graph.node)
        for node in nodes:
            seen.setdefault((node.domain, node.op_type), set()).add(one.case.opset if not node.domain else 1)
    missing = [row for row in rows if max(seen.get((row[0], row[1]), {0})) < row[2]]
    print(f"# {len({(row[0], row[1]) for row in rows})} operators in {len(rows)} rows")
    if missing and not ONLY:
        raise AssertionError(f"rows of ops.def without a graph: {missing}")


def spoil(model, rng):
    """Changes a number of a graph to one that makes no sense, or a shape."""
    kind = rng.randrange(3)
    nodes = [node for node in model.graph.node if node.attribute]
    if kind == 0 and nodes:
        attribute = rng.choice(rng.choice(nodes).attribute)
        if attribute.ints:
            attribute.ints[rng.randrange(len(attribute.ints))] = rng.choice(ODD)
        elif attribute.type == onnx.AttributeProto.INT:
            attribute.i = rng.choice(ODD)
        else:
            attribute.floats.append(rng.choice([0, -1, 1e38, float("inf"), float("nan")]))
    elif kind == 1 and model.graph.initializer:
        tensor = rng.choice(model.graph.initializer)
        if tensor.data_type == onnx.TensorProto.INT64:
            values = [rng.choice(ODD) for _ in range(len(tensor.raw_data) // 8)]
            tensor.raw_data = np.array(values, np.int64).tobytes()
        elif tensor.data_type == onnx.TensorProto.FLOAT:
            values = [rng.choice([0, -1, 1e38, np.inf, np.nan]) for _ in range(len(tensor.raw_data) // 4)]
            tensor.raw_data = np.array(values, np.float32).tobytes()
    elif model.graph.input:
        dims = rng.choice(model.graph.input).type.tensor_type.shape.dim
        if dims and rng.random() < 0.7:
            dims[rng.randrange(len(dims))].dim_value = rng.choice([0, 1, 2**31, 2**62, 2**63 - 1])
        elif rng.random() < 0.5:
            dims.add().dim_value = 3
        elif dims:
            del dims[0]
    if rng.random() < 0.1:
        del rng.choice(model.graph.node).input[-1:]


def spoiled_graphs_are_taken_or_told(folder):
    """No number in a file makes the library end: a node that makes no sense is a note, and no dimension is negative."""
    rng = random.Random(SEED)
    models = []
    for one in DRAWN:
        model = onnx.ModelProto()
        model.CopyFrom(one.model)
        spoil(model, rng)
        models.append(model.SerializeToString())
    failed = 0
    for got, model in zip(dump(folder, models), models):
        failed += bool(got.get("failed_nodes")) or "error" in got
        if bool(got.get("failed_nodes")) > len(got.get("notes", ())):
            raise AssertionError(f"a node failed without a note: {got}")
        for value in got.get("values", []):
            if any(isinstance(size, int) and size < 0 for size in value.get("dims", [])):
                raise AssertionError(f"{value}: a negative dimension\n{onnx.printer.to_text(onnx.load_from_string(model))}")
    print(f"# {failed} of {len(models)} spoiled graphs contradict themselves")
    if not ONLY and failed < len(models) / 20:
        raise AssertionError(f"only {failed} of {len(models)} spoiled graphs were seen to be")


if __name__ == "__main__":
    sys.exit(tap.run([operators_agree_with_the_reference, dimensions_by_name_make_the_rest_known,
                      the_references_were_there_to_compare_with, every_row_of_the_table_is_drawn, spoiled_graphs_are_taken_or_told]))
