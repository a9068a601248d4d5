#!/usr/bin/env python3
"""The caches and states that llama.cpp makes for many architectures: writes llama_cpp_caches.jsonl.xz.
usage: llama_cpp_caches.py [NAME…]

Each model is a small GGUF file. Its keys are below; its tensors are those that llama.cpp asks for as it loads the file: a name
that is missing, then the shape that it expects. Then contexts are made, and the sizes in the log are kept. Needs no device, and
the package xllamacpp, as llama_cpp_measure.py."""
import ctypes
import json
import lzma
import os
import re
import sys
import tempfile

import llama_cpp
import llama_cpp_measure

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "llama_cpp_caches.jsonl.xz")
RUNS = ((8192, 1), (32768, 1), (2048, 4), (8192, 8))  # tokens of all sequences, sequences
ATTEMPTS = 1500
USUAL = {"block_count": 6, "context_length": 8192, "embedding_length": 512, "feed_forward_length": 1024,
         "attention.head_count": 8, "attention.head_count_kv": 2, "attention.layer_norm_rms_epsilon": 1e-5,
         "attention.layer_norm_epsilon": 1e-5, "rope.dimension_count": 64, "vocab_size": 64}
STATE = {"ssm.conv_kernel": 4, "ssm.inner_size": 1024, "ssm.state_size": 64, "ssm.time_step_rank": 16, "ssm.group_count": 2}
HEAD = {"attention.key_length": 64, "attention.value_length": 64}
EXPERTS = {"expert_count": 4, "expert_used_count": 2, "expert_feed_forward_length": 128}
LATENT = {"attention.q_lora_rank": 128, "attention.kv_lora_rank": 64, "rope.dimension_count": 32, "attention.key_length": 96,
          "attention.value_length": 64}
