"""Graphs of the contrib domain's operators. No reference knows them: each defines its results, from the operator's documentation."""
from graph_case import REGISTRY, op

MS = "com.microsoft"
F, B = "float32", "uint8"


def contrib(name):
    return op(name, 13, domain=MS)


def put(c, op_type, inputs, *expect, domain=MS, **attributes):
    """A node whose outputs are `expect`, (dtype, shape) each."""
    c.node(op_type, inputs, len(expect), domain=domain, expect=expect, **attributes)


def scale(c):
    return c.const(0.5, F)


def zero(c):
    return c.const(1, B)


def same(name, dtype=F, more=(), **attributes):
    """Output 0 is as input 0; `more`: shapes of further inputs, of numbers and of the last dimension, by its name "last"."""
    def build(c):
        shape = c.shape(2)
        extra = [c.parameter([shape[-1] if size == "last" else size for size in other]) for other in more]
        put(c, name, [c.input(shape, dtype)] + extra, (dtype, shape), **attributes)
    contrib(name)(build)


for _name in ("Gelu", "QuickGelu", "Inverse", "Trilu"):
    same(_name)
for _name in ("BiasGelu", "FastGelu", "BiasAdd", "BiasSoftmax"):
    same(_name, more=[["last"]])
for _name in ("MoE", "QMoE", "LongformerAttention"):
    same(_name, more=[["last", 4]])
for _name in ("GroupNorm",):
    same(_name, more=[["last"], ["last"]], groups=1)


@contrib("RotaryEmbedding")
def rotary(c):
    shape = c.ints(3, 1, 4) + [4]
    put(c, "RotaryEmbedding", [c.input(shape), c.input([1], "int64", [0]), c.parameter([9, 2]), c.parameter([9, 2])], (F, shape))


def qlinear_same(name):
    def build(c):
        shape = c.shape(1)
        put(c, name, [c.input(shape, B), scale(c), zero(c), scale(c), zero(c)], (B, shape))
    contrib(name)(build)


for _name in ("QLinearSigmoid", "QLinearLeakyRelu", "QLinearSoftmax"):
    qlinear_same(_name)


@contrib("BiasDropout")
def bias_dropout(c):
    shape = c.shape(1)
    put(c, "BiasDropout", [c.input(shape), c.parameter(shape[-1:])], (F, shape), ("bool", shape))


# ---- attention ----


@contrib("Attention")
def packed_attention(c):
    batch, length, heads, head, past = c.ints(5, 1, 4)
    width = heads * head
    inputs = [c.input([batch, length, 6]), c.parameter([6, 3 * width]), c.parameter([3 * width])]
    if c.flip():
        inputs += ["", c.input([2, batch, heads, past, head])]
    else:
        past = 0
    put(c, "Attention", inputs, (F, [batch, length, width]), (F, [2, batch, heads, past + length, head]), num_heads=heads)


@contrib("QAttention")
def quantised_attention(c):
    batch, length, heads, head = c.ints(4, 1, 4)
    width = heads * head
    put(c, "QAttention", [c.input([batch, length, 6], B), c.parameter([6, 3 * width], B), c.parameter([3 * width]), scale(c), scale(c)],
        (F, [batch, length, width]), num_heads=heads)


@contrib("MultiHeadAttention")
def multi_head_attention(c):
    batch, length, heads, head, keys, past, v_head = c.ints(7, 1, 4)
    kind = c.rng.randrange(4)
    with_past = kind != 1 and c.flip()
    past = past if with_past else 0
    if kind == 0:
        inputs = [c.input([batch, length, heads * head]), c.input([batch, keys, heads * head]), c.input([batch, keys, heads * v_head])]
    elif kind == 1:
        keys, v_head = length, head
        inputs = [c.input([batch, length, heads, 3, head]), "", ""]
    elif kind == 2:
        v_head = head
        inputs = [c.input([batch, length, heads * head]), c.input([batch, keys, heads, 2, head]), ""]
    else:
        inputs = [c.input([batch, length, heads * head]), c.input([batch, heads, keys, head]), c.input([batch, heads, keys, v_head])]
    if with_past:
        inputs += ["", "", "", c.input([batch, heads, past, head]), c.input([batch, heads, past, v_head])]
    put(c, "MultiHeadAttention", inputs, (F, [batch, length, heads * v_head]), (F, [batch, heads, past + keys, head]),
        (F, [batch, heads, past + keys, v_head]), num_heads=heads)


