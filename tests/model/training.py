#!/usr/bin/env python3
"""The peak of a training step, by torch's MemTracker under FakeTensorMode with the device "cuda": no GPU, no bytes.

    training.py CONFIG [--batch N] [--tokens N] [--optimizer NAME] [--precision p|w|m] [--attention a|e] [--checkpointing]
                       [--lora RANK]        CONFIG: a model's folder or its config.json; prints what each part takes
    training.py --record [WORD]...          measures the published sizes below (of names with a WORD), where they are not
                                            yet recorded, and puts them into training.json, against which
                                            test_training.py holds the estimates; TRAINING_JSON names another file for both
    training.py --sweep COUNT [TYPE]...     the same of random sizes, loads and options, with a seed of SEED

Two steps are run, with the gradients set to None before each; the peak is the second's, when the optimiser's states exist.
scripts/architectures/training_step.py says what the step is. Needs torch built for CUDA, a driver or a stand-in that names a
GPU of compute capability 8.0 or more, and transformers."""

import argparse
import json
import os
import random
import sys
import types

import torch
import transformers
from torch.distributed._tools.mem_tracker import MemTracker
from transformers.optimization import Adafactor

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(HERE)), "scripts", "architectures"))
import training_step  # noqa: E402

# torch's own default on a GPU is foreach; on shapes alone it has to be named.
OPTIMIZERS = {
    "adamw": lambda p: torch.optim.AdamW(p, foreach=True),
    "adamw_fused": lambda p: torch.optim.AdamW(p, fused=True),
    "adamw_loop": lambda p: torch.optim.AdamW(p, foreach=False),
    "sgd": lambda p: torch.optim.SGD(p, foreach=True),
    "sgd_momentum": lambda p: torch.optim.SGD(p, momentum=0.9, foreach=True),
    "adafactor": lambda p: torch.optim.Adafactor(p),
    "adafactor_transformers": lambda p: Adafactor(p, lr=1e-3, relative_step=False, scale_parameter=False),
}


def decoder(hidden, intermediate, layers, heads, kv_heads, vocabulary, **more):
    return {"hidden_size": hidden, "intermediate_size": intermediate, "num_hidden_layers": layers, "num_attention_heads": heads,
            "num_key_value_heads": kv_heads, "vocab_size": vocabulary, "max_position_embeddings": 32768, **more}


def encoder(hidden, layers, heads, **more):
    return {"hidden_size": hidden, "intermediate_size": 4 * hidden, "num_hidden_layers": layers,
            "num_attention_heads": heads, **more}


