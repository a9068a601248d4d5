#!/usr/bin/env python3
"""KV cache of every causal language model that transformers knows, by what its configuration class makes of itself
(families.json): equal, or reported as a lower bound. Then the same configurations without the words for each layer, as
older files are: the defaults of the family have to be known then, or be reported as missing."""
import json
import os
import struct
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
TOOL = os.path.join(os.environ.get("BUILD_DIR", os.path.join(ROOT, "build")), "gpucache")
LAYER_WORDS = ("layer_types", "layers_block_type")
# Without words for their layers they look like others: all of their files have them.
WORDS_NEEDED = ("minimax", "zamba")


def folder(base, name, config):
    path = os.path.join(base, name)
    os.mkdir(path)
    with open(os.path.join(path, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file)
    header = json.dumps({"w": {"dtype": "F32", "shape": [8], "data_offsets": [0, 32]}}).encode()
    with open(os.path.join(path, "model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header + bytes(32))
    return path


def problem_of(path, tokens, elements):
    """None if the cache is right, "bound" if it is reported as a lower bound, else what is wrong."""
    run = subprocess.run([TOOL, "estimate", path, "--json", "--seq-len", str(tokens), "--kv-dtype", "f16"],
                         capture_output=True, text=True, check=False)
    if run.returncode != 0:
        return f"exit status {run.returncode}: {run.stderr}"
    answer = json.loads(run.stdout)
    if answer["kv_cache_bytes"] == 2 * elements:
        return None
    if "kv_cache_bytes" in answer["lower_bounds"]:
        return "bound"
    return f"{tokens} tokens: {answer['kv_cache_bytes']}, wanted {2 * elements}"


def with_encoder(config, tokens, elements):
    """The classes count encoder-decoder models by the encoder's layers and without cross attention: here the decoder's, with
    keys and values for each of its own tokens and of the encoder's (Vaswani et al., 2017, section 3.2.3)."""
    if not config.get("is_encoder_decoder") or "decoder_layers" not in config:
        return elements
    return 2 * config["decoder_layers"] * config["d_model"] * (tokens + config.get("max_source_positions", tokens))


def without_words(config):
    kept = {key: value for key, value in config.items() if key not in LAYER_WORDS}
    if isinstance(kept.get("text_config"), dict):
        kept["text_config"] = without_words(kept["text_config"])
    return kept


def check(base, families, tokens):
    """Names by what is wrong with them."""
    answers = {}
    for name, family in families.items():
        path = folder(base, name, family["config"])
        for count, elements in zip(tokens, family["kv_elements"]):
            answers[name] = answers.get(name) or problem_of(path, count, with_encoder(family["config"], count, elements))
    return answers


def report(number, name, answers, exact_at_least):
    wrong = {family: answer for family, answer in answers.items() if answer not in (None, "bound")}
    bounds = sorted(family for family, answer in answers.items() if answer == "bound")
    exact = len(answers) - len(wrong) - len(bounds)
    passed = not wrong and exact >= exact_at_least
    print(f"{'ok' if passed else 'not ok'} {number} - {name}: {exact} of {len(answers)} exact, the others lower bounds")
    print(f"# lower bounds: {' '.join(bounds)}")
    for family, answer in wrong.items():
        print(f"# {family}: {answer}")
    return passed


def main():
    with open(os.path.join(HERE, "families.json"), encoding="utf-8") as file:
        data = json.load(file)
    families = data["families"]
    with tempfile.TemporaryDirectory(prefix="gpucache-test.") as base:
        passed = report(1, "families as their classes have them", check(base, families, data["tokens"]), 160)
    bare = {name: {**family, "config": without_words(family["config"])} for name, family in families.items()
            if without_words(family["config"]) != family["config"] and name not in WORDS_NEEDED}
    with tempfile.TemporaryDirectory(prefix="gpucache-test.") as base:
        passed &= report(2, "families without words for their layers", check(base, bare, data["tokens"]), 35)
    print("1..2")
    return 0 if passed else 1


sys.exit(main())
