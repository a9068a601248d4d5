#!/bin/bash
# timeout: 180
# The gate: a model's estimate against the budget at a program's first CUDA call, on the simulated device of 16 GiB:
# fits, warn, deny and exit on an unmodified program; programs that are not gated; its part of the report.
. "$(dirname "$0")/../../lib.sh"
cd "$TMP" || exit 1
PROGRAM=$BUILD_DIR/tests/demo/train_driver
unset GPUCACHE_LEDGER
export GPUCACHE_LEDGER=$TMP/ledger

mkdir model
python3 - "$ROOT/tests/model/architectures.json" << 'END'
import json, struct, sys
config = json.load(open(sys.argv[1]))["llama-2-7b"]["config"]
json.dump(config, open("model/config.json", "w"))
header, offset = {}, 0
def add(name, *shape):
    global offset
    size = 2
    for dim in shape:
        size *= dim
    header[name] = {"dtype": "F16", "shape": shape, "data_offsets": [offset, offset + size]}
    offset += size
add("model.embed_tokens.weight", 32000, 4096)
for layer in range(32):
    for name, shape in (("self_attn.q_proj", (4096, 4096)), ("self_attn.k_proj", (4096, 4096)), ("self_attn.v_proj", (4096, 4096)),
                        ("self_attn.o_proj", (4096, 4096)), ("mlp.gate_proj", (11008, 4096)), ("mlp.up_proj", (11008, 4096)),
                        ("mlp.down_proj", (4096, 11008)), ("input_layernorm", (4096,)), ("post_attention_layernorm", (4096,))):
        add(f"model.layers.{layer}.{name}.weight", *shape)
add("model.norm.weight", 4096)
add("lm_head.weight", 32000, 4096)
text = json.dumps(header).encode()
with open("model/model.safetensors", "wb") as file:
    file.write(struct.pack("<Q", len(text)) + text)
    file.truncate(8 + len(text) + offset)
END

# What a context takes is learnt from run to run: the tests state it.
context=(GPUCACHE_CONTEXT_MEMORY=300MiB)
# gated STATUS SETTING… -- COMMAND…: runs it under the library with the model; out, err and run.json stay.
gated() {
    local wanted=$1 settings=()
    shift
    while [ "$1" != -- ]; do
        settings+=("$1")
        shift
    done
    shift
    rm -f run.json
    env GPUCACHE_REPORT="$TMP/run.json" GPUCACHE_MODEL="$TMP/model" "${context[@]}" "${settings[@]}" \
        LD_LIBRARY_PATH="$SIM_DIR" LD_PRELOAD="$LIB" "$@" > out 2> err
    is "${settings[*]}: status of ${1##*/}" $? "$wanted"
}
logged() { like "$1" "$(cat err)" "$2"; }

simulated "$PROGRAM" > plain 2>&1
is "without the library it runs" $? 0

# ---- it fits ----
gated 0 GPUCACHE_SEQ_LEN=128 -- "$PROGRAM"
is "fits in the device: nothing is logged" "$(cat err)" ""
is "fits: the report" "$(json run.json '[r["gate"], r["estimate"]["fits"], r["estimate"]["budget_bytes"] >> 30]')" '["fits", true, 16]'
is "fits: estimated beside measured" "$(json run.json 'r["estimate"]["measured_peak_bytes"] == d["reserved_bytes"]["peak"]')" true
is "fits: the error" "$(json run.json '(lambda e, m: e["error_thousandths"] == (e["peak_bytes"] - e["context_bytes"] - m) * 1000 // m)(r["estimate"], r["estimate"]["measured_peak_bytes"] - d["context_bytes"]["peak"])')" true
like "gpucache report shows it" "$("$TOOL" report run.json)" 'held at most .*: too much by [0-9.]+%'
is "the same read back" "$("$TOOL" report run.json --json | python3 -c 'import json,sys; print(json.load(sys.stdin) == json.load(open("run.json")))')" True
"$TOOL" estimate model --seq-len 128 --json > estimate.json
is "gate and command agree" "$(json run.json 'r["estimate"]["peak_bytes"]')" "$(json estimate.json 'r["peak_bytes"]')"

