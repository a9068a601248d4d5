"""Graphs of the operators that work element by element, reduce, or move elements about."""
import numpy as np

from graph_case import FLOATS, INTEGERS, op, register, tensor_dtype

# ---- element by element ----

SAME = {"Abs": 6, "Acos": 7, "Acosh": 9, "Asin": 7, "Asinh": 9, "Atan": 7, "Atanh": 9, "Ceil": 6, "Cos": 7, "Cosh": 9, "Elu": 6,
        "Erf": 9, "Exp": 6, "Floor": 6, "HardSigmoid": 6, "HardSwish": 14, "LeakyRelu": 6, "Log": 6, "Mish": 18, "Neg": 6,
        "Reciprocal": 6, "Relu": 6, "Round": 11, "Selu": 6, "Shrink": 9, "Sigmoid": 6, "Sign": 9, "Sin": 7, "Sinh": 9,
        "Softplus": 6, "Softsign": 6, "Sqrt": 6, "Tan": 7, "Tanh": 6, "ThresholdedRelu": 10, "Gelu": 20, "Swish": 24,
        "Identity": 6, "Celu": 12}


def same(name):
    floats = ("float32",) if name == "Celu" else FLOATS
    return lambda c: c.node(name, [c.input(c.shape(), c.pick(*floats))])


for _name, _since in SAME.items():
    register(_name, _since, same(_name))
register("Not", 6, lambda c: c.node("Not", [c.input(c.shape(), "bool")]))
register("BitwiseNot", 18, lambda c: c.node("BitwiseNot", [c.input(c.shape(), c.pick(*INTEGERS))]))
register("IsNaN", 9, lambda c: c.node("IsNaN", [c.input(c.shape())]))
register("IsInf", 10, lambda c: c.node("IsInf", [c.input(c.shape())]))


def broadcast(name, dtypes, old=None):
    """Two operands that broadcast, in either order."""
    def build(c):
        shape = c.shape()
        other = c.broadcastable(shape)
        shape = [1 if c.flip(0.15) and i >= len(shape) - len(other) else size for i, size in enumerate(shape)]
        dtype = c.pick(*(old[1] if old and c.opset < old[0] else dtypes))
        names = [c.input(shape, dtype), c.parameter(other, dtype)]
        if c.flip(0.3):
            names.reverse()
        c.node(name, names, direction=c.pick("LEFT", "RIGHT") if name == "BitShift" else None,
               fmod=1 if name == "Mod" and dtype.startswith("float") else None)
    return build


for _name in ("Add", "Sub", "Mul", "Div"):
    register(_name, 7, broadcast(_name, FLOATS + ("int32", "int64")))
register("Pow", 7, broadcast("Pow", ("float32", "float64")))
register("Mod", 10, broadcast("Mod", ("float32", "int32", "int64")))
for _name in ("And", "Or", "Xor"):
    register(_name, 7, broadcast(_name, ("bool",)))
register("Equal", 7, broadcast("Equal", ("float32", "int64"), (11, ("int32", "int64", "bool"))))
for _name in ("Greater", "Less"):
    register(_name, 7, broadcast(_name, ("float32", "int64"), (9, ("float32",))))
for _name in ("GreaterOrEqual", "LessOrEqual"):
    register(_name, 12, broadcast(_name, ("float32", "int64")))
register("BitShift", 11, broadcast("BitShift", ("uint8", "uint32")))
for _name in ("BitwiseAnd", "BitwiseOr", "BitwiseXor"):
    register(_name, 18, broadcast(_name, INTEGERS))


def several(name):
    def build(c):
        shape = c.shape()
        others = [c.broadcastable(shape) for _ in range(c.rng.randint(0, 3))] if c.opset >= 8 else [shape]
        c.node(name, [c.input(shape)] + [c.parameter(other) for other in others])
    return build


for _name in ("Max", "Min", "Mean", "Sum"):
    register(_name, 7, several(_name))


@op("PRelu")
def prelu(c):
    shape = c.shape(1)
    c.node("PRelu", [c.input(shape), c.parameter(c.broadcastable(shape))])


@op("Where", 9)
def where(c):
    shape = c.shape()
    dtype = c.pick("float32", "int64")
    c.node("Where", [c.input(c.broadcastable(shape), "bool"), c.parameter(c.broadcastable(shape), dtype), c.input(shape, dtype)])


