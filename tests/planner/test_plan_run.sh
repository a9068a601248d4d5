#!/bin/bash
# Plans of runs: recorded, planned, followed. A program under the library on the simulated device whose blocks are
# looked at, the torture test of reuse with a plan in force, files made to hurt, and the recorded training runs, as they
# are and with one event in twenty changed.
# timeout: 400
# shellcheck disable=SC2016
. "$(dirname "$0")/../lib.sh"
cd "$TMP" || exit 1
SHARED=$ROOT/../shared
steps=$BUILD_DIR/tests/preload/steps
export SIMCUDA_WORK_US=20

# followed NAME ARGUMENTS…: runs the program by the plan run.plan, with the report in NAME.json.
followed() {
    local name=$1
    shift
    GPUCACHE_PLAN=$TMP/run.plan GPUCACHE_REPORT=$TMP/$name.json preloaded "$@" > "$name.out" 2> "$name.err"
    is "$name: ends well" $? 0
    is "$name: nothing is logged" "$(cat "$name.err")" ""
}
plan() {
    json "$1.json" "$2"
}

# ---- record, plan, follow ----
GPUCACHE_TRACE=$TMP/run.trace GPUCACHE_REPORT=none preloaded "$steps" 6 1 > /dev/null
is "a run is recorded" $? 0
ok "it is planned" sh -c '"$0" plan run.trace --output run.plan --deadline 2 --json > plan.json' "$TOOL"
is "its steps are found" "$(json plan.json '[r["steps"] >= 4, r["step_events"], r["lasting_count"] + r["crossing_count"] > 36]')" '[true, 98, true]'
is "the keys of the contract" "$(json plan.json "all(k in r for k in ('buffers', 'lower_bound_bytes', 'peak_bytes', 'total_bytes', 'ratio', 'optimal', 'seconds', 'coverage'))")" true
peak=$(json plan.json 'r["peak_bytes"]')
like "and shown" "$("$TOOL" plan run.trace --deadline 1)" '^steps +about [0-9]+ of 98 events, behind [0-9]+$'

ok "it is exported" "$TOOL" trace run.trace --csv run.csv --rmm run.rmm --pickle run.pickle
for file in run.csv run.rmm run.pickle; do
    ok "$file: planned" sh -c '"$0" plan "$1" --deadline 1 --json > other.json' "$TOOL" $file
    is "$file: the same peak" "$(json other.json 'r["peak_bytes"]')" "$peak"
done
ok "several threads replay by the plan at once" "$TOOL" replay run.trace --plan run.plan --threads 4

followed same "$steps" 6 1
is "the same run: all of it follows" "$(plan same '[d["plan"]["fallback"]["count"], d["plan"]["followed"]["count"]]')" "[0, $(json same.json 'd["alloc_count"]')]"
is "the same run: the plan's peak is reserved, in pages" "$(plan same "d['reserved_bytes']['peak'] == ($peak + 2097151) // 2097152 * 2097152")" true
GPUCACHE_BACKEND=driver followed plain "$steps" 6 1
is "driver allocations: the plan's peak is reserved" "$(plan plain "[d['reserved_bytes']['peak'] == $peak, d['plan']['fallback']['count']]")" "[true, 0]"
followed longer "$steps" 25 1
is "a longer run: all of it follows, step by step" "$(plan longer '[d["plan"]["fallback"]["count"], d["plan"]["rounds"] > 10]')" "[0, true]"
GPUCACHE_LIMIT=1GiB followed roomy "$steps" 1 1
pages=$(((peak + 2097151) / 2097152 * 2097152))
GPUCACHE_LIMIT=$(($(plan roomy 'd["context_bytes"]["peak"]') + pages)) followed tight "$steps" 10 1
is "a limit of the plan's peak and the context is enough" "$(plan tight '[d["plan"]["fallback"]["count"], d["oom_count"]]')" '[0, 0]'
followed departing "$steps" 25 1 10
is "a run that deviates: nearly all is placed by the plan" "$(plan departing 'd["plan"]["followed"]["count"] + d["plan"]["reasons"]["departed"]["count"] > 0.9 * d["alloc_count"] and d["plan"]["reasons"]["unmatched"]["count"] > 0')" true
is "a run that deviates: the rest is from the pool" "$(plan departing 'd["plan"]["followed"]["count"] + d["plan"]["fallback"]["count"] == d["alloc_count"]')" true
GPUCACHE_PLAN=$TMP/run.plan GPUCACHE_REPORT=stderr preloaded "$steps" 6 1 > out 2>&1
like "the report's text shows the usage much followed" "$(cat out)" '^ +[0-9]+ \([0-9.]+ MiB\) followed it$'
GPUCACHE_MODE=track followed tracked "$steps" 4 1
is "without a cache there is no plan" "$(plan tracked 'd["plan"]')" null
is "without a cache: the report gives the reason" "$(plan tracked 'r["warnings"]')" \
    '["GPUCACHE_PLAN is not followed: GPUCACHE_MODE leaves all places to the driver"]'
