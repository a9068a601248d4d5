"""Small ONNX graphs made at random: inputs with values, constants, nodes.

A Case knows the value of each input, so the graph can be run; what the file declares of an input's shape may be less: dimensions
left open, by a name of their own, a name shared with equal dimensions or none, or the whole shape.
"""
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOATS = ("float32", "float16", "float64")
NAME_KINDS = 6
# Names of dimensions have their size in them, so that one list serves every graph.
NAMED_DIMS = ",".join(f"{stem}{size}={size}" for size in range(41)
                      for stem in ["size"] + [f"dim{kind}_" for kind in range(NAME_KINDS)])
INTEGERS = ("int32", "int64", "int8", "uint8")


class Case:
    """One graph under construction. Domains other than ONNX's have no reference: their nodes define their results by `expect`."""

    def __init__(self, rng, opset, openness):
        self.rng = rng
        self.opset = opset
        self.openness = openness
        self.nodes = []
        self.inputs = []
        self.initializers = []
        self.feeds = {}
        self.domains = {}
        self.expected = {}
        self.outputs = []
        self.dependent = False  # sizes of the outputs depend on values that are not in the file
        self.by_reference = True  # the reference implementation, run, is right about this operator
        self.lax = False  # the reference inference refuses it or is wrong, though the graph is valid
        self.lax_ones = False  # where inference gives 1 the library may leave it open
        self.unnamed = False  # something is open that has no name
        self._names = 0

    # ---- draws ----

    def pick(self, *choices):
        return self.rng.choice(choices)

    def flip(self, chance=0.5):
        return self.rng.random() < chance

    def ints(self, count, low, high):
        return [self.rng.randint(low, high) for _ in range(count)]

    def shape(self, low=0, high=4):
        """Dimensions of a tensor of random rank."""
        return self.ints(self.rng.randint(low, high), 1, 5)

    def axis(self, rank):
        return self.rng.randrange(-rank, rank)

    def axes(self, rank):
        """Some axes, each once, in any order, from either end."""
        chosen = self.rng.sample(range(rank), self.rng.randint(1, rank))
        return [axis - rank if self.flip(0.3) else axis for axis in chosen]

    def broadcastable(self, shape):
        """A shape that broadcasts with `shape`, and to it alone."""
        cut = self.rng.randint(0, len(shape))
        return [1 if self.flip(0.3) else size for size in shape[cut:]]

    # ---- values ----

    def name(self, stem="v"):
        self._names += 1
        return f"{stem}{self._names}"

    def array(self, shape, dtype):
        numbers = np.random.default_rng(self.rng.getrandbits(32))
        if dtype == "bool":
            return numbers.integers(0, 2, shape).astype(bool)
        if np.dtype(dtype).kind in "iu":
            return numbers.integers(0, 5, shape).astype(dtype)
        return np.asarray(numbers.uniform(0.1, 2, shape)).astype(dtype)

    def _declared(self, shape):
        """A shape as the file has it."""
        if self.openness == 0:
            return list(shape)
        if self.flip(0.04):
            self.unnamed = True
            return None
        declared = []
        for size in shape:
            if not self.flip(self.openness):
                declared.append(size)
            else:
                self._names += 1
                named = self.pick(f"size{size}", f"dim{self._names % NAME_KINDS}_{size}", None)
                self.unnamed = self.unnamed or named is None
                declared.append(named)
        return declared

    def input(self, shape, dtype="float32", value=None, chain=True):
        """A value that only a run knows; sometimes by way of a node that keeps its shape."""
        name = self.name("x")
        value = self.array(shape, dtype) if value is None else np.asarray(value, dtype)
        self.feeds[name] = value
        self.inputs.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype),
                                                         self._declared(value.shape)))
        return self.node("Identity", [name]) if chain and self.flip(0.1) else name

    def const(self, value, dtype="int64"):
        """A value that the file has: an initializer or a Constant."""
        name = self.name("c")
        array = np.asarray(value, dtype)
        if self.flip(0.7):
            self.initializers.append(numpy_helper.from_array(array, name))
        else:
            self.nodes.append(helper.make_node("Constant", [], [name], value=numpy_helper.from_array(array, name)))
        return name

    def parameter(self, shape, dtype="float32"):
        """A weight: in the file, or an input."""
        return self.const(self.array(shape, dtype), dtype) if self.flip() else self.input(shape, dtype)

    def setting(self, value, dtype="int64", chance=0.15):
        """A small value that decides a shape: nearly always in the file."""
        if self.flip(chance):
            self.dependent = True
            return self.input(np.asarray(value).shape, dtype, value, chain=False)
        return self.const(value, dtype)

    # ---- nodes ----

    def node(self, op_type, inputs, outputs=1, domain="", expect=None, **attributes):
        """Adds a node; the name of its output, or a list of names where `outputs` is not 1. Attributes that are None are left out."""
        names = [self.name() for _ in range(outputs)] if isinstance(outputs, int) else list(outputs)
        while inputs and inputs[-1] == "":
            inputs = inputs[:-1]
        given = {key: value for key, value in attributes.items() if value is not None}
        self.nodes.append(helper.make_node(op_type, inputs, names, domain=domain, **given))
        if domain:
            self.domains[domain] = 1
        for name, (dtype, shape) in zip(names, expect or []):
            self.expected[name] = (dtype, list(shape))
        self.outputs = [name for name in names if name]
        return names[0] if outputs == 1 else names

    def subgraph(self, nodes, outputs):
        """A branch without inputs; outputs: name → dtype."""
        return helper.make_graph(nodes, self.name("graph"), [], [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), None)
            for name, dtype in outputs.items()])

    def model(self):
        results = []
        for name in self.outputs:
            info = onnx.ValueInfoProto()
            info.name = name
            results.append(info)
        graph = helper.make_graph(self.nodes, "case", self.inputs, results, self.initializers)
        opsets = [helper.make_opsetid("", self.opset)] + [helper.make_opsetid(*pair) for pair in self.domains.items()]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)


REGISTRY = []  # (operator, domain, first opset, last opset, function(case))


def register(name, since, function, until=99, domain=""):
    REGISTRY.append((name, domain, since, until, function))


def op(name, since=7, until=99, domain=""):
    """The decorated function builds a graph whose last node is the operator."""
    def take(function):
        register(name, since, function, until, domain)
        return function
    return take


def tensor_dtype(name):
    """TensorProto's number of a type named as numpy does."""
    return getattr(TensorProto, {"float32": "FLOAT", "float64": "DOUBLE"}.get(name, name.upper()))
