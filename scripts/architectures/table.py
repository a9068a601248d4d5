#!/usr/bin/env python3
"""Joins what generate.py measured to the table of core/classes/architectures.txt.

usage: table.py FOLDER BASES > core/classes/architectures.txt

A section of the table:

  @CLASS TYPE KIND        one line or more: classes with the same rows
  =ATOM EXPRESSION        an atom's value where the configuration has no such key
  ^ATOM EXPRESSION        its value where the key is null, if that is not 0
  ~KEY NAME               another name of a key
  !KEY VALUE              the rows hold for this value alone: a number, a word, [a,b,…], or null; "?": for
                          none that is written; "*": if the key, or with a
                          dot behind it the object, is written
  &KEY TYPE PREFIX        the object KEY is a TYPE; its tensors begin with PREFIX ("-": some other way). Where a
                          configuration has another type there, that type's base rows replace them; "+" in place of
                          "&": the base rows are always used, and are not repeated
  %NUMBER                 the rows of a shared block
  NAME COUNT DIMENSION…   tensors; "COUNT ~ ELEMENTS" if they differ in shape; NAME:TYPE for a type of their own

In a name "{}" stands for a number: from 0; "{-}": in the last layers; "{~}": in some layers. Shared blocks come first,
"*NUMBER" and their rows."""

import collections
import json
import os
import re
import sys

# Tied in a new model; in one that is loaded, with a head of its own where its files have one (Flan-T5).
UNTIED = {("s2s", "t5"), ("s2s", "mt5"), ("s2s", "umt5")}
BY_HAND = {"falcon"}  # in architectures_more.txt
ORDER = ["causal", "vlm", "multimodal", "s2s", "speech", "base", "masked", "image", "sequence"]
HEADS = {"masked", "image", "sequence"}  # found by their classes alone: a type without a class is its base
# How many layers of a kind there are by the class: every n-th, or the others. Other rules are not trusted.
PLAIN_LIST = re.compile(r"^(\w+-)?\(\w+//\d\)(/2)?$")
# Values that a type could not be tried with, and that are of no tensor.
HARMLESS = re.compile(r"(logit_scale|rope_theta|classifier_pooling|feature_select_strategy|"
    r"tolerance|eps($|_)|image_grid_pinpoints|label2id|id2label|partial_rotary|"
    r"rotary_|initializer|mambapy|mask_loss|mamba_dt)")
# Stages whose outputs a backbone gives: of no tensor in a model.
STAGES = re.compile(r"^out_(features|indices)$")
# Values that tell the kinds of layers: of no tensor where all kinds have the same.
KINDS = re.compile(r"^(sliding_window_pattern|global_attn_every_n_layers)$")
# Features of several layers of the encoder are joined where the configuration lists these: a projector's input is as wide.
JOINED = ((re.compile(r"^((model\.)?multi_modal_projector\.linear_1\.weight 1 text_config\.hidden_size "
                      r"vision_config\.hidden_size)$"),
           r"\1*or(#vision_feature_layer,1)"),
          (re.compile(r"(multi_modal_projector\..*) 5\*vision_config\.hidden_size$"),  # and "=#vision_feature_layers 5"
           r"\1 or(#vision_feature_layers,1)*vision_config.hidden_size"))
BARE = re.compile(r"#?([A-Za-z_][A-Za-z0-9_.]*)")


def name_of(row):
    name = row["name"]
    if "{}" in name and row["where"] in ("last", "some"):
        name = name.replace("{}", "{-}" if row["where"] == "last" else "{~}", 1)
    return name + (":" + row["type"] if row.get("type") else "")


def line_of(row):
    if "total" in row:
        return f"{name_of(row)} {row['count']} ~ {row['total']}"
    line = " ".join([name_of(row), row["count"], *row["dims"]])
    for pattern, joined in JOINED:
        line = pattern.sub(joined, line)
    return line


def rows_of(data):
    return [line_of(r) for r in data["rows"] if r["count"] != "0"]


def guard_value(value):
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, (list, tuple)):
        if any(isinstance(x, (list, tuple, dict)) for x in value):
            return "?"
        return "[" + ",".join(guard_value(x) for x in value) + "]"
    if isinstance(value, float):
        return f"{value:.15f}".rstrip("0").rstrip(".") if abs(value) < 1e15 else "?"
    return re.sub(r"\s", "_", str(value)) or "?"


def guard_lines(key, value):
    """One line, or one for each list in a list."""
    if isinstance(value, (list, tuple)) and value and all(isinstance(x, (list, tuple)) for x in value):
        inner = [line for i, x in enumerate(value) for line in guard_lines(f"{key}.{i}", x)]
        return inner + [f"!{key}.{len(value)} null"]
    return [f"!{key} {guard_value(value)}"]


def base_of(data):
    """The rows of the model without its head: those under the class's prefix, without it."""
    prefix = data["prefix"] + "."
    rows = [{**r, "name": r["name"][len(prefix):]} for r in data["rows"] if r["name"].startswith(prefix)]
    return {**data, "kind": "base", "architecture": None, "rows": rows}


def read(folder):
    out = {}
    for name in os.listdir(folder):
        if name.endswith(".json"):
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                data = json.load(file)
            if data["type"] not in BY_HAND:
                out[data["kind"], data["type"]] = data
    return out


