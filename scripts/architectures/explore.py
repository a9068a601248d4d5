"""Builds model types of transformers on the meta device, with configurations changed in one value and in many.

A probe is one such model: the values of its completed configuration, and its tensors by pattern (a name with "{}" for
each number in it), shape and fixed type. Values are flat: "text_config.hidden_size"."""

import inspect
import itertools
import math
import random
import re
import signal
import sys
import time

import torch
import transformers
from transformers.models.auto import modeling_auto

from frames_run import PRESETS

MAPPINGS = {
    "causal": "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
    "vlm": "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES",
    "multimodal": "MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES",
    "s2s": "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
    "speech": "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES",
    "base": "MODEL_MAPPING_NAMES",
    "masked": "MODEL_FOR_MASKED_LM_MAPPING_NAMES",
    "image": "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES",
    "sequence": "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES",
}
# Values that no tensor's size depends on.
IGNORED = re.compile(
    r"(token_id|_token_index|initializer|transformers_version|max_length|num_beams|chunk_size_feed|return_|"
    r"output_(att|hid|past)|use_cache|torchscript|is_encoder_decoder|problem_type|dropout|drop|eps$|epsilon|temperature|"
    r"min_length|num_return|diversity|bos|eos|pad_token|id2label|label2id|pretraining_tp|router_jitter|aux_loss|loss_|"
    r"_id$|rope_theta|_range$|_std$|softcap|scaling$|rope_parameters|dtype|_factor_min|^architectures$|\.architectures$|"
    r"model_type$|_attn_implementation|_name_or_path|generation_config|quantization_config|special_tokens|image_mean|"
    r"image_std|^suppress_tokens|begin_suppress|attention_types|time_step_limit)"
)
LAYERS = re.compile(
    r"(^|\.)(num_hidden_layers|n_layers?|num_layers|encoder_layers|decoder_layers|num_decoder_layers|"
    r"num_encoder_layers|num_block|num_blocks)$"
)
SIZE = re.compile(r"(size|dim|heads|rank|inner|kernel|experts|d_ff|kv|_lora|width|layers)")
WORDS = {
    "feed_forward_proj": ["gated-gelu", "relu"],
    "position_embedding_type": ["relative_key", "rotary", "absolute"],
    "feed_forward_type": ["gated"],
}
OTHER_WORDS = ["relu", "gelu", "silu", "auto", "none", "rms_norm", "layer_norm", "batch", "group"]
# Of an object whose tensors are another type's: the values that tensors outside may follow.
MATTERS = re.compile(r"(hidden_size|vocab|d_model|dim|width|image_size|patch|layers|channels|size)s?$")
FIXED = {
    torch.float32: "F32",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.bool: "BOOL",
    torch.uint8: "U8",
    torch.complex64: "C64",
    torch.float64: "F64",
}


class Slow(Exception):
    """A model took too long to build."""


def _alarm(*_):
    raise Slow


signal.signal(signal.SIGALRM, _alarm)


def flatten(config, prefix=""):
    out = {}
    for key, value in config.items():
        if not isinstance(key, str) or (IGNORED.search(key) and not isinstance(value, dict)) or key == "rope_parameters":
            continue
        if isinstance(value, dict):
            out.update(flatten(value, prefix + key + "."))
        else:
            out[prefix + key] = value
    return out


def nested_types(config, prefix=""):
    """The objects with a model_type of their own: {"text_config": "llama"}."""
    out = {}
    for key, value in config.items():
        if isinstance(value, dict):
            if value.get("model_type"):
                out[prefix + key] = value["model_type"]
            out.update(nested_types(value, prefix + key + "."))
    return out


class Probe:
    def __init__(self, over, flat, tensors):
        self.over, self.flat, self.tensors = over, flat, tensors
        self.patterns = {}

    def by(self, pattern_of):
        """{pattern: {(shape, type): count}}"""
        key = pattern_of
        if key not in self.patterns:
            out = {}
            for name, shape, dtype in self.tensors:
                row = out.setdefault(pattern_of(name), {})
                row[(shape, dtype)] = row.get((shape, dtype), 0) + 1
            self.patterns[key] = out
        return self.patterns[key]


