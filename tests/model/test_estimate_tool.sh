#!/bin/bash
# gpucache estimate: its command line, text, JSON and exit statuses; several models; calibration by a real report.
. "$(dirname "$0")/../lib.sh"
cd "$TMP" || exit 1

# fails STATUS TEXT ARGUMENTS…: `gpucache estimate ARGUMENTS` ends so with that text on stderr, nothing on stdout.
fails() {
    local status=$1 text=$2
    shift 2
    "$TOOL" estimate "$@" > out 2> err
    is "estimate $*: status" $? "$status"
    ok "estimate $*: $text" grep -qF -- "$text" err
    [ "$status" = 3 ] || is "estimate $*: nothing on stdout" "$(cat out)" ""
}
# safetensors FILE NAME:DTYPE:BYTES:SHAPE…: headers of sparse files.
safetensors() {
    python3 - "$@" << 'END'
import json, struct, sys
header, offset = {}, 0
for item in sys.argv[2:]:
    name, dtype, size, shape = item.split(":")
    header[name] = {"dtype": dtype, "shape": [int(n) for n in shape.split("x")], "data_offsets": [offset, offset + int(size)]}
    offset += int(size)
text = json.dumps(header).encode()
with open(sys.argv[1], "wb") as file:
    file.write(struct.pack("<Q", len(text)) + text)
    file.truncate(8 + len(text) + offset)
END
}
architecture() {
    python3 -c 'import json, sys; print(json.dumps(json.load(open(sys.argv[1]))[sys.argv[2]]["config"]))' \
        "$ROOT/tests/model/architectures.json" "$1"
}

mkdir llama
architecture llama-2-7b > llama/config.json
safetensors llama/model.safetensors model.embed_tokens.weight:F16:262144000:32000x4096 \
    model.layers.0.mlp.up_proj.weight:F16:90177536:11008x4096 lm_head.weight:F16:262144000:32000x4096
mkdir whole # as the configuration has it
architecture llama-2-7b > whole/config.json
tensors="model.embed_tokens:262144000:32000x4096 model.norm:8192:4096 lm_head:262144000:32000x4096"
for layer in $(seq 0 31); do
    for tensor in self_attn.q_proj self_attn.k_proj self_attn.v_proj self_attn.o_proj; do
        tensors="$tensors model.layers.$layer.$tensor:33554432:4096x4096"
    done
    for tensor in mlp.gate_proj mlp.up_proj mlp.down_proj; do
        tensors="$tensors model.layers.$layer.$tensor:90177536:11008x4096"
    done
    tensors="$tensors model.layers.$layer.input_layernorm:8192:4096 model.layers.$layer.post_attention_layernorm:8192:4096"
done
# shellcheck disable=SC2046
safetensors whole/model.safetensors $(for tensor in $tensors; do echo "${tensor%%:*}.weight:F16:${tensor#*:}"; done)
safetensors bare.safetensors a:F32:4194304:1024x1024

# ---- the command line ----
fails 2 'a model is missing'
fails 2 'unknown option --bogus' llama --bogus
for option in --batch --devices --seq-len --chunk; do
    fails 2 "$option 0 is not valid; accepted: an integer, 1 to" llama $option 0
    fails 2 "$option -1 is not valid" llama $option=-1
    fails 2 "$option 99999999999999999999 is not valid" llama $option 99999999999999999999
    fails 2 "$option is given twice" llama $option 1 $option 1
done
fails 2 '--devices 65 is not valid; accepted: an integer, 1 to 64' llama --devices 65
fails 2 '--dtype f17 is not valid; accepted: an element type' llama --dtype f17
fails 2 '--kv-dtype x is not valid' llama --kv-dtype x
for option in seq-len=1000000001 chunk=1000000001 resident-experts=65537; do
    fails 2 "accepted: an integer" llama "--$option"
done
fails 2 '--split rows is not valid; accepted: layers, tensor' llama --split rows
for words in '--split layers, tensor' '--attention flash, full' '--train adamw, ' '--engine transformers, vllm'; do
    fails 2 "${words%% *} needs a value; accepted: ${words#* }" llama "${words%% *}"
