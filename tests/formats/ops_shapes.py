"""Graphs of the operators that compute shapes, of control flow and of sequences."""
import numpy as np
from onnx import helper

from graph_case import op, register, tensor_dtype


@op("Shape")
def shape_of(c):
    x = c.input(c.shape())
    if c.opset >= 15 and c.flip():
        c.node("Shape", [x], start=c.pick(None, -2, 1), end=c.pick(None, -1, 2))
    else:
        c.node("Shape", [x])


register("Size", 7, lambda c: c.node("Size", [c.input(c.shape())]))
register("Constant", 9, lambda c: c.node("Constant", [], value=helper.make_tensor("t", 7, [2], c.ints(2, 0, 9))))


@op("ConstantOfShape", 9)
def constant_of_shape(c):
    value = c.pick(None, helper.make_tensor("t", tensor_dtype("int64"), [1], [3]))
    c.node("ConstantOfShape", [c.setting(c.shape(1))], value=value)


@op("Range", 11)
def range_of(c):
    dtype = c.pick("int64", "float32")
    c.node("Range", [c.setting(1, dtype), c.setting(c.rng.randint(1, 9), dtype), c.setting(c.pick(1, 2, 3), dtype)])


@op("Gather")
def gather(c):
    shape, index = c.shape(1), c.shape(0, 2)
    axis = c.axis(len(shape)) if c.opset >= 11 else c.rng.randrange(len(shape))
    c.node("Gather", [c.input(shape), c.input(index, "int64", np.zeros(index))], axis=axis)


@op("Concat")
def concat(c):
    shape = c.shape(1)
    axis = c.axis(len(shape)) if c.opset >= 11 else c.rng.randrange(len(shape))
    parts = []
    for _ in range(c.rng.randint(1, 4)):
        part = list(shape)
        part[axis] = c.rng.randint(1, 4)
        parts.append(c.input(part))
    c.node("Concat", parts, axis=axis)


@op("Slice")
def slice_of(c):
    shape = c.shape(1)
    axes = c.axes(len(shape))
    starts, ends = c.ints(len(axes), -3, 3), [c.pick(-1, 2, 4, 2**31 - 1, 2**63 - 1) for _ in axes]
    if c.opset < 10:
        axes = [axis % len(shape) for axis in axes]
        c.node("Slice", [c.input(shape)], starts=starts, ends=ends, axes=axes)
        return
    inputs = [c.input(shape), c.setting(starts), c.setting(ends)]
    if c.flip(0.8):
        inputs.append(c.setting(axes, chance=0.05))
    else:
        inputs[1:] = [c.setting(c.ints(len(shape), -3, 3)), c.setting([3] * len(shape)), ""]
        axes = shape
    steps = [c.pick(1, 1, 2, -1, -2) for _ in axes]
    c.node("Slice", inputs + [c.pick("", c.setting(steps))])


@op("Squeeze")
def squeeze(c):
    shape = [c.pick(1, 1, 3) for _ in range(c.rng.randint(1, 4))]
    axes = [i for i, size in enumerate(shape) if size == 1 and c.flip()]
    x = c.input(shape)
    if not axes:
        c.node("Squeeze", [x])
    elif c.opset < 13:
        c.node("Squeeze", [x], axes=axes)
    else:
        c.node("Squeeze", [x, c.setting([axis - c.pick(0, len(shape)) for axis in axes])])


@op("Unsqueeze")
def unsqueeze(c):
    shape = c.shape(0, 3)
    rank = len(shape) + c.rng.randint(1, 2)
    axes = c.rng.sample(range(rank), rank - len(shape))
    if c.opset < 13:
        c.node("Unsqueeze", [c.input(shape)], axes=sorted(axes))  # a run takes them one by one
    else:
        c.node("Unsqueeze", [c.input(shape), c.setting([axis - c.pick(0, rank) for axis in axes])])


@op("Reshape")
def reshape(c):
    shape = c.shape(1)
    target = list(shape)
    c.rng.shuffle(target)
    if c.flip(0.6):
        target[c.rng.randrange(len(target))] = -1
    elif c.flip():
        target = [0] * c.rng.randint(0, len(shape) - 1) + [-1]
    c.node("Reshape", [c.input(shape), c.setting(target)])


@op("Expand", 8)
def expand(c):
    shape = c.shape(1)
    c.node("Expand", [c.input(c.broadcastable(shape)), c.setting([c.pick(1, size) for size in shape])])