@op("Clip")
def clip(c):
    if c.opset < 11:
        c.node("Clip", [c.input(c.shape())], min=c.pick(None, 0.5), max=1.0)
    else:
        c.node("Clip", [c.input(c.shape()), c.pick("", c.const(0.5, "float32")), c.pick("", c.const(1, "float32"))])


@op("Dropout")
def dropout(c):
    outputs = c.rng.randint(1, 2)
    shape = c.shape()
    if c.opset < 12:
        c.node("Dropout", [c.input(shape)], outputs, ratio=c.pick(None, 0.3))
        c.by_reference = c.opset >= 10  # the mask was of the data's type before
    else:
        c.node("Dropout", [c.input(shape), c.pick("", c.const(0.5, "float32")), c.pick("", c.const(False, "bool"))], outputs)


@op("Cast")
def cast(c):
    dtype = c.pick("float16", "float64", "int8", "int32", "int64", "bool", "uint8")
    c.node("Cast", [c.input(c.shape(), c.pick("float32", "int32"))], to=tensor_dtype(dtype))


@op("CastLike", 15)
def cast_like(c):
    c.node("CastLike", [c.input(c.shape()), c.input(c.shape(), c.pick("float16", "int32", "bool"))])


@op("BitCast", 26)
def bit_cast(c):
    c.node("BitCast", [c.input(c.shape())], to=tensor_dtype(c.pick("int32", "uint32", "float32")))


@op("SwiGLU", 28)
def swiglu(c):
    shape = c.shape()
    c.node("SwiGLU", [c.input(shape), c.input(shape)])


@op("CumSum", 11)
def cumsum(c):
    shape = c.shape(1)
    c.node("CumSum", [c.input(shape), c.const(c.axis(len(shape)))], exclusive=c.pick(0, 1), reverse=c.pick(0, 1))


@op("CumProd", 26)
def cumprod(c):
    shape = c.shape(1)
    c.node("CumProd", [c.input(shape), c.const(c.axis(len(shape)))])


# ---- normalised exponentials and the like: an axis, the shape kept ----

def along(name):
    def build(c):
        shape = c.shape(1 if c.opset >= 13 else 2)
        c.node(name, [c.input(shape)], axis=c.pick(None, c.axis(len(shape)) if c.opset >= 11 else c.rng.randrange(len(shape))))
    return build


for _name in ("Softmax", "LogSoftmax", "Hardmax"):
    register(_name, 7, along(_name))
register("LpNormalization", 7, lambda c: c.node("LpNormalization", [c.input(c.shape(1))], p=c.pick(1, 2)))

# ---- reductions ----

REDUCTIONS = {"ReduceL1": 18, "ReduceL2": 18, "ReduceLogSum": 18, "ReduceLogSumExp": 18, "ReduceMax": 18, "ReduceMean": 18,
              "ReduceMin": 18, "ReduceProd": 18, "ReduceSum": 13, "ReduceSumSquare": 18}


def reduction(name, as_input):
    """Axes are an attribute before the opset `as_input`."""
    def build(c):
        shape = c.shape()
        axes = c.axes(len(shape)) if shape and c.flip(0.8) else None
        if c.opset < 11 and axes is not None:
            axes = [axis % len(shape) for axis in axes]
        keep = c.pick(None, 0, 1)
        if c.opset < as_input:
            c.node(name, [c.input(shape)], axes=axes, keepdims=keep)
            return
        if axes is None:
            c.node(name, [c.input(shape), c.pick("", c.const([]))], keepdims=keep, noop_with_empty_axes=c.pick(None, 0, 1))
        else:
            c.node(name, [c.input(shape), c.setting(axes)], keepdims=keep, noop_with_empty_axes=c.pick(None, 1))
    return build


for _name, _as_input in REDUCTIONS.items():
    register(_name, 7, reduction(_name, _as_input))


def arg_reduction(name):
    def build(c):
        shape = c.shape(1)
        axis = c.axis(len(shape)) if c.opset >= 11 else c.rng.randrange(len(shape))
        c.node(name, [c.input(shape)], axis=c.pick(None, axis), keepdims=c.pick(None, 0, 1))
    return build


register("ArgMax", 7, arg_reduction("ArgMax"))
register("ArgMin", 7, arg_reduction("ArgMin"))


