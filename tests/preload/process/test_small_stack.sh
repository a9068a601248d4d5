#!/bin/bash
# Threads with small stacks: whatever a thread is the first to do, the library and the simulated driver take less than 14 KiB of its
# stack together, with everything on; and a thread with the least stack there is may end the process.
. "$(dirname "$0")/../../lib.sh"
program=$BUILD_DIR/tests/preload/small_stack
most=14336

# A model of a few tensors, as Hugging Face lays it out.
mkdir "$TMP/model"
python3 - "$TMP/model" << 'END'
import json, struct, sys
json.dump({"model_type": "llama", "hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 1, "num_attention_heads": 8,
           "num_key_value_heads": 8, "vocab_size": 1000, "max_position_embeddings": 2048, "torch_dtype": "float16"},
          open(sys.argv[1] + "/config.json", "w"))
shapes = {"model.embed_tokens.weight": (1000, 512), "lm_head.weight": (1000, 512)}
for name, shape in (("self_attn.q_proj", (512, 512)), ("self_attn.k_proj", (512, 512)), ("self_attn.v_proj", (512, 512)),
                    ("self_attn.o_proj", (512, 512)), ("mlp.up_proj", (1024, 512)), ("mlp.gate_proj", (1024, 512)),
                    ("mlp.down_proj", (512, 1024))):
    shapes[f"model.layers.0.{name}.weight"] = shape
head, at = {}, 0
for name, (rows, columns) in shapes.items():
    head[name] = {"dtype": "F16", "shape": [rows, columns], "data_offsets": [at, at + 2 * rows * columns]}
    at += 2 * rows * columns
text = json.dumps(head).encode()
with open(sys.argv[1] + "/model.safetensors", "wb") as stream:
    stream.write(struct.pack("<Q", len(text)) + text)
    stream.truncate(8 + len(text) + at)
END

# A plan, of a run's trace.
preloaded GPUCACHE_TRACE="$TMP/first" GPUCACHE_REPORT=none "$program" > /dev/null
ok "a plan" "$TOOL" plan "$TMP/first" --output "$TMP/plan"

for settings in GPUCACHE_MODE=track GPUCACHE_BACKEND=driver "GPUCACHE_DEBUG=poison,guard" \
    "GPUCACHE_TRACE=$TMP/trace GPUCACHE_STACKS=all" "GPUCACHE_GROUP=small GPUCACHE_LIMIT=80% GPUCACHE_TENANTS=all=*:4GiB" \
    "GPUCACHE_MODEL=$TMP/model GPUCACHE_BUDGET=1MiB" "GPUCACHE_PLAN=$TMP/plan" GPUCACHE_LOG=debug; do
    rm -f "$TMP/r.json"
    # shellcheck disable=SC2086 # words
    out=$(preloaded $settings GPUCACHE_REPORT="$TMP/r.json" "$program" 2> "$TMP/err")
    is "${settings//$TMP\//}: a thread with the least stack ends the process" "$?" 0
    ok "${settings//$TMP\//}: there is a report" test -s "$TMP/r.json"
    is "${settings//$TMP\//}: steps that took more than $most bytes" "$(awk -v most=$most '$2 > most' <<< "$out")" ""
    is "${settings//$TMP\//}: steps" "$(wc -l <<< "$out")" 9
done
done_testing
