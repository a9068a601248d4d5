"""Every value of a model: type and shape as inferred here, against onnx.shape_inference (data_prop on) wherever that knows them.

Declared types of inner values are removed first, so that both have to infer it. Values in branches that a known condition
rules out are not compared: here they are not inferred.
"""
import glob
import json
import os
import subprocess
import sys

import onnx
from onnx import TensorProto, helper, shape_inference

import tap

DUMP = os.path.join(tap.BUILD, "tests", "formats", "graph_dump")
DTYPES = {
    TensorProto.FLOAT: "f32", TensorProto.UINT8: "u8", TensorProto.INT8: "i8", TensorProto.UINT16: "u16",
    TensorProto.INT16: "i16", TensorProto.INT32: "i32", TensorProto.INT64: "i64", TensorProto.STRING: "text",
    TensorProto.BOOL: "bool", TensorProto.FLOAT16: "f16", TensorProto.DOUBLE: "f64", TensorProto.UINT32: "u32",
    TensorProto.UINT64: "u64", TensorProto.BFLOAT16: "bf16",
}


def dump(path, dims=""):
    done = subprocess.run([DUMP, path] + ([dims] if dims else []), capture_output=True, timeout=60, check=False)
    if done.returncode != 0:
        raise AssertionError(f"{path}: {done.stderr.decode('utf-8', 'replace')[-2000:]}")
    return json.loads(done.stdout)


def graphs(graph):
    """The graph and those in it, in the order in which the library numbers scopes."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from graphs(attribute.g)


def forget(graph):
    """Removes the declared types of values that nodes make, down to the types of outputs."""
    for inner in graphs(graph):
        del inner.value_info[:]
        for output in inner.output:
            if output.type.HasField("tensor_type"):
                output.type.tensor_type.ClearField("shape")


def give(model, dims):
    """The reference has no option for dims: they go into the model's inputs."""
    given = dict(pair.split("=") for pair in dims.split(",") if pair)
    for value in model.graph.input:
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            number = given.get(dim.dim_param or None, given.get(f"{value.name}.{axis}"))
            if number is not None:
                dim.dim_value = int(number)


class Counts:
    """What a comparison came to."""

    def __init__(self):
        self.same = 0
        self.more = 0
        self.wrong = []

    def compare(self, want, got):
        tensor = want.type.tensor_type
        dtype = DTYPES.get(tensor.elem_type)
        if dtype is not None and dtype != got["dtype"]:
            self.wrong.append(f"{want.name}: {got['dtype']}, the reference has {dtype}")
        if not tensor.HasField("shape"):
            self.more += got["shape"] is not None
            return
        dims = [dim.dim_value if dim.HasField("dim_value") else None for dim in tensor.shape.dim]
        shape = got["shape"]
        if shape is None or len(shape) != len(dims) or any(a is not None and a != b for a, b in zip(dims, shape)):
            self.wrong.append(f"{want.name} ({got.get('op')}): {shape}, the reference has {dims}")
        elif any(a is None and isinstance(b, int) for a, b in zip(dims, shape)):
            self.more += 1
        else:
            self.same += 1


def compare(folder, source, dims=""):
    """(Counts, the library's answer) of a model, without the declared types of its inner values."""
    model = onnx.load(source) if isinstance(source, str) else onnx.ModelProto.FromString(source.SerializeToString())
    forget(model.graph)
    path = os.path.join(folder, "model.onnx")
    onnx.save(model, path)
    answer = dump(path, dims)
    give(model, dims)
    inferred = shape_inference.infer_shapes(model, data_prop=True)
    values = {(value["scope"], value["name"]): value for value in answer["list"]}
    counts = Counts()
    for scope, graph in enumerate(graphs(inferred.graph)):
        for want in [*graph.input, *graph.output, *graph.value_info]:
            got = values.get((scope, want.name))
            if got is None:  # an output that the graph takes from around it
                continue
            if want.type.HasField("tensor_type") and not got.get("dead"):
                counts.compare(want, got)
    if counts.wrong:
        raise AssertionError(f"{len(counts.wrong)} differ:\n" + "\n".join(counts.wrong[:20]))
    return counts, answer


def print_counts(name, dims, counts, answer):
    print(f"# {name} [{dims or 'open'}]: {counts.same} as the reference, {counts.more} where it knows less, "
          f"{answer['known']} of {answer['values']} known by size")


DIMS = {"ch_PP-OCRv4_det_infer.onnx": "p2o.DynamicDimension.0=1,p2o.DynamicDimension.1=640,p2o.DynamicDimension.2=480"}


