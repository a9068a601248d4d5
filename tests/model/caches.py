#!/usr/bin/env python3
"""Measures the caches of the model types of transformers: each is built on the meta device with few layers, as its class
makes it and with single values of its configuration changed, and run once with a cache. Needs torch and transformers; the
test beside it needs neither.

usage: caches.py [KIND|KIND.TYPE...]   (KIND: causal s2s vlm speech base), measures these again, or all, into
caches.jsonl.xz beside this file
"""
import inspect
import json
import lzma
import os
import re
import signal
import sys
import warnings

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
import torch  # noqa: E402
import transformers  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from transformers.models.auto import modeling_auto  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "scripts", "architectures"))
import frames_run  # noqa: E402
DATA = os.path.join(HERE, "caches.jsonl.xz")
MAPS = {"causal": "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES", "s2s": "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
        "vlm": "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES", "speech": "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES",
        "base": "MODEL_MAPPING_NAMES"}
LAYERS = 6
WORK = ((1, 512), (2, 3000))  # sequences, tokens
COUNTS = re.compile(r"^(num_hidden_layers|n_layers?|num_layers|encoder_layers|decoder_layers|num_(de|en)coder_layers)$")
TEXT = ("text_config", "llm_config", "language_config", "thinker_config", "decoder")
CACHES = ("past_key_values", "cache_params", "state", "mems", "past_buckets_states", "past_key_value")
# What does not bear on the cache, kept out for size.
WITHOUT = re.compile(r"id2label|label2id|_name_or_path|transformers_version|dropout|initializer|_eps$|return_dict|output_|"
                     r"problem_type|chunk_size_feed|^rope_|_act$|hidden_act|_scal|_cap$|softcap|epsilon|^dtype$|layerdrop|"
                     r"_drop|_prob$|_range$|_std$|_bias$|activation|_coef$|_theta$|temperature|classifier|_loss|norm_|"
                     r"(bos|eos|pad|cls|sep|image|audio|video)_token")


def attention(module, query, key, value, attention_mask=None, scaling=None, dropout=0.0, **rest):
    """Attention that makes its result alone."""
    del module, key, attention_mask, scaling, dropout, rest
    return query.new_empty((query.shape[0], query.shape[2], query.shape[1], value.shape[3])), None


def fewer_layers(config, inner=False):
    """The changes that leave LAYERS layers."""
    changes = {}
    for key, value in config.items():
        if isinstance(value, dict) and isinstance(key, str) and not key.endswith("parameters"):
            nested = fewer_layers(value, True)
            if nested:
                changes[key] = nested
        elif isinstance(key, str) and COUNTS.match(key) and isinstance(value, int) and value > LAYERS:
            changes[key] = LAYERS
    if changes and inner and "model_type" in config:
        changes["model_type"] = config["model_type"]
    return changes


def text_path(config):
    for key in TEXT:
        if isinstance(config.get(key), dict):
            return (key,) + text_path(config[key])
    return ()


def changed(config, base, path, **values):
    changes = json.loads(json.dumps(base))
    at = changes
    for key in path:
        at, config = at.setdefault(key, {}), config[key]
        if "model_type" in config:
            at["model_type"] = config["model_type"]
    at.update(values)
    return changes


def variants(kind, name):
    """Pairs of a label and changes of the configuration."""
    config = transformers.AutoConfig.for_model(name).to_dict()
    base, path = fewer_layers(config), text_path(config)
    for key, value in frames_run.PRESETS.get(name, {}).items():
        *objects, last = key.split(".")
        base = changed(config, base, objects, **{last: value})
    yield "", base
    if kind == "base":
        return
    text = config
    for key in path:
        text = text[key]
    heads = [text[key] for key in ("num_attention_heads", "n_head", "n_heads", "num_heads") if isinstance(text.get(key), int)]
    if isinstance(text.get("num_key_value_heads"), int) and heads:
        other = heads[0] // 2 if heads[0] % 2 == 0 and text["num_key_value_heads"] != heads[0] // 2 else 1
        yield "+kv", changed(config, base, path, num_key_value_heads=other)
    if "sliding_window" in text:
        yield "+window", changed(config, base, path, sliding_window=100)
    for key in ("head_dim", "d_kv", "num_global_key_value_heads", "global_head_dim", "attention_head_dim"):
        if isinstance(text.get(key), int):
            yield "+" + key, changed(config, base, path, **{key: text[key] * 2})
    kinds = text.get("layer_types")
    if isinstance(kinds, list) and len(set(kinds)) > 1:
        words = sorted(set(kinds))
        yield "+types", changed(config, base, path, layer_types=[words[i * i % len(words)] for i in range(LAYERS)])
    for key in ("hidden_size", "n_embd", "d_model"):
        if isinstance(text.get(key), int):
            yield "+hidden", changed(config, base, path, **{key: text[key] * 2})
            return


