#!/usr/bin/env python3
"""Joins what training.py measured to core/classes/training.txt.

usage: training_table.py TABLE FOLDER... > NEW-TABLE  the table with the variants and conditions measured in each FOLDER in place
                                                      of its own; others stay

A section of the table:

  @CLASS TYPE KIND        a class of models
  =KEY EXPRESSION         a key's value where the configuration has none; KEY may be an item of a list, "depths[2]"
  :KEY EXPRESSION         not 0 where the rows hold for a configuration's value of KEY (training_values.py); elsewhere they are
                          a lower bound, or with :KEY~ approximate
  >FLAGS SAVED|LOSS|WORK|GRADS   bytes at a place that may be the step's largest, for the variants FLAGS

FLAGS has a letter of each group, or several where a row holds for them: precision "p" (all in one 16-bit type), "w" (in 32
bits), "m" (parameters in 32 bits, computing in 16); attention "a" (scores are not written) or "e"; "n" or "c", with gradient
checkpointing; "f" all parameters are trained, or "l" adapters of LoRA alone. SAVED is kept for backward, LOSS is the logits
with the loss's buffers, WORK lives for a while, GRADS are gradients of parameters, "*" all of them. D, B, S: the bytes of an
element in computing, the sequences, the tokens of each. A variant whose rows are more than 5 % below or 10 % above what was
measured, at the tenth and the ninetieth percentile, is left out: it is told as a lower bound."""

import collections
import glob
import itertools
import json
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from expressions import compiled, evaluate, number_of  # noqa: E402

HEADER = "# By scripts/architectures/training_table.py: memory of a training step, place by place. See core/training/rows.h."
ORDER = ["causal", "masked", "image", "s2s", "sequence"]
GROUPS = "pwm", "ae", "nc", "fl"
IS_WORD = re.compile(r"[a-z][a-z-]*")
LAYERS = re.compile(r"layers?$|^depths")


def merged(rows):
    """{parts: variants} as lines' flags: variants whose product of letters is whole are one line."""
    lines = []
    for text, variants in rows.items():
        left = set(variants)
        while left:
            best = max((box for box in boxes(left)), key=lambda box: (len(box[1]), box[0]))
            lines.append((best[0], text))
            left -= best[1]
    return sorted(lines)


def boxes(variants):
    """Products of letters that are wholly among these variants: (flags, the variants)."""
    choices = [["".join(c) for n in range(1, len(g) + 1) for c in itertools.combinations(g, n)] for g in GROUPS]
    for box in itertools.product(*choices):
        its = {"".join(v) for v in itertools.product(*box)}
        if its <= variants:
            yield "".join(box), its


def hidden(flats, some, keys, parts):
    """Keys that have one value in some configurations, those of a row, and others in the rest, where a number of the row may
    stand for that value."""
    numbers = {n for part in parts for n in re.findall(r"(?<![\w.])\d[\d.]*(?![\w.])", part)}
    is_hidden = any(len(n) > 2 for n in numbers)

    def values(of, key):
        return {str(f.get(key)) for f in of}

    return [k for k in keys if len(values(some, k)) == 1 < len(values(flats, k)) and (is_hidden or values(some, k) & numbers)]


def names(text):
    return {key for key, _ in compiled(text)[1]}


def scaled(base):
    """Configurations further from the base: each value twice as much, and all of them; layers three times."""
    numbers = [k for k, v in base.items() if type(v) in (int, float) and v > 1]
    words = [{}] + [{"feed_forward_proj": w} for w in ("relu", "gated-gelu") if "feed_forward_proj" in base]
    for word in words:
        flat = {"B": 2, "S": 512, "R": 16, **base, **word}
        yield flat
        for some in [*([k] for k in [*numbers, "B", "S"]), numbers, [k for k in numbers if LAYERS.search(k)]]:
            yield dict(flat, **{k: flat[k] * (3 if LAYERS.search(k) else 2) for k in some})


def unsound(parts, base):
    """What is wrong with a row at configurations further from the base: no part is negative, and none falls as sequences,
    tokens or layers grow."""
    for part in (p for p in parts if p != "*"):
        code, keys = compiled(part)

        def value(flat):
            flat = dict(flat, D=2)
            return eval(code, {}, {"v": {k + ("=" + w if w else ""): number_of(flat, k, w) for k, w in keys}})

        for flat in scaled(base):
            here = value(flat)
            if here < 0:
                return f"{part} is {here} for {flat}"
            for key in flat:
                if key in "BS" or LAYERS.search(key):
                    if value(dict(flat, **{key: flat[key] + 1})) < here:
                        return f"{part} falls with {key} for {flat}"
    return None


def filled(absent, over):
    """A configuration's values, with the class's own where it has none."""
    flat = dict(over)
    for _ in range(2):  # values, then what follows from them
        for key, text in sorted(absent.items(), key=lambda its: bool(names(its[1]))):
            if key not in over:
                flat[key] = text if IS_WORD.fullmatch(text) else evaluate(text, flat, 2)
    return flat


def wrong_with(row, data):
    flats = [dict(filled(data["absent"], over), B=batch, S=tokens) for over, batch, tokens, _ in data["runs"]]
    when = row.get("when")
    some = [f for f in flats if evaluate(when, f, 2)] if when else flats
    keys = [k for k in data["keys"] if not when or k not in names(when)]
    return hidden(flats, some, keys, row["parts"]) or unsound(row["parts"], filled(data["absent"], {}))


