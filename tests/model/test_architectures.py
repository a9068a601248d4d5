#!/usr/bin/env python3
"""KV cache and state of 28 known architectures, from their public configurations, against the published formulas;
the same models by GGUF metadata; large models in little time and memory."""
import json
import os
import struct
import subprocess
import sys
import tempfile
import time

import formulas

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "formats"))
from tap import BUILD, TOOL, check, finish  # noqa: E402

MIB = 1 << 20


def estimate(path, *options):
    """Exit status, the JSON or None, stderr."""
    run = subprocess.run([TOOL, "estimate", path, "--json", *options], capture_output=True, text=True, check=False)
    return run.returncode, json.loads(run.stdout) if run.stdout else None, run.stderr


def safetensors(path, tensors):
    """A file with a header for `tensors` (name, dtype, shape, bytes) and sparse data."""
    header, offset = {}, 0
    for name, dtype, shape, size in tensors:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + offset)
    return offset


def model_dtype(config):
    """The type that a configuration names; what is absent is the single tensor's."""
    return {"float16": "f16", "bfloat16": "bf16", "float32": "f32"}.get(config.get("torch_dtype"))


def compare(path, name, config_dtype):
    """What differs from the formulas, over batches, contexts and types, without an engine's rounding."""
    problems = []
    for batch, tokens, dtype in ((1, 1, None), (1, 4096, None), (3, 100000, "f16"), (2, 2048, "q8_0"),
                                 (7, 8193, "q4_0"), (1, 131072, "f8"), (5, 777, "q5_1")):
        options = ["--batch", str(batch), "--seq-len", str(tokens), "--engine", "transformers"]
        options += ["--kv-dtype", dtype] if dtype else []
        options += ["--dtype", "f16"] if config_dtype is None else []
        status, answer, error = estimate(path, *options)
        if status != 0:
            return [f"exit status {status}: {error}"]
        wanted = formulas.kv_bytes(name, batch, tokens, dtype or config_dtype or "f16")
        if answer["kv_cache_bytes"] != wanted:
            problems.append(f"batch {batch}, {tokens} tokens, {dtype}: KV {answer['kv_cache_bytes']}, wanted {wanted}")
        wanted = formulas.state_bytes(name, batch, config_dtype or "f16", path.endswith(".gguf"))
        if answer["state_bytes"] != wanted:
            problems.append(f"batch {batch}: state {answer['state_bytes']}, wanted {wanted}")
        if set(answer["lower_bounds"]) - {"activation_bytes"}:
            problems.append(f"coverage {answer['coverage']}: {answer['lower_bounds']}")
        total = sum(answer[key] for key in ("weight_bytes", "kv_cache_bytes", "state_bytes", "activation_bytes",
                                            "attention_workspace_bytes", "input_bytes", "overhead_bytes"))
        if answer["peak_bytes"] != total:
            problems.append(f"peak {answer['peak_bytes']}, parts {total}")
    return problems


def check_configurations(base):
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "architectures.json"), encoding="utf-8") as file:
        architectures = json.load(file)
    for name in formulas.KV:
        config = architectures[name]["config"]
        path = os.path.join(base, f"{name}.json")
        with open(path, "w", encoding="utf-8") as described:
            json.dump({"tensors": [{"name": "norm.weight", "dtype": "F32", "shape": [8]}], "config": config}, described)
        check(f"{name}: KV cache and state as published", compare(path, name, model_dtype(config)))
    check("no architecture without a formula", sorted(set(architectures) ^ set(formulas.KV)))


# ---- GGUF ----

def gguf_value(value):
    """Type and bytes: 4 u32, 7 bool, 8 text, 9 array."""
    if isinstance(value, bool):
        return 7, struct.pack("<?", value)
    if isinstance(value, int):
        return 4, struct.pack("<I", value)
    if isinstance(value, str):
        return 8, struct.pack("<Q", len(value)) + value.encode()
    items = [gguf_value(item) for item in value]
    return 9, struct.pack("<IQ", items[0][0], len(items)) + b"".join(item[1] for item in items)