# ---- it does not ----
gated 0 GPUCACHE_BUDGET=15GiB -- "$PROGRAM"
logged "warn: logged" '^gpucache: .*/model needs 16\.[0-9] GiB, which is 1\.[0-9] GiB more than the budget of 15\.0 GiB$'
logged "warn: what would fit" '^gpucache: a context of [0-9]+ tokens would fit$'
is "warn: in the report" "$(json run.json '[r["gate"], r["estimate"]["fits"]]')" '["exceeds", false]'
tokens=$(sed -n 's/.*context of \([0-9]*\) tokens.*/\1/p' err)
gated 0 GPUCACHE_BUDGET=15GiB GPUCACHE_GATE=deny "GPUCACHE_SEQ_LEN=$tokens" -- "$PROGRAM"
gated 1 GPUCACHE_BUDGET=15GiB GPUCACHE_GATE=deny "GPUCACHE_SEQ_LEN=$((tokens + 1))" -- "$PROGRAM"
like "deny: the program sees that there is no memory" "$(cat out err)" '[Oo]ut of memory|OUT_OF_MEMORY|error 2|: 2'
gated 3 GPUCACHE_BUDGET=15GiB GPUCACHE_GATE=exit -- "$PROGRAM"
logged "exit: logged" 'more than the budget'
gated 3 GPUCACHE_BUDGET=15GiB GPUCACHE_GATE=exit GPUCACHE_LOG=error -- "$PROGRAM"
logged "exit: logged whatever the log's level" 'more than the budget'
gated 1 GPUCACHE_GATE=deny SIMCUDA_FAIL=cuDeviceGetCount@1+ -- "$PROGRAM"
logged "no device: logged" 'no device reports its memory size$'
gated 0 GPUCACHE_BUDGET=15GiB GPUCACHE_GATE=off -- "$PROGRAM"
is "off: nothing is logged" "$(cat err)" ""
is "off: in the report all the same" "$(json run.json 'r["gate"]')" exceeds
gated 0 GPUCACHE_BUDGET=15GiB GPUCACHE_GATE=exit GPUCACHE_MODE=off -- "$PROGRAM"

# ---- what the budget is ----
gated 3 GPUCACHE_GATE=exit -- "$PROGRAM"
logged "the device's memory" 'budget of 16\.0 GiB'
gated 3 GPUCACHE_GATE=exit GPUCACHE_LIMIT=8GiB GPUCACHE_SEQ_LEN=1 -- "$PROGRAM"
logged "the limit" 'budget of 8\.0 GiB'
gated 3 GPUCACHE_GATE=exit GPUCACHE_BUDGET=25% GPUCACHE_LIMIT=8GiB -- "$PROGRAM"
logged "a part of the device" 'budget of 4\.0 GiB'
gated 3 GPUCACHE_GATE=exit GPUCACHE_BUDGET=100GiB GPUCACHE_GROUP=g GPUCACHE_GROUP_LIMIT=10GiB -- "$PROGRAM"
logged "a group's limit" 'budget of 10\.0 GiB'
gated 3 GPUCACHE_GATE=exit GPUCACHE_BUDGET=15GiB GPUCACHE_SEQ_LEN=128 GPUCACHE_ENGINE=vllm GPUCACHE_UTILISATION=0.8 -- "$PROGRAM"
gated 0 GPUCACHE_GATE=exit GPUCACHE_BUDGET=15GiB GPUCACHE_SEQ_LEN=128 GPUCACHE_ENGINE=vllm GPUCACHE_DTYPE=awq -- "$PROGRAM"
gated 0 GPUCACHE_GATE=exit GPUCACHE_BUDGET=15GiB GPUCACHE_SEQ_LEN=128 GPUCACHE_ENGINE=llama.cpp GPUCACHE_GPU_LAYERS=16 -- "$PROGRAM"
gated 0 GPUCACHE_GATE=exit GPUCACHE_BUDGET=40GiB GPUCACHE_BATCH=4 GPUCACHE_KV_DTYPE=u8 -- "$PROGRAM"
is "batch and type of the cache" "$(json run.json '[r["estimate"]["batch"], r["estimate"]["kv_cache_bytes"] >> 30]')" "[4, 4]"
gated 0 GPUCACHE_BUDGET=40GiB GPUCACHE_OVERHEAD=1 GPUCACHE_DTYPE=f32 -- "$PROGRAM"
is "overhead and type" "$(json run.json '[r["estimate"]["overhead_bytes"] >> 20, r["estimate"]["weight_bytes"] >> 30]')" "[300, 25]"

gated 0 GPUCACHE_BUDGET=40GiB GPUCACHE_CHUNK=256 -- "$PROGRAM"
is "tokens at once" "$(json run.json 'r["estimate"]["activation_bytes"]')" \
    "$("$TOOL" estimate model --chunk 256 --json | python3 -c 'import json,sys; print(json.load(sys.stdin)["activation_bytes"])')"
