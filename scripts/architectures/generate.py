#!/usr/bin/env python3
"""Measures model types of transformers: one JSON file a type in a folder, for table.py.

usage: generate.py FOLDER KIND [TYPE…]     KIND: causal, vlm, multimodal, s2s, speech, base

Types with a file are left out. Needs torch and transformers; each type is a process of its own, forked after the
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
SECONDS = {"causal": 9, "vlm": 8, "multimodal": 8, "s2s": 8, "speech": 8, "base": 4}


def measure(folder, kind, name):
    path = os.path.join(folder, f"{kind}.{name}.json")
    start = time.time()
    out = tensors.describe(kind, name, SECONDS[kind])
    with open(path + ".new", "w", encoding="utf-8") as file:
        json.dump(out, file)
    os.rename(path + ".new", path)
    print(kind, name, out["architecture"], "rows", len(out["rows"]), "unsolved", out["unsolved"], "guards",
          list(out["guards"])[:12], "probes", out["probes"], "exploring", out["seconds"], "all", round(time.time() - start, 1), flush=True)


def run(folder, kind, name, limit=240):
    child = os.fork()
    if child == 0:
        status = 1
        try:
            measure(folder, kind, name)
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


def main(folder, kind, *names):
    os.makedirs(folder, exist_ok=True)
    explore.Type("causal", "llama")  # what all models import, once
    for name in names or getattr(modeling_auto, explore.MAPPINGS[kind]):
        if not os.path.exists(os.path.join(folder, f"{kind}.{name}.json")):
            run(folder, kind, name)


if __name__ == "__main__":
    main(*sys.argv[1:])
