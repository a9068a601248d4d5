#!/usr/bin/env python3
"""gpucache estimate against what llama.cpp allocates: llama_cpp.json, as llama_cpp_measure.py recorded it, the caches and states of
llama_cpp_caches.jsonl.xz, and figures that people published. Prints TAP.

llama.cpp's CPU backend has in one buffer what a device and the host divide: a step's inputs, which are its embeddings twice and the mask, are
in the host's. So a device's buffer is smaller by them, and by what lies beside the output: two more rows of the hidden size for each token.
3 % below that and 8 % above it are gaps between blocks."""
import json
import lzma
import os
import subprocess
import sys
import tempfile

import llama_cpp

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, "..", "formats"))
from tap import TOOL, check, finish  # noqa: E402

MIB = 1 << 20


def estimate(path, *options):
    answer = subprocess.run([TOOL, "estimate", path, "--json", *options], capture_output=True, text=True, check=True)
    return json.loads(answer.stdout)


def options_of(run):
    tokens, sequences, ubatch, flash, cache = run
    return ["--seq-len", str(tokens // sequences), "--batch", str(sequences), "--chunk", str(ubatch), "--kv-dtype", cache,
            "--attention", "flash" if flash else "full"]


def differences(path, model, measured):
    problems = []
    for one in measured["runs"]:
        answer = estimate(path, *options_of(one["run"]))
        tokens, sequences, ubatch, flash, _ = one["run"]
        step = min(ubatch, tokens)
        context = -(-tokens // sequences // 256) * 256
        inputs = step * (4 * 4 * model["hidden"] + context * (2 if flash else 4) * (2 if model["window"] else 1)) / MIB
        if abs(answer["kv_cache_bytes"] / MIB - one["kv_mib"]) > 0.01:
            problems.append(f"{one['run']}: cache {answer['kv_cache_bytes'] / MIB}, llama.cpp {one['kv_mib']}")
        compute = answer["activation_bytes"] / MIB
        if not one["compute_mib"] * 0.97 - inputs <= compute <= one["compute_mib"] * 1.08:
            problems.append(f"{one['run']}: compute {compute:.2f}, llama.cpp {one['compute_mib']} with inputs of {inputs:.2f}")
        if (answer["engine"], answer["engine_by_files"]) != ("llama.cpp", True):
            problems.append(f"engine {answer['engine']}")
    whole = answer["weight_bytes"] + answer["host_weight_bytes"]
    whole -= model["tied"] * answer["host_weight_bytes"]  # the output is the embedding: here one tensor
    if abs(whole / MIB - measured["model_mib"]) > 0.02:
        problems.append(f"weights {whole / MIB:.2f}, llama.cpp {measured['model_mib']}")
    return problems


# Published logs of CUDA devices: model, context, the embedding in host memory, the cache, the compute buffer, all MiB; None: not in the log.
# Qwen 2.5 3B: SciSharp/LLamaSharp issue 1099; Command R 35B: ggml-org/llama.cpp pull request 6122, on two devices.
PUBLISHED = {
    "qwen-2.5-3b": ({"layers": 36, "hidden": 2048, "width": 11008, "heads": 16, "kv_heads": 2, "vocab": 151936, "tied": True}, 4096, None, 144.0, 300.75),
    "command-r-35b": ({"layers": 40, "hidden": 8192, "width": 22528, "heads": 64, "kv_heads": 64, "vocab": 256000, "tied": True, "weights": "q6_k"}, 4096,
                      1640.62, 5120.0, None),
}


def check_published(folder):
    for name, (changes, tokens, host, cache, compute) in PUBLISHED.items():
        llama_cpp.MODELS[name] = changes
        path = os.path.join(folder, "published.gguf")
        llama_cpp.write(path, name)
        answer = estimate(path, "--seq-len", str(tokens))
        got = {"host_weight_bytes": host, "kv_cache_bytes": cache, "activation_bytes": compute}
        check(f"{name}: as a device's log", [f"{key} {answer[key] / MIB:.2f}, log {want}" for key, want in got.items()
                                            if want is not None and abs(answer[key] / MIB - want) > 0.02])


# llama.cpp makes a cache for it, though it generates nothing.
WITHOUT_CACHE = ("t5encoder",)


def check_caches(folder):
    """Keys and values, and states, of many architectures; the log has hundredths of a MiB, of each buffer."""
    path = os.path.join(folder, "cache.gguf")
    with lzma.open(os.path.join(HERE, "llama_cpp_caches.jsonl.xz"), "rt") as file:
        rows = [json.loads(line) for line in file]
    for row in rows:
        llama_cpp.write_file(path, row["arch"], row["keys"], row["tensors"])
        problems = []
        for tokens, sequences, cache, state in row["runs"]:
            answer = estimate(path, "--seq-len", str(tokens // sequences), "--batch", str(sequences))
            got = answer["kv_cache_bytes"] / MIB, answer["state_bytes"] / MIB
            wanted = (0, 0) if row["name"] in WITHOUT_CACHE else (cache, state)
            if max(abs(g - w) for g, w in zip(got, wanted)) > 0.011:
                problems.append(f"{tokens} tokens of {sequences}: cache and state {got}, llama.cpp {wanted}")
        check(f"{row['name']}: cache and state as llama.cpp's log", problems)


def check_unknown(folder):
    """An architecture that was not measured: the file's weights are exact, all else is told to be approximate."""
    path = os.path.join(folder, "unknown.gguf")
    answers = []
    for arch in ("llama", "foolm"):
        llama_cpp.write(path, "llama-3-8b")
        with open(path, "rb") as file:
            content = file.read()
        word = b"\x05\0\0\0\0\0\0\0"
        with open(path, "wb") as file:
            file.write(content.replace(b"llama.", arch.encode() + b".").replace(word + b"llama", word + arch.encode()))
        answers.append(estimate(path))
    problems = []
    for key in ("weight_bytes", "kv_cache_bytes"):
        if answers[0][key] != answers[1][key]:
            problems.append(f"{key}: {answers[1][key]}, as llama {answers[0][key]}")
    parts = {"weight_bytes", "kv_cache_bytes", "state_bytes", "activation_bytes"}
    told = [sorted(parts & set(answer["approximate"])) for answer in answers]
    if told != [[], ["activation_bytes", "kv_cache_bytes", "state_bytes"]]:
        problems.append(f"approximate {told}")
    if not any("foolm" in note for note in answers[1]["warnings"]):
        problems.append("no note")
    check("an architecture that was not measured is told", problems)


def check_layers(folder):
    """Layers in host memory: their weights and cache leave the device, one by one."""
    path = os.path.join(folder, "model.gguf")
    llama_cpp.write(path, "llama-3-8b")
    answers = [estimate(path, "--gpu-layers", str(layers)) for layers in range(6)]
    caches = [answer["kv_cache_bytes"] for answer in answers]
    sums = {answer["weight_bytes"] + answer["host_weight_bytes"] for answer in answers}
    problems = [] if len(sums) == 1 else [f"sums of weights {sums}"]
    if caches != [n * caches[5] // 4 for n in (0, 0, 1, 2, 3, 4)]:
        problems.append(f"caches {caches}")
    if answers[0]["weight_bytes"] != 0 or answers[1]["weight_bytes"] < 430e6:
        problems.append(f"weights {[answer['weight_bytes'] for answer in answers]}")
    check("layers on the device: the output first, then the last ones", problems)


def main():
    with open(os.path.join(HERE, "llama_cpp.json"), encoding="utf-8") as file:
        measured = json.load(file)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.gguf")
        check("all models are measured", sorted(set(llama_cpp.MODELS) ^ set(measured)))
        for name, answer in measured.items():
            model = llama_cpp.write(path, name)
            check(f"{name}: as llama.cpp's log", differences(path, model, answer))
        check_published(folder)
        check_layers(folder)
        check_unknown(folder)
        check_caches(folder)
    return finish()


sys.exit(main())