done
fails 1 'there is no such file or folder; gpucache reads local files and downloads nothing: of a repository with this name config.json is enough' \
    meta-llama/Llama-3.1-8B
fails 1 'there is no such file or folder' ./llama-3
is 'a path is no name of a repository' "$(grep -c repository err)" 0
for file in llama/config.json llama/model.safetensors; do
    ok "gpucache plan of a model points to estimate: $file" \
        grep -qF '; it is a model, for gpucache estimate' <("$TOOL" plan "$file" 2>&1)
done
fails 2 '--attention none is not valid; accepted: flash, full' llama --attention none
fails 2 '--overhead 0.9 is not valid; accepted: a factor, 1 to 100' llama --overhead 0.9
fails 2 '--overhead 100.5 is not valid' llama --overhead 100.5
fails 2 '--budget 0m is not valid' llama --budget 0m
fails 2 '--budget 50% is a percentage: add --memory SIZE' llama --budget 50%
fails 2 'devices by number' llama --budget GPU-12345678-1234-1234-1234-123456789012=1GiB
fails 2 '--dim N is not valid; accepted: name=N' llama --dim N
fails 2 '--dim N=0 is not valid' llama --dim N=0
fails 2 '--output needs --calibrate' llama --output x
fails 2 '--calibrate accepts one model' llama bare.safetensors --calibrate r.json
fails 1 'missing' missing
fails 1 '99999999' llama --calibration 99999999

fails 2 '--budget 0=8GiB,2=8GiB names device 2, but there are 2 devices' llama --devices 2 --budget 0=8GiB,2=8GiB
fails 2 '--budget 1=8GiB has no entry for device 0: add one, or --memory' llama --devices 2 --budget 1=8GiB

# ---- its output ----
"$TOOL" estimate llama > out
is "without a budget it is done" $? 0
like "weights" "$(cat out)" '^  weights +586\.0 MiB +614465536 +about$'
like "KV cache" "$(cat out)" '^  KV cache +2\.0 GiB +2147483648 +about$'
like "no budget is reported" "$(cat out)" 'No budget given'
bytes() { "$TOOL" estimate llama --json "$@" | python3 -c 'import json,sys; print(json.load(sys.stdin)["'"$KEY"'"])'; }
for type in int4 i8 q4_1; do
    "$TOOL" estimate llama --dtype $type > out
    like "weights in $type: activations as before" "$(cat out)" '^  activations +[0-9.]+ MiB +'"$("$TOOL" estimate llama --json | python3 -c 'import json,sys; print(json.load(sys.stdin)["activation_bytes"])')"' +about$'
    like "weights in $type: reported" "$(cat out)" '^  .*: not a type to compute in; activations are taken as f16$'
done
for type in int4 q4_0 q4_1 Q4_K_M awq; do
    is "weights in $type: the cache is as before" "$(KEY=kv_cache_bytes bytes --dtype $type)" "$(KEY=kv_cache_bytes bytes)"