GPUCACHE_PLAN=$TMP/run.plan GPUCACHE_DEBUG=poison GPUCACHE_REPORT=none preloaded "$steps" 3 1 > out 2>&1
like "the debug aids go before a plan" "$(cat out)" 'GPUCACHE_PLAN is not followed: GPUCACHE_DEBUG'

# Of what a stream freed only that stream takes the place at once.
GPUCACHE_TRACE=$TMP/run.trace GPUCACHE_REPORT=none preloaded "$steps" 5 1 0 3 > /dev/null
ok "a run of several streams is planned" "$TOOL" plan run.trace --output run.plan --deadline 1
followed streams "$steps" 10 1 5 3
is "several streams: part follows, part is waited for" "$(plan streams '[d["leak_count"], d["plan"]["followed"]["count"] > 30, d["plan"]["reasons"]["pending"]["count"] > 0]')" '[0, true, true]'

# ---- torture ----
torture=$BUILD_DIR/tests/preload/torture
seed=${TORTURE_SEED:-$RANDOM}
program=("$torture" "$seed" 3000 4 "all,-handles") # blocks of their own have no places
GPUCACHE_TRACE=$TMP/run.trace GPUCACHE_REPORT=none preloaded "${program[@]}" > /dev/null
ok "torture: its run is planned" "$TOOL" plan run.trace --output run.plan --deadline 1
for backend in vmm driver; do
    GPUCACHE_BACKEND=$backend GPUCACHE_LIMIT=480MiB GPUCACHE_PLAN=$TMP/run.plan GPUCACHE_REPORT=$TMP/torture.json \
        preloaded "${program[@]}" > out 2>&1
    is "torture, $backend: nothing is corrupt, seed $seed" $? 0
    echo "# $(tail -1 out)"
    is "torture, $backend: every block was freed, and part was placed by the plan" \
        "$(json torture.json '[d["leak_count"], (lambda placed: placed > 20 or d["plan"])(d["plan"]["followed"]["count"] + d["plan"]["reasons"]["departed"]["count"])]')" '[0, true]'
done

# ---- files made to hurt ----
# refused WANT: the library logs it in one line, the program runs without a plan, and the tools refuse the file.
refused() {
    GPUCACHE_PLAN=$TMP/bad.plan GPUCACHE_REPORT=$TMP/bad.json preloaded "$steps" 2 1 > out 2> err
    is "$1: the program runs" $? 0
    is "$1: in one line" "$(wc -l < err)" 1
    like "$1: the library reports it" "$(cat err)" "^gpucache: GPUCACHE_PLAN=$TMP/bad.plan: $1.*; no plan is followed$"
    is "$1: no plan" "$(plan bad 'd["plan"]')" null
    is "$1: the report gives the reason" "$(plan bad 'r["warnings"]')" '["GPUCACHE_PLAN is not followed: its file was refused"]'
    "$TOOL" replay small.csv --plan bad.plan > out 2> err
    is "$1: replay fails" "$?$(cat out)" 1
    like "$1: replay reports it" "$(cat err)" "^gpucache replay: bad.plan: $1"
}
printf 'op,id,bytes,stream,time_us\na,1,4096,0,0\na,2,8192,0,1\nf,1,4096,0,2\na,3,1024,0,3\n' > small.csv
ok "a small run is planned" "$TOOL" plan small.csv --output small.plan
cat > damage.py << 'END'
"""damage.py TO WHERE FORMAT VALUE: small.plan with one field changed and the checksum made right."""
import struct, sys
data = bytearray(open("small.plan", "rb").read())
struct.pack_into("<" + sys.argv[3], data, int(sys.argv[2]), int(sys.argv[4]))
data[48:56] = bytes(8)
total = 0xcbf29ce484222325
for (word,) in struct.iter_unpack("<Q", data):
    total = ((total ^ word) * 0x100000001b3) % 2**64
    total ^= total >> 32
