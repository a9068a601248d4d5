#!/bin/bash
# The blocks of scripts/gpu.sh on the simulated device, each to its last line; an odd device's wrong assumptions are named; a job
# that fails shows nothing; results are collected.
# waits: for jobs that sleep; no assumption about speed is judged
# timeout: 400
. "$(dirname "$0")/../lib.sh"
unset OUT
# rehearse WORD...: the tables of scripts/gpu.sh, its exit status in $status.
rehearse() {
    tables=$(OUT=$TMP GPU_REHEARSAL=1 GPU_BUILT=1 BUILD_DIR=${BUILT:-$BUILD_DIR} timeout 120 "$ROOT/scripts/gpu.sh" "$@" 2>&1)
    status=$?
}
# Assumptions about speed are no test of this machine.
wrong() { printf '%s\n' "$tables" | grep '^WRONG' | grep -Evc 'under 50 us|under 0.1 s|overlap'; }
last() { printf '%s\n' "$tables" | tail -n 1; }
# A machine where everything is: the fake profilers and debuggers run their programs.
mkdir "$TMP/bin"
cat > "$TMP/bin/ncu" << 'TOOL'
#!/bin/bash
while [ "${1#--}" != "$1" ]; do case $1 in --clock-control | --launch-count | --metrics | --target-processes) shift ;; esac; shift; done
"$@" && echo "gpu__time_duration.sum 1"
TOOL
cat > "$TMP/bin/compute-sanitizer" << 'TOOL'
#!/bin/bash
while [ "${1#--}" != "$1" ]; do shift 2; done
"$@" && echo "ERROR SUMMARY: 0 errors"
TOOL
cat > "$TMP/bin/nsys" << 'TOOL'
#!/bin/bash
[ "$1" = profile ] && shift 5
"$@" && echo "Generating report"
TOOL
cat > "$TMP/bin/cuda-gdb" << 'TOOL'
#!/bin/bash
while [ "$1" != --args ]; do
    case $1 in "set environment "*) set_name=${1#set environment } && export "${set_name%% *}=${set_name#* }" ;; esac
    shift
done
"${@:2}" && echo "[Inferior 1 exited normally]"
TOOL
chmod +x "$TMP"/bin/*

ok "the tables name files of the project, and no job takes another one's time" python3 - "$ROOT" << 'PYTHON'
import os, sys
sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[1] + "/tests/gpu")
from experiments import ALLOWED, ASSUMPTIONS, BLOCK_S, BLOCKS, PAIRS
for file in [row.file for row in ASSUMPTIONS] + [pair[4] for pair in PAIRS]:
    for path in file.split(", "):
        assert os.path.exists(os.path.join(sys.argv[1], path)), path
assert sum(block[1] for block in BLOCKS.values()) <= 27, "the sum of the minutes leaves time to start the machines"
for name, (_, minutes, jobs) in BLOCKS.items():
    assert sum(job.limit_s for job in jobs) <= BLOCK_S, f"limits of block {name}"
    assert len({job.name for job in jobs}) == len(jobs), f"names of block {name}"
jobs = {job.name for block in BLOCKS.values() for job in block[2]}
assert {name for pair in PAIRS for name in pair[1:3]} <= jobs, {name for pair in PAIRS for name in pair[1:3]} - jobs
PYTHON
# Without a second build of the library and without PyTorch blocks 3, 2 and 4 lack something; block 1 lacks nothing here.
BUILT=$TMP/built
mkdir -p "$BUILT/without-events"
ln -s "$BUILD_DIR"/* "$BUILT"
[ -e "$BUILT/without-events/libgpucache.so" ] || ln -s "$BUILD_DIR/libgpucache.so" "$BUILT/without-events"
for block in 1 2 3 4; do
    PATH=$TMP/bin:$PATH rehearse $block
    like "block $block runs to its last line" "$(last)" "^block $block: [0-9.]+ s, [0-9]+ jobs, 0 failed"
    printf '%s\n' "$tables" | sed -n 's/^| \(E[0-9]*\) | \([^|]*\) | [^|]* | 0 | \(.*\) |$/# not rehearsed: \1 \2: \3/p'
    is "block $block: no wrong assumption" "$(wrong)" 0
    case $block in
        1 | 3) like "block $block: everything is shown" "$(last)" ", 0 missing, .* 0 not shown" ;;
        *) [ "$(wrong)" != 0 ] || is "block $block: the status says what is not shown" "$status" 3 ;;
    esac
done
like "tools beside the library" "$tables" '^\| cuda-gdb\.inside \| 0 \| 1 \| 0 \|$'
like "costs are in a table" "$(cat "$TMP/block-1.md")" '^\| cuMemCreate \|( [^|]* \|){4} [0-9.]+ … [0-9.]+ \|'
like "runs of handles are in a table" "$(cat "$TMP/block-3.md")" '^\| 2MiB\.2GiB\.rdma0 \|( [0-9.e-]+ \|){6}$'
like "the page names the command" "$(cat "$TMP/block-3.md")" '^\| command \| .scripts/gpu.sh 3. \|'
rehearse --allow-missing 2
is "what is missing may be allowed" "$status" 0

odd() { # odd NAME BLOCK EXPERIMENT REGEX: an assumption is wrong, by experiment and file
    rehearse "$2" "$3"
    is "$1: the exit status says so" "$status" 1
    like "$1: experiment and file are named" "$tables" "^\| $3 .* WRONG.*$4"
}
SIMCUDA_LOOKUPS=apart odd "look-ups apart" 1 E1 'differ\.flags0.*settings\.c'
SIMCUDA_DEVICES=2 SIMCUDA_MEMORY=16GiB SIMCUDA_PEERS=none odd "no peers" 1 E1 'peers\.0\.1.*driver_map\.c'
SIMCUDA_RDMA=once odd "RDMA at one address" 1 E2 'rdma1.*backend\.c'
SIMCUDA_RDMA=refused odd "no RDMA" 1 E2 'rdma1.*backend\.c'
SIMCUDA_WAIT_US=3000000 odd "calls that wait" 1 E4 'cuMemUnmap.*unmap\.c'
SIMCUDA_LAZY=64MiB odd "lazy memory" 4 E11 'first_launch.*settings\.c'
# Memory that the driver takes for itself: NVML has it, the account only where it is compared with NVML.
if [ -e "$ROOT/core/reclaim/reconcile.c" ]; then
    SIMCUDA_LAZY=1200MiB rehearse 4 E11
    like "the driver's own memory is counted" "$tables" '^\| E11 \| less than .* driver \| 1 \| holds .*reconcile\.c'
else
    SIMCUDA_LAZY=1200MiB odd "the driver's own memory" 4 E11 'driver\.limited:process\.not_counted = 1\..*measure\.c'
fi

is "the simulated devices that processes shared are gone" "$(find /dev/shm -name "simcuda-*-rehearsal-*" | wc -l)" 0

# What is not there, or ends badly, shows nothing.
mkdir -p "$TMP/broken/tests/gpu"
ln -s "$BUILD_DIR/libgpucache.so" "$BUILD_DIR/simcuda" "$TMP/broken"
printf '#!/bin/sh\necho "row thread.ends 1 yes"\nexit 9\n' > "$TMP/broken/tests/gpu/teardown"
chmod +x "$TMP/broken/tests/gpu/teardown"
BUILT=$TMP/broken rehearse 1 E7
is "a job that fails is a failure" "$status" 1
like "and shows nothing" "$tables" '^\| E7 \| a thread may free while .* not shown: teardown.thread.none: status 9'
BUILT=$TMP/broken rehearse 1 E8
like "nor does a program that was not built" "$tables" '^\| E8 \| small blocks .* not shown: pointers.none: not built'
printf '#!/bin/sh\nwhile :; do sleep 1; done\n' > "$TMP/broken/tests/gpu/pointers"
chmod +x "$TMP/broken/tests/gpu/pointers"
GPU_BLOCK_SECONDS=4 BUILT=$TMP/broken rehearse 1 E8
like "a late job is killed" "$tables" '^\| E8 \| pointers.none .* late: over 4 s'
for words in "1 E99" 9 "" nothing; do
    # shellcheck disable=SC2086 # the words are to be split
    rehearse $words
    is "\`gpu.sh $words\` is no command" "$status" 2
done

# ---- results into the project ----

collect() { "$ROOT/scripts/gpu.sh" collect "$@" 2>&1; }
like "collect without a folder says how" "$(collect)" "^usage: collect.py"
like "a rehearsal is no measurement" "$(collect "$TMP")" "is a rehearsal"
as_measured() { # as_measured FOLDER GPU [PYTHON]: the blocks as if measured there
    mkdir -p "$1"
    python3 - "$TMP" "$1" "$2" "${3:-pass}" << 'PYTHON'
import json, sys
for block in "13":
    report = json.load(open(f"{sys.argv[1]}/block-{block}.json"))
    report["machine"].update(is_rehearsal=False, gpu=sys.argv[3])
    report["begun"] = "2030-01-02T03:04:05Z"
    exec(sys.argv[4])
    json.dump(report, open(f"{sys.argv[2]}/block-{block}.json", "w"))
PYTHON
}
project=$TMP/project
mkdir -p "$project/docs/measurements" "$project/tests/simcuda/driver"
cp "$ROOT/docs/measurements/README.md" "$project/docs/measurements"
cp "$ROOT/tests/simcuda/driver/latency_h200.def" "$project/tests/simcuda/driver"
rehearse --allow-missing 3 > /dev/null
rehearse 1
as_measured "$TMP/h100" "NVIDIA H100 80GB HBM3, 580.1, 81559 MiB"
like "an H100's costs are no profile of an H200" "$(collect "$TMP/h100" "$project")" "profile h200 stays as it is: these costs are of NVIDIA H100"
ok "the profile is as before" cmp "$ROOT/tests/simcuda/driver/latency_h200.def" "$project/tests/simcuda/driver/latency_h200.def"
as_measured "$TMP/h200" "NVIDIA H200, 580.1, 143771 MiB"
like "results are taken" "$(collect "$TMP/h200" "$project")" "2030-01-02-nvidia-h200-block-1.md"
like "a page has the tables" "$(cat "$project/docs/measurements/2030-01-02-nvidia-h200-block-3.md")" '^\| 2MiB\.2GiB\.rdma0 \|'
like "the folder's page has its line" "$(cat "$project/docs/measurements/README.md")" '^\| \[2030-01-02-nvidia-h200-block-3.md\]'
like "an unchanged run is there already" "$(collect "$TMP/h200" "$project")" "block-1.json is there already"
as_measured "$TMP/h200" "NVIDIA H200, 580.1, 143771 MiB" 'report["seconds"] = 7'
like "another run of the day has a number" "$(collect "$TMP/h200" "$project")" "block-1-2.json"
like "the profile has the costs" "$(cat "$project/tests/simcuda/driver/latency_h200.def")" "Measured on 2030-01-02: NVIDIA H200"
as_measured "$TMP/short" "NVIDIA H200, 580.1, 143771 MiB" 'report["is_complete"] = False'
like "a block that was cut short is not taken" "$(collect "$TMP/short" "$project")" "cut short: run the block again; nothing was taken"
as_measured "$TMP/nameless" ""
like "nor is one without a GPU's name" "$(collect "$TMP/nameless" "$project")" "names no GPU"
done_testing