def gguf(path, keys):
    """A file of version 3 with these keys and one tensor of 32 floats."""
    text = b"GGUF" + struct.pack("<IQQ", 3, 1, len(keys))
    for key, value in keys.items():
        kind, data = gguf_value(value)
        text += struct.pack("<Q", len(key)) + key.encode() + struct.pack("<I", kind) + data
    name = b"token_embd.weight"
    text += struct.pack("<Q", len(name)) + name + struct.pack("<IQIQ", 1, 32, 0, 0)
    text += b"\0" * (-len(text) % 32) + b"\0" * 128
    with open(path, "wb") as file:
        file.write(text)
    return path


def gguf_keys(arch, **keys):
    return {"general.architecture": arch, "tokenizer.ggml.tokens": ["a", "b", "c"],
            **{f"{arch}.{key.replace('__', '.')}": value for key, value in keys.items()}}


GGUF = {
    "llama-3-8b": gguf_keys("llama", block_count=32, embedding_length=4096, attention__head_count=32,
                            attention__head_count_kv=8, feed_forward_length=14336, context_length=8192,
                            rope__dimension_count=128),
    "gemma-3-4b": gguf_keys("gemma3", block_count=34, embedding_length=2560, attention__head_count=8,
                            attention__head_count_kv=4, attention__key_length=256, attention__value_length=256,
                            attention__sliding_window=1024, feed_forward_length=10240, context_length=131072),
    "deepseek-v3": gguf_keys("deepseek2", block_count=61, embedding_length=7168, attention__head_count=128,
                             attention__head_count_kv=1, attention__key_length=576, attention__value_length=512,
                             attention__key_length_mla=192, attention__value_length_mla=128,
                             attention__kv_lora_rank=512, rope__dimension_count=64, feed_forward_length=18432,
                             expert_feed_forward_length=2048, expert_count=256, expert_used_count=8,
                             leading_dense_block_count=3, context_length=163840),
    "jamba-v0.1": gguf_keys("jamba", block_count=32, embedding_length=4096, attention__head_count=32,
                            attention__head_count_kv=[8 if layer % 8 == 4 else 0 for layer in range(32)],
                            feed_forward_length=14336, ssm__conv_kernel=4, ssm__inner_size=8192, ssm__state_size=16,
                            ssm__time_step_rank=256, context_length=262144),
    "mamba-2.8b": gguf_keys("mamba", block_count=64, embedding_length=2560, feed_forward_length=0,
                            attention__head_count=0, ssm__conv_kernel=4, ssm__inner_size=5120, ssm__state_size=16,
                            ssm__time_step_rank=160, context_length=1048576),
    "gpt-oss-20b": gguf_keys("gpt-oss", block_count=24, embedding_length=2880, attention__head_count=64,
                             attention__head_count_kv=8, attention__key_length=64, attention__value_length=64,
                             attention__sliding_window=128, feed_forward_length=2880, expert_count=32,
                             expert_used_count=4, expert_feed_forward_length=2880, context_length=131072),
    "falcon-7b": gguf_keys("falcon", block_count=32, embedding_length=4544, attention__head_count=71,
                           attention__head_count_kv=1, feed_forward_length=18176, context_length=2048),
    "gemma-2-9b": gguf_keys("gemma2", block_count=42, embedding_length=3584, attention__head_count=16,
                            attention__head_count_kv=8, attention__key_length=256, attention__value_length=256,
                            attention__sliding_window=4096, feed_forward_length=14336, context_length=8192),
    "command-r7b": gguf_keys("cohere2", block_count=32, embedding_length=4096, attention__head_count=32,
                             attention__head_count_kv=8, attention__key_length=128, attention__value_length=128,
                             attention__sliding_window=4096, feed_forward_length=14336, context_length=131072),
    "qwen3-30b-a3b": gguf_keys("qwen3moe", block_count=48, embedding_length=2048, attention__head_count=32,
                               attention__head_count_kv=4, attention__key_length=128, attention__value_length=128,
                               feed_forward_length=6144, expert_count=128, expert_used_count=8,
                               expert_feed_forward_length=768, context_length=40960),
    "llama-4-scout": gguf_keys("llama4", block_count=48, embedding_length=5120, attention__head_count=40,
                               attention__head_count_kv=8, attention__key_length=128, attention__value_length=128,
                               attention__chunk_size=8192, interleave_moe_layer_step=1, feed_forward_length=16384,
                               expert_count=16, expert_used_count=1, expert_feed_forward_length=8192,
                               context_length=262144),
    "mixtral-8x7b": gguf_keys("llama", block_count=32, embedding_length=4096, attention__head_count=32,
                              attention__head_count_kv=8, feed_forward_length=14336, expert_count=8,
                              expert_used_count=2, context_length=32768, rope__dimension_count=128),
    "qwen3-next-80b-a3b": gguf_keys("qwen3next", block_count=48, embedding_length=2048, attention__head_count=16,
                                    attention__head_count_kv=2, attention__key_length=256, attention__value_length=256,
                                    feed_forward_length=5120, expert_count=512, expert_used_count=10,
                                    expert_feed_forward_length=512, expert_shared_feed_forward_length=512,
                                    ssm__conv_kernel=4, ssm__inner_size=4096, ssm__state_size=128,
                                    ssm__time_step_rank=32, ssm__group_count=16, context_length=262144),
    "gpt2": gguf_keys("gpt2", block_count=12, embedding_length=768, attention__head_count=12, feed_forward_length=3072,
                      context_length=1024),
    "nemotron-h-8b": gguf_keys(
        "nemotron_h", block_count=52, embedding_length=4096, attention__head_count=32, attention__key_length=128,
        attention__value_length=128, attention__head_count_kv=[8 if layer in (7, 18, 29, 40) else 0 for layer in range(52)],
        feed_forward_length=[21504 if c == "-" else 0
                             for c in "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-"],
        ssm__conv_kernel=4, ssm__inner_size=8192, ssm__state_size=128, ssm__group_count=8, ssm__time_step_rank=128,
        context_length=8192),
}