def lacks_loss(parts_of_rows, base, variant):
    """Whether no row has the place of the loss over a vocabulary: logarithms of probabilities, their gradient and the logits',
    however small it is in the type's own configuration."""
    if not base.get("vocab_size"):
        return False
    width = 4 if variant[0] == "w" else 2
    flat = {"B": 1, "S": 512, "R": 16, **base}
    most = max((evaluate(parts[1], flat, width) for parts in parts_of_rows), default=0)
    return most < 3 * width * flat["B"] * flat["S"] * flat["vocab_size"]


HAS_LOSS = "causal", "masked", "s2s"  # kinds whose loss is over a vocabulary
# Estimated over measured, of all probes, of the tenth and ninetieth percentile: rows outside of NEAR are left out, those
# outside of EXACT are approximate.
EXACT, NEAR = (0.85, 0.95, 1.1, 1.25), (0.7, 0.85, 1.4, 1.6)


def fits(quality, bounds):
    least, low, _, high, most = quality
    return bounds[0] <= least and bounds[1] <= low and high <= bounds[2] and most <= bounds[3]


def is_apart(row, key, word):
    """Whether a row holds for other values of this key alone."""
    return f"{key}=" in row[1] and f"{key}={word}*(" not in row[1]


class Section:
    """A class's part of the table: values where the configuration has none, and {variant: [(mark, row)]}."""

    def __init__(self):
        self.absent, self.rows, self.conditions = {}, {}, {}

    def measured(self, data):
        """Puts what was measured in place of what was."""
        self.absent.update(data["absent"])
        if "conditions" in data:
            self.conditions = data["conditions"]
        fixed = data.get("fixed", {}).items()
        when = "".join(f"{key}={word}*" for key, word in fixed)
        has_heads = any("head" in key for key in data.get("keys", ()))
        base = filled(self.absent, {})
        for variant, its in data["variants"].items():
            found, quality = [], data["quality"][variant]
            is_whole = data["kind"] not in HAS_LOSS or not lacks_loss([row["parts"] for row in its], base, variant)
            if is_whole and fits(quality, NEAR) and not any(wrong_with(row, data) for row in its):
                mark = "" if fits(quality, EXACT) else "~"
                found = [(mark, "|".join(x if x == "0" else f"{when}({x})" if when else x for x in row["parts"])) for row in its]
            for name in {variant} if has_heads else {variant, variant.replace("a", "e", 1)}:  # no attention to write out
                self.rows[name] = [r for r in self.rows.get(name, ()) if any(is_apart(r, *one) for one in fixed)] + found

    def lines(self):
        rows = collections.OrderedDict()
        for variant, its in self.rows.items():
            for row in its:
                rows.setdefault(row, []).append(variant)
        conditions = self.needed(rows)
        own = {key: text for key, text in self.absent.items() if key not in conditions}
        values = [text for text in own.values() if not IS_WORD.fullmatch(text) or text in own]
        used = {key for text in [*"|".join(text for _, text in rows).split("|"), *values] for key in names(text)}
        lacking = used - set(self.absent) - {"B", "S", "D", "R"}
        if lacking:
            raise ValueError(f"no values for {lacking} where a configuration has none")
        for key, text in sorted(self.absent.items()):
            if key in used or key in conditions:
                yield f"={key} {text}"
        for key, (text, mark) in sorted(conditions.items()):
            yield f":{key}{mark} {text}"
        for flags, (mark, text) in merged(rows):
            yield f">{flags}{mark} {text}"

    def needed(self, rows):
        """The conditions of words and of keys that no row has."""
        used = {key for _, text in rows for part in text.split("|") if part != "*" for key in names(part)}
        return {key: its for key, its in self.conditions.items() if "=" in its[0] or key not in used}


def variants(flags):
    """The variants that flags stand for."""
    return itertools.product(*([c for c in flags if c in group] for group in GROUPS))


def read(lines):
    """The sections of a table: {(kind, type, class): Section}."""
    sections = {}
    for line in lines:
        word, _, rest = line.rstrip("\n").partition(" ")
        if line[0] == "@":
            model_type, kind = rest.split()
            section = sections[kind, model_type, word[1:]] = Section()
        elif line[0] == "=":
            section.absent[word[1:]] = rest
        elif line[0] == ":":
            section.conditions[word[1:].rstrip("~")] = [rest, "~" if word[-1] == "~" else ""]
        elif line[0] == ">":
            mark = "~" if word[-1] == "~" else ""
            for variant in variants(word[1:]):
                section.rows.setdefault("".join(variant), []).append((mark, rest))
    return sections


def main(table, *folders):
    with open(table, encoding="utf-8") as file:
        sections = read(file)
    for path in [path for folder in folders for path in sorted(glob.glob(os.path.join(folder, "*.json")))]:
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
        sections.setdefault((data["kind"], data["type"], data["arch"]), Section()).measured(data)
    print(HEADER)
    for kind, model_type, name in sorted(sections, key=lambda key: (ORDER.index(key[0]), key)):
        if any(sections[kind, model_type, name].rows.values()):
            print(f"@{name} {model_type} {kind}", *sections[kind, model_type, name].lines(), sep="\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
