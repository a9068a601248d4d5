#!/usr/bin/env python3
"""Writes families.json: for every causal language model that Hugging Face's transformers knows, the configuration
that its class makes by itself, and the elements of its KV cache by that class's own attributes. Needs the package
transformers, not PyTorch; the test beside it needs neither.

usage: families.py > families.json
"""
import json
import os
import re
import sys

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
import transformers  # noqa: E402
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES  # noqa: E402

TOKENS = (1000, 100000)
# What does not bear on the cache, kept out for size; everything else stays, known to the estimator or not.
WITHOUT = re.compile(r"token|label|drop|_eps|epsilon|initializer|rope_(theta|param|scal)|theta|output_|return_|prun|"
                     r"chunk_size_feed|version|_act|act_|activation|bias|loss|scale|scaling|cache$|norm|language|"
                     r"architectures|torchscript|problem|summary|task|beam|vision|audio|image|id2|2id|_std|router|"
                     r"multiplier|_range|softcap|jitter|factor|logits|rotary|per_layer_input|mlp_layer_types")
KEEPS = {"full_attention": True, "attention": True, "hybrid": True, "indexed_attention": True,
         "sliding_attention": "sliding_window", "chunked_attention": "attention_chunk_size",
         "linear_attention": False, "mamba": False, "mlp": False, "moe": False, "conv": False}


def trimmed(config):
    kept = {}
    for key, value in config.items():
        if value is None or WITHOUT.search(key) and "chunk_size" not in key.replace("chunk_size_feed", ""):
            continue
        if isinstance(value, dict):
            value = trimmed(value)
        if value not in ({}, []):
            kept[key] = value
    return kept


def cached_tokens(config, kind, tokens):
    """Tokens that a layer of this kind keeps; KeyError for a kind that is not known."""
    keeps = KEEPS[kind]
    if isinstance(keeps, bool):
        return tokens if keeps else 0
    return min(tokens, getattr(config, keeps, None) or tokens)


def elements(config, tokens):
    """Elements of the cache for one sequence: keys and values, or the latent and the rotary key."""
    layers = config.num_hidden_layers
    if getattr(config, "is_decoder", True) is False and not re.match("gpt_neox|reformer", config.model_type) and (
            not config.is_encoder_decoder):
        return 0  # an encoder, made a decoder only where it is configured as one
    kinds = getattr(config, "layer_types", None) or getattr(config, "layers_block_type", None)
    if kinds is None:
        slides = getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", True)
        kinds = ["sliding_attention" if slides else "full_attention"] * layers
    heads = config.num_attention_heads
    kv_heads = getattr(config, "num_key_value_heads", None) or heads
    if getattr(config, "multi_query", False) and not getattr(config, "new_decoder_architecture", False):
        kv_heads = 1
    size = getattr(config, "head_dim", None) or getattr(config, "attention_head_size", None) or config.hidden_size // heads
    of_token = kv_heads * (size + (getattr(config, "v_head_dim", None) or size))
    if getattr(config, "kv_lora_rank", None):
        of_token = config.kv_lora_rank + config.qk_rope_head_dim
    if getattr(config, "index_head_dim", None):
        of_token += config.index_head_dim
    shared = getattr(config, "num_kv_shared_layers", None) or 0
    return sum(cached_tokens(config, kind, tokens) for kind in kinds[:layers - shared]) * of_token


def main():
    families = {"transformers": transformers.__version__, "tokens": TOKENS, "families": {}}
    for name in sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES):
        try:
            config = transformers.CONFIG_MAPPING[name]()
            text = config.get_text_config()
            wanted = [elements(text, tokens) for tokens in TOKENS]
        except Exception as error:  # a class without defaults, or with attributes of its own: reported, not counted
            print(f"{name}: left out: {str(error)[:90]}", file=sys.stderr)
            continue
        described = trimmed(config.to_dict())
        described["model_type"] = name
        families["families"][name] = {"kv_elements": wanted, "config": described}
    text = json.dumps(families["families"], separators=(",", ":"))
    text = text.replace('},"', '},\n"')
    print(f'{{"transformers": "{families["transformers"]}", "tokens": {list(TOKENS)}, "families":\n{text}}}')


main()