def check_gguf(base):
    for name, keys in GGUF.items():
        path = gguf(os.path.join(base, name + ".gguf"), keys)
        check(f"{name}: the same by GGUF's keys", compare(path, name, None))
    status, answer, _ = estimate(os.path.join(base, "llama-3-8b.gguf"))
    problems = [] if status == 0 else [f"exit status {status}"]
    if (answer["kv_dtype"], answer["seq_len"]) != ("f16", 8192):
        problems.append(f"{answer['kv_dtype']}, {answer['seq_len']} tokens")
    if not any("f16" in warning for warning in answer["warnings"]):
        problems.append(f"the type that is taken is not reported: {answer['warnings']}")
    check("GGUF: the type of the cache is llama.cpp's, and reported", problems)


# ---- large models ----

def llama_tensors(layers, hidden, heads_kv, width, vocab):
    kv = heads_kv * 128
    yield "model.embed_tokens.weight", [vocab, hidden]
    for layer in range(layers):
        prefix = f"model.layers.{layer}."
        for name, shape in (("self_attn.q_proj", [hidden, hidden]), ("self_attn.k_proj", [kv, hidden]),
                            ("self_attn.v_proj", [kv, hidden]), ("self_attn.o_proj", [hidden, hidden]),
                            ("mlp.gate_proj", [width, hidden]), ("mlp.up_proj", [width, hidden]),
                            ("mlp.down_proj", [hidden, width]), ("input_layernorm", [hidden]),
                            ("post_attention_layernorm", [hidden])):
            yield prefix + name + ".weight", shape
    yield "model.norm.weight", [hidden]
    yield "lm_head.weight", [vocab, hidden]