def tensors_of(model):
    """[pattern, dimensions..., runs of layers] of each, tied ones once; biases are left out."""
    found = {}
    for name, tensor in model.named_parameters():
        if tensor.dim() < 2 and "A_log" not in name:
            continue
        number = re.search(r"(?<=\.)\d+(?=\.)", name)
        pattern = re.sub(r"(?<=\.)\d+(?=\.)", "{}", name, count=1)
        found.setdefault((pattern, tuple(tensor.shape)), []).append(int(number.group()) if number else -1)
    rows = []
    for (pattern, shape), numbers in found.items():
        runs = []
        for number in sorted(set(numbers)):
            if runs and runs[-1][1] == number - 1:
                runs[-1][1] = number
            else:
                runs.append([number, number])
        rows.append([pattern, list(shape)] + ([] if numbers[0] < 0 else [runs]))
    return rows


def bytes_of(value, seen, depth=0):
    """Of all tensors in an object, views of the same memory once."""
    if isinstance(value, torch.Tensor):
        memory = value.untyped_storage()._cdata
        view = (memory, value.storage_offset(), tuple(value.shape))
        if memory in seen or view in seen:
            return 0
        seen.add(view)
        return value.numel() * value.element_size()
    if id(value) in seen or depth > 6 or isinstance(value, torch.nn.Module):
        return 0
    if isinstance(value, (list, tuple)):
        parts = value
    elif isinstance(value, dict):
        parts = value.values()
    elif hasattr(value, "__dict__"):
        parts = vars(value).values()
    else:
        return 0
    seen.add(id(value))
    return sum(bytes_of(part, seen, depth + 1) for part in parts)


