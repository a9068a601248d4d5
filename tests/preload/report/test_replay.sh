#!/bin/bash
# gpucache replay: its command line, every format it reads, files made to hurt it, and the recorded traces.
# timeout: 400
# shellcheck disable=SC2016
. "$(dirname "$0")/../../lib.sh"
cd "$TMP" || exit 1
SHARED=$ROOT/../shared

# fails WANT_STATUS WANT_REGEX ARGUMENTS…: one line on stderr that matches, nothing on stdout, that status.
fails() {
    local want=$1 regex=$2 status
    shift 2
    "$TOOL" replay "$@" > out 2> err
    status=$?
    is "replay $*: exit status" "$status" "$want"
    is "replay $*: one line" "$(wc -l < err)" 1
    is "replay $*: nothing on stdout" "$(cat out)" ""
    like "replay $*: names the error" "$(cat err)" "$regex"
}
# replayed NAME ARGUMENTS…: runs with --json into the file NAME.json.
replayed() {
    local name=$1
    shift
    ok "replay $*" sh -c '"$0" replay "$@" --json > '"$name.json" "$TOOL" "$@"
}
value() {
    json "$1.json" "$2"
}

cat > small.csv << 'END'
op,id,bytes,stream,time_us
a,1,10485760,0,0
a,2,3000,0,5
f,1,10485760,0,9
a,3,6291456,0,12
END

# ---- the command line ----
fails 2 'a file is missing' --json
fails 2 'policy fast is not valid; accepted: cache, driver' small.csv --policy fast
fails 2 'backend disk is not valid; accepted: vmm, driver' small.csv --backend disk
fails 2 '--backend and --plan go with --policy cache' small.csv --policy driver --backend vmm
fails 2 '--limit 0 is not valid; accepted: a size or percentage' small.csv --limit 0
fails 2 '--memory 10% is not valid; accepted: a size' small.csv --memory 10%
fails 2 '--passes 0 is not valid; accepted: 1 to 1000' small.csv --passes 0
fails 2 '--threads 65 is not valid; accepted: 1 to 64' small.csv --threads 65
fails 2 '--device x is not valid; accepted: an ordinal' small.csv --device x
fails 1 'none.plan: cannot be read: there is no such file' small.csv --plan none.plan
fails 1 'small.csv: no plan of a run: .gpucache plan TRACE --output. makes one' small.csv --plan small.csv
fails 2 '--backend and --plan go with --policy cache' small.csv --policy driver --plan small.csv
fails 1 'none.csv: No such file or directory' none.csv
sed '3s/^a/x/' small.csv > wrong.csv
fails 1 'wrong.csv: line 3: op "x" is not valid; accepted: a \(allocated\), f \(freed\)' wrong.csv
"$TOOL" replay small.csv > /dev/full 2> err
is "a full standard output is a failure" $? 1

# ---- the figures ----
replayed one small.csv --policy cache
is "the keys of the contract" \
    "$(value one "all(k in r for k in ('events', 'peak_live_bytes', 'peak_reserved_bytes', 'ratio', 'passes')) and all(k in p for p in r['passes'] for k in ('driver_calls', 'ns_per_event'))")" true
is "events" "$(value one 'r["events"]')" 4
is "peak live" "$(value one 'r["peak_live_bytes"]')" 10488760
is "two passes" "$(value one 'len(r["passes"])')" 2
is "the second needs no driver, or a fence" "$(value one 'r["passes"][1]["driver_calls"] <= 1')" true
is "what stays live is freed" "$(value one 'r["live_at_end_count"]')" 2
is "all that was asked for was served" "$(value one '[p["hit_count"] + p["miss_count"] for p in r["passes"]]')" "[3, 3]"
replayed all small.csv --passes 3
is "without a policy all are compared" "$(value all '[[p["policy"], p["backend"], len(p["passes"])] for p in r["policies"]]')" \
    '[["cache", "vmm", 3], ["cache", "driver", 3], ["driver", null, 3]]'
is "the driver is called for each event" "$(value all '[p["driver_calls"] for p in r["policies"][2]["passes"]]')" "[6, 6, 6]"
is "no pages without mapped memory" "$(value all '"page_create" in r["policies"][1]["driver_calls"]')" false
is "pages with it" "$(value all 'r["policies"][0]["driver_calls"]["page_create"] * 2097152 == r["policies"][0]["peak_reserved_bytes"]')" true
like "as a table" "$("$TOOL" replay small.csv)" '^cache, vmm +[0-9.]+ MiB +[0-9.]+ +1 +[0-9]+ +[0-9.]+ +[0-9.]+ +[0-9]+$'

