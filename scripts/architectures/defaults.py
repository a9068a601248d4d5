#!/usr/bin/env python3
"""Writes core/arch/arch_defaults.def: the values of transformers' configuration classes for what a configuration leaves out.

usage: defaults.py > core/arch/arch_defaults.def

A value counts as the class's own if no other value of the configuration changes it. Words for each layer count as a cycle
if they are one for every number of layers that the class takes."""

import collections
import json
import os
import re
import sys
import warnings

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
warnings.filterwarnings("ignore")

from transformers import AutoConfig
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

HERE = os.path.dirname(os.path.abspath(__file__))
KEYS = os.path.join(HERE, "..", "..", "core", "arch", "arch_keys.def")
OBJECTS = ("config", "text_config", "llm_config", "language_config", "language_model", "thinker_config", "decoder")
# Values that the cache and the layers do not follow, or that their own rules derive.
LEFT_OUT = re.compile(r"^(TYPE|CLASS|DTYPE|QUANTISATION|TIED|INTERMEDIATE|.*EXPERT.*|DENSE_LAYERS|ENCODER_INTERMEDIATE|"
                      r"DECODER_INTERMEDIATE|FORWARD_KINDS|Q_RANK|POSITIONS|TARGET_POSITIONS)$")
# Flags that count as set where they are absent.
COUNTED_AS_SET = ("WINDOW_USED", "MULTI_QUERY_GROUPS", "DECODER")
MAPPINGS = ("MODEL_FOR_CAUSAL_LM_MAPPING_NAMES", "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
            "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES", "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES",
            "MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES")
LAYER_COUNTS = (3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 16, 17, 24, 30, 32, 36, 48)


def rows():
    """[(key, type, minimum, maximum, names)] of arch_keys.def."""
    with open(KEYS, encoding="utf-8") as file:
        text = file.read()
    text = text[text.index("*/"):]
    found = re.findall(r'GC_ARCH_KEY\((\w+), (\w+), (\d+), (\d+),\s*"([^"]*)"', text)
    return [(key, kind, int(low), int(high), names.split(", ")) for key, kind, low, high, names in found]


ROWS = rows()
BY_NAME = {name: (row, 32 - at) for row in ROWS for at, name in enumerate(row[4]) if name}


def flatten(config, prefix=""):
    out = {}
    for key, value in config.items():
        if isinstance(value, dict):
            out.update(flatten(value, f"{prefix}{key}."))
        else:
            out[prefix + str(key)] = value
    return out


def read(config):
    """{key: (value, its name)} as core/arch/arch.c reads it: names in the language model's own object first."""
    found = {}
    for full, value in flatten(config).items():
        name, depth = full, 0
        while name.split(".")[0] in OBJECTS and "." in name:
            name, depth = name.split(".", 1)[1], depth + 1
        if name not in BY_NAME or value is None:
            continue
        row, rank = BY_NAME[name]
        rank += 64 * min(depth, 3)
        if row[0] not in found or rank >= found[row[0]][2]:
            found[row[0]] = (value, full, rank)
    return {key: (value, full) for key, (value, full, _) in found.items()}


def made(name, changes):
    """The completed configuration; None if the class does not take the changes."""
    nested = {}
    for full, value in changes.items():
        at, given = nested, AutoConfig.for_model(name).to_dict()
        *parents, last = full.split(".")
        for parent in parents:
            given = given[parent]
            at = at.setdefault(parent, {"model_type": given["model_type"]} if given.get("model_type") else {})
        at[last] = value
    try:
        return AutoConfig.for_model(name, **nested).to_dict()
    except Exception:
        return None


def other_value(value):
    if isinstance(value, bool):
        return not value
    return value * 2 if isinstance(value, int) and value > 0 else None


def derived_keys(name, base):
    """The keys that change with another value."""
    out = set()
    for _, (value, full) in base.items():
        other = other_value(value)
        config = made(name, {full: other}) if other is not None else None
        if config is not None:
            changed = read(config)
            out |= {key for key, (was, where) in base.items() if where != full and changed.get(key, (None,))[0] != was}
    return out