class Answers(TorchDispatchMode):
    """A value where tensors have none: a mask is all ones, a length the least."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten._local_scalar_dense.default:
            return args[0].dtype == torch.bool or 0
        return func(*args, **(kwargs or {}))


def call(model, given):
    while True:
        try:
            with torch.no_grad(), Answers():
                return model(**given)
        except TypeError as error:
            unknown = re.search(r"unexpected keyword argument '(\w+)'", str(error))
            if not unknown or given.pop(unknown.group(1), None) is None:
                raise


def run(model, kind, batch, tokens):
    """Bytes of the cache after one pass."""
    try:
        return cache_of(model, output_of(model, batch, tokens))
    except Exception as error:
        for more in frames_run.MORE:  # images, boxes or sound
            try:
                given = frames_run.inputs(kind, model.config, model, batch, tokens, more)
                return cache_of(model, call(model, {**given, "use_cache": True}))
            except Exception:
                continue
        raise error


def output_of(model, batch, tokens):
    """An encoder that does not take tokens is left out: its output is given, as long as the configuration has it, else as
    the context."""
    ids = torch.zeros((batch, tokens), dtype=torch.long, device="meta")
    if not model.config.is_encoder_decoder:
        return call(model, {"input_ids": ids, "use_cache": True})
    try:
        return call(model, {"input_ids": ids, "decoder_input_ids": ids, "use_cache": True})
    except Exception:
        source = getattr(model.config, "max_source_positions", None) or tokens
        width = getattr(getattr(model.config, "encoder", model.config), "hidden_size")
        encoded = torch.zeros((batch, source, width), dtype=torch.bfloat16, device="meta")
        return call(model, {"decoder_input_ids": ids, "use_cache": True,
                            "encoder_outputs": transformers.modeling_outputs.BaseModelOutput(last_hidden_state=encoded)})


def cache_of(model, out):
    seen = {tensor.untyped_storage()._cdata for tensor in [*model.parameters(), *model.buffers()]}
    kept = sum(bytes_of(getattr(out, name, None), seen) for name in CACHES)
    if kept == 0 and any(hasattr(module, "recurrent_states") for module in model.modules()):
        raise RuntimeError("kept in its modules")
    return kept


def takes_cache(model):
    """A module has a use for one, and the model takes one or generates: else none is kept for a next token."""
    names = {"layer_past", "cache", "use_cache", *CACHES}
    takes = {module: bool(names & set(inspect.signature(module.forward).parameters)) for module in model.modules()}
    return any(takes.values()) and (takes[model] or model.can_generate())


def measure_as(kind, name, changes, way):
    names = getattr(modeling_auto, MAPS[kind])[name]
    class_name = names if isinstance(names, str) else names[0]
    config = transformers.AutoConfig.for_model(name, **changes)
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device("meta"):
            config._attn_implementation = way
            model = getattr(transformers, class_name)._from_config(config).eval()
    finally:
        torch.set_default_dtype(torch.float32)
    described = json.loads(model.config.to_json_string(use_diff=False))
    described.update(architectures=[class_name], model_type=name)
    given = trimmed(json.loads(transformers.AutoConfig.for_model(name, **changes).to_json_string(use_diff=False)))
    row = {"class": class_name, "config": trimmed(described), "tensors": tensors_of(model), "cache": {}}
    if {**given, "architectures": [class_name], "model_type": name} == row["config"]:  # else the class changes its configuration
        row["changes"] = changes
    for batch, tokens in WORK:
        try:
            row["cache"][f"{batch},{tokens}"] = run(model, kind, batch, tokens)
        except Exception as error:  # a type that needs other inputs, or does not run on the meta device
            row["error"] = f"{type(error).__name__}: {error}"[:200]
    if not row["cache"] and not takes_cache(model):
        row["cache"] = {f"{batch},{tokens}": 0 for batch, tokens in WORK}
    elif not row["cache"]:
        row["keeps"] = True
    return row


def trimmed(config):
    kept = {}
    for key, value in config.items():
        value = trimmed(value) if isinstance(value, dict) else value
        if value is not None and value not in ({}, []) and not WITHOUT.search(key):
            kept[key] = value
    return kept


def measure(kind, name, changes, label):
    """By the attention that makes little, else by transformers' own; with all layers if it has to be."""
    best = None
    for way in ("little", "eager"):
        for change in ([changes] if label else [changes, {}]):
            try:
                row = measure_as(kind, name, change, way)
            except Exception as error:
                best = best or {"error": f"{type(error).__name__}: {error}"[:200]}
                continue
            if row["cache"]:
                return row
            best = row
    return best


def child(pipe, kind, name):
    with os.fdopen(pipe, "w") as out:
        try:
            for label, changes in variants(kind, name):
                out.write(json.dumps({"key": f"{kind}.{name}{label}", **measure(kind, name, changes, label)}) + "\n")
                out.flush()
        except Exception as error:
            out.write(json.dumps({"key": f"{kind}.{name}", "error": str(error)[:200]}) + "\n")


def rows_of(kind, name):
    """In a process of its own, for 90 seconds."""
    read, write = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(read)
        signal.alarm(90)
        child(write, kind, name)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as lines:
        rows = [json.loads(line) for line in lines if line.endswith("}\n")]
    os.waitpid(process, 0)
    return rows or [{"key": f"{kind}.{name}", "error": "no answer"}]


def old_rows():
    if not os.path.exists(DATA):
        return {}
    with lzma.open(DATA, "rt") as file:
        return {row["key"]: row for row in map(json.loads, file)}


def main():
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    transformers.AttentionInterface.register("little", attention)
    names = [f"{kind}.{name}" for kind, mapping in MAPS.items() for name in getattr(modeling_auto, mapping)]
    wanted = [name for name in names if len(sys.argv) == 1 or {name, name.split(".")[0]} & set(sys.argv[1:])]
    kept = {key: row for key, row in old_rows().items() if key.split("+")[0] not in wanted}
    for name in wanted:
        rows = rows_of(*name.split(".", 1))
        print(name, len(rows), rows[0].get("error", ""), flush=True)
        kept.update((row["key"], row) for row in rows)
    with lzma.open(DATA, "wt") as file:
        file.writelines(json.dumps(row, separators=(",", ":")) + "\n" for _, row in sorted(kept.items()))


main()