# ---- a limit ----
"$TOOL" replay small.csv --policy cache --limit 8MiB --json > limited.json
is "too small a limit: exit status" $? 3
is "too small a limit: one request a pass fails" "$(value limited '[p["oom_count"] for p in r["passes"]]')" "[1, 1]"
is "the limit holds" "$(value limited 'r["peak_reserved_bytes"] <= r["limit_bytes"] == 8 << 20')" true
"$TOOL" replay small.csv --policy driver --memory 9MiB > /dev/null
is "too small a device: exit status" $? 3
replayed enough small.csv --policy cache --backend driver --limit 13MiB

# ---- threads ----
replayed threads small.csv --policy cache --threads 4 --passes 5
is "each thread replays all" "$(value threads '[p["hit_count"] + p["miss_count"] for p in r["passes"]]')" "[12, 12, 12, 12, 12]"
is "events are those of the trace" "$(value threads 'r["events"]')" 4

# ---- RMM ----
cat > rmm.csv << 'END'
Thread,Time,Action,Pointer,Size,Stream
140,10:00:00:000001,allocate,0x7f00,1000,0x0
140,10:00:00:000002,allocate failure,(nil),99999,0x0
141,10:00:00:000003,allocate,0x8f00,500,0x7f12
140,10:00:00:000004,free,0x7f00,1000,0x0
141,10:00:00:000005,free,0x9900,64,0x0
END
replayed rmm rmm.csv --policy cache
is "RMM: format" "$(value rmm 'r["format"]')" "RMM log"
is "RMM: peak" "$(value rmm 'r["peak_live_bytes"]')" 1500
is "RMM: what is unknown is counted" "$(value rmm '[r["unknown_free_count"], r["left_out_count"]]')" "[1, 1]"

# ---- our own record ----
preloaded env GPUCACHE_TRACE="$TMP/own.trace" GPUCACHE_REPORT=none "$BUILD_DIR/tests/preload/modes" > client.out 2>&1
if [ -s own.trace ]; then
    "$TOOL" trace own.trace --csv own.csv
    replayed own own.trace --policy cache
    replayed own_csv own.csv --policy cache
    is "our record and its CSV: same peak" "$(value own 'r["peak_live_bytes"]')" "$(value own_csv 'r["peak_live_bytes"]')"
    is "our record: as by the trace command" "$(value own 'r["peak_live_bytes"]')" \
        "$("$TOOL" trace own.trace --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["peak_live_bytes"])')"
else
    ok "a program left a record" false
fi

# ---- pickles ----
cat > snapshot.py << 'END'
"""snapshot.py CSV PICKLE PROTOCOL: the CSV's events as a PyTorch memory snapshot, on its second device."""
import pickle, sys
frames = [{"filename": "train.py", "line": i, "name": f"layer{i}"} for i in range(8)]
events, sizes = [], {}
def event(action, number, time):
    events.append({"action": action, "addr": 0x7f0000000000 + number * 512, "size": sizes[number], "stream": 0, "time_us": time,
                   "frames": frames[number % 4:][:3]})
for line in open(sys.argv[1]).read().split()[1:]:
    op, number, size, _, time = line.split(",")
    number, time = int(number), int(time)
    if op == "a":
        sizes[number] = int(size)
        event("alloc", number, time)
    else:
        event("free_requested", number, time)
        event("free_completed", number, time)
snapshot = {"segments": [{"device": 0, "segment_pool_id": (0, 0), "is_expandable": False, "frames": [], "blocks": []}],
            "device_traces": [[], events], "allocator_settings": {"factor": 1.5, "none": None, "yes": True, "big": 1 << 80}}
pickle.dump(snapshot, open(sys.argv[2], "wb"), protocol=int(sys.argv[3]))
END
for protocol in 0 1 2 3 4; do
    python3 snapshot.py small.csv "p$protocol.pickle" $protocol
    replayed p$protocol p$protocol.pickle --policy cache
    is "protocol $protocol: as the CSV" "$(value p$protocol '[r["events"], r["peak_live_bytes"], r["passes"][0]["miss_count"]]')" \
        "$(value one '[r["events"], r["peak_live_bytes"], r["passes"][0]["miss_count"]]')"