gated 0 GPUCACHE_BUDGET=40GiB GPUCACHE_ATTENTION=full GPUCACHE_CONTEXT_MEMORY=512MiB GPUCACHE_OVERHEAD=1 -- "$PROGRAM"
is "scores written out, a context that is given" "$(json run.json '[r["estimate"]["attention_workspace_bytes"] >> 20, r["estimate"]["overhead_bytes"] >> 20, r["estimate"]["context_bytes"] >> 20]')" "[1024, 512, 512]"

# ---- training ----
gated 3 GPUCACHE_GATE=exit GPUCACHE_BUDGET=40GiB GPUCACHE_SEQ_LEN=128 GPUCACHE_TRAIN=adamw -- "$PROGRAM"
logged "training: the verdict is of it" 'needs .* in training, which is .* more than'
logged "training: adapters would fit" 'adapters of rank [0-9]* would fit'
gated 0 GPUCACHE_GATE=exit GPUCACHE_BUDGET=100GiB GPUCACHE_SEQ_LEN=128 GPUCACHE_TRAIN=adamw -- "$PROGRAM"
is "training: states and gradients" "$(json run.json '[r["estimate"]["optimiser_state_bytes"] // r["estimate"]["weight_bytes"], r["estimate"]["kv_cache_bytes"]]')" "[2, 0]"
gated 3 GPUCACHE_GATE=exit GPUCACHE_BUDGET=100GiB GPUCACHE_SEQ_LEN=128 GPUCACHE_TRAIN=adamw GPUCACHE_MIXED_PRECISION=1 GPUCACHE_CHECKPOINTING=1 -- "$PROGRAM"
gated 0 GPUCACHE_GATE=exit GPUCACHE_BUDGET=40GiB GPUCACHE_SEQ_LEN=128 GPUCACHE_TRAIN=adamw GPUCACHE_LORA=8 -- "$PROGRAM"
gated 0 GPUCACHE_BUDGET=40GiB GPUCACHE_TRAIN=adamw GPUCACHE_ZERO=2 -- "$PROGRAM"
logged "training: what is divided needs devices" 'GPUCACHE_ZERO divides over several devices'
gated 0 GPUCACHE_BUDGET=40GiB GPUCACHE_LORA=8 -- "$PROGRAM"
logged "training: an option without it" 'GPUCACHE_LORA is of training: add GPUCACHE_TRAIN OPTIMISER'

# ---- what a context takes: the first run measures it, the next one's estimate has it ----
printf 'GPUCACHE_OVERHEAD=1.25\nGPUCACHE_CONTEXT_MEMORY=128MiB\n' > mine.conf
export GPUCACHE_LEDGER=$TMP/fresh
context=()
gated 0 GPUCACHE_BUDGET=40GiB -- "$PROGRAM"
is "a context: stated, then measured" "$(json run.json '[r["estimate"]["context_bytes"] >> 20, r["estimate"]["measured_context_bytes"] >> 20]')" "[300, 64]"
gated 0 GPUCACHE_BUDGET=40GiB -- "$PROGRAM"
is "a context: as it was measured" "$(json run.json '[r["estimate"]["context_bytes"] >> 20, r["estimate"]["overhead_bytes"] - r["estimate"]["context_bytes"] < r["estimate"]["peak_bytes"] // 10]')" "[64, true]"
gated 0 GPUCACHE_BUDGET=40GiB GPUCACHE_CONFIG="$TMP/mine.conf" -- "$PROGRAM"
is "a context: a calibration goes before" "$(json run.json '[r["estimate"]["context_bytes"] >> 20, r["estimate"]["overhead_bytes"] * 4 // r["estimate"]["weight_bytes"]]')" "[128, 1]"
is "held without contexts is what is compared" "$(json run.json '(lambda e: e["error_thousandths"] == (e["peak_bytes"] - e["context_bytes"] - e["measured_peak_bytes"] + e["measured_context_bytes"]) * 1000 // (e["measured_peak_bytes"] - e["measured_context_bytes"]))(r["estimate"])')" true
export GPUCACHE_LEDGER=$TMP/ledger
context=(GPUCACHE_CONTEXT_MEMORY=300MiB)