done
"$TOOL" estimate llama --devices 2 --budget 1=8GiB --memory 16GiB > out
like "a budget for one device, the memory for the other" "$(cat out)" '^  device 0 .* of +16\.0 GiB$'
"$TOOL" estimate llama --dim batch=2,rows=3 > out
like "a dimension that is not there: reported" "$(cat out)" '^  no dimension is named rows: its value is not used$'
"$TOOL" estimate whole bare.safetensors --budget 64GiB > out
like "compared: known" "$(cat out)" '^whole .* GiB  yes$'
like "compared: a lower bound" "$(cat out)" '^bare\.safetensors .* MiB\+ \?$'
like "compared: reported what that is" "$(cat out)" '^\+ parts are unknown'
"$TOOL" estimate bare.safetensors --budget 1GiB > out
is "nothing to offer: no heading" "$(grep -c 'What fits' out)" 0
LD_LIBRARY_PATH=$SIM_DIR SIMCUDA_SHARED=context$$ "$TOOL" estimate bare.safetensors --overhead 1 --context-memory measured --json > out.json
is "a context measured, of 64 MiB" "$(python3 -c 'import json; print(json.load(open("out.json"))["overhead_bytes"] >> 20)')" 64
LD_LIBRARY_PATH=$SIM_DIR fails 1 'a second context did not reduce' bare.safetensors --context-memory measured
LD_LIBRARY_PATH=$SIM_DIR SIMCUDA_SHARED=small$$ SIMCUDA_MEMORY=100MiB fails 1 'no CUDA device, or not enough free memory' bare.safetensors --context-memory measured
rm -f "/dev/shm/simcuda-$(id -u)-context$$" "/dev/shm/simcuda-$(id -u)-small$$"
fails 2 '--context-memory much is not valid; accepted: a size, 0, or measured' llama --context-memory much
safetensors adapter.safetensors base.layers.0.q_proj.lora_A.weight:F32:2048:8x64 base.layers.0.q_proj.lora_B.weight:F32:2048:64x8
"$TOOL" estimate adapter.safetensors > out
like "adapters alone: reported" "$(cat out)" '^  these are adapters alone: the model they belong to is not counted'
is "adapters beside weights: no remark" "$("$TOOL" estimate bare.safetensors | grep -c adapters)" 0
fails 2 '--budget 2GiB is more than the device' llama --budget 2GiB --memory 1GiB
fails 2 '--budget 0=1GiB,1=2GiB is more than the device' llama --devices 2 --budget 0=1GiB,1=2GiB --memory 1GiB
mkdir odd
architecture llama-3-8b | sed 's/"bfloat16"/"int8"/' > odd/config.json
safetensors odd/model.safetensors model.layers.0.mlp.up_proj.weight:F16:117440512:14336x4096
"$TOOL" estimate odd > out
like "a type that one does not compute in: the weights' is taken" "$(cat out)" 'activations f16, KV cache f16'
like "a type that one does not compute in: reported" "$(cat out)" '^  torch_dtype int8: not a type to compute in'
mkdir beyond
architecture llama-3-8b | python3 -c 'import json, sys; config = json.load(sys.stdin); config["vision_config"] = {"hidden_size": 1152}
config["quantization_config"] = {"quant_method": "gptq", "bits": 4}; print(json.dumps(config))' > beyond/config.json
safetensors beyond/model.safetensors model.layers.0.mlp.up_proj.qweight:I32:29360128:512x14336
"$TOOL" estimate beyond > out
like "an encoder of images: reported" "$(cat out)" '^  the encoder of images or sound: its weights are counted'
like "packed weights: reported" "$(cat out)" '^  weights are packed, several in an integer'
is "JSON ends in one line break" "$("$TOOL" estimate llama --json | tail -1)" "}"
"$TOOL" estimate whole --budget 32GiB > out
is "fits" $? 0
like "fits: reported" "$(cat out)" '^It fits\.$'
"$TOOL" estimate llama --budget 2GiB > out
is "does not fit" $? 3
like "does not fit: reported" "$(cat out)" '^It does not fit: .* short; most of it is KV cache\.$'
is "80 columns" "$(awk 'length > 80' out)" ""
"$TOOL" estimate llama --budget 2GiB --json > out.json
is "json: does not fit" $? 3
is "json: the contract's keys" "$(json out.json '[k for k in "weight_bytes kv_cache_bytes activation_bytes \
attention_workspace_bytes input_bytes overhead_bytes peak_bytes budget_bytes fits deficit_bytes coverage largest_batch \
largest_seq_len resident_experts_per_layer parameters tensors warnings".split() if k not in r]')" "[]"
is "json: deficit" "$(json out.json 'r["peak_bytes"] - r["budget_bytes"] - r["deficit_bytes"]')" 0
is "json: no batch fits" "$(json out.json 'r["largest_batch"]')" 0
tokens=$(json out.json 'r["largest_seq_len"]')
"$TOOL" estimate llama --budget 2GiB --seq-len "$tokens" > out
is "the largest context fits" $? 0
"$TOOL" estimate llama --budget 2GiB --seq-len $((tokens + 1)) > out
is "one token more does not" $? 3
is "the declared layers and parameters and those found are compared" "$(json out.json 'len(r["warnings"])')" 3
"$TOOL" estimate bare.safetensors --budget 1GiB --json > out.json
is "without a configuration: coverage" "$(json out.json '[r["coverage"], r["weight_bytes"], len(r["lower_bounds"])]')" \
    "[0.166, 4194304, 5]"
