"""Models of 70 and 671 thousand million parameters as sparse files: estimated from their headers within 100 ms and 64 MiB, and a
model of 1,000 tensors within 50 ms. The time is that of the processor, the best of several: the machine may be busy with other
things, and the headers are in the page cache. Where it is slow at the moment, Python's own reader of JSON on the same headers is the
measure: half of its time.
alone: it measures time
timeout: 120
"""
import json
import os
import struct
import sys
import time

import tap

MIB = 1 << 20
ROUNDS = 7


def write_shard(path, tensors):
    """tensors: name → (dtype, bits, shape). The data is sparse."""
    header = {}
    at = 0
    for name, (dtype, bits, shape) in tensors.items():
        size = bits // 8
        for dim in shape:
            size *= dim
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + at)
    return at


def write_sharded(folder, tensors, shards):
    names = list(tensors)
    per_shard = -(-len(names) // shards)
    weight_map = {}
    total = 0
    for number in range(shards):
        part = names[number * per_shard:(number + 1) * per_shard]
        file = f"model-{number + 1:05}-of-{shards:06}.safetensors"
        total += write_shard(os.path.join(folder, file), {name: tensors[name] for name in part})
        weight_map.update(dict.fromkeys(part, file))
    with open(os.path.join(folder, "model.safetensors.index.json"), "w", encoding="utf-8") as file:
        json.dump({"metadata": {"total_size": total}, "weight_map": weight_map}, file, indent=2)
    return total


def llama_70b():
    """Llama 3 70B: 80 layers, 8192 wide, 28672 within, 8 key-value heads of 128."""
    bf16 = lambda *shape: ("BF16", 16, list(shape))
    tensors = {"model.embed_tokens.weight": bf16(128256, 8192)}
    for n in range(80):
        layer = f"model.layers.{n}."
        for name, shape in (("self_attn.q_proj", (8192, 8192)), ("self_attn.k_proj", (1024, 8192)), ("self_attn.v_proj", (1024, 8192)),
                            ("self_attn.o_proj", (8192, 8192)), ("mlp.gate_proj", (28672, 8192)), ("mlp.up_proj", (28672, 8192)),
                            ("mlp.down_proj", (8192, 28672)), ("input_layernorm", (8192,)), ("post_attention_layernorm", (8192,))):
            tensors[f"{layer}{name}.weight"] = bf16(*shape)
    tensors["model.norm.weight"] = bf16(8192)
    tensors["lm_head.weight"] = bf16(128256, 8192)
    return tensors


def deepseek_671b():
    """DeepSeek V3 as published: 61 layers, 58 of them with 256 experts; FP8 blocks of 128 with their scales."""
    tensors = {"model.embed_tokens.weight": ("BF16", 16, [129280, 7168])}

    def fp8(name, rows, columns):
        tensors[f"{name}.weight"] = ("F8_E4M3", 8, [rows, columns])
        tensors[f"{name}.weight_scale_inv"] = ("F32", 32, [-(-rows // 128), -(-columns // 128)])

    def mlp(name, width):
        fp8(f"{name}.gate_proj", width, 7168)
        fp8(f"{name}.up_proj", width, 7168)
        fp8(f"{name}.down_proj", 7168, width)

    for n in range(61):
        layer = f"model.layers.{n}."
        fp8(f"{layer}self_attn.q_a_proj", 1536, 7168)
        fp8(f"{layer}self_attn.q_b_proj", 24576, 1536)
        fp8(f"{layer}self_attn.kv_a_proj_with_mqa", 576, 7168)
        fp8(f"{layer}self_attn.kv_b_proj", 32768, 512)
        fp8(f"{layer}self_attn.o_proj", 7168, 16384)
        for name, width in (("self_attn.q_a_layernorm", 1536), ("self_attn.kv_a_layernorm", 512), ("input_layernorm", 7168),
                            ("post_attention_layernorm", 7168)):
            tensors[f"{layer}{name}.weight"] = ("BF16", 16, [width])
        if n < 3:
            mlp(f"{layer}mlp", 18432)
            continue
        tensors[f"{layer}mlp.gate.weight"] = ("BF16", 16, [256, 7168])
        tensors[f"{layer}mlp.gate.e_score_correction_bias"] = ("F32", 32, [256])
        mlp(f"{layer}mlp.shared_experts", 2048)
        for expert in range(256):
            mlp(f"{layer}mlp.experts.{expert}", 2048)
    tensors["model.norm.weight"] = ("BF16", 16, [7168])
    tensors["lm_head.weight"] = ("BF16", 16, [129280, 7168])
    return tensors


def json_ns(path):
    """What Python's reader, written in C, needs for the same headers."""
    headers = []
    for name in sorted(os.listdir(path)) if os.path.isdir(path) else ():
        with open(os.path.join(path, name), "rb") as file:
            headers.append(file.read() if name.endswith(".json") else file.read(struct.unpack("<Q", file.read(8))[0]))
    begin = time.process_time_ns()
    for header in headers:
        json.loads(header)
    return time.process_time_ns() - begin


def measure(path, name, limit_ms, total, memory=64 * MIB):
    best = min((tap.dump(path, brief=True) for _ in range(ROUNDS)), key=lambda model: model["cpu_ns"])
    print(f"# {name}: {best['cpu_ns'] / 1e6:.1f} ms of processor, {best['ns'] / 1e6:.1f} ms in all, {best['resident_bytes'] / MIB:.1f} MiB resident, {best['tensor_count']} tensors, "
          f"{best['header_bytes'] / MIB:.1f} MiB of headers")
    tap.equal(best["weight_bytes"], total, "weight bytes")
    tap.equal(best["warnings"], [], "warnings")
    if best["resident_bytes"] > memory:
        raise AssertionError(f"{best['resident_bytes']} bytes of memory")
    reference = json_ns(path)
    if os.path.isdir(path):
        print(f"# {name}: {best['cpu_ns'] / reference:.2f} of Python's json.loads")
    if best["cpu_ns"] > max(limit_ms * 1e6, reference / 2):
        raise AssertionError(f"{best['cpu_ns'] / 1e6} ms, Python's json.loads {reference / 1e6} ms")


def a_thousand_tensors(folder):
    path = os.path.join(folder, "model.safetensors")
    total = write_shard(path, {f"model.layers.{n}.self_attn.q_proj.weight": ("BF16", 16, [128, n + 1]) for n in range(1000)})
    measure(path, "1,000 tensors", 50, total)


def a_thousand_tensors_gguf(folder):
    path = os.path.join(folder, "model.gguf")
    text = lambda s: struct.pack("<Q", len(s)) + s.encode()
    body = b""
    for n in range(1000):
        body += text(f"blk.{n}.ffn_down.weight") + struct.pack("<IQQIQ", 2, 256, 4, 12, n * 576)
    tokens = b"".join(text(f"token {n}") for n in range(150000))
    keys = text("general.architecture") + struct.pack("<I", 8) + text("llama")
    keys += text("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, 150000) + tokens
    head = b"GGUF" + struct.pack("<IQQ", 3, 1000, 2) + keys + body
    with open(path, "wb") as file:
        file.write(head + b"\0" * (-len(head) % 32))
        file.truncate(len(head) + -len(head) % 32 + 576 * 1000)
    measure(path, "1,000 tensors and 150,000 tokens of GGUF", 50, 576 * 1000)


def llama_of_70b(folder):
    total = write_sharded(folder, llama_70b(), 30)
    tap.equal(total, 141107412992, "as published")
    measure(folder, "70B in 30 shards", 100, total)


def deepseek_of_671b(folder):
    total = write_sharded(folder, deepseek_671b(), 163)
    tap.equal(671e9 < total < 680e9, True, str(total))
    measure(folder, "671B in 163 shards", 100, total)


if __name__ == "__main__":
    sys.exit(tap.run([a_thousand_tensors, a_thousand_tensors_gguf, llama_of_70b, deepseek_of_671b]))