# ---- several devices ----
two=(SIMCUDA_DEVICES=2 GPUCACHE_DEVICES=2 GPUCACHE_SEQ_LEN=2048)
gated 0 "${two[@]}" GPUCACHE_GATE=exit -- "$PROGRAM"
is "two devices: nothing is logged" "$(cat err)" ""
is "two devices: each its share" "$(json run.json '[[e["peak_bytes"] >> 30, e["budget_bytes"] >> 30] for e in r["estimate"]["devices"]]')" "[[7, 16], [7, 16]]"
is "two devices: their sum" "$(json run.json 'sum(e["peak_bytes"] for e in r["estimate"]["devices"]) == r["estimate"]["peak_bytes"]')" true
is "two devices: gate and command agree" "$(json run.json 'r["estimate"]["peak_bytes"]')" \
    "$("$TOOL" estimate model --seq-len 2048 --devices 2 --json | python3 -c 'import json,sys; print(json.load(sys.stdin)["peak_bytes"])')"
gated 3 "${two[@]}" GPUCACHE_GATE=exit GPUCACHE_BUDGET=0=15GiB,1=25% -- "$PROGRAM"
logged "two devices: a budget each, the message names the device" ' on device 1 of 2, which is .* more than its budget of 4\.0 GiB$'
gated 3 "${two[@]}" GPUCACHE_GATE=exit GPUCACHE_LIMIT=0=4GiB -- "$PROGRAM"
logged "two devices: a limit of one" ' on device 0 of 2, which is .* more than its budget of 4\.0 GiB$'
gated 0 "${two[@]}" GPUCACHE_BUDGET=40GiB -- "$PROGRAM"
uuid=$(json run.json 'd["uuid"]' | tr -d '"')
gated 3 "${two[@]}" GPUCACHE_GATE=exit "GPUCACHE_BUDGET=$uuid=2GiB,30GiB" -- "$PROGRAM"
logged "two devices: by UUID" ' on device 0 of 2, which is .* more than its budget of 2\.0 GiB$'
gated 3 "${two[@]}" GPUCACHE_GATE=exit GPUCACHE_GROUP=pair GPUCACHE_GROUP_LIMIT=1=3GiB -- "$PROGRAM"
logged "two devices: the group's limit of one" ' on device 1 of 2, which is .* more than its budget of 3\.0 GiB$'
gated 1 "${two[@]}" SIMCUDA_DEVICES=1 GPUCACHE_GATE=deny -- "$PROGRAM"
logged "two devices: one is there" '/model is split over 2 devices, and 1 is there$'
gated 0 "${two[@]}" GPUCACHE_SPLIT=tensor -- "$PROGRAM"
is "two devices: parts of each layer" "$(json run.json 'len({e["peak_bytes"] for e in r["estimate"]["devices"]})')" 1
gated 3 "${two[@]}" GPUCACHE_SEQ_LEN=4096 GPUCACHE_GATE=exit GPUCACHE_BUDGET=8GiB -- "$PROGRAM"
logged "two devices: what would fit" '^gpucache: a context of [0-9]+ tokens would fit$'
tokens=$(sed -n 's/.*context of \([0-9]*\) tokens.*/\1/p' err)
gated 0 "${two[@]}" GPUCACHE_GATE=exit GPUCACHE_BUDGET=8GiB "GPUCACHE_SEQ_LEN=$tokens" -- "$PROGRAM"
gated 3 "${two[@]}" GPUCACHE_GATE=exit GPUCACHE_BUDGET=8GiB "GPUCACHE_SEQ_LEN=$((tokens + 1))" -- "$PROGRAM"

# ---- a gate that guards nothing ----
for gate in deny exit strict strict-exit; do
    env GPUCACHE_REPORT=none GPUCACHE_GATE=$gate LD_LIBRARY_PATH="$SIM_DIR" LD_PRELOAD="$LIB" "$PROGRAM" > out 2> err
    is "$gate without a model: the program runs" $? 0
    is "$gate without a model: logged in one line" "$(cat err)" \
        "gpucache: GPUCACHE_GATE is set and no GPUCACHE_MODEL is named: no model is checked"
    env GPUCACHE_GATE=$gate LD_PRELOAD="$LIB" true 2> err
    is "$gate without a model: not in a program without CUDA" "$(cat err)" ""
done
printf 'GPUCACHE_GATE=deny\n' > site.conf
env GPUCACHE_REPORT=none GPUCACHE_CONFIG="$TMP/site.conf" LD_LIBRARY_PATH="$SIM_DIR" LD_PRELOAD="$LIB" "$PROGRAM" > out 2> err
is "the configuration of all programs: not logged" "$(cat err)" ""

