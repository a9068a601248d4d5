#!/usr/bin/env python3
"""Measures model types of transformers: one JSON file a type in a folder, for table.py.

usage: generate.py [--plain] FOLDER KIND [TYPE…]     KIND: causal, vlm, multimodal, s2s, speech, base, masked, image, sequence

--plain measures a type with the class's own values alone, in a second: its rows are exact for these, and told to be
uncertain for others. Types with a file are left out, unless it is a plain one and this run is not. Needs torch and transformers; each type is a process of its own, forked after the
imports."""

import json
import os
import signal
import sys
import time
import traceback
import warnings

os.environ.setdefault("OMP_NUM_THREADS", "1")
warnings.filterwarnings("ignore")
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import transformers
from transformers.models.auto import modeling_auto

import explore
import tensors

transformers.logging.set_verbosity_error()


# Seconds of the processor for exploring a type, and half as many for its expressions.
SECONDS = {"causal": 9, "vlm": 8, "multimodal": 8, "s2s": 8, "speech": 8, "base": 4, "masked": 4, "image": 4,
           "sequence": 4}


def measure(folder, kind, name, plain):
    path = os.path.join(folder, f"{kind}.{name}.json")
    start = time.time()
    out = tensors.describe(kind, name, 0 if plain else SECONDS[kind])
    with open(path + ".new", "w", encoding="utf-8") as file:
        json.dump(out, file)
    os.rename(path + ".new", path)
    print(kind, name, out["architecture"], "rows", len(out["rows"]), "unsolved", out["unsolved"], "guards",
          list(out["guards"])[:12], "probes", out["probes"], "exploring", out["seconds"], "all", round(time.time() - start, 1), flush=True)


def run(folder, kind, name, plain, limit=240):
    child = os.fork()
    if child == 0:
        status = 1
        try:
            measure(folder, kind, name, plain)
            status = 0
        except BaseException as error:
            print(kind, name, "FAILED", repr(error)[:200], traceback.format_exc().splitlines()[-3].strip()[-90:], flush=True)
        finally:
            os._exit(status)
    end = time.time() + limit
    while time.time() < end:
        if os.waitpid(child, os.WNOHANG)[0]:
            return
        time.sleep(0.05)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    print(kind, name, "FAILED: slow", flush=True)


def is_done(folder, kind, name, plain):
    path = os.path.join(folder, f"{kind}.{name}.json")
    if not os.path.exists(path):
        return False
    with open(path, encoding="utf-8") as file:
        data = json.load(file)
        return plain or ("reads" in data and not data.get("plain"))


def main(*arguments):
    plain = arguments[:1] == ("--plain",)
    folder, kind, *names = arguments[plain:]
    os.makedirs(folder, exist_ok=True)
    explore.Type("causal", "llama")  # what all models import, once
    for name in names or getattr(modeling_auto, explore.MAPPINGS[kind]):
        if not is_done(folder, kind, name, plain):
            run(folder, kind, name, plain)


if __name__ == "__main__":
    main(*sys.argv[1:])