done
python3 snapshot.py small.csv p5.pickle 5
fails 1 'pickle protocol 5; accepted: 4 and lower' p5.pickle
fails 1 'the snapshot has 2 devices, numbered from 0' p4.pickle --device 2
fails 1 'the trace has no allocation' p4.pickle --device 0
# hostile NAME REGEX PYTHON: bytes that Python prints are refused with that line, in a second.
hostile() {
    python3 -c "import os, pickle, struct, sys; sys.stdout.buffer.write($3)" > "$1.pickle"
    fails 1 "$2" "$1.pickle"
}
hostile reduce 'opcode GLOBAL: only plain data is read, and nothing is executed' "b'\\x80\\x02cos\\nsystem\\nU\\x10touch executed.oh\\x85R.'"
hostile stack_global 'opcode STACK_GLOBAL: only plain data' "pickle.dumps(os.system, 4)"
hostile object 'opcode (GLOBAL|STACK_GLOBAL|REDUCE)' "pickle.dumps(struct.Struct, 4)"
hostile set 'opcode EMPTY_SET' "pickle.dumps({1, 2}, 4)"
hostile persistent 'opcode PERSID' "b'\\x80\\x02P1\\n.'"
hostile unknown 'unknown opcode 0xff' "b'\\x80\\x02\\xff.'"
hostile cut 'the file ends too early' "pickle.dumps({'device_traces': [[{'action': 'alloc'}]]}, 2)[:30]"
hostile empty_stack 'malformed' "b'\\x80\\x02.'"
hostile underflow 'malformed' "b'\\x80\\x02}K\\x01s.'"
hostile crossed_mark 'malformed' "b'\\x80\\x02](K\\x01a.'"
hostile long_text 'the file ends too early' "b'\\x80\\x04\\x8d' + struct.pack('<Q', 1 << 62) + b'x.'"
hostile long_integer 'the file ends too early' "b'\\x80\\x02\\x8b\\xff\\xff\\xff\\xff1.'"
hostile wild_memo 'malformed' "b'\\x80\\x02]r\\xff\\xff\\xff\\xff.'"
hostile unset_memo 'malformed' "b'\\x80\\x02h\\x07.'"
hostile frame 'a frame beyond the file' "b'\\x80\\x04\\x95' + struct.pack('<Q', 1 << 62) + b'].'"
hostile nested 'not a PyTorch memory snapshot' "b'\\x80\\x02' + b']' + b']' * 1000000 + b'a' * 1000000 + b'.'"
hostile other 'not a PyTorch memory snapshot: it has no device_traces' "pickle.dumps([1, 2], 2)"
hostile no_history 'the snapshot has no history' "pickle.dumps({'device_traces': [[], []]}, 2)"
hostile action 'event 1 of the snapshot.s history has no action' \
    "pickle.dumps({'device_traces': [[{'action': 'oom'}, {'addr': 5}]]}, 2)"
hostile address 'event 0 of the snapshot.s history has no valid addr' \
    "pickle.dumps({'device_traces': [[{'action': 'alloc', 'addr': -5, 'size': 5}]]}, 2)"
hostile keys 'event 0 of the snapshot.s history is not a dictionary of a few keys' \
    "pickle.dumps({'device_traces': [[{str(i): 1 for i in range(100)}]]}, 2)"
is "nothing was executed" "$(ls executed.oh 2> /dev/null)" ""

# ---- the recorded traces ----
if [ -r "$SHARED/tools/pt_policy.py" ] && [ -d "$SHARED/data/traces" ]; then
    for trace in "$SHARED"/data/traces/*.csv; do
        name=$(basename "$trace" .csv)
        replayed "$name" "$trace" --policy cache --backend vmm --passes 4
        is "$name: peak live as the reference has it" "$(value "$name" 'r["peak_live_bytes"]')" \
            "$(PYTHONDONTWRITEBYTECODE=1 python3 -c 'import sys; sys.path.insert(0, sys.argv[1]); import pt_policy; print(pt_policy.replay(sys.argv[2], False)[0])' "$SHARED/tools" "$trace")"
        # One call at most: a fence.
        is "$name: no driver call from the third pass on" "$(value "$name" "max(r['passes'][i]['driver_calls'] for i in (2, 3)) <= 1")" true
        if [ "$(value "$name" 'r["peak_live_bytes"] > 1 << 30')" = true ]; then
            is "$name: at most 3 % more held than live, and the last extents" "$(value "$name" 'r["ratio"] <= 1.032 or r["ratio"]')" true
        fi
    done
else
    skip "the recorded traces" "no $SHARED here: neither the ratio nor the driver calls of real traces were checked"
fi
done_testing