@contrib("GroupQueryAttention")
def group_query_attention(c):
    batch, length, head, past = c.ints(4, 1, 4)
    heads, kv_heads = 4, c.pick(1, 2, 4)
    if c.flip():
        inputs = [c.input([batch, length, heads * head]), c.input([batch, length, kv_heads * head]),
                  c.input([batch, length, kv_heads * head])]
    else:
        inputs = [c.input([batch, length, (heads + 2 * kv_heads) * head]), "", ""]
    inputs += [c.input([batch, kv_heads, past, head]), c.input([batch, kv_heads, past, head]), c.input([batch], "int32"),
               c.input([], "int32", 3)]
    present = [batch, kv_heads, None, head]
    put(c, "GroupQueryAttention", inputs, (F, [batch, length, heads * head]), (F, present), (F, present), num_heads=heads,
        kv_num_heads=kv_heads)


@contrib("RelativePositionBias")
def relative_position_bias(c):
    put(c, "RelativePositionBias", [c.parameter([32, 5]), c.const([6]), c.const([7])], (F, [1, 5, 6, 7]), max_distance=128)


# ---- normalisation ----


@contrib("SkipLayerNormalization")
def skip_layer_normalization(c):
    shape = c.ints(3, 1, 5)
    tail = shape[-1:]
    few = shape[:-1] + [1]
    put(c, "SkipLayerNormalization", [c.input(shape), c.input(shape), c.parameter(tail), c.parameter(tail), c.parameter(tail)],
        (F, shape), (F, few), (F, few), (F, shape))


@contrib("SkipSimplifiedLayerNormalization")
def skip_simplified(c):
    shape = c.ints(3, 1, 5)
    names = [c.name(), "", "", c.name()]
    c.node("SkipSimplifiedLayerNormalization", [c.input(shape), c.input(shape), c.parameter(shape[-1:])], names, domain=MS,
           expect=[(F, shape), (F, []), (F, []), (F, shape)])


def simplified(domain):
    def build(c):
        shape = c.shape(1)
        put(c, "SimplifiedLayerNormalization", [c.input(shape), c.parameter(shape[-1:])], (F, shape), (F, shape[:-1] + [1]),
            domain=domain, axis=-1)
        c.lax = not domain
    return build


contrib("SimplifiedLayerNormalization")(simplified(MS))
op("SimplifiedLayerNormalization", 13)(simplified(""))


@contrib("EmbedLayerNormalization")
def embed_layer_normalization(c):
    batch, length, width = c.ints(3, 1, 5)
    tokens = [batch, length]
    put(c, "EmbedLayerNormalization", [c.input(tokens, "int32"), c.input(tokens, "int32"), c.parameter([9, width]),
                                       c.parameter([9, width]), c.parameter([2, width]), c.parameter([width]), c.parameter([width]),
                                       c.input(tokens, "int32")],
        (F, [batch, length, width]), ("int32", [batch]), (F, [batch, length, width]))


@contrib("SkipGroupNorm")
def skip_group_norm(c):
    shape = c.ints(4, 1, 4)
    put(c, "SkipGroupNorm", [c.input(shape), c.parameter(shape[-1:]), c.parameter(shape[-1:]), c.input(shape)], (F, shape), (F, shape),
        groups=1)


@contrib("BiasSplitGelu")
def bias_split_gelu(c):
    shape = c.ints(3, 1, 4)
    put(c, "BiasSplitGelu", [c.input(shape[:2] + [2 * shape[2]]), c.parameter([2 * shape[2]])], (F, shape))


# ---- products and windows ----


def fused_matmul(name):
    def build(c):
        rows, inner, columns = c.ints(3, 1, 5)
        batch = c.shape(0, 2)
        left, right = c.flip(), c.flip()
        a = batch + ([inner, rows] if left else [rows, inner])
        b = [columns, inner] if right else [inner, columns]
        put(c, name, [c.input(a), c.parameter(b)], (F, batch + [rows, columns]), transA=int(left), transB=int(right), alpha=0.5)
    return build


for _name in ("FusedMatMul", "TransposeMatMul"):
    contrib(_name)(fused_matmul(_name))


def packed_matmul(name):
    def build(c):
        shape = c.shape(1)
        put(c, name, [c.input(shape), c.parameter([10, 1, 8], B), c.parameter([10])], (F, shape[:-1] + [10]), K=shape[-1], N=10,
            block_size=16)
    return build


for _name in ("MatMulNBits", "MatMulBnb4"):
    contrib(_name)(packed_matmul(_name))


@contrib("MatMulIntegerToFloat")
def matmul_to_float(c):
    put(c, "MatMulIntegerToFloat", [c.input([2, 3, 4], B), c.parameter([4, 5], B), scale(c), scale(c)], (F, [2, 3, 5]))


