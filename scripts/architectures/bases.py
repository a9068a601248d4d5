#!/usr/bin/env python3
"""Tells for each type which of its classes has the type's model without a head under its prefix: {type: kind}.

usage: bases.py FILE

Compares the tensors of both, each built with the type's own configuration."""

import json
import os
import sys
import warnings

warnings.filterwarnings("ignore")
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import torch
import transformers
from transformers.models.auto import modeling_auto

import explore

transformers.logging.set_verbosity_error()


def build(class_name, config):
    explore.signal.alarm(20)
    try:
        with torch.device("meta"):
            model_class = getattr(transformers, class_name)
            model = model_class._from_config(config, dtype=torch.bfloat16)
            return {(n, s) for n, s, _ in explore.tensors_of(model, torch.bfloat16)}, model_class.base_model_prefix
    finally:
        explore.signal.alarm(0)


def first(classes):
    return classes if isinstance(classes, str) else classes[0]


def kind_of(name):
    config = transformers.AutoConfig.for_model(name)
    base, _ = build(first(modeling_auto.MODEL_MAPPING_NAMES[name]), config)
    for kind in ("s2s", "vlm", "multimodal", "causal", "speech"):
        classes = getattr(modeling_auto, explore.MAPPINGS[kind]).get(name)
        if not classes:
            continue
        try:
            whole, prefix = build(first(classes), config)
        except Exception:
            continue
        start = prefix + "."
        if base == {(n[len(start):], s) for n, s in whole if n.startswith(start)}:
            return kind
    return None


def main(path):
    out = {}
    for name in modeling_auto.MODEL_MAPPING_NAMES:
        try:
            out[name] = kind_of(name)
        except Exception as error:
            print(name, repr(error)[:100], flush=True)
    with open(path, "w", encoding="utf-8") as file:
        json.dump(out, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