class Type:
    def __init__(self, kind, name, plain=False):
        """With `plain` objects are left to the outer class, which may give them other values than their own."""
        classes = getattr(modeling_auto, MAPPINGS[kind])[name]
        self.kind, self.name = kind, name
        self.architecture = classes if isinstance(classes, str) else classes[0]
        self.model_class = getattr(transformers, self.architecture)
        self.given = transformers.AutoConfig.for_model(name).to_dict()
        self.nested = {} if plain else nested_types(self.given)
        self.base, self.reads = self.given, []
        try:  # as in files: an object is there, and its class gives what it lacks
            completed = transformers.AutoConfig.for_model(name, **self._nest({})).to_dict()
            self.look({})
            self.base = completed
        except Exception:
            self.nested = {}
        self.reads = self._reads()
        self.included = {}
        self._include()

    def _reads(self):
        """Values that the model's code takes where a configuration has them, though its class does not know them."""
        code = inspect.getsource(sys.modules[self.model_class.__module__])
        known = inspect.getsource(type(transformers.AutoConfig.for_model(self.name)))
        names = set(re.findall(r"""getattr\(\s*(?:self\.)?\w*config\w*,\s*["'](\w+)["']""", code))
        flat = flatten(self.base)
        return sorted(n for n in names if n not in flat and not IGNORED.search(n) and not re.search(rf"\b{n}\b", known))

    def _include(self):
        """Finds the objects whose type's model without a head is a part of this model: its tensors are left out, and
        `included` has their prefix."""
        if not self.nested:
            return
        config = transformers.AutoConfig.for_model(self.name, **self._nest({}))
        wholes = {n: s for n, s, _ in self.look({}).tensors}
        for key, type_ in sorted(self.nested.items(), key=lambda kv: kv[0].count(".")):
            if type_ not in modeling_auto.MODEL_MAPPING_NAMES or any(key.startswith(k + ".") for k in self.included):
                continue
            prefix = self._prefix(config, key, type_, wholes)
            if prefix:
                self.included[key] = prefix

    def _prefix(self, config, key, type_, wholes):
        classes = modeling_auto.MODEL_MAPPING_NAMES[type_]
        for part in key.split("."):
            config = getattr(config, part)
        signal.alarm(15)
        try:
            with torch.device("meta"):
                part_class = getattr(transformers, classes if isinstance(classes, str) else classes[0])
                parts = tensors_of(part_class._from_config(config, dtype=torch.bfloat16), torch.bfloat16)
        except Exception:
            return None
        finally:
            signal.alarm(0)
        name, shape, _ = parts[0] if parts else (None, None, None)
        for whole in sorted(wholes, key=len):
            if parts and whole.endswith("." + name):
                prefix = whole[: -len(name)]
                own = {n for n in wholes if n.startswith(prefix)}
                if own == {prefix + n for n, _, _ in parts} and all(wholes[prefix + n] == s for n, s, _ in parts):
                    return prefix
        return None

    def _nest(self, over):
        over = {**PRESETS.get(self.name, {}), **over}
        out = {}
        for path in sorted(self.nested, key=len):
            at = out
            *parents, last = path.split(".")
            for parent in parents:
                at = at.setdefault(parent, {})
            at[last] = {"model_type": self.nested[path]}
        for key, value in over.items():
            at, base = out, self.base
            *parents, last = key.split(".")
            for parent in parents:
                base = base.get(parent) or {}
                if parent not in at:
                    at[parent] = {"model_type": base["model_type"]} if "model_type" in base else dict(base)
                at = at[parent]
            at[last] = value
        return out

    def look(self, over, seconds=15, dtype=torch.bfloat16):
        signal.alarm(seconds)
        try:
            config = transformers.AutoConfig.for_model(self.name, **self._nest(over))
            with torch.device("meta"):
                config._attn_implementation = "eager"
                model = self.model_class._from_config(config, dtype=dtype)
        finally:
            signal.alarm(0)
        tensors = tensors_of(model, dtype)
        if getattr(self, "included", None):
            prefixes = tuple(self.included.values())
            tensors = [t for t in tensors if not t[0].startswith(prefixes)]
        flat = {**dict.fromkeys(self.reads), **flatten(config.to_dict())}
        if self.kind in ("image", "sequence"):
            flat["num_labels"] = config.num_labels  # files have it as the entries of id2label
        return Probe(over, flat, tensors)


def tensors_of(model, dtype):
    """Stored tensors, tied ones once: (name, shape, fixed type or None)."""
    out = [(n, tuple(p.shape), FIXED.get(p.dtype) if p.dtype != dtype else None) for n, p in model.named_parameters()]
    for prefix, module in model.named_modules():
        for name, buffer in module._buffers.items():
            if buffer is not None and name not in module._non_persistent_buffers_set:
                full = f"{prefix}.{name}" if prefix else name
                out.append((full, tuple(buffer.shape), FIXED.get(buffer.dtype) if buffer.dtype != dtype else None))
    return out