def shared_models_are_inferred_as_the_reference_does(folder):
    paths = sorted(glob.glob(os.path.join(tap.SHARED_MODELS, "*.onnx")))
    if not paths:
        return "no ../shared/data/models"
    for path in paths:
        name = os.path.basename(path)
        for dims in ["", DIMS[name]] if name in DIMS else [""]:
            counts, answer = compare(folder, path, dims)
            print_counts(name, dims, counts, answer)
            tap.equal(answer["unknown_nodes"], 0, f"{name}: operators that are not known")
            tap.equal(counts.same > 0, True, f"{name}: something was compared")
            if name.startswith(("light_", "hey_", "ch_")) and (dims or not name.startswith("ch_")):
                tap.equal(answer["known"], answer["values"], f"{name} [{dims}]: known values")
    return None


def models_of_the_reference_are_inferred_as_it_does(folder):
    """The models that the onnx package tests itself with: exported networks and single operators."""
    paths = glob.glob(os.path.join(os.path.dirname(onnx.__file__), "backend", "test", "data", "*", "*", "*.onnx"))
    paths += glob.glob(os.path.join(os.path.dirname(onnx.__file__), "backend", "test", "data", "light", "*.onnx"))
    total = Counts()
    for path in sorted(paths):
        counts, answer = compare(folder, path)
        total.same += counts.same
        total.more += counts.more
        tap.equal(answer["failed_nodes"], 0, f"{path}: nodes that contradict their operator")
    print(f"# {len(paths)} models of the onnx package: {total.same} as the reference, {total.more} where it knows less")
    tap.equal(len(paths) > 100, True, "models that were compared")


def one_branch_of_silero_is_known_throughout(folder):
    path = os.path.join(tap.SHARED_MODELS, "silero_vad_v5.onnx")
    if not os.path.exists(path):
        return "no ../shared/data/models"
    for rate, samples in ((8000, 288), (16000, 576)):
        dims = f"input.0=1,input.1={samples},state.1=1,sr={rate}"
        counts, answer = compare(folder, path, dims)
        print_counts("silero_vad_v5.onnx", dims, counts, answer)
        tap.equal(answer["known"], answer["values"], "known values")
        tap.equal(counts.more > 10, True, "more than the reference, which does not know the branch")
        state = next(value for value in answer["list"] if value["name"] == "stateN")
        tap.equal(state["shape"], [2, 1, 128], "the state's shape")
    return None


def weights_that_are_made_are_known(_):
    """The weights of light_vgg19 are made by ConstantOfShape: with them it has as many parameters as the network has."""
    path = os.path.join(tap.SHARED_MODELS, "light_vgg19.onnx")
    if not os.path.exists(path):
        return "no ../shared/data/models"
    values = [value for value in dump(path)["list"] if value.get("op") == "ConstantOfShape"]
    tap.equal(all(value.get("constant") and "bytes" in value for value in values), True, "all are constants of known size")
    made_bytes = sum(value["bytes"] for value in values)
    tap.equal(abs(made_bytes - 4 * 143667240) < 1000, True, f"{made_bytes} bytes; the network has 143667240 parameters")
    return None


# ---- control flow and functions ----

def value(name, kind, shape):
    return helper.make_tensor_value_info(name, kind, shape)


def model_of(nodes, inputs, outputs, initializers=(), functions=(), opset=17):
    graph = helper.make_graph(nodes, "g", inputs, outputs, list(initializers))
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("f", 1)]
    return helper.make_model(graph, opset_imports=imports, functions=list(functions), ir_version=9)


X = value("x", TensorProto.FLOAT, ["N", 4])


def made(name, kind=TensorProto.FLOAT):
    return value(name, kind, None)


def with_if(then_op, else_op, condition):
    then = helper.make_graph([helper.make_node(then_op, ["x"], ["t"])], "then", [], [made("t")])
    other = helper.make_graph([helper.make_node(else_op, ["x"], ["e"])], "else", [], [made("e")])
    node = helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other)
    after = helper.make_node("Relu", ["y"], ["z"])
    known = [helper.make_tensor("c", TensorProto.BOOL, [], [condition])] if condition is not None else []
    inputs = [X] if known else [X, value("c", TensorProto.BOOL, [])]
    return model_of([node, after], inputs, [made("z")], known)


