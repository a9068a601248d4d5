"""Graphs of the operators of neural networks: windows, products, normalisation, recurrence, attention, quantised, signal, sequences."""
import numpy as np

from graph_case import op, register, tensor_dtype

# ---- windows ----


def window(c, rank, low=5, high=9):
    """Sizes and the attributes of a window that fits into them."""
    sizes = c.ints(rank, low, high)
    attributes = {"kernel_shape": c.ints(rank, 1, 3)}
    if c.flip(0.7):
        attributes["strides"] = c.ints(rank, 1, 3)
    if c.flip(0.4):
        attributes["dilations"] = c.ints(rank, 1, 2)
    mode = c.pick("NOTSET", "NOTSET", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")
    if mode != "NOTSET":
        attributes["auto_pad"] = mode
    elif c.flip():
        attributes["pads"] = [c.rng.randint(0, max(kernel - 1, 0)) for kernel in attributes["kernel_shape"] * 2]
    return sizes, attributes


def padded(sizes, attributes):
    """The sizes by the specification where the padding is chosen so."""
    return [-(-size // stride) for size, stride in zip(sizes, attributes.get("strides", [1] * len(sizes)))]


def is_same(attributes):
    return attributes.get("auto_pad", "").startswith("SAME")


def convolution(name):
    def build(c):
        sizes, attributes = window(c, c.rng.randint(1, 3))
        group = c.pick(1, 1, 2, 3)
        filters, channels = group * c.rng.randint(1, 3), c.rng.randint(1, 3)
        kernel = attributes["kernel_shape"]
        if c.flip(0.4):
            del attributes["kernel_shape"]  # the weight's
        x = [c.rng.randint(1, 3), channels * group] + sizes
        w = [filters, channels] + kernel
        if group > 1:
            attributes["group"] = group
        dtype = {"Conv": "float32", "ConvInteger": "int32", "QLinearConv": "uint8"}[name]
        expect = [(dtype, [x[0], filters] + padded(sizes, attributes))] if is_same(attributes) else None
        if name == "Conv":
            c.node(name, [c.input(x), c.parameter(w), c.pick("", c.parameter([filters]))], expect=expect, **attributes)
        elif name == "ConvInteger":
            c.node(name, [c.input(x, "uint8"), c.parameter(w, "uint8"), c.pick("", c.const(1, "uint8"))], expect=expect, **attributes)
        else:
            def scale():
                return c.const(0.5, "float32")

            def zero():
                return c.const(1, "uint8")
            c.node(name, [c.input(x, "uint8"), scale(), zero(), c.parameter(w, "uint8"), scale(), zero(), scale(), zero()],
                   expect=expect, **attributes)
        c.by_reference = attributes.get("auto_pad", "NOTSET") == "NOTSET" and name == "Conv"
    return build


register("Conv", 7, convolution("Conv"))
register("ConvInteger", 10, convolution("ConvInteger"))
register("QLinearConv", 10, convolution("QLinearConv"))


@op("ConvTranspose")
def conv_transpose(c):
    rank = c.rng.randint(1, 3)
    sizes, attributes = window(c, rank)
    kernel = attributes["kernel_shape"]
    strides = attributes.get("strides", [1] * rank)
    if c.flip(0.3):
        attributes["output_padding"] = [c.rng.randrange(stride) for stride in strides]
        if attributes.get("auto_pad", "").startswith("SAME"):  # the references differ
            del attributes["auto_pad"]
    if attributes.get("auto_pad", "NOTSET") == "NOTSET" and c.flip(0.2):
        attributes["output_shape"] = [size * stride for size, stride in zip(sizes, strides)]
        attributes.pop("pads", None)
    group = c.pick(1, 1, 2)
    channels = group * c.rng.randint(1, 2)
    weight = [channels, c.rng.randint(1, 3)] + kernel
    if group > 1:
        attributes["group"] = group
    if c.flip(0.4):
        del attributes["kernel_shape"]
    c.by_reference = "pads" not in attributes and attributes.get("auto_pad", "NOTSET") == "NOTSET" and group == 1
    c.node("ConvTranspose", [c.input([c.rng.randint(1, 2), channels] + sizes), c.parameter(weight)], **attributes)


@op("DeformConv", 19)
def deform_conv(c):
    filters, channels = c.rng.randint(1, 3), c.rng.randint(1, 3)
    pads = c.ints(4, 0, 1)
    strides = c.ints(2, 1, 2)
    sizes = c.ints(2, 5, 7)
    out = [(sizes[i] + pads[i] + pads[i + 2] - 3) // strides[i] + 1 for i in range(2)]
    c.node("DeformConv", [c.input([1, channels] + sizes), c.parameter([filters, channels, 3, 3]), c.input([1, 18] + out)], pads=pads,
           strides=strides)


def pool(name):
    def build(c):
        sizes, attributes = window(c, c.rng.randint(1, 3))
        if c.opset < {"MaxPool": 10, "AveragePool": 19, "LpPool": 18}[name]:
            attributes.pop("dilations", None)
        if c.opset >= {"MaxPool": 10, "AveragePool": 10, "LpPool": 18}[name] and c.flip(0.4):
            attributes["ceil_mode"] = c.pick(0, 1)
            # Inference, other than a run, counts windows that lie in the padding behind the data before version 22.
            c.lax = attributes["ceil_mode"] == 1 and c.opset < 22
        c.by_reference = "auto_pad" not in attributes and (name != "MaxPool" or "pads" not in attributes)  # it errs there
        outputs = c.rng.randint(1, 2) if name == "MaxPool" and c.opset >= 8 else 1
        shape = c.ints(2, 1, 3) + sizes
        result = shape[:2] + padded(sizes, attributes)
        expect = [("float32", result), ("int64", result)] if is_same(attributes) else None
        c.node(name, [c.input(shape)], outputs, expect=expect, **attributes)
    return build


for _name in ("MaxPool", "AveragePool", "LpPool"):
    register(_name, 7, pool(_name))


def global_pool(name):
    def build(c):
        c.by_reference = name == "GlobalAveragePool"  # of the others it errs on the rank
        c.node(name, [c.input(c.ints(c.rng.randint(3, 5), 1, 4))])
    return build


for _name in ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"):
    register(_name, 7, global_pool(_name))


@op("MaxUnpool", 9)
def max_unpool(c):
    kernel, strides = c.ints(2, 1, 3), c.ints(2, 1, 3)
    shape = c.ints(4, 1, 4)
    index = c.input(shape, "int64", np.zeros(shape))
    if c.flip():
        out = shape[:2] + [(size - 1) * stride + width for size, stride, width in zip(shape[2:], strides, kernel)]
        c.node("MaxUnpool", [c.input(shape), index, c.setting(out)], kernel_shape=kernel, strides=strides)
    else:
        c.node("MaxUnpool", [c.input(shape), index], kernel_shape=kernel, strides=strides, pads=c.pick(None, [0, 0, 0, 0]))


@op("MaxRoiPool")
def max_roi_pool(c):
    c.node("MaxRoiPool", [c.input([1, 3, 8, 8]), c.input([c.rng.randint(1, 4), 5])], pooled_shape=c.ints(2, 1, 3))


@op("RoiAlign", 10)
def roi_align(c):
    count = c.rng.randint(1, 4)
    c.node("RoiAlign", [c.input([2, 3, 8, 8]), c.input([count, 4]), c.input([count], "int64", [0] * count)],
           output_height=c.pick(None, 3), output_width=c.pick(None, 2))


@op("NonMaxSuppression", 10)
def non_max_suppression(c):
    c.dependent = True
    c.node("NonMaxSuppression", [c.input([1, 6, 4]), c.input([1, 2, 6]), c.pick("", c.const(3))])


@op("Col2Im", 18)
def col2im(c):
    block = c.ints(2, 1, 2)
    image = [block[0] * 2 + 1, block[1] * 2 + 1]
    blocks = (image[0] - block[0] + 1) * (image[1] - block[1] + 1)
    c.node("Col2Im", [c.input([c.rng.randint(1, 2), 3 * block[0] * block[1], blocks]), c.setting(image), c.setting(block)])


# ---- images ----

@op("Resize", 10)
def resize(c):
    sizes = c.ints(2, 1, 3) + c.ints(2, 1, 10)
    # In single precision 10 * 0.7 and 10 * 0.9 would be whole, in double they are a little less.
    scales = [1.0, 1.0] + [c.pick(0.5, 1.0, 2.0, 1.5, 0.7, 0.9, 3.0, 1 / 3, 1.4142135) for _ in range(2)]
    scales = [scale if int(np.float32(size) * np.float32(scale)) else 1.0 for size, scale in zip(sizes, scales)]
    x = c.input(sizes)
    if c.opset == 10:
        c.node("Resize", [x, c.setting(scales, "float32")])
        return
    roi = c.const([], "float32") if c.opset < 13 else ""
    if c.opset >= 18 and c.flip():
        axes = c.pick([2, 3], [3], [-1, 2])
        if c.flip():
            target = c.ints(len(axes), 1, 9)
            policy = c.pick(None, "stretch", "not_larger", "not_smaller")
            c.lax = c.openness > 0  # inference takes sizes of unknown number for none
            c.node("Resize", [x, roi, "", c.setting(target)], axes=axes, keep_aspect_ratio_policy=policy)
        else:
            c.node("Resize", [x, roi, c.setting([scales[axis] for axis in axes], "float32")], axes=axes)
    elif c.flip():
        empty = c.const([], "float32") if c.opset < 13 else ""
        c.lax = c.openness > 0
        c.node("Resize", [x, roi, empty, c.setting(sizes[:2] + c.ints(2, 1, 9))])
    else:
        c.node("Resize", [x, roi, c.setting(scales, "float32")])


@op("Upsample", 7, 9)
def upsample(c):
    scales = [1.0, 1.0] + [c.pick(1.0, 2.0, 1.5, 3.0, 4 / 3, 1.4142135) for _ in range(2)]
    x = c.input(c.ints(4, 1, 5))
    if c.opset < 9:
        c.node("Upsample", [x], scales=scales)
    else:
        c.node("Upsample", [x, c.setting(scales, "float32")])


@op("GridSample", 16)
def grid_sample(c):
    rank = 2 if c.opset < 20 else c.pick(2, 3)
    batch = c.rng.randint(1, 3)
    c.by_reference = rank == 2
    c.node("GridSample", [c.input([batch, 2] + c.ints(rank, 2, 4)), c.input([batch] + c.ints(rank, 1, 4) + [rank])])


@op("AffineGrid", 20)
def affine_grid(c):
    rank = c.pick(2, 3)
    size = c.ints(2 + rank, 1, 4)
    c.node("AffineGrid", [c.input([size[0], rank, rank + 1]), c.setting(size)], align_corners=c.pick(None, 1))


# ---- products ----

def product_shapes(c):
    rows, inner, columns = c.ints(3, 1, 5)
    batch = c.shape(0, 2)
    kind = c.rng.randrange(5)
    if kind == 0:
        return [inner], batch + [inner, columns]
    if kind == 1:
        return batch + [rows, inner], [inner]
    if kind == 2:
        return [inner], [inner]
    return batch + [rows, inner], c.broadcastable(batch) + [inner, columns]


@op("MatMul")
def matmul(c):
    left, right = product_shapes(c)
    c.node("MatMul", [c.input(left), c.parameter(right)])


@op("MatMulInteger", 10)
def matmul_integer(c):
    left, right = product_shapes(c)
    c.node("MatMulInteger", [c.input(left, "uint8"), c.parameter(right, "uint8"), c.pick("", c.const(1, "uint8"))])


@op("QLinearMatMul", 10)
def qlinear_matmul(c):
    left, right = product_shapes(c)
    scale, zero = c.const(0.5, "float32"), c.const(1, "uint8")
    c.by_reference = False
    c.node("QLinearMatMul", [c.input(left, "uint8"), scale, zero, c.parameter(right, "uint8"), scale, zero, scale, zero])


@op("Gemm")
def gemm(c):
    rows, inner, columns = c.ints(3, 1, 5)
    left, right = c.pick(None, 0, 1), c.pick(None, 0, 1)
    a = c.input([inner, rows] if left else [rows, inner])
    b = c.parameter([columns, inner] if right else [inner, columns])
    bias = c.parameter(c.pick([columns], [rows, columns], [1], [])) if c.opset < 11 or c.flip() else ""
    c.node("Gemm", [a, b, bias], transA=left, transB=right, alpha=c.pick(None, 0.5))


@op("Einsum", 12)
def einsum(c):
    sizes = dict(zip("abcdef", c.ints(6, 1, 4)))

    def shape(letters, extra=()):
        return list(extra) + [sizes[letter] for letter in letters]
    equation, terms = c.pick(("ab,bc->ac", ["ab", "bc"]), ("abc->cab", ["abc"]), ("ij,jk", None), ("aab->ab", ["aab"]),
                             ("a,b->", ["a", "b"]), (" abd , acd -> abc", ["abd", "acd"]), ("...ab,...bc->...ac", "dots"),
                             ("...a->a...", "tail"), ("bhid, bhjd -> bhij", "heads"), ("ba", ["ba"]), ("ab,cd,be", ["ab", "cd", "be"]))
    if terms is None:
        inputs = [shape("ab"), shape("bc")]
    elif terms == "dots":
        batch = c.shape(0, 2)
        inputs = [shape("ab", batch), shape("bc", [c.pick(1, size) for size in batch])]
    elif terms == "tail":
        inputs = [shape("a", c.shape(0, 2))]
    elif terms == "heads":
        inputs = [shape("abcd"), shape("abed")]
    else:
        inputs = [shape(term) for term in terms]
    c.lax_ones = True  # inference does not broadcast dimensions with a letter
    c.node("Einsum", [c.input(term) for term in inputs], equation=equation)


@op("Det", 11)
def det(c):
    size = c.rng.randint(1, 3)
    c.node("Det", [c.input(c.shape(0, 2) + [size, size])])


# ---- normalisation ----

@op("BatchNormalization")
def batch_normalization(c):
    shape = c.shape(2)
    channels = [shape[1]]
    training = c.opset >= 14 and c.flip(0.3)
    c.by_reference = not training
    c.node("BatchNormalization", [c.input(shape)] + [c.parameter(channels) for _ in range(4)], 3 if training else 1,
           training_mode=1 if training else None)


register("LRN", 7, lambda c: c.node("LRN", [c.input(c.ints(4, 1, 4))], size=3))


@op("MeanVarianceNormalization", 9)
def mean_variance_normalization(c):
    c.lax = True  # strict inference refuses its function
    c.node("MeanVarianceNormalization", [c.input(c.ints(4, 1, 4))])


@op("InstanceNormalization")
def instance_normalization(c):
    shape = c.shape(3)
    c.node("InstanceNormalization", [c.input(shape), c.parameter(shape[1:2]), c.parameter(shape[1:2])])


@op("GroupNormalization", 21)
def group_normalization(c):
    groups = c.rng.randint(1, 3)
    shape = [2, groups * c.rng.randint(1, 3)] + c.shape(1, 2)
    c.node("GroupNormalization", [c.input(shape), c.parameter(shape[1:2]), c.parameter(shape[1:2])], num_groups=groups)


@op("LayerNormalization", 17)
def layer_normalization(c):
    shape = c.shape(1)
    axis = c.pick(None, c.axis(len(shape)))
    tail = shape[-1 if axis is None else axis:]
    c.node("LayerNormalization", [c.input(shape), c.parameter(tail), c.pick("", c.parameter(tail))], c.rng.randint(1, 3), axis=axis)


@op("RMSNormalization", 23)
def rms_normalization(c):
    shape = c.shape(1)
    c.node("RMSNormalization", [c.input(shape), c.parameter(shape[-1:])])


# ---- recurrence ----

def recurrent(name, gates, states):
    def build(c):
        steps, batch, size, hidden = c.ints(4, 1, 4)
        both = c.flip(0.4)
        count = 2 if both else 1
        layout = c.opset >= 14 and c.flip(0.3)
        inputs = [c.input([batch, steps, size] if layout else [steps, batch, size]),
                  c.parameter([count, gates * hidden, size]), c.parameter([count, gates * hidden, hidden])]
        if c.flip():
            inputs.append(c.parameter([count, 2 * gates * hidden]))
        c.by_reference = not both and not layout
        outputs = [c.name() if c.flip(0.8) else "" for _ in range(1 + states)]
        outputs[-1] = outputs[-1] or c.name()
        c.node(name, inputs, outputs, hidden_size=hidden, direction=c.pick("bidirectional") if both else c.pick(None, "reverse"),
               layout=1 if layout else None)
    return build


register("LSTM", 7, recurrent("LSTM", 4, 2))
register("GRU", 7, recurrent("GRU", 3, 1))
register("RNN", 7, recurrent("RNN", 1, 1))

# ---- attention ----


@op("Attention", 23)
def attention(c):
    batch, q_heads, q_len, kv_len, past, head, v_head = c.rng.randint(1, 2), 4, *c.ints(5, 1, 4)
    kv_heads = c.pick(4, 2)
    with_past = c.flip()
    names = [c.name() for _ in range(c.pick(1, 3, 4) if with_past or c.flip(0.3) else 1)]
    if c.flip():
        inputs = [c.input([batch, q_len, q_heads * head]), c.input([batch, kv_len, kv_heads * head]),
                  c.input([batch, kv_len, kv_heads * v_head])]
        attributes = {"q_num_heads": q_heads, "kv_num_heads": kv_heads}
    else:
        inputs = [c.input([batch, q_heads, q_len, head]), c.input([batch, kv_heads, kv_len, head]),
                  c.input([batch, kv_heads, kv_len, v_head])]
        attributes = {}
    if with_past:
        inputs += ["", c.input([batch, kv_heads, past, head]), c.input([batch, kv_heads, past, v_head])]
        if len(names) == 1:
            names += [c.name(), c.name()]
    c.node("Attention", inputs, names, **attributes)
    c.lax = True if len(names) > 1 and not with_past else c.openness > 0  # it takes open dimensions for 0


@op("LinearAttention", 27)
def linear_attention(c):
    batch, length, heads, key, value = c.ints(5, 1, 4)
    state = [batch, heads, key, value]
    inputs = [c.input([batch, length, 2 * heads * key]), c.input([batch, length, heads * key]), c.input([batch, length, heads * value]),
              c.pick("", c.input(state)), c.input([batch, length, heads])]
    c.node("LinearAttention", inputs, 2, q_num_heads=2 * heads, kv_num_heads=heads, update_rule="gated")


@op("CausalConvWithState", 27)
def causal_conv_with_state(c):
    batch, channels, length = c.ints(3, 1, 4)
    kernel = c.rng.randint(2, 4)
    c.node("CausalConvWithState", [c.input([batch, channels, length]), c.parameter([channels, 1, kernel]), "",
                                   c.pick("", c.input([batch, channels, kernel - 1]))], 2)


@op("RotaryEmbedding", 23)
def rotary_embedding(c):
    batch, heads, length, half = c.ints(4, 1, 4)
    table = [batch, length, half]
    if c.flip():
        c.node("RotaryEmbedding", [c.input([batch, heads, length, 2 * half]), c.input(table), c.input(table)])
    else:
        c.node("RotaryEmbedding", [c.input([batch, length, heads * 2 * half]), c.input(table), c.input(table)], num_heads=heads)


# ---- quantised ----

def scale_of(c, shape):
    """One scale for all elements, or one for each place along the axis it gives."""
    if c.opset >= 13 and c.flip(0.3):
        axis = c.axis(len(shape))
        return [shape[axis]], axis
    return [], None


@op("QuantizeLinear", 10)
def quantize_linear(c):
    shape = c.shape(1)
    scales, axis = scale_of(c, shape)
    x, scale = c.input(shape), c.parameter(scales)
    if c.flip():
        dtype = c.pick("uint8", "int8")
        c.node("QuantizeLinear", [x, scale, c.const(c.array(scales, dtype), dtype)], axis=axis)
    else:
        c.node("QuantizeLinear", [x, scale], axis=axis, output_dtype=c.pick(None, tensor_dtype("int8")) if c.opset >= 21 else None)


@op("DequantizeLinear", 10)
def dequantize_linear(c):
    dtype = c.pick("uint8", "int8")
    shape = c.shape(1)
    scales, axis = scale_of(c, shape)
    wide = c.pick("float32", "float16") if c.opset >= 19 else "float32"
    c.node("DequantizeLinear", [c.input(shape, dtype), c.parameter(scales, wide), c.pick("", c.const(c.array(scales, dtype), dtype))],
           axis=axis, output_dtype=c.pick(None, tensor_dtype("float16")) if c.opset >= 23 else None)


register("DynamicQuantizeLinear", 11, lambda c: c.node("DynamicQuantizeLinear", [c.input(c.shape(1))], 3))

# ---- signals ----


def signal_window(name):
    return lambda c: c.node(name, [c.setting(c.rng.randint(1, 9))], periodic=c.pick(None, 0),
                            output_datatype=c.pick(None, tensor_dtype("float16")))


for _name in ("HannWindow", "HammingWindow", "BlackmanWindow"):
    register(_name, 17, signal_window(_name))


@op("DFT", 17)
def dft(c):
    shape = [c.rng.randint(1, 3)] + c.ints(c.rng.randint(1, 2), 2, 6) + [c.pick(1, 2)]
    onesided = shape[-1] == 1 and c.flip()
    length = c.pick("", c.setting(c.rng.randint(2, 8)))
    inverse = None if onesided else c.pick(None, 1)
    axis = c.rng.randint(1, len(shape) - 2)
    if c.opset < 20:
        c.node("DFT", [c.input(shape), length], axis=axis, onesided=int(onesided) or None, inverse=inverse)
    else:
        c.node("DFT", [c.input(shape), length, c.setting(axis)], onesided=int(onesided) or None, inverse=inverse)


@op("STFT", 17)
def stft(c):
    frame, step = c.rng.randint(2, 6), c.rng.randint(1, 3)
    x = c.input([c.rng.randint(1, 2), c.rng.randint(8, 20), 1])
    sides = c.pick(None, 0, 1)
    c.lax = sides is None  # inference takes 0 for the default, which is 1
    if c.flip():
        c.node("STFT", [x, c.setting(step), "", c.setting(frame)], onesided=sides)
    else:
        c.lax = c.lax or c.openness > 0  # inference refuses a window of unknown rank
        c.node("STFT", [x, c.setting(step), c.parameter([frame])], onesided=sides)


@op("MelWeightMatrix", 17)
def mel_weight_matrix(c):
    c.node("MelWeightMatrix", [c.setting(c.rng.randint(2, 9)), c.setting(16), c.setting(8000), c.const(0, "float32"),
                               c.const(4000, "float32")], output_datatype=c.pick(None, tensor_dtype("float64")))


# ---- losses ----

@op("NegativeLogLikelihoodLoss", 12)
def negative_log_likelihood(c):
    shape = [2, 3] + c.shape(0, 2)
    c.node("NegativeLogLikelihoodLoss", [c.input(shape), c.input(shape[:1] + shape[2:], "int64", np.zeros(shape[:1] + shape[2:]))],
           reduction=c.pick(None, "none", "sum"))


@op("SoftmaxCrossEntropyLoss", 12)
def softmax_cross_entropy(c):
    shape = [2, 3] + c.shape(0, 2)
    c.node("SoftmaxCrossEntropyLoss", [c.input(shape), c.input(shape[:1] + shape[2:], "int64", np.zeros(shape[:1] + shape[2:]))],
           c.rng.randint(1, 2), reduction=c.pick(None, "none", "sum"))


# ---- chains ----

@op("Gemm", 9)
def small_network(c):
    """An image classifier in small: convolution, normalisation, pooling, a product."""
    channels, classes = c.ints(2, 1, 5)
    x = c.input([c.rng.randint(1, 3), 3] + c.ints(2, 8, 12), chain=False)
    x = c.node("Conv", [x, c.const(c.array([channels, 3, 3, 3], "float32"), "float32")], pads=[1, 1, 1, 1], strides=[2, 2])
    x = c.node("BatchNormalization", [x] + [c.const(c.array([channels], "float32"), "float32") for _ in range(4)])
    x = c.node("Relu", [x])
    x = c.node("Add", [x, c.node("Sigmoid", [x])])
    x = c.node("MaxPool", [x], kernel_shape=[2, 2], strides=[2, 2])
    x = c.node("GlobalAveragePool", [x])
    x = c.node("Flatten", [x])
    c.node("Gemm", [x, c.const(c.array([classes, channels], "float32"), "float32"), c.const([0] * classes, "float32")], transB=1)


@op("MatMul", 13)
def attention_by_hand(c):
    """Heads split, scores, softmax, heads joined, as exporters of transformers write it."""
    batch, length, heads, head = c.ints(4, 1, 4)
    width = heads * head

    def split_heads(x, perm):
        x = c.node("MatMul", [x, c.const(c.array([width, width], "float32"), "float32")])
        return c.node("Transpose", [c.node("Reshape", [x, c.const([0, 0, heads, head])])], perm=perm)
    x = c.input([batch, length, width], chain=False)
    scores = c.node("Div", [c.node("MatMul", [split_heads(x, [0, 2, 1, 3]), split_heads(x, [0, 2, 3, 1])]), c.const(2, "float32")])
    joined = c.node("MatMul", [c.node("Softmax", [scores], axis=-1), split_heads(x, [0, 2, 1, 3])])
    joined = c.node("Reshape", [c.node("Transpose", [joined], perm=[0, 2, 1, 3]), c.const([0, 0, width])])
    c.node("MatMul", [joined, c.const(c.array([width, 7], "float32"), "float32")])
