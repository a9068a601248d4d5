"""What known architectures keep for each sequence, by the formulas of their papers, with the numbers written out
by hand: nothing here reads a configuration, so that reading one is tested too.

KV elements: rows of (layers, tokens kept at most or None, elements of a token in a layer). Attention of all heads
(Vaswani et al., 2017) and of groups (Ainslie et al., 2023; one group: Shazeer, 2019) keeps 2 · kv_heads · head_dim,
latent attention (DeepSeek-V2, 2024, section 2.1) latent + rotary dimension, sliding windows (Beltagy et al.,
2020; Mistral 7B, 2023) their last tokens.

STATE: rows of (layers, channels of convolutions, tokens of them, elements of states in 32 bits). Transformers keeps
all tokens of a convolution, llama.cpp all but the newest. Mamba: Gu and Dao, 2023;
Mamba 2: Dao and Gu, 2024; gated delta: Yang et al., 2024; RG-LRU: De et al., 2024.
"""

KV = {
    "llama-2-7b": [(32, None, 2 * 32 * 128)],
    "llama-3-8b": [(32, None, 2 * 8 * 128)],
    "llama-3.1-70b": [(80, None, 2 * 8 * 128)],
    "mistral-7b-v0.1": [(32, 4096, 2 * 8 * 128)],
    "mixtral-8x7b": [(32, None, 2 * 8 * 128)],
    "qwen2.5-7b": [(28, None, 2 * 4 * 128)],
    "qwen3-30b-a3b": [(48, None, 2 * 4 * 128)],
    "gemma-2-9b": [(21, 4096, 2 * 8 * 256), (21, None, 2 * 8 * 256)],
    "gemma-3-4b": [(29, 1024, 2 * 4 * 256), (5, None, 2 * 4 * 256)],
    "gemma-3-27b": [(52, 1024, 2 * 16 * 128), (10, None, 2 * 16 * 128)],
    "deepseek-v2-lite": [(27, None, 512 + 64)],
    "deepseek-v3": [(61, None, 512 + 64)],
    "phi-2": [(32, None, 2 * 32 * 80)],
    "phi-3-mini-4k": [(32, 2047, 2 * 32 * 96)],
    "falcon-7b": [(32, None, 2 * 1 * 64)],
    "falcon-40b": [(60, None, 2 * 128 * 64)],  # 8 heads of keys and values, which transformers repeats before it keeps them
    "gpt2": [(12, None, 2 * 12 * 64)],
    "bloom": [(70, None, 2 * 112 * 128)],
    "mpt-7b": [(32, None, 2 * 32 * 128)],
    "chatglm3-6b": [(28, None, 2 * 2 * 128)],
    "command-r7b": [(24, 4096, 2 * 8 * 128), (8, None, 2 * 8 * 128)],
    "gpt-oss-20b": [(12, 128, 2 * 8 * 64), (12, None, 2 * 8 * 64)],
    "llama-4-scout": [(36, 8192, 2 * 8 * 128), (12, None, 2 * 8 * 128)],
    "jamba-v0.1": [(4, None, 2 * 8 * 128)],
    "mamba-2.8b": [],
    "nemotron-h-8b": [(4, None, 2 * 8 * 128)],
    "qwen3-next-80b-a3b": [(12, None, 2 * 2 * 256)],
    "recurrentgemma-2b": [(8, 2048, 2 * 1 * 256)],
}

STATE = {
    "jamba-v0.1": [(28, 8192, 4, 8192 * 16)],
    "mamba-2.8b": [(64, 5120, 4, 5120 * 16)],
    "nemotron-h-8b": [(24, 8192 + 2 * 8 * 128, 4, 128 * 64 * 128)],
    "qwen3-next-80b-a3b": [(36, 2 * 16 * 128 + 32 * 128, 4, 32 * 128 * 128)],
    "recurrentgemma-2b": [(18, 2560, 3, 2560)],
}

# Bytes of a block and its elements: IEEE 754, OCP 8-bit floats, ggml-common.h.
TYPES = {"f32": (4, 1), "f16": (2, 1), "bf16": (2, 1), "f8": (1, 1), "q8_0": (34, 32), "q5_1": (24, 32),
         "q4_0": (18, 32), "f64": (8, 1)}


def stored(elements, dtype):
    """Bytes of a row of elements, in whole blocks."""
    size, block = TYPES[dtype]
    return -(-elements // block) * size


def kv_bytes(name, batch, tokens, dtype):
    total = 0
    for layers, kept, elements in KV[name]:
        # keys and values are rows of their own; a latent is one
        rows = [elements] if "deepseek" in name else [elements // 2] * 2
        total += layers * min(tokens, kept or tokens) * sum(stored(row, dtype) for row in rows)
    return batch * total


def state_bytes(name, batch, dtype, gguf=False):
    return batch * sum(layers * (stored(channels * (tokens - gguf), dtype) + 4 * state)
                       for layers, channels, tokens, state in STATE.get(name, []))
