#!/bin/bash
# Memory that programs take from the driver in other ways than the pool's: counted, charged, limited, and gone
# from the accounts when it is gone. Each case of progs/direct.c is one run; its report is looked at afterwards.
# timeout: 400
# without: SIMCUDA_PEERS=none "peers (SIMCUDA_DEVICES=2): the program is content" because it opens memory to a peer
# without: SIMCUDA_PEERS=none "peers: its output" because it opens memory to a peer
# without: SIMCUDA_LAZY "both were measured" because modules take their memory at the first launch
# without: SIMCUDA_LAZY "module-hold: one is still charged" because modules take their memory at the first launch
. "$(dirname "$0")/../../lib.sh"
export SIMCUDA_MEMORY=2GiB
export GPUCACHE_MODE=track # nothing is kept in reserve: the accounts show what the program holds
DIRECT=$BUILD_DIR/tests/preload/direct
REPORT=$TMP/report.json
MIB=1048576
CONTEXT_BYTES=$((64 * MIB)) # what a simulated context takes

# run CASE [NAME=VALUE…]: runs it under the library; sets $output and $status.
run() {
    local case=$1
    shift
    ran=$case
    rm -f "$REPORT"
    output=$(env GPUCACHE_REPORT="$REPORT" LD_LIBRARY_PATH="$SIM_DIR" "$@" LD_PRELOAD="$LIB" \
        "$DIRECT" "$case" 2>"$TMP/stderr")
    status=$?
}

