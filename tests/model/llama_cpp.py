"""Sparse GGUF files in the shapes of models, for llama_cpp_measure.py and test_llama_cpp.py."""
import struct

TYPES = {"f32": (0, 1, 4), "f16": (1, 1, 2), "q4_0": (2, 32, 18), "q8_0": (8, 32, 34), "q4_k": (12, 256, 144), "q6_k": (14, 256, 210)}

# What is not given is as in Llama 3 8B, with 4 layers.
USUAL = {"arch": "llama", "layers": 4, "hidden": 4096, "width": 14336, "heads": 32, "kv_heads": 8, "head": 128, "vocab": 128256, "weights": "q4_k",
         "tied": False, "experts": 0, "used": 0, "window": 0, "pattern": 0}
MODELS = {
    "llama-3-8b": {},
    "wide": {"width": 28672},
    "small-vocab": {"vocab": 32000},
    "narrow": {"vocab": 32000, "width": 2048},
    "many-heads": {"vocab": 32000, "width": 2048, "heads": 64, "kv_heads": 64},
    "mixtral": {"vocab": 32000, "experts": 8, "used": 2},
    "many-experts": {"vocab": 32000, "experts": 64, "used": 6, "width": 1536, "hidden": 2048, "heads": 16, "kv_heads": 16},
    "qwen3-30b-a3b": {"arch": "qwen3moe", "vocab": 32000, "experts": 128, "used": 8, "width": 768, "hidden": 2048, "heads": 32, "kv_heads": 4},
    "gemma-3-4b": {"arch": "gemma3", "vocab": 32000, "width": 10240, "hidden": 2560, "heads": 8, "kv_heads": 4, "head": 256, "tied": True, "window": 1024,
                   "pattern": 6, "layers": 12},
}
# n_ctx, n_seq_max, n_ubatch, flash attention, type of the cache
RUNS = [(8192, 1, 512, 1, "f16"), (512, 1, 512, 1, "f16"), (16384, 1, 512, 1, "f16"), (8192, 1, 128, 1, "f16"), (8192, 1, 1024, 1, "f16"),
        (8192, 1, 512, 0, "f16"), (8192, 2, 512, 1, "f16"), (1000, 1, 512, 1, "f16"), (8192, 1, 512, 1, "q8_0"), (8192, 4, 512, 1, "q4_0")]


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def packed(value):
    """The number of its type, and the value."""
    if isinstance(value, bool):
        return 7, struct.pack("<?", value)
    if isinstance(value, int):
        return 4, struct.pack("<I", value)
    if isinstance(value, float):
        return 6, struct.pack("<f", value)
    if isinstance(value, list):
        return 9, struct.pack("<IQ", packed(value[0])[0], len(value)) + b"".join(packed(item)[1] for item in value)
    return 8, text(value)


def entry(key, value):
    number, data = packed(value)
    return text(key) + struct.pack("<I", number) + data


def keys(model):
    arch = model["arch"]
    values = {"block_count": model["layers"], "context_length": 131072, "embedding_length": model["hidden"],
              "feed_forward_length": model["width"], "attention.head_count": model["heads"], "attention.head_count_kv": model["kv_heads"],
              "attention.key_length": model["head"], "attention.value_length": model["head"], "attention.layer_norm_rms_epsilon": 1e-5,
              "rope.dimension_count": model["head"], "vocab_size": model["vocab"]}
    if model["experts"]:
        values |= {"expert_count": model["experts"], "expert_used_count": model["used"], "expert_feed_forward_length": model["width"]}
    if model["window"]:
        values |= {"attention.sliding_window": model["window"], "attention.sliding_window_pattern": model["pattern"]}
    return {"general.architecture": arch, "tokenizer.ggml.model": "no_vocab"} | {f"{arch}.{key}": value for key, value in values.items()}


def layer_tensors(model, layer):
    hidden, width, head, kind = model["hidden"], model["width"], model["head"], model["weights"]
    names = [("attn_norm", "f32", (hidden,)), ("attn_q", kind, (hidden, model["heads"] * head)), ("attn_k", kind, (hidden, model["kv_heads"] * head)),
             ("attn_v", kind, (hidden, model["kv_heads"] * head)), ("attn_output", kind, (model["heads"] * head, hidden)), ("ffn_norm", "f32", (hidden,))]
    if model["arch"] in ("qwen3moe", "gemma3"):
        names += [("attn_q_norm", "f32", (head,)), ("attn_k_norm", "f32", (head,))]
    if model["arch"] == "gemma3":
        names += [("post_attention_norm", "f32", (hidden,)), ("post_ffw_norm", "f32", (hidden,))]
    if model["experts"]:
        count = model["experts"]
        names += [("ffn_gate_inp", "f32", (hidden, count)), ("ffn_gate_exps", kind, (hidden, width, count)), ("ffn_up_exps", kind, (hidden, width, count)),
                  ("ffn_down_exps", kind, (width, hidden, count))]
    else:
        names += [("ffn_gate", kind, (hidden, width)), ("ffn_up", kind, (hidden, width)), ("ffn_down", kind, (width, hidden))]
    return [(f"blk.{layer}.{name}.weight", dtype, shape) for name, dtype, shape in names]


def tensors(model):
    found = [("token_embd.weight", model["weights"], (model["hidden"], model["vocab"])), ("output_norm.weight", "f32", (model["hidden"],))]
    if not model["tied"]:
        found.append(("output.weight", "q6_k", (model["hidden"], model["vocab"])))
    for layer in range(model["layers"]):
        found += layer_tensors(model, layer)
    return found


def write_header(path, metas, found):
    """A file's header, and no data."""
    header = struct.pack("<IIQQ", 0x46554747, 3, len(found), len(metas)) + b"".join(entry(*item) for item in metas.items())
    offset = 0
    for tensor, dtype, shape in found:
        number, block, size = TYPES[dtype]
        header += text(tensor) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape) + struct.pack("<IQ", number, offset)
        elements = 1
        for dim in shape:
            elements *= dim
        offset += (elements // block * size + 31) // 32 * 32
    with open(path, "wb") as file:
        file.write(header + b"\0" * (-len(header) % 32))
        file.truncate((len(header) + 31) // 32 * 32 + offset)


def write_file(path, arch, values, shapes):
    """Of any architecture, in f32: keys behind the architecture's name, and {tensor: dimensions}."""
    metas = {"general.architecture": arch, "tokenizer.ggml.model": "no_vocab"} | {f"{arch}.{key}": value for key, value in values.items()}
    write_header(path, metas, [(name, "f32", shape) for name, shape in shapes.items()])


def write(path, name):
    """One of MODELS."""
    model = USUAL | MODELS[name]
    write_header(path, keys(model), tensors(model))
    return model