@op("TopK")
def topk(c):
    shape = c.shape(1)
    axis = c.axis(len(shape)) if c.opset >= 11 else c.rng.randrange(len(shape))
    count = c.rng.randint(1, shape[axis])
    if c.opset < 10:
        c.node("TopK", [c.input(shape)], 2, axis=axis, k=count)
    else:
        c.node("TopK", [c.input(shape), c.setting([count])], 2, axis=axis)


# ---- moves ----

@op("Transpose")
def transpose(c):
    shape = c.shape()
    c.node("Transpose", [c.input(shape, c.pick("float32", "int8"))],
           perm=c.pick(None, c.rng.sample(range(len(shape)), len(shape))) if shape else None)


@op("Flatten")
def flatten(c):
    shape = c.shape(0 if c.opset >= 11 else 1)
    low = -len(shape) if c.opset >= 11 else 0
    axis = c.rng.randint(low, len(shape))
    c.node("Flatten", [c.input(shape)], axis=c.pick(None, axis) if shape else axis)


@op("Tile")
def tile(c):
    shape = c.shape(1)
    c.node("Tile", [c.input(shape), c.setting(c.ints(len(shape), 0, 3))])


@op("Trilu", 14)
def trilu(c):
    c.node("Trilu", [c.input(c.shape(2)), c.pick("", c.const(1))], upper=c.pick(None, 0, 1))


@op("EyeLike", 9)
def eye_like(c):
    c.node("EyeLike", [c.input(c.ints(2, 1, 5), c.pick("float32", "int32"))], dtype=c.pick(None, tensor_dtype("float16")),
           k=c.pick(None, 1))


@op("Pad")
def pad(c):
    shape = c.shape(1)
    pads = c.ints(2 * len(shape), 0, 3)
    if c.flip(0.3):
        pads[0] = -c.rng.randint(0, shape[0] - 1)
    if c.opset < 11:
        c.node("Pad", [c.input(shape)], pads=pads, mode="constant", value=c.pick(None, 1.0))
    elif c.opset >= 18 and c.flip():
        axes = c.axes(len(shape))
        chosen = [pads[axis % len(shape) + at] for at in (0, len(shape)) for axis in axes]
        c.node("Pad", [c.input(shape), c.setting(chosen), c.pick("", c.const(1, "float32")), c.setting(axes, chance=0.1)])
    else:
        c.node("Pad", [c.input(shape), c.setting(pads), c.pick("", c.const(1, "float32"))])


@op("Split")
def split(c):
    shape = c.shape(1)
    axis = c.axis(len(shape)) if c.opset >= 11 else c.rng.randrange(len(shape))
    given = c.pick(None, axis)
    at = 0 if given is None else axis
    count = c.rng.randint(1, 3)
    sizes = c.ints(count, 0 if c.opset >= 11 else 1, 3)
    if c.flip(0.4) and sum(sizes) > 0:
        shape[at] = sum(sizes)
        if c.opset < 13:
            c.node("Split", [c.input(shape)], count, axis=given, split=sizes)
        else:
            c.node("Split", [c.input(shape), c.setting(sizes)], count, axis=given)
        return
    if c.opset >= 18:  # the last may be smaller
        shape[at] = max(shape[at], count * (count - 1) + 1)
        c.node("Split", [c.input(shape)], count, axis=given, num_outputs=count)
    else:
        shape[at] *= count
        c.node("Split", [c.input(shape)], count, axis=given)


@op("DepthToSpace")
def depth_to_space(c):
    block = c.rng.randint(1, 3)
    shape = [c.rng.randint(1, 3), block * block * c.rng.randint(1, 3), c.rng.randint(1, 4), c.rng.randint(1, 4)]
    c.node("DepthToSpace", [c.input(shape)], blocksize=block, mode=c.pick(None, "CRD") if c.opset >= 11 else None)


@op("SpaceToDepth")
def space_to_depth(c):
    block = c.rng.randint(1, 3)
    shape = [c.rng.randint(1, 3), c.rng.randint(1, 3), block * c.rng.randint(1, 3), block * c.rng.randint(1, 3)]
    c.node("SpaceToDepth", [c.input(shape)], blocksize=block)