def with_loop(op, turns):
    body = helper.make_graph(
        [op, helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Exp", ["x"], ["each"])], "body",
        [value("turn", TensorProto.INT64, []), value("go", TensorProto.BOOL, []), made("in")],
        [made("on", TensorProto.BOOL), made("out"), made("each")])
    count = helper.make_tensor("m", TensorProto.INT64, [], [turns])
    return model_of([helper.make_node("Loop", ["m", "", "x"], ["y", "z"], body=body)], [X], [made("y"), made("z")], [count])


def with_scan():
    body = helper.make_graph(
        [helper.make_node("Add", ["sum", "slice"], ["next"]), helper.make_node("Neg", ["next"], ["each"])], "body",
        [made("sum"), made("slice")], [made("next"), made("each")])
    start = helper.make_tensor("s", TensorProto.FLOAT, [4], [0] * 4)
    return model_of([helper.make_node("Scan", ["s", "x"], ["y", "z"], body=body, num_scan_inputs=1)], [X],
                    [made("y"), made("z")], [start])


def with_batched_scan():
    """As Scan was at first: a batch in front of everything, lengths of sequences as the first input."""
    body = helper.make_graph(
        [helper.make_node("Add", ["sum", "slice"], ["next"]), helper.make_node("Neg", ["next"], ["each"])], "body",
        [made("sum"), made("slice")], [made("next"), made("each")])
    inputs = [value("s", TensorProto.FLOAT, ["B", 4]), value("x", TensorProto.FLOAT, ["B", "N", 4])]
    return model_of([helper.make_node("Scan", ["", "s", "x"], ["y", "z"], body=body, num_scan_inputs=1)], inputs,
                    [made("y"), made("z")], opset=8)


def with_functions():
    softmax = helper.make_node("Softmax", ["t"], ["c"])
    axis = softmax.attribute.add()
    axis.name, axis.ref_attr_name, axis.type = "axis", "along", onnx.AttributeProto.INT
    inner = helper.make_function("f", "inner", ["a", "b"], ["c"], [helper.make_node("Add", ["a", "b"], ["t"]), softmax],
                                 [helper.make_opsetid("", 17)], ["along"])
    outer = helper.make_function("f", "outer", ["a"], ["c"],
                                 [helper.make_node("inner", ["a", "a"], ["u"], domain="f", along=1),
                                  helper.make_node("Concat", ["u", "a"], ["c"], axis=1)],
                                 [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)])
    nodes = [helper.make_node("outer", ["x"], ["u"], domain="f"), helper.make_node("outer", ["u"], ["y"], domain="f")]
    return model_of(nodes, [X], [made("y")], functions=[inner, outer])


def branches_are_inferred_as_the_reference_does(folder):
    for condition in (None, True, False):
        for other in ("Exp", "Flatten", "Transpose", "ReduceSum"):
            for dims in ("", "N=3"):
                compare(folder, with_if("Relu", other, condition), dims)
    _, answer = compare(folder, with_if("Relu", "Exp", True))
    tap.equal(sum(value.get("dead", False) for value in answer["list"]), 1, "values in the branch that is not taken")


def loops_are_inferred_as_the_reference_does(folder):
    for turns in (1, 5):
        for op in (helper.make_node("Add", ["in", "x"], ["out"]), helper.make_node("Concat", ["in", "x"], ["out"], axis=0)):
            _, answer = compare(folder, with_loop(op, turns), "N=3")
            shapes = {value["name"]: value["shape"] for value in answer["list"] if value["scope"] == 0}
            tap.equal(shapes["z"], [turns, 3, 4], "what is collected of every turn")
            if op.op_type == "Add" or turns == 1:
                tap.equal(shapes["y"], [3 if op.op_type == "Add" else 6, 4], "what is carried")
            else:
                tap.equal(isinstance(shapes["y"][0], str), True, "what grows is open")
    compare(folder, with_scan())
    compare(folder, with_scan(), "N=3")
    _, answer = compare(folder, with_batched_scan(), "B=2,N=3")
    shapes = {value["name"]: value["shape"] for value in answer["list"]}
    tap.equal((shapes["slice"], shapes["y"], shapes["z"]), ([4], [2, 4], [2, 3, 4]), "a scan with batches")


def functions_are_inferred_as_the_reference_does(folder):
    for dims, batch in (("", "N"), ("N=3", 3)):
        _, answer = compare(folder, with_functions(), dims)
        shapes = {value["name"]: value["shape"] for value in answer["list"]}
        tap.equal(shapes["y"], [batch, 16], "a call's output")
        tap.equal(shapes["u"], [batch, 8], "a call's output")
        tap.equal(answer["node_count"], 6, "nodes: those of two calls, each of another call")


if __name__ == "__main__":
    sys.exit(tap.run([
        shared_models_are_inferred_as_the_reference_does,
        models_of_the_reference_are_inferred_as_it_does,
        one_branch_of_silero_is_known_throughout,
        weights_that_are_made_are_known,
        branches_are_inferred_as_the_reference_does,
        loops_are_inferred_as_the_reference_does,
        functions_are_inferred_as_the_reference_does,
    ]))