def deepseek_tensors():
    hidden, vocab = 7168, 129280
    yield "model.embed_tokens.weight", [vocab, hidden]
    for layer in range(61):
        prefix = f"model.layers.{layer}."
        for name, shape in (("self_attn.q_a_proj", [1536, hidden]), ("self_attn.q_b_proj", [128 * 192, 1536]),
                            ("self_attn.kv_a_proj_with_mqa", [576, hidden]), ("self_attn.kv_b_proj", [128 * 256, 512]),
                            ("self_attn.o_proj", [hidden, 128 * 128]), ("input_layernorm", [hidden]),
                            ("self_attn.q_a_layernorm", [1536]), ("self_attn.kv_a_layernorm", [512]),
                            ("post_attention_layernorm", [hidden])):
            yield prefix + name + ".weight", shape
        experts = [("mlp.", 18432)] if layer < 3 else [(f"mlp.experts.{i}.", 2048) for i in range(256)]
        experts += [("mlp.shared_experts.", 2048)] if layer >= 3 else []
        for name, width in experts:
            yield prefix + name + "gate_proj.weight", [width, hidden]
            yield prefix + name + "up_proj.weight", [width, hidden]
            yield prefix + name + "down_proj.weight", [hidden, width]
        if layer >= 3:
            yield prefix + "mlp.gate.weight", [256, hidden]
    yield "model.norm.weight", [hidden]
    yield "lm_head.weight", [vocab, hidden]


def sharded(base, name, config, shapes, shards):
    """A folder of sparse shards with their index; the bytes of all."""
    path = os.path.join(base, name)
    os.mkdir(path)
    with open(os.path.join(path, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file)
    tensors = []
    for tensor, shape in shapes:
        elements = 1
        for dim in shape:
            elements *= dim
        tensors.append((tensor, "BF16", shape, 2 * elements))
    index, total = {}, 0
    for shard in range(shards):
        part = tensors[shard * len(tensors) // shards:(shard + 1) * len(tensors) // shards]
        file = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        total += safetensors(os.path.join(path, file), part)
        index.update({tensor[0]: file for tensor in part})
    with open(os.path.join(path, "model.safetensors.index.json"), "w", encoding="utf-8") as file:
        json.dump({"metadata": {"total_size": total}, "weight_map": index}, file)
    return path, total, len(tensors)


def timed(path, *options):
    """The fastest of five runs in seconds of the processor, which others on the machine do not change, and by the
    clock; the largest in bytes; the answer."""
    best, clock, largest, answer = 1e9, 1e9, 0, None
    for _ in range(5):
        start = time.monotonic()
        process = subprocess.Popen([TOOL, "estimate", path, "--json", *options], stdout=subprocess.PIPE)
        answer = process.stdout.read()
        _, _, usage = os.wait4(process.pid, 0)
        process.returncode = 0
        best = min(best, usage.ru_utime + usage.ru_stime)
        clock = min(clock, time.monotonic() - start)
        largest = max(largest, usage.ru_maxrss * 1024)
    return best, clock, largest, json.loads(answer)


def check_large(base):
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "architectures.json"), encoding="utf-8") as file:
        architectures = json.load(file)
    sanitized = any(variant in os.path.basename(BUILD) for variant in ("asan", "tsan", "debug", "cov"))
    for name, shapes, shards in (("llama-3.1-70b", llama_tensors(80, 8192, 8, 28672, 128256), 30),
                                 ("deepseek-v3", deepseek_tensors(), 163)):
        config = dict(architectures[name]["config"])
        path, total, tensors = sharded(base, "large-" + name, config, shapes, shards)
        seconds, clock, memory, answer = timed(path, "--budget", "80GiB")
        print(f"# {name}: {tensors} tensors, {seconds * 1000:.1f} ms, by the clock {clock * 1000:.1f} ms, "
              f"{memory / MIB:.1f} MiB")
        problems = []
        if answer["weight_bytes"] != total or answer["parameters"] * 2 != total or answer["tensors"] != tensors:
            problems.append(f"{answer['weight_bytes']} bytes, {answer['parameters']} parameters, "
                            f"{answer['tensors']} tensors; wanted {total} bytes, {tensors} tensors")
        if not sanitized and seconds > 0.1:
            problems.append(f"{seconds:.3f} s")
        if not sanitized and memory > 64 * MIB:
            problems.append(f"{memory} bytes")
        check(f"{name}, {total >> 30} GiB: exact, in 100 ms and 64 MiB", problems)


with tempfile.TemporaryDirectory(prefix="gpucache-test.") as scratch:
    check_configurations(scratch)
    check_gguf(scratch)
    check_large(scratch)
sys.exit(finish())
