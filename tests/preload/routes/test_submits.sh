#!/bin/bash
# Every entry point that submits work counts, and the time of the one stream ends when it must.
. "$(dirname "$0")/../../lib.sh"

program=$BUILD_DIR/tests/preload/submits
with() { env LD_LIBRARY_PATH="$SIM_DIR" LD_PRELOAD="$LIB" GPUCACHE_REPORT=none "$@" 2>&1; }

# The driver refuses each but the two fills that come first: nothing in an argument may do harm.
names=$(LD_LIBRARY_PATH=$SIM_DIR "$program" names)
refused=$(sed 's/$/@1+/; s/^\(cuMemsetD32Async\)@1+$/\1@3+/' <<< "$names" | paste -sd,)
offered=$(nm -D --defined-only "$SIM_DIR/libcuda.so.1" | awk '{print $NF}' | grep -c -x -F "$names")
is "every entry point counts, and no other" "$(SIMCUDA_FAIL=$refused with "$program")" "$offered of $(wc -l <<< "$names")"

one() { SIMCUDA_WORK_US=20000 with "$program" single "$1"; }
is "one stream: what is freed serves at once" "$(one none)" "free free"
is "until another stream has work" "$(one other)" "free pending"
is "or the legacy stream" "$(one legacy)" "free pending"
is "or a thread's own" "$(one thread)" "free pending"
is "or the stream is destroyed" "$(one destroy)" "free pending"
is "or something is captured" "$(one capture)" "free pending"
is "a wait for it ends nothing" "$(one wait)" "free free"

# What was freed in that time and is not known to be idle: another stream's work follows it, and the host waits for nothing.
calls() {
    rm -f "$TMP/journal"
    SIMCUDA_JOURNAL=$TMP/journal SIMCUDA_WORK_US=20000 with "$program" retired "$1" >&2
    printf '%s %s\n' "$(grep -c ' cuCtxSynchronize ' "$TMP/journal")" "$(grep -c ' cuStreamWaitEvent ' "$TMP/journal")"
}
is "work of another stream follows what a block with work queued was freed behind" "$(calls busy)" "1 1"
is "not after the program waited for the one stream" "$(calls waited)" "1 0"
done_testing
