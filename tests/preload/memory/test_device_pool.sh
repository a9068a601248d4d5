#!/bin/bash
# Stream-ordered memory belongs to its device: it outlives the context that allocated it, every context of the device reaches
# it, and those of devices that the pool was opened to, whenever that was.
# timeout: 400
# without: SIMCUDA_PEERS=none "answers2: runs without the library" because its devices share a pool
# without: SIMCUDA_PEERS=none "answers2, MODE=track: nothing is left" because its devices share a pool
# without: SIMCUDA_PEERS=none "answers2, REUSE=sync: nothing is left" because its devices share a pool
# without: SIMCUDA_PEERS=none "answers2, BACKEND=vmm: nothing is left" because its devices share a pool
# without: SIMCUDA_PEERS=none "answers2, BACKEND=driver: nothing is left" because its devices share a pool
# without: SIMCUDA_PEERS=none "answers2, BACKEND=whole: nothing is left" because its devices share a pool
# without: SIMCUDA_PEERS=none "late work, context: reaches no later owner" because memory that is not mapped is the driver's pool's, which has no such order
# without: SIMCUDA_PEERS=none "late work, made: reaches no later owner" because memory that is not mapped is the driver's pool's, which has no such order
# without: SIMCUDA_PEERS=none "late work, device: reaches no later owner" because memory that is not mapped is the driver's pool's, which has no such order
. "$(dirname "$0")/../../lib.sh"
program=$BUILD_DIR/tests/preload/device_pool
export SIMCUDA_MEMORY=1GiB
for answers in answers answers2; do
    export SIMCUDA_DEVICES=1
    [ $answers = answers ] || export SIMCUDA_DEVICES=2 GPUCACHE_LOG=error # devices that are no peers are warned of
    without=$(simulated timeout 60 "$program" $answers 2>&1)
    is "$answers: runs without the library" "$?" 0
    for setting in MODE=off MODE=track REUSE=sync BACKEND=vmm BACKEND=driver BACKEND=whole; do
        is "$answers, $setting: as without the library" \
            "$(GPUCACHE_REPORT="$TMP/r.json" preloaded "GPUCACHE_$setting" timeout 60 "$program" $answers 2>&1)" "$without"
        [ $setting = MODE=off ] && continue
        is "$answers, $setting: nothing is left" \
            "$(json "$TMP/r.json" '[d["leak_count"], d["requested_bytes"]["current"], d["reserved_bytes"]["current"]]')" "[0, 0, 0]"
    done
done
unset GPUCACHE_LOG
export GPUCACHE_REPORT=none
for way in context made device; do
    SIMCUDA_WORK_US=3000 is "late work, $way: reaches no later owner" \
        "$(SIMCUDA_WORK_US=3000 preloaded timeout 60 "$program" late $way 2>&1)" "wrong 0"
done
is "work that does not end holds up no free" "$(preloaded timeout 60 "$program" never 2>&1)" "done"
done_testing