# ends CASE RESERVED REQUESTED [NAME=VALUE…]: the case succeeds and leaves these bytes in the accounts.
ends() {
    local case=$1 reserved=$2 requested=$3
    shift 3
    run "$case" "$@"
    is "$case${*:+ ($*)}: the program is content" "$status $(cat "$TMP/stderr")" "0 "
    is "$case${*:+ ($*)}: reserved, requested" \
        "$(json "$REPORT" 'f"""{d["reserved_bytes"]["current"]} {d["requested_bytes"]["current"]}"""')" \
        "$reserved $requested"
}

# api ENTRY FIGURES: count, bytes and current_bytes of an entry point in the last report.
api() {
    is "  $1" "$(json "$REPORT" "'{count} {bytes} {current_bytes}'.format(**d['by_api']['$1'])")" "$2"
}

# printed TEXT: what the program printed, line by line.
printed() {
    is "$ran: its output" "$output" "$1"
}

# ---- managed and host memory: recorded, not charged ----
ends managed 0 0
api cuMemAllocManaged "3 $((9 * MIB)) 0"
printed "managed, nothing: 1"
ends managed-hold 0 $((3 * MIB))
api cuMemAllocManaged "3 $((9 * MIB)) $((3 * MIB))"
ends host 0 0
api cuMemHostAlloc "1 $((5 * MIB)) 0"
api cuMemAllocHost_v2 "1 $MIB 0"
printed "host, twice: 1"
ends host-hold 0 0
api cuMemHostAlloc "1 $((5 * MIB)) $((5 * MIB))"

# ---- arrays ----
ends arrays 0 0
api cuArrayCreate_v2 "1 $((16 * MIB)) 0"
api cuArray3DCreate_v2 "1 $MIB 0"
is "  the peak is what was held at once" "$(json "$REPORT" 'd["reserved_bytes"]["peak"] >= (17 << 20)')" true
ends arrays-hold $((16 * MIB)) $((16 * MIB))

# ---- physical handles ----
ends vmm 0 0
api cuMemCreate "2 $((8 * MIB)) 0"
ends vmm-hold $((8 * MIB)) $((8 * MIB))
ends vmm-retained-hold $((4 * MIB)) $((4 * MIB))
ends vmm-wrong 0 0
printed "create, nothing: 1
create, no property: 1
release, twice: 1"

# ---- stream-ordered memory ----
ends async 0 0
api cuMemAllocAsync "13 $((60 * MIB + 1000)) 0"
is "  the pool was charged" "$(json "$REPORT" 'd["reserved_bytes"]["peak"] >= (20 << 20)')" true
ends async-free 0 0
printed "async free, interior: 1"
run async-free GPUCACHE_MODE=cache
is "async-free (cache): the same" "$status $output $(json "$REPORT" 'd["requested_bytes"]["current"]')" \
    "0 async free, interior: 1 0"
ends pool 0 0
api cuMemAllocFromPoolAsync "2 $((16 * MIB)) 0"
run pool-hold
is "pool-hold: charged as in the driver" "reserved $(json "$REPORT" 'd["reserved_bytes"]["current"]')" "$output"
run pool-gives-way GPUCACHE_MODE=cache GPUCACHE_LIMIT=$((200 * MIB + CONTEXT_BYTES))
is "pool-gives-way: idle memory is in nobody's way" "$status $(without_refusals < "$TMP/stderr")" "0 "
is "  three were too much, each counted once" "$(json "$REPORT" 'd["oom_count"]')" 3
is "  the limit held" "$(json "$REPORT" "d['reserved_bytes']['peak'] <= $((200 * MIB + CONTEXT_BYTES))")" true

# ---- captures and graphs ----
for mode in cache track; do
    run capture GPUCACHE_MODE=$mode
    is "capture ($mode): survives allocation and free" "$status $(cat "$TMP/stderr")" "0 "
    printed "end capture: 0
graph wrote 9"
done
run capture-ends GPUCACHE_MODE=cache GPUCACHE_LIMIT=$((200 * MIB + CONTEXT_BYTES))
is "capture-ends: what ended is over" "$status $(cat "$TMP/stderr")" "0 "
ends graph 0 0
run graph-hold
is "graph-hold: charged as in the driver" "reserved $(json "$REPORT" 'd["reserved_bytes"]["current"]')" "$output"
like "  and it holds something" "$output" 'reserved [1-9]'

# ---- contexts ----
ends context 0 0
is "  contexts were measured" "$(json "$REPORT" "'{count} {bytes}'.format(**d['by_api']['cuCtxCreate_v4'])")" \
    "3 $((3 * CONTEXT_BYTES))"
ends context-hold $CONTEXT_BYTES 0
ends reset 0 0
ends reset 0 0 GPUCACHE_MODE=cache GPUCACHE_LIMIT=1GiB
ends release 0 0
ends release 0 0 GPUCACHE_MODE=cache GPUCACHE_LIMIT=1GiB
run release-hold GPUCACHE_LIMIT=1GiB
is "release-hold: another holder keeps the context and what is in it" \
    "$(json "$REPORT" "d['reserved_bytes']['current'] > $CONTEXT_BYTES + (10 << 20)")" true

# ---- sharing ----
run ipc GPUCACHE_MODE=cache GPUCACHE_BACKEND=vmm SIMCUDA_ATTRIBUTES=103=0
printed "one refused: 1
asked again: 0
asked again: 0
asked again: 0"
like "  and gives the reason, once" "$(grep -c GPUCACHE_BACKEND=whole "$TMP/stderr")" '^1$'

run ipc-parent CHILD_REPORT="$TMP/child.json"
is "ipc: another process opens a block" "$status $output $(cat "$TMP/stderr")" "0 child 0 wrote 5 "
is "  which is not charged to that one" \
    "$(json "$TMP/child.json" 'f"""{d["by_api"]["cuIpcOpenMemHandle_v2"]["bytes"]} {d["reserved_bytes"]["peak"]}"""')" \
    "$((3 * MIB)) 512"
ends peers 0 0 SIMCUDA_DEVICES=2
printed "enable again: 704"

# ---- code, by difference ----
ends module 0 0
is "  both were measured" \
    "$(json "$REPORT" 'min(d["by_api"][name]["bytes"] for name in ("cuModuleLoadData", "cuModuleLoadDataEx")) > 0')" true
run module-hold
is "module-hold: one is still charged" \
    "$(json "$REPORT" 'd["reserved_bytes"]["current"] == d["by_api"]["cuModuleLoadData"]["bytes"] > 0')" true
run graph-node-hold
is "graph-node-hold: kept until it is trimmed" "$(json "$REPORT" 'd["reserved_bytes"]["current"]')" $((4 * MIB))

# ---- limits ----
run limits GPUCACHE_MODE=cache GPUCACHE_LIMIT=$((200 * MIB + CONTEXT_BYTES))
is "limits: the program is content" "$status $(without_refusals < "$TMP/stderr")" "0 "
printed "create, too much: 2
create: 0
array, too much: 2
array: 0
async, too much: 2
async: 0
managed: 0"
is "  each refusal is counted" "$(json "$REPORT" 'd["oom_count"]')" 3
is "  the limit held" "$(json "$REPORT" "d['reserved_bytes']['peak'] <= $((200 * MIB + CONTEXT_BYTES))")" true

# ---- refusals of the driver leave the accounts as they were ----
# refused CASE ENTRY: every call of the entry fails; nothing is charged for it.
refused() {
    run "$1" SIMCUDA_FAIL="$2@1+"
    is "$1 without $2: fails plainly" "$status" 1
    is "  nothing is charged for it" \
        "$(json "$REPORT" "(d['by_api'].get('$2') or {'current_bytes': 0})['current_bytes']")" 0
}
refused arrays cuArrayCreate_v2
refused arrays cuArray3DCreate_v2
refused vmm cuMemCreate
refused async cuMemAllocAsync
refused managed cuMemAllocManaged
refused host cuMemHostAlloc
# A release that fails keeps the charge.
run vmm SIMCUDA_FAIL=cuMemUnmap@1
is "vmm without its unmapping: still charged" "$(json "$REPORT" 'd["reserved_bytes"]["current"]')" $((8 * MIB))
run arrays SIMCUDA_FAIL=cuArrayDestroy@1
is "arrays without their destruction: still charged" "$(json "$REPORT" 'd["reserved_bytes"]["current"]')" $((17 * MIB))

# ---- eight threads, every way at once, against a limit ----
DIRECT=$BUILD_DIR/tests/preload/direct_threads
LIMIT=$((300 * MIB + CONTEXT_BYTES))
run 4 GPUCACHE_MODE=cache GPUCACHE_LIMIT=$LIMIT
is "threads: every failure is out-of-memory, every release works" "$status $(without_refusals < "$TMP/stderr")" "0 "
like "  some were served and some refused" "$output" 'successes [1-9][0-9]* failures [1-9]'
is "  the limit held" "$(json "$REPORT" "d['reserved_bytes']['peak'] <= $LIMIT")" true
is "  the accounts are empty at the end" \
    "$(json "$REPORT" 'f"""{d["reserved_bytes"]["current"]} {d["requested_bytes"]["current"]} {d["leak_count"]}"""')" "0 0 0"
is "  each refusal is counted" "failures $(json "$REPORT" 'd["oom_count"]')" "${output#* [0-9]* }"
done_testing