# ---- notes on the model ----
python3 - << 'END'
import json
description = {"tensors": [{"name": "w", "dtype": "F16", "shape": [4096, 4096]}]}
json.dump(description, open("bare.json", "w"))
END
gated 3 GPUCACHE_MODEL="$TMP/bare.json" GPUCACHE_BUDGET=100MiB GPUCACHE_GATE=exit -- "$PROGRAM"
logged "what is not known goes with the verdict" '^gpucache: note: no configuration beside the weights'
gated 0 GPUCACHE_MODEL="$TMP/bare.json" GPUCACHE_GATE=exit -- "$PROGRAM"
gated 1 GPUCACHE_MODEL="$TMP/bare.json" GPUCACHE_GATE=strict -- "$PROGRAM"
logged "strict: a lower bound proves no fit" 'needs at least .*, and a strict gate takes no lower bound: see gpucache estimate$'
gated 3 GPUCACHE_MODEL="$TMP/bare.json" GPUCACHE_GATE=strict-exit GPUCACHE_LOG=error -- "$PROGRAM"
logged "strict-exit: logged whatever the log's level" 'a strict gate takes no lower bound'
gated 0 GPUCACHE_SEQ_LEN=128 GPUCACHE_GATE=strict -- "$PROGRAM"
gated 3 GPUCACHE_BUDGET=15GiB GPUCACHE_GATE=strict-exit -- "$PROGRAM"
gated 0 GPUCACHE_MODEL="$TMP/bare.json" -- "$PROGRAM"
like "and into the report" "$(json run.json 'r["estimate"]["warnings"]')" 'no configuration beside the weights'

# ---- before the weights are there: a configuration alone ----
mkdir alone llava
cp model/config.json alone
python3 - << 'END'
import json
json.dump({"architectures": ["LlavaForConditionalGeneration"], "model_type": "llava", "torch_dtype": "float16", "pad_token_id": 32001,
           "text_config": {"model_type": "llama", "max_position_embeddings": 4096, "vocab_size": 32064, "torch_dtype": "float16"},
           "vision_config": {"model_type": "clip_vision_model", "hidden_size": 1024, "image_size": 336, "intermediate_size": 4096,
                             "num_attention_heads": 16, "num_hidden_layers": 24, "patch_size": 14, "projection_dim": 768, "vocab_size": 32000}},
          open("llava/config.json", "w"))
config = json.load(open("model/config.json"))
config["architectures"] = ["LlamaForNothing"]
json.dump(config, open("partly.json", "w"))
END
for name in model alone llava; do
    gated 1 "GPUCACHE_MODEL=$TMP/$name" GPUCACHE_GATE=deny -- "$PROGRAM"
    logged "$name: the whole context does not fit in 16 GiB" "/$name needs 1[67]\.[0-9] GiB, which is .* more than the budget of 16\.0 GiB$"
    gated 0 "GPUCACHE_MODEL=$TMP/$name" GPUCACHE_GATE=deny GPUCACHE_SEQ_LEN=128 -- "$PROGRAM"
    is "$name: keys and values of 128 tokens" "$(json run.json 'r["estimate"]["kv_cache_bytes"] >> 20')" 64
done
gated 0 GPUCACHE_MODEL="$TMP/alone" GPUCACHE_GATE=strict GPUCACHE_SEQ_LEN=128 -- "$PROGRAM"
is "a configuration alone, strict: nothing is unknown" "$(json run.json 'r["gate"]')" fits
gated 0 GPUCACHE_MODEL="$TMP/partly.json" GPUCACHE_GATE=deny GPUCACHE_SEQ_LEN=128 -- "$PROGRAM"
gated 1 GPUCACHE_MODEL="$TMP/partly.json" GPUCACHE_GATE=strict GPUCACHE_SEQ_LEN=128 -- "$PROGRAM"
logged "a class that is not known, strict: refused" 'a strict gate takes no lower bound'

# ---- files of another configuration ----
cp -r model fewer
sed 's/"num_hidden_layers": 32/"num_hidden_layers": 16/' model/config.json > fewer/config.json
gated 0 GPUCACHE_MODEL="$TMP/fewer" GPUCACHE_GATE=deny GPUCACHE_SEQ_LEN=128 -- "$PROGRAM"
gated 1 GPUCACHE_MODEL="$TMP/fewer" GPUCACHE_GATE=strict GPUCACHE_SEQ_LEN=128 -- "$PROGRAM"
logged "files of another configuration, strict: refused" 'a strict gate takes no lower bound'
logged "files of another configuration, strict: with their difference" 'parameters, the configuration'