def candidates(key, value):
    """Other values to try for a value."""
    last = key.split(".")[-1]
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int) and LAYERS.search(key):
        return [x for x in (value + 1, value * 2, value - 3, value * 3, value - 1, value + 2) if x > 0]
    if isinstance(value, int):
        near = (value * 2, value * 3, value // 2, value + 1, value * 5, value - 1, 3 * value // 2, value + 7, 1, 2, 3, 4, 0)
        return [x for x in near if x != value and x >= 0]
    if isinstance(value, float):
        return [value * 2, value / 2, value * 1.5]
    if value is None:
        return [64, 2, 128, 8, 4, [1], True] if SIZE.search(last) else [[1], [0, 2], 2, True]
    if isinstance(value, str):
        return [x for x in WORDS.get(last, []) + OTHER_WORDS[:5] if x != value]
    if value in ([], ()):
        return [[0], [1, 2], [1]]
    if isinstance(value, (list, tuple)) and len(value) <= 128:
        return list(list_candidates(list(value)))
    return []


def list_candidates(value):
    if all(isinstance(x, int) and not isinstance(x, bool) for x in value):
        yield [x * 2 for x in value]
        yield [x + 1 for x in value]
        if len(value) <= 6:
            for i in range(len(value)):
                yield [x * 2 if i == j else x for j, x in enumerate(value)]
        yield value[:-1]
        yield value + value[-1:]
    elif all(isinstance(x, str) for x in value):
        words = sorted(set(value))
        for word in words[:4]:
            yield [word] * len(value)
        if len(words) > 1:
            yield value[:-1] + [words[0] if value[-1] != words[0] else words[1]]
            yield [words[0] if value[0] != words[0] else words[1]] + value[1:]
    elif all(isinstance(x, float) for x in value):
        yield [x * 2 for x in value]
        yield [x / 2 for x in value]
    elif all(isinstance(x, bool) for x in value):
        yield [not x for x in value]
        yield [not value[0]] + value[1:]


def hashable(value):
    return tuple(map(hashable, value)) if isinstance(value, (list, tuple)) else value


def other_names(name, flat):
    """Names that a configuration class takes in place of its own, as it reads them from its further arguments."""
    config = type(transformers.AutoConfig.for_model(name))
    out = {}
    for other in set(re.findall(r"""kwargs\.(?:pop|get)\(\s*["'](\w+)""", inspect.getsource(config))) - set(flat):
        try:
            changed = flatten(transformers.AutoConfig.for_model(name, **{other: 12347}).to_dict())
        except Exception:
            continue
        keys = [k for k, v in changed.items() if v == 12347 and k != other and flat.get(k) != 12347]
        out[other] = keys[0] if len(keys) == 1 else None
    return out


class Exploration:
    """The probes of a type. owner[i]: the keys that probe i changes alone; None: many. quiet: sizes that
    change nothing alone, as another follows them; untested: keys without a value that could be tried."""

    def __init__(self, kind, name, seconds=25, many=16):
        self.type = Type(kind, name, seconds == 0)
        self.start, self.seconds = time.process_time(), seconds
        self.over = {}
        if seconds > 0:
            self._shorten()
        first = self.type.look(self.over)
        self.probes, self.owner = [first], [()]
        self.good, self.quiet, self.stuck, self.untested, self.nulls = {}, {}, [], [], {}
        self._one_by_one(first)
        self._pairs(first)
        self.singles = len(self.probes)
        self._switches(first)
        self._many(many)

    def left(self):
        return self.seconds - (time.process_time() - self.start)

    def _shorten(self):
        for key, value in flatten(self.type.base).items():
            if LAYERS.search(key) and isinstance(value, int) and not isinstance(value, bool) and value > 8:
                try:
                    self.type.look({**self.over, key: 8})
                    self.over[key] = 8
                except Exception:
                    pass

    def _try(self, over):
        try:
            return self.type.look({**self.over, **over})
        except Exception:
            return None

    def _one_by_one(self, first):
        # Shortened ones first: what stays constant of them would be the shortened number.
        for key, value in sorted(first.flat.items(), key=lambda kv: kv[0] not in self.over):
            if (self.left() < self.seconds * 0.4 and key not in self.over) or self.seconds == 0:
                self.untested.append(key)
                continue
            found, same, failed = [], 0, 0
            is_list = isinstance(value, (list, tuple))
            if any(key.startswith(k + ".") for k in self.type.included) and not MATTERS.search(key):
                continue
            for x in candidates(key, value)[: 12 if is_list else 9]:
                if len(found) >= (9 if is_list else 3) or same >= (4 if is_list else 2):
                    break
                probe = self._try({key: x})
                if probe is None:
                    failed += 1
                elif probe.tensors == first.tensors:
                    same += 1
                else:
                    found.append(x)
                    self.probes.append(probe)
                    self.owner.append((key,))
            if found:
                self.good[key] = found
                self._null(key, first)
            elif same and SIZE.search(key) and isinstance(value, int) and value and not isinstance(value, bool):
                self.quiet[key] = [x for x in candidates(key, value)[:3] if x]
            elif not same and (failed or is_list) and value not in ([], ()):
                self.untested.append(key)
                if isinstance(value, int) and value > 1:
                    self.stuck.append(key)

    def _null(self, key, first):
        """None in place of a value: kept, or completed from others."""
        if first.flat[key] is None or isinstance(first.flat[key], bool):
            return
        probe = self._try({key: None})
        if probe is None:
            return
        self.nulls[key] = [probe]
        if probe.tensors != first.tensors:
            self.good[key].append(None)
            self.probes.append(probe)
            self.owner.append((key,))

    def null_values(self, key):
        """(probes, values) of a key that was given as None and completed."""
        probes = list(self.nulls.get(key, ()))
        if not probes or probes[0].flat.get(key) is None:
            return [], []
        for other, values in [*self.good.items(), *self.quiet.items()]:
            if isinstance(other, tuple) or other == key or len(probes) > 24:
                continue
            probe = self._try({key: None, other: values[0]})
            if probe:
                probes.append(probe)
        return probes, [p.flat.get(key) for p in probes]

    def _pairs(self, first):
        near = [k for k in self.good if re.search("head|hidden|dim|size", k) and isinstance(first.flat[k], int)][:8]
        for a, b in itertools.combinations(self.stuck[:8] + near, 2):
            if (a not in self.stuck and b not in self.stuck) or self.left() < self.seconds * 0.3:
                continue
            probe = self._try({a: first.flat[a] * 2, b: first.flat[b] * 2})
            if probe and probe.tensors != first.tensors:
                self.probes.append(probe)
                self.owner.append((a, b))
                self.good.setdefault((a, b), [2])
                for key in (a, b):
                    if key in self.untested:
                        self.untested.remove(key)

    def _switches(self, first):
        """With each value that adds tensors, or takes the place of others, every other value changed once."""
        names = {n for n, _, _ in first.tensors}
        for key, values in list(self.good.items()):
            if isinstance(key, tuple) or LAYERS.search(key):
                continue
            kind = first.flat[key]
            if not (isinstance(kind, (bool, str, type(None))) or None in values or 0 in values or kind in ([], 0)):
                continue
            for value in [v for v in values if not v or not kind or isinstance(kind, (bool, str))][:2]:
                probe = next((p for p, o in zip(self.probes, self.owner) if o == (key,) and p.over[key] == value), None)
                if probe is None or {n for n, _, _ in probe.tensors} <= names:
                    continue
                for other, more in [*self.good.items(), *self.quiet.items()]:
                    if self.left() < self.seconds * 0.35 or isinstance(other, tuple) or other == key:
                        continue
                    for x in more[: 2 if LAYERS.search(other) else 1]:
                        probe = self._try({key: value, other: x})
                        if probe:
                            self.probes.append(probe)
                            self.owner.append(None)

    def _many(self, many):
        rnd, done, tries, first = random.Random(1), 0, 0, self.probes[0]
        while done < many and tries < 60 and self.left() > 0:
            tries += 1
            over = {}
            share = rnd.choice((0.15, 0.3, 0.6, 1))
            for key, values in [*self.good.items(), *self.quiet.items()]:
                if rnd.random() > share:
                    continue
                if isinstance(key, tuple):
                    over.update({k: first.flat[k] * 2 for k in key})
                else:
                    over[key] = rnd.choice(values)
            probe = self._try(over)
            if probe:
                self.probes.append(probe)
                self.owner.append(None)
                done += 1

    def keys(self):
        return sorted(set(self.quiet) | {k for g in self.good for k in (g if isinstance(g, tuple) else (g,))})

    def owners(self, value_of):
        """The keys that change a value alone."""
        base, out = value_of(self.probes[0]), set()
        for i in range(1, self.singles):
            if value_of(self.probes[i]) != base:
                out.update(self.owner[i])
        return out


def elements(shape):
    return math.prod(shape)
