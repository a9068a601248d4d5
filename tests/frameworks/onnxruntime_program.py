"""ONNX Runtime's CUDA provider: OrtValues on the device, sessions with bound inputs and outputs, a limit."""
import random

import numpy
import onnxruntime
from onnx import TensorProto, helper

import program

MIB = program.MIB
onnxruntime.set_default_logger_severity(3)


def host(size, seed):
    return numpy.frombuffer(program.content(size, seed), dtype=numpy.uint8).copy()


def put(data):
    return onnxruntime.OrtValue.ortvalue_from_numpy(data, "cuda", 0)


def same(value, wanted, what=""):
    assert value.numpy().tobytes() == wanted.tobytes(), f"wrong bytes: {what}"


@program.area
def values():
    """Values come and go in random order; each keeps its bytes, and takes new ones in place."""
    live = {}
    for step, size in enumerate(program.sizes(120, 2 * MIB, 1)):
        data = host(size, step)
        live[step] = (put(data), data)
        if step % 3 == 2:
            value, data = live.pop(random.Random(step).choice(sorted(live)))
            same(value, data, f"value of step {step}")
            changed = host(len(data), 1000 + step)
            value.update_inplace(changed)
            same(value, changed, "in place")
    for value, data in live.values():
        same(value, data)
    return {"left": len(live), "devices": onnxruntime.get_available_providers()}


def model():
    """Nothing but copies: an input that is reshaped, and one that is passed on."""
    one = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])
    two = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    shape = helper.make_tensor("shape", TensorProto.INT64, [2], [2, -1])
    nodes = [helper.make_node("Identity", ["x"], ["z"]), helper.make_node("Reshape", ["z", "shape"], ["y"])]
    graph = helper.make_graph(nodes, "copies", [one], [two], [shape])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


@program.area
def sessions():
    """A session on the device, of several input sizes, with outputs there and on the host; the arena shrinks between."""
    session = onnxruntime.InferenceSession(model(), providers=["CUDAExecutionProvider"])
    for step, size in enumerate(program.sizes(30, MIB, 5)):
        data = host(8 * size, step).view(numpy.float32)
        binding = session.io_binding()
        binding.bind_ortvalue_input("x", put(data))
        binding.bind_output("y", "cuda" if step % 2 else "cpu")
        options = onnxruntime.RunOptions()
        options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "gpu:0" if step % 5 == 0 else "")
        session.run_with_iobinding(binding, options)
        output = binding.get_outputs()[0]
        assert output.shape() == [2, size], output.shape()
        same(output, data, f"run {step}")
    return {"providers": session.get_providers()}


@program.area
def limit():
    """Takes memory until there is none, gives half back, goes on."""
    live, seen, step = {}, {}, 0
    base = host(20 * MIB, 3)
    for turn in range(2):
        try:
            while True:
                assert len(live) < 64, "no limit"
                data = base.copy()
                data[:8] = step
                live[step] = (put(data), data)
                step += 1
        except Exception as error:  # pylint: disable=broad-exception-caught
            seen[f"turn {turn}"] = [len(live), type(error).__name__]
        for number, (value, data) in live.items():
            same(value, data, f"value {number}")
        for number in sorted(live)[::2]:
            live.pop(number)
    return seen


program.main()
