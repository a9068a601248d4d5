#!/usr/bin/env python3
"""What llama.cpp allocates for the models of llama_cpp.py, as it logs it: writes llama_cpp.json.
usage: llama_cpp_measure.py [NAME…]

Needs no device: its CPU backend places the same graph, and keeps the step's inputs in the same buffer. Needs the package xllamacpp (measured with
2026.10.11549), whose library exports llama.cpp's own functions; the offsets below are those of that version's parameters."""
import ctypes
import importlib.util
import json
import os
import re
import struct
import sys
import tempfile

import llama_cpp

GGML_TYPES = {"f16": 1, "q4_0": 2, "q8_0": 8}


class ModelParams(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint8 * 80)]


class ContextParams(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint8 * 160)]


def load():
    package = os.path.dirname(importlib.util.find_spec("xllamacpp").origin)
    library = ctypes.CDLL(os.path.join(package, "xllamacpp.abi3.so"))
    library.llama_model_default_params.restype = ModelParams
    library.llama_context_default_params.restype = ContextParams
    library.llama_model_load_from_file.restype = library.llama_init_from_model.restype = ctypes.c_void_p
    library.llama_model_load_from_file.argtypes = [ctypes.c_char_p, ModelParams]
    library.llama_init_from_model.argtypes = [ctypes.c_void_p, ContextParams]
    library.llama_free.argtypes = [ctypes.c_void_p]
    library.llama_model_free.argtypes = [ctypes.c_void_p]
    return library


def put(params, offset, value):
    params.bytes[offset:offset + 4] = list(struct.pack("<i", value))


def measure(library, lines, model, run):
    tokens, sequences, ubatch, flash, cache = run
    params = library.llama_context_default_params()
    for offset, value in ((0, tokens), (8, ubatch), (12, sequences), (52, flash), (104, GGML_TYPES[cache]), (108, GGML_TYPES[cache])):
        put(params, offset, value)
    params.bytes[140] = 0  # swa_full
    lines.clear()
    context = library.llama_init_from_model(model, params)
    library.llama_free(context)
    log = "".join(lines)
    return {"run": run, "kv_mib": sum(map(float, re.findall(r"KV buffer size = +([\d.]+) MiB", log))),
            "compute_mib": float(re.search(r"compute buffer size = +([\d.]+) MiB", log)[1])}


def main():
    library, lines, answers = load(), [], {}
    callback = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda _, line, __: lines.append(line.decode(errors="replace")))
    library.llama_log_set(callback, None)
    with tempfile.TemporaryDirectory() as folder:
        for name in sys.argv[1:] or llama_cpp.MODELS:
            path = os.path.join(folder, "model.gguf")
            llama_cpp.write(path, name)
            params = library.llama_model_default_params()
            params.bytes[74] = 0  # use_extra_bufts: no repacked weights
            lines.clear()
            model = library.llama_model_load_from_file(path.encode(), params)
            size = float(re.search(r"model buffer size = +([\d.]+) MiB", "".join(lines))[1])
            answers[name] = {"model_mib": size, "runs": [measure(library, lines, model, run) for run in llama_cpp.RUNS]}
            library.llama_model_free(model)
    rows = ",\n".join(f' "{name}": {{"model_mib": {answer["model_mib"]}, "runs": [\n  ' + ",\n  ".join(json.dumps(run) for run in answer["runs"]) + "]}"
                      for name, answer in answers.items())
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "llama_cpp.json"), "w", encoding="utf-8") as file:
        file.write("{\n" + rows + "\n}\n")


if __name__ == "__main__":
    main()