struct.pack_into("<Q", data, 48, total)
open(sys.argv[1], "wb").write(data)
END
rm -f bad.plan
refused 'cannot be read: there is no such file'
mkdir bad.plan
refused 'is no regular file'
rmdir bad.plan
: > bad.plan
refused 'no plan of a run'
head -c 100 small.plan > bad.plan
refused '100 bytes; with 3 entries it has 160'
{ cat small.plan; echo; } > bad.plan
refused '161 bytes; with 3 entries it has 160'
sed 's/\x20/\x21/3' small.plan | head -c 160 > bad.plan
printf '\x01' | dd of=bad.plan bs=1 seek=72 conv=notrunc status=none
refused 'its content does not agree with its checksum|entry|a header'
python3 damage.py bad.plan 8 I 1
refused 'a plan of version 1; accepted: 2'
python3 damage.py bad.plan 20 I 4000000000
refused '160 bytes; with 4000000000 entries'
python3 damage.py bad.plan 72 Q 4096
refused 'entr(y 0: reaches beyond the peak|ies [0-9] and [0-9])'
python3 damage.py bad.plan 104 Q 18446744073709551104
refused 'entry 1: reaches beyond the peak'

python3 damage.py run.plan 36 i 3
followed elsewhere "$steps" 2 1
is "another device's plan: the report gives the reason it is not followed" "$(plan elsewhere '[d["plan"], r["warnings"]]')" \
    '[null, ["GPUCACHE_PLAN is not followed: nothing was allocated on the device it is for"]]'

# ---- traces that are not whole ----
cat > spoil.py << 'END'
"""spoil.py FROM TO: the trace with some records of another device, and the last one cut short."""
import sys
sys.path.insert(0, sys.argv[3])
import native_trace
trace = native_trace.Trace.read(sys.argv[1])
live = [r for r in trace.records if r[0] == native_trace.ALLOC][:9]
trace.records = live + [(r[0], 7, *r[2:]) for r in live[:4]] + live[:1]
trace.write(sys.argv[2])
data = open(sys.argv[2], "rb").read()
open(sys.argv[2], "wb").write(data[:-5])
END
ok "a trace is spoilt" python3 spoil.py run.trace spoilt.trace "$ROOT/tests/formats"
ok "a trace that is not whole is planned" sh -c '"$0" plan spoilt.trace --json > spoilt.json' "$TOOL"
is "what is missing of it is reported" "$(json spoilt.json 'r["warnings"]')" \
    '["4 events of other devices are left out: the plan is device 0'"'"'s", "the trace is incomplete: later events are not in the plan"]'

# ---- lengths that vary: a run's second half by the plan of its first ----
halves=$SHARED/data/traces/llama1b_train_varying.csv.xz
if [ -e "$halves" ]; then
    python3 - "$halves" << 'END'
import csv, lzma, sys
head, *rows = csv.reader(lzma.open(sys.argv[1], "rt", newline=""))
middle, live = len(rows) // 2, {}
for row in rows[:middle]:
    if row[0] == "a":
        live[row[1]] = row
    else:
        live.pop(row[1], None)