@contrib("DynamicQuantizeMatMul")
def matmul_quantising(c):
    put(c, "DynamicQuantizeMatMul", [c.input([2, 3, 4]), c.parameter([4, 5], B), scale(c)], (F, [2, 3, 5]))


@contrib("FusedGemm")
def fused_gemm(c):
    put(c, "FusedGemm", [c.input([3, 4]), c.parameter([5, 4])], (F, [3, 5]), transB=1, activation="Relu")


@contrib("QGemm")
def quantised_gemm(c):
    inputs = [c.input([3, 4], B), scale(c), zero(c), c.parameter([4, 5], B), scale(c), zero(c)]
    if c.flip():
        put(c, "QGemm", inputs + ["", scale(c), zero(c)], (B, [3, 5]))
    else:
        put(c, "QGemm", inputs, (F, [3, 5]))


@contrib("FusedConv")
def fused_conv(c):
    put(c, "FusedConv", [c.input([1, 3, 8, 8]), c.parameter([4, 3, 3, 3])], (F, [1, 4, 6, 6]), activation="Relu")


def qlinear_pool(name, size):
    def build(c):
        last = c.flip()
        x, y = ([2, 8, 8, 3], [2, size, size, 3]) if last else ([2, 3, 8, 8], [2, 3, size, size])
        kernel = {} if "Global" in name else {"kernel_shape": [2, 2], "strides": [2, 2]}
        put(c, name, [c.input(x, B), scale(c), zero(c), scale(c), zero(c)], (B, y), channels_last=int(last), **kernel)
    return build


contrib("QLinearAveragePool")(qlinear_pool("QLinearAveragePool", 4))
contrib("QLinearGlobalAveragePool")(qlinear_pool("QLinearGlobalAveragePool", 1))


@contrib("NhwcMaxPool")
def nhwc_max_pool(c):
    put(c, "NhwcMaxPool", [c.input([2, 8, 8, 3], B)], (B, [2, 4, 4, 3]), kernel_shape=[2, 2], strides=[2, 2])


def qlinear_broadcast(name):
    def build(c):
        shape = c.shape(1)
        put(c, name, [c.input(shape, B), scale(c), zero(c), c.parameter(c.broadcastable(shape), B), scale(c), zero(c), scale(c), zero(c)],
            (B, shape))
    return build


for _name in ("QLinearAdd", "QLinearMul"):
    contrib(_name)(qlinear_broadcast(_name))


@contrib("QLinearConcat")
def qlinear_concat(c):
    shape = c.shape(1)
    axis = c.axis(len(shape))
    inputs, total = [scale(c), zero(c)], 0
    for _ in range(c.rng.randint(1, 3)):
        part = list(shape)
        part[axis] = c.rng.randint(1, 4)
        total += part[axis]
        inputs += [c.input(part, B), scale(c), zero(c)]
    shape[axis] = total
    put(c, "QLinearConcat", inputs, (B, shape), axis=axis)


@contrib("QuantizeLinear")
def quantize(c):
    put(c, "QuantizeLinear", [c.input([2, 3]), scale(c), zero(c)], (B, [2, 3]))


@contrib("DequantizeLinear")
def dequantize(c):
    put(c, "DequantizeLinear", [c.input([2, 3], B), scale(c), zero(c)], (F, [2, 3]))


@contrib("GridSample")
def grid_sample(c):
    put(c, "GridSample", [c.input([2, 3, 4, 5]), c.input([2, 6, 7, 2])], (F, [2, 3, 6, 7]))


@contrib("DynamicQuantizeLSTM")
def lstm_quantising(c):
    put(c, "DynamicQuantizeLSTM", [c.input([4, 2, 3]), c.parameter([1, 3, 20], "int8"), c.parameter([1, 5, 20], "int8")],
        (F, [4, 1, 2, 5]), (F, [1, 2, 5]), (F, [1, 2, 5]), hidden_size=5)


@contrib("GatherBlockQuantized")
def gather_block_quantized(c):
    index = c.shape(0, 2)
    put(c, "GatherBlockQuantized", [c.parameter([9, 16], B), c.input(index, "int64"), c.parameter([9, 2])], (F, index + [32]),
        block_size=16, gather_axis=0, quantize_axis=1, bits=4)


def old(name):
    """Of ONNX before it had versions: the reference does not know them any more."""
    def build(c):
        shape = c.ints(4, 1, 4)
        c.lax = True
        put(c, name, [c.input(shape)], (F, shape), domain="")
    op(name, 7)(build)


for _name in ("Affine", "ImageScaler", "ParametricSoftplus", "ScaledTanh"):
    old(_name)

assert all(domain in ("", MS) for _, domain, *_ in REGISTRY)
