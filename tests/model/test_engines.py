#!/usr/bin/env python3
"""gpucache estimate --engine: each engine's rules against figures from outside, quantised files against published ones, and every offer run again.
Prints TAP."""
import json
import os
import random
import struct
import subprocess
import sys
import tempfile

import llama_cpp

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "formats"))
from tap import TOOL, check, finish  # noqa: E402

GIB, MIB = 1 << 30, 1 << 20


def equal(name, got, want):
    check(name, [] if got == want else [f"got {got}, wanted {want}"])


def run(path, *options):
    answer = subprocess.run([TOOL, "estimate", path, "--json", *map(str, options)], capture_output=True, text=True, check=False)
    return answer.returncode, json.loads(answer.stdout) if answer.stdout else {}


# ---- models ----

def folder(path, config, experts=0):
    """A Llama or Mixtral of this configuration, in bf16."""
    hidden, width, vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    head = config.get("head_dim", hidden // config["num_attention_heads"])
    queries, cached = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    tensors = [("model.embed_tokens.weight", (vocab, hidden)), ("lm_head.weight", (vocab, hidden)), ("model.norm.weight", (hidden,))]
    for layer in range(config["num_hidden_layers"]):
        tensors += [(f"model.layers.{layer}.{name}.weight", shape) for name, shape in
                    (("self_attn.q_proj", (queries, hidden)), ("self_attn.k_proj", (cached, hidden)), ("self_attn.v_proj", (cached, hidden)),
                     ("self_attn.o_proj", (hidden, queries)), ("input_layernorm", (hidden,)), ("post_attention_layernorm", (hidden,)))]
        parts = [f"block_sparse_moe.experts.{expert}.{name}" for expert in range(experts) for name in ("w1", "w3", "w2")] or \
                ["mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"]
        tensors += [(f"model.layers.{layer}.{name}.weight", (hidden, width) if name.endswith(("w2", "down_proj")) else (width, hidden)) for name in parts]
        if experts:
            tensors.append((f"model.layers.{layer}.block_sparse_moe.gate.weight", (experts, hidden)))
    header, offset = {}, 0
    for name, shape in tensors:
        size = 2
        for dim in shape:
            size *= dim
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    os.mkdir(path)
    with open(os.path.join(path, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file)
    text = json.dumps(header).encode()
    with open(os.path.join(path, "model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + offset)
    return path


LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "torch_dtype": "bfloat16", "hidden_size": 4096, "intermediate_size": 14336,
         "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 8192}
MIXTRAL = LLAMA | {"model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "num_local_experts": 8, "num_experts_per_tok": 2, "vocab_size": 32000,
                   "max_position_embeddings": 32768}
GEMMA = LLAMA | {"model_type": "gemma3_text", "architectures": ["Gemma3ForCausalLM"], "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34,
                 "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 262208, "sliding_window": 1024, "sliding_window_pattern": 6,
                 "max_position_embeddings": 131072}
GPT_OSS = LLAMA | {"model_type": "gpt_oss", "architectures": ["GptOssForCausalLM"], "hidden_size": 2880, "intermediate_size": 2880, "num_hidden_layers": 4,
                   "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64, "sliding_window": 128, "max_position_embeddings": 131072,
                   "layer_types": ["sliding_attention", "full_attention"] * 2, "num_local_experts": 4, "num_experts_per_tok": 4}
ALONE = {
    "deepseek-v2": {"model_type": "deepseek_v2", "architectures": ["DeepseekV2ForCausalLM"], "torch_dtype": "bfloat16", "hidden_size": 2048,
                    "intermediate_size": 10944, "moe_intermediate_size": 1408, "num_hidden_layers": 27, "num_attention_heads": 16, "num_key_value_heads": 16,
                    "kv_lora_rank": 512, "q_lora_rank": None, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "n_routed_experts": 64,
                    "n_shared_experts": 2, "num_experts_per_tok": 6, "first_k_dense_replace": 1, "vocab_size": 102400, "max_position_embeddings": 163840},
    "mamba2": {"model_type": "mamba2", "architectures": ["Mamba2ForCausalLM"], "torch_dtype": "bfloat16", "hidden_size": 4096, "num_hidden_layers": 64,
               "num_heads": 128, "head_dim": 64, "n_groups": 8, "state_size": 128, "vocab_size": 32768},
    "t5": {"model_type": "t5", "architectures": ["T5ForConditionalGeneration"], "torch_dtype": "float32", "d_model": 1024, "d_ff": 4096, "d_kv": 64,
           "num_heads": 16, "num_layers": 24, "vocab_size": 32128, "is_encoder_decoder": True},
    "bert": {"model_type": "bert", "architectures": ["BertForMaskedLM"], "torch_dtype": "float32", "hidden_size": 768, "intermediate_size": 3072,
             "num_hidden_layers": 12, "num_attention_heads": 12, "vocab_size": 30522, "max_position_embeddings": 512},
    "llava": {"model_type": "llava", "architectures": ["LlavaForConditionalGeneration"], "torch_dtype": "float16",
              "text_config": {"model_type": "llama", "vocab_size": 32064},
              "vision_config": {"model_type": "clip_vision_model", "hidden_size": 1024, "image_size": 336, "intermediate_size": 4096, "num_attention_heads": 16,
                                "num_hidden_layers": 24, "patch_size": 14, "projection_dim": 768}}}
SEED, ROUNDS = int(os.environ.get("SEED", "18")), int(os.environ.get("ROUNDS", "60"))

# GB of the files of Meta-Llama-3-8B-Instruct that bartowski published, made with an importance matrix: IQ4_XS is then smaller.
LLAMA_FILES = {"Q8_0": 8.54, "Q6_K": 6.60, "Q5_K_M": 5.73, "Q5_K_S": 5.60, "Q4_K_M": 4.92, "Q4_K_S": 4.69, "Q4_0": 4.66, "IQ4_XS": 4.45, "Q3_K_L": 4.32,
               "Q3_K_M": 4.02, "Q3_K_S": 3.66, "Q2_K": 3.18}


def check_files(llama):
    problems = []
    for name, wanted in LLAMA_FILES.items():
        _, answer = run(llama, "--engine", "llama.cpp", "--dtype", name.lower())
        size = (answer["weight_bytes"] + answer["host_weight_bytes"]) / 1e9
        if abs(size / wanted - 1) > 0.01:
            problems.append(f"{name}: {size:.3f} GB, published {wanted}")
        if answer["weights_as"] != name or (answer["dtype"], answer["kv_dtype"]) != ("f32", "f16"):
            problems.append(f"{name}: {answer['weights_as']}, {answer['dtype']}, {answer['kv_dtype']}")
    check("quantised files are of the published sizes", problems)
    # Q4_K_M, tensor by tensor: Q6_K in the output, and in v and down of the first and last eighth and each third layer between
    more = sum(layer < 4 or layer >= 28 or (layer - 4) % 3 == 2 for layer in range(32))
    v, down, rest = 1024 * 4096, 14336 * 4096, 2 * 4096 * 4096 + 1024 * 4096 + 2 * 14336 * 4096
    q4, q6 = 144 / 256, 210 / 256
    wanted = 32 * rest * q4 + (v + down) * (more * q6 + (32 - more) * q4) + 128256 * 4096 * (q4 + q6) + 4 * 65 * 4096
    _, answer = run(llama, "--engine", "llama.cpp", "--dtype", "Q4_K_M")
    equal("Q4_K_M: each layer's tensors", answer["weight_bytes"] + answer["host_weight_bytes"], int(wanted))
    _, plain = run(llama, "--engine", "vllm")
    layers = 32 * (2 * 4096 * 4096 + 2 * 1024 * 4096 + 3 * 14336 * 4096)
    kept = plain["weight_bytes"] - 2 * layers
    for name, numerator in (("fp8", 256), ("awq", 133), ("gptq", 133)):
        _, answer = run(llama, "--engine", "vllm", "--dtype", name)
        equal(f"{name}: embedding, output and norms stay as they are", answer["weight_bytes"], kept + layers * numerator // 256)
    notes = [[note for note in run(llama, "--engine", engine, "--dtype", name)[1]["warnings"] if "read files" in note]
             for engine, name in (("vllm", "awq"), ("vllm", "Q4_0"), ("llama.cpp", "Q4_0"), ("llama.cpp", "nf4"))]
    equal("files that an engine does not read: a note", notes, [[], ["vllm is not known to read files of Q4_0"], [],
                                                              ["llama.cpp is not known to read files of nf4"]])
    _, wide = run(llama, "--engine", "vllm", "--dtype", "f32")
    equal("a type that is asked for: no note of another", [note for note in wide["warnings"] if "in 16" in note], [])


# ---- engines ----

def check_choice(llama, gguf):
    found = [(run(path)[1]["engine"], run(path)[1]["engine_by_files"]) for path in (llama, gguf)]
    equal("the engine follows from the files", found, [("transformers", True), ("llama.cpp", True)])
    _, answer = run(gguf, "--engine", "transformers")
    equal("an engine that is named", (answer["engine"], answer["engine_by_files"], answer["host_weight_bytes"]), ("transformers", False, 0))
    refused = subprocess.run([TOOL, "estimate", llama, "--engine", "tgi"], capture_output=True, text=True, check=False)
    check("another word is refused", [] if refused.returncode == 2 and "transformers, vllm, llama.cpp, sglang, tensorrt-llm" in refused.stderr else [refused.stderr])
    text = subprocess.run([TOOL, "estimate", gguf], capture_output=True, text=True, check=True).stdout
    check("it is said", [] if "for inference alone, by llama.cpp (from the files)\n" in text else [text])


def check_graph(path):
    """A graph has no layers: an engine changes nothing, and that is said."""
    with open(path, "wb") as file:  # ModelProto: IR 8, a graph with y = Exp(x) of 1000 values, opset 17
        port = lambda name: b"\x0a\x01" + name + b"\x12\x0b\x0a\x09\x08\x01\x12\x05\x0a\x03\x08\xe8\x07"
        node = b"\x0a\x01x\x12\x01y\x22\x03Exp"
        graph = b"\x0a" + bytes([len(node)]) + node + b"\x12\x01g" + b"".join(tag + bytes([len(port(name))]) + port(name) for tag, name in ((b"\x5a", b"x"), (b"\x62", b"y")))
        file.write(b"\x08\x08\x3a" + bytes([len(graph)]) + graph + b"\x42\x02\x10\x11")
    _, plain = run(path, "--memory", "1GiB")
    _, asked = run(path, "--memory", "1GiB", "--engine", "vllm", "--gpu-layers", 1)
    equal("a graph: an engine changes nothing", [asked[key] for key in ("peak_bytes", "usable_bytes", "engine_by_files")],
          [plain[key] for key in ("peak_bytes", "usable_bytes", "engine_by_files")])
    check("a graph: that is said", [] if any("a graph has no layers" in note for note in asked["warnings"]) and asked["activation_bytes"] > 0 else [asked["warnings"]])


def check_vllm(llama, gemma):
    base = ("--engine", "vllm", "--overhead", "1", "--context-memory", "0")
    steps = [run(llama, *base, "--memory", f"{size}GiB")[1]["step_tokens"] for size in (24, 69, 70, 141, 180)]
    equal("vLLM: tokens of a step by the device", steps, [2048, 2048, 8192, 8192, 16384])
    equal("vLLM: a step that is asked for", run(llama, *base, "--chunk", 512)[1]["step_tokens"], 512)
    for memory, share in ((24, 0.92), (80, 0.92), (80, 0.5)):
        _, answer = run(llama, *base, "--memory", f"{memory}GiB", *([] if share == 0.92 else ["--utilisation", share]))
        usable = int(memory * GIB * share)
        beside = answer["peak_bytes"] - answer["kv_cache_bytes"]
        # 32 layers of 2 · 8 · 128 elements of 2 bytes for each of 16 tokens: 2 MiB
        wanted = (usable - beside) // (2 * MIB)
        check(f"vLLM: blocks of {memory} GiB at {share}", [] if abs(answer["kv_blocks"] - wanted) <= 1 and abs(answer["usable_bytes"] - usable) < 2
              else [f"{answer['kv_blocks']} blocks, wanted {wanted}; {answer['usable_bytes']} usable, wanted {usable}"])
    sizes = [run(llama, *base, "--seq-len", tokens)[1]["kv_cache_bytes"] for tokens in (1, 16, 17)]
    equal("vLLM: whole blocks of 16 tokens", sizes, [2 * MIB, 2 * MIB, 4 * MIB])
    # 29 of 34 layers keep min(1023 + two steps of 8192, tokens) tokens in blocks, and one block more; 5 keep all.
    _, answer = run(gemma, *base, "--memory", "80GiB", "--seq-len", 65536)
    row = 2 * 4 * 256 * 2
    equal("vLLM: windows with a step", answer["kv_cache_bytes"], row * (5 * 65536 + 29 * (17408 + 16)))
    room = answer["usable_bytes"] - (answer["peak_bytes"] - answer["kv_cache_bytes"])
    equal("vLLM: two kinds of layers share blocks", answer["kv_blocks"], room // (5 * 16 * row))
    equal("vLLM: 8-bit keys and values", run(llama, *base, "--kv-dtype", "f8")[1]["kv_cache_bytes"] * 2, run(llama, *base)[1]["kv_cache_bytes"])


def prompt_sizes(chunk):
    """Tokens of the prompts that SGLang records as graphs."""
    ranges = (range(4, 33, 4), range(48, 257, 16), range(288, 513, 32), range(576, 1025, 64), range(1280, 4097, 256), range(4608, chunk + 1, 512))
    return [size for sizes in ranges for size in sizes if size <= chunk]


def check_others(llama, gemma, gpt_oss):
    # The fraction that SGLang logs: 1 - max(512 + 1.5 · chunk + 2 · graphs + 8 · prompts + 128 · devices MiB, 10 GiB above 60) / memory
    for memory, chunk, graphs, devices in ((16, 2048, 8, 1), (24, 4096, 48, 1), (24, 4096, 160, 4), (48, 4096, 32, 2), (80, 8192, 256, 1), (141, 8192, 512, 4),
                                           (180, 16384, 512, 1)):
        _, answer = run(llama, "--engine", "sglang", "--memory", f"{memory}GiB", "--context-memory", 0, "--seq-len", 8192, "--batch", 4, "--split", "tensor",
                        "--devices", devices)
        reserve = 512 + 1.5 * chunk + 2 * graphs + 8 * len(prompt_sizes(chunk)) + 128 * devices
        reserve = max(reserve, 10240) if memory > 60 else reserve
        fraction = round(1 - reserve / (memory * 1024), 3)
        part = answer["devices"][0]
        work = part["peak_bytes"] - part["kv_cache_bytes"] - part["weight_bytes"]
        usable = memory * GIB - max(0, memory * GIB * (1 - fraction) - work)
        check(f"SGLang: {memory} GiB, {devices} devices", [] if answer["step_tokens"] == min(chunk, 4 * 8192) and abs(answer["usable_bytes"] - devices * usable) < 16
              else [f"{answer['step_tokens']} tokens, {answer['usable_bytes']} usable, wanted {devices * usable}"])
    base = ("--seq-len", 65536, "--memory", "141GiB")
    row = 2 * 4 * 256 * 2
    equal("windows without a pool: SGLang and TensorRT-LLM keep all tokens",
          [run(gemma, "--engine", engine, *base)[1]["kv_cache_bytes"] for engine in ("sglang", "tensorrt-llm")], [34 * 65536 * row] * 2)
    row = 2 * 8 * 64 * 2
    _, answer = run(gpt_oss, "--engine", "sglang", *base)
    equal("windows in SGLang's pool: 0.8 of the context", answer["kv_cache_bytes"], row * (2 * 65536 + 2 * int(0.8 * 65536)))
    room = answer["usable_bytes"] - (answer["peak_bytes"] - answer["kv_cache_bytes"])
    check("SGLang: tokens of the pool", [] if abs(answer["kv_blocks"] / (room / (row * 3.6)) - 1) < 2e-4 else [f"{answer['kv_blocks']} of {room / (row * 3.6)}"])
    _, answer = run(llama, "--engine", "tensorrt-llm", "--memory", "80GiB", "--context-memory", 0)
    free = 80 * GIB - (answer["peak_bytes"] - answer["kv_cache_bytes"])
    equal("TensorRT-LLM: steps and blocks", (answer["step_tokens"], answer["kv_block_tokens"]), (8192, 32))
    check("TensorRT-LLM: nine tenths of what is free", [] if abs(answer["kv_blocks"] - free * 0.9 // (4 * MIB)) <= 1 else [f"{answer['kv_blocks']} blocks"])
    _, whole = run(llama, "--batch", 2)
    equal("transformers: all tokens at once, no blocks", (whole["step_tokens"], whole["kv_block_tokens"], whole["graph_bytes"]), (None, 1, 0))
    # Measured on the meta device, by storages: cache and activations together, as the cache is a view of the whole prompt.
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "config.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"architectures": ["MistralForCausalLM"], "model_type": "mistral", "hidden_size": 1024, "intermediate_size": 3584,
                       "num_attention_heads": 16, "num_key_value_heads": 4, "num_hidden_layers": 32, "vocab_size": 32000,
                       "torch_dtype": "bfloat16", "sliding_window": 1024}, file)
        _, answer = run(path, "--seq-len", 16384)
        together = answer["kv_cache_bytes"] + answer["activation_bytes"] + answer["prompt_bytes"]
        check("transformers: the prompt behind the windows", [] if abs(together / 1027735808 - 1) < 0.01 else [str(together)])
        _, answer = run(path, "--seq-len", 16384, "--chunk", 512)
        equal("transformers: with chunks a chunk behind the windows", answer["prompt_bytes"], 32 * 511 * 2 * 4 * 64 * 2)


# ---- offers ----

OFFERS = {"largest_batch": ["--batch"], "largest_seq_len": ["--seq-len"], "largest_chunk": ["--chunk"], "resident_experts_per_layer": ["--resident-experts"],
          "fitting_kv_dtype": ["--kv-dtype"], "fitting_weights": ["--dtype"], "fewest_devices_tensor": ["--split", "tensor", "--devices"],
          "fewest_devices_layers": ["--split", "layers", "--devices"], "largest_gpu_layers": ["--gpu-layers"]}


def replaced(options, changed):
    """The options without those that the offer changes."""
    kept, skip = [], False
    for option in options:
        skip = option in changed or (skip and not option.startswith("--"))
        kept += [] if skip else [option]
    return kept


# Widest first. The engine decides which of them are offered.
KV_TYPES = ("f16", "q8_0", "f8_e4m3", "q5_1", "q5_0", "q4_1", "q4_0")
FILES = {True: ("Q8_0", "Q6_K", "Q5_K_M", "Q5_K_S", "Q4_K_M", "Q4_K_S", "Q4_0", "IQ4_XS", "Q3_K_L", "Q3_K_M", "Q3_K_S", "Q2_K"),
         False: ("fp8", "awq", "gptq", "nf4")}


def beyond(key, value, answer):
    """The value that is one further, which must not fit; None: there is none."""
    if key in ("fitting_kv_dtype", "fitting_weights"):
        names = KV_TYPES if key == "fitting_kv_dtype" else FILES[answer["engine"] == "llama.cpp"]
        at = names.index(value)
        return names[at - 1] if at > 0 else None
    if key == "fewest_devices_layers":
        return value - 1
    return value + 1 if isinstance(value, int) and not key.startswith("fewest") else None


def is_offered(key, name, answer, whole):
    """Whether the engine has the type, and it is smaller than the model's own."""
    if key == "fitting_weights":
        return whole["weight_bytes"] < answer["weight_bytes"]
    if key == "fitting_kv_dtype":
        is_f8 = name == "f8_e4m3"
        has = not is_f8 if answer["engine"] == "llama.cpp" else answer["engine"] == "transformers" or name in ("f8_e4m3", "f16")
        return has and whole["kv_cache_bytes"] < answer["kv_cache_bytes"]
    return True


def check_offers(path, options, budget, seen):
    """Each offer of a run, run again: it fits, and the next one does not."""
    problems = []
    options = [*map(str, options), "--budget", str(budget)]
    status, answer = run(path, *options)
    if status not in (0, 3):
        return [f"exit status {status}"]
    for key, names in OFFERS.items():
        value = answer[key]
        if value is None or (value == 0 and key != "resident_experts_per_layer") or (status == 0 and key == "fitting_kv_dtype"):
            continue
        seen[key] = seen.get(key, 0) + 1
        base = replaced(options, names)
        again, better = run(path, *base, *names, value)
        if again != 0 or not better["fits"]:
            problems.append(f"{key} {value}: exit status {again}")
        further = beyond(key, value, answer)
        if not further:
            continue
        next_status, whole = run(path, *base, *names, further)
        is_all = (key == "largest_seq_len" and value == answer_positions(path)) or (key == "resident_experts_per_layer" and value == answer["experts_per_layer"])
        if next_status == 0 and not is_all and is_offered(key, further, answer, whole):
            problems.append(f"{key}: {further} fits as well as {value}")
    return problems


def answer_positions(path):
    """The model's largest context."""
    return run(path)[1]["seq_len"]


def alone(base):
    """Configurations without weights: latent attention, states, encoder and decoder, an encoder, images."""
    for name, config in ALONE.items():
        path = os.path.join(base, name)
        os.mkdir(path)
        with open(os.path.join(path, "config.json"), "w", encoding="utf-8") as file:
            json.dump(config, file)
        yield path


def check_halved(bert):
    """Weights of 32 bits, which vLLM and SGLang load in 16."""
    notes = {}
    for engine in ("transformers", "vllm", "sglang", "llama.cpp"):
        answer = run(bert, "--engine", engine)[1]
        notes[engine] = any("in 16: --dtype f16" in note for note in answer["warnings"]) and "weight_bytes" in answer["approximate"]
    equal("weights of 32 bits: a note where they are loaded in 16", notes, {"transformers": False, "vllm": True, "sglang": True, "llama.cpp": False})


def check_random_offers(models, seed, rounds):
    """Models, engines, loads and budgets by chance."""
    pick = random.Random(seed)
    seen, problems = {}, []
    for _ in range(rounds):
        path = pick.choice(models)
        options = ["--engine", pick.choice(("transformers", "vllm", "llama.cpp", "sglang", "tensorrt-llm"))]
        for option, values in (("--batch", (1, 3, 16, 100)), ("--seq-len", (1, 17, 1000, 8192)), ("--chunk", (1, 100, 4096)), ("--utilisation", (0.3, 0.85, 1)),
                               ("--kv-dtype", ("f8", "q8_0", "f32")), ("--attention", ("full",)), ("--dtype", ("f32", "Q4_K_M", "fp8")), ("--gpu-layers", (0, 1, 5)),
                               ("--resident-experts", (0, 2))):
            if pick.random() < 0.25:
                options += [option, pick.choice(values)]
        if pick.random() < 0.3:
            options += ["--devices", pick.choice((2, 3, 4)), "--split", pick.choice(("layers", "tensor"))]
        status, whole = run(path, *options)
        if status != 0:
            problems.append(f"{os.path.basename(path)} {options}: exit status {status}")
            continue
        largest = max(device["peak_bytes"] for device in whole["devices"])
        budget = int(largest * pick.choice((0.2, 0.5, 0.8, 0.95, 1, 1.05, 2)))
        problems += [f"{os.path.basename(path)} {' '.join(map(str, options))} --budget {budget}: {problem}" for problem in check_offers(path, options, budget, seen)]
    print(f"# seed {seed}: {sum(seen.values())} offers")
    check(f"offers of {rounds} runs by chance, each run again", problems)


def check_all_offers(models):
    seen = {}
    for path, options, shares in models:
        _, whole = run(path, *options)
        for share in shares:
            budget = int(whole["peak_bytes"] * share)
            name = f"{os.path.basename(path)} {' '.join(map(str, options))}: offers at {share} of its peak"
            check(name, check_offers(path, options, budget, seen))
    equal("each kind of offer was made", sorted(seen), sorted(OFFERS))


def check_table(llama, gguf):
    answer = json.loads(subprocess.run([TOOL, "estimate", llama, "--table", "--json"], capture_output=True, text=True, check=True).stdout)
    rows = {row["weights_as"]: row for row in answer["weights"]}
    equal("table: types of transformers", list(rows), ["as they are", "f32", "bf16", "fp8", "awq", "gptq", "nf4"])
    equal("table: a type is as many bytes as its estimate's", [rows[name]["peak_bytes"] for name in ("f32", "awq")],
          [run(llama, "--dtype", name)[1]["peak_bytes"] for name in ("f32", "awq")])
    problems = [f"{name}: {row['device_gib']} GiB" for name, row in rows.items()
                if run(llama, *([] if name == "as they are" else ["--dtype", name]), "--memory", f"{row['device_gib']}GiB")[0] != 0]
    check("table: each fits in its device", problems)
    cache = {row["kv_dtype"]: row["8192"] for row in answer["kv_cache"]}
    equal("table: the cache by type", cache, {"f16": GIB, "f8_e4m3": GIB // 2})
    equal("table: lower bounds of each row", [row["lower_bounds"] for row in answer["weights"]], [[]] * len(rows))
    need = rows["as they are"]["peak_bytes"]
    equal("table: the verdict is of the weights as they are", [subprocess.run([TOOL, "estimate", llama, "--table", "--budget", str(budget)],
          capture_output=True).returncode for budget in (need, need - 1)], [0, 3])
    failed = subprocess.run([TOOL, "estimate", llama, "--table", "--batch", "1000000000", "--seq-len", "900000000"], capture_output=True, text=True)
    equal("table: a part beyond 64 bits is named, before the first line", [failed.returncode, failed.stdout, "_bytes: a size exceeds 64 bits" in failed.stderr],
          [1, "", True])
    text = subprocess.run([TOOL, "estimate", gguf, "--table", "--budget", "3500MiB"], capture_output=True, text=True, check=True).stdout
    check("table: within 80 columns, with a verdict", [line for line in text.splitlines() if len(line) > 80] + ([] if " yes\n" in text and " no\n" in text else [text]))
    check("table: it says for which load it is", [] if "\n  batch 1, context 131072, " in text and "by llama.cpp (from the files)\n" in text else [text])
    equal("table: the load", [answer[key] for key in ("batch", "seq_len")], [1, 8192])


def main():
    with tempfile.TemporaryDirectory() as base:
        llama = folder(os.path.join(base, "llama-3-8b"), LLAMA)
        mixtral = folder(os.path.join(base, "mixtral-8x7b"), MIXTRAL, 8)
        gemma = folder(os.path.join(base, "gemma-3-4b"), GEMMA)
        gpt_oss = folder(os.path.join(base, "gpt-oss"), GPT_OSS, 4)
        gguf, moe = os.path.join(base, "llama.gguf"), os.path.join(base, "moe.gguf")
        llama_cpp.write(gguf, "llama-3-8b")
        llama_cpp.write(moe, "qwen3-30b-a3b")
        check_files(llama)
        check_choice(llama, gguf)
        check_graph(os.path.join(base, "exp.onnx"))
        check_vllm(llama, gemma)
        check_others(llama, gemma, gpt_oss)
        check_all_offers([
            (llama, ["--batch", "8"], (0.5, 0.75, 0.95)), (llama, ["--engine", "vllm", "--batch", "64"], (0.4, 0.7, 0.97)),
            (llama, ["--engine", "llama.cpp", "--batch", "16"], (0.3, 0.6, 0.99)), (llama, ["--engine", "sglang", "--batch", "32"], (0.5, 0.8)),
            (llama, ["--engine", "tensorrt-llm", "--batch", "32"], (0.5, 0.8)), (mixtral, ["--seq-len", "8192"], (0.3, 0.6, 0.9)),
            (gemma, ["--engine", "vllm", "--batch", "32"], (0.5, 0.9)), (gguf, ["--seq-len", "8192", "--batch", "8"], (0.5, 0.7, 0.9)),
            (moe, ["--seq-len", "8192", "--batch", "4"], (0.6, 0.9)), (llama, ["--devices", "2", "--split", "tensor", "--batch", "32"], (0.3, 0.45))])
        others = list(alone(base))
        check_halved(others[list(ALONE).index("bert")])
        check_random_offers([llama, mixtral, gemma, gpt_oss, gguf, moe, *others], SEED, ROUNDS)
        check_table(llama, gguf)
    return finish()


sys.exit(main())