csv.writer(open("first.csv", "w", newline="")).writerows([head, *rows[:middle]])
csv.writer(open("second.csv", "w", newline="")).writerows([head, *live.values(), *rows[middle:]])
END
    ok "varying lengths: the first half is planned" "$TOOL" plan first.csv --output first.plan --deadline 3
    for limit in vmm:1.015 driver:1.08; do
        ok "varying lengths, ${limit%:*}: the second half is replayed by it" \
            sh -c '"$0" replay second.csv --plan first.plan --backend "$1" --passes 2 --json > replay.json' "$TOOL" "${limit%:*}"
        is "varying lengths, ${limit%:*}: at most ${limit#*:} of the live peak" "$(json replay.json "r['ratio'] <= ${limit#*:}")" true
    done
else
    skip "varying lengths" "../shared/data is not there"
fi

# ---- recorded runs ----
if [ ! -d "$SHARED/data/traces" ]; then
    skip "recorded training runs" "../shared/data is not there"
    done_testing
fi
most=1.002
# The smallest run but one, of about 1 GiB: a few pages are more there.
expect() {
    closest=1.012 beside=0.003
    [ "$1" = pytorch_gpt_train_14steps ] && closest=1.08 beside=0.02
}
# replay_both SEED [SHARE KIND]: the trace with one event in twenty changed, by the plan and without.
replay_both() {
    python3 "$ROOT/tests/planner/perturb.py" "$trace" "$@" > perturbed.csv
    "$TOOL" replay perturbed.csv --json > pool.json
    ok "$name, changed by $*: no failure" sh -c '"$0" replay perturbed.csv --plan run.plan --json > replay.json' "$TOOL"
    python3 - $closest $beside "$@" > judged << 'END'
import json, sys
closest, beside = map(float, sys.argv[1:3])
pool, plan = json.load(open("pool.json")), json.load(open("replay.json"))
followed, fallback = plan["plan"]["followed"]["count"], plan["plan"]["fallback"]["count"]
by_life = plan["plan"]["reasons"]["departed"]["count"]
needed = max(plan["peak_live_bytes"], plan["plan"]["peak_bytes"])
above = plan["peak_reserved_bytes"] / needed
# Below 1 GiB a few pages alone are more; with streams what one of them freed waits for its own order.
small = 1.09 if "stream" in sys.argv else 1.08
print(above <= (closest if needed >= 1 << 30 else small), above <= pool["ratio"] + beside, followed + by_life > fallback - by_life)
print(f"ratio {plan['ratio']}, {above:.4f} of what was planned or needed, without a plan {pool['ratio']}, followed {followed}, not {fallback}")
END
    read -r thrifty fair part < judged
    echo "# $(tail -n 1 judged)"
    is "$name, changed by $*: within $closest of what was planned or needed, 1.08 or 1.09 below 1 GiB" "$thrifty" True
    # Any of the many placements that are optimal.
    is "$name, changed by $*: not more than without a plan" "$fair" True
    is "$name, changed by $*: most is placed by it" "$part" True
}
for trace in "$SHARED"/data/traces/*.csv; do
    name=$(basename "$trace" .csv)
    expect "$name"
    ok "$name: planned" sh -c '"$0" plan "$1" --output run.plan --deadline 5 --json > plan.json' "$TOOL" "$trace"
    peak=$(json plan.json 'r["peak_bytes"]')
    is "$name: within 1 % of the lower bound" "$(json plan.json 'r["peak_bytes"] <= 1.01 * r["lower_bound_bytes"]')" true
    # What a step leaves to the next one takes no more than in the run.
    is "$name: the lower bound is the run's own peak" "$(json plan.json 'r["lower_bound_bytes"] - r["peak_live_bytes"]')" 0
    for backend in vmm driver; do
        ok "$name, $backend: replayed" sh -c '"$0" replay "$1" --plan run.plan --backend "$2" --json > replay.json' "$TOOL" "$trace" $backend
        is "$name, $backend: all of it follows" "$(json replay.json 'r["plan"]["fallback"]["count"]')" 0
        # Either way in whole pages: the replayed driver takes them for an allocation above 1 MiB, too.
        is "$name, $backend: reserved is the plan's peak" "$(json replay.json "r['peak_reserved_bytes'] == ($peak + 2097151) // 2097152 * 2097152")" true
        # Below 1 GiB one page of 2 MiB alone is more.
        is "$name, $backend: ratio at most $most" "$(json replay.json "r['ratio'] <= $most or $peak < 1 << 30")" true
        is "$name, $backend: no driver call in the second pass" "$(json replay.json 'r["passes"][1]["driver_calls"]')" 0
    done
    for perturbed in 1 2 3; do
        replay_both $perturbed
    done
    for kind in nudge size other miss leak add swap stream; do
        replay_both 1 0.05 $kind
    done
done
done_testing