WINDOW = {"attention.sliding_window": 1024}
SECTIONS = {"rope.dimension_sections": [16, 24, 24, 0]}
# What differs from the usual; None: the key is left out.
MODELS = {
    "llama": ("llama", {}),
    "llama-window": ("llama", WINDOW),
    "qwen2": ("qwen2", {}),
    "qwen3": ("qwen3", HEAD),
    "phi3": ("phi3", {"rope.scaling.original_context_length": 4096}),
    "phi3-window": ("phi3", {**WINDOW, "rope.scaling.original_context_length": 4096}),
    "phimoe": ("phimoe", {**EXPERTS, **WINDOW, "rope.scaling.original_context_length": 4096}),
    "starcoder2": ("starcoder2", WINDOW),
    "gemma": ("gemma", HEAD),
    "gemma2": ("gemma2", {**HEAD, **WINDOW}),
    "gemma2-no-window": ("gemma2", HEAD),
    "gemma3": ("gemma3", {**HEAD, **WINDOW}),
    "gemma3-no-window": ("gemma3", HEAD),
    "gemma3n": ("gemma3n", {**HEAD, **WINDOW, "block_count": 30, "attention.shared_kv_layers": 10,
        "attention.sliding_window_pattern": [True, True, True, True, False] * 6, "embedding_length_per_layer_input": 64,
        "activation_sparsity_scale": [0.0] * 30}),
    "gemma-embedding": ("gemma-embedding", {**HEAD, **WINDOW}),
    "deepseek2": ("deepseek2", {**LATENT, **EXPERTS, "leading_dense_block_count": 1, "expert_shared_count": 1,
        "expert_weights_scale": 1.0, "attention.head_count_kv": 8}),
    "deepseek2-mla": ("deepseek2", {**LATENT, **EXPERTS, "leading_dense_block_count": 1, "expert_shared_count": 1,
        "expert_weights_scale": 1.0, "attention.head_count_kv": 1, "attention.key_length_mla": 64,
        "attention.value_length_mla": 48}),
    "deepseek": ("deepseek", {**HEAD, **EXPERTS, "leading_dense_block_count": 1, "expert_shared_count": 1,
        "expert_weights_scale": 1.0}),
    "minicpm3": ("minicpm3", {**LATENT, "attention.head_count_kv": 8}),
    "plm": ("plm", {**LATENT, "attention.head_count_kv": 8, "attention.q_lora_rank": None}),
    "minicpm": ("minicpm", {}),
    "t5": ("t5", {**HEAD, "attention.head_count_kv": 8, "attention.relative_buckets_count": 32,
        "decoder_start_token_id": 0}),
    "t5encoder": ("t5encoder", {**HEAD, "attention.head_count_kv": 8, "attention.relative_buckets_count": 32}),
    "dream": ("dream", {}),
    "llada": ("llada", {}),
    "mamba": ("mamba", {**STATE, "ssm.time_step_rank": 32, "ssm.group_count": None, "attention.head_count": 0,
        "attention.head_count_kv": None, "feed_forward_length": 0}),
    "mamba2": ("mamba2", {**STATE, "attention.head_count": 0, "attention.head_count_kv": None, "feed_forward_length": 0}),
    "rwkv6qwen2": ("rwkv6qwen2", {"wkv.head_size": 64, "token_shift_count": 1, "time_mix_extra_dim": 32,
        "time_decay_extra_dim": 64, "rescale_every_n_layers": 6}),
    "rwkv7": ("rwkv7", {"wkv.head_size": 64, "token_shift_count": 2, "attention.decay_lora_rank": 64,
        "attention.iclr_lora_rank": 64, "attention.value_residual_mix_lora_rank": 32, "attention.gate_lora_rank": 128,
        "attention.head_count": 0, "attention.head_count_kv": None}),
    "arwkv7": ("arwkv7", {"wkv.head_size": 64, "token_shift_count": 1, "attention.decay_lora_rank": 64,
        "attention.iclr_lora_rank": 64, "attention.value_residual_mix_lora_rank": 32, "attention.gate_lora_rank": 128,
        "attention.head_count": 0, "attention.head_count_kv": None}),
    "jamba": ("jamba", {**STATE, "ssm.time_step_rank": 32, "ssm.group_count": None,
        "attention.head_count_kv": [0, 0, 2, 0, 0, 2], "expert_count": 4, "expert_used_count": 2}),
    "falcon-h1": ("falcon-h1", {**STATE, **HEAD, "rope.dimension_count": 64}),
    "lfm2": ("lfm2", {"shortconv.l_cache": 3, "attention.head_count_kv": [0, 0, 2, 0, 2, 0]}),
    "lfm2moe": ("lfm2moe", {**EXPERTS, "shortconv.l_cache": 3, "attention.head_count_kv": [0, 0, 2, 0, 2, 0],
        "leading_dense_block_count": 2, "expert_gating_func": 2}),
    "granitehybrid": ("granitehybrid", {**STATE, "attention.head_count_kv": [0, 0, 2, 0, 0, 2], "attention.scale": 0.1,
        "residual_scale": 0.1, "embedding_scale": 1.0, "logit_scale": 1.0}),
    "granite": ("granite", {"attention.scale": 0.1, "residual_scale": 0.1, "embedding_scale": 1.0, "logit_scale": 1.0}),
    "plamo2": ("plamo2", {**STATE, "attention.head_count_kv": [0, 2, 0, 2, 0, 2], "attention.head_count": [0, 8, 0, 8, 0, 8],
        **HEAD}),
    "qwen3next": ("qwen3next", {**HEAD, **EXPERTS, "block_count": 8, "ssm.conv_kernel": 4, "ssm.inner_size": 512,
        "ssm.state_size": 64, "ssm.time_step_rank": 8, "ssm.group_count": 4, "expert_shared_feed_forward_length": 128}),
    "qwen35": ("qwen35", {**HEAD, "block_count": 8, "ssm.conv_kernel": 4, "ssm.inner_size": 512, "ssm.state_size": 64,
        "ssm.time_step_rank": 8, "ssm.group_count": 4, "rope.dimension_sections": [16, 16, 16, 0]}),
    "kimi-linear": ("kimi-linear", {**LATENT, **EXPERTS, "ssm.conv_kernel": 4, "kda.head_dim": 64,
        "attention.head_count_kv": [0, 0, 1, 0, 0, 1], "leading_dense_block_count": 1, "expert_shared_count": 1,
        "attention.key_length_mla": 64, "attention.value_length_mla": 64, "attention.q_lora_rank": None,
        "expert_gating_func": 2, "expert_weights_scale": 1.0}),
    "cohere2": ("cohere2", {**WINDOW, "logit_scale": 1.0, "block_count": 8}),
    "olmo2": ("olmo2", {}),
    "olmo2-window": ("olmo2", {**WINDOW, "block_count": 8}),
    "gpt-oss": ("gpt-oss", {**HEAD, **EXPERTS, "attention.sliding_window": 128}),
    "exaone4": ("exaone4", {**HEAD, "block_count": 64, **WINDOW}),
    "exaone4-small": ("exaone4", HEAD),
    "llama4": ("llama4", {**HEAD, **EXPERTS, "block_count": 8, "interleave_moe_layer_step": 2, "context_length": 65536}),
    "smallthinker": ("smallthinker", {**HEAD, **EXPERTS, "block_count": 8, "attention.sliding_window": 4096,
        "expert_gating_func": 2}),
    "glm4moe": ("glm4moe", {**HEAD, **EXPERTS, "block_count": 7, "nextn_predict_layers": 1, "leading_dense_block_count": 1,
        "expert_shared_count": 1}),
    "deci": ("deci", {"attention.head_count_kv": [2, 0, 2, 2, 0, 2], "attention.head_count": [8, 0, 8, 8, 0, 8],
        "feed_forward_length": [1024, 1024, 0, 1024, 1024, 1024]}),
    "openelm": ("openelm", {**HEAD, "attention.head_count": [8, 8, 12, 12, 16, 16],
        "attention.head_count_kv": [2, 2, 3, 3, 4, 4], "feed_forward_length": [512] * 6}),
    "gpt2": ("gpt2", {"attention.head_count_kv": 8}),
    "bloom": ("bloom", {"attention.head_count_kv": 8}),
    "falcon": ("falcon", {}),
    "mpt": ("mpt", {"attention.head_count_kv": 8, "attention.max_alibi_bias": 8.0}),
    "gptneox": ("gptneox", {"attention.head_count_kv": 8, "use_parallel_residual": True}),
    "stablelm": ("stablelm", {}),
    "command-r": ("command-r", {"logit_scale": 1.0}),
    "chatglm": ("chatglm", {}),
    "mimo2": ("mimo2", {**HEAD, **EXPERTS, "block_count": 6, "attention.head_count_kv": [2, 4, 4, 4, 4, 2],
        "attention.sliding_window": 128, "attention.sliding_window_pattern": [False, True, True, True, True, False],
        "attention.value_length": 32, "feed_forward_length": 1024}),
    "minimax-m2": ("minimax-m2", {**HEAD, **EXPERTS}),
    "afmoe": ("afmoe", {**HEAD, **EXPERTS, **WINDOW, "block_count": 8, "leading_dense_block_count": 2,
        "expert_shared_count": 1}),
    "ernie4_5": ("ernie4_5", HEAD),
    "hunyuan-moe": ("hunyuan-moe", {**HEAD, **EXPERTS, "expert_shared_feed_forward_length": 128}),
    "seed_oss": ("seed_oss", HEAD),
    **{name: (name, {}) for name in ("arcee", "baichuan", "bitnet", "exaone", "glm4", "hunyuan-dense", "internlm2", "jais2",
                                     "llama-embed", "nemotron", "olmo", "paddleocr", "smollm3", "xverse")},
    "qwen2vl": ("qwen2vl", SECTIONS),
    "qwen3vl": ("qwen3vl", {**HEAD, **SECTIONS}),
    "qwen3vlmoe": ("qwen3vlmoe", {**HEAD, **EXPERTS, **SECTIONS}),
    **{name: (name, HEAD) for name in ("maincoder", "mistral3", "pangu-embedded")},
    **{name: (name, {**HEAD, **EXPERTS}) for name in ("grok", "olmoe", "qwen3moe")},
    **{name: (name, {"attention.head_count_kv": 8})
       for name in ("codeshell", "jais", "orion", "phi2", "plamo", "qwen", "refact")},
    "granitemoe": ("granitemoe", {**HEAD, **EXPERTS, "attention.scale": 0.1, "residual_scale": 0.1, "embedding_scale": 1.0,
        "logit_scale": 1.0}),
    "starcoder": ("starcoder", {"attention.head_count_kv": 1}),
    "bailingmoe": ("bailingmoe", {**HEAD, **EXPERTS, "leading_dense_block_count": 1, "expert_shared_count": 1,
        "expert_weights_scale": 1.0}),
    "bailingmoe2": ("bailingmoe2", {**HEAD, **EXPERTS, "leading_dense_block_count": 1, "expert_shared_count": 1,
        "expert_weights_scale": 1.0, "expert_gating_func": 2, "expert_shared_feed_forward_length": 128}),
    "dots1": ("dots1", {**HEAD, **EXPERTS, "attention.head_count_kv": 8, "leading_dense_block_count": 1,
        "expert_shared_count": 1, "expert_weights_scale": 1.0, "expert_gating_func": 2}),
    "dbrx": ("dbrx", {**EXPERTS, "attention.clamp_kqv": 8.0}),
    "ernie4_5-moe": ("ernie4_5-moe", {**HEAD, **EXPERTS, "interleave_moe_layer_step": 1, "leading_dense_block_count": 1,
        "expert_shared_count": 1, "expert_shared_feed_forward_length": 128}),
    "exaone-moe": ("exaone-moe", {**HEAD, **EXPERTS, **WINDOW, "block_count": 8, "leading_dense_block_count": 1,
        "expert_shared_count": 1, "expert_gating_func": 2, "expert_weights_scale": 1.0}),
    "gemma4": ("gemma4", {**HEAD, **WINDOW, "block_count": 12, "attention.key_length_swa": 64, "attention.value_length_swa": 64,
        "attention.key_length": 128, "attention.value_length": 128, "attention.shared_kv_layers": 0,
        "attention.sliding_window_pattern": [True, True, True, True, True, False] * 2, "embedding_length_per_layer_input": 0}),
    "grovemoe": ("grovemoe", {**HEAD, **EXPERTS, "expert_chunk_feed_forward_length": 64, "expert_group_scale": 0.05,
        "experts_per_group": 2}),
    "mistral4": ("mistral4", {**LATENT, **EXPERTS, "leading_dense_block_count": 1, "expert_shared_count": 1,
        "expert_weights_scale": 1.0, "attention.head_count_kv": 1, "attention.key_length_mla": 64,
        "attention.value_length_mla": 48}),
    "nemotron_h": ("nemotron_h", {**STATE, **HEAD, "attention.head_count_kv": [0, 0, 2, 0, 0, 2],
        "feed_forward_length": [0, 1024, 0, 0, 1024, 0]}),
    "plamo3": ("plamo3", {**HEAD, **WINDOW, "block_count": 8}),
    "qwen2moe": ("qwen2moe", {**EXPERTS, "expert_shared_feed_forward_length": 128}),
    "qwen35moe": ("qwen35moe", {**HEAD, **EXPERTS, "block_count": 8, "ssm.conv_kernel": 4, "ssm.inner_size": 512,
        "ssm.state_size": 64, "ssm.time_step_rank": 8, "ssm.group_count": 4, "rope.dimension_sections": [16, 16, 16, 0],
        "expert_shared_feed_forward_length": 128}),
}


