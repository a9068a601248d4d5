"""The values of a configuration that the rows of training.py were measured with and that no row has: activations, dropouts,
windows of attention, switches. Each is changed alone, on shapes; those that change the memory of a step are conditions.

    training_values.py OUT KIND.TYPE...     writes OUT/KIND.TYPE.json, which training_table.py joins to the table

A condition is [EXPRESSION, MARK]: not 0 where the rows hold; elsewhere they are a lower bound, or with the mark "~"
approximate, as a changed value needs less or is not known to need more."""

import json
import re
import sys

import torch

import frames_run
from training import WORDS, Training

SKIPPED = re.compile(r"(token|initializer|version|^architectures|model_type|dtype|_name_or_path|id2label|label2id|num_labels|"
                     r"problem_type|output_|return_|use_cache|torchscript|chunk_size|is_encoder_decoder|eps$|_std$|_range$|rope_|"
                     r"loss|pretraining_tp|classifier|summary_|tie_|gradient|_factor|scaling|_coef|jitter|layerdrop|"
                     r"drop_path|scale_embedding)")
ACTIVATION = re.compile(r"(_act|activation|activation_function|_act_fn|nonlinearity)$")
ACTIVATIONS = ["silu", "gelu", "relu", "gelu_new", "gelu_pytorch_tanh", "gelu_fast", "quick_gelu", "relu2"]
VARIANTS = "panf", "penf"
SAME = 0.02  # of a step's memory
LOAD = 4, 3000  # tokens weigh more than parameters


def others(key, value):
    """Other values to try: (value, the condition that it breaks)."""
    if isinstance(value, bool):
        return [(not value, key if value else "!" + key)]
    if key.endswith("window"):
        return [(64, f"max(!{key},min(1,max(0,{key}-S)))")]
    if isinstance(value, str):
        words = ACTIVATIONS if ACTIVATION.search(key) else []
        return [(word, f"{key}={word}") for word in words if word != value]
    if "drop" in key and isinstance(value, (int, float)):
        return [(0.0, "?" + key)] if value else [(0.1, "!" + key)]
    if "softcap" in key:
        return [(None, "?" + key)] if value else [(30.0, "!" + key)]
    return []


class Values:
    def __init__(self, kind, name):
        self.type = Training(kind, name)
        self.over = frames_run.first_run(self.type)[0]
        if "vocab_size" in self.type.base and self.measured({"vocab_size": 1000}):
            self.over["vocab_size"] = 1000
        self.peaks = self.measured({})
        if not self.peaks:
            raise ValueError("its own values cannot be run")

    def measured(self, over):
        peaks = []
        for self.type.variant in VARIANTS:
            try:
                peaks.append(self.type.run({**self.over, **over}, *LOAD).peak)
            except Exception:
                return None
        return peaks

    def compared(self, over):
        """The memory against that of the base, in each variant."""
        peaks = self.measured(over)
        return [p / q for p, q in zip(peaks, self.peaks)] if peaks else [0.0]

    def condition(self, key, value):
        tried = [(self.compared({key: other}), other, text) for other, text in others(key, value)]
        off = [ratios for ratios, *_ in tried if any(abs(r - 1) > SAME for r in ratios)]
        if isinstance(value, str):
            words = [value, *WORDS.get(key, []), *(other for ratios, other, _ in tried if ratios not in off)]
            return ["+".join(f"{key}={word}" for word in words), "~"] if off or key in WORDS else None
        if not off:
            return None
        return [tried[0][2], "" if min(min(ratios) for ratios in off) > 1 - SAME else "~"]

    def all(self):
        conditions, absent = {}, {}
        for key, value in frames_run.every(self.type.config(self.over).to_dict()):
            if "." in key or SKIPPED.search(key) or key in self.type.fixed:
                continue
            condition = self.condition(key, value)
            if condition:
                conditions[key] = condition
                absent[key] = value if isinstance(value, str) else f"{float(value or 0):g}"
        return {"kind": self.type.kind, "type": self.type.t, "arch": self.type.arch, "conditions": conditions,
                "absent": absent, "variants": {}}


def main(out, *names):
    torch.set_num_threads(1)
    for kind, t in frames_run.types(names):
        try:
            result = Values(kind, t).all()
        except Exception as e:
            print(kind, t, type(e).__name__, str(e)[:300], flush=True)
            continue
        print(t, result["conditions"], flush=True)
        with open(f"{out}/{kind}.{t}.json", "w", encoding="utf-8") as file:
            json.dump(result, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