@op("Reshape", 13)
def reshape_by_shape(c):
    """The target is computed from another value's shape, as exporters write it."""
    batch, length, heads, head = c.ints(4, 1, 4)
    x = c.input([batch, length, heads * head], chain=False)
    sizes = c.node("Shape", [x])
    parts = [c.node("Gather", [sizes, c.const([at])]) for at in (0, 1)]
    target = c.node("Concat", parts + [c.const([heads]), c.node("Div", [c.node("Gather", [sizes, c.const([2])]), c.const([heads])])],
                    axis=0)
    c.node("Transpose", [c.node("Reshape", [x, target])], perm=[0, 2, 1, 3])


@op("Pad", 11)
def pad_as_exported(c):
    """Pads by dimension, last first, turned round by way of Reshape, Slice and Transpose."""
    shape = c.ints(4, 2, 4)
    pads = c.node("Concat", [c.const(c.ints(4, 0, 2)), c.node("ConstantOfShape", [c.const([4])],
                                                             value=helper.make_tensor("z", 7, [1], [0]))], axis=0)
    pads = c.node("Reshape", [pads, c.const([-1, 2])])
    pads = c.node("Slice", [pads, c.const([-1]), c.const([-2**63 + 1]), c.const([0]), c.const([-1])])
    pads = c.node("Cast", [c.node("Reshape", [c.node("Transpose", [pads], perm=[1, 0]), c.const([-1])])], to=7)
    c.node("Pad", [c.input(shape), pads])


@op("Resize", 13)
def resize_as_exported(c):
    """The target size by way of floating point."""
    x = c.input(c.ints(4, 2, 6), chain=False)
    sizes = c.node("Shape", [x])
    wide = [c.node("Cast", [c.node("Slice", [sizes, c.const([at]), c.const([at + 1]), c.const([0])])], to=1) for at in (2, 3)]
    wide = [c.node("Cast", [c.node("Floor", [c.node("Mul", [part, c.const([1.5], "float32")])])], to=7) for part in wide]
    target = c.node("Concat", [c.node("Slice", [sizes, c.const([0]), c.const([2]), c.const([0])])] + wide, axis=0)
    c.node("Resize", [x, "", "", target])


@op("Split", 13)
def split_of_a_shape(c):
    first, second = c.node("Split", [c.node("Shape", [c.input([2, 3, 4, 5], chain=False)]), c.const([3, 1])], 2)
    c.node("ConstantOfShape", [c.node("Concat", [second, first], axis=0)])


@op("NonZero", 9)
def non_zero_of_a_constant(c):
    ones = c.node("ConstantOfShape", [c.const(c.shape(1, 2))], value=helper.make_tensor("o", 7, [1], [1]))
    c.node("Transpose", [c.node("NonZero", [ones])])


# ---- control flow ----

def branch(c, dtype, shape):
    name = c.name("branch")
    constant = helper.make_node("Constant", [], [name], value=helper.make_tensor("t", tensor_dtype(dtype), shape,
                                                                                [1] * int(np.prod(shape))))
    return c.subgraph([constant], {name: dtype})


@op("If", 11)
def if_of(c):
    shape = c.shape(1)
    other = shape if c.flip() else [c.pick(size, size + 1) for size in shape]
    known = c.flip()
    condition = c.const(True, "bool") if known else c.input([], "bool", chain=False)
    c.dependent = not known and other != shape
    c.node("If", [condition], then_branch=branch(c, "float32", shape), else_branch=branch(c, "float32", other))


@op("Loop", 11)
def loop(c):
    """Adds a row's sum to a carried value, and collects it."""
    shape = c.shape(1)
    step, keep, carried, condition, total = (c.name("l") for _ in range(5))

    def info(name, dtype, dims):
        return helper.make_tensor_value_info(name, tensor_dtype(dtype), dims)
    body = helper.make_graph([helper.make_node("Identity", [keep], [condition]), helper.make_node("Add", [carried, carried], [total]),
                              helper.make_node("Identity", [total], [total + "_scan"])], c.name("body"),
                             [info(step, "int64", []), info(keep, "bool", []), info(carried, "float32", shape)],
                             [info(condition, "bool", []), info(total, "float32", shape), info(total + "_scan", "float32", shape)])
    count = c.rng.randint(1, 4)
    c.dependent = True
    c.by_reference = False  # it joins what is collected instead of stacking it
    c.node("Loop", [c.setting(count), c.const(True, "bool"), c.input(shape, chain=False)], 2, body=body)