TIED = {"tie_word_embeddings": True}
BASIC = {"hidden_sizes": [64, 128, 256, 512], "embedding_size": 64, "layer_type": "basic"}
BOTTLENECK = {"hidden_sizes": [256, 512, 1024, 2048], "embedding_size": 64, "layer_type": "bottleneck"}
# Published sizes: name, type, class, values.
PUBLISHED = [
    ("Llama-2-7b", "llama", "LlamaForCausalLM", decoder(4096, 11008, 32, 32, 32, 32000)),
    ("Llama-3.2-1B", "llama", "LlamaForCausalLM", decoder(2048, 8192, 16, 32, 8, 128256, head_dim=64, **TIED)),
    ("TinyLlama-1.1B", "llama", "LlamaForCausalLM", decoder(2048, 5632, 22, 32, 4, 32000)),
    ("Qwen2-0.5B", "qwen2", "Qwen2ForCausalLM", decoder(896, 4864, 24, 14, 2, 151936, **TIED)),
    ("Qwen2.5-3B", "qwen2", "Qwen2ForCausalLM", decoder(2048, 11008, 36, 16, 2, 151936, **TIED)),
    ("Qwen3-0.6B", "qwen3", "Qwen3ForCausalLM", decoder(1024, 3072, 28, 16, 8, 151936, head_dim=128, **TIED)),
    ("Qwen3-4B", "qwen3", "Qwen3ForCausalLM", decoder(2560, 9728, 36, 32, 8, 151936, head_dim=128, **TIED)),
    ("Mistral-7B-v0.3", "mistral", "MistralForCausalLM", decoder(4096, 14336, 32, 32, 8, 32768, sliding_window=None)),
    ("Mistral-Nemo-12B", "mistral", "MistralForCausalLM",
     decoder(5120, 14336, 40, 32, 8, 131072, head_dim=128, sliding_window=None)),
    ("gpt2-medium", "gpt2", "GPT2LMHeadModel", {"n_embd": 1024, "n_layer": 24, "n_head": 16, "vocab_size": 50257}),
    ("gpt2-xl", "gpt2", "GPT2LMHeadModel", {"n_embd": 1600, "n_layer": 48, "n_head": 25, "vocab_size": 50257}),
    ("bert-base-uncased", "bert", "BertForMaskedLM", encoder(768, 12, 12, vocab_size=30522)),
    ("bert-large-cased", "bert", "BertForMaskedLM", encoder(1024, 24, 16, vocab_size=28996)),
    ("vit-base-patch16-224", "vit", "ViTForImageClassification", encoder(768, 12, 12)),
    ("vit-large-patch16-384", "vit", "ViTForImageClassification", encoder(1024, 24, 16, image_size=384)),
    ("resnet-50", "resnet", "ResNetForImageClassification", {"depths": [3, 4, 6, 3], **BOTTLENECK}),
    ("resnet-152", "resnet", "ResNetForImageClassification", {"depths": [3, 8, 36, 3], **BOTTLENECK}),
    ("t5-base", "t5", "T5ForConditionalGeneration",
     {"d_model": 768, "d_ff": 3072, "num_layers": 12, "num_decoder_layers": 12, "num_heads": 12}),
    ("flan-t5-xl", "t5", "T5ForConditionalGeneration",
     {"d_model": 2048, "d_ff": 5120, "num_layers": 24, "num_decoder_layers": 24, "num_heads": 32,
      "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}),
    ("Mixtral-8x7B", "mixtral", "MixtralForCausalLM", decoder(4096, 14336, 32, 32, 8, 32000, num_local_experts=8)),
    ("Mixtral-8x22B", "mixtral", "MixtralForCausalLM", decoder(6144, 16384, 56, 48, 8, 32768, num_local_experts=8)),
    ("t5-v1_1-small", "t5", "T5ForConditionalGeneration",
     {"d_model": 512, "d_ff": 1024, "num_layers": 8, "num_decoder_layers": 8, "num_heads": 6,
      "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}),
    ("SmolLM2-360M", "llama", "LlamaForCausalLM", decoder(960, 2560, 32, 15, 5, 49152, **TIED)),
    ("Qwen2.5-1.5B", "qwen2", "Qwen2ForCausalLM", decoder(1536, 8960, 28, 12, 2, 151936, **TIED)),
    ("Qwen3-1.7B", "qwen3", "Qwen3ForCausalLM", decoder(2048, 6144, 28, 16, 8, 151936, head_dim=128, **TIED)),
    ("distilgpt2", "gpt2", "GPT2LMHeadModel", {"n_embd": 768, "n_layer": 6, "n_head": 12, "vocab_size": 50257}),
    ("bert-base-multilingual", "bert", "BertForMaskedLM", encoder(768, 12, 12, vocab_size=119547)),
    ("deit-small-patch16", "vit", "ViTForImageClassification", encoder(384, 12, 6)),
    ("resnet-101", "resnet", "ResNetForImageClassification", {"depths": [3, 4, 23, 3], **BOTTLENECK}),
    ("Mistral-Small-24B", "mistral", "MistralForCausalLM",
     decoder(5120, 32768, 40, 32, 8, 131072, head_dim=128, sliding_window=None)),
    ("resnet-18", "resnet", "ResNetForImageClassification", {"depths": [2, 2, 2, 2], **BASIC}),
    ("resnet-34", "resnet", "ResNetForImageClassification", {"depths": [3, 4, 6, 3], **BASIC}),
    ("gemma-2-2b", "gemma2", "Gemma2ForCausalLM", decoder(2304, 9216, 26, 8, 4, 256000, head_dim=256)),
    ("gemma-3-1b", "gemma3_text", "Gemma3ForCausalLM", decoder(1152, 6912, 26, 4, 1, 262144, head_dim=256)),
    ("Phi-3-mini-4k", "phi3", "Phi3ForCausalLM", decoder(3072, 8192, 32, 32, 32, 32064)),
    ("OLMo-2-1B", "olmo2", "Olmo2ForCausalLM", decoder(2048, 8192, 16, 16, 16, 100352)),
    ("granite-3.1-2b", "granite", "GraniteForCausalLM", decoder(2048, 8192, 40, 32, 8, 49155, **TIED)),
    ("starcoder2-3b", "starcoder2", "Starcoder2ForCausalLM", decoder(3072, 12288, 30, 24, 2, 49152)),
    ("pythia-1b", "gpt_neox", "GPTNeoXForCausalLM", decoder(2048, 8192, 16, 8, 8, 50304)),
    ("opt-1.3b", "opt", "OPTForCausalLM",
     {"hidden_size": 2048, "ffn_dim": 8192, "num_hidden_layers": 24, "num_attention_heads": 32, "vocab_size": 50272}),
    ("roberta-base", "roberta", "RobertaForMaskedLM", encoder(768, 12, 12, vocab_size=50265, max_position_embeddings=514)),
    ("bart-large", "bart", "BartForConditionalGeneration",
     {"d_model": 1024, "encoder_layers": 12, "decoder_layers": 12, "encoder_attention_heads": 16, "decoder_attention_heads": 16,
      "encoder_ffn_dim": 4096, "decoder_ffn_dim": 4096, "vocab_size": 50265}),
    ("Qwen3-30B-A3B", "qwen3_moe", "Qwen3MoeForCausalLM",
     decoder(2048, 6144, 48, 32, 4, 151936, head_dim=128, num_experts=128, num_experts_per_tok=8, moe_intermediate_size=768)),
    ("resnet, basic 3-4-23-3", "resnet", "ResNetForImageClassification", {"depths": [3, 4, 23, 3], **BASIC}),
    ("llama, many words", "llama", "LlamaForCausalLM", decoder(256, 896, 3, 4, 1, 151936)),
    ("bert-base, classes", "bert", "BertForSequenceClassification", encoder(768, 12, 12)),
]
SHORT_TYPES = "gpt2", "bert", "roberta", "bart"  # of few positions
# Classes without rows, or with few, whose estimates are lower bounds: with four layers of their own sizes.
BOUNDS = {"gemma": "GemmaForCausalLM", "phi": "PhiForCausalLM", "opt": "OPTForCausalLM", "gpt_neox": "GPTNeoXForCausalLM",
          "roberta": "RobertaForMaskedLM", "distilbert": "DistilBertForMaskedLM", "deberta-v2": "DebertaV2ForMaskedLM",
          "bloom": "BloomForCausalLM", "falcon": "FalconForCausalLM", "starcoder2": "Starcoder2ForCausalLM",
          "olmo2": "Olmo2ForCausalLM", "granite": "GraniteForCausalLM", "deepseek_v3": "DeepseekV3ForCausalLM",
          "qwen2_moe": "Qwen2MoeForCausalLM", "qwen3_moe": "Qwen3MoeForCausalLM", "bart": "BartForConditionalGeneration",
          "gemma3_text": "Gemma3ForCausalLM"}
SMALL = {**dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "encoder_layers", "decoder_layers", "num_layers"), 4),
         **dict.fromkeys(("n_routed_experts", "num_experts"), 16)}
BOUND_CASES = [(4, 384, "sgd", "p", "a", False, 0), (4, 384, "sgd", "m", "a", True, 0), (4, 384, "sgd", "w", "e", False, 0),
               (4, 384, "sgd", "p", "a", False, 8)]
LOADS = [(1, 2048), (4, 512), (8, 1024), (2, 4096), (1, 8192), (16, 512)]
SHORT = [(8, 512), (32, 128), (4, 512), (16, 256)]  # for models of few positions
IMAGES = [(16, 0), (64, 0), (128, 0)]
RECORDED = os.environ.get("TRAINING_JSON", os.path.join(HERE, "training.json"))
VARIANTS = [("panf", "macf", "penf", "macl", "wacf"), ("pacf", "manf", "mecf", "panl", "wanf")]  # of a published size
RECORDED_OPTIMIZERS = ["adamw", "adafactor_transformers", "sgd", "adamw_fused", "sgd_momentum"]


KEYS = "batch", "tokens", "optimizer", "precision", "attention", "checkpointing", "lora"
HOOKS = "register_hook", "register_post_accumulate_grad_hook"


class Tracker(MemTracker):
    """MemTracker for frozen parameters, too, whose gradients have no hook; and of the whole alone, not of each module."""

    def _update_peak_stats(self, peak_state):
        for device, kinds in self._curr_mem_snap.items():
            if self._peak_mem.get(device, 0) < kinds["Total"]:
                self._peak_mem[device], self._peak_mem_snap[device] = kinds["Total"], dict(kinds)

    def __enter__(self):
        self.originals = {name: getattr(torch.Tensor, name) for name in HOOKS}
        for name, original in self.originals.items():
            setattr(torch.Tensor, name, lambda tensor, hook, original=original: (
                original(tensor, hook) if tensor.requires_grad else types.SimpleNamespace(remove=lambda: None)))
        return super().__enter__()

    def __exit__(self, *args):
        for name, original in self.originals.items():
            setattr(torch.Tensor, name, original)
        return super().__exit__(*args)


def bytes_of(tensors):
    return sum({t.untyped_storage()._cdata: t.untyped_storage().nbytes() for t in tensors if t.device.type == "cuda"}.values())


def on_gpu(tracker, when):
    """The bytes on the GPU, by kind and in whole."""
    kinds = next(kinds for device, kinds in tracker.get_tracker_snapshot(when).items() if device.type == "cuda")
    return {getattr(k, "value", k): v for k, v in kinds.items()}


def measure(model_class, config, batch, tokens, optimizer, precision, attention, checkpointing, lora):
    step = training_step.Step(model_class, config, precision, attention, checkpointing, lora)
    inputs = step.inputs(batch, tokens)
    trained = [p for p in step.model.parameters() if p.requires_grad]
    with step.mode:
        chosen = OPTIMIZERS[optimizer](trained)
    # A step's number is a value, of which tensors of shapes alone have none.
    original, torch.Tensor.item = torch.Tensor.item, lambda tensor: 1.0
    tracker = Tracker()
    tracker.track_external(step.model, chosen)
    at = {}
    try:
        with step.mode, tracker:
            for number in range(2):
                tracker.reset_mod_stats()
                if number:
                    at["before"] = on_gpu(tracker, "current")
                    tracker._peak_mem, tracker._peak_mem_snap = {}, {}
                step.run(inputs)
                if number:
                    at["backward"] = on_gpu(tracker, "peak")
                chosen.step()
                chosen.zero_grad()
        at["peak"] = on_gpu(tracker, "peak")
    finally:
        torch.Tensor.item = original
    states = bytes_of([t for s in chosen.state.values() for t in s.values() if isinstance(t, torch.Tensor)])
    parts = {"parameters": bytes_of(step.model.parameters()), "trained": bytes_of(trained), "states": states,
             "backward": at["backward"]["Total"] - at["before"]["Total"]}
    return at["peak"]["Total"], parts


def variants(number, kind):
    """Loads, optimisers and flags of a published size: neighbours of a class have different ones."""
    rnd = random.Random(number)
    loads = IMAGES if kind == "image" else SHORT if kind == "short" else LOADS
    for i, (precision, attention, checkpointing, tuning) in enumerate(VARIANTS[number % len(VARIANTS)]):
        batch, tokens = rnd.choice(loads)
        optimizer = RECORDED_OPTIMIZERS[(number + i) % len(RECORDED_OPTIMIZERS)]
        rank = rnd.choice((8, 16, 64)) if tuning == "l" else 0
        yield batch, tokens, optimizer, precision, attention, checkpointing == "c", rank


def random_values(kind, rnd):
    """A configuration of random sizes."""
    heads, width = rnd.choice((4, 8, 12, 16, 24, 32)), rnd.choice((64, 64, 80, 96, 128))
    hidden, layers = heads * width, rnd.choice((2, 3, 4, 6, 8, 12, 16, 24))
    inner = int(hidden * rnd.choice((1.5, 2.6875, 3.5, 4))) // 64 * 64
    vocabulary = rnd.choice((8000, 32000, 50257, 128256, 151936))
    if kind == "resnet":
        depths = rnd.choice(([2, 2, 2, 2], [3, 4, 6, 3], [3, 4, 23, 3], [2, 3, 4, 2]))
        word = rnd.choice(("basic", "bottleneck"))
        first = rnd.choice((64, 128)) * (4 if word == "bottleneck" else 1)
        return {"depths": depths, "hidden_sizes": [first << n for n in range(4)], "layer_type": word, "embedding_size": 64}
    if kind == "vit":
        return encoder(hidden, layers, heads, image_size=rnd.choice((224, 256, 384)), patch_size=rnd.choice((16, 32)))
    if kind == "bert":
        return encoder(hidden, layers, heads, vocab_size=rnd.choice((21128, 30522, 119547)))
    if kind == "gpt2":
        return {"n_embd": hidden, "n_layer": layers, "n_head": heads, "vocab_size": vocabulary}
    if kind in ("t5", "mt5"):
        return {"d_model": hidden, "d_kv": 64, "d_ff": inner, "num_layers": layers, "num_heads": heads,
                "feed_forward_proj": rnd.choice(("relu", "gated-gelu")), "tie_word_embeddings": rnd.random() < 0.5}
    its = decoder(hidden, inner, layers, heads, heads // rnd.choice((1, 2, 4)), vocabulary,
                  tie_word_embeddings=rnd.random() < 0.5, pad_token_id=None)  # a class's own may be beyond the vocabulary
    if kind == "mistral":
        its["sliding_window"] = None
    if kind == "mixtral":
        its.update(num_hidden_layers=min(layers, 6), num_local_experts=rnd.choice((4, 8)))
    return its


def sweep(count, words):
    """Random cases of each class of the published sizes."""
    rnd = random.Random(int(os.environ.get("SEED", "1")))
    classes = {kind: class_name for _, kind, class_name, _ in PUBLISHED if not words or kind in words}
    for number in range(count):
        kind = list(classes)[number % len(classes)]
        values = random_values(kind, rnd)
        short = kind in SHORT_TYPES
        batch, tokens = rnd.choice(SHORT if short else IMAGES if kind in ("vit", "resnet") else LOADS)
        rank = rnd.choice((0, 0, 0, 8, 32)) if kind != "resnet" else 0
        its = (batch, tokens, rnd.choice(RECORDED_OPTIMIZERS), rnd.choice("ppmmw"),
               "a" if kind == "resnet" else rnd.choice("aae"), rnd.random() < 0.4 and kind != "resnet", rank)
        yield f"{kind}-{number}", kind, classes[kind], values, [its]


def published(words):
    for number, (name, kind, class_name, values) in enumerate(PUBLISHED):
        if not words or any(word in name for word in words):
            short = "short" if kind in SHORT_TYPES else "image" if kind in ("vit", "resnet") else None
            yield name, kind, class_name, values, variants(number, short)
    for kind, class_name in BOUNDS.items():
        name = kind + ", 4 layers"
        if not words or any(word in name for word in words):
            own = transformers.AutoConfig.for_model(kind).to_dict()
            yield name, kind, class_name, {k: v for k, v in SMALL.items() if k in own and own[k]}, BOUND_CASES


def record(models):
    """Measures the loads of (name, type, class, values, loads) that are not recorded."""
    try:
        with open(RECORDED, encoding="utf-8") as file:
            cases = json.load(file)
    except OSError:
        cases = []
    for name, kind, class_name, values, loads in models:
        have = [[c[key] for key in KEYS] for c in cases if c["name"] == name]
        for batch, tokens, *flags in loads:
            if [batch, tokens, *flags] in have:
                continue
            config = transformers.AutoConfig.for_model(kind, **values)
            try:
                peak, parts = measure(getattr(transformers, class_name), config, batch, tokens, *flags)
            except (RuntimeError, ValueError) as error:
                print(name, batch, tokens, *flags, str(error)[:200], flush=True)
                continue
            case = dict(zip(KEYS, (batch, tokens, *flags)))
            case.update({"name": name, "class": class_name, "peak_bytes": peak, "parts": parts,
                         "config": {**values, "model_type": kind, "architectures": [class_name]}})
            cases.append(case)
            print(name, batch, tokens, *flags, peak, parts, flush=True)
        with open(RECORDED, "w", encoding="utf-8") as file:
            lines = [json.dumps(c, sort_keys=True) for c in sorted(cases, key=lambda c: c["name"])]
            file.write("[\n" + ",\n".join(lines) + "\n]\n")


def show(options):
    path = options.config
    with open(os.path.join(path, "config.json") if os.path.isdir(path) else path, encoding="utf-8") as file:
        values = json.load(file)
    config = transformers.AutoConfig.for_model(**values)
    model_class = getattr(transformers, values["architectures"][0])
    peak, parts = measure(model_class, config, options.batch, options.tokens, options.optimizer, options.precision,
                          options.attention, options.checkpointing, options.lora)
    for part, size in {**parts, "peak": peak}.items():
        print(f"{part:12} {size:16,} {size / 2**30:9.2f} GiB")


def main():
    parser = argparse.ArgumentParser(description="the peak of a training step, on shapes alone")
    parser.add_argument("config", nargs="?")
    parser.add_argument("--record", nargs="*")
    parser.add_argument("--sweep", nargs="+")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--optimizer", choices=OPTIMIZERS, default="adamw")
    parser.add_argument("--precision", choices="pwm", default="p")
    parser.add_argument("--attention", choices="ae", default="a")
    parser.add_argument("--checkpointing", action="store_true")
    parser.add_argument("--lora", type=int, default=0)
    options = parser.parse_args()
    if options.record is not None:
        record(published(options.record))
    elif options.sweep:
        record(sweep(int(options.sweep[0]), options.sweep[1:]))
    else:
        show(options)


if __name__ == "__main__":
    main()