# ---- programs that are not gated ----
gated 5 GPUCACHE_GATE=exit -- sh -c 'exit 5'
is "a shell without CUDA: nothing" "$(cat err)" ""
gated 0 GPUCACHE_GATE=exit GPUCACHE_MODEL=/no/such/model -- sh -c "cat /dev/null; LD_PRELOAD= $PROGRAM > /dev/null 2>&1"
gated 4 GPUCACHE_GATE=exit -- sh -c "$PROGRAM > /dev/null 2> inner; [ \$? = 3 ] && exit 4"
like "the program inside the shell is" "$(cat inner)" 'more than the budget'

# ---- a model that cannot be read ----
printf 'no model' > noise.safetensors
mkfifo fifo
for model in /no/such/model noise.safetensors fifo .; do
    gated 0 "GPUCACHE_MODEL=$model" -- "$PROGRAM"
    logged "$model: logged" '^gpucache: GPUCACHE_MODEL: '
    is "$model: no estimate" "$(json run.json '[r["gate"], r["estimate"]]')" "[null, null]"
    for gate in deny exit strict strict-exit; do
        gated 1 "GPUCACHE_MODEL=$model" GPUCACHE_GATE=$gate -- "$PROGRAM"
        logged "$model, $gate: logged" '^gpucache: GPUCACHE_MODEL: '
    done
done

# ---- a value that is not valid: its default is not what was meant ----
for bad in GPUCACHE_SEQ_LEN=4k GPUCACHE_DTYPE=f17 GPUCACHE_MODEL=; do
    gated 0 GPUCACHE_BUDGET=100GiB "$bad" -- "$PROGRAM"
    for gate in deny exit strict strict-exit; do
        gated 1 GPUCACHE_BUDGET=100GiB "$bad" GPUCACHE_GATE=$gate -- "$PROGRAM"
        logged "$bad, $gate: logged" "^gpucache: ${bad%%=*} is not valid and GPUCACHE_GATE is $gate: cuInit fails$"
    done
done

# ---- a description of nothing ----
echo '{"tensors": []}' > empty.json
gated 1 GPUCACHE_MODEL="$TMP/empty.json" GPUCACHE_GATE=deny -- "$PROGRAM"
logged "a description of nothing: logged" 'GPUCACHE_MODEL: .*/empty.json: no tensors and no configuration: nothing is known of a model$'

# ---- no host memory for the estimate: the gate is closed, whichever mapping failed ----
STARVED=$BUILD_DIR/tests/preload/starved
for way in "0" "0 heap" "65536" "262144" "1048576" "4194304"; do
    # shellcheck disable=SC2086
    gated 0 GPUCACHE_BUDGET=1GiB GPUCACHE_GATE=deny -- "$STARVED" $way
    like "deny with $way bytes of memory: CUDA is refused" "$(cat out)" '^[1-9][0-9]*$'
done
gated 0 GPUCACHE_BUDGET=1GiB GPUCACHE_GATE=deny -- "$STARVED" 0
is "without memory: refused, not denied" "$(cat out)" 1
gated 0 GPUCACHE_BUDGET=1GiB GPUCACHE_GATE=exit -- "$STARVED" 0 heap
is "without memory for the options: refused" "$(cat out)" 1
for way in 0 4096; do
    gated 0 GPUCACHE_BUDGET=1GiB GPUCACHE_GATE=warn -- "$STARVED" $way
    is "warn with $way bytes of memory: the driver answers" "$(cat out)" "$(simulated "$STARVED" $way)"
done

# ---- gpucache run ----
env LD_LIBRARY_PATH="$SIM_DIR" "$TOOL" run --model model --budget 15GiB --gate exit --report none -- "$PROGRAM" > out 2> err
is "run --gate exit: status" $? 3
env LD_LIBRARY_PATH="$SIM_DIR" SIMCUDA_DEVICES=2 GPUCACHE_DEVICES=2 "$TOOL" run --model model --budget 0=20GiB,1=2GiB --gate exit --report none -- "$PROGRAM" > out 2> err
is "run --budget per device: status" $? 3
logged "run --budget per device: logged" 'on device 1 of 2'
env LD_LIBRARY_PATH="$SIM_DIR" "$TOOL" run --model model --budget 40GiB --gate exit --report none -- "$PROGRAM" > out 2> err
is "run --gate exit with room: status" $? 0
done_testing