@op("Scan", 9)
def scan(c):
    shape = c.shape(1, 3)
    carried, row, total = (c.name("s") for _ in range(3))

    def info(name, dims):
        return helper.make_tensor_value_info(name, 1, dims)
    body = helper.make_graph([helper.make_node("Add", [carried, row], [total]), helper.make_node("Identity", [total], [total + "_scan"])],
                             c.name("body"), [info(carried, shape[1:]), info(row, shape[1:])],
                             [info(total, shape[1:]), info(total + "_scan", shape[1:])])
    c.node("Scan", [c.input(shape[1:], chain=False), c.input(shape, chain=False)], 2, body=body, num_scan_inputs=1)


# ---- sequences and optional values ----

def sequence(c, shape):
    return c.node("SequenceConstruct", [c.input(shape) for _ in range(2)])


register("SequenceConstruct", 11, lambda c: c.node("SequenceAt", [sequence(c, c.shape()), c.const(0)]))
register("SequenceAt", 11, lambda c: c.node("SequenceAt", [sequence(c, c.shape()), c.const(1)]))
register("SequenceLength", 11, lambda c: c.node("SequenceLength", [sequence(c, c.shape())]))
register("SequenceErase", 11, lambda c: c.node("SequenceAt", [c.node("SequenceErase", [sequence(c, c.shape()), c.const(1)]), c.const(0)]))


@op("SequenceEmpty", 11)
def sequence_empty(c):
    c.dependent = True
    c.node("SequenceAt", [c.node("SequenceInsert", [c.node("SequenceEmpty", [], dtype=c.pick(None, 1)), c.input([2, 3])]), c.const(0)])


@op("SequenceInsert", 11)
def sequence_insert(c):
    c.dependent = True
    shape = c.shape(1)
    more = list(shape)
    more[0] = c.pick(more[0], 7)
    c.node("SequenceAt", [c.node("SequenceInsert", [sequence(c, shape), c.input(more)]), c.const(2)])


@op("ConcatFromSequence", 11)
def concat_from_sequence(c):
    c.dependent = True
    shape = c.shape(1)
    c.node("ConcatFromSequence", [sequence(c, shape)], axis=c.axis(len(shape)), new_axis=c.pick(None, 1))


@op("SplitToSequence", 11)
def split_to_sequence(c):
    shape = c.shape(1)
    axis = c.axis(len(shape))
    kind = c.rng.randrange(3)
    c.dependent = kind > 0
    if kind == 0:
        pieces = c.node("SplitToSequence", [c.input(shape)], axis=axis, keepdims=c.pick(None, 0))
    elif kind == 1:
        shape[axis] = 4
        pieces = c.node("SplitToSequence", [c.input(shape), c.setting(c.pick(2, 3))], axis=axis)
    else:
        shape[axis] = 4
        pieces = c.node("SplitToSequence", [c.input(shape), c.setting(c.pick([2, 2], [1, 3]))], axis=axis)
    c.node("SequenceAt", [pieces, c.const(c.pick(0, -1))])


register("Optional", 15, lambda c: c.node("OptionalGetElement", [c.node("Optional", [c.input(c.shape())])]))
register("OptionalGetElement", 15, lambda c: c.node("OptionalGetElement", [c.node("Optional", [c.input(c.shape())])]))
register("OptionalHasElement", 15, lambda c: c.node("OptionalHasElement", [c.node("Optional", [c.input(c.shape())])]))

# ---- texts ----


def texts(c, shape):
    """A constant of texts: they are no numbers that an input could take."""
    name = c.name("t")
    c.initializers.append(helper.make_tensor(name, 8, shape, [b"a b"] * int(np.prod(shape))))
    return name


register("StringConcat", 20, lambda c: c.node("StringConcat", [texts(c, [3, 1]), texts(c, [4])]))
register("RegexFullMatch", 20, lambda c: c.node("RegexFullMatch", [texts(c, c.shape(1))], pattern="a.*"))


@op("StringSplit", 20)
def string_split(c):
    c.dependent = True
    c.node("StringSplit", [texts(c, c.shape(1))], 2, delimiter=" ")


@op("StringNormalizer", 10)
def string_normalizer(c):
    c.dependent = True
    c.node("StringNormalizer", [texts(c, c.pick([3], [1, 3]))], case_change_action="UPPER")


@op("TfIdfVectorizer", 9)
def tf_idf(c):
    c.node("TfIdfVectorizer", [c.input(c.shape(1, 2), "int64")], mode="TF", min_gram_length=1, max_gram_length=1, max_skip_count=0,
           ngram_counts=[0], ngram_indexes=[0, 2, 1], pool_int64s=[2, 3, 5])


@op("ImageDecoder", 20)
def image_decoder(c):
    c.dependent = True
    c.by_reference = False
    c.node("ImageDecoder", [c.input([100], "uint8")], pixel_format=c.pick(None, "Grayscale", "BGR"))
