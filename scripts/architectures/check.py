#!/usr/bin/env python3
"""Checks the built tool's weights by configuration alone against transformers, with configurations that the table was not
measured with.

usage: check.py GPUCACHE SEED NUMBER [KIND.TYPE…]
       check.py GPUCACHE own FOLDER [KIND.TYPE…]

The first: for each type NUMBER configurations with some values changed at random, others than generate.py's, each
written once with
the changed values alone and once complete. Prints what differs: silently wrong, or told; status 1 if any is silently
wrong. The second: each class's own values alone; a type of FOLDER that they do not give exactly is measured again
with these alone, so that table.py, run again, makes it exact at least there."""

import json
import os
import random
import subprocess
import sys
import tempfile
import warnings

os.environ.setdefault("OMP_NUM_THREADS", "1")
warnings.filterwarnings("ignore")
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import transformers
from transformers.models.auto import modeling_auto

import explore
import generate

transformers.logging.set_verbosity_error()
SIZES = {None: 2, "F32": 4, "I64": 8, "I32": 4, "BOOL": 1, "U8": 1, "C64": 8, "F64": 8}


def changed(rnd, key, value):
    """Another value, of a kind that published configurations have."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int) and explore.LAYERS.search(key):
        return rnd.randint(2, max(3, min(value + 5, 40)))
    if isinstance(value, int) and value > 0 and explore.SIZE.search(key):
        return rnd.choice([value * 2, value * 4, max(1, value // 2), value + 64, value + 3 * value // 4, value * 3])
    return None


def values_of(rnd, type_, flat):
    over = {}
    share = rnd.choice((0.1, 0.3, 0.6))
    for key, value in flat.items():
        new = changed(rnd, key, value) if rnd.random() < share else None
        if new is not None:
            over[key] = new
    return over


def weights_of(type_, over):
    """Bytes by transformers, and the configuration as it is and as it is completed."""
    included, type_.included = type_.included, {}
    try:
        probe = type_.look(over)
        config = transformers.AutoConfig.for_model(type_.name, **type_._nest(over))
    finally:
        type_.included = included
    total = sum(explore.elements(shape) * SIZES[dtype] for _, shape, dtype in probe.tensors)
    head = {"architectures": [type_.architecture], "model_type": type_.name, "dtype": "bfloat16"}
    return total, ({**type_._nest(over), **head}, {**config.to_dict(), **head})


def estimate(tool, config, folder):
    path = os.path.join(folder, "config.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(config, file, default=str)
    done = subprocess.run([tool, "estimate", path, "--json", "--seq-len", "16"], capture_output=True, text=True, check=False)
    if done.returncode:
        return None, done.stderr.strip()[-100:]
    got = json.loads(done.stdout)
    return got["weight_bytes"], "weight_bytes" in got["lower_bounds"] and " | ".join(
        w for w in got["warnings"] if "weight" in w or "configuration" in w or "architecture" in w)


def check(tool, kind, name, rnd, number, folder, counts):
    type_ = explore.Type(kind, name)
    flat = type_.look({}).flat
    done = 0
    for _ in range(number * 4):
        if done == number:
            return
        over = values_of(rnd, type_, flat)
        try:
            total, configs = weights_of(type_, over)
        except Exception:
            continue
        done += 1
        for form, config in zip(("sparse", "complete"), configs):
            got, why = estimate(tool, config, folder)
            result = "told" if why else "exact" if got == total else "WRONG"
            counts[result] += 1
            if result == "WRONG":
                print(result, kind, name, form, got, total, over, flush=True)
            elif why:
                print(result, kind, name, form, why[:200], flush=True)


def is_own_exact(tool, kind, name, folder):
    total, configs = weights_of(explore.Type(kind, name, True), {})
    answers = [estimate(tool, config, folder) for config in configs]
    return all(got == total and not why for got, why in answers)


def check_own(tool, measured, names):
    """A type without a full file is left as it is."""
    with tempfile.TemporaryDirectory() as folder:
        for path in sorted(name for name in os.listdir(measured) if name.endswith(".json")):
            kind, _, name = path.removesuffix(".json").partition(".")
            with open(os.path.join(measured, path), encoding="utf-8") as file:
                is_plain = json.load(file).get("plain")
            if is_plain or (names and f"{kind}.{name}" not in names):
                continue
            try:
                exact = is_own_exact(tool, kind, name, folder)
            except Exception as error:
                print("FAILED", kind, name, repr(error)[:100], flush=True)
                continue
            if not exact:
                os.remove(os.path.join(measured, path))
                generate.run(measured, kind, name, True)
    return 0


def main(tool, seed, number, *names):
    if seed == "own":
        return check_own(tool, number, names)
    counts = {"exact": 0, "told": 0, "WRONG": 0}
    names = names or [f"{k}.{t}" for k in explore.MAPPINGS for t in getattr(modeling_auto, explore.MAPPINGS[k])]
    with tempfile.TemporaryDirectory() as folder:
        for full in names:
            kind, name = full.split(".", 1)
            try:
                check(tool, kind, name, random.Random(f"{seed} {full}"), int(number), folder, counts)
            except Exception as error:
                print("FAILED", full, repr(error)[:120], flush=True)
    print(counts)
    return counts["WRONG"] > 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