def attempt(library, path, run):
    """The log of a load and, with a run, of a context; in a process of its own, as a graph that fails ends it."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        log = os.fdopen(write, "w")
        callback = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(
            lambda _, line, __: (log.write(line.decode(errors="replace")), log.flush()))
        library.llama_log_set(callback, None)
        for number in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), number)
        params = library.llama_model_default_params()
        params.bytes[74] = 0  # use_extra_bufts
        model = library.llama_model_load_from_file(path.encode(), params)
        log.write("LOADED\n" if model else "")
        log.flush()
        if model and run:
            context = library.llama_context_default_params()
            for offset, value in ((0, run[0]), (8, 512), (12, run[1]), (52, 1), (104, 1), (108, 1)):
                llama_cpp_measure.put(context, offset, value)
            context.bytes[140] = 0  # swa_full
            library.llama_init_from_model(model, context)
        log.flush()
        os._exit(0)
    os.close(write)
    with os.fdopen(read, errors="replace") as file:
        log = file.read()
    os.waitpid(child, 0)
    return log


def find_tensors(library, path, arch, keys):
    """{name: dimensions}, or None where llama.cpp asks for something else."""
    tensors = {}
    for _ in range(ATTEMPTS):
        llama_cpp.write_file(path, arch, keys, tensors)
        log = attempt(library, path, None)
        if "LOADED" in log:
            return tensors
        missing = re.search(r"(?:missing tensor|check_tensor_dims: tensor) '([^']+)'(?: not found|\n|$)", log)
        shape = re.search(r"tensor '([^']+)' has wrong shape; expected ([\d, ]+), got", log)
        if missing:
            block = re.match(r"(blk\.)(\d+)(\..*)", missing[1])
            before = f"blk.{int(block[2]) - 1}{block[3]}" if block else ""
            tensors[missing[1]] = tensors.get(before, [1])
        elif shape:
            dims = [int(number) for number in shape[2].replace(" ", "").strip(",").split(",")]
            while len(dims) > 1 and dims[-1] == 1:
                dims.pop()
            tensors[shape[1]] = dims
        else:
            print(arch, log[-300:], flush=True)
            return None
    return None


def measure(library, name):
    arch, changes = MODELS[name]
    keys = {key: value for key, value in (USUAL | changes).items() if value is not None}
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.gguf")
        tensors = find_tensors(library, path, arch, keys)
        if tensors is None:
            return None
        runs = []
        for run in RUNS:
            log = attempt(library, path, run)
            sizes = [sum(map(float, re.findall(kind + r" buffer size = +([\d.]+) MiB", log))) for kind in ("KV", "RS")]
            runs.append([*run, *sizes])
    return {"name": name, "arch": arch, "keys": keys, "tensors": tensors, "runs": runs}


def main():
    library, rows = llama_cpp_measure.load(), {}
    if os.path.exists(DATA):
        with lzma.open(DATA, "rt") as file:
            rows = {row["name"]: row for row in map(json.loads, file)}
    for name in sys.argv[1:] or MODELS:
        rows[name] = measure(library, name)
        print(name, rows[name] and rows[name]["runs"], flush=True)
        with lzma.open(DATA, "wt") as file:
            file.writelines(json.dumps(rows[name]) + "\n" for name in MODELS if rows.get(name))


main()