"$TOOL" estimate bare.safetensors --dtype f16 --overhead 1 --context-memory 0 --json > out.json
is "without overhead: the weights alone" "$(json out.json 'r["peak_bytes"]')" 2097152
"$TOOL" estimate llama > /dev/full 2> err
is "a full standard output is a failure" $? 1

# ---- nothing ----
echo '{"tensors": []}' > empty.json
fails 1 'empty.json: no tensors and no configuration: nothing is known of a model' empty.json
echo '{"tensors": [], "config": '"$(architecture llama-2-7b)"'}' > config-alone.json
"$TOOL" estimate config-alone.json --json > out.json
is "a configuration alone: its cache and weights" "$(json out.json '[r["kv_cache_bytes"] >> 30, r["weight_bytes"], r["lower_bounds"]]')" '[2, 13476831232, []]'
like "a configuration alone: reported" "$(json out.json 'r["warnings"]')" 'weights are computed from the configuration'

# ---- devices ----
"$TOOL" estimate llama --devices 2 --budget 0=3GiB,1=1GiB --json > out.json
is "devices: one is short" $? 3
is "devices: which one" "$(json out.json '[r["deficit"]["device"], len(r["devices"]), r["budget_bytes"] >> 30]')" "[1, 2, 4]"
"$TOOL" estimate llama --devices 2 --memory 4GiB --budget 90% > out
is "devices: parts of a device's memory" $? 0
"$TOOL" estimate llama --devices 2 --split tensor --json > out.json
is "tensor parallel: half the cache each" "$(json out.json '[x["kv_cache_bytes"] >> 30 for x in r["devices"]]')" "[1, 1]"

# ---- experts that stay ----
python3 - << 'END'
import json
config = {"model_type": "mixtral", "num_hidden_layers": 1, "hidden_size": 256, "num_attention_heads": 8, "intermediate_size": 512,
          "vocab_size": 1000, "max_position_embeddings": 16, "num_local_experts": 4, "num_experts_per_tok": 2}
tensors = [{"name": f"model.layers.0.block_sparse_moe.experts.{i}.w1.weight", "dtype": "bf16", "shape": [1 << 13, 1 << 13]}
           for i in range(4)] + [{"name": "model.embed_tokens.weight", "dtype": "bf16", "shape": [1 << 13, 1 << 13]}]
json.dump({"tensors": tensors, "config": config}, open("experts.json", "w"))
END
stays() { # BUDGET WANTED
    "$TOOL" estimate experts.json --budget "$1" --context-memory 0 --json > out.json
    is "experts: of 4 that stay in $1" "$(json out.json 'r["resident_experts_per_layer"]')" "$2"
}
stays 10GiB 4
stays 200MiB 0
stays 20MiB null

# ---- what a configuration leaves open ----
remarks() { # CONFIG ERE: among the remarks
    python3 - "$1" << 'END'
import json, sys
config = {"num_hidden_layers": 2, "hidden_size": 256, "num_attention_heads": 8, "intermediate_size": 512, "vocab_size": 1000,
          "max_position_embeddings": 1024, **json.loads(sys.argv[1])}
json.dump({"tensors": [{"name": "w", "dtype": "bf16", "shape": [8, 8]}], "config": config}, open("open.json", "w"))
END
    "$TOOL" estimate open.json --json > out.json
    like "open: $1" "$(json out.json 'r["warnings"]')" "$2"
}
remarks '{"torch_dtype": "float4"}' 'float4: not a type to compute in'
remarks '{"text_config": {"cross_attention_layers": [1]}}' 'layers that attend to images'
like "open: its cache is a lower bound" "$(json out.json 'r["lower_bounds"]')" kv_cache
remarks '{"sliding_window": 512}' 'how much some layers keep is unknown'