@op("ReverseSequence", 10)
def reverse_sequence(c):
    shape = c.shape(2)
    c.node("ReverseSequence", [c.input(shape), c.const([1] * shape[1])], batch_axis=1, time_axis=0)


@op("CenterCropPad", 18)
def center_crop_pad(c):
    shape = c.shape(1)
    axes = c.axes(len(shape)) if c.flip() else None
    count = len(shape if axes is None else axes)
    c.node("CenterCropPad", [c.input(shape), c.setting(c.ints(count, 1, 7))], axes=axes)


# ---- by index ----

@op("GatherElements", 11)
def gather_elements(c):
    shape = c.shape(1)
    axis = c.axis(len(shape))
    index = [c.rng.randint(1, size) for size in shape]
    c.node("GatherElements", [c.input(shape), c.input(index, "int64", np.zeros(index))], axis=axis)


@op("GatherND", 11)
def gather_nd(c):
    batch = c.rng.randint(0, 1) if c.opset >= 12 else 0
    shape = c.shape(1 + batch)
    rows = c.shape(0, 2)
    depth = c.rng.randint(1, len(shape) - batch)
    index = shape[:batch] + rows + [depth]
    c.node("GatherND", [c.input(shape), c.input(index, "int64", np.zeros(index))], batch_dims=batch or None)


def scatter_elements(name):
    def build(c):
        shape = c.shape(1)
        index = [c.rng.randint(1, size) for size in shape]
        c.node(name, [c.input(shape), c.input(index, "int64", np.zeros(index)), c.input(index)], axis=c.axis(len(shape)))
    return build


register("Scatter", 9, scatter_elements("Scatter"), 10)
register("ScatterElements", 11, scatter_elements("ScatterElements"))


@op("ScatterND", 11)
def scatter_nd(c):
    shape = c.shape(1)
    rows = c.shape(0, 2)
    depth = c.rng.randint(1, len(shape))
    c.node("ScatterND", [c.input(shape), c.input(rows + [depth], "int64", np.zeros(rows + [depth])),
                         c.input(rows + shape[depth:])])


@op("TensorScatter", 24)
def tensor_scatter(c):
    shape = c.ints(4, 2, 5)
    update = [shape[0], shape[1], 1, shape[3]]
    c.node("TensorScatter", [c.input(shape), c.input(update), c.input([shape[0]], "int64", [0] * shape[0])])


@op("OneHot", 9)
def one_hot(c):
    shape = c.shape(1)
    c.node("OneHot", [c.input(shape, "int64"), c.setting(c.pick(6, [7])), c.const([0, 1], c.pick("float32", "int32"))],
           axis=c.pick(None, c.rng.randint(-len(shape) - 1, len(shape))))


@op("Compress", 9)
def compress(c):
    c.dependent = True
    shape = c.shape(1)
    axis = c.pick(None, c.axis(len(shape)) if c.opset >= 11 else 0)
    count = shape[axis] if axis is not None else int(np.prod(shape))
    c.node("Compress", [c.input(shape), c.input([count], "bool")], axis=axis)


@op("NonZero", 9)
def non_zero(c):
    c.dependent = True
    c.node("NonZero", [c.input(c.shape(1), c.pick("float32", "bool", "int64"))])


@op("Unique", 11)
def unique(c):
    c.dependent = True
    shape = c.shape(1)
    c.node("Unique", [c.input(shape)], c.rng.randint(1, 4), axis=c.pick(None, c.axis(len(shape))))


# ---- made from nothing ----

def generator(name):
    return lambda c: c.node(name, [], shape=c.shape(1), dtype=c.pick(None, tensor_dtype("float16")))


def generator_like(name):
    return lambda c: c.node(name, [c.input(c.shape(1))], dtype=c.pick(None, tensor_dtype("float64")))


for _name in ("RandomNormal", "RandomUniform"):
    register(_name, 7, generator(_name))
    register(_name + "Like", 7, generator_like(_name + "Like"))
register("Bernoulli", 15, lambda c: c.node("Bernoulli", [c.input(c.shape(1))], dtype=c.pick(None, tensor_dtype("int32"))))


@op("Multinomial")
def multinomial(c):
    c.by_reference = False
    c.node("Multinomial", [c.input([2, 4])], sample_size=c.pick(None, 3), dtype=c.pick(None, tensor_dtype("int64")))
