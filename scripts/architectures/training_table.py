#!/usr/bin/env python3
"""Joins what training.py measured to core/arch/training.txt.

usage: training_table.py FOLDER > core/arch/training.txt

A section of the table:

  @CLASS TYPE KIND        a class of models
  =KEY EXPRESSION         a key's value where the configuration has none; KEY may be an item of a list, "depths[2]"
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
HEADER = "# By scripts/architectures/training_table.py: memory of a training step, place by place. See core/training/rows.h."
ORDER = ["causal", "masked", "image", "s2s", "sequence"]
GROUPS = "pwm", "ae", "nc", "fl"


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


def section(data):
    rows = collections.OrderedDict()
    for variant, its in data["variants"].items():
        _, low, _, high, _ = data["quality"][variant]
        if low < 0.95 or high > 1.1:
            continue
        for row in its:
            rows.setdefault("|".join(row["parts"]), []).append(variant)
    used = set(re.findall(r"[A-Za-z_][\w.]*(?:\[\d+\])?", " ".join([*rows, *data["absent"].values()])))
    lines = [f"={key} {text}" for key, text in sorted(data["absent"].items()) if key in used]
    return lines + [f">{flags} {text}" for flags, text in merged(rows)]


def main(folder):
    print(HEADER)
    for kind in ORDER:
        for path in sorted(glob.glob(os.path.join(folder, kind + ".*.json"))):
            with open(path, encoding="utf-8") as file:
                data = json.load(file)
            print(f"@{data['arch']} {data['type']} {kind}")
            print("\n".join(section(data)))


if __name__ == "__main__":
    main(sys.argv[1])