# ---- several ----
"$TOOL" estimate llama bare.safetensors --budget 2GiB > out
is "several: one does not fit" $? 3
is "several: a line each" "$(wc -l < out)" 5
"$TOOL" estimate llama missing bare.safetensors --json > out.json 2> err
is "several: one cannot be read" $? 1
is "several: the others are there" "$(json out.json '[m["model"] for m in r["models"]]')" '["llama", "bare.safetensors"]'

# ---- a graph ----
cat > graphs.py << 'END'
import random
FLOAT, INPUT, OUTPUT, NODE = 1, 11, 12, 1
def varint(n):
    return bytes([n]) if n < 128 else bytes([n & 127 | 128]) + varint(n >> 7)
def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value
def port(name, *dims):
    shape = b"".join(field(1, b"" if d is None else field(1, d) if isinstance(d, int) else field(2, d)) for d in dims)
    return field(1, name) + field(2, field(1, field(1, FLOAT) + field(2, shape)))
def node(op, inputs, output):
    return field(NODE, b"".join(field(1, i) for i in inputs) + field(2, output) + field(4, op))
def write(path, body, inputs, outputs):
    graph = body + field(2, "g") + b"".join(field(INPUT, p) for p in inputs) + b"".join(field(OUTPUT, p) for p in outputs)
    open(path, "wb").write(field(1, 8) + field(7, graph) + field(8, field(2, 17)))
write("fixed.onnx", node("Exp", ["x"], "y"), [port("x", 1, 1000)], [port("y", 1, 1000)])
write("bare.onnx", node("Exp", ["x"], "y"), [port("x", None, 1000)], [port("y", None, 1000)])
write("odd.onnx", node("Exp", ["x"], "h") + node("Add", ["h", "b"], "y"), [port("x", "N", 1000), port("b", "N", 77)], [port("y", "N", 1000)])
write("led.onnx", node("Exp", ["x"], "h") + node("MatMul", ["h", "h"], "y"), [port("x", "N", 100, 100)], [port("y", "N", 100, 100)])
draw = random.Random(5)
names, body = ["x"], []
for i in range(40000):
    body.append(node("MatMul", [draw.choice(names[-9000:]), draw.choice(names[-9000:])], f"y{i}"))
    names.append(f"y{i}")
write("many.onnx", b"".join(body), [port("x", "batch", 16, 16)], [port(names[-1], "batch", 16, 16)])
END
python3 graphs.py
noted() { # OPTIONS… -- ERE: a remark, and the figures are not all known
    local options=()
    while [ "$1" != -- ]; do options+=("$1") && shift; done
    "$TOOL" estimate "${options[@]}" --json > out.json
    like "graph: ${options[*]}" "$(json out.json 'r["warnings"]')" "$2"
    like "graph: ${options[*]}: a lower bound" "$(json out.json 'r["lower_bounds"]')" activation
}
noted fixed.onnx --batch 8 -- 'the batch is not used'
noted fixed.onnx --seq-len 8 -- 'the context is not used'
noted fixed.onnx --devices 2 -- 'the split of a graph .* is unknown'
noted odd.onnx --batch 8 -- 'node .*Add'
noted bare.onnx -- '--dim x\.0=N names it'
"$TOOL" estimate led.onnx --batch 8 --json > out.json
is "graph: the batch is used: no remark" "$(json out.json '[r["coverage"], r["warnings"]]')" '[1.0, []]'
"$TOOL" estimate fixed.onnx --dtype f16 --kv-dtype q8_0 --json > out.json
is "graph: types that are not used are reported" "$(json out.json 'len(r["warnings"])')" 2
"$TOOL" estimate bare.onnx --dim x.0=5 --json > out.json
is "graph: a dimension without a name" "$(json out.json '[r["coverage"], r["input_bytes"], r["activation_bytes"], r["warnings"]]')" '[1.0, 20000, 20224, []]'
batch=$("$TOOL" estimate led.onnx --budget 400MiB --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["largest_batch"])')
"$TOOL" estimate led.onnx --budget 400MiB --batch "$batch" > out
is "graph: the largest batch fits" $? 0
"$TOOL" estimate led.onnx --budget 400MiB --batch $((batch + 1)) > out
is "graph: one more does not" $? 3
# A second on a machine of its own.
timeout 30 "$TOOL" estimate many.onnx --budget 400MiB --batch 1000000 --json > out.json
is "many nodes that live together: an answer in time" $? 3
like "many nodes: how it was counted is reported" "$(json out.json 'r["warnings"]')" 'most bytes live at one time'

