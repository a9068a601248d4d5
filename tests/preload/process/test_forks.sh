#!/bin/bash
# fork in every state: with threads inside the library, with the dynamic linker's lock held, during a capture, while paused, from a thread, twice; with a trace open,
# with stacks, in a group, with tenants. The child passes through and ends; the parent, its report and its trace know nothing of it.
# timeout: 300
. "$(dirname "$0")/../../lib.sh"
forks=$BUILD_DIR/tests/preload/forks
GPUCACHE_TRACE=$TMP/run.trace GPUCACHE_REPORT=none preloaded timeout -s KILL 60 "$forks" threads > "$TMP/out" 2>&1
ok "a run is planned" "$TOOL" plan "$TMP/run.trace" --output "$TMP/run.plan" --deadline 1
settings=("GPUCACHE_PLAN=$TMP/run.plan" "GPUCACHE_MODE=cache" "GPUCACHE_MODE=track" "GPUCACHE_TRACE=$TMP/trace GPUCACHE_STACKS=all"
    "GPUCACHE_GROUP=forks GPUCACHE_LIMIT=2GiB GPUCACHE_TENANTS=all=*:1GiB" "GPUCACHE_REUSE=sync GPUCACHE_BACKEND=driver")

for state in started threads linking capture paused from-thread twice ending; do
    for set in "${settings[@]}"; do
        case "$state $set" in "paused "*track | "paused "*driver) continue ;; esac # nothing there to pause
        rm -rf "$TMP/reports" "$TMP/trace"
        mkdir "$TMP/reports"
        # shellcheck disable=SC2086 # words
        out=$(preloaded $set GPUCACHE_REPORT="$TMP/reports/%p.json" timeout -s KILL 60 "$forks" "$state" 2>&1)
        is "$state, ${set//$TMP\//}" "$? $out" "0 the parent went on"
        reports=("$TMP"/reports/*.json)
        is "$state: one report" "${#reports[@]}" 1
        is "$state: it counts the parent alone" \
            "$(json "${reports[0]}" 'd["leak_count"] == 0 and d["alloc_count"] == d["free_count"] and d["invalid_free_count"] == 0')" true
        [[ $set != *PLAN* ]] || is "$state: it follows the plan" "$(json "${reports[0]}" 'd["plan"]["entries"] > 0')" true
        [[ $set = *TRACE* ]] || continue
        counts=$("$TOOL" trace "$TMP/trace" --csv | cut -d, -f1 | sort | uniq -c | tr -s ' \n' ' ')
        want=$(json "${reports[0]}" 'd["alloc_count"]')
        is "$state: the trace has the parent's events alone" "$counts" " $want a $want f 1 op "
    done
done

# A fork while the library's own thread is inside NVML: the child's NVML is not locked.
mkdir "$TMP/nvml"
cp "$BUILD_DIR/tests/preload/libslownvml.so" "$TMP/nvml/libnvidia-ml.so.1"
is "children of a fork beside NVML's calls use NVML" "$(LD_LIBRARY_PATH=$TMP/nvml GPUCACHE_LIMIT=1GiB GPUCACHE_REPORT=none \
    preloaded env LD_LIBRARY_PATH="$TMP/nvml:$SIM_DIR" timeout -s KILL 60 "$BUILD_DIR/tests/preload/fork_nvml" 2>&1)" "3 of 3"

# A call of NVML while another thread still loads it.
mkdir "$TMP/half"
cp "$BUILD_DIR/tests/preload/libhalfnvml.so" "$TMP/half/libnvidia-ml.so.1"
is "an NVML that is being loaded is not called yet" "$(GPUCACHE_LIMIT=1GiB GPUCACHE_REPORT=none \
    preloaded env LD_LIBRARY_PATH="$TMP/half:$SIM_DIR" timeout -s KILL 60 "$BUILD_DIR/tests/preload/half_nvml" 2>&1)" "0 then 1"
mkdir "$TMP/bare"
ln -s "$SIM_DIR/libcuda.so.1" "$TMP/bare/"
is "as is one that is found by no name, after a context for which there was none" "$(SIMCUDA_DEVICES=2 GPUCACHE_LIMIT=1GiB GPUCACHE_REPORT=none \
    preloaded env LD_LIBRARY_PATH="$TMP/bare" timeout -s KILL 60 "$BUILD_DIR/tests/preload/half_nvml" "$TMP/half/libnvidia-ml.so.1" 2> /dev/null)" "0 then 1"
done_testing
