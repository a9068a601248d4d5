#!/bin/bash
# What the documents show is so: marked examples are run on the simulated device, links lead somewhere, and each variable,
# command, option and path that they name is there. tests/self/docs.py has the marks of a block.
# timeout: 400
. "$(dirname "$0")/../lib.sh"
cd "$ROOT" || exit 1

# What examples find in their folder: the tree's programs and examples, a model.
template=$TMP/template
mkdir -p "$template" "$TMP/model"
# README's examples run at the tree's root; what they write stays out of it.
ln -s "$BUILD_DIR" "$template/build"
ln -s "$ROOT/examples" "$ROOT/tests" "$template"
ln -s "$TMP/model" "$template/model" # not copied: it is large, though sparse
cat > "$template/live" << END
#!/bin/bash
export GPUCACHE_GROUP=team GPUCACHE_TENANT=llama GPUCACHE_REPORT=none
{ echo "alloc 64"; echo "alloc 32"; echo "free 0"; cat; } | LD_PRELOAD=libgpucache.so "$BUILD_DIR/tests/preload/live_client"
END
chmod +x "$template/live"
# A Llama of 1.2 billion parameters: only the header of its weights is ever read, so the file is sparse.
python3 - "$TMP/model" << 'END'
import json, os, struct, sys
hidden, heads, groups, width, layers, words = 2048, 32, 8, 8192, 16, 128256
json.dump({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": hidden, "num_attention_heads": heads,
           "num_key_value_heads": groups, "intermediate_size": width, "num_hidden_layers": layers, "vocab_size": words,
           "max_position_embeddings": 131072, "head_dim": 64, "tie_word_embeddings": True, "torch_dtype": "bfloat16"},
          open(os.path.join(sys.argv[1], "config.json"), "w", encoding="utf-8"))
shapes = {"model.embed_tokens.weight": [words, hidden], "model.norm.weight": [hidden]}
for layer in range(layers):
    for name, shape in {"self_attn.q_proj": [hidden, hidden], "self_attn.k_proj": [groups * 64, hidden],
                        "self_attn.v_proj": [groups * 64, hidden], "self_attn.o_proj": [hidden, hidden],
                        "mlp.gate_proj": [width, hidden], "mlp.up_proj": [width, hidden], "mlp.down_proj": [hidden, width],
                        "input_layernorm": [hidden], "post_attention_layernorm": [hidden]}.items():
        shapes[f"model.layers.{layer}.{name}.weight"] = shape
header, at = {}, 0
for name, shape in shapes.items():
    size = 2
    for dimension in shape:
        size *= dimension
    header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
    at += size
text = json.dumps(header).encode()
with open(os.path.join(sys.argv[1], "model.safetensors"), "wb") as stream:
    stream.write(struct.pack("<Q", len(text)) + text)
    stream.truncate(8 + len(text) + at)
END
mapfile -t documents < <(scripts/files.sh | grep '\.md$' | grep -vE '^(CHANGELOG|tests/)')
export PLAIN_PATH="$PATH" PATH="$BUILD_DIR:$BUILD_DIR/tests/demo:$PATH" LD_LIBRARY_PATH="$SIM_DIR:$BUILD_DIR" GPUCACHE_LEDGER="$TMP/ledger" TERM=dumb
unset GPUCACHE_REPORT
python3 tests/self/docs.py "$ROOT" "$TMP" "${documents[@]}"