data=$ROOT/../shared/data/models
if [ -f "$data/ch_PP-OCRv4_det_infer.onnx" ]; then
    for file in "$data"/*.onnx; do
        "$TOOL" estimate "$file" --json > out.json
        is "$(basename "$file") is read" $? 0
    done
    "$TOOL" estimate "$data/light_resnet50.onnx" --json > out.json
    is "resnet50: one image of 224 by 224" "$(json out.json 'r["input_bytes"]')" 602112
    # 4,096 of output; then the first block's sum: what came in, 256 x 56 x 56, what the block makes of it, as much,
    # and 64 x 56 x 56 that both are made from.
    is "resnet50: activations are the planned peak" "$(json out.json 'r["activation_bytes"]')" $((4096 + (256 + 256 + 64) * 56 * 56 * 4))
    mkdir -p folder
    cp "$data/light_resnet50.onnx" folder/model.onnx
    "$TOOL" estimate folder --json > folder.json
    is "resnet50 in a folder: the same" "$(json folder.json 'r["activation_bytes"]')" "$(json out.json 'r["activation_bytes"]')"
    is "resnet50: nothing is a lower bound" "$(json out.json '[r["coverage"], r["lower_bounds"]]')" "[1.0, []]"
    "$TOOL" plan "$data/light_resnet50.onnx" --json > plan.json
    is "resnet50: as the plan has it" "$(json plan.json 'r["activation_bytes"] + r["output_bytes"]')" "$(json out.json 'r["activation_bytes"]')"
    "$TOOL" estimate "$data/ch_PP-OCRv4_det_infer.onnx" > out
    like "an open graph: a lower bound, and the first operator" "$(cat out)" '^  activations are a lower bound: [0-9]+ tensors .* the first is x '
    "$TOOL" estimate "$data/ch_PP-OCRv4_det_infer.onnx" --dim p2o.DynamicDimension.0=1,p2o.DynamicDimension.1=640,p2o.DynamicDimension.2=640 --json > out.json
    is "its dimensions named: all known" "$(json out.json '[r["coverage"], r["input_bytes"], r["activation_bytes"] >> 20]')" "[1.0, 4915200, 26]"
else
    skip "graphs" "../shared/data/models is not there"
fi

# ---- calibration ----
# The peak of a real report is set to what the case needs.
cat > report.py << 'END'
import json, sys
r = json.load(open(sys.argv[1]))
r["devices"][0]["reserved_bytes"]["peak"] = int(sys.argv[2])
r["devices"][0]["context_bytes"]["peak"] = int(sys.argv[4]) if len(sys.argv) > 4 else 0
json.dump(r, open(sys.argv[3], "w"))
END
program=$BUILD_DIR/tests/demo/train_driver
GPUCACHE_REPORT=$TMP/run.json preloaded "$program" > /dev/null 2>&1
if [ -f run.json ]; then
    parts=$("$TOOL" estimate llama --json --overhead 1 --context-memory 0 | python3 -c 'import json, sys; print(json.load(sys.stdin)["peak_bytes"])')
    python3 report.py run.json $((parts * 5 / 4)) longer.json
    "$TOOL" estimate llama --calibrate longer.json --output mine.conf --json > out.json
    is "calibrate: done" $? 0
    like "calibrate: the overhead" "$(json out.json 'str(r["calibration"]["overhead"])')" '^1\.25'
    like "calibrate: kept" "$(cat mine.conf)" '^GPUCACHE_OVERHEAD=1\.250[0-9]+$'
    "$TOOL" estimate llama --calibration mine.conf --context-memory 0 --json > out.json
    ok "calibration: the peak is what was measured" test "$(($(json out.json 'r["peak_bytes"]') - parts * 5 / 4))" -lt 5000
    like "calibrate: the error is reported" "$("$TOOL" estimate llama --calibrate longer.json)" '^  error +-1[0-9]\.[0-9]%$'
    is "calibrate: a context that was not measured is not kept" "$(grep -c CONTEXT mine.conf)" 0
    is "calibrate: null" "$("$TOOL" estimate llama --calibrate longer.json --json | python3 -c 'import json,sys; print(json.load(sys.stdin)["calibration"]["context_bytes"])')" None
    python3 report.py run.json $((parts * 5 / 4 + 123456789)) context.json 123456789
    "$TOOL" estimate llama --calibrate context.json --output both.conf > out
    is "calibrate: the context is apart" "$(grep OVERHEAD= mine.conf)" "$(grep OVERHEAD= both.conf)"
    is "calibrate: the context is kept" "$(grep CONTEXT both.conf)" GPUCACHE_CONTEXT_MEMORY=123456789
    like "calibrate: the context is reported" "$(cat out)" '^  memory of a context +117\.7 MiB$'
    "$TOOL" estimate llama --calibration both.conf --json > out.json
    ok "calibration: overhead and context" test "$(($(json out.json 'r["peak_bytes"]') - parts * 5 / 4 - 123456789))" -lt 5000
    "$TOOL" estimate llama --calibration both.conf --context-memory 300MiB --json > out.json
    ok "calibration: an option goes before" test "$(($(json out.json 'r["peak_bytes"]') - parts * 5 / 4 - (300 << 20)))" -lt 5000
    printf 'GPUCACHE_OVERHEAD=1.2\nGPUCACHE_CONTEXT_MEMORY=much\n' > bad.conf
    fails 1 'its GPUCACHE_CONTEXT_MEMORY is not valid; accepted: a size' llama --calibration bad.conf
    run_of() { # SETTING…: a gated run's report
        env GPUCACHE_REPORT="$TMP/own.json" GPUCACHE_MODEL="$TMP/llama" GPUCACHE_GATE=off "$@" LD_LIBRARY_PATH="$SIM_DIR" LD_PRELOAD="$LIB" "$program" > /dev/null 2>&1
        python3 report.py own.json $((parts * 5 / 4)) own.json
    }
    run_of GPUCACHE_BATCH=3
    like "calibrate: another batch than the run's is reported" "$("$TOOL" estimate llama --calibrate own.json --json | tr '\n' ' ')" 'the run was estimated with another model or other options: batch 3, '
    is "calibrate: the run's own is not" "$("$TOOL" estimate llama --batch 3 --calibrate own.json --json | grep -c 'other options')" 0
    python3 report.py own.json 5000 little.json
    like "calibrate: a lower bound is reported" "$("$TOOL" estimate bare.safetensors --calibrate little.json)" 'lower bounds: the overhead below'
    python3 report.py run.json $((parts / 2)) shorter.json
    like "calibrate: less than the parts is 1" "$("$TOOL" estimate llama --calibrate shorter.json)" 'derived overhead +1\.000000'
    python3 report.py run.json $((parts * 200)) other.json
    fails 1 'it may be of another model' llama --calibrate other.json
    fails 1 'mine.conf: not JSON' llama --calibrate mine.conf
    fails 1 'No such file or directory' llama --calibrate longer.json --output no/such/folder
    fails 1 'longer.json: is the input file' llama --calibrate longer.json --output longer.json
    fails 1 '/dev/full: No space left on device' llama --calibrate longer.json --output /dev/full
    ok "calibrate: a device stays one" test -c /dev/full
    ln -s mine.conf link.conf
    fails 1 'is a symbolic link, not followed' llama --calibrate longer.json --output link.conf
    echo 'GPUCACHE_OVERHEAD=0.5' > bad.conf
    fails 1 'accepted: a factor, 1 to 100' llama --calibration bad.conf
    echo 'GPUCACHE_LIMIT=1g' > other.conf
    fails 1 'there is no GPUCACHE_OVERHEAD in it' llama --calibration other.conf
else
    skip "calibration" "no program left a report"
fi
done_testing