def prefix_in(data, key, base):
    """The prefix of a sub-model's tensors, if all of its base rows are there."""
    names = {r["name"] for r in data["rows"] if r["count"] != "0"}
    wanted = [r["name"] for r in base["rows"] if r["count"] != "0"]
    if not wanted:
        return None
    for name in sorted(names):
        if name.endswith("." + wanted[0]):
            prefix = name[: -len(wanted[0])]
            if all(prefix + w in names for w in wanted):
                return prefix
    return None


def with_prefix(line, key, prefix):
    def named(match):
        word = match.group(0)
        mark = "#" if word[0] == "#" else ""
        bare = word.lstrip("#")
        return word if bare in ("min", "max", "or") else f"{mark}{key}.{bare}"

    name, *rest = line.split(" ")
    out = [prefix + name]
    for text in rest:
        # words after "=" and in brackets are no names
        out.append(re.sub(r"(?<![=\[A-Za-z0-9_.-])#?[A-Za-z_][A-Za-z0-9_.]*", named, text))
    return " ".join(out)


def section(data, bases):
    lines = []
    dropped = set()
    for key, type_ in sorted(data["nested"].items(), key=lambda kv: (kv[0].count("."), kv[0])):
        base = bases.get(type_)
        if any(key.startswith(k + ".") for k in data.get("included", {})):
            continue
        if key in data.get("included", {}):
            lines.append(f"+{key} {type_} {data['included'][key]}")
            continue
        prefix = prefix_in(data, key, base) if base else None
        if prefix is None:
            lines.append(f"&{key} {type_} -")
            continue
        own = {l for l in rows_of(data) if l.startswith(prefix)}
        same = {with_prefix(l, key, prefix) for l in rows_of(base)} == own
        lines.append(f"{'+' if same else '&'}{key} {type_} {prefix}")
        if same:
            dropped |= own
    for atom, text in sorted(data["defaults"].items()):
        lines.append(f"={atom} {text}")
        key = re.sub(r"^#|\[.*|=.*", "", atom)
        if key != atom and "//" in text and not PLAIN_LIST.match(text) and f"!{key} *" not in lines:
            lines.append(f"!{key} *")
    for atom, text in sorted(data["nulls"].items()):
        lines.append(f"^{atom} {text}")
    for other, key in sorted(data["aliases"].items()):
        lines.append(f"~{key} {other}")
    if data.get("plain"):  # with objects as the outer class gives them
        lines += sorted({f"!{k.split('.')[0]}. *" for k in data["guards"]
                         if "." in k and not HARMLESS.search(k) and not k.split(".")[1].isdigit()})
    for key, value in sorted(data["guards"].items()):
        has_kinds = any("layer_types" in atom for atom in data["defaults"]) or "layer_types" in data["guards"]
        has_stages = (data["architecture"] or "Model").endswith("Model") and data["type"] != "efficientloftr"
        if STAGES.match(key) and has_stages:
            continue
        if not HARMLESS.search(key) and (has_kinds or not KINDS.match(key)):
            lines += guard_lines(key, value)
    if (data["kind"], data["type"]) in UNTIED:
        lines.append("!tie_word_embeddings 1")
    lines += [l for l in rows_of(data) if l not in dropped]
    return lines


def main(folder, bases_file):
    measured = read(folder)
    with open(bases_file, encoding="utf-8") as file:
        holders = json.load(file)
    bases = {t: data for (kind, t), data in measured.items() if kind == "base"}
    for type_, kind in holders.items():
        if (kind, type_) in measured and type_ not in bases:
            bases[type_] = base_of(measured[kind, type_])
    sections = collections.OrderedDict()
    seen = set()
    for kind in ORDER:
        for (k, type_), data in sorted(measured.items()):
            if k != kind or (data["architecture"], type_) in seen:
                continue
            seen.add((data["architecture"], type_))
            head = f"@{data['architecture']} {type_} {'head' if kind in HEADS else kind}"
            sections.setdefault(tuple(section(data, bases)), []).append(head)
    for type_, base in sorted(bases.items()):
        if base["architecture"] is None:
            sections.setdefault(tuple(section(base, bases)), []).append(f"@- {type_} base")
    print_table(sections)


def print_table(sections):
    """Rows that come together in several sections become shared blocks."""
    blocks = collections.Counter()
    for lines in sections:
        rows = tuple(l for l in lines if l[0] not in "=^~!&+")
        blocks[rows] += 1
    numbers = {rows: i for i, rows in enumerate(r for r, n in blocks.items() if n > 1 and len(r) > 1)}
    print("# Generated by scripts/architectures; its table.py describes the lines.")
    for rows, number in numbers.items():
        print(f"*{number}")
        print("\n".join(rows))
    for lines, heads in sections.items():
        print("\n".join(heads))
        rows = tuple(l for l in lines if l[0] not in "=^~!&+")
        rest = [l for l in lines if l[0] in "=^~!&+"]
        print("\n".join(rest + ([f"%{numbers[rows]}"] if rows in numbers else list(rows))))


if __name__ == "__main__":
    main(*sys.argv[1:])