def cycle_of(lists):
    """The shortest run of words that all lists repeat."""
    longest = max(lists, key=len)
    for length in range(1, len(longest) // 2 + 1):
        if all(words == (longest[:length] * len(words))[:len(words)] for words in lists):
            return longest[:length]
    return None


def kinds_of(name, base, key):
    """A cycle, "" if the words are all the same kind of full attention, None if it is neither."""
    words, full = base[key]
    layers = base.get("LAYER_COUNT", base.get("DECODER_LAYERS"))
    lists = [list(words)]
    for count in LAYER_COUNTS if layers else ():
        config = made(name, {layers[1]: count})
        got = read(config).get(key) if config else None
        if got and len(got[0]) == count:
            lists.append(list(got[0]))
    if {word for words in lists for word in words} <= {"full_attention", "attention"}:
        return ""
    return cycle_of(lists) if len(lists) > 2 else None


def types():
    """Types that generate, and those of their language models."""
    names = set()
    for mapping in MAPPINGS:
        names |= set(getattr(modeling_auto, mapping))
    for name in sorted(names):
        try:
            config = AutoConfig.for_model(name).to_dict()
        except Exception:
            continue
        yield name
        while True:
            config = next((config[key] for key in OBJECTS if isinstance(config.get(key), dict)), None)
            if config is None:
                break
            if config.get("model_type") in CONFIG_MAPPING_NAMES:
                yield config["model_type"]


def describe(name):
    """[(macro, key, value)]"""
    base = read(AutoConfig.for_model(name).to_dict())
    derived = derived_keys(name, base)
    out = []
    for key, kind, low, high, _ in ROWS:
        if key not in base or LEFT_OUT.match(key):
            continue
        value = base[key][0]
        if kind == "KINDS":
            cycle = kinds_of(name, base, key) if isinstance(value, list) and key == "KINDS" else ""
            if cycle is None:
                out.append(("DERIVED", key, None))
            elif cycle:
                out.append(("CYCLE", key, ", ".join(cycle)))
        elif isinstance(value, (int, bool)) and key not in derived and low <= value <= high and (
                kind != "FLAG" or value or key in COUNTED_AS_SET):
            out.append(("FAMILY", key, int(value)))
    return out


def lines(names, before, after, width=112):
    """A list of types as C texts."""
    parts, line = [], ""
    for name in sorted(names):
        if line and len(line) + len(name) + 2 > width - len(before):
            parts.append(line + ", ")
            line = ""
        line += (", " if line else "") + name
    parts.append(line)
    return before + ("\n" + " " * 15).join(f'"{part}"' for part in parts) + after


def main():
    groups = collections.OrderedDict()
    for name in sorted(set(types())):
        try:
            for macro, key, value in describe(name):
                groups.setdefault((macro, key, value), []).append(name)
        except Exception as error:
            print(name, repr(error)[:120], file=sys.stderr)
    order = [row[0] for row in ROWS]
    print("/* Generated by scripts/architectures/defaults.py: values of transformers' configuration classes for absent ones.\n"
          " *\n"
          " * GC_ARCH_FAMILY(types, KEY, value)   as arch_families.def\n"
          " * GC_ARCH_CYCLE(types, words)         the kinds of layers, again and again\n"
          " * GC_ARCH_DERIVED(types, KEY)         computed by the class in its own way: unknown where it is absent */")
    ranked = sorted(groups.items(), key=lambda g: (g[0][0], order.index(g[0][1]), str(g[0][2]).zfill(9)))
    for (macro, key, value), names in ranked:
        rest = {"FAMILY": f", {key}, {value})", "CYCLE": f", {json.dumps(value)})", "DERIVED": f", {key})"}[macro]
        print(lines(names, f"GC_ARCH_{macro}(", rest))


main()
